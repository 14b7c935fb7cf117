"""A project: a folder with agent files, and with the modules that they take tools and toolsets from.

`[tool.handrail]` in the `pyproject.toml` of the folder configures it; a project without it has the defaults.

| key | means | default |
|---|---|---|
| `agents` | globs of the agent files | `["*.agent"]` |
| `python` | globs of the modules with tools and toolsets | `["tools.py", "tools/*.py"]` |
| `model` | the model of agents whose files name none | none |
| `approval` | the file of approval rules | none |
| `store` | the URL of the store | none |
| `shell` | the table `[tool.handrail.shell]`: how programs are run | its defaults |

Every path lies in the project folder. A pattern that is written there must match a file.

| key of `shell` | means | default |
|---|---|---|
| `allow` | names of ready rules, the tokens of a prefix, or tables with the fields of a `ShellRule` | `["reading"]` |
| `path` | folders where programs are searched for first, from the project folder | `[]` |
| `timeout` | how many seconds a program may take | 60 |
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from os import PathLike
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Annotated, Any, cast

from pydantic import AfterValidator, Field

from handrail.agents.active_run import ShellConfig
from handrail.agents.agent_file import AgentFile, read_agent_file
from handrail.agents.modules import discover, import_modules
from handrail.agents.registry import AgentReference, Entry, Registry, ToolsetFactory, resolve
from handrail.agents.toolsets.builtin import BUILT_INS
from handrail.contrib.tools import GIT_READING, READING, ShellRule
from handrail.errors import (
    AgentFileError,
    DiscoveryError,
    DocumentError,
    HandrailError,
    ParseError,
    ProjectError,
    RegistryError,
    ResolutionError,
    SchemaError,
)
from handrail.serde import codec, parse
from handrail.serde.document import read_document
from handrail.serde.formatting import shorten

READY_RULES: Mapping[str, tuple[ShellRule, ...]] = {
    "reading": READING,
    "git-reading": GIT_READING,
}
"""The ready rules by the names that a project gives them."""

FILE = "pyproject.toml"
"""The file that may hold the configuration."""

_MOST_SECONDS = 86_400
_LONGEST_VALUE = 100
_TABLE = f"{FILE}: [tool.handrail]"
_NO_MODULES = {"__init__.py", "__main__.py"}  # they belong to their folder's package, and export nothing of their own
_LONGEST_NAME = 200
_MOST_LISTED = 600  # bytes of names


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(f"{_quote(text)} says nothing; write a text, or leave the key out")
    return text


def _inside(path: str) -> str:
    # In the notation of either system, because a project is shared between them: `C:\\x` is an ordinary name on POSIX.
    if PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor or ".." in re.split(r"[/\\]", path):
        raise ValueError(f"{_quote(path)} leaves the project folder; a path is from there")
    return _not_blank(path)


def _one_folder(path: str) -> str:
    if not path or os.pathsep in path:
        raise ValueError(f"{_quote(path)} is not the path of one folder")
    return path


_Allowed = str | tuple[str, ...] | dict[str, Any]
_Text = Annotated[str, AfterValidator(_not_blank)]
_Path = Annotated[str, AfterValidator(_inside)]


def _read_rules(item: _Allowed) -> tuple[ShellRule, ...]:
    if isinstance(item, tuple):
        return (ShellRule(item),)
    if isinstance(item, dict):
        return (parse(ShellRule, item),)
    if item not in READY_RULES:
        ready = ", ".join(READY_RULES)
        raise ValueError(f"{_quote(item)} is not one of the ready rules {ready}; a command is a list of its tokens")
    return READY_RULES[item]


def _check_rules(item: _Allowed) -> _Allowed:
    _read_rules(item)
    return item


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTable:
    """The table `[tool.handrail.shell]`; see the module."""

    allow: tuple[Annotated[_Allowed, AfterValidator(_check_rules)], ...] = ("reading",)
    path: tuple[Annotated[str, AfterValidator(_one_folder)], ...] = ()
    timeout: Annotated[float, Field(gt=0, le=_MOST_SECONDS)] = 60

    def settings(self, folder: Path) -> ShellConfig:
        """How the programs of the runs of a project in a folder are run."""
        rules = tuple(rule for item in self.allow for rule in _read_rules(item))
        path = tuple(os.fspath(folder.absolute() / item) for item in self.path)
        return ShellConfig(allow=rules, path=path, timeout=timedelta(seconds=self.timeout))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectConfig:
    """The table `[tool.handrail]`: patterns and files from the folder, `None` where it leaves them open."""

    agents: tuple[_Path, ...] = ("*.agent",)
    python: tuple[_Path, ...] = ("tools.py", "tools/*.py")
    model: _Text | None = None
    approval: _Path | None = None
    store: _Text | None = None
    mcp: _Path | None = None
    shell: ShellTable = field(default_factory=ShellTable)


@dataclass(frozen=True, slots=True)
class Project:
    """A project folder as it was when it was loaded.

    `inputs` are the types of the inputs of the agents that name one.
    """

    folder: Path
    config: ProjectConfig
    agents: Mapping[str, AgentFile]
    registry: Registry
    inputs: Mapping[str, type[Any]] = field(default_factory=dict[str, type[Any]])

    @classmethod
    def load(
        cls,
        folder: str | PathLike[str],
        *,
        entries: Sequence[Entry] = (),
    ) -> Project:
        """Loads a project: reads its agent files, and imports its modules unless they are imported already.

        Args:
            folder: the project folder.
            entries: tools and toolsets from the program, beside the built-in ones.

        Raises:
            HandrailError: the one problem that there is; of several a `ProjectError`, whose `problems` has each.
        """
        project, problems = cls.survey(folder, entries=entries)
        if project is None or problems:
            raise as_one(Path(folder), problems)
        return project

    @classmethod
    def survey(
        cls,
        folder: str | PathLike[str],
        *,
        entries: Sequence[Entry] = (),
    ) -> tuple[Project | None, tuple[HandrailError, ...]]:
        """A project without its faulty agents and modules, and every problem; the arguments are those of `load`.

        There is no project if names clash or the folder cannot be listed. If nothing else is wrong, all names in all
        agent files are looked up, too.
        """
        try:
            # `is_dir` is true for a folder that cannot be listed, and gives no reason where it is false.
            os.scandir(folder).close()
        except (OSError, ValueError) as error:  # the latter for a NUL, in other words in each version of Python
            name = shorten(str(folder), _LONGEST_NAME)
            reason = error.strerror if isinstance(error, OSError) else "a path has no zero"
            return None, (ProjectError(f"the project folder {name!r} cannot be listed: {reason}"),)
        # Under one name from here on: patterns, modules and agents are compared by their paths below it.
        folder = Path(folder).resolve()
        config, faults = read_config(folder)
        problems: list[HandrailError] = [*faults]
        agents = _agents(folder, config, problems)
        files = [path for path in matching_files(folder, config.python) if path.name not in _NO_MODULES]
        modules, import_faults = import_modules(folder, files)
        exports, export_faults = discover(modules)
        problems += [*import_faults, *export_faults]
        # Agents are entries like others, so an agent and a toolset of one name are reported as any two entries are.
        inputs = _inputs(folder, agents, problems)
        references = [
            Entry(name, "toolset", AgentReference(name, inputs.get(name)), where) for name, (where, _) in agents.items()
        ]
        if config.mcp is not None:
            try:
                references += _server_toolsets(folder, config.mcp)
            except DocumentError as problem:
                problems.append(problem)
        try:
            registry = Registry((*BUILT_INS, *entries, *exports, *references))
        except RegistryError as problem:
            return None, (*problems, problem)
        by_name = MappingProxyType({name: file for name, (_, file) in agents.items()})
        project = cls(folder, config, by_name, registry, inputs)
        return project, tuple(problems) or tuple(_unresolved(project))


def _server_toolsets(folder: Path, file: str) -> list[Entry]:
    from handrail.adapters.mcp.section import SharedServer  # noqa: PLC0415 - needs the extra `mcp`
    from handrail.adapters.mcp.settings import read_servers  # noqa: PLC0415

    servers = [SharedServer(*configured) for configured in read_servers(folder / file, shown_as=file)]
    factories = [(shared.server.name, ToolsetFactory(shared.make_section)) for shared in servers]
    return [Entry(name, "toolset", factory, file) for name, factory in factories]


def _agents(folder: Path, config: ProjectConfig, problems: list[HandrailError]) -> dict[str, tuple[str, AgentFile]]:
    # By name, each with the name of its file; a file that is there under two names is read once.
    same_name: dict[str, list[tuple[str, AgentFile]]] = {}
    # Reversed, because the last name wins in a dict: of several names of one file, the first that the patterns match is
    # used.
    files = {(folder / path).resolve(): path for path in reversed(matching_files(folder, config.agents))}
    for path in sorted(files.values()):
        try:
            file = read_agent_file(folder / path)
        except AgentFileError as problem:
            problems.append(problem)
        else:
            same_name.setdefault(file.name, []).append((path.as_posix(), file))
    for name, agents in same_name.items():
        if len(agents) > 1:
            places = " and from ".join(where for where, _ in agents)
            text = f"agent {name} comes from {places}; give one of them another name"
            problems.append(RegistryError(text, names=[name]))
    return {name: agents[0] for name, agents in same_name.items() if len(agents) == 1}


def _inputs(
    folder: Path, agents: Mapping[str, tuple[str, AgentFile]], problems: list[HandrailError]
) -> Mapping[str, type[Any]]:
    inputs: dict[str, type[Any]] = {}
    refs = {name: (where, file.input_model_ref) for name, (where, file) in agents.items() if file.input_model_ref}
    for name, (where, ref) in refs.items():
        place, separator, kind = ref.rpartition(":" if ":" in ref else ".")
        path = place if separator == ":" else f"{place.replace('.', '/')}.py"
        modules, faults = import_modules(folder, [Path(os.path.normpath(Path(where).parent / path))])
        # The fault of a module that exports tools, too, is among the problems already.
        problems += [fault for fault in faults if str(fault) not in set(map(str, problems))]
        try:
            for module in modules.values():
                inputs[name] = codec(getattr(module, kind)).kind
        except (AttributeError, SchemaError) as error:
            why = f"{path} has no {kind}" if isinstance(error, AttributeError) else error
            text = f"input_model_ref: {ref} is not the type of an input, such as tools.py:Ticket: {why}"
            problems.append(AgentFileError(text, file=where, field="input_model_ref"))
    return inputs


def _unresolved(project: Project) -> Iterator[ResolutionError]:
    for file in project.agents.values():
        try:
            resolve(file, project.registry)
        except ResolutionError as problem:
            yield problem


def reachable_agents(project: Project, file: AgentFile) -> list[AgentFile]:
    """An agent, which need not be one of the project's, and the agents that it can call, at any depth."""
    agents = {**project.agents, file.name: file}
    reachable = [file]
    # Agents may call each other in a circle, so one that is in the list is not added again.
    for agent in reachable:  # grows while it is walked
        reachable += [agents[name] for name in agent.toolsets if name in agents and agents[name] not in reachable]
    return reachable


def agent_problems(project: Project, file: AgentFile, problems: Sequence[HandrailError]) -> tuple[HandrailError, ...]:
    """Those of the problems of a project that keep an agent from running.

    The fault of another agent file or module does not, if all names of the agent and of those that it can call exist.
    """
    own: list[HandrailError] = [
        problem
        for problem in problems
        if isinstance(problem, ProjectError) or (isinstance(problem, RegistryError) and file.name in problem.names)
    ]
    faults = [problem for problem in problems if not isinstance(problem, ResolutionError)]
    missing: list[HandrailError] = []
    for agent in reachable_agents(project, file):
        try:
            resolve(agent, project.registry)
        except ResolutionError as error:
            missing.append(error)
        else:
            if agent.input_model_ref is not None and agent.name not in project.inputs:
                own = faults
    if not missing:
        return tuple(own)
    # The names of a module that cannot be used are missing everywhere, which its fault says already.
    return tuple(faults if any(isinstance(fault, DiscoveryError) for fault in faults) else [*faults, *missing])


def as_one(folder: Path, problems: tuple[HandrailError, ...]) -> HandrailError:
    """The one problem that there is, or an error that has all of them."""
    if len(problems) == 1:
        return problems[0]
    text = "\n".join(f"- {problem}" for problem in problems)
    return ProjectError(f"the project {folder} has {len(problems)} problems:\n{text}", problems=problems)


def read_config(folder: Path) -> tuple[ProjectConfig, tuple[ProjectError, ...]]:
    """The configuration of a project folder, and every fault; the defaults if its table has one."""
    file = folder / FILE
    # Not `exists`, which is false for a link that leads nowhere: the configuration behind it must not be ignored.
    if not os.path.lexists(file):
        return ProjectConfig(), ()
    try:
        text = read_document(file, file=FILE, what="a project is configured in a text file")
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:  # also a number of too many digits; `tomllib` descends at each level
        problem = ProjectError(str(error) if isinstance(error, DocumentError) else f"{FILE} is not TOML: {error}")
        problem.__cause__ = error
        return ProjectConfig(), (problem,)
    tool: object = document.get("tool", {})
    table = cast("Mapping[str, object]", tool).get("handrail", {}) if isinstance(tool, Mapping) else tool
    if not isinstance(table, Mapping):
        return ProjectConfig(), (ProjectError(f"{_TABLE} is not a table; write [tool.handrail], then keys below"),)
    try:
        config = parse(ProjectConfig, cast("Mapping[str, object]", table))
        faults = [
            f"{name}: {_quote(pattern)} matches no file"
            for name in ("agents", "python")
            for pattern in getattr(config, name)
            if name in table and not _matches(folder, pattern)
        ]
    except ParseError as error:
        config, faults = ProjectConfig(), [f"{path.removeprefix('$.')}: {text}" for path, text in error.faults]
    return ProjectConfig() if faults else config, tuple(ProjectError(f"{_TABLE}: {fault}") for fault in faults)


def matching_files(folder: Path, patterns: Sequence[str]) -> tuple[Path, ...]:
    """The files that patterns match, from the folder, sorted for each pattern; a file that two match comes once."""
    files = [
        path.relative_to(folder) for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()
    ]
    # Sorted within each pattern only: the order of the patterns is the choice of the project.
    return tuple(dict.fromkeys(files))


def _matches(folder: Path, pattern: str) -> bool:
    try:
        return bool(matching_files(folder, (pattern,)))
    except (ValueError, IndexError, OSError, RecursionError):  # of `pathlib`, for blank and long ones
        return False


def _quote(text: str) -> str:
    return shorten(repr(text), _LONGEST_VALUE)
