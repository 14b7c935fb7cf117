"""The handler of the shell suite: makes a program of a model's request, and a result of its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from handrail.contrib.tools.shell.live_output import ProgramProgress, ToolNames
from handrail.contrib.tools.shell.path_guard import ProgramReach
from handrail.contrib.tools.shell.process import ProgramExit, ProgramRun
from handrail.contrib.tools.shell.rules import (
    ArgumentPath,
    Command,
    ProgramChanges,
    ShellRule,
    changes_of,
    end_of,
    format_command,
    match_command,
    text_of,
)
from handrail.errors import EffectUncertain, FilesystemError, ToolValidationError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.paths import below_root, normalise
from handrail.programs.program import Program
from handrail.prompt import ToolContext, ToolResult
from handrail.redaction import redacted_logger
from handrail.serde.formatting import count_noun
from handrail.session import stored_as
from handrail.waiting import outlast, run_in_thread

_log = redacted_logger("handrail")

_OPERATORS = frozenset({"|", "||", "&&", "&", ">", ">>", "<", "<<", "2>", "2>&1", "&>"})


_LONGEST_QUESTION = 500

# There is no terminal to read from, and the input ends after what the call has given: so no program waits for it.
_ASKED = (
    " It seems to have asked for input, and its input had ended. Give all answers as `input`, or an option that "
    "answers, such as --yes."
)


@stored_as("handrail.shell_run")
@dataclass(frozen=True, slots=True)
class ShellRun:
    """A request to run a program.

    Attributes:
        command: its bare name, and its arguments.
        folder: where it starts, relative to the root.
        input: what it reads from its input.
    """

    command: tuple[str, ...] = field(
        metadata={"description": "The name of the program, then each argument as a string of its own."}
    )
    folder: str = field(default=".", metadata={"description": "The folder to start in, such as 'notes'."})
    input: str = field(default="", metadata={"description": "What the program reads from its standard input."})


@stored_as("handrail.program_ended")
@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """A program has ended.

    Attributes:
        command: its bare name, and its arguments.
        folder: where it was started.
        code: its exit code; negative for the signal that killed it.
        output: its output and error output, of which the model is shown the beginning and the end.
        left_out: how many bytes in the middle of it are left out.
        changes: whether its changes in the folder are kept.
    """

    command: tuple[str, ...]
    folder: str
    code: int
    output: str
    left_out: int = 0
    changes: ProgramChanges = "none"

    def render(self) -> str:
        """Its output, after the exit code if it is not 0 and the changes are kept all the same."""
        output = self.output or f"{self.command[0]} wrote nothing."
        if not self.code or self.changes != "kept":
            return output
        return f"{end_of(self.command[0], self.code)}.{text_of(self.changes)}\n{output}"


@dataclass(frozen=True, slots=True)
class ShellSettings:
    """How programs run.

    Attributes:
        seconds: how long one may take.
        max_kept_bytes: how much of its output the result holds.
        environment: its environment.
        new_id: makes the random id by which the processes of a program are found.
    """

    seconds: float
    max_kept_bytes: int
    environment: Mapping[str, str]
    new_id: Callable[[], str]


@dataclass(frozen=True, slots=True)
class ShellHandler:
    """Runs programs over one folder.

    Attributes:
        root: where programs run, without links.
        filesystem: rolls back their changes there; `None` for a plain folder.
        rules: what may be run.
        programs: where the programs are; `None` for one that is not installed.
        terms: how they run.
    """

    root: Path
    filesystem: HostFilesystem | None
    rules: tuple[ShellRule, ...]
    programs: Mapping[str, str | None]
    terms: ShellSettings

    async def run(self, params: ShellRun, *, context: ToolContext) -> ToolResult[ProgramEnded]:
        """Run a program on a thread of its own; when the call is cancelled the program is killed, and waited for."""
        # Made before the thread starts, so that a cancellation finds it even if the program has not been started yet.
        run = ProgramRun(context.clock, self.terms.new_id(), live=notifying("shell_run", context))
        reach = ProgramReach.of(params, context, self.root)
        # The changes of the call are rolled back when this function returns, so the program must have ended by then.
        return await outlast(run_in_thread(lambda: self._carry_out(params, reach, run)), stop=run.stop)

    def _carry_out(self, params: ShellRun, reach: ProgramReach, run: ProgramRun) -> ToolResult[ProgramEnded]:
        command = _checked(params.command)
        path, place = place_of(params.folder, self.root)
        rule = match_command(self.rules, command, place, reach.fault)
        program = self.programs[rule.program]
        if program is None:
            raise ToolValidationError(f"{rule.program} may be run, but it is not installed here. Do without it.")
        # By its absolute path, found when the section was made; `PATH` of the environment is not searched again.
        line = (program, *rule.line(command)[1:])
        terms = self.terms
        # Before the program starts: afterwards it is not known which files it has changed.
        if self.filesystem is not None and not rule.reads:
            try:
                self.filesystem.keep_tree()
            except FilesystemError as error:
                raise ToolValidationError(f"{command[0]} was not started: {error}") from error
        try:
            ended = run.carry_out(
                Program(
                    line=line,
                    folder=place.folder,
                    environment=terms.environment,
                    input=params.input.encode(),
                    seconds=terms.seconds,
                    max_output_bytes=terms.max_kept_bytes,
                ),
                None if self.filesystem is None else self.filesystem.programs,
            )
        except OSError as error:
            raise ToolValidationError(f"{command[0]} cannot be run: {error.strerror}.") from error
        succeeds = ended.code in {*rule.commit_on, *reach.commit_on}
        commits = ended.how == "exited" and succeeds and not ended.left_running
        changes = changes_of(rule, commits=commits, has_filesystem=self.filesystem is not None)
        value = ProgramEnded(command, path, ended.code, ended.output, ended.left_out, changes)
        return self._result_of(value, ended, rule, commits=commits)

    def _result_of(
        self, value: ProgramEnded, ended: ProgramExit, rule: ShellRule, *, commits: bool
    ) -> ToolResult[ProgramEnded]:
        if commits:
            return ToolResult.ok(value)
        # Any other end fails the call, so that its changes are rolled back.
        name, undone = value.command[0], text_of(value.changes)
        asked = _ASKED if _asks(ended.output) else ""
        if ended.how == "exited" and not ended.left_running:
            return ToolResult.error(f"{end_of(name, ended.code)}.{asked}{undone}", value)
        # For a program that was stopped this message is not shown: `run` raises the cancellation.
        message = f"{name} {_cause(ended, self.terms.seconds)}.{asked}{undone}"
        if rule.reads:
            return ToolResult.error(message, value)
        # A program that was killed may have had an effect outside, which the rollback does not undo.
        raise EffectUncertain(f"{message}\n{value.render()}")


def _checked(command: Command) -> Command:
    if not command:
        raise ToolValidationError('$.command: it is empty. Give a program and its arguments: ["ls", "-l"].')
    # A name with spaces is a whole shell line as one token, such as "ls -l".
    if any(character.isspace() for character in command[0]):
        tokens = ", ".join(f'"{token}"' for token in command[0].split()[:5])
        raise ToolValidationError(
            f"$.command[0]: {format_command(command[0])} is a whole line, and there is no shell to take it apart. Give "
            "each "
            f"argument as a string of its own: [{tokens}]."
        )
    # A path would bypass the rules: they name programs, and `PATH` alone decides which file that is.
    if "/" in command[0]:
        raise ToolValidationError(
            f"$.command[0]: {format_command(command[0])} is a path. Give the bare name of a program: "
            f"{format_command(command[0].rpartition('/')[2])}."
        )
    for number, token in enumerate(command):
        if token in _OPERATORS:
            raise ToolValidationError(
                f"$.command[{number}]: {token!r} means nothing here, because there is no shell: run one program a "
                "call, and use `input` for what it reads. A pattern may be written '[|]'."
            )
        # `execve` takes C strings, so a NUL would end the argument.
        if "\0" in token:
            raise ToolValidationError(
                f"$.command[{number}]: it holds a NUL character, which an argument cannot. Leave it out."
            )
    return command


def place_of(folder: str, root: Path) -> tuple[str, ArgumentPath]:
    """The folder that a command names, in its shortest form, and its location.

    Args:
        folder: relative to the root.
        root: where programs run, without links.

    Raises:
        ToolValidationError: there is no such folder, or it is not inside the root.
    """
    try:
        path = normalise(below_root(folder, (os.fspath(root),)))
    except FilesystemError as error:
        raise ToolValidationError(f"$.folder: {error}") from error
    # The check below needs the real path, because a link in the folder may lead out of the root.
    real = Path(os.path.realpath(root / path))
    if not real.is_relative_to(root):
        raise ToolValidationError(
            f"$.folder: {format_command(path)} is or goes through a link that leads out of the root. Give another "
            "folder."
        )
    if not real.is_dir():
        raise ToolValidationError(f"$.folder: there is no folder {format_command(path)}. Give one that exists.")
    return path, ArgumentPath(root, real)


def _asks(output: str) -> bool:
    """Whether a program seems to have asked a question: its output ends in the middle of a line, as a prompt does."""
    last = output[-_LONGEST_QUESTION:].rpartition("\n")[2].rstrip(" ")
    return last.endswith(("?", ":", "]", ")", ">")) or "EOFError" in output[-_LONGEST_QUESTION:]


def notifying(name: str, context: ToolContext) -> Callable[[str, float], object] | None:
    """Notifies the subscribers of the session of what a program writes, on the event loop; `None` without any.

    Args:
        name: the name of the tool in its section.
        context: the context of the call.
    """
    dispatcher, loop = context.session.dispatcher, asyncio.get_running_loop()
    if not dispatcher.listens(ProgramProgress):
        return None
    names = context.resources.get(ToolNames, None)
    tool = name if names is None else f"{names.prefix}{name}"

    def dispatch(event: ProgramProgress) -> None:
        try:
            dispatcher.dispatch(event)
        except Exception:  # noqa: BLE001 - logged, because a subscriber must not fail the call
            _log.exception("a subscriber of the output of %s failed", tool)

    def notify(text: str, quiet_seconds: float) -> None:
        event = ProgramProgress(context.reply, context.call_id, tool, text, quiet_seconds)
        with suppress(RuntimeError):  # the loop was closed: no task waits for the call
            loop.call_soon_threadsafe(dispatch, event)

    return notify


def _cause(ended: ProgramExit, seconds: float) -> str:
    """Why it is not known what a program has done."""
    if ended.left_running:
        left = count_noun(ended.left_running, "process", "processes")
        return f"has started {left} that cannot be killed and may change files at any time"
    if ended.how == "lost":
        return "has ended, and how is not known: something else in this process has waited for it"
    return f"was killed, because it may take {seconds:g} s and was not done"
