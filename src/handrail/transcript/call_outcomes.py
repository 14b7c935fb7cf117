"""The outcomes of the calls of a transcript: their records, the approvals that they waited for, their child sessions.

What a session holds of a call is read as JSON, without its classes: the tool, the value of its result, and the gate of
an agent may be unknown here. The forms are those of `ToolInvoked`, `PostponedCall` and `ApprovalRecord`; fields that a
version did not write are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, cast

from handrail.prompt import ToolResult
from handrail.prompt.content_parts import load_parts
from handrail.redaction import MASK
from handrail.runtime.calls import Step
from handrail.serde.json_schema import is_array, is_object
from handrail.session.call_records import OpenCall
from handrail.session.call_ref import CallRef
from handrail.session.persistence.protocol import SessionStore
from handrail.transcript.items import ApprovalWait, CallOutcome, ConversationId, TranscriptCall
from handrail.transcript.provider_messages import decoded_arguments

APPROVAL_TYPE: Final = "handrail.approval"
"""The stored name of `handrail.agents.approval.records.ApprovalRecord`; this package does not need agents."""

Claims = Mapping[CallRef, OpenCall]
"""The effects of a session that have not come to their end, by the stored identity of their call."""

_LATER = "later"


class CallReport(NamedTuple):
    """The record of a call, as far as a transcript shows it.

    Attributes:
        ref: the identity of the call.
        tool: the tool, as the model wrote it.
        arguments: as the model wrote them, decoded; secrets are masked if the record shows them as such.
        success: whether it succeeded.
        content: the message of the result, and its value as JSON.
        refused_at: the step that refused it or failed; `None` if it succeeded.
        ran: whether its handler was started.
        seconds: how long it took.
        replayed: whether the result comes from the ledger.
        final: whether the same call is answered from this record.
        at: when it ended.
    """

    ref: CallRef
    tool: str
    arguments: Any
    success: bool
    content: str
    refused_at: int | None
    ran: bool
    seconds: float
    replayed: bool
    final: bool
    at: datetime


def call_report(item: Mapping[str, Any]) -> CallReport:
    """The record of a call, from the JSON of a `ToolInvoked`.

    Raises:
        LookupError: it lacks a field.
        TypeError: a field is of another type.
        ValueError: it has no time.
    """
    result = ToolResult(
        item["message"],
        _value(item["value"]),
        success=bool(item["success"]),
        exclude_value_from_context=bool(item["exclude_value"]),
        parts=load_parts(item.get("parts", ())),
    )
    written: object = item.get("written")
    return CallReport(
        ref=CallRef(item.get("reply"), item["id"]),
        tool=item["name"],
        arguments=_masked(decoded_arguments(item["arguments"] if written is None else written), item["params"]),
        success=result.success,
        content=result.render(),
        refused_at=item["refused_at"],
        ran=item["handler_seconds"] is not None,
        seconds=float(item["total_seconds"]),
        replayed=bool(item["replayed"]),
        final=bool(item["final"]),
        at=_time(item["at"]),
    )


def _value(recorded: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if recorded is None or "value" not in recorded:
        return None
    return recorded["value"][0] if "type" in recorded else recorded["value"]


def _masked(arguments: Any, params: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """Arguments in which those values are masked that the recorded parameters show as secret."""
    return arguments if params is None or "value" not in params else _mask(arguments, _value(params))


def _mask(written: Any, shown: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if shown == MASK:
        return MASK
    if is_object(written) and is_object(shown):
        return {name: _mask(value, shown.get(name)) for name, value in written.items()}
    if is_array(written) and is_array(shown) and len(written) == len(shown):
        return [_mask(item, other) for item, other in zip(written, shown, strict=True)]
    return written


def _time(text: object) -> datetime:
    time = datetime.fromisoformat(cast("str", text))  # a TypeError otherwise
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


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
    approved: bool | None
    by: str
    is_person: bool
    at: datetime | None


def approval_notes(item: Mapping[str, Any]) -> Iterable[ApprovalNote]:
    """The notes in the JSON of an `ApprovalRecord` or a `PostponedCall`: the question, the answer, or both.

    Raises:
        LookupError: it lacks a field.
        TypeError: a field is of another type.
        ValueError: a time cannot be read.
    """
    session_id, ref, at = item["session_id"], CallRef(item.get("reply"), item["call_id"]), item.get("at")
    asked_at = None if at is None else _time(at)
    if "verdict" in item:
        verdict, by = item["verdict"], item.get("answered_by", "")
        approved = None if verdict == _LATER else verdict == "allow"
        yield ApprovalNote(session_id, ref, approved, by, item["by"] == "person", asked_at)
        return
    yield ApprovalNote(session_id, ref, None, "", is_person=False, at=asked_at)
    # An item with an answer repeats the question of an earlier one.
    answer = item.get("answer")
    if answer is not None:
        yield ApprovalNote(session_id, ref, bool(answer["approved"]), answer["by"], True, _time(answer["at"]))  # noqa: FBT003 - a field


@dataclass(slots=True, kw_only=True)
class AskedCall:
    """A call of a transcript while its outcome is being read.

    Attributes:
        conversation: the conversation that asks for it; `None` if no message does.
        ref: its identity.
        given_id: the id that the messages give it, which several calls of a reply may have.
        tool: the tool.
        arguments: as the model wrote them; JSON is decoded if it is shown, because mostly the record has it, too.
        asked_at: when the message that asks for it was appended; `None` if that is not known.
        record: its newest record; `None` if there is none yet.
        answer: what the conversation answers; `None` if it does not.
        notes: what is recorded of its approval.
        nested: the calls that its handler has made.
    """

    conversation: ConversationId | None
    ref: CallRef
    given_id: str
    tool: str
    arguments: Any
    asked_at: datetime | None = None
    record: CallReport | None = None
    answer: str | None = None
    notes: list[ApprovalNote] = field(default_factory=list[ApprovalNote])
    nested: list[AskedCall] = field(default_factory=list["AskedCall"])

    @staticmethod
    def of_record(record: CallReport, conversation: ConversationId | None = None) -> AskedCall:
        """A call of which only the record is known."""
        return AskedCall(
            conversation=conversation,
            ref=record.ref,
            given_id=record.ref.call_id,
            tool=record.tool,
            arguments=record.arguments,
            record=record,
        )

    def is_named(self, ref: CallRef) -> bool:
        """Whether an identity, as a record has it, names this call; old records and messages do not know the reply."""
        if ref == self.ref:
            return True
        if ref.call_id not in {self.ref.call_id, self.ref.stored.call_id}:
            return False
        return None in {ref.reply, self.ref.reply} or ref.stored == self.ref.stored

    def add_nested(self, report: CallReport) -> None:
        """Add the record of a call that its handler has made; the newest one of each call counts."""
        earlier = next((call for call in self.nested if call.ref == report.ref), None)
        if earlier is None:
            self.nested.append(AskedCall.of_record(report, self.conversation))
        else:
            earlier.record = report

    def add_earlier(self, earlier: AskedCall) -> None:
        """Add what was recorded before it: a call that its handler has made, or an earlier attempt with those of it."""
        for made in earlier.nested if earlier.ref == self.ref else (earlier,):
            self.nested = [*(call for call in self.nested if call.ref != made.ref), made]

    @property
    def is_settled(self) -> bool:
        """Whether nothing about it will change."""
        return self.record is not None and self.record.final

    def reported(self, claims: Claims, children: ChildSessions) -> TranscriptCall:
        """The call, as far as it is known now."""
        record = self.record
        # Most sessions have no open effect, and no approvals.
        claim = claims.get(self.ref.stored) if claims else None
        wait = _waited(self.notes, self.asked_at, record) if self.notes else None
        content = self.answer if self.answer is not None else "" if record is None else record.content
        return TranscriptCall(
            conversation=self.conversation,
            call=self.ref,
            tool=self.tool,
            arguments=decoded_arguments(self.arguments) if record is None else record.arguments,
            outcome=self._outcome(claim, wait),
            content=content,
            seconds=None if record is None else record.seconds,
            replayed=record is not None and record.replayed,
            at=None if record is None else record.at,
            wait=wait,
            owner="" if claim is None else claim.owner,
            key="" if claim is None else claim.key or "",
            child=children.of_call(self.ref, self.tool, ran=None if record is None else record.ran),
            nested=tuple(call.reported(claims, children) for call in self.nested),
        )

    def _outcome(self, claim: OpenCall | None, wait: ApprovalWait | None) -> CallOutcome:
        record = self.record
        # What the ledger knows counts more: a later attempt may have claimed the effect again.
        if claim is not None and claim.state in {"unknown", "running"}:
            return "unknown" if claim.state == "unknown" else "running"
        if record is not None and record.success:
            return "ok"
        if claim is not None and claim.state == "unapplied":
            return "unapplied"
        if record is not None:
            return "failed" if record.ran or record.replayed else "refused"
        if wait is not None and wait.approved is None and self.answer is None:
            return "waiting"
        return "open" if self.answer is None else "answered"


def _waited(notes: Iterable[ApprovalNote], asked_at: datetime | None, record: CallReport | None) -> ApprovalWait | None:
    """What a call has waited for; `None` if no person was asked."""
    opened = since = decided = None
    for note in notes:
        if note.approved is not None:
            decided = note
        elif opened is None:
            opened, since = note, note.at or asked_at
    if opened is None:
        return (
            None if decided is None or not decided.is_person else ApprovalWait(by=decided.by, approved=decided.approved)
        )
    # Where no answer is recorded, the attempt that was recorded after the question has had one.
    until = None if decided is None else decided.at
    if until is None and record is not None:
        until = record.at - timedelta(seconds=record.seconds)
    approved = None if decided is None else decided.approved
    if approved is None and record is not None:
        approved = record.refused_at != Step.APPROVAL
    duration = None if since is None or until is None else max(until - since, timedelta(0))
    return ApprovalWait(duration=duration, by="" if decided is None else decided.by, approved=approved, since=since)


class ChildSessions:
    """Finds the sessions of agents that calls of a session have called.

    A child session is named after its call. A tool of which a call has run and left no such session is not an agent, so
    the store is asked about its first call alone.

    Args:
        store: the store.
        session_id: the session of the calls.
    """

    __slots__ = ("_is_agent", "_session_id", "_store")

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._is_agent: dict[str, bool] = {}

    def of_call(self, ref: CallRef, tool: str, *, ran: bool | None) -> str:
        """The session of the agent that a call has called; empty if it has called none.

        Args:
            ref: the call.
            tool: its tool.
            ran: whether its handler was started; `None` if that is not known yet.

        Raises:
            StoreError: the store cannot be read.
        """
        if not ref.call_id or ran is False or self._is_agent.get(tool) is False:
            return ""
        name = f"{self._session_id}/{ref.key}"
        exists = self._store.find(name) is not None
        if ran:
            self._is_agent.setdefault(tool, exists)
        return name if exists else ""
