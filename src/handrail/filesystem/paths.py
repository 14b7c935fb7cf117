r"""Paths inside a filesystem: their shortest form, the spelling of names on disk, and the errors about them.

A path that has passed `normalise` is in its shortest form: parts without `.` and `..`, joined by single slashes; the
root is `ROOT`. Nothing here accesses a file. The errors of all filesystems are made here, so that a model reads the
same message for each of them.

A name on disk is any bytes, and a path is text. A name that is UTF-8 is its own text. Where it is not, or where its
text is not valid in a path, each byte in question is spelled by the sign for escape and two hexadecimal digits: the
bytes `caf\xe9` are `caf␛E9`. People can read it, and models copy it. A name has one spelling only.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, cast
from unicodedata import normalize

from handrail.errors import PathConflictError, PathEscapeError, PathNotFoundError, SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = "."
"""The root of every filesystem, in its shortest form."""

MAX_PATH_BYTES = 4095
"""The longest path, in bytes of UTF-8: the limit of Linux, less the closing NUL."""

MAX_PART_BYTES = 255
"""The longest name of a file or folder, in bytes of UTF-8: the limit of the usual filesystems."""

MAX_DEPTH = 128
"""The most names in a path. The cost of an operation grows with the depth."""

_DRIVE = re.compile(r"[A-Za-z]:(?:/|\Z)")

ESCAPE = "\N{SYMBOL FOR ESCAPE}"
"""Begins the spelling of a byte."""

_UNSPELLED = re.compile(f"[\\\\{ESCAPE}\udc80-\udcff]")  # a lone surrogate stands for a byte that is not UTF-8

_SPELLED = re.compile(ESCAPE.encode() + rb"([0-9A-F]{2})")

GIT_FOLDER = ".git"
"""The folder in which git stores a repository, or the file that names it. That of the root is not in snapshots."""


def normalise(path: str, *, encode: Callable[[str], bytes] = str.encode, noun: str = "path") -> str:
    """The shortest form of a path; lengths are those of `encode(path)`, and messages call it a `noun`.

    Raises:
        PathEscapeError: it is not a path inside the root; the message names what to give instead.
    """
    if not isinstance(cast("object", path), str):  # a program may give anything
        msg = f"a {noun} is a string such as 'notes/plan.md', not a {type(path).__name__}"
        raise PathEscapeError(msg, path=repr(path))
    _refuse_what_is_no_path(path, encode, noun)
    # Resolved as text, before any link is read: where `a` is a link, `a/../b` is `b` in every filesystem.
    shortest = posixpath.normpath(path)
    parts = shortest.split("/")
    if parts[0] == "..":
        raise PathEscapeError(f"the {noun} leads out of the root of the filesystem; {_instead(path)}", path=path)
    # The same in every filesystem: memory has no such limit.
    if any(len(encode(part)) > MAX_PART_BYTES for part in parts):
        msg = f"a name in the {noun} is longer than {MAX_PART_BYTES} bytes; give a shorter one"
        raise PathEscapeError(msg, path=path)
    if len(parts) > MAX_DEPTH:
        msg = (
            f"the {noun} has {len(parts):,} names, and at most {MAX_DEPTH} are allowed; give a {noun} "
            "with fewer folders"
        )
        raise PathEscapeError(msg, path=path)
    return shortest


def below_root(path: str, roots: Iterable[str]) -> str:
    """An absolute path in one of these folders, relative to it; any other as it is."""
    if not isinstance(path, str) or not path.startswith("/"):  # pyright: ignore[reportUnnecessaryIsInstance] - `normalise` refuses it
        return path
    whole = f"/{posixpath.normpath(path).lstrip('/')}"
    start = next((root for root in roots if f"{whole}/".startswith(f"{root.rstrip('/')}/")), None)
    return path if start is None else whole[len(start) :].lstrip("/") or ROOT


def composed(text: str) -> str:
    """A text in the form in which texts that look the same are the same: NFC."""
    return text if text.isascii() else normalize("NFC", text)


def parent_folder(path: str) -> str:
    """The folder that a path lies in; the root's is the root."""
    return path.rpartition("/")[0] or ROOT


def folders_above(path: str) -> Iterator[str]:
    """The folders that a path lies in, the nearest first, the root last; the root lies in none."""
    while path != ROOT:
        path = parent_folder(path)
        yield path


def path_depth(path: str) -> int:
    """The number of names in a path; the root has none."""
    return 0 if path == ROOT else path.count("/") + 1


def join(folder: str, name: str) -> str:
    """The path of the entry `name` of a folder."""
    return name if folder == ROOT else f"{folder}/{name}"


def is_inside(path: str, folder: str) -> bool:
    """Returns whether a path lies in a folder, at any depth; nothing lies in itself."""
    return path != folder and (folder == ROOT or path.startswith(f"{folder}/"))


def _refuse_what_is_no_path(path: str, encode: Callable[[str], bytes], noun: str) -> None:
    if not path:
        raise PathEscapeError(f"the {noun} is empty; give '.' for the root, or one such as 'notes/plan.md'", path=path)
    try:
        encoded = encode(path)
    except UnicodeEncodeError as error:
        msg = f"the {noun} holds a lone surrogate at character {error.start}, which a file name cannot; leave it out"
        raise PathEscapeError(msg, path=path) from error
    if len(encoded) > MAX_PATH_BYTES:
        raise PathEscapeError(f"the {noun} is longer than {MAX_PATH_BYTES} bytes; give a shorter one", path=path)
    if fault := _fault(path, noun):
        raise PathEscapeError(f"{fault}; {_instead(path)}", path=path)


def _fault(path: str, noun: str) -> str | None:
    if "\0" in path:
        return f"the {noun} holds a NUL character"
    if "\\" in path:
        return f"the parts of a {noun} are separated by forward slashes"
    if path.startswith("/") or _DRIVE.match(path):
        return f"the {noun} is absolute, and not in the root of the filesystem"
    return None


def _instead(path: str) -> str:
    # A model often tries again with exactly what a message proposes, so the proposal must be a path.
    path = path.replace("\0", "").replace("\\", "/")
    parts = path.split("/")
    if ".." in parts or path.startswith("/") or _DRIVE.match(path):
        # A place that the path does not name would be invented.
        return "give a path below the root, which is '.'"
    return f"give {'/'.join(part for part in parts if part not in {'', '.'}) or ROOT!r}"


def nothing_at(path: str, *, nearest: str) -> PathNotFoundError:
    """The error for a path with nothing there; `nearest` is the nearest folder above it that exists."""
    return PathNotFoundError(
        f"there is no file or folder {path!r}. The folder {nearest!r} exists: list it to see what it holds.", path=path
    )


def nothing_below_file(path: str, *, file: str) -> PathNotFoundError:
    """The error for a path with nothing there, because one of its folders is a file."""
    return PathNotFoundError(f"there is no file or folder {path!r}: {file!r} is a file, not a folder.", path=path)


def folder_where_file_is_needed(path: str) -> PathConflictError:
    """The error for reading or writing a folder as a file."""
    return PathConflictError(f"{path!r} is a folder, not a file. Give the path of a file in it.", path=path)


def file_where_folder_is_needed(path: str, *, file: str) -> PathConflictError:
    """The error for using a file as a folder."""
    return PathConflictError(f"{file!r} is a file, not a folder, so it holds nothing. Give another path.", path=path)


def link_not_followed(path: str, *, link: str, leads_to: str | None) -> PathConflictError:
    """The error for a path that is a link, or goes through one; `leads_to` is the path to give instead, if any."""
    where = "is a link" if path == link else f"goes through the link {link!r}"
    cure = "Give a path without it." if leads_to is None else f"Give the path that it leads to, {leads_to!r}."
    return PathConflictError(f"{path!r} {where}, and links are not followed here. {cure}", path=path)


def exists_already(path: str, *, is_folder: bool, src: str) -> PathConflictError:
    """The error for a move that would replace something."""
    if is_folder:
        cure = f"To move into that folder give the whole new path, such as {join(path, src.rpartition('/')[2])!r}."
    else:
        cure = "Give another path, or remove what is there first."
    return PathConflictError(f"{path!r} exists already, and moving replaces nothing. {cure}", path=path)


def not_empty(path: str, *, count: int) -> PathConflictError:
    """The error for removing a folder that is not empty."""
    return PathConflictError(
        f"the folder {path!r} is not empty (it holds {count}). Remove it with recursive=True to remove what it holds.",
        path=path,
    )


def root_stays() -> PathConflictError:
    """The error for removing or moving the root."""
    return PathConflictError("the root cannot be removed or moved. Name the files and folders in it.", path=ROOT)


def inside_itself(src: str, dst: str) -> PathConflictError:
    """The error for moving a folder into itself."""
    return PathConflictError(f"{dst!r} lies inside {src!r}, and a folder cannot be moved into itself.", path=dst)


def hidden(path: str, *, by: str) -> PathConflictError:
    """The error for changing a path that a filter protects, whether or not it exists."""
    return PathConflictError(f"{path!r} cannot be changed, because of {by}. Give another path.", path=path)


def holds_hidden(path: str, *, by: str) -> PathConflictError:
    """The error for removing or moving a folder that holds more than is shown."""
    msg = (
        f"{path!r} holds something that cannot be changed, because of {by}, so the folder stays. Remove or move what "
        "is listed in it."
    )
    return PathConflictError(msg, path=path)


def holds_asked_about(path: str, *, by: str) -> PathConflictError:
    """The error for removing or moving a folder with paths that need a call of their own."""
    msg = (
        f"{path!r} holds, or would hold, paths that need approval to be changed, because of {by}, so the folder stays. "
        "Name those paths one by one, each in a call of its own."
    )
    return PathConflictError(msg, path=path)


def too_deep(path: str) -> PathConflictError:
    """The error for removing or moving a folder that holds folders deeper than a path can name."""
    msg = (
        f"{path!r} holds folders deeper than {MAX_DEPTH} levels, which cannot be removed or moved here, but by a "
        "program."
    )
    return PathConflictError(msg, path=path)


def to_text(name: bytes) -> str:
    """The spelling in paths of a name on disk, or of the target of a link."""
    text = name.decode(errors="surrogateescape")
    if "/" not in text and _DRIVE.match(text):  # at the start of a path it would mean a drive
        return text[0] + _spell_bytes(b":")
    return _UNSPELLED.sub(lambda match: _spell_bytes(match[0].encode(errors="surrogateescape")), text)


def to_bytes(text: str) -> bytes:
    """The name on disk that a text spells; the inverse of `to_text`."""
    return _SPELLED.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode())


def normalise_on_disk(path: str) -> str:
    """The shortest form of a path on disk; as `normalise`, but lengths are those of the names on disk.

    Raises:
        PathEscapeError: it is not a path inside the root, or spells a name in another way than `to_text` does.
    """
    if not isinstance(cast("object", path), str) or ESCAPE not in path:  # `normalise` refuses what is not text
        return normalise(path)
    shortest = normalise(path, encode=to_bytes)
    for part in shortest.split("/"):
        name = to_bytes(part)
        # A spelled byte could be a separator, or make `..`; and with a second spelling a path could bypass the rules
        # for the first.
        if b"/" in name or b"\0" in name or name in {b".", b".."} or to_text(name) != part:
            msg = (
                f"{ESCAPE!r} and two digits spell a byte that is not UTF-8, and {part!r} spells others; copy names "
                "as they are listed"
            )
            raise PathEscapeError(msg, path=path)
    return shortest


def _spell_bytes(data: bytes) -> str:
    return "".join(f"{ESCAPE}{byte:02X}" for byte in data)


def changed_since_call(path: str) -> PathConflictError:
    """The error for a path that is not as a call has left it, so that undoing the call would lose what is there."""
    msg = f"{path!r} has been changed since the call, so the call cannot be undone. Undo that change first."
    return PathConflictError(msg, path=path)


def undo_not_kept(undo_id: str) -> SnapshotError:
    """The error for a call that cannot be undone, because what that needs is not kept."""
    msg = f"what undoing a call needs is not kept under {undo_id!r}, or no longer. Nothing has been changed."
    return SnapshotError(msg)
