"""Kills a process at a named point, so that a test can inspect the state that remains.

    ended = run_to_crash(charge, "desk.db", at="after-handler")
    assert ended == Crashed("after-handler")
    # now open desk.db again, and check its state

The process of `run_to_crash` receives a folder, and writes its outcome there.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import IO, Any, NamedTuple, Self

from handrail.crash_points import POINTS, arm

REQUEST = "request.json"
"""In the folder: what to run, and where to kill the process."""

REACHED = "reached"
"""In the folder: the reached points, one per line, written before anything else happens there."""

RETURNED = "returned.json"
"""In the folder: the return value of the target; absent if it did not return."""

_MAIN = "crash_target"
"""The module name of an imported main program; its `if __name__ == "__main__":` is not entered."""

_PROGRAM = "import sys; sys.path[:] = {path!r}; from handrail.testing.crash import run_child; run_child({at!r})"

_LONGEST_QUOTE = 4000
"""Characters of a process's standard error that an exception quotes, from its end."""


def crash_at(point: str, *, nth: int = 1) -> CrashTrap:
    """Kills this process with SIGKILL when it reaches a point for the nth time from now on, counted from 1.

    Nothing is flushed, closed or rolled back. The trap is a context manager: leaving the block disarms it. A later
    `crash_at` replaces an earlier one.

    Raises:
        ValueError: the point is unknown, or `nth` is less than 1. Nothing is armed.
    """
    trap = CrashTrap(point, nth)
    arm(trap)
    return trap


class CrashTrap:
    """Counts the arrivals at a point, and kills the process at the `nth`, or calls `kill`."""

    __slots__ = ("_kill", "_lock", "_point", "_remaining")

    def __init__(self, point: str, nth: int, *, kill: Callable[[], object] | None = None) -> None:
        if point not in POINTS:
            near = get_close_matches(point, POINTS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise ValueError(f"unknown crash point {point!r}.{hint} The points are: {', '.join(POINTS)}.")
        if nth < 1:
            raise ValueError(f"nth is {nth}; it counts from 1, the first time that {point} is reached")
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        arm(None)


def _kill_this_process() -> None:  # pragma: no cover - the process is killed here
    # SIGKILL cannot be handled, so neither `finally` blocks nor `atexit` functions run.
    os.kill(os.getpid(), signal.SIGKILL)


class ChildRequest(NamedTuple):
    """The task of a process: a function, by its module or file, that is killed at its nth arrival `at` a point."""

    module: str
    function: str
    arguments: tuple[Any, ...]
    at: str | None
    nth: int


def run_child(folder: str) -> None:
    """Runs the target of the folder's request, and kills the process at its point."""
    at = Path(folder)
    request = ChildRequest(*json.loads((at / REQUEST).read_text(encoding="utf-8")))
    target = _import_target(request)
    trap = None if request.at is None else CrashTrap(request.at, request.nth)
    report = os.open(at / REACHED, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def witness(point: str) -> None:
        # `os.write` has no buffer in the process, so the line survives SIGKILL. It comes before the trap, or the last
        # point would be missing.
        os.write(report, f"{point}\n".encode())
        if trap is not None:
            trap(point)

    # Armed after the import of the target, so that points reached while modules are imported do not count.
    arm(witness)
    try:
        value = target(*request.arguments)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    finally:
        # Disarmed before the descriptor is closed: another thread could otherwise write to a closed or reused one.
        arm(None)
        os.close(report)
    # Written last: the file exists only if the target has returned.
    (at / RETURNED).write_text(_as_json(value, request), encoding="utf-8")


def _import_target(request: ChildRequest) -> Callable[..., Any]:
    if not request.module.endswith(".py"):
        module = importlib.import_module(request.module)
    else:
        loader = SourceFileLoader(_MAIN, request.module)
        spec = ModuleSpec(_MAIN, loader, origin=request.module)
        spec.has_location = True
        module = module_from_spec(spec)
        sys.modules[_MAIN] = module  # dataclasses resolve their annotations there
        loader.exec_module(module)
    target: Callable[..., Any] = getattr(module, request.function)
    return target


def _as_json(value: object, request: ChildRequest) -> str:
    try:
        return json.dumps(value)
    except TypeError as error:
        raise TypeError(
            f"{request.function} returned {type(value).__name__}, which JSON cannot represent ({error}). "
            "Let it return text, numbers, lists and mappings, or nothing."
        ) from error


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
class Finished:
    """The process ended, and has not reached the point that often; `value` is what the function returned, as JSON."""

    value: Any
    reached: tuple[str, ...] = field(default=(), compare=False)
    output: str = field(default="", compare=False, repr=False)


def run_to_crash(  # noqa: PLR0913 - the options of a process
    target: str | Callable[..., object],
    *arguments: Any,  # noqa: ANN401 - whatever JSON can say
    at: str | None,
    nth: int = 1,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: timedelta = timedelta(minutes=1),
) -> Crashed | Finished:
    """Runs a function in a new Python process, and kills that with SIGKILL when it reaches a point.

    Processes that the function has started are not killed, as in a real crash.

    Args:
        target: `"module:function"`, or a function at the top level of a module or of the main program. It may be
            `async`. The module is imported there, from the same `sys.path`.
        arguments: its arguments, as JSON values.
        at: one of `handrail.crash_points.POINTS`; `None` does not kill, to find which points a function reaches.
        nth: 1 to kill the process when the point is first reached.
        cwd: the working directory; that of this process by default.
        env: environment variables, added to those of this process.
        timeout: the time limit.

    Returns:
        `Crashed`, or `Finished` if the point was not reached that often.

    Raises:
        ValueError: the point is unknown, `nth` is less than 1, or another process cannot import the target.
        TypeError: JSON cannot represent an argument. In either case nothing was started.
        subprocess.CalledProcessError: the function raised, or the process ended with another error. A note quotes its
            standard error.
        subprocess.TimeoutExpired: it exceeded the time limit, and was killed.
    """
    if at is not None:
        # Checked here too, so that a wrong point is reported before a process is started.
        CrashTrap(at, nth)  # the same check as in the other process
    module, function = _locate(target)
    request = json.dumps(ChildRequest(module, function, arguments, at, nth))
    with TemporaryDirectory(prefix="handrail-crash-") as name:
        folder = Path(name)
        (folder / REQUEST).write_text(request, encoding="utf-8")
        command = [
            sys.executable,
            "-c",
            # The process has another directory if `cwd` is given, so the empty entry of `sys.path` is resolved here.
            _PROGRAM.format(path=[entry or str(Path.cwd()) for entry in sys.path], at=name),
        ]
        # Files, and not pipes: a pipe that is not read blocks the process when its buffer is full.
        with (folder / "output").open("w+b") as output, (folder / "errors").open("w+b") as errors:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, and a function of the caller's
                command,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
            code = _wait(process, timeout, errors)
            text = _text(output)
            reached = tuple(_read(folder / REACHED).split())
            # A SIGKILL from elsewhere, as by the OOM killer, must not pass for the requested crash.
            if code == -signal.SIGKILL and at is not None and reached.count(at) == nth and reached[-1] == at:
                return Crashed(at, nth, reached, text)
            if code == 0:
                return Finished(json.loads(_read(folder / RETURNED)), reached, text)
            error = subprocess.CalledProcessError(code, f"{module}:{function}", text, _text(errors))
            raise _with_note(error, errors)


def _wait(process: subprocess.Popen[bytes], timeout: timedelta, errors: IO[bytes]) -> int:
    try:
        return process.wait(timeout.total_seconds())
    except subprocess.TimeoutExpired as error:
        raise _with_note(error, errors) from None
    finally:
        # Also if the wait was interrupted by another exception, such as `KeyboardInterrupt`. Waiting again reaps the
        # process.
        if process.returncode is None:
            process.kill()
            process.wait()


def _locate(target: str | Callable[..., object]) -> tuple[str, str]:
    if isinstance(target, str):
        module, _, function = target.partition(":")
        if not module or not function.isidentifier():
            raise ValueError(f"the target {target!r} is not of the form 'module:function'")
        return module, function
    name = getattr(target, "__qualname__", "")
    home = sys.modules.get(getattr(target, "__module__", ""), ModuleType(""))
    # A decorated or nested function is not the object that its name refers to in the module.
    if getattr(home, name, None) is not target:
        raise ValueError(
            f"{target!r} is not at the top level of a module, so another process cannot find it. Make it a "
            "plain function there, and pass what it needs as arguments."
        )
    if home.__name__ != "__main__":
        return home.__name__, name
    file = getattr(home, "__file__", None)
    if file is None:
        raise ValueError(f"{name} was defined interactively, so another process cannot find it. Put it into a file.")
    return str(Path(file).resolve()), name


def _with_note(error: subprocess.SubprocessError, errors: IO[bytes]) -> subprocess.SubprocessError:
    text = _text(errors)
    error.add_note(f"It wrote to standard error:\n{text[-_LONGEST_QUOTE:]}" if text else "It wrote no errors.")
    return error


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode(errors="replace")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
