"""The sessions of a store: their states, their agents, when they were last used, and the names of their calls.

A store does not record when a session was last used. That is the newest of what it does record: its creation, its last
recorded call, and the last message of its conversation.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from handrail.errors import SessionNotFoundError, StoreCorruptError, UnknownTypeError
from handrail.session.calls import CallRef, storable_id
from handrail.session.conversation import ConversationPart
from handrail.session.open_calls import open_work_in_store
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import Store

SessionState: TypeAlias = Literal["held", "open", "waiting", "unknown", "unreadable", "ended"]
"""The states of a session; `handrail sessions list --help` has their meanings."""

# The tag of a session that names its agent, if a program has set it.
_TAG: Final = "agent"
# Among so many entries at its end the newest message of a conversation is looked for.
_LAST_ENTRIES = 50


def states_in_store(store: Store, row: SessionRow, in_use: frozenset[str]) -> tuple[SessionState, ...]:
    """The states of a stored session; `in_use` are the sessions that processes hold."""
    know_conversations()
    try:
        open_calls, unfinished = open_work_in_store(store, row)
    # One session whose values are damaged, or of a class that has changed, does not hide the others.
    except (StoreCorruptError, UnknownTypeError):
        return ("held", "unreadable") if row.session_id in in_use else ("unreadable",)
    calls = {call.state for call in open_calls}
    states: dict[SessionState, bool] = {
        "held": row.session_id in in_use,
        "open": bool(calls) or unfinished,
        "waiting": "postponed" in calls,
        "unknown": "unknown" in calls,
    }
    return tuple(state for state, holds in states.items() if holds) or ("ended",)


class StoredSession(NamedTuple):
    """A session of a store; `in_use` are the sessions that processes hold."""

    store: Store
    row: SessionRow
    in_use: frozenset[str]

    @property
    def state(self) -> str:
        """Its states, in one cell: `open` is left out where a word says why."""
        states = states_in_store(*self)
        return ", ".join(state for state in states if state != "open" or {"waiting", "unknown"}.isdisjoint(states))


def know_conversations() -> None:
    """Loads the classes with which agents store conversations, so that the calls in them are listed."""
    with suppress(ImportError):  # without the extra no agent runs here
        import_module("handrail.agents")


def last_used(store: Store, row: SessionRow) -> datetime:
    """The time of the last use of a session, as far as its store records it; see the docstring of this module."""
    numbers = [number for _, number in store.recorded_calls(row.session_id, limit=1)]
    tail = max(0, row.head - _LAST_ENTRIES)
    entries = [
        *(entry for number in numbers for entry in store.entries(row.session_id, after=number - 1, until=number)),
        *store.entries(row.session_id, after=tail, until=row.head, type_name=stored_type(ConversationPart).name),
    ]
    return max([row.created_at, *(time for entry in entries for time in _times(entry))])


def _times(entry: SessionEntry) -> list[datetime]:
    try:
        items: Any = json.loads(entry.items)
        return [datetime.fromisoformat(item["at"]) for item in items if item.get("at")]
    except (ValueError, TypeError, AttributeError):
        return []


def agent_of_session(store: Store, session: SessionRow) -> str:
    """The agent of a session: that of its conversation, or that in its tag; empty if there is neither."""
    # The first entry of a conversation names its speaker.
    for entry in store.entries(session.session_id, until=session.head, type_name=stored_type(ConversationPart).name):
        try:
            return json.loads(entry.items)[0].get("name") or session.tags.get(_TAG, "")
        # The agent is only shown, so an unreadable one is left out.
        except (ValueError, LookupError, AttributeError):
            break
    return session.tags.get(_TAG, "")


def find_session(store: Store, session_id: str) -> SessionRow:
    """The row of a session."""
    if (row := store.find(session_id)) is None:
        raise SessionNotFoundError(
            f"{store.url} has no session {session_id}; handrail sessions list shows all", session_id=session_id
        )
    return row


def name_call(call: CallRef) -> str:
    """The name of a call that no other call has: `REPLY/CALL`, and `/CALL` for one without a reply."""
    return str(call) if call.reply is not None else f"/{call}"


def is_named_by(call: CallRef, text: str) -> bool:
    """Returns whether a call is meant by a text: `REPLY/CALL`, `/CALL` for one without a reply, or its id."""
    ref = CallRef.parse(text)
    if ref.reply is None:
        return call.call_id in {text, ref.call_id, storable_id(text)}
    return call == CallRef(ref.reply or None, ref.call_id).storable or call.call_id == text
