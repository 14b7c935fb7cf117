"""Opening a session that is in a store: what is read at once, and what only when it is asked for.

`Session.open` needs every class of which the session holds a value. A command that records what a person has decided
knows only its own classes: it acquires the session, reads what it needs (`known_items`), and appends.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import islice
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from handrail.errors import InvalidArgumentError, SessionError, SessionNotFoundError, StoreCorruptError
from handrail.errors.developer import check_argument
from handrail.redaction import redacted_logger
from handrail.session.call_ref import CallRef, shown_id, storable_id
from handrail.session.persistence.entry_index import EntryIndex, ItemReader, decoded_items, index_of, load_indexes
from handrail.session.persistence.protocol import ForkedFrom, SessionAppend, SessionEntry, SessionRow, works_for
from handrail.session.persistence.recorder import SessionRecorder
from handrail.session.persistence.stored_types import StoredType, find_type, stored_type, unknown_type
from handrail.session.slices import SliceOwner, SlicePolicy, StoredItems, Version
from handrail.transaction import UnitOfWork, current

if TYPE_CHECKING:
    from handrail.session.persistence.protocol import EntryPosition, SessionContents, SessionLock, SessionStore

_log = redacted_logger("handrail.session")

_MOST_NAMED = 10
"""How many calls of one id a message names."""

_MOST_RECORDS = 1000
"""How many records of one id are read to see whether only one reply has a call of it."""


class LoadedSession(NamedTuple):
    """How a session is opened, and how its forks and children are.

    Attributes:
        store: where it is kept.
        types: classes that the program names.
        create: whether to begin a session that is not there.
        wait: how long to wait for another holder.
        checkpoint_every: after how many entries there is another checkpoint.
        evict: whether another holder is evicted.
    """

    store: SessionStore
    types: tuple[type[Any], ...]
    create: bool
    wait: timedelta
    checkpoint_every: int
    evict: bool = False

    @classmethod
    def checked(  # noqa: PLR0913 - what `Session.open` was given
        cls, store: object, types: object, *, create: bool, wait: object, checkpoint_every: int, evict: bool
    ) -> LoadedSession:
        """What `Session.open` was given.

        Raises:
            InvalidArgumentError: something is of another type.
        """
        if not hasattr(store, "acquire"):
            expected = "a store: handrail.store.open('sqlite:///desk.db')"
            raise InvalidArgumentError(function="Session.open", argument="store", given=store, expected=expected)
        check_argument("Session.open", "wait", wait, timedelta, "a span with its unit: timedelta(seconds=5)")
        if cast("timedelta", wait) < timedelta(0):
            expected = "zero or more"
            raise InvalidArgumentError(function="Session.open", argument="wait", given=wait, expected=expected)
        check_argument("Session.open", "create", create, bool, "True or False")
        check_argument("Session.open", "evict", evict, bool, "True or False")
        every: object = checkpoint_every
        if type(every) is not int:  # a bool is an int, and no number of entries
            expected = "a whole number of entries: 1000"
            raise InvalidArgumentError(
                function="Session.open", argument="checkpoint_every", given=every, expected=expected
            )
        expected = "dataclasses: types=[Plan]"
        check_argument("Session.open", "types", types, Iterable, expected)
        kinds = tuple(cast("Iterable[object]", types))
        for kind in kinds:
            if not isinstance(kind, type) or not hasattr(kind, "__dataclass_fields__"):
                raise InvalidArgumentError(
                    function="Session.open", argument="one of types", given=kind, expected=expected
                )
        classes = cast("tuple[type[Any], ...]", kinds)
        return cls(cast("SessionStore", store), classes, create, cast("timedelta", wait), checkpoint_every, evict)


def load_session(
    opening: LoadedSession, session_id: str, tags: Mapping[str, str], parent: str | None
) -> tuple[SessionRecorder, SessionRow]:
    """Become the one who writes to a session, and learn where its items stand; begin it if it is not there.

    Raises:
        SessionNotFoundError: it is not there, and is not to be begun.
        SessionLockedError: another process writes to it.
        StoreCorruptError: what is stored of it makes no sense; the message names the entry.
        UnknownTypeError: it holds values of a class that is not known here.
    """
    if opening.checkpoint_every < 1:
        raise ValueError(f"checkpoint_every is {opening.checkpoint_every}; it must be 1 or more")
    store = opening.store
    try:
        lock = store.acquire(session_id, wait=opening.wait, evict=opening.evict)
    except SessionNotFoundError:
        if not opening.create:
            raise _not_found(store, session_id) from None
        # Another process may have created it since. `create` changes nothing then, and the row of the other is used.
        store.create(SessionRow(session_id, tags, parent, store.now()))
        lock = store.acquire(session_id, wait=opening.wait, evict=opening.evict)
    try:
        # The process that held the lock may have died in a call. Without this, the next claim would wait for its lease.
        if not lock.was_released:
            for claim in store.end_leases_of_dead(session_id):
                _log.warning("session %s: %s", session_id, claim)
        # The row was read with the lock held: before that, another holder could still append.
        row = lock.row
        contents = store.contents(row)
        layouts, covered, uncovered = _layouts(store, row, contents)
        kinds = _kinds(opening, layouts, session_id)
        # A class whose project folder was moved is stored under its former name, which this session keeps.
        types = {kind: StoredType(kind, name) for name, kind in kinds.items() if stored_type(kind).name != name}
        kept = SessionRecorder(
            store, lock, row, row.head, layouts, covered, uncovered, opening.checkpoint_every, kinds, types
        )
        kept.records = contents.records
        kept.queue.check_wait = partial(store.check_wait, queued=True)
    # Also for Ctrl-C: the lock would be held until the process ends.
    except BaseException:
        store.release(lock)
        raise
    return kept, row


def _not_found(store: SessionStore, session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(
        f"{store.url} has no session {session_id!r}; `handrail sessions list` shows those that it has",
        session_id=session_id,
    )


def stored_slices(
    kept: SessionRecorder, owner: SliceOwner
) -> tuple[dict[type[Any], Version[Any]], dict[type[Any], Version[Any]], dict[type[Any], SlicePolicy]]:
    """The STATE slices, the LOG slices and the policies of a session as its store has them; no item is read."""
    state: dict[type[Any], Version[Any]] = {}
    log: dict[type[Any], Version[Any]] = {}
    for name, layout in kept.layouts.items():
        kind = kept.kinds.get(name)
        if kind is None:  # empty, and of a class that does not exist any more
            continue
        # Of this layout, which is a value: items that are appended later are in memory, and are not read again.
        read = ItemReader(kept.store, kept.session_lock.session_id, layout, kept.named(kind))
        items: StoredItems[Any] = StoredItems(layout.length, read)
        (state if layout.role == "state" else log)[kind] = Version(owner, items, layout.length)
    policies = dict.fromkeys(state, SlicePolicy.STATE) | dict.fromkeys(log, SlicePolicy.LOG)
    return state, log, policies


class RecordsInStore:
    """The records of a session's calls, read from its store; a `handrail.session.call_records.StoredRecords`."""

    __slots__ = ("_head", "_kept")

    def __init__(self, kept: SessionRecorder) -> None:
        self._kept = kept
        self._head = kept.head  # when the session was opened

    @property
    def at_most(self) -> int:
        """A number that they do not exceed: how many were read with the session, or else that of its entries."""
        records = self._kept.records
        return self._head if records is None else len(records)

    def newest(self, limit: int) -> list[tuple[CallRef, int]]:
        """The calls of the newest records with the number of the entry, the newest first."""
        kept = self._kept
        # Those that were read with the session are all that it had. What has been recorded since is known to the
        # caller.
        if kept.records is not None and len(kept.records) < limit:
            return kept.records
        return kept.store.recorded_calls(kept.session_lock.session_id, limit=limit)

    def of_reply(self, reply: str, limit: int) -> list[tuple[CallRef, int]] | None:
        """The calls of one reply with the number of the entry, the newest first; `None` if they are too many."""
        found = self._kept.store.recorded_calls(self._kept.session_lock.session_id, limit=limit, reply=reply)
        # What has been recorded since the opening is known to the caller, unless it is the record of a nested call.
        return [each for each in found if each[1] <= self._head] if len(found) < limit else None

    def number_of(self, ref: CallRef) -> int | None:
        """The number of the entry that records a call; `None` if there is none."""
        return self._kept.store.record_of_call(self._kept.session_lock.session_id, ref)

    def read(self, number: int) -> Any:  # noqa: ANN401 - of the class that the entry names
        """The record in an entry.

        Raises:
            StoreCorruptError: it cannot be read.
            UnknownTypeError: its class is not known here.
        """
        kept, session_id = self._kept, self._kept.session_lock.session_id
        (entry,) = kept.store.entries(session_id, after=number - 1, until=number)
        # `kinds` lacks the class of a slice that was empty when the session was opened, as after a reset.
        kind = kept.kinds.get(entry.type_name) or find_type(entry.type_name)
        if kind is None:
            raise unknown_type(entry.type_name, f"session {session_id!r} in {kept.store.url}")
        return decoded_items(stored_type(kind), entry, session_id, kept.store)[0]


def end_of_call(store: SessionStore, session_id: str, at: str | tuple[str | None, str]) -> int | None:
    """The number of the last entry of a call; `None` if the session has none of it.

    Args:
        store: where the session is kept.
        session_id: the session.
        at: the call as `(reply, call id)`, or its id.

    Raises:
        SessionError: several replies have a call of that id; the message names them.
    """
    if not isinstance(at, str):
        return store.record_of_call(session_id, CallRef(*at).stored)
    found = store.recorded_calls(session_id, limit=_MOST_RECORDS, call_id=storable_id(at)) if at else []
    # The same call may have several records, of which the newest counts.
    calls = dict.fromkeys(call for call, _ in found)
    if len(calls) > 1:
        named = ", ".join(repr(tuple(call)) for call in islice(calls, _MOST_NAMED))
        raise SessionError(
            f"several replies of session {session_id!r} have a call {shown_id(at)}; name one as (reply, call id): "
            f"{named}"
        )
    return found[0][1] if found else None


def slice_indexes(store: SessionStore, row: SessionRow) -> dict[str, EntryIndex]:
    """Where the items of each slice of a stored session stand, by the names of their types; the session stays closed.

    Raises:
        StoreCorruptError: what is stored of it makes no sense; the message names the entry.
    """
    return _layouts(store, row, store.contents(row)).layouts


def known_items(
    store: SessionStore, row: SessionRow, wanted: Callable[[type[Any]], bool]
) -> dict[type[Any], list[Any]]:
    """The items of those slices of a stored session whose class is known here and wanted; the session stays closed.

    Raises:
        StoreCorruptError: they cannot be read.
    """
    found: dict[type[Any], list[Any]] = {}
    for name, layout in slice_indexes(store, row).items():
        kind = find_type(name)
        if kind is not None and wanted(kind):
            read = ItemReader(store, row.session_id, layout, StoredType(kind, name))
            found[kind] = read(0, layout.length)
    return found


def recorded_item(store: SessionStore, session_id: str, number: int) -> Any:  # noqa: ANN401 - of the class that the entry names
    """The record of a call in an entry; `None` if its class is not known here.

    Raises:
        StoreCorruptError: it cannot be read.
    """
    (entry,) = store.entries(session_id, after=number - 1, until=number)
    kind = find_type(entry.type_name)
    return None if kind is None else decoded_items(stored_type(kind), entry, session_id, store)[0]


class _Layouts(NamedTuple):
    """Where the items of a session stand.

    Attributes:
        layouts: the layouts of its slices, by the names of their types.
        covered: the newest entry that the checkpoint covers.
        uncovered_bytes: how many bytes are stored of the entries after it.
    """

    layouts: dict[str, EntryIndex]
    covered: int
    uncovered_bytes: int


def _layouts(store: SessionStore, row: SessionRow, contents: SessionContents) -> _Layouts:
    layouts: dict[str, EntryIndex] = {}
    covered = uncovered_bytes = 0
    checkpoint = contents.checkpoint
    if checkpoint is not None:
        covered = checkpoint.number
        try:
            layouts = load_indexes(checkpoint.data)
        except ValueError as error:
            raise StoreCorruptError(
                f"the checkpoint of session {row.session_id!r} at entry {covered} cannot be read: {error}. Delete that "
                "checkpoint; the entries before it hold the same.",
                store=store.url,
            ) from error
    number = covered
    for entry in contents.positions:
        # The numbers have no gaps, so a gap is a lost entry, which is reported below with its number.
        if entry.number != number + 1:
            break
        number = entry.number
        uncovered_bytes += entry.size
        if entry.role != "event":
            layout = index_of(layouts, entry.type_name, entry.role)
            layouts[entry.type_name] = _following(layout, entry, row, store)
    if number != row.head:
        raise StoreCorruptError(
            f"session {row.session_id!r} in {store.url} should have {row.head} entries, and entry {number + 1} is "
            "missing. Restore the store from a copy.",
            store=store.url,
        )
    return _Layouts(layouts, covered, uncovered_bytes)


def _following(layout: EntryIndex, entry: EntryPosition, row: SessionRow, store: SessionStore) -> EntryIndex:
    if layout.role != entry.role or entry.start + entry.removed > layout.length:
        raise StoreCorruptError(
            f"entry {entry.number} of session {row.session_id!r} in {store.url} does not fit the slice "
            f"{entry.type_name} as the entries before it have left it. Restore the store from a copy.",
            store=store.url,
        )
    return layout.after(entry)


def _kinds(opening: LoadedSession, layouts: Mapping[str, EntryIndex], session_id: str) -> dict[str, type[Any]]:
    kinds: dict[str, type[Any]] = {}
    for name, layout in layouts.items():
        kind = find_type(name, opening.types)
        if kind is not None and (stored_type(kind).name == name or stored_type(kind).name not in layouts):
            kinds[name] = kind
        # An empty slice needs no class, so its class may be removed from the program.
        elif layout.runs:
            raise unknown_type(name, f"session {session_id!r} in {opening.store.url}")
    return kinds


def copy_for_fork(
    recorder: SessionRecorder, opening: LoadedSession, new_id: str, at: str | tuple[str | None, str] | None
) -> tuple[LoadedSession, ForkedFrom]:
    """Copy a session, up to the end of a call, or to its own.

    Args:
        recorder: of the session.
        opening: how it was opened.
        new_id: the id of its fork.
        at: the id of the call, or its reply and id; `None` for all of the session.

    Returns:
        How the copy is opened, and what it is to record of itself.

    Raises:
        SessionNotFoundError: the session is not in the store.
        SessionError: it has recorded no such call, or the store has a session of the new id; or a call runs here.
        InvalidArgumentError: `at` is of another type.
    """
    expected = "the id of a call, or (reply, call id)"
    check_argument("Session.fork", "at", at, (str, tuple, NoneType), expected)
    if isinstance(at, tuple) and len(cast("tuple[object, ...]", at)) != len(CallRef._fields):
        raise InvalidArgumentError(function="Session.fork", argument="at", given=at, expected=expected)
    if current() is not None:
        raise SessionError("a stored session is forked between calls, because only what is committed is in it")
    recorder.flush()
    with recorder.lock:
        types = (*opening.types, *recorder.kinds.values())
    store, session_id = recorder.store, recorder.session_lock.session_id
    row = store.find(session_id)
    end = None if row is None else row.head
    if at is not None:
        end = end_of_call(store, session_id, at)
    if row is None:
        raise SessionNotFoundError(f"session {session_id!r} is no longer in the store", session_id=session_id)
    if end is None:
        raise SessionError(f"session {session_id!r} has recorded no call {shown_id(at)}, so it cannot be forked there")
    fork = row._replace(session_id=new_id, parent=session_id, created_at=store.now(), head=end)
    if not store.copy(session_id, fork):
        raise SessionError(f"the store has a session {new_id!r} already; give the fork another id")
    earlier = known_items(store, row, lambda kind: kind is ForkedFrom).get(ForkedFrom, [])
    return opening._replace(types=types), ForkedFrom(new_id, works_for(row, earlier))


def release_with(session: object, store: SessionStore, lock: SessionLock) -> None:
    """Have a session released that is collected without having been closed. A process that ends releases its locks."""
    # The arguments must not refer to the session: the finalizer holds them, and it would never be collected.
    weakref.finalize(session, _release, store, lock).atexit = False


def _release(store: SessionStore, lock: SessionLock) -> None:
    # In a thread of its own, because the thread that collects garbage may hold any lock, also the one of the store.
    threading.Thread(target=store.release, args=(lock,), name="handrail-release", daemon=True).start()


@contextmanager
def held_session(store: SessionStore, session_id: str, *, wait: timedelta) -> Generator[SessionLock]:
    """Hold a session for the time of the block; no other process can open it.

    Raises:
        SessionNotFoundError: it does not exist.
        SessionLockedError: another process holds it, and does so for longer than `wait`.
    """
    lock = store.acquire(session_id, wait=wait)
    try:
        # What an opener does: after the release it could not be seen any more that the process before has died.
        if not lock.was_released:
            store.end_leases_of_dead(session_id)
        yield lock
    finally:
        store.release(lock)


def append_to_logs(store: SessionStore, lock: SessionLock, items: Sequence[object]) -> None:
    """Append items to the LOGs of a session that is held, in one unit; they belong to no call.

    Args:
        store: the store.
        lock: the right to write to the session.
        items: in order, each of a class whose slice is a LOG.

    Raises:
        SessionError: an item cannot be stored, or the session has passed to another process. Nothing was written.
        StoreUnavailableError: the store does not answer.
    """
    row = store.find(lock.session_id)
    if row is None:  # deleted by a holder before the lock was acquired
        raise SessionNotFoundError(
            f"{store.url} has no session {lock.session_id!r}; `handrail sessions list` shows those that it has",
            session_id=lock.session_id,
        )
    indexes: dict[str, EntryIndex] = slice_indexes(store, row)
    entries: list[SessionEntry] = []
    for number, item in enumerate(items, row.head + 1):
        stored = stored_type(type(item))
        index = index_of(indexes, stored.name, "log")
        # Without a call: an entry of a LOG that names one is its record.
        entry = SessionEntry(
            number, "", "", "log", stored.name, stored.version, index.length, 0, 1, stored.dump((item,))
        )
        entries.append(entry)
        indexes[stored.name] = index.after(entry)
    store.apply(UnitOfWork((SessionAppend(lock, row.head, tuple(entries)),)))
