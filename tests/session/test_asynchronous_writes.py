"""Each write of a session has an asynchronous form; one on the thread of a loop waits for no call that may need it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import Context
from datetime import timedelta
from pathlib import Path

import pytest

from handrail.errors import LoopBlockedError, SessionLockedError, SessionUseError, StoreUnavailableError
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import ToolCall
from handrail.session import Session
from handrail.store import MemoryStore
from handrail.store.sql.store import SqlStore
from handrail.store.sqlite.store import SqliteDriver, SqliteFile
from handrail.waiting import asynchronous_entry
from tests import kit
from tests.kit import refusal
from tests.session.samples import Happened, Note
from tests.store.kit import add, call, items, with_orders
from tests.wording import Wording

pytestmark = pytest.mark.anyio

INSERT = "INSERT INTO orders (id, item) SELECT COALESCE(MAX(id), 0) + 1, 'tea' FROM orders"
PATIENCE = timedelta(seconds=50)  # after which a wait has been forgotten
QUESTION = {"role": "user", "content": "Pay A-1."}

Act = Callable[[Session], object]
Awaited = Callable[[Session], Awaitable[object]]


class Desk:
    """A store, and a call in another task that has the one writer of its database until it is told to commit."""

    def __init__(self, path: Path) -> None:
        self.driver = SqliteDriver(SqliteFile(path, busy=PATIENCE))
        self.store = SqlStore(self.driver)
        with_orders(self.store)

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[None]:
        """A block in which the call has the writer."""
        written, may_end = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            with call() as transaction:
                await self.store.connection().execute_async(INSERT)
                written.set()
                await may_end.wait()
                await asyncio.to_thread(transaction.commit)

        task = asyncio.create_task(write(), context=Context())
        await written.wait()
        try:
            yield
        finally:
            may_end.set()
            await task


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A desk whose database is a file."""
    made = Desk(tmp_path / "desk.db")
    with made.store:
        yield made


def fork(session: Session) -> object:
    """Fork a session, and close the fork."""
    session.fork(session_id=f"{session.session_id}/fork").close()
    return None


async def fork_async(session: Session) -> None:
    """As `fork`."""
    await (await session.fork_async(session_id=f"{session.session_id}/fork")).close_async()


WRITES: dict[str, tuple[Act, Awaited]] = {
    "a message": (lambda on: on.conversation.append(QUESTION), lambda on: on.conversation.append_async(QUESTION)),
    "a value": (lambda on: on[Note].append(Note("a")), lambda on: on[Note].append_async(Note("a"))),
    "an item of a LOG": (
        lambda on: on[Happened].append(Happened("a")),
        lambda on: on[Happened].append_async(Happened("a")),
    ),
    "an event": (lambda on: on.dispatch(Note("a")), lambda on: on.dispatch_async(Note("a"))),
    "a logged event": (lambda on: on.dispatch(Happened("a")), lambda on: on.dispatch_async(Happened("a"))),
    "other values": (lambda on: on[Note].seed(Note("a")), lambda on: on[Note].seed_async(Note("a"))),
    "no values": (lambda on: on[Note].clear(), lambda on: on[Note].clear_async()),
    "a reset": (lambda on: on.reset(), lambda on: on.reset_async()),
    "a fork": (fork, fork_async),
    "a call": (
        lambda on: kit.executor(kit.tool("note"), session=on).execute(kit.call("note"), reply="r"),
        lambda on: kit.executor(kit.tool("note"), session=on).execute_async(kit.call("note"), reply="r"),
    ),
}
"""Each write, and its asynchronous form."""


def contents(session: Session) -> object:
    """What a session holds."""
    return session[Note].all(), session[Happened].all(), session.conversation.messages


@pytest.mark.parametrize("name", list(WRITES))
async def test_write_that_would_wait_for_a_call_of_its_loop_is_refused_and_its_asynchronous_form_waits(
    desk: Desk, name: str
) -> None:
    """The call can end only if the loop runs; what is refused has changed nothing, so it is written once."""
    act, awaited = WRITES[name]
    alone = Session.open(desk.store, "alone")
    async with await Session.open_async(desk.store, "desk") as session:
        for each in (session, alone):
            each[Note].append(Note("before"))
        before = contents(session)
        async with desk.writing():
            with pytest.raises(SessionUseError, match="append_async"):
                act(session)
            assert contents(session) == before
            written = asyncio.ensure_future(awaited(session))
            await asyncio.sleep(0)
            assert not written.done()
        await written
        act(alone)  # no call has the writer, so it is written on the loop
        assert contents(session) == contents(alone)
    alone.close()
    async with await Session.open_async(desk.store, "desk", types=[Note, Happened]) as again:
        assert contents(again) == contents(alone)
    assert items(desk.store) == ["tea"]


async def test_session_is_not_opened_on_a_loop_whose_call_has_the_writer(desk: Desk, wording: Wording) -> None:
    """Nor is a child; `open_async` and `child_async` wait on a thread."""
    async with desk.writing():
        error = refusal(SessionUseError, Session.open, desk.store, "desk")
        assert str(error).replace(desk.store.url, "sqlite:///desk.db") == wording
        opening = asyncio.ensure_future(Session.open_async(desk.store, "desk"))
    async with await opening as session:
        async with desk.writing():
            refusal(SessionUseError, session.child, session_id="child")
            child = asyncio.ensure_future(session.child_async(session_id="child"))
        await (await child).close_async()


async def test_session_that_this_process_has_open_is_not_waited_for_on_a_loop(wording: Wording) -> None:
    """A task of the loop may have to close it; who does not want to wait is answered as ever."""
    store = MemoryStore()
    held = Session.open(store, "desk")
    assert str(refusal(SessionUseError, Session.open, store, "desk", wait=PATIENCE)) == wording
    refusal(SessionLockedError, Session.open, store, "desk", wait=timedelta(0))
    waiting = asyncio.ensure_future(Session.open_async(store, "desk", wait=PATIENCE))
    await held.close_async()
    await (await waiting).close_async()


async def test_session_is_closed_on_a_loop_whose_call_has_the_writer_unless_something_is_not_stored(desk: Desk) -> None:
    """That would be lost; the session stays open, and `close_async` writes it."""
    stored, unstored = Session.open(desk.store, "stored"), Session.open(desk.store, "unstored")
    unstored.conversation.append({"role": "assistant"}, calls=[ToolCall("1", "note", {})], reply="r")
    async with desk.writing():
        stored.close()
        refusal(SessionUseError, unstored.close)
        closing = asyncio.ensure_future(unstored.close_async())
    await closing
    async with (
        await Session.open_async(desk.store, "unstored") as again,
        await Session.open_async(desk.store, "stored"),
    ):
        assert again.conversation.messages == [{"role": "assistant"}]


@pytest.mark.parametrize("first", ["a message", "a value"])
@pytest.mark.parametrize("second", ["a message", "a value"])
async def test_write_behind_another_one_of_its_session_is_refused_on_a_loop(
    desk: Desk, first: str, second: str
) -> None:
    """The first one waits for the call, on a thread; the second would wait for the first, and so for the call."""
    async with await Session.open_async(desk.store, "desk") as session:
        async with desk.writing():
            written = asyncio.ensure_future(WRITES[first][1](session))
            while not desk.driver.call_places.waiting:  # noqa: ASYNC110 - a semaphore of threads has no event
                await asyncio.sleep(0)
            before = contents(session)
            refusal(SessionUseError, WRITES[second][0], session)
            assert contents(session) == before
        await written
        WRITES[second][0](session)


async def test_record_of_a_call_on_the_thread_of_a_loop_waits_for_others(desk: Desk) -> None:
    """The handler has run when another call takes the writer, so what it did is committed all the same."""
    taken = threading.Event()

    def write() -> None:
        with call() as transaction:
            add(desk.store.connection(), "tea")
            taken.set()
            while not desk.driver.call_places.waiting:
                threading.Event().wait(0)
            transaction.commit()

    with ThreadPoolExecutor(1) as pool, Session.open(desk.store, "desk") as session:

        def wait(params: kit.Note, *, context: ToolContext) -> ToolResult[kit.Note]:
            pool.submit(Context().run, write)
            taken.wait()
            return ToolResult.ok(params)

        made = kit.executor(kit.tool("wait", wait, effect="external"), session=session)
        assert made.execute(kit.call("wait"), reply="r").success


async def test_refusal_after_the_message_was_taken_says_that_it_is_stored_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call may take the writer in between; the message is in the conversation then, and is not appended again."""
    async with await Session.open_async(desk.store, "desk") as session:
        recorder = session.recorder
        assert recorder is not None
        async with desk.writing():
            monkeypatch.setattr(type(recorder), "check_wait", bool)
            refusal(StoreUnavailableError, session.conversation.append, QUESTION)
            monkeypatch.undo()
        assert session.conversation.messages == [QUESTION]
        await session[Note].append_async(Note("next"))
    async with await Session.open_async(desk.store, "desk", types=[Note]) as again:
        assert again.conversation.messages == [QUESTION]


async def test_asynchronous_forms_hold_no_loop_and_the_guard_sees_the_others(desk: Desk) -> None:
    """Behind the asynchronous entry each write on the thread of the loop is refused, whether it would wait or not."""
    session = await Session.open_async(desk.store, "desk")

    @asynchronous_entry
    async def write() -> None:
        for name, (act, awaited) in WRITES.items():
            if name not in {"a call", "a reset"}:  # a call is an entry of its own; nothing is there to be emptied
                refusal(LoopBlockedError, act, session)
            await awaited(session)

    await write()
    await session.close_async()
    await desk.store.close_async()


async def test_write_that_is_cancelled_has_ended(desk: Desk) -> None:
    """The cancellation is raised when the message is stored."""
    async with await Session.open_async(desk.store, "desk") as session:
        async with desk.writing():
            written = asyncio.ensure_future(session.conversation.append_async(QUESTION))
            await asyncio.sleep(0)
            written.cancel()
        with pytest.raises(asyncio.CancelledError):
            await written
        assert session.conversation.messages == [QUESTION]
