"""A project: a folder with agent files and with the modules that they take tools and toolsets from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

from handrail.agents.agent_file import AgentFile, read_agent_file
from handrail.agents.modules import discover, forget_modules, import_modules, package_offers
from handrail.agents.project_config import ProjectConfig, matching_files, read_config
from handrail.agents.registry import AgentReference, Entry, Origin, Registry, ResolvedAgent, resolve
from handrail.agents.toolsets.builtin import BUILT_INS
from handrail.agents.toolsets.listing import static_conflicts
from handrail.errors import (
    AgentError,
    AgentFileError,
    DiscoveryError,
    HandrailError,
    ProjectError,
    RegistryError,
    ResolutionError,
    SchemaError,
)
from handrail.errors.developer import check_argument
from handrail.serde import codec
from handrail.serde.formatting import enumerated, nearest, shorten

_NO_MODULES = {"__init__.py", "__main__.py"}  # they belong to their folder's package, and export nothing of their own
_LONGEST_SHOWN = 200
_MOST_LISTED = 600  # bytes of names


@dataclass(frozen=True, slots=True)
class Project:
    """A project folder as it was when it was loaded.

    Attributes:
        folder: the folder.
        config: what its `pyproject.toml` says of it.
        agents: its agents, by name.
        registry: all tools and toolsets that its agents can name, the agents among them.
        inputs: the types of the inputs of the agents that name one.
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
        built_ins: Sequence[Entry] = BUILT_INS,
        entries: Sequence[Entry] = (),
        packages: bool = True,
        reload: bool = False,
    ) -> Project:
        """Load a project: read its agent files, and import its modules unless they are imported already.

        Args:
            folder: the project folder.
            built_ins: entries that every project has.
            entries: more of them, from the program.
            packages: whether the tools and toolsets of installed packages can be named.
            reload: whether its modules are executed again. A project that was loaded before keeps what it has.

        Raises:
            InvalidArgumentError: `folder` is not a path.
            HandrailError: the one problem that there is.
            ProjectError: several; `problems` has each.
        """
        check_argument("Project.load", "folder", folder, (str, PathLike), "the path of a folder")
        if reload:
            # Before the survey, which executes only modules that are not imported.
            forget_modules(Path(folder))
        project, problems = cls.survey(folder, built_ins=built_ins, entries=entries, packages=packages)
        if project is not None and not problems:
            problems = tuple(filter(None, map(static_conflicts, map(project.resolve, project.agents.values()))))
        if project is None or problems:
            raise as_one(Path(folder), problems)
        return project

    @classmethod
    def survey(
        cls,
        folder: str | PathLike[str],
        *,
        built_ins: Sequence[Entry] = BUILT_INS,
        entries: Sequence[Entry] = (),
        packages: bool = True,
    ) -> tuple[Project | None, tuple[HandrailError, ...]]:
        """Everything that is wrong with a project, and what is sound of it.

        The project holds the agents, tools and toolsets that have no fault; `None` if names clash or there is no such
        folder. If nothing else is wrong, all names in all agent files are looked up, too.

        Args:
            folder: the project folder.
            built_ins: as for `load`.
            entries: as for `load`.
            packages: as for `load`.
        """
        fault = _fault_of(Path(folder))
        if fault is not None:
            return None, (fault,)
        # Under one name from here on: patterns, modules and agents are compared by their paths below it.
        folder = Path(folder).resolve()
        reading = read_config(folder)
        problems: list[HandrailError] = [*reading.problems]
        agents = _agents(folder, reading.config, problems)
        files = [path for path in matching_files(folder, reading.config.python) if path.name not in _NO_MODULES]
        modules, of_imports = import_modules(folder, files)
        exported, of_exports = discover(modules)
        problems += [*of_imports, *of_exports]
        # Agents are entries like others, so an agent and a toolset of one name are reported as any two entries are.
        inputs = _inputs(folder, agents, problems)
        references = [
            Entry(name, "toolset", AgentReference(name, inputs.get(name)), Origin("agent", where))
            for name, (where, _) in agents.items()
        ]
        try:
            offers = package_offers() if packages else ()
            registry = Registry.of([*built_ins, *entries, *exported, *references], offers=offers)
        except RegistryError as problem:
            return None, (*problems, problem)
        # The project is returned even if there are problems: it shows what is sound.
        by_name = MappingProxyType({name: file for name, (_, file) in agents.items()})
        project = cls(folder, reading.config, by_name, registry, inputs)
        return project, tuple(problems) or tuple(_unresolved(project))

    def resolve(self, agent: AgentFile | str) -> ResolvedAgent:
        """What an agent names.

        Args:
            agent: the name of an agent of this project, or any agent file.

        Raises:
            AgentError: the project has no agent of that name.
            ResolutionError: the agent names what there is not.
        """
        if isinstance(agent, AgentFile):
            return resolve(agent, self.registry)
        if agent not in self.agents:
            asked = shorten(agent, _LONGEST_SHOWN)
            hint = f" Did you mean {near!r}?" if (near := nearest(asked, self.agents)) else ""
            there = enumerated(sorted(self.agents), limit=_MOST_LISTED, near=asked) or "none"
            raise AgentError(f"the project {self.folder} has no agent {asked!r}.{hint} Its agents are: {there}.")
        return resolve(self.agents[agent], self.registry)


def project_folder_of(agent_file: Path) -> Path:
    """The folder of the project that an agent file belongs to: the one that it is in."""
    return agent_file.absolute().parent


def _fault_of(folder: Path) -> ProjectError | None:
    """Why a folder cannot be that of a project."""
    try:
        # `is_dir` is true for a folder that cannot be listed, and gives no reason where it is false.
        os.scandir(folder).close()
    except (OSError, ValueError) as error:  # the latter for a NUL
        shown = shorten(str(folder), _LONGEST_SHOWN)
        reason = error.strerror if isinstance(error, OSError) else error
        return ProjectError(f"the project folder {shown!r} cannot be listed: {reason}")
    return None


def _agents(folder: Path, config: ProjectConfig, problems: list[HandrailError]) -> dict[str, tuple[str, AgentFile]]:
    """The agents by name, each with the name of its file; a file that is there under two names is read once.

    Without those whose name several files have: it is not clear which is meant.
    """
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
    """The types of the inputs of agents, by name."""
    inputs: dict[str, type[Any]] = {}
    refs = {name: (where, file.input_model_ref) for name, (where, file) in agents.items() if file.input_model_ref}
    for name, (where, ref) in refs.items():
        place, separator, kind = ref.rpartition(":" if ":" in ref else ".")
        module = place if separator == ":" else f"{place.replace('.', '/')}.py"
        imported, faults = import_modules(folder, [Path(os.path.normpath(Path(where).parent / module))])
        # The fault of a module that exports tools, too, has been found already.
        problems += [each for each in faults if str(each) not in set(map(str, problems))]
        try:
            for each in imported:
                inputs[name] = codec(getattr(each.module, kind)).kind
        except (AttributeError, SchemaError) as error:
            why = f"{module} has no {kind}" if isinstance(error, AttributeError) else error
            text = f"input_model_ref: {ref} is not the type of an input, such as tools.py:Ticket: {why}"
            problems.append(AgentFileError(text, file=where, field="input_model_ref"))
    return inputs


def _unresolved(project: Project) -> Iterator[ResolutionError]:
    for file in project.agents.values():
        try:
            project.resolve(file)
        except ResolutionError as problem:
            yield problem


def reached_agents(project: Project, file: AgentFile) -> list[AgentFile]:
    """An agent, which need not be one of the project's, and the agents that it can call, at any depth."""
    agents = {**project.agents, file.name: file}
    reached = [file]
    # Agents may call each other in a circle, so one that was reached is not added again.
    for each in reached:  # grows while it is walked
        reached += [agents[name] for name in each.toolsets if name in agents and agents[name] not in reached]
    return reached


def problems_of_agent(
    project: Project, file: AgentFile, problems: Sequence[HandrailError]
) -> tuple[HandrailError, ...]:
    """Those of the problems of a project that keep an agent from running.

    The fault of another agent file or module does not, if the agent and all that it can call have what they name.
    """
    own: list[HandrailError] = [
        each
        for each in problems
        if isinstance(each, ProjectError) or (isinstance(each, RegistryError) and file.name in each.names)
    ]
    faults = [each for each in problems if not isinstance(each, ResolutionError)]
    missing: list[HandrailError] = []
    for each in reached_agents(project, file):
        try:
            named = resolve(each, project.registry)
        except ResolutionError as error:
            missing.append(error)
            continue
        # A module that cannot be used may have had what a package now offers in its place.
        of_package = any(entry.origin.kind == "package" for entry in (*named.tools, *named.toolsets))
        if of_package or (each.input_model_ref is not None and each.name not in project.inputs):
            own = faults
    if not missing:
        return tuple(own)
    # The names of a module that cannot be used are missing everywhere, which its fault says already.
    return tuple(faults if any(isinstance(each, DiscoveryError) for each in faults) else [*faults, *missing])


def as_one(folder: Path, problems: tuple[HandrailError, ...]) -> HandrailError:
    """The one problem that there is, or an error that has all of them."""
    if len(problems) == 1:
        return problems[0]
    text = "\n".join(f"- {problem}" for problem in problems)
    return ProjectError(f"the project {folder} has {len(problems)} problems:\n{text}", problems=problems)
