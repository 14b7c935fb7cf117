"""Starts workers, and kills, stops and starves them at random moments and at random points, until enough have died."""

from __future__ import annotations

import heapq
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from chaos.desk import LEASE
from chaos.troubles import Trouble
from chaos.worker import BROKEN, DONE, Life, start
from chaos.world import World
from handrail.crash_points import POINTS

_TICK_SECONDS = 0.01
_SOON_SECONDS = 0.4
"""Within what time a worker that is killed at a random moment dies."""

_LATE_SECONDS = 2.0
"""When a worker is killed that has not come to the point at which it was to die."""

_SECONDS_TO_OPEN = 0.02
"""How much later a worker dies for each session that it opens."""

_REST_SECONDS = 0.05
"""Between two lives, so that a store that is down is not asked all the time."""

_FATES = {"moment": 50, "point": 40, "stop": 5, "full": 5}
"""How a worker ends: killed at a moment, at a point, after it was stopped, or with a full disk; and how often."""

_BEFORE_THE_EFFECT = ("after-claim", "before-handler")
"""Where half of those that stop at a point do: when they go on, another may have done what they are about to do."""

_HALF = 0.5

_ASTRAY = 0.1
"""How many workers take the sessions of another one, which may be at work."""

_LARGEST_FILE = 1 << 20
"""The most that a worker with a full disk may have in one file."""

Deed = Literal["kill", "stop", "go on"]


class Due(NamedTuple):
    """What is to be done to a worker, and when."""

    at: float
    pid: int
    deed: Deed


@dataclass(slots=True)
class Seat:
    """A place for one worker, which is taken again and again.

    Attributes:
        home: its number. The worker mostly works on the sessions of that number.
        pid: the worker that sits there now.
        point: at which point it is to die, if at one.
        free_at: when the next one may sit down.
    """

    home: int
    pid: int | None = None
    point: str | None = None
    free_at: float = 0.0


@dataclass(slots=True)
class Toll:
    """What has been done to the workers.

    Attributes:
        moments: how many were killed at a moment.
        points: how many died at each named point.
        stops: how many were stopped for longer than their lease.
        troubles: how often the store was in trouble.
        starved: how many had a disk that was full.
        told: how many ended by themselves, because they were told that they cannot go on.
        broken: how many ended because something is wrong with the library.
    """

    moments: int = 0
    points: Counter[str] = field(default_factory=Counter[str])
    stops: int = 0
    troubles: int = 0
    starved: int = 0
    told: int = 0
    broken: int = 0

    @property
    def kills(self) -> int:
        """How many were killed."""
        return self.moments + self.points.total()


class Conductor:
    """One run over one store.

    Args:
        world: what the workers share.
        dice: where chance comes from.
        trouble: what happens to the store.
        say: takes a line about how it goes.
    """

    def __init__(self, world: World, *, dice: random.Random, trouble: Trouble, say: Callable[[str], object]) -> None:
        self.toll = Toll()
        self._world = world
        self._seats = [Seat(index) for index in range(world.workers)]
        self._dice = dice
        self._trouble = trouble
        self._say = say
        self._due: list[Due] = []
        self._slower = world.agents * _SECONDS_TO_OPEN

    def torment(self, kills: int, *, troubles: int, seconds: float) -> bool:
        """Kill that many workers, with the store in trouble now and then; returns whether there was time enough."""
        begun = time.monotonic()
        strikes = [kills * (number + 1) // (troubles + 1) for number in range(troubles)]
        marks = [kills * tenth // 10 for tenth in range(1, 10)]
        try:
            while self.toll.kills < kills and not self.toll.broken:
                now = time.monotonic()
                if now - begun > seconds:
                    return False
                self._tick(now)
                if strikes and self.toll.kills >= strikes[0]:
                    strikes.pop(0)
                    self.toll.troubles += 1
                    self._say(f"{self.toll.kills:5} of {kills} killed; {self._trouble.strike()}")
                if marks and self.toll.kills >= marks[0]:
                    marks.pop(0)
                    self._say(f"{self.toll.kills:5} of {kills} killed in {now - begun:.0f} s")
                time.sleep(_TICK_SECONDS)
        finally:
            self._kill_all()
            self._trouble.end()
        return True

    def finish(self, until: int, *, seconds: float) -> bool:
        """Let every session come to its call of that number, undisturbed; returns whether there was time enough."""
        begun = time.monotonic()
        left = {seat.home for seat in self._seats}
        homes = {seat.home: seat for seat in self._seats}
        try:
            while left and not self.toll.broken:
                now = time.monotonic()
                if now - begun > seconds:
                    return False
                for home in sorted(left):
                    seat = homes[home]
                    if self._ended(seat, now) == DONE:
                        left.discard(home)
                    elif seat.pid is None and now >= seat.free_at:
                        seat.pid = start(self._world, Life(home, until), home)
                time.sleep(_TICK_SECONDS)
        finally:
            self._kill_all()
        return not self.toll.broken

    # --------------------------------------------------------------------------------------------------------- private

    def _tick(self, now: float) -> None:
        """Do what is due, and fill the seats that are free."""
        while self._due and self._due[0].at <= now:
            self._do(heapq.heappop(self._due))
        for seat in self._seats:
            self._ended(seat, now)
            if seat.pid is None and now >= seat.free_at:
                self._sit_down(seat, now)

    def _sit_down(self, seat: Seat, now: float) -> None:
        """Start a worker, and decide how it will die."""
        dice = self._dice
        fate = dice.choices(tuple(_FATES), weights=tuple(_FATES.values()))[0]
        if fate == "full" and not self._world.url.startswith("sqlite:"):
            fate = "stop"  # the disk is the server's
        points = _BEFORE_THE_EFFECT if fate == "stop" and dice.random() < _HALF else tuple(POINTS)
        point = dice.choice(points) if fate in {"point", "stop"} else None
        seat.point = point if fate == "point" else None
        has_faults = dice.random() < _HALF
        life = Life(
            dice.randrange(len(self._seats)) if dice.random() < _ASTRAY else seat.home,
            point=point,
            nth=dice.randint(1, 4) * dice.choice((1, self._world.agents)),
            stops=fate == "stop",
            file_limit=dice.randint(0, _LARGEST_FILE) if fate == "full" else None,
            faults=dice.getrandbits(32) if has_faults else None,
            accepts_late=dice.random() < _HALF,
        )
        pid = seat.pid = start(self._world, life, seat.home)
        soon = now + dice.uniform(0.0, _SOON_SECONDS + self._slower)
        if fate == "moment":
            self._later(soon, pid, "kill")
        elif fate == "stop":
            self.toll.stops += 1
            back = soon + LEASE.total_seconds() * dice.uniform(1.2, 2.0)
            self._later(soon, pid, "stop")  # if it has not stopped itself at its point before
            self._later(back, pid, "go on")
            self._later(back + _SOON_SECONDS, pid, "kill")
        else:
            self.toll.starved += fate == "full"
            self._later(now + _LATE_SECONDS + self._slower, pid, "kill")

    def _later(self, at: float, pid: int, deed: Deed) -> None:
        heapq.heappush(self._due, Due(at, pid, deed))

    def _do(self, due: Due) -> None:
        """Do it, if the worker has not died before; a process id is not used again before its end was taken note of."""
        for seat in self._seats:
            if seat.pid == due.pid:
                seat.point = None  # it has not come to its point in time
                os.kill(due.pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "go on": signal.SIGCONT}[due.deed])

    def _ended(self, seat: Seat, now: float) -> int | None:
        """Take note of how the worker of a seat has ended; returns its exit code, if it ended by itself."""
        if seat.pid is None:
            return None
        pid, status = os.waitpid(seat.pid, os.WNOHANG)
        return None if pid == 0 else self._note_end(seat, status, now)

    def _note_end(self, seat: Seat, status: int, now: float) -> int | None:
        self._due = [due for due in self._due if due.pid != seat.pid]
        heapq.heapify(self._due)
        seat.pid, seat.free_at = None, now
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            if seat.point is None:
                self.toll.moments += 1
            else:
                self.toll.points[seat.point] += 1
            return None
        if code not in {DONE, BROKEN}:
            self.toll.told += 1
            seat.free_at = now + _REST_SECONDS
        self.toll.broken += code == BROKEN
        return code

    def _kill_all(self) -> None:
        for seat in self._seats:
            if seat.pid is not None:
                seat.point = None
                os.kill(seat.pid, signal.SIGKILL)
                _, status = os.waitpid(seat.pid, 0)
                self._note_end(seat, status, time.monotonic())
