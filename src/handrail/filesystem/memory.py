"""A filesystem in memory: a snapshot takes constant time, restoring it time in proportion to the changes.

`MemoryTree` holds what is at each path, the journal (`handrail.filesystem.undo_journal`) what to restore; the
filesystem owns the lock over both and enforces the rules of the protocol.
"""

from __future__ import annotations

import threading
from copy import copy
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias
from uuid import uuid4

from handrail.errors import FilesystemError, PathConflictError
from handrail.filesystem import paths, protocol
from handrail.filesystem.path_filters import PathFilter, PathMatcher, Pattern
from handrail.filesystem.paths import ROOT, folders_above, is_inside, join, normalise, parent_folder
from handrail.filesystem.protocol import FileStart, hash_content
from handrail.filesystem.undo_journal import Snapshot, UndoJournal
from handrail.filesystem.walks import EVERYTHING, FileStat, FolderReader, Scan, WalkRequest, walk
from handrail.transaction import Transaction, check_write
from handrail.transaction.changes import CallChange, FileContent, file_change
from handrail.transaction.undoing import MOST_UNDONE_CALLS, UndoChange, UndoImage
from handrail.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class InMemoryFilesystem:
    """A `Filesystem` in memory; see the protocol for its methods.

    `snapshot` costs the same however many files there are, and `restore` costs the paths changed since.
    """

    __slots__ = ("__weakref__", "_call", "_filter", "_history", "_journal", "_lock", "_origin", "_tree", "_turn")

    def __init__(self, files: Mapping[str, str | bytes] | None = None) -> None:
        """Makes a filesystem that holds `files`, by path, and the folders they need.

        Raises:
            PathEscapeError: a path is not one inside the root.
            PathConflictError: two of the paths cannot both be files, or are the same.
            FilesystemError: a text holds a lone surrogate.
        """
        self._turn = Turn()
        self._lock = threading.RLock()
        self._origin: Self | None = None  # the participant of calls; `None` for this one
        self._call: Transaction | None = None  # the call whose view this is; `None` for no view
        self._filter = PathFilter()
        self._tree = MemoryTree()
        self._journal = UndoJournal[MemoryNode]()
        self._history: dict[str, dict[str, tuple[MemoryNode, MemoryNode]]] = {}
        for name, content in (files or {}).items():
            path = normalise(name)
            if self._tree.at(path) is not NO_NODE:
                raise PathConflictError(f"{path!r} is given twice, or is a folder of another file", path=path)
            self._write(path, protocol.encode(content, path=path) if isinstance(content, str) else content)

    @property
    def turn(self) -> Turn:
        """The turn that calls acquire to use this filesystem."""
        return self._turn

    def read_text(self, path: str) -> str:
        """The content of a file as text; see `Filesystem.read_text`."""
        return protocol.decode(self.read_bytes(path), path=path)

    def read_bytes(self, path: str) -> bytes:
        """The content of a file; see `Filesystem.read_bytes`."""
        path = self.shortest(path)
        with self._lock:
            entry = self._present(path)
        if entry is FOLDER:
            raise paths.folder_where_file_is_needed(path)
        return entry

    def read_start(self, path: str, most_bytes: int) -> FileStart:
        """The first bytes of a file; see `Filesystem.read_start`."""
        # Cheap, because `bytes` are immutable: nothing is copied but the start.
        content = self.read_bytes(path)
        return FileStart(content[:most_bytes], len(content))

    def identity(self, path: str) -> str:
        """The SHA-256 at any size, since a file in memory has no time of change; see `Filesystem.identity`."""
        return hash_content((self.read_bytes(path),))

    def write_text(self, path: str, text: str) -> None:
        """Makes or replace a file; see `Filesystem.write_text`."""
        self.write_bytes(path, protocol.encode(text, path=self.shortest(path)))

    def write_bytes(self, path: str, data: bytes) -> None:
        """Makes or replace a file; see `Filesystem.write_bytes`."""
        path = self.shortest(path)
        with self._lock:
            self._check_write(f"write {path}")
            self._write(path, data)

    def exists(self, path: str) -> bool:
        """Returns whether there is anything at a path; see `Filesystem.exists`."""
        path = self.shortest(path)
        with self._lock:
            return self._tree.at(path) is not NO_NODE and self._filter.unreadable(path) is None

    def stat(self, path: str) -> FileStat:
        """The status of what is at a path; see `Filesystem.stat`."""
        path = self.shortest(path)
        with self._lock:
            return _stat(path, self._present(path))

    def list(self, path: str = ROOT) -> tuple[FileStat, ...]:
        """The entries of a folder; see `Filesystem.list`."""
        path = self.shortest(path)
        with self._lock:
            self._folder(path)
            return tuple(stat for stat in self._tree.list_folder(path) if self._filter.shows(stat.path, stat.kind))

    def glob(self, pattern: str) -> tuple[FileStat, ...]:
        """Files and folders whose path matches; see `Filesystem.glob`."""
        return self.scan(ROOT, pattern).entries

    def scan(self, folder: str, pattern: str | PathMatcher, look: WalkRequest = EVERYTHING) -> Scan:
        """Files and folders in a folder whose path matches, and what was left out; see `Filesystem.scan`."""
        folder = self.shortest(folder)
        pattern = Pattern(pattern) if isinstance(pattern, str) else pattern
        with self._lock:
            self._folder(folder)
            tree = self._tree
            return walk(folder, pattern, FolderReader(tree.list_folder, tree.rule_file), self._filter, look)

    def shortest(self, path: str) -> str:
        """The path by which what is at a path is named; see `Filesystem.shortest`."""
        return normalise(path)

    def unsearched(self, path: str, *, by_name: bool = True) -> str | None:
        """The reason why searches leave a path out; see `Filesystem.unsearched`."""
        return self._filter.unsearched(self.shortest(path), by_name=by_name)

    def filtered(self, path_filter: PathFilter) -> Self:
        """The same files behind a filter; see `Filesystem.filtered`."""
        together = self._filter.plus(path_filter)
        if together == self._filter:
            return self
        behind = copy(self)  # shares the lock, the tree, the journal, and what a subclass adds
        # All filtered ones are one participant: a call that uses two of them takes one snapshot and one turn.
        behind._origin, behind._filter = self._origin or self, together  # noqa: SLF001 - its own class
        return behind

    def view_for_call(self, call: Transaction, /) -> Self:
        """The same files for the handler of a call; see `view_for_call`. A view is equal to what it is a view of."""
        view = copy(self)
        view._origin, view._call = self._origin or self, call  # noqa: SLF001 - its own class
        return view

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, InMemoryFilesystem) and other._tree is self._tree and other._filter is self._filter

    def __hash__(self) -> int:
        return hash(self._tree)

    def _check_write(self, what: str) -> None:
        check_write(self._origin or self, what, call=self._call)

    def make_folder(self, path: str) -> None:
        """Makes a folder; see `Filesystem.make_folder`."""
        path = self.shortest(path)
        with self._lock:
            self._check_write(f"make the folder {path}")
            self._filter.refuse_change(path)
            entry = self._tree.at(path)
            if entry is FOLDER:
                return
            if entry is not NO_NODE:
                raise paths.file_where_folder_is_needed(path, file=path)
            self._make_folders([path, *self._missing_folders(path)])

    def remove(self, path: str, *, recursive: bool = False) -> int:
        """Removes a file or folder; see `Filesystem.remove`."""
        path = self.shortest(path)
        with self._lock:
            self._check_write(f"remove {path}")
            if path == ROOT:
                raise paths.root_stays()
            self._present(path)
            self._filter.refuse_change(path)
            # Hidden entries are not counted: the message would reveal them. `refuse_moving` refuses them below.
            count = sum(self._filter.unreadable(inner.path) is None for inner in self._tree.list_folder(path))
            if count and not recursive:
                raise paths.not_empty(path, count=count)
            # Everything is checked before the first change: outside a call, nothing would roll back a part of it.
            subtree = self._tree.subtree(path)
            self._filter.refuse_moving(((inner, True) for inner in subtree), path)
            for inner in reversed(subtree):
                self._set(inner, NO_NODE)
        return len(subtree) - 1

    def move(self, src: str, dst: str) -> None:
        """Moves a file or folder; see `Filesystem.move`."""
        src, dst = self.shortest(src), self.shortest(dst)
        with self._lock:
            self._check_write(f"move {src} to {dst}")
            self._refuse_move(src, dst)
            sources = self._tree.subtree(src)
            self._filter.refuse_moving(((inner, True) for inner in sources), src)
            targets = [normalise(dst + path[len(src) :]) for path in sources]
            for target in targets:
                self._filter.refuse_change(target)
                self._filter.refuse_with(target, dst, spelling=src)
            # The first change; everything has been checked.
            self._make_folders(self._missing_folders(dst))
            for path, target in zip(sources, targets, strict=True):
                self._set(target, self._tree.at(path))
            for path in reversed(sources):
                self._set(path, NO_NODE)

    def snapshot(self) -> Snapshot[MemoryNode]:
        """The current state, to be restored; the same snapshot if nothing has changed since the last one."""
        with self._lock:
            return self._journal.snapshot()

    def describe_changes(self, snapshot: object, /, *, committed: bool) -> Iterator[CallChange]:  # noqa: ARG002 - of sessions
        """The files that have changed since a snapshot; see `handrail.transaction.changes`."""
        with self._lock:
            before = sorted(self._journal.since(snapshot).before.items())
            pairs = [(path, entry, self._tree.at(path)) for path, entry in before]
        return (file_change(path, _shown(entry), _shown(now)) for path, entry, now in pairs if entry != now)

    def restore(self, snapshot: object, /) -> None:
        """Restores a snapshot exactly, including empty folders; snapshots taken later stay valid.

        Raises:
            SnapshotError: it is not a snapshot of this filesystem. Nothing has changed.
            ModelVisibleError: the call may not write; see `check_write`.
        """
        with self._lock:
            self._check_write("restore a snapshot")
            # `since` returns a dict of its own, so recording these changes does not alter what is iterated.
            for path, entry in self._journal.since(snapshot).before.items():
                self._set(path, entry)
            self._journal.record_restore(snapshot)

    def keep_undo(self, snapshot: object, call: str, /) -> str | None:  # noqa: ARG002 - ends with the process
        """Keeps what has changed since a snapshot, in this process; see `KeepsUndo`."""
        with self._lock:
            since = self._journal.since(snapshot).before.items()
            nodes = {path: (before, self._tree.at(path)) for path, before in since}
            changes = {path: pair for path, pair in nodes.items() if pair[0] != pair[1]}
            if not changes:
                return None
            undo_id = uuid4().hex  # another process must not take it for one of its own
            self._history[undo_id] = changes
            while len(self._history) > MOST_UNDONE_CALLS:
                del self._history[next(iter(self._history))]
            return undo_id

    def undo_changes(self, undo_id: str, /) -> Sequence[UndoChange] | None:
        """What a call has changed; see `KeepsUndo`."""
        with self._lock:
            changes = self._history.get(undo_id)
        if changes is None:
            return None
        return [UndoChange(path, _image(before), _image(after)) for path, (before, after) in sorted(changes.items())]

    def present_images(self, paths: Iterable[str], /) -> Mapping[str, UndoImage]:
        """What is at paths now; see `KeepsUndo`."""
        with self._lock:
            nodes = {path: self._tree.at(path) for path in paths}
        return {path: _image(node) for path, node in nodes.items()}

    def describe_undo(self, undo_id: str, path: str, /) -> CallChange:
        """The change that undo would make at a path; see `KeepsUndo`."""
        with self._lock:
            before, _ = self._changes(undo_id)[path]
            return file_change(path, _shown(self._tree.at(path)), _shown(before))

    def undo(self, undo_id: str, /) -> None:
        """Restores what was there before the changes of a call; see `KeepsUndo`."""
        with self._lock:
            self._check_write("undo a call")
            shallow_first = sorted(self._changes(undo_id).items(), key=lambda change: change[0].count("/"))
            start = self._journal.snapshot()
            try:
                for path, (before, after) in reversed(shallow_first):
                    # A folder that holds something else by now stays, unless a file is needed in its place.
                    is_in_use = bool(self._tree.names(path))
                    if self._tree.at(path) != after or (is_in_use and isinstance(before, bytes)):
                        raise paths.changed_since_call(path)
                    if not is_in_use:
                        self._set(path, NO_NODE)
                for path, (before, _) in shallow_first:
                    if before is not NO_NODE:
                        self._make_folders(self._missing_folders(path))
                        self._set(path, before)
            except FilesystemError:
                self.restore(start)
                raise

    def _changes(self, undo_id: str) -> dict[str, tuple[MemoryNode, MemoryNode]]:
        if undo_id not in self._history:
            raise paths.undo_not_kept(undo_id)
        return self._history[undo_id]

    def _folder(self, path: str) -> None:
        if self._present(path) is not FOLDER:
            raise paths.file_where_folder_is_needed(path, file=path)

    def _set(self, path: str, entry: MemoryNode) -> None:
        # Recorded before the change: what is recorded is what is at the path now.
        self._journal.record(path, self._tree.at(path))
        self._tree.set(path, entry)

    def _write(self, path: str, data: bytes) -> None:
        data = bytes(memoryview(data))  # a copy of what the caller may change; `bytes(5)` would make zeros
        self._filter.refuse_change(path)
        if self._tree.at(path) is FOLDER:
            raise paths.folder_where_file_is_needed(path)
        # `_missing_folders` raises before anything is made.
        self._make_folders(self._missing_folders(path))
        self._set(path, data)

    def _make_folders(self, deepest_first: Sequence[str]) -> None:
        # From the root down, so that each folder is made in one that exists.
        for folder in reversed(deepest_first):
            self._set(folder, FOLDER)

    def _missing_folders(self, path: str) -> Sequence[str]:
        missing: list[str] = []
        folder = parent_folder(path)
        while (entry := self._tree.at(folder)) is not FOLDER:
            if entry is not NO_NODE:
                raise paths.file_where_folder_is_needed(path, file=folder)
            missing.append(folder)
            folder = parent_folder(folder)
        return missing

    def _present(self, path: str) -> bytes | Literal[NodeKind.FOLDER]:
        entry = self._tree.at(path)
        if entry is not NO_NODE and self._filter.unreadable(path) is None:
            return entry
        # The nearest folder that may be shown: a hidden one must not be named in the message.
        above = (folder for folder in folders_above(path) if self._tree.at(folder) is not NO_NODE)
        nearest = next(folder for folder in above if self._filter.unreadable(folder) is None)
        if self._tree.at(nearest) is FOLDER:
            raise paths.nothing_at(path, nearest=nearest)
        raise paths.nothing_below_file(path, file=nearest)

    def _refuse_move(self, src: str, dst: str) -> None:
        if src == ROOT:
            raise paths.root_stays()
        self._present(src)
        self._filter.refuse_change(src)
        # Before `exists_already`, whose message would reveal whether something hidden is there.
        self._filter.refuse_change(dst)
        if is_inside(dst, src):
            raise paths.inside_itself(src, dst)
        there = self._tree.at(dst)
        if there is not NO_NODE:
            raise paths.exists_already(dst, is_folder=there is FOLDER, src=src)


def _shown(entry: MemoryNode) -> FileContent:
    return "a folder" if entry is FOLDER else None if isinstance(entry, NodeKind) else entry


def _image(entry: MemoryNode) -> UndoImage:
    return UndoImage("file", 0, hash_content((entry,))) if isinstance(entry, bytes) else UndoImage(entry.value)


def _stat(path: str, entry: MemoryNode) -> FileStat:
    return FileStat(path, "file", len(entry)) if isinstance(entry, bytes) else FileStat(path, "folder", 0)


class NodeKind(Enum):
    """Kinds of nodes other than files."""

    FOLDER = "folder"
    NOTHING = "nothing"


FOLDER: Final = NodeKind.FOLDER
"""There is a folder at the path."""

NO_NODE: Final = NodeKind.NOTHING
"""There is nothing at the path."""

MemoryNode: TypeAlias = bytes | NodeKind
"""What is at a path: the content of a file, a folder, or nothing."""


class MemoryTree:
    """A table of nodes by path and one of names by folder, which always agree; at first only the root.

    It enforces no rules: the filesystem ensures that the folder of a file exists.
    """

    __slots__ = ("_entries", "_names")

    def __init__(self) -> None:
        self._entries: dict[str, MemoryNode] = {ROOT: FOLDER}
        self._names: dict[str, set[str]] = {}

    def at(self, path: str) -> MemoryNode:
        """The node at a path."""
        return self._entries.get(path, NO_NODE)

    def set(self, path: str, entry: MemoryNode) -> None:
        """Sets the node at a path; the order in which several paths are set does not matter."""
        folder, _, name = path.rpartition("/")
        folder = folder or ROOT
        if entry is not NO_NODE:
            self._entries[path] = entry
            self._names.setdefault(folder, set()).add(name)
            return
        self._entries.pop(path, None)
        names = self._names.get(folder, set())
        names.discard(name)
        if not names:
            self._names.pop(folder, None)

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(self._names.get(folder, ()))

    def list_folder(self, folder: str) -> tuple[FileStat, ...]:
        """The entries of a folder, sorted."""
        paths = [join(folder, name) for name in self.names(folder)]
        return tuple(_stat(path, self.at(path)) for path in paths)

    def rule_file(self, path: str) -> bytes | None:
        """The content of a file; `None` if there is none."""
        entry = self.at(path)
        return entry if isinstance(entry, bytes) else None

    def subtree(self, path: str) -> list[str]:
        """A path and everything below it; each folder comes before what it holds."""
        subtree = [path]
        for folder in subtree:  # grows while it is walked
            subtree.extend(join(folder, name) for name in self._names.get(folder, ()))
        return subtree
