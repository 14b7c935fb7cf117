"""One call's unit of work, and what each participant asks of it: may I write? The theory: `handrail.transaction`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from handrail.errors import ReadOnlyViolation, SecondStoreError, TransactionClosedError, TurnConflictError
from handrail.transaction.commit import (
    CommitOutcome,
    InThread,
    apply_detached,
    commit_participants,
    notify_participants,
    restore_participants,
    restore_participants_by,
    restoring_waits,
)
from handrail.transaction.participants import CommitParticipant, Snapshotable
from handrail.transaction.unit_of_work import UnitStore
from handrail.turns import Ticket, Turn, own_turn, turn_of
from handrail.waiting import run_blocking, run_detached


class NestedCall(NamedTuple):
    """What a call knows of one that is made inside it.

    Attributes:
        notes: returns sentences about its effects, and those of the calls nested in it.
        leave_unread: leaves these effects to the calls that equal theirs; returns whether there are any.
    """

    notes: Callable[[], Sequence[str]]
    leave_unread: Callable[[], bool]


NestedCalls: TypeAlias = dict[Ticket | str, NestedCall]
"""The calls that are made inside another one, by their tickets; one that was refused, by the effect that it repeats."""

_CURRENT: ContextVar[Transaction | None] = ContextVar("handrail_transaction", default=None)
_COMMITTED = CommitOutcome("committed")
_NESTING = threading.Lock()
"""Guards what a transaction makes when the first call is made inside it."""


def return_to(transaction: Transaction | None) -> None:
    """Make a transaction the current one again, after an interrupt may have kept one inside it from doing so."""
    if _CURRENT.get() is not transaction:
        _CURRENT.set(transaction)


current: Callable[[], Transaction | None] = _CURRENT.get
"""The transaction of the call that runs in this context, open or not; `None` outside of calls."""


def acting_in(call: Transaction) -> Transaction:
    """The transaction that a view of a call acts in: that of a nested call which runs here, or the call's own."""
    running = _CURRENT.get()
    outer = running
    while outer is not None:
        if outer is call:
            return running or call
        outer = outer.parent
    return call


class InCall:
    """A block in which a call is the current one, whatever thread or task runs it, and whether or not it has ended.

    A call that is nested in it stays the current one.
    """

    __slots__ = ("_call", "_token")

    def __init__(self, call: Transaction) -> None:
        """Make the block of a call."""
        self._call = call
        self._token: Token[Transaction | None] | None = None

    def __enter__(self) -> None:
        call = acting_in(self._call)
        if call is not _CURRENT.get():
            self._token = _CURRENT.set(call)

    def __exit__(self, *_exc: object) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)


def check_write(participant: Snapshotable[Any], what: str, *, call: Transaction | None = None) -> None:
    """Let a participant write, or say why it may not; called by participants under their own lock, before each change.

    Outside of calls everything may be written. Inside one, the participant joins its transaction with the first write.

    Args:
        participant: who is about to change.
        what: completes the sentence "it cannot ..." of the error: `"write notes.md"`.
        call: the call whose view of the participant is written to; `None` for the participant itself, whose writes
            belong to the call that runs in this context.

    Raises:
        TransactionClosedError: the call has ended; a late handler is writing.
        ReadOnlyViolation: the call may only read.
        TurnConflictError: the participant is not among those whose turn the call holds, and another call holds it; or
            a call made inside this one is still running.
    """
    transaction = _CURRENT.get() if call is None else acting_in(call)
    if transaction is not None:
        transaction.admit(participant, what)


class Transaction:
    """One call's unit of work: open, then committed or rolled back.

    Attributes:
        tool: name of the tool whose call this is, for messages.
        ticket: the turns that the call holds.
        writes: whether the handler may write.
        parent: the transaction that this one is a savepoint of.
        concurrent: whether the handler runs beside others, or has called an agent in a stored session, so that calls on
            other sessions made inside it stand on their own.
        call: the identity of the call; `str` names it among the calls of its session.
        session_store: the store of the session of the call; `None` for a session that ends with the process.
        state: `"open"`, then `"closed"` (takes no writes, still committing or rolling back), then `"ended"`; it never
            goes back.
        cure: what to do instead of a write, if the handler may only read; empty for what a tool can do.
        must_roll_back: whether leaving the block rolls back: until a commit has succeeded or is in doubt.
        committed: whether it has ended by being committed.
        writer: the only participant that may be written to although `writes` is false; see `open_for_results`.
        nested_calls: the calls made inside this one (`handrail.runtime`).
    """

    __slots__ = (
        "_enlisted",
        "_inner",
        "_inner_turn",
        "_joined",
        "_joining",
        "_saved",
        "_token",
        "_undo_lock",
        "call",
        "committed",
        "concurrent",
        "cure",
        "must_roll_back",
        "nested_calls",
        "parent",
        "session_store",
        "state",
        "ticket",
        "tool",
        "writer",
        "writes",
    )

    _token: Token[Transaction | None]

    def __init__(  # noqa: PLR0913 - what a call is to those it writes to; a value for it would be made for each call
        self,
        tool: str,
        *,
        ticket: Ticket,
        writes: bool,
        parent: Transaction | None = None,
        concurrent: bool = False,
        participants: tuple[Snapshotable[Any], ...] = (),
        enlisted: tuple[CommitParticipant, ...] = (),
        call: object = None,
        session_store: UnitStore | None = None,
        cure: str = "",
        nested_calls: NestedCalls | None = None,
    ) -> None:
        """Make a transaction that is not yet current; enter it with `with`.

        `participants` join when it is entered, if it writes: those that do not report when they are written to.
        `enlisted` are settled with it, also when it cannot be entered.
        """
        self.tool: str = tool
        self.ticket: Ticket = ticket
        self.writes: bool = writes
        self.parent: Transaction | None = parent
        self.concurrent: bool = concurrent
        self.call: object = call
        self.session_store: UnitStore | None = session_store
        self.cure: str = cure
        self.nested_calls: NestedCalls = {} if nested_calls is None else nested_calls
        self.state: Literal["open", "closed", "ended"] = "open"
        self.must_roll_back: bool = True
        self.committed: bool = False
        self.writer: Snapshotable[Any] | None = None
        self._joining = participants
        self._joined: dict[int, Snapshotable[Any]] = {}
        self._saved: dict[int, tuple[Snapshotable[Any], object]] = {}
        self._enlisted: tuple[CommitParticipant, ...] = enlisted
        self._inner: Transaction | None = None
        self._inner_turn: Turn | None = None
        self._undo_lock: threading.Lock | None = None if parent is None else parent.undo_lock

    def __enter__(self) -> Self:
        """Become the current transaction of this context.

        Raises:
            TransactionClosedError: the call that this one was made inside has ended.
            Exception: a participant cannot join. In either case the transaction has not begun.
        """
        if self.parent is not None or self._joining:
            try:
                self._begin()
            except BaseException:
                # `__exit__` does not run if `__enter__` raises: what has joined is restored here, and the claim is
                # settled.
                self.rollback()
                raise
        self._token = _CURRENT.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Roll back unless `commit` was called, and stop being current."""
        try:
            if self.must_roll_back:
                self.rollback()
        finally:
            # Also if the rollback has raised: otherwise the parent could neither write nor commit.
            if self.parent is not None:
                self.parent.take_back(self)
            _CURRENT.reset(self._token)

    @property
    def root(self) -> Transaction:
        """The outermost transaction that this one is nested in; itself when it is not nested."""
        return self if self.parent is None else self.parent.root

    @property
    def enlisted(self) -> tuple[CommitParticipant, ...]:
        """What is settled together with this transaction."""
        return self._enlisted

    @property
    def participants(self) -> tuple[Snapshotable[Any], ...]:
        """Who has joined so far, in the order of joining."""
        return tuple(self._joined.values())

    @property
    def inner_turn(self) -> Turn:
        """The turn that calls made inside this one take among themselves."""
        with _NESTING:
            if self._inner_turn is None:
                self._inner_turn = Turn()
            return self._inner_turn

    @property
    def undo_lock(self) -> threading.Lock:
        """What the participants of those nested in one outermost transaction, itself included, are restored under."""
        with _NESTING:
            if self._undo_lock is None:
                self._undo_lock = threading.Lock()
            return self._undo_lock

    def chain(self) -> Iterator[Transaction]:
        """This transaction and those it is nested in, the nearest first."""
        transaction: Transaction | None = self
        while transaction is not None:
            yield transaction
            transaction = transaction.parent

    def is_open(self) -> bool:
        """Whether it takes writes still: neither it nor one that it is nested in has been closed."""
        return self.state == "open" and (self.parent is None or self.parent.is_open())

    def holds(self, turn: Turn) -> bool:
        """Whether this call, or one that it is made inside, holds the turn."""
        return turn in self.ticket.turns or (self.parent is not None and self.parent.holds(turn))

    def lend_to(self, inner: Transaction) -> None:
        """Leave writing to a nested transaction until it has ended.

        Raises:
            TurnConflictError: it has been left to another one.
        """
        if self._inner is not None:
            raise _lent(self.tool, f"call {inner.tool}", self._inner)
        self._inner = inner

    def take_back(self, inner: Transaction) -> None:
        """Write again, if it was left to this nested transaction."""
        if self._inner is inner:
            self._inner = None

    def open_for_results(self, session: Snapshotable[Any]) -> None:
        """Let the results of a call be applied to its session, though its handler may only read."""
        if not self.writes:
            if self.parent is not None:
                self.parent.lend_to(self)
            self.writer = session

    def enlist(self, part: CommitParticipant) -> None:
        """Have something settled together with this transaction, or with the one that it is nested in.

        Raises:
            SecondStoreError: it names another store than those that are enlisted. It is not enlisted.
            TransactionClosedError: it is ending, so that the part may have come too late.
        """
        if part.store is not None:
            self._check_store(part.store)
        # Added before the state is read: a commit closes the transaction before it reads the parts, so either it finds
        # this part or the check below finds the transaction closed.
        self._enlisted = (*self._enlisted, part)
        if self.state != "open":
            raise TransactionClosedError(self.tool, "enlist")

    def check_files(self, part: CommitParticipant) -> None:
        """Check that files on disk, which are about to be written to, can be committed with the session of this call.

        Raises:
            SecondStoreError: the session is in a store, and the files were opened with another one or none.
        """
        if self.session_store is not None and part.store is not self.session_store:
            raise SecondStoreError(store=self.session_store, second=part.store)

    def _check_store(self, store: UnitStore) -> None:
        for transaction in self.chain():
            for other in transaction.enlisted:
                if other.store is not None and other.store is not store:
                    raise SecondStoreError(store=other.store, second=store)

    def admit(self, participant: Snapshotable[Any], what: str, *, snapshot: Callable[[], object] | None = None) -> None:
        """Let a participant write in this transaction; see `check_write`.

        Args:
            participant: the participant.
            what: the write, for messages.
            snapshot: takes the participant's snapshot when it joins, in place of its method `snapshot`.
        """
        # This is `not self.is_open()`, written out: it runs before each write, and most calls are not nested.
        if self.state != "open" or (self.parent is not None and not self.parent.is_open()):
            raise TransactionClosedError(self.tool, what)
        if not self.writes and participant is not self.writer:
            raise self.read_only_violation(what)
        if self._inner is not None:
            raise _lent(self.tool, what, self._inner)
        if id(participant) not in self._joined:
            self._take_in(participant, what, snapshot)

    def read_only_violation(self, what: str) -> ReadOnlyViolation:
        """What is raised for a write, because the handler may only read; `what` completes "it cannot ..."."""
        return ReadOnlyViolation(self.tool, what, concurrent=self.concurrent, cure=self.cure)

    def join(self, participant: Snapshotable[Any]) -> None:
        """Take a participant in: from here on, its changes are undone if this transaction is not committed.

        Raises:
            TransactionClosedError: this transaction has ended. Nothing has been written.
            TurnConflictError: another call holds its turn. It has not joined.
        """
        if id(participant) not in self._joined:
            self._take_in(participant, f"use a {type(participant).__name__}", None)

    def keep(self, participant: Snapshotable[Any], snapshot: object) -> None:
        """Remember a participant's snapshot, unless there is an older one, here and where this one is nested in."""
        key = id(participant)
        if key not in self._joined:
            self._joined[key] = participant
            self._saved[key] = (participant, snapshot)
        if self.parent is not None:
            self.parent.keep(participant, snapshot)

    def commit(self) -> None:
        """Keep everything that was written; a nested transaction's changes become part of the outer one.

        Raises:
            TransactionClosedError: it has already ended, or one that it is nested in has.
            TurnConflictError: a call made inside this one is still running. Leaving the block rolls both back.
            CommitInDoubtError: it is unknown whether it was committed; nothing is restored.
            Exception: what is enlisted could not be settled; nothing is committed, and leaving the block rolls back.
        """
        parts = self._close()
        if parts:
            outcome = run_blocking(commit_participants(parts, self._end))
            if outcome.error is not None:
                raise outcome.error

    @property
    def waits(self) -> bool:
        """Whether `commit` waits for a disk or a server, so that it would hold the event loop of its thread."""
        return self.parent is None and any(map(_waits, self._enlisted))

    @property
    def may_be_detached(self) -> bool:
        """Whether nothing but the store is waited for, so that `commit_detached` holds no thread."""
        return not any(part.waits for part in self._enlisted)

    def commit_detached(self) -> Future[None]:
        """As `commit`, in the threads of the store; completed with what `commit` returns or raises.

        It is not stopped by the end of the caller, who leaves the block only when it is completed.

        Raises:
            TransactionClosedError: as of `commit`.
            TurnConflictError: as of `commit`.
        """
        return run_detached(self._commit_detached(self._close()))

    async def _commit_detached(self, parts: tuple[CommitParticipant, ...]) -> None:
        outcome = await commit_participants(parts, self._end, apply=apply_detached)
        if outcome.error is not None:
            raise outcome.error

    def _close(self) -> tuple[CommitParticipant, ...]:
        """Take no more writes; returns what is to be committed. A nested transaction has ended then, and leaves it."""
        if self.state != "open" or (self.parent is not None and not self.parent.is_open()):
            raise TransactionClosedError(self.tool, "commit")
        if self._inner is not None:
            raise _lent(self.tool, "end", self._inner)
        if self.parent is None:
            self.state = "closed"  # what is written or enlisted from here on would not be among what is settled
        parts = self._enlisted
        if self.parent is not None:
            for part in parts:
                self.parent.enlist(part)
            parts = ()
        if not parts:
            self._end(_COMMITTED)
        return parts

    def _end(self, outcome: CommitOutcome) -> None:
        parts = self._enlisted
        if outcome.word != "rolled back":
            self.must_roll_back = False
            self._enlisted = ()
            self._saved.clear()
            # Set before `state`: a session whose writer has ended takes the slices from before it, unless it is
            # committed.
            self.committed = outcome.word == "committed"
            self.state = "ended"
            if parts and self.parent is None:
                notify_participants(parts, kept=self.committed)

    def rollback(self) -> None:
        """Take no more writes, and restore every participant, the last one to join first. Idempotent.

        Raises:
            RollbackError: some participants could not be restored; every one was tried.
            BaseException: Ctrl-C and the like, raised while a participant was being restored; a note names it.
        """
        if self._begins_to_undo():
            token = _without_current()
            try:
                restore_participants(self.tool, self._restore, self._newest_saved(), self._enlisted[::-1])
            finally:
                self._undone(token)

    @property
    def rollback_waits(self) -> bool:
        """Whether `rollback` waits for a disk or a server, so that it would hold the event loop of its thread."""
        if not self.must_roll_back:
            return False
        return any(map(_waits, self._enlisted)) or any(restoring_waits(each) for each, _ in self._saved.values())

    async def rollback_by(self, in_thread: InThread) -> None:
        """As `rollback`, without holding the event loop.

        Args:
            in_thread: how to settle what is enlisted, and to restore what waits for a disk or a server.

        Raises:
            RollbackError: as of `rollback`.
            CancelledError: the task was cancelled. Everything has been restored by then.
        """
        if self._begins_to_undo():
            token = _without_current()
            try:
                saved, enlisted = self._newest_saved(), self._enlisted[::-1]
                await restore_participants_by(in_thread, self.tool, self._restore, saved, enlisted)
            finally:
                self._undone(token)

    def _begins_to_undo(self) -> bool:
        """Take no more writes; returns whether there is anything to restore or to settle, and else ends."""
        if not self.must_roll_back:
            return False
        self.must_roll_back = False
        # Closed before anything is restored: a late write either comes first and is undone, or is refused.
        self.state = "closed"
        if self._saved or self._enlisted:
            return True
        self.state = "ended"
        return False

    def _newest_saved(self) -> tuple[tuple[Snapshotable[Any], object], ...]:
        """What has joined, the last one first; a late write may still join meanwhile."""
        return tuple(self._saved.values())[::-1]

    def _undone(self, token: Token[Transaction | None]) -> None:
        _CURRENT.reset(token)
        self.state = "ended"
        self._saved.clear()

    def _begin(self) -> None:
        parent = self.parent
        if parent is not None and not parent.is_open():
            raise TransactionClosedError(parent.tool, f"call {self.tool}")
        if self.writes:
            for participant in self._joining:
                self.join(participant)
            if parent is not None:
                # A participant without a turn of its own does not call `check_write`, so it joins before the handler
                # starts.
                for participant in parent.participants:
                    if own_turn(participant) is None:
                        self.join(participant)
                # The last statement: if a line above raised after this one, `__exit__` would not run, and the parent
                # would stay lent.
                parent.lend_to(self)

    def _take_in(self, participant: Snapshotable[Any], what: str, snapshot: Callable[[], object] | None) -> None:
        if getattr(participant, "turn", None) not in self.ticket.turns:  # what `holds` would come to, at less cost
            self._take_turn(participant, what)
        self.keep(participant, participant.snapshot() if snapshot is None else snapshot())
        # Checked once more after the registration: a rollback that began meanwhile may have passed this participant by,
        # so the write must not follow.
        if self.state != "open" or (self.parent is not None and not self.parent.is_open()):
            raise TransactionClosedError(self.tool, what)

    def _take_turn(self, participant: Snapshotable[Any], what: str) -> None:
        turn = turn_of(participant)
        if not self.holds(turn) and not self.root.ticket.extend((turn,)):
            msg = (
                f"{self.tool} cannot {what}: another call is using that {type(participant).__name__}. Bind it as a "
                "resource of the prompt, so that calls which need it take their turn."
            )
            raise TurnConflictError(msg)

    def _restore(self, participant: Snapshotable[Any], snapshot: object) -> None:
        """Restore one, unless the parent has been closed and restores its own, older snapshot.

        Nested calls may end in several threads at once, and restore the same participants. So one is restored at a
        time; the lock is held for no more, because a task that waited for a thread meanwhile would let others run.
        """
        if self._undo_lock is None:  # no call was nested in it
            participant.restore(snapshot)
            return
        with self._undo_lock:
            # A newer snapshot, restored after the older one, would bring undone changes back.
            if self.parent is None or self.parent.is_open():
                participant.restore(snapshot)


def _without_current() -> Token[Transaction | None]:
    """Leave no transaction current: `restore` may use methods that call `check_write`, which would refuse."""
    return _CURRENT.set(None)


def _waits(part: CommitParticipant) -> bool:
    return part.waits or (part.store is not None and part.store.waits)


def _lent(tool: str, what: str, inner: Transaction) -> TurnConflictError:
    return TurnConflictError(
        f"{tool} cannot {what} while a call that it made itself ({inner.tool}) is still running; await that call first"
    )
