"""What the store knows of effects beside their rows: which agent asked for them, and what was learned late."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from handrail.cli.described import Beside
from handrail.store import EffectRow, Store

_SAID: Final = "handrail.said"
"""The stored name of what is said; read as JSON, because the extra that defines it may not be installed."""

_TAG: Final = "agent"
"""The tag of a session that names its agent, where a program has given it one."""

_FIRST_READ, _GROWTH = 16, 16


Shown: TypeAlias = tuple[EffectRow, Beside]
"""An effect, with what is known beside its row."""


def found_beside(store: Store, rows: Iterable[EffectRow]) -> list[Shown]:
    """Effects, each with what is known beside its row; each session is looked at once.

    Raises:
        StoreError: the store cannot be read.
    """
    agents: dict[str, str] = {}
    found: list[Shown] = []
    for row in rows:
        session_id = row.owner.session_id or row.partition
        if session_id not in agents:
            agents[session_id] = _agent_of(store, session_id)
        # Only what has passed to another owner, or was taken from one, can have been lost by a witness.
        testimony = store.testimony(row.effect_id) if row.fence > 1 else ()
        found.append((row, Beside(agent=agents[session_id], testimony=testimony)))
    return found


def _agent_of(store: Store, session_id: str) -> str:
    """The agent of a session: the one whose conversation it holds, or that its tag names; empty if there is neither."""
    session = store.find(session_id) if session_id else None
    if session is None:
        return ""
    # A conversation begins near the beginning of its session, so little is read of a long one.
    read, until = 0, _FIRST_READ
    while read < session.head:
        for entry in store.entries(session_id, after=read, until=min(until, session.head), type_name=_SAID):
            return _speaker(entry.items) or session.tags.get(_TAG, "")
        read, until = until, until * _GROWTH
    return session.tags.get(_TAG, "")


def _speaker(items: bytes) -> str:
    """Who has said the first of these; empty if they cannot be read."""
    try:
        said: Any = json.loads(items)
        return str(said[0]["agent"])
    except (ValueError, LookupError, TypeError):
        return ""
