"""One evaluation by pydantic-monty: an interpreter of its own, which has no access to the system that code could reach.

=====================  ================================================================================================
what code may use      what bounds it
=====================  ================================================================================================
time                   Monty's clock, which stands still in the functions for files; if Monty does not stop by itself,
                       its client kills its process a second later
memory                 the allocator of Monty's process
depth of calls         `_MOST_RECURSION`
functions for files    `MOST_FILE_CALLS`
=====================  ================================================================================================

Monty's client starts a process for each evaluation, and ends it. If this process is killed, that one ends with its
evaluation. The value is made text by Monty too, within the same limits: a small value may have an endless text.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial

from pydantic_monty import (
    Monty,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    ResourceLimits,
)

from handrail.contrib.tools.python.evaluation import (
    Printed,
    PythonEvaluated,
    PythonFault,
    PythonSettings,
    ValueForm,
    cut_between,
    elide,
)
from handrail.contrib.tools.python.files import MOST_FILE_CALLS

_NAME = "code"
_MOST_RECURSION = 500
_MOST_ERROR = 2_000
_OVERTIME = "feed time limit exceeded"

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
"""Makes text of a value: JSON where that is all of the value, else its `repr`."""

_NOT_SHOWN = "<a value that cannot be shown; print what you need of it>"


class Evaluation:
    """One evaluation; any thread may stop it."""

    __slots__ = ("_lock", "_pid", "_settings", "_stopped")

    def __init__(self, settings: PythonSettings) -> None:
        """Prepare it; nothing is started."""
        self._settings = settings
        self._lock = threading.Lock()
        self._pid: int | None = None
        self._stopped = False

    def stop(self) -> None:
        """Kill the process of Monty, or prevent its use; does not wait."""
        with self._lock:
            self._stopped = True
            if self._pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGTERM)

    def carry_out(self, code: str, functions: Mapping[str, Callable[..., object]]) -> PythonEvaluated:
        """Evaluate code.

        Args:
            code: the code.
            functions: what it may call, by name.

        Returns:
            The result, without the files that were changed.

        Raises:
            OSError: Monty cannot be started.
        """
        settings = self._settings
        printed = Printed(settings.most_characters)
        limits = ResourceLimits(
            max_feed_duration_secs=settings.seconds,
            max_memory=settings.memory_bytes,
            max_recursion_depth=_MOST_RECURSION,
            max_suspensions=MOST_FILE_CALLS,
        )
        with ExitStack() as opened:
            try:
                pool = opened.enter_context(Monty(min_processes=0, max_processes=1))
                session = opened.enter_context(
                    pool.checkout(script_name=_NAME, limits=limits, os_policy={"sleep": "zero"})
                )
            except (MontyError, RuntimeError) as error:
                raise OSError(str(error)) from error
            opened.callback(self._set_pid, None)
            self._set_pid(session.worker_pid)
            if self._stopped:
                return PythonEvaluated(fault=PythonFault("SystemError", "it was stopped"))
            try:
                value: object = session.feed_run(
                    code, external_lookup=dict(functions), print_callback=partial(_print, printed)
                )
                text, form = self._show(session, value)
            except MontyError as error:
                return PythonEvaluated(printed=printed.text(), left_out=printed.left_out, fault=self._fault(error))
        return PythonEvaluated(text, form, printed.text(), printed.left_out)

    def _set_pid(self, pid: int | None) -> None:
        # Under the lock: a stop must not kill what another process is by then.
        with self._lock:
            self._pid = pid

    def _show(self, session: MontySession, value: object) -> tuple[str, ValueForm]:
        if value is None:
            return "", "none"
        most, unread = self._settings.most_characters, Printed(0)
        inputs, show = {"value": value, "most": most}, partial(_print, unread)
        try:
            is_json, length, start, end = session.feed_run(_SHOW, inputs=inputs, print_callback=show)
        except (MontyError, ValueError):  # endless, too large, of a class whose instance is gone; or a circle
            return _NOT_SHOWN, "repr"
        if is_json:
            return str(start), "json"
        half = most // 2
        return (start if length <= most else cut_between(start[:half], length - most, end[half - most :])), "repr"

    def _fault(self, error: MontyError) -> PythonFault:
        overtime = PythonFault("TimeoutError", f"it has taken more than {self._settings.seconds:g} s and was stopped")
        if isinstance(error, MontyCrashedError):
            return overtime if error.timed_out else PythonFault("SystemError", f"the interpreter has ended: {error}")
        if not isinstance(error, MontyRuntimeError | MontySyntaxError):
            return PythonFault(type(error).__name__, elide(str(error), _MOST_ERROR))
        kind, _, message = error.display("type-msg").partition(": ")
        if kind == "TimeoutError" and message.startswith(_OVERTIME):
            return overtime
        lines = [frame.line for frame in error.traceback()]
        return PythonFault(kind, elide(message, _MOST_ERROR), lines[-1] if lines else None)


def _print(printed: Printed, _stream: str, text: str) -> None:
    printed.write(text)
