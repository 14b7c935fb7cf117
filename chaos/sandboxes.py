"""Commands in sandboxes that are killed: rounds in which a call works in one, and something of it is killed.

The command changes files of every kind, leaves a process that goes on with that, and does not end. What is killed is
the agent, a part of the sandbox, or the command. Then the tree must be as it was, nothing of the command may run, the
next call must work, and no container may be left.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.contrib.tools.sandbox.grounds import Ground, Where
from tests.contrib.tools.sandbox.interrupted import LATE, agents_kill, kill, pids_of, under_way
from tests.contrib.tools.sandbox.podman_store import containers


@dataclass(frozen=True, slots=True)
class Target:
    """What is killed.

    Attributes:
        where: in which sandbox the command works.
        process: the program, and a word of its arguments; `None` for the agent.
        number: how many of these processes are killed, the oldest first; `None` for all.
    """

    where: Where
    process: tuple[str, str] | None = None
    number: int | None = None


TARGETS: Mapping[str, Target] = {
    "agent over podman": Target("podman"),
    "agent over bubblewrap": Target("bubblewrap"),
    "podman exec": Target("podman", ("podman", "exec")),
    "bubblewrap": Target("bubblewrap", ("bwrap", "--disable-userns"), 1),
    "command in podman": Target("podman", ("sleep", "50")),
    "command below bubblewrap": Target("bubblewrap", ("sleep", "50")),
    "first process of the container": Target("podman", ("/bin/sh", "cat <&3")),
    "podman run": Target("podman", ("podman", "run")),
}
"""What is killed, by its name."""

_LONGEST_DELAY = 0.3


@dataclass(frozen=True, slots=True)
class Round:
    """What came of a round.

    Attributes:
        name: what was killed.
        seconds: how long it took from the kill until the next call had been answered.
        faults: what was not as it must be.
    """

    name: str
    seconds: float
    faults: tuple[str, ...]


def play(name: str, folder: Path, pause: Callable[[], object] = bool) -> Round:
    """One round.

    Args:
        name: what is killed: a name of `TARGETS`.
        folder: an empty folder.
        pause: waits between the first change of the command and the kill.
    """
    target, faults = TARGETS[name], list[str]()
    ground = Ground(target.where, folder)
    before = ground.picture()
    if target.process is None:
        agents_kill(target.where, folder, pause)
        begun = time.monotonic()
    else:
        with ground:
            with under_way(ground) as call:
                pause()
                kill(pids_of(ground.root, *target.process)[: target.number])
                begun = time.monotonic()
            if call.messages[0].success:
                faults.append("the call has succeeded")
            faults += _left(ground)
            if ground.picture() != before:
                faults.append("the tree is not as it was before the call")
    # Another run over the same files: what a dead agent has left is ended and undone before anything else.
    with ground:
        if ground.picture() != before:
            faults.append("the tree is not as it was")
        faults += _left(ground)
        if ground.call("cat notes/plan.md").content.strip() != "1. look":
            faults.append("the next call does not work")
    seconds = time.monotonic() - begun
    if target.where == "podman" and containers(ground.root):
        faults.append("a container is left")
    return Round(name, seconds, tuple(faults))


def _left(ground: Ground) -> list[str]:
    return ["something of the command still runs"] if pids_of(ground.root, "sh", LATE) else []


def rounds(number: int, dice: random.Random) -> Generator[Round]:
    """Rounds with each target in turn, and a kill at a random moment."""
    names = list(TARGETS)
    with TemporaryDirectory(prefix="chaos-podman-", ignore_cleanup_errors=True) as store:
        # Where the tests keep the store of Podman, which has the image.
        os.environ["HANDRAIL_TEST_RUN"] = store
        try:
            for at in range(number):
                with TemporaryDirectory(prefix="chaos-sandboxes-") as folder:
                    yield play(names[at % len(names)], Path(folder), lambda: time.sleep(dice.random() * _LONGEST_DELAY))
        finally:
            del os.environ["HANDRAIL_TEST_RUN"]
