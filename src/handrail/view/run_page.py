"""A stored session as the parts of its page: what was said, and each call with its times and what it has changed.

Nothing here depends on templates. The same session gives the same parts: there is no clock and no chance in them.

| value | from |
|---|---|
| messages, calls, outcomes, waits | `handrail.transcript` |
| changes of slices | the entries of the session (`SliceReplay`) |
| changes of files, and what was undone | the record of the call (`ToolInvoked.changes`) |
| effects | the ledger, by `CallDetails` |
| the sessions of agents that a call has asked | those sessions, by `CallDetails` |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count, groupby
from typing import Final, Literal, NamedTuple, TypeAlias

from pydantic_core import from_json

from handrail.errors import SessionNotFoundError
from handrail.operations.questions import StoredQuestion
from handrail.serde.formatting import json_line
from handrail.session.calls import CallRef
from handrail.session.persistence.loading import corrupt
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.store import Store
from handrail.store.protocol import EffectRow
from handrail.transaction.changes import CallChange, shorten_diff
from handrail.transcript import TranscriptBreak, TranscriptCall, TranscriptItem, TranscriptMessage, TranscriptReader
from handrail.undo.records import find_undone

Phase: TypeAlias = Literal["turn", "approval", "handler", "commit"]
"""What a call does in a part of its time; `"commit"` is all that is neither of the others."""

_PAGE_ENTRIES: Final = 1_000
_OWN: Final = "handrail."  # what Handrail writes for itself


class PhaseBar(NamedTuple):
    """A part of the time of a call: from `left` on, so `wide`, in percent of the time of the calls beside it."""

    phase: Phase
    seconds: float
    left: float
    wide: float


@dataclass(frozen=True, slots=True)
class CallView:
    """A call as its row shows it.

    Attributes:
        call: the call.
        session_id: the session that has it.
        bars: its time, beside the calls of the same reply.
        changes: what it has changed, or what was undone.
        nested: the calls that its handler has made.
        undone_by: the id on the page of the call that has undone it; empty if none has.
        window: when the calls of the same reply began, after the first entry of the session, and how long they took,
            in seconds; `None` if that is not known.
    """

    call: TranscriptCall
    session_id: str
    bars: Sequence[PhaseBar] = ()
    changes: Sequence[CallChange] = ()
    nested: Sequence[CallView] = ()
    undone_by: str = ""
    window: tuple[float, float] | None = None

    @property
    def id(self) -> str:
        """Names it on a page, and in the address of its own."""
        return f"{self.session_id}/{self.call.call.key}"

    @property
    def is_answer(self) -> bool:
        """True if a message of the conversation has its result."""
        return self.call.conversation is not None and self.call.call.parent is None

    @property
    def is_rolled_back(self) -> bool:
        """True if its changes were rolled back."""
        return self.call.outcome not in {"ok", "answered"}


PagePart: TypeAlias = TranscriptMessage | TranscriptBreak | Sequence[CallView]
"""A part of a page: a message, a break, or the calls of a reply, which may have run side by side."""


class SliceReplay:
    """The STATE slices of a session up to an entry, as JSON, and what each call has changed in them."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store, self._session_id = store, session_id
        self._slices: dict[str, list[str]] = {}
        self._changes: defaultdict[CallRef, list[CallChange]] = defaultdict(list)
        self.undone: dict[CallRef, CallRef] = {}  # the calls that are undone, as a store names them, and their undos

    def add(self, entries: Iterable[SessionEntry]) -> None:
        """Replays entries, in their order.

        Raises:
            StoreCorruptError: one of them is not JSON.
        """
        for entry in entries:
            undo = CallRef(entry.reply or None, entry.call_id)
            if entry.success and (undone := find_undone(undo, entry.tool)) is not None:
                self.undone[undone] = undo
            if entry.role != "state" or entry.type_name.startswith(_OWN):
                continue
            slices = self._slices.setdefault(entry.type_name, [])
            try:
                end, items = entry.start + entry.removed, [json_line(item) for item in from_json(entry.items)]
            except (ValueError, TypeError) as error:
                raise corrupt(str(error), entry.number, entry.number, self._session_id, self._store) from error
            before, slices[entry.start : end] = slices[entry.start : end], items
            if entry.call_id:
                lines = (*(f"-{item}" for item in before), *(f"+{item}" for item in items))
                call = CallRef(entry.reply or None, entry.call_id)
                self._changes[call].append(CallChange("slice", entry.type_name, shorten_diff(lines)))

    @property
    def changes(self) -> Mapping[CallRef, list[CallChange]]:
        """The changes of each call, by its identity as the store has it."""
        return self._changes


class RunReader:
    """Reads a stored session as the parts of its page, and continues where it has stopped.

    Attributes:
        row: the session, when it was read last.
        head: the number of the newest entry that was read.
    """

    def __init__(self, store: Store, row: SessionRow) -> None:
        self.row: SessionRow = row
        self.head: int = 0
        self._store = store
        self._reader = TranscriptReader(store, row.session_id)
        self._replay = SliceReplay(store, row.session_id)
        self._begin: datetime | None = None  # when the first entry was made

    def read(self, until: int | None = None) -> Sequence[PagePart]:
        """The parts that were added since, as far as nothing will change them; of the entries up to `until`.

        Raises:
            SessionNotFoundError: the session was deleted, though another one may have its id.
            StoreError: the session cannot be read.
            UnknownTypeError: it has entries of a newer version.
        """
        row, session_id = self._store.find(self.row.session_id), self.row.session_id
        if row is None or row.created_at != self.row.created_at:
            raise SessionNotFoundError(f"session {session_id} was deleted", session_id=session_id)
        self.row = row
        end = self.row.head if until is None else min(until, self.row.head)
        for after in range(self.head, end, _PAGE_ENTRIES):
            self._replay.add(
                self._store.entries(self.row.session_id, after=after, until=min(after + _PAGE_ENTRIES, end))
            )
        self.head = max(self.head, end)
        return [*self._parts(self._reader.read(until=end))]

    def open_parts(self) -> Sequence[PagePart]:
        """The parts after those, as they stand now."""
        return [*self._parts(self._reader.unfinished())]

    def _parts(self, items: Iterable[TranscriptItem]) -> Iterator[PagePart]:
        def reply(item: TranscriptItem) -> object:
            return (item.call.reply, item.conversation) if isinstance(item, TranscriptCall) else id(item)

        for _, group in groupby([*items], reply):
            first, *rest = group
            if not isinstance(first, TranscriptCall):
                self._begin = self._begin or first.at
            if isinstance(first, TranscriptMessage) and not first.blocks:  # it has calls alone
                continue
            if isinstance(first, TranscriptCall):
                yield self._show_calls([first, *(one for one in rest if isinstance(one, TranscriptCall))])
            else:
                yield first

    def _show_calls(self, calls: Sequence[TranscriptCall]) -> list[CallView]:
        spans = [span for call in calls for one in (call, *call.nested) if (span := _span(one)) is not None]
        window = (min(begin for begin, _ in spans), max(end for _, end in spans)) if spans else None
        views = [_show_call(self.row.session_id, call, window, self._replay) for call in calls]
        if window is None:
            return views
        self._begin = self._begin or window[0]
        place = max((window[0] - self._begin).total_seconds(), 0.0), (window[1] - window[0]).total_seconds()
        return [replace(view, window=place) for view in views]


class CallDetails(NamedTuple):
    """What is read of a call when it is opened.

    Attributes:
        effect: its effect in the ledger, if it has one.
        children: the sessions of the agents that it has asked, in this order: the id and the parts of each.
        questions: the open questions about it and the calls of its handler, if the page lets a person answer them.
    """

    effect: EffectRow | None = None
    children: Sequence[tuple[str, Sequence[PagePart]]] = ()
    questions: Sequence[StoredQuestion] = ()


def read_details(store: Store, view: CallView) -> CallDetails:
    """Reads the effect and the child sessions of a call.

    Raises:
        StoreError: they cannot be read.
    """
    key, child = view.call.effect_key or view.call.key, view.call.child
    rows = store.rows(key) if key else ()
    effect = next((row for row in rows if row.partition in {"", view.session_id}), None)
    children = list[tuple[str, Sequence[PagePart]]]()
    for number in count(2):
        if not child or (row := store.find(child)) is None:
            break
        children.append((child, read_all(store, row)))
        # So a run names the session of the next agent that the same call asks.
        child = f"{view.session_id}/{CallRef.nested(view.call.call, str(number)).key}"
    return CallDetails(effect, children)


def read_all(store: Store, row: SessionRow) -> Sequence[PagePart]:
    """All parts of a session, the open ones too.

    Raises:
        StoreError: it cannot be read.
        UnknownTypeError: it has entries of a newer version.
    """
    reader = RunReader(store, row)
    return [*reader.read(), *reader.open_parts()]


def calls_in(parts: Iterable[PagePart]) -> Iterator[CallView]:
    """The calls of some parts, and those of their handlers."""
    for part in parts:
        if isinstance(part, Sequence):
            for view in part:
                yield view
                yield from calls_in([view.nested])


def _show_call(
    session_id: str,
    call: TranscriptCall,
    window: tuple[datetime, datetime] | None,
    replay: SliceReplay,
) -> CallView:
    nested = [_show_call(session_id, one, window, replay) for one in call.nested]
    changes = (*replay.changes.get(call.call.storable, ()), *call.changes)
    undo = replay.undone.get(call.call.storable)
    undone_by = "" if undo is None else f"{session_id}/{undo.key}"
    return CallView(call, session_id, _bars(call, window), changes, nested, undone_by)


def _span(call: TranscriptCall) -> tuple[datetime, datetime] | None:
    if call.at is None:
        return None
    begin = call.at - timedelta(seconds=call.seconds or 0)
    since = None if call.wait is None else call.wait.since  # an earlier attempt may have asked
    return min(begin, since or begin), call.at


def _bars(call: TranscriptCall, window: tuple[datetime, datetime] | None) -> list[PhaseBar]:
    span = _span(call)
    if span is None or window is None:
        return []
    whole = (window[1] - window[0]).total_seconds() or 1e-9
    # Before the last attempt a person was waited for, and after the answer the program.
    before, handler = span[1] - span[0] - timedelta(seconds=call.seconds or 0), call.handler_seconds or 0.0
    asked = before if call.wait is None or call.wait.duration is None else min(call.wait.duration, before)
    parts: Sequence[tuple[Phase, float]] = (
        ("approval", asked.total_seconds()),
        ("turn", (before - asked).total_seconds() + call.turn_seconds),
        ("approval", call.approval_seconds),
        ("handler", handler),
        ("commit", max((call.seconds or 0.0) - call.turn_seconds - call.approval_seconds - handler, 0.0)),
    )
    bars, start = list[PhaseBar](), 100 * (span[0] - window[0]).total_seconds() / whole
    for phase, seconds in parts:
        wide = 100 * seconds / whole
        if seconds:
            bars.append(PhaseBar(phase, seconds, round(start, 3), round(wide, 3)))
        start += wide
    return bars
