"""A request to run a command in a sandbox, its result, and the handler that makes the one of the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from handrail.contrib.tools.sandbox.engine import Sandbox, SandboxLimits
from handrail.contrib.tools.shell.handler import notifying, place_of
from handrail.contrib.tools.shell.path_guard import ProgramReach
from handrail.contrib.tools.shell.process import ProgramExit, ProgramRun
from handrail.contrib.tools.shell.rules import ProgramChanges, ShellRule, end_of, text_of
from handrail.errors import EffectUncertain, FilesystemError, SandboxError, ToolValidationError
from handrail.programs.program import Program
from handrail.prompt import ToolContext, ToolResult
from handrail.redaction import redacted_logger
from handrail.session import stored_as
from handrail.waiting import outlast, run_in_thread

_log = redacted_logger("handrail")

TOOL = "shell_execute"
"""The name of the tool."""

_KILLED = 137  # 128 and SIGKILL, as shells report it
_MAY_BE_MEMORY = " Something has killed it: it may have taken more memory than there is."


@stored_as("handrail.shell_execute")
@dataclass(frozen=True, slots=True)
class ShellExecute:
    """A request to run a command in the sandbox.

    Attributes:
        command: a line for the shell, or a program and its arguments.
        folder: where it starts, relative to the workspace.
        input: what it reads from its input.
    """

    command: str | tuple[str, ...] = field(
        metadata={"description": "A line for `sh -c`, or a list of a program and its arguments, which no shell reads."}
    )
    folder: str = field(default=".", metadata={"description": "The folder to start in, such as 'notes'."})
    input: str = field(default="", metadata={"description": "What the command reads from its standard input."})

    @property
    def line(self) -> tuple[str, ...]:
        """The program inside, and its arguments."""
        return ("/bin/sh", "-c", self.command) if isinstance(self.command, str) else self.command


@stored_as("handrail.shell_executed")
@dataclass(frozen=True, slots=True)
class ShellExecuted:
    """A command in the sandbox has ended.

    Attributes:
        command: a line for the shell, or a program and its arguments.
        folder: where it was started.
        code: its exit code; for a program that a signal has ended, 128 and the number of the signal.
        stdout: its output, of which the model is shown the beginning and the end.
        stderr: its error output, the same.
        stdout_left_out: how many bytes in the middle of its output are left out.
        stderr_left_out: the same of its error output.
        changes: whether its changes in the workspace are kept.
    """

    command: str | tuple[str, ...]
    folder: str
    code: int
    stdout: str
    stderr: str = ""
    stdout_left_out: int = 0
    stderr_left_out: int = 0
    changes: ProgramChanges = "kept"

    @property
    def name(self) -> str:
        """What the command is called in messages."""
        return "The command" if isinstance(self.command, str) else self.command[0]

    def render(self) -> str:
        """Both outputs, after the exit code if it is not 0 and the changes are kept all the same."""
        parts = [self.stdout] if self.stdout else []
        if self.stderr:
            parts.append(f"Error output:\n{self.stderr}")
        output = "\n".join(part.rstrip("\n") for part in parts) or f"{self.name} wrote nothing."
        if not self.code or self.changes != "kept":
            return output
        return f"{end_of(self.name, self.code)}.{text_of(self.changes)}\n{output}"


@dataclass(frozen=True, slots=True)
class SandboxHandler:
    """Runs commands in the sandbox of the run.

    Attributes:
        limits: what a command may use.
        rule: what is said of every command: with which exit codes its changes stay, and whether it may read what the
            run keeps from other tools.
        new_id: makes the random id by which the processes of a command are found.
    """

    limits: SandboxLimits
    rule: ShellRule
    new_id: Callable[[], str]

    async def run(self, params: ShellExecute, *, context: ToolContext) -> ToolResult[ShellExecuted]:
        """Run a command on a thread of its own; when the call is cancelled the command is killed, and waited for."""
        # Made before the thread starts, so that a cancellation finds it even if the program has not been started yet.
        run = ProgramRun(context.clock, self.new_id(), live=notifying(TOOL, context))
        sandbox = context.resources.get(Sandbox)
        reach = ProgramReach.of(params, context, sandbox.filesystem.root)
        # The changes of the call are rolled back when this function returns, so the command must have ended by then.
        return await outlast(run_in_thread(lambda: self._carry_out(params, reach, run, sandbox)), stop=run.stop)

    def _carry_out(
        self, params: ShellExecute, reach: ProgramReach, run: ProgramRun, sandbox: Sandbox
    ) -> ToolResult[ShellExecuted]:
        filesystem = sandbox.filesystem
        line, root = _checked(params.line), filesystem.root
        folder, start = place_of(params.folder, root)
        # Without its tokens: which files a line of the shell names is not known.
        fault = reach.fault(self.rule, (TOOL,), start)
        if fault is not None:
            raise ToolValidationError(f"{fault}.")
        try:
            running = sandbox.running()
        except SandboxError as error:
            # The machine is at fault, which only the developer can change.
            _log.error("the sandbox cannot be started: %s", error)
            raise ToolValidationError("The sandbox cannot be started here. Do without it.") from error
        # Before the command starts: afterwards it is not known which files it has changed.
        try:
            filesystem.keep_tree()
        except FilesystemError as error:
            raise ToolValidationError(f"The command was not started: {error}") from error
        program = Program(
            line=running.line(line, folder, has_input=bool(params.input)),
            folder=root,
            environment=running.environment,
            input=params.input.encode(),
            seconds=self.limits.timeout.total_seconds(),
            max_output_bytes=max(self.limits.max_output_bytes, self.limits.max_kept_bytes),
            errors_apart=True,
            namespace=running.namespace,
        )
        try:
            ended = run.carry_out(program, filesystem.programs)
        except OSError as error:
            raise ToolValidationError(f"The command cannot be run: {error.strerror}.") from error
        cause = _cause(ended, self.limits, is_lost=not running.is_running())
        return self._result_of(params, folder, ended, cause, reach)

    def _result_of(
        self, params: ShellExecute, folder: str, ended: ProgramExit, cause: str | None, reach: ProgramReach
    ) -> ToolResult[ShellExecuted]:
        commits = cause is None and ended.code in {*self.rule.commit_on, *reach.commit_on}
        value = ShellExecuted(
            params.command,
            folder,
            ended.code,
            ended.output,
            ended.errors,
            ended.left_out,
            ended.errors_left_out,
            "kept" if commits else "rolled back",
        )
        if commits:
            return ToolResult.ok(value)
        # Any other end fails the call, so that its changes are rolled back.
        undone = text_of(value.changes)
        if cause is None:
            hint = _MAY_BE_MEMORY if ended.code == _KILLED else ""
            return ToolResult.error(f"{end_of(value.name, ended.code)}.{hint}{undone}", value)
        if ended.left_running:
            raise EffectUncertain(f"{value.name} {cause}.{undone}")
        return ToolResult.error(f"{value.name} {cause}.{undone}", value)


def _cause(ended: ProgramExit, limits: SandboxLimits, *, is_lost: bool) -> str | None:
    """Why a call must fail whatever the exit code is, as the rest of a sentence; `None` if it need not."""
    if ended.left_running:
        return "has left processes that cannot be killed and may change files at any time"
    if ended.how == "timeout":
        return f"was killed, because it may take {limits.timeout.total_seconds():g} s and was not done"
    return "was killed, because its sandbox has ended" if is_lost or ended.how != "exited" else None


def _checked(line: tuple[str, ...]) -> tuple[str, ...]:
    if not line or not line[0] or (line[:2] == ("/bin/sh", "-c") and not line[2:][0].strip()):
        raise ToolValidationError('$.command: it is empty. Give a line for the shell: "ls -l".')
    # `execve` takes C strings, so a NUL would end the argument.
    if any("\0" in token for token in line):
        raise ToolValidationError("$.command: it holds a NUL character, which a command cannot. Leave it out.")
    # Where a command begins with a dash, what runs it takes it for an option of its own.
    if line[0].startswith("-"):
        raise ToolValidationError("$.command[0]: it begins with '-', which the name of a program does not.")
    return line
