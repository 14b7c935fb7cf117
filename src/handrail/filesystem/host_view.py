"""What there is in the tree of a filesystem on disk, as far as it is shown."""

from __future__ import annotations

from handrail.errors import PathNotFoundError
from handrail.filesystem import refusals
from handrail.filesystem.descriptors import Found, Root
from handrail.filesystem.disk import Disk
from handrail.filesystem.disk_refusals import hidden, special_file
from handrail.filesystem.images import kind_of
from handrail.filesystem.names import to_text
from handrail.filesystem.paths import ROOT, ancestors_of, join
from handrail.filesystem.protocol import FileStat
from handrail.filesystem.visible import Visible


class View:
    """Looks at the tree for the operations; its paths have passed `normalise_on_disk`.

    Attributes:
        root: the tree.
        disk: how it is reached.
    """

    __slots__ = ("_visible", "disk", "root")

    def __init__(self, root: Root, disk: Disk, visible: Visible) -> None:
        """Look at a root."""
        self.root = root
        self.disk = disk
        self._visible = visible

    def find(self, path: str, *, follow: bool) -> Found:
        """What a path leads to; nothing where nothing is shown."""
        found = self.root.find(path, follow=follow)
        is_folder = kind_of(found.status) == "folder"
        if all(self._visible.shows(each, is_folder=is_folder) for each in (path, found.path)):
            return found
        shown = (each for each in ancestors_of(path) if self._visible.shows(each, is_folder=True))
        return Found(found.path, None, next(each for each in shown if self.root.look(each) is not None))

    def find_to_change(self, path: str, *, follow: bool, is_folder: bool) -> Found:
        """What a path leads to, where something may be written.

        Raises:
            PathConflictError: the path is hidden, or there is something special at it.
        """
        found = self.root.find(path, follow=follow)
        self.refuse_hidden(path, is_folder=is_folder)
        self.refuse_hidden(found.path, is_folder=is_folder)
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

    def refuse_hidden(self, path: str, *, is_folder: bool) -> None:
        """Make sure that a path is shown.

        Raises:
            PathConflictError: it is hidden; the message says by what.
        """
        by = self._visible.why_not(path, is_folder=is_folder)
        if by is not None:
            raise hidden(path, by=by)

    def hides(self, path: str, *, is_folder: bool) -> str | None:
        """What hides a path; `None` if it is shown."""
        return self._visible.why_not(path, is_folder=is_folder)

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
        if self.root.folds_case or self.hides(path, is_folder=False) is not None:
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
        found = self.present(path, follow=False)
        return _stat(path, found)

    def listing(self, path: str) -> tuple[FileStat, ...]:
        """What a folder holds, sorted."""
        found = self.present(path, follow=True)
        if kind_of(found.status) != "folder":
            raise refusals.file_where_folder_is_needed(path, file=path)
        stats = (_stat(join(path, each.path.rpartition("/")[2]), each) for each in self.below(found.path))
        shown = (each for each in stats if self._visible.shows(each.path, is_folder=each.kind == "folder"))
        return tuple(sorted(shown, key=lambda each: each.path))

    def listing_if_there(self, path: str) -> tuple[FileStat, ...]:
        """What a folder holds; nothing if somebody has just removed it."""
        try:
            return self.listing(path)
        except PathNotFoundError:
            return ()

    def below(self, folder: str) -> list[Found]:
        """What a folder holds, hidden or not, by a path without links."""
        with self.root.folder(folder, listed=True) as held:
            looked = [(name, self.disk.look(name, at=held)) for name in self.disk.names(held)]
        return [Found(join(folder, to_text(name)), status) for name, status in looked if status is not None]

    def subtree(self, found: Found) -> list[Found]:
        """Something and all that lies below it, hidden or not; each folder comes before what it holds."""
        subtree = [found]
        for each in subtree:  # grows while it is walked
            if kind_of(each.status) == "folder":
                subtree.extend(self.below(each.path))
        return subtree

    def _nothing(self, path: str, found: Found) -> PathNotFoundError:
        if kind_of(self.root.look(found.nearest)) == "folder":
            return refusals.nothing_at(path, nearest=found.nearest)
        return refusals.nothing_below_file(path, file=found.nearest)

    def _refuse_reading(self, path: str, kind: str) -> None:
        if kind == "folder":
            raise refusals.folder_where_file_is_needed(path)
        raise special_file(path)


def _stat(path: str, found: Found) -> FileStat:
    status = found.status
    kind = kind_of(status)
    if kind == "file" and status is not None:
        return FileStat(path, "file", status.st_size)
    if kind == "folder":
        return FileStat(path, "folder", 0)
    return FileStat(path, "symlink" if kind == "symlink" else "special", 0)
