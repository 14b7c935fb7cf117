"""Handlers that leave threads and tasks running: nothing that these write after the call has ended lands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import SessionError, TransactionClosedError
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.session import Append, SlicePolicy, stored_as
from handrail.testing import FakeClock
from tests.store.stores import STORES

Write = Callable[[], object]

Outcome = Future[object] | asyncio.Future[object]


@stored_as("tests.late.note")
@dataclass(frozen=True)
class Note:
    text: str


@stored_as("tests.late.line")
@dataclass(frozen=True)
class Line:
    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    text: str


@dataclass(frozen=True)
class Asked:
    write: str
    fails: bool = False


def _restore(context: ToolContext) -> Write:
    session = context.session
    before = session.snapshot()
    session[Note].append(Note("in time"))
    return partial(session.restore, before)


def _child(context: ToolContext) -> Session:
    with context.session.child() as child:
        return child


def _parent(context: ToolContext) -> Write:
    parent = _child(context).parent
    assert parent is not None
    return partial(parent[Note].append, Note("late"))


WRITES: dict[str, Callable[[ToolContext], Write]] = {
    "a slice": lambda context: partial(context.session[Note].append, Note("late")),
    "an event": lambda context: partial(context.session.dispatch, Note("late")),
    "a session that is first asked for late": lambda context: lambda: context.session[Note].append(Note("late")),
    "a child": lambda context: partial(_child(context)[Note].append, Note("late")),
    "the parent of a child": _parent,
    "a snapshot": _restore,
    "a file": lambda context: partial(context.resources.get(Filesystem).write_text, "late.txt", "late"),
    "a file that is moved": lambda context: partial(context.resources.get(Filesystem).move, "a", "late.txt"),
    "a filesystem that is first asked for late": lambda context: lambda: context.resources.get(Filesystem).remove("a"),
    "a file on disk": lambda context: partial(context.resources.get(HostFilesystem).write_text, "late.txt", "late"),
}
"""What a handler takes in time, and what is then written late."""


@dataclass
class Desk:
    """A session over a store, everything that a call can write to, and the writers that its calls have left running.

    Attributes:
        release: lets the writers write.
    """

    session: Session
    memory: InMemoryFilesystem
    disk: HostFilesystem
    release: threading.Event = field(default_factory=threading.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(len(WRITES)))
    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def executor(self, *tools: Tool[Any, Any], session: Session | None = None) -> ToolExecutor:
        """An executor with these tools."""
        resources: dict[type[Any], object] = {Filesystem: self.memory, HostFilesystem: self.disk}
        return ToolExecutor(tools, session=self.session if session is None else session, resources=resources)

    def run(self, handler: Any, *others: Tool[Any, Any], **options: Any) -> ToolMessage:
        """Call a tool without parameters that has this handler."""
        tool = Tool[None, None](name=handler.__name__, description="Does it.", handler=handler, **options)
        return self.executor(tool, *others).execute(ToolCall("call-1", tool.name, {}), reply="r1")

    def content(self) -> dict[str, object]:
        """Everything that there is."""
        return {
            "notes": self.session[Note].all(),
            "memory": [stat.path for stat in self.memory.glob("**")],
            "disk": [stat.path for stat in self.disk.glob("**")],
        }

    async def reopened(self) -> Session:
        """The session, as its store has it."""
        self.session.close()
        store = self.session.store
        assert store is not None
        return await Session.open_async(store, "desk", types=(Note, Line))

    def leave_running(self, write: Write, *, waits: bool = False) -> None:
        """Start a writer in each kind of thread and task; of an `async def` handler.

        What waits for a disk is written by a task as a program should, which leaves it to a thread.
        """

        def work() -> object:
            self.release.wait()
            return write()

        async def task() -> object:
            await self.released.wait()
            return await asyncio.to_thread(write) if waits else write()

        loop = asyncio.get_running_loop()
        self.outcomes += [
            _in_thread(work),
            _in_thread(partial(copy_context().run, work)),
            self.pool.submit(work),
            loop.run_in_executor(self.pool, work),
            asyncio.create_task(task()),
        ]

    async def errors(self) -> list[BaseException | None]:
        """Let the writers write, and return what they have raised."""
        self.release.set()
        self.released.set()
        waiting = [asyncio.wrap_future(each) if isinstance(each, Future) else each for each in self.outcomes]
        await asyncio.wait(waiting)
        return [each.exception() for each in waiting]


def _in_thread(work: Write) -> Future[object]:
    outcome: Future[object] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


@pytest.fixture(params=list(STORES))
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Desk]:
    """A desk over each kind of store."""
    store = STORES[request.param](FakeClock())
    root = tmp_path / "root"
    root.mkdir()
    with (
        Session.open(store, "desk", types=(Note, Line)) as session,
        HostFilesystem(root, journal=tmp_path / "journal", store=store) as disk,
    ):
        yield Desk(session=session, memory=InMemoryFilesystem({"a": "a"}), disk=disk)


def leaving(desk: Desk) -> Tool[Asked, Asked]:
    """A tool that writes a note, leaves writers running, and succeeds or fails."""

    async def leave(params: Asked, *, context: ToolContext) -> ToolResult[Asked]:
        # On a thread: some of it opens a session of a store, which an event loop must not wait for.
        write = await asyncio.to_thread(WRITES[params.write], context)
        desk.leave_running(write, waits=params.write == "a file on disk")
        context.session[Note].append(Note(params.write))
        if params.fails:
            raise ValueError("it fails")
        return ToolResult.ok(params)

    return Tool[Asked, Asked](name="leave", description="Leaves writers running.", handler=leave)


@pytest.mark.requirement("M-03j")
@pytest.mark.anyio
async def test_no_write_of_fifty_late_threads_and_tasks_lands(desk: Desk) -> None:
    """Each is refused with an error that names the ended call, whether that was committed or rolled back."""
    executor = desk.executor(leaving(desk))
    committed: list[Note] = []
    for place, write in enumerate(WRITES):
        fails = bool(place % 2)
        call = ToolCall(f"call-{place}", "leave", {"write": write, "fails": fails})
        message = await executor.execute_async(call, reply="r1")
        assert message.success is not fails
        committed += [] if fails else [Note(write)]
    before = desk.content()
    assert before["notes"] == tuple(committed)
    errors = await desk.errors()
    assert len(errors) == 50
    assert [error.tool if isinstance(error, TransactionClosedError) else error for error in errors] == ["leave"] * 50
    assert desk.content() == before
    with await desk.reopened() as session:
        assert session[Note].all() == tuple(committed)


@pytest.mark.anyio
async def test_a_log_takes_what_is_appended_late(desk: Desk) -> None:
    """It records what has happened, and is not rolled back; a stored session has it when the thread has ended."""

    async def leave(_: None, *, context: ToolContext) -> ToolResult[None]:
        desk.leave_running(partial(context.session[Line].append, Line("late")), waits=True)
        raise ValueError("it fails")

    tool = Tool[None, None](name="leave", description="Leaves writers running.", handler=leave)
    await desk.executor(tool).execute_async(ToolCall("call-1", "leave", {}), reply="r1")
    assert await desk.errors() == [None] * 5
    assert desk.session[Line].all() == (Line("late"),) * 5
    with await desk.reopened() as session:
        assert session[Line].all() == (Line("late"),) * 5


@pytest.mark.anyio
async def test_a_call_of_a_late_thread_is_refused(desk: Desk) -> None:
    """An executor that a handler has made over its own session makes nested calls, in every thread and task."""
    messages: list[ToolMessage] = []

    def note(params: Asked, *, context: ToolContext) -> ToolResult[None]:
        context.session[Note].append(Note(params.write))
        return ToolResult.ok(None)

    inner = Tool[Asked, None](name="note", description="Notes.", handler=note)

    async def leave(_: None, *, context: ToolContext) -> ToolResult[None]:
        executor = desk.executor(inner, session=context.session)
        message = await executor.execute_async(ToolCall("call-2", "note", {"write": "in time"}))
        assert message.success

        def call_late() -> None:
            desk.release.wait()
            messages.append(executor.execute(ToolCall("call-3", "note", {"write": "late"})))

        desk.outcomes.append(desk.pool.submit(call_late))
        return ToolResult.ok(None)

    outer = Tool[None, None](name="leave", description="Leaves a thread running.", handler=leave)
    await desk.executor(outer, inner).execute_async(ToolCall("call-1", "leave", {}), reply="r1")
    assert await desk.errors() == [None]
    assert [message.success for message in messages] == [False]
    assert desk.session[Note].all() == (Note("in time"),)


def test_a_thread_of_an_open_call_writes_for_it(desk: Desk) -> None:
    """It sees what the handler has written, and its writes are rolled back with the call."""
    seen: list[object] = []

    def work(_: None, *, context: ToolContext) -> ToolResult[None]:
        session, files = context.session, context.resources.get(Filesystem)
        session[Note].append(Note("of the handler"))

        def beside() -> object:
            seen.append(session[Note].all())
            session[Note].append(Note("of the thread"))
            files.write_text("late.txt", "of the thread")
            seen.append(files.exists("late.txt"))
            return None

        assert _in_thread(beside).exception(60) is None
        seen.append(session[Note].all())
        raise ValueError("it fails")

    before = desk.content()
    desk.run(work)
    handler, thread = Note("of the handler"), Note("of the thread")
    assert seen == [(handler,), True, (handler, thread)]
    assert desk.content() == before


def test_a_call_that_only_reads_writes_in_no_thread(desk: Desk) -> None:
    """Its thread is refused as its handler is."""
    errors: list[BaseException | None] = []

    def look(_: None, *, context: ToolContext) -> ToolResult[None]:
        errors.extend(_in_thread(WRITES[name](context)).exception(60) for name in WRITES if name != "a snapshot")
        return ToolResult.ok(None)

    before = desk.content()
    desk.run(look, effect="read")
    assert {type(error).__name__ for error in errors} == {"ReadOnlyViolation"}
    assert desk.content() == before


def test_a_connection_is_of_the_context_of_its_call(desk: Desk) -> None:
    """Another thread cannot use it, neither while the call is open nor after it."""
    release, late = threading.Event(), list[Future[object]]()

    def query(_: None, *, context: ToolContext) -> ToolResult[None]:
        try:
            connection = context.connection
        except SessionError:  # the store in memory has none
            return ToolResult.ok(None)
        select = partial(connection.execute, "SELECT 1")
        assert isinstance(_in_thread(select).exception(60), SessionError)
        late.append(_in_thread(lambda: (release.wait(), select())))
        return ToolResult.ok(None)

    assert desk.run(query).success
    release.set()
    assert all(isinstance(each.exception(60), SessionError) for each in late)


def test_a_call_waits_for_a_reducer_that_has_begun() -> None:
    """Also for one that a thread of the handler has started: what it decides belongs to the call."""
    begun, ends, order = threading.Event(), threading.Event(), list[str]()

    @dataclass(frozen=True)
    class Total:
        text: str

    def reduce(_view: object, event: Note) -> Append[Total]:
        begun.set()
        ends.wait()
        order.append("reduced")
        return Append(Total(event.text))

    session = Session()
    session.register(Note, reduce, into=Total)

    @tool
    def leaves(context: ToolContext) -> str:
        """Leaves a thread in a reducer."""
        thread = threading.Thread(target=partial(context.session.dispatch, Note("counted")))
        thread.start()
        begun.wait()
        ends.set()
        return "done"

    assert ToolExecutor([leaves], session=session).execute(ToolCall("1", "leaves", {})).success
    order.append("answered")
    assert order == ["reduced", "answered"]
    assert [total.text for total in session[Total]] == ["counted"]
