"""Removes sessions and expired effects, in transactions of bounded size.

A deletion begins with one statement that gives the row of the session the head -1. From then on the session does not
exist: it is not found, listed, opened, forked or written to. Transactions remove its other rows, and the last one the
row itself. A process that dies in between leaves a row that says what is left to be done. Each transaction locks the
row first, so two that finish the same deletion cannot remove rows of a session that was made anew with the same id.

Expired effects are removed in the order of their keys, a page in each transaction. Where one transaction keeps all
others from writing, there is a short pause after each one: writers of other processes try again in intervals, and would
find the database locked each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from handrail.store.sql import statements
from handrail.store.sql.database import Database
from handrail.store.sql.driver import DriverConnection
from handrail.store.sql.tables import to_micros

ROWS_AT_ONCE = 1000
"""The most rows of a session that one transaction removes."""

EFFECTS_AT_ONCE = 5000
"""So many effects are looked at by one transaction that removes expired ones."""

_PAUSE, _LONGEST_PAUSE = 0.5, 0.05


def finish_deletion(
    database: Database, session_id: str, *, most: int = ROWS_AT_ONCE, pause: Callable[[float], object] = time.sleep
) -> bool:
    """Remove what a deletion has left; returns whether there was anything.

    Args:
        database: where it is.
        session_id: the session.
        most: the most rows that one transaction removes.
        pause: waits for some seconds.

    Raises:
        StoreError: the database cannot be written.
    """
    found = False
    while True:
        before = time.perf_counter()
        with database.transaction() as link:
            if not link.execute(statements.LOCK_DELETED, (session_id,)):
                return found
            found = True
            if _remove_some(link, session_id, most):
                return True
        _let_others_write(database, time.perf_counter() - before, pause)


def _remove_some(link: DriverConnection, session_id: str, left: int) -> bool:
    """Remove as many rows as one transaction may; returns whether these were the last, and the session is gone."""
    for sql in statements.REMOVE_FROM_SESSION:
        left -= link.execute(sql, (session_id, session_id, left))
        if not left:
            return False
    link.execute(statements.DELETE_SESSION, (session_id,))
    return True


def remove_expired(
    database: Database, now: datetime, *, page: int = EFFECTS_AT_ONCE, pause: Callable[[float], object] = time.sleep
) -> int:
    """Remove the effects that have expired; returns how many they were.

    Args:
        database: where they are.
        now: they have expired by then.
        page: how many effects, expired or not, one transaction looks at.
        pause: waits for some seconds.

    Raises:
        StoreError: the database cannot be written; what was removed before stays removed.
    """
    moment, removed, after = to_micros(now), 0, ("", "")
    while True:
        found = database.query(statements.LAST_OF_PAGE, (*after, page - 1))
        before = time.perf_counter()
        with database.transaction() as link:
            if not found:
                return removed + link.execute(statements.REMOVE_LAST_EXPIRED, (*after, moment))
            last = (str(found[0][0]), str(found[0][1]))
            removed += link.execute(statements.REMOVE_EXPIRED, (*after, moment, *last))
        after = last
        _let_others_write(database, time.perf_counter() - before, pause)


def _let_others_write(database: Database, lasted: float, pause: Callable[[float], object]) -> None:
    if database.driver.one_writer:
        pause(min(_PAUSE * lasted, _LONGEST_PAUSE))
