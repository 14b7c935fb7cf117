"""What an owner says of its effect after it has lost it, over every store; and where a store fails or others write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from handrail.errors import StoreUnavailableError
from handrail.runtime.effect_states import possible_duplicate
from handrail.runtime.effects import Claimed, EffectResult, NotApplied, NotKnown
from handrail.runtime.ledger import EffectLedger
from handrail.store import ClaimOwner, EffectRow, LedgerStore, MemoryLedgerStore
from handrail.testing import FakeClock
from tests.runtime.ledger_calls import KEY, MINUTE, REQUEST, RESULT, claimed, hit
from tests.session.faulty_stores import faulty

OTHER = REQUEST._replace(owner=ClaimOwner("s1", "reply 2", "call 1"), on_orphan="retry")
SAID = [RESULT, NotApplied("refused"), NotKnown("no answer came")]


@pytest.fixture
def lost(ledger: EffectLedger) -> Claimed:
    """The claim of an owner whose handler was left behind: the effect is unknown."""
    claim = claimed(ledger)
    assert ledger.mark_unknown(claim, "its handler overran its time")
    return claim


def standing(ledger: EffectLedger) -> EffectRow:
    """The row, which must be there."""
    row = ledger.row(KEY)
    assert row is not None
    return row


def errors(caplog: pytest.LogCaptureFixture, level: int = logging.ERROR) -> list[str]:
    """What was logged at a level or above."""
    return [record.getMessage() for record in caplog.records if record.levelno >= level]


def test_accepted_testimony_is_the_answer(ledger: EffectLedger, lost: Claimed, clock: FakeClock) -> None:
    """The effect is done under the fencing token that stands, and its result is replayed for as long as said."""
    clock.advance(MINUTE)
    result = EffectResult("paid", b"null", exclude_value_from_context=True)
    assert ledger.testify(lost, result, accept=True, ttl=MINUTE) == "accepted"
    assert hit(ledger) == result
    row = standing(ledger)
    assert (row.fence, row.completed_at, row.expires_at) == (2, clock.now(), clock.now() + MINUTE)
    (testimony,) = ledger.testimony(row)
    assert (testimony.fence, testimony.given_at, testimony.status, testimony.note) == (1, clock.now(), "done", "")
    assert testimony[4:7] == result


def test_effect_that_surely_did_not_happen_may_run_again(ledger: EffectLedger, lost: Claimed) -> None:
    """Testimony that an effect failed is accepted too."""
    assert ledger.testify(lost, NotApplied("refused"), accept=True) == "accepted"
    assert (standing(ledger).status, standing(ledger).note) == ("failed", "refused")
    assert claimed(ledger).fence == 3


@pytest.mark.parametrize("said", SAID, ids=lambda said: type(said).__name__)
def test_testimony_that_is_not_accepted_changes_nothing(
    ledger: EffectLedger, lost: Claimed, caplog: pytest.LogCaptureFixture, said: Any
) -> None:
    """It is stored and can be read beside the row."""
    before = standing(ledger)
    assert ledger.testify(lost, said, accept=False) == "kept"
    assert standing(ledger) == before
    (testimony,) = ledger.testimony(before)
    assert testimony.status == {EffectResult: "done", NotApplied: "failed", NotKnown: "unknown"}[type(said)]
    assert testimony.note == getattr(said, "why", "")
    assert not possible_duplicate(before, testimony)
    assert errors(caplog) == []


# ----------------------------------------------------------------------------------------- another owner has started


def _retried(ledger: EffectLedger, clock: FakeClock) -> None:
    """Another owner takes the effect over when the lease has passed."""
    clock.advance(MINUTE)
    claimed(ledger, OTHER)


def _retried_and_done(ledger: EffectLedger, clock: FakeClock) -> None:
    clock.advance(MINUTE)
    assert ledger.complete(claimed(ledger, OTHER), RESULT)


def _found_out_and_run_again(ledger: EffectLedger, clock: FakeClock) -> None:
    """The same call, after its effect was found not to have happened."""
    clock.advance(MINUTE)
    ledger.claim(REQUEST)
    assert isinstance(ledger.reclaim(standing(ledger), REQUEST), Claimed)


def _found_not_to_have_happened(ledger: EffectLedger, clock: FakeClock) -> None:
    clock.advance(MINUTE)
    assert ledger.resolve(standing(ledger), NotApplied("no charge found"))


STARTS: dict[str, Callable[[EffectLedger, FakeClock], None]] = {
    "running": _retried,
    "done": _retried_and_done,
    "running again": _found_out_and_run_again,
    "failed": _found_not_to_have_happened,
}


@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_done_effect_that_another_owner_may_do_is_a_possible_duplicate(
    ledger: EffectLedger,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    start: Callable[[EffectLedger, FakeClock], None],
    accept: bool,
) -> None:
    """It is stored, logged at ERROR with key, tool and fencing tokens, and known by what is stored; the row stays."""
    witness = claimed(ledger)
    ledger.give_up(witness)
    start(ledger, clock)
    row = standing(ledger)
    assert ledger.testify(witness, RESULT, accept=accept) == "duplicate"
    assert standing(ledger) == row
    (testimony,) = ledger.testimony(row)
    assert possible_duplicate(row, testimony)
    assert testimony.note == f"the effect was {row.status} under fence {row.fence} by then"
    (logged,) = errors(caplog)
    assert all(word in logged for word in (KEY, "pay", "fence 1", f"fence {row.fence}"))


@pytest.mark.parametrize("said", SAID[1:], ids=lambda said: type(said).__name__)
def test_what_is_not_said_to_be_done_is_no_duplicate(
    ledger: EffectLedger, clock: FakeClock, caplog: pytest.LogCaptureFixture, said: Any
) -> None:
    """Whoever else has started the effect."""
    witness = claimed(ledger)
    ledger.give_up(witness)
    _retried(ledger, clock)
    assert ledger.testify(witness, said, accept=True) == "kept"
    assert not possible_duplicate(standing(ledger), ledger.testimony(standing(ledger))[0])
    assert errors(caplog) == []


def test_effect_that_was_found_done_is_no_duplicate(
    ledger: EffectLedger, lost: Claimed, caplog: pytest.LogCaptureFixture
) -> None:
    """A person or the other side has said so before: nobody has started it anew."""
    assert ledger.resolve(standing(ledger), EffectResult("found on the account"))
    assert ledger.testify(lost, RESULT, accept=True) == "kept"
    assert hit(ledger) == EffectResult("found on the account")
    assert not possible_duplicate(standing(ledger), ledger.testimony(standing(ledger))[0])
    assert errors(caplog) == []


def test_testimony_becomes_a_possible_duplicate_when_the_effect_is_started_again(
    ledger: EffectLedger, lost: Claimed
) -> None:
    """Although nobody heeded it: it is judged by the row as it stands."""
    assert ledger.testify(lost, RESULT, accept=False) == "kept"
    assert ledger.complete(cast("Claimed", ledger.reclaim(standing(ledger), REQUEST)), RESULT)
    assert possible_duplicate(standing(ledger), ledger.testimony(standing(ledger))[0])


# ------------------------------------------------------------------------------------------- the entry has been removed


def _removed(ledger: EffectLedger) -> None:
    ledger.invalidate(KEY, force=True)


def _claimed_anew(ledger: EffectLedger) -> None:
    ledger.invalidate(KEY, force=True)
    claimed(ledger, OTHER)


@pytest.mark.parametrize("remove", [_removed, _claimed_anew])
@pytest.mark.parametrize("said", SAID, ids=lambda said: type(said).__name__)
def test_testimony_about_an_effect_whose_entry_was_removed_is_dropped(
    ledger: EffectLedger,
    lost: Claimed,
    caplog: pytest.LogCaptureFixture,
    said: Any,
    remove: Callable[[EffectLedger], None],
) -> None:
    """Nothing is stored that nobody could find or remove; that the effect was done is logged."""
    before = standing(ledger)
    remove(ledger)
    assert ledger.testify(lost, said, accept=True) == "dropped"
    assert ledger.testimony(before) == ()
    logged = errors(caplog, logging.WARNING)
    assert len(logged) == (said is RESULT)
    assert errors(caplog) == []


def test_testimony_goes_when_its_effect_has_expired(ledger: EffectLedger, lost: Claimed, clock: FakeClock) -> None:
    """Removed by a claim, as by pruning."""
    ledger.testify(lost, RESULT, accept=True, ttl=MINUTE)
    before = standing(ledger)
    clock.advance(MINUTE)
    assert claimed(ledger).effect_id != lost.effect_id
    assert ledger.testimony(before) == ()


# -------------------------------------------------------------------------------------------------------- the first one


def test_only_the_first_testimony_counts(ledger: EffectLedger, lost: Claimed) -> None:
    """A later one that says something else is answered by the first."""
    assert ledger.testify(lost, NotKnown("no answer came"), accept=True) == "kept"
    assert ledger.testify(lost, RESULT, accept=True) == "kept"
    assert standing(ledger).status == "unknown"
    (testimony,) = ledger.testimony(standing(ledger))
    assert testimony.status == "unknown"


def test_testimony_that_was_stored_may_be_accepted_later(ledger: EffectLedger) -> None:
    """As where it came before the effect was marked unknown; it is accepted as it was given first."""
    claim = claimed(ledger)
    assert ledger.testify(claim, RESULT, accept=True) == "kept"
    assert ledger.mark_unknown(claim, "its handler overran its time")
    assert ledger.testify(claim, EffectResult("paid again"), accept=True) == "accepted"
    assert hit(ledger) == RESULT


@pytest.mark.parametrize("said", SAID[:2], ids=lambda said: type(said).__name__)
def test_testimony_that_was_accepted_is_accepted_again(
    ledger: EffectLedger, lost: Claimed, clock: FakeClock, said: Any
) -> None:
    """Its answer may have been lost on the way; nothing is written anew."""
    assert ledger.testify(lost, said, accept=True) == "accepted"
    row = standing(ledger)
    clock.advance(MINUTE)
    assert ledger.testify(lost, said, accept=True) == "accepted"
    assert standing(ledger) == row


# ----------------------------------------------------------------------------- a store that fails, others that write


@dataclass
class Left:
    """A ledger over a store that may fail, and the claim of an owner whose effect is unknown."""

    ledger: EffectLedger
    claim: Claimed


def _left(store: LedgerStore, clock: FakeClock) -> Left:
    ledger = EffectLedger(store, clock=clock)
    claim = claimed(ledger)
    ledger.mark_unknown(claim, "its handler overran its time")
    return Left(ledger, claim)


@pytest.mark.parametrize("point", ["begin", "replace", "testify", "commit", "committed"])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_testimony_and_what_it_resolves_are_one_unit(clock: FakeClock, kind: str, point: Any) -> None:
    """If the store fails, both are there or neither is, and it can be tried again."""
    with faulty(kind, clock) as store:
        left = _left(store, clock)
        store.lose(point)
        with pytest.raises(StoreUnavailableError):
            left.ledger.testify(left.claim, RESULT, accept=True)
        row = standing(left.ledger)
        both = (row.status, len(left.ledger.testimony(row)))
        assert both == (("done", 1) if point == "committed" else ("unknown", 0))
        assert left.ledger.testify(left.claim, RESULT, accept=True) == "accepted"
        assert (standing(left.ledger).status, len(left.ledger.testimony(row))) == ("done", 1)


def _elsewhere(work: Callable[[], object]) -> Callable[[], None]:
    """Do something in another thread, outside the unit that is open here."""

    def run() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    return run


def test_row_that_changes_meanwhile_is_judged_anew(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    """Where transactions write beside each other: another owner that was quicker makes it a duplicate."""
    with faulty("postgres", clock) as store:
        left = _left(store, clock)
        row = standing(left.ledger)
        quicker = row._replace(status="running", fence=3, lease_until=clock.now() + timedelta(days=1))
        store.at("replace", _elsewhere(lambda: store.replace(row, quicker)))
        assert left.ledger.testify(left.claim, RESULT, accept=True) == "duplicate"
        assert standing(left.ledger) == quicker
        assert len(left.ledger.testimony(row)) == 1
        assert len(errors(caplog)) == 1


def test_testimony_that_is_given_meanwhile_is_the_first(clock: FakeClock) -> None:
    """What the slower one would have resolved is undone, and it is answered by the first."""
    with faulty("postgres", clock) as store:
        left = _left(store, clock)
        ledger = EffectLedger(store, clock=clock)
        quicker = NotKnown("no answer came")
        store.at("testify", _elsewhere(lambda: ledger.testify(left.claim, quicker, accept=False)))
        assert left.ledger.testify(left.claim, RESULT, accept=True) == "kept"
        row = standing(left.ledger)
        assert row.status == "unknown"
        assert [each.note for each in left.ledger.testimony(row)] == ["no answer came"]


class _WithoutUnits:
    """A store in memory that has no units of work."""

    def __init__(self, clock: FakeClock) -> None:
        self._store = MemoryLedgerStore(clock=clock)

    def __getattr__(self, name: str) -> Any:
        if name == "unit":
            raise AttributeError(name)
        return getattr(self._store, name)


def test_store_without_units_takes_testimony_too(clock: FakeClock) -> None:
    """The row is written first, so that what is accepted is never lost."""
    store = cast("LedgerStore", _WithoutUnits(clock))
    left = _left(store, clock)
    assert left.ledger.units is None
    assert left.ledger.testify(left.claim, RESULT, accept=True) == "accepted"
    assert hit(left.ledger) == RESULT
    assert len(left.ledger.testimony(standing(left.ledger))) == 1
