"""The Python suite: one tool that evaluates small programs of a model, its handler, and the guidance for it.

They are evaluated by pydantic-monty, of the extra `python`, which is imported with the first evaluation: an interpreter
of its own, which has no access to the system that code could reach.

=====================  ================================================================================================
what code may use      what bounds it
=====================  ================================================================================================
time                   Monty's clock; if Monty does not end it, its client kills its process a second later
memory                 the allocator of Monty's process
depth of calls         `_MOST_RECURSION`
=====================  ================================================================================================

Monty's client starts a process for each evaluation, and ends it; it ends with this process, too. The value is made text
by Monty, within the same limits: a small value may have an endless text.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from handrail.contrib import about, example, limit_faults, suite_tool, timeout_faults
from handrail.contrib.tools.shell.process import ProgramOutput
from handrail.errors import PromptValidationError, ToolValidationError
from handrail.prompt import Section, Tool, ToolContext, ToolResult
from handrail.redaction import redacted_logger
from handrail.session import stored_as
from handrail.waiting import await_shielded, run_in_thread

if TYPE_CHECKING:
    from pydantic_monty import MontyError, MontySession

_log = redacted_logger("handrail")

DEFAULT_TIMEOUT = timedelta(seconds=10)
"""How long code may take, unless the section says otherwise."""

DEFAULT_MEMORY_BYTES = 256 * 1024 * 1024
"""How much memory code may use, unless the section says otherwise: 256 MiB."""

DEFAULT_CHARACTERS = 20_000
"""How much of what code prints is returned, and of its value, unless the section says otherwise."""

MOST_CODE_CHARACTERS = 100_000
"""How long code may be."""

LEAST_MEMORY_BYTES = 16 * 1024 * 1024
"""The least memory that code can be given: 16 MiB."""

_MOST_LOOK_UPS = 10_000  # how often code may look up a name that is not its own
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

ValueForm: TypeAlias = Literal["none", "json", "repr"]
"""The form of the text of a value: nothing, because there is none; JSON; or a `repr`, which may be cut."""

_TEXT = """\
Compute with `evaluate_python`: it evaluates Python code, and shows what it prints and the value of its last line, if
that is an expression.

- It is a part of Python: functions, comprehensions, classes without bases, `match`, exceptions; no generators and no
  `del`. Of the library there are `math`, `re`, `json`, `datetime`, `random`, `collections` and `itertools`.
- Nothing stays: each call begins without the names and values of the ones before.
- There are no files and no network, no package can be installed, and no program started.
- Code may take {seconds:g} s and use {memory:,} MiB of memory. Of a long output the middle is left out.
- A call that fails names the error and the line."""


@stored_as("handrail.evaluate_python")
@dataclass(frozen=True, slots=True)
class EvaluatePython:
    """A request to evaluate code.

    Attributes:
        code: the code.
    """

    code: str = field(metadata=about("Python code. The value of its last line, if that is an expression, is returned."))


@dataclass(frozen=True, slots=True)
class PythonFault:
    """The exception that ended code.

    Attributes:
        type: the name of the exception, such as `ZeroDivisionError`.
        line: the line of the code where it was raised, from 1; `None` if that is not known.
    """

    type: str
    message: str
    line: int | None = None

    @property
    def sentence(self) -> str:
        """The fault in words, as models read it."""
        where = "" if self.line is None else f" in line {self.line}"
        return f"{self.type}{where}: {self.message.rstrip('.') or 'no message'}."


@stored_as("handrail.python_evaluated")
@dataclass(frozen=True, slots=True)
class PythonEvaluated:
    """Code has been evaluated, or has failed.

    Attributes:
        value: the value of its last line, as text; empty for none.
        left_out: how many bytes in the middle of what it has printed are left out.
    """

    value: str = ""
    value_form: ValueForm = "none"
    printed: str = ""
    left_out: int = 0
    fault: PythonFault | None = None

    def render(self) -> str:
        """The printed text and the value; for code that has failed the printed text."""
        printed = self.printed.removesuffix("\n")
        if self.fault is not None:
            return f"Printed before that:\n{printed}" if self.printed else ""
        parts = [printed] if self.printed else []
        if self.value_form != "none":
            parts.append(f"Value: {self.value}")
        return "\n".join(parts) or "The code has printed nothing, and its last line has no value."


@dataclass(frozen=True, kw_only=True, eq=False)
class AstevalSection(Section[None]):
    """A section with a tool that evaluates small Python programs: `AstevalSection()`.

    Code is evaluated by pydantic-monty, an interpreter that has no access to the system; it computes, and changes
    nothing.

    Attributes:
        timeout: how long code may take; then it is stopped, and the call fails.
        memory_bytes: how much memory it may use; at least 16 MiB.
        max_output_characters: how much of what it prints is returned, in bytes of UTF-8, and of its value.

    Raises:
        PromptValidationError: a declaration is invalid, or the interpreter is not installed; the message names every
            fault.
    """

    timeout: timedelta = DEFAULT_TIMEOUT
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    max_output_characters: int = DEFAULT_CHARACTERS
    accepts_overrides: bool = False
    title: str = "Python"
    key: str = "python"
    tools: Sequence[Tool[Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        if faults := self._faults():
            raise PromptValidationError("; ".join(faults), section_path=(self.key,))
        set_field = object.__setattr__
        settings = PythonSettings(self.memory_bytes, self.timeout.total_seconds(), self.max_output_characters)
        set_field(self, "tools", (python_tool(settings, accepts_overrides=self.accepts_overrides),))
        Section.__post_init__(self)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance: the available Python, and the limits."""
        return _TEXT.format(seconds=self.timeout.total_seconds(), memory=self.memory_bytes // 1024 // 1024)

    def _faults(self) -> Sequence[str]:
        faults: list[str] = []
        if find_spec("pydantic_monty") is None:
            faults.append("it needs pydantic-monty, which is not installed: pip install 'handrail[python]'")
        faults += timeout_faults(self.timeout, usual=10)
        faults += limit_faults("memory_bytes", self.memory_bytes, unit="bytes", least=LEAST_MEMORY_BYTES)
        faults += limit_faults("max_output_characters", self.max_output_characters, unit="characters")
        return faults


@dataclass(frozen=True, slots=True)
class PythonSettings:
    """Evaluates code, with these limits.

    Attributes:
        most_characters: of the printed text that is returned, and of the value.
    """

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    seconds: float = DEFAULT_TIMEOUT.total_seconds()
    most_characters: int = DEFAULT_CHARACTERS

    async def run(self, params: EvaluatePython, *, context: ToolContext) -> ToolResult[PythonEvaluated]:  # noqa: ARG002 - the interface's
        """Evaluates code on a thread of its own; a cancellation stops it and waits for it."""
        # Made before the thread starts, so that a cancellation finds it even if nothing has been started yet.
        evaluation = Evaluation(self)
        return await await_shielded(run_in_thread(lambda: self._carry_out(params, evaluation)), stop=evaluation.stop)

    def _carry_out(self, params: EvaluatePython, run: Evaluation) -> ToolResult[PythonEvaluated]:
        if len(params.code) > MOST_CODE_CHARACTERS:
            raise ToolValidationError(
                f"$.code: it has {len(params.code):,} characters, and {MOST_CODE_CHARACTERS:,} can be evaluated. Give "
                "less code."
            )
        try:
            value = run.carry_out(params.code)
        except OSError as error:
            # The machine is at fault, which only the developer can change.
            _log.error("Python cannot be evaluated: %s", error)
            raise ToolValidationError("Python cannot be evaluated here. Do without it.") from error
        return ToolResult.ok(value) if value.fault is None else ToolResult.error(value.fault.sentence, value)


def python_tool(settings: PythonSettings, *, accepts_overrides: bool = False) -> Tool[Any, Any]:
    """The tool of the section."""
    return suite_tool(
        settings.run,
        "Evaluate Python code, and show what it prints and the value of its last line.",
        example(
            "Compute, and show the value of the last line",
            EvaluatePython("prices = [3, 4]\nsum(prices) / len(prices)"),
            PythonEvaluated("3.5", "json"),
        ),
        name="evaluate_python",
        accepts_overrides=accepts_overrides,
    )


class Evaluation:
    """One evaluation; any thread may stop it."""

    __slots__ = ("_is_stopped", "_lock", "_pid", "_settings")

    def __init__(self, settings: PythonSettings) -> None:
        self._settings = settings
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

    def carry_out(self, code: str) -> PythonEvaluated:
        """Evaluates code.

        Raises:
            OSError: Monty cannot be started.
        """
        from pydantic_monty import Monty, MontyError, ResourceLimits  # noqa: PLC0415 - of the extra

        output = ProgramOutput(self._settings.most_characters)
        limits = ResourceLimits(
            max_feed_duration_secs=self._settings.seconds,
            max_memory=self._settings.memory_bytes,
            max_recursion_depth=_MOST_RECURSION,
            max_suspensions=_MOST_LOOK_UPS,
        )
        form: ValueForm = "none"
        value, fault = "", None
        with ExitStack() as stack:
            try:
                pool = stack.enter_context(Monty(min_processes=0, max_processes=1))
                checkout = pool.checkout(script_name="code", limits=limits, os_policy={"sleep": "zero"})
                session = stack.enter_context(checkout)
            except (MontyError, RuntimeError) as error:
                raise OSError(str(error)) from error
            stack.callback(self._set_pid, None)
            self._set_pid(session.worker_pid)
            if self._is_stopped:
                return PythonEvaluated(fault=PythonFault("SystemError", "it was stopped"))
            try:
                show = partial(_add_text, output)
                outcome: object = session.feed_run(code, print_callback=show)
                value, form = self._show(session, outcome)
            except MontyError as error:
                fault = self._fault(error)
        return PythonEvaluated(value, form, output.text(), output.left_out, fault=fault)

    def _set_pid(self, pid: int | None) -> None:
        # Under the lock: a stop must not kill what another process is by then.
        with self._lock:
            self._pid = pid

    def _show(self, session: MontySession, value: object) -> tuple[str, ValueForm]:
        from pydantic_monty import MontyError  # noqa: PLC0415 - of the extra

        if value is None:
            return "", "none"
        most = self._settings.most_characters
        try:
            is_json, length, start, end = session.feed_run(
                _SHOW, inputs={"value": value, "most": most}, print_callback=lambda _stream, _text: None
            )
        except (MontyError, ValueError):  # endless, too large, of a class whose instance is gone; or a circle
            return _NOT_SHOWN, "repr"
        if is_json:
            return str(start), "json"
        return (start if length <= most else _elide(start, end, length - most, most)), "repr"

    def _fault(self, error: MontyError) -> PythonFault:
        from pydantic_monty import MontyCrashedError, MontyRuntimeError, MontySyntaxError  # noqa: PLC0415 - of the extra

        overtime = PythonFault("TimeoutError", f"it has taken more than {self._settings.seconds:g} s and was stopped")
        if isinstance(error, MontyCrashedError):
            return overtime if error.timed_out else PythonFault("SystemError", f"the interpreter has ended: {error}")
        kind, message, line = type(error).__name__, str(error), None
        if isinstance(error, MontyRuntimeError | MontySyntaxError):
            kind, _, message = error.display("type-msg").partition(": ")
            if kind == "TimeoutError" and message.startswith(_OVERTIME):
                return overtime
            line = next((frame.line for frame in reversed(error.traceback())), None)
        over = len(message) - _MOST_ERROR
        return PythonFault(kind, message if over <= 0 else _elide(message, message, over, _MOST_ERROR), line)


def _add_text(output: ProgramOutput, _stream: str, text: str) -> None:
    output.add(text.encode("utf-8", "replace"))


def _elide(start: str, end: str, left_out: int, most: int) -> str:
    half = most // 2
    return f"{start[:half]}[... {left_out:,} characters left out ...]{end[-(most - half) :]}"
