"""How a transaction ends: all participants commit atomically, or all are restored, whatever fails meanwhile.

They commit in one unit of one store. `Transaction.enlist` refuses a participant that names a second one.

A commit is a coroutine that waits for two things: for its turn in the queues of its participants, and for the store. It
belongs to no event loop (`handrail.waiting`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import Any, Literal, NamedTuple, NoReturn

from handrail.errors import CommitInDoubtError, DeveloperMistake, RollbackError, StoreUnavailableError
from handrail.redaction import redacted_logger
from handrail.transaction.participants import CommitParticipant, Snapshotable
from handrail.transaction.unit_of_work import Refusal, UnitOfWork, UnitStore
from handrail.transaction.write_queue import WriteQueue
from handrail.waiting import Wait, run_in_thread_or_here

_log = redacted_logger("handrail.transaction")

ATTEMPTS = 3
"""How often a unit of work is tried when its store fails at once; one that was waited for is not tried again."""

Apply = Callable[[UnitStore, UnitOfWork], Awaitable[Refusal | None]]
"""How a unit of work is written, if not by the thread that asks for it."""


InThread = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a function in another thread; what awaits it continues when the function has ended, even if it is cancelled."""


async def apply_detached(store: UnitStore, unit: UnitOfWork) -> Refusal | None:
    """Have the store write a unit, and continue in the thread in which it answers."""
    return await Wait(store.submit(unit))


class CommitProgress:
    """How far a commit or rollback has come, for a caller that is interrupted.

    Attributes:
        may_be_kept: whether the store has been asked to commit, and has not answered that it did not.
        doubt: the failure after which it is not known whether the store has committed; `None` without one.
        unit: what is written; `None` until every participant has said it. Each attempt writes the same.
    """

    __slots__ = ("doubt", "may_be_kept", "unit")

    def __init__(self) -> None:
        """Begin."""
        self.may_be_kept: bool = False
        self.unit: UnitOfWork | None = None
        self.doubt: Exception | None = None

    def failed(self, error: Exception) -> None:
        """Note what an attempt has failed with."""
        # The first doubt remains: that a later attempt was not committed does not prove that the first one was not.
        if isinstance(error, StoreUnavailableError) and error.in_doubt:
            self.doubt = self.doubt or error
        self.may_be_kept = self.doubt is not None


class CommitOutcome(NamedTuple):
    """What a settling has come to, and what is to be raised then."""

    word: Literal["committed", "rolled back", "in doubt"]
    error: BaseException | None = None


async def commit_participants(
    parts: Sequence[CommitParticipant],
    settle: Callable[[CommitOutcome], None],
    *,
    apply: Apply | None = None,
    attempts: int = ATTEMPTS,
) -> CommitOutcome:
    """Commit the parts, in their turn, and determine the outcome if that is interrupted, as by Ctrl-C during a commit.

    Raises nothing: what `write_participants` raises is in the outcome, and what is not an `Exception` propagates even
    if all was kept.

    Args:
        parts: the participants.
        settle: is called with the outcome before the turn passes on.
        apply: how the unit is written; `None` for in this thread.
        attempts: how often to try; see `write_participants`.
    """
    who = object()
    queues = [queue for part in parts if (queue := part.queue) is not None]
    if len(queues) > 1:
        queues.sort(key=_number)
    try:
        outcome = await _in_turn(parts, queues, who, apply, attempts)
        settle(outcome)
        return outcome
    finally:
        for queue in queues:
            queue.leave(who)


def _number(queue: WriteQueue) -> int:
    return queue.number


async def _in_turn(
    parts: Sequence[CommitParticipant], queues: Sequence[WriteQueue], who: object, apply: Apply | None, attempts: int
) -> CommitOutcome:
    progress = CommitProgress()
    try:
        for queue in queues:
            turn = queue.enter(who)
            if turn is not None:
                if apply is None:
                    queue.check_wait()
                await Wait(turn)
        await write_participants(parts, apply=apply, attempts=attempts, progress=progress)
    except CommitInDoubtError as error:
        return CommitOutcome("in doubt", error)
    except BaseException as error:  # noqa: BLE001 - raised by the transaction, when it has done what follows from it
        # The interrupt came before the store was asked to commit, so its unit was rolled back.
        if not progress.may_be_kept:
            return CommitOutcome("rolled back", error)
        try:
            # What is kept is written once more, which changes nothing.
            await write_participants(parts, apply=apply, progress=progress)
        except BaseException:  # noqa: BLE001 - the interrupt propagates
            return CommitOutcome("in doubt", error)
        return CommitOutcome("committed", error)
    return CommitOutcome("committed")


async def write_participants(
    parts: Sequence[CommitParticipant],
    *,
    apply: Apply | None = None,
    attempts: int = ATTEMPTS,
    progress: CommitProgress | None = None,
) -> None:
    """Have every participant write, in one unit of the store that they name.

    Args:
        parts: the participants; those that name a store name the same one.
        apply: how the unit is written; `None` for in this thread.
        attempts: how often to try; where it is in doubt whether it is kept, it is tried `ATTEMPTS` times all the same.
        progress: of an earlier settling of the same parts that was interrupted; they are ready then, and what is
            kept already is written once more, which changes nothing.

    Raises:
        StoreUnavailableError: the store failed at every attempt, or was waited for in vain.
        Exception: a part could not write. In either case nothing is kept, and the parts wait for `after_rollback`.
        CommitInDoubtError: the outcome of the commit is unknown, and the parts wait for `in_doubt`.
    """
    store = store_of(parts)
    # Without a store there is no unit: nothing has to be prepared or returned, and another attempt would gain nothing.
    if store is None:
        for part in parts:
            part.write()
        return
    so_far = CommitProgress() if progress is None else progress
    # The parts of an interrupted attempt are prepared already.
    if so_far.unit is None:
        for part in parts:
            await prepare_in_turn(part, apply)
    for attempt in count(1):
        try:
            await _write_unit(store, parts, so_far, apply)
        except Exception as error:
            so_far.failed(error)
            # In doubt, only another attempt can determine the outcome, so a smaller limit of the caller does not count.
            most = attempts if so_far.doubt is None else ATTEMPTS
            if attempt >= most or not _may_try_again(error, in_doubt=so_far.doubt is not None):
                if so_far.doubt is not None:
                    raise _in_doubt(so_far.doubt) from error
                raise
            # A later attempt mostly fails at the same place.
            _log.warning("a unit of work is tried again: it could not be committed: %s", error, exc_info=attempt == 1)
        else:
            return


async def prepare_in_turn(part: CommitParticipant, apply: Apply | None) -> None:
    """Have a participant prepare, in its turn of its queue.

    It asks the store if the outcome of the unit before is not known, which takes a round trip. Where another thread
    writes the unit, this one may be that of an event loop, so it does not wait for the answer.

    Args:
        part: the participant.
        apply: how the unit is written; `None` for in this thread.

    Raises:
        Exception: what `prepare` raises.
    """
    queue = part.queue
    if apply is not None and queue is not None and queue.unsure:
        await Wait(run_in_thread_or_here(part.prepare))
    else:
        part.prepare()


def _may_try_again(error: Exception, *, in_doubt: bool) -> bool:
    """Whether another attempt may gain something: not if it would wait as long again for a store that is busy."""
    return isinstance(error, StoreUnavailableError) and (in_doubt or not error.waited)


def store_of(parts: Iterable[CommitParticipant]) -> UnitStore | None:
    """The store that participants name; `None` if none does."""
    for part in parts:
        if part.store is not None:
            return part.store
    return None


def _in_doubt(doubt: Exception) -> CommitInDoubtError:
    return CommitInDoubtError(
        f"the store was lost in the moment of a commit ({doubt}), so it is not known whether the call has been kept. "
        "Open session and files anew when the store answers: they are then as it says."
    )


def notify_participants(parts: Sequence[CommitParticipant], *, kept: bool) -> None:
    """Notify every part that it was committed, or that this is in doubt; each even if one before it raised.

    Raises:
        BaseException: what is not an `Exception` (Ctrl-C) propagates when all were notified.
    """
    interrupt: BaseException | None = None
    for part in parts:
        try:
            if kept:
                part.after_commit()
            else:
                part.in_doubt()
        except Exception:  # noqa: BLE001 - logged; what the store has done stays done
            _log.exception("%s failed to note its outcome", type(part).__name__)
        except BaseException as error:  # noqa: BLE001 - raised below, when all were notified
            interrupt = error
    if interrupt is not None:
        raise interrupt


async def _write_unit(
    store: UnitStore, parts: Sequence[CommitParticipant], progress: CommitProgress, apply: Apply | None
) -> None:
    if progress.unit is None:
        progress.unit = UnitOfWork(tuple(write for part in parts for write in part.write()))
    if not progress.unit.writes:
        return
    # An interrupt before this line leaves nothing written. One in `apply` may come before or after the commit.
    progress.may_be_kept = True
    refusal = store.apply(progress.unit) if apply is None else await apply(store, progress.unit)
    if refusal is not None:
        raise refusal.error()


def restoring_waits(participant: Snapshotable[Any]) -> bool:
    """Whether restoring a snapshot of a participant waits for a disk or a server, as it says by `restore_waits`."""
    return bool(getattr(participant, "restore_waits", False))


_UNDOING: ContextVar[bool] = ContextVar("handrail_undoing", default=False)


def is_rolling_back() -> bool:
    """Whether a rollback is what calls in this context: so `restore` knows it from one that the program asks for."""
    return _UNDOING.get()


Restore = Callable[[Snapshotable[Any], object], None]
"""Restores a participant to its snapshot."""


def restore_participants(
    tool: str,
    restore: Restore,
    saved: Iterable[tuple[Snapshotable[Any], object]],
    enlisted: Iterable[CommitParticipant],
) -> None:
    """Restore each participant and settle what is enlisted, each of them even if one before it raised.

    Args:
        tool: name of the tool whose call is undone, for messages.
        restore: restores one of them.
        saved: the participants in the order of restoring, each with its snapshot.
        enlisted: what to settle after that.

    Raises:
        RollbackError: some raised an `Exception`.
        BaseException: what is not an `Exception` (Ctrl-C) propagates when all have been tried, with a note of what it
            met.
    """
    failures: list[tuple[object, BaseException]] = []
    token = _UNDOING.set(True)
    try:
        for participant, snapshot in saved:
            _restore(failures, restore, participant, snapshot)
        _settle(failures, enlisted)
    finally:
        _UNDOING.reset(token)
    if failures:
        _raise(tool, failures)


async def restore_participants_by(
    in_thread: InThread,
    tool: str,
    restore: Restore,
    saved: Iterable[tuple[Snapshotable[Any], object]],
    enlisted: Iterable[CommitParticipant],
) -> None:
    """As `restore_participants`, without holding the event loop.

    Args:
        in_thread: how to settle, and to restore what waits for a disk or a server. All else is restored in this thread,
            because resources may belong to it.
        tool: as of `restore_participants`, with all that follow.
        restore: restores one of them.
        saved: the participants with their snapshots.
        enlisted: what to settle after that.

    Raises:
        CancelledError: the task was cancelled; raised when all have been tried.
        RollbackError: some raised an `Exception`.
        BaseException: what is not an `Exception` (Ctrl-C) propagates when all have been tried, with a note of what it
            met.
    """
    failures: list[tuple[object, BaseException]] = []
    cancelled: BaseException | None = None

    can_await = True

    async def carry_out(act: Callable[[], None]) -> None:
        nonlocal cancelled, can_await
        if not can_await:
            act()
            return
        try:
            await in_thread(act)
        except BaseException as error:  # noqa: BLE001 - the task was cancelled; raised when all have been tried
            cancelled = cancelled or error
            can_await = not isinstance(error, GeneratorExit)  # its loop was closed

    token = _UNDOING.set(True)
    try:
        for participant, snapshot in saved:
            undo = partial(_restore, failures, restore, participant, snapshot)
            if restoring_waits(participant):
                await carry_out(undo)
            else:
                undo()
        await carry_out(partial(_settle, failures, tuple(enlisted)))
    finally:
        _UNDOING.reset(token)
    if cancelled is not None:
        raise cancelled from (RollbackError(tool, _errors(failures)) if failures else None)
    if failures:
        _raise(tool, failures)


def _restore(
    failures: list[tuple[object, BaseException]], restore: Restore, participant: Snapshotable[Any], snapshot: object
) -> None:
    """Restore one; what it raises must not keep the others from being restored and settled."""
    try:
        restore(participant, snapshot)
    except BaseException as error:  # noqa: BLE001 - raised when all have been tried
        failures.append((participant, error))


def _settle(failures: list[tuple[object, BaseException]], enlisted: Iterable[CommitParticipant]) -> None:
    for part in enlisted:
        try:
            part.after_rollback()
        except BaseException as error:  # noqa: BLE001 - as above
            failures.append((part, error))


def _raise(tool: str, failures: Sequence[tuple[object, BaseException]]) -> NoReturn:
    errors = _errors(failures)
    interrupts = [(who, error) for who, error in failures if not isinstance(error, Exception)]
    # An interrupt takes precedence, because Ctrl-C must end the program; the errors are reported as its cause.
    if interrupts:
        interrupt = interrupts[0][1]
        names = ", ".join(type(who).__name__ for who, _ in interrupts)
        interrupt.add_note(f"it interrupted the restoring of {names}: the call of {tool} may not be undone in full")
        raise interrupt from (RollbackError(tool, errors) if errors else None)
    # A participant that says what the program did wrong has been settled as far as it can be.
    if all(isinstance(error, DeveloperMistake) for _, error in errors):
        raise errors[0][1]
    raise RollbackError(tool, errors) from errors[0][1]


def _errors(failures: Sequence[tuple[object, BaseException]]) -> list[tuple[object, Exception]]:
    return [(who, error) for who, error in failures if isinstance(error, Exception)]
