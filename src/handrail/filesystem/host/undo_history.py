"""What the journal's folder keeps of committed calls, so that they can be undone, also by another process.

=============================================  ====================================================================
moment                                         what is done
=============================================  ====================================================================
before the commit, `keep_undo`                 what the call leaves is looked at: an image of each path, and a tree if
                                               one was saved before
the journal is prepared                        that is part of the same record, so it costs no further sync
the call is committed                          the journal is renamed to `undo-ID` in place of being discarded, and the
                                               contents of its images stay
the call is rolled back                        the journal is discarded
the process dies between commit and renaming   the next opening asks the store, and renames
=============================================  ====================================================================

A kept journal has everything in it: the images and the tree with which the call began, and those that it left. Images
are of what was written through the filesystem, and count before the tree: they are older, or not part of it.

Kept are the newest `MOST_UNDONE_CALLS`, for `UNDO_LASTS`; older ones are removed when the filesystem is opened and when
another one is kept, first the journal and then the contents. Trees stay as long as the git dir of the shadow
repository, which removes nothing.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from contextlib import suppress
from operator import itemgetter

from handrail.clock import Clock
from handrail.errors import JournalError, SnapshotError
from handrail.filesystem.disk import Disk, Root
from handrail.filesystem.host.journal import BeforeImage, JournalFile, JournalRecords, file_kind, read_journal
from handrail.filesystem.host.recovery import JournalFolder, WholeTree
from handrail.filesystem.paths import ROOT
from handrail.filesystem.shadow.objects import TreeEntry, object_id
from handrail.filesystem.shadow.tree import spell_paths
from handrail.transaction.undoing import MOST_UNDONE_CALLS, NO_UNDO_IMAGE, UNDO_LASTS, UndoChange, UndoImage

_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symlink"}


class UndoHistory:
    """The committed calls of one root that can be undone. The caller holds the lock of the filesystem.

    Attributes:
        is_on: whether further calls are kept.
        tree: the tree that they have changed.
    """

    __slots__ = ("_clock", "_folder", "_times", "is_on", "tree")

    def __init__(self, folder: JournalFolder, tree: WholeTree, clock: Clock, *, is_on: bool) -> None:
        """Removes those that are too old."""
        self.is_on: bool = is_on
        self._folder = folder
        self.tree: WholeTree = tree
        self._clock = clock
        looks = {undo_id: tree.images.disk.look(_name(undo_id), at=folder.descriptor) for undo_id in folder.ids("undo")}
        times = {undo_id: status.st_mtime for undo_id, status in looks.items() if status is not None}
        self._times = dict(sorted(times.items(), key=itemgetter(1)))
        self._prune()

    def add(self, journal: JournalFile) -> None:
        """Adds a call whose journal has been renamed; removes those that are too old."""
        self._times[journal.journal_id] = self._clock.now().timestamp()
        self.tree.images.undo_contents |= _contents(journal.records.undo_images)
        self._prune()

    def records(self, undo_id: str) -> JournalRecords | None:
        """What is kept of a call; `None` if nothing, or not all of it any more."""
        if undo_id not in self._times:
            return None
        with suppress(JournalError):
            records = self._read(undo_id)
            if records.undo is not None and all(map(self.tree.images.has_content, records.undo_images.values())):
                return records
        return None

    def changes(self, undo_id: str) -> list[UndoChange] | None:
        """What a call has changed; `None` if that is not kept, or not all of it any more."""
        if (records := self.records(undo_id)) is None or (record := records.undo) is None:
            return None
        before, after = dict[str, UndoImage](), dict(record.after)
        if record.trees is not None:
            try:
                differences = self.tree.shadow.compare(*record.trees)
            except (JournalError, SnapshotError):
                return None
            for path, entries in differences.items():
                (spelling,) = spell_paths((path,))
                before[spelling] = _from_entry(entries.before)
                after.setdefault(spelling, _from_entry(entries.after))
        before |= {path: self._from_image(image) for path, image in records.undo_images.items()}
        return [UndoChange(path, before[path], after[path]) for path in sorted(after) if before[path] != after[path]]

    def _from_image(self, image: BeforeImage) -> UndoImage:
        if image.kind == "file":
            images = self.tree.images
            return UndoImage("file", image.mode, _digest_file(images.disk, image.blob.encode(), at=images.folder))
        return UndoImage(image.kind, image.mode, _digest(image.target) if image.kind == "symlink" else "")

    def _prune(self) -> None:
        oldest = self._clock.now().timestamp() - UNDO_LASTS.total_seconds()
        while self._times:
            undo_id, time = next(iter(self._times.items()))
            if len(self._times) <= MOST_UNDONE_CALLS and time >= oldest:
                return
            self._remove(undo_id)

    def _remove(self, undo_id: str) -> None:
        images, contents = self.tree.images, set[bytes]()
        with suppress(JournalError):  # contents that it does not name are removed by the next opening
            contents = _contents(self._read(undo_id).undo_images)
        # The journal first: contents that no journal needs are removed by the next opening, too.
        for name in (_name(undo_id), *contents):
            images.disk.discard(name, at=images.folder)
        images.undo_contents -= contents
        del self._times[undo_id]

    def _read(self, undo_id: str) -> JournalRecords:
        return read_journal(undo_id, self._folder.read(f"undo-{undo_id}"), b"")


def look_for_undo(root: Root, disk: Disk, path: str) -> UndoImage:
    """What is at a path without links now."""
    if path == ROOT:
        return UndoImage("folder", stat.S_IMODE(disk.look_at(root.descriptor).st_mode))
    # A folder of the path may be a file or a link by now.
    with suppress(FileNotFoundError, NotADirectoryError), root.entry(path) as (folder, name):
        status = disk.look(name, at=folder)
        kind = file_kind(status)
        if status is None or kind == "special":
            return UndoImage(kind)
        if kind == "symlink":
            return UndoImage(kind, 0, _digest(disk.target(name, at=folder)))
        content = _digest_file(disk, name, at=folder) if kind == "file" else ""
        return UndoImage(kind, stat.S_IMODE(status.st_mode), content)
    return NO_UNDO_IMAGE


def _from_entry(entry: TreeEntry | None) -> UndoImage:
    if entry is None:
        return NO_UNDO_IMAGE
    kind = _KINDS.get(stat.S_IFMT(entry.mode), "special")
    mode = stat.S_IMODE(entry.mode) if kind in {"file", "folder"} else 0
    return UndoImage(kind, mode, entry.id if kind in {"file", "symlink"} else "")


def _digest(content: bytes) -> str:
    return object_id(b"blob", len(content), (content,))


def _digest_file(disk: Disk, name: bytes, *, at: int) -> str:
    # Of a large file, too: to change one is to write or copy it, which costs more.
    descriptor = disk.open_file(name, at=at)
    try:
        return object_id(b"blob", disk.look_at(descriptor).st_size, disk.chunks(descriptor))
    finally:
        disk.close(descriptor)


def _contents(images: Mapping[str, BeforeImage]) -> set[bytes]:
    return {image.blob.encode() for image in images.values() if image.kind == "file"}


def _name(undo_id: str) -> bytes:
    return f"undo-{undo_id}".encode()
