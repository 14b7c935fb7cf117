"""One run of one agent, from its file to its answer.

PydanticAI's agent is the loop. It is made anew for each run, of the entries that the file names: each of them is a
toolset under its label, and all of them together are one (`LabelledToolset`), which PydanticAI enters and leaves once.
Every call goes through the pipeline (`PipelineCapability`); the gate is asked ahead (`AgentCapability`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic_ai import (
    Agent,
    AgentStreamEvent,
    DeferredToolRequests,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    RunContext,
    RunUsage,
    TextPart,
    TextPartDelta,
    ToolsetTool,
    UsageLimits,
)
from pydantic_ai.capabilities import ModelFallback
from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior
from pydantic_ai.models import Model
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.loop import read_ahead
from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.adapters.pydantic_ai.models import RUN_ERRORS, evaluation_error, open_model
from handrail.adapters.pydantic_ai.replies import find_call
from handrail.adapters.pydantic_ai.toolset import SECTION_TOOLS
from handrail.agents.active_run import CurrentRun, ShellConfig, as_current_run
from handrail.agents.agent_file import AgentFile
from handrail.agents.approval.decisions import GatedCall
from handrail.agents.modules import error_location
from handrail.agents.registry import ResolvedAgent, resolve
from handrail.agents.run.executors import AgentCapability, RunExecutors
from handrail.agents.run.interface import CallEnded, CallWaits, RunEnded, RunStarted, Status, TextDelta
from handrail.agents.run.run_group import RunGroup, open_child_session
from handrail.agents.toolsets.builtin import DynamicAgent, session_agents
from handrail.agents.toolsets.labelled_toolset import (
    LabelledSource,
    LabelledToolset,
    Reserved,
    build_toolsets,
)
from handrail.agents.unmatched_rules import Listings, check_rules_match, unmatched_rules
from handrail.errors import AgentDepthError, AgentError, CallPostponed, ParseError, StoreError
from handrail.filesystem import HostFilesystem, PathFilter
from handrail.limits import TokenUsage
from handrail.prompt import Section, Tool
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.runtime import EffectAwaited, EffectUnsettled, ToolInvoked, ToolRaised
from handrail.runtime.calls import READER
from handrail.runtime.execution import ASYNC
from handrail.runtime.long_results import cut_text
from handrail.serde import codec
from handrail.serde.formatting import enumerated, shorten
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.transaction import current
from handrail.waiting import synchronous_entry

# The second for an answer that is not a stream, where one was asked for.
_FAILURES = (ModelAPIError, UnexpectedModelBehavior)
_LONGEST_NAME = 100
_MOST_LISTED = 600  # bytes of names


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run.

    Attributes:
        status: `"done"`, or `"waiting"` for answers to the questions in `waiting`.
        output: the answer: text, or a value of the program's `output_type`; empty while it waits.
        waiting: the calls that wait for approval, in this run and those nested in it.
        usage: the tokens of the run, those of the agents that it called included.
        session_id: the session, which holds state, conversation and record.
        messages: the whole conversation, as PydanticAI has it.
    """

    status: Status
    output: Any
    waiting: tuple[GatedCall, ...]
    usage: TokenUsage
    session_id: str
    messages: tuple[ModelMessage, ...] = field(repr=False)


class SharedUsage(NamedTuple):
    """The usage that nested runs share, in which PydanticAI counts, and its limits."""

    usage: RunUsage
    limits: UsageLimits | None


class AgentRun(CurrentRun):
    """One run of one agent; see `handrail.agents.active_run.CurrentRun`.

    Attributes:
        tree: the part that it shares with the runs nested in it.
    """

    def __init__(
        self, tree: RunGroup, agent: ResolvedAgent, *, session: Session, path: tuple[str, ...], model: Model | str
    ) -> None:
        """Prepares the run; `execute` carries it out."""
        self.tree = tree
        self.agent = agent
        self.session = session
        self.path: tuple[str, ...] = path
        self.model = model
        self.root: Path = tree.root
        self.project_folder: Path = tree.project.folder
        self.shell: ShellConfig = tree.project.config.shell.settings(tree.project.folder)
        self.file: AgentFile = agent.file
        self._stack = ExitStack()
        self.executors: RunExecutors = RunExecutors(tree, session, path, self._stack, agent)
        self.path_filter: PathFilter = self.executors.path_filter
        self._postponed: set[CallRef] = set()
        self._raised_at: dict[CallRef, str] = {}
        self._unsettled: set[CallRef] = set()
        self._agents_called: Counter[CallRef] = Counter()
        self._step_tools: Sequence[tuple[LabelledSource, Mapping[str, ToolsetTool[Any]]]] = ()
        self._has_checked_rules = len(path) > 1  # those of the outermost run are those of all
        self._usage = TokenUsage()

    @property
    @override
    def agents(self) -> Mapping[str, AgentFile]:
        """See `CurrentRun.agents`."""
        file = self.agent.file
        dynamic = session_agents(self.session).items()
        # They see the same files, and `.git` or not, as the agent that makes them, whatever the model has written.
        bound = {name: replace(other, exclude=file.exclude, show_git=file.show_git) for name, other in dynamic}
        return {**self.tree.project.agents, **bound}

    @synchronous_entry  # for the factories of the program, which call it by themselves
    @override
    def filesystem(self, folder: Path) -> HostFilesystem:
        """See `CurrentRun.filesystem`."""
        return self.tree.filesystem(folder)

    @override
    async def open_filesystem(self, folder: Path) -> HostFilesystem:
        """See `CurrentRun.open_filesystem`."""
        return await self.tree.open_filesystem(folder)

    @override
    def section_toolset(self, section: Section[Any], *, id: str, prefix: str = "") -> HandrailToolset:
        """See `CurrentRun.section_toolset`."""
        return self.executors.section_toolset(section, id=id, prefix=prefix)

    @override
    def tool_toolset(self, tool: Tool[Any, Any], *, id: str) -> HandrailToolset:
        """See `CurrentRun.tool_toolset`."""
        return self.executors.tool_toolset(tool, id=id)

    @contextmanager
    def activate(self) -> Generator[None]:
        """Makes this the current run in the block; at its end the executors are closed."""
        # The current run is reset before the toolsets are closed, because the stack was entered first.
        with self._stack, as_current_run(self):
            yield

    def toolset(self, reserved: Reserved) -> LabelledToolset:
        """All toolsets of the agent as one, for this run; `reserved` gives the names that no tool may have."""
        rendering = self.executors.foreign.environment.rendering
        return LabelledToolset(
            build_toolsets(self.agent, self.tree.project.agents),
            # The toolsets of sections, which are made later, may add tools that open sections.
            reserved=lambda: {**{tool.name: SECTION_TOOLS for tool in rendering.tools}, **reserved()},
            check=self.tree.options.check_names,
            notify=self._record_tools,
        )

    def listings(self) -> Listings:
        """The tools of the toolsets of the run, as far as they are known at this step."""
        return {source.label: [tool.tool_def for tool in tools.values()] for source, tools in self._step_tools}

    async def execute(self, input: str | None, spent: SharedUsage, *, output_type: Any = str) -> RunResult:  # noqa: ANN401 - PydanticAI's
        """Carries the run out; without an input, resumes the unfinished run of the session. Raises as `run_async`."""
        # The stack can be closed twice: here, and in `activate`.
        with self._stack:  # the executors are closed, too, if the run cannot begin
            load = partial(StoredHistory, self.session, self.agent.file.name, is_held=True)
            conversation = await ASYNC.write_to(self.session.store, load)
            self._check_start(input, conversation)
            # A record means that the call has ended, so its decision must not answer a new call of the same id.
            await ASYNC.write_to(self.session.store, self.executors.forget_ended)
            self.tree.notify(
                RunStarted(self.path, _model_name(self.model), self.session.session_id, conversation.unfinished)
            )
            unknown: Mapping[str, str] = {}
            try:
                with self.activate(), self._listening():
                    async with self._undoing():
                        result = await self._run(input, conversation, spent, output_type)
                unknown = await self._unknown_effects()
            except BaseException as error:
                if isinstance(error, Exception):
                    with suppress(StoreError):  # the error that ended the run matters more
                        unknown = await self._unknown_effects()
                self._notify_end("failed", _describe(error), self._usage, unknown)
                raise
        # After the stack has been closed, so that a listener sees an answer only when nothing is open any more.
        self._notify_end(result.status, str(result.output), result.usage, unknown)
        return result

    def _undoing(self) -> AbstractAsyncContextManager[None]:
        # The calls of agents that it has called are those of their sessions, and stay.
        if self.tree.options.on_abort is None or len(self.path) > 1:
            return nullcontext()
        from handrail.undo import on_abort  # noqa: PLC0415

        return on_abort(self.executors.foreign, own=self.executors.own_executors)

    def _notify_end(self, status: Status, output: str, usage: TokenUsage, unknown: Mapping[str, str]) -> None:
        self.tree.notify(RunEnded(self.path, status, output, usage, self.session.session_id, unknown))

    async def _unknown_effects(self) -> dict[str, str]:
        # See `RunEnded.unknown`; empty without a listener.
        if self.tree.options.listener is None:
            return {}
        store = self.tree.ledger.store
        claims = await ASYNC.write_to(store, partial(store.open_claims, self.session.session_id))
        return {call.key: call.tool for call in claims if call.state == "unknown" and call.key is not None}

    @contextmanager
    def _listening(self) -> Generator[None]:
        dispatcher, notify, path = self.session.dispatcher, self.tree.notify, self.path
        with (
            dispatcher.subscribe(EffectAwaited, lambda wait: notify(CallWaits.of(path, wait))),
            dispatcher.subscribe(EffectUnsettled, lambda event: self._unsettled.add(event.ref)),
            dispatcher.subscribe(ToolInvoked, self._end_call),
            dispatcher.subscribe(ToolRaised, self._record_error),
        ):
            yield

    @override
    async def call_agent(self, name: str, input: str, ctx: RunContext[Any]) -> str:
        """See `CurrentRun.call_agent`."""
        if len(self.path) >= (limit := self.tree.options.max_depth):
            raise AgentDepthError(
                f"agent {name} was not started: it would be at depth {len(self.path) + 1}, and the limit is {limit} "
                f"({'/'.join((*self.path, name))}). Do the work without it."
            )
        agents = self.agents
        if name not in agents:
            there = enumerated(tuple(agents), limit=_MOST_LISTED, near=name) or "none"
            raise AgentError(f"the agent {shorten(name, _LONGEST_NAME)!r} does not exist; the agents are: {there}")
        agent = resolve(agents[name], self.tree.project.registry)
        if (call := current()) is not None and call.writes and self.session.store is not None:
            # The changes of an agent stay, as its conversation does, which a repeat of this call finds again.
            call.concurrent = True
        ref = find_call(ctx, self.session).ref
        nth = self._agents_called[ref] = self._agents_called[ref] + 1
        own = ref if nth == 1 else CallRef.nested(ref, str(nth))
        effects = self.tree.ledger.store
        async with open_child_session(self.session, own, agent=name, input=input, effects=effects) as (
            session,
            conversation,
        ):
            if conversation.history and all(
                getattr(part, "content", None) != input for part in conversation.history[0].parts
            ):
                raise AgentError(f"{name} was asked something else before; call agents in the same order each time")
            # The agent had answered, and the process ended before the call was recorded.
            if conversation.history and not conversation.unfinished:
                return conversation.answer
            # A dynamic agent uses the model of this run.
            model = self.tree.model_for(agent.file, self.model) if name in self.tree.project.agents else self.model
            await read_ahead(session, DynamicAgent)
            path = (*self.path, name)
            run = AgentRun(self.tree, agent, session=session, path=path, model=model)
            try:
                result = await run.execute(
                    None if conversation.unfinished else input, SharedUsage(ctx.usage, ctx.usage_limits)
                )
            finally:
                # Also for a run that failed: its tokens have been used.
                self._usage += run._usage
            if result.status == "waiting":
                self._postponed.add(ref)
                raise CallPostponed(f"{name} waits for approval of {len(result.waiting)} calls")
            return str(result.output)

    async def _run(
        self,
        input: str | None,
        conversation: StoredHistory,
        spent: SharedUsage,
        output_type: Any,  # noqa: ANN401
    ) -> RunResult:
        output_names: dict[str, str] = {}
        capability = self._capability(conversation, output_names)
        options, fallback = self.tree.options, self.tree.options.fallback_model
        async with open_model(self.model) as model, AsyncExitStack() as stack:
            others = [] if fallback is None else [await stack.enter_async_context(open_model(fallback))]
            agent: Agent[Any, Any] = Agent(
                model,
                name=self.agent.file.name,
                instructions=self.agent.file.instructions,
                output_type=[output_type, DeferredToolRequests],
                toolsets=[self.toolset(lambda: output_names)],
                capabilities=[capability, *(ModelFallback[Any](other, fallback_on=_FAILURES) for other in others)],
                model_settings=None if options.retries is None else {"max_retries": options.retries},
            )
            try:
                result = await agent.run(
                    input,
                    message_history=conversation.history or None,
                    deferred_tool_results=conversation.deferred_results,
                    deps=options.deps,
                    usage=spent.usage,
                    usage_limits=spent.limits,
                    event_stream_handler=self._stream if options.listener is not None and options.stream else None,
                    infer_name=False,
                )
            except RUN_ERRORS as error:
                raise evaluation_error(error, self.agent.file.name) from error
        waits = isinstance(result.output, DeferredToolRequests)
        return RunResult(
            status="waiting" if waits else "done",
            output="" if waits else result.output,
            waiting=self.tree.gate.open if waits else (),
            usage=self._usage,
            session_id=self.session.session_id,
            messages=tuple(result.all_messages()),
        )

    def _capability(self, conversation: StoredHistory, output_names: dict[str, str]) -> AgentCapability:
        return AgentCapability(
            self.executors.foreign,
            policies=self.executors.policies,
            conversation=conversation,
            executors=self.executors,
            check_tools=self._check_tools,
            count=self._count,
            output_names=output_names,
            postponed=self._postponed,
        )

    def _record_tools(self, tools: Sequence[tuple[LabelledSource, Mapping[str, ToolsetTool[Any]]]]) -> None:
        self._step_tools = tools
        self.executors.calls.origins = {name: source.label for source, names in tools for name in names}

    async def _check_tools(self) -> None:
        # Once the tools of a step are known; the folder of the run is opened if they need it.
        await self.executors.open_root()
        self._check_rules()

    def _check_rules(self) -> None:
        if self._has_checked_rules:
            return
        self._has_checked_rules = True
        faults = unmatched_rules(self.tree.rules, self.tree.project, self.agent.file, self.listings())
        check_rules_match(faults)
        self.tree.warn(self.path, [str(fault.error) for fault in faults])

    def _count(self, response: ModelResponse) -> None:
        # PydanticAI counts for all runs that share the limits; a run reports its own usage.
        usage = response.usage
        self._usage += TokenUsage(usage.input_tokens, usage.output_tokens, usage.cache_read_tokens)

    def _check_start(self, input: str | None, conversation: StoredHistory) -> None:
        session = self.session.session_id
        if input is not None and not (isinstance(cast("object", input), str) and input.strip()):
            raise AgentError(f"the input of {self.agent.file.name} is {input!r}; it is a text that says what to do")
        kind = self.tree.project.inputs.get(self.agent.file.name)
        if input is not None and kind is not None:
            try:
                codec(kind).parse_json(input)
            except ParseError as error:
                raise AgentError(f"the input of {self.agent.file.name} is JSON of {kind.__name__}: {error}") from error
        if input is None and not conversation.unfinished:
            raise AgentError(
                f"session {session!r} holds no unfinished run of {self.agent.file.name}, so there is nothing to resume "
                "with; give an input"
            )
        if input is not None and not conversation.takes_input:
            raise AgentError(
                f"the last run of {self.agent.file.name} in session {session!r} is unfinished; resume it without "
                "an input first, or begin another session"
            )

    def _record_error(self, event: ToolRaised) -> None:
        self._raised_at[event.ref] = error_location(event.error, self.project_folder)

    def _end_call(self, event: ToolInvoked) -> None:
        # The next call of this id is another one; see `RunCalls.forget`.
        self.executors.calls.forget(event.ref, event.name)
        raised_at, unsettled = self._raised_at.pop(event.ref, ""), event.ref in self._unsettled
        self._unsettled.discard(event.ref)
        if self.tree.options.listener is None:  # its text need not be written
            return
        text = event.result.render()
        if len(text) > MAX_RESULT_CHARS:
            text = cut_text(text, MAX_RESULT_CHARS, event.ref, READER)
        self.tree.notify(
            CallEnded(
                path=self.path,
                call_id=event.call_id,
                tool=event.name,
                success=event.success,
                content=text,
                seconds=event.total_seconds,
                replayed=event.replayed,
                reply=event.reply,
                raised_at=raised_at,
                refused=not event.success and event.handler_seconds is None,
                outcome_unknown=unsettled and event.handler_seconds is not None,
                has_effect=event.effect_key is not None,
            )
        )

    async def _stream(self, _ctx: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            text = ""
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                text = event.part.content
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
            if text:
                self.tree.notify(TextDelta(self.path, text))


def _model_name(model: Model | str) -> str:
    return model if isinstance(model, str) else model.model_name


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
