"""One evaluation by pydantic-monty: an interpreter of its own, which has no access to the system that code could reach.

=====================  ================================================================================================
what code may use      what bounds it
=====================  ================================================================================================
time                   Monty's clock, which stands still in the functions that code calls; if Monty does not end it,
                       its client kills its process a second later
memory                 the allocator of Monty's process
depth of calls         `_MOST_RECURSION`
calls of functions     `MontyLimits.calls`
=====================  ================================================================================================

Monty's client starts a process for each evaluation, and ends it; it ends with this process, too. The value is made text
by Monty, within the same limits: a small value may have an endless text.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from pydantic_monty import (
    Monty,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    ResourceLimits,
)

ValueForm: TypeAlias = Literal["none", "json", "repr"]
"""The form of the text of a value: nothing, because there is none; JSON; or a `repr`, which may be cut."""

_NAME = "code"
_MOST_RECURSION = 500
_MOST_ERROR = 2_000
_OVERTIME = "feed time limit exceeded"

# Makes text of a value: JSON where that is all of the value, else its `repr`.
_SHOW = """
import json
text = ""
try:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(text) > most or json.loads(text) != value:
        text = ""
except Exception:
    text = ""
shown = text or repr(value)
(bool(text), len(shown), shown[:most], shown[-most:])
"""

_NOT_SHOWN = "<a value that cannot be shown; print what you need of it>"


class MontyLimits(NamedTuple):
    """The limits of one evaluation.

    Attributes:
        characters: of the printed text that is returned, and of the value.
        calls: how often it may call a function, and look up a name that is not its own.
    """

    seconds: float
    memory_bytes: int
    characters: int
    calls: int


class MontyFault(NamedTuple):
    """The exception that ended code: its name, its text, and the line, if it is known."""

    type: str
    message: str
    line: int | None = None


class MontyOutcome(NamedTuple):
    """The end of an evaluation.

    Attributes:
        value: the value of the last line, as text; empty for none.
        left_out: how many characters in the middle of that are left out.
    """

    value: str = ""
    value_form: ValueForm = "none"
    printed: str = ""
    left_out: int = 0
    fault: MontyFault | None = None


class Evaluation:
    """One evaluation; any thread may stop it."""

    __slots__ = ("_is_stopped", "_limits", "_lock", "_pid")

    def __init__(self, limits: MontyLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Kills the process of Monty, or prevents its use; does not wait."""
        with self._lock:
            self._is_stopped = True
            if self._pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGTERM)

    def carry_out(self, code: str, functions: Mapping[str, Callable[..., object]]) -> MontyOutcome:
        """Evaluates code.

        Raises:
            OSError: Monty cannot be started.
        """
        printed = Printed(self._limits.characters)
        limits = ResourceLimits(
            max_feed_duration_secs=self._limits.seconds,
            max_memory=self._limits.memory_bytes,
            max_recursion_depth=_MOST_RECURSION,
            max_suspensions=self._limits.calls,
        )
        with ExitStack() as stack:
            try:
                pool = stack.enter_context(Monty(min_processes=0, max_processes=1))
                checkout = pool.checkout(script_name=_NAME, limits=limits, os_policy={"sleep": "zero"})
                session = stack.enter_context(checkout)
            except (MontyError, RuntimeError) as error:
                raise OSError(str(error)) from error
            stack.callback(self._set_pid, None)
            self._set_pid(session.worker_pid)
            if self._is_stopped:
                return MontyOutcome(fault=MontyFault("SystemError", "it was stopped"))
            try:
                show = partial(_print, printed)
                value: object = session.feed_run(code, external_lookup=dict(functions), print_callback=show)
                text, form = self._show(session, value)
            except MontyError as error:
                return MontyOutcome(printed=printed.text(), left_out=printed.left_out, fault=self._fault(error))
        return MontyOutcome(text, form, printed.text(), printed.left_out)

    def _set_pid(self, pid: int | None) -> None:
        # Under the lock: a stop must not kill what another process is by then.
        with self._lock:
            self._pid = pid

    def _show(self, session: MontySession, value: object) -> tuple[str, ValueForm]:
        if value is None:
            return "", "none"
        most, unread = self._limits.characters, Printed(0)
        inputs, show = {"value": value, "most": most}, partial(_print, unread)
        try:
            is_json, length, start, end = session.feed_run(_SHOW, inputs=inputs, print_callback=show)
        except (MontyError, ValueError):  # endless, too large, of a class whose instance is gone; or a circle
            return _NOT_SHOWN, "repr"
        if is_json:
            return str(start), "json"
        half = most // 2
        return (start if length <= most else _elide_middle(start[:half], length - most, end[half - most :])), "repr"

    def _fault(self, error: MontyError) -> MontyFault:
        overtime = MontyFault("TimeoutError", f"it has taken more than {self._limits.seconds:g} s and was stopped")
        if isinstance(error, MontyCrashedError):
            return overtime if error.timed_out else MontyFault("SystemError", f"the interpreter has ended: {error}")
        if not isinstance(error, MontyRuntimeError | MontySyntaxError):
            return MontyFault(type(error).__name__, _elide(str(error)))
        kind, _, message = error.display("type-msg").partition(": ")
        if kind == "TimeoutError" and message.startswith(_OVERTIME):
            return overtime
        lines = [frame.line for frame in error.traceback()]
        return MontyFault(kind, _elide(message), lines[-1] if lines else None)


class Printed:
    """The beginning and the end of what code prints."""

    __slots__ = ("_head", "_most_head", "_most_tail", "_tail", "_total")

    def __init__(self, most_characters: int) -> None:
        self._most_head = most_characters // 2
        self._most_tail = most_characters - self._most_head
        self._head = ""
        self._tail = ""
        self._total = 0

    @property
    def left_out(self) -> int:
        """The number of characters that are left out."""
        return max(0, self._total - self._most_head - self._most_tail)

    def write(self, text: str) -> None:
        """Adds text."""
        self._total += len(text)
        room = self._most_head - len(self._head)
        self._head += text[:room]
        # Cut before it is added: a single text may be as large as the memory allows.
        self._tail += text[room:][-2 * self._most_tail :] if len(text) > room else ""
        if len(self._tail) > 2 * self._most_tail:
            self._tail = self._tail[-self._most_tail :]

    def text(self) -> str:
        """The stored text, with a line for what is left out."""
        if not self.left_out:
            return self._head + self._tail
        return _elide_middle(f"{self._head}\n", self.left_out, f"\n{self._tail[-self._most_tail :]}")


def _print(printed: Printed, _stream: str, text: str) -> None:
    printed.write(text)


def _elide(text: str) -> str:
    half, left_out = _MOST_ERROR // 2, len(text) - _MOST_ERROR
    return text if left_out <= 0 else _elide_middle(text[:half], left_out, text[-half:])


def _elide_middle(start: str, left_out: int, end: str) -> str:
    return f"{start}[... {left_out:,} characters left out ...]{end}"
