"""The toolsets that every project has by name, and the same with settings of one's own.

Each is a factory: it is called once for each run, and makes a section over that run.

With `dynamic_agents` an agent makes agents for itself while it runs: `agent_create` and `agent_call`. A dynamic agent
is a value in the session of the run that made it: it is rolled back with the call that made it, and is there when the
run is resumed. It may name only tools and toolsets of its maker, and uses its maker's model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import timedelta
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic_ai import RunContext
from pydantic_ai import Tool as PydanticTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from handrail.agents.active_run import CurrentRun, current_run
from handrail.agents.agent_file import NAME_PATTERN, AgentFile
from handrail.agents.registry import BUILT_IN, Entry, ToolDef, ToolsetFactory
from handrail.contrib.tools import (
    AstevalSection,
    Bubblewrap,
    PlanningToolsSection,
    SandboxLimits,
    SandboxSection,
    ShellRule,
    ShellToolsSection,
    VfsToolsSection,
)
from handrail.contrib.tools.python import DEFAULT_MEMORY_BYTES, DEFAULT_TIMEOUT, PythonSettings, python_tool
from handrail.contrib.tools.sandbox.engine import SandboxEngine
from handrail.contrib.tools.sandbox.section import sandbox_tool
from handrail.contrib.tools.shell.rules import parse_shell_rules
from handrail.contrib.tools.shell.section import PROGRAM_PATH
from handrail.errors import AgentError, ToolValidationError
from handrail.filesystem.path_filters import exclude_patterns, excluding
from handrail.prompt import MarkdownSection, Section
from handrail.serde.formatting import enumerated, nearest, shorten
from handrail.session import Session, stored_as

_LONGEST_NAME = 64
_MOST_LISTED = 600  # bytes of names

_GUIDANCE = """\
You can make agents for parts of your work. agent_create makes one, with instructions of its own and with some of your \
tools; agent_call gives it a task and returns its answer. It knows nothing of this conversation: say all that it needs.\
"""

ToolsetNames = Annotated[list[str], Field(default_factory=list[str])]
"""Names from a model; none without."""

FolderSource = str | os.PathLike[str] | Callable[[CurrentRun], Path]
"""The folder of a toolset: a path from the folder of the project, or a function that finds it in a run."""

_ROOT: FolderSource = attrgetter("root")

# At most 24 characters, because providers take names of tools of at most 64.
_PREFIX = re.compile(r"[a-z0-9][a-z0-9_-]{0,23}")


@stored_as("handrail.made_agent")
@dataclass(frozen=True, slots=True)
class DynamicAgent:
    """An agent that a run has made, with the names of its tools and toolsets. Its slice rolls back with the call."""

    name: str
    instructions: str
    description: str
    tools: tuple[str, ...]
    toolsets: tuple[str, ...]


def session_agents(session: Session) -> dict[str, AgentFile]:
    """The agent files that the dynamic agents of a session stand for, by name."""
    return {agent.name: AgentFile(**asdict(agent)) for agent in session[DynamicAgent]}


def _dynamic_agents() -> FunctionToolset[Any]:
    # Allowed without a question: a dynamic agent has only tools of its maker, and their calls are asked about.
    create = PydanticTool[Any](_create, name="agent_create", metadata={"effect": "state", "approval": "allow"})
    # Concurrent: `_call` waits for a whole run, which would hold the turn of the session all the time.
    call = PydanticTool[Any](
        _call, name="agent_call", metadata={"effect": "state", "concurrent": True, "approval": "allow"}
    )
    return FunctionToolset[Any]([create, call], id="dynamic_agents", instructions=_GUIDANCE)


async def _create(
    _ctx: RunContext[Any],
    name: Annotated[str, Field(pattern=NAME_PATTERN)],
    instructions: Annotated[str, Field(min_length=1)],
    tools: ToolsetNames,
    toolsets: ToolsetNames,
    description: str = "",
) -> str:
    """Make an agent, which agent_call can then give tasks.

    Args:
        name: what the agent is called by, 1 to 64 letters, digits, '_' and '-'.
        instructions: the permanent instructions of the agent.
        tools: which of your own tools it may use.
        toolsets: which of your own toolsets it may use.
        description: what the agent is for, in a sentence.
    """
    run = current_run()
    # A dynamic agent never has more than its maker, or a model could widen its own rights.
    faults = [*_missing("tools", tools, run.file.tools), *_missing("toolsets", toolsets, run.file.toolsets)]
    if name in run.agents:
        faults.append(f"there is an agent {name} already; choose another name.")
    if faults:
        raise ToolValidationError(f"agent {name} was not made: {' '.join(faults)}")
    # Duplicates are dropped, because a toolset that is named twice would conflict with itself.
    agent = DynamicAgent(name, instructions, description, tuple(dict.fromkeys(tools)), tuple(dict.fromkeys(toolsets)))
    # An item of a STATE slice and not an attribute of the run, so that a call that is rolled back makes no agent.
    run.session[DynamicAgent].append(agent)
    return f"agent {name} is made; give it tasks with agent_call"


async def _call(ctx: RunContext[Any], agent: str, input: Annotated[str, Field(min_length=1)]) -> str:
    """Give an agent a task, and return its answer.

    Args:
        ctx: the run.
        agent: the name of the agent.
        input: the task, with everything that the agent must know to do it.
    """
    run = current_run()
    # The agents that the run has made, and those among its toolsets; not those of other runs, or others of the project.
    agents = [*session_agents(run.session), *(name for name in run.file.toolsets if name in run.agents)]
    if agent not in agents:
        name = shorten(agent, _LONGEST_NAME)
        near = nearest(name, agents)
        hint = f" Did you mean {near}?" if near else ""
        there = enumerated(agents, limit=_MOST_LISTED, near=name) or "none; make one with agent_create"
        raise ToolValidationError(f"you may not call an agent {name!r}.{hint} The agents are: {there}.")
    return await run.call_agent(agent, input, ctx)


def _missing(field: str, names: Sequence[str], own: Sequence[str]) -> list[str]:
    missing = [name for name in dict.fromkeys(names) if name not in own]
    if not missing:
        return []
    text = enumerated(missing, limit=_MOST_LISTED)
    there = enumerated(own, limit=_MOST_LISTED, near=missing[0]) or "none"
    return [f"{field}: {text} cannot be given, because you have only {there}."]


def built_ins() -> tuple[Entry, ...]:
    """The built-in toolsets.

    ==================  ==============================================================================================
    `files`             tools that read and write the files below the folder that the run works on
    `files_ro`          those of them that only look
    `project_files`     as `files`, below the folder of the project
    `project_files_ro`  as `files_ro`, below the folder of the project
    `planning`          tools that keep a plan in the session of the run
    `shell`             programs in the folder that the run works on: those that the project allows, or that only look
    `sandbox`           commands in a sandbox of bubblewrap, over the folder that the run works on
    `python`            small Python programs, which compute
    `dynamic_agents`    tools by which an agent makes agents, and calls them
    ==================  ==============================================================================================
    """
    factories = {
        "files": files_toolset(_ROOT),
        "files_ro": files_toolset(_ROOT, read_only=True),
        "project_files": files_toolset("."),
        "project_files_ro": files_toolset(".", read_only=True),
        "planning": ToolsetFactory(_planning, known_tools=cache(_planning_tools)),
        "shell": _over(_ROOT, "Programs", _shell, _shell_tools),
        "sandbox": sandbox_toolset(_ROOT),
        "python": python_toolset(),
        "dynamic_agents": ToolsetFactory(
            lambda _ctx: _dynamic_agents(), known_tools=cache(lambda: _dynamic_agents().tools)
        ),
    }
    return tuple(Entry(name, "toolset", factory, BUILT_IN) for name, factory in factories.items())


def files_toolset(
    folder: FolderSource,
    *,
    read_only: bool = False,
    prefix: str = "",
    exclude: Sequence[str] = (),
    show_git: bool = False,
) -> ToolsetFactory:
    """A toolset of file tools over a folder, to be exported in `TOOLSETS`.

    Two of them serve one agent together: `TOOLSETS = {"a": files_toolset("a", prefix="a"), "b": files_toolset("b")}`.

    Args:
        folder: the folder; below the folder of the project, if it is relative.
        read_only: whether there are only the tools that look.
        prefix: stands before the name of each tool with a `_`, so that an agent can have several of these toolsets.
        exclude: patterns of paths that do not exist for the tools, beside those that the agent's file excludes; see
            `VfsToolsSection`.
        show_git: whether `.git` exists for them; it does too if the agent's file allows it.

    Raises:
        AgentError: the prefix cannot begin the name of a tool.
        PathEscapeError: a pattern of `exclude` leads out of the folder.
    """
    # Checked when the module is imported, so that a wrong pattern is reported with the place where it stands.
    excluded = exclude_patterns(exclude)
    excluding(excluded)

    def make(run: CurrentRun, files: Any, **texts: Any) -> Section[Any]:  # noqa: ANN401 - options of the section
        # Either may allow it: the toolset is declared in Python, and the agent's file by its author.
        git = show_git or run.file.show_git
        return VfsToolsSection(files, read_only=read_only, exclude=excluded, show_git=git, **texts)

    return _over(folder, "Files", make, lambda: VfsToolsSection(read_only=read_only).tools, prefix=prefix)


def shell_toolset(
    folder: FolderSource = ".",
    *,
    allow: Sequence[ShellRule | Sequence[str]],
    timeout: timedelta = timedelta(seconds=60),
    environment: Mapping[str, str] | None = None,
    prefix: str = "",
) -> ToolsetFactory:
    """A toolset that runs programs in a folder, to be exported in `TOOLSETS`.

    With `TOOLSETS = {"tests": shell_toolset(allow=[("make", "test")])}` an agent can run the tests of its project. The
    changes of a program below the folder are rolled back when the call fails. Folder and prefix are those of
    `files_toolset`; see `ShellToolsSection` for the rest.

    Raises:
        AgentError: as for `files_toolset`.
        PromptValidationError: a rule is invalid.
    """
    rules = parse_shell_rules(allow)

    def make(_run: CurrentRun, files: Any, **texts: Any) -> Section[Any]:  # noqa: ANN401 - options of the section
        return ShellToolsSection(files, allow=rules, timeout=timeout, environment=environment or {}, **texts)

    return _over(folder, "Programs", make, _shell_tools, prefix=prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonOptions:
    """How the code of a `python_toolset` is evaluated; see `AstevalSection`."""

    timeout: timedelta = DEFAULT_TIMEOUT
    memory_bytes: int = DEFAULT_MEMORY_BYTES


def python_toolset(*, options: PythonOptions | None = None, prefix: str = "") -> ToolsetFactory:
    """A toolset that evaluates small Python programs, to be exported in `TOOLSETS`.

    Prefix and errors are those of `files_toolset`.
    """
    settings = options or PythonOptions()

    def make(_run: CurrentRun, _files: Any, **texts: Any) -> Section[Any]:  # noqa: ANN401 - options of the section
        return AstevalSection(**asdict(settings), **texts)

    # Known without a section, so that the interpreter need not be installed to know the name of its tool.
    return _over(None, "Python", make, lambda: (python_tool(PythonSettings()),), prefix=prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """How the commands of a `sandbox_toolset` are run; see `SandboxSection`.

    Attributes:
        engine: makes the sandbox: `Podman(image=...)` or `Bubblewrap()`.
        environment: added to the environment of commands.
        reads_everything: whether commands may read files that the run keeps from its tools.
    """

    engine: SandboxEngine = field(default_factory=Bubblewrap)
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    reads_everything: bool = False


def sandbox_toolset(
    folder: FolderSource = ".", *, options: SandboxOptions | None = None, prefix: str = ""
) -> ToolsetFactory:
    """A toolset that runs commands in a sandbox over the files of a folder, to be exported in `TOOLSETS`.

    With `options=SandboxOptions(engine=Podman(image="docker.io/library/python"))` commands run in a container. The
    toolset `files` has the file tools. Folder, prefix and errors are those of `files_toolset`.
    """
    settings = options or SandboxOptions()

    def make(_run: CurrentRun, files: Any, **texts: Any) -> Section[Any]:  # noqa: ANN401 - options of the section
        values = {item.name: getattr(settings, item.name) for item in fields(settings)}
        return SandboxSection(files, file_tools=False, **values, **texts)

    # Known without a section, so that nothing need be installed to know the name of the tool.
    return _over(folder, "Sandbox", make, lambda: (sandbox_tool(SandboxLimits()),), prefix=prefix)


def _over(
    folder: FolderSource | None,
    title: str,
    make: Callable[..., Section[Any]],
    tools: Callable[[], Sequence[ToolDef]],
    *,
    prefix: str = "",
) -> ToolsetFactory:
    # A toolset over a folder, opened for each run; `None` for one without files. `make` makes its section, with its
    # title, and the sections below it. `tools` gives its tools in any run; it is called at most
    # once, and only if rules are checked.
    start = f"{_check_prefix(prefix)}_" if prefix else ""

    # Called for each run: the filesystem, with its filters and its turn, belongs to the run.
    async def make_toolset(_ctx: RunContext[Any]) -> Section[Any] | AbstractToolset[Any]:
        run = current_run()
        # An absolute path replaces the folder of the project, a relative one is below it.
        where = folder(run) if callable(folder) else run.project_folder / (folder or "")
        files = None if folder is None else await run.open_filesystem(where)
        if not prefix:
            return make(run, files, title=title, children=())
        # A section below names the prefix, because the other texts do not have it.
        text = f"The names of these tools begin with `{start}`, although this text and messages leave that out."
        note = MarkdownSection(title="Names", template=text)
        section = make(run, files, title=f"{title}: {prefix}", children=(note,))
        return run.section_toolset(section, id=start + section.key, prefix=start).prefixed(prefix)

    return ToolsetFactory(make_toolset, known_tools=cache(lambda: {start + tool.name: tool for tool in tools()}))


def _planning(_ctx: RunContext[Any]) -> Section[Any]:
    return PlanningToolsSection(session=current_run().session)


def _planning_tools() -> Mapping[str, ToolDef]:
    return {tool.name: tool for tool in PlanningToolsSection(session=Session()).tools}


def _shell(run: CurrentRun, files: Any, **texts: Any) -> Section[Any]:  # noqa: ANN401 - options of the section
    shell = run.shell
    path = {"PATH": os.pathsep.join((*shell.path, PROGRAM_PATH))}
    return ShellToolsSection(files, allow=shell.allow, timeout=shell.timeout, environment=path, **texts)


def _shell_tools() -> Sequence[ToolDef]:
    # The tools have the same names and parameters over any folder, so `/`, which always exists, stands for it.
    return ShellToolsSection("/").tools


def _check_prefix(prefix: str) -> str:
    if not _PREFIX.fullmatch(prefix):
        raise AgentError(
            f"the prefix {prefix!r} cannot begin the name of a tool; give up to 24 lower-case letters, digits, '_' and "
            "'-', such as 'notes'"
        )
    return prefix


BUILT_INS = built_ins()
"""The toolsets that every project has, unless its program says otherwise."""
