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
    what the model reads of it. A reader that follows a run has calls as soon as they have a final record.

    A part that replaces its conversation repeats messages. Those that were shown are recognized by a hash, and not
    shown again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic_core import from_json

from handrail.runtime import ToolInvoked
from handrail.serde.json_schema import is_array
from handrail.session.calls import CallRef, OpenCall
from handrail.session.conversation import ConversationPart
from handrail.session.open_calls import PostponedCall
from handrail.session.persistence.loading import corrupt, decode_items
from handrail.session.persistence.protocol import SessionEntry, SessionStore
from handrail.session.persistence.stored_types import stored_type
from handrail.transcript.call_outcomes import ApprovalNote, AskedCall, CallReport, approval_notes, call_report
from handrail.transcript.items import (
    ConversationId,
    MessageBlock,
    TranscriptBreak,
    TranscriptCall,
    TranscriptItem,
    TranscriptMessage,
)
from handrail.transcript.provider_messages import AnswerPiece, MessagePiece, SaidPiece, message_pieces

T = TypeVar("T")

_APPROVAL_TYPE: Final = "handrail.approval"
"""The stored name of `handrail.agents.approval.decisions.ApprovalRecord`; this package does not need agents."""

_PAGE_ENTRIES = 100
_MODEL, _TOOL = "assistant", "tool"


@dataclass(slots=True)
class _Draft:
    """A message while its blocks are collected."""

    conversation: ConversationId
    role: str
    at: datetime | None
    blocks: list[MessageBlock] = field(default_factory=list[MessageBlock])


class TranscriptReader:
    """Reads one stored session as a transcript.

    Args:
        store: the store.
        session_id: the session.

    Raises:
        StoreError: the store cannot be read.
    """

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._place = 0
        self._queue: deque[_Draft | TranscriptBreak | AskedCall] = deque()
        self._last: dict[ConversationId, list[AskedCall]] = {}  # the calls of the last reply
        self._alone: dict[CallRef, AskedCall] = {}  # calls in the queue that no message asks for
        self._hashes: set[int] = set()
        self._is_agent: dict[str, bool] = {}  # whether the first call of a tool has left a session
        self._claims: Mapping[CallRef, OpenCall] = {}
        self._outer = self._notes_above()

    def read(self, *, following: bool = False) -> Iterator[TranscriptItem]:
        """Reads what was added since, and yields what nothing will change any more, in order.

        Args:
            following: whether to yield a call with a final record before the conversation answers it.

        Raises:
            StoreCorruptError: an entry cannot be read; the message names it.
            UnknownTypeError: an entry is of a newer version.
            StoreError: the store cannot be read.
        """
        row = self._store.find(self._session_id)
        if row is None:  # deleted
            return
        self._claims = {claim.call.storable: claim for claim in self._store.open_claims(self._session_id)}
        while self._place < row.head:
            end = min(self._place + _PAGE_ENTRIES, row.head)
            for entry in self._store.entries(self._session_id, after=self._place, until=end):
                self._add(entry)
                self._place = entry.number
                yield from self._settled()
            self._place = end
        yield from self._settled(following=following)

    def finish(self) -> Iterator[TranscriptItem]:
        """Yields the rest, as far as it is known."""
        self._close(*self._last.values(), self._alone.values())
        yield from self._settled()

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
            for report in self._decoded(entry, lambda item: (call_report(item),)):
                self._add_report(report)
        elif name in {stored_type(PostponedCall).name, _APPROVAL_TYPE}:
            for note in self._decoded(entry, approval_notes):
                # Those of child sessions are noted here, too; a fork has the notes of the session it was made from.
                is_own = not note.session_id.startswith(f"{self._session_id}/")
                if is_own and (call := self._find(_outermost(note.ref))) is not None:
                    call.notes.append(note)

    def _decoded(
        self, entry: SessionEntry, read: Callable[[Mapping[str, Any]], Iterable[T]], session_id: str = ""
    ) -> list[T]:
        try:
            # The cache of strings is of use for those that come again: names, and not values.
            items: object = from_json(entry.items, cache_strings="keys")
            if not is_array(items):
                raise TypeError("it is not an array")  # noqa: TRY301 - handled as what is wrong with an item
            return [value for item in items for value in read(item)]
        except (ValueError, LookupError, TypeError) as error:
            fault = f"it is not a {entry.type_name}, {'it has no ' if isinstance(error, KeyError) else ''}{error}"
            raise corrupt(fault, entry.number, entry.number, session_id or self._session_id, self._store) from error

    def _notes_above(self) -> Mapping[CallRef, list[ApprovalNote]]:
        """The notes about calls of this session in those of the agents above it; only of calls that people decided."""
        notes: defaultdict[CallRef, list[ApprovalNote]] = defaultdict(list)
        row = self._store.find(self._session_id)
        while row is not None and row.parent is not None and self._session_id.startswith(f"{row.parent}/"):
            for entry in self._store.entries(row.parent, type_name=_APPROVAL_TYPE):
                for note in self._decoded(entry, approval_notes, row.parent):
                    if note.session_id == self._session_id and (note.is_person or note.approved is None):
                        notes[_outermost(note.ref)].append(note)
            row = self._store.find(row.parent)
        return notes

    # ---------------------------------------------------------------------------------------------------- conversations

    def _add_part(self, part: ConversationPart) -> None:
        conversation = ConversationId(part.speaker, part.name)
        is_first, asked = conversation not in self._last, self._last.setdefault(conversation, [])
        messages = self._new_messages(part)
        if part.restarts and not is_first:
            if not {call.call.call for call in asked} <= set(part.call_refs):  # those asked for again stay open
                self._close(asked)
            count = len(part.messages) - len(messages)
            self._queue.append(TranscriptBreak(conversation=conversation, kind="restarted", count=count, at=part.at))
        pieces = [piece for message in messages for piece in message_pieces(message)]
        stated = list(zip(part.calls, part.call_refs, strict=True))
        refs: dict[int, CallRef] = {}
        # From the end: messages of earlier replies, with calls of the same ids, may stand before.
        for call, ref in reversed(stated):
            places = (place for place in reversed(range(len(pieces))) if place not in refs)
            place = next((place for place in places if _asks_for(pieces[place], call.id)), None)
            refs |= {} if place is None else {place: ref}
        # Calls of a form that is not known here.
        unknown = {ref for _, ref in stated}.difference(refs.values(), (call.call.call for call in asked))
        for call, ref in stated:
            if ref in unknown:
                refs[len(pieces)] = ref
                pieces.append(TranscriptCall(call=CallRef(None, call.id), tool=call.name, arguments=call.arguments))
        draft: _Draft | None = None
        for place, piece in enumerate(pieces):
            draft = self._add_piece(piece, refs.get(place), draft, _Draft(conversation, "", part.at))

    def _new_messages(self, part: ConversationPart) -> Sequence[Any]:
        """The messages of a part without those that repeat earlier ones."""
        # A program's own loop does not replace its conversation.
        if part.speaker == "loop":
            return part.messages
        seen = self._hashes if part.restarts else frozenset[int]()
        hashed = [(hash((part.speaker, part.name, repr(message))), message) for message in part.messages]
        new = [message for digest, message in hashed if digest not in seen]
        self._hashes.update(digest for digest, _ in hashed)
        return new

    def _add_piece(
        self, piece: MessagePiece, ref: CallRef | None, draft: _Draft | None, fresh: _Draft
    ) -> _Draft | None:
        """Add a piece to the message before it, or to a fresh one; returns that to which the next piece belongs.

        Args:
            piece: the piece.
            ref: the identity of a call, if its part states that.
            draft: the message before it; `None` at the begin of a part, and after an answer.
            fresh: another message.
        """
        asked = self._last[fresh.conversation]
        if isinstance(piece, AnswerPiece):
            # Some models give several calls of one reply the same id.
            for call in asked:
                if call.given_id == piece.call_id and call.answer is None:
                    call.answer = piece.text
                    return None
            piece = SaidPiece(_TOOL, "text", piece.text)
        role = piece.role if isinstance(piece, SaidPiece) else _MODEL
        if draft is None or draft.role != role:
            draft = replace(fresh, role=role)
            self._close(asked)
            self._queue.append(draft)
        if isinstance(piece, SaidPiece):
            draft.blocks.append(MessageBlock(piece.kind, piece.text))
            return draft
        if asked and asked[-1].is_closed:  # those of another reply
            asked.clear()
        asked_for = replace(piece, conversation=fresh.conversation, call=ref or piece.call)
        call = AskedCall(asked_for, piece.call.call_id, fresh.at)
        call.notes += self._outer.get(call.call.call, ())
        asked.append(call)
        self._queue.append(call)
        return draft

    # ----------------------------------------------------------------------------------------------------------- calls

    def _add_report(self, report: CallReport) -> None:
        ref = report.call.call
        root = _outermost(ref)
        call = self._find(root)
        if call is None:
            call = self._alone[root] = AskedCall(TranscriptCall(call=root, tool=""))
            self._queue.append(call)
        if root == ref:
            call.record = report
        else:
            call.nested[ref] = report.call

    def _find(self, root: CallRef) -> AskedCall | None:
        asked = (call for calls in self._last.values() for call in calls if call.is_named(root))
        return next(asked, None) or self._alone.get(root)

    @staticmethod
    def _close(*several: Iterable[AskedCall]) -> None:
        for calls in several:
            for call in calls:
                call.is_closed = True

    def _settled(self, *, following: bool = False) -> Iterator[TranscriptItem]:
        while self._queue:
            item = self._queue[0]
            if isinstance(item, AskedCall) and not (item.is_closed or (following and item.is_recorded)):
                return
            self._queue.popleft()
            if isinstance(item, AskedCall):
                self._alone.pop(item.call.call, None)
                yield from self._reported(item)
            elif isinstance(item, _Draft):
                blocks = tuple(item.blocks)
                yield TranscriptMessage(conversation=item.conversation, role=item.role, blocks=blocks, at=item.at)
            else:
                yield item

    def _reported(self, asked: AskedCall) -> Iterator[TranscriptCall]:
        call = asked.reported(self._claims.get(asked.call.call.storable))
        nested = tuple(replace(each, conversation=call.conversation, child=self._child(each)) for each in call.nested)
        # Of a call that was cut off, only those of its handler may be recorded.
        yield from (replace(call, child=self._child(call), nested=nested),) if call.tool else nested

    def _child(self, call: TranscriptCall) -> str:
        """The session of the agent that a call has called; empty if it has called none.

        A tool of which a call has run and left no such session is not an agent, so the store is asked once about it.
        """
        if not call.call.call_id or call.outcome == "refused" or not self._is_agent.get(call.tool, True):
            return ""
        name = f"{self._session_id}/{call.call.key}"
        exists = self._store.find(name) is not None
        if call.seconds is not None:
            self._is_agent.setdefault(call.tool, exists)
        return name if exists else ""


def _asks_for(piece: MessagePiece, call_id: str) -> bool:
    return isinstance(piece, TranscriptCall) and piece.call.call_id == call_id


def _outermost(ref: CallRef) -> CallRef:
    """The call of a message in which a call was made; itself, if it is not nested."""
    for ancestor in ref.ancestors:
        ref = ancestor
    return ref
