"""The database inside the transaction of a call: what a handler has as `context.connection`.

An outermost call and those inside it have one such connection to a store, however often they ask for it. It is borrowed
with the first statement, is a participant of the call's transaction (a call inside the call is a savepoint of it), and
is enlisted on the outermost one: the unit in which that transaction is settled is written on this connection too, so
that what the handler wrote, the session's changes and the row of the ledger are committed atomically. If the
connection is lost before that, what was written is lost with it, and so the call cannot be committed.

Few calls have one at a time: they wait for a place before they borrow it, so that the commits of those that have one,
and other calls, find a connection and can write.

A call that has timed out may be in the middle of a statement, in a thread that cannot be stopped: to roll the call back
is to cancel that statement first.

A handler may not execute statements that begin or end a transaction, because the transaction is its call's. To find the
first word of a statement is to skip comments, and the databases do not agree where those end: in PostgreSQL there are
comments in comments, and a line ends at a carriage return too. A statement passes if it may in both.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from string import ascii_letters
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from handrail.errors import SessionError, StoreError, StoreUnavailableError, TransactionClosedError
from handrail.store.sql.driver import Driver, DriverConnection, FetchedRows
from handrail.transaction import Transaction, UnitStore, check_write, current
from handrail.turns import Turn

_UNIT = "handrail_unit"
_CANCEL_AGAIN_SECONDS = 0.05

_COMMENT_EDGE = re.compile(r"/\*|\*/")

_LETTERS = frozenset(f"{ascii_letters}_")

_CONTROL = frozenset(
    {
        *("ABORT", "BEGIN", "COMMIT", "END", "RELEASE", "ROLLBACK", "SAVEPOINT", "START", "PREPARE TRANSACTION"),
        *("ATTACH", "DETACH", "DISCARD", "PRAGMA", "RESET", "SET", "VACUUM"),
    }
)


class CallConnection:
    """The connection of one call; see `handrail.session.persistence.protocol.PsycopgConnection`.

    Args:
        root: the outermost transaction of the call.
        store: the store that it belongs to.
        calls: where it is listed, and whose driver it is borrowed from.

    Attributes:
        turn: its turn; no other call waits for it, because it belongs to one call.
        store: the store that it belongs to.
    """

    __slots__ = (
        "__weakref__",
        "_admission",
        "_calls",
        "_driver",
        "_enlisted",
        "_letting_go",
        "_link",
        "_lock",
        "_lost",
        "_root",
        "_savepoints",
        "_spare",
        "store",
        "turn",
    )

    def __init__(self, root: Transaction, *, store: UnitStore, calls: CallConnections) -> None:
        self.turn: Turn = Turn()
        self.store: UnitStore | None = store
        self._root = root
        self._calls = calls
        self._driver = calls.driver
        self._admission = threading.RLock()  # so that two threads of the call do not wait for two places
        self._spare = False  # whether a place was taken for a connection that is about to be borrowed
        self._lock = threading.RLock()
        self._letting_go = threading.Lock()  # so that no statement of the next one to borrow the link is cancelled
        self._link: DriverConnection | None = None
        self._enlisted = False
        self._lost = False
        self._savepoints = 0

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> FetchedRows:
        """Execute one statement; what it writes is committed with the call, and undone with it.

        Raises:
            ModelVisibleError: the call may not write (see `handrail.transaction.check_write`).
            SessionError: the statement would begin or end a transaction, which is the call's to do; or no call runs
                here.
            StoreError: the database cannot be reached, or the transaction has been lost.
            Exception: what the database says, as its driver raises it.
        """
        check_statement(sql)
        transaction = current()
        if transaction is None or transaction.root is not self._root:
            msg = "this connection belongs to another call; take context.connection of the call that runs here"
            raise SessionError(msg)
        with self._admitted(), self._lock:
            written_before = self.is_borrowed
            try:
                check_write(self, "write to the database")
            except TransactionClosedError:
                if not written_before and not self._root.is_open():
                    self._give_back()  # it was acquired too late to be released elsewhere
                raise
            link = self._borrowed()
            rows = link.execute_native(sql, parameters)
            self._borrowed()  # the statement may have ended the transaction all the same
            return rows

    # ------------------------------------------------------------------------------------------------- a participant

    def snapshot(self) -> str:
        """Set a savepoint, in a transaction that is begun now if there is none, and return its name."""
        with self._admitted(), self._lock:
            if self._link is None:
                self._begin()
            link = self._borrowed()
            self._savepoints += 1
            name = f"handrail_call_{self._savepoints}"
            link.execute(f"SAVEPOINT {name}")
            return name

    def restore(self, snapshot: str, /) -> None:
        """Go back to a savepoint; if the transaction was lost, all of it is undone, and it will not be committed."""
        with self._cancelled():
            if self._link is None or self._lost:
                return
            try:
                self._link.execute(f"ROLLBACK TO SAVEPOINT {snapshot}")
            except StoreError:
                self._lost = True
                self._link.rollback()

    # -------------------------------------------------------------------------------------------------------- enlisted

    queue = None
    waits = True

    def prepare(self) -> None:
        """Do nothing: there is nothing to look at."""

    def write(self) -> Sequence[object]:
        """Itself, if the call has executed anything: the unit is written in this transaction, and ends it."""
        return (self,) if self.is_borrowed else ()

    def after_commit(self) -> None:
        """Be listed no more."""
        self._calls.forget(self._root)

    def in_doubt(self) -> None:
        """Give the connection back. Only the database knows whether the writes were committed."""
        self.after_rollback()

    def after_rollback(self) -> None:
        """Undo what was written, if anything was, and give the connection back."""
        with self._cancelled():
            self._calls.forget(self._root)
            self._give_back()

    # ---------------------------------------------------------------------------------------------- writing the unit

    @property
    def link(self) -> DriverConnection:
        """What a unit on this connection is written through.

        Raises:
            StoreError: the transaction was lost.
        """
        return self._borrowed()

    @property
    def is_borrowed(self) -> bool:
        """Whether the call has executed anything that is not settled yet."""
        return self._link is not None or self._lost

    def begin(self) -> None:
        """Begin to write the unit, at a savepoint of the call's transaction; late writers wait until it is written.

        Raises:
            StoreError: the transaction was lost.
        """
        self._lock.acquire()
        try:
            self._borrowed().execute(f"SAVEPOINT {_UNIT}")
        except BaseException:
            self._lock.release()
            raise

    def commit(self) -> None:
        """Commit the call's transaction, with the unit."""
        self._borrowed().commit()
        self._give_back()
        self._lock.release()

    def rollback(self) -> None:
        """Undo what the unit wrote; what the handler wrote before stays."""
        try:
            self._borrowed().execute(f"ROLLBACK TO SAVEPOINT {_UNIT}")
        except StoreError:
            self._lost = True
        finally:
            self._lock.release()

    def _begin(self) -> None:
        """Begin the transaction. Whatever interrupts this, the outermost call knows of it, and will give it back."""
        if not self._enlisted:
            self._root.enlist(self)
            self._enlisted = True
        self._link = self._driver.acquire_for_call()
        self._spare = False  # from here on, the place is released with the connection
        try:
            self._link.begin()
        except BaseException:
            self._give_back()
            raise

    def _give_back(self) -> None:
        with self._letting_go:
            link, self._link = self._link, None
        if link is not None:
            try:
                self._driver.release_from_call(link)
            finally:
                self._driver.call_places.release()

    @contextmanager
    def _admitted(self) -> Generator[None]:
        """Take a place, if there is no connection yet; without the lock, so that the call can be undone meanwhile.

        Raises:
            StoreUnavailableError: other calls hold all places.
        """
        with self._admission:
            if self.is_borrowed or self._spare:
                yield
                return
            places, url = self._driver.call_places, self._driver.url
            if not places.acquire(self._driver.busy.total_seconds(), for_call=True):
                msg = (
                    f"{url} cannot be used now: calls that write through context.connection do not come to their end; "
                    "make fewer of them at a time, or keep their handlers short"
                )
                raise StoreUnavailableError(msg, store=url)
            self._spare = True
            try:
                yield
            finally:
                if self._spare:
                    self._spare = False
                    places.release()

    @contextmanager
    def _cancelled(self) -> Generator[None]:
        """Take the lock; if a late handler has it, cancel its statement, and the next one if it was between two."""
        free = self._lock.acquire(blocking=False)
        while not free:
            with self._letting_go:
                if self._link is not None:  # pragma: no branch - it is none while a late handler waits to borrow one
                    self._link.cancel()
            free = self._lock.acquire(timeout=_CANCEL_AGAIN_SECONDS)
        try:
            yield
        finally:
            self._lock.release()

    def _borrowed(self) -> DriverConnection:
        link = self._link
        if link is None or self._lost or not link.in_transaction:
            self._lost = True
            msg = (
                f"the transaction that {self._root.tool} wrote in through context.connection has ended before the "
                f"call: {self._driver.url} has undone it, or a statement ended it. Its writes are not committed"
            )
            raise StoreError(msg, store=self._driver.url)
        return link


class CallConnections:
    """The connections of the calls that run; at most one for each outermost transaction.

    One without a write is listed for as long as a handler holds it; any other one belongs to what is
    enlisted in its transaction, and so it is listed until that is settled.

    Args:
        driver: the database.

    Attributes:
        driver: the database.
    """

    __slots__ = ("_listed", "_lock", "driver")

    def __init__(self, driver: Driver) -> None:
        self.driver: Driver = driver
        self._lock = threading.Lock()
        self._listed: WeakValueDictionary[int, CallConnection] = WeakValueDictionary()

    def of_call(self, store: UnitStore) -> CallConnection:
        """The connection of the call that runs in this context.

        Raises:
            SessionError: no call runs here.
        """
        transaction = current()
        if transaction is None:
            msg = "no call runs here, so no transaction is open to write in; use context.connection inside a handler"
            raise SessionError(msg)
        root = transaction.root
        with self._lock:
            found = self._listed.get(id(root))
            if found is None:
                found = self._listed[id(root)] = CallConnection(root, store=store, calls=self)
            return found

    def borrowed(self) -> CallConnection | None:
        """The connection of the call that runs in this context, if that call has executed anything on it."""
        if not self._listed:
            return None
        transaction = current()
        found = None if transaction is None else self._listed.get(id(transaction.root))
        return None if found is None or not found.is_borrowed else found

    def forget(self, root: Transaction) -> None:
        """List the connection of an outermost transaction no more."""
        with self._lock:
            self._listed.pop(id(root), None)


class _Dialect(NamedTuple):
    """How comments are read.

    Attributes:
        skipped: blanks and comments that end with the line; SQLite takes a byte order mark for a blank.
        nests: whether comments may nest.
    """

    skipped: re.Pattern[str]
    nests: bool


_DIALECTS = (
    _Dialect(re.compile(r"(?:[\s;\ufeff]|--[^\n]*(?:\n|\Z))+"), nests=False),  # SQLite
    _Dialect(re.compile(r"(?:[\s;\ufeff]|--[^\r\n]*(?:[\r\n]|\Z))+"), nests=True),  # PostgreSQL
)


def check_statement(sql: str) -> None:
    """Let a handler's statement pass unless it would begin, end or change the transaction, or change the connection.

    Raises:
        SessionError: it would.
    """
    for dialect in _DIALECTS:
        found = _command(sql, dialect)
        if found in _CONTROL:
            msg = (
                f"context.connection does not execute {found}: the transaction and the connection are the call's. It "
                "commits when the call succeeds and is undone when the call fails; raise to undo it"
            )
            raise SessionError(msg)


def _command(sql: str, dialect: _Dialect) -> str:
    """The first word in capitals, or the first two of `PREPARE TRANSACTION`; empty if it begins with no word."""
    word, end = _next_word(sql, 0, dialect)
    return word if word != "PREPARE" else f"{word} {_next_word(sql, end, dialect)[0]}"


def _next_word(sql: str, start: int, dialect: _Dialect) -> tuple[str, int]:
    """The word behind blanks, semicolons and comments, and where it ends."""
    place = start
    while True:
        skipped = dialect.skipped.match(sql, place)
        place = skipped.end() if skipped else place
        if not sql.startswith("/*", place):
            break
        place = _comment_end(sql, place, nests=dialect.nests)
    end = place
    while end < len(sql) and sql[end] in _LETTERS:
        end += 1
    return sql[place:end].upper(), end


def _comment_end(sql: str, start: int, *, nests: bool) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(sql, start):
        depth = 0 if edge.group() == "*/" and not nests else depth + (1 if edge.group() == "/*" else -1)
        if depth == 0:
            return edge.end()
    return len(sql)
