"""The gate of a run: what its rules say of each call, whom it asks, and what was decided.

A run and the runs nested in it share one gate. Each call is asked about once, one question stands at a time, and an
answer holds for exactly the arguments that were asked about. In this order, the first that applies decides:

| | |
|---|---|
| 1 | a rule, default or mode that denies; no earlier answer stands against it |
| 2 | what was decided about this very call, its arguments and what its policies ask |
| 3 | a rule, default or mode that allows |
| 4 | an earlier answer that holds for more than its own call; one for a whole tool answers no policy's question |
| 5 | an answer to the question that a person has given elsewhere, after it was left open |
| 6 | the person who is asked; without one, no |

A decision is enforced in the pipeline, where the handler runs: `GatePolicy` judges every call in its turn, and refuses
those that may not run. Where a question is left, the pipeline asks `GatePolicy.answer`, which knows what has
been decided ahead. So a call is asked about once, and a call that was not asked about, or that has other arguments
by now, does not slip through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
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
    decision_of,
)
from handrail.agents.approval.rules import ApprovalRules, Rule, judge_call
from handrail.errors import AgentError, RunAbortedError
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
from handrail.serde.secrets import mask_places
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer

OnEvent = Callable[[GatedCall, Decision | None], Awaitable[None] | None]
"""Called with a question that is about to be asked (no decision yet), and with every new decision.

What it returns is awaited, if that is awaitable. What it raises, the gate raises: the call is not let through.
"""

_REMEMBERS: Final[tuple[Remember, ...]] = get_args(Remember)
_ANSWERS: Final = ("yes", "no", "later")

_log = redacted_logger("handrail.agents")

GATE_POLICY_NAME: Final = "approval"
"""The name of the policy."""

FindGiven = Callable[[GatedCall], Awaitable[GivenAnswer | None]]
"""The answer that a person has given elsewhere to a question that was left open; `None` if there is none."""

DescribeCall = Callable[[Tool[Any, Any], Any, CallRef, ToolContext | None], GatedCall]
"""A call as the gate judges it: from the tool, the parsed parameters, the identity of the call, and its context.

Without a context it is described as it was with one, if its parameters are the same.
"""


@dataclass(frozen=True, slots=True)
class _Held:
    """A decision, and what it is about beside the arguments; `asks` is `None` if it came from elsewhere."""

    decision: Decision
    call: GatedCall | None
    asked: bool

    def is_about(self, call: GatedCall) -> bool:
        """Whether the decision answers all that there is to ask about a call."""
        # A decision of a rule or a mode is made anew, because it depends on the call only; other arguments are another
        # question.
        if not self.asked or self.decision.digest != call.digest:
            return False
        # An answer covers the questions that were shown with it. A policy that asks something else asks again.
        return self.call is None or set(call.asks) <= set(self.call.asks)


class ApprovalGate:
    """Decides which calls of a run, and of the runs nested in it, may be carried out.

    It is the one owner of what was decided. It asks on one event loop, that of its first question.
    """

    def __init__(  # noqa: PLR0913 - what a run chooses about its questions
        self,
        rules: ApprovalRules,
        mode: ApprovalMode,
        asker: Asker | None,
        *,
        can_wait: bool = False,
        on_event: OnEvent | None = None,
        find_given: FindGiven | None = None,
    ) -> None:
        """Make a gate before which nothing has been decided.

        Args:
            rules: what may run, what is asked and what is denied.
            mode: how questions are answered.
            asker: asks a person; `None` if no person can be asked.
            can_wait: whether a question may be left open, because the run is stored and can be resumed.
            on_event: called with questions and decisions.
            find_given: looks for an answer that was given elsewhere, before a person is asked and after that.
        """
        self._rules = rules
        self._mode: ApprovalMode = mode
        self._asker = asker
        self._can_wait = can_wait
        self._on_event = on_event
        self._find_given = find_given
        self._held: dict[CallKey, _Held] = {}
        self._grants: list[Grant] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        # One question at a time: a person must not get a second one while thinking about the first.
        self._lock = asyncio.Lock()

    @property
    def decided(self) -> Mapping[CallKey, Decision]:
        """The last decision about each call, by session and identity."""
        return MappingProxyType({key: held.decision for key, held in self._held.items()})

    @property
    def open(self) -> tuple[GatedCall, ...]:
        """The calls whose questions were left open, in the order in which they were asked."""
        return tuple(
            held.call for held in self._held.values() if held.call is not None and held.decision.verdict == "later"
        )

    @property
    def grants(self) -> tuple[Grant, ...]:
        """The answers that hold for later calls, each once, in the order in which they were given."""
        return tuple(self._grants)

    def settle(self, key: CallKey, decision: Decision) -> None:
        """Put in a decision that was made elsewhere: before the run was resumed, say. It takes the place of any other.

        It holds for the arguments that it names, whatever policies ask about them, and as long as no rule denies them.
        """
        # The questions that it answered are not known here, so it counts for all of them.
        self._held[key] = _Held(decision, None, asked=True)

    def forget(self, key: CallKey) -> None:
        """Drop the decision about a call that has been carried out or refused; another call of its id is another one.

        A question that was left open stays.
        """
        held = self._held.get(key)
        # A question that is left open is part of `open`, the outcome of the run.
        if held is not None and held.decision.verdict != "later":
            del self._held[key]

    def resume(self, decisions: Mapping[CallKey, Decision], grants: Iterable[Grant]) -> None:
        """Put in what was decided, and what was granted, in earlier runs."""
        for key, decision in decisions.items():
            self.settle(key, decision)
        for grant in grants:
            self._grant(grant)

    def judge(self, call: GatedCall) -> Judgement:
        """What is known about a call without asking a person; the table of this module is the order.

        A question that has been left open is still one: the verdict is `"ask"`.
        """
        ruled, decision = self._look(call)
        return ruled if decision is None else _judged(decision)

    def has_answer(self, call: GatedCall) -> bool:
        """Whether a person was asked about a call, or was to be, and no rule denies it since."""
        _, decision = self._look(call)
        return decision is not None and decision.by in {"person", "nobody"}

    def _look(self, call: GatedCall) -> tuple[Judgement, Decision | None]:
        """What rules and mode say of a call, and what is decided beside them; `None` where they decide, or a person."""
        ruled = judge_call(call, self._rules, self._mode)
        held = self._held.get(call.key)
        # Before anything that was decided: a later deny rule must hold for calls that a person has allowed.
        if ruled.verdict == "deny":
            return ruled, None
        # An earlier answer for this call takes precedence over a rule that allows, because it may be a no.
        if held is not None and held.is_about(call):
            return ruled, held.decision
        grant = None if ruled.verdict == "allow" else self._grant_for(call)
        if grant is None:
            return ruled, None
        return ruled, Decision(grant.verdict, call.digest, _reason_of(grant), "remembered")

    async def decide(self, call: GatedCall) -> Decision:
        """Decide about a call, and ask about it if need be; the decision about a call is made once.

        A question that was left open is not asked again by this gate, but an answer that was given elsewhere since then
        decides it.

        If asking is interrupted, or the task cancelled before the answer, the question is left open, and the answer is
        dropped; in a run that is not stored, nothing is decided.

        Raises:
            AgentError: a person has to be asked, and the gate asks on another event loop than this one.
            RunAbortedError: the asker has ended the run.
        """
        # The common case needs neither the lock nor the event loop of the gate.
        decision = await self._known(call)
        if decision is not None and decision.verdict != "later":
            return decision
        self._stay_on_loop()
        async with self._lock:
            # What was answered while this call waited may answer it, too.
            decision = await self._known(call)
            if decision is not None and decision.verdict != "later":
                return decision
            return await self._decided_elsewhere(call) or decision or await self._decided_by_asking(call)

    async def _decided_elsewhere(self, call: GatedCall) -> Decision | None:
        given = None if self._find_given is None else await self._find_given(call)
        if given is None:
            return None
        answer = Answer("yes" if given.approved else "no", given.remember, given.reason)
        return await self._answered(call, answer, by=given.by, at=given.at)

    async def _known(self, call: GatedCall) -> Decision | None:
        """The decision about a call, if no person has to be asked for it."""
        ruled, decision = self._look(call)
        if decision is not None:
            return await self._record(call, decision, asked=False) if decision.by == "remembered" else decision
        if ruled.verdict == "ask":
            return None
        # Without the mode the verdict would have been another one, so the mode has decided.
        by_mode = judge_call(call, self._rules, "ask").verdict != ruled.verdict
        by: Literal["mode", "rule"] = "mode" if by_mode else "rule"
        return await self._record(call, Decision(ruled.verdict, call.digest, ruled.reason, by), asked=False)

    async def _decided_by_asking(self, call: GatedCall) -> Decision:
        ruled = judge_call(call, self._rules, self._mode)
        # This denial is not final, so a repeat of the call is judged again.
        if self._asker is None:
            reason = f"it needs approval ({ruled.reason}), and no person can be asked here; {_cure(call, ruled)}"
            return await self._record(call, Decision("deny", call.digest, reason, "nobody"), asked=True)
        # The listener may raise, and then the question is not asked and the call does not run.
        await self._notify(call, None)
        try:
            answer = await _answer(self._asker, call)
        except (Exception, GeneratorExit):  # the latter of a loop that is closed: nothing can be awaited any more
            raise
        except BaseException:  # Ctrl-C, a cancellation: there is no answer yet
            if self._can_wait:
                await self._left_open(call, ruled.reason)
            raise
        # Of two answers the first stands: one that was given elsewhere while the person was asked.
        given = await self._decided_elsewhere(call)
        if given is not None:
            return given
        if isinstance(answer, str):
            return await self._record(call, Decision("deny", call.digest, answer, "nobody"), asked=True)
        if answer.verdict == "later":
            return await self._left_open(call, ruled.reason)
        return await self._answered(call, answer)

    async def _answered(self, call: GatedCall, answer: Answer, *, by: str = "", at: datetime | None = None) -> Decision:
        decision, grant = decision_of(call, answer, by=by, at=at)
        # Stored before the decision, so that a caller that waits for the lock finds the grant.
        if grant is not None:
            self._grant(grant)
        return await self._record(call, decision, asked=True)

    async def _left_open(self, call: GatedCall, why: str) -> Decision:
        secret = mask_places(call.arguments)
        if self._can_wait and not secret:
            return await self._record(call, Decision("later", call.digest, why, "person"), asked=True)
        reason = "the question was put off, but this run is not stored, so it could not be answered later"
        if secret:  # asked again by the model it would wait again, and never run
            reason = (
                f"the question was put off, but the call has a secret at {', '.join(secret)}, which is not stored, so "
                "it could not be made later; a person must answer while the run waits"
            )
        return await self._record(call, Decision("deny", call.digest, reason, "person"), asked=True)

    def _grant(self, grant: Grant) -> None:
        # Grants are compared by value: the same answer to two calls is stored once.
        if grant not in self._grants:
            self._grants.append(grant)

    def _grant_for(self, call: GatedCall) -> Grant | None:
        """The earlier answer that holds for a call; a no wins over a yes."""
        # False sorts before True, so a no is the minimum.
        fitting = [grant for grant in self._grants if _answers(grant, call)]
        return min(fitting, key=lambda grant: grant.verdict != "deny", default=None)

    async def _record(self, call: GatedCall, decision: Decision, *, asked: bool) -> Decision:
        # Removed first, so that the new decision is the last one in the order of `open`.
        before = self._held.pop(call.key, None)
        self._held[call.key] = _Held(decision, call, asked)
        if before is None or before.decision != decision:
            # An equal decision is not reported again: a resumed run judges the same call once more.
            await self._notify(call, decision)
        return decision

    async def _notify(self, call: GatedCall, decision: Decision | None) -> None:
        if self._on_event is not None:
            noted = self._on_event(call, decision)
            if noted is not None:
                await noted

    def _stay_on_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise AgentError(
                "this approval gate asks on another event loop; a gate serves one run and those nested in it, all on "
                "one event loop, so make another gate for this one"
            )


def _answers(grant: Grant, call: GatedCall) -> bool:
    # A tool of the same name from another module is another tool, about which no person was asked.
    if (grant.tool, grant.origin) != (call.tool, call.origin):
        return False
    # A yes was given without knowing what a policy would ask by now.
    if grant.verdict == "allow" and not set(call.asks) <= set(grant.asks):
        return False
    if grant.digest is not None:
        return grant.digest == call.digest
    return Rule("*", grant.arguments).fits(call, "narrow" if grant.verdict == "allow" else "wide")


def _reason_of(grant: Grant) -> str:
    said = grant.reason or f"a person said {'yes' if grant.verdict == 'allow' else 'no'}"
    return f"{said}, for later calls too"


def _judged(decision: Decision) -> Judgement:
    if decision.verdict == "later":
        return Judgement("ask", decision.reason or "the question is left open", explicit=True)
    reason = decision.reason or "it has been decided before"
    return Judgement(decision.verdict, reason, explicit=True, final=decision.final)


async def _answer(asker: Asker, call: GatedCall) -> Answer | str:
    """The answer of the approver; why there is none, if it fails."""
    try:
        # A plain function runs on a thread, because it may block until the person answers.
        answer: object = await ASYNC.run(lambda: asker(call), is_async=is_async(asker), seconds=None)
        if isinstance(answer, Awaitable):  # a plain function that hands on what another one has to do
            answer = await cast("Awaitable[object]", answer)  # whatever it gives is checked below
    # An approver that raises this ends the run; see `decide`.
    except RunAbortedError:
        raise
    # An approver that fails must not end the run, and must not allow the call.
    except Exception as error:  # noqa: BLE001 - logged, and the call is denied
        _log.exception("asking about %s failed", call.tool)
        return f"asking about it failed with {describe_error(error)}"
    fault = _fault(answer)
    if fault is None:
        return cast("Answer", answer)  # it has just been seen to be one
    _log.error("asking about %s gave no answer: %s", call.tool, fault)
    return f"asking about it gave no answer: {fault}"


def _fault(answer: object) -> str | None:
    """What is wrong with an answer; `None` if nothing is."""
    if not isinstance(answer, Answer):
        return f"an Answer is due, not a {type(answer).__name__}"
    if answer.verdict not in _ANSWERS:
        return f"its verdict is yes, no or later, not {answer.verdict!r}"
    if answer.remember not in _REMEMBERS:
        return f"it is remembered for nothing, arguments or rule, not {answer.remember!r}"
    if not isinstance(cast("object", answer.reason), str):
        return f"its reason is text, not a {type(answer.reason).__name__}"
    return None


def _cure(call: GatedCall, ruled: Judgement) -> str:
    if call.asks:
        return "no rule answers what a policy asks, only a person or the mode approve-all"
    if ruled.explicit:
        return "while that rule stands, only a person or the mode approve-all lets it run"
    return f"it would run if the approval rules had: allow: [{Rule(call.tool)}]"


@dataclass(frozen=True, slots=True, eq=False)
class GatePolicy:
    """Allows a call, refuses it, or has it asked about, as the gate decides; `answer` is the approver of the run.

    Attributes:
        gate: the gate of the run.
        describe: how a call looks to the gate.
        file_tools: the tools whose arguments are paths.
        name: names the policy.
    """

    gate: ApprovalGate
    describe: DescribeCall
    file_tools: Container[str] = ()
    name: str = GATE_POLICY_NAME

    def may_block(self, tool: Tool[Any, Any], session: Session) -> bool:  # noqa: ARG002 - the protocol's
        """Whether links in the arguments of a tool are followed on a disk."""
        return tool.name in self.file_tools

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - the tool's
        """Look at what is known of the call; no person is asked here."""
        call = self.describe(tool, params, context.call, context)
        found = self.gate.judge(call)
        # What a person was asked about is refused by the approver, which has the answer, as in every other loop.
        if found.verdict == "deny" and not self.gate.has_answer(call):
            return PolicyDecision.deny(found.reason, final=found.final)
        return PolicyDecision.allow() if found.verdict == "allow" else PolicyDecision.ask(found.reason)

    def on_result(self, tool: Tool[Any, Any], params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:  # noqa: ANN401 - as above
        """Take no note: the gate remembers decisions, not results."""

    async def answer(self, request: ApprovalRequest) -> Approval:
        """The gate's answer to the pipeline's questions; those of other policies are put to the person."""
        # The request has no context. `describe` then returns what `check` has described for the same parameters.
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
    def render(self, *, open: AbstractSet[str] | None = None) -> RenderedPrompt[str]:
        """The prompt with the policies of the run before all others."""
        rendered = super().render(open=open)
        policies = {name: (*self._policies, *others) for name, others in rendered.policies.items()}
        return replace(rendered, policies=policies, prompt_policies=(*self._policies, *rendered.prompt_policies))
