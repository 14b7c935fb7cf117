"""How a transaction ends: all participants commit atomically, or all are restored, whatever fails meanwhile.

They commit in one unit of one store. `Transaction.enlist` refuses a participant that names a second one.

Both ends are coroutines. A commit waits for two things, its turn in the queues of its participants and the store, and
belongs to no event loop (`handrail.waiting`). A rollback waits only where its caller says how.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from handrail.errors import CommitInDoubtError, DeveloperMistake, RollbackError, StoreUnavailableError
from handrail.redaction import redacted_logger
from handrail.transaction.unit_of_work import Refusal, UnitOfWork, UnitStore, WriteQueue
from handrail.waiting import Wait, run_in_thread_or_here

S = TypeVar("S")

_log = redacted_logger("handrail.transaction")

ATTEMPTS = 3
"""How often a unit of work is tried when its store fails at once; one that was waited for is not tried again."""

Apply = Callable[[UnitStore, UnitOfWork], Awaitable[Refusal | None]]
"""How a unit of work is written, if not by the thread that asks for it."""

InThread = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a function in another thread; what awaits it continues when the function has ended, even if it is cancelled."""

CommitOutcome: TypeAlias = Literal["committed", "rolled back", "in doubt"]
"""What a commit has come to."""

Undoing: TypeAlias = tuple[object, Callable[[], object], bool]
"""A participant, what undoes its part of a call, and whether that waits for a disk or a server."""

_Failures = list[tuple[object, BaseException]]
"""What has been raised, and the participants whose it is."""


@runtime_checkable
class Snapshotable(Protocol[S]):
    """A participant of transactions: something whose state can be restored.

    Implement it on a resource, and each call that may change the resource is undone when it fails. What is fenced
    depends on what else the class has:

    | the class | a write of a `"read"` tool | after the call, in its context | after it, elsewhere |
    |---|---|---|---|
    | has a `turn`, calls `check_write`, has `view_for_call` | is refused | is refused | is refused |
    | has a `turn`, calls `check_write` before each change | is refused | is refused | **is made** |
    | has neither | **is made, and not undone** | **is made** | **is made** |

    The context of a call is that of its handler, of its tasks, and of threads that copy it (`asyncio.to_thread`,
    `contextvars.copy_context().run`); not of a `threading.Thread`, nor of a thread of a pool. Sessions and the
    filesystems are of the first kind.
    """

    def snapshot(self) -> S:
        """Returns what `restore` needs to come back to this moment.

        Called when a call joins, before its first write, while no other call may write. It should be cheap, and must
        not change what others can see. If it raises, the call fails and nothing has been written. The snapshot is
        released as soon as the call has ended.
        """
        ...

    def restore(self, snapshot: S, /) -> None:
        """Restores the state of `snapshot`, to the byte and to the value.

        Called when a call fails, with the newest snapshots first, while no other call may write; a handler that timed
        out may still be running, so it takes the lock that writes take. No transaction is current meanwhile, and
        `is_rolling_back()` is true. If it raises, the other participants are restored all the same and the run ends
        with `RollbackError`.
        """
        ...


class TwoPhaseParticipant(Protocol):
    """A participant in the commit of a call: see `handrail.transaction.enlist`.

    The commit has three phases. Each participant prepares; then each of them says what is to be written; then the store
    that they name writes all of it as one unit of work. In the end `after_commit`, `after_rollback` or `in_doubt` is
    called, once.
    """

    @property
    def store(self) -> UnitStore | None:
        """The store that writes the unit, the same for all participants; `None` for what needs no unit."""
        ...

    def prepare(self) -> None:
        """Makes sure that `after_commit` will succeed, as `PREPARE TRANSACTION` does, or refuses.

        Called once, when the handler and all that follows from its result have succeeded, and before anything is
        written. If it raises, all is rolled back.
        """
        ...

    def write(self) -> Sequence[object]:
        """Writes what needs no unit, and returns what the unit is to write: see `UnitOfWork.writes`.

        Called as the outermost transaction commits; if it raises, all is rolled back, and if it raises
        `StoreUnavailableError`, it may be called again before.
        """
        ...

    def after_commit(self) -> None:
        """Called when it has been committed. Must not fail: an exception is logged."""
        ...

    def in_doubt(self) -> None:
        """Called when it is not known if it was committed: a store was lost in the moment of its commit. Must not fail.

        Nothing is restored, and the run ends. What the participant stands for must not be used before it has been
        opened anew, when the store can be asked.
        """
        ...

    def after_rollback(self) -> None:
        """Called when its transaction, or an outer one, was rolled back; that may be after `write`."""
        ...


class CommitParticipant(TwoPhaseParticipant, Protocol):
    """A participant that Handrail enlists itself, as the record of an effect is. See `Transaction.enlist`."""

    @property
    def queue(self) -> WriteQueue | None:
        """The queue whose turn the commit has from before `prepare` until it has ended; `None` for none."""
        ...

    @property
    def waits(self) -> bool:
        """True if a method may wait for a disk or a server: a call of an event loop is committed in a thread then."""
        ...


async def apply_detached(store: UnitStore, unit: UnitOfWork) -> Refusal | None:
    """Has the store write a unit, and continues in the thread in which it answers."""
    return await Wait(store.submit(unit))


async def commit_participants(
    parts: Sequence[CommitParticipant],
    *,
    settle: Callable[[CommitOutcome], object] | None = None,
    apply: Apply | None = None,
    attempts: int = ATTEMPTS,
) -> None:
    """Commits the parts, in their turn, and determines the outcome if that is interrupted, as by Ctrl-C.

    Then the parts are notified, unless they are rolled back.

    | the outcome | is raised |
    |---|---|
    | rolled back | `StoreUnavailableError` if the store failed at every attempt, or was waited for in vain |
    | rolled back | the `Exception` of a part that could not prepare or write, or of a refusal; an interrupt |
    | in doubt | `CommitInDoubtError`, or the interrupt after which it could not be determined |
    | committed | nothing, or the interrupt that came after the store was asked, or while the parts are notified |
    """
    who, writing = object(), _Writing(parts, apply)
    # In one order everywhere, so that no two commits wait for each other.
    queues = sorted((part.queue for part in parts if part.queue is not None), key=id)
    try:
        outcome: CommitOutcome = "committed"
        failure: BaseException | None = None
        try:
            for queue in queues:
                turn = queue.enter(who)
                if turn is not None:
                    if apply is None:
                        queue.check_wait()
                    await Wait(turn)
            for part in parts:
                await prepare_in_turn(part, apply)
            await writing.run(attempts)
        except BaseException as error:  # noqa: BLE001 - raised when what follows from it has been done
            failure = error
            outcome = await writing.outcome_after(error)
        if outcome != "rolled back":
            if settle is not None:
                settle(outcome)
            notify_participants(parts, is_committed=outcome == "committed")
        if failure is not None:
            raise failure
    finally:
        for queue in queues:
            queue.leave(who)


class _Writing:
    """The unit of some participants while it is being written; each attempt writes the same."""

    def __init__(self, parts: Sequence[CommitParticipant], apply: Apply | None) -> None:
        self._apply = apply
        self._may_be_kept = False  # the store has been asked to commit, and has not answered that it did not
        self._parts = parts
        self._store = next((part.store for part in parts if part.store is not None), None)
        self._unit: UnitOfWork | None = None
        self._doubt: StoreUnavailableError | None = None

    async def run(self, attempts: int) -> None:
        for attempt in count(1):
            try:
                if self._unit is None:
                    self._unit = UnitOfWork(tuple(write for part in self._parts for write in part.write()))
                store = self._store
                if store is None or not self._unit.writes:
                    return
                # An interrupt before this line leaves nothing written. One in `apply` may come before or after the
                # commit.
                self._may_be_kept = True
                refusal = store.apply(self._unit) if self._apply is None else await self._apply(store, self._unit)
                if refusal is None:
                    return
                raise refusal.error()  # noqa: TRY301 - decided below, as what the store raises
            except Exception as error:
                if not self._may_try_again(error, attempt, attempts):
                    if self._doubt is None:
                        raise
                    raise CommitInDoubtError(
                        f"the store was lost in the moment of a commit ({self._doubt}), so it is not known whether the "
                        "call has been kept. Open session and files anew when the store answers: they are then as it "
                        "says."
                    ) from error
                # A later attempt mostly fails at the same place.
                text = "a unit of work is tried again: it could not be committed: %s"
                _log.warning(text, error, exc_info=attempt == 1)

    async def outcome_after(self, error: BaseException) -> CommitOutcome:
        # An interrupt that came before the store was asked to commit has its unit rolled back.
        if not self._may_be_kept:
            return "rolled back"
        if not isinstance(error, Exception):
            with suppress(BaseException):  # the interrupt propagates
                # What is kept is written once more, which changes nothing.
                await self.run(ATTEMPTS)
                return "committed"
        return "in doubt"

    def _may_try_again(self, error: Exception, attempt: int, attempts: int) -> bool:
        # Not if it would wait as long again for a store that is busy.
        outage = error if isinstance(error, StoreUnavailableError) and self._store is not None else None
        # The first doubt remains: that a later attempt was not committed does not prove that the first one was not.
        if outage is not None and outage.in_doubt:
            self._doubt = self._doubt or outage
        self._may_be_kept = self._doubt is not None
        # In doubt, only another attempt can determine the outcome, so a smaller limit of the caller does not count.
        return outage is not None and attempt < (ATTEMPTS if self._doubt else 1 if outage.waited else attempts)


async def prepare_in_turn(part: CommitParticipant, apply: Apply | None) -> None:
    """Has a participant prepare, in its turn of its queue; without holding an event loop if it asks the store."""
    if apply is not None and part.queue is not None and part.queue.unsure:
        await Wait(run_in_thread_or_here(part.prepare))
    else:
        part.prepare()


def _attempt(who: object, act: Callable[[], object], failures: _Failures) -> None:
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - logged or raised when all have been tried
        failures.append((who, error))


def notify_participants(parts: Sequence[CommitParticipant], *, is_committed: bool) -> None:
    """Notifies every part that it was committed, or that this is in doubt; an interrupt is raised when all were."""
    failures: _Failures = []
    for part in parts:
        _attempt(part, part.after_commit if is_committed else part.in_doubt, failures)
    # An interrupt comes last, and ends this.
    for who, error in sorted(failures, key=lambda failure: not isinstance(failure[1], Exception)):
        if not isinstance(error, Exception):
            raise error
        word, name = "committed" if is_committed else "in doubt", type(getattr(who, "wraps", who)).__name__
        _log.error("a call is %s, and its %s failed to note that", word, name, exc_info=error)


UNDOING: ContextVar[bool] = ContextVar("handrail_undoing", default=False)
"""Whether a rollback restores participants in this context."""


def is_rolling_back() -> bool:
    """True while a rollback restores participants in this context, so that `restore` knows who calls it."""
    return UNDOING.get()


def settling_waits(part: CommitParticipant) -> bool:
    """True if to settle a participant waits for a disk or a server."""
    return part.waits or (part.store is not None and part.store.waits)


async def restore_participants(tool: str, steps: Iterable[Undoing], in_thread: InThread | None) -> None:
    """Restores participants and settles what is enlisted, each of them even if one before it raised.

    Raises:
        RollbackError: some raised an `Exception`.
        CancelledError: the task was cancelled; raised when all have been tried.
        BaseException: Ctrl-C and the like, raised when all have been tried, with a note of what it met.
    """
    failures: _Failures = []
    cancelled: BaseException | None = None
    for who, act, waits in steps:
        if in_thread is None or not waits:
            _attempt(who, act, failures)
            continue
        try:
            await in_thread(partial(_attempt, who, act, failures))
        except BaseException as error:  # noqa: BLE001 - the task was cancelled; raised when all have been tried
            cancelled = cancelled or error
            if isinstance(error, GeneratorExit):  # its loop was closed, so nothing can be awaited any more
                in_thread = None
    _raise(tool, failures, cancelled)


def _raise(tool: str, failures: _Failures, cancelled: BaseException | None) -> None:
    errors = [(who, error) for who, error in failures if isinstance(error, Exception)]
    interrupts = [pair for pair in failures if not isinstance(pair[1], Exception)]
    failure = RollbackError(tool, errors) if errors else None
    if interrupts:
        cancelled, names = interrupts[0][1], ", ".join(type(who).__name__ for who, _ in interrupts)
        cancelled.add_note(f"it interrupted the restoring of {names}: the call of {tool} may not be undone in full")
    # An interrupt takes precedence, because Ctrl-C must end the program; the errors are reported as its cause.
    if cancelled is not None:
        raise cancelled from failure
    if failure is not None:
        # A participant that says what the program did wrong has been settled as far as it can be.
        if all(isinstance(error, DeveloperMistake) for _, error in errors):
            raise errors[0][1]
        raise failure from errors[0][1]
