"""Several filesystems in one tree: each appears as a folder of the root."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self, TypeAlias

from handrail.errors import FilesystemError, PathConflictError, PathNotFoundError, SnapshotError
from handrail.filesystem import FileStart, FileStat, Filesystem
from handrail.filesystem.path_filters import PathFilter
from handrail.filesystem.paths import ROOT, join, normalise
from handrail.filesystem.patterns import PathPattern, Pattern
from handrail.filesystem.walks import EVERYTHING, Scan, WalkRequest
from handrail.transaction import Transaction, view_for_call
from handrail.turns import Turn

_Place: TypeAlias = tuple[str, Filesystem, str]
"""The name of a mount, its filesystem, and a path in that."""


@dataclass(frozen=True, slots=True, eq=False)
class _Moment:
    """A snapshot of all parts.

    Attributes:
        turn: the turn of the filesystem that it was taken of.
        parts: the snapshots, in the order of the mounts.
    """

    turn: Turn
    parts: tuple[object, ...]


class MountedFilesystem:
    """A `Filesystem` whose root holds only other filesystems, as folders.

    `MountedFilesystem({"src": source, "notes": notes})`: `src/a.py` is `a.py` of `source`. Nothing moves from one mount
    to another, and the mounts themselves stay.

    The parts are rolled back separately: each joins a call's transaction before it is first changed. Calls acquire the
    turn of the whole, so bind the parts nowhere else: a call cannot write to a part that another call uses directly
    (`TurnConflictError`).
    """

    __slots__ = ("__weakref__", "_filter", "_mounts", "_turn")

    def __init__(self, mounts: Mapping[str, Filesystem]) -> None:
        """Put filesystems together, each under a name.

        Raises:
            ValueError: there are none, a name is not the name of a folder, or one filesystem was given twice.
        """
        if not mounts:
            raise ValueError("there is nothing to mount; give a filesystem for each name: {'src': filesystem}")
        for name, filesystem in mounts.items():
            _check(name, filesystem)
        # Two paths for one file would have two records of what was read, and rules for one would not hold for the
        # other.
        if len({id(filesystem) for filesystem in mounts.values()}) < len(mounts):
            raise ValueError("one filesystem is mounted twice, so that its files would have two paths; mount it once")
        # Sorted, so that listings, walks and the parts of a snapshot have one order.
        self._mounts = dict(sorted(mounts.items()))
        self._filter = PathFilter()
        self._turn = Turn()

    @property
    def turn(self) -> Turn:
        """The turn that calls acquire to use the whole tree."""
        return self._turn

    @property
    def mounts(self) -> Mapping[str, Filesystem]:
        """The filesystems, each by the name of the folder as which it appears."""
        return MappingProxyType(self._mounts)

    def with_parts(self, behind: Callable[[Filesystem], Filesystem]) -> Self:
        """The same tree with each filesystem replaced by what `behind` returns: the same files behind a filter."""
        # A copy shares the turn, so calls through either tree exclude each other.
        whole = copy(self)
        whole._mounts = {name: behind(part) for name, part in self._mounts.items()}  # noqa: SLF001 - its own class
        return whole

    def view_for_call(self, call: Transaction, /) -> Self:
        """The same tree for the handler of a call, with views of its parts; see `HasCallViews`.

        A view is equal to what it is a view of. A part whose class has no views is in it as it is.
        """
        return self.with_parts(lambda part: view_for_call(part, call))

    def __eq__(self, other: object, /) -> bool:
        # Trees behind different filters share the turn; what a filter shows depends on the parts.
        return (
            isinstance(other, MountedFilesystem)
            and other._turn is self._turn
            and other._filter == self._filter
            and other._mounts == self._mounts
        )

    def __hash__(self) -> int:
        return hash(self._turn)

    def read_text(self, path: str) -> str:
        """The content of a file as text; see `Filesystem.read_text`."""
        with self._inside(path) as (filesystem, inner):
            return filesystem.read_text(inner)

    def read_bytes(self, path: str) -> bytes:
        """The content of a file; see `Filesystem.read_bytes`."""
        with self._inside(path) as (filesystem, inner):
            return filesystem.read_bytes(inner)

    def digest(self, path: str) -> str:
        """The SHA-256 of a file's content; see `Filesystem.digest`."""
        with self._inside(path) as (filesystem, inner):
            return filesystem.digest(inner)

    def read_start(self, path: str, most_bytes: int) -> FileStart:
        """The first bytes of a file; see `Filesystem.read_start`."""
        with self._inside(path) as (filesystem, inner):
            return filesystem.read_start(inner, most_bytes)

    def identity(self, path: str) -> str:
        """A value that changes with the file's content; see `Filesystem.identity`."""
        with self._inside(path) as (filesystem, inner):
            return filesystem.identity(inner)

    def write_text(self, path: str, text: str) -> None:
        """Make or replace a file; see `Filesystem.write_text`."""
        with self._writable(path) as (filesystem, inner):
            filesystem.write_text(inner, text)

    def write_bytes(self, path: str, data: bytes) -> None:
        """Make or replace a file; see `Filesystem.write_bytes`."""
        with self._writable(path) as (filesystem, inner):
            filesystem.write_bytes(inner, data)

    def exists(self, path: str) -> bool:
        """Whether there is anything at a path; see `Filesystem.exists`."""
        place = self._place(path)
        return normalise(path) == ROOT if place is None else place[1].exists(place[2])

    def stat(self, path: str) -> FileStat:
        """What there is at a path; see `Filesystem.stat`."""
        if normalise(path) == ROOT:
            return FileStat(ROOT, "folder", 0)
        with self._inside(path) as (filesystem, inner):
            return replace(filesystem.stat(inner), path=normalise(path))

    def list(self, path: str = ROOT) -> tuple[FileStat, ...]:
        """What a folder holds; see `Filesystem.list`."""
        folder = normalise(path)
        if folder == ROOT:
            # The root is not in any mount, so it is listed from the names alone.
            return tuple(
                FileStat(name, "folder", 0) for name in self._names() if self._filter.shows(name, name, "folder")
            )
        with self._inside(path) as (filesystem, inner):
            found = filesystem.list(inner)
        return tuple(replace(stat, path=join(folder, stat.path.rpartition("/")[2])) for stat in found)

    def glob(self, pattern: str) -> tuple[FileStat, ...]:
        """Files and folders whose path matches; see `Filesystem.glob`."""
        return self.scan(ROOT, pattern).entries

    def scan(self, folder: str, pattern: str | PathPattern, look: WalkRequest = EVERYTHING) -> Scan:
        """Files and folders in a folder whose path matches, and what was left out; see `Filesystem.scan`."""
        pattern = Pattern(pattern) if isinstance(pattern, str) else pattern
        if normalise(folder) == ROOT:
            return self._scan_all(pattern, look)
        with self._inside(folder) as (filesystem, inner):
            return _put_right(filesystem.scan(inner, pattern, look), inner, normalise(folder))

    def resolve(self, path: str, *, follow: bool = True) -> str:
        """The path without links that a path leads to; see `Filesystem.resolve`."""
        name, _, inner = normalise(path).partition("/")
        filesystem = self._mounts.get(name)
        if filesystem is None:
            return normalise(path)
        with _paths_of_mount(name):
            found = filesystem.resolve(inner or ROOT, follow=follow)
        return name if found == ROOT else join(name, found)

    def unsearched(self, path: str, *, named: bool = True) -> str | None:
        """Why searches leave a path out; see `Filesystem.unsearched`."""
        place = self._place(path)
        if place is None:
            return None
        with _paths_of_mount(place[0]):
            return place[1].unsearched(place[2], named=named)

    def filtered(self, path_filter: PathFilter) -> Self:
        """The same files behind a filter, which applies to their paths here; see `Filesystem.filtered`."""
        together = self._filter.plus(path_filter)
        if together == self._filter:
            return self
        behind = copy(self)  # shares the turn, and what a subclass adds
        behind._filter = together  # noqa: SLF001 - its own class, so below
        behind._mounts = {name: part.filtered(path_filter.below(name)) for name, part in self._mounts.items()}  # noqa: SLF001
        return behind

    def make_folder(self, path: str) -> None:
        """Make a folder; see `Filesystem.make_folder`."""
        if normalise(path) == ROOT:
            return
        with self._writable(path) as (filesystem, inner):
            filesystem.make_folder(inner)

    def remove(self, path: str, *, recursive: bool = False) -> int:
        """Remove a file or folder; see `Filesystem.remove`."""
        self._refuse_mount(path)
        with self._inside(path) as (filesystem, inner):
            return filesystem.remove(inner, recursive=recursive)

    def move(self, src: str, dst: str) -> None:
        """Give a file or folder another path in its mount; see `Filesystem.move`."""
        self._refuse_mount(src)
        (name, filesystem, inner), (_, target, new) = self._found(src), self._target(dst)
        if filesystem is target:
            with _paths_of_mount(name):
                filesystem.move(inner, new)
            return
        msg = (
            f"{normalise(src)!r} and {normalise(dst)!r} lie in different filesystems, and nothing moves from one to "
            "another. Write the file there, then remove it here."
        )
        raise PathConflictError(msg, path=normalise(dst))

    def snapshot(self) -> _Moment:
        """The current state of all parts, to be restored."""
        # Not atomic by itself: the turn of the whole keeps other calls from writing between two parts.
        return _Moment(self._turn, tuple(filesystem.snapshot() for filesystem in self._mounts.values()))

    def restore(self, snapshot: object, /) -> None:
        """Restore all parts to a snapshot, one after the other.

        Raises:
            SnapshotError: it is not a snapshot of this filesystem. Nothing has changed.
            ModelVisibleError: the call may not write; see `handrail.transaction.check_write`.
        """
        # Compared by turn, because all filtered copies of one tree share it and may restore each other's snapshots.
        if not isinstance(snapshot, _Moment) or snapshot.turn is not self._turn:
            raise SnapshotError(f"a filesystem restores what its `snapshot` returned, not {type(snapshot).__name__}")
        # The order of the mounts is fixed, so each part gets its own snapshot.
        for filesystem, part in zip(self._mounts.values(), snapshot.parts, strict=True):
            filesystem.restore(part)

    def _scan_all(self, pattern: PathPattern, look: WalkRequest) -> Scan:
        """The matches in all mounts, and among the mounts themselves."""
        found = Scan()
        # The limit applies to the whole walk, so each mount gets what the ones before have left.
        for name in self._names():
            if found.stopped is not None or found.looked_at == look.most:
                return replace(found, stopped=found.stopped or "number")
            mount, rest = FileStat(name, "folder", 0), pattern.rest(name)
            if self._filter.unlisted(name, is_folder=True):
                found = replace(found, looked_at=found.looked_at + 1, unlisted=found.unlisted + 1)
                continue
            fits = (mount,) if pattern.end in rest.start else ()
            inside = Scan()
            # A pattern such as `src/*` leads into one mount only; the others are not walked.
            if pattern.leads_on(rest.start):
                left = None if look.most is None else look.most - found.looked_at - 1
                with _paths_of_mount(name):
                    inside = self._mounts[name].scan(ROOT, rest, replace(look, most=left))
            found = _added(
                found, replace(inside, looked_at=inside.looked_at + 1), (*fits, *_renamed(inside, ROOT, name))
            )
        return found

    def _place(self, path: str) -> _Place | None:
        """Where a path leads; `None` for the root, and for a path in no mount."""
        name, _, inner = normalise(path).partition("/")
        filesystem = self._mounts.get(name)
        # A mount that a filter hides is treated as one that does not exist, so that no message reveals it.
        if filesystem is None or self._filter.unreadable(name) is not None:
            return None
        return name, filesystem, inner or ROOT

    @contextmanager
    def _inside(self, path: str) -> Generator[tuple[Filesystem, str]]:
        """The filesystem of an existing path, and the path there; paths in errors are adjusted."""
        name, filesystem, inner = self._found(path)
        with _paths_of_mount(name):
            yield filesystem, inner

    def _found(self, path: str) -> _Place:
        place = self._place(path)
        if place is None:
            if normalise(path) == ROOT:
                raise PathConflictError(f"'.' is a folder, not a file. Give a path in {self._named()}.", path=ROOT)
            msg = f"there is no file or folder {normalise(path)!r}. The root holds {self._named()} and nothing else."
            raise PathNotFoundError(msg, path=normalise(path))
        return place

    @contextmanager
    def _writable(self, path: str) -> Generator[tuple[Filesystem, str]]:
        """The filesystem in which a path is to be made, and the path there."""
        name, filesystem, inner = self._target(path)
        with _paths_of_mount(name):
            yield filesystem, inner

    def _target(self, path: str) -> _Place:
        place = self._place(path)
        if place is None:
            msg = (
                f"nothing can be made at {normalise(path)!r}. Give a path in {self._named()}; the root takes no other."
            )
            raise PathConflictError(msg, path=normalise(path))
        return place

    def _refuse_mount(self, path: str) -> None:
        place = self._place(path)
        # The mounts themselves stay: their names are not entries of any filesystem.
        if normalise(path) == ROOT or (place is not None and place[2] == ROOT):
            msg = f"{normalise(path)!r} cannot be removed or moved. Name the files and folders in it."
            raise PathConflictError(msg, path=normalise(path))

    def _names(self) -> tuple[str, ...]:
        """The names of the mounts that exist for the caller."""
        return tuple(name for name in self._mounts if self._filter.unreadable(name) is None)

    def _named(self) -> str:
        return " and ".join(map(repr, self._names())) or "nothing"


@contextmanager
def _paths_of_mount(name: str) -> Generator[None]:
    """Add the name of the mount to each error of a mounted filesystem, and set its `path` to the whole path."""
    try:
        yield
    except FilesystemError as error:
        # The type is preserved, because callers distinguish the subclasses.
        raise type(error)(f"in {name!r}, where paths are relative: {error}", path=join(name, error.path)) from error


def _put_right(scan: Scan, inner: str, folder: str) -> Scan:
    """What was found in a mount, with its paths in the whole tree."""
    return replace(scan, entries=_renamed(scan, inner, folder))


def _renamed(scan: Scan, inner: str, folder: str) -> tuple[FileStat, ...]:
    # The length of the prefix and its slash; paths in the root have neither.
    start = 0 if inner == ROOT else len(inner) + 1
    return tuple(replace(stat, path=join(folder, stat.path[start:])) for stat in scan.entries)


def _added(scan: Scan, other: Scan, entries: tuple[FileStat, ...]) -> Scan:
    """What two walks have found together; `entries` are those of the second."""
    return Scan(
        entries=(*scan.entries, *entries),
        looked_at=scan.looked_at + other.looked_at,
        ignored=scan.ignored + other.ignored,
        unlisted=scan.unlisted + other.unlisted,
        too_deep=scan.too_deep + other.too_deep,
        stopped=scan.stopped or other.stopped,
    )


def _check(name: str, filesystem: object) -> None:
    if not isinstance(filesystem, Filesystem):
        raise TypeError(f"{name!r} is of type {type(filesystem).__name__}, not a Filesystem; mount one")
    try:
        # `normalise` raises for what cannot be a path; a name that it changes, such as `./a`, would never be found
        # again.
        is_name = normalise(name) == name != ROOT and "/" not in name
    except FilesystemError:
        is_name = False
    if not is_name:
        raise ValueError(f"{name!r} is not the name of a folder; mount under one such as 'src', without slashes")
