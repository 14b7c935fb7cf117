"""The executors of one run, on its session: for the tools of Handrail, and for all others.

Each toolset of Handrail's has one, over its sections and over what the run binds for them: its files, behind what rules
keep back from them, the paths of programs, and PydanticAI's run context.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Final

from pydantic_ai import RunContext as PydanticRunContext
from pydantic_ai import ToolCallPart, ToolDefinition
from pydantic_ai.capabilities import ValidatedToolArgs

from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.adapters.pydantic_ai.toolset import PIPELINE_METADATA_KEY, call_run_context
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.approval.decisions import GatedCall, Verdict
from handrail.agents.approval.gate import GatedPrompt, GatePolicy
from handrail.agents.approval.path_rules import (
    FILE_TOOLS,
    FolderPaths,
    RunRules,
    behind_filter,
    given_filesystem,
    takes_files,
)
from handrail.agents.registry import ResolvedAgent
from handrail.agents.run.agent_texts import disclosed_sections
from handrail.agents.run.calls import OwnTool, RunCalls
from handrail.agents.run.run_group import RunGroup
from handrail.contrib.tools import PlanningToolsSection, ShellRule, ShellToolsSection
from handrail.contrib.tools.shell.process import ToolNames
from handrail.contrib.tools.shell.rules import ProgramPaths
from handrail.errors import AgentError, UnboundResourceError
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.filesystem.path_filters import PathFilter, excluding
from handrail.limits import RunContext
from handrail.loop_guard import synchronous_entry
from handrail.prompt import Prompt, PromptTemplate, Section, Tool, ToolPolicy
from handrail.prompt.hooks import RunFilesystem
from handrail.prompt.section import section_registry
from handrail.prompt.template import unbound_resources
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.resources.binding import Resolver
from handrail.runtime import ToolInvoked
from handrail.serde.formatting import type_name
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.taint import TaintPolicy

_RUN_CONTEXT: Final = ResourceRegistry.of(
    Binding(PydanticRunContext, lambda _resources: call_run_context(), Scope.TOOL_CALL)
)
"""What PydanticAI gives the functions of an agent, as a resource of each call."""


_Own = tuple[ToolExecutor, Mapping[str, Verdict], bool]
"""The executor of a toolset of Handrail's; what is done with calls of its tools where no rule applies, by name, else
their effects decide; and whether a section of the program's brings its tools."""


class RunExecutors:
    """The executors of one run.

    Attributes:
        calls: the calls of the run, as the gate judges them.
        foreign: the executor for tools that are not Handrail's.
        policy: the gate, which judges every call of the run.
        policies: the gate, and what judges calls once the session has read untrusted content.
        path_filter: which paths exist, in whatever `Filesystem` the tools of the run find.
        permits_unbound: whether tools whose resources nothing binds are offered, too; for a run that calls none.
        unbound: then, what nothing binds, each in words.
    """

    def __init__(
        self,
        tree: RunGroup,
        session: Session,
        path: tuple[str, ...],
        stack: ExitStack,
        agent: ResolvedAgent,
    ) -> None:
        """Open the executors; what they need is closed with `stack`.

        Args:
            tree: what the run shares.
            session: what the run works on.
            path: the agents that called each other, this one last.
            stack: closes what is opened.
            agent: the agent that runs; its file says which paths do not exist for its tools, and which of its toolsets
                are closed.
        """
        self._tree = tree
        self._session = session
        self._path = path
        self._stack = stack
        self._show_git = agent.file.show_git
        excluded = excluding(agent.file.exclude, show_git=True)  # each toolset says for itself if .git is shown
        self._rules = RunRules(tree.rules, path, tree.options.mode)
        self._folders = FolderPaths(tree.prefixed, self._rules)
        self.path_filter: PathFilter = excluded.plus(self._rules.paths())
        self._own: dict[str, _Own] = {}
        self._with_files: list[ToolExecutor] = []
        self._of_root: list[ToolExecutor] = []
        self.permits_unbound: bool = False
        self.unbound: list[str] = []
        tainted = tree.rules.tainted
        taint = None if tainted == "allow" else TaintPolicy(on_tainted=tainted)
        self.calls: RunCalls = RunCalls(tree, session, path, taint)
        self.policy: GatePolicy = GatePolicy(tree.gate, self.calls.describe, FILE_TOOLS)
        self.policies: tuple[ToolPolicy, ...] = (self.policy,) if taint is None else (self.policy, taint)
        disclosed = disclosed_sections(agent, tree.project.agents)
        self._disclosed = {each.toolset: each.key for each in disclosed}
        self.foreign: ToolExecutor = self._executor(disclosed)

    def is_open(self, toolset: str) -> bool:
        """Whether a toolset that the agent file discloses by its summary is open now."""
        path = self._disclosed[toolset]
        return any(each.path == path and each.is_open for each in self.foreign.environment.rendering.sections())

    def note_hidden(self, tools: Mapping[str, str]) -> None:
        """Take note of the tools of the closed toolsets at this step, each with its toolset."""
        hidden = {name: self._disclosed[toolset] for name, toolset in tools.items()}
        self.foreign.environment.rendering.brought = hidden

    def section_toolset(self, section: Section[Any], *, id: str, prefix: str = "") -> HandrailToolset:
        """A section as a toolset of this run; see `CurrentRun.section_toolset`."""
        executor = self._executor((section,), prefix=prefix)
        rendering = executor.environment.rendering
        if rendering.may_change:  # what it has of sections with a summary is opened by the tools of the run
            self.foreign.environment.rendering.beside += (rendering,)
        return self._toolset(id, (executor, _defaults_of(section), True))

    def tool_toolset(self, tool: Tool[Any, Any], *, id: str) -> HandrailToolset:
        """One tool as a toolset of this run; see `CurrentRun.tool_toolset`."""
        section = Section[None](title="Tools", key="tools", tools=(tool,))
        executor = self._executor((section,))
        without_text = replace(executor.environment.rendered_prompt, text="")
        executor.environment = executor.environment.with_rendered(without_text)
        return self._toolset(id, (executor, {}, False))

    async def describe_ahead(
        self, ref: CallRef, call: ToolCallPart, definition: ToolDefinition, args: ValidatedToolArgs
    ) -> GatedCall | None:
        """A call that is about to be made, as the gate judges it; `None` for one that will be refused as it is."""
        return await self.calls.describe_ahead(ref, call, definition, args, self.own_tool(definition))

    def admit(self, definition: ToolDefinition) -> None:
        """Refuse a tool whose calls would take another pipeline than this run's, where they are not asked about.

        Raises:
            AgentError: it has an executor of its own.
        """
        # A tool that is not Handrail's has no executor, so its calls pass the pipeline of this run.
        if PIPELINE_METADATA_KEY not in (definition.metadata or {}) or self.own_tool(definition) is not None:
            return
        source = self.calls.origins.get(definition.name, "a toolset of the agent")
        raise AgentError(
            f"{source} brings the tool {definition.name} with an executor of its own: no rule of this run would hold "
            "for its calls, and they would not be recorded in its session. Register its section or the tool itself, "
            "or let a factory return current_run().section_toolset(section, id=...)"
        )

    def forget_ended(self) -> None:
        """Drop what earlier runs have decided about calls of this session that have been recorded since."""
        session_id = self._session.session_id
        # Loading the records is skipped in the common case of a new session.
        if any(key[0] == session_id for key in self._tree.gate.decided):
            for event in self._session[ToolInvoked]:
                self._tree.gate.forget((session_id, event.ref))

    def own_tool(self, definition: ToolDefinition) -> OwnTool | None:
        """The tool of Handrail that a definition of this run shows; `None` for any other tool."""
        marked = (definition.metadata or {}).get(PIPELINE_METADATA_KEY)
        if marked is None:
            return None
        name, environment = str(marked), self.foreign.environment
        # The toolset of the capability is called as the prompt, which another toolset may be, too. Its tools are called
        # by the executor of all other tools, and only show what there is.
        if definition.toolset_id == environment.rendered_prompt.name and name in environment.added_names:
            return OwnTool(name, environment, "allow", shows_section=False)
        own = self._own.get(definition.toolset_id or "")
        return None if own is None else OwnTool(name, own[0].environment, own[1].get(name), own[2])

    async def open_root(self) -> None:
        """Open the folder of the run if tools take its files as a parameter; else the first call that asks opens it.

        Once it is open, every tool finds it before its call begins, so that calls take turns on it.

        Raises:
            FilesystemError: it cannot be opened, or another process works on it.
        """
        root = self._tree.root
        if any(executor in self._with_files for executor in self._of_root):
            await self._tree.open_filesystem(root)
        while self._of_root and self._tree.has_open(root):
            self._of_root.pop().environment.resources.get(Filesystem)

    def own_executors(self) -> tuple[ToolExecutor, ...]:
        """The executors of Handrail's tools, of the toolsets that have been made."""
        return tuple(executor for executor, _, _ in self._own.values())

    def _toolset(self, id: str, own: _Own) -> HandrailToolset:
        # What a program has made cannot be called so. PydanticAI takes no colon, which sessions of called agents have.
        unique = f"{id} ({self._session.session_id})".replace(":", ";")
        # A factory may make several toolsets of one id.
        while unique in self._own:
            unique += "'"
        self._own[unique] = own
        return HandrailToolset(own[0], id=unique, in_capability=True)

    def _executor(self, sections: tuple[Section[Any], ...], *, prefix: str = "") -> ToolExecutor:
        tree, options = self._tree, self._tree.options
        template = PromptTemplate[str](
            ns="agents",
            key=f"agent/{self._path[-1]}",
            name=self._path[-1],
            sections=sections,
            feedback=options.feedback,
            completion=options.completion if len(self._path) == 1 else None,
        )
        given = section_registry(options.resources)
        tools = [tool for tool, _ in template.placed_tools()]
        # What sections bring, and before that what the program binds; the files of the run precede only what a suite
        # brings where nothing is bound.
        chosen = reduce(
            ResourceRegistry.merge, [*(each.section.registry for each in template.placed_sections()), given]
        )
        of_root = bool(tools) and Filesystem not in chosen and HostFilesystem not in chosen
        if of_root:
            given = given.merge(ResourceRegistry.of(Binding(Filesystem, synchronous_entry(self._root))))
        bound = template.registry.merge(chosen).merge(given)
        self._folders.note(template, given_filesystem(bound), prefix)
        resources = self._resources(template, given, bound, prefix)
        prompt = GatedPrompt(template, resources, self.policies)
        self._stack.enter_context(prompt.resources)
        ids = RunContext(run_id="/".join(self._path), session_id=self._session.session_id)
        executor = ToolExecutor(
            prompt=prompt,
            session=self._session,
            adapter=self,
            effect_ledger=tree.ledger,
            deadline=options.deadline,
            heartbeat=options.heartbeat,
            run_context=options.run_context or ids,
            approver=self.policy.answer,
        )
        # The session of the outermost run has the questions, with the decisions of the gate.
        executor.environment = replace(executor.environment, records_questions=True)
        if given_filesystem(bound) is not None or any(map(takes_files, tools)):
            self._with_files.append(executor)
        if of_root:
            self._of_root.append(executor)
        return executor

    def _resources(
        self, template: PromptTemplate[str], given: ResourceRegistry, bound: ResourceRegistry, prefix: str
    ) -> ResourceRegistry:
        """All that the run binds for a template; `bound` is that without what the run adds to `given`."""
        path_filter = self.path_filter
        if prefix:  # rules that name these tools hold for these files; those that name the tools without it, for all
            path_filter = path_filter.plus(self._rules.paths(prefix))
        kept_in = self._folders.kept_from_programs
        programs = ProgramPaths(path_filter, self._show_git, self.calls.reads_everything, kept_in, self.calls.commit_on)
        own = section_registry({ProgramPaths: programs, **({ToolNames: ToolNames(prefix)} if prefix else {})})
        own = own.merge(_RUN_CONTEXT).merge(section_registry({RunFilesystem: RunFilesystem(self._filesystem)}))
        if path_filter or self._rules.speak_of_paths:
            own = own.merge(behind_filter(bound, lambda each: self._folders.behind(each.filtered(path_filter), prefix)))
        resources = given.merge(own)
        if self.permits_unbound:
            unbound = [*unbound_resources(template, Prompt(template, resources=resources).resources)]
            self.unbound += [f"{tool}: nothing binds {type_name(kind)}; {why}" for tool, kind, why in unbound]
            kinds = {kind for _, kind, _ in unbound}
            stand_ins = {kind: Binding(kind, partial(_not_made, kind)) for kind in kinds}
            resources = resources.merge(section_registry(stand_ins))
        return resources

    def _root(self, _resolver: Resolver) -> Filesystem:
        """The files of the folder of the run, which are not closed with what this is bound in."""
        return self._tree.filesystem(self._tree.root).filtered(excluding((), show_git=self._show_git))

    def _filesystem(self) -> Filesystem | None:
        """The files of the first toolset of the run that has files."""
        found = next(iter(self._with_files), None)
        return None if found is None else found.environment.resources.get(Filesystem, None)


def _not_made(kind: type[Any], _resolver: object) -> Any:  # noqa: ANN401 - nothing is made
    raise UnboundResourceError(kind)


def _defaults_of(section: Section[Any]) -> dict[str, Verdict]:
    """What is done with calls of a section's own tools where no rule applies; others are left to their effects.

    A plan is nothing but words in the session, and a shell whose rules let programs only look is a reader. This holds
    for these very classes and the tools that they bring, not for what a program puts below them or makes of them.
    """
    harmless = type(section) is PlanningToolsSection
    if type(section) is ShellToolsSection:
        harmless = all(isinstance(rule, ShellRule) and rule.reads for rule in section.allow)
    return dict.fromkeys((tool.name for tool in section.tools), "allow") if harmless else {}
