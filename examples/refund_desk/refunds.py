"""Looking orders up and paying refunds: two tools, the policy that judges them, and the supervisor whom it may ask."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any

from handrail import tool
from handrail.errors import EffectUncertain
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    External,
    PolicyDecision,
    Tool,
    ToolContext,
    ToolExample,
    ToolResult,
)
from handrail.resources import Resource
from handrail.runtime import IdempotencyConfig
from payments import Payments
from shop import Order, Shop, euros

LEASE = timedelta(seconds=2)
"""How long a desk that gives no sign is believed to be paying. A desk that lives gives signs by itself; two seconds are
for an audience, a desk that nobody watches may take a minute."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds at the desk; the prompt states it, and policies and tools keep to it.

    Attributes:
        day: the day that reports are dated with.
        ask_above_cents: above this a supervisor is asked.
        never_above_cents: above this the desk does not pay at all.
    """

    day: date
    ask_above_cents: int = 20_000
    never_above_cents: int = 100_000


@dataclass(frozen=True, slots=True)
class Refund:
    """A refund that was paid. It is the value of a result, so it goes into the session's slice of refunds."""

    refund_id: str
    order_id: str
    amount_cents: int

    def render(self) -> str:
        """What the model reads."""
        return f"{self.order_id}: {euros(self.amount_cents)} refunded, {self.refund_id}"


@tool(
    effect="read",  # so the calls of one reply run beside each other
    examples=[
        ToolExample(
            description="An order that the shop knows",
            input={"order_id": "A-1001"},
            output=Order("A-1001", "Müller, Zoë", "wine glasses, set of 6", 4_990, "shipped"),
        )
    ],
)
def lookup_order(order_id: str, *, shop: Shop) -> ToolResult[Order]:
    """Look an order up in the shop: customer, item, what was paid, and its status.

    Args:
        order_id: Number of the order, e.g. A-1001
    """
    order = shop.order(order_id)
    if order is None:
        return ToolResult.error(f"The shop has no order {order_id}. Do not guess another number.")
    return ToolResult.ok(order)


def find_refund(_params: object, key: str, *, context: ToolContext) -> ToolResult[Refund] | None:
    """Ask the service by the key of a refund, when an answer was lost or a desk died while it paid.

    A refund that it does not have is not paid, unless its answer was lost a moment ago: that may still be on its way,
    so its outcome is unknown until the next look.
    """
    paid = context.resources.get(Payments).find(key)
    return None if paid is None else ToolResult.ok(Refund(paid.refund_id, paid.order_id, paid.amount_cents))


# It changes the world, so the ledger sees to it that each order is refunded once. The key is made from the order alone:
# the same refund asked for again is answered from the ledger. Another amount for the same order is refused: the first
# refund is not an answer to it. The scope is the shop, not the session: another agent on this ledger would find the
# refund too.
@tool(
    effect=External(on_orphan="reconcile", reconcile=find_refund, lease=LEASE),
    idempotency=IdempotencyConfig(
        strategy="params",
        param_keys=("order_id",),
        scope="shop",
        ttl=timedelta(days=365),
        on_other_arguments="refuse",
    ),
    examples=[
        ToolExample(
            description="Pay 49.90 EUR back",
            input={"order_id": "A-1001", "amount_cents": 4_990},
            output=Refund("rf-001", "A-1001", 4_990),
        )
    ],
)
def issue_refund(
    order_id: str, amount_cents: int, *, payments: Annotated[Payments, Resource], context: ToolContext
) -> Refund:
    """Pay money back for an order. Each order is refunded at most once.

    Args:
        order_id: Number of the order, e.g. A-1001
        amount_cents: What to pay back, in euro cents
    """
    try:
        # The key names this effect; the service gets it too.
        paid = payments.pay(order_id, amount_cents, key=context.idempotency_key or "")
    except ConnectionError as error:
        raise EffectUncertain(f"{error}, so nobody knows yet whether {order_id} was refunded") from error
    return Refund(paid.refund_id, paid.order_id, paid.amount_cents)


@dataclass(frozen=True, slots=True)
class RefundRules:
    """The policy of the desk: what the shop does not know or did not sell is refused, large amounts are asked about."""

    name: str = "refund_rules"

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401 - of any tool
        """Judge a refund by the shop and the rules; other tools pass."""
        if tool.name != "issue_refund":
            return PolicyDecision.allow()
        order = context.resources.get(Shop).order(params.order_id)
        if order is None:
            return PolicyDecision.deny(f"the shop has no order {params.order_id}. Refuse the request.")
        if order.status == "refunded":
            return PolicyDecision.deny(f"{order.order_id} was refunded before today. Refuse the request.")
        return _judge_amount(params.amount_cents, order, context.resources.get(Rules))

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Nothing is remembered: the shop and the ledger know it all."""


def _judge_amount(cents: int, order: Order, rules: Rules) -> PolicyDecision:
    if not 0 < cents <= order.paid_cents:
        return PolicyDecision.deny(
            f"{order.order_id} was paid with {order.paid_cents} cents, so {cents} cents cannot be refunded."
        )
    if cents > rules.never_above_cents:
        return PolicyDecision.deny(
            f"{euros(cents)} is more than the desk may pay ({euros(rules.never_above_cents)}). Refuse the request and "
            "say that a person will look into it."
        )
    if cents > rules.ask_above_cents:
        return PolicyDecision.ask(f"Refund {euros(cents)} for {order.order_id} ({order.item}, {order.status})?")
    return PolicyDecision.allow()


@dataclass(frozen=True, slots=True)
class Supervisor:
    """Answers what the policy asks, by a rule: large refunds are paid for goods that are lost or have come back."""

    shop: Shop

    def __call__(self, request: ApprovalRequest) -> Approval:
        """The answer for one refund."""
        order = self.shop.order(request.params.order_id)
        if order is not None and order.status in {"lost", "returned"}:
            return Approval(approved=True)
        return Approval(approved=False, reason="the goods are neither lost nor back")
