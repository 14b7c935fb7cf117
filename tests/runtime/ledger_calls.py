"""One effect, and short ways to ask a ledger for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from handrail.prompt.tool_result import ToolResult
from handrail.runtime import EffectLedger, ToolEffect
from handrail.runtime.ledger.effects import Busy, Claimed, ClaimRequest, EffectResult, Hit
from handrail.serde import digest
from handrail.store.locks import LIVE_CLAIMS
from handrail.store.protocol import ClaimOwner, LedgerStore


@dataclass(frozen=True)
class Payment:
    order_id: str


MINUTE = timedelta(minutes=1)
KEY = "session:pay:abc123def456"
PAYMENT = Payment("7")
REQUEST = ClaimRequest("", KEY, "pay", digest(PAYMENT), ClaimOwner("s1", "reply 1", "call 1"), MINUTE)
RESULT = EffectResult("paid", b'{"charge":1}')


def prove_nothing(store: LedgerStore) -> None:
    """Make all owners such as run on another machine, of whom neither life nor death is proved: their leases decide."""
    for row in store.rows():
        LIVE_CLAIMS.pop((row.effect_id, row.fence), None)


def stop_renewing(ledger: EffectLedger, claim: Claimed) -> None:
    """Leave a claim to its lease, although its process lives, and its call to be refused meanwhile."""
    ledger.leases.abandon(claim)
    ledger.leave_running(claim)


def claimed(ledger: EffectLedger, request: ClaimRequest = REQUEST) -> Claimed:
    """The claim, which must be granted."""
    answer = ledger.claim(request)
    assert isinstance(answer, Claimed)
    return answer


def busy(ledger: EffectLedger, request: ClaimRequest = REQUEST) -> Busy:
    """What whoever claims is told while another owner is at work, which must be so."""
    answer = ledger.claim(request)
    assert isinstance(answer, Busy)
    return answer


def hit(ledger: EffectLedger, request: ClaimRequest = REQUEST) -> EffectResult:
    """The result of the effect, which must have happened."""
    answer = ledger.claim(request)
    assert isinstance(answer, Hit)
    return EffectResult(answer.row.message, answer.row.value, answer.row.exclude_value_from_context)


def record(ledger: EffectLedger, key: str = KEY, **changed: Any) -> ToolEffect | None:
    """What the ledger keeps of a result that is recorded by hand."""
    arguments: dict[str, Any] = {"tool_name": "pay", "params": PAYMENT, "result": ToolResult("paid", PAYMENT)}
    return ledger.record(idempotency_key=key, **{**arguments, **changed})
