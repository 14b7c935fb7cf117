r"""The root of a filesystem on disk, and the resolution of paths in it.

The root stays open, and every path is walked from there part by part, each folder opened by its name in the one before.
No step follows a link: a link is read, and its target is walked in the same way, so it can lead anywhere inside the
root and nowhere else. A link that leaves the root raises `PathEscapeError`; an absolute target is accepted if it lies
below the root. `..` in a target is the folder above the one that the parts before it lead to, as for the operating
system: if `x` is a link to `d/sub`, `x/../y` is `d/y`.

A name on disk is any bytes, and a path of a filesystem is text. A name that is UTF-8 is its own text. Where it is not,
or where its text is not valid in a path, each byte in question is spelled by the sign for escape and two
hexadecimal digits: the bytes `caf\xe9` are `caf␛E9`. The spelling can be read by people, copied by models and written
to any UTF-8 text, which lone surrogates cannot. A name has one spelling only.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, cast

from handrail.errors import PathConflictError, PathEscapeError, RootMissingError
from handrail.filesystem.disk import Disk, other_case
from handrail.filesystem.paths import ROOT, as_stored, composed, join, normalise, parent_of

_MOST_LINKS = 40
"""How many links one path may contain, as on Linux; more are treated as a circle."""

ESCAPE = "\N{SYMBOL FOR ESCAPE}"
"""Begins the spelling of a byte."""

_SPELLED = re.compile(ESCAPE.encode() + rb"([0-9A-F]{2})")

_DRIVE = re.compile(r"[A-Za-z]:")


class ResolvedPath(NamedTuple):
    """The result of resolving a path.

    Attributes:
        path: the path without links.
        status: what is there; `None` for nothing.
        nearest: the nearest folder above it that exists, if there is nothing.
    """

    path: str
    status: os.stat_result | None
    nearest: str = ROOT


class Root:
    """A folder that stays open; it does not close itself.

    Attributes:
        path: where it is.
        descriptor: what it is open as.
        identity: its device and inode.
        generation: distinguishes it from a folder that is made later and has its inode; `None` if it is not known.
        folds_case: whether it ignores case in names.
        spellings: where it is, without links and as it was given.
    """

    __slots__ = ("_disk", "_names", "descriptor", "folds_case", "generation", "identity", "path", "spellings")

    def __init__(self, path: Path, disk: Disk) -> None:
        """Open a folder.

        Raises:
            RootMissingError: there is no folder at `path`, or it may not be used.
        """
        try:
            self.path: Path = path.resolve(strict=True)
            self.descriptor: int = disk.open_root(self.path)
        except OSError as error:
            msg = f"there is no folder to be the root at {str(path)!r}: {error.strerror}. Make it, or give another one."
            raise RootMissingError(msg, path=str(path)) from error
        self.spellings: tuple[str, ...] = (os.fspath(self.path), os.path.abspath(path))  # noqa: PTH100 - links stay
        # Of the descriptor: the path may lead to another folder by now.
        status = os.fstat(self.descriptor)
        self.identity: tuple[int, int] = (status.st_dev, status.st_ino)
        self.generation: int | None = disk.generation(self.descriptor)
        self._disk = disk
        self.folds_case: bool = disk.folds_case(self.path)
        self._names = [os.fsencode(part) for part in self.path.parts[1:]]

    def check(self) -> None:
        """Check that the folder is still at the path where it was opened.

        Raises:
            RootMissingError: it was removed, moved or replaced.
        """
        try:
            status = self.path.stat()
            found = (status.st_dev, status.st_ino)
        except OSError:
            found = None
        if found != self.identity:
            state = "is no longer there" if found is None else "has been replaced by another one"
            msg = f"the folder of this filesystem {state}, so its files cannot be used. Nothing was changed."
            raise RootMissingError(msg, path=ROOT)

    def resolve(self, path: str, *, follow: bool) -> ResolvedPath:
        """What a path leads to; with `follow`, a link at its end is followed too.

        Raises:
            PathEscapeError: a link leads out of the root.
            PathConflictError: the links go in a circle, or the target of one has `..` after what is not a folder.
        """
        parts = [] if path == ROOT else path.split("/")
        for _ in range(_MOST_LINKS):
            found = self._walk(parts, follow=follow, asked=path)
            if isinstance(found, ResolvedPath):
                return found
            # The whole path is walked again from the root, so that the target of a link is checked like what was given.
            parts = found
        msg = f"{path!r} leads through too many links, perhaps in a circle. Remove one of them."
        raise PathConflictError(msg, path=path)

    def as_stored(self, path: str) -> str:
        """The path by which an entry is found, in whatever Unicode form the path is written."""
        return path if self.resolve(path, follow=False).status is not None else as_stored(path, self._names_in)

    def _names_in(self, path: str) -> list[str]:
        with suppress(OSError), self.folder(self.resolve(path, follow=True).path, listed=True) as descriptor:
            return [to_text(name) for name in self._disk.names(descriptor)]
        return []

    @contextmanager
    def folder(self, path: str, *, listed: bool = False) -> Generator[int]:
        """A descriptor of a folder, by a path without links; `listed` if it is for listing or syncing.

        Raises:
            OSError: the folder does not exist, or a part of the path is a link.
        """
        held = self._opened(path, listed=listed)
        try:
            yield held
        finally:
            self._disk.close(held)

    @contextmanager
    def entry(self, path: str) -> Generator[tuple[int, bytes]]:
        """A descriptor of the folder that a path without links lies in, and its name there."""
        with self.folder(parent_of(path)) as folder:
            yield folder, to_bytes(path.rpartition("/")[2])

    def look(self, path: str) -> os.stat_result | None:
        """What there is at a path without links; `None` for nothing."""
        if path == ROOT:
            return self._disk.look_at(self.descriptor)
        try:
            with self.entry(path) as (folder, name):
                return self._disk.look(name, at=folder)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def sync_folders(self, paths: Iterable[str]) -> None:
        """Sync the folders that changed paths lie in, as far as they exist, and the changed folders themselves."""
        changed = set(paths)
        # The folder of a path, for its name; the path itself if it is a folder, for its mode.
        for path in sorted(changed | {parent_of(path) for path in changed}):
            status = self.look(path)
            if status is not None and stat.S_ISDIR(status.st_mode):
                with self.folder(path, listed=True) as folder:
                    self._disk.sync(folder)

    def _opened(self, path: str, *, listed: bool) -> int:
        """A descriptor of a folder, which the caller closes; see `folder`."""
        held = self._disk.open_folder(b".", at=self.descriptor)
        try:
            parts = [] if path == ROOT else path.split("/")
            for number, part in enumerate(parts, 1):
                # Only the last one is opened to be listed: a folder above it may deny listing and still be passed
                # through.
                last = listed and number == len(parts)
                step = self._disk.open_folder if last else self._disk.step
                inner = step(to_bytes(part), at=held)
                self._disk.close(held)
                held = inner
        except BaseException:
            self._disk.close(held)
            raise
        return held

    def _walk(self, parts: Sequence[str], *, follow: bool, asked: str) -> ResolvedPath | list[str]:
        """What the parts lead to, or after a link the parts to continue with."""
        held, done = self._disk.open_folder(b".", at=self.descriptor), ROOT
        status: os.stat_result | None = self._disk.look_at(held)
        try:
            for number, part in enumerate(parts, 1):
                if part == "..":
                    if done == ROOT:
                        raise _escapes(asked)
                    done = parent_of(done)
                    # By its path and not as `..`: a folder that another process moves meanwhile has another one above.
                    above = self._opened(done, listed=self.folds_case)
                    self._disk.close(held)
                    held = above
                    status = self._disk.look_at(held)
                    continue
                path, name = join(done, part), to_bytes(part)
                status = self._disk.look(name, at=held)
                if status is None:
                    return _nothing([path, *parts[number:]], nearest=done, asked=asked)
                # Before a link is followed: on such a disk `Secret` and `secret` are one entry, and a rule for one must
                # not be bypassed by the other.
                if self.folds_case:
                    self._refuse_other_case(path, at=held)
                is_last = number == len(parts)
                if stat.S_ISLNK(status.st_mode) and (follow or not is_last):
                    return [*self._led(done, self._disk.target(name, at=held), asked), *parts[number:]]
                if not is_last:
                    if not stat.S_ISDIR(status.st_mode):
                        # A file where a folder is needed: there is nothing below it, and it is named as the nearest
                        # entry.
                        return _nothing([path, *parts[number:]], nearest=path, asked=asked)
                    # `_refuse_other_case` lists the folder, which a descriptor of O_PATH does not permit.
                    step = self._disk.open_folder if self.folds_case else self._disk.step
                    inner = step(name, at=held)
                    self._disk.close(held)
                    held = inner
                done = path
            return ResolvedPath(done, status, done)
        finally:
            self._disk.close(held)

    def _refuse_other_case(self, path: str, *, at: int) -> None:
        """Check that the last part of a path is the name on disk: one file has one path."""
        name = path.rpartition("/")[2]
        listed = [to_text(each) for each in self._disk.names(at)]
        # Compared in one form, because some disks return names in another Unicode form than they were given.
        if composed(name) not in map(composed, listed):
            there = [each for each in listed if composed(each).casefold() == composed(name).casefold()]
            raise other_case(path, there="".join(there[:1]))

    def _led(self, folder: str, target: bytes, asked: str) -> list[str]:
        """The parts of the target of a link in a folder; `..` among them is for `_walk`, which knows what is a link."""
        steps = [step for step in target.split(b"/") if step not in {b"", b"."}]
        parts = [] if folder == ROOT else folder.split("/")
        if target.startswith(b"/"):
            if steps[: len(self._names)] != self._names:
                raise _escapes(asked)
            parts, steps = [], steps[len(self._names) :]
        return [*parts, *map(to_text, steps)]


def _nothing(parts: Sequence[str], *, nearest: str, asked: str) -> ResolvedPath:
    """The result for parts with nothing there."""
    # No folder is above one that does not exist. Such a path must not be made, either: `..` in it would be resolved by
    # the disk.
    if ".." in parts:
        msg = (
            f"{asked!r} leads through a link whose target has '..' after what is not a folder. Give a path without it."
        )
        raise PathConflictError(msg, path=asked)
    return ResolvedPath("/".join(parts), None, nearest)


def _escapes(path: str) -> PathEscapeError:
    return PathEscapeError(
        f"{path!r} is or goes through a link that leads out of the root of the filesystem. Give a path without it.",
        path=path,
    )


def to_text(name: bytes) -> str:
    """How a name on disk, or the target of a link, is spelled in paths."""
    text = name.decode(errors="surrogateescape")
    if _DRIVE.fullmatch(text):  # at the start of a path it would mean a drive
        return text[0] + _spelled(b":")
    return "".join(_spell(character) for character in text) if _needs_spelling(text) else text


def to_bytes(text: str) -> bytes:
    """The name on disk that a text spells; the inverse of `to_text`."""
    return _SPELLED.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode())


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


def _needs_spelling(text: str) -> bool:
    return "\\" in text or (not text.isascii() and any(each == ESCAPE or "\udc80" <= each <= "\udcff" for each in text))


def _spell(character: str) -> str:
    if character in {ESCAPE, "\\"}:
        return _spelled(character.encode())
    if "\udc80" <= character <= "\udcff":
        return _spelled(character.encode(errors="surrogateescape"))
    return character


def _spelled(data: bytes) -> str:
    return "".join(f"{ESCAPE}{byte:02X}" for byte in data)
