"""The handler of the sandbox suite: makes a program of a model's request, and a result of its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from handrail.contrib.tools.sandbox.execution import ShellExecute, ShellExecuted
from handrail.contrib.tools.sandbox.git_guard import GitGuard
from handrail.contrib.tools.sandbox.limits import SandboxLimits
from handrail.contrib.tools.sandbox.sandbox import Sandbox
from handrail.contrib.tools.sandbox.workspace_watch import WorkspaceWatch
from handrail.contrib.tools.shell.handler import notifying, place_of
from handrail.contrib.tools.shell.outcome import end_of, text_of
from handrail.contrib.tools.shell.path_guard import ProgramReach
from handrail.contrib.tools.shell.process import ProgramExit, ProgramRun
from handrail.contrib.tools.shell.rules import ShellRule
from handrail.errors import EffectUncertain, FilesystemError, SandboxError, ToolValidationError
from handrail.filesystem.shadow.watch import UnrestoredWatch
from handrail.programs.program import Program, processes_of
from handrail.prompt import ToolContext, ToolResult
from handrail.redaction import redacted_logger
from handrail.runtime.execution import run_stoppable

_log = redacted_logger("handrail")

TOOL = "shell_execute"
"""The name of the tool."""

_KILLED = 137  # 128 and SIGKILL, as shells report it
_MAY_BE_MEMORY = " Something has killed it: it may have taken more memory than there is."


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
        call = self.new_id()
        run = ProgramRun(context.clock, call, live=notifying(TOOL, context))
        sandbox = context.resources.get(Sandbox)
        reach = ProgramReach.of(params, context, sandbox.filesystem.root)
        # The changes of the call are rolled back when this function returns, so the command must have ended by then.
        return await run_stoppable(lambda: self._carry_out(params, reach, run, _Place(sandbox, call)), run.stop)

    def _carry_out(
        self, params: ShellExecute, reach: ProgramReach, run: ProgramRun, place: _Place
    ) -> ToolResult[ShellExecuted]:
        filesystem = place.sandbox.filesystem
        line, root = _checked(params.line), filesystem.root
        folder, start = place_of(params.folder, root)
        # Without its tokens: which files a line of the shell names is not known.
        fault = reach.fault(self.rule, (TOOL,), start)
        if fault is not None:
            raise ToolValidationError(f"{fault}.")
        try:
            running = place.sandbox.running()
        except SandboxError as error:
            # The machine is at fault, which only the developer can change.
            _log.error("the sandbox cannot be started: %s", error)
            raise ToolValidationError("The sandbox cannot be started here. Do without it.") from error
        # Before the command starts: afterwards it is not known which files it has changed.
        try:
            unrestored = filesystem.keep_tree()
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
        tenants = partial(processes_of, place.call, running.namespace)
        watch = WorkspaceWatch(root, self.limits.max_workspace_bytes, run.stop, tenants, now=time.time_ns())
        guard = GitGuard(root)
        try:
            ended = run.carry_out(program, filesystem.programs, watch)
        except OSError as error:
            raise ToolValidationError(f"The command cannot be run: {error.strerror}.") from error
        finally:
            made = guard.fault()
        is_lost = ended.how == "exited" and not running.is_running()
        return self._result_of(params, folder, ended, _Faults(watch.fault or made, unrestored, is_lost), reach)

    def _result_of(
        self, params: ShellExecute, folder: str, ended: ProgramExit, faults: _Faults, reach: ProgramReach
    ) -> ToolResult[ShellExecuted]:
        cause = faults.cause(ended, self.limits)
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
            () if commits else tuple(change.sentence for change in faults.unrestored.changes()),
        )
        if commits:
            return ToolResult.ok(value)
        # Any other end fails the call, so that its changes are rolled back.
        undone = text_of(value.changes, value.not_restored)
        if cause is None:
            hint = _MAY_BE_MEMORY if ended.code == _KILLED else ""
            return ToolResult.error(f"{end_of(value.name, ended.code)}.{hint}{undone}", value)
        if ended.left_running:
            raise EffectUncertain(f"{value.name} {cause}.{undone}")
        return ToolResult.error(f"{value.name} {cause}.{undone}", value)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a call runs its command.

    Attributes:
        sandbox: the sandbox of the run.
        call: the random id by which the processes of the command are found.
    """

    sandbox: Sandbox
    call: str


@dataclass(frozen=True, slots=True)
class _Faults:
    """What is known of a command beside its end.

    Attributes:
        workspace: what is wrong with the workspace.
        unrestored: what a rollback does not restore.
        is_lost: whether the sandbox has ended meanwhile.
    """

    workspace: str | None
    unrestored: UnrestoredWatch
    is_lost: bool

    def cause(self, ended: ProgramExit, limits: SandboxLimits) -> str | None:
        """Why a call must fail whatever the exit code is, as the rest of a sentence; `None` if it need not."""
        if ended.left_running:
            return "has left processes that cannot be killed and may change files at any time"
        if self.workspace is not None:
            return f"has failed, because {self.workspace}"
        if ended.how == "timeout":
            return f"was killed, because it may take {limits.timeout.total_seconds():g} s and was not done"
        if ended.how != "exited":
            return "was killed"
        return "was killed, because its sandbox has ended" if self.is_lost else None


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
