"""The index of a shadow repository: what its last scan has found, kept on disk for the next process.

With it the first snapshot of a process reads the status of every file, and no contents but of those that have changed.
It is a file in the git dir. Each file has its status and its id, and the rules of `handrail.filesystem.shadow.tree`
decide whether it is unchanged; a file that must be read again has no valid status here either.

The index is not used, and made anew, if

- its digest is not that of its content, or it has another version;
- it belongs to another root: device and inode of the folder differ;
- other files are watched (`snapshot_tree`), or the root's `info/exclude` has changed;
- the objects that it names may be lost: the machine was started since, and they were not synced before;
- git does not have its last snapshot.

Layout: `MAGIC`, a digest of all that follows, the length of the head, the head as JSON, and four columns: numbers, ids,
flags and names, each in the order of `_Columns.add`.
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, cast

from handrail.filesystem.shadow.tree import Folder, TreeFile

INDEX_FILE: Final = "handrail-index"
"""The name of the index in the git dir."""

_MAGIC: Final = b"handrail index 1\n"
_DIGEST_BYTES: Final = 32
_LENGTH_BYTES: Final = 8
_ID_BYTES: Final = 20
_NUMBERS_OF_FILE: Final = 5
_TEMPORARY: Final = f"{INDEX_FILE}.lock"  # `Git.prepare` removes it


@dataclass(frozen=True, slots=True)
class IndexHead:
    """What an index belongs to.

    Attributes:
        root: device and inode of the root.
        watched: whether what is left out is watched.
        exclude: the digest of the root's `info/exclude`.
        boot: since which start of the machine the index is valid; empty if its objects are synced.
    """

    root: tuple[int, int]
    watched: bool
    exclude: str
    boot: str


@dataclass(frozen=True, slots=True)
class TreeIndex:
    """The content of an index.

    Attributes:
        head: what it belongs to.
        newest: the last snapshot.
        folder: the root as that snapshot has it.
    """

    head: IndexHead
    newest: str
    folder: Folder


def boot_id() -> str:
    """A value that changes when the machine is started; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # pragma: no cover - not on Linux
        return ""


def write_index(git_dir: Path, index: TreeIndex) -> None:
    """Replace the index of a git dir atomically.

    Raises:
        OSError: the disk fails; the index that was there is unchanged.
    """
    columns = _Columns()
    columns.add(index.folder)
    names = b"\0".join(columns.names)
    sizes = (len(columns.numbers) * columns.numbers.itemsize, len(columns.ids), len(columns.flags), len(names))
    head = json.dumps({**asdict(index.head), "newest": index.newest, "sizes": sizes}).encode()
    content = b"".join(
        (len(head).to_bytes(_LENGTH_BYTES), head, columns.numbers.tobytes(), columns.ids, columns.flags, names)
    )
    with (git_dir / _TEMPORARY).open("wb") as file:
        file.write(_MAGIC + hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest())
        file.write(content)
    (git_dir / _TEMPORARY).replace(git_dir / INDEX_FILE)


def read_index(git_dir: Path) -> TreeIndex | None:
    """The index of a git dir; `None` if there is none, or it is damaged."""
    try:
        content = (git_dir / INDEX_FILE).read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(content)[start:]
    if not content.startswith(_MAGIC) or (
        hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != content[len(_MAGIC) : start]
    ):
        return None
    # From here on the content is what `write_index` has written.
    at = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES])
    head = cast("dict[str, object]", json.loads(bytes(body[_LENGTH_BYTES:at])))
    parts: list[memoryview] = []
    for size in cast("list[int]", head["sizes"]):
        parts.append(body[at : at + size])
        at += size
    root = cast("list[int]", head["root"])
    return TreeIndex(
        IndexHead((root[0], root[1]), bool(head["watched"]), str(head["exclude"]), str(head["boot"])),
        str(head["newest"]),
        _Rows(*parts).folder(),
    )


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
