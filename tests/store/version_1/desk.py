"""The desk whose stores lie beside this module: the values that its sessions hold, and its tools.

The names given by `stored_as`, the names of the tools, their keys and their fields are in the files: they stay as they
are, whatever becomes of the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

from handrail.adapters.tool_executor import ToolExecutor
from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.limits import RunContext
from handrail.prompt import IdempotencyConfig, Prompt, PromptTemplate, Tool, ToolContext, ToolResult, ToolsSection
from handrail.runtime import EffectLedger, Session
from handrail.session import SlicePolicy, reducer, stored_as

START = datetime(2024, 3, 4, 9, tzinfo=UTC)
"""When the first session of the files was created; everything in them happened in the hour after it."""

JOURNAL = "00000000000000000000000000000abc"
"""The journal of files of which the store knows that its call was committed."""

RUN = RunContext(run_id="run-1", request_id="request-1", session_id="desk", attempt=2, worker_id="till")
"""The correlation ids that every call of the session `desk` carries."""


class Payment(Enum):
    """How an order is paid."""

    CARD = "card"
    CASH = "cash"


@stored_as("version-1.line")
@dataclass(frozen=True, slots=True)
class Line:
    """What is to be noted."""

    text: str


@stored_as("version-1.note")
@dataclass(frozen=True, slots=True)
class Note:
    """A note; its slice is a STATE slice to which each note is appended."""

    text: str


@stored_as("version-1.sale")
@dataclass(frozen=True, slots=True)
class Sale:
    """An event that the till takes."""

    cents: int


@stored_as("version-1.till")
@dataclass(frozen=True, slots=True)
class Till:
    """A STATE slice of one value, which each sale replaces."""

    cents: int = 0
    sales: int = 0

    @reducer(on=Sale)
    def sell(self, sale: Sale) -> Till:
        """Add a sale."""
        return replace(self, cents=self.cents + sale.cents, sales=self.sales + 1)


@stored_as("version-1.visit")
@dataclass(frozen=True, slots=True)
class Visit:
    """An item of a LOG slice."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    who: str
    at: datetime


@stored_as("version-1.order")
@dataclass(frozen=True, slots=True)
class Order:
    """What an external tool is asked for."""

    number: str
    cents: int
    day: date | None = None
    extras: tuple[str, ...] = ()


@stored_as("version-1.receipt")
@dataclass(frozen=True, slots=True)
class Receipt:
    """What an external tool returns: a value of many kinds of fields."""

    order: Order
    tax: Decimal
    payment: Payment
    valid_for: timedelta
    remarks: dict[str, str | None] = field(default_factory=dict[str, str | None])


def receipt(order: Order) -> Receipt:
    """The receipt for an order."""
    tax = Decimal(order.cents) * Decimal("0.0019")
    return Receipt(order, tax, Payment.CARD, timedelta(days=30), {"clerk": "Zoë", "voucher": None})


FOR_EVER = IdempotencyConfig(strategy="custom", key_fn=lambda order: f"mail-{order.number}", ttl=None)
"""A declared key that belongs to one session."""

SHARED = IdempotencyConfig(
    strategy="custom", key_fn=lambda order: f"refund-{order.number}", ttl=None, scope="shop", on_orphan="retry"
)
"""A declared key that all sessions share, and whose orphan is run again."""

NO_FAULTS: Mapping[str, Exception] = MappingProxyType({})
"""The outside world does what it is asked."""


def desk_tools(world: list[str], faults: Mapping[str, Exception] = NO_FAULTS) -> tuple[Tool[Any, Any], ...]:
    """The tools of the desk.

    Args:
        world: what external tools have done, each with its order, as often as it was done.
        faults: what an external tool raises after it has changed the world, by what it has done.
    """

    def external(verb: str) -> Any:
        def handler(order: Order, *, context: ToolContext) -> ToolResult[Receipt]:
            done = f"{verb} {order.number}"
            world.append(done)
            if done in faults:
                raise faults[done]
            return ToolResult.ok(receipt(order), f"{done}: done")

        return handler

    def look(params: None, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(", ".join(note.text for note in context.session[Note]) or "no notes")

    def note(params: Line, *, context: ToolContext) -> ToolResult[Note]:
        context.session.dispatch(Sale(len(params.text)))
        if not params.text:
            raise ValueError("there is nothing to note")
        return ToolResult.ok(Note(params.text), "noted", exclude_value_from_context=True)

    def outside(name: str, **options: Any) -> Tool[Order, Receipt]:
        return Tool[Order, Receipt](
            name=name, description=f"The desk's {name}.", handler=external(name), effect="external", **options
        )

    return (
        Tool[None, str](name="look", description="Reads all notes.", handler=look, effect="read"),
        Tool[Line, Note](name="note", description="Takes a note.", handler=note),
        outside("charge"),
        outside("mail", idempotency=FOR_EVER),
        outside("refund", idempotency=SHARED),
        outside("ship", concurrent=True),
    )


def executor(
    session: Session,
    *tools: Tool[Any, Any],
    ledger: EffectLedger | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ToolExecutor:
    """Runs calls of tools in a session."""
    template = PromptTemplate(ns="tests", key="version-1", sections=[ToolsSection(title="Desk", tools=tools)])
    return ToolExecutor(prompt=Prompt(template), session=session, effect_ledger=ledger, run_context=RUN, clock=clock)
