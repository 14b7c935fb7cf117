"""What takes part in a transaction: what it can restore, and what commits with it in two phases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

from handrail.transaction.unit_of_work import UnitStore
from handrail.transaction.write_queue import WriteQueue

S = TypeVar("S")


@runtime_checkable
class Snapshotable(Protocol[S]):
    """A participant of transactions: something whose state can be restored.

    Implement it on a resource, and each call that may change the resource is undone when it fails.

    What is fenced depends on what else the class has:

    | the class | a write of a `"read"` tool | after the call, in its context | after it, elsewhere |
    |---|---|---|---|
    | has a `turn`, calls `check_write`, has `view_for_call` | is refused | is refused | is refused |
    | has a `turn`, calls `check_write` before each change | is refused | is refused | **is made** |
    | has neither | **is made, and not undone** | **is made** | **is made** |

    The context of a call is that of its handler, of its tasks, and of threads that copy it (`asyncio.to_thread`,
    `contextvars.copy_context().run`); not of a `threading.Thread`, nor of a thread of a pool. Sessions and the
    filesystems are of the first kind. `handrail.testing.assert_reads_only` finds a `"read"` tool that changes one of
    the last kind.
    """

    def snapshot(self) -> S:
        """Return what `restore` needs to come back to this moment.

        Called when a call joins, before its first write, while no other call may write. It should be cheap, and must
        not change what others can see. If it raises, the call fails and nothing has been written. What it returned is
        released as soon as the call has ended.
        """
        ...

    def restore(self, snapshot: S, /) -> None:
        """Come back to the moment of `snapshot`, to the byte and to the value.

        Called when a call fails, with the newest snapshots first, while no other call may write; the handler may still
        be running if it was a thread that timed out, so it takes the lock that writes take. No transaction is current
        meanwhile, and `is_rolling_back()` is true. If it raises, the other participants are restored all the same and
        the run ends with `RollbackError`, because the state of the participant is unknown.
        """
        ...


class TwoPhaseParticipant(Protocol):
    """A participant in the commit of a call: see `handrail.transaction.enlist`.

    The commit has three phases. Each participant prepares; then each of them says what is to be written; then the store
    that the participants name writes all of it as one unit of work. In the end `after_commit`, `after_rollback` or
    `in_doubt` is called, once.
    """

    @property
    def store(self) -> UnitStore | None:
        """Where the unit is written; `None` for what needs no unit. All participants of a call name the same store."""
        ...

    def prepare(self) -> None:
        """Make sure that `after_commit` will succeed, as `PREPARE TRANSACTION` does, or refuse.

        Called once, when the handler and all that follows from its result have succeeded, and before anything is
        written. If it raises, all is rolled back.
        """
        ...

    def write(self) -> Sequence[object]:
        """Write what needs no unit, and return what the unit is to write: see `UnitOfWork.writes`.

        Called as the outermost transaction commits; if it raises, all is rolled back, and if it raises
        `StoreUnavailableError`, it may be called again before.
        """
        ...

    def after_commit(self) -> None:
        """Take note that it has been committed. Must not fail: what it raises is logged."""
        ...

    def in_doubt(self) -> None:
        """Take note that it is not known whether it was committed: a store was lost in the moment of its commit.

        Nothing is restored, and the run ends. What the participant stands for must not be used before it has been
        opened anew, when the store can be asked. Must not fail.
        """
        ...

    def after_rollback(self) -> None:
        """Settle that nothing has happened. Called when the transaction, or one it is nested in, was rolled back.

        That may be after `write`, when another participant could not write.
        """
        ...


class CommitParticipant(TwoPhaseParticipant, Protocol):
    """A participant that Handrail enlists itself, as the record of an effect is. See `Transaction.enlist`."""

    @property
    def queue(self) -> WriteQueue | None:
        """The queue whose turn the commit has from before `prepare` until it has ended; `None` for none."""
        ...

    @property
    def waits(self) -> bool:
        """Whether a method of this participant may wait for a disk or a server.

        Then a call of an event loop is committed in a thread of its own.
        """
        ...


@runtime_checkable
class CommitRecordStore(UnitStore, Protocol):
    """Keeps the ids of journals, and of what participants have prepared, whose calls have been committed.

    One is recorded by a `RecordCommit` in the unit that commits the call. All methods raise `StoreUnavailableError` if
    the store does not answer.
    """

    @property
    def url(self) -> str:
        """What names the store to people, without any password."""
        ...

    def is_committed(self, journal_id: str) -> bool:
        """Whether the call of this journal has been committed."""
        ...

    def delete_commit_record(self, journal_id: str) -> None:
        """Drop the note, because the journal is gone; a note that does not exist is not an error."""
        ...
