"""What a scan has found in a folder, as bytes: a row for each file and folder, in columns.

Four columns: numbers, ids, flags and names, each in the order of `_Columns.add`. Before them stand their sizes.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, cast

from handrail.filesystem.shadow.tree import Folder, TreeFile

_SIZES: Final = struct.Struct("4Q")
_ID_BYTES: Final = 20
_NUMBERS_OF_FILE: Final = 5


def encode_folder(folder: Folder) -> bytes:
    """A folder and everything in it, for `decode_folder` on the same machine."""
    columns = _Columns()
    columns.add(folder)
    parts = (columns.numbers.tobytes(), columns.ids, columns.flags, b"\0".join(columns.names))
    return b"".join((_SIZES.pack(*map(len, parts)), *parts))


def decode_folder(content: memoryview) -> Folder:
    """The folder of which `encode_folder` has made a content."""
    parts: list[memoryview] = []
    at = _SIZES.size
    for size in _SIZES.unpack_from(content):
        parts.append(content[at : at + size])
        at += size
    return _Rows(*parts).folder()


@dataclass(slots=True)
class _Columns:
    """The rows of folders and files, folders before what they hold."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    ids: bytearray = field(default_factory=bytearray)
    flags: bytearray = field(default_factory=bytearray)
    names: list[bytes] = field(default_factory=list[bytes])

    def add(self, folder: Folder) -> None:
        """Add a folder: its mode and the numbers of entries, its id, its files, then the folders in it."""
        files = [*folder.leaves.items(), *((name, leaf) for name, leaf in folder.apart.items() if _is_file(leaf))]
        apart = [(name, inner) for name, inner in folder.apart.items() if isinstance(inner, Folder)]
        self.numbers.extend((folder.mode, len(folder.leaves), len(files), len(folder.folders), len(apart)))
        self.ids += bytes.fromhex(folder.id)
        for name, leaf in files:
            mode, file_id, signature = cast("TreeFile", leaf)
            self.numbers.extend((mode, *signature))
            self.ids += bytes.fromhex(file_id)
            self._add_name(name, folder)
        for name, inner in (*folder.folders.items(), *apart):
            self._add_name(name, folder)
            self.add(inner)

    def _add_name(self, name: str, folder: Folder) -> None:
        self.names.append(os.fsencode(name))
        self.flags.append(name in folder.ignored)


def _is_file(entry: TreeFile | Folder) -> bool:
    return not isinstance(entry, Folder)


class _Rows:
    """Reads the rows that `_Columns` has written."""

    def __init__(self, numbers: memoryview, ids: memoryview, flags: memoryview, names: memoryview) -> None:
        self._numbers = numbers.cast("q").tolist()
        self._ids = ids.hex()
        self._flags = bytes(flags)
        self._names = [os.fsdecode(name) for name in bytes(names).split(b"\0")]
        self._number = self._id = self._name = 0

    def folder(self) -> Folder:
        """The next folder, with everything in it."""
        at = self._number
        mode, leaves, files, folders, apart = self._numbers[at : at + _NUMBERS_OF_FILE]
        self._number = at + _NUMBERS_OF_FILE
        found = Folder(mode, id=self._next_id())
        ignored: list[str] = []
        rows = list(self._files(files, ignored))
        found.leaves.update(rows[:leaves])
        found.apart.update(rows[leaves:])
        for number in range(folders + apart):
            name = self._next_name(ignored)
            # The name first: `folder` reads on.
            inner = self.folder()
            if number < folders:
                found.folders[name] = inner
            else:
                found.apart[name] = inner
        found.ignored = frozenset(ignored)
        return found

    def _files(self, count: int, ignored: list[str]) -> Iterator[tuple[str, TreeFile]]:
        at, end = self._number, self._number + count * _NUMBERS_OF_FILE
        self._number = end
        columns = [iter(self._numbers[at:end])] * _NUMBERS_OF_FILE
        for mode, size, modified, changed, inode in zip(*columns, strict=True):
            file_id = self._next_id()
            yield self._next_name(ignored), TreeFile(mode, file_id, (size, modified, changed, inode))

    def _next_id(self) -> str:
        at = self._id
        self._id = at + 2 * _ID_BYTES
        return self._ids[at : self._id]

    def _next_name(self, ignored: list[str]) -> str:
        name = self._names[self._name]
        if self._flags[self._name]:
            ignored.append(name)
        self._name += 1
        return name
