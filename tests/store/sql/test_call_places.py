"""Places at a database: given in the order of asking, to threads and to `async def` handlers, and none is lost."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import SessionUseError, TransactionClosedError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.store import Store
from handrail.store import open as open_store
from handrail.store.postgres import Server
from handrail.store.postgres.store import PostgresDriver
from handrail.store.sql.driver import CallPlaces
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from tests.kit import executor
from tests.store.kit import add, call, items, with_orders
from tests.store.postgres_server import fresh_url
from tests.wording import Wording

PATIENCE = timedelta(seconds=20)
"""A thread that waits for longer has been forgotten."""


def places_for(number: int, busy: timedelta = PATIENCE) -> CallPlaces:
    """The places of a database."""
    return CallPlaces(number, busy=busy, url="desk.db")


def test_units_go_before_calls_and_each_in_the_order_of_asking() -> None:
    """Calls that have ended wait for their units."""
    places = places_for(1)
    held = places.ask()
    asked = {name: places.ask(for_call=name.startswith("call")) for name in ("call 1", "unit 1", "call 2", "unit 2")}
    assert places.waiting == len(asked)
    for name in ("unit 1", "unit 2", "call 1", "call 2"):
        places.release(held)
        held = asked[name]
        assert held.turn.done()
    assert places.waiting == 0


def test_a_place_that_is_withdrawn_is_passed_over() -> None:
    """One that was given already cannot be withdrawn, but released."""
    places = places_for(1)
    held, withdrawn, following = (places.ask(for_call=True) for _ in range(3))
    assert not held.turn.cancel()
    places.release(withdrawn)
    assert following.behind_call
    places.release(held)
    assert following.turn.done()
    assert places.is_used_by_calls()
    places.release(following)
    assert not places.is_used_by_calls()
    assert places.ask().turn.done()


@pytest.mark.parametrize("number", [1, 3])
def test_no_more_hold_a_place_than_there_are(number: int) -> None:
    """A storm of threads, some of which give up; afterwards all places are free."""
    places = places_for(number)
    holding, most, lock = 0, 0, threading.Lock()

    def work(seed: int) -> int:
        nonlocal holding, most
        dice, times = random.Random(seed), 0  # noqa: S311
        for _ in range(200):
            place = places.ask(for_call=dice.random() < 0.5)
            if dice.random() < 0.7:
                places.wait(place)
            if place.turn.cancel():
                continue
            with lock:
                holding += 1
                most = max(most, holding)
            times += 1
            with lock:
                holding -= 1
            places.release(place)
        return times

    with ThreadPoolExecutor(8) as pool:
        assert min(pool.map(work, range(8))) > 0
    assert most <= number
    assert places.waiting == 0
    assert not places.is_used_by_calls()
    assert [places.ask().turn.done() for _ in range(number + 1)] == [*[True] * number, False]


pytestmark = pytest.mark.anyio

INSERT = "INSERT INTO orders (id, item) SELECT COALESCE(MAX(id), 0) + 1, 'tea' FROM orders"


@dataclass(frozen=True)
class Order:
    """What the tools are called with."""


@dataclass(frozen=True)
class Desk:
    """A store of which one call at a time may have the connection.

    Attributes:
        store: the store.
        driver: its database.
    """

    store: Store
    driver: SqliteDriver | PostgresDriver

    async def until_waiting(self, calls: int) -> None:
        """Go on when so many calls wait for a place; the loop has to run for that."""
        while self.driver.call_places.waiting < calls:  # noqa: ASYNC110 - a semaphore of threads has no event
            await asyncio.sleep(0)


@pytest.fixture(params=["sqlite", "postgres"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    """A desk over each kind of database, with a table of orders."""
    with ExitStack() as opened:
        driver: SqliteDriver | PostgresDriver
        if request.param == "sqlite":
            driver = SqliteDriver(SqliteFile(tmp_path / "desk.db", busy=timedelta(seconds=20)))
        else:
            url = opened.enter_context(fresh_url())
            driver = PostgresDriver(Server(url, "postgres", busy=timedelta(seconds=20), connections=2))
        store = opened.enter_context(SqlStore(driver))
        yield Desk(with_orders(store), driver)


async def test_loop_goes_on_while_handlers_wait_for_each_other(desk: Desk) -> None:
    """Each holds the connection until the loop has seen the others wait for it; all are committed, in their order."""
    done = list[str]()
    agents = 20

    async def order(_: Order, *, context: ToolContext) -> ToolResult[None]:
        await context.connection.execute_async(INSERT)
        done.append(context.session.session_id)
        await desk.until_waiting(agents - len(done))
        return ToolResult.ok(None)

    tool = Tool[Order, None](name="order", description="Orders.", handler=order)
    with ExitStack() as opened:
        sessions = [opened.enter_context(Session.open(desk.store, f"s{number}")) for number in range(agents)]
        calls = (executor(tool, session=each).execute_async(ToolCall("c", "order", {}), reply="r") for each in sessions)
        messages = await asyncio.gather(*calls)
    assert [message.success for message in messages] == [True] * agents
    assert sorted(done) == sorted(session.session_id for session in sessions)
    assert items(desk.store) == ["tea"] * agents
    assert desk.driver.call_places.waiting == 0


async def test_handler_that_would_stop_its_loop_is_refused_at_once(desk: Desk, wording: Wording) -> None:
    """Waiting on the thread of the loop for a call that may need the loop would last as long as `busy`."""
    with call() as holder:
        add(desk.store.connection(), "tea")
        with call(), pytest.raises(SessionUseError) as raised:
            add(desk.store.connection(), "coffee")
        assert "execute_async" in str(raised.value)
        if isinstance(desk.driver, PostgresDriver):
            assert str(raised.value) == wording
        holder.commit()
    assert items(desk.store) == ["tea"]


async def test_task_that_is_cancelled_while_it_waits_leaves_the_queue(desk: Desk) -> None:
    """At once, and the place goes to the next one."""

    async def write() -> None:
        with call() as transaction:
            await desk.store.connection().execute_async(INSERT)
            transaction.commit()

    with call() as holder:
        add(desk.store.connection(), "milk")
        waits, next_one = (asyncio.create_task(write(), context=outside()) for _ in range(2))
        await desk.until_waiting(2)
        waits.cancel()
        await asyncio.wait((waits,))
        assert waits.cancelled()
        assert desk.driver.call_places.waiting == 1
        holder.commit()
    await next_one
    assert items(desk.store) == ["milk", "tea"]


def outside() -> Any:
    """A context without a call."""
    return EMPTY.copy()


EMPTY = copy_context()


async def test_task_whose_call_ends_while_it_waits_gives_its_place_back(desk: Desk) -> None:
    """It does not wait on."""
    with call() as holder:
        add(desk.store.connection(), "tea")
        with call() as late:
            waits = asyncio.create_task(desk.store.connection().execute_async(INSERT))
            await desk.until_waiting(1)
            late.rollback()
            with pytest.raises(TransactionClosedError):
                await waits
            holder.rollback()
    place = desk.driver.call_places.ask()
    assert place.turn.done()
    desk.driver.call_places.release(place)
    assert items(desk.store) == []


async def test_two_tasks_of_a_call_take_one_place(desk: Desk) -> None:
    """Both use the connection of their call."""
    with call() as transaction:
        connection = desk.store.connection()
        await asyncio.gather(*(connection.execute_async(INSERT) for _ in range(4)))
        transaction.commit()
    assert items(desk.store) == ["tea"] * 4


def test_threads_that_hold_the_connection_make_nested_external_calls() -> None:
    """A store of PostgreSQL keeps connections for the claims and commits of calls that hold one, however few it has."""
    ran, handlers = list[str](), 8
    with fresh_url() as url, open_store(url, connections=2) as store:
        with_orders(store)

        def ring(_: Order, *, context: ToolContext) -> ToolResult[None]:
            context.connection.execute(INSERT)
            ran.append(context.session.session_id)
            return ToolResult.ok(None)

        def order(_: Order, *, context: ToolContext) -> ToolResult[None]:
            context.connection.execute(INSERT)
            inner = executors[context.session.session_id].execute(ToolCall("inner", "ring", {}), reply="r")
            assert inner.success, inner.content
            return ToolResult.ok(None)

        tools = (
            Tool[Order, None](name="ring", description="Rings.", handler=ring, effect="external"),
            Tool[Order, None](name="order", description="Orders.", handler=order),
        )
        with ExitStack() as opened:
            sessions = [opened.enter_context(Session.open(store, f"s{number}")) for number in range(handlers)]
            executors = {session.session_id: executor(*tools, session=session) for session in sessions}
            with ThreadPoolExecutor(handlers) as pool:
                messages = [*pool.map(order_through, executors.values())]
        assert [message.success for message in messages] == [True] * handlers
        assert sorted(ran) == sorted(executors)
        assert items(store) == ["tea"] * 2 * handlers


def order_through(executor: ToolExecutor) -> ToolMessage:
    """Make the call of a session."""
    return executor.execute(ToolCall("c", "order", {}), reply="r")
