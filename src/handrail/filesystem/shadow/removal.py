"""Removes what a program has left, however deep its folders are nested.

A folder that holds folders is taken apart from above: those in it are moved to the outermost one, and it is removed. So
two descriptors are enough for any depth, no path is longer than a name, and each folder is moved once at most. No link
is followed, also if something replaces a folder by a link meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

from handrail.filesystem.disk import LIST, set_mode_of

_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}
"""The errors of moving a folder to a name that something has already."""


def remove_entry(name: str, *, at: int) -> None:
    """Remove a file, link or folder of the folder that a descriptor is open on.

    Raises:
        OSError: it does not exist, or the operating system does not permit it; the rest may be removed already.
    """
    if stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        _remove_folder(name, at=at)
    else:
        os.unlink(name, dir_fd=at)


def _remove_folder(name: str, *, at: int) -> None:
    outermost = _opened(name, at=at)
    try:
        # Numbers that are not used twice; a name that the program has given to something is skipped.
        free = map(str, count())
        waiting = _emptied(outermost)
        while waiting:
            inner_name = waiting.pop()
            inner = _opened(inner_name, at=outermost)
            try:
                waiting += [_moved(each, inner, outermost, free) for each in _emptied(inner)]
            finally:
                os.close(inner)
            os.rmdir(inner_name, dir_fd=outermost)
    finally:
        os.close(outermost)
    os.rmdir(name, dir_fd=at)


def _opened(name: str, *, at: int) -> int:
    _make_accessible(name, at=at)
    return os.open(name, LIST, dir_fd=at)


def _make_accessible(name: str, *, at: int) -> None:
    if os.stat(name, dir_fd=at, follow_symlinks=False).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with suppress(PermissionError):  # of another owner; it may be accessible all the same
            set_mode_of(name, stat.S_IRWXU, at=at)


def _emptied(folder: int) -> list[str]:
    """Remove the files of a folder; returns the names of its folders."""
    # Without trying `rmdir` first: of a folder that is not empty it takes Linux a walk through all that is known of it.
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in found if is_folder]


def _moved(name: str, source: int, target: int, free: Iterator[str]) -> str:
    """Move a folder to another one; returns its new name."""
    # A folder that may not be written to may not be moved either: its entry `..` changes.
    _make_accessible(name, at=source)
    for new in free:
        try:
            os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return new
    raise AssertionError  # pragma: no cover - the numbers do not end
