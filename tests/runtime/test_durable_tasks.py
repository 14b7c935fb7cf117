"""Calls of tasks over a durable store: a loop is not held, and whoever is cancelled leaves an outcome that is known."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ToolValidationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.signature import Effect
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.session import stored_as
from handrail.store import Store
from handrail.store.sql.units import PendingUnit, UnitAnswer
from handrail.threads import THREADS
from tests.kit import executor
from tests.store.kit import at_point, committer_of

pytestmark = pytest.mark.anyio

PATIENCE = 20.0
EFFECTS: tuple[Effect, ...] = ("external", "state")


@dataclass(frozen=True)
class Pay:
    cents: int


@stored_as("tests.durable_tasks.paid")
@dataclass(frozen=True)
class Paid:
    """What a call leaves in its session."""

    cents: int


def ask(door: ToolExecutor, call_id: str = "c1") -> Coroutine[Any, Any, ToolMessage]:
    """Ask for a payment."""
    return door.execute_async(ToolCall(call_id, "pay", {"cents": 5}), reply="r")


class Desk:
    """Agents on one loop, each with a session of its own in one store.

    Attributes:
        kept: the store.
        paid: how often the handler has run, by session.
    """

    def __init__(self, kept: Store, opened: ExitStack) -> None:
        self.kept = kept
        self.paid: list[str] = []
        self._opened = opened
        self._sessions: dict[str, Session] = {}

    async def call(self, name: str, call_id: str = "c1", *, effect: Effect = "external") -> bool:
        """Make a call in the session of that name; returns whether it was answered from its record."""
        message = await ask(self.executor(name, effect), call_id)
        assert message.success, message.content
        return message.replayed

    async def pay(self, params: Pay, *, context: ToolContext) -> ToolResult[Paid]:
        """Pay."""
        self.paid.append(context.session.session_id)
        return ToolResult.ok(Paid(params.cents))

    def executor(self, name: str, effect: Effect = "external", handler: Any = None) -> ToolExecutor:
        """The tool that pays, in the session of that name."""
        paying = Tool[Pay, Paid](name="pay", description="Pays.", handler=handler or self.pay, effect=effect)
        return executor(paying, session=self.session(name))

    def session(self, name: str) -> Session:
        """The session of that name, open."""
        if name not in self._sessions:
            self._sessions[name] = self._opened.enter_context(Session.open(self.kept, name))
        return self._sessions[name]

    def recorded(self, name: str) -> list[bool]:
        """Whether each recorded call of a session has succeeded, as another opening finds it."""
        self._sessions.pop(name).close()
        session = self.session(name)
        recorded = session[ToolInvoked].all()
        assert len(session[Paid].all()) == sum(event.result.success and not event.replayed for event in recorded)
        return [event.result.success for event in recorded]

    def status(self, name: str) -> list[str]:
        """What the ledger knows of the effects of a session."""
        return [row.status for row in self.kept.rows() if row.partition == name]


@pytest.fixture
def desk(url: str) -> Iterator[Desk]:
    """A desk over each kind of database."""
    with ExitStack() as opened:
        yield Desk(opened.enter_context(store.open(url)), opened)


class Gate:
    """Keeps units from being written: threads of the store wait at it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self) -> None:
        """Wait until it is opened."""
        self.reached.set()
        assert self.opened.wait(PATIENCE)


@contextmanager
def held(kept: Store) -> Generator[Gate]:
    """Keep units from being written, whoever does it."""
    gate = Gate()
    committer = committer_of(kept)
    write = committer.write

    def waiting(pending: Sequence[PendingUnit]) -> Sequence[UnitAnswer]:
        gate.pass_through()
        return write(pending)

    committer.write = waiting
    try:
        yield gate
    finally:
        gate.opened.set()
        committer.write = write


async def until(event: threading.Event) -> None:
    """Wait for an event of a thread."""
    assert await asyncio.to_thread(event.wait, PATIENCE)


async def test_loop_runs_while_a_claim_or_a_commit_is_written(desk: Desk) -> None:
    """Other tasks have their turns; the call ends when its unit is written."""
    for effect in EFFECTS:
        name = f"s-{effect}"
        desk.session(name)
        with held(desk.kept) as gate:
            calling = asyncio.ensure_future(desk.call(name, effect=effect))
            await until(gate.reached)
            await asyncio.sleep(0)
            assert not calling.done()
            gate.opened.set()
            assert not await calling
        assert desk.recorded(name) == [True]


@pytest.mark.parametrize("times", [1, 3])
async def test_task_that_is_cancelled_while_its_claim_is_written_withdraws_it(desk: Desk, times: int) -> None:
    """Its handler does not start, and the effect is known not to have happened; made again, the call runs."""
    desk.session("s")
    with held(desk.kept) as gate:
        calling = asyncio.ensure_future(desk.call("s"))
        await until(gate.reached)
        for _ in range(times):
            calling.cancel()
            await asyncio.sleep(0)
        assert not calling.done()
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert desk.paid == []
    assert desk.status("s") == ["failed"]
    assert not await desk.call("s")
    assert (desk.paid, desk.status("s")) == (["s"], ["done"])
    assert desk.recorded("s")[-1]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("effect", ["external", "state"])
async def test_task_that_is_cancelled_while_its_commit_is_written_has_made_its_call(
    desk: Desk, effect: Effect, times: int
) -> None:
    """It is cancelled when the call is recorded; made again, the call is answered by its effect, or from its record."""
    holding, begun = list[Gate](), threading.Event()
    with ExitStack() as stack:

        def hold() -> None:
            holding.append(stack.enter_context(held(desk.kept)))
            begun.set()

        with at_point("before-commit", hold):
            calling = asyncio.ensure_future(ask(desk.executor("s", effect)))
            await until(begun)
            await until(holding[0].reached)
        for _ in range(times):
            calling.cancel()
            await asyncio.sleep(0)
        assert not calling.done()
        holding[0].opened.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert await desk.call("s", effect=effect)
    assert desk.paid == ["s"]
    assert desk.recorded("s") == ([True, True, True] if effect == "external" else [True])


async def test_task_that_is_cancelled_while_its_failed_call_is_recorded_leaves_it_recorded(desk: Desk) -> None:
    """The effect is recorded as failed, and the call too, before the cancellation is raised; subscribers hear of it."""
    holding, begun, heard = list[Gate](), asyncio.Event(), list[str]()
    with ExitStack() as stack:

        async def pay(params: Pay, *, context: ToolContext) -> ToolResult[Paid]:
            holding.append(stack.enter_context(held(desk.kept)))
            begun.set()
            raise ToolValidationError("no such card")

        desk.session("s").dispatcher.subscribe(ToolInvoked, lambda event: heard.append(event.call.id))
        calling = asyncio.ensure_future(ask(desk.executor("s", handler=pay)))
        await begun.wait()
        await until(holding[0].reached)
        calling.cancel()
        await asyncio.sleep(0)
        assert (calling.done(), heard) == (False, [])
        holding[0].opened.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert (heard, desk.status("s"), desk.recorded("s")) == (["c1"], ["failed"], [False])


async def test_failed_call_is_recorded_where_no_thread_can_be_started(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the thread of the loop then: what has begun is brought to its end."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "handrail-call":
            raise RuntimeError("can't start new thread")
        start(thread)

    async def pay(params: Pay, *, context: ToolContext) -> ToolResult[Paid]:
        THREADS.retire()  # nor is one idle
        monkeypatch.setattr(threading.Thread, "start", refuse)
        raise ToolValidationError("no such card")

    assert not (await ask(desk.executor("s", handler=pay))).success
    assert (desk.status("s"), desk.recorded("s")) == (["failed"], [False])
