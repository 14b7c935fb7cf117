"""`handrail.waiting`: waiting for threads, and the loop guard."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from handrail import tool, waiting
from handrail.errors import LoopBlockedError
from handrail.filesystem import HostFilesystem
from handrail.runtime import ToolCall
from handrail.threads import ThreadCache
from handrail.waiting import (
    Wait,
    await_shielded,
    loop_future,
    run_blocking,
    run_detached,
    run_in_thread,
    run_in_thread_or_here,
    run_on_new_loop,
)
from tests.kit import executor

PATIENCE = 20.0


def completed_later(value: str) -> Future[str]:
    """What another thread completes soon."""
    completion: Future[str] = Future()
    threading.Timer(0.01, completion.set_result, (value,)).start()
    return completion


def test_what_has_to_be_done_is_done_here_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it runs on another thread; what it raises is raised where the result is read."""
    assert run_in_thread_or_here(threading.current_thread).result() is not threading.current_thread()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def fail() -> None:
        raise RuntimeError("of the body")

    monkeypatch.setattr(waiting, "THREADS", ThreadCache())  # without an idle one
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert run_in_thread_or_here(threading.current_thread).result() is threading.current_thread()
    with pytest.raises(RuntimeError, match="of the body"):
        run_in_thread_or_here(fail).result()


def test_a_loop_whose_task_exits_ends_the_threads_of_anyio() -> None:
    """Else no process could end: the loop is stopped by the task that exits, and again by the one that awaits it."""
    threads: list[threading.Thread] = []

    async def leave() -> None:
        threads.append(await anyio.to_thread.run_sync(threading.current_thread))
        raise SystemExit(3)

    async def main() -> None:
        leaving = asyncio.ensure_future(leave())
        try:
            await leaving
        except asyncio.CancelledError:  # by the end of the loop, which has been stopped
            leaving.result()

    with pytest.raises(SystemExit) as raised:
        run_on_new_loop(main())
    assert raised.value.code == 3
    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("x"), asyncio.CancelledError()])
def test_a_new_loop_raises_what_its_coroutine_raises(error: BaseException) -> None:
    """And it returns what that returns."""

    async def end(*, well: bool) -> str:
        if not well:
            raise error
        return "well"

    with pytest.raises(type(error)) as raised:
        run_on_new_loop(end(well=False))
    assert raised.value is error
    assert run_on_new_loop(end(well=True)) == "well"


async def _twice(first: Future[str], second: Future[str]) -> tuple[str, str, str]:
    one = await Wait(first)
    return one, await Wait(second), threading.current_thread().name


def test_coroutine_without_a_loop_waits_in_its_thread_or_continues_in_another() -> None:
    """Both return what it returns; the detached one continues in the thread that completes what it waits for."""
    done: Future[str] = Future()
    done.set_result("a")
    assert run_blocking(_twice(done, completed_later("b"))) == ("a", "b", threading.current_thread().name)
    first, last = Future[str](), Future[str]()
    detached = run_detached(_twice(first, last))
    first.set_result("a")
    assert not detached.done()
    thread = threading.Thread(target=last.set_result, args=("b",), name="completing")
    thread.start()
    assert detached.result() == ("a", "b", "completing")
    thread.join(PATIENCE)


def test_interrupt_of_a_thread_that_waits_is_raised_in_the_coroutine() -> None:
    """It decides what follows, and may wait again."""
    interrupts = iter([KeyboardInterrupt()])

    class Interrupting(Future[str]):
        def exception(self, timeout: float | None = None) -> BaseException | None:
            error = next(interrupts, None)
            if error is not None:
                raise error
            return super().exception(timeout)

    async def persist() -> str:
        waited: Future[str] = Interrupting()
        threading.Timer(0.01, waited.set_result, ("in the end",)).start()
        try:
            return await Wait(waited)
        except KeyboardInterrupt:
            return f"interrupted, {await Wait[str](waited)}"

    assert run_blocking(persist()) == "interrupted, in the end"


@pytest.mark.parametrize("with_anyio", [True, False])
def test_task_that_is_cancelled_outlasts_what_it_waits_for(with_anyio: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is cancelled; then it is cancelled in fact."""
    if not with_anyio:
        monkeypatch.delitem(sys.modules, "anyio")

    async def main() -> None:
        completion: Future[int] = Future()
        task = asyncio.ensure_future(await_shielded(completion))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        completion.set_result(1)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_task_that_anyio_cancels_waits_without_being_woken() -> None:
    """AnyIO cancels a task again in each iteration of the loop; the loop is not busy with that, and the task ends."""
    looks: list[bool] = []

    class Counted(Future[int]):
        def done(self) -> bool:
            looks.append(super().done())
            return looks[-1]

    async def main() -> None:
        completion = Counted()
        thread = threading.Thread(target=completion.set_result, args=(1,))
        async with anyio.create_task_group() as group:
            group.start_soon(await_shielded, completion)
            await asyncio.sleep(0)
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                for _ in range(100):
                    await asyncio.sleep(0)
                thread.start()
        thread.join(PATIENCE)

    asyncio.run(main())
    assert looks == [False, False, True]


def test_a_thread_that_is_interrupted_while_it_wakes_a_loop_keeps_no_later_one_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next thing that is completed wakes both tasks."""

    async def main() -> None:
        first, second = Future[int](), Future[int]()
        tasks = [asyncio.ensure_future(await_shielded(each)) for each in (first, second)]
        await asyncio.sleep(0)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", interrupt)
            with pytest.raises(KeyboardInterrupt):
                first.set_result(1)
        second.set_result(2)
        assert await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE) == [1, 2]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [False, True])
def test_coroutine_that_is_closed_blocks_until_what_it_waits_for_is_done(cancelled: bool) -> None:
    """As when its loop was closed before it had ended: nothing can be awaited any more."""
    completion: Future[str] = Future()
    loop = asyncio.new_event_loop()
    waiting = await_shielded(completion)
    task = loop.create_task(waiting)
    loop.run_until_complete(asyncio.sleep(0))
    if cancelled:
        task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - it is abandoned on purpose
    loop.close()
    threading.Timer(0.01, completion.set_result, ("a",)).start()
    waiting.close()
    assert completion.done()


class CancelledBySignal(asyncio.Future[None]):
    """A future that a signal cancels when it is about to be completed, as `asyncio.run` does with Ctrl-C."""

    def set_result(self, result: None, /) -> None:
        self.cancel()
        super().set_result(result)


def test_a_task_that_a_signal_cancels_when_it_is_woken_keeps_no_other_from_being_woken() -> None:
    """The loop is woken for those that are completed together with it, and for later ones."""

    async def main() -> list[str]:
        loop: Any = asyncio.get_running_loop()
        first: Future[None] = Future()
        loop.create_future = lambda: CancelledBySignal(loop=loop)
        interrupted = loop_future(first)
        del loop.create_future  # that of the class again
        beside, later = await_shielded(completed_later("beside")), await_shielded(completed_later("later"))
        first.set_result(None)
        with pytest.raises(asyncio.CancelledError):
            await interrupted
        return [await asyncio.wait_for(beside, PATIENCE), await asyncio.wait_for(later, PATIENCE)]

    assert asyncio.run(main()) == ["beside", "later"]


def test_tasks_that_are_woken_together_run_in_slices() -> None:
    """As after a group commit: the loop does other work between two of them."""
    slices: list[int] = []

    async def wait(completion: Future[None]) -> None:
        await await_shielded(completion)
        slices[-1] += 1

    async def main() -> None:
        completions = [Future[None]() for _ in range(20)]
        tasks = [asyncio.ensure_future(wait(each)) for each in completions]
        await asyncio.sleep(0)

        def complete() -> None:
            for each in completions:
                each.set_result(None)

        run_in_thread(complete).result()
        while not all(task.done() for task in tasks):
            slices.append(0)
            await asyncio.sleep(0)

    asyncio.run(main())
    assert [each for each in slices if each] == [8, 8, 4]


_PROGRAM = """
import asyncio, sys
from handrail.errors import LoopBlockedError
from handrail.waiting import asynchronous_entry, check_blocking, synchronous_entry

def block():
    check_blocking("reading", "notes.md")
    return "ran"

def outcome(act):
    try:
        return act()
    except LoopBlockedError as error:
        return error.operation

@asynchronous_entry
async def entered(act):
    return outcome(act)

async def in_task():
    return await entered(block)

@asynchronous_entry
async def hands_over():
    return await asyncio.to_thread(outcome, block)

@asynchronous_entry
async def starts():
    return await asyncio.create_task(in_task())

async def alone():
    await entered(block)
    return outcome(block)

print(outcome(block))
for begin in (lambda: entered(block), lambda: entered(synchronous_entry(block)), hands_over, starts, alone):
    print(asyncio.run(begin()))
"""


def test_the_guard_is_on_in_all_tests() -> None:
    """And in the processes that they start."""
    assert waiting.IS_ON
    assert os.environ[waiting.VARIABLE] == "1"


def test_an_entry_is_the_function_itself_while_the_guard_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs nothing there."""
    monkeypatch.setattr(waiting, "IS_ON", False)
    assert waiting.synchronous_entry(print) is print
    assert waiting.asynchronous_entry(asyncio.to_thread) is asyncio.to_thread


BLOCKED = "reading notes.md"


@pytest.mark.parametrize("value, expected", [("1", ["ran", BLOCKED, "ran", "ran", BLOCKED, "ran"]), ("0", ["ran"] * 6)])
def test_only_the_loop_of_an_asynchronous_entry_is_guarded(value: str, expected: list[str]) -> None:
    """Outside of it, behind the synchronous entry and on other threads an operation may block; off, all may."""
    environment = {**os.environ, "HANDRAIL_LOOP_GUARD": value}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == expected


@pytest.mark.anyio
async def test_a_handler_that_blocks_the_loop_is_the_developers_mistake(tmp_path: Path) -> None:
    """The exception reaches the program and names the operation; a `def` handler may read."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").write_text("x")
    files = await asyncio.to_thread(HostFilesystem, tmp_path / "root", journal=tmp_path / "journal")

    @tool
    def threaded() -> str:
        return files.read_text("a")

    @tool
    async def on_loop() -> str:
        return files.read_text("a")

    door = executor(threaded, on_loop)
    assert (await door.execute_async(ToolCall("1", "threaded", {}))).success
    with pytest.raises(LoopBlockedError) as blocked:
        await door.execute_async(ToolCall("2", "on_loop", {}))
    assert blocked.value.operation == "reading a"
