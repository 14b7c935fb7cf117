"""Which sessions another one works for: its parent, the parent of that, and so on, whether they are open or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from handrail.session.session import Session

if TYPE_CHECKING:
    from handrail.session.persistence.protocol import SessionRow, SessionStore

T = TypeVar("T")


class UnopenedSession(NamedTuple):
    """A session in its store, which another process may have open.

    Attributes:
        store: where it is kept.
        row: its row.
    """

    store: SessionStore
    row: SessionRow

    def log(self, kind: type[T]) -> tuple[T, ...]:
        """The items of a LOG, the oldest first.

        Raises:
            StoreError: the store cannot be read.
        """
        from handrail.session.persistence.loading import known_items  # noqa: PLC0415

        found = known_items(self.store, self.row, lambda each: each is kind)
        return tuple(cast("list[T]", found.get(kind, [])))


def reads_above(session: Session) -> bool:
    """Whether `sessions_above` may read the store. Most sessions have been made for none, or in this process."""
    last = session.unbound
    while last.parent is not None:
        last = last.parent
    return last.recorder is not None and last.recorder.row.parent is not None


def sessions_above(session: Session) -> Iterator[Session | UnopenedSession]:
    """The sessions that a session works for, the nearest first. One that is no longer in the store ends the list.

    A parent that this process has made the session for is that object, and any other one is read from the store.

    Raises:
        StoreError: the store cannot be read.
    """
    last = session.unbound
    while last.parent is not None:
        last = last.parent
        yield last
    recorder = last.recorder
    if recorder is None or not reads_above(last):
        return
    from handrail.session.persistence.protocol import ForkedFrom, works_for  # noqa: PLC0415

    store, seen = recorder.store, {last.session_id}
    above = works_for(recorder.row, last[ForkedFrom].all())
    # A session may have been deleted, and its id used again for one that is made for its former child.
    while above is not None and above not in seen and (row := store.find(above)) is not None:
        seen.add(above)
        unopened = UnopenedSession(store, row)
        yield unopened
        above = works_for(row, unopened.log(ForkedFrom))
