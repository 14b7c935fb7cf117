"""A filesystem over a folder on disk, which is rolled back when a call fails or a process dies."""

from __future__ import annotations

import os
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from datetime import timedelta
from itertools import islice
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Literal, Self

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import FilesystemError, InvalidArgumentError
from handrail.filesystem import protocol
from handrail.filesystem.copies import copy_folder
from handrail.filesystem.disk import Disk, Root, translate_os_errors
from handrail.filesystem.host.changes import HostChanges
from handrail.filesystem.host.journal import BeforeImage, BeforeImages
from handrail.filesystem.host.operations import TreeReader, create_folder, move_path, remove_path, write_file
from handrail.filesystem.host.recovery import (
    GIT_DIR,
    JournalFolder,
    RecordedPrograms,
    WholeTree,
    default_journal_folder,
    recover,
)
from handrail.filesystem.host.undo_history import UndoHistory
from handrail.filesystem.path_filters import PathFilter, PathMatcher, Pattern, showing
from handrail.filesystem.paths import ROOT, below_root, normalise_on_disk
from handrail.filesystem.protocol import MOST_HASHED_BYTES, FileStart, hash_content
from handrail.filesystem.shadow.repository import MAX_UNTRACKED_BYTES, ShadowRepository
from handrail.filesystem.undo_journal import Snapshot
from handrail.filesystem.walks import EVERYTHING, FileStat, Scan, WalkRequest
from handrail.transaction import Transaction, check_write, current, in_call, is_rolling_back
from handrail.transaction.changes import MOST_CHANGES, CallChange
from handrail.transaction.undoing import UndoChange, UndoImage
from handrail.transaction.unit_of_work import CommitRecordStore
from handrail.turns import Turn
from handrail.waiting import check_blocking


class HostFilesystem:
    """A `Filesystem` over a folder on disk; see the protocol for its methods.

    No path leads out of the root, and no link is followed. The files of databases that this process has open do not
    exist (`handrail.process`). A file is replaced atomically, and keeps its permissions. A call that fails is rolled
    back, and so are the changes of a killed process at the next opening; with a `store`, files and the store's records
    of a call are committed atomically. A call that starts a program over the tree calls `keep_tree` first. The page
    `docs/explanation/files.md` has the rules.

    One `HostFilesystem` at a time works on a root, across processes and journals. Threads may share it, forked
    processes not. Nested roots are not detected.
    """

    __slots__ = (
        "__weakref__",
        "_call",
        "_changes",
        "_disk",
        "_finalizer",
        "_folder",
        "_origin",
        "_root",
        "_turn",
        "_view",
    )

    def __init__(  # noqa: PLR0913 - the options, each with a default
        self,
        root: str | os.PathLike[str],
        *,
        journal: str | os.PathLike[str] | None = None,
        store: CommitRecordStore | None = None,
        wait: timedelta = timedelta(seconds=5),
        include: Iterable[str] = ("**",),
        exclude: Iterable[str] = (),
        durability: Literal["full", "normal"] = "full",
        max_untracked_bytes: int | None = MAX_UNTRACKED_BYTES,
        undo: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        disk: Disk | None = None,
    ) -> None:
        """Opens a folder, ends the programs of a process that died, and rolls back its unfinished changes.

        Args:
            root: the folder; it must exist.
            journal: where to save what was at changed paths, outside the root; by default a folder below
                `$XDG_STATE_HOME/handrail/journals`, or `~/.local/state`. It costs least on the root's disk.
            store: decides whether calls are committed; always give the same one.
            wait: how long to wait for another filesystem to release the root.
            include: patterns of what is shown; see `handrail.filesystem.path_filters.NotIncluded`.
            exclude: patterns of what does not exist here; see `handrail.filesystem.path_filters.ExcludedPaths`.
            durability: `"full"` survives a power failure, `"normal"` only the death of the process.
            max_untracked_bytes: the size above which `keep_tree` refuses a file; see `ShadowRepository`.
            undo: whether what calls of stored sessions change is kept, so that they can be undone later.
            clock: measures the waiting, and how long that is kept.
            disk: the operating system.

        Raises:
            RootMissingError: there is no such folder.
            JournalError: the journal cannot be stored or read, belongs to something else, or needs its store.
            FilesystemBusyError: another filesystem works on the root.
            PathEscapeError: a pattern is not one inside the root.
            InvalidArgumentError: `store` is not a store.
        """
        if store is not None and not hasattr(store, "is_committed"):
            expected = "a store: handrail.store.open('sqlite:///desk.db')"
            raise InvalidArgumentError(function="HostFilesystem", argument="store", value=store, expected=expected)
        check_blocking("opening the folder", root)
        path_filter = showing(include, exclude)
        self._disk = Disk() if disk is None else disk
        self._turn = Turn()
        self._origin: Self | None = None  # the participant of calls; `None` for this one
        self._call: Transaction | None = None  # the call whose view this is; `None` for no view
        self._root = Root(Path(root), self._disk)
        try:
            at = default_journal_folder(self._root.path, os.environ) if journal is None else Path(journal)
            self._folder = JournalFolder(at, self._disk)
        except BaseException:
            os.close(self._root.descriptor)
            raise
        self._finalizer = weakref.finalize(self, _release, self._root, self._folder, self._disk, self._disk.process())
        try:
            self._folder.check_owner(self._root.path)
            self._folder.acquire(self._root.descriptor, wait, clock)
            place, git_dir = self._root.path, self._folder.path / GIT_DIR
            shadow = ShadowRepository(place, git_dir, max_untracked_bytes=max_untracked_bytes)
            tree = WholeTree(self._root, BeforeImages(self._folder.descriptor, self._disk), shadow)
            with translate_os_errors("open the filesystem", ROOT):
                self._folder.assign(self._root.path)
                # Under both locks: programs of a process that is alive must not be ended, nor its journal rolled back.
                recover(tree, self._folder, store)
                undo_history = UndoHistory(self._folder, tree, clock, is_on=undo)
                self._changes = HostChanges(undo_history, store, synced=durability != "normal")
        except BaseException:
            self._finalizer()
            raise
        self._view = TreeReader(self._root, self._disk, path_filter)

    restore_waits = True
    """Restoring a snapshot writes to the disk."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def root(self) -> Path:
        """The path of the folder, without links."""
        return self._root.path

    @property
    def turn(self) -> Turn:
        """The turn that calls acquire to use this filesystem."""
        return self._turn

    @property
    def programs(self) -> RecordedPrograms:
        """The records of the programs that calls start, so that the next opening can end them."""
        self._usable()
        return RecordedPrograms(self._folder, self._disk)

    def read_text(self, path: str) -> str:
        """The content of a file as text; see `Filesystem.read_text`."""
        return protocol.decode(self.read_bytes(path), path=path)

    def read_bytes(self, path: str) -> bytes:
        """The content of a file; see `Filesystem.read_bytes`."""
        with self._reading(path) as descriptor:
            return b"".join(self._disk.chunks(descriptor))

    def read_start(self, path: str, most_bytes: int) -> FileStart:
        """The first bytes of a file; see `Filesystem.read_start`."""
        with self._reading(path) as descriptor:
            data = self._disk.start(descriptor, most_bytes)
            return FileStart(data, max(self._disk.look_at(descriptor).st_size, len(data)))

    def identity(self, path: str) -> str:
        """A value that changes with the file's content; see `Filesystem.identity`."""
        with self._reading(path) as descriptor:
            status = self._disk.look_at(descriptor)
            if status.st_size > MOST_HASHED_BYTES:
                return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
            return hash_content(self._disk.chunks(descriptor))

    def write_text(self, path: str, text: str) -> None:
        """Makes or replace a file; see `Filesystem.write_text`."""
        self.write_bytes(path, protocol.encode(text, path=self.shortest(path)))

    def write_bytes(self, path: str, data: bytes) -> None:
        """Makes or replace a file; see `Filesystem.write_bytes`."""
        path = self.shortest(path)
        with self._changing(f"write {path}", path):
            write_file(self._changes, self._view, path, bytes(memoryview(data)))

    def exists(self, path: str) -> bool:
        """Returns whether there is anything at a path; see `Filesystem.exists`."""
        with self._looking(path) as shortest:
            return self._view.resolve(shortest).status is not None

    def stat(self, path: str) -> FileStat:
        """The status of what is at a path; see `Filesystem.stat`."""
        with self._looking(path) as shortest:
            return self._view.stat(shortest)

    def list(self, path: str = ROOT) -> tuple[FileStat, ...]:
        """The entries of a folder; see `Filesystem.list`."""
        with self._looking(path) as shortest:
            return self._view.listing(shortest)

    def glob(self, pattern: str) -> tuple[FileStat, ...]:
        """Files and folders whose path matches; see `Filesystem.glob`."""
        return self.scan(ROOT, pattern).entries

    def scan(self, folder: str, pattern: str | PathMatcher, look: WalkRequest = EVERYTHING) -> Scan:
        """Files and folders in a folder whose path matches, and what was left out; see `Filesystem.scan`."""
        pattern = Pattern(pattern) if isinstance(pattern, str) else pattern
        with self._looking(folder) as shortest:
            return self._view.scan(shortest, pattern, look)

    def shortest(self, path: str) -> str:
        """The path by which what is at a path is named; see `Filesystem.shortest`."""
        return normalise_on_disk(below_root(path, self._root.spellings))

    def unsearched(self, path: str, *, by_name: bool = True) -> str | None:
        """The reason why searches leave a path out; see `Filesystem.unsearched`."""
        return self._view.path_filter.unsearched(self.shortest(path), by_name=by_name)

    def filtered(self, path_filter: PathFilter) -> Self:
        """The same files behind a filter; see `Filesystem.filtered`. Closing it closes nothing: close this one."""
        present = self._view.path_filter
        together = present.plus(path_filter)
        behind = copy(self)  # shares the root, the changes, and what a subclass adds
        # One participant for all filtered ones: a call that uses two of them takes one snapshot and one turn.
        behind._origin = self._origin or self  # noqa: SLF001 - its own class, so below
        if together != present:  # else the same files are seen, which the view stands for
            behind._view = TreeReader(self._root, self._disk, together)  # noqa: SLF001
        return behind

    def view_for_call(self, call: Transaction, /) -> Self:
        """The same files for the handler of a call; see `view_for_call`. A view is equal to what it is a view of."""
        view = copy(self)
        view._origin, view._call = self._origin or self, call  # noqa: SLF001 - its own class
        return view

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, HostFilesystem) and other._view is self._view

    def __hash__(self) -> int:
        return hash(self._view)

    def make_folder(self, path: str) -> None:
        """Makes a folder; see `Filesystem.make_folder`."""
        path = self.shortest(path)
        with self._changing(f"make the folder {path}", path):
            create_folder(self._changes, self._view, path)

    def remove(self, path: str, *, recursive: bool = False) -> int:
        """Removes a file, link or folder; see `Filesystem.remove`."""
        path = self.shortest(path)
        with self._changing(f"remove {path}", path):
            return remove_path(self._changes, self._view, path, recursive=recursive)

    def move(self, src: str, dst: str) -> None:
        """Moves a file, link or folder; see `Filesystem.move`."""
        src, dst = self.shortest(src), self.shortest(dst)
        with self._changing(f"move {src} to {dst}", dst):
            move_path(self._changes, self._view, src, dst)

    def keep_tree(self) -> None:
        """Saves the whole tree, so that a program's changes to it are rolled back with the call.

        A handler calls it before it starts a program, and waits for the end of the program before it returns. All later
        changes in the tree, by any process, are rolled back if the call fails or the process dies, but not the root's
        own `.git` and files that git ignores. Owners, times, extended attributes and hard links are lost.

        Raises:
            FilesystemError: this is not in a call, so nothing could be rolled back; files are too large, or cannot be
                read or saved. Nothing has changed, and the program must not be started.
            ModelVisibleError: the call may not write; see `check_write`.
        """
        with self._changing("save the whole tree", ROOT):
            # Outside calls an operation is its own transaction, and would be over before the program starts.
            if current() is None:
                msg = "only a call can be rolled back. Call `keep_tree` in a handler, before the program."
                raise FilesystemError(msg, path=ROOT)
            self._changes.keep_tree()

    def snapshot(self) -> Snapshot[BeforeImage]:
        """The current state, to be restored; the same snapshot if nothing has changed since the last one."""
        with self._changes.lock:
            return self._changes.snapshot()

    def describe_changes(self, snapshot: object, /, *, committed: bool) -> Iterator[CallChange]:  # noqa: ARG002 - of sessions
        """The files that have changed since a snapshot; see `handrail.transaction.changes`."""
        with self._changes.lock:
            return iter(list(islice(self._changes.describe(snapshot), MOST_CHANGES + 1)))

    def restore(self, snapshot: object, /) -> None:
        """Restores a snapshot exactly, including empty folders; snapshots taken later stay valid.

        Raises:
            SnapshotError: it is not a snapshot of this filesystem. Nothing has changed.
            FilesystemError: the disk fails. By hand, nothing has changed; in a rollback, the filesystem must be opened
                again.
            ModelVisibleError: the call may not write; see `check_write`.
        """
        with self._changes.lock, self._in_call():
            check_write(self._origin or self, "restore a snapshot")
            # In a rollback `HostChanges` checks the root, because an error there must also block further changes.
            if not is_rolling_back():
                self._usable()
            self._changes.restore(snapshot)

    def keep_undo(self, snapshot: object, call: str, /) -> str | None:  # noqa: ARG002 - the journal began with it
        """Keeps what the open call has changed; see `KeepsUndo`. Paths are of the root, whatever a filter hides."""
        with self._changes.lock, translate_os_errors("keep what undo needs", ROOT):
            return self._changes.keep_undo(call)

    def undo_changes(self, undo_id: str, /) -> Sequence[UndoChange] | None:
        """What a call has changed; see `KeepsUndo`."""
        with self._looking(ROOT):
            return self._changes.history.changes(undo_id)

    def present_images(self, paths: Iterable[str], /) -> Mapping[str, UndoImage]:
        """What is at paths without links now; see `KeepsUndo`."""
        with self._looking(ROOT):
            return {path: self._changes.look(path) for path in paths}

    def describe_undo(self, undo_id: str, path: str, /) -> CallChange:
        """The change that undo would make at a path; see `KeepsUndo`."""
        with self._looking(ROOT):
            return self._changes.describe_undo(undo_id, path)

    def undo(self, undo_id: str, /) -> None:
        """Restores what was there before the changes of a call; see `KeepsUndo`.

        Raises:
            PathConflictError: something has been changed since the call. Nothing has been changed.
            SnapshotError: what is needed is not kept, or no longer. Nothing has been changed.
            FilesystemError: the disk fails. Nothing has been changed.
            ModelVisibleError: the call may not write; see `check_write`.
        """
        with self._changing("undo a call", ROOT):
            self._changes.undo(undo_id)

    def copy_before(self, folder: str | os.PathLike[str], undo_ids: Iterable[str], /) -> None:
        """Copies the root to a new folder, as it was before calls with these ids of `keep_undo`, the newest first.

        Ids that are not kept here are passed over. What others have changed since stays as it is.

        Raises:
            PathConflictError: what a call has left was changed since. There is no copy.
            FilesystemError: a call is changing files, the folder exists or is in the root, or the disk or git fails.
        """
        copy, root = Path(folder).resolve(), self._root.path
        with self._looking(ROOT):
            if self._changes.is_open or copy.exists() or copy.is_relative_to(root):
                msg = f"{root} is not copied to {copy}: a call is changing files, or this exists or is in the root"
                raise FilesystemError(msg, path=ROOT)
            # Beside the copy, which is made in full or not at all.
            with TemporaryDirectory(prefix=".handrail-", dir=copy.parent) as temporary:
                journal, draft = Path(temporary, "journal"), Path(temporary, "root")
                copytree(self._folder.path, journal, ignore=ignore_patterns("root", "lock", "settled-*", "program-*"))
                copy_folder(root, draft)
                with HostFilesystem(draft, journal=journal, durability="normal") as files:
                    for undo_id in undo_ids:
                        if files.undo_changes(undo_id) is not None:
                            files.undo(undo_id)
                draft.rename(copy)

    def close(self) -> None:
        """Releases the root; idempotent. Closing a filtered filesystem does nothing: close its origin.

        Raises:
            FilesystemError: a call that has changed something has not ended.
        """
        if self._origin is not None:
            return
        with self._changes.lock:
            # A fork may close its copy: the call belongs to the parent, and the fork releases no lock.
            if self._finalizer.alive and self._changes.is_open and self._changes.is_ours:
                msg = "a call that has changed files here has not ended. Close the filesystem when it has."
                raise FilesystemError(msg, path=ROOT)
            self._finalizer()

    def _in_call(self) -> AbstractContextManager[None]:
        return nullcontext() if self._call is None else in_call(self._call)

    def _usable(self) -> None:
        if not self._finalizer.alive:
            raise FilesystemError("this filesystem has been closed. Open another HostFilesystem.", path=ROOT)
        self._changes.check_use()

    @contextmanager
    def _looking(self, path: str) -> Generator[str]:
        path = self.shortest(path)
        check_blocking("looking at", path)
        with self._changes.lock, translate_os_errors(f"look at {path}", path):
            self._usable()
            yield path

    @contextmanager
    def _reading(self, path: str) -> Generator[int]:
        path = self.shortest(path)
        check_blocking("reading", path)
        with translate_os_errors(f"read {path}", path):
            with self._changes.lock:
                self._usable()
                descriptor = self._view.open_file(path)
            try:
                yield descriptor
            finally:
                self._disk.close(descriptor)

    @contextmanager
    def _changing(self, what: str, path: str) -> Generator[None]:
        check_blocking("a change of files:", what)
        with self._changes.lock, self._in_call():
            # Under the lock, which a rollback takes too: a late write comes before the rollback and is undone, or is
            # refused.
            check_write(self._origin or self, what)
            self._usable()
            self._changes.check()
            with translate_os_errors(what, path):
                yield


def _release(root: Root, folder: JournalFolder, disk: Disk, process: int) -> None:
    # A function without the filesystem: a finalizer that refers to its object keeps it alive.
    is_owner = disk.process() == process
    # Without the locks, as after an opening that was refused, the images belong to the filesystem that holds them. A
    # journal that is left needs its images at the next opening.
    if is_owner and folder.is_held and not folder.ids("journal"):
        folder.clean()
    folder.close(root.descriptor, is_owner=is_owner)
