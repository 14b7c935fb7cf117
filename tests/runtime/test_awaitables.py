"""A `def` handler that returns an awaitable is awaited, through both entries, within its time."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from datetime import timedelta
from itertools import count
from typing import Any, cast

import pytest

from handrail import tool as function_tool
from handrail.limits import Deadline
from handrail.prompt import Approval, External, IdempotencyConfig, ToolContext, ToolPolicy, ToolResult
from handrail.runtime import EffectLedger
from handrail.store.memory import MemoryStore
from handrail.transaction import current
from tests.handler_threads import HandlerThreads
from tests.kit import ASKS, Kept, Note, Run, both_ways, call, executor, tool
from tests.wording import Wording

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
def test_what_it_comes_to_must_be_a_result(way: Run, wording: Wording) -> None:
    """As with any other handler; nothing that was never awaited is left behind."""

    async def twice(params: Note, context: ToolContext) -> object:
        return later(params, context)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        door = executor(tool("twice", returns(twice)))
        assert way(door, call("twice")).content == wording
        gc.collect()


@both_ways
def test_the_timeout_holds_for_both_parts_together(way: Run, wording: Wording) -> None:
    """The awaited part is cancelled, and its changes are undone."""
    ended: list[str] = []

    async def never(params: Note, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        raise AssertionError

    door = executor(tool("never", returns(never), timeout=timedelta(milliseconds=20)))
    ids = map(str, count())
    told: set[str] = set()
    while not ended:  # on a busy machine the time may be over before the first part has come to the second
        told.add(way(door, call("never", id=next(ids))).content)
        assert door.environment.session[Kept].all() == ()
    assert ended == ["cancelled"]
    assert sorted(told) == wording


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
    assert begun == []
    assert [row.status for row in store.rows()] == ["unknown"]


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
    assert charges == ["hello"]
    assert [row.status for row in store.rows()] == ["done"]


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


@both_ways
def test_a_reconciler_that_returns_an_awaitable_is_awaited(way: Run) -> None:
    """A lambda around an `async def` is one."""

    async def ask(params: Note) -> ToolResult[Note]:
        await asyncio.sleep(0)
        return ToolResult.ok(params)

    def breaks(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise TimeoutError

    effect = External(on_orphan="reconcile", reconcile=lambda params, key: ask(params))
    door = executor(tool("pay", breaks, effect=effect, idempotency=IdempotencyConfig()))
    assert way(door, call("pay", id="1")).replayed


@both_ways
def test_an_approver_that_returns_an_awaitable_is_awaited(way: Run) -> None:
    """A lambda around an `async def` is one."""

    async def ask(_request: object) -> Approval:
        await asyncio.sleep(0)
        return Approval(approved=True)

    def approver(request: object) -> Any:
        return ask(request)

    policy: ToolPolicy = ASKS
    assert way(executor(tool("echo"), policies=(policy,), approver=approver), call("echo")).success
