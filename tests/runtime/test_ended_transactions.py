"""A handler that ends the transaction of its call by the driver: its effect is unknown, and the developer is told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from handrail.errors import CallTransactionEndedError
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session import stored_as
from handrail.store import Store
from handrail.testing import FakeClock
from handrail.transaction import enlist
from tests.kit import executor
from tests.store.calls import Record
from tests.store.orders import add, items, with_orders
from tests.store.stores import STORES
from tests.wording import Wording


@dataclass(frozen=True)
class Order:
    item: str
    fails: bool = False


@stored_as("tests.ended_sale")
@dataclass(frozen=True)
class Sale:
    item: str


def sell(params: Order, *, context: ToolContext) -> ToolResult[Sale]:
    """Commits by itself, as a library does that is given the wrong connection."""
    native = context.connection.driver_connection()
    add(native, params.item)
    native.execute("COMMIT")
    if params.fails:
        raise ValueError("out of stock")
    return ToolResult.ok(Sale(params.item))


@pytest.fixture(params=["sqlite", "postgres"])
def orders(request: pytest.FixtureRequest) -> Store:
    """A store whose database has a table of the program's own."""
    return with_orders(STORES[request.param](FakeClock()))


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("options", [{}, {"effect": "external"}, {"idempotency": IdempotencyConfig()}])
def test_the_effect_is_unknown_and_the_call_is_not_run_again(
    orders: Store, options: dict[str, Any], wording: Wording, *, fails: bool
) -> None:
    """The mistake is raised to the developer; the model reads that the outcome is unknown, and nothing of the cause."""
    tool = Tool[Order, Sale](name="sell", description="Sells.", handler=sell, **options)
    call = ToolCall("call-1", "sell", {"item": "tea", "fails": fails})
    with Session.open(orders, "desk", types=(Sale,)) as session:
        door = executor(tool, session=session)
        with pytest.raises(CallTransactionEndedError) as raised:
            door.execute(call, reply="r1")
        assert (raised.value.tool, raised.value.store) == ("sell", orders.url)
        assert session[Sale].all() == ()
        (event,) = session[ToolInvoked].all()
        assert not event.success
        message = door.execute(call, reply="r1")
        assert not message.success
        assert message.content == wording
        assert [open_call.state for open_call in session.open_calls] == ["unknown"] * bool(options)
    assert items(orders) == ["tea"]


@pytest.mark.anyio
async def test_a_call_of_an_event_loop_is_no_exception(orders: Store) -> None:
    """Another database that is enlisted is rolled back with it."""
    settled: list[str] = []

    class Shop(Record):
        def after_rollback(self) -> None:
            settled.append("rolled back")

        def after_commit(self) -> None:
            settled.append("committed")

    async def handler(params: Order, *, context: ToolContext) -> ToolResult[Sale]:
        enlist(Shop(orders))
        if params.item == "tea":
            return await asyncio.to_thread(sell, params, context=context)
        return ToolResult.ok(Sale(params.item))

    tool = Tool[Order, Sale](name="sell", description="Sells.", handler=handler)
    with Session.open(orders, "desk", types=(Sale,)) as session:
        door = executor(tool, session=session)
        with pytest.raises(CallTransactionEndedError):
            await door.execute_async(ToolCall("call-1", "sell", {"item": "tea"}), reply="r1")
        assert (await door.execute_async(ToolCall("call-2", "sell", {"item": "milk"}), reply="r1")).success
        assert session[Sale].all() == (Sale("milk"),)
    assert settled == ["rolled back", "committed"]


def test_an_apply_that_ends_the_transaction_leaves_a_recorded_result_to_be_settled(orders: Store) -> None:
    """The call is not run again, so the result would wait for ever; once `apply` is mended, it is applied."""
    does = ["raises", "ends", "writes"]

    def book(params: Order, result: ToolResult[Sale], *, context: ToolContext) -> None:
        native = context.connection.driver_connection()
        add(native, params.item)
        match does.pop(0):
            case "raises":
                raise ValueError("no such account")
            case "ends":
                native.execute("ROLLBACK")
            case _:
                pass

    def charge(params: Order, *, context: ToolContext) -> ToolResult[Sale]:
        return ToolResult.ok(Sale(params.item))

    tool = Tool[Order, Sale](name="sell", description="Sells.", handler=charge, effect=External(apply=book))
    call = ToolCall("call-1", "sell", {"item": "tea"})
    with Session.open(orders, "desk", types=(Sale,)) as session:
        door = executor(tool, session=session)
        assert not door.execute(call, reply="r1").success
        with pytest.raises(CallTransactionEndedError):
            door.execute(call, reply="r1")
        assert door.execute(call, reply="r1").replayed
        assert [open_call.state for open_call in session.open_calls] == ["unapplied"]
        assert items(orders) == []
        (settled,) = door.settle_open()
        assert (settled.message.success, session.open_calls) == (True, ())
    assert items(orders) == ["tea"]
