"""A unit of work: what is committed atomically, as a value.

It is put together before a store is asked, and is the same in every attempt: then a unit that was committed although
its answer was lost is known again by what it wrote.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple, Protocol, runtime_checkable


class RecordCommit(NamedTuple):
    """Records that a call has been committed; again, it changes nothing.

    Attributes:
        journal_id: what belongs to the call: a journal of files, or what a participant of the program has prepared.
    """

    journal_id: str


class UnitOfWork(NamedTuple):
    """What a store writes atomically: all of it, or nothing if a row that is compared is no longer the one seen.

    Attributes:
        writes: the rows to compare and to write. The kinds are `RecordCommit`; `SessionAppend` and `SessionHeld` of
            `handrail.session.persistence.protocol`; `EffectInsert`, `EffectChange` and `MarkApplied` of
            `handrail.store.protocol`; and the connection of a call that wrote through `context.connection`: then the
            unit is written in the transaction of that connection, and ends it.
    """

    writes: tuple[object, ...]


class Refusal(Protocol):
    """The answer of a store to a unit that it has not written: a row is no longer the one seen."""

    def error(self) -> Exception:
        """What is raised to a call whose commit this was."""
        ...


@runtime_checkable
class UnitStore(Protocol):
    """A store that writes a unit of work atomically."""

    @property
    def waits(self) -> bool:
        """Whether writing may wait for a disk or a server, so that it is not done on the thread of an event loop."""
        ...

    def apply(self, unit: UnitOfWork) -> Refusal | None:
        """Write all of a unit, and return `None`; or nothing of it, and return what has refused it.

        A unit of several writes that has been written already changes nothing and is answered with `None`: so it is
        repeated when its answer is lost.

        Raises:
            SessionLostError: the session that it appends to has passed to another process. Nothing has been written.
            StoreUnavailableError: the store does not answer; nothing has been written, unless `in_doubt` is true.
        """
        ...

    def submit(self, unit: UnitOfWork) -> Future[Refusal | None]:
        """Begin to write a unit; what is returned is completed, in any thread, with what `apply` would return or raise.

        It cannot be cancelled. Units that are submitted one after the other may be written in any order.
        """
        ...
