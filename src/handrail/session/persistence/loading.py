"""Opening a stored session: what is read at once, and what on demand.

`Session.open` needs every class of which the session holds a value. A command that records the decision of a person
knows only its own classes: it acquires the session, reads what it needs (`known_items`), and appends.
"""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from pydantic_core import from_json

from handrail.errors import SessionError, SessionNotFoundError, StoreCorruptError
from handrail.redaction import redacted_logger
from handrail.session.calls import CallRecord, CallRecords, CallRef, shown_id
from handrail.session.persistence.protocol import (
    EntryIndex,
    ItemRange,
    SessionEntry,
    SessionLock,
    SessionRow,
    SessionStore,
    find_index,
    load_indexes,
    runs_between,
)
from handrail.session.persistence.recorder import SessionRecorder
from handrail.session.persistence.stored_types import StoredType, find_type, stored_type, unknown_type
from handrail.session.slices import SliceOwner, StoredItems, Version, Versions
from handrail.transaction import current

_log = redacted_logger("handrail.session")

MANY_ENTRIES = 10_000
"""If a session had more, the store is asked for each call; else the first lookup reads the identities of all."""


def entry_ranges(runs: tuple[ItemRange, ...], *, most: int) -> tuple[tuple[int, int], ...]:
    """The stretches of entries that hold the items of some runs, in order; one, if they are more than `most`."""
    stretches: list[tuple[int, int]] = []
    for first, last in sorted({(run.first, run.last) for run in runs}):
        # A change in the middle of an entry leaves two runs of it, and if the end of one is read, it ends earlier.
        if stretches and first <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(stretches[-1][1], last))
        else:
            stretches.append((first, last))
    if len(stretches) > most:
        return ((stretches[0][0], stretches[-1][1]),)
    return tuple(stretches)


_MOST_QUERIES = 16
"""In how many stretches the items of a slice are read, if they are scattered over many."""

_MOST_AT_ONCE = 1000
"""How many entries are asked for at once when the end of a run is read."""


class ItemReader:
    """Reads the items of a slice as its store had them when the session was opened; for one `StoredItems`."""

    __slots__ = ("_form", "_partial_run", "_runs", "_session_id", "_store")

    def __init__(self, store: SessionStore, session_id: str, layout: EntryIndex, form: StoredType) -> None:
        self._store = store
        self._session_id = session_id
        self._form = form
        self._runs = layout.runs  # of the items that have not been read
        # The first and the last entry of a run of which the end was read, and where in the slice that begins.
        self._partial_run: tuple[tuple[int, int], int] | None = None

    def __call__(self, start: int, stop: int) -> list[Any]:
        """Reads the items from `start` up to `stop`, and those before them that stand in the same entries."""
        runs = runs_between(self._runs, 0, stop)
        rest_runs, partial_run = runs[:-1], None
        if runs and start > sum(run.size for run in rest_runs):  # no more is needed than the end of the last run
            items, rest, partial_run = self._read_end(runs[-1], stop - start)
            rest_runs = (*rest_runs, rest) if rest.size else rest_runs
        else:
            items, rest_runs = self._read_all(runs), ()
        self._runs, self._partial_run = rest_runs, partial_run  # last: if the store fails, the next call reads the same
        return items

    def _read_all(self, runs: Sequence[ItemRange]) -> list[Any]:
        entries: list[SessionEntry] = []
        for first, last in entry_ranges(tuple(runs), most=_MOST_QUERIES):
            entries += self._store.entries(self._session_id, after=first - 1, until=last, type_name=self._form.name)
        numbers = [entry.number for entry in entries]
        read: dict[int, list[Any]] = {}
        items: list[Any] = []
        for run in runs:
            of_run: list[Any] = []
            # A range may join runs, and hold entries that belong to none of them: each run picks its own.
            for entry in entries[bisect_left(numbers, run.first) : bisect_left(numbers, run.last + 1)]:
                # A change in the middle of an entry leaves two runs of it: it is decoded once.
                if entry.number not in read:
                    read[entry.number] = decode_items(self._form, entry, self._session_id, self._store)
                of_run.extend(read[entry.number])
            if len(of_run) != run.total:
                fault = f"hold {len(of_run)} items where {run.total} are due"
                raise corrupt(fault, run.first, run.last, self._session_id, self._store)
            items.extend(of_run[run.offset : run.offset + run.size])
        return items

    def _read_end(self, run: ItemRange, size: int) -> tuple[list[Any], ItemRange, tuple[tuple[int, int], int] | None]:
        behind = run.total - run.offset - run.size  # items of its newest entries that are not in the slice any more
        pages: list[list[Any]] = []
        read, last = 0, run.last
        end = (
            self._partial_run[1]
            if self._partial_run is not None and self._partial_run[0] == (run.first, run.last)
            else None
        )
        while read < size + behind:
            most = min(size + behind - read, _MOST_AT_ONCE)
            entries = self._store.newest_changes(
                self._session_id, self._form.name, after=run.first - 1, until=last, limit=most
            )
            if not entries or (end is None and entries[-1].number != run.last):
                fault = f"hold {read} items where {run.total} are due"
                raise corrupt(fault, run.first, run.last, self._session_id, self._store)
            for entry in reversed(entries):
                items = decode_items(self._form, entry, self._session_id, self._store)
                if len(items) != entry.added or end not in {None, entry.start + entry.added}:
                    fault = "its items do not end where those of the next entry of its slice begin"
                    raise corrupt(fault, entry.number, entry.number, self._session_id, self._store)
                pages.append(items)
                read, last, end = read + len(items), entry.number - 1, entry.start
        items = [item for page in reversed(pages) for item in page]
        rest_total = run.total - read
        # Of the first of these entries some items may have been removed from the beginning of the run.
        tail = items[max(run.offset - rest_total, 0) : len(items) - behind]
        rest = run._replace(last=last, size=run.size - len(tail), total=rest_total)
        return tail, rest, None if end is None else ((rest.first, rest.last), end)


def decode_items(form: StoredType, entry: SessionEntry, session_id: str, store: SessionStore) -> list[Any]:
    """The items of an entry; raises `StoreCorruptError` or `UnknownTypeError`."""
    try:
        return form.load(entry.items, entry.type_version)
    except ValueError as error:
        raise corrupt(f"cannot be read as JSON: {error}", entry.number, entry.number, session_id, store) from error


def corrupt(fault: str, first: int, last: int, session_id: str, store: SessionStore) -> StoreCorruptError:
    """The error for entries that cannot be read."""
    entries = f"entry {first}" if first == last else f"entries {first} to {last}"
    return StoreCorruptError(
        f"{entries} of session {session_id!r} in {store.url}: {fault}. Restore the store from a copy.", store=store.url
    )


class LoadedSession(NamedTuple):
    """The arguments with which a session, its forks and its children are opened; see `Session.open`."""

    store: SessionStore
    types: tuple[type[Any], ...]
    create: bool
    wait: timedelta
    checkpoint_every: int
    evict: bool
    record_changes: bool


def load_session(
    opening: LoadedSession,
    session_id: str,
    tags: Mapping[str, str],
    parent: str | None,
    parent_origins: Sequence[str] | None,
) -> SessionRecorder:
    """Acquires a session and learns where its items stand; creates it if it does not exist.

    `parent_origins` are those of its parent, if this process has that open.

    Raises:
        SessionNotFoundError: it does not exist, and is not to be created.
        SessionLockedError: another process holds it.
        StoreCorruptError: its entries are invalid; the message names the entry.
        UnknownTypeError: it holds values of an unknown class.
    """
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
            for claim in store.end_leases_of_dead(session_id, is_evicted=opening.evict):
                _log.warning("session %s: %s", session_id, claim)
        # The row was read with the lock held: before that, another holder could still append.
        row = lock.row
        layouts, covered, uncovered = _layouts(store, row)
        kinds = _kinds(opening, layouts, session_id)
        # A class whose project folder was moved is stored under its former name, which this session keeps.
        types = {kind: StoredType(kind, name) for name, kind in kinds.items() if stored_type(kind).name != name}
        recorder = SessionRecorder(
            store,
            lock,
            row.head,
            layouts,
            covered,
            uncovered,
            opening.checkpoint_every,
            kinds,
            types,
            records_changes=opening.record_changes,
            origins=origin_ids(store, row, parent_origins),
        )
        recorder.queue.check_wait = partial(store.check_wait, queued=True)
    # Also for Ctrl-C: the lock would be held until the process ends.
    except BaseException:
        store.release(lock)
        raise
    return recorder


def _not_found(store: SessionStore, session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(
        f"{store.url} has no session {session_id!r}; `handrail sessions list` shows those that it has",
        session_id=session_id,
    )


def stored_slices(recorder: SessionRecorder, owner: SliceOwner) -> tuple[Versions, Versions]:
    """The STATE slices and the LOG slices of a session as its store has them; no item is read."""
    state: dict[type[Any], Version[Any]] = {}
    log: dict[type[Any], Version[Any]] = {}
    for name, layout in recorder.layouts.items():
        kind = recorder.kinds.get(name)
        if kind is None:  # empty, and of a class that does not exist any more
            continue
        # Of this layout, which is a value: items that are appended later are in memory, and are not read again.
        read = ItemReader(recorder.store, recorder.session_lock.session_id, layout, recorder.stored_type(kind))
        items: StoredItems[Any] = StoredItems(layout.length, read)
        (state if layout.role == "state" else log)[kind] = Version(owner, items, layout.length)
    return state, log


class StoredCallRecords(CallRecords):
    """The records of the calls of a session that had some when it was opened."""

    __slots__ = ("_head", "_is_complete", "_numbers", "_recorder", "_session_id")

    def __init__(self, recorder: SessionRecorder) -> None:
        super().__init__(recorder.lock)
        self._recorder = recorder
        self._session_id = recorder.session_lock.session_id
        self._head = recorder.head  # when the session was opened
        # The numbers of their entries, of which the newest counts; a record is read when it is first asked for. `None`
        # for a call that the store was asked for, and that has none.
        self._numbers: dict[CallRef, int | None] = {}
        self._is_complete = False

    def is_at_hand(self, ref: CallRef, /) -> bool:
        """As of `CallRecords`; the store was asked for it, or all are known."""
        key = ref.storable
        number = self._numbers.get(key, None if self._is_complete else 0)
        return number is None or key in self._records

    def find(self, ref: CallRef) -> CallRecord | None:
        """As of `CallRecords`; records since the opening are newer than stored ones."""
        key = ref.storable
        with self._lock:
            if key not in self._records and (number := self._find_number(key)) is not None:
                recorder, session_id = self._recorder, self._session_id
                self._records[key] = recorded_item(recorder.store, session_id, number, kinds=recorder.kinds)
        return super().find(key)

    def _find_number(self, ref: CallRef) -> int | None:
        recorder = self._recorder
        if not self._is_complete and self._head <= MANY_ENTRIES:
            newest = recorder.store.recorded_calls(self._session_id, limit=recorder.head)
            # What has been recorded since is known to the caller, unless it is the record of a nested call.
            self._numbers |= {call: number for call, number in reversed(newest) if number <= self._head}
            # Set last: if the store fails, the next call tries again.
            self._is_complete = True
        if not (self._is_complete or ref in self._numbers):
            self._numbers[ref] = recorder.store.record_of_call(self._session_id, ref)
        return self._numbers.get(ref)


def slice_indexes(store: SessionStore, row: SessionRow) -> dict[str, EntryIndex]:
    """The places of the items of each slice of a stored session, by the names of their types; it is not opened.

    Raises:
        StoreCorruptError: its entries are invalid; the message names the entry.
    """
    return _layouts(store, row)[0]


def known_items(
    store: SessionStore, row: SessionRow, is_wanted: Callable[[type[Any]], bool]
) -> dict[type[Any], list[Any]]:
    """The items of those slices of a stored session whose class is known and wanted; it is not opened.

    Raises:
        StoreCorruptError: they cannot be read.
    """
    values: dict[type[Any], list[Any]] = {}
    for name, layout in slice_indexes(store, row).items():
        if (kind := find_type(name)) is not None and is_wanted(kind):
            values[kind] = ItemReader(store, row.session_id, layout, StoredType(kind, name))(0, layout.length)
    return values


def recorded_item(
    store: SessionStore, session_id: str, number: int, *, kinds: Mapping[str, type[Any]] | None = None
) -> Any:  # noqa: ANN401 - of the class that the entry names
    """The record of a call in an entry; `None` if its class is unknown, unless `kinds` are those of an open session.

    Raises:
        StoreCorruptError: it cannot be read.
        UnknownTypeError: its class is unknown.
    """
    (entry,) = store.entries(session_id, after=number - 1, until=number)
    # `kinds` lacks the class of a slice that was empty when the session was opened, as after a reset.
    kind = (kinds or {}).get(entry.type_name) or find_type(entry.type_name)
    if kind is None and kinds is not None:
        raise unknown_type(entry.type_name, f"session {session_id!r} in {store.url}")
    return None if kind is None else decode_items(stored_type(kind), entry, session_id, store)[0]


def _layouts(store: SessionStore, row: SessionRow) -> tuple[dict[str, EntryIndex], int, int]:
    layouts: dict[str, EntryIndex] = {}
    covered = uncovered_bytes = 0
    checkpoint, positions = store.contents(row)
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
    for entry in positions:
        # The numbers have no gaps, so a gap is a lost entry, which is reported below with its number.
        if entry.number != number + 1:
            break
        number = entry.number
        uncovered_bytes += entry.size
        layout = find_index(layouts, entry.type_name, entry.role)
        if layout.role != entry.role or entry.start + entry.removed > layout.length:
            fault = f"does not fit the slice {entry.type_name} as the entries before it have left it"
            raise corrupt(fault, number, number, row.session_id, store)
        layouts[entry.type_name] = layout.after(entry)
    if number != row.head:
        raise corrupt(f"is missing; there should be {row.head} entries", number + 1, number + 1, row.session_id, store)
    return layouts, covered, uncovered_bytes


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


class CopiesFiles(Protocol):
    """A filesystem of which a fork gets a copy, as it was before some calls; `HostFilesystem` is one."""

    def undo_changes(self, undo_id: str, /) -> object:
        """What a call has changed; `None` if that is not kept here."""
        ...

    def copy_before(self, folder: str | os.PathLike[str], undo_ids: Iterable[str], /) -> None:
        """Copies it to a new folder, as it was before calls, the newest first."""
        ...


FolderCopies: TypeAlias = Mapping[CopiesFiles, str | os.PathLike[str]]
"""Filesystems, and the new folder to which each is copied."""


def create_fork(  # noqa: PLR0913 - of `Session.fork`
    recorder: SessionRecorder,
    opening: LoadedSession,
    new_id: str,
    at: tuple[str | None, str] | None,
    *,
    new_keys: bool,
    files: FolderCopies,
) -> LoadedSession:
    """Creates the fork of an open session, at the end of the call `at`, or at its own; returns how it is opened.

    Raises:
        SessionNotFoundError: the session is not in the store.
        SessionError: it has recorded no such call, or the store has a session of the new id; or a call runs here.
    """
    if current() is not None:
        raise SessionError("a stored session is forked between calls, because only what is committed is in it")
    recorder.flush()
    with recorder.lock:
        types = (*opening.types, *recorder.kinds.values())
    store, session_id = recorder.store, recorder.session_lock.session_id
    if (row := store.find(session_id)) is None:
        raise _not_found(store, session_id)
    end = row.head if at is None else store.record_of_call(session_id, CallRef(*at).storable)
    if end is None:
        raise SessionError(f"session {session_id!r} has recorded no call {shown_id(at)}, so it cannot be forked there")
    copy_files(store, row, end, files)
    create_fork_of_row(store, row, new_id, end, new_keys=new_keys)
    return opening._replace(types=types)


def copy_files(store: SessionStore, row: SessionRow, end: int, files: FolderCopies) -> None:
    """Copies filesystems to new folders, as they were at an entry of a session.

    Raises:
        SessionError: of a call since then, what undo needs is not kept; it is named. There is no copy.
        FilesystemError: a copy cannot be made.
    """
    changed = _changed_since(store, row, end) if files else {}
    own_names = {f"-{type(one).__name__}" for one in files}  # as in the record of a call of which it keeps nothing
    unkept = [
        call
        for undo_id, call in changed.items()
        if (undo_id in own_names if undo_id[0] == "-" else all(one.undo_changes(undo_id) is None for one in files))
    ]
    if unkept:
        calls = ", ".join(dict.fromkeys(unkept))
        raise SessionError(f"what calls of session {row.session_id!r} have changed since then is not kept: {calls}")
    for one, folder in files.items():
        one.copy_before(folder, list(changed))


def _changed_since(store: SessionStore, row: SessionRow, end: int) -> dict[str, str]:
    """The ids under which is kept what calls of a session, and of those below it, have changed: the newest first."""
    last = next((number for _, number in store.recorded_calls(row.session_id, limit=row.head) if number <= end), 0)
    since = next((entry.at for entry in store.entries(row.session_id, after=last - 1, until=last) if last), None)
    below = [one.session_id for one in store.sessions() if one.session_id.startswith(f"{row.session_id}/")]
    records = [*store.entries(row.session_id, after=end, until=row.head)]
    records += [entry for one in below for entry in store.entries(one) if not since or (entry.at or since) > since]
    ended = [(entry.at, entry.number, entry) for entry in records if entry.role == "log" and entry.at is not None]
    changes = ((entry, from_json(entry.items)[0].get("undo") or ()) for *_, entry in sorted(ended, reverse=True))
    return {undo_id: str(CallRef(one.reply or None, one.call_id)) for one, undo_ids in changes for undo_id in undo_ids}


def create_fork_of_row(store: SessionStore, row: SessionRow, new_id: str, end: int, *, new_keys: bool) -> SessionRow:
    """Creates a fork of the session of a row, which shares its entries up to `end`; nothing is read or copied.

    Raises:
        SessionNotFoundError: the session does not exist any more; nothing was written.
        SessionError: the store has a session of the new id; nothing was written.
    """
    fork = SessionRow(new_id, row.tags, row.parent, store.now(), end, row.session_id, end, new_keys)
    # Writes only if the id is free; a check before it could be overtaken by another process.
    if not store.create(fork):
        raise SessionError(f"the store has a session {new_id!r} already; give the fork another id")
    return fork


def origin_ids(store: SessionStore, row: SessionRow, parent_origins: Sequence[str] | None = None) -> tuple[str, ...]:
    """The sessions whose effects a session does not repeat: those that it was forked from, the nearest first.

    For a child they are those that children of the same name have below the origins of its parent, which are read
    unless they are given. Most sessions have neither origin nor parent, and nothing is read.
    """
    if row.new_keys:
        return ()
    if row.origin is not None:
        origin = store.find(row.origin)
        return (row.origin, *(() if origin is None else origin_ids(store, origin)))
    if row.parent is None or not row.session_id.startswith(f"{row.parent}/"):
        return ()
    if parent_origins is None:
        parent = store.find(row.parent)
        parent_origins = () if parent is None else origin_ids(store, parent)
    return tuple(f"{origin}{row.session_id.removeprefix(row.parent)}" for origin in parent_origins)


def release_with(session: object, store: SessionStore, lock: SessionLock) -> None:
    """Releases a session that is collected without having been closed. A process that ends releases its locks."""
    # The arguments must not refer to the session: the finalizer holds them, and it would never be collected.
    weakref.finalize(session, _release, store, lock).atexit = False


def _release(store: SessionStore, lock: SessionLock) -> None:
    # In a thread of its own, because the thread that collects garbage may hold any lock, also the one of the store.
    threading.Thread(target=store.release, args=(lock,), name="handrail-release", daemon=True).start()


@contextmanager
def held_session(store: SessionStore, session_id: str, *, wait: timedelta) -> Generator[SessionLock]:
    """Holds a session for the time of the block, in which no other process can open it.

    Raises:
        SessionNotFoundError: it does not exist.
        SessionLockedError: another process holds it for longer than `wait`.
    """
    lock = store.acquire(session_id, wait=wait)
    try:
        # What an opener does: after the release it could not be seen any more that the process before has died.
        if not lock.was_released:
            store.end_leases_of_dead(session_id)
        yield lock
    finally:
        store.release(lock)
