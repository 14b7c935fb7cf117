"""SIGTERM while the desk's agent runs, and between its runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from termination import interrupt_on_sigterm, run_interruptible


@pytest.fixture
def sigterm() -> Iterator[None]:
    """SIGTERM as the desk takes it."""
    before = signal.getsignal(signal.SIGTERM)
    interrupt_on_sigterm()
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm", "ctrl_c")
@pytest.mark.parametrize("ctrl_c_ignored", [False, True])
def test_sigterm_in_a_nested_task_ends_the_run_in_order(ctrl_c_ignored: bool) -> None:
    """The signal handler runs in the nested task, but what ends is the main task; no exception group is raised.

    It does not depend on SIGINT, which is ignored where the desk runs in the background of a script.
    """
    if ctrl_c_ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended: list[str] = []

    async def terminated() -> None:
        signal.raise_signal(signal.SIGTERM)
        ended.append("handler returned")

    async def work() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(terminated())
                await asyncio.Event().wait()
        finally:
            ended.append("main task cancelled")

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work())
    assert ended == ["handler returned", "main task cancelled"]
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


@pytest.mark.usefixtures("sigterm")
def test_sigterm_that_comes_too_late_to_cancel_is_not_lost() -> None:
    """The coroutine has returned before its task could be cancelled."""

    async def work() -> None:
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work())


def test_a_program_that_did_not_ask_for_it_keeps_its_sigterm() -> None:
    """The night desk ends at once."""
    before = signal.getsignal(signal.SIGTERM)

    async def work() -> bool:
        return signal.getsignal(signal.SIGTERM) is before

    assert run_interruptible(work())
