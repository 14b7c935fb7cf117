"""A program that uses sessions, stores, files, resources and agents, and prints which locks it took in which order.

Started by `test_lock_order.py` in a process of its own: the locks of Handrail are replaced before it is imported.
"""

from __future__ import annotations

import inspect
import json
import linecache
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, cast

_SOURCE = str(Path(__file__).parents[2] / "src" / "handrail")
_MADE: dict[str, Any] = {"Lock": threading.Lock, "RLock": threading.RLock}


class _Held(threading.local):
    def __init__(self) -> None:
        self.locks: list[Watched] = []


_CALLERS = 9
_FLAGS = frozenset({"runtime.ledger.lease_renewal:LeaseRenewer._unstarted"})
"""Locks that are acquired once, and never released: they are held by no thread."""

EDGES: dict[tuple[str, str], str] = {}
"""Which lock was held when another was acquired, and where."""


class Watched:
    """A lock that notes which other locks its thread holds when it is acquired."""

    def __init__(self, lock: Any, name: str) -> None:
        self.lock = lock
        self.name = name

    def acquire(self, *given: Any, **named: Any) -> bool:
        held: list[Watched] = _held()
        if self not in held:
            for each in held:
                if (each.name, self.name) not in EDGES:
                    EDGES[each.name, self.name] = _where()
        taken: bool = self.lock.acquire(*given, **named)
        if taken and self.name not in _FLAGS:
            held.append(self)
        return taken

    def release(self) -> None:
        held = _held()
        if self in held:  # a plain lock may be released by another thread
            held.reverse()
            held.remove(self)
            held.reverse()
        self.lock.release()

    def locked(self) -> bool:
        is_locked: bool = self.lock.locked()
        return is_locked

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exc: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:  # what a `Condition` asks of its lock
        return getattr(self.lock, name)


def _held() -> list[Watched]:
    return _HELD.locks


_HELD = _Held()


def _caller(distance: int) -> FrameType:
    """The frame so far above this one."""
    frame = inspect.currentframe()
    for _ in range(distance):
        frame = frame and frame.f_back
    assert frame is not None, "CPython has frames"
    return frame


def _where() -> str:
    frame: FrameType | None = _caller(3)  # who acquires
    while frame is not None and not frame.f_code.co_filename.startswith(_SOURCE):
        frame = frame.f_back
    places: list[str] = []
    while frame is not None and len(places) < _CALLERS:
        places.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(places)


def _maker(kind: str) -> Any:
    def make() -> Any:
        frame = _caller(2)  # who makes it
        file = frame.f_code.co_filename
        made = _MADE[kind]()
        if file == "<string>" and type(frame.f_locals.get("self")).__module__.startswith("handrail."):
            owner = cast("type[object]", type(frame.f_locals["self"]))
            return Watched(made, f"{owner.__module__.removeprefix('handrail.')}:{owner.__qualname__}.writing")
        if not file.startswith(_SOURCE):
            return made
        module = ".".join(Path(file).relative_to(_SOURCE).with_suffix("").parts)
        owner_name = type(frame.f_locals["self"]).__qualname__ if "self" in frame.f_locals else ""
        attribute = linecache.getline(file, frame.f_lineno).split("=")[0].split(":")[0].strip().removeprefix("self.")
        return Watched(made, f"{module}:{owner_name}.{attribute}" if owner_name else f"{module}:{attribute}")

    return make


threading.Lock = _maker("Lock")
threading.RLock = _maker("RLock")

from tests.architecture import lock_scenario  # noqa: E402 - after the locks have been replaced

if __name__ == "__main__":
    lock_scenario.run(Path(sys.argv[1]))
    sys.stdout.write(json.dumps([[before, after, where] for (before, after), where in sorted(EDGES.items())]))
