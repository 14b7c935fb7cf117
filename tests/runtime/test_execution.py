"""The two ways to carry a call out: how they wait, what they leave behind, and the loop of `async def` handlers."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Any, cast

import anyio
import pytest

from handrail import tool as function_tool
from handrail.limits import Deadline
from handrail.prompt import External, IdempotencyConfig, ToolContext, ToolResult
from handrail.resources import Binding, Scope
from handrail.runtime import EffectLedger
from handrail.runtime.execution import ASYNC, BLOCKING, ExecutionMode, ExecutionTimeoutError, run_to_completion
from handrail.runtime.handler_loop import run_on_handler_loop
from handrail.store.memory import MemoryStore
from handrail.transaction import current
from tests.handler_threads import HandlerThreads
from tests.kit import Kept, Note, Run, both_ways, call, executor, tool
from tests.wording import Wording


class Hanging:
    """A tool whose handler never ends by itself, and takes a few iterations of the loop to clean up.

    Attributes:
        executor: has the tool, by the name "hang".
        started: set when the handler waits.
        order: what has happened after that.
    """

    def __init__(self, timeout: timedelta) -> None:
        self.started = asyncio.Event()
        self.order: list[str] = []
        binding = Binding(Hanging, lambda _: self, scope=Scope.TOOL_CALL)
        hanging = tool("hang", self._hang, timeout=timeout)
        self.executor = executor(hanging, resources={Hanging: binding})

    async def _hang(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.resources.get(Hanging)
        try:
            self.started.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            self.order.append("cleaned up")
        return ToolResult.ok(params)

    def close(self) -> None:
        """As a resource of the call."""
        self.order.append("closed")


def test_an_unbounded_handler_runs_on_the_calling_thread_unless_that_runs_a_loop() -> None:
    """A `def` handler may block, and would stop the loop; a bounded one has a thread of its own."""
    ran_on: list[int] = []

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        ran_on.append(threading.get_ident())
        return ToolResult.ok(params)

    door = executor(tool("work", handler), tool("bounded", handler, timeout=timedelta(minutes=1)))
    assert door.execute(call("work", id="1")).success
    assert asyncio.run(door.execute_async(call("work", id="2"))).success
    assert door.execute(call("bounded", id="3")).success
    assert [thread == threading.get_ident() for thread in ran_on] == [True, False, False]


def test_a_task_that_overran_may_clean_up_before_its_call_ends() -> None:
    """It is cancelled and given a moment: what it holds is let go of before its resources are closed."""
    hanging = Hanging(timedelta(milliseconds=10))
    assert not hanging.executor.execute(call("hang")).success
    assert hanging.order == ["cleaned up", "closed"]


@pytest.mark.anyio
async def test_a_task_that_anyio_cancels_may_clean_up_before_its_call_ends() -> None:
    """AnyIO cancels the call again in each iteration of the loop; its handler has the moment all the same."""
    hanging = Hanging(timedelta(minutes=1))
    async with anyio.create_task_group() as group:
        group.start_soon(hanging.executor.execute_async, call("hang"))
        await hanging.started.wait()
        group.cancel_scope.cancel()
    assert hanging.order == ["cleaned up", "closed"]


# ------------------------------------------------------------------------------------------ what ends after all

SOON = 0.01


class Heard:
    """What `late` was called with, and where; it can be waited for."""

    def __init__(self, *, fails: bool = False) -> None:
        self.ended: list[Future[Any]] = []
        self.at_once = threading.Event()
        self._fails = fails

    def __call__(self, ended: Future[Any]) -> None:
        assert ended.done()
        self.ended.append(ended)
        self.at_once.set()
        if self._fails:
            raise ValueError("the store is down")

    def outcome(self) -> object:
        """The one result or exception that was heard, which must come."""
        assert self.at_once.wait(10)
        (ended,) = self.ended
        return ended.exception() or ended.result()


def overrun(way: ExecutionMode, body: Callable[[], Any], *, is_async: bool, late: Heard, then: Any = bool) -> None:
    """Run a body that overruns, do something after that, and end the loop, if there is one."""

    async def on_loop() -> None:
        with pytest.raises(ExecutionTimeoutError):
            await way.run(body, is_async=is_async, seconds=SOON, late=late)
        then()

    if way is ASYNC:
        asyncio.run(on_loop())
    else:
        run_to_completion(on_loop())


@pytest.fixture(autouse=True)
def threads() -> Generator[HandlerThreads]:
    """The threads of a test; they end before the next one, which would find what they log."""
    started = HandlerThreads()
    yield started
    started.join()


both = pytest.mark.parametrize("way", [BLOCKING, ASYNC], ids=["inline", "on loop"])


ENDINGS = pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])


@both
@ENDINGS
def test_a_task_that_will_not_end_is_heard_when_it_does(
    way: ExecutionMode, fails: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has swallowed its cancellation."""
    monkeypatch.setattr("handrail.runtime.execution._CLEAN_UP_SECONDS", SOON)
    release, late, error = threading.Event(), Heard(), ConnectionError("reset")

    async def stubborn() -> str:
        while not release.is_set():
            try:
                await asyncio.sleep(SOON)
            except asyncio.CancelledError:
                continue
        if fails:
            raise error
        return "paid"

    def go_on() -> None:
        assert late.ended == []
        release.set()

    overrun(way, stubborn, is_async=True, late=late, then=go_on)
    assert late.outcome() == (error if fails else "paid")
    # The loop may end before the task, and asyncio logs what the task raises then.
    assert [record for record in caplog.records if record.name.startswith("handrail")] == []


@both
def test_what_late_raises_is_logged(
    way: ExecutionMode, caplog: pytest.LogCaptureFixture, threads: HandlerThreads, wording: Wording
) -> None:
    """And goes nowhere else: there is no caller left."""
    release, late = threading.Event(), Heard(fails=True)

    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "paid"
        return "never"

    overrun(way, slow, is_async=True, late=late)
    assert late.outcome() == "paid"
    thread = Heard(fails=True)
    overrun(way, lambda: release.wait() and "paid", is_async=False, late=thread)
    release.set()
    assert thread.outcome() == "paid"
    threads.join()  # it is logged after that
    assert caplog.messages == wording
    assert {record.name for record in caplog.records} == {"handrail.runtime"}


def test_a_task_that_is_cancelled_in_time_is_not_heard(caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """It did not overrun: its call was ended. What it raises is logged."""
    late = Heard()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("reset")

    async def run() -> None:
        call_of_it = asyncio.ensure_future(ASYNC.run(slow, is_async=True, seconds=60.0, late=late))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        call_of_it.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call_of_it

    asyncio.run(run())
    assert late.ended == []
    assert caplog.messages == wording


BOUNDS: dict[str, dict[str, Any]] = {"unbounded": {}, "bounded": {"timeout": timedelta(minutes=1)}}


async def later(params: Note, context: ToolContext) -> ToolResult[Note]:
    """Suspend, then write and succeed."""
    await asyncio.sleep(0)
    assert current() is not None
    context.session[Kept].append(Kept(params.text))
    return ToolResult.ok(params)


def returns(make: Callable[[Note, ToolContext], object]) -> Any:
    """A `def` handler of which nothing tells that it returns an awaitable."""

    def handler(params: Note, *, context: ToolContext) -> Any:
        return make(params, context)

    return handler


class Promise:
    """An awaitable that is not a coroutine."""

    def __init__(self, made: Awaitable[Any]) -> None:
        self.made = made

    def __await__(self) -> Any:
        return self.made.__await__()


def promise(params: Note, context: ToolContext) -> Promise:
    """The same as an object."""
    return Promise(later(params, context))


@both_ways
@pytest.mark.parametrize("options", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("wrapped", [False, True], ids=["coroutine", "object"])
def test_what_it_returns_is_awaited_inside_the_call(way: Run, options: Any, *, wrapped: bool) -> None:
    """Its writes belong to the call, and what it comes to is the result."""
    make: Callable[[Note, ToolContext], object] = promise if wrapped else later
    door = executor(tool("later", returns(make), **options))
    assert way(door, call("later")).content == "hello"
    assert door.environment.session[Kept].all() == (Kept("hello"),)


@both_ways
def test_a_first_part_that_overruns_never_begins_the_second(way: Run) -> None:
    """Whether the effect happened is not known, and what comes too late says nothing of it."""
    release, store, threads = threading.Event(), MemoryStore(), HandlerThreads()
    begun: list[str] = []

    async def second(params: Note) -> ToolResult[Note]:
        begun.append(params.text)
        return ToolResult.ok(params)

    def handler(params: Note, *, context: ToolContext) -> Any:
        release.wait()
        return second(params)

    paying = tool(
        "pay",
        handler,
        effect=External(accept_late_result=True),
        idempotency=IdempotencyConfig(),
        timeout=timedelta(milliseconds=20),
    )
    door = executor(paying, effect_ledger=EffectLedger(store))
    assert not way(door, call("pay")).success
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release.set()
        threads.join()
        gc.collect()
    assert (begun, [row.status for row in store.rows()]) == ([], ["unknown"])


def declared(make: Callable[[str], object]) -> Any:
    """A function tool that declares a string, and returns what this makes."""

    @function_tool(name="pay", effect="external")
    def pay(text: str) -> str:
        """Pay."""
        return cast("str", make(text))

    return pay


@both_ways
@pytest.mark.parametrize(
    "options", [{}, {"deadline": Deadline.after(timedelta(hours=1))}], ids=["unbounded", "bounded"]
)
def test_a_function_is_awaited_whatever_it_declares(way: Run, options: Any) -> None:
    """Its body has run when the effect is recorded."""
    charges: list[str] = []

    async def charge(text: str) -> str:
        await asyncio.sleep(0)
        charges.append(text)
        return f"paid {text}"

    store = MemoryStore()
    door = executor(declared(charge), effect_ledger=EffectLedger(store), **options)
    assert way(door, call("pay")).content == "paid hello"
    assert (charges, [row.status for row in store.rows()]) == (["hello"], ["done"])


def generated(text: str) -> Any:
    """Pay, once somebody asks for the first item."""
    yield text


async def generated_later(text: str) -> Any:
    """The same on an event loop."""
    yield text


async def twice_awaited(text: str) -> object:
    """Return what would have to be awaited again."""
    return later(Note(text), cast("Any", None))


def submitted(_text: str) -> Future[str]:
    """Return what another thread has not done yet."""
    return Future()


@both_ways
@pytest.mark.parametrize("returned", [generated, generated_later, twice_awaited, submitted])
def test_work_that_has_perhaps_not_been_done_fails_the_call(
    way: Run, returned: Callable[[str], object], wording: Wording
) -> None:
    """Whatever the function declares; the effect is unknown, and the call is not answered as a success again."""
    for make in (declared, undeclared):
        store = MemoryStore()
        door = executor(make(returned), effect_ledger=EffectLedger(store))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            message = way(door, call("pay"))
            assert (message.success, message.content) == (False, wording)
            gc.collect()
        assert [row.status for row in store.rows()] == ["unknown"]
        assert not way(door, call("pay")).success


def undeclared(make: Callable[[str], object]) -> Any:
    """A function tool that declares nothing of what it returns."""

    @function_tool(name="pay", effect="external")
    def pay(text: str) -> Any:
        """Pay."""
        return make(text)

    return pay


_NAME: ContextVar[str] = ContextVar("name", default="")


async def running_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs this."""
    return asyncio.get_running_loop()


def test_tasks_that_a_handler_leaves_are_cancelled_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """They do not run on during a later call; asyncio logs what they raise then."""
    left: list[asyncio.Task[None]] = []

    async def fail_when_cancelled() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise ValueError("cleaning up")

    async def leave() -> None:
        left.append(asyncio.ensure_future(asyncio.sleep(3600)))
        left.append(asyncio.ensure_future(fail_when_cancelled()))
        await asyncio.sleep(0)

    run_on_handler_loop(leave)
    assert left[0].cancelled()
    left.clear()
    assert "ValueError: cleaning up" in caplog.text


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


@pytest.mark.parametrize("thread", ["main", "daemon"])
@pytest.mark.short(1)
def test_a_process_ends_cleanly_whatever_its_handlers_have_used(thread: str) -> None:
    """Also where the loop has threads of its own, and where a daemon thread still has a loop."""
    program = f"""
import asyncio, threading
from handrail.runtime.execution import BLOCKING, run_to_completion
from handrail.runtime.handler_loop import run_on_handler_loop
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
