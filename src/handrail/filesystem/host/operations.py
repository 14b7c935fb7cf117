"""What there is in the tree of a filesystem on disk, as far as it is shown."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from handrail.errors import PathConflictError, PathNotFoundError
from handrail.filesystem import refusals
from handrail.filesystem.disk import Disk
from handrail.filesystem.disk_refusals import special_file
from handrail.filesystem.file_stat import FileStat
from handrail.filesystem.host.host_walk import HostFolders, stat_of
from handrail.filesystem.journal.before_images import kind_of
from handrail.filesystem.names import to_text
from handrail.filesystem.path_filters import PathFilter
from handrail.filesystem.paths import MAX_DEPTH, ROOT, ancestors_of, depth_of, join
from handrail.filesystem.patterns import PathPattern
from handrail.filesystem.root import Found, Root
from handrail.filesystem.walks import Look, Scan, Start, walk


class View:
    """Looks at the tree for the operations; its paths have passed `normalise_on_disk`.

    Attributes:
        root: the tree.
        disk: how it is reached.
        path_filter: which paths exist, and which may be changed; asked for a path before it is walked, and for what it
            leads to.
    """

    __slots__ = ("disk", "path_filter", "root")

    def __init__(self, root: Root, disk: Disk, path_filter: PathFilter) -> None:
        """Look at a root."""
        self.root = root
        self.disk = disk
        self.path_filter = path_filter

    def find(self, path: str, *, follow: bool) -> Found:
        """What a path leads to; nothing where nothing is shown."""
        path_filter = self.path_filter
        if not path_filter:
            return self.root.find(path, follow=follow)
        if path_filter.unreadable(path) is None:
            found = self._found(path, follow=follow)
            if found is not None:
                return found
        shown = (each for each in ancestors_of(path) if path_filter.unreadable(each) is None)
        return Found(path, None, next(each for each in shown if self.root.look(each) is not None))

    def find_to_change(self, path: str, *, follow: bool, is_folder: bool) -> Found:
        """What a path leads to, where something may be written.

        Raises:
            PathConflictError: the path is hidden, or there is something special at it.
        """
        self.refuse_hidden(path, is_folder=is_folder)
        found = self.root.find(path, follow=follow)
        if found.path != path:
            self.refuse_hidden(found.path, named=path, is_folder=is_folder)
        if kind_of(found.status) == "special":
            raise special_file(path)
        return found

    def present(self, path: str, *, follow: bool) -> Found:
        """What a path leads to, where there must be something.

        Raises:
            PathNotFoundError: there is nothing.
        """
        found = self.find(path, follow=follow)
        if found.status is None:
            raise self._nothing(path, found)
        return found

    def missing_folders(self, found: Found) -> list[str]:
        """The folders that a path needs and that do not exist, the highest first.

        Raises:
            PathConflictError: a file is where one of them is needed.
        """
        if kind_of(self.root.look(found.nearest)) != "folder":
            raise refusals.file_where_folder_is_needed(found.path, file=found.nearest)
        missing = [folder for folder in ancestors_of(found.path) if folder != ROOT]
        return [folder for folder in reversed(missing) if len(folder) > len(found.nearest) or found.nearest == ROOT]

    def refuse_hidden(self, path: str, *, is_folder: bool, named: str | None = None) -> None:
        """Make sure that a path may be changed; `named` is how it was given.

        Raises:
            PathConflictError: it may not; the message says by what it is hidden, and not whether anything is there.
        """
        by = self.path_filter.unwritable(path, is_folder=is_folder)
        if by is not None:
            raise refusals.hidden(path if named is None else named, by=by)

    def refuse_with(self, path: str, folder: str, *, named: str, is_folder: bool) -> None:
        """Make sure that a path may be moved, moved onto or removed with a folder; `named` is what was given.

        Raises:
            PathConflictError: it may not.
        """
        by = self.path_filter.unmovable_with(path, folder, is_folder=is_folder)
        if by is not None:
            raise refusals.holds_asked_about(named, by=by)

    def open_file(self, path: str) -> int:
        """A descriptor to read a file with."""
        descriptor = self._opened_without_links(path)
        if descriptor is not None:
            return descriptor
        found = self.present(path, follow=True)
        if kind_of(found.status) != "file":
            self._refuse_reading(path, kind_of(found.status))
        with self.root.entry(found.path) as (folder, name):
            descriptor = self.disk.open_file(name, at=folder)
        kind = kind_of(self.disk.look_at(descriptor))  # what stood there may have been replaced before it was opened
        if kind != "file":
            self.disk.close(descriptor)
            self._refuse_reading(path, kind)
        return descriptor

    def _opened_without_links(self, path: str) -> int | None:
        """A descriptor of a file to which no link leads, in one walk.

        `None` for anything else, and for what is not there: what is wrong with it is found out step by step.
        """
        if self.root.folds_case or self.path_filter.hides(path, path, is_folder=False):
            return None
        try:
            with self.root.entry(path) as (folder, name):
                if kind_of(self.disk.look(name, at=folder)) != "file":
                    return None
                descriptor = self.disk.open_file(name, at=folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if kind_of(self.disk.look_at(descriptor)) == "file":
            return descriptor
        self.disk.close(descriptor)  # what stood there was replaced before it was opened
        return None

    def stat(self, path: str) -> FileStat:
        """What there is at a path."""
        return stat_of(path, self.present(path, follow=False))

    def folder(self, path: str) -> Start:
        """A folder to be listed, with what it leads to."""
        found = self.present(path, follow=True)
        if kind_of(found.status) != "folder":
            raise refusals.file_where_folder_is_needed(path, file=path)
        return Start(path, found.path)

    def listing(self, path: str) -> tuple[FileStat, ...]:
        """What a folder holds, sorted."""
        folder = self.folder(path)
        stats = (
            (each.path, stat_of(join(path, each.path.rpartition("/")[2]), each)) for each in self.below(folder.real)
        )
        shown = [stat for real, stat in stats if self.path_filter.shows(stat.path, real, stat.kind)]
        return tuple(sorted(shown, key=lambda each: each.path))

    def scan(self, path: str, pattern: PathPattern, look: Look) -> Scan:
        """What a folder holds that fits a pattern, and what was left out."""
        folder = self.folder(path)
        with self.walking() as folders:
            return walk(folder, pattern, folders, look)

    @contextmanager
    def walking(self) -> Generator[HostFolders]:
        """What goes from folder to folder."""
        with self.root.walking() as cursor:
            yield HostFolders(self.path_filter, cursor, self.disk)

    def below(self, folder: str) -> list[Found]:
        """What a folder holds, hidden or not, by a path without links."""
        with self.root.folder(folder, listed=True) as held:
            looked = [(name, self.disk.look(name, at=held)) for name in self.disk.names(held)]
        return [Found(join(folder, to_text(name)), status) for name, status in looked if status is not None]

    def subtree(self, found: Found) -> list[Found]:
        """Something and all that lies below it, hidden or not; each folder comes before what it holds.

        Raises:
            PathConflictError: some of it lies deeper than a path can name.
        """
        subtree, to_visit = [found], [found]
        with self.walking() as folders:
            while to_visit:
                each = to_visit.pop()
                if kind_of(each.status) != "folder":
                    continue
                held = folders.found(each.path)
                if held and depth_of(each.path) >= MAX_DEPTH:
                    raise refusals.too_deep(found.path)
                subtree += held
                to_visit += held
        return subtree

    def _found(self, path: str, *, follow: bool) -> Found | None:
        """What a path leads to; `None` if that is hidden."""
        try:
            found = self.root.find(path, follow=follow)
        except PathConflictError as error:
            if self.path_filter.unreadable(error.path) is not None:
                return None  # the refusal would tell what the path leads to
            raise
        is_folder = kind_of(found.status) == "folder"
        return None if self.path_filter.hides(path, found.path, is_folder=is_folder) else found

    def _nothing(self, path: str, found: Found) -> PathNotFoundError:
        if kind_of(self.root.look(found.nearest)) == "folder":
            return refusals.nothing_at(path, nearest=found.nearest)
        return refusals.nothing_below_file(path, file=found.nearest)

    def _refuse_reading(self, path: str, kind: str) -> None:
        if kind == "folder":
            raise refusals.folder_where_file_is_needed(path)
        raise special_file(path)
