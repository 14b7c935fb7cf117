"""Which calls of a session have not come to their end: what its LOGs list, and the calls that were postponed.

Those that have claimed an effect are in the ledger; `Session.open_calls` puts all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from handrail.errors import SessionError
from handrail.session.call_records import CallLister, CallRecord, OpenCall, still_open
from handrail.session.call_ref import CallRef
from handrail.session.conversation_parts import ConversationPart
from handrail.session.persistence.loading import known_items, recorded_item
from handrail.session.persistence.protocol import SessionRow, SessionStore
from handrail.session.postponed_calls import SessionSlices, own_items


class RecordedSlices(SessionSlices, Protocol):
    """The same, with the records of its calls."""

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The types that have a slice with something in it."""
        ...

    def recorded_call(self, ref: CallRef) -> CallRecord | None:
        """The event that recorded a call last; `None` if there is none."""
        ...


def open_calls_of(session: RecordedSlices, claimed: Iterable[OpenCall]) -> tuple[OpenCall, ...]:
    """The open calls of a session.

    Args:
        session: the session.
        claimed: those of its calls whose effects the ledger does not know to be settled.

    Raises:
        StoreError: the store cannot be read.
    """

    def is_settled(ref: CallRef) -> bool:
        record = session.recorded_call(ref)
        return record is not None and record.final

    listed = _listed({kind: session[kind].all() for kind in session.kinds if _lists(kind)}, session.session_id)
    return still_open(claimed, listed, is_settled)


def open_calls_in_store(store: SessionStore, row: SessionRow) -> tuple[OpenCall, ...]:
    """The open calls of a stored session as `Session.open_calls` gives them; raises as `open_work_in_store` does."""
    return open_work_in_store(store, row)[0]


def open_work_in_store(store: SessionStore, row: SessionRow) -> tuple[tuple[OpenCall, ...], bool]:
    """The open calls of a stored session, and whether a conversation of it is unfinished; it need not be opened.

    Items of classes that are not known here are passed over.

    Raises:
        StoreError: the store cannot be read.
    """

    def is_settled(ref: CallRef) -> bool:
        number = store.record_of_call(row.session_id, ref.stored)
        record = None if number is None else recorded_item(store, row.session_id, number)
        return record is not None and record.session_id == row.session_id and record.final

    items = known_items(store, row, _lists)
    calls = still_open(store.open_claims(row.session_id), _listed(items, row.session_id), is_settled)
    newest = {(part.speaker, part.name): part for part in items.get(ConversationPart, ())}
    return calls, any(part.is_unfinished for part in newest.values())


def check_resettable(session_id: str, open_calls: Iterable[OpenCall]) -> None:
    """Check that a session has no open call, which `Session.reset` would forget.

    Raises:
        SessionError: there is one; the message names it.
    """
    found = [str(call) for call in open_calls]
    if found:
        raise SessionError(
            f"session {session_id!r} cannot be reset before its calls have come to their end: {'; '.join(found)}. "
            "Ask these calls again, with ToolExecutor.answer if they are those of an open reply; "
            "ToolExecutor.settle_open applies results that are not applied; handrail ledger reconcile resolves an "
            "effect that is unknown, and records what was applied by hand; reset(with_open_calls=True) abandons them"
        )


def _lists(kind: type[Any]) -> bool:
    return issubclass(kind, CallLister)


def _listed(items: Mapping[type[Any], Sequence[Any]], session_id: str) -> list[OpenCall]:
    return [call for kind, all_of in items.items() for call in kind.listed_calls(own_items(all_of, session_id))]
