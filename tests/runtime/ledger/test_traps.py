"""The traps that caches of results fall into, and what becomes of the ledger where a store fails it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from handrail.errors import LeaseLostError
from handrail.prompt.tool_result import ToolResult
from handrail.runtime.ledger.effects import Conflict, EffectResult, Hit, Unknown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store import EffectRow, LedgerStore
from handrail.testing import FakeClock
from tests.runtime.ledger_calls import KEY, REQUEST, claimed, hit, prove_nothing, record
from tests.store.units import WriteByWrite, delete, insert, replace
from tests.wording import Wording


def test_trap_completed_row_keeps_the_hash_of_the_arguments(ledger: EffectLedger) -> None:
    """A legitimate replay passes the comparison of the arguments, and others do not."""
    ledger.complete(claimed(ledger), EffectResult("made"))
    row = ledger.row(KEY)
    assert row is not None
    assert row.params_hash == REQUEST.params_hash
    assert hit(ledger) == EffectResult("made")
    assert isinstance(ledger.claim(REQUEST._replace(params_hash="0" * 64)), Conflict)


@pytest.mark.parametrize("value", [b"0", b'""', b"[]", b"false", b"{}", b"null"])
def test_trap_falsy_values_replay_as_they_were(ledger: EffectLedger, value: bytes) -> None:
    """A result whose value is false, empty or None is a result."""
    ledger.complete(claimed(ledger), EffectResult("", value, exclude_value_from_context=True))
    assert hit(ledger) == EffectResult("", value, exclude_value_from_context=True)
    assert ledger.lookup(KEY) is not None


def test_trap_value_that_cannot_be_serialised_does_not_block_the_key(ledger: EffectLedger) -> None:
    """The effect has happened, so it is done; only its value is lost, and a replay says so."""
    ledger.complete(claimed(ledger), EffectResult("made", None))
    answer = ledger.claim(REQUEST)
    assert isinstance(answer, Hit)
    assert answer.caveat
    effect = record(ledger, "by hand", result=ToolResult("made", {"lock": object()}))
    assert effect == ledger.lookup("by hand")
    found = ledger.lookup("by hand")
    assert found is not None
    assert (found.result_value, found.value_unavailable) == (None, True)


def test_trap_orphan_is_known_as_one_when_its_lease_has_passed(
    store: LedgerStore, clock: FakeClock, wording: Wording
) -> None:
    """A process that dies does not block its key for the ttl: the next claim is told that nobody knows."""
    died = EffectLedger(store, clock=clock)
    claimed(died)
    prove_nothing(store)
    clock.advance(timedelta(minutes=1))
    answer = EffectLedger(store, clock=clock).claim(REQUEST)
    assert isinstance(answer, Unknown)
    assert answer.row.note == wording


def test_trap_zombie_does_not_overwrite_the_new_owner(ledger: EffectLedger, clock: FakeClock, wording: Wording) -> None:
    """Every write is conditional: the owner that was thought dead is refused, the new one's result stands."""
    zombie = claimed(ledger)
    prove_nothing(ledger.store)
    clock.advance(timedelta(minutes=1))
    owner = claimed(ledger, REQUEST._replace(on_orphan="retry"))
    assert (zombie.fence, owner.fence) == (1, 2)
    assert not ledger.complete(zombie, EffectResult("by the zombie"))
    assert not ledger.fail(zombie)
    with pytest.raises(LeaseLostError) as raised:
        ledger.renew(zombie)
    assert str(raised.value) == wording
    assert ledger.complete(owner, EffectResult("by the owner"))
    assert hit(ledger) == EffectResult("by the owner")


@pytest.mark.parametrize("value", [b'{"cut": ', b"\xff"])
def test_done_row_whose_value_is_not_json_stays_done(store: LedgerStore, ledger: EffectLedger, value: bytes) -> None:
    """Its value is unavailable, as one that could not be stored; the row is untouched."""
    ledger.complete(claimed(ledger), EffectResult("made"))
    done = ledger.row(KEY)
    assert done is not None
    assert replace(store, done, done._replace(value=value))
    found = ledger.lookup(KEY)
    assert found is not None
    assert (found.result_message, found.result_value, found.value_unavailable) == ("made", None, True)
    assert isinstance(ledger.claim(REQUEST), Hit)
    assert ledger.row(KEY) == done._replace(value=value)


@pytest.mark.parametrize("columns", [{"effect_id": "none"}, {"status": "?"}])
def test_corrupt_row_is_unknown_never_absent(
    store: LedgerStore, ledger: EffectLedger, columns: dict[str, Any], wording: Wording
) -> None:
    """An entry that no ledger can have written shows nothing to replay, and is not run again either."""
    ledger.complete(claimed(ledger), EffectResult("made"))
    done = ledger.row(KEY)
    assert done is not None
    delete(store, done)
    insert(store, done._replace(**columns))
    assert ledger.lookup(KEY) is None
    answer = ledger.claim(REQUEST)
    assert isinstance(answer, Unknown)
    assert answer.row.note == wording
    assert ledger.resolve(answer.row, EffectResult("found out"))
    assert hit(ledger) == EffectResult("found out")
    assert ledger.lookup(KEY) is not None


def test_store_that_is_down_holds_the_claim() -> None:
    """Fail closed before the handler; after it, the claim is kept, so that recording can be tried again."""
    clock = FakeClock()
    store = _Moody(clock)
    ledger = EffectLedger(store, clock=clock)
    store.down = True
    with pytest.raises(ConnectionError):
        ledger.claim(REQUEST)
    store.down = False
    claim = claimed(ledger)
    store.down = True
    with pytest.raises(ConnectionError):
        ledger.complete(claim, EffectResult("made"))
    with pytest.raises(ConnectionError):
        ledger.fail(claim)
    store.down = False
    clock.advance(timedelta(seconds=20))
    assert ledger.tick() == 1
    assert ledger.complete(claim, EffectResult("made"))
    clock.advance(timedelta(seconds=20))
    assert ledger.tick() == 0


class _Moody(WriteByWrite):
    """A store that can be down."""

    down = False

    def insert(self, row: EffectRow) -> EffectRow | None:
        self._check()
        return super().insert(row)

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        self._check()
        return super().replace(seen, row)

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)

    def _check(self) -> None:
        if self.down:
            raise ConnectionError("the store is down")


class _Crowded(WriteByWrite):
    """A store in which others are quicker: what stands changes before each of the next writes."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.others: list[EffectRow | None] = []

    def replace(self, seen: EffectRow, row: EffectRow) -> bool:
        self._be_quicker(seen)
        return super().replace(seen, row)

    def delete(self, seen: EffectRow) -> bool:
        self._be_quicker(seen)
        return super().delete(seen)

    def _be_quicker(self, seen: EffectRow) -> None:
        if self.others:
            super().delete(seen)
            other = self.others.pop(0)
            if other is not None:
                super().insert(other)


def test_whoever_is_too_late_decides_anew() -> None:
    """Where another has changed the row between reading and writing, the ledger reads it again."""
    clock = FakeClock()
    store = _Crowded(clock)
    ledger = EffectLedger(store, clock=clock)
    ledger.fail(claimed(ledger))
    failed = ledger.row(KEY)
    assert failed is not None
    done = failed._replace(status="done", fence=2, value=b"1", message="by another")
    store.others = [failed._replace(fence=5), done]
    assert hit(ledger) == EffectResult("by another", b"1")
    store.others = [done._replace(fence=3), None]
    assert not ledger.invalidate(KEY)
    insert(store, failed)
    store.others = [done]
    kept = record(ledger)
    assert kept == ledger.lookup(KEY)
    assert hit(ledger) == EffectResult("by another", b"1")
