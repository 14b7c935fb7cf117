"""Whose turn it is: participants that carry their own, and turns that are kept for those that do not."""

from __future__ import annotations

import weakref
from typing import Protocol, runtime_checkable

from handrail.turns.ticket import Turn


@runtime_checkable
class HasTurn(Protocol):
    """A participant that carries its own turn, as sessions and filesystems do.

    It calls `handrail.transaction.check_write` before each change.
    """

    @property
    def turn(self) -> Turn:
        """The one turn of this participant; always the same object."""
        ...


_LENT: dict[int, Turn] = {}
"""The turns of participants that carry none, by identity, for as long as the participant lives."""


def own_turn(participant: object) -> Turn | None:
    """The turn that a participant carries itself, if it does (`HasTurn`)."""
    turn = getattr(participant, "turn", None)
    return turn if isinstance(turn, Turn) else None


def turn_of(participant: object) -> Turn:
    """The turn of a participant: its own, or one that is kept for it.

    Raises:
        TypeError: the participant carries no turn and cannot be weakly referenced (a class with `__slots__` and no
            `__weakref__`); give it a `turn` attribute.
    """
    turn = own_turn(participant) or _LENT.get(id(participant))
    if turn is None:
        # Before the turn is stored: this raises for what cannot be weakly referenced, and its id may name another
        # object later. Two threads that come here get one turn, and to remove it twice is harmless.
        weakref.finalize(participant, _LENT.pop, id(participant), None).atexit = False
        turn = _LENT.setdefault(id(participant), Turn())
    return turn
