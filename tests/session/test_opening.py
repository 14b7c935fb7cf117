"""`Session.open_async`, `child_async` and `close_async` wait for the store on a thread, and not on the event loop.

An exception that leaves a `with` block of a store or a session is not replaced by what closing raises.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    LoopBlockedError,
    RecordingError,
    SessionLockedError,
    SessionLostError,
    SessionUseError,
    StoreUnavailableError,
    TransactionClosedError,
)
from handrail.loop_guard import asynchronous_entry
from handrail.prompt import Prompt, PromptTemplate, Tool, ToolContext, ToolsSection, tool
from handrail.runtime import ToolCall
from handrail.session import Session
from handrail.store import Store
from handrail.store import open as open_store
from handrail.testing import FakeClock
from handrail.waiting import closing_after
from tests.kit import call as kit_call
from tests.kit import executor, refusal
from tests.session.faulty_stores import faulty
from tests.session.samples import Happened, Note
from tests.store.stores import STORES
from tests.wording import Wording

PATIENCE = timedelta(seconds=50)  # after which a wait has been forgotten
OVER_A_DATABASE = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


async def guarded(act: Callable[[], Awaitable[object]]) -> None:
    """Do something behind the asynchronous entry, where the loop guard holds."""

    @asynchronous_entry
    async def enter() -> None:
        await act()

    await enter()


async def call(session: Session, called: Tool[Any, Any], text: str, *, id: str = "c1") -> bool:
    """Make a call of a tool; returns whether it has succeeded."""
    message = await executor(called, session=session).execute_async(kit_call(called.name, text, id=id), reply="r")
    return message.success


async def is_free(store: Store, session_id: str) -> bool:
    """Whether a session is there, and nobody has it open."""
    try:
        async with await Session.open_async(store, session_id, create=False, wait=timedelta(0)):
            return True
    except SessionLockedError:
        return False


@pytest.mark.anyio
async def test_the_loop_runs_while_another_holder_is_waited_for(tmp_path: Path) -> None:
    """The task that holds the session goes on, and closes it; so the one that waits gets it."""
    with open_store(f"sqlite:///{tmp_path / 'desk.db'}") as store:
        held = Session.open(store, "desk")
        waiting = asyncio.ensure_future(Session.open_async(store, "desk", wait=timedelta(seconds=50)))
        await asyncio.sleep(0)
        assert not waiting.done()
        held.close()
        with await waiting as opened:
            assert opened.session_id == "desk"
            with pytest.raises(SessionLockedError):
                await Session.open_async(store, "desk", wait=timedelta(0))


@pytest.mark.anyio
async def test_a_session_that_is_opened_for_a_cancelled_task_is_closed_again(tmp_path: Path) -> None:
    """Otherwise no one could close it."""
    with open_store(f"sqlite:///{tmp_path / 'desk.db'}") as store:
        held = Session.open(store, "desk")
        waiting = asyncio.ensure_future(Session.open_async(store, "desk", wait=timedelta(seconds=50)))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        held.close()
        with await Session.open_async(store, "desk", wait=timedelta(seconds=50)) as opened:
            assert opened.session_id == "desk"


@OVER_A_DATABASE
@pytest.mark.anyio
async def test_child_and_close_hold_the_loop_which_the_guard_sees_and_their_asynchronous_forms_do_not(
    kind: str,
) -> None:
    """A session that could not be closed on the loop stays open, and is closed by `close_async`."""
    store = STORES[kind](FakeClock())
    session = await Session.open_async(store, "desk")

    async def make() -> None:
        refusal(LoopBlockedError, session.child, session_id="desk/blocking")
        child = await session.child_async(session_id="desk/1", tags={"agent": "research"})
        assert (child.parent, child.tags) == (session, {"agent": "research"})
        assert not await is_free(store, "desk/1")
        refusal(LoopBlockedError, child.close)
        await child.close_async()
        async with await session.child_async(session_id="desk/2"):
            assert not await is_free(store, "desk/2")
        assert await is_free(store, "desk/2")

    await guarded(make)
    assert await is_free(store, "desk/1")
    await guarded(session.close_async)
    await session.close_async()  # as `close`, it may be called twice
    assert await is_free(store, "desk")
    refusal(SessionUseError, session[Note].append, Note("late"))


@OVER_A_DATABASE
@pytest.mark.anyio
async def test_a_handler_has_a_child_without_holding_the_loop(kind: str) -> None:
    """It is a view, as by `child`: what it is given belongs to the call, and is undone with it."""
    children: list[Session] = []

    @tool
    async def research(text: str, *, context: ToolContext) -> str:
        """Research something."""
        child = await context.session.child_async(session_id=f"desk/{text}")
        children.append(child)
        assert (child.parent, child.unbound is child) == (context.session, False)
        child[Note].append(Note(text))
        if text == "nothing":
            raise LookupError
        return text

    store = STORES[kind](FakeClock())
    async with await Session.open_async(store, "desk") as session:
        assert await call(session, research, "found")
        assert not await call(session, research, "nothing", id="c2")
    assert await is_free(store, "desk")
    for child, notes in zip(children, ([Note("found")], []), strict=True):
        assert not await is_free(store, child.session_id)
        assert child.parent is not None
        with pytest.raises(TransactionClosedError):
            await child.parent.child_async()
        await child.close_async()
        async with await Session.open_async(store, child.session_id, create=False, types=[Note]) as again:
            assert [*again[Note]] == notes


@pytest.mark.anyio
async def test_a_handler_that_closes_a_child_it_has_written_to_is_refused_to_commit() -> None:
    """What it has written is committed with its call, when the child is no longer open. Nothing is."""

    @tool
    async def research(text: str, *, context: ToolContext) -> str:
        """Research something."""
        context.session[Note].append(Note(text))
        async with await context.session.child_async(session_id="kid") as child:
            child[Note].append(Note(text))
        return text

    store = STORES["sqlite"](FakeClock())
    async with await Session.open_async(store, "desk") as session:
        with pytest.raises(SessionUseError):
            await call(session, research, "found")
        assert len(session[Note]) == 0
    async with await Session.open_async(store, "kid", create=False) as child:
        assert len(child[Note]) == 0


@pytest.mark.anyio
async def test_sessions_in_memory_have_the_asynchronous_forms_too() -> None:
    """Nothing of them has to be closed."""
    async with Session(session_id="desk") as session:
        child = await session.child_async(session_id="kid")
        await child.close_async()
        assert (child.session_id, child.parent) == ("kid", session)
    session[Note].append(Note("a"))


@pytest.mark.anyio
async def test_a_task_that_is_cancelled_while_it_closes_a_session_has_closed_it() -> None:
    """What LOGs have got has been written by then."""
    reached, released = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        assert released.wait(PATIENCE.total_seconds())

    with faulty("sqlite", FakeClock()) as store:
        session = Session.open(store, "desk")
        session[Happened].log(Happened("x"), write="deferred")
        store.at("begin", wait)
        closing = asyncio.ensure_future(session.close_async())
        assert await asyncio.to_thread(reached.wait, PATIENCE.total_seconds())
        closing.cancel()
        await asyncio.sleep(0)
        assert not closing.done()
        released.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with Session.open(store, "desk", create=False, wait=timedelta(0)) as again:
            assert [*again[Happened]] == [Happened("x")]


PAYMENT = ToolCall("c", "pay", {"order": "A"})


def paying_desk(session: Session, database: Path) -> ToolExecutor:
    """Pays, and loses the database meanwhile."""

    @tool(effect="external")
    def pay(order: str) -> str:
        """Pays an order."""
        database.rename(database.with_suffix(".moved"))
        return f"{order} is paid"

    prompt = Prompt(PromptTemplate(ns="desk", key="d", sections=[ToolsSection(title="Tools", tools=[pay])]))
    return ToolExecutor(prompt=prompt, session=session)


def check_reported(error: RecordingError, logged: pytest.LogCaptureFixture, wording: Wording) -> None:
    """Check that the error says what became of the effect, and that notes and log say what could not be closed."""
    assert error.effect == "unknown"
    assert error.__notes__ == wording
    assert [record.levelno for record in logged.records if record.name == "handrail"] == [logging.WARNING]


def test_a_recording_error_leaves_the_blocks_of_a_store_that_cannot_be_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The program reads whether the payment may have happened, and not only that the file is gone."""
    database = tmp_path / "desk.db"
    with (
        pytest.raises(RecordingError) as raised,
        open_store(f"sqlite:///{database}") as opened,
        Session.open(opened, "s") as session,
    ):
        paying_desk(session, database).execute(PAYMENT, reply="r")
    check_reported(raised.value, caplog, wording)


@pytest.mark.anyio
async def test_a_recording_error_leaves_the_asynchronous_block_of_a_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """As that of a blocking one."""
    database = tmp_path / "desk.db"
    with pytest.raises(RecordingError) as raised, open_store(f"sqlite:///{database}") as opened:
        async with await Session.open_async(opened, "s") as session:
            await paying_desk(session, database).execute_async(PAYMENT, reply="r")
    check_reported(raised.value, caplog, wording)


def test_closing_that_fails_raises_at_the_end_of_a_block_that_nothing_has_left(tmp_path: Path) -> None:
    """As `close` does."""
    database = tmp_path / "desk.db"
    with pytest.raises(StoreUnavailableError), open_store(f"sqlite:///{database}"):
        database.unlink()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_closing_is_raised(interrupt: type[BaseException]) -> None:
    """It ends the program, whatever has left the block."""
    with pytest.raises(interrupt), closing_after(SessionLostError("lost", session_id="s"), "a session"):
        raise interrupt()
