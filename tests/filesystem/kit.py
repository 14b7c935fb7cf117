"""Filesystems to test with: trees, stores, calls and changes over them, and disks that fail or die at a call."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from handrail.crash_points import arm
from handrail.errors import RollbackError, StoreUnavailableError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.filesystem.disk import Disk
from handrail.transaction import RecordCommit, Transaction, UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from handrail.turns import draw_ticket
from handrail.waiting import run_in_thread

Picture = dict[str, tuple[str, int, bytes]]
T = TypeVar("T")

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

    def fail(self, number: int, *among: str, at: int = 1, on: bool = False) -> None:
        """Raise an error of the operating system from the call `at`, or with `on` from all later ones too."""
        kind = FromNth if on else Nth
        self.before = kind(at, fail(number), among=frozenset(among) or CALLS)

    def heal(self) -> None:
        """Let every call be made."""
        self.before = quiet

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


Change = Callable[[Filesystem], object]


class PlantedTree:
    """The tree that `plant` makes, and its journal.

    Attributes:
        root: the tree.
        journal: the folder of the journal.
        disk: what it is opened with.
        before: the tree as it was planted.
    """

    def __init__(self, folder: Path, disk: WatchedDisk | None = None) -> None:
        self.root, self.journal = folder / "root", folder / "journal"
        self.disk = disk or WatchedDisk()
        self.root.mkdir(parents=True)
        plant(self.root)
        self.before = picture(self.root)

    def open(self, *, disk: Disk | None = None, **options: Any) -> HostFilesystem:
        """The filesystem over it, with the same journal each time."""
        return HostFilesystem(self.root, journal=self.journal, disk=disk or self.disk, **options)

    def reopen(self, **options: Any) -> None:
        """Let an opening restore what is left to restore."""
        self.open(**options).close()

    @property
    def now(self) -> Picture:
        """The tree as it is."""
        return picture(self.root)

    @property
    def leftovers(self) -> list[str]:
        """The files of the journal's folder that are not always there, without their ids."""
        names = {path.name for path in self.journal.iterdir()} - {"lock", "root", "tree.git"}
        return sorted(name.partition("-")[0] for name in names)


def several(fs: Filesystem) -> None:
    """Changes that meet at the same paths."""
    fs.write_text("notes/plan.md", "first")
    fs.write_text("notes/plan.md", "second")
    fs.remove("notes/old", recursive=True)
    fs.write_text("notes/old", "a file where a folder was")
    fs.move("notes", "archive/notes")
    fs.write_text("notes/plan.md/deep/new", "a folder where a file was")


CHANGES: Mapping[str, Change] = {
    "write a new file": lambda fs: fs.write_text("new/deep/file", "x"),
    "replace a file": lambda fs: fs.write_text("notes/run.sh", "echo\n"),
    "replace a file of two names": lambda fs: fs.write_bytes("data.bin", b"other"),
    "write a name that is no UTF-8": lambda fs: fs.write_text("caf␛E9", "changed"),
    "make folders": lambda fs: fs.make_folder("new/deep"), "remove a file": lambda fs: fs.remove("notes/plan.md"),
    "remove a link": lambda fs: fs.remove("dangling"), "remove a folder": lambda fs: fs.remove("notes", recursive=True),
    "move a file": lambda fs: fs.move("notes/run.sh", "new/run.sh"),
    "move a link": lambda fs: fs.move("dangling", "new/dangling"),
    "move a folder": lambda fs: fs.move("notes", "new/notes"), "several": several,
}  # fmt: skip
"""Each kind of change by what it is."""


@contextmanager
def call(
    fs: Filesystem, *, inside: Transaction | None = None, writes: bool = True, commits: bool = False
) -> Generator[Transaction]:
    """A call that holds the turn of a filesystem; rolled back unless the block commits, or `commits` at its end."""
    turns, outer = ((fs.turn,), None) if inside is None else ((), inside.ticket)
    ticket = draw_ticket(turns, exclusive=writes, inside=outer)
    try:
        with Transaction("tool", ticket=ticket, writes=writes, parent=inside) as transaction:
            yield transaction
            if commits:
                transaction.commit()
    finally:
        ticket.release()


class Decisions:
    """A store that decides, in memory, and can be lost.

    Attributes:
        url: its name.
        committed: the ids that its units have committed.
        seen: the ids of all its units.
        down: whether it does not answer.
        forgets: whether it answers when it is to delete an id.
        lost: whether the connection is lost in the moment of the next commits, before (`"before"`) or after it.
    """

    waits = False

    def __init__(self, url: str = "fake:one") -> None:
        self.url = url
        self.committed: set[str] = set()
        self.seen: set[str] = set()
        self.down = False
        self.forgets = True
        self.lost: str | None = None

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        return run_in_thread(partial(self.apply, unit))

    def apply(self, unit: UnitOfWork) -> Refusal | None:
        self._answer()
        journals = {write.journal_id for write in unit.writes if isinstance(write, RecordCommit)}
        self.seen |= journals
        if self.lost != "before":
            self.committed |= journals
        if self.lost is not None:
            raise StoreUnavailableError("lost", store=self.url, in_doubt=True)
        return None

    def is_committed(self, journal_id: str) -> bool:
        self._answer()
        return journal_id in self.committed

    def delete_commit_record(self, journal_id: str) -> None:
        self._answer(can=self.forgets)
        self.committed.discard(journal_id)

    def _answer(self, *, can: bool = True) -> None:
        if self.down or not can:
            raise StoreUnavailableError("down", store=self.url)


OpenStore = Callable[[Mapping[str, str | bytes]], AbstractContextManager[Filesystem]]


@contextmanager
def in_memory(files: Mapping[str, str | bytes]) -> Generator[Filesystem]:
    """A filesystem in memory."""
    yield InMemoryFilesystem(files)


@contextmanager
def on_disk(files: Mapping[str, str | bytes]) -> Generator[Filesystem]:
    """A filesystem in a folder of its own, which leaves nothing behind when it is closed."""
    with tempfile.TemporaryDirectory() as folder:
        root, journal = Path(folder, "root"), Path(folder, "journal")
        root.mkdir()
        with HostFilesystem(root, journal=journal, durability="normal") as filesystem:
            for path, content in files.items():
                filesystem.write_bytes(path, content.encode() if isinstance(content, str) else content)
            yield filesystem
        assert sorted(left.name for left in journal.iterdir()) == ["lock", "root"]


STORES: dict[str, OpenStore] = {"memory": in_memory, "disk": on_disk}
"""Opens a store that holds these files, and cleans up after it; by its name."""


Operate = Callable[[Filesystem, str], object]
READS: Mapping[str, Operate] = {
    "read_text": lambda fs, path: fs.read_text(path), "read_bytes": lambda fs, path: fs.read_bytes(path),
    "identity": lambda fs, path: fs.identity(path), "read_start": lambda fs, path: fs.read_start(path, 3),
}  # fmt: skip
LOOKS: Mapping[str, Operate] = {
    "stat": lambda fs, path: fs.stat(path), "list": lambda fs, path: fs.list(path),
    "remove": lambda fs, path: fs.remove(path, recursive=True), "move": lambda fs, path: fs.move(path, "elsewhere.md"),
}  # fmt: skip
WRITES: Mapping[str, Operate] = {
    "write_text": lambda fs, path: fs.write_text(path, "x"), "write_bytes": lambda fs, path: fs.write_bytes(path, b"x"),
    "make_folder": lambda fs, path: fs.make_folder(path),
}  # fmt: skip
"""What reads a file, needs something to be there, and makes something, by the name of the operation."""


def tree_of(fs: Filesystem) -> dict[str, bytes | None]:
    """Everything in a filesystem: the content of each file, and `None` for each folder."""
    return {stat.path: fs.read_bytes(stat.path) if stat.kind == "file" else None for stat in fs.glob("**")}


CallOverProgram = Callable[[HostFilesystem, Path], object]

_DAMAGE = """
import os, shutil, sys
os.chdir(sys.argv[1])
again = sys.argv[2]
for path in ("data.bin", "notes/run.sh", "notes/plan.md", "by tool"):
    if os.path.lexists(path):
        with open(path, "ab") as file:  # in place, as many programs do
            file.write(b"damage " + again.encode())
shutil.rmtree("notes/old", ignore_errors=True)
os.makedirs("built/" + again + "/empty")
open("built/" + again + "/out", "w").close()
os.path.lexists("dangling") and os.unlink("dangling")
os.symlink("notes", "dangling")
os.replace("twin", "twin " + again) if os.path.exists("twin") else None
os.path.exists("notes/run.sh") and os.chmod("notes/run.sh", 0o604)
os.chmod(".", 0o755 if again == "1" else 0o711)
"""


def damage(root: Path, again: str = "1") -> None:
    """Run a program that changes something of every kind; each `again` makes another difference."""
    subprocess.run([sys.executable, "-I", "-S", "-c", _DAMAGE, root, again], check=True)


def program(fs: HostFilesystem, root: Path) -> None:
    """A program, and nothing else."""
    fs.keep_tree()
    damage(root)


def between_changes(fs: HostFilesystem, root: Path) -> None:
    """Changes before and after a program that changes the same paths, and a second program."""
    fs.write_text("notes/plan.md", "by the tool")
    fs.remove("dangling")
    fs.move("notes/old", "old")
    fs.write_text("by tool", "x")
    fs.write_text(".git/config", "before")
    fs.keep_tree()
    damage(root)
    fs.write_text("data.bin", "by the tool, after it")
    fs.remove("built", recursive=True)
    fs.write_text("built", "a file where a folder was")
    fs.write_text(".git/config", "after")
    fs.write_text(".git/index", "after")
    fs.move("notes", ".git/notes")
    fs.remove("built")
    fs.keep_tree()
    damage(root, "2")


PROGRAMS: Mapping[str, CallOverProgram] = {"a program": program, "a program between changes": between_changes}
"""Each call over programs by what it does."""


def die_in_a_call(root: Path, *work: str, before: Sequence[str] = ()) -> None:
    """Run a process that opens a tree as `fs`, works on it in a call, and dies in that."""
    imports = "import os", "from pathlib import Path", "from handrail.filesystem import HostFilesystem"
    lines = [*imports, "from tests.filesystem.kit import call", f"root = Path({str(root)!r})", *before]
    lines += ["fs = HostFilesystem(root, journal=root.with_name('journal'))", "with call(fs):"]
    script = "\n    ".join(["\n".join(lines), *work, "os._exit(0)"])
    project = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(project), str(project / "src")))}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


@contextmanager
def armed(watch: Callable[[str], object]) -> Generator[None]:
    """Have each crash point that the block passes watched."""
    arm(watch)
    try:
        yield
    finally:
        arm(None)


@contextmanager
def unchanged(look: Callable[[T], object], place: T) -> Generator[None]:
    """Check that a place looks the same after the block."""
    before = look(place)
    yield
    assert look(place) == before


def leave_half_done(tree: PlantedTree, work: Callable[[HostFilesystem], object], *failing: str, **options: Any) -> None:
    """Leave a journal behind, as a process that dies in a call does: undoing the work fails at calls to the disk."""
    with tree.open(**options) as fs:
        with pytest.raises(RollbackError), call(fs):  # noqa: PT012 - leaving it
            work(fs)
            tree.disk.fail(errno.EIO, *failing, on=not failing)
        tree.disk.heal()
    assert tree.now != tree.before
