"""The stored side of a session: what is written of each call, and how far the store has come.

Theory of operation
    The store gets *entries*: one for each change of a slice, in order. A change says where in the slice
    it begins, how many items it removes and which ones it adds, so that reading runs no code of the program. The
    changes of a call to STATE slices are found by comparing them, when its transaction commits, with what they were
    before it: nothing of a call that fails ever reaches the store.

    A `SessionCommit` is enlisted in the outermost transaction of each call that writes. Its entries go into the unit of
    work of the call, beside the row of the ledger and the decision about files. Items that a LOG gets while no call is
    being settled go with the next unit, or at once if no call runs here.

    The content of a unit is the same in every attempt: then a unit that was committed although the store said otherwise
    is recognized. From its assembly until its outcome is known, it has the turn of the session's `queue`. Locks are
    taken in this order: the session's, the store's; so a reducer may read items from the store with the session's lock
    held.

    The numbers of entries are dense, and only the holder of the session may add some, so a process learns that the
    store has moved on without it, and what another process has written is not lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakSet

from pydantic_core import from_json

from handrail.errors import (
    CommitInDoubtError,
    SessionError,
    SessionLostError,
    SessionUseError,
    StoreError,
    StoreUnavailableError,
)
from handrail.redaction import redacted_logger
from handrail.serde.formatting import json_line
from handrail.session.calls import CallRecords, CallRef
from handrail.session.persistence.protocol import (
    Checkpoint,
    EntryIndex,
    Role,
    SessionAppend,
    SessionEntry,
    SessionHeld,
    SessionLock,
    SessionStore,
    dump_indexes,
    find_index,
)
from handrail.session.persistence.stored_types import StoredType, stored_type
from handrail.session.slices import SliceView, StateSlices, StoredItems, Version, Versions, appended, shorten_logs
from handrail.transaction import Transaction, UnitOfWork, UnitStore
from handrail.transaction.changes import CallChange, shorten_diff
from handrail.transaction.commit import Apply, commit_participants, prepare_in_turn
from handrail.transaction.unit_of_work import Refusal, WriteQueue
from handrail.waiting import Wait, run_blocking

_log = redacted_logger("handrail.session")

CLOSED = "has been closed"
"""Why nothing is written to a session that the program has closed."""

MOST_UNCOVERED_BYTES = 1_000_000
"""From so many bytes of entries on there is another checkpoint. Opening a session in a file reads the entries that no
checkpoint covers, and 1 MB takes a few milliseconds; a checkpoint is mostly smaller than 1 kB."""

_MOST_RUNS = 512
"""The most runs that a slice may be scattered over before a change writes the whole of it anew."""

_OUTAGES: WeakSet[SessionStore] = WeakSet()
"""Of the process: the stores that do not answer. An outage is logged once, whatever number of sessions meets it."""


class PendingItem(NamedTuple):
    """An item of a LOG that the store does not have yet."""

    kind: type[Any]
    call: CallRef | None  # the call that it belongs to, as a store names it, if any
    item: Any
    data: bytes  # the same as a JSON array of one, made at once, so that an item that cannot be written is refused


class EntryDraft:
    """The entries of a unit of work until it is committed."""

    def __init__(self, head: int, layouts: Mapping[str, EntryIndex]) -> None:
        self.number: int = head  # of the newest entry
        self.layouts: dict[str, EntryIndex] = dict(layouts)  # the places of the items of every slice after the commit
        self.entries: list[SessionEntry] = []
        self.size: int = 0  # of the entries, in bytes
        self.checkpoint: Checkpoint | None = None  # stored with them, if any
        self.pending: int = 0  # how many of the recorder's pending items are among them
        self.emptied: list[tuple[type[Any], int]] = []  # the LOGs that lose items, with how many

    def append(self, form: StoredType, call: CallRef | None, item: object, data: bytes) -> None:
        """Adds an item of a LOG, with its JSON array of one; it is the record of a call if one is named."""
        length = find_index(self.layouts, form.name, "log").length
        self.add(form, call, SliceDifference(length, 0, (item,), "log"), data)

    def add(self, form: StoredType, call: CallRef | None, change: SliceDifference, data: bytes) -> None:
        """Adds an entry; `data` are the items of the change as JSON."""
        self.number += 1
        self.size += len(data)
        ref = ("", "") if call is None else (call.reply or "", call.call_id)
        name, (start, count, items, role) = form.name, change
        summary = getattr(items[0], "summary", ()) if role == "log" and call is not None else ()
        entry = SessionEntry(self.number, *ref, role, name, form.version, start, count, len(items), data, *summary)
        self.entries.append(entry)
        self.layouts[name] = find_index(self.layouts, name, role).after(entry)


@dataclass(slots=True, eq=False)
class SessionRecorder:
    """The stored side of an open session; its lock guards everything here."""

    store: SessionStore
    session_lock: SessionLock
    head: int  # the number of the newest entry
    layouts: dict[str, EntryIndex]  # the places of the items of every slice, by the names of their types
    covered: int  # the newest entry that a checkpoint covers
    uncovered_bytes: int  # the size of the entries after it
    checkpoint_every: int  # after how many entries there is another checkpoint
    kinds: dict[str, type[Any]]  # the types of the slices, by their names
    # How the values of each type are stored. A type that the session has under another name than its own, because its
    # project folder was moved, is in it from the beginning.
    types: dict[type[Any], StoredType]
    records_changes: bool = True  # whether records of calls have what was changed, for people
    origins: tuple[str, ...] = ()  # the sessions whose effects this one does not repeat; see `loading.origin_ids`
    # The unit that adds entries has its turn, until its outcome is known.
    queue: WriteQueue = field(default_factory=WriteQueue)
    closed: str = ""  # why nothing is written any more; empty while something is
    # Whether the next unit brings the reply that asks for a call, which is stored before its handler starts.
    deferred: bool = False
    # The session's own; set when it is opened, as the four that follow.
    lock: threading.RLock = field(init=False)
    state: StateSlices = field(init=False)
    log: dict[type[Any], Version[Any]] = field(init=False)
    calls: CallRecords = field(init=False)
    mask: Callable[[object], object] = field(init=False)  # returns an item as it is stored, without secrets
    # The items of LOGs that the store does not have yet, in order.
    pending: list[PendingItem] = field(default_factory=list[PendingItem])

    def claim_conditions(self, store: object) -> tuple[SessionHeld, ...]:
        """The condition of a claim in this session's store, that the session is held; none in another store.

        Raises:
            SessionUseError: the session has been closed.
            SessionError: `store` is another one, and the session has passed to another process.
            StoreUnavailableError: `store` is another one, and that of the session does not answer.
        """
        self.check_open()
        if store is self.store:
            return (SessionHeld(self.session_lock),)
        self._check()
        return ()

    def _check(self) -> None:
        while True:
            # Read once: the store is asked about this head, and the comparison below needs the same one.
            head = self.head
            try:
                self.store.check_lock(self.session_lock, head)
            except SessionLostError:
                with self.queue.turn():  # a unit of this session may have been committed meanwhile
                    # In its turn no unit is between its commit and `advance`: a head that differs explains the refusal.
                    is_lost = self.head == head
                if is_lost:
                    raise
            else:
                return

    def check_open(self) -> None:
        """Refuses further writes to a closed session; raises `SessionUseError` or `SessionError`."""
        if self.closed:
            kind = SessionUseError if self.closed == CLOSED else SessionError
            raise kind(f"session {self.session_lock.session_id!r} {self.closed}; open it again to continue")

    def check_wait(self) -> None:
        """Refuses to write now, on the thread of an event loop, if that would wait; see `SessionStore.check_wait`."""
        self.store.check_wait(queued=bool(self.queue.waiting))

    def close(self) -> None:
        """Writes pending items, refuses further writes, and releases the session. Idempotent."""
        if not self.closed:
            if self.pending:
                self.check_wait()  # if it may not wait here, nothing is lost, and the session stays open
            self.flush()
            # Set after the flush, which a closed session would refuse.
            self.closed = CLOSED
        self.store.release(self.session_lock)

    def dump_item(self, kind: type[Any], item: object, ref: CallRef | None = None) -> PendingItem:
        """Prepares an item of a LOG for the store; raises `SessionError`."""
        call = ref.storable if ref is not None and ref.is_named else None
        return PendingItem(kind, call, item, self.stored_type(kind).dump((self.mask(item),)))

    def record_item(self, kind: type[Any], item: object, ref: CallRef | None = None, *, deferred: bool = False) -> None:
        """Queues an item of a LOG for the next unit; raises as `dump_item`."""
        self.pending.append(self.dump_item(kind, item, ref))
        self.deferred |= deferred

    def mask_pending(self) -> None:
        """Masks pending items anew: more is known of what is secret in them."""
        with self.lock:
            for place, (kind, call, item, _) in enumerate(self.pending):
                if self.mask(item) is not item:
                    self.pending[place] = self.dump_item(kind, item, call)

    def stored_type(self, kind: type[Any]) -> StoredType:
        """The stored form of a type in this session; raises `SessionError`."""
        form = self.types.get(kind)
        if form is not None:
            return form
        form = stored_type(kind)
        if self.kinds.setdefault(form.name, kind) is not kind:
            raise SessionError(
                f"two classes are stored as {form.name!r}, so they could not be distinguished: name one of them with "
                "@stored_as"
            )
        self.types[kind] = form
        return form

    def join(self, root: Transaction) -> SessionCommit:
        """The part of this session in an outermost transaction; enlisted once."""
        for part in root.enlisted:
            if isinstance(part, SessionCommit) and part.recorder is self:
                return part
        part = SessionCommit(self, root)
        root.enlist(part)
        return part

    def flush(self) -> Exception | None:
        """Writes pending items; an error of the store is logged once and returned; they go with the next unit."""
        # Read without the lock: an item that is added meanwhile is flushed by the thread that adds it, or goes with its
        # call.
        if not self.pending:
            return None
        error: Exception
        try:
            # No caller waits: what is not written now is written with the next unit.
            run_blocking(commit_participants((SessionCommit(self, None),), attempts=1))
            return None
        except SessionUseError as refused:  # it may not wait on this thread, or the session was closed meanwhile
            error = StoreUnavailableError(str(refused), store=self.store.url)
        # The items are still listed if the store has failed, so nothing is lost, and the caller is not at fault.
        except (StoreError, SessionError, CommitInDoubtError) as failure:
            error = failure
            if isinstance(error, StoreUnavailableError):
                if self.store in _OUTAGES:
                    return error
                _OUTAGES.add(self.store)
        text = "may or may not be stored" if isinstance(error, CommitInDoubtError) else "could not be stored yet"
        # The call that met the failing store is logged with its traceback.
        cause = None if isinstance(error, StoreError) else error
        _log.error("what session %s has logged %s: %s", self.session_lock.session_id, text, error, exc_info=cause)
        return error

    async def write_pending(self, apply: Apply | None) -> None:
        """Writes pending items.

        Raises:
            SessionError: the session is closed, or has passed to another process.
            StoreUnavailableError: the store does not answer. They go with the next unit.
            CommitInDoubtError: it is unknown whether they were written.
        """
        await commit_participants((SessionCommit(self, None),), apply=apply)

    async def write_claim(self, apply: Apply | None, store: UnitStore, unit: UnitOfWork) -> Refusal | None:
        """Writes a claim in one unit with pending items, in the turn of the session; raises as `write_pending`."""
        who, part = object(), SessionCommit(self, None)
        try:
            if (turn := self.queue.enter(who)) is not None:
                await Wait(turn)
            await prepare_in_turn(part, apply)
            appended = part.write()
            # The lock of the session is compared with what is appended to it.
            claim = [write for write in unit.writes if not (appended and isinstance(write, SessionHeld))]
            whole = UnitOfWork((*claim, *appended))
            try:
                refusal = store.apply(whole) if apply is None else await apply(store, whole)
            except StoreUnavailableError as error:
                # What is in doubt here is in doubt for the session too. It is looked up before its next unit otherwise.
                if error.in_doubt and appended:
                    part.in_doubt()
                raise
            if refusal is None:
                part.after_commit()
            elif appended:
                self.queue.unsure = False  # refused as a whole, so nothing of it was written
            return refusal
        finally:
            self.queue.leave(who)

    def plan(self, part: SessionCommit) -> EntryDraft:
        """Assembles the entries of a part."""
        draft = EntryDraft(self.head, self.layouts)
        for kind, call, item, data in self.pending:
            draft.append(self.stored_type(kind), call, item, data)
        draft.pending = len(self.pending)
        for kind in part.emptied:
            form = self.stored_type(kind)
            length = find_index(draft.layouts, form.name, "log").length
            draft.emptied.append((kind, length))
            draft.add(form, None, SliceDifference(0, length, (), "log"), form.dump(()))
        record = part.record
        self._add_state(draft, part.root, None if record is None else record.call)
        # The record comes last: a fork that ends with it has everything that the call has changed.
        if record is not None:
            draft.append(self.stored_type(record.kind), record.call, record.item, record.data)
        uncovered = self.uncovered_bytes + draft.size
        if draft.number - self.covered >= self.checkpoint_every or uncovered >= MOST_UNCOVERED_BYTES:
            draft.checkpoint = Checkpoint(draft.number, dump_indexes(draft.layouts))
        return draft

    def _add_state(self, draft: EntryDraft, root: Transaction | None, call: CallRef | None) -> None:
        writer, working, before = self.state.now
        # The slices in `now` belong to another call, which is not committed yet, or are written already.
        if root is None or writer is not root:
            return
        for kind in {**working, **before}:
            if (change := slice_difference(before.get(kind), working.get(kind))) is None:
                continue
            form = self.stored_type(kind)
            layout = draft.layouts.get(form.name)
            # Each change in the middle adds runs, which later changes copy and each checkpoint lists: a slice of too
            # many runs is written anew as one.
            if layout is not None and change.start < layout.length and len(layout.runs) > _MOST_RUNS:
                change = SliceDifference(0, layout.length, SliceView(working.get(kind)).all())
            draft.add(form, call, change, form.dump(change.items))


class SessionCommit:
    """The part of a session in one outermost transaction; see `handrail.transaction.CommitParticipant`."""

    __slots__ = ("_draft", "emptied", "queue", "record", "recorder", "root", "store")

    waits = False

    def __init__(self, recorder: SessionRecorder, root: Transaction | None) -> None:
        self.recorder: SessionRecorder = recorder
        self.store: SessionStore = recorder.store  # where the session is stored
        self.queue: WriteQueue = recorder.queue  # the units of the session
        self._draft = EntryDraft(recorder.head, recorder.layouts)
        self.root: Transaction | None = root  # the transaction; `None` for pending items alone
        self.record: PendingItem | None = None  # of the call; its LOG gets it if and only if all is committed
        self.emptied: tuple[type[Any], ...] = ()  # the LOGs that lose all items that they have now

    def prepare(self) -> None:
        """Assembles the entries; raises `SessionError` or `StoreUnavailableError`."""
        recorder = self.recorder
        recorder.check_open()  # now, because the unit before may have closed the session (`in_doubt`)
        if (
            recorder.queue.unsure
        ):  # if it was committed, entries of the same number would be taken for those that it wrote
            recorder.store.check_lock(recorder.session_lock, recorder.head)
            recorder.queue.unsure = False
        with recorder.lock:
            self._draft = recorder.plan(self)

    def write(self) -> Sequence[SessionAppend]:
        """The entries."""
        recorder, draft = self.recorder, self._draft
        if not draft.entries:
            return ()
        # Set first: an interrupt from here on may come after the store has taken the entries.
        recorder.queue.unsure = True
        return (SessionAppend(recorder.session_lock, recorder.head, tuple(draft.entries), draft.checkpoint),)

    def after_commit(self) -> None:
        """Records how far the store has come, and appends the record of the call to its LOG."""
        recorder, draft, record = self.recorder, self._draft, self.record
        recorder.queue.unsure = False
        if _OUTAGES:
            _OUTAGES.discard(recorder.store)
        with recorder.lock:
            recorder.head, recorder.layouts = draft.number, draft.layouts
            recorder.uncovered_bytes += draft.size
            if draft.checkpoint is not None:
                recorder.covered, recorder.uncovered_bytes = draft.number, 0
            # Only what was planned: LOGs may have got others since, which go with the next unit.
            del recorder.pending[: draft.pending]
            recorder.deferred &= bool(recorder.pending)
            shorten_logs(recorder.log, recorder.state.owner, draft.emptied)
            if record is not None:
                recorder.log[record.kind] = appended(recorder.log.get(record.kind), recorder.state.owner, record.item)
                if record.call is not None:
                    recorder.calls.add(record.call, record.item)

    def in_doubt(self) -> None:
        """Requires that the session is opened again before it is used."""
        self.recorder.closed = "was being written when its store was lost"

    def after_rollback(self) -> None:
        """Does nothing."""


class SliceDifference(NamedTuple):
    """A change of a slice: from `start` on, `items` replace `removed_count` others."""

    start: int
    removed_count: int
    items: Sequence[Any]
    role: Role = "state"


def slice_difference(before: Version[Any] | None, after: Version[Any] | None) -> SliceDifference | None:
    """The change of a slice, by the identity of its items; `None` if there is none. No item is read from the store."""
    if before is after:
        return None
    was, now = (0 if version is None else version.length for version in (before, after))
    start, count, come = 0, was, [] if after is None else after.items
    if before is not None and after is not None:
        items = before.items
        # The same list: items were appended, or were cut off at the end. None of them is compared.
        if come is items:
            start = min(was, now)
            count, come = was - start, come[start:now]
        # A comparison would read all of the slice from the store, so it is replaced as a whole.
        elif not isinstance(items, StoredItems) or items.is_loaded:
            old, come = items[:was], come[:now]
            shorter = min(was, now)
            start = next((place for place in range(shorter) if old[place] is not come[place]), shorter)
            rest = shorter - start
            # Only up to `left` from the end, so that no item is counted at both ends: [a, a] to [a] removes one.
            same_end = next((place for place in range(rest) if old[-1 - place] is not come[-1 - place]), rest)
            count, come = was - start - same_end, come[start : now - same_end]
    come = come[: now - start]
    return SliceDifference(start, count, come) if count or come else None


_OWN = "handrail."  # what Handrail writes for itself says nothing to people


def describe_slices(before: Versions, after: Versions) -> Iterator[CallChange]:
    """The changes of STATE slices from one moment to another, for people."""
    for kind in {**after, **before}:
        difference = slice_difference(before.get(kind), after.get(kind))
        if difference is not None and not stored_type(kind).name.startswith(_OWN):
            end = difference.start + difference.removed_count
            items = (("-", SliceView(before.get(kind))[difference.start : end]), ("+", difference.items))
            lines = (f"{sign}{_item_text(item)}" for sign, part in items for item in part)
            yield CallChange("slice", stored_type(kind).name, shorten_diff(lines))


def _item_text(item: object) -> str:
    try:
        return json_line(from_json(stored_type(type(item)).dump_item(item)))
    except SessionError:  # JSON does not restore it exactly
        return repr(item)
