"""A claim: what is recorded when its call is undone, and what is left to its lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from concurrent.futures import Future
from datetime import timedelta
from itertools import product
from typing import Any, get_args

import pytest

from handrail.errors import (
    EffectNotApplied,
    LeaseLostError,
    RecordingError,
    StoreUnavailableError,
    TransactionClosedError,
)
from handrail.prompt import External, IdempotencyConfig, Tool, ToolResult
from handrail.runtime.failures import HandlerTimeoutError
from handrail.runtime.ledger import claim as claim_module
from handrail.runtime.ledger.claim import ClaimState, EffectClaim
from handrail.runtime.ledger.effects import Unknown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.testing import FakeClock
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.kit import Note, tool
from tests.runtime.ledger_calls import KEY, MINUTE, REQUEST, claimed, prove_nothing
from tests.session.faulty_stores import FaultyStore, faulty

SHARED = IdempotencyConfig(scope="shop", ttl=None)


@pytest.fixture
def failing(clock: FakeClock) -> Generator[FaultyStore]:
    """A store that fails when it is told to."""
    with faulty("memory", clock) as store:
        yield store


def paying(*, accept: bool = False) -> Tool[Any, Any]:
    """An external tool; `accept` is whether a late result settles its effect."""
    return tool("pay", effect=External(accept_late_result=accept), idempotency=SHARED)


def granted(ledger: EffectLedger, pay: Tool[Any, Any] | None = None, *, in_unit: bool = True) -> EffectClaim:
    """The claim of a call of that tool, which records its effect with its commit if nothing else is said."""
    ticket = draw_ticket((), exclusive=True)
    return EffectClaim(ledger, claimed(ledger), pay or paying(), ticket, shares=False, in_unit=in_unit)


def lose(ledger: EffectLedger, clock: FakeClock) -> None:
    """Have another call find that the lease has expired."""
    prove_nothing(ledger.store)
    clock.advance(MINUTE)
    assert isinstance(ledger.claim(REQUEST), Unknown)


def end(claim: EffectClaim, outcome: str) -> None:
    """End the handler with an outcome, and undo the call."""
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        claim.hand_over()
        if outcome == "failed":
            claim.take_error(EffectNotApplied("closed"))
        elif outcome == "done":
            claim.take_result(ToolResult.ok(Note("A"), "charged"))
        elif outcome == "unknown":
            claim.take_error(TimeoutError("no answer"))


def status(ledger: EffectLedger) -> str:
    """The status of the effect."""
    row = ledger.row(KEY)
    assert row is not None
    return row.status


OUTCOMES = ("failed", "done", "unknown")
ENDS = [
    *((outcome, lease, (outcome, outcome == "unknown")) for lease in ("held", "accepted") for outcome in OUTCOMES),
    *((outcome, "lost", ("unknown", True)) for outcome in OUTCOMES),
]
"""How the handler ends, what becomes of its lease, and then the status of the effect, and whether it is unsettled."""


@pytest.mark.parametrize("outcome, lease, settled", ENDS)
def test_a_claim_is_unsettled_unless_its_outcome_is_known_and_recorded(
    ledger: EffectLedger, clock: FakeClock, outcome: str, lease: str, settled: tuple[str, bool]
) -> None:
    """An owner that has lost its lease settles the effect only where its late result is accepted."""
    claim = granted(ledger, paying(accept=lease == "accepted"))
    assert not claim.unsettled
    if lease != "held":
        lose(ledger, clock)
    end(claim, outcome)
    assert (status(ledger), claim.unsettled) == settled


def generator() -> Generator[str]:
    """Pay, once somebody asks for the first item."""
    yield "paid"


@pytest.mark.parametrize("make", [generator, Future])
def test_work_that_has_perhaps_not_been_done_settles_nothing_late(
    ledger: EffectLedger, clock: FakeClock, make: Callable[[], object]
) -> None:
    """A handler that was left behind returns it at last."""
    claim = granted(ledger, paying(accept=True))
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        claim.hand_over()
        claim.take_error(ERRORS["timeout"])
    ended: Future[Any] = Future()
    ended.set_result(ToolResult.ok(make()))
    claim.take_late_outcome(ended)
    assert status(ledger) == "unknown"


def table() -> list[tuple[str, str, str]]:
    """The cells of the first table in the docstring: state, how the call ends, what the row becomes."""
    text = str(claim_module.__doc__).partition("A call that is committed")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    endings, *rows = lines
    return [(state, ending, word) for state, *words in rows for ending, word in zip(endings[1:], words, strict=True)]


ERRORS: dict[str, BaseException] = {
    "refused": EffectNotApplied("closed"),
    "raised": ValueError("not JSON"),
    "timeout": HandlerTimeoutError(paying(), timedelta(seconds=1)),
    "cancelled": asyncio.CancelledError(),
    "Ctrl-C": KeyboardInterrupt(),
    "aborted": GeneratorExit(),
    "store failed": ValueError("not JSON"),
}


@pytest.mark.short(28)
@pytest.mark.parametrize("state, ending, word", table(), ids=str)
def test_row_of_the_table(failing: FaultyStore, clock: FakeClock, state: str, ending: str, word: str) -> None:
    """What the docstring says of a state and an ending is what the row becomes when the call is undone."""
    ledger = EffectLedger(failing, clock=clock)
    claim = granted(ledger, in_unit=state != "recorded")
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        if state != "claimed":
            claim.hand_over()
        if state == "handed over":
            claim.take_error(ERRORS[ending])
        elif state in {"returned", "recorded"}:
            refused = state == "returned" and ending == "refused"
            claim.take_result(ToolResult.error("no money") if refused else ToolResult.ok(Note("A")))
        assert claim.state == state
        if ending == "store failed":
            failing.go_down("replace", "begin")
    failing.come_back()
    assert status(ledger) == ("running" if word == "left" else word)
    assert claim.unsettled == (word in {"left", "unknown"})


def test_the_table_has_every_state_and_every_ending() -> None:
    """Each pair of them stands in it once."""
    pairs = [(state, ending) for state, ending, _ in table()]
    assert sorted(pairs) == sorted(product(get_args(ClaimState), ERRORS))


def test_a_body_that_was_kept_from_starting_never_starts(ledger: EffectLedger) -> None:
    """A thread that comes too late is refused, and the row that says that nothing has happened is right."""
    claim = granted(ledger)
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        pass
    assert status(ledger) == "failed"
    with pytest.raises(TransactionClosedError):
        claim.hand_over()


@pytest.mark.parametrize("in_unit", [False, True], ids=["recorded", "not recorded"])
def test_the_end_of_the_run_says_whether_the_effect_is_recorded(ledger: EffectLedger, in_unit: bool) -> None:
    """One that could not be recorded is left to its lease."""
    claim = granted(ledger, in_unit=in_unit)
    with Transaction("pay", ticket=draw_ticket((), exclusive=True), writes=True, enlisted=claim.enlisted):
        claim.take_result(ToolResult.ok(Note("A")))
        with pytest.raises(RecordingError) as raised:
            claim.check_recorded(StoreUnavailableError("no line", store="postgresql://shop"))
    assert raised.value.effect == ("unknown" if in_unit else "done")


@pytest.mark.parametrize("external", [False, True])
def test_an_effect_that_was_done_under_a_lost_claim_is_logged(
    ledger: EffectLedger, clock: FakeClock, caplog: pytest.LogCaptureFixture, external: bool
) -> None:
    """The row of another owner is not changed."""
    claim = granted(ledger, paying() if external else tool("pay", concurrent=True, idempotency=SHARED))
    lose(ledger, clock)
    with caplog.at_level(logging.ERROR):
        end(claim, "done")
    assert LeaseLostError in [record.exc_info[0] for record in caplog.records if record.exc_info is not None]
    assert claim.unsettled
