"""The gate of a run: it judges each call by the rules, asks a person, and remembers the decisions.

A run and the runs nested in it share one gate. Each call is asked about once, one question stands at a time, and an
answer holds for exactly the arguments that were asked about. In this order, the first that applies decides:

| | |
|---|---|
| 1 | a rule, default or mode that denies; no earlier answer stands against it |
| 2 | a decision about this very call, its arguments and the questions of its policies |
| 3 | a rule, default or mode that allows |
| 4 | an earlier answer that holds for more than its own call; one for a whole tool answers no policy's question |
| 5 | an answer to the question that a person has given elsewhere, after it was left open |
| 6 | the person who is asked; without one, no |

A decision is enforced in the pipeline, where the handler runs: `GatePolicy` judges every call in its turn, and refuses
those that may not run. Where a question is left, the pipeline asks `GatePolicy.answer`, which has the decisions that
were made ahead. So a call is asked about once, and one that was not, or that has other arguments by now, does not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, cast, get_args

from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.agents.approval.decisions import (
    Answer,
    ApprovalMode,
    Asker,
    CallKey,
    Decision,
    GatedCall,
    Grant,
    Judgement,
    Remember,
    resolve_answer,
)
from handrail.agents.approval.rules import ApprovalRules, Rule, judge_call
from handrail.errors import RunAbortedError
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
)
from handrail.prompt.signature import is_async
from handrail.redaction import redacted_logger
from handrail.resources import ResourceRegistry
from handrail.runtime.execution import ASYNC
from handrail.runtime.failures import describe_error
from handrail.serde import dump
from handrail.serde.secrets import mask_places
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer
from handrail.taint import TaintPolicy

OnEvent = Callable[[GatedCall, Decision | None], Awaitable[None]]
"""Called with a question that is about to be asked (no decision yet), and with every new decision.

An exception is raised by the gate: the call does not run.
"""

_REMEMBERS: Final[tuple[Remember, ...]] = get_args(Remember)
_ANSWERS: Final = ("yes", "no", "later")

_log = redacted_logger("handrail.agents")

GATE_POLICY_NAME: Final = "approval"
"""The name of the policy of the gate."""

FindElsewhere = Callable[[GatedCall], Awaitable[GivenAnswer | None]]
"""The answer that a person has given elsewhere to a question that was left open; `None` if there is none."""

DescribeCall = Callable[[Tool[Any, Any], Any, CallRef, ToolContext | None], GatedCall]
"""Describes a call from the tool, the parsed parameters, the identity of the call, and its context.

Without a context it is described as it was with one, if its parameters are the same.
"""


@dataclass(frozen=True, slots=True)
class _GateEntry:
    decision: Decision
    call: GatedCall | None  # `None` if the decision was made elsewhere
    is_answer: bool

    def is_about(self, call: GatedCall) -> bool:
        # A decision of a rule or a mode is made anew, because it depends on the call only; other arguments are another
        # question.
        if not self.is_answer or self.decision.digest != call.digest:
            return False
        # An answer covers the questions that were shown with it. A policy that asks something else asks again.
        return self.call is None or set(call.asks) <= set(self.call.asks)


@dataclass(eq=False)
class ApprovalGate:
    """Decides which calls of a run, and of the runs nested in it, may be carried out; it owns the decisions.

    All its questions are asked on one event loop. `can_wait` allows questions to be left open, because the run is
    stored and can be resumed. `find_elsewhere` looks for an answer before a person is asked and after that.
    """

    rules: ApprovalRules
    mode: ApprovalMode
    asker: Asker | None
    can_wait: bool = False
    on_event: OnEvent | None = None
    find_elsewhere: FindElsewhere | None = None
    _entries: dict[CallKey, _GateEntry] = field(init=False, default_factory=dict[CallKey, _GateEntry])
    _grants: list[Grant] = field(init=False, default_factory=list[Grant])
    # One question at a time: a person must not get a second one while thinking about the first.
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    @property
    def decisions(self) -> Mapping[CallKey, Decision]:
        """The last decision about each call, by session and identity."""
        return MappingProxyType({key: entry.decision for key, entry in self._entries.items()})

    @property
    def open(self) -> tuple[GatedCall, ...]:
        """The calls whose questions were left open, in the order in which they were asked."""
        entries = self._entries.values()
        return tuple(entry.call for entry in entries if entry.call is not None and entry.decision.verdict == "later")

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The answers that hold for later calls, each once, in the order in which they were given."""
        return tuple(self._grants)

    def settle(self, key: CallKey, decision: Decision) -> None:
        """Enters a decision that was made elsewhere, such as before the run was resumed, in place of any other.

        It holds for the arguments that it names, whatever policies ask about them, and as long as no rule denies them.
        """
        # The questions that it answered are not known here, so it counts for all of them.
        self._entries[key] = _GateEntry(decision, None, is_answer=True)

    def forget(self, key: CallKey) -> None:
        """Drops the decision about a call that has been carried out or refused; another call of its id is another one.

        A question that was left open stays: it is part of `open`, the outcome of the run.
        """
        entry = self._entries.get(key)
        if entry is not None and entry.decision.verdict != "later":
            del self._entries[key]

    def resume(self, decisions: Mapping[CallKey, Decision], grants: Iterable[Grant]) -> None:
        """Enters the decisions and the grants of earlier runs."""
        for key, decision in decisions.items():
            self.settle(key, decision)
        for grant in grants:
            self._grant(grant)

    def judge(self, call: GatedCall) -> Judgement:
        """The judgement on a call without asking a person, in the order of the table of this module.

        A question that has been left open is still one: the verdict is `"ask"`.
        """
        judgement, decision = self._judge(call)
        return judgement if decision is None else _as_judgement(decision)

    def has_answer(self, call: GatedCall) -> bool:
        """True if a person was asked about a call, or was to be, and no rule denies it since."""
        _, decision = self._judge(call)
        return decision is not None and decision.by in {"person", "nobody"}

    def _judge(self, call: GatedCall) -> tuple[Judgement, Decision | None]:
        # By rules and mode, with an earlier decision; `None` where they decide, or a person.
        judgement = judge_call(call, self.rules, self.mode)
        entry = self._entries.get(call.key)
        # Before any earlier decision: a later deny rule must hold for calls that a person has allowed.
        if judgement.verdict == "deny":
            return judgement, None
        # An earlier answer for this call takes precedence over a rule that allows, because it may be a no.
        if entry is not None and entry.is_about(call):
            return judgement, entry.decision
        grant = None if judgement.verdict == "allow" else self._grant_for(call)
        if grant is None:
            return judgement, None
        reason = grant.reason or f"a person said {'yes' if grant.verdict == 'allow' else 'no'}"
        return judgement, Decision(grant.verdict, call.digest, f"{reason}, for later calls too", "remembered")

    async def decide(self, call: GatedCall) -> Decision:
        """Decides about a call, and asks about it if need be; the decision about a call is made once.

        A question that was left open is not asked again by this gate, but an answer that was given elsewhere decides
        it. If asking is interrupted, the question is left open; in a run that is not stored, no decision is made.

        Raises:
            RunAbortedError: the asker has ended the run.
        """
        # The common case needs no lock.
        decision = await self._decide_without_asking(call)
        if decision is not None and decision.verdict != "later":
            return decision
        async with self._lock:
            # An answer that was given while this call waited may answer it, too.
            decision = await self._decide_without_asking(call)
            if decision is not None and decision.verdict != "later":
                return decision
            return await self._take_from_elsewhere(call) or decision or await self._ask(call)

    async def _take_from_elsewhere(self, call: GatedCall) -> Decision | None:
        answer = None if self.find_elsewhere is None else await self.find_elsewhere(call)
        if answer is None:
            return None
        verdict = Answer("yes" if answer.approved else "no", answer.remember, answer.reason)
        return await self._accept(call, verdict, by=answer.by, at=answer.at)

    async def _decide_without_asking(self, call: GatedCall) -> Decision | None:
        judgement, decision = self._judge(call)
        if decision is not None:
            return await self._record(call, decision, is_answer=False) if decision.by == "remembered" else decision
        if judgement.verdict == "ask":
            return None
        # Without the mode the verdict would have been another one, so the mode has decided.
        by_mode = judge_call(call, self.rules, "ask").verdict != judgement.verdict
        by: Literal["mode", "rule"] = "mode" if by_mode else "rule"
        decision = Decision(judgement.verdict, call.digest, judgement.reason, by)
        return await self._record(call, decision, is_answer=False)

    async def _ask(self, call: GatedCall) -> Decision:
        judgement = judge_call(call, self.rules, self.mode)
        # This denial is not final, so a repeat of the call is judged again.
        if self.asker is None:
            cure = _cure(call, judgement)
            reason = f"it needs approval ({judgement.reason}), and no person can be asked here; {cure}"
            return await self._record(call, Decision("deny", call.digest, reason, "nobody"))
        # The listener may raise, and then the question is not asked and the call does not run.
        await self._notify(call, None)
        try:
            answer = await _answer(self.asker, call)
        except (Exception, GeneratorExit):  # the latter of a loop that is closed: nothing can be awaited any more
            raise
        except BaseException:  # Ctrl-C, a cancellation: there is no answer yet
            if self.can_wait:
                await self._leave_open(call, judgement.reason)
            raise
        # Of two answers the first stands: one that was given elsewhere while the person was asked.
        decision = await self._take_from_elsewhere(call)
        if decision is not None:
            return decision
        if isinstance(answer, str):
            return await self._record(call, Decision("deny", call.digest, answer, "nobody"))
        if answer.verdict == "later":
            return await self._leave_open(call, judgement.reason)
        return await self._accept(call, answer)

    async def _accept(self, call: GatedCall, answer: Answer, *, by: str = "", at: datetime | None = None) -> Decision:
        decision, grant = resolve_answer(call, answer, by=by, at=at)
        # Stored before the decision, so that a caller that waits for the lock finds the grant.
        if grant is not None:
            self._grant(grant)
        return await self._record(call, decision)

    async def _leave_open(self, call: GatedCall, why: str) -> Decision:
        secret = mask_places(call.arguments)
        if self.can_wait and not secret:
            return await self._record(call, Decision("later", call.digest, why, "person"))
        reason = "the question was put off, but this run is not stored, so it could not be answered later"
        if secret:  # asked again by the model it would wait again, and never run
            reason = (
                f"the question was put off, but the call has a secret at {', '.join(secret)}, which is not stored, so "
                "it could not be made later; a person must answer while the run waits"
            )
        return await self._record(call, Decision("deny", call.digest, reason, "person"))

    def _grant(self, grant: Grant) -> None:
        # Grants are compared by value: the same answer to two calls is stored once.
        if grant not in self._grants:
            self._grants.append(grant)

    def _grant_for(self, call: GatedCall) -> Grant | None:
        # False sorts before True, so a no is the minimum: it wins over a yes.
        grants = [grant for grant in self._grants if _answers(grant, call)]
        return min(grants, key=lambda grant: grant.verdict != "deny", default=None)

    async def _record(self, call: GatedCall, decision: Decision, *, is_answer: bool = True) -> Decision:
        # Removed first, so that the new decision is the last one in the order of `open`.
        before = self._entries.pop(call.key, None)
        self._entries[call.key] = _GateEntry(decision, call, is_answer)
        if before is None or before.decision != decision:
            # An equal decision is not reported again: a resumed run judges the same call once more.
            await self._notify(call, decision)
        return decision

    async def _notify(self, call: GatedCall, decision: Decision | None) -> None:
        if self.on_event is not None:
            await self.on_event(call, decision)


def _answers(grant: Grant, call: GatedCall) -> bool:
    # A tool of the same name from another module is another tool, about which no person was asked.
    if (grant.tool, grant.origin) != (call.tool, call.origin):
        return False
    # A yes was given without knowing what a policy would ask by now.
    if grant.verdict == "allow" and not set(call.asks) <= set(grant.asks):
        return False
    return grant.digest is None or grant.digest == call.digest


def _as_judgement(decision: Decision) -> Judgement:
    if decision.verdict == "later":
        return Judgement("ask", decision.reason or "the question is left open", explicit=True)
    reason = decision.reason or "it has been decided before"
    return Judgement(decision.verdict, reason, explicit=True, final=decision.final)


async def _answer(asker: Asker, call: GatedCall) -> Answer | str:
    try:
        # A plain function runs on a thread, because it may block until the person answers.
        answer: object = await ASYNC.run(lambda: asker(call), is_async=is_async(asker), seconds=None)
        if isinstance(answer, Awaitable):  # a plain function that returns the coroutine of another one
            answer = await cast("Awaitable[object]", answer)  # its result is checked below
    # An approver that raises this ends the run; see `decide`.
    except RunAbortedError:
        raise
    # An approver that fails must not end the run, and must not allow the call.
    except Exception as error:  # noqa: BLE001 - logged, and the call is denied
        _log.exception("asking about %s failed", call.tool)
        return f"asking about it failed with {describe_error(error)}"
    if isinstance(answer, Answer) and answer.verdict in _ANSWERS and answer.remember in _REMEMBERS:
        return answer
    _log.error("asking about %s gave no answer: %r", call.tool, answer)
    return "asking about it gave no answer: an Answer is due, yes, no or later, for nothing, arguments or rule"


def _cure(call: GatedCall, judgement: Judgement) -> str:
    if call.asks:
        return "no rule answers what a policy asks, only a person or the mode approve-all"
    if judgement.explicit:
        return "while that rule stands, only a person or the mode approve-all lets it run"
    return f"it would run if the approval rules had: allow: [{Rule(call.tool)}]"


@dataclass(frozen=True, slots=True, eq=False)
class GatePolicy:
    """Allows a call, refuses it, or has it asked about, as the gate decides; `answer` is the approver of the run.

    `file_tools` are the tools whose arguments are paths.
    """

    gate: ApprovalGate
    describe: DescribeCall
    file_tools: Container[str] = ()
    name: str = GATE_POLICY_NAME

    def may_block(self, tool: Tool[Any, Any], session: Session) -> bool:  # noqa: ARG002 - the protocol's
        """True if links in the arguments of a tool are followed on a disk."""
        return tool.name in self.file_tools

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the tool's
        """Judges the call without asking a person."""
        call = self.describe(tool, params, context.call, context)
        judgement = self.gate.judge(call)
        # The approver has the answers of persons, and refuses those calls, as in every other loop.
        if judgement.verdict == "deny" and not self.gate.has_answer(call):
            return PolicyDecision.deny(judgement.reason, final=judgement.final)
        return PolicyDecision.allow() if judgement.verdict == "allow" else PolicyDecision.ask(judgement.reason)

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401 - as above
        """Does nothing: the gate remembers decisions, not results."""

    async def answer(self, request: ApprovalRequest) -> Approval:
        """The gate's answer to the pipeline's questions; those of other policies are put to the person."""
        # The request has no context. `describe` then returns the description of `check` for the same parameters.
        call = self.describe(request.tool, request.params, request.call, None)
        asks = (*call.asks, *(question.text for question in request.questions if question.policy != self.name))
        # Questions of other policies are part of what the person sees, and of what the answer covers.
        decision = await self.gate.decide(replace(call, asks=tuple(dict.fromkeys(asks))))
        if decision.verdict == "later":
            return Approval.later(f"{call.tool} waits for approval ({'/'.join(call.path)}, call {call.call_id})")
        return Approval(decision.verdict == "allow", decision.reason, decision.final)


class GatedPrompt(Prompt[str]):
    """A prompt whose calls the policies of the run judge first, however it is rendered."""

    __slots__ = ("_policies",)

    def __init__(
        self, template: PromptTemplate[str], resources: ResourceRegistry, policies: tuple[ToolPolicy, ...]
    ) -> None:
        super().__init__(template, resources=resources)
        self._policies = policies

    @override
    def render(self, *, open: AbstractSet[str] = frozenset()) -> RenderedPrompt[str]:
        """The prompt with the policies of the run before all others."""
        prompt = super().render(open=open)
        policies = {name: (*self._policies, *others) for name, others in prompt.policies.items()}
        return replace(prompt, policies=policies, prompt_policies=(*self._policies, *prompt.prompt_policies))


def rule_policies(rules: ApprovalRules, caller: str, is_claim: Callable[[str], bool]) -> tuple[ToolPolicy, ...]:
    """The policies of rules for a loop without a run, such as an MCP server: of its calls, and of untrusted content.

    Each question is put to the approver of the loop; no answer is remembered for later calls.

    Args:
        rules: the rules.
        caller: who calls, for rules on agents.
        is_claim: says of a tool whether only a third party says that it reads; such calls are asked about if no rule
            fits.
    """

    def describe(tool: Tool[Any, Any], params: object, ref: CallRef, context: ToolContext | None) -> GatedCall:
        return GatedCall(
            path=(caller,),
            session_id="" if context is None else context.session.session_id,
            call_id=ref.call_id,
            reply=ref.reply,
            tool=tool.name,
            effect=tool.effect,
            arguments={} if params is None else cast("dict[str, Any]", tool.masking.mask(dump(params))),
            digest="",
            default="ask" if is_claim(tool.name) else None,
        )

    policy = GatePolicy(ApprovalGate(rules, "ask", None), describe)
    return (policy,) if rules.tainted == "allow" else (policy, TaintPolicy(on_tainted=rules.tainted))
