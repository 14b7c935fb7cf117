"""Who has an effect in this process: the call that runs it, and the one that is answered with it.

A call is the holder of its effect from the claim until the transaction of its outermost call has ended, so that an
equal call that is made meanwhile is not answered with what belongs to a call that runs. Of equal calls that are made at
the same time, one is answered with an effect that is unread: in this process the holder is, and of two processes the
one that commits first.

An interrupt may come before an entry is removed. It does not count any more once the call, or one that it is nested in,
has released its ticket.
"""

from __future__ import annotations

from threading import Lock

from handrail.store.protocol import EffectRow
from handrail.turns import Ticket

HOLDERS: dict[str, Ticket] = {}
"""The tickets of the calls that have effects, by the effect's id; each claim has its own entry."""

_TAKING = Lock()


def holding_ticket(row: EffectRow) -> Ticket | None:
    """The ticket of the call that has the effect of a row, if the call is in this process."""
    return HOLDERS.get(row.effect_id)


def is_in_use(row: EffectRow) -> bool:
    """Whether an effect is part of a call of this process that has not ended.

    The ticket of a nested call is released with that; its effect is part of the calls that it is nested in.
    """
    ticket = HOLDERS.get(row.effect_id)
    return ticket is not None and not any(each.released for each in ticket.ancestors or (ticket,))


def take_unread(row: EffectRow, ticket: Ticket) -> bool:
    """Have the call of a ticket be answered with an effect that is unread; `False` if another one is.

    Args:
        row: the row of the effect.
        ticket: of the call.
    """
    with _TAKING:
        if is_in_use(row):
            return False
        HOLDERS[row.effect_id] = ticket
        return True


def leave_holder(row: EffectRow, ticket: Ticket | None) -> None:
    """Remove the entry of a call that has ended, unless another claim of the same effect has replaced it.

    Args:
        row: the row of the effect.
        ticket: of the call; `None` for one that has no entry.
    """
    if ticket is not None and HOLDERS.get(row.effect_id) is ticket:
        del HOLDERS[row.effect_id]
