"""Rollback is exact: after each way in which a call can fail, session and files are as they were, value and byte."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import RollbackError, TransactionClosedError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import PolicyDecision, ToolContext, ToolResult
from handrail.runtime import Session
from handrail.session import Append, SliceView
from tests.kit import Kept, Note, Run, both_ways, call, events, executor, scribble, tool
from tests.wording import Wording


class Ledgerish:
    """A resource of the user's own that can be undone, and cannot tell when it is written to."""

    def __init__(self) -> None:
        self.entries: list[str] = ["first"]

    def snapshot(self) -> list[str]:
        return list(self.entries)

    def restore(self, snapshot: list[str]) -> None:
        self.entries = list(snapshot)


@dataclass
class World:
    """Everything a call may change, with something in it from the start."""

    session: Session
    files: InMemoryFilesystem
    own: Ledgerish

    def image(self) -> object:
        """All of it, as values."""
        slices = {kind.__name__: self.session[kind].all() for kind in self.session.kinds if kind in (Kept, Note)}
        names = [entry.path for entry in self.files.glob("**")]
        return (
            slices,
            [(name, self.files.read_bytes(name)) for name in names if self.files.stat(name).kind == "file"],
            (self.files.list(), list(self.own.entries)),
        )


@pytest.fixture
def world() -> World:
    """A session, files and a resource of the user's own, with something in each."""
    session = Session(session_id="s")
    session[Kept].seed(Kept("one"), Kept("two"))
    session.dispatch(Note("earlier"))
    store = InMemoryFilesystem({"note.txt": "before", "folder/deep.bin": b"\x00\xff", "gone.txt": "here"})
    return World(session, store, Ledgerish())


def change_everything(context: ToolContext) -> None:
    """Write, overwrite, remove and move in every participant."""
    session = context.session
    session[Kept].append(Kept("three"))
    session[Kept].seed(Kept("replaced"))
    session.dispatch(Note("half"))
    store = context.resources.get(Filesystem)
    store.write_text("note.txt", "changed")
    store.write_bytes("new/file.bin", b"\x01")
    store.remove("gone.txt")
    store.move("folder/deep.bin", "elsewhere.bin")
    store.make_folder("empty")
    context.resources.get(Ledgerish).entries.append("second")


def door_of(world: World, *tools: Any, **options: Any) -> ToolExecutor:
    """An executor over the world."""
    resources: dict[type[Any], object] = {Filesystem: world.files, Ledgerish: world.own}
    return executor(*tools, session=world.session, resources=resources, **options)


@both_ways
@pytest.mark.short(6)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(ToolResult[Note].error("no"), marks=pytest.mark.requirement("M-03a")),
        pytest.param(ValueError("x"), marks=pytest.mark.requirement("M-03b")),
        pytest.param(KeyboardInterrupt(), marks=pytest.mark.requirement("M-03c")),
    ],
    ids=["an error result", "Exception", "BaseException"],
)
def test_a_failure_of_the_handler_undoes_everything(way: Run, world: World, ends: Any, *, is_async: bool) -> None:
    """However it says so."""

    def inline(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        change_everything(context)
        if isinstance(ends, BaseException):
            raise ends
        failed: ToolResult[Note] = ends
        return failed

    async def on_loop(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return inline(params, context=context)

    before = world.image()
    if isinstance(ends, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            door_of(world, tool("t", inline)).execute(call("t"))
    else:
        assert not way(door_of(world, tool("t", on_loop if is_async else inline)), call("t")).success
    assert world.image() == before


@pytest.mark.requirement("E-05", "M-03d")
@pytest.mark.anyio
async def test_a_cancellation_undoes_everything(world: World) -> None:
    """The task that waits for the handler is cancelled; the call is recorded, and its turn released."""
    started = asyncio.Event()

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        change_everything(context)
        started.set()
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    before, door = world.image(), door_of(world, tool("t", handler))
    task = asyncio.ensure_future(door.execute_async(call("t")))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.image() == before
    assert ([event.success for event in events(door)], world.session.turn.queue) == ([False], [])


@both_ways
@pytest.mark.requirement("M-03e", "M-03i")
def test_a_timeout_undoes_everything_and_keeps_the_late_thread_out(way: Run, world: World) -> None:
    """What the thread still writes raises, through the context and through closures, and never lands."""
    release, ended = threading.Event(), threading.Semaphore(0)
    left: list[list[str]] = []

    def late(write: Callable[[], object], refused: list[str]) -> None:
        try:
            write()
        except TransactionClosedError as error:
            refused.append(error.what)

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        change_everything(context)
        refused: list[str] = []
        left.append(refused)
        release.wait()
        late(lambda: context.session[Kept].append(Kept("late")), refused)
        late(lambda: context.session.dispatch(Note("late")), refused)
        late(lambda: context.resources.get(Filesystem).write_text("late.txt", "x"), refused)
        late(world.session[Kept].clear, refused)
        late(lambda: world.files.remove("note.txt"), refused)
        ended.release()
        return ToolResult.ok(params)

    before = world.image()
    door = door_of(world, tool("t", handler, timeout=timedelta(milliseconds=20)))
    ids = map(str, count())
    while not left:  # on a busy machine the time may be over before a handler has changed everything
        assert not way(door, call("t", id=next(ids))).success
        assert world.image() == before
    release.set()
    for _ in left:
        assert ended.acquire(timeout=10)
    assert (world.image(), [len(refused) for refused in left]) == (before, [5] * len(left))


@both_ways
@pytest.mark.requirement("M-03f", "S-10b")
def test_a_failing_reducer_undoes_everything(way: Run, world: World, wording: Wording) -> None:
    """The handler succeeded, and its result could not be taken in."""

    def reduce(view: SliceView[Kept], event: Note) -> Append[Kept]:
        raise ArithmeticError("no sum")

    before = world.image()
    world.session[Kept].register(Note, reduce)
    assert way(door_of(world, tool("t", _write_files)), call("t")).content == wording
    assert world.image() == before


def _write_files(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    context.session[Kept].append(Kept("half"))
    context.resources.get(Filesystem).write_text("note.txt", "changed")
    context.resources.get(Ledgerish).entries.append("second")
    return ToolResult.ok(params)


@both_ways
@pytest.mark.requirement("M-03g", "S-10c")
def test_a_failing_subscriber_undoes_everything(way: Run, world: World) -> None:
    """Subscribers hear within the call, so one of them can fail it."""

    def refuse(note: Note) -> None:
        if note.text == "hello":
            raise RuntimeError("deaf")

    world.session.dispatcher.subscribe(Note, refuse)
    before = world.image()
    message = way(door_of(world, tool("t", _write_files)), call("t"))
    assert "RuntimeError: deaf" in message.content
    assert world.image() == before


@both_ways
@pytest.mark.requirement("M-03h", "S-10a")
def test_a_failing_on_result_undoes_everything(way: Run, world: World, wording: Wording) -> None:
    """A policy that cannot remember a call fails it."""

    class Forgetful:
        name = "forgetful"

        def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
            return PolicyDecision.allow()

        def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None:
            context.session[Kept].append(Kept("policy"))
            raise OSError("no memory")

    before = world.image()
    message = way(door_of(world, tool("t", _write_files), policies=(Forgetful(),)), call("t"))
    assert (message.content, world.image()) == (wording, before)


def test_a_participant_that_cannot_be_restored_ends_the_run(world: World, wording: Wording) -> None:
    """Nobody knows what state it is in; the others are restored all the same."""

    class Stuck(Ledgerish):
        def restore(self, snapshot: list[str]) -> None:
            raise OSError("stuck")

    world.own = Stuck()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        scribble(params, context=context)
        return ToolResult.error("no")

    before = world.image()
    door = door_of(world, tool("t", handler))
    with pytest.raises(RollbackError) as raised:
        door.execute(call("t"))
    assert (str(raised.value), world.image(), len(events(door))) == (wording, before, 1)
