"""The shell suite: one tool that runs programs in a folder, as far as rules allow, and the guidance for it.

`rules` decides when the command runs and not when it is approved; `process` runs and ends a program.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from handrail.contrib import about, also_bound, environment_faults, example, limit_faults, suite_tool, timeout_faults
from handrail.contrib.tools.shell.process import ProgramExit, ProgramRun, run_over
from handrail.contrib.tools.shell.rules import (
    ArgumentPath,
    Command,
    ProgramChanges,
    ProgramReach,
    ShellRule,
    describe_changes,
    describe_end,
    describe_rules,
    format_command,
    match_command,
    parse_shell_rules,
)
from handrail.errors import (
    DryRunEndedError,
    EffectUncertain,
    FilesystemError,
    PromptValidationError,
    ToolValidationError,
)
from handrail.filesystem import HostFilesystem
from handrail.filesystem.paths import below_root, normalise
from handrail.programs import Program
from handrail.prompt import External, Section, Tool, ToolContext, ToolResult
from handrail.prompt.tool_declaration import MIN_RESULT_CHARS
from handrail.prompt.undo import FILES_ALONE
from handrail.serde.formatting import count_noun
from handrail.session import stored_as
from handrail.waiting import await_shielded, run_in_thread

# Not the `PATH` of this process: it may have relative folders, or ones that the user of the process can write to.
PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Where programs are searched for, unless `environment` says otherwise."""

MAX_KEPT_BYTES = 1_000_000
"""How much of the output of a program its result holds by default: a build log, and not a stream without end."""

_TEXT = """\
Run programs with `shell_run`, one program a call. There is no shell: give the name of the program and each argument as
a string of its own. Quotes, `*`, `$`, `|` and `>` mean nothing but what the program itself makes of them.

**What may be run**

{allowed}

**Rules**

- A program starts in `folder`, and paths are relative to it.{confined}
- Give the value of an option as the next string: `"-n", "5"`. Options of one letter may be joined: `-la`.
- A program that ends with another exit code than 0 has failed; some say so that they have found nothing.
- No person answers a program, and there is no terminal. It reads `input`, and then the end of its input.
- A program may take {seconds:g} s. Whatever it leaves running is killed. Of a long output the middle is left
  out, and the message says how it is read.
{undoing}"""

_CONFINED = " Absolute paths, `..` and links that lead out are refused."

_UNDONE = """\
- What a program that fails has changed in the folder is undone. What it has done in `.git`, and in large folders that
  git ignores, is not undone, but the message names it. What it does outside is neither undone nor named."""

_NOT_UNDONE = "- Nothing that a program does is undone, also if it fails: look before you run it again."

_NOTHING = "- Nothing: every program is refused. Do without."

_ONLY_READS = "- Nothing is ever changed here: these programs only look."

_LOST = "has ended, and how is not known: something else in this process has waited for it"

_KILLED = 137  # 128 and SIGKILL, as shells report it
_MAY_BE_MEMORY = " Something has killed it: it may have taken more memory than there is."

_OPERATORS = frozenset({"|", "||", "&&", "&", ">", ">>", "<", "<<", "2>", "2>&1", "&>"})


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
        metadata=about("The name of the program, then each argument as a string of its own.")
    )
    folder: str = field(default=".", metadata=about("The folder to start in, such as 'notes'."))
    input: str = field(default="", metadata=about("What the program reads from its standard input."))


@stored_as("handrail.program_ended")
@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """A program or a command in a sandbox has ended.

    Attributes:
        command: its tokens; or a line for the shell of a sandbox.
        code: its exit code; negative for the signal that killed it, and 128 and the signal in a sandbox.
        output: its output and error output, of which the model is shown the beginning and the end.
        left_out: how many bytes in the middle of it are left out.
    """

    command: str | tuple[str, ...]
    folder: str
    code: int
    output: str
    left_out: int = 0
    changes: ProgramChanges = "none"

    @property
    def name(self) -> str:
        """The name of the program in messages."""
        return "The command" if isinstance(self.command, str) else self.command[0]

    def render(self) -> str:
        """Its output, after the exit code if it is not 0 and the changes are kept all the same."""
        output = self.output or f"{self.name} wrote nothing."
        if not self.code or self.changes != "kept":
            return output
        return f"{describe_end(self.name, self.code)}.{describe_changes(self.changes)}\n{output}"


@dataclass(frozen=True, kw_only=True, eq=False)
class ShellToolsSection(Section[None]):
    """A section with a tool that runs programs: `ShellToolsSection(filesystem, allow=[("make", "test"), *READING])`.

    There is no shell. A command that no rule allows is refused, so without rules nothing is allowed. A program runs in
    the folder or one below it, with an environment of its own, and everything it has started is killed when it ends.

    Over a `HostFilesystem` a program's changes in the folder are rolled back if it fails, or if the call does. Over a
    plain folder nothing on disk is rolled back. Changes outside the folder are rolled back in neither case.

    Attributes:
        folder: where programs run: a folder, or the `HostFilesystem` over it, which the section then binds.
        allow: what may be run: rules, or the tokens that a command must begin with. Programs are searched for only
            when the section is made.
        timeout: how long a program may take; then it is killed, and the call fails.
        max_output_bytes: how much of its output the model is shown: the beginning and the end. Less than 1,000 is as
            1,000.
        max_kept_bytes: how much of a longer output the result holds, so that `read_result` reads it.
        environment: added to the environment of every program, which is `PATH`, `LANG` and settings that confine git to
            the folder. `PATH` is also where programs are searched for.
        missing: the programs that rules allow, and that are not installed; the guidance leaves them out.

    Raises:
        DuplicateBindingError: `resources` binds a `HostFilesystem` too.
        PromptValidationError: a declaration is invalid; the message names every fault.
    """

    folder: str | os.PathLike[str] | HostFilesystem = field(kw_only=False)
    allow: Sequence[ShellRule | Sequence[str]] = ()
    timeout: timedelta = timedelta(seconds=60)
    max_output_bytes: int = 20_000
    max_kept_bytes: int = MAX_KEPT_BYTES
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    accepts_overrides: bool = False
    title: str = "Programs"
    key: str = "shell"
    tools: Sequence[Tool[Any, Any]] = field(init=False)
    missing: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        shell = self._shell()
        set_field(self, "allow", shell.rules)
        # Not a fault: a rule for a program that is not installed permits nothing.
        set_field(self, "missing", frozenset(name for name, path in shell.programs.items() if path is None))
        set_field(self, "environment", dict(self.environment))
        # The example must be a command that is allowed; a prefix with globs is not a command.
        plain = (rule.prefix for rule in shell.rules if not any(set(token) & set("*?[") for token in rule.prefix))
        command = next(plain, ("ls",))
        tool = suite_tool(
            shell.run,
            "Run one program and show what it writes. There is no shell: give name and arguments apart.",
            example(
                "Run a program in a folder", ShellRun(command, "notes"), ProgramEnded(command, "notes", 0, "plan.md\n")
            ),
            name="shell_run",
            effect=External(repeat_unknown="allow"),  # before a repetition, another command can show what happened
            undo=FILES_ALONE if isinstance(self.folder, HostFilesystem) else None,
            preview=shell.preview,
            max_result_chars=max(self.max_output_bytes, MIN_RESULT_CHARS),
            accepts_overrides=self.accepts_overrides,
        )
        set_field(self, "tools", (tool,))
        if shell.filesystem is not None:
            # Bound, so that it takes part in the transactions of calls: its changes are then rolled back with them.
            set_field(self, "resources", also_bound(self.resources, {HostFilesystem: shell.filesystem}))
        Section.__post_init__(self)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance: the commands that may run, and whether their changes are rolled back."""
        rules = cast("tuple[ShellRule, ...]", self.allow)  # `__post_init__` has made it so
        there = tuple(rule for rule in rules if rule.program not in self.missing)
        undone = _UNDONE if isinstance(self.folder, HostFilesystem) else _NOT_UNDONE
        return _TEXT.format(
            allowed="\n".join(f"- {line}" for line in describe_rules(there)) or _NOTHING,
            confined=_CONFINED if any(rule.confined for rule in there) else "",
            seconds=self.timeout.total_seconds(),
            undoing=_ONLY_READS if all(rule.reads for rule in there) else undone,
        )

    def _shell(self) -> ShellHandler:
        faults: list[str] = []
        filesystem = self.folder if isinstance(self.folder, HostFilesystem) else None
        root: Path = Path()
        rules: tuple[ShellRule, ...] = ()
        try:
            # Resolved once: rules compare real paths with it, and a link that is changed later must not move the root.
            root = filesystem.root if filesystem else Path(cast("str", self.folder)).resolve(strict=True)
            if not root.is_dir():
                faults.append(f"folder {str(root)!r} is not a folder; give one, or a HostFilesystem over one")
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            text = "give a folder, or a HostFilesystem over one"
            faults.append(f"folder {self.folder!r} cannot be used ({error}); {text}")
        try:
            rules = parse_shell_rules(self.allow)
        except PromptValidationError as error:
            faults.append(str(error))
        faults += timeout_faults(self.timeout, usual=60)
        faults += limit_faults("max_output_bytes", self.max_output_bytes, unit="bytes")
        faults += limit_faults("max_kept_bytes", self.max_kept_bytes, unit="bytes")
        faults += environment_faults(self.environment)
        if faults:
            raise PromptValidationError("; ".join(faults), section_path=(self.key,))
        environment = _environment(root) | dict(self.environment)
        # Searched for once: a file that is put on the `PATH` later is not run in place of the one that was found now.
        programs = {rule.program: shutil.which(rule.program, path=environment["PATH"]) for rule in rules}
        most_bytes = max(self.max_output_bytes, self.max_kept_bytes)
        return ShellHandler(root, filesystem, rules, programs, self.timeout.total_seconds(), most_bytes, environment)


def _environment(root: Path) -> dict[str, str]:
    return {
        "PATH": PROGRAM_PATH,
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        # Without it, git would search the parents of the root for a repository.
        "GIT_CEILING_DIRECTORIES": os.fspath(root.parent),
        "GIT_NO_LAZY_FETCH": "1",
        # `git status` would otherwise write to the index, so a command that only reads would change the folder.
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }


@dataclass(frozen=True, slots=True)
class ShellHandler:
    """Runs programs over one folder."""

    root: Path
    filesystem: HostFilesystem | None
    rules: tuple[ShellRule, ...]
    programs: Mapping[str, str | None]
    seconds: float
    max_kept_bytes: int
    environment: Mapping[str, str]

    async def run(self, params: ShellRun, *, context: ToolContext) -> ToolResult[ProgramEnded]:
        """Runs a program."""
        reach = ProgramReach.from_call(context, self.root)
        return await run_in_call(context, lambda run: self._carry_out(params, reach, run))

    async def preview(self, params: ShellRun, *, context: ToolContext) -> ToolResult[ProgramEnded]:
        """Runs a program that only reads, in a dry run; any other may act outside, so `DryRunEndedError`."""
        reach = ProgramReach.from_call(context, self.root)
        return await run_in_call(context, lambda run: self._carry_out(params, reach, run, only_reads=True))

    def _carry_out(
        self, params: ShellRun, reach: ProgramReach, run: ProgramRun, *, only_reads: bool = False
    ) -> ToolResult[ProgramEnded]:
        command = _checked(params.command)
        path, place = resolve_folder(params.folder, self.root)
        rule = match_command(self.rules, command, place, reach.fault)
        if only_reads and not rule.reads:
            raise DryRunEndedError(
                f"{format_command(' '.join(command))} may act outside, as any program", tool="shell_run"
            )
        if (executable := self.programs[rule.program]) is None:
            raise ToolValidationError(f"{rule.program} may be run, but it is not installed here. Do without it.")
        program = Program(
            # By its absolute path, found when the section was made; `PATH` of the environment is not searched again.
            line=(executable, *rule.line(command)[1:]),
            folder=place.folder,
            environment=self.environment,
            input=params.input.encode(),
            seconds=self.seconds,
            max_output_bytes=self.max_kept_bytes,
        )
        end = run_over(self.filesystem, run, program, name=command[0], reads=rule.reads)
        cause = failure_cause(end, self.seconds, loss=_LOST)
        commits = cause is None and end.code in rule.commit_on
        undone: ProgramChanges = "not rolled back" if self.filesystem is None else "rolled back"
        changes = "none" if rule.reads else "kept" if commits else undone
        value = ProgramEnded(command, path, end.code, end.output, end.left_out, changes)
        return ToolResult.ok(value) if commits else failure_result(value, end, cause, is_certain=rule.reads)


async def run_in_call(
    context: ToolContext, carry_out: Callable[[ProgramRun], ToolResult[ProgramEnded]]
) -> ToolResult[ProgramEnded]:
    """Runs a program on a thread of its own; a cancellation kills the program and waits for it."""
    # Made before the thread starts, so that a cancellation finds it even if the program has not been started yet.
    run = ProgramRun(context.clock, uuid4().hex)
    # The changes of the call are rolled back when this function returns, so the program must have ended by then.
    return await await_shielded(run_in_thread(lambda: carry_out(run)), stop=run.stop)


def _checked(command: Command) -> Command:
    if not command:
        raise ToolValidationError('$.command: it is empty. Give a program and its arguments: ["ls", "-l"].')
    # A name with spaces is a whole shell line as one token, such as "ls -l".
    if any(character.isspace() for character in command[0]):
        tokens = ", ".join(f'"{token}"' for token in command[0].split()[:5])
        raise ToolValidationError(
            f"$.command[0]: {format_command(command[0])} is a whole line, and there is no shell to take it apart. Give "
            f"each argument as a string of its own: [{tokens}]."
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


def resolve_folder(folder: str, root: Path) -> tuple[str, ArgumentPath]:
    """The folder that a command names, in its shortest form, and its location."""
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


def failure_cause(end: ProgramExit, seconds: float, *, loss: str) -> str | None:
    """The reason for a failure whatever the exit code is, as the rest of a sentence; else `None`."""
    if end.left_running:
        survivors = count_noun(end.left_running, "process", "processes")
        return f"has started {survivors} that cannot be killed and may change files at any time"
    if end.how == "timeout":
        return f"was killed, because it may take {seconds:g} s and was not done"
    # For a program that was stopped this is not shown: `run` raises the cancellation.
    return None if end.how == "exited" else loss


def failure_result(
    value: ProgramEnded, end: ProgramExit, cause: str | None, *, is_certain: bool
) -> ToolResult[ProgramEnded]:
    """The result of a call that fails, so that the changes of its program are rolled back.

    Raises:
        EffectUncertain: it was killed, and it is not certain what it has done.
    """
    undone = describe_changes(value.changes)
    if cause is None:
        hint = _MAY_BE_MEMORY if end.code == _KILLED else ""
        return ToolResult.error(f"{describe_end(value.name, end.code)}.{hint}{undone}", value)
    if is_certain and not end.left_running:
        return ToolResult.error(f"{value.name} {cause}.{undone}", value)
    raise EffectUncertain(f"{value.name} {cause}.{undone}\n{value.render()}")
