"""The outcomes of the calls of a transcript: their records, and the approvals that they waited for.

What a session holds of a call is read as JSON, without its classes: the tool, the value of its result, and the gate of
an agent may be unknown here. The forms are those of `ToolInvoked`, `PostponedCall` and `ApprovalRecord`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from handrail.prompt import ToolResult
from handrail.prompt.content_parts import load_parts
from handrail.runtime.calls import Step
from handrail.session.calls import CallRef, OpenCall
from handrail.transcript.items import ApprovalWait, CallOutcome, TranscriptCall
from handrail.transcript.provider_messages import decoded_arguments

_LATER = "later"


class CallReport(NamedTuple):
    """The record of a call.

    Attributes:
        call: the call, as far as its record knows it.
        final: whether the same call is answered from this record.
        denied: whether no approval was given for it.
    """

    call: TranscriptCall
    final: bool
    denied: bool


def call_report(item: Mapping[str, Any]) -> CallReport:
    """Reads the record of a call from the JSON of a `ToolInvoked`.

    Raises:
        LookupError: it lacks a field.
        TypeError: a field is of another type.
        ValueError: it has no time.
    """
    result = ToolResult(
        item["message"],
        _value(item.get("value")),
        success=bool(item["success"]),
        exclude_value_from_context=bool(item["exclude_value"]),
        parts=load_parts(item.get("parts", ())),
    )
    written, replayed = item.get("written"), bool(item["replayed"])
    has_run = item.get("handler_seconds") is not None
    call = TranscriptCall(
        call=CallRef(item.get("reply"), item["id"]),
        tool=item["name"],
        arguments=decoded_arguments(item["arguments"] if written is None else written),
        outcome="ok" if result.success else "failed" if has_run or replayed else "refused",
        content=result.render(),
        seconds=float(item["total_seconds"]),
        replayed=replayed,
        has_effect=item.get("effect_key") is not None,
        at=datetime.fromisoformat(item["at"]),
    )
    return CallReport(call, bool(item["final"]), item.get("refused_at") == Step.APPROVAL)


def _value(recorded: Any) -> Any:  # noqa: ANN401 - decoded JSON
    return None if recorded is None or "value" not in recorded else recorded["value"]


class ApprovalNote(NamedTuple):
    """What a session records of the approval of a call: that it is asked for, or what was decided.

    Attributes:
        session_id: the session of the call.
        ref: the identity of the call.
        approved: what was decided; `None` for an open question.
        by: who has decided; empty if that is not known.
        is_person: whether a person has decided, and not a rule.
        at: when; `None` if that is not known.
    """

    session_id: str
    ref: CallRef
    approved: bool | None = None
    by: str = ""
    is_person: bool = False
    at: datetime | None = None


def approval_notes(item: Mapping[str, Any]) -> Iterable[ApprovalNote]:
    """Reads the notes in the JSON of an `ApprovalRecord` or a `PostponedCall`: the question, the answer, or both.

    Raises:
        LookupError: it lacks a field.
        TypeError: a field is of another type.
        ValueError: a time cannot be read.
    """
    at, call, decision = item.get("at"), item.get("call", item), item.get("decision")
    note = ApprovalNote(
        call["session_id"],
        CallRef(call.get("reply"), call["call_id"]),
        at=None if at is None else datetime.fromisoformat(at),
    )
    answer = item.get("answer")
    if decision is not None:
        approved = None if decision["verdict"] == _LATER else decision["verdict"] == "allow"
        yield note._replace(approved=approved, by=decision.get("answered_by", ""), is_person=decision["by"] == "person")
        return
    yield note
    if answer is not None:
        approved = bool(answer["approved"])
        yield note._replace(approved=approved, by=answer["by"], is_person=True, at=datetime.fromisoformat(answer["at"]))


@dataclass(slots=True)
class AskedCall:
    """A call of a transcript while its outcome is being read.

    Attributes:
        call: the call, as its message asks for it; without a tool as long as only calls of its handler are known.
        given_id: the id that the messages give it, which several calls of a reply may have.
        asked_at: when the message that asks for it was appended; `None` if that is not known.
        record: its newest record; `None` if there is none yet.
        answer: what the conversation answers; `None` if it does not.
        notes: what is recorded of its approval.
        nested: the calls that its handler has made; the newest record of each counts.
        is_closed: whether its conversation has gone on, so that nothing about it will change.
    """

    call: TranscriptCall
    given_id: str = ""
    asked_at: datetime | None = None
    record: CallReport | None = None
    answer: str | None = None
    notes: list[ApprovalNote] = field(default_factory=list[ApprovalNote])
    nested: dict[CallRef, TranscriptCall] = field(default_factory=dict[CallRef, TranscriptCall])
    is_closed: bool = False

    @property
    def is_recorded(self) -> bool:
        """Whether it has a record that no other one will follow."""
        return self.record is not None and self.record.final

    def is_named(self, ref: CallRef) -> bool:
        """Whether an identity, as a record has it, names this call; some messages do not know the reply."""
        mine = self.call.call
        if None in {ref.reply, mine.reply}:
            return ref.call_id in {mine.call_id, mine.storable.call_id}
        return ref.storable == mine.storable

    def reported(self, claim: OpenCall | None) -> TranscriptCall:
        """The call with its outcome; `claim` is what the ledger has of an effect that has not come to its end."""
        record = self.call if self.record is None else self.record.call
        wait = self._wait() if self.notes else None
        return replace(
            record,
            conversation=self.call.conversation,
            call=self.call.call,
            arguments=decoded_arguments(self.call.arguments) if self.record is None else record.arguments,
            outcome=self._outcome(claim, wait),
            content=record.content if self.answer is None else self.answer,
            wait=wait,
            owner="" if claim is None else claim.owner,
            key="" if claim is None else claim.key or "",
            nested=tuple(self.nested.values()),
        )

    def _outcome(self, claim: OpenCall | None, wait: ApprovalWait | None) -> CallOutcome:
        # What the ledger knows counts more: a later attempt may have claimed the effect again.
        if claim is not None and claim.state in {"unknown", "running"}:
            return "unknown" if claim.state == "unknown" else "running"
        if claim is not None and claim.state == "unapplied" and not (self.record and self.record.call.outcome == "ok"):
            return "unapplied"
        if self.record is not None:
            return self.record.call.outcome
        if wait is not None and wait.approved is None and self.answer is None:
            return "waiting"
        return "open" if self.answer is None else "answered"

    def _wait(self) -> ApprovalWait | None:
        opened = next((note for note in self.notes if note.approved is None), None)
        decided = next((note for note in reversed(self.notes) if note.approved is not None), None)
        by, approved = ("", None) if decided is None else (decided.by, decided.approved)
        if opened is None:
            # What a rule decides is not shown: most calls are decided by one.
            return ApprovalWait(by=by, approved=approved) if decided is not None and decided.is_person else None
        since, until = opened.at or self.asked_at, None if decided is None else decided.at
        # Where no answer is recorded, the attempt that was recorded after the question has had one.
        if self.record is not None and (ended := self.record.call.at) is not None:
            until = until or ended - timedelta(seconds=self.record.call.seconds or 0)
            approved = not self.record.denied if approved is None else approved
        duration = None if since is None or until is None else max(until - since, timedelta(0))
        return ApprovalWait(duration=duration, by=by, approved=approved, since=since)
