"""The calls of one run, each described once, as a `GatedCall`: rules match it, the gate asks about it, reports show it.

PydanticAI validates all calls of a reply before the first of them runs. Each is described then, with the questions of
the policies of its tool, and a person is asked about the calls of a reply one after the other, while no transaction is
open. No call is refused or recorded then: a policy that fails may decide when the call is made. Whether a call may run
is enforced in the pipeline, by the policy `approval`.

The pipeline judges the same value when the call runs. It is made again only if the arguments are others by now, or if
links in the paths of a file tool lead elsewhere; the digest names both, so that the call that runs is the one that was
asked about.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, cast

from pydantic_ai import ToolCallPart, ToolDefinition
from pydantic_ai.capabilities import ValidatedToolArgs

from handrail.adapters.pydantic_ai.foreign.calls import read_tool_metadata
from handrail.adapters.pydantic_ai.foreign.values import plain_arguments
from handrail.adapters.pydantic_ai.toolset import as_written
from handrail.agents.approval.decisions import GatedCall, Verdict
from handrail.agents.approval.gate import GATE_POLICY_NAME
from handrail.agents.approval.path_rules import FILE_TOOLS, reached_paths
from handrail.agents.run.run_group import RunGroup
from handrail.errors import DumpError, ParseError, RunAbortedError
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolPolicy
from handrail.prompt.policy import policy_may_block
from handrail.prompt.signature import Effect
from handrail.redaction import CALL_SECRETS, redacted, redacted_logger
from handrail.runtime import ToolCall
from handrail.runtime.approval import ask_policy
from handrail.runtime.calls import gather_secrets, masks_in
from handrail.runtime.environment import MAX_ARGUMENT_BYTES, Environment
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
    """A tool of Handrail's, as a toolset of the run has it: its name in its prompt, without a prefix.

    `default` is the verdict on its calls where no rule applies; `None` leaves it to their effects. `shows_section` is
    true if a section of the program brings it.
    """

    name: str
    environment: Environment
    default: Verdict | None
    shows_section: bool

    @property
    def tool(self) -> Tool[Any, Any] | None:
        """The tool, if its section is rendered."""
        return self.environment.rendered_prompt.tool(self.name)


@dataclass(eq=False)
class RunCalls:
    """The calls of one run; the one owner of their descriptions.

    `taint` judges external effects of a tainted session; `None` where rules allow them. `origins` says where the tools
    of this step come from, in words, by their names.
    """

    tree: RunGroup
    session: Session
    path: tuple[str, ...]
    taint: TaintPolicy | None
    origins: Mapping[str, str] = field(init=False, default_factory=dict[str, str])
    _ahead: dict[tuple[CallRef, str], GatedCall] = field(
        init=False, default_factory=dict[tuple[CallRef, str], GatedCall]
    )

    def of_tool(self, name: str, effect: Effect, ref: CallRef = _NO_CALL, *, own_tool: str = "") -> GatedCall:
        """A call of a tool, whatever its arguments are."""
        return GatedCall(
            path=self.path,
            session_id=self.session.session_id,
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
        gated = await (
            self._describe_foreign(ref, call, definition, args)
            if own is None
            else self._describe_own(ref, call, own, args)
        )
        if gated is None:
            return None
        gated = replace(gated, description=definition.description or "")
        # For the pipeline, which does not have the arguments as the model wrote them.
        self._ahead[ref, call.tool_name if own is None else own.name] = gated
        return gated

    def describe(
        self,
        tool: Tool[Any, Any],
        params: Any,  # noqa: ANN401 - as of the tool
        ref: CallRef,
        context: ToolContext | None = None,
    ) -> GatedCall:
        """A call that is about to run, as the gate judges it; without its context, as it was last described."""
        ahead = self._ahead.get((ref, tool.name))
        arguments = _mask(parsed_arguments(params), tool.masking)
        # Changed arguments belong to another call: the original ones of the first must not be compared with its rules.
        if ahead is not None and ahead.arguments == arguments:
            return ahead
        before = self.of_tool(tool.name, tool.effect, ref) if ahead is None else ahead
        reached = None if context is None else _reached_paths(tool, params, context)
        return replace(before, arguments=arguments, written=None, reached=reached).with_digest(None)

    def forget(self, ref: CallRef, name: str) -> None:
        """Drops the description of a call that has ended; another call of its id is another one."""
        self._ahead.pop((ref, name), None)
        self.tree.gate.forget((self.session.session_id, ref))

    async def _describe_foreign(
        self, ref: CallRef, call: ToolCallPart, definition: ToolDefinition, args: ValidatedToolArgs
    ) -> GatedCall | None:
        metadata, name = read_tool_metadata(definition), call.tool_name
        masking, original = schema_masking(definition.parameters_json_schema), plain_arguments(call.args_as_dict())
        if masking.masks_in(original):
            return None
        arguments = _mask(plain_arguments(args, definition), masking)
        asks: tuple[str, ...] = ()
        if self.taint is not None and self.taint.guards(name, may_act=metadata.may_act):
            judged = JudgedArguments(arguments, definition.parameters_json_schema)
            judge = partial(self.taint.judge, self.session, name, lambda: judged)
            decision = await ASYNC.in_thread(judge) if reads_above(self.session) else judge()
            asks = (redacted(decision.reason),) if decision.verdict == "ask" else ()
        gated = self.of_tool(name, metadata.effect, ref)
        gated = replace(gated, arguments=arguments, asks=asks, default=metadata.approval)
        return self._with_original(gated, original, masking)

    async def _describe_own(
        self, ref: CallRef, part: ToolCallPart, own: OwnTool, args: ValidatedToolArgs
    ) -> GatedCall | None:
        call = ToolCall(ref.call_id, own.name, as_written(part.args, args))
        foreseen = await foresee_call(call, ref.reply, own.environment, without=GATE_POLICY_NAME)
        if foreseen is None:
            return None
        tool = foreseen.tool
        gated = replace(
            self.of_tool(part.tool_name, tool.effect, ref, own_tool=own.name),
            arguments=_mask(foreseen.arguments, tool.masking),
            asks=foreseen.questions,
            reached=foreseen.reached,
            default=own.default,
        )
        return self._with_original(gated, plain_arguments(part.args_as_dict()), tool.masking)

    def _with_original(self, call: GatedCall, original: Mapping[str, Any], masking: Masking) -> GatedCall:
        # The digest is of the original arguments with their secrets, which are masked everywhere else.
        masked = _mask(original, masking)
        key = self.tree.ledger.store.hash_key() if masked != original else None
        return replace(call, written=masked).with_digest(original, key)


def parsed_arguments(params: object) -> dict[str, Any]:
    """Parameters as JSON has them, whether they are a dataclass or JSON already."""
    if params is None:
        return {}
    try:
        return cast("dict[str, Any]", dump(params))  # of a dataclass or a mapping, so it is an object
    except DumpError:
        return plain_arguments(params)


def _mask(arguments: Mapping[str, Any], masking: Masking) -> Mapping[str, Any]:
    return cast("dict[str, Any]", masking.mask(arguments)) if masking.hides else arguments


def _reached_paths(tool: Tool[Any, Any], params: object, context: ToolContext) -> Mapping[str, str] | None:
    if tool.name not in FILE_TOOLS or (filesystem := context.filesystem) is None:
        return None
    return reached_paths(tool.name, parsed_arguments(params), filesystem)


class ForeseenCall(NamedTuple):
    """A call of a tool of Handrail's before it is made; `reached` as of `GatedCall`."""

    tool: Tool[Any, Any]
    arguments: dict[str, Any]
    questions: tuple[str, ...]
    reached: Mapping[str, str] | None = None


async def foresee_call(
    call: ToolCall, reply: str | None, environment: Environment, *, without: str = ""
) -> ForeseenCall | None:
    """Parses a call before it is made, and collects its questions; `None` if it does not parse.

    The policy `without` is not asked.
    """
    tool = environment.tool(call.name)
    if tool is None or masks_in(call, tool):  # it will be refused: secrets are not stored
        return None
    try:
        params = tool.parse(call.arguments, max_bytes=MAX_ARGUMENT_BYTES)
    except ParseError:
        return None
    resources = environment.resources.call_scope()
    before = CALL_SECRETS.get()
    CALL_SECRETS.set(gather_secrets(call, params, tool, before))

    async def by_policy(policy: ToolPolicy, act: Callable[[], PolicyDecision]) -> PolicyDecision:
        return await ASYNC.in_thread(act) if policy_may_block(policy, tool, environment.session) else act()

    try:
        context = ToolContext(environment, resources, CallRef(reply, call.id))
        judging, guard = find_plan(environment, tool.name, None).policies, environment.guard
        policies = [policy for policy in judging if policy.name != without and policy is not guard]
        questions = [await _foresee(ask_policy(policy, tool, params, context, by_policy), tool) for policy in policies]
        reached = None
        if tool.name in FILE_TOOLS:  # a provider may open the filesystem, and wait for a disk
            reached = await _foresee(ASYNC.in_thread(partial(_reached_paths, tool, params, context)), tool)
    finally:
        try:
            resources.close()
        except Exception:  # noqa: BLE001 - logged, as at the end of a call
            _log.exception("a resource could not be closed after policies were asked in advance about %s", tool.name)
        CALL_SECRETS.set(before)
    texts = tuple(question.text for question in questions if question is not None)
    return ForeseenCall(tool, parsed_arguments(params), texts, reached)


async def _foresee(answer: Awaitable[Any], tool: Tool[Any, Any]) -> Any:  # noqa: ANN401 - whatever the answer is
    try:
        return await answer
    except RunAbortedError:
        raise
    except Exception:  # noqa: BLE001 - determined again when the call is made, and fails it then
        _log.debug("what a call of %s comes to could not be determined in advance", tool.name, exc_info=True)
        return None
