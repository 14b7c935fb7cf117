"""The table at the head of `handrail.runtime.ledger.effects`, read and held to the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from handrail.errors import LeaseLostError, LedgerError
from handrail.prompt.tool_result import ToolResult
from handrail.runtime.ledger import effects
from handrail.runtime.ledger.effects import AppliedByHand, Claimed, ClaimRequest, EffectResult, NotApplied, NotKnown
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.serde import digest
from handrail.store.protocol import ClaimOwner, EffectRow, with_proof
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.runtime.ledger_calls import stop_renewing
from tests.store.kit import replace
from tests.store.stores import STORES, MakeStore
from tests.wording import Wording

PARAMS = {"order_id": "7"}
REQUEST = ClaimRequest(
    "", "session:pay:1", "pay", digest(PARAMS), ClaimOwner("s1", None, "call 1"), timedelta(minutes=1)
)
RESULT = EffectResult("paid", b'{"charge":1}')
MINUTE, LONG = timedelta(minutes=1), timedelta(days=2)


@dataclass
class World:
    """A ledger with one key, and the claim of whoever holds it."""

    make_store: MakeStore
    clock: FakeClock = field(default_factory=FakeClock)
    ledger: EffectLedger = field(init=False)
    owner: Claimed = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = EffectLedger(self.make_store(self.clock), clock=self.clock)

    @property
    def row(self) -> EffectRow | None:
        return self.ledger.row(REQUEST.key)

    def claim(self) -> None:
        self.owner = cast("Claimed", self.ledger.claim(REQUEST))
        stop_renewing(self.ledger, self.owner)

    def seen(self) -> EffectRow:
        assert self.row is not None
        return self.row

    def put(self, **columns: Any) -> None:
        self.claim()
        assert replace(self.ledger.store, self.owner.row, self.owner.row._replace(**columns))


@pytest.fixture(params=STORES.values(), ids=list(STORES))
def world(request: pytest.FixtureRequest) -> World:
    """A ledger over each kind of store."""
    return World(request.param)


def _lapse(world: World) -> None:
    world.claim()
    world.clock.advance(MINUTE)


def _complete(world: World) -> None:
    world.claim()
    assert world.ledger.end(world.owner, RESULT)


def _expire(world: World) -> None:
    _complete(world)
    world.clock.advance(LONG)


def _fail(world: World) -> None:
    world.claim()
    assert world.ledger.end(world.owner, NotApplied("refused"))


def _lose(world: World) -> None:
    world.claim()
    assert world.ledger.end(world.owner, NotKnown("timed out"))


STATES: dict[str, Callable[[World], None]] = {
    "absent": lambda world: None,
    "running": World.claim,
    "lapsed": _lapse,
    "done": _complete,
    "expired": _expire,
    "failed": _fail,
    "unknown": _lose,
}


def _claim_with(**changed: Any) -> Callable[[World], object]:
    return lambda world: world.ledger.claim(REQUEST._replace(**changed))


def _record_with(params: object) -> Callable[[World], object]:
    def record(world: World) -> object:
        result = ToolResult("recorded", {"charge": 2})
        return bool(
            world.ledger.record(idempotency_key=REQUEST.key, tool_name="pay", params=params, result=result, ttl=MINUTE)
        )

    return record


def _renew(world: World) -> object:
    world.ledger.renew(world.owner)
    return world.seen().lease_until == world.clock.now() + REQUEST.lease


def _apply(world: World) -> object:
    mark = effects.mark_applied(world.seen(), now=world.clock.now())
    return world.ledger.store.apply(UnitOfWork((mark,))) is None and world.seen().applied_at == world.clock.now()


def _found_dead(world: World) -> object:
    return replace(world.ledger.store, world.seen(), with_proof(world.seen(), False, world.clock.now()))


def _found_alive(world: World) -> object:
    return replace(world.ledger.store, world.seen(), with_proof(world.seen(), True, world.clock.now()))


def _settle_late(
    finding: EffectResult | NotApplied = RESULT, *, accept: bool = True, earlier: bool = False
) -> Callable[[World], object]:
    """The owner has learnt the outcome; or the one before it, which was another call."""

    def settle(world: World) -> str:
        if world.row is None:
            world.claim()
            world.ledger.invalidate(REQUEST.key, force=True)
        claim = world.owner
        if earlier:
            row = claim.row._replace(fence=claim.row.fence - 1, owner=ClaimOwner("s1", None, "call 0"))
            claim = Claimed(row, claim.lease, None)
        return "settled" if world.ledger.settle_late(claim, finding, accept=accept) else "logged"

    return settle


def _give_up(world: World) -> object:
    stop_renewing(world.ledger, world.owner)
    return True


EVENTS: dict[str, Callable[[World], object]] = {
    "claim": _claim_with(),
    "claim, retry": _claim_with(on_orphan="retry"),
    "claim, unknown": _claim_with(on_orphan="unknown"),
    "claim, reconcile": _claim_with(on_orphan="reconcile"),
    "claim, other arguments": _claim_with(params_hash="0" * 64),
    "claim, any arguments": _claim_with(params_hash="0" * 64, replays_other_arguments=True),
    "claim, other tool": _claim_with(tool="refund"),
    "renew": _renew,
    "owner found dead": _found_dead,
    "owner found alive": _found_alive,
    "complete": lambda world: world.ledger.end(world.owner, RESULT),
    "apply": _apply,
    "fail": lambda world: world.ledger.end(world.owner, NotApplied()),
    "mark unknown": lambda world: world.ledger.end(world.owner, NotKnown("timed out")),
    "give up": _give_up,
    "resolve: it happened": lambda world: world.ledger.resolve(world.seen(), RESULT),
    "resolve: it did not": lambda world: world.ledger.resolve(world.seen(), NotApplied("no charge found")),
    "resolve: applied by hand": lambda world: world.ledger.resolve(world.seen(), AppliedByHand("ada has booked it")),
    "record": _record_with(PARAMS),
    "record, other arguments": _record_with({"order_id": "8"}),
    "invalidate": lambda world: world.ledger.invalidate(REQUEST.key),
    "invalidate by force": lambda world: world.ledger.invalidate(REQUEST.key, force=True),
    "prune": lambda world: world.ledger.prune_expired() >= 0,
    "look up": lambda world: world.ledger.lookup(REQUEST.key),
    "settle late": _settle_late(),
    "settle late, did not": _settle_late(NotApplied("refused")),
    "settle late, declined": _settle_late(accept=False),
    "settle late, earlier one": _settle_late(earlier=True),
}


def answer_of(world: World, event: str) -> str:
    """What the ledger says to an event, in the words of the table."""
    try:
        answer = EVENTS[event](world)
    except LedgerError:
        return "error"
    except LeaseLostError:
        return "refused"
    if event == "look up":
        return "nothing" if answer is None else "effect"
    if isinstance(answer, bool):
        return "kept" if answer else "refused"
    if isinstance(answer, str):
        return answer
    return type(answer).__name__.lower()


def becomes(before: EffectRow | None, after: EffectRow | None, words: str, now: datetime) -> bool:
    """Whether a row has become what the table says."""
    if words == "as it was":
        return after == before
    if words == "absent" or after is None:
        return words == "absent" and after is None
    status, fence = words.split(", ")
    if after.status != status:
        return False
    if fence == "fence 1":
        return after.fence == 1 and (before is None or after.effect_id != before.effect_id)
    assert before is not None
    if fence == "lapsed":
        same = after == before._replace(lease_until=after.lease_until, note=after.note)
        return same and effects.lease_expired(after, now)
    same_effect = after.effect_id == before.effect_id and after.created_at == before.created_at
    return same_effect and after.fence == before.fence + {"same": 0, "fence + 1": 1}[fence]


def table() -> list[tuple[str, ...]]:
    """The rows of the table in the docstring."""
    between_rules = re.split(r"^    =[ =]+$", str(effects.__doc__), flags=re.MULTILINE)
    return [tuple(re.split(r" {2,}", line.strip())) for line in between_rules[2].strip().splitlines()]


@pytest.mark.short(78)  # each row once
@pytest.mark.parametrize("state, event, words, answer", table(), ids=[": ".join(row[:2]) for row in table()])
def test_row_of_the_table(world: World, state: str, event: str, words: str, answer: str) -> None:
    """What the docstring says of a state and an event is what the ledger does, and says."""
    STATES[state](world)
    before = world.row
    assert answer_of(world, event) == answer
    assert becomes(before, world.row, words, world.clock.now()), world.row


def test_table_leaves_nothing_out() -> None:
    """Every state and every event stand in it, each pair once, and every state says what becomes of a claim."""
    pairs = [(state, event) for state, event, _, _ in table()]
    assert (len(pairs), {state for state, _ in pairs}) == (len(set(pairs)), set(STATES))
    assert {event for _, event in pairs} == set(EVENTS)
    assert {state for state, event in pairs if event.split(",")[0] == "claim"} == set(STATES)


def test_failed_row_expires_too(world: World) -> None:
    """What is known not to have happened may be forgotten after a day."""
    _fail(world)
    world.clock.advance(timedelta(days=1))
    assert world.ledger.prune_expired() == 1
    assert world.row is None


def test_finding_about_an_earlier_start_does_not_count(world: World) -> None:
    """What was found out of one start says nothing of the next: it is refused, and the row stays."""
    _lose(world)
    looked_into = world.seen()
    assert world.ledger.resolve(looked_into, NotApplied())
    again = world.ledger.claim(REQUEST)
    assert isinstance(again, Claimed)
    world.ledger.end(again, NotKnown("timed out again"))
    before = world.seen()
    assert not world.ledger.resolve(looked_into, NotApplied())
    assert world.seen() == before


def refusal(act: Callable[[], object]) -> LedgerError:
    """What the ledger raises."""
    with pytest.raises(LedgerError) as raised:
        act()
    return raised.value


def test_errors_say_what_to_do(world: World, wording: Wording) -> None:
    """A refusal names the key, its state and the cure."""
    world.claim()
    refused = refusal(lambda: world.ledger.invalidate(REQUEST.key))
    assert (str(refused), refused.key, refused.status) == (wording, REQUEST.key, "running")
    assert str(refusal(lambda: world.ledger.resolve(world.seen(), RESULT))) == wording
    assert str(refusal(lambda: EVENTS["record"](world))) == wording
    world.ledger.end(world.owner, RESULT)
    assert str(refusal(lambda: world.ledger.resolve(world.seen(), RESULT))) == wording
    assert str(refusal(lambda: EVENTS["record, other arguments"](world))) == wording
