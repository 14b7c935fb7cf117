"""Which sessions a command means: by agent, tags, state and age.

A store does not record when a session was last used. That is the newest of what it does record: its creation, its last
recorded call, and the last message of its conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import CycloptsError, Parameter

from handrail.cli.ledger.show import CONVERSATION, agent_of_session
from handrail.cli.options import MORE_THAN_ZERO
from handrail.errors import StoreCorruptError, UnknownTypeError
from handrail.session.open_calls import open_work_in_store
from handrail.session.persistence.protocol import SessionEntry, SessionRow
from handrail.store import Store

SessionState: TypeAlias = Literal["held", "open", "waiting", "unknown", "unreadable", "ended"]
"""What can be said of a session: a process holds it; it has an open call, or a conversation that waits for the model;
a call that waits for an approval; one whose effect is unknown; its calls cannot be read; or none of these."""

_LAST_ENTRIES = 50
"""Among so many entries at its end the newest message of a conversation is looked for."""


def states_in_store(store: Store, row: SessionRow, held: frozenset[str]) -> tuple[SessionState, ...]:
    """What can be said of a stored session; `held` are the sessions that processes hold.

    Raises:
        StoreError: the store cannot be read.
    """
    know_conversations()
    try:
        open_calls, unfinished = open_work_in_store(store, row)
    # One session whose values are damaged, or of a class that has changed, does not hide the others.
    except (StoreCorruptError, UnknownTypeError):
        return ("held", "unreadable") if row.session_id in held else ("unreadable",)
    calls = {call.state for call in open_calls}
    states: dict[SessionState, bool] = {
        "held": row.session_id in held,
        "open": bool(calls) or unfinished,
        "waiting": "postponed" in calls,
        "unknown": "unknown" in calls,
    }
    return tuple(state for state, holds in states.items() if holds) or ("ended",)


def know_conversations() -> None:
    """Load the classes with which agents store conversations, so that the calls in them are listed."""
    with suppress(ImportError):  # without the extra no agent runs here
        import_module("handrail.agents")


def last_used(store: Store, row: SessionRow) -> datetime:
    """When a session was last used, as far as its store records it; see the head of this module.

    Raises:
        StoreError: the store cannot be read.
    """
    numbers = [number for _, number in store.recorded_calls(row.session_id, limit=1)]
    tail = max(0, row.head - _LAST_ENTRIES)
    entries = [
        *(entry for number in numbers for entry in store.entries(row.session_id, after=number - 1, until=number)),
        *store.entries(row.session_id, after=tail, until=row.head, type_name=CONVERSATION.name),
    ]
    return max([row.created_at, *(time for entry in entries for time in _times(entry))])


def _times(entry: SessionEntry) -> list[datetime]:
    """When the calls of an entry ended, or its messages were appended; what cannot be read says nothing about it."""
    try:
        items: Any = json.loads(entry.items)
        return [datetime.fromisoformat(item["at"]) for item in items if item.get("at")]
    except (ValueError, TypeError, AttributeError):
        return []


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are meant: those that all options fit.

    Attributes:
        agent: Only those of this agent: of the conversation, or else of the tag `agent`.
        tag: Only those with this tag, with any value if none is given. Repeatable.
        state: Only those in this state, or in one of several. `held`: a process has it open. `open`: it has a call that
            has not come to its end, or a message without a reply. `waiting`: a call that waits for an approval.
            `unknown`: one whose effect may have happened. `unreadable`: its calls cannot be read. `ended`: none of
            these.
        older_than: Only those that were last used longer ago, such as 30d or 12h.
        newer_than: Only those used since. A session was last used when it was created, its last call was recorded, or
            the last message of its conversation was written, whichever is latest.
    """

    agent: Annotated[str | None, Parameter(metavar="NAME")] = None
    tag: Annotated[tuple[str, ...], Parameter(metavar="NAME[=VALUE]")] = ()
    state: Annotated[tuple[SessionState, ...], Parameter(metavar="STATE")] = ()
    older_than: Annotated[timedelta | None, MORE_THAN_ZERO] = None
    newer_than: Annotated[timedelta | None, MORE_THAN_ZERO] = None

    def check(self) -> None:
        """Check the options, before the store is opened.

        Raises:
            CycloptsError: a tag has no name, or no session can fit two of the options.
        """
        if self.older_than is not None and self.newer_than is not None and self.older_than >= self.newer_than:
            raise CycloptsError(
                msg="--older-than and --newer-than contradict each other: no session was last used both longer ago "
                "than the first and since the second; give --newer-than the longer time"
            )
        values: dict[str, str] = {}
        for text in self.tag:
            if not text.partition("=")[0]:
                raise CycloptsError(msg=f"--tag {text} is not a tag; write --tag NAME or --tag NAME=VALUE")
            name, equals, value = text.partition("=")
            if equals and values.setdefault(name, value) != value:
                raise CycloptsError(
                    msg=f"--tag {name}={values[name]} and --tag {text} contradict each other: a tag has one value"
                )

    def select(self, store: Store) -> Iterator[SessionRow]:
        """The sessions that fit, the newest first; each is read when it is asked for.

        Raises:
            StoreError: the store cannot be read.
        """
        now = store.now()
        in_use = store.held_sessions() if self.state else frozenset[str]()
        return (row for row in store.sessions() if self._fits(store, row, now, in_use))

    def _fits(self, store: Store, row: SessionRow, now: datetime, in_use: frozenset[str]) -> bool:
        # The cheap questions first: the last ones read the session.
        return (
            all(self._has_tag(row, text) for text in self.tag)
            and (self.older_than is None or row.created_at <= now - self.older_than)
            and self.agent in {None, self.agent and agent_of_session(store, row)}
            and self._fits_age(store, row, now)
            and (not self.state or not set(self.state).isdisjoint(states_in_store(store, row, in_use)))
        )

    @staticmethod
    def _has_tag(row: SessionRow, text: str) -> bool:
        name, equals, value = text.partition("=")
        return name in row.tags and (not equals or row.tags[name] == value)

    def _fits_age(self, store: Store, row: SessionRow, now: datetime) -> bool:
        if self.older_than is None and self.newer_than is None:
            return True
        unused = now - last_used(store, row)
        return (self.older_than is None or unused >= self.older_than) and (
            self.newer_than is None or unused <= self.newer_than
        )


ANY_SESSION = SessionFilter()
"""The defaults."""
