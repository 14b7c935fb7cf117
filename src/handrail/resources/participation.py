"""How resources take part in calls: which ones can be undone, and what becomes of those built inside a call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TypeGuard, TypeVar

from handrail.errors import TurnConflictError, WrongResourceError
from handrail.transaction import Snapshotable, Transaction, current
from handrail.turns import draw, own_turn

T = TypeVar("T")


def snapshotables_among(values: Iterable[object]) -> tuple[Snapshotable[object], ...]:
    """Those that can be undone, each once, in their order."""
    found: dict[int, Snapshotable[object]] = {}
    for value in values:
        if _is_snapshotable(value):
            found.setdefault(id(value), value)
    return tuple(found.values())


def silent_among(participants: Iterable[Snapshotable[object]]) -> tuple[Snapshotable[object], ...]:
    """Those that do not tell before they are written to, so that a call must take them in when it begins."""
    return tuple(participant for participant in participants if own_turn(participant) is None)


def refuse_what_cannot_take_turns(value: object, *, protocol: type[object]) -> None:
    """Refuse a participant for which no turn can be kept.

    Raises:
        WrongResourceError: it carries no turn, and cannot be weakly referenced either.
    """
    if not _is_snapshotable(value) or own_turn(value) is not None:
        return
    try:
        weakref.ref(value)
    except TypeError as error:
        kind = type(value).__name__
        msg = (
            f"{kind} is Snapshotable, so calls take turns on it, but no turn can be kept for it: it cannot be weakly "
            f"referenced. Add '__weakref__' to the __slots__ of {kind}."
        )
        raise WrongResourceError(msg, protocol=protocol) from error


def join_call(value: object) -> None:
    """Let what was just built join the call it was built in, so that its state now is what a rollback restores.

    Does nothing outside of calls, in calls that only read, and for what joins by itself before it is written to.

    Raises:
        TurnConflictError: it is not new: another call is using it.
    """
    call = current()
    if call is None or not call.writes or not call.is_open():
        return
    if _is_snapshotable(value) and own_turn(value) is None:
        call.join(value)


def apart_from_call(name: str, provide: Callable[[], T]) -> T:
    """Run a singleton's provider as a unit of its own: the call that asks first may end, the singleton stays.

    What the provider writes stays too if it succeeds, whatever becomes of the call, even of one that only reads; and it
    is undone if it fails. The resources that it asked for join the call.

    Args:
        name: what is provided, for messages.
        provide: makes it.
    """
    call = current()
    if call is None:
        return provide()
    ticket = draw((), exclusive=True, inside=call.ticket)
    building = Transaction(f"the provider of {name}", ticket=ticket, writes=True)
    try:
        with building:
            value = provide()
            building.commit()
    finally:
        ticket.release()
        for participant in building.participants:
            join_call(participant)
    return value


def refuse_beside_others(value: object) -> None:
    """Keep what can be undone from a call that runs beside others without having taken turns on it.

    Raises:
        TurnConflictError: it can be undone, so calls take turns on it.
    """
    if _is_snapshotable(value):
        msg = (
            "a tool with concurrent=True runs beside other calls, so it cannot use the bound "
            f"{type(value).__name__}, on which calls take turns. Return what is to be kept as the result's value, or "
            "declare the tool without concurrent=True."
        )
        raise TurnConflictError(msg)


def _is_snapshotable(value: object) -> TypeGuard[Snapshotable[object]]:
    """Whether its class says how to undo it; an object that answers to any name does not count."""
    kind = type(value)
    return hasattr(kind, "snapshot") and hasattr(kind, "restore")
