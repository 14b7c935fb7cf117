"""What takes part in a transaction: what it can undo, and what is settled with it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, runtime_checkable

S = TypeVar("S")


@runtime_checkable
class Snapshotable(Protocol[S]):
    """A participant of transactions: something whose state can be put back.

    Implement it on a resource, and each call that may change the resource is undone when it fails.
    """

    def snapshot(self) -> S:
        """Return what `restore` needs to come back to this moment.

        Called when a call joins, before its first write, while no other call may write. It should be cheap, and must
        not change what anybody can see. If it raises, the call fails and nothing has been written. What it returned is
        let go of as soon as the call has ended.
        """
        ...

    def restore(self, snapshot: S, /) -> None:
        """Come back to the moment of `snapshot`, to the byte and to the value.

        Called when a call fails, with the newest snapshots first, while no other call may write; the handler may still
        be running if it was a thread that timed out, so it takes the lock that writes take. No transaction is current
        meanwhile, and `undoing()` is true. If it raises, the other participants are restored all the same and the run
        ends with `RollbackError`, because nobody knows what state the participant is in.
        """
        ...


@runtime_checkable
class UnitStore(Protocol):
    """A store that takes what several parts write as one unit of work."""

    def unit(self) -> AbstractContextManager[object]:
        """Commit what this thread writes in the block at one stroke, or nothing of it if the block raises.

        Raises:
            StoreUnavailableError: the store does not answer, on entering or on leaving; nothing has been committed,
                unless the connection was lost in the very moment of the commit.
        """
        ...


class Enlisted(Protocol):
    """Something that is settled with a transaction, as the record of an effect is. See `Transaction.enlist`.

    All that is enlisted is settled together: first each part is told `committing`, inside one unit of each store that
    the parts name; when the units have been committed, each part is told `committed`. If a store fails, all of it is
    tried again, so `committing` may be called more than once. In the end a part has heard `committed`, `undone` or
    `in_doubt`, once.
    """

    @property
    def store(self) -> UnitStore | None:
        """Where `committing` writes; `None` for what needs no unit."""
        ...

    def committing(self) -> None:
        """Write what is to be kept. Called as the outermost transaction commits; if it raises, all is rolled back."""
        ...

    def committed(self) -> None:
        """Take note that it has been kept. Must not fail: what it raises is logged."""
        ...

    def in_doubt(self) -> None:
        """Take note that nobody knows whether it has been kept, because a store was lost in the moment of its commit.

        Nothing is put back, and the run ends. What the part stands for must not be used before it has been opened
        anew, when the store can be asked. Must not fail.
        """
        ...

    def undone(self) -> None:
        """Settle that nothing has happened. Called when the transaction, or one it is nested in, was rolled back.

        That may be after `committing`, when something else that was enlisted could not be settled.
        """
        ...


class Prepares:
    """Something enlisted that has to wait for others, or to look at what they may change, before it can write.

    It does so before a unit is begun. Inside a unit nobody may wait for a lock but those of the store: whoever holds
    that lock may himself be waiting for the store. A class and no protocol, because each call asks who is one.
    """

    __slots__ = ()

    def preparing(self) -> None:
        """Get ready for `committing`. Called once; if it raises, all is rolled back."""


@runtime_checkable
class DecisionStore(UnitStore, Protocol):
    """Keeps the ids of journals whose calls have been committed.

    Each method joins the unit that is open in this thread and context, and is a unit of its own where there is none.
    All of them raise `StoreUnavailableError` if the store does not answer.
    """

    @property
    def url(self) -> str:
        """What names the store to people, without any password."""
        ...

    def decide(self, journal_id: str) -> None:
        """Take note that the call of this journal has been committed; doing it twice is once."""
        ...

    def decided(self, journal_id: str) -> bool:
        """Whether the call of this journal has been committed."""
        ...

    def forget_decision(self, journal_id: str) -> None:
        """Drop the note, because the journal is gone; a note that is not there is no fault."""
        ...
