"""The executors of one run, on its session, for the tools of Handrail and for all others, and how calls are described.

A call is described twice: ahead, when its arguments have been validated and a person may have to be asked, and in the
pipeline, when it is about to run. Both descriptions name the arguments by their digest, so that what runs is what was
asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Final, NamedTuple, cast

from pydantic_ai import RunContext as PydanticRunContext
from pydantic_ai import ToolCallPart, ToolDefinition
from pydantic_ai.capabilities import ValidatedToolArgs

from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.adapters.pydantic_ai.foreign.calls import plain_arguments
from handrail.adapters.pydantic_ai.foreign.effects import read_tool_metadata
from handrail.adapters.pydantic_ai.pipeline_reach import PIPELINE_METADATA_KEY
from handrail.adapters.pydantic_ai.toolset import RawArguments, call_run_context
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.approval.decisions import GatedCall, Judgement, Verdict
from handrail.agents.approval.gate import GatedPrompt, GatePolicy
from handrail.agents.approval.path_rules import FILE_TOOLS
from handrail.agents.approval.rules import Rule, program_key, rules_on_arguments
from handrail.agents.exports.registry import ResolvedAgent
from handrail.agents.run.disclosed_sections import disclosed_sections, section_path
from handrail.agents.run.folder_paths import FolderPaths, RunRules, behind_filter, given_filesystem, takes_files
from handrail.agents.run.foreseen_calls import foresee_call, link_targets, parsed_arguments
from handrail.agents.run.run_group import RunGroup
from handrail.contrib.tools import PlanningToolsSection, ShellRule, ShellToolsSection
from handrail.contrib.tools.shell.process import ToolNames
from handrail.contrib.tools.shell.rules import ProgramPaths
from handrail.errors import AgentError, UnboundResourceError
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.filesystem.path_filters import PathFilter, excluding
from handrail.limits import RunContext
from handrail.loop_guard import synchronous_entry
from handrail.prompt import Prompt, PromptTemplate, Section, Tool, ToolContext, ToolPolicy
from handrail.prompt.effect import Effect
from handrail.prompt.hooks import RunFilesystem
from handrail.prompt.idempotency import effect_hints
from handrail.prompt.section import section_registry
from handrail.prompt.template import unbound_resources
from handrail.redaction import redacted
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.resources.binding import Resolver
from handrail.runtime import ToolCall, ToolInvoked
from handrail.runtime.execution import ASYNC
from handrail.serde import Masking, digest, schema_masking
from handrail.serde.formatting import type_name
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.views import reads_above
from handrail.taint import TaintPolicy
from handrail.taint.policy import JudgedArguments

_RUN_CONTEXT: Final = ResourceRegistry.of(
    Binding(PydanticRunContext, lambda _resources: call_run_context(), Scope.TOOL_CALL)
)
"""What PydanticAI gives the functions of an agent, as a resource of each call."""


class _Own(NamedTuple):
    """A toolset of Handrail's in this run.

    Attributes:
        executor: what carries its calls out.
        defaults: what is done with calls of its tools where no rule applies, by name; else their effects decide.
        shows_section: whether a section of the program's brings its tools.
    """

    executor: ToolExecutor
    defaults: Mapping[str, Verdict]
    shows_section: bool


class _Looks(NamedTuple):
    """The arguments of a call in all the ways that rules look at; see the fields of `GatedCall`."""

    arguments: dict[str, Any]
    written: Mapping[str, Any] | None = None
    reached: Mapping[str, str] | None = None

    @staticmethod
    def of(arguments: dict[str, Any], written: Mapping[str, Any] | None, masking: Masking) -> _Looks:
        """A call as it is shown: without secrets."""
        if not masking.hides:
            return _Looks(arguments, written)
        shown = cast("dict[str, Any]", masking.mask(arguments))
        return _Looks(shown, None if written is None else cast("dict[str, Any]", masking.mask(written)))


class RunExecutors:
    """The executors of one run; the one owner of what was described ahead.

    Attributes:
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
        self._ahead: dict[tuple[CallRef, str], GatedCall] = {}
        self.permits_unbound: bool = False
        self.unbound: list[str] = []
        self._origins: Mapping[str, str] = {}
        self.policy: GatePolicy = GatePolicy(tree.gate, self.describe, FILE_TOOLS)
        tainted = tree.rules.tainted
        self._taint = None if tainted == "allow" else TaintPolicy(on_tainted=tainted)
        self.policies: tuple[ToolPolicy, ...] = (self.policy,) if self._taint is None else (self.policy, self._taint)
        disclosed = disclosed_sections(agent, tree.project.agents)
        self._disclosed = {each.toolset: each.key for each in disclosed}
        self.foreign: ToolExecutor = self._executor(disclosed)
        # The tools that no section brings are called by the executor of all other tools. They only show what there is.
        added: dict[str, Verdict] = dict.fromkeys(self.foreign.environment.added_names, "allow")
        self._adding: _Own = _Own(self.foreign, added, shows_section=False)

    def is_open(self, toolset: str) -> bool:
        """Whether a toolset that the agent file discloses by its summary is open now."""
        path = self._disclosed[toolset]
        return any(each.path == path and each.is_open for each in self.foreign.environment.rendering.sections())

    def note_hidden(self, tools: Mapping[str, str]) -> None:
        """Take note of the tools of the closed toolsets at this step, each with its toolset."""
        hidden = {name: self._disclosed[toolset] for name, toolset in tools.items()}
        self.foreign.environment.rendering.brought = hidden

    def note_origins(self, origins: Mapping[str, str]) -> None:
        """Take note of where the tools of this step come from, in words, by their names."""
        self._origins = origins

    def section_toolset(self, section: Section[Any], *, id: str, prefix: str = "") -> HandrailToolset:
        """A section as a toolset of this run; see `CurrentRun.section_toolset`."""
        executor = self._executor((section,), prefix=prefix)
        rendering = executor.environment.rendering
        if rendering.may_change:  # what it has of sections with a summary is opened by the tools of the run
            self.foreign.environment.rendering.beside += (rendering,)
        return self._toolset(id, _Own(executor, _defaults_of(section), shows_section=True))

    def tool_toolset(self, tool: Tool[Any, Any], *, id: str) -> HandrailToolset:
        """One tool as a toolset of this run; see `CurrentRun.tool_toolset`."""
        section = Section[None](title="Tools", key="tools", tools=(tool,))
        executor = self._executor((section,))
        without_text = replace(executor.environment.rendered_prompt, text="")
        executor.environment = executor.environment.with_rendered(without_text)
        return self._toolset(id, _Own(executor, {}, shows_section=False))

    async def describe_ahead(
        self, ref: CallRef, call: ToolCallPart, definition: ToolDefinition, args: ValidatedToolArgs
    ) -> GatedCall | None:
        """A call that is about to be made, as the gate judges it; `None` for one that will be refused as it is."""
        name, own = _own_name(definition), self._own_of(definition)
        if name is None or own is None:
            described = await self._of_foreign(ref, call, definition, args)
        else:
            described = await self._of_own(ref, call, definition, own, args)
        # Kept for the pipeline, which describes the call once more without knowing what the model wrote.
        if described is not None:
            self._ahead[ref, name or call.tool_name] = described
        return described

    def forget(self, ref: CallRef, name: str) -> None:
        """Drop what was described ahead of a call that has ended; another call of its id is another one."""
        self._ahead.pop((ref, name), None)
        self._tree.gate.forget((self._session.session_id, ref))

    def admit(self, definition: ToolDefinition) -> None:
        """Refuse a tool whose calls would take another pipeline than this run's, where they are not asked about.

        Raises:
            AgentError: it has an executor of its own.
        """
        # A tool that is not Handrail's has no executor, so its calls pass the pipeline of this run.
        if _own_name(definition) is None or self._own_of(definition) is not None:
            return
        source = self._origins.get(definition.name, "a toolset of the agent")
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

    def describe(
        self,
        tool: Tool[Any, Any],
        params: Any,  # noqa: ANN401 - as of the tool
        ref: CallRef,
        context: ToolContext | None = None,
    ) -> GatedCall:
        """A call that is about to run, as the gate judges it; without its context, as it was last described."""
        ahead = self._ahead.get((ref, tool.name))
        looks = _Looks.of(parsed_arguments(params), None, tool.masking)
        # Changed arguments belong to another call: what was written for the first one must not be held against it.
        if ahead is not None and ahead.arguments == looks.arguments:
            looks = _Looks(looks.arguments, ahead.written, ahead.reached)
        # A link may have been changed since the question, so where it leads is looked up again when the call runs.
        looks_again = context is not None and tool.name in FILE_TOOLS
        if context is not None and looks_again:
            looks = looks._replace(reached=link_targets(tool, params, context))
        if ahead is not None and (ahead.arguments, ahead.reached) == (looks.arguments, looks.reached):
            return ahead
        described = self._gated(ref, tool.name if ahead is None else ahead.tool, tool.effect, looks)
        if ahead is not None:
            described = replace(described, default=ahead.default, asks=ahead.asks, own_tool=ahead.own_tool)
            described = replace(described, description=ahead.description)
        if looks_again:  # who is asked about it next is shown what was found now
            self._ahead[ref, tool.name] = described
        return described

    def _reads_everything(self, context: ToolContext, params: object) -> bool:
        """Whether a rule that allows a call lets its programs read everything."""
        return any(rule.reads_everything for rule in self._allowing(context, params))

    def _commit_on(self, context: ToolContext, params: object) -> frozenset[int]:
        """The exit codes with which the rules that allow a call let the changes of its program stay."""
        return frozenset(code for rule in self._allowing(context, params) for code in rule.commit_on)

    def _allowing(self, context: ToolContext, params: object) -> Sequence[Rule]:
        """The rules that allow a call and say something about its programs."""
        arguments = parsed_arguments(params)
        # Compared with the arguments, because an earlier call with the same id may have had others.
        ahead = (call for (ref, _), call in self._ahead.items() if ref == context.call and call.arguments == arguments)
        call = next(ahead, None)
        if call is None:
            return ()
        return [rule for rule in self._tree.rules.allow if program_key(rule) and rule.fits(call, "narrow")]

    def report(self, definition: ToolDefinition) -> ToolReport:
        """A tool of this run, for people."""
        self.admit(definition)
        said = read_tool_metadata(definition)
        section, default, untrusted, may_act = "", said.approval, said.untrusted, said.may_act
        concurrent = said.concurrent
        policies: tuple[str, ...] = ()
        hints = effect_hints(said.effect, declares_effect=said.declares_effect, idempotency=said.idempotency)
        name, own = _own_name(definition), self._own_of(definition)
        if name is not None and own is not None:
            environment = own.executor.environment
            judging = environment.rendered_prompt.policies_for(name)[len(self.policies) :]
            policies = tuple(policy.name for policy in judging)
            section = section_path(environment.prompt.template.tree, name) if own.shows_section else ""
            default = own.defaults.get(name)
            tool = self.own_tool(definition)
            if tool is not None:
                untrusted = tool.untrusted or name in environment.prompt.template.untrusted_tools
                may_act, concurrent = tool.may_act, tool.concurrent
                hints = effect_hints(tool.effect, declares_effect=tool.declares_effect, idempotency=tool.idempotency)
        call = GatedCall(
            path=self._path,
            session_id=self._session.session_id,
            call_id="",
            tool=definition.name,
            effect=said.effect,
            arguments={},
            digest="",
            default=default,
            own_tool="" if name in {None, definition.name} else str(name),
        )
        found = self._tree.gate.judge(call)
        return ToolReport(
            name=definition.name,
            description=definition.description or "",
            source=self._origins.get(definition.name, ""),
            section=section,
            policies=policies,
            effect=said.effect,
            approval=found,
            parameters=definition.parameters_json_schema,
            hints=hints,
            on_arguments=rules_on_arguments(self._tree.rules, call, found),
            untrusted=untrusted,
            may_act=may_act,
            runs_one_by_one=said.effect == "external" and not concurrent,
        )

    def own_tool(self, definition: ToolDefinition) -> Tool[Any, Any] | None:
        """The tool of Handrail that a definition of this run shows; `None` for any other tool."""
        name, own = _own_name(definition), self._own_of(definition)
        return None if name is None or own is None else own.executor.environment.rendered_prompt.tool(name)

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
        return tuple(own.executor for own in self._own.values())

    def _own_of(self, definition: ToolDefinition) -> _Own | None:
        environment = self.foreign.environment
        # The toolset of the capability is called as the prompt, which another toolset may be, too.
        name = _own_name(definition)
        if definition.toolset_id == environment.rendered_prompt.name and name in environment.added_names:
            return self._adding
        return self._own.get(definition.toolset_id or "")

    async def _of_foreign(
        self, ref: CallRef, call: ToolCallPart, definition: ToolDefinition, args: ValidatedToolArgs
    ) -> GatedCall | None:
        said = read_tool_metadata(definition)
        masking, written = schema_masking(definition.parameters_json_schema), plain_arguments(call.args_as_dict())
        if masking.masks_in(written):
            return None
        looks = _Looks.of(plain_arguments(args, definition), written, masking)
        gated = self._gated(ref, call.tool_name, said.effect, looks, written)
        judged = JudgedArguments(looks.arguments, definition.parameters_json_schema)
        asks = await self._asked_about_taint(call.tool_name, judged, may_act=said.may_act)
        return replace(gated, asks=asks, default=said.approval, description=definition.description or "")

    async def _asked_about_taint(self, tool: str, arguments: JudgedArguments, *, may_act: bool) -> tuple[str, ...]:
        """What the policy about taint asks, ahead of the call, about a tool that is not Handrail's."""
        if self._taint is None or not self._taint.guards(tool, may_act=may_act):
            return ()
        judge = partial(self._taint.judge, self._session, tool, lambda: arguments)
        decision = await ASYNC.in_thread(judge) if reads_above(self._session) else judge()
        return (redacted(decision.reason),) if decision.verdict == "ask" else ()

    async def _of_own(
        self, ref: CallRef, call: ToolCallPart, definition: ToolDefinition, own: _Own, args: ValidatedToolArgs
    ) -> GatedCall | None:
        name = _own_name(definition) or call.tool_name
        given = args.given() if isinstance(args, RawArguments) else args
        environment = own.executor.environment
        call_ahead = ToolCall(ref.call_id, name, given)
        foreseen = await foresee_call(call_ahead, ref.reply, environment, without=self.policy.name)
        if foreseen is None:
            return None
        written = plain_arguments(call.args_as_dict())
        looks = _Looks.of(foreseen.arguments, written, foreseen.tool.masking)
        looks = looks._replace(reached=foreseen.reached)
        gated = self._gated(ref, call.tool_name, foreseen.tool.effect, looks, written)
        return replace(
            gated,
            asks=foreseen.questions,
            default=own.defaults.get(name),
            own_tool="" if name == call.tool_name else name,
            description=definition.description or "",
        )

    def _gated(
        self, ref: CallRef, name: str, effect: Effect, looks: _Looks, written: Mapping[str, Any] | None = None
    ) -> GatedCall:
        origin = self._origins.get(name, "")
        # A decision is about this tool, and about what the model wrote, secrets included, which are not shown.
        has_secrets = written is not None and written != looks.written
        written = written if has_secrets else looks.written
        decided = {"tool": name, "origin": origin, "arguments": looks.arguments, "written": written}
        if looks.reached is not None:  # what was decided before links were looked at still holds where there are none
            decided["reached"] = looks.reached
        return GatedCall(
            path=self._path,
            session_id=self._session.session_id,
            call_id=ref.call_id,
            tool=name,
            effect=effect,
            arguments=looks.arguments,
            # With the key of the store, a short secret cannot be found out from the digest.
            digest=digest(decided, key=self._tree.ledger.store.hash_key() if has_secrets else None),
            origin=origin,
            written=looks.written,
            reply=ref.reply,
            reached=looks.reached,
        )

    def _toolset(self, id: str, own: _Own) -> HandrailToolset:
        # What a program has made cannot be called so. PydanticAI takes no colon, which sessions of called agents have.
        unique = f"{id} ({self._session.session_id})".replace(":", ";")
        # A factory may make several toolsets of one id.
        while unique in self._own:
            unique += "'"
        self._own[unique] = own
        return HandrailToolset(own.executor, id=unique, in_capability=True)

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
        programs = ProgramPaths(path_filter, self._show_git, self._reads_everything, kept_in, self._commit_on)
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


def _own_name(definition: ToolDefinition) -> str | None:
    """What a tool of Handrail's is called in its prompt, whatever a prefix has made of it; `None` for other tools."""
    name = (definition.metadata or {}).get(PIPELINE_METADATA_KEY)
    return None if name is None else str(name)


def _defaults_of(section: Section[Any]) -> dict[str, Verdict]:
    """What is done with calls of a section's own tools where no rule applies; others are left to their effects.

    A plan is nothing but words in the session, and a shell whose rules let programs only look is a reader. This holds
    for these very classes and the tools that they bring, not for what a program puts below them or makes of them.
    """
    harmless = type(section) is PlanningToolsSection
    if type(section) is ShellToolsSection:
        harmless = all(isinstance(rule, ShellRule) and rule.reads for rule in section.allow)
    return dict.fromkeys((tool.name for tool in section.tools), "allow") if harmless else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReport:
    """A tool as an agent would be offered it.

    Attributes:
        name: what the model calls it by.
        description: what the model reads of it.
        source: the entry that it comes from, in words: `toolset files (built-in)`.
        section: the section that brings it, as `files`; empty for a tool without one.
        policies: what judges its calls beside the approval rules.
        effect: what a call does to the world.
        approval: what holds for a call that no rule on arguments fits.
        on_arguments: the rules that say something else where their arguments fit; the first that fits decides.
        parameters: the JSON Schema of its arguments.
        hints: what the developer may not have meant, in sentences.
        untrusted: whether third parties write what it returns, so that it taints the session.
        may_act: whether its calls are asked about in a tainted session.
        runs_one_by_one: whether it acts outside and is not declared to be concurrent.
    """

    name: str
    description: str
    source: str
    section: str
    policies: tuple[str, ...]
    effect: Effect
    approval: Judgement
    parameters: Mapping[str, Any] = field(repr=False)
    hints: tuple[str, ...] = ()
    on_arguments: tuple[tuple[Verdict, Rule], ...] = ()
    untrusted: bool = False
    may_act: bool = False
    runs_one_by_one: bool = False
