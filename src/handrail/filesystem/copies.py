"""Copies of folders on disk, and digests that change with anything in a folder.

Sockets, pipes and devices are left out, and so are the databases of SQLite that this process has open.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from handrail.process import protected_paths


def copy_folder(folder: Path, copy: Path) -> None:
    """Copies a folder, with modes, times and links; an absolute link into the folder leads into the copy.

    Raises:
        OSError: a file cannot be read or written.
    """
    paths = {path for path, _ in walk_folder(folder)}

    def left_out(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(parent, name) not in paths]

    shutil.copytree(folder, copy, symlinks=True, ignore=left_out)
    for path, status in walk_folder(copy):
        target = path.readlink() if stat.S_ISLNK(status.st_mode) else Path()
        if target.is_absolute() and target.is_relative_to(folder):
            path.unlink()
            path.symlink_to(copy / target.relative_to(folder))


def folder_size(folder: Path) -> int:
    """The bytes of the files in a folder."""
    return sum(status.st_size for _, status in walk_folder(folder) if stat.S_ISREG(status.st_mode))


def digest_folder(folder: Path, *, besides: Collection[Path] = ()) -> str:
    """A digest of all that is in a folder: paths, kinds, modes, targets of links, and contents; not of some paths.

    Raises:
        OSError: a file cannot be read.
    """
    digest, names = hashlib.sha256(), frozenset(map(str, besides))
    for path, status in walk_folder(folder) if folder.is_dir() else ():
        mode, content = status.st_mode, b""
        if str(path) in names:
            continue
        if stat.S_ISREG(mode):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        elif stat.S_ISLNK(mode):
            mode, content = stat.S_IFLNK, os.fsencode(path.readlink())  # its permissions mean nothing
        digest.update(b"%s\0%o\0%s\0" % (os.fsencode(path.relative_to(folder)), mode, content))
    return digest.hexdigest()


def walk_folder(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yields what is in a folder at any depth, with its status, in order."""
    databases = [str(folder / path) for path in protected_paths(folder)]
    return _walk(str(folder), frozenset([*databases, *(f"{path}-holds" for path in databases)]))


def _walk(folder: str, left_out: frozenset[str]) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(folder) as entries:
        in_order = sorted(entries, key=lambda entry: entry.name)
    for entry in in_order:
        status = entry.stat(follow_symlinks=False)
        is_folder = stat.S_ISDIR(status.st_mode)
        if entry.path in left_out or not (is_folder or stat.S_ISREG(status.st_mode) or entry.is_symlink()):
            continue
        yield Path(entry.path), status
        if is_folder:
            yield from _walk(entry.path, left_out)
