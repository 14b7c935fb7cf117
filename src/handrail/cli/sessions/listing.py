"""`handrail sessions list`: sessions, and which of them a command means: by agent, tags, state and age."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from cyclopts import Parameter

from handrail.cli.options import MORE_THAN_ZERO, Entity, Limit, StoreOptions
from handrail.cli.screen import Field
from handrail.operations import skip_unreadable
from handrail.operations.sessions import SessionState, StoredSession, agent_of_session, last_used, states_in_store
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store

_STYLES = {"unknown": "bold red", "held": "yellow"}


def _tags(session: StoredSession) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(session.row.tags.items()))


SESSION: Entity[StoredSession] = Entity(
    "sessions",
    ("session", "state", "entries", "created", "tags"),
    (
        Field("session", lambda session: session.row.session_id, key="session_id"),
        Field("state", lambda session: states_in_store(*session), lambda session: session.state, styles=_STYLES),
        Field("entries", lambda session: session.row.head),
        Field("created", lambda session: session.row.created_at, key="created_at"),
        Field("parent", lambda session: session.row.parent),
        Field("origin", lambda session: session.row.origin),
        Field("agent", lambda session: agent_of_session(session.store, session.row) or None),
        Field("tags", lambda session: dict(session.row.tags), _tags),
    ),
)
"""A session."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are meant; filters are combined with AND.

    Attributes:
        agent: Only those of this agent: of the conversation, or else of the tag `agent`.
        tag: Only those with this tag, with any value if none is given. Repeatable.
        state: Only those in this state, or in one of several. `held`: a process has it open. `open`: it has a call that
            has not come to its end, or a message without a reply. `waiting`: a call that waits for an approval.
            `unknown`: one whose effect may have happened. `unreadable`: its calls cannot be read. `ended`: none of
            these.
        older_than: Only those that were last used longer ago, such as 30d or 12h. A session was last used when it was
            created, its last call was recorded, or the last message of its conversation was written, whichever is
            latest.
    """

    agent: Annotated[str | None, Parameter(metavar="NAME")] = None
    tag: Annotated[tuple[str, ...], Parameter(metavar="NAME[=VALUE]")] = ()
    state: Annotated[tuple[SessionState, ...], Parameter(metavar="STATE")] = ()
    older_than: Annotated[timedelta | None, MORE_THAN_ZERO] = None

    def select(self, store: Store, faults: list[str] | None = None) -> Iterator[SessionRow]:
        """The sessions that fit, the newest first; each is read when it is asked for.

        `faults` gets what is wrong with rows that cannot be read; `None` to raise.
        """
        now = store.now()
        in_use = store.held_sessions() if self.state else frozenset[str]()
        rows = store.sessions() if faults is None else skip_unreadable(store.sessions(), faults)
        return (row for row in rows if self._fits(store, row, now, in_use))

    def _fits(self, store: Store, row: SessionRow, now: datetime, in_use: frozenset[str]) -> bool:
        # The cheap questions first: the last ones read the session.
        return (
            all(_has_tag(row, text) for text in self.tag)
            and self.agent in {None, self.agent and agent_of_session(store, row)}
            and (self.older_than is None or last_used(store, row) <= now - self.older_than)
            and (not self.state or not set(self.state).isdisjoint(states_in_store(store, row, in_use)))
        )


def _has_tag(row: SessionRow, text: str) -> bool:
    name, equals, value = text.partition("=")
    return name in row.tags and (not equals or row.tags[name] == value)


def list_sessions(
    *, selection: SessionFilter = SessionFilter(), limit: Limit = None, options: StoreOptions = StoreOptions()
) -> int:
    """List the sessions, the newest first. Filters are combined with AND.

    Example: `handrail sessions list --state open --older-than 2h`

    Args:
        selection: Which ones.
        limit: How many.
        options: The store and the output format.
    """
    with options.open() as store:
        in_use, faults = store.held_sessions(), list[str]()
        rows = (StoredSession(store, row, in_use) for row in selection.select(store, faults))
        return SESSION.print_list(rows, limit, options, faults)
