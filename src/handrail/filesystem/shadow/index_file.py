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

Layout: `MAGIC`, a digest of all that follows, the length of the head, the head as JSON, and the folder
(`handrail.filesystem.shadow.columns`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from handrail.filesystem.shadow.columns import decode_folder, encode_folder
from handrail.filesystem.shadow.tree import Folder

INDEX_FILE: Final = "handrail-index"
"""The name of the index in the git dir."""

_MAGIC: Final = b"handrail index 2\n"
_DIGEST_BYTES: Final = 32
_LENGTH_BYTES: Final = 8
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
    head = json.dumps({**asdict(index.head), "newest": index.newest}).encode()
    content = b"".join((len(head).to_bytes(_LENGTH_BYTES), head, encode_folder(index.folder)))
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
    root = cast("list[int]", head["root"])
    return TreeIndex(
        IndexHead((root[0], root[1]), bool(head["watched"]), str(head["exclude"]), str(head["boot"])),
        str(head["newest"]),
        decode_folder(body[at:]),
    )
