"""The Python suite: one tool that evaluates code, its handler, and the guidance for it.

`handrail.contrib.tools.python.monty` evaluates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from handrail.contrib.tools.python.evaluation import (
    DEFAULT_CHARACTERS,
    DEFAULT_MEMORY_BYTES,
    DEFAULT_TIMEOUT,
    EvaluatePython,
    PythonEvaluated,
    PythonSettings,
)
from handrail.contrib.tools.python.files import LentFiles, files_of
from handrail.contrib.tools.section_options import also_bound, limit_faults, timeout_faults
from handrail.errors import PromptValidationError, ToolValidationError
from handrail.filesystem import Filesystem
from handrail.prompt import Section, Tool, ToolContext, ToolExample, ToolResult
from handrail.redaction import redacted_logger
from handrail.waiting import outlast, run_in_thread

if TYPE_CHECKING:
    from handrail.contrib.tools.python.monty import Evaluation

_log = redacted_logger("handrail")

MOST_CODE_CHARACTERS = 100_000
"""How long code may be."""

LEAST_MEMORY_BYTES = 16 * 1024 * 1024
"""The least memory that code can be given: 16 MiB."""

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
        max_output_characters: how much of what it prints is returned, and of its value.
        files: whether it may read and write files.
        read_first: whether it must read a file before it replaces or removes it, unless the model has read it.
        accepts_overrides: whether the description of the tool may be replaced when a prompt is tuned.

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
        faults = [*self._faults()]
        if faults:
            raise PromptValidationError("; ".join(faults), section_path=(self.key,))
        set_field = object.__setattr__
        settings = PythonSettings(
            self.memory_bytes,
            self.timeout.total_seconds(),
            self.max_output_characters,
            files=self.files,
            read_first=self.read_first,
        )
        set_field(self, "tools", (python_tool(settings, accepts_overrides=self.accepts_overrides),))
        if self.filesystem is not None:
            set_field(self, "resources", also_bound(self.resources, {Filesystem: self.filesystem}))
        Section.__post_init__(self)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance: what of Python there is, the limits, and the functions for files."""
        files = _FILES.format(read_first=_READ_FIRST if self.read_first else "") if self.files else ""
        return _TEXT.format(
            seconds=self.timeout.total_seconds(),
            memory=self.memory_bytes // 1024 // 1024,
            files=files,
        )

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
class PythonHandler:
    """Evaluates code.

    Attributes:
        settings: how.
    """

    settings: PythonSettings

    async def run(self, params: EvaluatePython, *, context: ToolContext) -> ToolResult[PythonEvaluated]:
        """Evaluate code on a thread of its own; when the call is cancelled it is stopped, and waited for."""
        from handrail.contrib.tools.python.monty import Evaluation  # noqa: PLC0415 - needs the extra, which is there

        # Made before the thread starts, so that a cancellation finds it even if nothing has been started yet.
        evaluation = Evaluation(self.settings)
        # The call is rolled back when this function returns, so no function for files must run after that.
        return await outlast(run_in_thread(lambda: self._carry_out(params, context, evaluation)), stop=evaluation.stop)

    def _carry_out(
        self, params: EvaluatePython, context: ToolContext, evaluation: Evaluation
    ) -> ToolResult[PythonEvaluated]:
        settings = self.settings
        if len(params.code) > MOST_CODE_CHARACTERS:
            raise ToolValidationError(
                f"$.code: it has {len(params.code):,} characters, and {MOST_CODE_CHARACTERS:,} can be evaluated. Give "
                "less code, and read data from files."
            )
        files = LentFiles(files_of(context) if settings.files else None, context, settings.read_first)
        try:
            evaluated = evaluation.carry_out(params.code, files.functions() if settings.files else {})
        except OSError as error:
            # The machine is at fault, which only the developer can change.
            _log.error("Python cannot be evaluated: %s", error)
            raise ToolValidationError("Python cannot be evaluated here. Do without it.") from error
        if files.failure is not None:
            raise files.failure
        evaluated = replace(evaluated, changed=files.changed)
        if evaluated.fault is None:
            return ToolResult.ok(evaluated)
        undone = _UNDONE if evaluated.changed else ""
        return ToolResult.error(f"{evaluated.fault.sentence}{undone}", evaluated)


def python_tool(settings: PythonSettings, *, accepts_overrides: bool = False) -> Tool[Any, Any]:
    """The tool of the section.

    Args:
        settings: how code is evaluated.
        accepts_overrides: whether its description may be replaced when a prompt is tuned.
    """
    return Tool[EvaluatePython, PythonEvaluated](
        name="evaluate_python",
        description="Evaluate Python code, and show what it prints and the value of its last line.",
        handler=PythonHandler(settings).run,
        examples=(
            ToolExample(
                description="Compute, and show the value of the last line",
                input=EvaluatePython("prices = [3, 4]\nsum(prices) / len(prices)"),
                output=PythonEvaluated("3.5", "json"),
            ),
        ),
        accepts_overrides=accepts_overrides,
    )
