"""Where overrides are stored: `OverridesStore` is the protocol, `OverrideFiles` a folder of JSON files.

A prompt's overrides under a tag are the file `{folder}/{ns}/{key}/{tag}.json`. A file is replaced atomically: another
process reads the former file or the new one. No path leaves the folder, and no link below it is followed.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from handrail.errors import OverridesError
from handrail.errors.developer import check_argument
from handrail.loop_guard import check_blocking
from handrail.prompt.overrides.override_file import PromptOverrides, dump_overrides, parse_overrides

LARGEST_FILE = 1_000_000
"""How many bytes a file of overrides may have."""

TAG_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What a tag looks like: it becomes the name of a file."""

_TAG = re.compile(TAG_PATTERN)
_PART = re.compile(r"[A-Za-z0-9._-]+")


@runtime_checkable
class OverridesStore(Protocol):
    """Stores the overrides of prompts."""

    def read(self, ns: str, key: str, tag: str) -> PromptOverrides | None:
        """The overrides of a prompt under a tag; `None` if there are none.

        Raises:
            OverridesError: they cannot be read.
        """
        ...

    def write(self, overrides: PromptOverrides) -> None:
        """Replace the overrides of a prompt under a tag, atomically.

        Raises:
            OverridesError: they cannot be written; the former ones are unchanged.
        """
        ...


class OverrideFiles:
    """Overrides as JSON files in a folder: `{folder}/{ns}/{key}/{tag}.json`.

    Attributes:
        folder: the folder; the first file that is written makes it.
    """

    __slots__ = ("folder",)

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Use a folder, which need not exist.

        Raises:
            InvalidArgumentError: `folder` is not a path.
        """
        check_argument("OverrideFiles", "folder", folder, (str, os.PathLike), "a path, such as 'overrides'")
        self.folder: Path = Path(folder)

    def __repr__(self) -> str:
        return f"OverrideFiles({str(self.folder)!r})"

    def path(self, ns: str, key: str, tag: str) -> Path:
        """The file of a prompt's overrides under a tag.

        Raises:
            OverridesError: a part of the names cannot be a part of a path.
        """
        return self.folder.joinpath(*self._parts(ns, key), self._name(tag))

    def read(self, ns: str, key: str, tag: str) -> PromptOverrides | None:
        """The overrides of a prompt under a tag; `None` if the file does not exist.

        Raises:
            OverridesError: the file cannot be read, is not one of overrides, or is that of another prompt or tag; of
                several faults the message has all.
        """
        path = self.path(ns, key, tag)
        check_blocking("reading", path)
        try:
            with self._opened_folder(self._parts(ns, key)) as folder:
                content = _content(self._name(tag), folder, str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(path, "read", error) from error
        found = _parsed(content, str(path))
        if (found.ns, found.key, found.tag) != (ns, key, tag):
            raise OverridesError(
                f"the file is of ns {found.ns!r}, key {found.key!r}, tag {found.tag!r}, and stands in the place of ns "
                f"{ns!r}, key {key!r}, tag {tag!r}; correct its head, or move it",
                file=str(path),
            )
        return found

    def write(self, overrides: PromptOverrides) -> None:
        """Write the file of these overrides, atomically; folders on its way are made.

        Raises:
            OverridesError: it cannot be written; the former file is unchanged.
        """
        path = self.path(overrides.ns, overrides.key, overrides.tag)
        data = dump_overrides(overrides).encode(errors="surrogatepass")
        if len(data) > LARGEST_FILE:
            raise OverridesError(f"the file would have more than {LARGEST_FILE:,} bytes", file=str(path))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._opened_folder(self._parts(overrides.ns, overrides.key), make=True) as folder:
                _replace(self._name(overrides.tag), data, folder)
        except OSError as error:
            raise _unusable(path, "written", error) from error

    def _parts(self, ns: str, key: str) -> list[str]:
        parts = f"{ns}/{key}".split("/")
        for part in parts:
            if not _PART.fullmatch(part) or part in {".", ".."}:
                raise OverridesError(
                    f"ns {ns!r} and key {key!r} cannot be folders: {part!r} is not a name of letters, digits, '.', '_' "
                    "and '-'",
                    file=str(self.folder),
                )
        return parts

    def _name(self, tag: str) -> str:
        if fault := tag_fault(tag):
            raise OverridesError(fault, file=str(self.folder))
        return f"{tag}.json"

    @contextmanager
    def _opened_folder(self, parts: list[str], *, make: bool = False) -> Generator[int]:
        """A descriptor of the folder below `folder`; each part is opened in the one before it, and not if it is a link.

        So no other process can put a link on the way between a check and its use.
        """
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parts:
                if make:
                    _make_folder(part, descriptor)
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)


def tag_fault(tag: str) -> str:
    """Why a text cannot be a tag, as a sentence without its period; empty if it can."""
    if _TAG.fullmatch(tag):
        return ""
    return (
        f"the tag {tag!r} cannot be the name of a file; write 1 to 64 letters, digits, '.', '_' and '-', such as "
        "'stable'"
    )


def read_overrides_file(path: Path) -> PromptOverrides:
    """Read a file of overrides that stands anywhere, such as one that is proposed; a link is not followed.

    Raises:
        OverridesError: it cannot be read, or is not a file of overrides; of several faults the message has all.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            content = _content(path.name, folder, str(path))
        finally:
            os.close(folder)
    except OSError as error:
        raise _unusable(path, "read", error) from error
    return _parsed(content, str(path))


def _parsed(content: bytes, file: str) -> PromptOverrides:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise OverridesError(f"byte {error.start} is not UTF-8; save the file as UTF-8", file=file) from error
    return parse_overrides(text, file=file)


def _make_folder(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return
    os.fsync(folder)


def _content(name: str, folder: int, file: str) -> bytes:
    # Not blocking, because opening a pipe would wait until another process writes to it.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OverridesError("this is not a regular file", file=file)
        # One byte more than is allowed shows that there is more.
        content = opened.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise OverridesError(f"the file has more than {LARGEST_FILE:,} bytes", file=file)
    return content


def _replace(name: str, data: bytes, folder: int) -> None:
    temporary = f".{name}.{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            _take_permissions(descriptor, name, folder)
            opened.write(data)
            opened.flush()
            # Before the rename, so that after a power failure the name does not stand for an empty file.
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _take_permissions(descriptor: int, name: str, folder: int) -> None:
    """Give a file those of the one that it replaces."""
    try:
        former = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISREG(former.st_mode):
        os.fchmod(descriptor, stat.S_IMODE(former.st_mode))


def _unusable(path: Path, what: str, error: OSError) -> OverridesError:
    # What O_NOFOLLOW says of a link; ENOTDIR where a folder is due.
    is_link = error.errno in {errno.ELOOP, errno.ENOTDIR}
    reason = "on its way is a link or a file, and links are not followed" if is_link else error.strerror
    return OverridesError(f"the file cannot be {what}: {reason}", file=str(path))
