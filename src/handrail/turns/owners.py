"""Whose turn it is: participants that carry their own, and turns that are kept for those that do not."""

from __future__ import annotations

import threading
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


class _LentTurns:
    """Turns for participants that carry none, kept by identity for as long as the participant lives."""

    def __init__(self) -> None:
        self._turns: dict[int, Turn] = {}
        self._lock = threading.Lock()

    def of(self, participant: object) -> Turn:
        key = id(participant)
        with self._lock:
            turn = self._turns.get(key)
            if turn is None:
                # Before the turn is stored: this raises for what cannot be weakly referenced, and its id may name
                # another object later. The finalizer takes no lock, because it may run in a thread that holds this one.
                weakref.finalize(participant, self._turns.pop, key, None).atexit = False
                turn = self._turns[key] = Turn()
        return turn


_LENT = _LentTurns()


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
    return own_turn(participant) or _LENT.of(participant)
