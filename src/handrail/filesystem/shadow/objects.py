"""The objects of a shadow repository: contents of files, and folders, each under its digest, as git stores them.

An object is a compressed file that is written under another name first, and renamed. So a process that is killed leaves
no part of an object. Objects are only added, and what is stored already is not written again.

Nothing is synced: the objects survive the death of the process, but perhaps not a power failure.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from handrail.errors import JournalError
from handrail.filesystem.disk import translate_os_errors
from handrail.filesystem.paths import ROOT

CHUNK = 1 << 20
"""Bytes of a file that are in memory at once."""

UNREAD = "0" * 40
"""The id of a file that has not been read yet, or that changed while it was."""


class TreeEntry(NamedTuple):
    """One line of a tree object."""

    mode: int
    name: str
    id: str


class ObjectStore:
    """The objects in a folder, which `prepare` makes; for one writer at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder

    def prepare(self) -> None:
        """Makes the folder, and those in it.

        Raises:
            FilesystemError: it cannot be made.
        """
        ready = self.folder / "ready"
        if not ready.exists():
            with translate_os_errors("save the tree", ROOT):
                # It holds contents of files, also if other users may read the folder around it.
                self.folder.mkdir(mode=stat.S_IRWXU, exist_ok=True)
                for number in range(256):
                    (self.folder / f"{number:02x}").mkdir(exist_ok=True)
                ready.touch()  # last: after a kill they are made again

    def has(self, id: str) -> bool:
        """Returns whether there is an object of this id."""
        return os.access(self._path(id), os.F_OK)

    def size(self, id: str) -> int | None:
        """The size of the content of an object; `None` if there is none of this id."""
        try:
            return self._read(id)[1]
        except JournalError:
            return None

    def store_blob(self, source: BinaryIO, size: int) -> str:
        """Stores the content of a file, and returns its id; `UNREAD` if it changes meanwhile.

        Raises:
            FilesystemError: it cannot be stored.
        """
        blob_id = file_digest(source, size)
        if self.has(blob_id):
            return blob_id
        source.seek(0)
        return blob_id if self.store(blob_id, b"blob", size, _chunks(source)) else UNREAD

    def store(self, id: str, kind: bytes, size: int, content: Iterable[bytes]) -> bool:
        """Stores an object, unless its content has another id; returns whether it has this one.

        Raises:
            FilesystemError: it cannot be stored.
        """
        header, packer = object_header(kind, size), zlib.compressobj(1)
        digest, temporary = hashlib.sha1(header, usedforsecurity=False), self.folder / "temporary"
        with translate_os_errors("save the tree", ROOT):
            with temporary.open("wb") as file:
                file.write(packer.compress(header))
                for chunk in content:
                    digest.update(chunk)
                    file.write(packer.compress(chunk))
                file.write(packer.flush())
            if digest.hexdigest() != id:
                return False
            temporary.replace(self._path(id))
        return True

    def tree(self, id: str) -> bytes | None:
        """The content of a tree object, or `None` if there is no tree of this id."""
        try:
            kind, _, content = self._read(id)
        except JournalError:
            return None
        return b"".join(content) if kind == b"tree" else None

    def blob(self, id: str) -> Iterator[bytes]:
        """The content of a blob, in pieces; `JournalError` if no blob has this id."""
        kind, _, content = self._read(id)
        if kind != b"blob":
            raise objects_missing([id])
        return content

    def _read(self, id: str) -> tuple[bytes, int, Iterator[bytes]]:
        pieces = self._unpack(id)
        header, end, start = next(pieces).partition(b"\0")
        if not end:
            raise objects_missing([id])
        kind, _, size = header.partition(b" ")
        return kind, int(size), chain((start,), pieces)

    def _unpack(self, id: str) -> Iterator[bytes]:
        unpacker = zlib.decompressobj()
        try:
            with open(self._path(id), "rb") as file:  # noqa: PTH123 - of each file of a tree
                while not unpacker.eof:
                    packed = unpacker.unconsumed_tail or file.read(CHUNK)
                    piece = unpacker.decompress(packed, CHUNK)
                    if not (packed or piece):
                        raise objects_missing([id])
                    yield piece
        except (FileNotFoundError, zlib.error) as error:
            raise objects_missing([id]) from error

    def _path(self, id: str) -> str:
        return f"{self.folder}/{id[:2]}/{id[2:]}"


def _chunks(source: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: source.read(CHUNK), b"")


def file_digest(source: BinaryIO, size: int) -> str:
    """The id of a file's content."""
    return object_id(b"blob", size, _chunks(source))


def objects_missing(ids: Iterable[str]) -> JournalError:
    """The error for a snapshot whose objects are missing."""
    msg = f"the shadow repository has lost what the snapshot needs (object {min(ids)}), so it cannot be restored"
    return JournalError(msg, path=ROOT)


def decode_tree(content: bytes) -> Iterator[TreeEntry]:
    """The entries of a tree object."""
    at = 0
    while at < len(content):
        space = content.index(b" ", at)
        # The id follows as the 20 bytes of a SHA-1, which may contain any byte.
        end = content.index(b"\0", space)
        yield TreeEntry(
            int(content[at:space], 8), os.fsdecode(content[space + 1 : end]), content[end + 1 : end + 21].hex()
        )
        at = end + 21


def object_header(kind: bytes, size: int) -> bytes:
    """The bytes before the content of an object in its digest."""
    return b"%s %d\0" % (kind, size)


def object_id(kind: bytes, size: int, chunks: Iterable[bytes]) -> str:
    """The id of an object: the digest of its header and its content."""
    digest = hashlib.sha1(object_header(kind, size), usedforsecurity=False)
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
