"""Disks to test with: one that fails, dies or lets something happen at a call, and pictures of trees on disk."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from handrail.filesystem.disk import Disk

Picture = dict[str, tuple[str, int, bytes]]

CALLS = frozenset(name for name in vars(Disk) if not name.startswith("_")) - {"process"}
ROOM = frozenset({"make_file", "append_file", "write", "make_folder", "make_link", "share"})
"""The calls that a full disk refuses."""


def quiet(_name: str) -> None:
    """Let a call be made."""


class WatchedDisk(Disk):
    """A real disk that tells of each call before it is made.

    Attributes:
        before: told of each call by its name; what it raises comes from the call.
    """

    def __init__(self, before: Callable[[str], object] = quiet) -> None:
        self.before = before

    def __getattribute__(self, name: str) -> Any:
        if name in CALLS:
            object.__getattribute__(self, "before")(name)
        return object.__getattribute__(self, name)


class Nth:
    """Does something at one call, or from one call on; the calls are counted from 1."""

    def __init__(self, number: int, act: Callable[[], object], *, among: frozenset[str] = CALLS) -> None:
        self.number = number
        self.act = act
        self.among = among
        self.seen: int = 0

    @property
    def has_acted(self) -> bool:
        return self.seen >= self.number

    def __call__(self, name: str) -> None:
        if name in self.among:
            self.seen += 1
            if self.seen == self.number:
                self.act()


class FromNth(Nth):
    """As `Nth`, and at every call after it."""

    def __call__(self, name: str) -> None:
        if name in self.among:
            self.seen += 1
            if self.has_acted:
                self.act()


def die() -> None:
    """Be killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail(number: int) -> Callable[[], object]:
    """Raise an error of the operating system."""

    def act() -> object:
        raise OSError(number, os.strerror(number))

    return act


def picture(root: Path) -> Picture:
    """Everything in a tree: kind, permissions, and content or target, by path; the root is `.`."""
    found: Picture = {}
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            shown = ("symlink", 0, os.fsencode(path.readlink()))
        elif stat.S_ISREG(status.st_mode):
            shown = ("file", stat.S_IMODE(status.st_mode), path.read_bytes())
        else:
            shown = (oct(stat.S_IFMT(status.st_mode)), stat.S_IMODE(status.st_mode), b"")
        found[os.fsencode(path.relative_to(root)).decode("latin-1")] = shown
    return found


def plant(root: Path) -> None:
    """A tree with something of everything."""
    (root / "notes" / "old" / "empty").mkdir(parents=True)
    (root / "notes" / "plan.md").write_text("1. look\n")
    (root / "notes" / "old" / "a.md").write_bytes(b"a")
    (root / "notes" / "to plan").symlink_to("plan.md")
    (root / "notes" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "notes" / "run.sh").chmod(0o750)
    (root / "notes" / "old").chmod(0o701)
    (root / "data.bin").write_bytes(bytes(range(256)) * 10)
    (root / "dangling").symlink_to("nowhere")
    (root / "twin").hardlink_to(root / "data.bin")
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9")).write_bytes(b"latin")
