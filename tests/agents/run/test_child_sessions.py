"""The session of an agent that another one calls is opened and closed without holding the event loop."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from handrail.agents.run.run_group import open_child_session
from handrail.loop_guard import asynchronous_entry
from handrail.session import Session
from handrail.session.call_ref import CallRef
from handrail.session.persistence.protocol import SessionContents, SessionLock, SessionRow
from handrail.store.memory import MemoryStore
from handrail.testing import FakeClock
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
