"""Settling what is enlisted in a transaction: everything is kept at one stroke, or nothing is."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from handrail.errors import CommitInDoubtError, StoreUnavailableError
from handrail.transaction.participants import Enlisted, UnitStore

_log = logging.getLogger("handrail.transaction")

ATTEMPTS = 3
"""How often a unit of work is tried when its store fails; each attempt waits as long as the store itself does."""


class Prepares:
    """Something enlisted that has to wait for others, or to look at what they may change, before it can write.

    It does so before a unit is begun. Inside a unit nobody may wait for a lock but those of the store: whoever holds
    that lock may himself be waiting for the store. A class and no protocol, because each call asks who is one.
    """

    __slots__ = ()

    def preparing(self) -> None:
        """Get ready for `committing`. Called once; if it raises, all is rolled back."""


def settle(parts: Sequence[Enlisted], *, attempts: int = ATTEMPTS) -> None:
    """Have every part write what it keeps, in one unit of each store that they name.

    Args:
        parts: the parts.
        attempts: how often to try; where it is in doubt whether it is kept, it is tried `ATTEMPTS` times all the same.

    Raises:
        StoreUnavailableError: a store failed at every attempt.
        Exception: a part could not write. In either case nothing is kept, and the parts wait for `undone`.
        CommitInDoubtError: nobody knows whether it is kept, and the parts wait for `in_doubt`.
    """
    stores = tuple(dict.fromkeys(part.store for part in parts if part.store is not None))
    if not stores:
        for part in parts:
            part.committing()
        return
    _prepare(parts)
    doubt: Exception | None = None
    kept: list[UnitStore] = []
    attempt = 0
    while True:
        attempt += 1
        try:
            _settle_in(stores, parts, kept)
        except StoreUnavailableError as error:
            doubt = error if error.in_doubt or kept else doubt
            if doubt is None and attempt >= attempts:
                raise
            if doubt is not None and attempt >= ATTEMPTS:
                raise _in_doubt(doubt) from error
            _log.warning("a unit of work could not be committed; it is tried again", exc_info=True)
        except Exception as error:
            if doubt is not None or kept:
                raise _in_doubt(doubt or error) from error
            raise
        else:
            return


def _prepare(parts: Sequence[Enlisted]) -> None:
    for part in parts:
        if isinstance(part, Prepares):
            part.preparing()


def _in_doubt(doubt: Exception) -> CommitInDoubtError:
    return CommitInDoubtError(
        f"a store was lost in the moment of a commit ({doubt}), so it is not known whether the call has been kept. "
        "Open session and files anew when the store answers: they are then as it says."
    )


def tell(parts: Sequence[Enlisted], *, kept: bool) -> None:
    """Tell every part that it has been kept, or that this is in doubt; each of them even if one before it raised.

    Raises:
        BaseException: what is no `Exception` (Ctrl-C) goes on when all have been told.
    """
    interrupt: BaseException | None = None
    for part in parts:
        try:
            if kept:
                part.committed()
            else:
                part.in_doubt()
        except Exception:  # noqa: BLE001 - logged; what the store has done stays done
            _log.exception("%s failed to take note of what has become of it", type(part).__name__)
        except BaseException as error:  # noqa: BLE001 - raised below, when all have been told
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _settle_in(stores: Sequence[UnitStore], parts: Sequence[Enlisted], kept: list[UnitStore]) -> None:
    """Write in a unit of each store; `kept` gets each store that has committed, whatever becomes of the next one."""
    if len(stores) == 1:  # as nearly always
        with stores[0].unit():
            for part in parts:
                part.committing()
        return

    def note(kind: type[BaseException] | None, _error: object, _traceback: object, *, store: UnitStore) -> None:
        if kind is None:
            kept.append(store)

    with ExitStack() as units:
        for store in stores:
            units.push(partial(note, store=store))  # called when the unit, which is entered after it, has been left
            units.enter_context(store.unit())
        for part in parts:
            part.committing()
