"""The store that the commands of `docs/reference/command-line.md` are run over: an evening at a refund desk."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from handrail import store as stores
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import EffectUncertain
from handrail.prompt import IdempotencyConfig, Prompt, PromptTemplate, Tool, ToolContext, ToolResult, ToolsSection
from handrail.runtime import EffectLedger, ToolCall
from handrail.runtime.ledger.effects import ClaimRequest
from handrail.session import Session, stored_as
from handrail.store.protocol import ClaimOwner
from handrail.testing import FakeClock

_EVENING = datetime(2026, 1, 5, 20, 0, tzinfo=UTC)
_CALLS = (("mail", "A-0"), ("refund", "A-1"), ("refund", "A-2"))
_ONCE = IdempotencyConfig(ttl=None)
_DAY = IdempotencyConfig()


@stored_as("night-desk.refund")
@dataclass(frozen=True)
class Refund:
    order: str
    cents: int

    def render(self) -> str:
        return f"{self.order}: {self.cents} cents"


def _refund(params: Refund, *, context: ToolContext) -> ToolResult[Refund]:
    if params.order == "A-2":
        raise EffectUncertain("the bank has not answered")
    return ToolResult.ok(params, f"{params.order} is refunded")


def _mail(params: Refund, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(f"the customer of {params.order} has mail")


_TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool[Refund, Refund](name="refund", description="Refunds.", handler=_refund, effect="external", idempotency=_ONCE),
    Tool[Refund, str](name="mail", description="Mails.", handler=_mail, effect="external", idempotency=_DAY),
)


def fill(url: str) -> None:
    """A mail that has expired since, a refund, one that is in doubt, and one whose process died."""
    clock, numbers = FakeClock(_EVENING), count(1)
    with stores.open(url, clock=clock) as store, Session.open(store, "night-desk", tags={"shift": "late"}) as session:
        ledger = EffectLedger(store, clock=clock, new_id=lambda: f"{next(numbers):032x}")
        template = PromptTemplate(ns="docs", key="night", sections=[ToolsSection(title="Desk", tools=_TOOLS)])
        desk = ToolExecutor(prompt=Prompt(template), session=session, effect_ledger=ledger, clock=clock)
        for number, (tool, order) in enumerate(_CALLS, 1):
            clock.advance(timedelta(hours=1))
            arguments = {"order": order, "cents": 500}
            # A person has put the amount right before the refund was made.
            written = {"order": order, "cents": 50_000} if order == "A-2" else None
            desk.execute(ToolCall(f"call-{number}", tool, arguments, written))
        key = _ONCE.effect_key("refund", Refund("A-3", 500), session_id="night-desk")
        assert key is not None
        clock.advance(timedelta(hours=1))
        owner = ClaimOwner("night-desk", None, "call-4")
        recorded = b'{"order":"A-3","cents":500}'
        ledger.claim(ClaimRequest(key.partition, key.key, "refund", key.params_hash, owner, arguments=recorded))
