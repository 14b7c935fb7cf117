"""The port of a store for sessions: rows, entries in order, checkpoints, the right to write, and where items stand.

The store decides nothing: what entries mean is the session's affair (`handrail.session.persistence.recorder`).

The rules that every store keeps:

1. A session has one row, and entries numbered 1, 2, 3, ... without gaps; `head` is the number of the newest.
2. At most one `SessionLock` of a session is valid. A process that dies loses its locks at once, without a lease; one
   that lives, to the process that evicts it.
3. A unit of work (`handrail.transaction.UnitOfWork`) is written atomically. A `SessionAppend` in it counts only if the
   lock is still valid and `head` is the number of the newest entry.
4. A store that cannot answer raises `StoreUnavailableError`, and nothing has been written, unless the connection was
   lost in the very moment of a commit. So a unit can be repeated: one that the store has written already changes
   nothing and succeeds.
5. What cannot be read raises `StoreCorruptError`, which names session and entry; it is never left out.
6. A session is deleted by its holder, in one transaction.
7. A fork has the entries of its origin up to `origin_head`, and its own ones after that. All reading of entries, calls
   and checkpoints goes through both, and through the origin of the origin. A session with forks is not deleted.
"""

# pyright: reportReturnType=false
# The methods of a protocol have a docstring and no body; mypy checks what the functions below return.

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast

from handrail.session.calls import CallRef, OpenCall
from handrail.transaction import UnitStore

Role = Literal["state", "log"]
"""What an entry changes: a STATE slice or a LOG slice."""


class SessionRow(NamedTuple):
    """The row of one session."""

    session_id: str
    tags: Mapping[str, str]  # by which the program finds it
    parent: str | None  # the id of the session that it was made for, if there is one
    created_at: datetime  # aware and in UTC
    head: int = 0  # the number of its newest entry; 0 while it has none
    origin: str | None = None  # the id of the session that it was forked from, if it is a fork
    origin_head: int = 0  # the number of the last entry that it shares with its origin
    new_keys: bool = False  # whether it may repeat what its origin has done


class EntrySegment(NamedTuple):
    """The entries of a session that one session holds itself: `after < number <= until`."""

    session_id: str
    after: int
    until: int


class SessionEntry(NamedTuple):
    """One change of a slice of a session."""

    number: int  # its place among the session's entries, from 1
    reply: str  # the reply whose call it belongs to; `""` if not stated
    call_id: str  # the call that it belongs to; `""` outside of calls
    role: Role
    type_name: str  # the stable name of the items' type
    type_version: int  # the version of that type, from 1
    start: int  # the index at which the change begins
    removed: int  # how many items of the slice, from `start` on, it removes
    added: int  # how many items it puts in their place
    items: bytes  # those items as a JSON array in UTF-8
    tool: str = ""  # the tool of the call that it records, as `success` and `at`, which is aware and in UTC; else empty
    success: bool | None = None
    at: datetime | None = None

    @property
    def position(self) -> EntryPosition:
        """The entry without its items."""
        change = self.start, self.removed, self.added, len(self.items)
        return EntryPosition(self.number, self.role, self.type_name, *change)


class EntryPosition(NamedTuple):
    """A `SessionEntry` without its items, whose bytes are `size`: what opening a session reads."""

    number: int
    role: Role
    type_name: str
    start: int
    removed: int
    added: int
    size: int


class Checkpoint(NamedTuple):
    """The places of the items of every slice among the entries, so that opening need not read what lies before."""

    number: int  # the newest entry that it covers
    data: bytes  # what the session has written, JSON in UTF-8


class SessionLock(NamedTuple):
    """The right to write to one session, as `SessionStore.acquire` gave it."""

    session_id: str
    token: str  # 32 random hexadecimal digits; the store compares them at each write
    row: SessionRow  # the row of the session when it was acquired
    was_released: bool = True  # whether the holder before released the session; if not, its process may have died


SessionContents: TypeAlias = tuple[Checkpoint | None, Iterable[EntryPosition]]
"""What is read of a session when it is opened: its newest checkpoint, and where the entries after that stand, in order.
What is in an entry is not read."""


class SessionHeld(NamedTuple):
    """A lock that must be valid for a unit of work to be written, as when a call of the session claims an effect."""

    lock: SessionLock


class SessionAppend(NamedTuple):
    """Entries to be added to a session, in a unit of work; without entries, the lock and `head` are compared alone."""

    lock: SessionLock
    head: int  # the number of the newest entry before
    entries: tuple[SessionEntry, ...] = ()  # numbered from `head + 1` on
    checkpoint: Checkpoint | None = None  # is kept if it is given; covers the last of them


class AnswerRow(NamedTuple):
    """The answer of a person to a call that waits. Any process may write it; the holder of the session reads it."""

    session_id: str
    reply: str  # the reply whose call it is; `""` where none was stated
    call_id: str
    given_at: datetime  # when it was given, aware and in UTC
    answer: bytes  # the answer as JSON in UTF-8; see `handrail.session.open_calls`

    @property
    def call(self) -> CallRef:
        """The identity of the call within its session, as a store names it."""
        return CallRef(self.reply or None, self.call_id)


class AnswerChange(NamedTuple):
    """An answer that a unit of work writes, if the row of its call is the expected one, and the session exists."""

    expected: AnswerRow | None
    row: AnswerRow  # what comes in its place


RunStatus: TypeAlias = Literal["open", "waiting", "finished", "failed", "cancelled"]
"""Where a run is: a worker is to carry it out, or does; it waits for answers of people; or it has ended."""


class RunRow(NamedTuple):
    """What workers are to carry out in a session. Any process may change it; a session has at most one."""

    session_id: str
    version: int  # one more with each change, from 1
    status: RunStatus
    queue: str
    priority: int  # the highest comes first
    worker: str  # who carries it out; empty for none
    due_at: datetime  # not before this time; until then, its worker has it. Aware and in UTC
    submitted_at: datetime
    data: bytes  # what else is known of it, as JSON in UTF-8; see `handrail.operations.runs`


class RunChange(NamedTuple):
    """A run that a unit of work writes, if its row has the version before, or none for 1, and the session exists."""

    row: RunRow


class FetchedRows:
    """The rows of a handler's statement; `rowcount` is -1 where the database does not report it."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: Iterable[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount: int = rowcount

    def fetchone(self) -> Any:  # noqa: ANN401 - a row is what the driver makes of it
        """Returns the next row; `None` if there is none."""
        return next(self._rows, None)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Returns all remaining rows."""
        return list(self._rows)


class DatabaseConnection(Protocol):
    """The store's database, inside the transaction that commits the call: what `context.connection` is."""

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """Executes one statement; what it writes is committed with the call, and undone with it.

        Raises:
            ModelVisibleError: the call may not write (see `handrail.transaction.check_write`).
            SessionError: the statement would begin or end a transaction; or the call would wait for another one, and
                with it the event loop of this thread.
            Exception: what the driver raises.
        """

    async def execute_async(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """As `execute`, for `async def` handlers: the event loop runs while the database is waited for.

        Raises:
            CancelledError: the task was cancelled. The statement has ended by then, or has not begun.
            Exception: as of `execute`.
        """


class SessionStore(UnitStore, Protocol):
    """Keeps sessions for many threads and, where it is durable, many processes."""

    @property
    def url(self) -> str:
        """The name of the store for people, without any password; for a file its absolute path."""

    def now(self) -> datetime:
        """The store's time, aware and in UTC."""

    def check_wait(self, *, queued: bool) -> None:
        """Refuses a write on the thread of an event loop if it would wait for a call that may need the loop to end.

        It may do so if it is `queued` behind another write of its session, too.

        Raises:
            SessionUseError: it would. Nothing was written.
        """

    def create(self, row: SessionRow) -> bool:
        """Adds a session without entries of its own; returns whether there was none of that id.

        Raises:
            SessionNotFoundError: it is a fork, and its origin does not exist, or has fewer entries.
        """

    def forks(self, session_id: str) -> tuple[str, ...]:
        """The ids of the forks of a session."""

    def find(self, session_id: str) -> SessionRow | None:
        """The present row of a session, if it exists."""

    def sessions(self, *, after: tuple[datetime, str] | None = None) -> Iterator[SessionRow]:
        """All sessions, the newest first; or those that follow a session in this order: its `created_at`, and its id.

        It need not exist any more.
        """

    def acquire(self, session_id: str, *, wait: timedelta, evict: bool = False) -> SessionLock:
        """Acquires the right to write to a session; waits for another holder to release it, or evicts it.

        Raises:
            SessionNotFoundError: the session does not exist.
            SessionLockedError: another process, or another `Session` of this one, still holds it after `wait`.
        """

    def release(self, lock: SessionLock) -> None:
        """Releases the session; a lock that is no longer valid, or a store that is down, is not an error."""

    def check_lock(self, lock: SessionLock, head: int) -> None:
        """Checks that the store answers and that the lock is valid.

        Raises:
            SessionLostError: another process has taken the session over, or has written to it.
            StoreUnavailableError: the store does not answer.
        """

    def contents(self, row: SessionRow) -> SessionContents:
        """Reads what opening needs, in one question unless there are very many entries; nothing newer than the row."""

    def checkpoint(self, session_id: str, *, until: int | None = None) -> Checkpoint | None:
        """The newest checkpoint that covers no entry after `until`."""

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[SessionEntry]:
        """The entries with `after < number <= until`, in order; of one type, if it is named."""

    def newest_changes(
        self, session_id: str, type_name: str, *, after: int, until: int, limit: int
    ) -> list[SessionEntry]:
        """The newest entries with `after < number <= until` that change a slice, at most `limit`, in order."""

    def recorded_calls(self, session_id: str, *, limit: int) -> list[tuple[CallRef, int]]:
        """The newest recorded calls with the numbers of their entries, the newest first.

        An entry records a call if its role is `"log"` and it has a call id.
        """

    def record_of_call(self, session_id: str, ref: CallRef) -> int | None:
        """The number of the newest entry that records a call, if there is one."""

    def open_claims(self, session_id: str) -> tuple[OpenCall, ...]:
        """The effects of a session's calls that are running, unknown, or done without having been applied."""

    def end_leases_of_dead(self, session_id: str, *, is_evicted: bool = False) -> tuple[OpenCall, ...]:
        """Ends the leases of running effects whose owner is proved dead; the next claim decides their outcome.

        If the session was taken from its holder, that one may be stopped: what it does not renew ends soon. Returns the
        running effects whose lease has not expired: their owners may be alive, so the leases are waited for.
        """

    def answers(self, session_id: str) -> tuple[AnswerRow, ...]:
        """The answers of people to calls of a session, the oldest first; a fork has none of them."""

    def run(self, session_id: str) -> RunRow | None:
        """The run of a session, if workers are to carry one out."""

    def runs(self, *, after: tuple[datetime, str] | None = None) -> Iterator[RunRow]:
        """All runs, the newest first; or those that follow one in this order: its `submitted_at`, and its session."""

    def due_runs(self, queue: str, now: datetime, *, limit: int) -> Iterator[RunRow]:
        """The open runs of a queue that are due, those first that are due for the longest time.

        A row that cannot be read raises where it stands, as in `sessions` and `runs`, and those after it follow.
        """

    def held_sessions(self) -> frozenset[str]:
        """The sessions that a process holds at this moment, this process or another one."""

    def delete_session(self, lock: SessionLock) -> None:
        """Deletes a session: its row, entries, checkpoints and answers, and the effects of its partition.

        These are the slots of its calls, and the keys of the scope "session". Open calls are not looked for. The lock
        remains to be released.

        Raises:
            SessionLostError: the lock is not valid. Nothing was deleted.
            SessionError: the session has forks, which are named. Nothing was deleted.
            StoreUnavailableError: the store does not answer. Nothing was deleted.
        """

    def connection(self) -> DatabaseConnection:
        """The database of the store, inside the transaction of the call that runs in this context.

        Raises:
            SessionError: no call runs here, or the store has no database.
        """


_FORMAT = "handrail.checkpoint/1"


class ItemRange(NamedTuple):
    """A run of neighbouring items of a slice."""

    first: int  # the number of the first entry that they come from
    last: int  # the number of the last one. The slice has no other entries between the two.
    offset: int  # how many of the items of these entries come before them
    size: int  # how many items the run has
    total: int  # how many items these entries have together


class EntryIndex(NamedTuple):
    """The places of the items of one slice."""

    role: Role  # whether the slice is STATE or LOG
    runs: tuple[ItemRange, ...] = ()  # in the order of the items
    last: int = 0  # the number of the newest entry of the slice

    @property
    def length(self) -> int:
        """The number of items of the slice."""
        runs = self.runs
        return runs[0].size if len(runs) == 1 else sum([run.size for run in runs])

    def after(self, entry: EntryPosition | SessionEntry) -> EntryIndex:
        """The index once an entry of the slice has changed it."""
        number, size = entry.number, entry.added
        # The fast path: an append, which is nearly every entry, makes the newest run longer.
        if not entry.removed and self.runs and entry.start == self.length:
            newest = self.runs[-1]
            # Only a run that ends with the newest entry of the slice, and of which no item at the end has been removed:
            # a longer run would count the items in between.
            if newest.last == self.last and newest.offset + newest.size == newest.total:
                grown = ItemRange(newest.first, number, newest.offset, newest.size + size, newest.total + size)
                return EntryIndex(self.role, (*self.runs[:-1], grown) if len(self.runs) > 1 else (grown,), number)
        before = runs_between(self.runs, 0, entry.start)
        behind = runs_between(self.runs, entry.start + entry.removed, self.length)
        come = (ItemRange(number, number, 0, size, size),) if size else ()
        return EntryIndex(self.role, (*before, *come, *behind), number)


def runs_between(runs: tuple[ItemRange, ...], start: int, stop: int) -> tuple[ItemRange, ...]:
    """The runs of the items from `start` up to `stop`."""
    between: list[ItemRange] = []
    position = 0
    for run in runs:
        begin = max(start - position, 0)
        end = min(stop - position, run.size)
        if begin < end:
            between.append(run._replace(offset=run.offset + begin, size=end - begin))
        position += run.size
    return tuple(between)


def find_index(layouts: Mapping[str, EntryIndex], name: str, role: Role) -> EntryIndex:
    """The index of a slice before a change; an empty slice may become one of the other role."""
    layout = layouts.get(name)
    return EntryIndex(role) if layout is None or (layout.role != role and not layout.runs) else layout


def dump_indexes(layouts: Mapping[str, EntryIndex]) -> bytes:
    """The indexes of a session's slices, by the names of their types, as JSON for a checkpoint."""
    slices = {name: [layout.role, layout.last, layout.runs] for name, layout in layouts.items()}
    return json.dumps({"format": _FORMAT, "slices": slices}, separators=(",", ":")).encode()


def load_indexes(data: bytes) -> dict[str, EntryIndex]:
    """Parses what `dump_indexes` wrote; raises `ValueError`."""
    try:
        read: Any = json.loads(data)
        if read["format"] != _FORMAT:
            raise ValueError(f"its format is {read['format']!r}, not {_FORMAT!r}")
        layouts = {str(name): _layout(*fields) for name, fields in read["slices"].items()}
    # A slice with too few or too many fields is a `TypeError` of the calls of `_layout` and `ItemRange`.
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not a checkpoint: {error!r}") from error
    return layouts


def _layout(role: object, last: object, runs: list[list[int]]) -> EntryIndex:
    ranges = tuple(ItemRange(*run) for run in runs)
    numbers = [last, *(number for run in ranges for number in run)]
    # `type(number) is int`, because JSON `true` is a `bool`, which is an `int` in Python.
    if role not in {"state", "log"} or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("it is not a checkpoint: a slice is neither state nor log, or is not described in numbers")
    if not all(run.first <= run.last and run.size and run.offset + run.size <= run.total for run in ranges):
        raise ValueError("it is not a checkpoint: a slice has more items than its entries bring")
    return EntryIndex("log" if role == "log" else "state", ranges, cast("int", last))  # an int: checked above
