"""One call's unit of work, and what each participant asks of it: may I write? The theory: `handrail.transaction`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar, cast

from handrail.crash_points import reached
from handrail.errors import (
    InvalidArgumentError,
    ReadOnlyViolation,
    SecondStoreError,
    SessionUseError,
    TransactionClosedError,
    TurnConflictError,
)
from handrail.threads import ASSIGNING
from handrail.transaction.commit import (
    UNDOING,
    CommitParticipant,
    InThread,
    Snapshotable,
    TwoPhaseParticipant,
    Undoing,
    apply_detached,
    commit_participants,
    restore_participants,
    settling_waits,
)
from handrail.transaction.unit_of_work import UnitStore
from handrail.turns import Ticket, Turn, find_turn, own_turn
from handrail.waiting import run_blocking, run_detached, run_in_thread_or_here

T = TypeVar("T")


class NestedCall(NamedTuple):
    """The effects of a call that is made inside another one.

    Attributes:
        notes: returns sentences about its effects, and those of the calls nested in it.
        leave_unread: leaves these effects to the calls that equal theirs; returns `False` if there are none.
    """

    notes: Callable[[], Sequence[str]]
    leave_unread: Callable[[], bool]


NestedCalls: TypeAlias = dict[Ticket | str, NestedCall]
"""The calls that are made inside another one, by their tickets; one that was refused, by the effect that it repeats."""

_CURRENT: ContextVar[Transaction | None] = ContextVar("handrail_transaction", default=None)

current: Callable[[], Transaction | None] = _CURRENT.get
"""The transaction of the call that runs in this context, open or not; `None` outside of calls."""

return_to: Callable[[Transaction | None], object] = _CURRENT.set
"""Makes a transaction the current one again, after an interrupt may have kept one inside it from doing so."""


def acting_in(call: Transaction) -> Transaction:
    """The transaction that a view of a call acts in: that of a nested call which runs here, or the call's own."""
    running = _CURRENT.get()
    return running if running is not None and call in running.chain() else call


@contextmanager
def in_call(call: Transaction) -> Generator[None]:
    """A block in which a call, or one that is nested in it and runs here, is the current one, even if it has ended."""
    token = _CURRENT.set(acting_in(call))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def check_write(participant: Snapshotable[Any], what: str, *, call: Transaction | None = None) -> None:
    """Allows a participant to write; called by participants under their own lock, before each change.

    Outside of calls everything may be written. Inside one, the participant joins its transaction with the first write.

    Raises:
        TransactionClosedError: the call has ended; a late handler is writing.
        ReadOnlyViolation: the call may only read.
        TurnConflictError: another call holds the turn of the participant; or a call made inside this one still runs.
    """
    transaction = _CURRENT.get() if call is None else acting_in(call)
    if transaction is not None:
        transaction.check_may_write(participant, what)


@dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class Transaction:
    """One call's unit of work: open, then committed or rolled back. It is current from `with` on.

    Calls that are made inside it take turns on it among themselves (`find_turn`).

    Attributes:
        tool: name of the tool whose call this is, for messages.
        ticket: the turns that the call holds.
        writes: the handler may write.
        parent: the transaction that this one is a savepoint of.
        concurrent: the handler runs beside others, or has called an agent in a stored session, so that calls on other
            sessions made inside it stand on their own.
        untracked: the participants that do not report when they are written to; they join when it is entered, if it
            writes.
        enlisted: what is settled together with this transaction, also if it cannot be entered.
        call: the identity of the call; `str` names it among the calls of its session.
        session_store: the store of the session of the call; `None` for a session that ends with the process.
        cure: what to do instead of a write, if the handler may only read; empty for what a tool can do.
        nested_calls: the calls made inside this one, which `handrail.runtime` records.
        state: `"open"`, then `"closed"` (takes no writes, still committing or rolling back), then `"ended"`.
        must_roll_back: leaving the block rolls back: until a commit has succeeded or is in doubt.
        committed: it has ended by being committed.
        writer: the only participant that may be written to although `writes` is false; see `open_for_results`.
        participants: who has joined so far, in the order of joining.
        snapshots: these with their snapshots, by identity, until it has ended.
        inner: the nested transaction that writes in its place, until it has ended.
        undo_lock: of an outermost one in which a call has written: what it and those nested in it restore under.
    """

    tool: str
    _: KW_ONLY
    ticket: Ticket
    writes: bool
    parent: Transaction | None = None
    concurrent: bool = False
    untracked: tuple[Snapshotable[Any], ...] = ()
    enlisted: tuple[CommitParticipant, ...] = ()
    call: object = None
    session_store: UnitStore | None = None
    cure: str = ""
    nested_calls: NestedCalls = field(default_factory=dict[Any, NestedCall])
    state: Literal["open", "closed", "ended"] = field(default="open", init=False)
    must_roll_back: bool = field(default=True, init=False)
    committed: bool = field(default=False, init=False)
    writer: Snapshotable[Any] | None = field(default=None, init=False)
    participants: tuple[Snapshotable[Any], ...] = field(default=(), init=False)
    inner: Transaction | None = field(default=None, init=False)
    undo_lock: threading.Lock | None = field(default=None, init=False)
    snapshots: dict[int, tuple[Snapshotable[Any], object]] = field(default_factory=dict, init=False)  # pyright: ignore[reportUnknownVariableType] - of the factory
    _token: Token[Transaction | None] = field(init=False)

    def __enter__(self) -> Self:
        # If it raises, the transaction has not begun: the outer call has ended, or a participant cannot join.
        self._token = _CURRENT.set(self)
        if self.parent is not None or self.untracked:
            try:
                self._begin()
            except BaseException:
                # Python does not call it if this method raises: what has joined is restored here, the claim settled.
                self.__exit__()
                raise
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            if self.must_roll_back:
                self.rollback()
        finally:
            # Also if the rollback has raised: otherwise the parent could neither write nor commit.
            if self.parent is not None and self.parent.inner is self:
                self.parent.inner = None
            _CURRENT.reset(self._token)

    @property
    def root(self) -> Transaction:
        """The outermost transaction that this one is nested in; itself when it is not nested."""
        return self if self.parent is None else self.parent.root

    def chain(self) -> tuple[Transaction, ...]:
        """This transaction and those it is nested in, the nearest first."""
        return (self,) if self.parent is None else (self, *self.parent.chain())

    def is_open(self) -> bool:
        """True while it takes writes: neither it nor one that it is nested in has been closed."""
        return self.state == "open" and (self.parent is None or self.parent.is_open())

    def holds(self, turn: Turn) -> bool:
        """True if this call, or one that it is made inside, holds the turn."""
        return any(turn in transaction.ticket.turns for transaction in self.chain())

    def suspend_for(self, inner: Transaction) -> None:
        """Writes no more until a nested transaction has ended; raises `TurnConflictError` while another one has not."""
        self._check_not_suspended(f"call {inner.tool}")
        with ASSIGNING:
            self.root.undo_lock = self.root.undo_lock or threading.Lock()
        self.inner = inner

    def open_for_results(self, session: Snapshotable[Any]) -> None:
        """Allows the results of a call to be applied to its session, though its handler may only read."""
        if not self.writes:
            if self.parent is not None:
                self.parent.suspend_for(self)
            self.writer = session

    def enlist(self, part: CommitParticipant) -> None:
        """Settles something together with this transaction, or with the one that it is nested in.

        Raises:
            SecondStoreError: it names another store than those that are enlisted. It is not enlisted.
            TransactionClosedError: it is ending, so that the part may have come too late.
        """
        for store in (other.store for transaction in self.chain() for other in transaction.enlisted):
            if part.store is not None and store is not None and store is not part.store:
                raise SecondStoreError(store=store, second=part.store)
        # Added before the state is read: a commit closes the transaction before it reads the parts, so either it finds
        # this part or the check below finds the transaction closed.
        with ASSIGNING:  # another thread of the handler may enlist something else
            self.enlisted = (*self.enlisted, part)
        if self.state != "open":
            raise TransactionClosedError(self.tool, "enlist")

    def check_files(self, part: CommitParticipant) -> None:
        """Raises `SecondStoreError` if files on disk cannot be committed with the session of this call."""
        if self.session_store is not None and part.store is not self.session_store:
            raise SecondStoreError(store=self.session_store, second=part.store)

    def check_may_write(
        self, participant: Snapshotable[Any], what: str, *, snapshot: Callable[[], object] | None = None
    ) -> None:
        """Allows a participant to write in this transaction; see `check_write`. `snapshot` replaces its own method."""
        # This is `not self.is_open()`, written out: it runs before each write, and most calls are not nested.
        if self.state != "open" or (self.parent is not None and not self.parent.is_open()):
            raise TransactionClosedError(self.tool, what)
        if not self.writes and participant is not self.writer:
            raise self.read_only_violation(what)
        self._check_not_suspended(what)
        if id(participant) not in self.snapshots:
            self._enroll(participant, what, snapshot)

    def read_only_violation(self, what: str) -> ReadOnlyViolation:
        """The error for a write of a handler that may only read; `what` completes "it cannot ..."."""
        return ReadOnlyViolation(self.tool, what, concurrent=self.concurrent, cure=self.cure)

    def join(self, participant: Snapshotable[Any]) -> None:
        """Enrolls a participant: from here on, its changes are undone if this transaction is not committed.

        Raises:
            TransactionClosedError: this transaction has ended. Nothing has been written.
            TurnConflictError: another call holds its turn. It has not joined.
        """
        if id(participant) not in self.snapshots:
            self._enroll(participant, f"use a {type(participant).__name__}", None)

    def commit(self) -> None:
        """Commits everything that was written; a nested transaction's changes become part of the outer one.

        Raises:
            TransactionClosedError: it has already ended, or one that it is nested in has.
            TurnConflictError: a call made inside this one is still running. Leaving the block rolls both back.
            CommitInDoubtError: it is unknown if it was committed; nothing is restored.
        """
        parts = self._close()
        if parts:
            run_blocking(commit_participants(parts, settle=self._end))

    def commit_detached(self) -> Future[None]:
        """As `commit`, in other threads: in those of the store, where nothing else is waited for.

        It is not stopped by the end of the caller, who leaves the block only when it is completed.
        """
        parts = self._close()
        if any(part.waits for part in parts):
            return run_in_thread_or_here(partial(run_blocking, commit_participants(parts, settle=self._end)))
        return run_detached(commit_participants(parts, settle=self._end, apply=apply_detached))

    @property
    def waits(self) -> bool:
        """True if `commit` waits for a disk or a server, so that it would hold the event loop of its thread."""
        return self.parent is None and any(map(settling_waits, self.enlisted))

    def rollback(self) -> None:
        """Takes no more writes, and restores every participant, the last one to join first. Idempotent.

        Raises:
            RollbackError: some participants could not be restored; every one was tried.
            BaseException: Ctrl-C and the like, raised while a participant was being restored; a note names it.
        """
        run_blocking(self.rollback_by(None))

    async def rollback_by(self, in_thread: InThread | None) -> None:
        """As `rollback`; settles and restores by `in_thread` what waits for a disk or a server."""
        if not self.must_roll_back:
            return
        self.must_roll_back = False
        # Closed before anything is restored: a late write either comes first and is undone, or is refused.
        self.state = "closed"
        # No transaction is current: `restore` may use methods that call `check_write`, which would refuse.
        tokens = _CURRENT.set(None), UNDOING.set(True)
        try:
            # The last one to join first; a late write may still join meanwhile.
            steps: list[Undoing] = [
                (who, partial(self._restore, who, snapshot), getattr(who, "restore_waits", False))
                for who, snapshot in reversed(tuple(self.snapshots.values()))
            ]
            steps += [(part, part.after_rollback, settling_waits(part)) for part in reversed(self.enlisted)]
            await restore_participants(self.tool, steps, in_thread)
        finally:
            UNDOING.reset(tokens[1])
            _CURRENT.reset(tokens[0])
            self.state = "ended"
            self.snapshots.clear()

    def _begin(self) -> None:
        untracked, parent = self.untracked, self.parent
        if parent is not None:
            if not parent.is_open():
                raise TransactionClosedError(parent.tool, f"call {self.tool}")
            if self.writes:
                parent.suspend_for(self)
            untracked += tuple(participant for participant in parent.participants if own_turn(participant) is None)
        if self.writes:
            for participant in untracked:
                self.join(participant)

    def _enroll(self, participant: Snapshotable[Any], what: str, snapshot: Callable[[], object] | None) -> None:
        if getattr(participant, "turn", None) not in self.ticket.turns:  # what `holds` would come to, at less cost
            turn = find_turn(participant)
            if not self.holds(turn) and not self.root.ticket.extend(turn):
                raise TurnConflictError(
                    f"{self.tool} cannot {what}: another call is using that {type(participant).__name__}. Bind it as a "
                    "resource of the prompt, so that calls which need it take their turn."
                )
        entry = (participant, participant.snapshot() if snapshot is None else snapshot())
        for transaction in self.chain():
            if id(participant) not in transaction.snapshots:  # or else its snapshot is older
                transaction.participants = (*transaction.participants, participant)
                transaction.snapshots[id(participant)] = entry
        # Checked once more after the registration: a rollback that began meanwhile may have passed this participant by,
        # so the write must not follow.
        if not self.is_open():
            raise TransactionClosedError(self.tool, what)

    def _check_not_suspended(self, what: str) -> None:
        if self.inner is not None:
            raise TurnConflictError(
                f"{self.tool} cannot {what} while a call that it made itself ({self.inner.tool}) is still running; "
                "await that call first"
            )

    def _close(self) -> tuple[CommitParticipant, ...]:
        # A nested transaction has ended then, and leaves it to the outer one.
        if not self.is_open():
            raise TransactionClosedError(self.tool, "commit")
        self._check_not_suspended("end")
        if self.parent is None:
            self.state = "closed"  # what is written or enlisted from here on would not be among what is settled
            if self.enlisted:
                return self.enlisted
        else:
            for part in self.enlisted:
                self.parent.enlist(part)
        self._end("committed")
        return ()

    def _end(self, outcome: str) -> None:
        self.must_roll_back = False
        self.enlisted = ()
        self.snapshots.clear()
        # Set before `state`: a session whose writer has ended takes the slices from before it, unless it is committed.
        self.committed = outcome == "committed"
        self.state = "ended"

    def _restore(self, participant: Snapshotable[Any], snapshot: object) -> None:
        # Nested calls may end in several threads at once, and restore the same participants. So one is restored at a
        # time; the lock is held for no more, because a task that waited for a thread meanwhile would let others run.
        with self.root.undo_lock or nullcontext():
            # A newer snapshot, restored after the older one, would bring undone changes back.
            if self.parent is None or self.parent.is_open():
                participant.restore(snapshot)


def view_for_call(participant: T, call: Transaction) -> T:
    """A participant for the handler of a call: what its method `view_for_call(call)` returns, or itself without one.

    That is another object of the same class, which shares the state. Whatever thread or context it is used in, a change
    through it calls `check_write(participant, ..., call=call)`. Called once for each call that asks for the resource.
    """
    make = getattr(type(participant), "view_for_call", None)
    # What it returns is of the same class, which an attribute that is looked up by name cannot say.
    return participant if make is None else cast("T", make(participant, call))


_METHODS = ("prepare", "write", "after_commit", "in_doubt", "after_rollback")


def enlist(participant: TwoPhaseParticipant) -> None:
    """Commits a participant with the call that runs here, or rolls it back with it.

    The store decides. Each participant prepares, so that it can still commit and still roll back, even after a crash.
    Then the unit of the call is committed in the store. After that each participant commits. What a crash leaves:

    | the process is killed | the unit | a participant that has prepared | one that cannot prepare |
    |---|---|---|---|
    | before `prepare` has ended | is not written | is rolled back by its own side | is rolled back by its own side |
    | after it, before the unit is committed | is not written | stays prepared; recovery rolls it back | as above |
    | after that, before `after_commit` has ended | is committed | stays prepared; recovery commits it | **is lost** |

    Recovery needs to know if the unit was committed: `write` returns a `RecordCommit`. A nested call commits with its
    parent. If this raises, the participant is not enlisted, and nothing of it is called.

    Raises:
        InvalidArgumentError: a method of the protocol is missing; or the participant is enlisted already, in this call
            or in one that it is nested in.
        SessionUseError: no call runs here.
        ReadOnlyViolation: the call may only read.
        SecondStoreError: the participant names another store than that of the call.
        TransactionClosedError: the call has ended.
    """
    refuse = partial(InvalidArgumentError, function="transaction.enlist", argument="participant", value=participant)
    if isinstance(participant, type) or not all(callable(getattr(participant, name, None)) for name in _METHODS):
        raise refuse(expected=f"an object with the methods {', '.join(_METHODS)}, and the attribute store")
    transaction = current()
    if transaction is None:
        raise SessionUseError("no call runs here, so nothing is committed; use transaction.enlist inside a handler")
    if not transaction.writes:
        raise transaction.read_only_violation(f"enlist a {type(participant).__name__}")
    parts = (part for outer in transaction.chain() for part in outer.enlisted)
    if any(isinstance(part, Enlisted) and part.wraps is participant for part in parts):
        raise refuse(expected="a participant that is not enlisted yet: each is committed once, or rolled back once")
    transaction.enlist(Enlisted(participant))


class Enlisted:
    """A participant that a handler has enlisted; `wraps` is the participant itself."""

    queue = None
    waits = True

    def __init__(self, participant: TwoPhaseParticipant) -> None:
        self.wraps: TwoPhaseParticipant = participant
        self.store: UnitStore | None = participant.store
        self.write: Callable[[], Sequence[object]] = participant.write
        self.in_doubt: Callable[[], None] = participant.in_doubt
        self.after_rollback: Callable[[], None] = participant.after_rollback

    def prepare(self) -> None:
        """Prepares the participant."""
        self.wraps.prepare()
        reached("participant-prepared")

    def after_commit(self) -> None:
        """Commits the participant."""
        reached("participant-before-commit")
        self.wraps.after_commit()
        reached("participant-after-commit")
