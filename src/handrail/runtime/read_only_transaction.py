"""What feedback providers and completion checkers run in: a transaction that takes no writes.

Both are asked between two calls of the model, where a write would be rolled back by no call. One that takes too long is
left behind, and its transaction is closed. So what it writes, in time or late, is refused, as a late write of a handler
is: through the views that it was given in any thread, and through a session or resource that it has reached otherwise
in its own thread or task. Tools that it calls are calls of their own.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from handrail.transaction import Transaction, current
from handrail.turns import draw_ticket

_CURE = "Return what the model is to read; a tool or a reducer writes."


@contextmanager
def read_only_transaction(name: str) -> Generator[Transaction]:
    """A block in which nothing can be written; what runs on in a thread after it cannot write either.

    It sees what its caller sees: in the handler of a call, also what that call has written.

    Args:
        name: who reads, for messages.

    Raises:
        ReadOnlyViolation: something was written in the block. Nothing has been.
        TransactionClosedError: the call that this is in has ended.
    """
    outer = current()
    # Without turns, so that a call which is made in the block takes those that it needs.
    ticket = draw_ticket((), exclusive=False, inside=None if outer is None else outer.ticket)
    try:
        with Transaction(name, ticket=ticket, writes=False, parent=outer, concurrent=True, cure=_CURE) as reading:
            yield reading
    finally:
        ticket.release()
