"""Reads a stored session as a transcript, in one pass and in pages; a process may hold the session meanwhile.

Theory of operation
    The parts of conversations, the records of calls and the notes of approvals are entries of one session, in the order
    in which they were written. A reply is stored before any of its calls is recorded, and what follows it in its
    conversation is stored after them. So the reader holds the calls of the last reply of each conversation until the
    next part of that conversation, and then knows their outcomes.

    | entry | what it yields |
    |---|---|
    | a part of a conversation | the calls of the reply before, unless it answers only some of them; then its messages |
    | the record of a call | nothing: it is held with its call |
    | the note of an approval | nothing: likewise |
    | a record whose call no message asks for | nothing: it is held until the next part, and is then a call of its own |

    Calls of other conversations that have a final record are yielded before a message, so that they follow their own.

    A part that replaces its conversation repeats messages. Those that were shown are recognized by a hash, and not
    shown again.

    What is held does not grow with the session: a page of entries, the last reply of each conversation with its calls,
    `MOST_EARLY` records, and `MOST_HASHES` hashes. Effects that have not come to their end are held whole, and so are
    the approvals of calls of a child session, which the session of the outermost run records.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic_core import from_json

from handrail.errors import StoreCorruptError
from handrail.runtime import ToolInvoked
from handrail.session.call_ref import CallRef
from handrail.session.conversation_parts import ConversationPart
from handrail.session.persistence.item_reader import decoded_items
from handrail.session.persistence.protocol import SessionEntry, SessionRow, SessionStore
from handrail.session.persistence.shared_texts import read_entries
from handrail.session.persistence.stored_types import stored_type
from handrail.session.postponed_calls import PostponedCall
from handrail.transcript.call_outcomes import (
    APPROVAL_TYPE,
    ApprovalNote,
    AskedCall,
    CallReport,
    ChildSessions,
    Claims,
    approval_notes,
    call_report,
)
from handrail.transcript.held_replies import HeldReply
from handrail.transcript.items import ConversationId, TranscriptBreak, TranscriptItem

PAGE_ENTRIES = 100
"""So many entries are read and held at a time."""

MOST_EARLY = 100
"""The most records that are held because no message has asked for their call yet."""

MOST_HASHES = 4_000
"""The most messages of agents and prompts that are recognized when they are repeated."""


class TranscriptReader:
    """Reads one stored session as a transcript. `read` yields what has been added since; `finish` what is still held.

    Args:
        store: the store.
        row: the session.
        after: the number of the entry after which to begin.

    Raises:
        StoreError: the store cannot be read.
    """

    __slots__ = (
        "_children",
        "_claims",
        "_early",
        "_hashes",
        "_held",
        "_note_names",
        "_outer",
        "_owners",
        "_part_type",
        "_place",
        "_record_name",
        "_row",
        "_store",
    )

    def __init__(self, store: SessionStore, row: SessionRow, *, after: int = 0) -> None:
        self._store = store
        self._row = row
        self._part_type = stored_type(ConversationPart)
        self._record_name = stored_type(ToolInvoked).name
        self._note_names = frozenset({stored_type(PostponedCall).name, APPROVAL_TYPE})
        self._place = after
        self._held: dict[ConversationId, HeldReply] = {}
        self._early: deque[AskedCall] = deque()
        self._hashes: OrderedDict[int, None] = OrderedDict()
        self._children = ChildSessions(store, row.session_id)
        self._claims: Claims = {}
        lineage = list(_lineage(store, row))
        # A fork has the notes of the session that it was made from.
        self._owners = {row.session_id, *lineage}
        self._outer = self._notes_above(lineage)

    @property
    def place(self) -> int:
        """The number of the last entry that was read."""
        return self._place

    def read(self, until: int) -> Iterator[TranscriptItem]:
        """The transcript of the entries that have been added, up to a number; the calls of the last replies are held.

        Raises:
            StoreCorruptError: an entry cannot be read; the message names it.
            UnknownTypeError: an entry is of a newer version.
            StoreError: the store cannot be read.
        """
        session_id = self._row.session_id
        self._claims = {claim.call.stored: claim for claim in self._store.open_claims(session_id)}
        while self._place < until:
            end = min(self._place + PAGE_ENTRIES, until)
            for entry in read_entries(self._store, session_id, after=self._place, until=end):
                yield from self._entry(entry)
                self._place = entry.number
            self._place = end

    def settled(self) -> Iterator[TranscriptItem]:
        """The calls that are held and about which nothing will change, in the order asked: for a reader that waits."""
        yield from self._settled()
        yield from self._taken_early()

    def finish(self) -> Iterator[TranscriptItem]:
        """The calls that are held, as far as they are known."""
        for held in self._held.values():
            yield from self._closed(held)
        yield from self._taken_early()

    # --------------------------------------------------------------------------------------------------------- entries

    def _entry(self, entry: SessionEntry) -> Iterator[TranscriptItem]:
        name = entry.type_name
        if name == self._part_type.name:
            if entry.removed:
                yield from self.finish()
                yield TranscriptBreak(conversation=None, kind="removed", count=entry.removed)
            for part in self._parts(entry):
                yield from self._part(part)
        elif name == self._record_name:
            try:
                reports = [call_report(item) for item in _items(entry)]
            except (ValueError, LookupError, TypeError) as error:
                raise self._corrupt(entry, error) from error
            for report in reports:
                yield from self._record(report)
        elif name in self._note_names:
            for note in self._notes(entry, self._row.session_id):
                self._note(note)

    def _parts(self, entry: SessionEntry) -> Sequence[ConversationPart]:
        return decoded_items(self._part_type, entry, self._row.session_id, self._store)

    def _notes(self, entry: SessionEntry, session_id: str) -> list[ApprovalNote]:
        try:
            return [note for item in _items(entry) for note in approval_notes(item)]
        except (ValueError, LookupError, TypeError) as error:
            raise self._corrupt(entry, error, session_id) from error

    def _corrupt(self, entry: SessionEntry, error: Exception, session_id: str | None = None) -> StoreCorruptError:
        session = session_id or self._row.session_id
        fault = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        return StoreCorruptError(
            f"entry {entry.number} of session {session!r} in {self._store.url}: it is not a {entry.type_name}, "
            f"{fault}. Restore the store from a copy.",
            store=self._store.url,
        )

    # ---------------------------------------------------------------------------------------------------- conversations

    def _part(self, part: ConversationPart) -> Iterator[TranscriptItem]:
        conversation = ConversationId(part.speaker, part.name)
        held = self._held.get(conversation)
        is_first = held is None
        if held is None:
            held = self._held[conversation] = HeldReply(conversation)
        messages = self._new_messages(part)
        if part.restarts and not is_first:
            # Calls that the part asks for again stay open.
            if not held.is_asked_by(part):
                yield from self._closed(held)
            count = len(part.messages) - len(messages)
            yield TranscriptBreak(conversation=conversation, kind="restarted", count=count, at=part.at)
        replies = held.split(part, messages)
        asked = [call for reply in replies for call in reply.calls]
        self._claim_early(asked)
        if self._early:
            yield from self._taken_early()
        for reply in replies:
            yield from self._closed(held)
            # Calls of other conversations that have ended come before a message that is not of theirs.
            yield from self._settled()
            yield reply.message
            held.hold(reply.calls)

    def _new_messages(self, part: ConversationPart) -> Sequence[Any]:
        """The messages of a part without those that repeat earlier ones."""
        # A program's own loop does not replace its conversation.
        if part.speaker == "loop":
            return part.messages
        new: list[Any] = []
        for message in part.messages:
            digest = hash((part.speaker, part.name, repr(message)))
            if part.restarts and digest in self._hashes:
                continue
            new.append(message)
            self._hashes[digest] = None
            if len(self._hashes) > MOST_HASHES:
                self._hashes.popitem(last=False)
        return new

    def _settled(self) -> Iterator[TranscriptItem]:
        for held in self._held.values():
            for call in held.settled():
                yield call.reported(self._claims, self._children)

    def _closed(self, held: HeldReply) -> Iterator[TranscriptItem]:
        for call in held.close():
            yield call.reported(self._claims, self._children)

    # ----------------------------------------------------------------------------------------------------------- calls

    def _record(self, report: CallReport) -> Iterator[TranscriptItem]:
        root = _root(report.ref)
        call = self._asked(root)
        if call is not None:
            if root == report.ref:
                call.record = report
            else:
                call.add_nested(report)
            return
        call = AskedCall.of_record(report)
        # The calls that its handler has made are recorded before it, and so are its earlier attempts.
        for each in [each for each in self._early if root == report.ref and _root(each.ref) == root]:
            self._early.remove(each)
            call.add_earlier(each)
        self._early.append(call)
        if len(self._early) > MOST_EARLY:
            yield self._early.popleft().reported(self._claims, self._children)

    def _note(self, note: ApprovalNote) -> None:
        # Those of child sessions are noted here, too.
        call = self._asked(_root(note.ref)) if note.session_id in self._owners else None
        if call is not None:
            call.notes.append(note)

    def _asked(self, root: CallRef) -> AskedCall | None:
        """The call of that identity that is held; `None` if there is none."""
        for held in self._held.values():
            call = held.find(root)
            if call is not None:
                return call
        return None

    def _claim_early(self, asked: Sequence[AskedCall]) -> None:
        """Give calls the records that came before the message that asks for them, as in old versions."""
        for call in asked:
            call.notes.extend(self._outer.get(call.ref, ()))
            for early in [each for each in self._early if call.is_named(each.ref)]:
                call.record = early.record
                call.nested.extend(early.nested)
                self._early.remove(early)

    def _taken_early(self) -> Iterator[TranscriptItem]:
        while self._early:
            yield self._early.popleft().reported(self._claims, self._children)

    def _notes_above(self, lineage: Sequence[str]) -> dict[CallRef, list[ApprovalNote]]:
        """The notes about calls of this session in those of the agents above it; only of calls that people decided."""
        found: defaultdict[CallRef, list[ApprovalNote]] = defaultdict(list)
        for session_id in lineage:
            if not self._row.session_id.startswith(f"{session_id}/"):  # a fork has copies of the notes
                continue
            above = self._store.find(session_id)
            for entry in entries_in_pages(self._store, session_id, 0 if above is None else above.head, APPROVAL_TYPE):
                for note in self._notes(entry, session_id):
                    if note.session_id == self._row.session_id and (note.is_person or note.approved is None):
                        found[_root(note.ref)].append(note)
        return dict(found)


def entries_in_pages(store: SessionStore, session_id: str, until: int, type_name: str) -> Iterator[SessionEntry]:
    """The entries of a type, in pages."""
    for place in range(0, until, PAGE_ENTRIES):
        end = min(place + PAGE_ENTRIES, until)
        yield from read_entries(store, session_id, after=place, until=end, type_name=type_name)


def _items(entry: SessionEntry) -> Sequence[Mapping[str, Any]]:
    """The items of an entry as JSON.

    Raises:
        ValueError: they are not an array in JSON.
    """
    # The cache of strings is of use for those that come again: names, and not values.
    read: Any = from_json(entry.items, cache_strings="keys")
    if not isinstance(read, list):
        raise ValueError("it is not an array")  # noqa: TRY004 - wrong data, no wrong call
    return cast("list[Mapping[str, Any]]", read)


def _root(ref: CallRef) -> CallRef:
    """The call of a message in which a call was made; itself, if it is not nested."""
    for ancestor in ref.ancestors:
        ref = ancestor
    return ref


def _lineage(store: SessionStore, row: SessionRow) -> Iterator[str]:
    """The sessions from which a session was made or forked, the nearest first; up to one that is deleted."""
    seen = {row.session_id}
    parent = row.parent
    while parent is not None and parent not in seen:
        seen.add(parent)
        yield parent
        above = store.find(parent)
        parent = None if above is None else above.parent
