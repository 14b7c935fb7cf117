"""The executors of one run, on its session, and its steps in PydanticAI's loop.

Each toolset of Handrail's has an executor, over its sections and the resources that the run binds for them: its files
behind the filter of the rules, the paths of programs, and PydanticAI's run context. All other tools share one.

`AgentCapability` acts at the steps of the loop: it asks before calls run, counts, and notifies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, ClassVar, Final

from pydantic_ai import (
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRequestContext,
    ModelResponse,
    ToolApproved,
    ToolCallPart,
    ToolDefinition,
)
from pydantic_ai import RunContext as PydanticRunContext
from pydantic_ai.capabilities import ValidatedToolArgs
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.adapters.pydantic_ai.pipeline import PipelineCapability
from handrail.adapters.pydantic_ai.toolset import PIPELINE_METADATA_KEY, call_run_context
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.approval.decisions import Decision, GatedCall, Verdict
from handrail.agents.approval.gate import ApprovalGate, GatedPrompt, GatePolicy
from handrail.agents.approval.path_rules import (
    FILE_TOOLS,
    FolderPaths,
    RunRules,
    behind_filter,
    bound_filesystem,
    takes_files,
)
from handrail.agents.registry import ResolvedAgent
from handrail.agents.run.calls import OwnTool, RunCalls
from handrail.agents.run.interface import CallStarted
from handrail.agents.run.run_group import RunGroup
from handrail.contrib.tools import PlanningToolsSection, ShellRule, ShellToolsSection
from handrail.contrib.tools.shell.rules import ProgramPaths
from handrail.errors import AgentError, PromptEvaluationError, UnboundResourceError
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.filesystem.path_filters import PathFilter, excluding
from handrail.limits import RunContext
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
from handrail.waiting import synchronous_entry

_RUN_CONTEXT: Final = ResourceRegistry.of(
    Binding(PydanticRunContext, lambda _resources: call_run_context(), Scope.TOOL_CALL)
)
"""PydanticAI's run context, as a resource of each call."""

_Own = tuple[ToolExecutor, Mapping[str, Verdict], bool]
"""The executor of a toolset of Handrail's; the verdicts on its tools where no rule applies, by name, else their effects
decide; and whether a section of the program brings its tools."""


class RunExecutors:
    """The executors of one run; `foreign` is the one for tools that are not Handrail's.

    With `permits_unbound` tools whose resources are not bound are offered, too, and `unbound` has these resources in
    words; for a run without calls.
    """

    def __init__(
        self, tree: RunGroup, session: Session, path: tuple[str, ...], stack: ExitStack, agent: ResolvedAgent
    ) -> None:
        """Opens the executors; `stack` closes them. The file of `agent` excludes paths."""
        self.tree = tree
        self._session = session
        self._path = path
        self._stack = stack
        self._show_git = agent.file.show_git
        excluded = excluding(agent.file.exclude, show_git=True)  # each toolset says for itself if .git is shown
        self._rules = RunRules(tree.rules, path, tree.options.mode)
        self._folders = FolderPaths(tree.prefixes, self._rules)
        self.path_filter: PathFilter = excluded.plus(self._rules.paths())
        self._own: dict[str, _Own] = {}
        self._with_files: list[ToolExecutor] = []
        self._over_root: list[ToolExecutor] = []
        self.permits_unbound: bool = False
        self.unbound: list[str] = []
        tainted = tree.rules.tainted
        taint = None if tainted == "allow" else TaintPolicy(on_tainted=tainted)
        self.calls: RunCalls = RunCalls(tree, session, path, taint)
        self.policy: GatePolicy = GatePolicy(tree.gate, self.calls.describe, FILE_TOOLS)
        self.policies: tuple[ToolPolicy, ...] = (self.policy,) if taint is None else (self.policy, taint)
        self.foreign: ToolExecutor = self._executor(())

    def section_toolset(self, section: Section[Any], *, id: str, prefix: str = "") -> HandrailToolset:
        """A section as a toolset of this run; see `CurrentRun.section_toolset`."""
        executor = self._executor((section,), prefix=prefix)
        rendering = executor.environment.rendering
        if rendering.may_change:  # its sections with a summary are opened by the tools of the run
            self.foreign.environment.rendering.beside += (rendering,)
        return self._toolset(id, (executor, _default_verdicts(section), True))

    def tool_toolset(self, tool: Tool[Any, Any], *, id: str) -> HandrailToolset:
        """One tool as a toolset of this run; see `CurrentRun.tool_toolset`."""
        section = Section[None](title="Tools", key="tools", tools=(tool,))
        executor = self._executor((section,))
        without_text = replace(executor.environment.rendered_prompt, text="")
        executor.environment = executor.environment.with_rendered(without_text)
        return self._toolset(id, (executor, {}, False))

    def admit(self, definition: ToolDefinition) -> None:
        """Refuses a tool with an executor of its own, whose calls would take another pipeline than that of the run."""
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
        """Drops the decisions of earlier runs about calls of this session that have been recorded since."""
        session_id = self._session.session_id
        # Loading the records is skipped in the common case of a new session.
        if any(key[0] == session_id for key in self.tree.gate.decisions):
            for event in self._session[ToolInvoked]:
                self.tree.gate.forget((session_id, event.ref))

    def own_tool(self, definition: ToolDefinition) -> OwnTool | None:
        """The tool of Handrail that a definition of this run shows; `None` for any other tool."""
        metadata = (definition.metadata or {}).get(PIPELINE_METADATA_KEY)
        if metadata is None:
            return None
        name, environment = str(metadata), self.foreign.environment
        # The toolset of the capability has the name of the prompt, which another toolset may have, too. Its tools are
        # called by the executor of all other tools, and only show.
        if definition.toolset_id == environment.rendered_prompt.name and name in environment.added_names:
            return OwnTool(name, environment, "allow", shows_section=False)
        if (own := self._own.get(definition.toolset_id or "")) is None:
            return None
        environment, sections = own[0].environment, own[0].environment.prompt.template.placed_sections()
        is_claim = any(placed.section.is_claim(name) for placed in sections)
        return OwnTool(name, environment, "ask" if is_claim else own[1].get(name), own[2])

    async def open_root(self) -> None:
        """Opens the folder of the run if tools take its files as a parameter; else the first call that asks opens it.

        Once it is open, every tool finds it before its call begins, so that calls take turns on it.
        """
        root = self.tree.root
        if any(executor in self._with_files for executor in self._over_root):
            await self.tree.open_filesystem(root)
        while self._over_root and self.tree.has_open(root):
            self._over_root.pop().environment.resources.get(Filesystem)

    def own_executors(self) -> tuple[ToolExecutor, ...]:
        """The executors of Handrail's tools, of the toolsets that have been made."""
        return tuple(executor for executor, _, _ in self._own.values())

    def _toolset(self, id: str, own: _Own) -> HandrailToolset:
        # A toolset of the program cannot have this id. PydanticAI takes no colon, which sessions of called agents have.
        unique = f"{id} ({self._session.session_id})".replace(":", ";")
        # A factory may make several toolsets of one id.
        while unique in self._own:
            unique += "'"
        self._own[unique] = own
        return HandrailToolset(own[0], id=unique, in_capability=True)

    def _executor(self, sections: tuple[Section[Any], ...], *, prefix: str = "") -> ToolExecutor:
        tree, options = self.tree, self.tree.options
        template = PromptTemplate[str](
            ns="agents",
            key=f"agent/{self._path[-1]}",
            name=self._path[-1],
            sections=sections,
            feedback=options.feedback,
            completion=options.completion if len(self._path) == 1 else None,
        )
        resources = section_registry(options.resources)
        tools = [tool for tool, _ in template.placed_tools()]
        # The bindings of the program precede those of sections; the files of the run precede only the default of a
        # suite.
        sections_and_program = reduce(
            ResourceRegistry.merge, [*(placed.section.registry for placed in template.placed_sections()), resources]
        )
        over_root = bool(tools) and not any(kind in sections_and_program for kind in (Filesystem, HostFilesystem))
        if over_root:
            resources = resources.merge(ResourceRegistry.of(Binding(Filesystem, synchronous_entry(self._root))))
        bindings = template.registry.merge(sections_and_program).merge(resources)
        files = bound_filesystem(bindings)
        self._folders.add(template, files, prefix)
        prompt = GatedPrompt(template, self._resources(template, resources, bindings, prefix), self.policies)
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
        if files is not None or any(map(takes_files, tools)):
            self._with_files.append(executor)
        if over_root:
            self._over_root.append(executor)
        return executor

    def _resources(
        self, template: PromptTemplate[str], own: ResourceRegistry, bindings: ResourceRegistry, prefix: str
    ) -> ResourceRegistry:
        # All that the run binds beside the template: `own`, with what it adds; `bindings` are those of both before
        # that.
        path_filter = self.path_filter
        if prefix:  # rules that name these tools hold for these files; those that name the tools without it, for all
            path_filter = path_filter.plus(self._rules.paths(prefix))
        folders = self._folders
        programs = ProgramPaths(path_filter, self._show_git, folders.program_filter)
        own_bindings = {ProgramPaths: programs, RunFilesystem: RunFilesystem(self._filesystem)}
        more = _RUN_CONTEXT.merge(section_registry(own_bindings))
        if path_filter or self._rules.speak_of_paths:
            more = more.merge(
                behind_filter(bindings, lambda files: folders.behind(files.filtered(path_filter), prefix))
            )
        resources = own.merge(more)
        if self.permits_unbound:
            unbound = [*unbound_resources(template, Prompt(template, resources=resources).resources)]
            self.unbound += [f"{tool}: nothing binds {type_name(kind)}; {why}" for tool, kind, why in unbound]
            kinds = {kind for _, kind, _ in unbound}
            stand_ins = {kind: Binding(kind, partial(_refuse_unbound, kind)) for kind in kinds}
            resources = resources.merge(section_registry(stand_ins))
        return resources

    def _root(self, _resolver: Resolver) -> Filesystem:
        # They are not closed with the resources in which this is bound.
        return self.tree.filesystem(self.tree.root).filtered(excluding((), show_git=self._show_git))

    def _filesystem(self) -> Filesystem | None:
        first = next(iter(self._with_files), None)
        return None if first is None else first.environment.resources.get(Filesystem, None)


def _refuse_unbound(kind: type[Any], _resolver: object) -> Any:  # noqa: ANN401 - nothing is made
    raise UnboundResourceError(kind)


def _default_verdicts(section: Section[Any]) -> dict[str, Verdict]:
    # A plan is only words in the session, and a shell whose rules let programs only look is a reader. This holds for
    # these very classes and their own tools, not for sections that a program puts below them, or subclasses.
    harmless = type(section) is PlanningToolsSection
    if type(section) is ShellToolsSection:
        harmless = all(isinstance(rule, ShellRule) and rule.reads for rule in section.allow)
    return dict.fromkeys((tool.name for tool in section.tools), "allow") if harmless else {}


@dataclass
class AgentCapability(PipelineCapability):
    """One run of an agent file. One capability for everything: PydanticAI takes a while for each.

    Attributes:
        check_tools: called at each step once its tools are known, before the model is offered any.
        output_names: the names of the tools by which the model gives structured answers.
        postponed: the calls of agents whose own calls wait for an answer.
    """

    warns_of_undeclared: ClassVar[bool] = False  # `handrail check` shows the effect of each tool

    executors: RunExecutors = field(kw_only=True)
    check_tools: Callable[[], Awaitable[None]] = field(kw_only=True)
    count: Callable[[ModelResponse], None] = field(kw_only=True)
    output_names: dict[str, str] = field(default_factory=dict[str, str])
    postponed: set[CallRef] = field(default_factory=set[CallRef])
    _calls: dict[CallRef, GatedCall] = field(init=False, repr=False, default_factory=dict[CallRef, GatedCall])

    @property
    def _gate(self) -> ApprovalGate:
        return self.executors.tree.gate

    @override
    async def settle(self) -> None:
        """Applies the results that wait for any of the tools of Handrail; raises as `wrap_run`."""
        for executor in self.executors.own_executors():
            await executor.settle_before_run_async()

    @override
    async def prepare_tools(
        self, ctx: PydanticRunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """Checks the tools of a step before the model is offered any, and opens the folder of the run for them."""
        for definition in tool_defs:
            self.executors.admit(definition)
        await self.check_tools()
        return tool_defs

    @override
    async def prepare_output_tools(
        self, ctx: PydanticRunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """Records the names that tools of the agent may not have."""
        self.output_names.update((definition.name, "the agent's output") for definition in tool_defs)
        return tool_defs

    @override
    async def after_model_request(
        self, ctx: PydanticRunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Counts the tokens of a reply, even if it is refused for the budget."""
        self.count(response)
        return await super().after_model_request(ctx, request_context=request_context, response=response)

    @override
    async def after_tool_validate(
        self, ctx: PydanticRunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Asks about a call, if it has to be asked about; `ApprovalRequired` if the question is left open."""
        ref = self.find_call(ctx, call).ref
        # A call with a final record is answered from it, so the person is not asked again.
        if await self.final_record(ref) is not None:
            return args
        gated = await self.executors.calls.describe_ahead(ref, call, tool_def, args, self.executors.own_tool(tool_def))
        if gated is None:
            return args
        if ref not in self._calls:  # a call that PydanticAI deferred comes by again
            self.executors.tree.notify(CallStarted(gated.path, gated.call_id, gated.tool, gated.arguments, gated.reply))
        self._calls[ref] = gated
        # An external tool is refused later as a whole; a question about it would be in vain.
        if tool_def.kind == "external" or self._gate.judge(gated).verdict != "ask":
            return args
        # PydanticAI puts a call off by itself if its tool requires approval.
        if (await self._decision(gated)).verdict == "later" and tool_def.kind == "function":
            raise ApprovalRequired
        return args

    @override
    async def handle_deferred_tool_calls(
        self, ctx: PydanticRunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Asks about calls that PydanticAI defers for approval; a denied one is refused by the pipeline.

        Raises:
            AgentError: a call is to be carried out outside of the run, which is not supported.
        """
        if requests.calls:
            names = ", ".join(sorted({call.tool_name for call in requests.calls}))
            raise AgentError(
                f"{names}: external tools and `CallDeferred` are carried out outside of the run, and an "
                "agent file has no such caller; let the tool do the work itself, or run it in an agent of your own"
            )
        approvals: dict[str, ToolApproved] = {}
        for call in requests.approvals:
            ref = self.find_call(ctx, call).ref
            gated = self._calls.get(ref)
            if await self.final_record(ref) is not None:
                approvals[call.tool_call_id] = ToolApproved()
            # A call without a description is refused by the pipeline, and one that was postponed waits for the calls
            # within it.
            elif gated is None or ref in self.postponed:
                continue
            elif (await self._decision(replace(gated, default="ask"))).verdict != "later":
                approvals[call.tool_call_id] = ToolApproved()
        # A call that is not listed stays open, and the run ends with status "waiting".
        return DeferredToolResults(approvals=dict(approvals)) if approvals else None

    async def _decision(self, call: GatedCall) -> Decision:
        deadline = self.executor.environment.deadline
        if deadline is None:
            return await self._gate.decide(call)
        try:
            async with asyncio.timeout(deadline.remaining().total_seconds()):
                return await self._gate.decide(call)
        except TimeoutError as error:  # never the approver's own, with which the gate denies
            late = f"{call.tool}: the deadline passed while approval was awaited; it was not run"
            raise PromptEvaluationError(late, phase="tool", tool=call.tool) from error
