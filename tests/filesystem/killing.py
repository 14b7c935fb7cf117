"""Kills processes that work on a tree, one after the other; run as a program, in a process without threads.

It forks a process that makes a change and is killed at its first call to the disk, then one that is killed at its
second, and so on until one lives to the end; and each time it opens the tree again and looks at it.

    python killing.py CHANGE FOLDER STEP      prints one JSON array: how far it got, and what was found wrong

With a step of 3, only each third call is tried.
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
from tests.filesystem import kit

STEPS = frozenset(
    {"open", "os.chmod", "os.mkdir", "os.remove", "os.rmdir", "os.scandir", "os.symlink", "shutil.rmtree", "os.utime"}
    | {"subprocess.Popen"}
)
"""What Python audits of a snapshot of a tree and of its restoring: files, modes, and processes that are started."""


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
    results = [
        kill_at_every_call(place / "points", chosen, points=True),
        kill_at_every_call(place / "calls", chosen, points=False, step=distance),
        kill_the_recovery(place / "recovery", chosen, step=distance),
    ]
    sys.stdout.write(json.dumps(results))
