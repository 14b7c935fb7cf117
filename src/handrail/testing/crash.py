"""Kills a process at a named point, so that a test can inspect the state that remains.

    ended = run_to_crash(charge, "desk.db", at="after-handler")
    assert ended == Crashed("after-handler")
    # now open desk.db again, and check its state

The process of `run_to_crash` receives a folder, and writes its outcome there.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from handrail.crash_points import POINTS, arm

REQUEST = "request"
"""In the folder: the function, its arguments, and where to kill the process."""

REACHED = "reached"
"""In the folder: the reached points, one per line, written before anything else happens there."""

RETURNED = "returned"
"""In the folder: the return value of the function; absent if it did not return."""

_PROGRAM = "import sys; sys.path[:] = {path!r}; from handrail.testing.crash import run_child; run_child({at!r})"

_LONGEST_QUOTE = 4000
"""Characters of a process's standard error that an exception quotes, from its end."""


def crash_at(point: str, *, nth: int = 1) -> ExitStack:
    """Kills this process with SIGKILL when it reaches a point for the nth time from now on, counted from 1.

    Nothing is flushed, closed or rolled back. The trap is a context manager: leaving the block disarms it. A later
    `crash_at` replaces an earlier one.

    Raises:
        ValueError: the point is unknown, or `nth` is less than 1. Nothing is armed.
    """
    arm(CrashTrap(point, nth))
    disarming = ExitStack()
    disarming.callback(arm, None)
    return disarming


class CrashTrap:
    """Counts the arrivals at a point, and kills the process at the `nth`, or calls `kill`."""

    __slots__ = ("_kill", "_lock", "_point", "_remaining")

    def __init__(self, point: str, nth: int, *, kill: Callable[[], object] | None = None) -> None:
        if point not in POINTS or nth < 1:
            raise ValueError(
                f"there is no crash point {point!r}, {nth=}: the points are {', '.join(POINTS)}; nth counts from 1."
            )
        self._point = point
        self._remaining = nth
        self._kill = _kill_this_process if kill is None else kill
        self._lock = threading.Lock()

    def __call__(self, point: str) -> None:
        """Counts the point, and kills the process at the nth time."""
        if point != self._point:
            return
        # The process is killed while the lock is held, so no other thread can pass the same point in between.
        with self._lock:
            self._remaining -= 1
            # Equality, not less: after a `kill` that returns, as in a test, later arrivals must not call it again.
            if self._remaining == 0:
                self._kill()


def _kill_this_process() -> None:  # pragma: no cover - the process is killed here
    # SIGKILL cannot be handled, so neither `finally` blocks nor `atexit` functions run.
    os.kill(os.getpid(), signal.SIGKILL)


def run_child(folder: str) -> None:
    """Runs the function of the folder's request, and kills the process at its point."""
    at = Path(folder)
    target, arguments, point, nth = pickle.loads((at / REQUEST).read_bytes())  # noqa: S301 - of `write_request`
    trap = None if point is None else CrashTrap(point, nth)
    report = os.open(at / REACHED, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def witness(point: str) -> None:
        # `os.write` has no buffer in the process, so the line survives SIGKILL. It comes before the trap, or the last
        # point would be missing.
        os.write(report, f"{point}\n".encode())
        if trap is not None:
            trap(point)

    # Armed after the import of the function, so that points reached while modules are imported do not count.
    arm(witness)
    try:
        value = target(*arguments)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    finally:
        # Disarmed before the descriptor is closed: another thread could otherwise write to a closed or reused one.
        arm(None)
        os.close(report)
    # Written last: the file exists only if the function has returned.
    (at / RETURNED).write_bytes(pickle.dumps(value))


def write_request(
    folder: Path, target: Callable[..., object], arguments: tuple[Any, ...], at: str | None, nth: int
) -> None:
    """Writes what `run_child` is to do in a folder; refuses an unknown point, and what cannot be pickled."""
    if at is not None:
        CrashTrap(at, nth)  # the same check as in the other process
    (folder / REQUEST).write_bytes(pickle.dumps((target, arguments, at, nth)))
    (folder / REACHED).touch()


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process was killed at the point, at its `nth` arrival. Equality compares only these.

    Attributes:
        reached: all reached points, in order; the process was killed at the last one.
        output: its standard output, as far as it was flushed.
    """

    point: str
    nth: int = 1
    reached: tuple[str, ...] = field(default=(), compare=False)
    output: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Completed:
    """The process ended, and has not reached the point that often; `value` is what the function returned."""

    value: Any
    reached: tuple[str, ...] = field(default=(), compare=False)
    output: str = field(default="", compare=False, repr=False)


def run_to_crash(
    target: Callable[..., object],
    *arguments: Any,  # noqa: ANN401 - whatever can be pickled
    at: str | None,
    nth: int = 1,
    timeout: timedelta = timedelta(minutes=1),
) -> Crashed | Completed:
    """Runs a function in a new Python process, and kills that with SIGKILL when it reaches a point.

    It has the working directory and the environment of this process. Processes that the function has started are not
    killed, as in a real crash.

    Args:
        target: a function at the top level of a module that is not the main program. It may be `async`. The module is
            imported there, from the same `sys.path`.
        arguments: its arguments; they and its result are pickled.
        at: one of `handrail.crash_points.POINTS`; `None` does not kill, to find which points a function reaches.
        nth: 1 to kill the process when the point is first reached.
        timeout: the time limit.

    Returns:
        `Crashed`, or `Completed` if the point was not reached that often.

    Raises:
        ValueError: the point is unknown, or `nth` is less than 1.
        pickle.PicklingError: the function or an argument cannot be pickled. In either case nothing was started.
        subprocess.CalledProcessError: the function raised, or the process ended with another error. A note quotes its
            standard error.
        subprocess.TimeoutExpired: it exceeded the time limit, and was killed.
    """
    with TemporaryDirectory(prefix="handrail-crash-") as name:
        folder = Path(name)
        write_request(folder, target, arguments, at, nth)
        # Files, and not pipes: a pipe that is not read blocks the process when its buffer is full, and one that is read
        # stays open in the processes that the function has started.
        with (folder / "output").open("wb") as output, (folder / "errors").open("wb") as errors:
            try:
                code = subprocess.run(  # noqa: S603 - this interpreter, and a function of the caller's
                    [sys.executable, "-c", _PROGRAM.format(path=sys.path, at=name)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    timeout=timeout.total_seconds(),
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired as error:
                raise _with_note(error, folder) from None
        text = _read(folder / "output")
        reached = tuple(_read(folder / REACHED).split())
        # A SIGKILL from elsewhere, as by the OOM killer, must not pass for the requested crash.
        if code == -signal.SIGKILL and at is not None and reached.count(at) == nth and reached[-1] == at:
            return Crashed(at, nth, reached, text)
        if code == 0:
            value = pickle.loads((folder / RETURNED).read_bytes())  # noqa: S301 - of `run_child`
            return Completed(value, reached, text)
        raise _with_note(subprocess.CalledProcessError(code, f"{target.__module__}:{target.__name__}", text), folder)


def _with_note(error: subprocess.SubprocessError, folder: Path) -> subprocess.SubprocessError:
    text = _read(folder / "errors")
    error.add_note(f"It wrote to standard error:\n{text[-_LONGEST_QUOTE:]}" if text else "It wrote no errors.")
    return error


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
