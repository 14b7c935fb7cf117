"""Decisions and open questions as a session keeps them: a record for people, and what a later process goes on with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from handrail.agents.approval.values import Decision, GatedCall, Grant
from handrail.session import Session, SlicePolicy, stored_as


@stored_as("handrail.approval")
@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord:
    """What became of one question. Its slice is a LOG; the last record of a call is the one that holds.

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

    @property
    def call(self) -> GatedCall:
        """The call that was asked about."""
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
        )


@stored_as("handrail.grant")
@dataclass(frozen=True, slots=True)
class GrantRecord:
    """An answer that holds for later calls. Its slice is a LOG.

    Attributes:
        tool: the tool.
        digest: the arguments; `None` for every call of the tool.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    tool: str
    digest: str | None


def keep_decision(session: Session, call: GatedCall, decision: Decision) -> None:
    """Write down what was decided about a call."""
    session[ApprovalRecord].append(
        ApprovalRecord(
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
        )
    )


def keep_grants(session: Session, grants: Iterable[Grant]) -> None:
    """Write down the grants that the session does not have yet."""
    known = {(kept.tool, kept.digest) for kept in session[GrantRecord]}
    for grant in grants:
        if (grant.tool, grant.digest) not in known:
            session[GrantRecord].append(GrantRecord(grant.tool, grant.digest))


def kept_grants(session: Session) -> tuple[Grant, ...]:
    """The answers of earlier runs that still hold."""
    return tuple(Grant(kept.tool, kept.digest) for kept in session[GrantRecord])


def open_questions(session: Session) -> tuple[GatedCall, ...]:
    """The questions that earlier runs have left open, in the order in which they were asked."""
    last = {(record.session_id, record.call_id): record for record in session[ApprovalRecord]}
    return tuple(record.call for record in last.values() if record.verdict == "later")


def kept_decisions(session: Session) -> dict[tuple[str, str], Decision]:
    """What people have decided about calls, by session and call: each is asked about once, in whatever process."""
    last = {(record.session_id, record.call_id): record for record in session[ApprovalRecord]}
    return {
        key: Decision(record.verdict, record.digest, record.reason, record.by)
        for key, record in last.items()
        if record.verdict != "later" and record.by == "person"
    }
