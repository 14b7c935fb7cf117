"""Agents that a model or a function calls: their sessions, their effects, their failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    ModelHTTPError,
    ModelMessage,
    ModelResponse,
    RunContext,
    TextPart,
    Tool,
    ToolCallPart,
    UnexpectedModelBehavior,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail import store, tool
from handrail.agents import LoadedAgent, Project, Registry, RunOptions, current_run
from handrail.agents.registry import resolve
from handrail.agents.run.run_group import open_child_session
from handrail.errors import RunAbortedError
from handrail.prompt import External, ToolResult
from handrail.runtime import EffectLedger, ToolCall
from handrail.runtime.ledger.effects import EffectResult
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.session.persistence.protocol import SessionContents, SessionLock, SessionRow
from handrail.store import Store
from handrail.store.memory import MemoryStore
from handrail.testing import Call, FakeClock, Reply
from handrail.waiting import asynchronous_entry
from tests.agents.kit import CallLog, Line, agent, desk, inside, lines, play, returns, write, write_line
from tests.kit import executor
from tests.session.faulty_stores import FaultyStore
from tests.store.stores import STORES
from tests.wording import Wording

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


class AskingBank:
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
    bank = AskingBank("A", "B", "A")
    await bank.run_in(url, tmp_path, Tool(ask, name="ask", metadata={"concurrent": concurrent}))
    assert (sorted(bank.paid), len(bank.answers)) == (["A", "A", "B"], 1)
    assert [bank.answers[0].count(f"{order} is paid") for order in "AB"] == [2, 1]
    assert bank.answers[0].index("A") < bank.answers[0].index("B") < bank.answers[0].rindex("A")


@pytest.mark.parametrize("order, answered", [(["A", "B"], True), (["B", "A"], False)], ids=["same", "other"])
async def test_a_resumed_function_gets_the_answers_of_its_agents_and_pays_nothing_twice(
    tmp_path: Path, order: Sequence[str], answered: bool
) -> None:
    """One that asks them in another order gets no answer to another question."""
    bank, orders = AskingBank("A", "B"), ["A", "B"]

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
    bank = AskingBank("A")

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


class Bank:
    """The world outside: it pays, and answers as often as it is told to."""

    def __init__(self, *silent: bool) -> None:
        self.paid: list[str] = []
        self.silent = list(silent)
        self.is_open = False

    def pay(self, order: str) -> str:
        """Pay an order."""
        self.paid.append(order)
        if self.silent and self.silent.pop(0):
            raise TimeoutError("no answer")
        return f"{order} is paid"

    def find(self, params: Any, _key: str) -> ToolResult[str] | None:
        """Look a payment up."""
        if not self.is_open:
            raise ConnectionError("closed")
        return ToolResult.ok("paid, says the bank") if params.order in self.paid else None

    def boss(self, folder: Path, **said: Any) -> LoadedAgent:
        """An agent that calls a clerk who pays, or has a clerk call one."""
        registry = Registry.of_python(tools=[tool(effect=External(**said), name="pay")(self.pay)])
        boss = agent("boss", tools="[pay]", toolsets="[clerk, chief]")
        files = {"boss.agent": boss, "chief.agent": agent("chief", toolsets="[clerk]")}
        write(folder, {**files, "clerk.agent": agent("clerk", tools="[pay]")})
        project = Project.load(folder, entries=registry.entries)
        return LoadedAgent(project, resolve(project.agents["boss"], project.registry))


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """A store of either kind."""
    with store.open("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/s.db") as opened:
        yield opened


def clerk(number: str, order: str = "A") -> list[Reply]:
    """The replies by which a clerk is called, pays once, and answers."""
    return [
        Reply(calls=[Call("clerk", {"input": f"Pay {order}."}, id=number)]),
        *inside(number, [Reply(calls=[Call("pay", {"order": order}, id=f"{number}-pay")]), Reply(text="Sent.")]),
    ]


def chief(*then: Reply) -> list[Reply]:
    """The replies by which a chief is called and calls a clerk."""
    asked, *below = clerk("below")
    called = Reply(calls=[Call("chief", {"input": "Pay A."}, id="chief")])
    return [called, *inside("chief", [asked]), *below, *inside("chief", then)]


END = [Reply(text="Done.")]


async def plays(kept: Store, boss: LoadedAgent, *replies: Reply, name: str = "s", **options: Any) -> None:
    """Play replies and the end in a session that is opened for it."""
    with Session.open(kept, name) as session:
        await play(boss, [*replies, *END], session=session, **options)


def pays(order: str = "A", number: str = "own") -> list[Reply]:
    """The reply by which the boss pays."""
    return [Reply(calls=[Call("pay", {"order": order}, id=number)])]


# ----------------------------------------------------------------------------------------- it is not done a second time


@pytest.mark.parametrize("second", [clerk("two"), pays()], ids=["by another clerk", "by the boss"])
async def test_an_unknown_effect_of_a_called_agent_is_not_repeated(
    kept: Store, tmp_path: Path, second: list[Reply]
) -> None:
    """The repeat is refused; other orders are paid."""
    bank, log = Bank(True), CallLog()
    await plays(kept, bank.boss(tmp_path), *clerk("one"), *second, *clerk("three", "B"), listener=log)
    assert bank.paid == ["A", "B"]
    assert [each.call_id for each in log.ended if each.refused] in [["two-pay"], ["own"]]


async def test_an_unknown_effect_of_the_caller_is_not_repeated_by_its_agents(kept: Store, tmp_path: Path) -> None:
    """Nor by those that they call."""
    bank = Bank(True)
    await plays(kept, bank.boss(tmp_path), *pays(), *clerk("one"), *chief(Reply(text="Sent.")))
    assert bank.paid == ["A"]


async def test_what_is_found_out_answers_one_equal_call_of_the_run(kept: Store, tmp_path: Path) -> None:
    """By the reconciler: the next clerk reads that it was paid, its boss reads the clerk, and a third call is new."""
    bank, log = Bank(True), CallLog()
    boss = bank.boss(tmp_path, reconcile=bank.find)
    with Session.open(kept, "s") as session:
        await play(boss, [*clerk("one"), *clerk("two"), *END], session=session)
        bank.is_open = True
        await play(boss, [*clerk("three"), *END], session=session, listener=log)
        assert (log.told["three-pay"], bank.paid) == ("paid, says the bank", ["A"])
        await play(boss, [*clerk("four"), *END], session=session)
    assert bank.paid == ["A", "A"]


async def test_what_a_person_has_found_out_answers_an_equal_call_after_a_restart(kept: Store, tmp_path: Path) -> None:
    """In a session that has been opened again, as in the process of another day."""
    bank, log = Bank(True), CallLog()
    boss = bank.boss(tmp_path)
    await plays(kept, boss, *clerk("one"))
    (row,) = kept.rows()
    assert EffectLedger(kept).resolve(row, EffectResult("paid, says ann"))
    for number, paid in (("two", ["A"]), ("three", ["A", "A"])):
        await plays(kept, boss, *clerk(number), listener=log)
        assert bank.paid == paid
    assert (log.told["two-pay"], log.told["three-pay"]) == ("paid, says ann", "A is paid")


async def test_sessions_that_are_not_of_the_run_pay_for_themselves(kept: Store, tmp_path: Path) -> None:
    """Also one whose id begins as that of the run does."""
    bank = Bank(True, True, True)
    for name in ("s", "s-2", "t/s"):
        await plays(kept, bank.boss(tmp_path), *clerk("one"), name=name)
    assert bank.paid == ["A", "A", "A"]


async def test_a_session_of_a_called_agent_that_is_opened_by_itself_belongs_to_the_run(
    kept: Store, tmp_path: Path
) -> None:
    """Its row names the session that it works for."""
    bank = Bank(True, False, True)
    boss = bank.boss(tmp_path)
    await plays(kept, boss, *pays("A"), *clerk("one", "B"))
    (child,) = {row.partition for row in kept.rows()} - {"s"}
    with Session.open(kept, child) as session:
        till = executor(tool(effect="external", name="pay")(bank.pay), session=session)
        for order in ("A", "C"):
            assert not till.execute(ToolCall(order, "pay", {"order": order}), reply="r").success
    await plays(kept, boss, *clerk("three", "C"))
    assert bank.paid == ["A", "B", "C"]


# ----------------------------------------------------------------------------------------------- the caller reads of it


class Failing:
    """A model whose boss calls a clerk, and whose clerk pays and ends with an error; it keeps what they read."""

    def __init__(self, error: Exception, prefix: str = "") -> None:
        self.error = error
        self.prefix = prefix
        self.read: dict[str, str] = {}

    async def run(self, boss: LoadedAgent, session: Session, input: str | None = "Pay.") -> None:
        """Run the boss with this model."""
        options = RunOptions(session=session, model=FunctionModel(self.reply), mode="approve-all")
        await boss.run_async(input, options)

    def reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Answer a request of boss or clerk."""
        came = {part.tool_call_id: str(part.content) for part in returns(messages)}
        self.read |= came
        is_boss = "clerk" in {each.name for each in info.function_tools}
        tool, argument = ("clerk", "input") if is_boss else ("pay", "order")
        if f"{self.prefix}{tool}" not in came:
            return ModelResponse([ToolCallPart(tool, {argument: "A"}, f"{self.prefix}{tool}")])
        if tool == "pay":
            raise self.error
        return ModelResponse([TextPart("Done.")])


ERRORS = {
    "500": ModelHTTPError(500, "m", "server error" * 1000),
    "nonsense": UnexpectedModelBehavior("nonsense"),
    "bug": RuntimeError("the model's client broke"),
}


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("silent", [False, True], ids=["done", "unknown"])
async def test_the_failure_of_an_agent_names_what_it_has_done(
    kept: Store, tmp_path: Path, kind: str, silent: bool, wording: Wording
) -> None:
    """Also where what a provider writes is cut; and it says not to ask for it again."""
    failing = Failing(ERRORS[kind])
    with Session.open(kept, "s") as session:
        await failing.run(Bank(silent).boss(tmp_path), session)
    assert failing.read["clerk"].replace("server error", "") == wording


async def test_the_failure_of_a_resumed_agent_names_what_it_did_before(
    kept: Store, tmp_path: Path, wording: Wording
) -> None:
    """In another process: the run is cut off after the payment, and the provider fails when it is resumed."""
    bank = Bank()
    failing = Failing(RunAbortedError("the process ends"))
    with Session.open(kept, "s") as session, pytest.raises(RunAbortedError):
        await failing.run(bank.boss(tmp_path), session)
    failing.error = ERRORS["500"]
    with Session.open(kept, "s") as session:
        await failing.run(bank.boss(tmp_path), session, None)
    assert failing.read["clerk"].replace("server error", "") == wording
    assert bank.paid == ["A"]


async def test_the_failure_of_an_agent_names_what_the_agents_below_it_have_done(kept: Store, tmp_path: Path) -> None:
    """The chief pays by a clerk that answers, and fails then."""
    bank, log = Bank(), CallLog()
    await plays(kept, bank.boss(tmp_path), *chief(Reply(text=""), Reply(text="")), listener=log)
    assert "pay itself was done" in log.told["chief"]


async def test_an_outcome_that_an_agent_has_read_before_it_failed_answers_the_next_one(
    kept: Store, tmp_path: Path
) -> None:
    """Its caller has not read of it."""
    bank, log = Bank(True), CallLog()
    boss = bank.boss(tmp_path, reconcile=bank.find)
    with Session.open(kept, "s") as session:
        await play(boss, [*clerk("one"), *END], session=session)
        bank.is_open = True
        failing = Failing(ERRORS["500"], "two-")
        await failing.run(boss, session)
        assert failing.read["two-pay"] == "paid, says the bank"
        await play(boss, [*clerk("three"), *END], session=session, listener=log)
    assert (log.told["three-pay"], bank.paid) == ("paid, says the bank", ["A"])
