"""What filesystems say when they cannot do what is asked, and text to bytes and back.

One place for all stores, so that a model reads the same sentence whichever store it works on.
"""

from __future__ import annotations

from handrail.errors import FilesystemError, PathConflictError, PathNotFoundError
from handrail.filesystem.paths import MAX_DEPTH, ROOT, join


def nothing_at(path: str, *, nearest: str) -> PathNotFoundError:
    """There is nothing at `path`; `nearest` is the nearest folder above it that exists."""
    return PathNotFoundError(
        f"there is no file or folder {path!r}. The folder {nearest!r} exists: list it to see what it holds.", path=path
    )


def nothing_below_file(path: str, *, file: str) -> PathNotFoundError:
    """There is nothing at `path`, because what should be one of its folders is a file."""
    return PathNotFoundError(f"there is no file or folder {path!r}: {file!r} is a file, not a folder.", path=path)


def folder_where_file_is_needed(path: str) -> PathConflictError:
    """A folder was to be read or written as a file."""
    return PathConflictError(f"{path!r} is a folder, not a file. Give the path of a file in it.", path=path)


def file_where_folder_is_needed(path: str, *, file: str) -> PathConflictError:
    """A file was to be listed, or to hold something, as a folder."""
    return PathConflictError(f"{file!r} is a file, not a folder, so it holds nothing. Give another path.", path=path)


def exists_already(path: str, *, is_folder: bool, src: str) -> PathConflictError:
    """A move would have replaced something."""
    if is_folder:
        cure = f"To move into that folder give the whole new path, such as {join(path, src.rpartition('/')[2])!r}."
    else:
        cure = "Give another path, or remove what is there first."
    return PathConflictError(f"{path!r} exists already, and moving replaces nothing. {cure}", path=path)


def not_empty(path: str, *, count: int) -> PathConflictError:
    """A folder that holds something was to be removed."""
    return PathConflictError(
        f"the folder {path!r} is not empty (it holds {count}). Remove it with recursive=True to remove what it holds.",
        path=path,
    )


def root_stays() -> PathConflictError:
    """The root was to be removed or moved."""
    return PathConflictError("the root cannot be removed or moved. Name the files and folders in it.", path=ROOT)


def inside_itself(src: str, dst: str) -> PathConflictError:
    """A folder was to be moved into itself."""
    return PathConflictError(f"{dst!r} lies inside {src!r}, and a folder cannot be moved into itself.", path=dst)


def hidden(path: str, *, by: str) -> PathConflictError:
    """Something was to be changed where a filter keeps paths from being changed, whether anything is there or not."""
    return PathConflictError(f"{path!r} cannot be changed, because of {by}. Give another path.", path=path)


def holds_hidden(path: str, *, by: str) -> PathConflictError:
    """A folder was to be removed or moved that holds more than is shown."""
    msg = (
        f"{path!r} holds something that cannot be changed, because of {by}, so the folder stays. Remove or move what "
        "is listed in it."
    )
    return PathConflictError(msg, path=path)


def holds_asked_about(path: str, *, by: str) -> PathConflictError:
    """A folder was to be removed or moved with what may only be removed, moved or moved onto under its own name."""
    msg = (
        f"{path!r} holds, or would hold, paths that are not changed unasked, because of {by}, so the folder stays. "
        "Name those paths one by one, each in a call of its own."
    )
    return PathConflictError(msg, path=path)


def too_deep(path: str) -> PathConflictError:
    """A folder was to be removed or moved that holds folders deeper than a path can name."""
    msg = (
        f"{path!r} holds folders deeper than {MAX_DEPTH} levels, which cannot be removed or moved here, but by a "
        "program."
    )
    return PathConflictError(msg, path=path)


def encode(text: object, *, path: str) -> bytes:
    """The bytes of a text that is to be written.

    Raises:
        FilesystemError: it holds a lone surrogate.
        TypeError: it is not text.
    """
    if not isinstance(text, str):
        raise TypeError(f"write_text takes a string, not {type(text).__name__}; write_bytes takes bytes")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        msg = (
            f"the text for {path!r} holds a lone surrogate (U+{ord(text[error.start]):04X} at character "
            f"{error.start}), which UTF-8 has no bytes for. Leave it out."
        )
        raise FilesystemError(msg, path=path) from error


def decode(data: bytes, *, path: str) -> str:
    """The text of a file that was read.

    Raises:
        FilesystemError: it is not UTF-8.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        msg = f"{path!r} is not UTF-8 text (byte 0x{data[error.start]:02x} at {error.start}). Read it with read_bytes."
        raise FilesystemError(msg, path=path) from error


def as_bytes(data: object) -> bytes:
    """Data that is to be written, as bytes that nobody can change any more.

    Raises:
        TypeError: it is not bytes.
    """
    if not isinstance(data, (bytes, bytearray)):
        raise TypeError(f"write_bytes takes bytes, not {type(data).__name__}; write_text takes a string")
    return bytes(data)
