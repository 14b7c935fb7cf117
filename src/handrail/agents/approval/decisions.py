"""The values of approval: the call, the judgement of the rules, the question to a person, and the answer.

`GatedCall` is the one description of a call: rules match it, the gate asks about it, a session records it, and
`handrail check` reports it. Decisions and open questions are recorded in the session of the outermost run, for people,
and for a later process, which resumes with them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Literal, cast

from handrail.prompt.signature import Effect
from handrail.redaction import redacted
from handrail.serde import digest
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef, OpenCall
from handrail.session.open_calls import GivenAnswer, describe_answer, find_answer

Verdict = Literal["allow", "ask", "deny"]
"""The verdict of rules on a call. Where several apply, `deny` wins over `ask`, and `ask` over `allow`."""

ApprovalMode = Literal["ask", "approve-all", "deny-all"]
"""Who answers questions: a person; the mode, always yes; or the mode, always no, also to reads that no rule allows."""

CallKey = tuple[str, CallRef]
"""The identity of a call in all sessions: its session, and its identity there."""

Remember = Literal["nothing", "arguments", "rule"]
"""The calls that an answer covers: this call, later calls with exactly these arguments, or all that fit a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedCall:
    """A call as it is judged: its arguments are validated, its handler has not run, and no transaction is open.

    Attributes:
        path: the agents that called each other, the first one first: `("desk", "research")`.
        call_id: the id of the call; with the session and the reply it names the call everywhere.
        arguments: the arguments that will run, as JSON has them.
        digest: a digest of exactly these arguments, validated and as the model wrote them.
        origin: where the tool comes from, in words; empty if that is unknown.
        asks: the questions of policies of the tool's sections about this call.
        default: the verdict of the tool's own declaration, if it has one; rules come before it, and the default for its
            effect after it. `"ask"` for a tool that PydanticAI knows to require approval.
        written: the arguments as the model wrote them, decoded; `None` if that is unknown. A schema and a validator may
            show the same thing under two names, so rules look at both.
        reached: of a file tool, the absolute paths among its arguments as the filesystem names them, by argument;
            `None` if there are none. Rules look at both, and the digest names these too.
        own_tool: the name that the tool has in its section, where a prefix or another name has been given to it; else
            empty. Rules that ask or deny go by both.
        description: the description of the tool for the model; empty if it is unknown.
    """

    path: tuple[str, ...]
    session_id: str
    call_id: str
    tool: str
    effect: Effect
    arguments: Mapping[str, Any]
    digest: str
    origin: str = ""
    asks: tuple[str, ...] = ()
    default: Verdict | None = None
    written: Mapping[str, Any] | None = None
    reply: str | None = None
    reached: Mapping[str, str] | None = None
    own_tool: str = ""
    description: str = ""

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)

    @property
    def key(self) -> CallKey:
        """The identity of the call in all sessions."""
        return self.session_id, self.ref

    def with_digest(self, original: Mapping[str, Any] | None, key: bytes | None = None) -> GatedCall:
        """The same with the digest of its arguments and of the original ones, with their secrets.

        `key` is the key of the digest, so that a short secret cannot be found out from it; `None` without secrets.
        """
        parts = {"tool": self.tool, "origin": self.origin, "arguments": self.arguments, "written": original}
        if self.reached is not None:
            parts["reached"] = self.reached
        return replace(self, digest=digest(parts, key=key))


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of the rules on a call.

    Attributes:
        reason: the rule or default that decided, in words.
        explicit: whether a rule decided, and not a default.
        final: whether the same call gets the same answer from now on; not if there was no decision.
    """

    verdict: Verdict
    reason: str
    explicit: bool = False
    final: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a person, or of a program in their place.

    Attributes:
        verdict: `"later"` leaves the question open: the run is stored without the call, and resumed another time.
        remember: the calls that the answer covers.
        reason: the reason of a no, for the model.
    """

    verdict: Literal["yes", "no", "later"]
    remember: Remember = "nothing"
    reason: str = ""


Asker = Callable[["GatedCall"], Answer | Awaitable[Answer]]
"""Asks about a call, and waits for the answer; plain (it is run on a thread) or `async`. One question at a time."""


def answer_later(_call: GatedCall) -> Answer:
    """Leaves every question open; an `Asker`."""
    return Answer("later")


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a call. It holds for exactly the arguments of its digest.

    Attributes:
        verdict: `"later"` if the question is open.
        reason: the reason, in words; of a denial the model reads it.
        by: who decided: a rule or default, the mode, a person, an earlier answer, or `"nobody"` if no person can
            be asked.
        answered_by: who has given an answer outside of a run; empty if that is unknown, and for other decisions.
        answered_at: the time of such an answer.
    """

    verdict: Literal["allow", "deny", "later"]
    digest: str
    reason: str = ""
    by: Literal["rule", "mode", "person", "remembered", "nobody"] = "rule"
    answered_by: str = ""
    answered_at: datetime | None = None

    @property
    def final(self) -> bool:
        """True if a person or a rule has decided."""
        return self.by != "nobody"


@stored_as("handrail.grant")
@dataclass(frozen=True, slots=True)
class Grant:
    """An answer that holds for later calls: exactly these arguments, or every call of the tool. Its slice is a LOG.

    Attributes:
        digest: the arguments; `None` for every call of the tool.
        origin: where the tool comes from, in words. A tool of that name from elsewhere is another one.
        asks: the questions of policies when these arguments were allowed: a yes answers no others.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    tool: str
    digest: str | None
    origin: str = ""
    verdict: Literal["allow", "deny"] = "allow"
    reason: str = ""
    asks: tuple[str, ...] = ()


def resolve_answer(
    call: GatedCall, answer: Answer, *, by: str = "", at: datetime | None = None
) -> tuple[Decision, Grant | None]:
    """The decision of a yes or a no to the question about a call, and its grant for later calls.

    `by` and `at` say who has given the answer outside of a run, and when.
    """
    verdict: Literal["allow", "deny"] = "allow" if answer.verdict == "yes" else "deny"
    reason = redacted(describe_answer(answer.verdict == "yes", answer.reason))
    grant = None
    if answer.remember != "nothing":
        digest = call.digest if answer.remember == "arguments" else None
        # A yes for the whole tool is given without knowing what a policy would ask about other arguments.
        asks = () if digest is None or verdict == "deny" else call.asks
        grant = Grant(call.tool, digest, origin=call.origin, verdict=verdict, reason=reason, asks=asks)
    return Decision(verdict, call.digest, reason, "person", by, at), grant


@stored_as("handrail.approval")
@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """The outcome of one question. Its slice is a LOG; the last record of a call is the one that holds.

    Attributes:
        call: only in an open question with the description of its tool, for the person who is asked.
        at: when a question that is left open was asked, or when an answer was given outside of a run; else `None`.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    call: GatedCall
    decision: Decision
    at: datetime | None = None

    @property
    def session_id(self) -> str:
        """The session of the call."""
        return self.call.session_id

    @property
    def is_open(self) -> bool:
        """True if the question is left open."""
        return self.decision.verdict == "later"

    @staticmethod
    def listed_calls(items: Sequence[Any]) -> Iterable[OpenCall]:
        """The calls whose questions were left open."""
        for record in _last(cast("Sequence[ApprovalRecord]", items)).values():  # the items of the slice of this class
            if record.is_open:
                yield OpenCall(call=record.call.ref, tool=record.call.tool, state="postponed")


def record_decision(session: Session, call: GatedCall, decision: Decision) -> None:
    """Records a decision about a call."""
    # By the clock of the store, with which `handrail approvals` compares it. It does not read sessions in memory.
    store = session.store if decision.verdict == "later" else None
    at = decision.answered_at if store is None else store.now()
    session[ApprovalRecord].append(approval_record(call, decision, at=at))


def approval_record(call: GatedCall, decision: Decision, *, at: datetime | None = None) -> ApprovalRecord:
    """The record of a decision about a call; see `ApprovalRecord` for `at`."""
    return ApprovalRecord(call if decision.verdict == "later" else replace(call, description=""), decision, at)


def open_questions(session: Session) -> tuple[GatedCall, ...]:
    """The questions that earlier runs have left open, in the order in which they were asked."""
    records = last_records(session[ApprovalRecord].all(), session.session_id)
    return tuple(record.call for record in records if record.is_open)


def find_elsewhere(session: Session, call: GatedCall) -> GivenAnswer | None:
    """The answer that a person has given to an open question while this process held the session of the run.

    The call may belong to a session below `session`, that of the outermost run.
    """
    store = session.store
    if store is None or not any(question.key == call.key for question in open_questions(session)):
        return None
    answer = find_answer(store, call.session_id, call.ref)
    first = first_asked(session[ApprovalRecord].all(), call)
    return answer.given if answer is not None and answer.is_about(call.digest, call.asks, first_asked=first) else None


def first_asked(records: Iterable[ApprovalRecord], call: GatedCall) -> datetime | None:
    """The time at which the question about a call was first left open; `None` if that was not recorded."""
    questions = (record for record in records if record.is_open and record.call.digest == call.digest)
    return next((record.at for record in questions if record.call.key == call.key), None)


def load_decisions(session: Session) -> dict[CallKey, Decision]:
    """The decisions of people about calls, by session and identity: each is asked about once, in whatever process."""
    return {
        record.call.key: record.decision
        for record in last_records(session[ApprovalRecord].all(), session.session_id)
        # Decisions by rule or mode are made again: the rules may have changed since.
        if not record.is_open and record.decision.by == "person"
    }


def last_records(records: Iterable[ApprovalRecord], session_id: str) -> list[ApprovalRecord]:
    """The record that holds for each call of a session and of those below it, in the order in which they were made.

    A fork has the records of the session that it was made of, too. They are about calls of that one, and a person who
    let one of them run has not let the fork do the same a second time.
    """
    # Nested runs have sessions of their own, whose ids continue this one's, and record in the session of the outermost
    # run. A slash ends the id, so that session `a` does not take the records of session `ab`.
    own = [record for record in records if f"{record.call.session_id}/".startswith(f"{session_id}/")]
    return list(_last(own).values())


def _last(records: Iterable[ApprovalRecord]) -> dict[CallKey, ApprovalRecord]:
    last: dict[CallKey, ApprovalRecord] = {}
    for record in records:
        # Removed first, so that the order is that of the last record of each call.
        last.pop(record.call.key, None)
        last[record.call.key] = record
    return last
