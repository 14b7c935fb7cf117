"""Settling what is enlisted in a transaction: everything is kept at one stroke, or nothing is."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack

from handrail.errors import StoreUnavailableError
from handrail.transaction.participants import Enlisted, UnitStore

_log = logging.getLogger("handrail.transaction")

ATTEMPTS = 3
"""How often a unit of work is tried when its store fails; each attempt waits as long as the store itself does."""


def settle(parts: Sequence[Enlisted]) -> None:
    """Have every part write what it keeps, in one unit of each store that they name.

    Raises:
        StoreUnavailableError: a store failed at every attempt.
        Exception: a part could not write. In either case nothing is kept, and the parts wait for `undone`.
    """
    stores = tuple(dict.fromkeys(part.store for part in parts if part.store is not None))
    if not stores:
        for part in parts:
            part.committing()
        return
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _settle_in(stores, parts)
        except StoreUnavailableError:
            if attempt == ATTEMPTS:
                raise
            _log.warning("a unit of work could not be committed; it is tried again", exc_info=True)
        else:
            return


def tell_committed(parts: Sequence[Enlisted]) -> None:
    """Tell every part that it has been kept, each of them even if one before it raised.

    Raises:
        BaseException: what is no `Exception` (Ctrl-C) goes on when all have been told.
    """
    interrupt: BaseException | None = None
    for part in parts:
        try:
            part.committed()
        except Exception:  # noqa: BLE001 - logged; it has been kept all the same
            _log.exception("%s has been kept, but failed to take note of it", type(part).__name__)
        except BaseException as error:  # noqa: BLE001 - raised below, when all have been told
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _settle_in(stores: Sequence[UnitStore], parts: Sequence[Enlisted]) -> None:
    with ExitStack() as units:
        for store in stores:
            units.enter_context(store.unit())
        for part in parts:
            part.committing()
