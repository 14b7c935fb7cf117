"""What the store knows of effects beside their rows: which agent asked for them, and what was learned late."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from handrail.cli.ledger.described import Beside
from handrail.runtime.ledger.states import possible_duplicate
from handrail.store import EffectRow, Store, Testimony

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
        found.append((row, Beside(agent=agents[session_id], testimony=_testimony(store, row))))
    return found


def is_possible_duplicate(store: Store, row: EffectRow) -> bool:
    """Whether a former owner of an effect says that it is done, and another may have done it as well.

    Raises:
        StoreError: the store cannot be read.
    """
    return any(possible_duplicate(row, said) for said in _testimony(store, row))


def _testimony(store: Store, row: EffectRow) -> tuple[Testimony, ...]:
    """What former owners say. Only an effect that has passed to another, or was taken from one, can have any."""
    return store.testimony(row.effect_id) if row.fence > 1 else ()


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
