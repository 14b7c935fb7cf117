"""The journal of one transaction on disk: what was at the paths that it changes, and what to restore if it fails.

A *before-image* is what was at a path. Contents are stored as files in the journal's folder. A file that is about to be
replaced or removed is hard-linked there if possible, which takes constant time and preserves owner, times and
attributes. It is copied if its content could change or it cannot be linked: when it has other names already, through
which it may be written to; when it stays in the tree, at another path; and when the journal lies on another filesystem.

A journal is two files in the journal's folder, named after its id.

`journal-ID`
    Records, each synced before anything that it describes is changed: which images to restore, which tree to restore
    before them (`handrail.filesystem.shadow.repository`), and that the journal is complete. There is one tree at most,
    and after it only images of what it does not include. A record is 24 bytes (the length of what follows, a checksum
    of the length, a checksum of what follows) and JSON in UTF-8. The last record may be truncated by a crash: what it
    describes has not been changed yet. A record that cannot be read and is not the last is damage, and an error.

`marks-ID`
    For each change, before it is made, what will be at the path afterwards: one JSON array a line. It is not synced. If
    lines are lost, a rollback sets aside more: an entry that is neither the image nor marked counts as made by another
    process. A marked path without an image proves that records are lost.

Removing `journal-ID` commits a transaction that no store decides about. The journal of a committed call that may be
undone later becomes `undo-ID`, and the contents of its images stay; see `handrail.filesystem.host.undo_history`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import stat
import struct
import weakref
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import stat_result
from typing import Any, Literal, NamedTuple

from handrail.errors import JournalError
from handrail.filesystem.disk import Disk
from handrail.filesystem.paths import ROOT, to_bytes, to_text
from handrail.filesystem.undo_journal import SavedTree
from handrail.transaction.undoing import UndoImage

VERSION = 1
"""The version of the format."""

_HEAD = struct.Struct(">II16s")

_PREFIX = b"image-"
_COPY = _PREFIX + b"copy"


class FileIdentity(NamedTuple):
    """Distinguishes an entry on disk from a replacement by another process; for a folder only its kind counts."""

    kind: str
    inode: int = 0
    size: int = 0
    modified: int = 0


_NO_MARK = FileIdentity("nothing")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BeforeImage:
    """An entry as it was at a path.

    The content of a file is in the journal's folder under the name `blob`, whose size and time (nanoseconds) are
    `blob_stat`, if known. `mark` is the identity of the file itself.
    """

    kind: Literal["nothing", "folder", "file", "symlink"]
    mode: int = 0
    owner: tuple[int, int] = (0, 0)
    blob: str = ""
    target: bytes = b""
    mark: FileIdentity = _NO_MARK
    blob_stat: tuple[int, int] | None = None


NO_BEFORE_IMAGE = BeforeImage("nothing")
"""There was nothing."""


def file_kind(status: stat_result | None) -> str:
    """The kind of an entry on disk: a kind of image, or `"special"` for one without content to save."""
    if status is None:
        return "nothing"
    if stat.S_ISREG(status.st_mode):
        return "file"
    if stat.S_ISDIR(status.st_mode):
        return "folder"
    return "symlink" if stat.S_ISLNK(status.st_mode) else "special"


def file_identity(status: stat_result | None) -> FileIdentity:
    """The identity of the entry with a status."""
    kind = file_kind(status)
    if status is None or kind == "folder":
        return FileIdentity(kind)
    return FileIdentity(kind, status.st_ino, status.st_size, status.st_mtime_ns)


class BeforeImages:
    """The images of one filesystem, and the folder that holds their contents.

    A content is needed as long as its image is referenced. Unreferenced contents are removed by `sweep`, and not when
    the last reference goes, because that may be at any moment in any thread.

    Attributes:
        undo_contents: the names of contents that undo needs, which stay whether or not they are referenced. None of
            them is also a file of the tree.
    """

    __slots__ = ("_count", "_dropped", "disk", "folder", "undo_contents")

    def __init__(self, folder: int, disk: Disk) -> None:
        self.folder: int = folder
        self.disk: Disk = disk
        self.undo_contents: set[bytes] = set()
        self._count = 0
        self._dropped: deque[bytes] = deque()

    def take(self, name: bytes, journal_id: str, *, at: int, synced: bool, stays: bool = False) -> BeforeImage:
        """The image of the entry with a name; with `stays` its file stays in the tree, so it is copied."""
        status = self.disk.look(name, at=at)
        if status is None:
            return NO_BEFORE_IMAGE
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
        if stat.S_ISDIR(status.st_mode):
            return BeforeImage("folder", mode, owner, mark=file_identity(status))
        if stat.S_ISLNK(status.st_mode):
            return BeforeImage("symlink", target=self.disk.target(name, at=at), mark=file_identity(status))
        self._count += 1
        # A hard link has the size and time of the file, so this serves unless a copy is made.
        content_status = status
        # Named after its journal: so the next opening knows which contents a journal that is kept for undo may need.
        blob = _PREFIX + b"%s-%d" % (journal_id.encode(), self._count)
        try:
            # A linked content is safe from the filesystem itself, which never writes to a file in place: it makes a new
            # one beside the path and renames it.
            if stays or status.st_nlink > 1 or not self.disk.share(name, blob, at=at, to=self.folder):
                with self._copying(name, blob, at=at, to=self.folder) as copy:
                    if synced:
                        self.disk.sync(copy)
                    content_status = self.disk.look_at(copy)
        except BaseException:
            # A part of a copy may be there. The next sweep removes it: removing it here could raise in place of the
            # error.
            self._dropped.append(blob)
            raise
        size_and_time = (content_status.st_size, content_status.st_mtime_ns)
        image = BeforeImage("file", mode, owner, blob.decode(), mark=file_identity(status), blob_stat=size_and_time)
        # The finalizer may run in any thread and in the middle of `sweep`; appending to a deque is atomic. At exit it
        # has no use: the next opening removes what is left.
        weakref.finalize(image, self._dropped.append, blob).atexit = False
        return image

    def write_copy(self, image: BeforeImage, name: bytes, *, at: int, shared: bool) -> None:
        """Makes a new file of the content of an image; with `shared` it may be a hard link to the journal's file.

        It is one in any case if there is no space for a copy.
        """
        blob = image.blob.encode()
        # A copy has neither the owner nor the mode of the file, so it is never linked into the tree.
        may_share = blob not in self.undo_contents and self._is_original(image)
        if shared and may_share and self.disk.share(blob, name, at=self.folder, to=at):
            return
        try:
            with self._copying(blob, name, at=self.folder, to=at) as copy:
                self.disk.dress(copy, owner=image.owner, mode=image.mode)
                self.disk.set_time(copy, image.mark.modified)
                # The content is synced here, because only folders are synced before the journal is removed.
                self.disk.sync(copy)
        except OSError:
            self.disk.discard(name, at=at)
            # A full disk must not prevent a rollback, and a link needs no space for the content.
            if not may_share or not self.disk.share(blob, name, at=self.folder, to=at):
                raise

    def is_there(self, image: BeforeImage, status: stat_result) -> bool:
        """Returns whether a status is that of the image's own file, unchanged."""
        if file_identity(status) == image.mark:
            return True
        # While the journal's folder holds the file, its inode number cannot be given to another one. Other size or time
        # means that it was written in place, and then there is no other copy to restore.
        return image.kind == "file" and status.st_ino == image.mark.inode and self._is_original(image)

    def has_content(self, image: BeforeImage) -> bool:
        """Returns whether the content of an image is still in the journal's folder, unchanged."""
        if image.kind != "file":
            return True
        status = self.disk.look(image.blob.encode(), at=self.folder)
        if status is None or file_kind(status) != "file":
            return False
        if status.st_ino == image.mark.inode and status.st_nlink > 1:
            return True  # the file is also in the tree, where it may be written to
        return image.blob_stat is None or image.blob_stat == (status.st_size, status.st_mtime_ns)

    def set_aside(self, name: bytes, *, at: int) -> str:
        """Moves a file or link into the journal's folder; returns its name there."""
        aside = unused_name(name, at=self.folder, disk=self.disk)
        try:
            self.disk.rename(name, aside, at=at, to=self.folder)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            if file_kind(self.disk.look(name, at=at)) == "symlink":
                self.disk.make_link(self.disk.target(name, at=at), aside, at=self.folder)
            else:
                with self._copying(name, aside, at=at, to=self.folder) as copy:
                    self.disk.sync(copy)
            # Only once the copy is synced: a crash before that leaves the file in the tree.
            self.disk.unlink(name, at=at)
        return aside.decode(errors="backslashreplace")

    def separate(self) -> None:
        """Copies the contents that are also files of the tree, where a program could write to them."""
        for name in self.disk.names(self.folder):
            is_needed = name.startswith(_PREFIX) and name not in self.undo_contents
            status = self.disk.look(name, at=self.folder) if is_needed else None
            if status is None or status.st_nlink == 1:
                continue
            try:
                self.disk.discard(_COPY, at=self.folder)
                with self._copying(name, _COPY, at=self.folder, to=self.folder) as copy:
                    # `has_content` compares the time. The image now differs from its file by the inode, so
                    # `write_copy` will set owner and mode.
                    self.disk.set_time(copy, status.st_mtime_ns)
                    self.disk.sync(copy)
                self.disk.rename(_COPY, name, at=self.folder, to=self.folder)
            except BaseException:
                self.disk.discard(_COPY, at=self.folder)
                raise

    def sweep(self) -> None:
        """Removes the contents that are no longer referenced."""
        while self._dropped:
            # Taken from the queue only after the file is removed: after an error the next sweep tries again.
            if self._dropped[0] not in self.undo_contents:
                self.disk.discard(self._dropped[0], at=self.folder)
            self._dropped.popleft()

    def _is_original(self, image: BeforeImage) -> bool:
        blob = self.disk.look(image.blob.encode(), at=self.folder)
        return blob is not None and blob.st_ino == image.mark.inode

    @contextmanager
    def _copying(self, name: bytes, new: bytes, *, at: int, to: int) -> Generator[int]:
        source = self.disk.open_file(name, at=at)
        try:
            target = self.disk.make_file(new, 0o600, at=to)
            try:
                for chunk in self.disk.chunks(source):
                    self.disk.write(target, chunk)
                yield target
            finally:
                self.disk.close(target)
        finally:
            self.disk.close(source)


def unused_name(name: bytes, *, at: int, disk: Disk) -> bytes:
    """An unused name in a folder, for an entry that is set aside."""
    # A name on disk has at most 255 bytes, and the suffix must fit.
    free_name, number = name[:200] + b".found", 1
    while disk.look(free_name, at=at) is not None:
        number += 1
        free_name = name[:200] + b".%d.found" % number
    return free_name


class JournalHeader(NamedTuple):
    """The root of a journal, and the URL of the store that decides about it, if any."""

    inode: int
    store: str | None
    generation: int | None = None

    def matches(self, inode: int, generation: int | None) -> bool:
        """Returns whether a folder can be the one that the journal belongs to."""
        return self.inode == inode and (None in {self.generation, generation} or self.generation == generation)


class UndoRecord(NamedTuple):
    """What a call has left, beside the images of what it began with.

    Attributes:
        call: its session and its id, for people.
        after: what it has left at the paths of its images.
        trees: the tree that it began with, and the one that it has left; `None` if none was saved.
    """

    call: str
    after: Mapping[str, UndoImage]
    trees: tuple[str, str] | None


@dataclass(slots=True)
class JournalRecords:
    """The content of a journal.

    Attributes:
        header: `None` if nothing was recorded.
        images: for each path what to restore, in the order of recording.
        marks: for each path what the transaction has put there at any time.
        prepared: whether the journal is complete, so that a store may have decided.
        tree: the whole tree to restore before the images; `None` if there is none.
        undo: what the call has left, if it may be undone once it is committed.
    """

    header: JournalHeader | None = None
    images: dict[str, BeforeImage] = field(default_factory=dict[str, BeforeImage])
    marks: dict[str, set[FileIdentity]] = field(default_factory=dict[str, set[FileIdentity]])
    prepared: bool = False
    tree: SavedTree | None = None
    undo: UndoRecord | None = None

    @property
    def undo_images(self) -> dict[str, BeforeImage]:
        """The images that undo needs."""
        return {} if self.undo is None else {path: self.images[path] for path in self.undo.after}

    def lacks(self, path: str) -> bool:
        """Returns whether a full rollback needs what is at a path now."""
        return path not in self.images and (self.tree is None or not self.tree.covers(path))


class JournalFile:
    """The journal of one transaction, empty, or continued from its `records`."""

    __slots__ = ("_disk", "_end", "_files", "_folder", "_synced", "_torn", "journal_id", "records")

    def __init__(
        self, journal_id: str, folder: int, disk: Disk, *, synced: bool, records: JournalRecords | None = None
    ) -> None:
        self.journal_id: str = journal_id
        self.records: JournalRecords = JournalRecords() if records is None else records
        self._folder = folder
        self._disk = disk
        self._synced = synced
        # Recovery continues a journal, but adds only marks and no record, so the end is needed for new ones only.
        self._end = 0
        # Whether the last record may have been written in part; it is cut off before the next one.
        self._torn = False
        self._files: list[int] = []
        try:
            for name in _names(journal_id):
                self._files.append(disk.append_file(name, at=folder))
        except BaseException:
            self.close()
            raise

    def record_images(self, images: Mapping[str, BeforeImage], header: JournalHeader) -> None:
        """Records images; when this returns, they and their contents are durable."""
        self._record({"images": [[path, *_image_to_json(image)] for path, image in images.items()]}, header)
        # Only now: what `records` has must be found again after a crash.
        self.records.images.update(images)

    def record_tree_id(self, tree: SavedTree, header: JournalHeader) -> None:
        """Records a snapshot of the whole tree; when this returns, that is durable."""
        self._record({"tree": tree.id}, header)
        self.records.tree = tree

    def mark(self, marks: Iterable[tuple[str, FileIdentity]]) -> None:
        """Records what will be at some paths."""
        lines = bytearray()
        for path, mark in marks:
            self.records.marks.setdefault(path, set()).add(mark)
            lines += b"\n" + json.dumps([path, *mark]).encode()  # ends a line that a crash has truncated
        # `records` has the marks first: if writing fails, the rollback in this process still recognises the changes.
        self._disk.write(self._files[1], bytes(lines))

    def prepare(self) -> None:
        """Records that the journal is complete, and what the call has left if it may be undone; idempotent."""
        if not self.records.prepared:
            self.append({"prepared": True, "undo": self.records.undo})
            self.records.prepared = True

    def discard(self, *, keep_record: bool = False, committed: bool = False) -> None:
        """Removes the journal, to commit or after a rollback; it may also be removed when this raises.

        With `keep_record` a file `settled-ID` stays, for as long as a store has the id. The journal of a call that is
        `committed` and may be undone becomes `undo-ID`.
        """
        journal, marks = _names(self.journal_id)
        try:
            # One operation on one name decides: before it the journal restores everything, after it nothing.
            record = f"settled-{self.journal_id}".encode()
            if committed and self.records.undo is not None:
                # First: after a crash in between, the next opening comes to the same end.
                if keep_record:
                    self._disk.close(self._disk.append_file(record, at=self._folder))
                self._disk.rename(journal, f"undo-{self.journal_id}".encode(), at=self._folder, to=self._folder)
            elif keep_record:
                self._disk.rename(journal, record, at=self._folder, to=self._folder)
            else:
                self._disk.discard(journal, at=self._folder)
            # Before the marks are removed: without them, the rollback of a journal that is still there would set aside
            # what the call itself has written.
            if self._synced:
                self._disk.sync(self._folder)
            self._disk.discard(marks, at=self._folder)
        finally:
            self.close()

    def close(self) -> None:
        """Closes the descriptors; the files stay."""
        while self._files:
            self._disk.close(self._files.pop())

    def _record(self, record: Mapping[str, object], header: JournalHeader) -> None:
        if self._synced:
            self._disk.sync(self._folder)  # the names of the contents, and of the journal
        if self.records.header is None:
            record = {**record, "version": VERSION, **header._asdict()}
        self.append(record)
        self.records.header = header

    def append(self, record: Mapping[str, object]) -> None:
        """Appends a record; when this returns, it is durable, and after an `OSError` it does not count."""
        data = json.dumps(record).encode()
        size = len(data).to_bytes(4)
        head = _HEAD.pack(len(data), zlib.crc32(size), hashlib.blake2b(data, digest_size=16).digest())
        if self._torn:
            self._disk.truncate(self._files[0], self._end)
        # Set before the write: a full disk or an interrupt may leave a part of the record, and no other may follow it.
        self._torn = True
        self._disk.write(self._files[0], head + data)
        if self._synced:
            self._disk.sync(self._files[0])
        self._torn = False
        self._end += len(head) + len(data)


def temporary_name(journal_id: str) -> bytes:
    """The temporary name under which the transaction `journal_id` makes files."""
    return f".handrail-{journal_id[:12]}".encode()


def read_journal(journal_id: str, journal: bytes, marks: bytes) -> JournalRecords:
    """Parses the two files of a journal; `JournalError` if it is damaged, or from a newer Handrail."""
    records, place = JournalRecords(), 0
    while place < len(journal):
        if (data := _record_at(journal, place, journal_id)) is None:
            break
        place += _HEAD.size + len(data)
        try:
            _read_record(records, json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _damaged(journal_id, place, "holds a record that this Handrail cannot read") from error
    for line in marks.split(b"\n"):
        try:
            path, *mark = json.loads(line)
            records.marks.setdefault(path, set()).add(FileIdentity(*mark))
        except (ValueError, TypeError):
            continue  # truncated by the crash; the mark is missing, so what is found will be set aside
    if any(records.lacks(path) for path in records.marks):
        raise _damaged(journal_id, place, "lacks a record")
    return records


def _record_at(journal: bytes, place: int, journal_id: str) -> bytes | None:
    head = journal[place : place + _HEAD.size]
    if len(head) < _HEAD.size or not any(journal[place:]):  # a file may be extended by zeros before its data is written
        return None
    length, check, digest = _HEAD.unpack(head)
    end = place + _HEAD.size + length
    # The length has a checksum of its own: a damaged one would make the rest of the file look like one record that was
    # truncated.
    if zlib.crc32(length.to_bytes(4)) != check:
        raise _damaged(journal_id, place, "is damaged")
    data = journal[place + _HEAD.size : end]
    if hashlib.blake2b(data, digest_size=16).digest() == digest:
        return data
    # Not the last record, so that no crash has truncated it.
    if end < len(journal):
        raise _damaged(journal_id, place, "is damaged")
    return None


def _read_record(records: JournalRecords, record: dict[str, Any]) -> None:
    if records.header is None:
        if record["version"] > VERSION:
            raise ValueError(record["version"])
        records.header = JournalHeader(record["inode"], record["store"], record["generation"])
    for path, *fields in record.get("images", ()):
        # The first image of a path is of the beginning of the transaction.
        records.images.setdefault(path, _image_from_json(fields))
    if "tree" in record:
        # Raises for anything but hexadecimal digits: the id is handed to git.
        # Without the paths that it leaves out: a rollback reads them from the tree, and records no images.
        records.tree = SavedTree(bytes.fromhex(record["tree"]).hex())
    records.prepared |= record.get("prepared", False)
    if record.get("undo") is not None:
        call, after, trees = record["undo"]
        records.undo = UndoRecord(call, {path: UndoImage(*image) for path, image in after.items()}, trees)


def _damaged(journal_id: str, place: int, state: str) -> JournalError:
    msg = (
        f"the journal {journal_id} {state} (at byte {place}), so what it would restore is not known. Look at the "
        f"tree, then remove the file journal-{journal_id} from the journal's folder to keep the tree as it is."
    )
    return JournalError(msg, path=ROOT)


def _image_to_json(image: BeforeImage) -> list[Any]:
    return [image.kind, image.mode, image.owner, image.blob, to_text(image.target), image.mark, image.blob_stat]


def _image_from_json(fields: list[Any]) -> BeforeImage:
    kind, mode, owner, blob, target, mark, blob_stat = fields
    size_and_time = None if blob_stat is None else (blob_stat[0], blob_stat[1])
    return BeforeImage(kind, mode, (owner[0], owner[1]), blob, to_bytes(target), FileIdentity(*mark), size_and_time)


def _names(journal_id: str) -> tuple[bytes, bytes]:
    return f"journal-{journal_id}".encode(), f"marks-{journal_id}".encode()
