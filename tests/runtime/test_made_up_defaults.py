"""A default that is made up for each call is no part of what identifies a request, unless the model sent it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from handrail import tool
from handrail.errors import CallPostponed
from handrail.prompt import IdempotencyConfig
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.session.calls import CallRef
from handrail.session.open_calls import GivenAnswer, PostponedCall, postponed_call
from handrail.store import MemoryStore
from tests.kit import ASKS, executor

_numbers = count()


def trace() -> str:
    """Another text each time."""
    return f"trace {next(_numbers)}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an order."""

    sku: str
    trace: str = field(default_factory=trace)


class Order(BaseModel):
    """An order."""

    number: str
    trace: str = Field(default_factory=trace)


class Shop:
    """The world outside: what was sold, with the trace that the handler read."""

    def __init__(self, idempotency: IdempotencyConfig | None, **options: Any) -> None:
        """Begin with nothing sold."""
        self.sold: list[tuple[str, str]] = []
        self.fails = False

        @tool(effect="external", idempotency=idempotency)
        def sell(
            order: Order,
            ref: Annotated[str, Field(default_factory=trace)],
            lines: list[Line] | None = None,
            cents: int = 5,
        ) -> str:
            """Sell."""
            self.sold.append((order.trace, ref))
            if self.fails:
                raise TimeoutError("no answer")
            return f"sold for {cents}"

        self.desk = executor(sell, **options)

    def ask(self, id: str, **arguments: Any) -> ToolMessage:
        """Ask for order A-1, with other arguments if they are given."""
        arguments = {"order": {"number": "A-1"}} | arguments
        return self.desk.execute(ToolCall(id, "sell", arguments), reply="r1")


STRATEGIES = [
    IdempotencyConfig(),
    IdempotencyConfig(strategy="params", param_keys=("order", "lines", "ref")),
    IdempotencyConfig(strategy="custom", key_fn=lambda sale: f"{sale.order.number} {sale.order.trace} {sale.ref}"),
]


@pytest.mark.parametrize("config", STRATEGIES, ids=lambda config: config.strategy)
def test_an_equal_request_is_answered_once_whatever_its_defaults_are(config: IdempotencyConfig) -> None:
    """For each strategy; the handler gets what the factories made."""
    shop = Shop(config)
    lines = [{"sku": "a"}]
    assert [shop.ask(name, lines=lines).replayed for name in ("1", "2")] == [False, True]
    assert shop.ask("3", lines=lines, cents=5).replayed
    ((order, ref),) = shop.sold
    assert order.startswith("trace")
    assert ref.startswith("trace")


@pytest.mark.parametrize("config", STRATEGIES, ids=lambda config: config.strategy)
def test_what_the_model_sent_is_part_of_the_key(config: IdempotencyConfig) -> None:
    """Another trace is another request, and the same one is the same."""
    shop = Shop(config)
    orders = [{"number": "A-1"}, {"number": "A-1", "trace": "x"}, {"number": "A-1", "trace": "y"}]
    assert [shop.ask(f"{turn} {order}", order=order).replayed for turn in (1, 2) for order in orders] == [
        *[False] * 3,
        *[True] * 3,
    ]
    assert not shop.ask("ref", ref="z").replayed


def test_an_equal_call_of_an_unknown_effect_is_refused_however_its_defaults_are_written() -> None:
    """Without a key the arguments identify a repeat: one call leaves a constant default out, and the other sends it."""
    shop = Shop(None)
    shop.fails = True
    assert not shop.ask("1").success
    shop.fails = False
    assert not shop.ask("2", cents=5).success
    assert len(shop.sold) == 1
    assert shop.ask("3", ref="sent").success
    assert shop.ask("4", cents=6).success


def test_an_approval_holds_when_the_call_is_made_again() -> None:
    """It is for what the model asked: the next attempt makes up other defaults."""

    def later(_request: object) -> bool:
        raise CallPostponed("tomorrow")

    session = Session.open(MemoryStore(), "s")
    with pytest.raises(CallPostponed):
        Shop(None, session=session, policies=[ASKS], approver=later).ask("1")
    asked = postponed_call(session[PostponedCall], CallRef("r1", "1"))
    assert asked is not None
    answer = GivenAnswer(approved=True, reason="a person said so", by="ada", at=asked.at)
    session[PostponedCall].append(replace(asked, answer=answer))
    assert Shop(None, session=session, policies=[ASKS]).ask("1").success
