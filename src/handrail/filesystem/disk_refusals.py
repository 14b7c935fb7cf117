"""What a filesystem on disk says when the operating system, or the disk, does not do what is asked.

The messages name paths inside of the root only: they may be shown to a model.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager

from handrail.errors import FilesystemError, PathConflictError

_WORDS = {
    errno.ENOSPC: "the disk is full. Free some space and try again",
    getattr(errno, "EDQUOT", -1): "the disk quota is used up. Free some space and try again",
    errno.EFBIG: "the file would be larger than this process may write. Write less",
    errno.EACCES: "permission is denied. Ask for another place, or for the permission",
    errno.EPERM: "the operating system does not permit it. Ask for another place, or for the permission",
    errno.EROFS: "the disk can only be read. Ask for another place",
    errno.EIO: "the disk has failed. Tell whoever runs this machine",
    errno.EXDEV: "the two paths lie on different disks. Write the new file and remove the old one",
    errno.ENOENT: "something was removed or replaced meanwhile. Look again",
    errno.ENOTDIR: "something was removed or replaced meanwhile. Look again",
    errno.ELOOP: "something was removed or replaced meanwhile. Look again",
    errno.EEXIST: "something was put there meanwhile. Look again",
    errno.ENOTEMPTY: "something was put there meanwhile. Look again",
    errno.EMFILE: "the process has too many files open. Try again later",
}


@contextmanager
def telling(what: str, path: str, *, after: str = "Nothing was changed") -> Generator[None]:
    """Turn what the operating system raises into words.

    Args:
        what: completes the sentence "cannot ...": `"write notes.md"`.
        path: the path that was given.
        after: what is true now, or to be done.

    Raises:
        FilesystemError: in the place of an `OSError`; those of Handrail pass.
    """
    try:
        yield
    except FilesystemError:  # some of them are an `OSError` too
        raise
    except OSError as error:
        reason = _WORDS.get(error.errno or 0, f"the operating system says: {error.strerror}")
        raise FilesystemError(f"cannot {what}: {reason}. {after}.", path=path) from error


def special_file(path: str) -> PathConflictError:
    """A device, socket or fifo was to be read or changed."""
    return PathConflictError(
        f"{path!r} is a device, socket or fifo, which is neither read nor changed here. Give the path of a file.",
        path=path,
    )


def holds_special_file(path: str, *, special: str) -> PathConflictError:
    """A folder was to be removed or moved that holds what could not be put back."""
    msg = f"{path!r} holds {special!r}, a device, socket or fifo, which could not be put back. Leave the folder there."
    return PathConflictError(msg, path=path)


def other_case(path: str, *, there: str) -> PathConflictError:
    """A path differs from what is there in upper and lower case only, on a disk that takes the two for one."""
    msg = f"{path!r} is called {there!r} here, and this disk takes upper and lower case for the same. Give that name."
    return PathConflictError(msg, path=path)
