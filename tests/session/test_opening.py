"""`Session.open_async` opens a session on a thread."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from handrail.errors import SessionLockedError
from handrail.session import Session
from handrail.store import open as open_store


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
