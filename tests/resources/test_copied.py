"""`Copied`: a value of any type that rolls back by a deep copy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from handrail.errors import InvalidArgumentError, ToolValidationError, TransactionClosedError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.resources import Copied, Snapshotable
from handrail.runtime import ToolCall, ToolMessage
from handrail.transaction import Transaction
from handrail.turns import draw_ticket
from tests.kit import executor, raises
from tests.wording import Wording


class Orders(Copied[dict[str, list[str]]]):
    """The orders of a shop, by number."""


class Attached:
    """A value that cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return "Attached()"


class Counts(Copied[dict[str, int]]):
    """Numbers by name."""


Act = Callable[[ToolContext], object]


def calling(resource: Copied[Any], act: Act, *, fails: bool = False, effect: Any = "state") -> ToolMessage:
    """A call of a tool over the resource, which fails on demand after it has acted."""

    def handle(_: None, *, context: ToolContext) -> ToolResult[None]:
        act(context)
        if fails:
            raise ToolValidationError("it fails")
        return ToolResult.ok(None)

    tool = Tool[None, None](name="edit", description="Edits.", handler=handle, effect=effect)
    return executor(tool, resources={type(resource): resource}).execute(ToolCall("1", "edit", {}))


def in_thread(work: Callable[[], object]) -> object:
    """What work returns, or the exception that it raises, in a thread without the context of this one."""
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(work)
        return done.exception() or done.result()


def bound_orders(context: ToolContext) -> Orders:
    """The orders, as a handler gets them."""
    return context.resources.get(Orders)


def add(name: str, context: ToolContext) -> None:
    """Add a piece to the first order."""
    bound_orders(context).value["#1"].append(name)


def replace(context: ToolContext) -> None:
    """Set the whole value."""
    bound_orders(context).value = {}


def clear_in_thread(context: ToolContext) -> None:
    """Clear the first order in a thread without the context of the call."""
    in_thread(bound_orders(context).value["#1"].clear)


def read_first_in_thread(context: ToolContext) -> None:
    """Have such a thread be the first to ask for the value."""
    mine = bound_orders(context)
    assert in_thread(lambda: mine.value["#1"].append("pen")) is None


def restore(context: ToolContext) -> None:
    """Restore a snapshot."""
    bound_orders(context).restore({"#2": []})


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(partial(add, "late"), id="in place"),
        pytest.param(replace, id="the whole value"),
        pytest.param(clear_in_thread, id="in a thread of the handler"),
        pytest.param(read_first_in_thread, id="in a thread that reads the value first"),
        pytest.param(restore, id="by restoring"),
    ],
)
def test_a_change_is_rolled_back_with_its_call(act: Act) -> None:
    """At any depth; the change of a call that succeeds stays."""
    orders = Orders({"#1": ["mug"]})
    calling(orders, act, fails=True)
    assert orders.value == {"#1": ["mug"]}
    assert calling(orders, act).success
    assert orders.value != {"#1": ["mug"]}


def test_a_value_that_is_reached_by_a_closure_is_rolled_back() -> None:
    """The call joins when it asks for the value."""
    orders, bound = Orders({"#1": ["mug"]}), Counts({})
    calling(bound, lambda _: orders.value["#1"].clear(), fails=True)
    assert orders.value == {"#1": ["mug"]}


def test_a_nested_call_is_a_savepoint() -> None:
    """One that fails is rolled back alone, also where it was the first to use the value; so is the outer one later."""
    orders = Orders({"#1": ["mug"]})

    def outer(context: ToolContext) -> None:
        for fails in (True, False):
            calling(orders, partial(add, f"inner {fails}"), fails=fails)
            add(f"outer {fails}", context)

    calling(orders, outer)
    assert orders.value == {"#1": ["mug", "outer True", "inner False", "outer False"]}
    calling(orders, outer, fails=True)
    assert orders.value == {"#1": ["mug", "outer True", "inner False", "outer False"]}


def test_a_call_that_only_reads_cannot_set_the_value(wording: Wording) -> None:
    """It is refused, and says what would be right; the value can be read."""
    orders = Orders({"#1": ["mug"]})
    seen: list[object] = []
    calling(orders, lambda context: seen.append(dict(bound_orders(context).value)), effect="read")
    assert seen == [{"#1": ["mug"]}]
    message = calling(orders, replace, effect="read")
    assert message.content == wording
    assert orders.value == {"#1": ["mug"]}


def test_a_handler_cannot_ask_for_the_value_after_its_call(wording: Wording) -> None:
    """In the context of its call; what it read before a rollback is not the value any more."""
    orders = Orders({"#1": ["mug"]})
    ticket = draw_ticket((orders.turn,), exclusive=True)
    with Transaction("edit", ticket=ticket, writes=True) as call:
        stale = orders.value
        call.rollback()
        with pytest.raises(TransactionClosedError) as raised:
            _ = orders.value
        with pytest.raises(TransactionClosedError):
            orders.value = {}
        stale.clear()
    assert str(raised.value) == wording
    assert orders.value == {"#1": ["mug"]}


def test_an_unbound_value_that_another_call_uses_is_refused(wording: Wording) -> None:
    """A bound one is waited for."""
    orders = Orders({})
    begun, ends = threading.Event(), threading.Event()

    def hold(_: ToolContext) -> None:
        orders.value["#1"] = []
        begun.set()
        ends.wait()

    with ThreadPoolExecutor(1) as threads:
        holding = threads.submit(calling, Counts({}), hold)
        begun.wait()
        try:
            message = calling(Counts({}), lambda _: orders.value)
        finally:
            ends.set()
        assert holding.result().success
    assert message.content == wording


def test_what_cannot_be_copied_is_refused(wording: Wording) -> None:
    """When it is declared, and not in the first call."""
    with raises(InvalidArgumentError, wording) as raised:
        Copied(Attached())
    assert isinstance(raised.value.__cause__, TypeError)


def test_it_holds_a_copy_and_restores_a_snapshot_again() -> None:
    """Neither what it was given nor a snapshot is changed through it."""
    given = {"#1": ["mug"]}
    orders = Orders(given)
    snapshot = orders.snapshot()
    for _ in range(2):
        orders.value["#1"].append("pen")
        orders.restore(snapshot)
    assert (orders.value, given) == ({"#1": ["mug"]}, {"#1": ["mug"]})
    assert isinstance(orders, Snapshotable)
