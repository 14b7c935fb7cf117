"""How each fault is made, and how it is shown to have landed.

| fault | what it does | it has landed when |
|---|---|---|
| `Kill` | SIGKILL to the program, before or after an effect | the process has ended by that signal |
| `KillHalfway` | the same, while the carrier is called | the same |
| `LoseAnswer` | the bank has paid, and its answer is a `TimeoutError` | it was raised in the program |
| `Refuse` | the bank or the carrier fails once | it was raised in the program |
| `Interrupt` | SIGINT to the program, between the effect and its answer | the process has ended with an exception |
| `FillDisk` | from the effect on the program can write to no file | the program, or its model, was told by the system |
| `EditStore` | while the person thinks, the amount is replaced in all that the program stores | a place was |
| `Crowd` | two processes continue at the same time, and the bank is slow | both have begun before either has ended |
| `StopAtLine` | an exception at a line of a function of a set, in the program | it was raised there |
"""

from __future__ import annotations

import base64
import os
import resource
import signal
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from proof.world import Silence, World

Request = Mapping[str, Any]

_PATIENCE = 5.0
_FULL = ("disk i/o error", "disk is full", "file too large", "no space left")


class NoFault:
    """Strikes never."""

    lives_at_once = 1
    """How many processes continue at a time, once one was killed."""

    def strike(self, _moment: str, _request: Request, _world: World, /) -> Any:
        """Does nothing."""
        return None

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether it has, given the exit codes of the processes; what the model itself does has, once it was asked."""
        return world.books.asked > 0


@dataclass
class Kill(NoFault):
    """Kills the process at an effect.

    Attributes:
        number: the effect: how many there were before it.
        moment: before the effect, or after it.
    """

    number: int
    moment: Literal["before", "after"] = "after"

    def strike(self, moment: str, request: Request, world: World, /) -> Any:
        """Strikes once."""
        number = len(world.books.effects) - (moment == "after")
        if moment == self.moment and number == self.number and not world.books.landed:
            _kill(request, world, f"killed {moment} effect {number}")

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether the process has ended by the signal."""
        return bool(world.books.landed) and -signal.SIGKILL in codes


@dataclass
class KillHalfway(NoFault):
    """Kills the process between the halves of `ship`."""

    order: str

    def strike(self, moment: str, request: Request, world: World, /) -> Any:
        """Strikes once."""
        if moment == "carry" and request["order"] == self.order and not world.books.landed:
            _kill(request, world, f"killed halfway through {self.order}")

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether the process has ended by the signal."""
        return bool(world.books.landed) and -signal.SIGKILL in codes


@dataclass
class LoseAnswer(NoFault):
    """Loses the answer to a payment, once."""

    order: str

    def strike(self, moment: str, request: Request, world: World, /) -> Any:
        """Strikes after the effect."""
        if moment == "after" and request["order"] == self.order and not world.books.landed:
            world.books.landed.append(f"the answer about {self.order}")
            raise TimeoutError("the bank did not answer in time")

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether it was raised."""
        return bool(world.books.landed)


@dataclass
class Refuse(NoFault):
    """Has a payment, or a parcel, fail once before anything is done there."""

    order: str
    moment: Literal["before", "carry"] = "before"

    def strike(self, moment: str, request: Request, world: World, /) -> Any:
        """Strikes before the effect, or between the halves of `ship`."""
        if moment == self.moment and request["order"] == self.order and not world.books.landed:
            world.books.landed.append(f"{self.order} was refused")
            raise ConnectionRefusedError("the other side does not take the call")

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether it was raised."""
        return bool(world.books.landed)


@dataclass
class Interrupt(NoFault):
    """Cancels the program from outside, between a payment and its answer."""

    order: str

    def strike(self, moment: str, request: Request, world: World, /) -> Any:
        """Strikes after the effect."""
        if moment == "after" and request["order"] == self.order and not world.books.landed:
            world.books.landed.append(f"cancelled in {self.order}")
            os.kill(request["pid"], signal.SIGINT)
            time.sleep(0.2)  # the answer comes after the signal
            raise Silence

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether the process has ended with an exception."""
        return bool(world.books.landed) and any(code != 0 for code in codes)


@dataclass
class FillDisk(NoFault):
    """Lets the process write to no file any more, from a payment on."""

    order: str

    def strike(self, moment: str, request: Request, world: World, /) -> Any:
        """Strikes after the effect."""
        if moment == "after" and request["order"] == self.order and not world.books.landed:
            _, most = resource.prlimit(request["pid"], resource.RLIMIT_FSIZE)
            resource.prlimit(request["pid"], resource.RLIMIT_FSIZE, (0, most))
            world.books.landed.append(f"no file can be written after {self.order}")

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether the program has met it: its exception, or what its model read, says so."""
        texts = [*world.books.failures, *world.model.texts]
        return bool(world.books.landed) and any(word in text.lower() for word in _FULL for text in texts)


@dataclass
class EditStore(NoFault):
    """Replaces an amount by another one of the same length, in all that the program stores, while the person thinks."""

    old: str
    new: str

    def strike(self, moment: str, request: Request, world: World, /) -> Any:
        """Strikes when the person is asked."""
        if moment == "person" and not world.books.landed:
            places = sum(_replace(path, self.old, self.new) for path in sorted(world.folder.rglob("*")))
            if places:
                world.books.landed.append(f"replaced in {places} places")

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether a place was replaced."""
        return bool(world.books.landed)


@dataclass
class Crowd(NoFault):
    """Two processes continue what a killed one has left."""

    kill: Kill
    lives_at_once = 2
    _barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))

    def strike(self, moment: str, request: Request, world: World, /) -> Any:
        """Kills the first process, and lets the next two begin together."""
        if not world.books.landed:
            self.kill.strike(moment, request, world)
        elif moment == "begin" and len(world.books.begun) <= 3 and not world.books.ended:  # noqa: PLR2004 - one was killed
            self._barrier.wait(_PATIENCE)
            world.books.landed.append("began beside another")
            time.sleep(0.01)

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether two have begun beside each other."""
        return len(world.books.landed) >= 3 and self.kill.has_landed(world, codes)  # noqa: PLR2004 - the kill, and two


@dataclass
class StopAtLine(NoFault):
    """Stops a function of a set at a line, in the program.

    Attributes:
        number: the call of the entry.
        line: its line.
    """

    number: int
    line: int

    def strike(self, moment: str, request: Request, world: World, /) -> Any:
        """The line at which the function is to be stopped."""
        is_struck = moment == "act" and len(world.books.effects) == self.number + 1 and not world.books.landed
        return self.line if is_struck else None

    def has_landed(self, world: World, codes: Sequence[int]) -> bool:
        """Whether the program says so."""
        return bool(world.books.landed)


def _kill(request: Request, world: World, name: str) -> NoReturn:
    os.kill(request["pid"], signal.SIGKILL)
    world.killed.add(request["pid"])
    world.books.landed.append(name)
    raise Silence


def _replace(path: Path, old: str, new: str) -> int:
    """How many places of a file, or of a database, were replaced."""
    if not path.is_file() or path.suffix in {".sock", ".txt"} or path.name.endswith(("-wal", "-shm", "-journal")):
        return 0
    if path.suffix == ".db":
        return _replace_in_database(path, old.encode(), new.encode())
    content = path.read_bytes()
    if places := content.count(old.encode()):
        path.write_bytes(content.replace(old.encode(), new.encode()))
    return places


def _replace_in_database(path: Path, old: bytes, new: bytes) -> int:
    places = 0

    def replaced(value: str | bytes | float | None) -> str | bytes | float | None:
        nonlocal places
        whole = value.encode() if isinstance(value, str) else value
        if not isinstance(whole, bytes):
            return value
        decoded = _decode(whole)
        places += whole.count(old) + decoded.count(old)
        changed = base64.b64encode(decoded.replace(old, new)) if old in decoded else whole.replace(old, new)
        return changed.decode() if isinstance(value, str) else changed

    with closing(sqlite3.connect(path, timeout=_PATIENCE)) as database, database:
        database.create_function("replaced", 1, replaced)
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            assignments = ", ".join(f'"{column}" = replaced("{column}")' for column in columns)
            database.execute(f'UPDATE "{table}" SET {assignments}')  # noqa: S608 - names of its own schema
    return places


def _decode(text: bytes) -> bytes:
    """What a text of base64 holds, as engines store pickles; nothing if it is another one."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
