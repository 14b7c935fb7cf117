"""The protocol of a filesystem.

Paths
    A path is text relative to the root, with forward slashes: `notes/plan.md`. `.` is the root. `./a`, `a//b`, `a/` and
    `a/x/../b` are normalised. Refused with `PathEscapeError`, whose message names what to give instead: an empty path,
    an absolute one that is not in the root, one that leaves the root by `..`, one with a backslash, a NUL or a lone
    surrogate, one of more than 4,095 bytes in UTF-8, with a part of more than 255, or of more than 128 parts. Upper and
    lower case differ, and so do Unicode forms of a name. No link is followed: there is nothing below one, and it is not
    read or written. Errors and results name paths in their shortest form.
    `handrail.filesystem.paths` has the spelling of names on disk that are not UTF-8.

Filtering
    `filtered` gives the same files behind a filter (`handrail.filesystem.path_filters`), which every method obeys. The
    two are one participant of calls, with one turn: a change through one is rolled back with the other.

Undoing
    A filesystem is a participant in the transactions of calls (`handrail.transaction`): before each change it checks
    whether the call may write, and joins the call's transaction. `snapshot` and `restore` may also be called directly:
    a snapshot can be restored repeatedly for as long as it is referenced, and restoring it leaves later snapshots
    valid; in a handler that is a write like any other.

Failing
    An operation that raises has changed nothing. Threads may share a filesystem.

Identity
    A content is identified by its SHA-256. A file on disk of more than `MOST_HASHED_BYTES` is identified by its size,
    time of last change and inode, and never read for it: replacing its content changes the time or the inode.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from handrail.errors import FilesystemError
from handrail.filesystem.path_filters import PathFilter, PathMatcher
from handrail.filesystem.walks import EVERYTHING, FileStat, Scan, WalkRequest
from handrail.transaction import Snapshotable
from handrail.turns import Turn

MOST_HASHED_BYTES = 64 * 1024 * 1024
"""The largest content that is hashed to identify it, in bytes: 64 MiB."""


@dataclass(frozen=True, slots=True)
class FileStart:
    """The start of a file, and its size.

    Attributes:
        data: the first bytes of its content.
        size: bytes of the whole content; `data` is all of it if it is as long.
    """

    data: bytes
    size: int


@runtime_checkable
class Filesystem(Snapshotable[object], Protocol):
    """Files and folders under one root that no path leaves.

    Any method raises `PathEscapeError` for what is not a path inside the root. The methods that read or list raise
    `PathNotFoundError` if there is nothing at the path, and `PathConflictError` for a folder in place of a file, or the
    reverse. The methods that change something first raise what `handrail.transaction.check_write` raises.
    """

    @property
    def turn(self) -> Turn:
        """The one turn of the files; always the same object."""
        ...

    def read_text(self, path: str) -> str:
        """The content of a file as text, with its line ends as they are.

        Raises:
            FilesystemError: the content is not UTF-8; `read_bytes` reads it.
        """
        ...

    def read_bytes(self, path: str) -> bytes:
        """The content of a file."""
        ...

    def read_start(self, path: str, most_bytes: int) -> FileStart:
        """The first bytes of a file, `most_bytes` of them or all; no more than that is read."""
        ...

    def identity(self, path: str) -> str:
        """A value that changes with the file's content; see the module."""
        ...

    def write_text(self, path: str, text: str) -> None:
        """Makes a file of exactly this text in UTF-8, or replaces the content of the one there is; makes its folders.

        Raises:
            PathConflictError: there is a folder at `path`, or a file where a folder is needed.
            FilesystemError: the text holds a lone surrogate, which UTF-8 has no bytes for.
        """
        ...

    def write_bytes(self, path: str, data: bytes) -> None:
        """Makes a file of exactly these bytes, or replaces the content of the one there is; makes its folders.

        Raises:
            PathConflictError: there is a folder at `path`, or a file where a folder is needed.
            TypeError: `data` is not bytes.
        """
        ...

    def exists(self, path: str) -> bool:
        """Returns whether there is anything at `path`; the root always exists."""
        ...

    def stat(self, path: str) -> FileStat:
        """The status of what is at `path`."""
        ...

    def list(self, path: str = ".") -> tuple[FileStat, ...]:
        """The entries of a folder, not of the folders in it, sorted by path."""
        ...

    def glob(self, pattern: str) -> tuple[FileStat, ...]:
        """Files and folders whose path matches, sorted by path; an empty tuple if there are none.

        `*` and `?` stand for characters of one part, `[abc]`, `[a-z]` and `[!a]` for one character, and `{a,b}` for
        one of its texts, which hold no slash; brackets and braces stand for themselves, too. A part `**` stands for any
        number of folders, and at the end for everything below. A leading dot is a character like any other.
        The root itself never matches, and links are not followed.
        """
        ...

    def scan(self, folder: str, pattern: str | PathMatcher, look: WalkRequest = EVERYTHING) -> Scan:
        """Files and folders in a folder whose path from there matches, within bounds, and what was left out.

        `scan(".", pattern).entries` is `glob(pattern)`.
        """
        ...

    def shortest(self, path: str) -> str:
        """The path of what is, or would be, at a path: relative to the root, in its shortest form."""
        ...

    def unsearched(self, path: str, *, by_name: bool = True) -> str | None:
        """The reason why searches leave a path out, to complete "because of ..."; `None` if a search shows it.

        What does not exist for the caller is not left out.

        Args:
            path: the path.
            by_name: whether the search names it; else, whether one that walks through its folder finds it.
        """
        ...

    def filtered(self, path_filter: PathFilter) -> Self:
        """The same files behind another filter, added to the present one; see the module."""
        ...

    def make_folder(self, path: str) -> None:
        """Makes a folder and those it lies in; an existing one is unchanged.

        Raises:
            PathConflictError: there is a file at `path`, or where a folder is needed.
        """
        ...

    def remove(self, path: str, *, recursive: bool = False) -> int:
        """Removes a file or empty folder, or with `recursive` a folder and all in it; returns how much that was.

        Raises:
            PathConflictError: the folder is not empty and `recursive` is false, it holds paths that a filter protects
                or folders deeper than a path can name, or `path` is the root.
        """
        ...

    def move(self, src: str, dst: str) -> None:
        """Moves a file, or a folder with everything in it; makes the folders of the new path.

        Raises:
            PathConflictError: `dst` already exists (nothing is ever replaced), `dst` lies inside `src`, a file is where
                a folder is needed, `src` holds paths that a filter protects, or it is the root.
            PathEscapeError: something inside `src` would get a path that is too long or too deep.
        """
        ...


def encode(text: str, *, path: str) -> bytes:
    """The UTF-8 bytes of a text; `FilesystemError` for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        msg = (
            f"the text for {path!r} holds a lone surrogate (U+{ord(text[error.start]):04X} at character "
            f"{error.start}), which UTF-8 has no bytes for. Leave it out."
        )
        raise FilesystemError(msg, path=path) from error


def decode(data: bytes, *, path: str) -> str:
    """The text of a file; `FilesystemError` if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        msg = f"{path!r} is not UTF-8 text (byte 0x{data[error.start]:02x} at {error.start}). Read it with read_bytes."
        raise FilesystemError(msg, path=path) from error


def hash_content(chunks: Iterable[bytes]) -> str:
    """The SHA-256 of a content that comes in pieces, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
