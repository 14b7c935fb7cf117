"""The Python suite: one tool that evaluates small programs of a model, its handler, and the guidance for it.

They are evaluated by pydantic-monty, of the extra `python`, which is imported with the first evaluation: an interpreter
of its own, which has no access to the system that code could reach.

=====================  ================================================================================================
what code may use      what bounds it
=====================  ================================================================================================
time                   Monty's clock, which stands still in the functions that code calls; if Monty does not end it,
                       its client kills its process a second later
memory                 the allocator of Monty's process
depth of calls         `_MOST_RECURSION`
calls of functions     `MOST_FILE_CALLS`
=====================  ================================================================================================

Monty's client starts a process for each evaluation, and ends it; it ends with this process, too. The value is made text
by Monty, within the same limits: a small value may have an endless text.

The functions for files that code may call run in the call: inside its transaction, on its filesystem. A file that
exists may be written to or removed only if it was read before, as `ReadBeforeWritePolicy` requires it of the file
tools: by this code, or by the model. What code has read or written the model has not seen, so nothing becomes known to
the policy. Code is not asked about; so what approval rules would ask about is refused here.
"""

from __future__ import annotations

import inspect
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from handrail.contrib import about, also_bound, example, limit_faults, suite_tool, timeout_faults
from handrail.contrib.tools.shell.process import ProgramOutput
from handrail.contrib.tools.shell.rules import ProgramPaths
from handrail.errors import (
    FilesystemError,
    PathEscapeError,
    PathNotFoundError,
    PromptValidationError,
    ToolValidationError,
)
from handrail.filesystem import FileStat, Filesystem, PathFilter
from handrail.filesystem.path_filters import NOTHING_FILTERED, excluding
from handrail.filesystem.protocol import hash_content
from handrail.prompt import Section, Tool, ToolContext, ToolResult
from handrail.prompt.read_before_write import KnownFiles, find_known
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

MOST_FILE_BYTES = 10_000_000
"""The largest file that code can read or write, in bytes."""

MOST_FILE_CALLS = 10_000
"""How often code may call the functions for files, and look up a name that is not its own."""

MOST_LISTED = 10_000
"""How many files and folders one call can list."""

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
- There is no network, no package can be installed, and no program started.
- Code may take {seconds:g} s and use {memory:,} MiB of memory. Of a long output the middle is left out.
- A call that fails names the error and the line.{files}"""

_FILES = """

**Files**

Files are read and written by these functions alone; `open` does not work. A path is relative to the root of the
filesystem, such as `notes/plan.md`.

- `read_text(path)` returns the text of a file, `write_text(path, text)` makes or replaces one.
- `list_files(path=".")` returns the paths in a folder, `glob_files(pattern)` those that match, as `**/*.md`; folders
  end with `/`. `exists(path)` says whether there is anything, and `remove_file(path)` removes a file.
- If the code fails, the files are as they were before it.{read_first}"""

_READ_FIRST = "\n- Read a file in the same code before you replace or remove it."


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
        changed: the files that it has written or removed, in the order of their paths; of code that has failed they are
            rolled back.
    """

    value: str = ""
    value_form: ValueForm = "none"
    printed: str = ""
    left_out: int = 0
    changed: tuple[str, ...] = ()
    fault: PythonFault | None = None

    def render(self) -> str:
        """The printed text, the changed files, and the value; for code that has failed the printed text."""
        printed = self.printed.removesuffix("\n")
        if self.fault is not None:
            return f"Printed before that:\n{printed}" if self.printed else ""
        parts = [printed] if self.printed else []
        if self.changed:
            parts.append(f"Files changed: {', '.join(self.changed)}.")
        if self.value_form != "none":
            parts.append(f"Value: {self.value}")
        return "\n".join(parts) or "The code has printed nothing, and its last line has no value."


@dataclass(frozen=True, kw_only=True, eq=False)
class AstevalSection(Section[None]):
    """A section with a tool that evaluates small Python programs: `AstevalSection(filesystem)`.

    Code is evaluated by pydantic-monty, an interpreter that has no access to the system, and reads and writes only the
    files of the filesystem, inside the transaction of its call: code that fails has changed nothing.

    Attributes:
        filesystem: the files; the section binds them as its resource `Filesystem`. Without it code works on the
            `Filesystem` that the prompt binds; so give none beside a `VfsToolsSection` over the same files.
        timeout: how long code may take, without its reading and writing; then it is stopped, and the call fails.
        memory_bytes: how much memory it may use; at least 16 MiB.
        max_output_characters: how much of what it prints is returned, in bytes of UTF-8, and of its value.
        read_first: whether it must read a file before it replaces or removes it, unless the model has read it.

    Raises:
        DuplicateBindingError: `resources` binds a `Filesystem` too.
        PromptValidationError: a declaration is invalid, or the interpreter is not installed; the message names every
            fault.
    """

    filesystem: Filesystem | None = field(default=None, kw_only=False)
    timeout: timedelta = DEFAULT_TIMEOUT
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    max_output_characters: int = DEFAULT_CHARACTERS
    files: bool = True
    read_first: bool = True
    accepts_overrides: bool = False
    title: str = "Python"
    key: str = "python"
    tools: Sequence[Tool[Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        if faults := self._faults():
            raise PromptValidationError("; ".join(faults), section_path=(self.key,))
        set_field = object.__setattr__
        seconds, files, read_first = self.timeout.total_seconds(), self.files, self.read_first
        settings = PythonSettings(self.memory_bytes, seconds, self.max_output_characters, files, read_first)
        set_field(self, "tools", (python_tool(settings, accepts_overrides=self.accepts_overrides),))
        if self.filesystem is not None:
            set_field(self, "resources", also_bound(self.resources, {Filesystem: self.filesystem}))
        Section.__post_init__(self)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance: the available Python, the limits, and the functions for files."""
        files = _FILES.format(read_first=_READ_FIRST if self.read_first else "") if self.files else ""
        return _TEXT.format(seconds=self.timeout.total_seconds(), memory=self.memory_bytes // 1024 // 1024, files=files)

    def _faults(self) -> Sequence[str]:
        faults: list[str] = []
        if find_spec("pydantic_monty") is None:
            faults.append("it needs pydantic-monty, which is not installed: pip install 'handrail[python]'")
        faults += timeout_faults(self.timeout, usual=10)
        faults += limit_faults("memory_bytes", self.memory_bytes, unit="bytes", least=LEAST_MEMORY_BYTES)
        faults += limit_faults("max_output_characters", self.max_output_characters, unit="characters")
        return faults


_UNDONE = " The files that it has changed are as they were before."


@dataclass(frozen=True, slots=True)
class PythonSettings:
    """Evaluates code, with these limits.

    Attributes:
        most_characters: of the printed text that is returned, and of the value.
        read_first: whether it must read a file before it writes to it.
    """

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    seconds: float = DEFAULT_TIMEOUT.total_seconds()
    most_characters: int = DEFAULT_CHARACTERS
    files: bool = True
    read_first: bool = True

    async def run(self, params: EvaluatePython, *, context: ToolContext) -> ToolResult[PythonEvaluated]:
        """Evaluates code on a thread of its own; a cancellation stops it and waits for it."""
        # Made before the thread starts, so that a cancellation finds it even if nothing has been started yet.
        evaluation = Evaluation(self)
        # The call is rolled back when this function returns, so no function for files must run after that.
        future = run_in_thread(lambda: self._carry_out(params, context, evaluation))
        return await await_shielded(future, stop=evaluation.stop)

    def _carry_out(self, params: EvaluatePython, context: ToolContext, run: Evaluation) -> ToolResult[PythonEvaluated]:
        if len(params.code) > MOST_CODE_CHARACTERS:
            raise ToolValidationError(
                f"$.code: it has {len(params.code):,} characters, and {MOST_CODE_CHARACTERS:,} can be evaluated. Give "
                "less code, and read data from files."
            )
        files = LentFiles(find_files(context) if self.files else None, context, self.read_first)
        try:
            value = run.carry_out(params.code, files.functions() if self.files else {})
        except OSError as error:
            # The machine is at fault, which only the developer can change.
            _log.error("Python cannot be evaluated: %s", error)
            raise ToolValidationError("Python cannot be evaluated here. Do without it.") from error
        if files.failure is not None:
            raise files.failure
        value = replace(value, changed=files.changed)
        if value.fault is None:
            return ToolResult.ok(value)
        return ToolResult.error(f"{value.fault.sentence}{_UNDONE if value.changed else ''}", value)


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

    def carry_out(self, code: str, functions: Mapping[str, Callable[..., object]]) -> PythonEvaluated:
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
            max_suspensions=MOST_FILE_CALLS,
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
                outcome: object = session.feed_run(code, external_lookup=dict(functions), print_callback=show)
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


class _RefusedError(Exception):
    def __init__(self, kind: type[Exception], message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class LentFiles:
    """The functions for files of one evaluation, which owns the state.

    Attributes:
        read_first: whether a file must be read before it is written to.
        failure: an exception that is not for the code, such as that the call is over.
    """

    filesystem: Filesystem | None
    context: ToolContext
    read_first: bool
    failure: BaseException | None = None
    _identities: dict[str, str] = field(default_factory=dict[str, str])
    _changed: set[str] = field(default_factory=set[str])

    @property
    def changed(self) -> tuple[str, ...]:
        """The paths that were written to or removed, in order."""
        return tuple(sorted(self._changed))

    def functions(self) -> Mapping[str, Callable[..., object]]:
        """The functions by the names that code calls them by."""
        methods = (self.read_text, self.write_text, self.list_files, self.glob_files, self.exists, self.remove_file)
        return {method.__name__: self._lent(method) for method in methods}

    def _lent(self, method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **keywords: object) -> object:
            try:
                bound = inspect.signature(method).bind(*arguments, **keywords)
                return method(**{name: _as_text(name, value) for name, value in bound.arguments.items()})
            except _RefusedError as refused:
                raise refused.kind(str(refused)) from None
            except FilesystemError as error:
                raise _builtin_error(error)(str(error)) from None
            except TypeError as error:
                raise TypeError(f"{method.__name__}: {error}") from None
            except BaseException as error:
                self.failure = error
                raise

        return call

    @property
    def _files(self) -> Filesystem:
        if self.filesystem is None:
            raise _RefusedError(OSError, "there are no files here; do without the functions for files")
        return self.filesystem

    def read_text(self, path: str) -> str:
        """The text of a file."""
        start = self._files.read_start(path, 0)
        if start.size > MOST_FILE_BYTES:
            raise _RefusedError(OSError, f"{path!r} has {start.size:,} bytes, and {MOST_FILE_BYTES:,} can be read")
        data = self._files.read_bytes(path)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise _RefusedError(ValueError, f"{path!r} is not text in UTF-8") from error
        self._identities[self._files.shortest(path)] = hash_content((data,))
        return text

    def write_text(self, path: str, text: str) -> None:
        """Creates or replaces a file."""
        data = text.encode("utf-8", "surrogatepass")
        if len(data) > MOST_FILE_BYTES:
            raise _RefusedError(OSError, f"the text has {len(data):,} bytes, and {MOST_FILE_BYTES:,} can be written")
        self._check_known(path)
        self._files.write_text(path, text)
        self._record_change(path)
        self._identities[self._files.shortest(path)] = hash_content((data,))

    def remove_file(self, path: str) -> None:
        """Removes a file."""
        if self._files.stat(path).kind == "folder":
            raise _RefusedError(OSError, f"{path!r} is a folder; remove_file removes files")
        self._check_known(path)
        self._files.remove(path)
        self._record_change(path)

    def list_files(self, path: str = ".") -> list[str]:
        """The paths in a folder; folders end with `/`."""
        return _paths(self._files.list(path))

    def glob_files(self, pattern: str) -> list[str]:
        """The paths that match a pattern."""
        return _paths(self._files.glob(pattern))

    def exists(self, path: str) -> bool:
        """Returns whether there is anything at a path."""
        return self._files.exists(path)

    def _check_known(self, path: str) -> None:
        if not self.read_first or not self._files.exists(path) or self._files.stat(path).kind == "folder":
            return
        now, shortest = self._files.identity(path), self._files.shortest(path)
        state = find_known(self.context.session[KnownFiles], shortest)
        if self._identities.get(shortest) != now and (state is None or (state.identity, state.shown) != (now, "all")):
            raise _RefusedError(
                PermissionError,
                f"{path!r} exists, and its present content has not been read. Read it with read_text({path!r}) first",
            )

    def _record_change(self, path: str) -> None:
        self._changed.add(self._files.shortest(path))


def find_files(context: ToolContext) -> Filesystem | None:
    """The filesystem of a call, without `.git` and what approval rules ask about; `None` if there is none."""
    if (filesystem := context.filesystem) is None:
        return None
    paths = context.resources.get(ProgramPaths, None)
    unseen = NOTHING_FILTERED if paths is None else unasked(paths.path_filter)
    # As for the file tools: what is in a `.git` can name programs, which git outside would run.
    return filesystem.filtered(unseen.plus(excluding(())))


def unasked(path_filter: PathFilter) -> PathFilter:
    """The filter of a caller that cannot be asked: what is left out, or asked about, does not exist."""
    return PathFilter(
        reading=(*path_filter.reading, *path_filter.listing, *path_filter.searching),
        writing=(*path_filter.writing, *path_filter.removing, *path_filter.holding),
    )


def _as_text(parameter: str, value: object) -> str:
    if isinstance(value, PurePath) and parameter != "text":
        return value.as_posix()
    if not isinstance(value, str):
        raise TypeError(f"{parameter} is to be a str, not {type(value).__name__}")
    return value


def _paths(stats: tuple[FileStat, ...]) -> list[str]:
    if len(stats) > MOST_LISTED:
        raise _RefusedError(OSError, f"there are {len(stats):,} files and folders, and {MOST_LISTED:,} can be listed")
    return [f"{stat.path}/" if stat.kind == "folder" else stat.path for stat in stats]


def _builtin_error(error: FilesystemError) -> type[Exception]:
    if isinstance(error, PathNotFoundError):
        return FileNotFoundError
    return PermissionError if isinstance(error, PathEscapeError) else OSError
