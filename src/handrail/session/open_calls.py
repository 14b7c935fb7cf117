"""Which calls of a session have not come to their end: what its LOGs list, and the calls that were postponed.

Those that have claimed an effect are in the ledger; `Session.open_calls` puts all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeVar

from handrail.errors import SessionError
from handrail.session.call_records import CallLister, CallRecord, OpenCall, still_open
from handrail.session.call_ref import CallRef
from handrail.session.persistence.loading import known_items, recorded_item
from handrail.session.persistence.protocol import SessionRow, SessionStore
from handrail.session.persistence.stored_types import stored_as
from handrail.session.slices import Slice, SlicePolicy

T = TypeVar("T")


class SessionSlices(Protocol):
    """The slices of a session, for what is below it."""

    @property
    def session_id(self) -> str:
        """The id of the session."""
        ...

    def __getitem__(self, kind: type[T], /) -> Slice[T]:
        """The slice of a type."""
        ...


class RecordedSlices(SessionSlices, Protocol):
    """The same, with the records of its calls."""

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The types that have a slice with something in it."""
        ...

    def recorded_call(self, ref: CallRef) -> CallRecord | None:
        """The event that recorded a call last; `None` if there is none."""
        ...


@stored_as("handrail.postponed_call")
@dataclass(frozen=True, slots=True)
class PostponedCall:
    """A call was postponed: an approver has left the question open. Its slice is a LOG, with one item for each call.

    Attributes:
        session_id: the session of the call.
        reply: the reply of the model that asked for the call; `None` if the program did not say.
        call_id: the id of the call.
        tool: name of the tool.
        at: when it was first postponed.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    session_id: str
    reply: str | None
    call_id: str
    tool: str
    at: datetime

    @property
    def call(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)

    @staticmethod
    def listed_calls(items: Sequence[PostponedCall]) -> Iterable[OpenCall]:
        """The calls that were postponed, whether or not they have been recorded since."""
        return (OpenCall(call=item.call, tool=item.tool, state="postponed") for item in items)


def note_postponed(session: SessionSlices, ref: CallRef, tool: str, at: datetime) -> None:
    """Append a postponed call to the LOG of a stored session, unless it is there.

    Nothing is appended for a call without reply and id: no record of it could be found later.

    Raises:
        SessionError: the session is closed.
        StoreError: the store cannot be read.
    """
    stored = ref.stored if ref.call_id else ref  # an empty id is listed as it is
    # A fork has copies of the items of its origin, which do not list the calls of the fork.
    own = _own(session[PostponedCall].all(), session.session_id)
    if ref.is_named and not any(item.call == stored for item in own):
        session[PostponedCall].append(PostponedCall(session.session_id, *stored, tool, at))


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
    """The open calls of a stored session as `Session.open_calls` gives them; the session need not be opened for it.

    Items of classes that are not known here are passed over.

    Raises:
        StoreError: the store cannot be read.
    """

    def is_settled(ref: CallRef) -> bool:
        number = store.record_of_call(row.session_id, ref.stored)
        record = None if number is None else recorded_item(store, row.session_id, number)
        return record is not None and record.session_id == row.session_id and record.final

    listed = _listed(known_items(store, row, _lists), row.session_id)
    return still_open(store.open_claims(row.session_id), listed, is_settled)


def check_resettable(session_id: str, open_calls: Iterable[OpenCall]) -> None:
    """Check that no call of a session is under way that `Session.reset` would forget.

    A call that the model asked for and that was never started is not one.

    Raises:
        SessionError: there is one; the message names it.
    """
    found = [str(call) for call in open_calls if call.state != "unrecorded"]
    if found:
        raise SessionError(
            f"session {session_id!r} cannot be reset before its calls have come to their end: {'; '.join(found)}. "
            "Ask these calls again; handrail ledger reconcile resolves an effect that is unknown"
        )


def _lists(kind: type[Any]) -> bool:
    return issubclass(kind, CallLister)


def _listed(items: Mapping[type[Any], Sequence[Any]], session_id: str) -> list[OpenCall]:
    return [call for kind, all_of in items.items() for call in kind.listed_calls(_own(all_of, session_id))]


def _own(items: Sequence[Any], session_id: str) -> list[Any]:
    """The items that belong to a session, and not to the one that it was forked from."""
    return [item for item in items if getattr(item, "session_id", session_id) == session_id]
