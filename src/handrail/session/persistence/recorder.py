"""The stored side of a session: what is written of each call, and how far the store has come.

Theory of operation
    The store gets *entries*: one for each event and each change of a slice, in order. A change says where in the slice
    it begins, how many items it takes away and which ones it brings, so that reading needs no reducer and runs no code
    of the program. What a call has done to the STATE slices is found by comparing them, when its transaction commits,
    with what they were before it: nothing is written before, so nothing of a call that fails ever reaches the store.

    A `SessionCommit` is enlisted in the outermost transaction of each call that writes
    (`handrail.transaction.CommitParticipant`). Its entries go into the unit of work of the call, beside whatever else
    is settled with it: the row of the ledger, the decision about files. What a LOG gets while no call is being settled
    goes with the next unit, or at once if no call runs here.

    What a unit writes is put together before the store is asked to begin it, and is the same in every attempt: then a
    unit that was committed although the store said otherwise is known again. From then on until its outcome is known,
    it has the turn of the session's `queue`. Locks are taken in this order: the session's, the store's; so a reducer
    may read items from the store with the session's lock held.

    The numbers of entries are dense, and only the holder of the session may add some, so a store that has moved on
    without this process learns that, and what another process has written is not lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from handrail.errors import (
    CommitInDoubtError,
    SessionError,
    SessionLostError,
    SessionUseError,
    StoreError,
    StoreUnavailableError,
)
from handrail.redaction import redacted_logger
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
from handrail.session.slices import SliceView, StateSlices, StoredItems, Version, appended, shorten_logs
from handrail.transaction import Transaction, UnitOfWork, UnitStore
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


class PendingItem(NamedTuple):
    """An item that a LOG has got and the store has not.

    Attributes:
        kind: its type.
        call: the call that it belongs to, as a store names it; `None` for none, or for one without reply and id.
        item: the item.
        data: the same as a JSON array of one, so that what cannot be written is refused before it is kept.
    """

    kind: type[Any]
    call: CallRef | None
    item: Any
    data: bytes


class EntryDraft:
    """What a unit of work writes of a session, while it is put together and until it is committed.

    Attributes:
        number: of the newest entry.
        layouts: where the items of every slice stand once it is committed.
        entries: the entries.
        size: how many bytes are stored of them.
        checkpoint: what is kept with them.
        noted: how many of the items that LOGs have got are among them.
        emptied: the LOGs that lose items, with how many.
    """

    def __init__(self, head: int, layouts: Mapping[str, EntryIndex]) -> None:
        """Begin after the newest entry of the session."""
        self.number: int = head
        self.layouts: dict[str, EntryIndex] = dict(layouts)
        self.entries: list[SessionEntry] = []
        self.size: int = 0
        self.checkpoint: Checkpoint | None = None
        self.pending: int = 0
        self.emptied: list[tuple[type[Any], int]] = []

    def append(self, form: StoredType, call: CallRef | None, item: object, data: bytes) -> None:
        """Add an item of a LOG, with its JSON array of one; it is the record of a call if one is named."""
        length = find_index(self.layouts, form.name, "log").length
        self.add(form, call, SliceDifference(length, 0, (item,), "log"), data)

    def add(self, form: StoredType, call: CallRef | None, change: SliceDifference, data: bytes) -> None:
        """Add an entry; `data` are the items of the change as JSON."""
        self.number += 1
        self.size += len(data)
        ref = ("", "") if call is None else (call.reply or "", call.call_id)
        name, (start, count, items, role) = form.name, change
        summary = getattr(items[0], "summary", ()) if role == "log" and call is not None else ()
        entry = SessionEntry(self.number, *ref, role, name, form.version, start, count, len(items), data, *summary)
        self.entries.append(entry)
        if role != "event":
            self.layouts[name] = find_index(self.layouts, name, role).after(entry)


@dataclass(slots=True, eq=False)
class SessionRecorder:
    """What a session knows of its store.

    Attributes:
        store: the store.
        session_lock: the right to write.
        head: the number of the newest entry.
        layouts: where the items of every slice stand, by the names of their types.
        covered: the newest entry that a checkpoint covers.
        uncovered_bytes: how many bytes are stored of the entries after it.
        checkpoint_every: after how many entries there is another checkpoint.
        kinds: the types of the slices, by their names.
        types: how the values of each type are stored, determined at its first use. A type that the session has under
            another name than its own, because its project folder was moved, is in it from the beginning.
        queue: the unit that adds entries has its turn, until its outcome is known.
        closed: why nothing is written any more; empty while something is.
        lock: the session's; guards everything here. Set by the session when it is opened, as the four that follow.
        state: its STATE slices.
        log: its LOG slices.
        calls: the records of its calls.
        mask: makes of an item what is stored of it, without secrets.
        deferred: whether the next unit brings what must be stored before a handler starts: the reply that asks for it.
        noted: what LOGs have got and the store has not, in order.
    """

    store: SessionStore
    session_lock: SessionLock
    head: int
    layouts: dict[str, EntryIndex]
    covered: int
    uncovered_bytes: int
    checkpoint_every: int
    kinds: dict[str, type[Any]]
    types: dict[type[Any], StoredType]
    queue: WriteQueue = field(default_factory=WriteQueue)
    closed: str = ""
    deferred: bool = False
    lock: threading.RLock = field(init=False)
    state: StateSlices = field(init=False)
    log: dict[type[Any], Version[Any]] = field(init=False)
    calls: CallRecords = field(init=False)
    mask: Callable[[object], object] = field(init=False)
    pending: list[PendingItem] = field(default_factory=list[PendingItem])

    def claim_conditions(self, store: object) -> tuple[SessionHeld, ...]:
        """What a claim in a store compares, so that only the holder of the session claims; none outside of its store.

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
        """Refuse further writes to a session that is closed.

        Raises:
            SessionUseError: the program has closed it.
            SessionError: it was closed because its store was lost.
        """
        if self.closed:
            kind = SessionUseError if self.closed == CLOSED else SessionError
            raise kind(f"session {self.session_lock.session_id!r} {self.closed}; open it again to continue")

    def check_wait(self) -> None:
        """Refuse to write now, on the thread of an event loop, if that would wait; see `SessionStore.check_wait`."""
        self.store.check_wait(queued=bool(self.queue.waiting))

    def close(self) -> None:
        """Write what LOGs have got, refuse further writes, and release the session. Idempotent."""
        if not self.closed:
            if self.pending:
                self.check_wait()  # if it may not wait here, nothing is lost, and the session stays open
            self.flush()
            # Set after the flush, which a closed session would refuse.
            self.closed = CLOSED
        self.store.release(self.session_lock)

    def dump_item(self, kind: type[Any], item: object, ref: CallRef | None = None) -> PendingItem:
        """What the store is to get of an item of a LOG.

        Raises:
            SessionError: it cannot be stored.
        """
        call = ref.storable if ref is not None and ref.is_named else None
        return PendingItem(kind, call, item, self.stored_type(kind).dump((self.mask(item),)))

    def record_item(self, kind: type[Any], item: object, ref: CallRef | None = None, *, deferred: bool = False) -> None:
        """Have the store get an item of a LOG with the next unit; raises as `noting`."""
        self.pending.append(self.dump_item(kind, item, ref))
        self.deferred |= deferred

    def mask_pending(self) -> None:
        """Mask anew what the store has not got yet: more is known of what is secret in it."""
        with self.lock:
            for place, (kind, call, item, _) in enumerate(self.pending):
                if self.mask(item) is not item:
                    self.pending[place] = self.dump_item(kind, item, call)

    def stored_type(self, kind: type[Any]) -> StoredType:
        """How values of a type are stored.

        Raises:
            SessionError: they cannot be, or another type has the same name.
        """
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
        """What is enlisted in an outermost transaction for this session; one for each."""
        for part in root.enlisted:
            if isinstance(part, SessionCommit) and part.recorder is self:
                return part
        part = SessionCommit(self, root)
        root.enlist(part)
        return part

    def flush(self) -> Exception | None:
        """Write what LOGs have got; if the store fails, that is logged and returned, and it goes with the next unit."""
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
        text = "may or may not be stored" if isinstance(error, CommitInDoubtError) else "could not be stored yet"
        # The call that met the failing store is logged with its traceback.
        cause = None if isinstance(error, StoreError) else error
        _log.error("what session %s has logged %s: %s", self.session_lock.session_id, text, error, exc_info=cause)
        return error

    async def write_pending(self, apply: Apply | None) -> None:
        """Write what LOGs have got.

        Raises:
            SessionError: the session is closed, or has passed to another process.
            StoreUnavailableError: the store does not answer. It goes with the next unit.
            CommitInDoubtError: it is unknown whether it was written.
        """
        await commit_participants((SessionCommit(self, None),), apply=apply)

    async def write_claim(self, apply: Apply | None, store: UnitStore, unit: UnitOfWork) -> Refusal | None:
        """Write a claim in one unit with what LOGs have got, in the turn of the session's units.

        Args:
            apply: how it is written; `None` for by this thread.
            store: the store of the session.
            unit: of the claim.

        Raises:
            SessionError: the session is closed, or has passed to another process. Nothing was written.
            StoreUnavailableError: the store does not answer.
        """
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
        """What a part is to write now."""
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
        changed = [kind for kind in {**working, **before} if before.get(kind) is not working.get(kind)]
        differences = {kind: slice_difference(before.get(kind), working.get(kind)) for kind in changed}
        for kind, change in order_differences(self.state.events, differences):
            form = self.stored_type(kind)
            layout = draft.layouts.get(form.name)
            # Each change in the middle adds runs, which later changes copy and each checkpoint lists: a slice of too
            # many runs is written anew as one.
            if layout is not None and change.start < layout.length and len(layout.runs) > _MOST_RUNS:
                change = SliceDifference(0, layout.length, SliceView(working.get(kind)).all())  # noqa: PLW2901
            draft.add(form, call, change, form.dump(change.items))


class SessionCommit:
    """What one outermost transaction writes of a session; see `handrail.transaction.CommitParticipant`.

    Attributes:
        recorder: of the session.
        store: where the session is kept.
        queue: the units of the session.
        root: the transaction; `None` for what is written outside of any.
        record: of the call that the changes belong to; its LOG gets it if and only if all is committed.
        emptied: the LOGs that lose all items that they have now.
    """

    __slots__ = ("_draft", "emptied", "queue", "record", "recorder", "root", "store")

    waits = False

    def __init__(self, recorder: SessionRecorder, root: Transaction | None) -> None:
        """Made by `SessionRecorder`."""
        self.recorder: SessionRecorder = recorder
        self.store: SessionStore = recorder.store
        self.queue: WriteQueue = recorder.queue
        self._draft = EntryDraft(recorder.head, recorder.layouts)
        self.root: Transaction | None = root
        self.record: PendingItem | None = None
        self.emptied: tuple[type[Any], ...] = ()

    def prepare(self) -> None:
        """Put the entries together.

        Raises:
            SessionError: the session is closed or has passed to another process, or a value cannot be stored.
            StoreUnavailableError: the outcome of the unit before has to be determined, and the store does not answer.
        """
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
        """Take note of how far the store has come, and let the LOGs have what closes the call."""
        recorder, draft, record = self.recorder, self._draft, self.record
        recorder.queue.unsure = False
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
        """Require that the session is opened again before it is used."""
        self.recorder.closed = "was being written when its store was lost"

    def after_rollback(self) -> None:
        """Write nothing."""


class SliceDifference(NamedTuple):
    """From `start` on, `removed` items have gone, and `items` have come in their place."""

    start: int
    removed_count: int
    items: Sequence[Any]
    role: Role = "state"


def slice_difference(before: Version[Any] | None, after: Version[Any] | None) -> SliceDifference | None:
    """How a slice has changed, by the identity of its items; `None` if it has not.

    What is read of `before` is no more than what has been read already.
    """
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


def order_differences(
    events: Sequence[object], differences: Mapping[type[Any], SliceDifference | None]
) -> Iterator[tuple[type[Any], SliceDifference]]:
    """The differences, and after them, in their order, the events that no slice has kept."""
    changes = [(kind, change) for kind, change in differences.items() if change]
    # By identity: a reducer may have appended an equal value, which is not the event that was taken in.
    appended_ids = {id(item) for _, change in changes for item in change.items}
    yield from changes
    for event in events:
        if id(event) not in appended_ids:
            yield type(event), SliceDifference(0, 0, (event,), "event")
