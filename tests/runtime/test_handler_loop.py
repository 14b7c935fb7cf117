"""The event loop of `async def` handlers through the synchronous entry."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from contextvars import ContextVar
from functools import partial

import pytest

from handrail.runtime.execution import BLOCKING, run_to_completion
from handrail.runtime.handler_loop import MOST_KEPT, run_on_handler_loop
from tests.open_files import open_files

_NAME: ContextVar[str] = ContextVar("name", default="")


async def running_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs this."""
    return asyncio.get_running_loop()


def test_each_thread_has_a_loop_that_is_closed_with_it() -> None:
    """No loop is used by two threads, and none outlives its thread."""
    own = run_on_handler_loop(running_loop)
    others: list[asyncio.AbstractEventLoop] = []

    def work() -> None:
        others.extend(run_on_handler_loop(running_loop) for _ in range(2))
        assert not others[0].is_closed()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert others[0] is others[1]
    assert others[0] is not own
    assert others[0].is_closed()
    assert not own.is_closed()


def test_tasks_that_a_handler_leaves_are_cancelled_at_its_end() -> None:
    """They do not run on during a later call; what they raise then is reported to the loop."""
    left: list[asyncio.Task[None]] = []
    reported: list[object] = []

    async def fail_when_cancelled() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise ValueError("cleaning up")

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: reported.append(said["exception"]))
        left.append(asyncio.ensure_future(asyncio.sleep(3600)))
        left.append(asyncio.ensure_future(fail_when_cancelled()))
        await asyncio.sleep(0)

    run_on_handler_loop(leave)
    run_on_handler_loop(running_loop).set_exception_handler(None)
    assert left[0].cancelled()
    assert [type(error) for error in reported] == [ValueError]


def test_an_interrupt_closes_the_loop() -> None:
    """Its state is unknown then; the next call has another one."""

    async def interrupt() -> None:
        raise KeyboardInterrupt

    before = run_on_handler_loop(running_loop)
    with pytest.raises(KeyboardInterrupt):
        run_on_handler_loop(interrupt)
    assert before.is_closed()
    assert run_on_handler_loop(running_loop) is not before


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_before_the_handler_leaves_the_loop_open() -> None:
    """And closes the coroutine that has not started, of which Python would warn."""

    async def interrupt() -> object:
        signal.raise_signal(signal.SIGINT)
        return await BLOCKING.run(running_loop, is_async=True, seconds=None)

    before = run_on_handler_loop(running_loop)
    with pytest.raises(KeyboardInterrupt):
        run_to_completion(interrupt())
    gc.collect()
    assert run_on_handler_loop(running_loop) is before


def test_a_handler_sees_the_context_of_its_own_call() -> None:
    """Not that of the first call of the thread; and what it sets is gone with it."""

    async def swap(name: str) -> str:
        seen = _NAME.get()
        _NAME.set(name)
        return seen

    token = _NAME.set("first")
    try:
        assert run_on_handler_loop(partial(swap, "lost")) == "first"
        _NAME.set("second")
        assert run_on_handler_loop(partial(swap, "lost")) == "second"
        assert _NAME.get() == "second"
    finally:
        _NAME.reset(token)


def test_the_program_keeps_its_own_current_loop() -> None:
    """A task that it puts on its loop is not one that a handler has left."""
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    try:
        used = run_on_handler_loop(running_loop)
        assert used is not own
        assert asyncio.get_event_loop() is own
    finally:
        asyncio.set_event_loop(None)
        own.close()


def test_idle_threads_keep_no_more_loops_than_are_bounded() -> None:
    """Each loop has three descriptors; the threads beyond have one for each call."""
    run_on_handler_loop(running_loop)
    threads, ended = MOST_KEPT + 8, threading.Event()
    done = threading.Semaphore(0)
    gc.collect()
    before = len(open_files())

    def work() -> None:
        for _ in range(2):
            run_on_handler_loop(running_loop)
        done.release()
        ended.wait()

    idle = [threading.Thread(target=work) for _ in range(threads)]
    for thread in idle:
        thread.start()
    for _ in idle:
        done.acquire()
    open_then = len(open_files()) - before
    ended.set()
    for thread in idle:
        thread.join()
    assert 0 < open_then <= 3 * MOST_KEPT
    assert len(open_files()) <= before


@pytest.mark.parametrize("thread", ["main", "daemon"])
@pytest.mark.short(1)
def test_a_process_ends_cleanly_whatever_its_handlers_have_used(thread: str) -> None:
    """Also where the loop has threads of its own, and where a daemon thread still has a loop."""
    program = f"""
import asyncio, threading
from handrail.runtime.execution import BLOCKING, run_to_completion
from handrail.runtime.handler_loop import MOST_KEPT, run_on_handler_loop
idle = threading.Event()
def work(wait):
    run_on_handler_loop(lambda: asyncio.to_thread(int))
    idle.set()
    if wait:
        threading.Event().wait()
if {thread == "main"}:
    work(False)
else:
    threading.Thread(target=work, args=(True,), daemon=True).start()
idle.wait()
print("end")
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, check=False, text=True, timeout=50
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")


def test_a_forked_process_has_a_loop_of_its_own() -> None:
    """What it does on its loop is not noticed by the loop of its parent, which goes on."""
    own = run_on_handler_loop(running_loop)
    ended = os.fork()
    if ended == 0:
        code = 1
        try:
            loop = run_on_handler_loop(running_loop)
            run_on_handler_loop(partial(asyncio.sleep, 0.001))
            code = 0 if loop is not own else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(ended, 0)[1]) == 0
    run_on_handler_loop(partial(asyncio.sleep, 0.001))
    assert run_on_handler_loop(running_loop) is own
