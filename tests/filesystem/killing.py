"""Kills processes that work on a tree, one after the other; run as a program, in a process without threads.

It forks a process that makes a change and is killed at its first call to the disk, then one that is killed at its
second, and so on until one lives to the end; and each time it opens the tree again and looks at it.

    python killing.py CHANGE FOLDER STEP      prints one JSON array: how far it got, and what was found wrong

With a step of 3, only each third call is tried. One more argument, `call` or `undo`, makes calls that are kept for undo
and kills them, or those that undo them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

from handrail.crash_points import POINTS, arm
from handrail.transaction import UnitOfWork
from handrail.transaction.unit_of_work import Refusal
from tests.filesystem import kit

Outcome = tuple[int, list[str]]
"""How far a loop got, and what was wrong."""

STEPS = frozenset(
    {"open", "os.chmod", "os.mkdir", "os.remove", "os.rmdir", "os.scandir", "os.symlink", "shutil.rmtree", "os.utime"}
    | {"subprocess.Popen"}
)
"""What Python audits of a snapshot of a tree and of its restoring: files, modes, and processes that are started."""


def environment() -> dict[str, str]:
    """The environment of a process that runs this file with the code that is tested."""
    project = Path(__file__).parents[2]
    return os.environ | {"PYTHONPATH": os.pathsep.join((str(project), str(project / "src")))}


def without_program(change: kit.Change) -> kit.CallOverProgram:
    """A call that makes a change and starts nothing."""
    return lambda fs, _: change(fs)


class Ground(kit.PlantedTree):
    """A tree of its own for each process that is killed."""

    def __init__(self, folder: Path, change: kit.CallOverProgram) -> None:
        super().__init__(folder)
        self.change = change
        self.audited = STEPS if change in kit.PROGRAMS.values() else frozenset[str]()  # trees are kept without a `Disk`

    def work(self, watch: Callable[[str], object], *, points: bool) -> None:
        """Make the change in a call that is committed, watched at each call to the disk, or at each crash point."""
        with self.open(durability="normal") as fs:
            if points:
                arm(watch)
            else:
                self.disk.before = watch
                self._audit(watch)
            with kit.call(fs, commits=True):
                self.change(fs, self.root)
            self.disk.heal()
            arm(None)

    def recover(self, watch: Callable[[str], object]) -> None:
        """Open the tree, watched at each call to the disk."""
        self._audit(watch)
        self.reopen(disk=kit.WatchedDisk(watch), durability="normal")

    def differences(self, *expected: kit.Picture) -> list[str]:
        """What is wrong with the tree, if it is none of these."""
        return [] if self.now in expected else [str(sorted(self.now.items() ^ self.before.items()))]

    def _audit(self, watch: Callable[[str], object]) -> None:
        if self.audited and watch is not kit.quiet:  # a hook stays, so the process must be one that ends
            sys.addaudithook(lambda event, _: watch(event) if event in self.audited else None)


class StoredDecisions(kit.Decisions):
    """A store that decides in a file, which outlasts a process that is killed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.committed = set(path.read_text().split()) if path.exists() else set()

    def apply(self, unit: UnitOfWork) -> Refusal | None:
        super().apply(unit)
        self.path.write_text(" ".join(self.committed))
        return None

    def delete_commit_record(self, journal_id: str) -> None:
        super().delete_commit_record(journal_id)
        self.path.write_text(" ".join(self.committed))


class KeptGround(Ground):
    """A tree whose calls are kept for undo; `undoing` is the id of the call to undo."""

    def __init__(self, folder: Path, change: kit.CallOverProgram, undoing: str | None = None) -> None:
        super().__init__(folder, change)
        self.undoing = undoing
        self.note = folder / "note"

    @property
    def store(self) -> StoredDecisions:
        """The store, as it is now."""
        return StoredDecisions(self.root.with_name("store"))

    def work(self, watch: Callable[[str], object], *, points: bool) -> None:
        """Make the change, or undo it, in a call that is kept; the note has its id and that it was committed."""
        with self.open(durability="normal", store=self.store) as fs:
            if points:
                arm(watch)
            else:
                self.disk.before = watch
                self._audit(watch)
            with kit.call(fs) as transaction:
                self.change(fs, self.root) if self.undoing is None else fs.undo(self.undoing)
                undo_id = fs.keep_undo(None, "call")
                self.note.write_text(str(undo_id))
                transaction.commit()
            self.disk.heal()
            arm(None)

    def check_kept(self, other: kit.Picture) -> list[str]:
        """What is wrong after a kill: either nothing has changed and nothing is kept, or the other way round."""
        self.reopen(durability="normal", store=self.store)
        undo_id, was = self.note.read_text() if self.note.exists() else "", self.before
        with self.open(durability="normal", store=self.store) as fs:
            is_kept = fs.undo_changes(undo_id) is not None
            faults = self.differences(other if is_kept else was)
            if is_kept:
                with kit.call(fs, commits=True):
                    fs.undo(undo_id)
                faults += self.differences(was)
        left = {name for name in self.leftovers if name not in {"undo", "image"}}
        return [*faults, *sorted(left), *map(str, self.store.committed)]


def kill_kept_calls(folder: Path, change: kit.CallOverProgram, *, points: bool, undoes: bool, step: int) -> Outcome:
    """Kill a call that is kept, or the one that undoes it, at each call to the disk or each crash point."""
    faults, among = list[str](), frozenset(POINTS) if points else kit.CALLS | STEPS
    for number in count(1, step):
        ground = KeptGround(folder / str(number), change)
        if undoes:
            ground.work(kit.quiet, points=False)
            first, ground.undoing = ground.before, ground.note.read_text()
            ground.before, other = ground.now, first
            ground.note.unlink()
        else:
            other = expected_after(folder / str(number), change)
        if not killed(partial(ground.work, kit.Nth(number, kit.die, among=among), points=points)):
            return number - 1, faults
        faults += [f"killed at {number}: {fault}" for fault in ground.check_kept(other)]
    raise AssertionError


def killed(work: Callable[[], object]) -> bool:
    """Do something in a process of its own; returns whether that was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the process ends here, whatever it is
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status) != 0:
        sys.exit("a process failed before it was killed")
    return os.WIFSIGNALED(status)


def expected_after(folder: Path, change: kit.CallOverProgram) -> kit.Picture:
    """The tree as the change leaves it."""
    ground = Ground(folder / "expected", change)
    ground.work(kit.quiet, points=False)
    return ground.now


def find_faults(ground: Ground, after: kit.Picture, at: str) -> list[str]:
    """What is wrong with a tree that is opened after a crash: it must be as before, or as after, and clean."""
    ground.reopen(durability="normal")
    return [f"{at}: {fault}" for fault in (*ground.differences(ground.before, after), *ground.leftovers)]


def kill_at_every_call(
    folder: Path, change: kit.CallOverProgram, *, points: bool, step: int = 1
) -> tuple[int, list[str]]:
    """Kill the change at each call to the disk or each crash point."""
    after, faults = expected_after(folder, change), list[str]()
    among = frozenset(POINTS) if points else kit.CALLS | STEPS
    for number in count(1, step):
        ground = Ground(folder / str(number), change)
        if not killed(partial(ground.work, kit.Nth(number, kit.die, among=among), points=points)):
            return number - 1, faults
        faults += find_faults(ground, after, f"killed at {number}")
    raise AssertionError


def kill_the_recovery(folder: Path, change: kit.CallOverProgram, *, step: int) -> tuple[int, list[str]]:
    """Kill the change when all is done but nothing is committed, and then each opening at one call after the other."""
    after, ground = expected_after(folder, change), Ground(folder / "one", change)

    def at_the_end(point: str) -> None:
        if point == "journal-prepared":
            kit.die()

    killed(lambda: ground.work(at_the_end, points=True))
    number = 1
    while killed(partial(ground.recover, kit.Nth(number, kit.die, among=kit.CALLS | STEPS))):
        number += step
    return number - 1, ground.differences(ground.before) + find_faults(ground, after, "at the end")


if __name__ == "__main__":
    what, place, distance = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    chosen = kit.PROGRAMS[what] if what in kit.PROGRAMS else without_program(kit.CHANGES[what])
    if kept := sys.argv[4:]:
        undoes = kept == ["undo"]
        results = [
            kill_kept_calls(place / "points", chosen, points=True, undoes=undoes, step=1 + distance // 20),
            kill_kept_calls(place / "calls", chosen, points=False, undoes=undoes, step=distance),
        ]
    else:
        results = [
            kill_at_every_call(place / "points", chosen, points=True),
            kill_at_every_call(place / "calls", chosen, points=False, step=distance),
            kill_the_recovery(place / "recovery", chosen, step=distance),
        ]
    sys.stdout.write(json.dumps(results))
