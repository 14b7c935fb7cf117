"""Calls of a stored session beside, inside and after each other: memory and store hold the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from datetime import timedelta
from pathlib import Path
from sqlite3 import connect
from threading import Thread

import pytest

from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import SequentialDependencyPolicy, ToolContext, ToolResult
from handrail.prompt import tool as function_tool
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.store import Store
from handrail.store.sqlite.store import SqliteStore
from handrail.testing import FakeClock
from handrail.transaction import current
from tests.kit import Kept, Note, call, executor, scribble, tool
from tests.session.faulty_stores import FaultyStore, faulty
from tests.store.stores import STORES
from tests.transaction.notebooks import PATIENCE, Receipt

pytestmark = pytest.mark.anyio


NOW = timedelta(0)


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> Generator[FaultyStore]:
    """An empty store, one kind after the other."""
    with faulty(str(request.param), FakeClock()) as made:
        yield made


def held(session: Session) -> tuple[list[str], list[str], list[tuple[str, bool]]]:
    """What a session holds."""
    invoked = [(event.call_id, event.success) for event in session[ToolInvoked]]
    return [kept.text for kept in session[Kept]], [note.text for note in session[Note]], invoked


def closed_and_opened(session: Session, store: FaultyStore) -> Session:
    """The session as somebody else finds it."""
    session.close()
    return Session.open(store, session.session_id, wait=NOW)


def keep(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Write to the session."""
    context.session[Kept].append(Kept(params.text))
    return ToolResult.ok(params)


def test_reads_beside_each_other_are_all_recorded(store: FaultyStore) -> None:
    """In the order asked; none of them takes the commit of another for somebody else's."""
    session = Session.open(store, "s", checkpoint_every=3)
    door = executor(tool("look", effect="read"), tool("keep", keep), session=session)
    calls = [call("keep" if number % 5 == 0 else "look", str(number), id=str(number)) for number in range(30)]
    messages = asyncio.run(door.execute_all_async(calls))
    assert all(message.success for message in messages)
    before = held(session)
    assert [call_id for call_id, _ in before[2]] == [one.id for one in calls]
    assert held(closed_and_opened(session, store)) == before


@pytest.mark.parametrize("outer_succeeds", [True, False])
def test_calls_inside_a_call_are_settled_with_it(store: FaultyStore, outer_succeeds: bool) -> None:
    """Those that failed leave nothing; their records are kept either way."""
    session = Session.open(store, "s")

    def fail(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        keep(params, context=context)
        return ToolResult.error("no")

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("before"))
        assert door.execute(call("keep", "inside", id="in-1")).success
        assert not door.execute(call("fail", "failed inside", id="in-2")).success
        context.session[Kept].append(Kept("after"))
        return ToolResult.ok(params) if outer_succeeds else ToolResult.error("no")

    door = executor(tool("outer", outer), tool("keep", keep), tool("fail", fail), session=session)
    door.execute(call("outer", "out", id="out"))
    before = held(session)
    kept = ["before", "inside", "after"] if outer_succeeds else []
    notes = ["inside", "out"] if outer_succeeds else []
    assert before == (kept, notes, [("in-1", True), ("in-2", False), ("out", outer_succeeds)])
    assert held(closed_and_opened(session, store)) == before


def test_a_concurrent_call_with_a_child_session_leaves_both_stored(store: FaultyStore) -> None:
    """An agent used as a tool: the child's calls are committed on their own, the result with the parent."""
    session = Session.open(store, "s")

    def agent(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        with context.session.child(session_id=f"child-{params.text}") as child:
            inner = executor(tool("keep", keep), session=child)
            assert inner.execute(call("keep", params.text)).success
            assert not inner.execute(call("nothing", id="call-2")).success
        return ToolResult.ok(params)

    door = executor(tool("agent", agent, concurrent=True), session=session)
    calls = [call("agent", str(number), id=str(number)) for number in range(3)]
    messages = asyncio.run(door.execute_all_async(calls))
    assert all(message.success for message in messages)
    before = held(session)
    assert before[1] == ["0", "1", "2"]
    assert held(closed_and_opened(session, store)) == before
    child = Session.open(store, "child-1", wait=NOW)
    assert held(child) == (["1"], ["1"], [("call-1", True), ("call-2", False)])


def test_what_policies_remember_is_stored_with_the_call(store: FaultyStore) -> None:
    """A dependency that was met before the program ended is met after."""
    session = Session.open(store, "s")

    def door_of(session: Session) -> Callable[[str, str], bool]:
        policy = SequentialDependencyPolicy(dependencies={"second": frozenset({"first"})})
        door = executor(tool("first"), tool("second"), policies=[policy], session=session)
        return lambda name, call_id: door.execute(call(name, id=call_id)).success

    assert [door_of(session)(*asked) for asked in (("second", "call-1"), ("first", "call-2"))] == [False, True]
    again = closed_and_opened(session, store)
    assert door_of(again)("second", "call-3")
    again.close()


def test_files_sessions_and_logs_are_settled_without_waiting_for_each_other(store: FaultyStore, tmp_path: Path) -> None:
    """Who logs meanwhile is in the store's queue while the journal of the call asks the store to forget it."""
    session = Session.open(store, "s")
    root = tmp_path / "root"
    root.mkdir()
    with HostFilesystem(root, store=store) as files:
        door = executor(tool("scribble", scribble), resources={Filesystem: files}, session=session)
        threads: list[Thread] = []

        def log_beside() -> None:
            thread = Thread(target=lambda: session[ToolInvoked].append(session[ToolInvoked].all()[0]), daemon=True)
            threads.append(thread)
            thread.start()

        assert door.execute(call("scribble", "A")).success
        store.at("committed", log_beside)
        assert door.execute(call("scribble", "B", id="call-2")).success
        threads[0].join(PATIENCE)
        assert not threads[0].is_alive()
        assert (root / "note.txt").read_text() == "B"
    before = held(session)
    assert sorted(held(closed_and_opened(session, store))[2]) == sorted(before[2])


def test_a_call_that_is_interrupted_after_its_commit_is_recorded_once(store: FaultyStore) -> None:
    """Its commit stands, and so does what was recorded with it; the interrupt goes on."""
    session = Session.open(store, "s")

    class Interrupted(Receipt):
        def after_commit(self) -> None:
            raise KeyboardInterrupt

    def interrupted(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        transaction = current()
        assert transaction is not None
        transaction.root.enlist(Interrupted())
        return keep(params, context=context)

    door = executor(tool("keep", interrupted), session=session)
    with pytest.raises(KeyboardInterrupt):
        door.execute(call("keep", "A"))
    assert held(session) == (["A"], ["A"], [("call-1", True)])
    assert held(closed_and_opened(session, store)) == (["A"], ["A"], [("call-1", True)])


AGENTS, ORDERS, CENTS = 50, 1, 1250
BUSY = timedelta(seconds=50)  # a machine with other work may let 50 calls wait longer than a store does


@function_tool
async def enter(number: str, *, context: ToolContext) -> str:
    """Enter an order, and let other tasks run before the call ends."""
    await context.connection.execute_async("INSERT INTO orders VALUES (?, ?, 0)", (number, CENTS))
    await asyncio.sleep(0)
    return number


@function_tool(effect="external")
def pay(number: str, *, context: ToolContext) -> str:
    """Pay an order, into the till that all agents share."""
    connection = context.connection
    ((cents,),) = connection.execute("SELECT cents FROM orders WHERE number = ? AND NOT paid", (number,)).fetchall()
    connection.execute("UPDATE orders SET paid = 1 WHERE number = ?", (number,))
    connection.execute("UPDATE till SET cents = cents + ?", (cents,))
    return f"{cents} cents"


async def work(store: Store, name: str) -> int:
    """An agent of the desk; returns how many messages its conversation has."""
    async with await Session.open_async(store, name) as session:
        talk, made = session.conversation, executor(enter, pay, session=session)
        for order in range(ORDERS):
            await talk.append_async({"role": "user", "content": f"Pay order {order}."})
            for each in (enter, pay):
                call = ToolCall(f"{each.name}-{order}", each.name, {"number": f"{name}-{order}"})
                await talk.append_async({"role": "assistant"}, calls=[call], reply=call.id)
                await talk.append_async(*map(answer, await messages(made)))
        return len(talk)


async def messages(made: ToolExecutor) -> tuple[ToolMessage, ...]:
    """The messages of the calls of the open reply, all of which succeed."""
    answers = await made.answer_async()
    assert isinstance(answers, Answers)
    assert all(message.success for message in answers), [message.content for message in answers]
    return tuple(answers)


def answer(message: ToolMessage) -> dict[str, str]:
    """What a provider is sent."""
    return {"role": "tool", "tool_call_id": message.call_id, "content": message.content}


async def test_no_call_of_fifty_agents_of_one_loop_fails(tmp_path: Path) -> None:
    """Their handlers and conversations wait for the one writer of SQLite, and the loop runs meanwhile."""
    path = tmp_path / "desk.db"
    with connect(path) as tables:
        tables.execute("CREATE TABLE orders (number TEXT PRIMARY KEY, cents INTEGER, paid INTEGER)")
        tables.execute("CREATE TABLE till (cents INTEGER)")
        tables.execute("INSERT INTO till VALUES (0)")
    store = SqliteStore(path, durability="normal", busy=BUSY)
    lengths = await asyncio.gather(*(work(store, f"agent-{number}") for number in range(AGENTS)))
    await store.close_async()
    assert lengths == [ORDERS * 5] * AGENTS
    assert tables.execute("SELECT cents FROM till").fetchall() == [(AGENTS * ORDERS * CENTS,)]
    assert tables.execute("SELECT COUNT(*) FROM orders WHERE paid").fetchall() == [(AGENTS * ORDERS,)]
    tables.close()
