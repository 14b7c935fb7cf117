"""Calls beside each other: threads, replies of twenty, one key for 64 threads, calls inside calls."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from handrail.errors import PromptEvaluationError
from handrail.filesystem import Filesystem
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolMessage
from tests.extent import examples
from tests.kit import Kept, Note, call, echo, events, executor, files, raises, scribble, soon, tool
from tests.wording import Wording


@pytest.mark.requirement("M-04b")
def test_twenty_reads_of_one_reply_run_at_the_same_time() -> None:
    """Each waits for all the others, so one after the other they would wait for ever."""
    together = threading.Barrier(20, timeout=30)

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        together.wait()
        return ToolResult.ok(params)

    door = executor(tool("look", handler, effect="read"))
    messages = asyncio.run(door.execute_all_async(call("look", str(n), id=str(n)) for n in range(20)))
    assert [message.content for message in messages] == [str(n) for n in range(20)]
    assert [note.text for note in door.environment.session[Note]] == [str(n) for n in range(20)]


@pytest.mark.requirement("M-04a", "M-04c")
def test_twenty_writers_on_threads_run_one_at_a_time() -> None:
    """Threads of a program's own wait for each other; a failing one takes nothing of the others along."""
    inside = threading.Lock()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        assert inside.acquire(blocking=False)
        scribble(params, context=context)
        inside.release()
        return ToolResult.error("no") if int(params.text) % 3 == 0 else ToolResult.ok(params)

    door = executor(tool("write", handler), resources={Filesystem: files()})
    with ThreadPoolExecutor(20) as threads:
        asked = [call("write", str(n), id=str(n)) for n in range(20)]
        messages = list(threads.map(door.execute, asked))
    assert [message.success for message in messages] == [n % 3 != 0 for n in range(20)]
    kept = sorted(int(kept.text) for kept in door.environment.session[Kept])
    assert kept == [n for n in range(20) if n % 3]


@pytest.mark.requirement("M-05")
@pytest.mark.parametrize("shared", [True, False], ids=["one session", "a session each"])
def test_64_threads_with_one_key_start_one_handler(*, shared: bool) -> None:
    """One carries the effect out; the others get its answer."""
    starts: list[str] = []
    ready = threading.Barrier(64, timeout=30)

    def charge(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        starts.append(context.call_id)
        return ToolResult.ok(Note("charged once"))

    once = IdempotencyConfig(scope="tenant")
    ledger = EffectLedger()
    one = Session()

    def ask(number: int) -> str:
        door = executor(
            tool("charge", charge, effect="external", idempotency=once),
            session=one if shared else Session(),
            effect_ledger=ledger,
        )
        ready.wait()
        return door.execute(call("charge", id=str(number))).content

    with ThreadPoolExecutor(64) as threads:
        answers = list(threads.map(ask, range(64)))
    assert (answers, len(starts)) == (["charged once"] * 64, 1)


@pytest.mark.requirement("S-03b")
def test_a_call_past_its_deadline_leaves_the_queue(wording: Wording) -> None:
    """It waited for its turn, was not run, and holds up nobody."""
    release = threading.Event()
    started = threading.Event()

    def hold(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        started.set()
        release.wait()
        return ToolResult.ok(params)

    session = Session()
    holder = executor(tool("hold", hold), session=session)
    hurried = executor(tool("echo"), session=session, deadline=soon())
    with ThreadPoolExecutor(1) as thread:
        holding = thread.submit(holder.execute, call("hold"))
        started.wait()
        with pytest.raises(PromptEvaluationError) as raised:
            hurried.execute(call("echo"))
        assert (str(raised.value), len(session.turn.queue)) == (wording, 1)
        release.set()
        assert holding.result().success
    assert session[Note].all() == (Note("hello"),)


@pytest.mark.anyio
async def test_the_synchronous_entry_on_a_loop_does_not_wait_for_a_turn(wording: Wording) -> None:
    """Waiting would stop the loop that the other call needs; the developer reads what to call."""
    started = asyncio.Event()

    async def hold(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        started.set()
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    door = executor(tool("hold", hold), tool("echo"))
    task = asyncio.ensure_future(door.execute_async(call("hold")))
    await started.wait()
    with raises(PromptEvaluationError, wording):
        door.execute(call("echo"))
    task.cancel()
    await asyncio.wait([task])
    assert door.environment.session.turn.queue == []


def test_a_reading_call_cannot_call_a_writing_tool(wording: Wording) -> None:
    """What may only read stays so through the calls it makes."""

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note(door.execute(call("echo", id="inner")).content))

    door = executor(tool("outer", outer, effect="read"), tool("echo", echo))
    assert door.execute(call("outer")).content == wording


@pytest.mark.anyio
async def test_agents_as_tools_run_beside_each_other_on_child_sessions() -> None:
    """Each has a child session; their calls take turns on the files they share and commit on their own."""
    session, store = Session(session_id="parent"), files(log="")
    met = asyncio.Barrier(2)

    async def add(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        shared = context.resources.get(Filesystem)
        before = shared.read_text("log.txt")
        await asyncio.sleep(0)
        shared.write_text("log.txt", before + params.text)
        return ToolResult.ok(params)

    async def agent(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        await met.wait()
        child = executor(tool("add", add), session=context.session.child(), resources={Filesystem: store})
        for number in range(3):
            assert (await child.execute_async(call("add", params.text, id=str(number)))).success
        return ToolResult.ok(params) if params.text == "a" else ToolResult.error("gave up")

    door = executor(tool("agent", agent, concurrent=True), session=session)
    calls = [call("agent", "a", id="1"), call("agent", "b", id="2")]
    messages = await door.execute_all_async(calls)
    assert [message.success for message in messages] == [True, False]
    assert (sorted(store.read_text("log.txt")), session[Note].all()) == (list("aaabbb"), (Note("a"),))


def test_a_concurrent_handler_may_neither_write_nor_use_what_calls_take_turns_on(wording: Wording) -> None:
    """Only the value it returns is applied."""

    def write(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("x"))
        return ToolResult.ok(params)

    def look(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note(str(context.filesystem)))

    tools = [tool("write", write, concurrent=True), tool("look", look, concurrent=True)]
    door = executor(*tools, resources={Filesystem: files()})
    assert door.execute(call("write")).content == wording
    assert door.execute(call("look")).content == wording


@pytest.mark.anyio
async def test_a_call_that_ends_the_run_ends_the_reply() -> None:
    """The calls that have not ended are cancelled and undone; those that have stay."""

    async def stop(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise PromptEvaluationError("stop")

    door = executor(tool("echo"), tool("stop", stop))
    calls = [call("echo", id="1"), call("stop", id="2"), call("echo", id="3")]
    with pytest.raises(PromptEvaluationError, match="stop"):
        await door.execute_all_async(calls)
    assert [event.call_id for event in events(door)][:2] == ["1", "2"]
    assert door.environment.session[Note].all() == (Note("hello"),)
    assert await door.execute_all_async([]) == ()


@pytest.mark.anyio
async def test_a_read_inside_a_read_waits_for_the_reads_before_its_caller() -> None:
    """Its result is applied in the order asked, although its own turn has long come."""
    first_may_end, inner_has_run = asyncio.Event(), asyncio.Event()

    async def first(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        await first_may_end.wait()
        return ToolResult.ok(params)

    async def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        assert (await door.execute_async(call("inner", "inner", id="inner"))).success
        return ToolResult.ok(params)

    async def inner(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        inner_has_run.set()
        return ToolResult.ok(params)

    tools = [tool(run.__name__, run, effect="read") for run in (first, outer, inner)]
    door = executor(*tools)
    asked = asyncio.ensure_future(door.execute_all_async([call("first", "first", id="1"), call("outer", id="2")]))
    await inner_has_run.wait()
    assert door.environment.session[Note].all() == ()
    first_may_end.set()
    assert all(message.success for message in await asked)
    assert [note.text for note in door.environment.session[Note]] == ["first", "inner", "hello"]


KINDS = ("write", "read", "concurrent")


FATES = ("succeed", "fail", "raise")


@dataclass(eq=False)
class Asked:
    """One call: what it is asked to do, and how far it has come."""

    name: str
    kind: str
    fate: str
    task: asyncio.Future[ToolMessage] = field(init=False)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    saw: tuple[str, ...] | None = None
    released: bool = False
    cancelled: bool = False

    @property
    def writes(self) -> bool:
        return self.kind == "write"


class SideBySide(RuleBasedStateMachine):
    """Calls arrive, are let go or cancelled; at every moment just those run that may, and what is due is visible."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.asked: dict[str, Asked] = {}
        self.unfinished: list[Asked] = []
        self.kept: list[str] = []
        self.ended: list[str] = []
        self.files = files(log="")
        options: dict[str, Any] = {"write": {}, "read": {"effect": "read"}, "concurrent": {"concurrent": True}}
        tools = [tool(kind, self._handler, **options[kind]) for kind in KINDS]
        self.door = executor(*tools, resources={Filesystem: self.files})

    async def _handler(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        own = self.asked[params.text]
        own.saw = tuple(kept.text for kept in context.session[Kept])
        if own.writes:
            self._write(own, context)
        await own.gate.wait()
        if own.writes:
            self._write(own, context)
        if own.fate == "raise":
            raise ValueError(own.name)
        return ToolResult.ok(params) if own.fate == "succeed" else ToolResult.error("no")

    def _write(self, own: Asked, context: ToolContext) -> None:
        context.session[Kept].append(Kept(own.name))
        store = context.resources.get(Filesystem)
        store.write_text("log.txt", store.read_text("log.txt") + own.name + "\n")

    @rule(kind=st.sampled_from(KINDS), fate=st.sampled_from(FATES))
    @precondition(lambda self: len(self.unfinished) < 20)
    def ask(self, kind: str, fate: str) -> None:
        own = Asked(f"c{len(self.asked)}", kind, fate)
        self.asked[own.name] = own
        self.unfinished.append(own)
        own.task = asyncio.ensure_future(self.door.execute_async(call(kind, own.name, id=own.name)), loop=self.loop)
        self._settle()

    @rule(data=st.data())
    @precondition(lambda self: bool(self.unfinished))
    def let_go(self, data: st.DataObject) -> None:
        own = data.draw(st.sampled_from(self.unfinished))
        own.released = True
        own.gate.set()
        self._settle()

    @rule(data=st.data())
    @precondition(lambda self: bool(self.unfinished))
    def cancel(self, data: st.DataObject) -> None:
        own = data.draw(st.sampled_from(self.unfinished))
        own.cancelled = True
        own.task.cancel()
        self._settle()

    def _settle(self) -> None:
        """Let the loop come to rest, and the model with it."""

        async def rest() -> None:
            for _ in range(200):
                await asyncio.sleep(0)

        self.loop.run_until_complete(rest())
        for own in [own for own in self.unfinished if own.cancelled]:
            self.unfinished.remove(own)
            self.ended.append(own.name)
        while self.unfinished and self.unfinished[0].released:
            own = self.unfinished.pop(0)
            self.ended.append(own.name)
            if own.writes and own.fate == "succeed":
                self.kept += [own.name, own.name]

    def _may_run(self) -> set[str]:
        running: set[str] = set()
        for place, own in enumerate(self.unfinished):
            if own.writes and place > 0:
                break
            running.add(own.name)
            if own.writes:
                break
        return running

    @invariant()
    def just_those_run_that_may(self) -> None:
        started = {own.name for own in self.unfinished if own.saw is not None}
        assert started == self._may_run()

    @invariant()
    def just_what_is_committed_is_visible(self) -> None:
        session = self.door.environment.session
        assert [kept.text for kept in session[Kept]] == self.kept
        succeeded = [name for name in self.ended if self._succeeded(name)]
        assert [note.text for note in session[Note]] == succeeded
        if not any(own.writes and own.saw is not None for own in self.unfinished):
            assert self.files.read_text("log.txt").split() == self.kept

    @invariant()
    def every_call_that_ended_is_recorded_in_its_order(self) -> None:
        assert [event.call_id for event in events(self.door)] == self.ended

    @invariant()
    def a_call_saw_what_those_before_it_had_committed(self) -> None:
        for own in self.unfinished:
            if own.saw is not None:
                assert list(own.saw) == self.kept

    def _succeeded(self, name: str) -> bool:
        own = self.asked[name]
        return own.fate == "succeed" and not own.cancelled

    def teardown(self) -> None:
        for own in list(self.unfinished):
            own.released = True
            own.gate.set()
        self._settle()
        for own in self.asked.values():
            assert own.task.done()
            if own.cancelled:
                assert own.task.cancelled()
            else:
                assert own.task.result().success is self._succeeded(own.name)
        assert self.door.environment.session.turn.queue == []
        self.loop.close()


@pytest.mark.requirement("M-04a", "M-04b", "M-04c", "S-03", "S-03a")
def test_twenty_calls_at_once_have_the_outcome_of_one_after_the_other() -> None:
    """Whatever the calls are, and in whatever order they arrive, go on and are cancelled."""
    run_state_machine_as_test(SideBySide, settings=settings(max_examples=examples(60), stateful_step_count=40))
