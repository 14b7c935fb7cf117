"""Writes to a session from outside of calls: each is a transaction of its own, and none waits for a call.

They wait for each other, so that threads of the program need no lock of theirs. A call holds the session for as long as
its handler takes, which may be a request to a model. So a write that meets one is refused, and the program decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from handrail.errors import SessionBusyError
from handrail.transaction import Transaction
from handrail.turns import Turn, draw_ticket


class OutsideWrites:
    """The writes from outside of calls to one session."""

    __slots__ = ("_lock", "_session_id", "_turn", "check_wait")

    def __init__(self, session_id: str, turn: Turn) -> None:
        """Write to the session of that id, which calls take that turn on."""
        self._session_id = session_id
        self._turn = turn
        self._lock = threading.RLock()
        self.check_wait: Callable[[], None] = lambda: None  # called before a thread waits for another one

    def write(self, what: str, write: Callable[[Transaction], None]) -> None:
        """Have `write` called in a transaction, and commit it; `what` names the act in errors.

        Raises:
            SessionBusyError: a call holds the session. Nothing was written.
            Exception: what `write`, or the commit, raises. It has been rolled back.
        """
        if not self._lock.acquire(blocking=False):
            self.check_wait()
            self._lock.acquire()
        try:
            ticket = draw_ticket((self._turn,), exclusive=True)
            try:
                if ticket.waiter is not None:
                    raise SessionBusyError(self._session_id)
                with Transaction(what, ticket=ticket, writes=True) as transaction:
                    write(transaction)
                    transaction.commit()
            finally:
                ticket.release()
        finally:
            self._lock.release()
