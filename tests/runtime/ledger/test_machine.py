"""Random histories of two ledgers over one store, against a model of a page.

What is checked after every step, or with every answer:

- P1: a key has at most one result until it expires or is removed, and every replay shows it.
- P2: of all claims ever given for a key, at most one is valid.
- P3: a claim that is not valid writes nothing.
- What a former owner says changes a row only if it is accepted, and nobody else has started the effect since; what is
  said first stays, and goes with the row.
- P4: where `on_orphan` is `unknown`, a handler starts at most once, until it has failed, has expired or been removed,
  or somebody has found out that it did not happen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from handrail.errors import LeaseLostError, LedgerError
from handrail.prompt.idempotency import OnOrphan
from handrail.runtime.ledger.effects import (
    Busy,
    ClaimAnswer,
    Claimed,
    ClaimRequest,
    Conflict,
    EffectResult,
    Hit,
    NotApplied,
    NotKnown,
)
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.store.protocol import ClaimOwner
from handrail.testing import FakeClock
from tests.extent import examples
from tests.runtime.ledger_calls import stop_renewing
from tests.store.stores import STORES, MakeStore

LEASE, BEAT, TTL, FORGET = (timedelta(hours=hours) for hours in (9, 3, 20, 24))
EXAMPLES = {"memory": 150, "sqlite": 50, "postgres": 15}  # a step costs that much more
KEYS, HASHES = ("k1", "k2"), ("a" * 64, "b" * 64)

ledgers, keys, hashes = st.sampled_from([0, 1]), st.sampled_from(KEYS), st.sampled_from(HASHES)
orphans: st.SearchStrategy[OnOrphan] = st.sampled_from(["unknown", "retry", "reconcile"])


@dataclass(eq=False)
class Given:
    """A claim that was given out, and by which ledger."""

    claim: Claimed
    ledger: int
    beat_at: datetime | None
    lives: bool = True


@dataclass
class Model:
    """What is true of one key."""

    status: Literal["absent", "running", "done", "failed", "unknown"] = "absent"
    fence: int = 0
    params_hash: str = ""
    owner: Given | None = None
    lease_until: datetime | None = None
    expires_at: datetime | None = None
    result: EffectResult | None = None
    starts: int = 0
    retried: bool = False
    given: list[Given] = field(default_factory=list[Given])

    def lapsed(self, now: datetime) -> bool:
        """Whether it is running, its lease has expired, and its owner has given it up."""
        expired = self.lease_until is not None and self.lease_until <= now
        return expired and self.owner is not None and not self.owner.lives

    def at(self, now: datetime) -> Model:
        """This key as a claim sees it: an expired one is absent."""
        return Model(given=self.given) if self.expires_at is not None and self.expires_at <= now else self


class LedgerMachine(RuleBasedStateMachine):
    """Does at random what owners, zombies, people and time do to a ledger."""

    make_store: MakeStore

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        store = type(self).make_store(self.clock)
        self.ledgers = [EffectLedger(store, clock=self.clock) for _ in range(2)]
        self.models = {key: Model() for key in KEYS}
        self.serial = 0

    # ------------------------------------------------------------------------------------------------- claim

    @rule(ledger=ledgers, key=keys, params_hash=hashes, on_orphan=orphans)
    def claim(self, ledger: int, key: str, params_hash: str, on_orphan: OnOrphan) -> None:
        model = self.models[key] = self.models[key].at(self.clock.now())
        request = ClaimRequest("s1", key, "pay", params_hash, self._owner(), LEASE, on_orphan)
        answer = self.ledgers[ledger].claim(request)
        lapsed = model.lapsed(self.clock.now())
        if model.status not in {"absent", "failed"} and model.params_hash != params_hash:
            assert isinstance(answer, Conflict)
        elif model.status in {"absent", "failed"} or (on_orphan == "retry" and (lapsed or model.status == "unknown")):
            model.retried = model.retried or model.status in {"running", "unknown"}
            self._started(model, ledger, answer, params_hash)
        elif model.status == "done":
            assert isinstance(answer, Hit)
            row = answer.row
            assert EffectResult(row.message, row.value, row.exclude_value_from_context) == model.result
        elif model.status == "running" and not lapsed:
            assert isinstance(answer, Busy)
        else:
            assert type(answer).__name__ == "Unknown"
            if lapsed:
                self._lost(model)

    def _owner(self) -> ClaimOwner:
        self.serial += 1
        return ClaimOwner("s1", None, f"call {self.serial}")

    def _started(self, model: Model, ledger: int, answer: ClaimAnswer, params_hash: str) -> None:
        assert isinstance(answer, Claimed)
        given = Given(answer, ledger, self.clock.now() + BEAT)
        model.status, model.params_hash, model.owner = "running", params_hash, given
        model.fence += 1
        model.starts += 1
        model.lease_until, model.expires_at = self.clock.now() + LEASE, None
        model.given.append(given)

    def _lost(self, model: Model) -> None:
        model.status, model.owner, model.lease_until = "unknown", None, None
        model.fence += 1

    # ------------------------------------------------------------------ what those do who hold a claim, or held one

    @rule(key=keys, which=st.integers(0, 9), end=st.sampled_from(["complete", "fail", "unknown", "beat", "give up"]))
    def act(self, key: str, which: int, end: str) -> None:
        model = self.models[key]
        if not model.given:
            return
        given = model.given[-1 - which % len(model.given)]
        ledger, valid = self.ledgers[given.ledger], given is model.owner
        if end == "beat":
            self._beat(model, given, valid=valid)
        elif end == "give up":
            stop_renewing(ledger, given.claim)
            # Then it is removed from its row that this process lives, if that is there.
            given.beat_at = self.clock.now() + BEAT if given.claim.row.owner.process else None
        elif end == "complete":
            self.serial += 1
            result = EffectResult(f"result {self.serial}", str(self.serial).encode())
            assert ledger.end(given.claim, result, ttl=TTL) == valid
            if valid:
                self._ended(model, "done", TTL)
                model.result = result
        elif end == "fail":
            assert ledger.end(given.claim, NotApplied()) == valid
            if valid:
                self._ended(model, "failed", FORGET)
        else:
            assert ledger.end(given.claim, NotKnown("timed out")) == valid
            if valid:
                self._lost(model)
        given.lives = given.lives and end == "beat"
        if end not in {"beat", "give up"}:
            given.beat_at = None

    @rule(key=keys, which=st.integers(0, 9), happened=st.booleans(), accept=st.booleans())
    def settle_late(self, key: str, which: int, happened: bool, accept: bool) -> None:
        model = self.models[key]
        if not model.given:
            return
        given = model.given[-1 - which % len(model.given)]
        ledger, claim = self.ledgers[given.ledger], given.claim
        self.serial += 1
        result = EffectResult(f"late {self.serial}")
        row = ledger.row(key, partition="s1")
        same = row is not None and row.effect_id == claim.row.effect_id
        states = {("running", claim.row.fence), ("unknown", claim.row.fence + 1)}
        settles = accept and same and (model.status, model.fence) in states
        assert ledger.settle_late(claim, result if happened else NotApplied("late"), accept=accept, ttl=TTL) == settles
        if settles:
            model.fence, given.beat_at = claim.row.fence + 1, None
            self._ended(model, "done" if happened else "failed", TTL if happened else FORGET)
            model.result = result if happened else None

    def _beat(self, model: Model, given: Given, *, valid: bool) -> None:
        try:
            self.ledgers[given.ledger].renew(given.claim)
        except LeaseLostError:
            assert not valid
            given.beat_at = None
        else:
            assert valid
            model.lease_until = self.clock.now() + LEASE

    def _ended(self, model: Model, status: Literal["done", "failed"], lasts: timedelta) -> None:
        model.status, model.owner, model.lease_until = status, None, None
        model.expires_at = self.clock.now() + lasts
        if status == "failed":
            model.starts, model.retried = 0, False

    # --------------------------------------------------------------------------------------- what people and time do

    @rule(key=keys, ledger=ledgers, happened=st.booleans())
    def resolve(self, key: str, ledger: int, happened: bool) -> None:
        model, row = self.models[key], self.ledgers[ledger].row(key, partition="s1")
        if row is None:
            return
        lapsed = model.lapsed(self.clock.now())
        corrected = happened and model.status == "done" and model.fence > 1  # it was found, and nothing is applied here
        result = EffectResult("found out")
        try:
            assert self.ledgers[ledger].resolve(row, result if happened else NotApplied("not there"), ttl=TTL)
        except LedgerError:
            assert model.status != "unknown"
            assert not lapsed
            assert not corrected
            return
        assert model.status == "unknown" or lapsed or corrected
        model.fence += lapsed
        self._ended(model, "done" if happened else "failed", TTL if happened else FORGET)
        model.result = result if happened else None

    @rule(key=keys, ledger=ledgers)
    def run_again_what_did_not_happen(self, key: str, ledger: int) -> None:
        model, row = self.models[key], self.ledgers[ledger].row(key, partition="s1")
        if row is None or model.status != "unknown":
            return
        assert self.ledgers[ledger].resolve(row, NotApplied())
        answer = self.ledgers[ledger].claim(ClaimRequest("s1", key, "pay", row.params_hash, self._owner(), LEASE))
        model.starts, model.retried = 0, False
        self._started(model, ledger, answer, row.params_hash)

    @rule(hours=st.integers(1, 30))
    def time_passes(self, hours: int) -> None:
        self.clock.advance(timedelta(hours=hours))

    @rule(ledger=ledgers)
    def signs_are_given(self, ledger: int) -> None:
        now = self.clock.now()
        due = [
            (model, given)
            for model in self.models.values()
            for given in model.given
            if given.ledger == ledger and given.beat_at is not None and given.beat_at <= now
        ]
        assert self.ledgers[ledger].tick() == len(due)
        for model, given in due:
            given.lives = given.lives and given is model.owner
            given.beat_at = now + BEAT if given.lives else None
            if given.lives:
                model.lease_until = now + LEASE

    @rule(ledger=ledgers, key=keys, force=st.booleans())
    def invalidate(self, ledger: int, key: str, force: bool) -> None:
        model = self.models[key]
        try:
            removed = self.ledgers[ledger].invalidate(key, partition="s1", force=force)
        except LedgerError:
            assert not force
            assert model.status in {"running", "unknown"}
            return
        assert force or model.status not in {"running", "unknown"}
        assert removed or model.status == "absent"
        self.models[key] = Model(given=model.given)

    @rule(ledger=ledgers, everything=st.booleans())
    def clean_up(self, ledger: int, everything: bool) -> None:
        if everything:
            self.ledgers[ledger].clear()
        else:
            self.ledgers[ledger].prune_expired()
        for key, model in self.models.items():
            kept = model.at(self.clock.now())
            self.models[key] = Model(given=model.given) if everything and model.status in {"done", "failed"} else kept

    @precondition(lambda self: any(model.status == "done" for model in self.models.values()))
    @rule(ledger=ledgers, key=keys)
    def look_up(self, ledger: int, key: str) -> None:
        model = self.models[key] = self.models[key].at(self.clock.now())
        effect = self.ledgers[ledger].lookup(key, partition="s1")
        assert (effect is not None) == (model.status == "done")
        if effect is not None and model.result is not None:
            assert effect.result_message == model.result.message

    # ---------------------------------------------------------------------------------------------- what is always true

    @invariant()
    def row_is_what_the_model_says(self) -> None:
        for key, model in self.models.items():
            row = self.ledgers[0].row(key, partition="s1")
            if row is None or model.status == "absent":
                assert row is None or model.at(self.clock.now()).status == "absent"
                continue
            assert (row.status, row.fence, row.params_hash) == (model.status, model.fence, model.params_hash)
            assert (row.lease_until, row.expires_at) == (model.lease_until, model.expires_at)
            if row.status == "done":
                assert (row.message, row.value) == (model.result and model.result[:2])

    @invariant()
    def one_start_without_a_decision(self) -> None:
        assert all(model.starts <= 1 or model.retried for model in self.models.values())

    @invariant()
    def one_valid_claim(self) -> None:
        for key, model in self.models.items():
            row = self.ledgers[0].row(key, partition="s1")
            valid = [
                given
                for given in model.given
                if row is not None
                and row.status == "running"
                and (given.claim.row.effect_id, given.claim.row.fence) == (row.effect_id, row.fence)
            ]
            assert valid == ([] if model.owner is None else [model.owner])


@pytest.mark.parametrize("name", STORES)
def test_every_history_keeps_the_promises(name: str) -> None:
    """P1 to P4 hold whatever owners, zombies, people and time do, in whatever order."""
    machine = type("Machine", (LedgerMachine,), {"make_store": staticmethod(STORES[name])})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(EXAMPLES[name]), stateful_step_count=40))
