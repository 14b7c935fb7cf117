"""The sessions of agents that others call, by a model or by a function: one for each, and none holds the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ModelResponse, RunContext, TextPart, Tool, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail import store, tool
from handrail.agents import LoadedAgent, RunOptions, current_run
from handrail.agents.run.run_group import open_child_session
from handrail.errors import RunAbortedError
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import SessionContents, SessionLock, SessionRow
from handrail.store.memory import MemoryStore
from handrail.testing import FakeClock
from handrail.waiting import asynchronous_entry
from tests.agents.desks import Line, desk, lines, returns, write_line
from tests.agents.folders import agent
from tests.session.faulty_stores import FaultyStore
from tests.store.stores import STORES

pytestmark = pytest.mark.anyio

PATIENCE = timedelta(seconds=20)  # after which a wait has been forgotten
REF = CallRef("reply-1", "call-1")
CHILD = f"desk/{REF.key}"


class SlowStore(FaultyStore):
    """A store in which the session of the agent is acquired when the test permits it."""

    def __init__(self, kind: str) -> None:
        super().__init__(STORES[kind](FakeClock()))
        self.reached, self.permitted, self.loaded = threading.Event(), threading.Event(), threading.Event()

    def acquire(self, session_id: str, *, wait: timedelta, evict: bool = False) -> SessionLock:
        if session_id == CHILD:
            self.reached.set()
            assert self.permitted.wait(PATIENCE.total_seconds())
        return super().acquire(session_id, wait=wait, evict=evict)

    def contents(self, row: SessionRow) -> SessionContents:
        if row.session_id == CHILD:
            self.loaded.set()
        return super().contents(row)


@asynchronous_entry
async def work(caller: Session, entered: asyncio.Event) -> None:
    """Enter the block behind the asynchronous entry, where the loop guard holds, and stay in it."""
    async with open_child_session(caller, REF, agent="research", input="x", effects=MemoryStore()) as (
        session,
        history,
    ):
        assert (session.session_id, session.parent, history.history) == (CHILD, caller, [])
        entered.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("when", ["while it is opened", "while it is used"])
async def test_a_run_that_is_cancelled_leaves_the_session_of_its_agent_closed(kind: str, when: str) -> None:
    """Another run can open it, as the one that resumes the call does."""
    store, entered = SlowStore(kind), asyncio.Event()
    async with await Session.open_async(store, "desk") as caller:
        running = asyncio.ensure_future(work(caller, entered))
        assert await asyncio.to_thread(store.reached.wait, PATIENCE.total_seconds())
        if when == "while it is used":
            store.permitted.set()
            await entered.wait()
        running.cancel()
        await asyncio.sleep(0)
        store.permitted.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(store.loaded.wait, PATIENCE.total_seconds())
        async with await Session.open_async(store, CHILD, create=False, wait=PATIENCE) as again:
            assert again.session_id == CHILD


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_run_whose_coroutine_is_closed_closes_the_session_of_its_agent(kind: str) -> None:
    """As with its loop: nothing can be awaited then."""
    store, entered = SlowStore(kind), asyncio.Event()
    store.permitted.set()
    async with await Session.open_async(store, "desk") as caller:

        def run_and_leave() -> None:
            loop = asyncio.new_event_loop()
            coroutine = work(caller, entered)
            running = loop.create_task(coroutine)
            loop.run_until_complete(entered.wait())
            loop.close()
            coroutine.close()
            del running  # asyncio logs that it was pending

        await asyncio.to_thread(run_and_leave)
        async with await Session.open_async(store, CHILD, create=False, wait=timedelta(0)) as again:
            assert again.session_id == CHILD


SESSIONS = pytest.mark.parametrize("url", ["", "memory:", "sqlite:///{}/s.db"], ids=["plain", "memory", "sqlite"])


async def side_by_side(ctx: RunContext, orders: list[str]) -> list[str]:
    """Have clerks pay all orders at once."""
    run = current_run()
    return await asyncio.gather(*(run.call_agent("clerk", order, ctx) for order in orders))


async def in_turn(ctx: RunContext, orders: list[str]) -> list[str]:
    """Have clerks pay one order after the other."""
    return [await current_run().call_agent("clerk", order, ctx) for order in orders]


class Bank:
    """The world outside, and the models of a desk whose tool has clerks pay orders there.

    Attributes:
        paid: the orders, each as often as it was paid.
        answers: what the desk has read of its tool.
        breaks: the order on whose answer the process is to end.
    """

    def __init__(self, *orders: str) -> None:
        self.orders = list(orders)
        self.paid: list[str] = []
        self.answers: list[str] = []
        self.breaks = ""

    async def pay(self, order: str) -> str:
        """Pay an order."""
        write_line(order)
        self.paid.append(order)
        return f"{order} is paid"

    def reply(self, messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        """Answer a request of the desk or of a clerk."""
        came = [str(part.content) for part in returns(messages)]
        (asked,) = [part.content for part in messages[0].parts if isinstance(part, UserPromptPart)]
        if asked == "Go.":
            self.answers += came
            return ModelResponse([TextPart("Done.") if came else ToolCallPart("ask", {"orders": self.orders})])
        if came and asked == self.breaks:
            raise RunAbortedError("the process ends")
        return ModelResponse([TextPart(came[0]) if came else ToolCallPart("pay", {"order": asked})])

    def desk(self, folder: Path, ask: Any) -> LoadedAgent:
        """The desk, whose tool is `ask`."""
        pay = tool(effect="external", name="pay")(self.pay)
        return desk(folder, tools=[ask, pay], others={"clerk.agent": agent("clerk", tools="[pay]")})

    async def run(self, loaded: LoadedAgent, session: Session | None, input: str | None = "Go.") -> None:
        """Run the desk to its end."""
        options = RunOptions(session=session, model=FunctionModel(self.reply), mode="approve-all", stream=False)
        await loaded.run_async(input, options)

    async def run_in(self, url: str, folder: Path, ask: Any, input: str | None = "Go.") -> None:
        """Run the desk in a session of a store, or of its own."""
        loaded = self.desk(folder, ask)
        if not url:
            await self.run(loaded, None)
            return
        with store.open(url.format(folder)) as opened, Session.open(opened, "s") as session:
            await self.run(loaded, session, input)


@SESSIONS
@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize("ask", [side_by_side, in_turn])
async def test_each_agent_that_a_function_calls_does_what_it_is_asked(
    url: str, ask: Callable[..., Any], concurrent: bool, tmp_path: Path
) -> None:
    """Once, and the function gets the answer of each; also of two that are asked the same."""
    bank = Bank("A", "B", "A")
    await bank.run_in(url, tmp_path, Tool(ask, name="ask", metadata={"concurrent": concurrent}))
    assert (sorted(bank.paid), len(bank.answers)) == (["A", "A", "B"], 1)
    assert [bank.answers[0].count(f"{order} is paid") for order in "AB"] == [2, 1]
    assert bank.answers[0].index("A") < bank.answers[0].index("B") < bank.answers[0].rindex("A")


@pytest.mark.parametrize("order, answered", [(["A", "B"], True), (["B", "A"], False)], ids=["same", "other"])
async def test_a_resumed_function_gets_the_answers_of_its_agents_and_pays_nothing_twice(
    tmp_path: Path, order: Sequence[str], answered: bool
) -> None:
    """One that asks them in another order gets no answer to another question."""
    bank, orders = Bank("A", "B"), ["A", "B"]

    async def ask(ctx: RunContext, orders: list[str]) -> list[str]:
        del orders
        return await in_turn(ctx, list(asked))

    bank.breaks = "B"
    asked: Sequence[str] = orders
    url = "sqlite:///{}/s.db"
    with pytest.raises(RunAbortedError):
        await bank.run_in(url, tmp_path, ask)
    bank.breaks, asked = "", order
    await bank.run_in(url, tmp_path, ask, None)
    assert bank.paid == ["A", "B"]
    assert [("A is paid" in each and "B is paid" in each) for each in bank.answers] == [answered]


async def test_what_agents_have_done_in_a_store_stays_if_the_function_fails(tmp_path: Path) -> None:
    """What the function itself has written does not; the model reads that the effect was done."""
    bank = Bank("A")

    async def ask(ctx: RunContext, orders: list[str]) -> list[str]:
        write_line("own")
        await in_turn(ctx, orders)
        raise ConnectionError("closed")

    url = f"sqlite:///{tmp_path}/s.db"
    await bank.run_in(url, tmp_path, ask)
    assert "pay itself was done" in bank.answers[0]
    with store.open(url) as opened:
        written = {}
        for row in opened.sessions():
            with Session.open(opened, row.session_id, types=[Line]) as session:
                written[row.parent] = lines(session)
    assert written == {None: [], "s": ["A"]}
