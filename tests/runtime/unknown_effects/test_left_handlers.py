"""`handrail.runtime.claim_step`: a handler that its call has left behind, in another process with the same store."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

import handrail.store
from handrail.errors import LedgerError
from handrail.prompt import ToolResult
from handrail.runtime import EffectLedger
from handrail.runtime.ledger.effects import NotApplied
from tests.crash.forks import Fork, start
from tests.kit import Note
from tests.runtime.unknown_effects.slow_payment import request


def pay(params: Note, *, context: Any) -> ToolResult[Note]:
    """Pay."""
    return ToolResult.ok(params)


@contextmanager
def left(url: str) -> Generator[Fork]:
    """A process whose call has ended, while its handler still runs."""
    with start("tests.runtime.unknown_effects.slow_payment", url) as process:
        assert process.stdout.readline() == "left\n"
        yield process


def test_nothing_is_not_believed_while_a_handler_still_runs_elsewhere(url: str) -> None:
    """A reconciler that finds nothing, or a person, may be too early; once the handler has ended, it counts."""
    with left(url) as process, handrail.store.open(url) as store:
        with store.session("desk") as session:
            assert not request(session, pay, "call-2").success
        (row,) = store.rows()
        assert row.status == "unknown"
        with pytest.raises(LedgerError):
            EffectLedger(store).resolve(row, NotApplied("a person looked"))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ended\n"
        with store.session("desk") as session:
            assert request(session, pay, "call-3").success


def test_nothing_is_believed_once_the_process_of_the_handler_is_killed(url: str) -> None:
    """What a dead process has not done it does not do any more."""
    with left(url) as process, handrail.store.open(url) as store:
        process.kill()
        process.watch(os.WEXITED)
        with store.session("desk") as session:
            assert request(session, pay, "call-2").success
