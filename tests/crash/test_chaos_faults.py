"""What goes wrong in the handlers of `make chaos`, and how the changes of the ledger are noted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from chaos import history
from chaos.faults import DOUBTS, MARK, NOT_APPLIED_ON, PROOFS
from chaos.history import Change
from handrail import store
from handrail.prompt import External, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger
from handrail.runtime.failures import unknown_because
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, EffectResult, NotKnown


def pay(params: None, *, context: ToolContext) -> ToolResult[None]:
    """Never called."""
    raise NotImplementedError


PAYING = Tool[None, None](name="pay", description="Pays.", handler=pay, effect=External(not_applied_on=NOT_APPLIED_ON))


@pytest.mark.parametrize("make", PROOFS.values(), ids=PROOFS)
def test_what_is_raised_only_before_the_effect_proves_that_it_was_not_applied(make: Callable[[], Exception]) -> None:
    """The ledger takes it so."""
    assert unknown_because(make(), PAYING) is None


@pytest.mark.parametrize("make", DOUBTS.values(), ids=DOUBTS)
def test_what_is_raised_after_the_effect_proves_nothing(make: Callable[[], Exception]) -> None:
    """And the note of the effect shows that it was raised here."""
    note = unknown_because(make(), PAYING)
    assert note is not None
    assert MARK in note.partition("\n")[0]


def test_every_change_of_an_effect_is_noted(url: str) -> None:
    """With the key, the states before and after, and the fencing token."""
    history.create(url)
    with store.open(url) as kept:
        ledger = EffectLedger(kept)
        claim = ledger.claim(ClaimRequest("", "key", "pay", "hash", lease=timedelta(minutes=1)))
        assert isinstance(claim, Claimed)
        ledger.renew(claim)
        assert ledger.end(claim, NotKnown("read timed out"))
        row = ledger.row("key")
        assert row is not None
        assert ledger.resolve(row, EffectResult("found"))
    assert history.changes_of(url) == [
        Change("key", row.effect_id, "running", "unknown", 2, "", "read timed out"),
        Change("key", row.effect_id, "unknown", "done", 2, "found", ""),
    ]
