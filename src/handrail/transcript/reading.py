"""Reads a stored session as a transcript, in one pass; a process may hold the session meanwhile.

Theory of operation
    The parts of conversations, the records of calls and the notes of approvals are entries of one session, in the order
    in which they were written. A reply is stored before any of its calls is recorded, and what follows it in its
    conversation is stored after them.

    | entry | what it adds |
    |---|---|
    | a part of a conversation | its messages, each with its calls; those of the reply before are closed |
    | the record of a call | nothing: it belongs to its call; if no message asks for that, a call of its own |
    | the note of an approval | nothing: it belongs to its call |

    What was added is yielded in order, up to the first call whose conversation has not gone on: its answer there is
    what the model reads of it. A reader that follows a run has the calls of a reply as soon as all have a final record,
    and something else has come.

    A part that replaces its conversation repeats messages. Those that were shown are recognized by a hash, and not
    shown again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar, cast

from pydantic_core import from_json

from handrail.prompt import ToolResult
from handrail.prompt.tool_result import load_parts
from handrail.runtime import ToolInvoked
from handrail.runtime.calls import Step
from handrail.serde.json_schema import is_array, is_object
from handrail.session.calls import CallRef, OpenCall
from handrail.session.conversation import ConversationPart
from handrail.session.open_calls import PostponedCall
from handrail.session.persistence.loading import corrupt, decode_items
from handrail.session.persistence.protocol import SessionEntry, SessionStore
from handrail.session.persistence.stored_types import stored_type
from handrail.transaction.changes import load_changes
from handrail.transcript.messages import (
    AnswerPiece,
    ApprovalWait,
    BlockPiece,
    CallOutcome,
    ConversationId,
    MessageBlock,
    MessagePiece,
    TranscriptBreak,
    TranscriptCall,
    TranscriptItem,
    TranscriptMessage,
    decode_arguments,
    message_pieces,
)

# ------------------------------------------------------------------------------------------------ the outcomes of calls


class CallReport(NamedTuple):
    """The record of a call; `final` if the same call is answered from it, `denied` if no approval was given."""

    call: TranscriptCall
    final: bool
    denied: bool


def call_report(item: Mapping[str, Any]) -> CallReport:
    """Reads the record of a call from the JSON of a `ToolInvoked`, which may be damaged."""
    result = ToolResult(
        item["message"],
        cast("Mapping[str, Any]", item.get("value") or {}).get("value"),
        success=bool(item["success"]),
        exclude_value_from_context=bool(item["exclude_value"]),
        parts=load_parts(item.get("parts", ())),
    )
    arguments, replayed = item.get("written"), bool(item["replayed"])
    has_run = item.get("handler_seconds") is not None
    call = TranscriptCall(
        call=CallRef(item.get("reply"), item["id"]),
        tool=item["name"],
        arguments=decode_arguments(item["arguments"] if arguments is None else arguments),
        outcome="ok" if result.success else "failed" if has_run or replayed else "refused",
        content=result.render(),
        value=result.value,
        seconds=float(item["total_seconds"]),
        replayed=replayed,
        has_effect=item.get("effect_key") is not None,
        at=datetime.fromisoformat(item["at"]),
        step=item.get("refused_at") or "",
        effect_key=item.get("effect_key") or "",
        turn_seconds=item.get("turn_seconds") or 0.0,
        approval_seconds=item.get("approval_seconds") or 0.0,
        handler_seconds=item.get("handler_seconds"),
        changes=load_changes(item.get("changes", ())),
        trace=item.get("trace") or "",
        decisions=tuple(item.get("decisions") or ()),
    )
    return CallReport(call, bool(item["final"]), item.get("refused_at") == Step.APPROVAL)


class ApprovalNote(NamedTuple):
    """The record of the approval of a call: a question, or its answer.

    Attributes:
        ref: the identity of the call.
        approved: the decision; `None` for an open question.
        by: the one who has decided; empty if that is not known.
        is_person: whether a person has decided, and not a rule.
        at: when; `None` if that is not known.
        words: what policies ask, or what was decided, and why.
    """

    session_id: str
    ref: CallRef
    approved: bool | None = None
    by: str = ""
    is_person: bool = False
    at: datetime | None = None
    words: tuple[str, ...] = ()


def approval_notes(item: Mapping[str, Any]) -> Iterable[ApprovalNote]:
    """The notes in the JSON of an `ApprovalRecord` or a `PostponedCall`: the question, the answer, or both."""
    at, call, decision = item.get("at"), item.get("call", item), item.get("decision")
    note = ApprovalNote(
        call["session_id"],
        CallRef(call.get("reply"), call["call_id"]),
        at=None if at is None else datetime.fromisoformat(at),
    )
    answer = item.get("answer")
    question: Mapping[str, Any] = call if decision is not None else item.get("question") or {}
    asks: tuple[str, ...] = tuple(question.get("asks", ()))
    if decision is not None:
        approved = None if decision["verdict"] == "later" else decision["verdict"] == "allow"
        by, is_person = decision.get("answered_by", ""), decision["by"] == "person"
        words = (*asks, f"{decision['by']}: {decision.get('reason', '')}")
        yield note._replace(approved=approved, by=by, is_person=is_person, words=words)
        return
    yield note._replace(words=asks)
    if answer is not None:
        approved, at = bool(answer["approved"]), datetime.fromisoformat(answer["at"])
        yield note._replace(
            approved=approved, by=answer["by"], is_person=True, at=at, words=(answer.get("reason", ""),)
        )


@dataclass(slots=True)
class PendingCall:
    """A call of a transcript while its outcome is being read.

    Attributes:
        call: the call, as its message asks for it; without a tool as long as only calls of its handler are known.
        message_id: the id that the messages give it, which several calls of a reply may have.
        answer: its answer in the conversation; `None` if there is none.
        nested: the calls that its handler has made; the newest record of each counts.
        is_closed: whether its conversation has moved past it, so that nothing about it will change.
    """

    call: TranscriptCall
    message_id: str = ""
    asked_at: datetime | None = None
    record: CallReport | None = None
    answer: str | None = None
    notes: list[ApprovalNote] = field(default_factory=list[ApprovalNote])
    nested: dict[CallRef, TranscriptCall] = field(default_factory=dict[CallRef, TranscriptCall])
    is_closed: bool = False

    @property
    def is_recorded(self) -> bool:
        """True if it has a record that no other one will follow."""
        return self.record is not None and self.record.final

    def is_named(self, ref: CallRef) -> bool:
        """Returns whether an identity, as a record has it, names this call; some messages do not know the reply."""
        mine = self.call.call
        if None in {ref.reply, mine.reply}:
            return ref.call_id in {mine.call_id, mine.storable.call_id}
        return ref.storable == mine.storable

    def report(self, claim: OpenCall | None) -> TranscriptCall:
        """The call with its outcome; `claim` is what the ledger has of an effect that has not come to its end."""
        record = self.call if self.record is None else self.record.call
        wait = self._wait() if self.notes else None
        decisions = dict.fromkeys(chain(record.decisions, *(note.words for note in self.notes)))
        nested = self.nested.values()
        failed = {one.call for one in (record, *nested) if one.outcome == "failed"}
        return replace(
            record,
            conversation=self.call.conversation,
            call=self.call.call,
            arguments=decode_arguments(self.call.arguments) if self.record is None else record.arguments,
            outcome=self._outcome(claim, wait),
            content=record.content if self.answer is None else self.answer,
            wait=wait,
            owner="" if claim is None else claim.owner,
            key="" if claim is None else claim.key or "",
            nested=tuple(replace(one, outcome="undone") if _is_undone(one, failed) else one for one in nested),
            # The record says of an answer that was stored first whether it was a yes.
            decisions=tuple(one for one in decisions if not any(other.endswith(f": {one}") for other in decisions)),
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
        question = next((note for note in self.notes if note.approved is None), None)
        decision = next((note for note in reversed(self.notes) if note.approved is not None), None)
        by, approved = ("", None) if decision is None else (decision.by, decision.approved)
        if question is None:
            # What a rule decides is not shown: most calls are decided by one.
            return ApprovalWait(by=by, approved=approved) if decision is not None and decision.is_person else None
        since, until = question.at or self.asked_at, None if decision is None else decision.at
        # Where no answer is recorded, the attempt that was recorded after the question has had one.
        if self.record is not None and (end := self.record.call.at) is not None:
            until = until or end - timedelta(seconds=self.record.call.seconds or 0)
            approved = not self.record.denied if approved is None else approved
        duration = None if since is None or until is None else max(until - since, timedelta(0))
        return ApprovalWait(duration=duration, by=by, approved=approved, since=since)


# ----------------------------------------------------------------------------------------------------------- the reader


T = TypeVar("T")

_APPROVAL_TYPE: Final = "handrail.approval"
"""The stored name of `handrail.agents.approval.decisions.ApprovalRecord`; this package does not need agents."""

_PAGE_ENTRIES = 100
_MODEL, _TOOL = "assistant", "tool"


@dataclass(slots=True)
class _Draft:
    conversation: ConversationId
    role: str
    at: datetime | None
    blocks: list[MessageBlock] = field(default_factory=list[MessageBlock])


class TranscriptReader:
    """Reads one stored session as a transcript.

    Raises:
        StoreError: the store cannot be read.
    """

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._place = 0
        self._queue: deque[_Draft | TranscriptBreak | PendingCall] = deque()
        self._last: dict[ConversationId, list[PendingCall]] = {}  # the calls of the last reply
        self._alone: dict[CallRef, PendingCall] = {}  # calls in the queue that no message asks for
        self._hashes: set[int] = set()
        self._is_agent: dict[str, bool] = {}  # whether the first call of a tool has left a session
        self._claims: Mapping[CallRef, OpenCall] = {}
        self._outer = self._notes_above()

    def read(self, *, until: int | None = None) -> Iterator[TranscriptItem]:
        """Reads what was added since, and yields what nothing will change any more, in order.

        Calls that have ended are yielded before their conversation answers them.

        Args:
            until: the number of the last entry that is read; `None` for all.

        Raises:
            StoreCorruptError: an entry cannot be read; the message names it.
            UnknownTypeError: an entry is of a newer version.
            StoreError: the store cannot be read.
        """
        row = self._store.find(self._session_id)
        if row is None:  # deleted
            return
        now = self._store.now()
        claims = (_with_lease(claim, now) for claim in self._store.open_claims(self._session_id))
        self._claims = {claim.call.storable: claim for claim in claims}
        head = row.head if until is None else min(until, row.head)
        while self._place < head:
            end = min(self._place + _PAGE_ENTRIES, head)
            for entry in self._store.entries(self._session_id, after=self._place, until=end):
                self._add(entry)
                self._place = entry.number
                yield from self._take_items()
            self._place = end
        yield from self._take_items(following=True)

    def unfinished(self) -> Iterator[TranscriptItem]:
        """What may still change, as it stands; it is yielded again by what reads on."""
        for item in tuple(self._queue):
            yield from self._items(item)

    # --------------------------------------------------------------------------------------------------------- entries

    def _add(self, entry: SessionEntry) -> None:
        part_type, name = stored_type(ConversationPart), entry.type_name
        if name == part_type.name:
            if entry.removed:
                self._close(*self._last.values(), self._alone.values())
                self._queue.append(TranscriptBreak(conversation=None, kind="removed", count=entry.removed))
            for part in decode_items(part_type, entry, self._session_id, self._store):
                self._add_part(part)
        elif name == stored_type(ToolInvoked).name:
            for report in self._decode(entry, lambda item: (call_report(item),)):
                self._add_report(report)
        elif name in {stored_type(PostponedCall).name, _APPROVAL_TYPE}:
            for note in self._decode(entry, approval_notes):
                # Those of child sessions are noted here, too; a fork has the notes of the session it was made from.
                is_own = not note.session_id.startswith(f"{self._session_id}/")
                if is_own and (call := self._find(note.ref.outermost)) is not None:
                    call.notes.append(note)

    def _decode(
        self, entry: SessionEntry, read: Callable[[Mapping[str, Any]], Iterable[T]], session_id: str = ""
    ) -> list[T]:
        try:
            # The cache of strings is of use for those that come again: names, and not values.
            items: object = from_json(entry.items, cache_strings="keys")
            if not is_array(items):
                raise TypeError("it is not an array")  # noqa: TRY301 - handled as what is wrong with an item
            return [value for item in items for value in read(item)]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            fault = f"it is not a {entry.type_name}, {'it has no ' if isinstance(error, KeyError) else ''}{error}"
            raise corrupt(fault, entry.number, entry.number, session_id or self._session_id, self._store) from error

    def _notes_above(self) -> Mapping[CallRef, list[ApprovalNote]]:
        notes: defaultdict[CallRef, list[ApprovalNote]] = defaultdict(list)
        row = self._store.find(self._session_id)
        while row is not None and row.parent is not None and self._session_id.startswith(f"{row.parent}/"):
            for entry in self._store.entries(row.parent, type_name=_APPROVAL_TYPE):
                for note in self._decode(entry, approval_notes, row.parent):
                    if note.session_id == self._session_id and (note.is_person or note.approved is None):
                        notes[note.ref.outermost].append(note)
            row = self._store.find(row.parent)
        return notes

    # ---------------------------------------------------------------------------------------------------- conversations

    def _add_part(self, part: ConversationPart) -> None:
        conversation = ConversationId(part.speaker, part.name)
        is_first, calls = conversation not in self._last, self._last.setdefault(conversation, [])
        messages = self._new_messages(part)
        if part.restarts and not is_first:
            if not {call.call.call for call in calls} <= set(part.call_refs):  # those asked for again stay open
                self._close(calls)
            count = len(part.messages) - len(messages)
            self._queue.append(TranscriptBreak(conversation=conversation, kind="restarted", count=count, at=part.at))
        pieces = [piece for message in messages for piece in message_pieces(message)]
        named_calls = list(zip(part.calls, part.call_refs, strict=True))
        ids = {place: piece.call.call_id for place, piece in enumerate(pieces) if isinstance(piece, TranscriptCall)}
        refs: dict[int, CallRef] = {}
        # From the end: messages of earlier replies, with calls of the same ids, may stand before.
        for call, ref in reversed(named_calls):
            places = (place for place in reversed(ids) if ids[place] == call.id and place not in refs)
            place = next(places, None)
            refs |= {} if place is None else {place: ref}
        # Calls of a form that is not known here.
        unknown = {ref for _, ref in named_calls}.difference(refs.values(), (call.call.call for call in calls))
        for call, ref in named_calls:
            if ref in unknown:
                refs[len(pieces)] = ref
                pieces.append(TranscriptCall(call=CallRef(None, call.id), tool=call.name, arguments=call.arguments))
        draft: _Draft | None = None
        for place, piece in enumerate(pieces):
            draft = self._add_piece(piece, refs.get(place), draft, _Draft(conversation, "", part.at))

    def _new_messages(self, part: ConversationPart) -> Sequence[Any]:
        # A program's own loop does not replace its conversation.
        if part.speaker == "loop":
            return part.messages
        known_hashes = self._hashes if part.restarts else frozenset[int]()
        with_hashes = [(hash((part.speaker, part.name, _content(message))), message) for message in part.messages]
        new = [message for digest, message in with_hashes if digest not in known_hashes]
        self._hashes.update(digest for digest, _ in with_hashes)
        return new

    def _add_piece(
        self, piece: MessagePiece, ref: CallRef | None, draft: _Draft | None, fresh: _Draft
    ) -> _Draft | None:
        calls = self._last[fresh.conversation]
        if isinstance(piece, AnswerPiece):
            # Some models give several calls of one reply the same id.
            for call in calls:
                if call.message_id == piece.call_id and call.answer is None:
                    call.answer = piece.text
                    return None
            piece = BlockPiece(_TOOL, "text", piece.text)
        role = piece.role if isinstance(piece, BlockPiece) else _MODEL
        if draft is None or draft.role != role:
            draft = replace(fresh, role=role)
            self._close(calls)
            self._queue.append(draft)
        if isinstance(piece, BlockPiece):
            draft.blocks.append(MessageBlock(piece.kind, piece.text))
            return draft
        if calls and calls[-1].is_closed:  # those of another reply
            calls.clear()
        own_call = replace(piece, conversation=fresh.conversation, call=ref or piece.call)
        call = PendingCall(own_call, piece.call.call_id, fresh.at)
        call.notes += self._outer.get(call.call.call, ())
        calls.append(call)
        self._queue.append(call)
        return draft

    # ----------------------------------------------------------------------------------------------------------- calls

    def _add_report(self, report: CallReport) -> None:
        ref = report.call.call
        root = ref.outermost
        if (call := self._find(root)) is None:
            call = self._alone[root] = PendingCall(TranscriptCall(call=root, tool=""))
            self._queue.append(call)
        if root == ref:
            call.record = report
        else:
            call.nested[ref] = report.call

    def _find(self, root: CallRef) -> PendingCall | None:
        calls_by_id = (call for calls in self._last.values() for call in calls if call.is_named(root))
        return next(calls_by_id, None) or self._alone.get(root)

    @staticmethod
    def _close(*several: Iterable[PendingCall]) -> None:
        for call in chain(*several):
            call.is_closed = True

    def _take_items(self, *, following: bool = False) -> Iterator[TranscriptItem]:
        while self._queue:
            item = self._queue[0]
            if isinstance(item, PendingCall) and not (item.is_closed or (following and self._is_reply_over(item))):
                return
            self._queue.popleft()
            if isinstance(item, PendingCall):
                self._alone.pop(item.call.call, None)
            yield from self._items(item)

    def _is_reply_over(self, first: PendingCall) -> bool:
        # Its calls stay together: they are yielded when all have ended, and something else has come.
        for item in self._queue:
            if not isinstance(item, PendingCall) or item.call.call.reply != first.call.call.reply:
                return True
            if not item.is_recorded:
                break
        return False

    def _items(self, item: _Draft | TranscriptBreak | PendingCall) -> Iterator[TranscriptItem]:
        if isinstance(item, PendingCall):
            yield from self._report(item)
        elif isinstance(item, _Draft):
            blocks = tuple(item.blocks)
            yield TranscriptMessage(conversation=item.conversation, role=item.role, blocks=blocks, at=item.at)
        else:
            yield item

    def _report(self, open_call: PendingCall) -> Iterator[TranscriptCall]:
        call = open_call.report(self._claims.get(open_call.call.call.storable))
        nested = tuple(replace(one, conversation=call.conversation, child=self._child(one)) for one in call.nested)
        # Of a call that was cut off, only those of its handler may be recorded.
        yield from (replace(call, child=self._child(call), nested=nested),) if call.tool else nested

    def _child(self, call: TranscriptCall) -> str:
        if not call.call.call_id or call.outcome == "refused" or not self._is_agent.get(call.tool, True):
            return ""
        name = f"{self._session_id}/{call.call.key}"
        exists = self._store.find(name) is not None
        if call.seconds is not None:
            self._is_agent.setdefault(call.tool, exists)
        return name if exists else ""


def _content(message: object) -> str:
    # A reply is stored as it arrives; PydanticAI adds these to it in the history of its run.
    added = {"conversation_id", "model_id", "run_id"}
    return repr({key: message[key] for key in message if key not in added} if is_object(message) else message)


def _with_lease(claim: OpenCall, now: datetime) -> OpenCall:
    # What is not renewed may have happened.
    lapses = claim.state == "running" and claim.lease_until is not None and claim.lease_until <= now
    return claim._replace(state="unknown") if lapses else claim


def _is_undone(call: TranscriptCall, failed: set[CallRef]) -> bool:
    # An effect stays.
    return call.outcome == "ok" and not call.has_effect and not failed.isdisjoint(call.call.ancestors)
