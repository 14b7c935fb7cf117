"""Each body has a thread to itself, idle threads are used again, and none of them leaks into what follows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from datetime import timedelta
from queue import SimpleQueue

import pytest

from handrail.threads import ThreadCache
from handrail.waiting import run_in_thread, run_in_thread_or_here

PATIENCE = 20.0


def ran_in(cache: ThreadCache) -> threading.Thread:
    """The thread that a body runs in, once it is over."""
    ended: SimpleQueue[threading.Thread] = SimpleQueue()
    cache.run(lambda: ended.put(threading.current_thread()))
    return ended.get(timeout=PATIENCE)


def test_idle_thread_takes_the_next_body() -> None:
    """A thread is started only while none is idle: its last body may have ended, and it not be idle yet."""
    cache = ThreadCache()
    threads = [ran_in(cache) for _ in range(100)]
    assert len(set(threads)) < len(threads)
    gate, busy_in = threading.Event(), SimpleQueue[threading.Thread]()

    def block() -> None:
        busy_in.put(threading.current_thread())
        gate.wait(PATIENCE)

    cache.run(block)
    busy = busy_in.get(timeout=PATIENCE)
    assert all(ran_in(cache) is not busy for _ in range(10))
    gate.set()
    cache.retire()
    for thread in {busy, *threads}:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_busy_threads_are_waited_for() -> None:
    """Also one that a body has started which was waited for."""
    cache = ThreadCache()
    gate, ended = threading.Event(), list[str]()

    def second() -> None:
        gate.wait(PATIENCE)
        ended.append("second")

    def first() -> None:
        cache.run(second)
        ended.append("first")
        gate.set()

    cache.run(first)
    cache.join()
    assert sorted(ended) == ["first", "second"]


def test_bodies_that_wait_for_each_other_all_run() -> None:
    """There is no upper bound, so that none waits for a thread."""
    cache, together, ended = ThreadCache(), threading.Barrier(60), SimpleQueue[int]()
    for _ in range(60):
        cache.run(lambda: ended.put(together.wait(PATIENCE)))
    assert sorted(ended.get(timeout=PATIENCE) for _ in range(60)) == list(range(60))
    cache.retire()


def test_thread_that_has_been_idle_for_long_ends_and_loses_no_body() -> None:
    """Also one that is given a body just when it ends."""
    cache = ThreadCache(idle=timedelta(0))
    threads = {ran_in(cache) for _ in range(300)}
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)


def test_threads_of_a_closed_cache_run_one_body_each() -> None:
    """As when the interpreter is about to end."""
    cache = ThreadCache()
    idle = ran_in(cache)
    cache.close()
    others = [ran_in(cache) for _ in range(2)]
    for thread in (idle, *others):
        thread.join(PATIENCE)
    assert len({idle, *others}) == 3


VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


@pytest.mark.parametrize("start", [run_in_thread, run_in_thread_or_here])
def test_body_has_a_copy_of_the_context_of_its_caller(start: Callable[[Callable[[], str]], Future[str]]) -> None:
    """What a body sets, neither a later one of its thread finds, nor what is called at its end."""

    def leave() -> str:
        found = VARIABLE.get()
        VARIABLE.set("left behind")
        return found

    seen: SimpleQueue[str] = SimpleQueue()
    gate = threading.Event()

    def late() -> str:
        gate.wait(PATIENCE)
        return leave()

    assert [start(leave).result() for _ in range(5)] == ["unset"] * 5
    token = VARIABLE.set("of the caller")
    ended = start(late)
    VARIABLE.reset(token)
    ended.add_done_callback(lambda _: seen.put(leave()))
    gate.set()
    assert ended.result() == "of the caller"
    assert seen.get(timeout=PATIENCE) == "unset"


def test_idle_thread_keeps_nothing_of_its_body_alive() -> None:
    """It may be idle for long."""

    class Large:
        pass

    cache, large = ThreadCache(), Large()
    gone = threading.Event()
    weakref.finalize(large, gone.set)

    def use(of: Large = large) -> None:
        assert of is not None

    cache.run(use)
    del large, use
    assert gone.wait(PATIENCE)
    cache.retire()


def test_forked_process_has_threads_of_its_own() -> None:
    """It gives no body to the idle threads of its parent, which it does not have."""
    assert [run_in_thread(int).result() for _ in range(3)] == [0] * 3
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = run_in_thread(int).result()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run_in_thread(int).result() == 0


def test_process_ends_while_threads_are_idle_or_busy() -> None:
    """It waits for none of them; what is registered to be called at its end may still run bodies."""
    program = """
import atexit, threading
atexit.register(lambda: print("registered before", complete().result()))
from handrail.waiting import run_in_thread
complete = lambda: run_in_thread(lambda: "has run")
atexit.register(lambda: print("registered after", complete().result()))
print([complete().result() for _ in range(3)])
busy = threading.Event()
run_in_thread(lambda: (busy.set(), threading.Event().wait()))
busy.wait()
print("end")
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, check=False, text=True, timeout=50
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ["['has run', 'has run', 'has run']", "end", "registered after has run", "registered before has run"]
    assert ran.stdout.splitlines() == lines
