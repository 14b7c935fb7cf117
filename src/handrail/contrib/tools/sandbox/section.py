"""The sandbox suite: one tool that runs commands in a sandbox, the file tools over the same files, and the guidance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handrail.contrib import about, also_bound, environment_faults, example, suite_tool
from handrail.contrib.tools.sandbox.engine import Sandbox, SandboxEngine, SandboxLimits, SandboxWorkspace
from handrail.contrib.tools.sandbox.podman import Podman
from handrail.contrib.tools.shell.process import ProgramRun, run_over
from handrail.contrib.tools.shell.rules import ProgramChanges, ProgramReach, ShellRule
from handrail.contrib.tools.shell.section import (
    ProgramEnded,
    failure_cause,
    failure_result,
    resolve_folder,
    run_in_call,
)
from handrail.contrib.tools.vfs.section import VfsToolsSection
from handrail.errors import PromptValidationError, SandboxError, ToolValidationError
from handrail.filesystem import HostFilesystem
from handrail.programs import Program
from handrail.prompt import External, ReadBeforeWritePolicy, Section, Tool, ToolContext, ToolPolicy, ToolResult
from handrail.prompt.tool_declaration import MIN_RESULT_CHARS
from handrail.prompt.undo import FILES_ALONE
from handrail.redaction import redacted_logger
from handrail.resources import Binding
from handrail.session import stored_as

_log = redacted_logger("handrail")

TOOL = "shell_execute"
"""The name of the tool."""

_LOST = "was killed, because its sandbox has ended"

_TEXT = """\
Run commands with `shell_execute`, in a sandbox: a system apart, of which only the files in `/workspace` stay.

- `command` is a line for the shell, or a list of a program and its arguments. It starts in `/workspace`, or in `folder`
  below it.
- {network} Only `/workspace` and `/tmp` can be written to, and `/workspace/.git` cannot.
- A command may take {seconds:g} s, {memory:,} MiB of memory and {processes} processes. Whatever it leaves running is
  killed.
- No person answers a command, and there is no terminal. It reads `input`, and then the end of its input.
- A command that ends with another exit code than 0 has failed: what it has changed in `/workspace` is undone.
- Of a long output the middle is left out, and the message says how it is read."""

_NO_NETWORK = "There is no network, and no package can be installed."
_NETWORK = "There is a network. What a command does outside is not undone."


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
        metadata=about("A line for `sh -c`, or a list of a program and its arguments, which no shell reads.")
    )
    folder: str = field(default=".", metadata=about("The folder to start in, such as 'notes'."))
    input: str = field(default="", metadata=about("What the command reads from its standard input."))

    @property
    def line(self) -> tuple[str, ...]:
        """The program inside, and its arguments."""
        return ("/bin/sh", "-c", self.command) if isinstance(self.command, str) else self.command


@dataclass(frozen=True, kw_only=True, eq=False)
class SandboxSection(Section[None]):
    """A section with a tool that runs commands in a sandbox: `SandboxSection(filesystem, engine=Bubblewrap())`.

    The folder of the filesystem is `/workspace` inside. What a command changes there is rolled back if it fails, or if
    the call does. The sandbox starts with the first command of a run, and is closed with the resources of the run.

    The root's `.git` is read-only inside; where there is none, an empty folder is made.

    Attributes:
        environment: added to the environment of commands, which has nothing of this process's own.
        reads_everything: whether commands may read files of the workspace that a run of an agent keeps from its tools.
        file_policies: judge the calls of the file tools; by default a file must be read before it is written to or
            removed.

    Raises:
        DuplicateBindingError: `resources` binds a `HostFilesystem` or `Sandbox` too.
        PromptValidationError: a declaration is invalid, or what makes the sandbox is not installed; the message names
            every fault, and what cures it.
    """

    filesystem: HostFilesystem = field(kw_only=False)
    engine: SandboxEngine
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    reads_everything: bool = False
    file_tools: bool = True
    file_policies: Sequence[ToolPolicy] = field(default_factory=lambda: (ReadBeforeWritePolicy(),))
    accepts_overrides: bool = False
    title: str = "Sandbox"
    key: str = "sandbox"
    tools: Sequence[Tool[Any, Any]] = field(init=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        if faults := self._faults():
            raise PromptValidationError("; ".join(faults), section_path=(self.key,))
        set_field(self, "environment", dict(self.environment))
        rule = ShellRule((TOOL,), reads_everything=self.reads_everything)
        outside = self.engine.reaches_network
        tool = sandbox_tool(self.limits, rule, outside=outside, accepts_overrides=self.accepts_overrides)
        set_field(self, "tools", (tool,))
        if self.file_tools:
            set_field(self, "children", (VfsToolsSection(self.filesystem, policies=self.file_policies), *self.children))
        # By a provider, so that each run has a sandbox of its own, and closes it.
        sandbox = Binding(Sandbox, lambda _: Sandbox(self.engine, self.filesystem, self._workspace()))
        set_field(self, "resources", also_bound(self.resources, {HostFilesystem: self.filesystem, Sandbox: sandbox}))
        Section.__post_init__(self)

    def render_body(self, params: None) -> str:  # noqa: ARG002 - the section has no parameters
        """The guidance: the sandbox, and the limits."""
        return _TEXT.format(
            network=_NETWORK if self.engine.reaches_network else _NO_NETWORK,
            seconds=self.limits.timeout.total_seconds(),
            memory=self.limits.memory_bytes // 1024 // 1024,
            processes=self.limits.processes,
        )

    def _workspace(self) -> SandboxWorkspace:
        return SandboxWorkspace(self.filesystem.root, self.limits, self.environment)

    def _faults(self) -> Sequence[str]:
        faults = [*self.limits.faults(), *environment_faults(self.environment)]
        try:
            self.engine.check()
            if not faults:  # now, so that no call is seen to make it
                self._workspace().git(self.engine.name)
        except SandboxError as error:
            faults.append(str(error))
        return faults


@dataclass(frozen=True, kw_only=True, eq=False)
class PodmanSandboxSection(SandboxSection):
    """A `SandboxSection` whose sandbox is a container: `PodmanSandboxSection(filesystem, image="docker.io/python")`.

    Attributes:
        image: the image, which must be there; see `Podman`, of which `engine` is made.
    """

    image: str
    podman: tuple[str, ...] = ("podman",)
    network: str = "none"
    engine: SandboxEngine = field(init=False)

    def __post_init__(self) -> None:
        engine = Podman(image=self.image, command=tuple(self.podman), network=self.network)
        object.__setattr__(self, "engine", engine)
        SandboxSection.__post_init__(self)


ANY_COMMAND = ShellRule((TOOL,))
"""The default rule of every command."""


def sandbox_tool(
    limits: SandboxLimits, rule: ShellRule = ANY_COMMAND, *, outside: bool = False, accepts_overrides: bool = False
) -> Tool[Any, Any]:
    """The tool of the section, for commands with the limits and the rule of `SandboxHandler`."""
    return suite_tool(
        SandboxHandler(limits, rule, outside).run,
        "Run a command in the sandbox and show what it writes.",
        example(
            "Run a line of the shell in a folder",
            ShellExecute("ls | sort > names.txt && cat names.txt", "notes"),
            ProgramEnded("ls | sort > names.txt && cat names.txt", "notes", 0, "names.txt\nplan.md\n"),
        ),
        example(
            "Run a program with arguments that no shell reads",
            ShellExecute(("grep", "-c", "$HOME", "plan.md")),
            ProgramEnded(("grep", "-c", "$HOME", "plan.md"), ".", 0, "1\n"),
        ),
        name=TOOL,
        # Without a network all effects are in the workspace, and are rolled back.
        effect=External(repeat_unknown="allow") if outside else "state",
        undo=FILES_ALONE if outside else None,
        max_result_chars=max(limits.max_output_bytes, MIN_RESULT_CHARS),
        accepts_overrides=accepts_overrides,
    )


@dataclass(frozen=True, slots=True)
class SandboxHandler:
    """Runs commands in the sandbox of the run.

    Attributes:
        rule: whether a command may read what other tools may not.
        outside: whether commands may have effects outside, by a network.
    """

    limits: SandboxLimits
    rule: ShellRule
    outside: bool

    async def run(self, params: ShellExecute, *, context: ToolContext) -> ToolResult[ProgramEnded]:
        """Runs a command."""
        sandbox = context.resources.get(Sandbox)
        reach = ProgramReach.from_call(context, sandbox.filesystem.root)
        return await run_in_call(context, lambda run: self._carry_out(params, reach, run, sandbox))

    def _carry_out(
        self, params: ShellExecute, reach: ProgramReach, run: ProgramRun, sandbox: Sandbox
    ) -> ToolResult[ProgramEnded]:
        filesystem = sandbox.filesystem
        line, root = _checked(params.line), filesystem.root
        folder, start = resolve_folder(params.folder, root)
        # Without its tokens: which files a line of the shell names is not known.
        if (fault := reach.fault(self.rule, (TOOL,), start)) is not None:
            raise ToolValidationError(f"{fault}.")
        try:
            running = sandbox.running()
        except SandboxError as error:
            # The machine is at fault, which only the developer can change.
            _log.error("the sandbox cannot be started: %s", error)
            raise ToolValidationError("The sandbox cannot be started here. Do without it.") from error
        program = Program(
            line=running.line(line, folder, params.input),
            folder=root,
            environment=running.environment,
            input=params.input.encode(),
            seconds=self.limits.timeout.total_seconds(),
            max_output_bytes=max(self.limits.max_output_bytes, self.limits.max_kept_bytes),
            namespace=running.namespace,
        )
        end = run_over(filesystem, run, program, name="The command")
        cause = failure_cause(end, self.limits.timeout.total_seconds(), loss=_LOST)
        if cause is None and not running.is_running():
            cause = _LOST
        commits = cause is None and end.code == 0
        changes: ProgramChanges = "kept" if commits else "rolled back"
        value = ProgramEnded(params.command, folder, end.code, end.output, end.left_out, changes)
        return ToolResult.ok(value) if commits else failure_result(value, end, cause, is_certain=not self.outside)


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
