"""What threads complete is awaited by tasks, threads and coroutines of no loop; nobody is left waiting."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import anyio
import anyio.to_thread
import pytest

from handrail import waiting
from handrail.threads import ThreadCache
from handrail.waiting import (
    Completion,
    Wait,
    complete_in_thread,
    complete_in_thread_or_here,
    completed,
    may_begin,
    outlast,
    run_blocking,
    run_detached,
    run_on_new_loop,
    turn_to_begin,
)

PATIENCE = 20.0


def completed_later(value: str) -> Completion[str]:
    """What another thread completes soon."""
    completion: Completion[str] = Completion()
    threading.Timer(0.01, completion.set_result, (value,)).start()
    return completion


def test_completion_calls_each_callback_once_whenever_it_is_added() -> None:
    """Before and after it is completed; what one of them raises is logged, and keeps no other from being called."""
    completion: Completion[int] = Completion()
    called: list[object] = []

    def fail(_: object) -> None:
        called.append("fails")
        raise ValueError

    completion.add_done_callback(lambda each: called.append(each.result()))
    completion.add_done_callback(fail)
    completion.add_done_callback(lambda each: called.append(each.result() + 1))
    assert not completion.done()
    completion.set_result(1)
    completion.add_done_callback(lambda each: called.append(each.result() + 2))
    assert called == [1, "fails", 2, 3]


def test_an_interrupt_of_a_callback_keeps_no_other_from_being_called() -> None:
    """It is raised in the thread that completes it when all have been called."""
    completion: Completion[int] = Completion()
    called: list[int] = []

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    completion.add_done_callback(interrupted)
    completion.add_done_callback(lambda each: called.append(each.result()))
    with pytest.raises(KeyboardInterrupt):
        completion.set_result(1)
    assert called == [1]


def test_any_number_of_callbacks_is_called_at_any_depth_of_the_stack() -> None:
    """More than the interpreter permits calls within one another."""
    completion: Completion[int] = Completion()
    called: list[int] = []
    for _ in range(sys.getrecursionlimit() * 2):
        completion.add_done_callback(lambda each: called.append(each.result()))
    completion.set_result(1)
    assert len(called) == sys.getrecursionlimit() * 2


def test_completion_raises_what_it_was_completed_with() -> None:
    """To a thread that blocks, and to a task."""
    completion: Completion[int] = Completion()
    threading.Timer(0.01, completion.set_exception, (ValueError("x"),)).start()
    with pytest.raises(ValueError, match="x"):
        completion.result()
    with pytest.raises(ValueError, match="x"):
        asyncio.run(outlast(completion))


def test_what_has_to_be_done_is_done_here_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it runs on another thread; what it raises is raised where the result is read."""
    assert complete_in_thread_or_here(threading.current_thread).result() is not threading.current_thread()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def fail() -> None:
        raise RuntimeError("of the body")

    monkeypatch.setattr(waiting, "THREADS", ThreadCache())  # without an idle one
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert complete_in_thread_or_here(threading.current_thread).result() is threading.current_thread()
    with pytest.raises(RuntimeError, match="of the body"):
        complete_in_thread_or_here(fail).result()


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


async def _twice(first: Completion[str], second: Completion[str]) -> tuple[str, str, str]:
    one = await Wait(first)
    return one, await Wait(second), threading.current_thread().name


def test_coroutine_without_a_loop_waits_in_its_thread_or_continues_in_another() -> None:
    """Both return what it returns; the detached one continues in the thread that completes what it waits for."""
    done: Completion[str] = Completion()
    done.set_result("a")
    assert run_blocking(_twice(done, completed_later("b"))) == ("a", "b", threading.current_thread().name)
    first, last = Completion[str](), Completion[str]()
    detached = run_detached(_twice(first, last))
    first.set_result("a")
    assert not detached.done()
    thread = threading.Thread(target=last.set_result, args=("b",), name="completing")
    thread.start()
    assert detached.result() == ("a", "b", "completing")
    thread.join(PATIENCE)


def test_detached_coroutine_that_raises_completes_with_its_exception() -> None:
    """Nothing is lost in the thread in which it ended."""

    async def fail() -> None:
        await Wait(completed_later("a"))
        raise KeyError("k")

    with pytest.raises(KeyError):
        run_detached(fail()).result()


def test_interrupt_of_a_thread_that_waits_is_raised_in_the_coroutine() -> None:
    """It decides what follows, and may wait again."""
    interrupts = iter([KeyboardInterrupt()])

    class Interrupting(Completion[str]):
        def add_done_callback(self, called: Any, /) -> None:
            error = next(interrupts, None)
            if error is not None:
                raise error
            super().add_done_callback(called)

    async def persist() -> str:
        waited = Interrupting()
        threading.Timer(0.01, waited.set_result, ("in the end",)).start()
        try:
            return await Wait(waited)
        except KeyboardInterrupt:
            return f"interrupted, {await Wait(waited)}"

    assert run_blocking(persist()) == "interrupted, in the end"


@pytest.mark.parametrize("with_anyio", [True, False])
def test_task_that_is_cancelled_outlasts_what_it_waits_for(with_anyio: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is cancelled; then it is cancelled in fact."""
    if not with_anyio:
        monkeypatch.delitem(sys.modules, "anyio")

    async def main() -> None:
        completion: Completion[int] = Completion()
        task = asyncio.ensure_future(outlast(completion))
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

    class Counted(Completion[int]):
        def done(self) -> bool:
            looks.append(super().done())
            return looks[-1]

    async def main() -> None:
        completion = Counted()
        thread = threading.Thread(target=completion.set_result, args=(1,))
        async with anyio.create_task_group() as group:
            group.start_soon(outlast, completion)
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
        first, second = Completion[int](), Completion[int]()
        tasks = [asyncio.ensure_future(outlast(each)) for each in (first, second)]
        await asyncio.sleep(0)
        with monkeypatch.context() as patched:
            patched.setattr(waiting, "_runs_here", interrupt)
            with pytest.raises(KeyboardInterrupt):
                first.set_result(1)
        second.set_result(2)
        assert await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE) == [1, 2]

    def interrupt(_: object) -> bool:
        raise KeyboardInterrupt

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [False, True])
def test_coroutine_that_is_closed_blocks_until_what_it_waits_for_is_done(cancelled: bool) -> None:
    """As when its loop was closed before it had ended: nothing can be awaited any more."""
    completion: Completion[str] = Completion()
    loop = asyncio.new_event_loop()
    waiting = outlast(completion)
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


def test_completions_of_several_threads_wake_each_task_of_several_loops() -> None:
    """None is lost, however they coincide."""

    async def main() -> list[int]:
        waited = [Completion[int]() for _ in range(500)]

        def complete(part: int) -> None:
            for each in waited[part::4]:
                each.set_result(1)

        threads = [threading.Thread(target=complete, args=(part,)) for part in range(4)]
        tasks = [asyncio.ensure_future(outlast(each)) for each in waited]
        await asyncio.sleep(0)
        for thread in threads:
            thread.start()
        return await asyncio.gather(*tasks)

    loops = [threading.Thread(target=lambda: results.append(asyncio.run(main()))) for _ in range(3)]
    results: list[list[int]] = []
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(PATIENCE)
    assert results == [[1] * 500] * 3


class CountedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock is set by what runs in it.

    Attributes:
        now: the time, in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now


class CancelledBySignal(asyncio.Future[None]):
    """A future that a signal cancels when it is about to be completed, as `asyncio.run` does with Ctrl-C."""

    def set_result(self, result: None, /) -> None:
        self.cancel()
        super().set_result(result)


def test_a_task_that_a_signal_cancels_when_it_is_woken_keeps_no_other_from_being_woken() -> None:
    """The loop is woken for those that are completed together with it, and for later ones."""

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        first: Completion[None] = Completion()
        loop.create_future = lambda: CancelledBySignal(loop=loop)  # type: ignore[method-assign]
        interrupted = completed(first)
        del loop.create_future  # that of the class again
        beside, later = outlast(completed_later("beside")), outlast(completed_later("later"))
        first.set_result(None)
        with pytest.raises(asyncio.CancelledError):
            await interrupted
        return [await asyncio.wait_for(beside, PATIENCE), await asyncio.wait_for(later, PATIENCE)]

    assert asyncio.run(main()) == ["beside", "later"]


@pytest.mark.parametrize("task_ms, slices", [(0.24, [8] * 5), (0.9, [8, 2, 2, 2]), (5.0, [8, 1, 1, 1])])
def test_tasks_that_are_woken_together_leave_the_loop_free_every_two_milliseconds(
    task_ms: float, slices: list[int]
) -> None:
    """As after a group commit; a slice is as large as the time that the tasks of the one before took allows."""
    assert _slices(task_ms / 1000)[: len(slices)] == slices


def test_short_tasks_are_woken_in_slices_that_grow() -> None:
    """Twice as many each time, up to two milliseconds."""
    assert _slices(0.000049)[:4] == [8, 16, 32, 40]


def _slices(task_seconds: float) -> list[int]:
    """How many of 100 tasks run in each iteration of the loop, from the first in which one runs."""
    loop = CountedLoop()
    woken: list[int] = []

    async def wait(completion: Completion[None]) -> None:
        await outlast(completion)
        loop.now += task_seconds
        woken[-1] += 1

    async def main() -> None:
        completions = [Completion[None]() for _ in range(100)]
        tasks = [asyncio.ensure_future(wait(each)) for each in completions]
        await asyncio.sleep(0)

        def complete() -> None:
            for each in completions:
                each.set_result(None)

        complete_in_thread(complete).result()
        while not all(task.done() for task in tasks):
            woken.append(0)
            await asyncio.sleep(0)

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return [each for each in woken if each]


@pytest.mark.parametrize("task_ms, begun", [(0.24, [9, 8, 8]), (0.9, [3, 8, 2, 2, 2]), (5.0, [1, 8, 1, 1, 1])])
def test_calls_that_begin_together_leave_the_loop_to_others_every_two_milliseconds(
    task_ms: float, begun: list[int]
) -> None:
    """In the order in which they asked; others run in the iterations between."""
    order, slices = _begun(task_ms / 1000)
    assert order == [*range(100)]
    assert slices[: len(begun)] == begun


def _begun(task_seconds: float) -> tuple[list[int], list[int]]:
    """The order in which 100 tasks have begun, and how many of them in each iteration in which one has."""
    loop = CountedLoop()
    order: list[int] = []
    slices: list[int] = []

    async def begin(number: int) -> None:
        if not may_begin():
            await turn_to_begin()
        loop.now += task_seconds
        order.append(number)
        slices[-1] += 1

    async def main() -> None:
        tasks = [asyncio.ensure_future(begin(number)) for number in range(60)]
        while len(order) < 100:
            slices.append(0)
            await asyncio.sleep(0)
            if len(tasks) < 100:  # others arrive while those wait
                tasks.append(asyncio.ensure_future(begin(len(tasks))))

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return order, [each for each in slices if each]


def test_a_task_that_is_cancelled_before_it_may_begin_holds_nobody_up() -> None:
    """It has not begun, and those behind it do."""
    loop = CountedLoop()
    begun: list[int] = []

    async def begin(number: int) -> None:
        if not may_begin():
            await turn_to_begin()
        loop.now += 1.0
        begun.append(number)

    async def main() -> None:
        tasks = [asyncio.ensure_future(begin(number)) for number in range(4)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.wait(tasks)
        assert may_begin()

    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert begun == [0, 1, 3]
