"""The calls of one run, each described once, as a `GatedCall`: rules match it, the gate asks about it, reports show it.

PydanticAI validates all calls of a reply before the first of them runs. Each is described then, with the questions that
policies of its tool ask, and a person is asked about the calls of a reply one after the other, while nothing is open.
Nothing is refused or recorded then: what keeps a policy from deciding may have changed when the call is made. Whether a
call may run is enforced in the pipeline, by the policy `approval`.

The pipeline judges the same value when the call runs. It is made again only if the arguments are others by now, or if
links in the paths of a file tool lead elsewhere; the digest names both, so that what runs is what was asked about.

`AgentCapability` is what Handrail does at the steps of an agent's run: it asks before calls run, counts, and notifies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

from pydantic_ai import (
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRequestContext,
    ModelResponse,
    RunContext,
    ToolApproved,
    ToolCallPart,
    ToolDefinition,
)
from pydantic_ai.capabilities import ValidatedToolArgs
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai.foreign.calls import plain_arguments
from handrail.adapters.pydantic_ai.foreign.effects import read_tool_metadata
from handrail.adapters.pydantic_ai.pipeline import PipelineCapability
from handrail.adapters.pydantic_ai.toolset import RawArguments
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.approval.decisions import Decision, GatedCall, Verdict
from handrail.agents.approval.gate import GATE_POLICY_NAME, ApprovalGate
from handrail.agents.approval.path_rules import FILE_TOOLS, reached_paths
from handrail.agents.approval.rules import Rule, program_key
from handrail.agents.run.events import CallStarted, RunEvent
from handrail.agents.run.run_group import RunGroup
from handrail.errors import AgentError, DumpError, ParseError, PromptEvaluationError, RunAbortedError
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolPolicy
from handrail.prompt.effect import Effect
from handrail.prompt.policy import policy_may_block
from handrail.redaction import current_call_secrets, redacted, redacted_logger, use_call_secrets
from handrail.runtime import ToolCall
from handrail.runtime.approval import ask_policy
from handrail.runtime.calls import gather_secrets, masks_in
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC
from handrail.runtime.plan import find_plan
from handrail.serde import Masking, dump, schema_masking
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.views import reads_above
from handrail.taint import TaintPolicy
from handrail.taint.policy import JudgedArguments

_log = redacted_logger("handrail.agents")
_NO_CALL = CallRef(None, "")


class OwnTool(NamedTuple):
    """A tool of Handrail's, as a toolset of the run has it.

    Attributes:
        name: its name in its prompt, whatever a prefix has made of it.
        environment: what its calls run in.
        default: what is done with its calls where no rule applies; `None` leaves them to their effects.
        shows_section: whether a section of the program's brings it.
    """

    name: str
    environment: Environment
    default: Verdict | None
    shows_section: bool

    @property
    def tool(self) -> Tool[Any, Any] | None:
        """The tool, if its section is rendered."""
        return self.environment.rendered_prompt.tool(self.name)


class RunCalls:
    """The calls of one run; the one owner of their descriptions.

    Attributes:
        origins: where the tools of this step come from, in words, by their names.
    """

    def __init__(self, tree: RunGroup, session: Session, path: tuple[str, ...], taint: TaintPolicy | None) -> None:
        """Begin without any call.

        Args:
            tree: what the run shares.
            session: what the run works on.
            path: the agents that called each other, this one last.
            taint: judges calls once the session has read untrusted content; `None` where rules allow them.
        """
        self._tree = tree
        self._session = session
        self._path = path
        self._taint = taint
        self._ahead: dict[tuple[CallRef, str], GatedCall] = {}
        self.origins: Mapping[str, str] = {}

    def of_tool(self, name: str, effect: Effect, ref: CallRef = _NO_CALL, *, own_tool: str = "") -> GatedCall:
        """A call of a tool, whatever its arguments are."""
        return GatedCall(
            path=self._path,
            session_id=self._session.session_id,
            call_id=ref.call_id,
            reply=ref.reply,
            tool=name,
            effect=effect,
            origin=self.origins.get(name, ""),
            arguments={},
            digest="",
            own_tool="" if own_tool == name else own_tool,
        )

    async def describe_ahead(
        self, ref: CallRef, call: ToolCallPart, definition: ToolDefinition, args: ValidatedToolArgs, own: OwnTool | None
    ) -> GatedCall | None:
        """A call that is about to be made, as the gate judges it; `None` for one that will be refused as it is."""
        described = await (
            self._of_foreign(ref, call, definition, args) if own is None else self._of_own(ref, call, own, args)
        )
        if described is None:
            return None
        described = replace(described, description=definition.description or "")
        # For the pipeline, which does not know what the model wrote.
        self._ahead[ref, call.tool_name if own is None else own.name] = described
        return described

    def describe(
        self,
        tool: Tool[Any, Any],
        params: Any,  # noqa: ANN401 - as of the tool
        ref: CallRef,
        context: ToolContext | None = None,
    ) -> GatedCall:
        """A call that is about to run, as the gate judges it; without its context, as it was last described."""
        ahead = self._ahead.get((ref, tool.name))
        arguments = _masked(parsed_arguments(params), tool.masking)
        # Changed arguments belong to another call: what was written for the first one must not be held against it.
        is_same = ahead is not None and ahead.arguments == arguments
        reached = ahead.reached if ahead is not None and is_same else None
        # A link may have been changed since the question, so where it leads is looked up again when the call runs.
        if context is not None and tool.name in FILE_TOOLS:
            reached = _link_targets(tool, params, context)
        if ahead is not None and is_same and ahead.reached == reached:
            return ahead
        before = self.of_tool(tool.name, tool.effect, ref) if ahead is None else ahead
        written = before.written if is_same else None
        described = replace(before, arguments=arguments, written=written, reached=reached).digested(written)
        if context is not None and tool.name in FILE_TOOLS:  # who is asked about it next is shown what was found now
            self._ahead[ref, tool.name] = described
        return described

    def forget(self, ref: CallRef, name: str) -> None:
        """Drop the description of a call that has ended; another call of its id is another one."""
        self._ahead.pop((ref, name), None)
        self._tree.gate.forget((self._session.session_id, ref))

    def reads_everything(self, context: ToolContext, params: object) -> bool:
        """Whether a rule that allows a call lets its programs read everything."""
        return any(rule.reads_everything for rule in self._program_rules(context, params))

    def commit_on(self, context: ToolContext, params: object) -> frozenset[int]:
        """The exit codes with which the rules that allow a call let the changes of its program stay."""
        return frozenset(code for rule in self._program_rules(context, params) for code in rule.commit_on)

    def _program_rules(self, context: ToolContext, params: object) -> Sequence[Rule]:
        """The rules that allow a call and say something about its programs."""
        arguments = parsed_arguments(params)
        # Compared with the arguments, because an earlier call with the same id may have had others.
        ahead = (call for (ref, _), call in self._ahead.items() if ref == context.call and call.arguments == arguments)
        call = next(ahead, None)
        rules = () if call is None else self._tree.rules.allow
        return [rule for rule in rules if call is not None and program_key(rule) and rule.fits(call, "narrow")]

    async def _of_foreign(
        self, ref: CallRef, call: ToolCallPart, definition: ToolDefinition, args: ValidatedToolArgs
    ) -> GatedCall | None:
        said, name = read_tool_metadata(definition), call.tool_name
        masking, written = schema_masking(definition.parameters_json_schema), plain_arguments(call.args_as_dict())
        if masking.masks_in(written):
            return None
        arguments = _masked(plain_arguments(args, definition), masking)
        asks: tuple[str, ...] = ()
        if self._taint is not None and self._taint.guards(name, may_act=said.may_act):
            judged = JudgedArguments(arguments, definition.parameters_json_schema)
            judge = partial(self._taint.judge, self._session, name, lambda: judged)
            decision = await ASYNC.in_thread(judge) if reads_above(self._session) else judge()
            asks = (redacted(decision.reason),) if decision.verdict == "ask" else ()
        described = replace(self.of_tool(name, said.effect, ref), arguments=arguments, asks=asks, default=said.approval)
        return self._written(described, written, masking)

    async def _of_own(
        self, ref: CallRef, part: ToolCallPart, own: OwnTool, args: ValidatedToolArgs
    ) -> GatedCall | None:
        call = ToolCall(ref.call_id, own.name, args.given() if isinstance(args, RawArguments) else args)
        foreseen = await foresee_call(call, ref.reply, own.environment, without=GATE_POLICY_NAME)
        if foreseen is None:
            return None
        tool = foreseen.tool
        described = replace(
            self.of_tool(part.tool_name, tool.effect, ref, own_tool=own.name),
            arguments=_masked(foreseen.arguments, tool.masking),
            asks=foreseen.questions,
            reached=foreseen.reached,
            default=own.default,
        )
        return self._written(described, plain_arguments(part.args_as_dict()), tool.masking)

    def _written(self, call: GatedCall, written: Mapping[str, Any], masking: Masking) -> GatedCall:
        """The same with what the model wrote, without secrets; the digest is of what it wrote, secrets included."""
        shown = _masked(written, masking)
        key = self._tree.ledger.store.hash_key() if shown != written else None
        return replace(call, written=shown).digested(written, key)


def parsed_arguments(params: object) -> dict[str, Any]:
    """Parameters as JSON has them, whether they are a dataclass or JSON already."""
    if params is None:
        return {}
    try:
        return cast("dict[str, Any]", dump(params))  # of a dataclass or a mapping, so it is an object
    except DumpError:
        return plain_arguments(params)


def _masked(arguments: Mapping[str, Any], masking: Masking) -> Mapping[str, Any]:
    """Arguments as they are shown: without secrets."""
    return cast("dict[str, Any]", masking.mask(arguments)) if masking.hides else arguments


def _link_targets(tool: Tool[Any, Any], params: object, context: ToolContext) -> Mapping[str, str] | None:
    """The paths that links in the parameters of a file tool lead to; it may wait for a disk."""
    filesystem = context.filesystem
    return None if filesystem is None else reached_paths(tool.name, parsed_arguments(params), filesystem)


class ForeseenCall(NamedTuple):
    """A call of a tool of Handrail's before it is made.

    Attributes:
        tool: the tool.
        arguments: its arguments as they were parsed, as JSON has them.
        questions: the questions of its policies in the present state.
        reached: the paths that links in the arguments of a file tool lead to, by argument; `None` for none.
    """

    tool: Tool[Any, Any]
    arguments: dict[str, Any]
    questions: tuple[str, ...]
    reached: Mapping[str, str] | None = None


async def foresee_call(
    call: ToolCall, reply: str | None, environment: Environment, *, without: str = ""
) -> ForeseenCall | None:
    """Parse a call before it is made, and collect its questions; `None` if it does not parse.

    Args:
        call: the call.
        reply: the reply that asks for it.
        environment: the environment of the run.
        without: the name of a policy that is not asked.
    """
    tool = environment.tool(call.name)
    if tool is None or masks_in(call, tool):  # it will be refused: secrets are not stored
        return None
    try:
        params = tool.parse(call.arguments, max_bytes=environment.max_argument_bytes)
    except ParseError:
        return None
    resources = environment.resources.call_scope()
    before = current_call_secrets()
    use_call_secrets(gather_secrets(call, params, tool, before))

    async def by_policy(policy: ToolPolicy, act: Callable[[], PolicyDecision]) -> PolicyDecision:
        return await ASYNC.in_thread(act) if policy_may_block(policy, tool, environment.session) else act()

    try:
        context = ToolContext(environment, resources, CallRef(reply, call.id))
        policies = [policy for policy in find_plan(environment, tool.name, None).policies if policy.name != without]
        asked = [await _foreseen(ask_policy(each, tool, params, context, by_policy), tool) for each in policies]
        reached = None
        if tool.name in FILE_TOOLS:
            reached = await _foreseen(ASYNC.in_thread(partial(_link_targets, tool, params, context)), tool)
    finally:
        try:
            resources.close()
        except Exception:  # noqa: BLE001 - logged, as at the end of a call
            _log.exception("a resource could not be closed after policies were asked in advance about %s", tool.name)
        use_call_secrets(before)
    questions = tuple(each.text for each in asked if each is not None)
    return ForeseenCall(tool, parsed_arguments(params), questions, reached)


async def _foreseen(answer: Awaitable[Any], tool: Tool[Any, Any]) -> Any:  # noqa: ANN401 - whatever the answer is
    try:
        return await answer
    except RunAbortedError:
        raise
    except Exception:  # noqa: BLE001 - determined again when the call is made, and fails it then
        _log.debug("what a call of %s comes to could not be determined in advance", tool.name, exc_info=True)
        return None


DescribeAhead = Callable[[CallRef, ToolCallPart, ToolDefinition, ValidatedToolArgs], Awaitable[GatedCall | None]]
"""A call that is about to be made as the gate judges it; `None` for one that will be refused as it is written."""


@dataclass
class AgentCapability(PipelineCapability):
    """One run of an agent file. One capability for everything: PydanticAI takes a while for each that there is.

    Attributes:
        gate: says which calls may run.
        describe: how a call looks to the gate.
        admit: refuses a tool whose calls would not take the pipeline of this run.
        tools_known: is called at each step once its tools are known, before the model is offered any.
        executors: those of the tools of Handrail.
        count: counts what a reply of the model has used.
        notify: is called with what happens.
        output_names: the names of the tools by which the model gives structured answers.
        put_off: the calls of agents whose own calls wait for an answer.
    """

    gate: ApprovalGate = field(kw_only=True)
    describe: DescribeAhead = field(kw_only=True)
    admit: Callable[[ToolDefinition], None] = field(kw_only=True)
    tools_known: Callable[[], Awaitable[None]] = field(kw_only=True)
    executors: Callable[[], Iterable[ToolExecutor]] = field(kw_only=True)
    count: Callable[[ModelResponse], None] = field(kw_only=True)
    notify: Callable[[RunEvent], None] = field(kw_only=True)
    output_names: dict[str, str] = field(default_factory=dict[str, str])
    put_off: set[CallRef] = field(default_factory=set[CallRef])
    _asked: dict[CallRef, GatedCall] = field(init=False, repr=False, default_factory=dict[CallRef, GatedCall])

    @override
    async def settle(self) -> None:
        """Apply the results that wait for any of the tools of Handrail.

        Raises:
            DeveloperMistake: as for `wrap_run`.
        """
        for executor in self.executors():
            await executor.settle_before_run_async()

    @override
    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Look at the tools of a step before the model is offered any.

        Raises:
            AgentError: the calls of one would not take the pipeline of this run; or a rule names what there is not.
            FilesystemError: a tool takes the files of the folder of the run, which cannot be opened.
        """
        for definition in tool_defs:
            self.admit(definition)
        await self.tools_known()
        return tool_defs

    @override
    async def prepare_output_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Note the names that no tool of the agent may have."""
        self.output_names.update((definition.name, "the agent's output") for definition in tool_defs)
        return tool_defs

    @override
    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Count what the reply has used; usage is reported even if the reply is refused for the budget."""
        self.count(response)
        return await super().after_model_request(ctx, request_context=request_context, response=response)

    @override
    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Ask about a call, if it has to be asked about.

        Raises:
            ApprovalRequired: the question is left open, and so is the call.
        """
        ref = self.asked(ctx, call).ref
        # A call with a final record is answered from it, so the person is not asked again.
        gated = None if await self.final_record(ref) is not None else await self.describe(ref, call, tool_def, args)
        if gated is None:
            return args
        if ref not in self._asked:  # a call that was held back comes by again
            self.notify(CallStarted(gated.path, gated.call_id, gated.tool, gated.arguments, gated.reply))
        self._asked[ref] = gated
        # An external tool is refused later as a whole; a question about it would be in vain.
        if tool_def.kind == "external" or self.gate.judge(gated).verdict != "ask":
            return args
        # PydanticAI puts a call off by itself if its tool requires approval.
        if (await self._decision(gated)).verdict == "later" and tool_def.kind == "function":
            raise ApprovalRequired
        return args

    @override
    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask about calls that PydanticAI holds back for approval; a denied one is refused by the pipeline.

        Raises:
            AgentError: a call is to be carried out outside of the run, which is not done here.
        """
        if requests.calls:
            names = ", ".join(sorted({call.tool_name for call in requests.calls}))
            raise AgentError(
                f"{names}: external tools and `CallDeferred` are carried out outside of the run, and an "
                "agent file has no such caller; let the tool do the work itself, or run it in an agent of your own"
            )
        settled: dict[str, ToolApproved] = {}
        for call in requests.approvals:
            ref = self.asked(ctx, call).ref
            gated = self._asked.get(ref)
            if await self.final_record(ref) is not None:
                settled[call.tool_call_id] = ToolApproved()
            # A call without a description is refused by the pipeline, and one that was put off waits for the calls
            # within it.
            elif gated is None or ref in self.put_off:
                continue
            elif (await self._decision(replace(gated, default="ask"))).verdict != "later":
                settled[call.tool_call_id] = ToolApproved()
        # A call that is not listed stays open, and the run ends with status "waiting".
        return DeferredToolResults(approvals=dict(settled)) if settled else None

    async def _decision(self, call: GatedCall) -> Decision:
        """What is decided about a call, for as long as the deadline allows."""
        deadline = self.executor.environment.deadline
        if deadline is None:
            return await self.gate.decide(call)
        try:
            async with asyncio.timeout(deadline.remaining().total_seconds()):
                return await self.gate.decide(call)
        except TimeoutError as error:  # never the approver's own, with which the gate denies
            late = f"{call.tool}: the deadline passed while approval was awaited; it was not run"
            raise PromptEvaluationError(late, phase="tool", tool=call.tool) from error
