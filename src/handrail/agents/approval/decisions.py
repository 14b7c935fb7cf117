"""What approval is about: a call that is judged, what the rules say of it, what a person is asked, and the answer.

`GatedCall` is the one description of a call: rules match it, the gate asks about it, a session records it, and
`handrail check` reports what holds for it. Decisions and open questions are recorded in the session of the outermost
run, for people, and for a later process, which resumes with them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar, Literal, cast

from handrail.prompt.effect import Effect
from handrail.redaction import redacted
from handrail.serde import digest
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef, OpenCall
from handrail.session.open_calls import GivenAnswer, describe_answer, find_answer

Verdict = Literal["allow", "ask", "deny"]
"""What rules say of a call. Where several apply, `deny` wins over `ask`, and `ask` over `allow`."""

ApprovalMode = Literal["ask", "approve-all", "deny-all"]
"""How questions are answered: by a person, all with yes, or all with no, and reads that no rule allows as well."""

CallKey = tuple[str, CallRef]
"""What names a call in all sessions: its session, and its identity there."""

Remember = Literal["nothing", "arguments", "rule"]
"""What an answer holds for: this call, later calls with exactly these arguments, or all that fit a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedCall:
    """A call as it is judged: its arguments are validated, nothing has run, and nothing is open.

    Attributes:
        path: the agents that called each other, the first one first: `("desk", "research")`.
        session_id: the session of the call.
        call_id: the id of the call; with the session and the reply it names the call everywhere.
        tool: the name of the tool.
        effect: what the tool does to the world.
        origin: where the tool comes from, in words; empty if it is not known.
        arguments: the arguments that will run, as JSON has them.
        digest: names exactly these arguments, validated and as the model wrote them.
        written: the arguments as the model wrote them, decoded; `None` if that is not known. A schema and a validator
            may show the same thing under two names, so rules look at both.
        asks: what policies of the tool's sections want to have asked about this call.
        default: what the tool's own declaration says, if it says something; rules come before it, and the default for
            its effect after it. `"ask"` for a tool that PydanticAI knows to require approval.
        reply: the reply of the model that asked for the call; `None` if it was not given.
        reached: of a file tool, the paths among its arguments that lead through links to other paths, and those other
            paths, by argument; `None` if there are none. Rules look at both, and the digest names these too.
        own_tool: the name that the tool has in its section, where a prefix or another name has been given to it; empty
            where it has the same. Rules that ask or deny go by both.
        description: what the model reads of the tool; empty if it is not known.
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
        """What names the call: its session, and its identity there."""
        return self.session_id, self.ref

    def digested(self, written: Mapping[str, Any] | None, key: bytes | None = None) -> GatedCall:
        """The same with the digest of its arguments and of what the model wrote, which may hold secrets.

        Args:
            written: the arguments as the model wrote them, with their secrets.
            key: the key of the digest, so that a short secret cannot be found out from it; `None` where there are none.
        """
        decided = {"tool": self.tool, "origin": self.origin, "arguments": self.arguments, "written": written}
        if self.reached is not None:
            decided["reached"] = self.reached
        return replace(self, digest=digest(decided, key=key))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of a call.

    Attributes:
        verdict: whether it may run.
        reason: the rule or default that decided, in words.
        explicit: whether a rule decided, and not a default.
        final: whether the same call is answered so from now on; not if there was no decision.
    """

    verdict: Verdict
    reason: str
    explicit: bool = False
    final: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person, or a program in their place, says to a question.

    Attributes:
        verdict: `"later"` leaves the question open: the run is stored without the call, and resumed another time.
        remember: what else the answer holds for.
        reason: for a no, what the model reads.
    """

    verdict: Literal["yes", "no", "later"]
    remember: Remember = "nothing"
    reason: str = ""


Asker = Callable[["GatedCall"], Answer | Awaitable[Answer]]
"""Asks about a call, and waits for the answer; plain (it is run on a thread) or `async`. One question at a time."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What has been decided about a call. It holds for exactly the arguments that it names.

    Attributes:
        verdict: whether the call may run; `"later"` if the question is open.
        digest: the arguments that it was decided about.
        reason: why, in words; for a denial the model reads it.
        by: who decided: a rule or default, the mode, a person, an earlier answer, or `"nobody"` if no person can
            be asked.
        answered_by: who has given an answer outside of a run; empty if that is not known, and for other decisions.
        answered_at: when such an answer was given.
    """

    verdict: Literal["allow", "deny", "later"]
    digest: str
    reason: str = ""
    by: Literal["rule", "mode", "person", "remembered", "nobody"] = "rule"
    answered_by: str = ""
    answered_at: datetime | None = None

    @property
    def final(self) -> bool:
        """Whether a person or a rule has decided."""
        return self.by != "nobody"


@stored_as("handrail.grant")
@dataclass(frozen=True, slots=True)
class Grant:
    """An answer that holds for later calls: exactly these arguments, or every call of the tool. Its slice is a LOG.

    Attributes:
        tool: the tool.
        digest: the arguments; `None` for whatever fits `arguments`.
        arguments: globs by argument, for a rule; empty for every call of the tool.
        origin: where the tool comes from, in words. A tool of that name from elsewhere is another one.
        verdict: whether those calls may run.
        reason: what was said, in words; for a no the model reads it.
        asks: what policies asked when these arguments were allowed: a yes answers nothing else that they ask.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    tool: str
    digest: str | None
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    origin: str = ""
    verdict: Literal["allow", "deny"] = "allow"
    reason: str = ""
    asks: tuple[str, ...] = ()


def decision_of(
    call: GatedCall, answer: Answer, *, by: str = "", at: datetime | None = None
) -> tuple[Decision, Grant | None]:
    """What a yes or a no to the question about a call decides, and what it holds for beside the call.

    Args:
        call: the call.
        answer: the answer.
        by: who has given it outside of a run.
        at: when.
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
        call: the call. Only an open question has the description of its tool, for the person who is asked.
        decision: what was decided about it.
        at: when a question that is left open was asked, or when an answer was given outside of a run; `None` in other
            records.
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
        """Whether the question is left open."""
        return self.decision.verdict == "later"

    @staticmethod
    def listed_calls(items: Sequence[Any]) -> Iterable[OpenCall]:
        """The calls whose questions were left open."""
        for record in _last(cast("Sequence[ApprovalRecord]", items)).values():  # the items of the slice of this class
            if record.is_open:
                yield OpenCall(call=record.call.ref, tool=record.call.tool, state="postponed")


def record_decision(session: Session, call: GatedCall, decision: Decision) -> None:
    """Record what was decided about a call."""
    # By the clock of the store, with which `handrail approvals` compares it. It does not read sessions in memory.
    store = session.store if decision.verdict == "later" else None
    at = decision.answered_at if store is None else store.now()
    session[ApprovalRecord].append(approval_record(call, decision, at=at))


def approval_record(call: GatedCall, decision: Decision, *, at: datetime | None = None) -> ApprovalRecord:
    """The record of a decision about a call; `at` is when it was asked or answered, see `ApprovalRecord`."""
    return ApprovalRecord(call if decision.verdict == "later" else replace(call, description=""), decision, at)


def open_questions(session: Session) -> tuple[GatedCall, ...]:
    """The questions that earlier runs have left open, in the order in which they were asked."""
    records = last_records(session[ApprovalRecord].all(), session.session_id)
    return tuple(record.call for record in records if record.is_open)


def given_answer(session: Session, call: GatedCall) -> GivenAnswer | None:
    """The answer that a person has given to an open question while this process held the session of the run.

    Args:
        session: the session of the outermost run.
        call: the call that is asked about; it may belong to a session below.

    Raises:
        StoreError: the store cannot be read.
    """
    store = session.store
    if store is None or not any(each.key == call.key for each in open_questions(session)):
        return None
    found = find_answer(store, call.session_id, call.ref)
    asked = first_asked(session[ApprovalRecord].all(), call)
    return found.given if found is not None and found.is_about(call.digest, call.asks, first_asked=asked) else None


def first_asked(records: Iterable[ApprovalRecord], call: GatedCall) -> datetime | None:
    """When the question about a call was first left open; `None` if that was not noted."""
    asked = (each for each in records if each.is_open and each.call.digest == call.digest)
    return next((each.at for each in asked if each.call.key == call.key), None)


def load_decisions(session: Session) -> dict[CallKey, Decision]:
    """What people have decided about calls, by session and identity: each is asked about once, in whatever process."""
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
    own = [each for each in records if f"{each.call.session_id}/".startswith(f"{session_id}/")]
    return list(_last(own).values())


def _last(records: Iterable[ApprovalRecord]) -> dict[CallKey, ApprovalRecord]:
    """The record that holds for each call."""
    last: dict[CallKey, ApprovalRecord] = {}
    for record in records:
        # Removed first, so that the order is that of the last record of each call.
        last.pop(record.call.key, None)
        last[record.call.key] = record
    return last
