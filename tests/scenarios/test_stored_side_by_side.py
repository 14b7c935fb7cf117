"""Calls of a stored session beside, inside and after each other: memory and store hold the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread

import pytest

from handrail.errors import StoreUnavailableError
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import SequentialDependencyPolicy, ToolContext, ToolResult
from handrail.runtime import Session, ToolInvoked
from handrail.testing import FakeClock
from handrail.transaction import current
from tests.kit import Kept, Note, call, executor, on_loop, scribble, tool
from tests.session.faulty_stores import FaultyStore, faulty
from tests.store.stores import STORES
from tests.transaction.notebooks import PATIENCE, Receipt
from tests.wording import Wording

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


def test_a_handler_that_outlives_its_call_writes_nowhere(store: FaultyStore, wording: Wording) -> None:
    """Neither in memory nor in the store, whenever it comes."""
    session = Session.open(store, "s")
    go_on, raised, ended = Event(), list[str](), Event()

    def slow(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        try:
            context.session[Kept].append(Kept("in time"))  # or already late, on a machine that is busy
            go_on.wait(PATIENCE)
            context.session[Kept].append(Kept("late"))
        except Exception as error:
            raised.append(type(error).__name__)
            raise
        finally:
            ended.set()
        return ToolResult.ok(params)

    door = executor(tool("slow", slow, timeout=timedelta(milliseconds=1)), tool("keep", keep), session=session)
    assert door.execute(call("slow")).content == wording
    store.at("append", go_on.set, lambda: ended.wait(PATIENCE))
    assert door.execute(call("keep", "A", id="call-2")).success
    assert door.execute(call("keep", "B", id="call-3")).success
    assert raised == ["TransactionClosedError"]
    before = held(session)
    assert before[0] == ["A", "B"]
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


def test_a_store_that_failed_for_a_moment_is_not_noticed_on_a_loop(store: FaultyStore) -> None:
    """As little as on a thread."""
    session = Session.open(store, "s")
    door = executor(tool("keep", keep), session=session)

    def lose() -> None:
        raise StoreUnavailableError("lost", store="it")

    store.at("commit", lose)
    assert on_loop(door, call("keep", "A")).success
    assert held(closed_and_opened(session, store))[0] == ["A"]


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
