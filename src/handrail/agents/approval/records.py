"""Decisions and open questions as a session stores them: a record for people, and what a later process resumes with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal, cast

from handrail.agents.approval.decisions import CallKey, Decision, GatedCall, Grant
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef, OpenCall
from handrail.session.open_calls import GivenAnswer, find_answer


@stored_as("handrail.approval")
@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord:
    """The outcome of one question. Its slice is a LOG; the last record of a call is the one that holds.

    Attributes:
        path: the agents that called each other.
        session_id: the session of the call.
        call_id: the id of the call.
        tool: the name of the tool.
        effect: what the tool does to the world.
        origin: where the tool comes from, in words.
        arguments: the arguments, as JSON.
        digest: names exactly these arguments.
        asks: what policies wanted to have asked.
        verdict: what was decided; `"later"` for a question that is left open.
        reason: why, in words.
        by: who decided.
        default: what the tool itself says of its calls, if it says something.
        written: the arguments as the model wrote them, as JSON; `None` if that is not known.
        reply: the reply that asked for the call; `None` if it was not given.
        reached: the paths to which links in its arguments lead, by argument.
        own_tool: the name that the tool has in its section; empty where it has the same.
        at: when a question that is left open was asked, or when an answer was given outside of a run; `None` in other
            records.
        description: of a question that is left open, what the model reads of the tool.
        answered_by: who has given an answer outside of a run; empty if that is not known, and for other decisions.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    path: tuple[str, ...]
    session_id: str
    call_id: str
    tool: str
    effect: Literal["read", "state", "external"]
    origin: str
    arguments: str
    digest: str
    asks: tuple[str, ...]
    verdict: Literal["allow", "deny", "later"]
    reason: str
    by: Literal["rule", "mode", "person", "remembered", "nobody"]
    default: Literal["allow", "ask", "deny"] | None = None
    written: str | None = None
    reply: str | None = None
    reached: Mapping[str, str] | None = None
    own_tool: str = ""
    at: datetime | None = None
    description: str = ""
    answered_by: str = ""

    @staticmethod
    def listed_calls(items: Sequence[Any]) -> Iterable[OpenCall]:
        """The calls whose questions were left open."""
        records = cast("Sequence[ApprovalRecord]", items)  # the items of the slice of this class
        for record in _last(records).values():
            if record.verdict == "later":
                yield OpenCall(call=record.call.ref, tool=record.tool, state="postponed")

    @property
    def call(self) -> GatedCall:
        """The call that was asked about."""
        # Stored as JSON text, because arguments may have values of any type.
        arguments: dict[str, Any] = json.loads(self.arguments)
        return GatedCall(
            path=self.path,
            session_id=self.session_id,
            call_id=self.call_id,
            tool=self.tool,
            effect=self.effect,
            arguments=arguments,
            digest=self.digest,
            origin=self.origin,
            asks=self.asks,
            default=self.default,
            written=None if self.written is None else json.loads(self.written),
            reply=self.reply,
            reached=self.reached,
            own_tool=self.own_tool,
            description=self.description,
        )


@stored_as("handrail.grant")
@dataclass(frozen=True, slots=True)
class GrantRecord:
    """An answer that holds for later calls, as a `Grant` says it. Its slice is a LOG.

    Attributes:
        tool: the tool.
        digest: the arguments; `None` for whatever fits `arguments`.
        arguments: globs by argument; empty for every call of the tool.
        origin: where the tool comes from, in words.
        verdict: whether those calls may run.
        reason: what was said, in words.
        asks: what policies asked.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    tool: str
    digest: str | None
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    origin: str = ""
    verdict: Literal["allow", "deny"] = "allow"
    reason: str = ""
    asks: tuple[str, ...] = ()

    @property
    def grant(self) -> Grant:
        """The answer."""
        return Grant(self.tool, self.digest, self.arguments, self.origin, self.verdict, self.reason, self.asks)


def record_decision(session: Session, call: GatedCall, decision: Decision) -> None:
    """Write down what was decided about a call."""
    # By the clock of the store, with which `handrail approvals` compares it. It does not read sessions in memory.
    store = session.store if decision.verdict == "later" else None
    at = decision.answered_at if store is None else store.now()
    session[ApprovalRecord].append(record_of(call, decision, at=at))


def record_of(call: GatedCall, decision: Decision, *, at: datetime | None = None) -> ApprovalRecord:
    """The record of a decision.

    Args:
        call: the call.
        decision: what was decided about it.
        at: when it was asked or answered; see `ApprovalRecord`.
    """
    return ApprovalRecord(
        path=call.path,
        session_id=call.session_id,
        call_id=call.call_id,
        tool=call.tool,
        effect=call.effect,
        origin=call.origin,
        arguments=json.dumps(call.arguments),
        digest=call.digest,
        asks=call.asks,
        verdict=decision.verdict,
        reason=decision.reason,
        by=decision.by,
        default=call.default,
        written=None if call.written is None else json.dumps(call.written),
        reply=call.reply,
        reached=None if call.reached is None else dict(call.reached),
        own_tool=call.own_tool,
        at=at,
        # Only where a person looks at it: most calls are decided by a rule.
        description=call.description if decision.verdict == "later" else "",
        answered_by=decision.answered_by,
    )


def record_grants(session: Session, grants: Iterable[Grant]) -> None:
    """Write new grants down."""
    for grant in grants:
        session[GrantRecord].append(grant_record(grant))


def grant_record(grant: Grant) -> GrantRecord:
    """The record of a grant."""
    arguments = dict(grant.arguments)
    return GrantRecord(grant.tool, grant.digest, arguments, grant.origin, grant.verdict, grant.reason, grant.asks)


def load_grants(session: Session) -> tuple[Grant, ...]:
    """The answers of earlier runs that still hold."""
    return tuple(kept.grant for kept in session[GrantRecord])


def open_questions(session: Session) -> tuple[GatedCall, ...]:
    """The questions that earlier runs have left open, in the order in which they were asked."""
    records = last_records(session[ApprovalRecord].all(), session.session_id)
    return tuple(record.call for record in records if record.verdict == "later")


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
    asked = (each for each in records if each.verdict == "later" and each.digest == call.digest)
    return next((each.at for each in asked if each.call.key == call.key), None)


def load_decisions(session: Session) -> dict[CallKey, Decision]:
    """What people have decided about calls, by session and identity: each is asked about once, in whatever process."""
    return {
        record.call.key: Decision(record.verdict, record.digest, record.reason, record.by)
        for record in last_records(session[ApprovalRecord].all(), session.session_id)
        # Decisions by rule or mode are made again: the rules may have changed since.
        if record.verdict != "later" and record.by == "person"
    }


def last_records(records: Iterable[ApprovalRecord], session_id: str) -> list[ApprovalRecord]:
    """The record that holds for each call of a session and of those below it, in the order in which they were made.

    A fork has the records of the session that it was made of, too. They are about calls of that one, and a person who
    let one of them run has not let the fork do the same a second time.
    """
    # Nested runs have sessions of their own, whose ids continue this one's, and record in the session of the outermost
    # run.
    # A slash ends the id, so that session `a` does not take the records of session `ab`.
    below = f"{session_id}/"
    own = [each for each in records if each.session_id == session_id or each.session_id.startswith(below)]
    return list(_last(own).values())


def _last(records: Iterable[ApprovalRecord]) -> dict[CallKey, ApprovalRecord]:
    """The record that holds for each call."""
    last: dict[CallKey, ApprovalRecord] = {}
    for record in records:
        key = (record.session_id, CallRef(record.reply, record.call_id))
        # Removed first, so that the order is that of the last record of each call.
        last.pop(key, None)
        last[key] = record
    return last
