"""Effects that are done, and whose call has ended without a message: an equal call is answered with them, once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, RunAbortedError
from handrail.prompt import PolicyDecision, Tool, ToolContext, ToolResult, tool
from handrail.runtime import EffectLedger, Session, ToolCall, ToolMessage
from handrail.runtime.ledger.effects import EffectResult
from handrail.store import Store
from tests.kit import Note, call, executor
from tests.kit import tool as make_tool
from tests.runtime import payments
from tests.wording import Wording

Ends = Callable[[], object]
"""What happens while a call ends that has paid."""


_INTERRUPTS: list[int] = []
"""The signals that come while a receipt is shown."""


@dataclass(frozen=True)
class Receipt:
    """The result of a payment."""

    to: str

    def render(self) -> str:
        """The text for the model."""
        if _INTERRUPTS:
            os.kill(os.getpid(), _INTERRUPTS.pop())
        return self.to


class World:
    """What has been paid, and what happens while the next call ends; a policy."""

    name = "world"

    def __init__(self, *, silent: bool = False) -> None:
        self.paid: list[str] = []
        self.end: Ends | None = None
        self._is_silent = silent

    def check(self, *_: object, **__: object) -> PolicyDecision:
        """Allow it."""
        return PolicyDecision.allow()

    def on_result(self, *_: object, **__: object) -> None:
        """End as the test says."""
        end, self.end = self.end, None
        if end is not None:
            end()

    def door(self, session: Session, *others: Tool[Any, Any]) -> ToolExecutor:
        """An executor with the tool `pay`, whose answer is lost the first time if the world is silent."""

        @tool(effect="external")
        def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            if self._is_silent:
                self._is_silent = False
                raise TimeoutError
            return "paid"

        return executor(pay, *others, policies=[self], session=session)


def raising(error: BaseException) -> Ends:
    """It ends by an exception."""

    def end() -> None:
        raise error

    return end


def ask(door: ToolExecutor, ref: str) -> ToolMessage:
    """Ask for the payment."""
    return payments.ask(door, ref, {"to": "ann"})


def answers(door: ToolExecutor, *refs: str) -> list[tuple[bool, bool]]:
    """Of each call, whether it succeeded, and whether it was answered with an earlier result."""
    messages = [ask(door, ref) for ref in refs]
    return [(message.success, message.replayed) for message in messages]


ONCE = [(True, True), (True, False)]
"""The first call is answered with the effect, and the second is an effect of its own."""

ENDS = {"Ctrl-C": KeyboardInterrupt(), "an end of the run": RunAbortedError("over")}


@pytest.mark.parametrize("error", ENDS.values(), ids=list(ENDS))
def test_an_equal_call_is_answered_once_with_an_effect_whose_call_has_raised(
    session: Session, error: BaseException
) -> None:
    """Its message was never given."""
    world = World()
    door = world.door(session)
    world.end = raising(error)
    with pytest.raises(type(error)):
        ask(door, "r1/c1")
    assert answers(door, "r2/c2", "r3/c3") == ONCE
    assert world.paid == ["ann", "ann"]


@pytest.mark.usefixtures("ctrl_c")
def test_an_equal_call_is_answered_once_after_ctrl_c_while_the_message_was_made(session: Session) -> None:
    """It is held back until then, and the message is lost with it."""
    paid: list[str] = []

    @tool(effect="external", name="pay")
    def pay(to: str) -> Receipt:
        """Pay."""
        paid.append(to)
        return Receipt(to)

    door = executor(pay, session=session)
    _INTERRUPTS.append(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        ask(door, "r1/c1")
    assert [message.replayed for message in (ask(door, "r2/c2"), ask(door, "r3/c3"))] == [True, False]
    assert paid == ["ann", "ann"]


def test_a_call_that_was_cancelled_while_it_was_committed_is_answered_by_its_effect(session: Session) -> None:
    """Asked again under its identity, or by an equal call; after that an equal one is new."""
    world = World()
    door = world.door(session)

    async def cancelled(call: str) -> None:
        task = asyncio.ensure_future(door.execute_async(ToolCall(call, "pay", {"to": "ann"}), reply="r1"))
        loop = asyncio.get_running_loop()
        world.end = lambda: loop.call_soon_threadsafe(task.cancel)
        await asyncio.wait([task])

    asyncio.run(cancelled("c1"))
    assert answers(door, "r1/c1", "r2/c2") == ONCE
    assert world.paid == ["ann", "ann"]


def test_an_answer_that_had_no_message_either_does_not_count(session: Session) -> None:
    """The equal call is interrupted as well, and the next one has the result."""
    world = World()
    door = world.door(session)
    world.end = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        ask(door, "r1/c1")
    world.end = raising(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        ask(door, "r2/c2")
    assert answers(door, "r3/c3", "r4/c4") == ONCE
    assert world.paid == ["ann", "ann"]


def test_the_effect_of_a_nested_call_is_left_when_its_caller_ends_without_a_message(session: Session) -> None:
    """The handler has read its message, and the model has read none."""
    world, ends = World(), [KeyboardInterrupt()]

    @tool
    def teller() -> str:
        """Pay."""
        message = door.execute(ToolCall("n", "pay", {"to": "ann"}))
        if ends:
            raise ends.pop()
        return str(message.replayed)

    door = world.door(session, teller)
    with pytest.raises(KeyboardInterrupt):
        door.execute(ToolCall("c1", "teller"), reply="r1")
    later = [door.execute(ToolCall("c", "teller"), reply=reply) for reply in ("r2", "r3")]
    assert [message.content for message in later] == ["True", "False"]
    assert world.paid == ["ann", "ann"]


def test_the_effect_of_a_nested_call_is_left_when_its_caller_fails(session: Session) -> None:
    """The model reads that the caller has failed, and asks again."""
    world, ends = World(), [ValueError("the printer is jammed")]

    @tool
    def teller() -> str:
        """Pay twice, and print."""
        messages = [door.execute(ToolCall(ref, "pay", {"to": "ann"})) for ref in ("n1", "n2")]
        if ends:
            raise ends.pop()
        return str([message.replayed for message in messages])

    door = world.door(session, teller)
    later = [door.execute(ToolCall("c", "teller"), reply=reply) for reply in ("r1", "r2", "r3")]
    assert [message.content for message in later][1:] == ["[True, True]", "[False, False]"]
    assert world.paid == ["ann"] * 4


def test_a_payment_is_unknown_if_a_call_inside_it_waits_for_an_approval(session: Session, kept: Store) -> None:
    """That exception is not the word of its handler, which has paid."""
    paid: list[str] = []

    @tool(effect="external")
    def pay(to: str) -> None:
        """Pay, and ask for something that waits."""
        paid.append(to)
        door.execute(ToolCall("n", "ask", "{}"))

    @tool(name="ask")
    def postponed() -> None:
        """Waits for a person."""
        raise CallPostponed("later")

    door = executor(pay, postponed, session=session)
    with pytest.raises(CallPostponed):
        ask(door, "r1/c1")
    row = kept.get("s", "call:r1/c1")
    assert row is not None
    assert row.status == "unknown"
    assert not ask(door, "r1/c1").success
    assert paid == ["ann"]


def test_a_call_whose_nested_payment_is_refused_as_a_repeat_says_what_is_unknown(
    session: Session, wording: Wording
) -> None:
    """It fails, and its own message must not invite the model to ask again."""

    @tool(effect="external")
    def pay(to: str) -> None:
        """Pay; nobody answers."""
        raise TimeoutError(to)

    @tool
    def desk(to: str) -> None:
        """Pay, and fail for another reason."""
        door.execute(ToolCall("n", "pay", {"to": to}))
        raise ValueError("the printer is jammed")

    door = executor(pay, desk, session=session)
    first, second = (door.execute(ToolCall("c", "desk", {"to": "ann"}), reply=reply) for reply in ("r1", "r2"))
    assert first.content == second.content == wording


def test_what_a_person_has_found_out_is_answered_once_although_the_answer_was_interrupted(
    session: Session, kept: Store
) -> None:
    """The interrupted answer was no message."""
    world = World(silent=True)
    door = world.door(session)
    assert not ask(door, "r1/c1").success
    world.end = raising(KeyboardInterrupt())
    row = kept.get("s", "call:r1/c1")
    assert row is not None
    assert EffectLedger(kept).resolve(row, EffectResult("it is paid"))
    with pytest.raises(KeyboardInterrupt):
        ask(door, "r2/c2")
    assert answers(door, "r3/c3", "r4/c4") == ONCE
    assert world.paid == ["ann", "ann"]


def test_an_equal_call_is_answered_once_with_an_effect_whose_call_has_failed(session: Session) -> None:
    """It was done, what its handler returned is no result, and the model asks again all the same."""
    paid: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> Any:
        paid.append(params.text)
        return ToolResult.ok(cast("Any", 5) if len(paid) == 1 else params)

    door = executor(make_tool("pay", pay, effect="external"), session=session)
    messages = [door.execute(call("pay", "ann", id="c"), reply=f"r{number}") for number in range(3)]
    assert [(message.success, message.replayed) for message in messages] == [(False, False), *ONCE]
    assert paid == ["ann", "ann"]
