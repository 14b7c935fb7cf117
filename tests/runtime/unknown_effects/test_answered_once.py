"""An effect that is done is unread until a call has succeeded with it: one equal call is answered with it, not two."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, RecordingError, RunAbortedError
from handrail.prompt import External, PolicyDecision, Tool, ToolContext, ToolResult, tool
from handrail.runtime import EffectLedger, Session, ToolCall, ToolMessage
from handrail.store import Store
from handrail.testing.crash import Crashed
from tests.crash.forks import fork_to_crash
from tests.kit import Note, call, executor
from tests.kit import tool as make_tool
from tests.runtime import payments
from tests.wording import Wording

TO_ANN = {"to": "ann"}


class SaysSo(Exception):
    """Stands for a failed result that a handler returns."""


@dataclass
class Till:
    """The tools `pay`, and `checkout`, which pays and then fails as often as there are failures.

    Attributes:
        paid: what was paid.
        fails: what `checkout` raises, the last one first; of `SaysSo` it returns the text as a failed result.
        ends: what happens in `checkout` after it has paid.
        effect: the effect of `checkout`.
        id: the id of the payment in `checkout`.
        ledger: where effects are recorded; by default in the store of the session.
    """

    paid: list[str] = field(default_factory=list[str])
    fails: list[BaseException] = field(default_factory=list[BaseException])
    ends: Callable[[], object] = str
    effect: Any = "state"
    id: str = "n"
    ledger: EffectLedger | None = None

    def tools(self, **options: Any) -> list[Tool[Any, Any]]:
        """Both; the options are those of `checkout`."""

        @tool(effect="external")
        def pay(to: str) -> str:
            """Pay."""
            self.paid.append(to)
            return to

        @tool(effect=self.effect, **options)
        def checkout(to: str, context: ToolContext) -> ToolResult[str]:
            """Pay, in an executor of its own."""
            message = self.over(context.session, pay).execute(ToolCall(self.id, "pay", {"to": to}))
            self.ends()
            failure = self.fails.pop() if self.fails else None
            if isinstance(failure, SaysSo):
                return ToolResult.error(str(failure))
            if failure is not None:
                raise failure
            return ToolResult.ok(str(message.replayed))

        return [pay, checkout]

    def over(self, session: Session, *tools: Tool[Any, Any]) -> ToolExecutor:
        """Some tools over a session."""
        return ToolExecutor(tools, session=session, effect_ledger=self.ledger)

    def door(self, session: Session, **options: Any) -> ToolExecutor:
        """Both tools over a session."""
        return self.over(session, *self.tools(**options))


def asked(door: ToolExecutor, *refs: str, name: str = "checkout") -> list[str]:
    """What the calls of these replies are answered, each `reply/id`; of one that fails only that."""
    messages = [door.execute(ToolCall(ref[-1], name, TO_ANN), reply=ref[:-2]) for ref in refs]
    return [message.content if message.success else "failed" for message in messages]


KINDS = {"another store": "memory:", "in memory": "", "one store": None}


"""Where the ledger of a call is, beside its session."""


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, till: Till, kept: Store) -> Iterator[Session]:
    """A session in each of these places."""
    if KINDS[request.param] is None:
        with Session.open(kept, "placed") as session:
            yield session
        return
    if KINDS[request.param]:
        till.ledger = EffectLedger(store.open("memory:"))
    yield Session()


@pytest.fixture
def till() -> Till:
    """One whose first checkout fails."""
    return Till(fails=[ValueError("the printer is jammed")])


def test_the_payment_of_a_caller_that_returns_a_failed_result_answers_an_equal_one_once(
    till: Till, place: Session
) -> None:
    """Wherever session and ledger are."""
    till.fails = [SaysSo("the warehouse is closed")]
    assert asked(till.door(place), "r1/c", "r2/c", "r3/c") == ["failed", "True", "False"]
    assert len(till.paid) == 2


def test_what_a_caller_has_paid_that_is_answered_with_its_own_effect_answers_no_other_call(
    till: Till, place: Session
) -> None:
    """Its message stands for both, wherever session and ledger are."""
    till.effect, till.fails = "external", []
    failures = [ValueError("the policy is wrong")]

    class Breaks:
        name = "breaks"

        def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
            return PolicyDecision.allow()

        def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None:
            if failures:
                raise failures.pop()

    door = executor(*till.tools(), policies=(Breaks(),), session=place, effect_ledger=till.ledger)
    assert asked(door, "r1/c", "r2/c", "r3/c") == ["failed", "False", "False"]
    assert len(till.paid) == 2


def test_calls_of_one_reply_are_not_taken_for_repeats_of_each_other(till: Till, session: Session) -> None:
    """The model had read nothing when it asked for both."""
    door = till.door(session)
    assert asked(door, "r1/c") == ["failed"]
    assert asked(door, "r1/d", name="pay") == ["ann"]
    assert asked(door, "r2/c") == ["True"]
    assert len(till.paid) == 2


@pytest.mark.parametrize("elsewhere", [False, True])
def test_of_calls_at_the_same_time_one_is_answered_with_it(
    till: Till, session: Session, tmp_path: Path, *, elsewhere: bool
) -> None:
    """In sessions of their own, as agents have; the others pay. Also where the ledger is in another store."""
    with store.open(f"sqlite:///{tmp_path}/ledger.db") as other:
        till.ledger = EffectLedger(other) if elsewhere else None
        assert asked(till.door(session), "r1/c") == ["failed"]
        _ask_at_once(till, session)


def _ask_at_once(till: Till, session: Session) -> None:
    doors = [till.door(session.child(session_id=f"s/{number}")) for number in range(6)]

    async def at_once() -> list[bool]:
        calls = [door.execute_async(ToolCall("c", "pay", TO_ANN), reply="r") for door in doors]
        return [message.replayed for message in await asyncio.gather(*calls)]

    assert sorted(asyncio.run(at_once())) == [False] * 5 + [True]
    assert len(till.paid) == 6
    for door in doors:
        door.environment.session.close()


def test_what_a_running_call_is_answered_with_is_not_given_to_another_one(till: Till, session: Session) -> None:
    """Its caller is still at work."""
    door, messages = till.door(session), list[str]()
    assert asked(door, "r1/c") == ["failed"]
    with session.child(session_id="s/other") as child:
        other = till.door(child)
        till.ends = lambda: messages.extend(asked(other, "r1/c", name="pay"))
        assert asked(door, "r2/c") == ["True"]
    assert (messages, len(till.paid)) == (["ann"], 2)


def test_a_caller_that_fails_does_not_take_back_what_another_call_has(session: Session) -> None:
    """Its own payment had failed in it, and a call of an agent was answered with that meanwhile."""
    till, answers = Till(), list[str]()
    with session.child(session_id="s/other") as child:
        other = till.door(child)

        @tool
        def twice(to: str, context: ToolContext) -> None:
            """Pay, have an agent pay, and fail."""
            inner = executor(till.tools()[0], policies=[Broken()], session=context.session)
            assert not inner.execute(ToolCall("n", "pay", {"to": to})).success
            thread = threading.Thread(target=lambda: answers.extend(asked(other, "q/c", name="pay")))
            thread.start()
            thread.join()
            raise ValueError("the printer is jammed")

        door = ToolExecutor([*till.tools(), twice], session=session)
        assert asked(door, "r1/c", name="twice") == ["failed"]
        assert asked(door, "r2/c", name="pay") == answers == ["ann"]
    assert len(till.paid) == 2


class Broken:
    """A policy that fails when it takes note of a result."""

    name = "broken"

    def check(self, *_: object, **__: object) -> PolicyDecision:
        """Allow it."""
        return PolicyDecision.allow()

    def on_result(self, *_: object, **__: object) -> None:
        """Fail."""
        raise ValueError("the book is closed")


def test_an_equal_call_is_refused_while_a_call_that_was_left_behind_pays(session: Session) -> None:
    """Its caller has overrun, and the model reads that it is unknown; when it has ended, it is answered once."""
    till, started, goes_on = Till(), threading.Event(), threading.Event()

    @tool(effect="external")
    def pay(to: str) -> str:
        """Pay slowly."""
        started.set()
        goes_on.wait()
        till.paid.append(to)
        return to

    @tool(timeout=timedelta(milliseconds=300))
    def checkout(to: str, context: ToolContext) -> str:
        """Pay."""
        message = executor(pay, session=context.session).execute(ToolCall("n", "pay", {"to": to}))
        return message.content

    door = ToolExecutor([pay, checkout], session=session)
    assert asked(door, "r1/c") == ["failed"]
    assert started.is_set()
    assert asked(door, "r2/c", name="pay") == ["failed"]
    goes_on.set()
    refusals = 0
    while asked(door, f"s{refusals}/c", name="pay") == ["failed"]:  # until it is recorded
        refusals += 1
    assert till.paid == ["ann"]
    assert asked(door, "t/c", name="pay") == ["ann"]
    assert len(till.paid) == 2


@pytest.mark.parametrize("keyed", [False, True])
def test_a_caller_that_is_found_done_stands_for_what_it_has_paid(session: Session, *, keyed: bool) -> None:
    """Its reconciler says so at once, or its row answers it; the next payment is a new one."""
    till = Till(fails=[TimeoutError("no answer")])
    till.effect = External(reconcile=lambda params, key: ToolResult.ok("found"))
    door = till.door(session, idempotency=keyed or None)
    assert asked(door, "r1/c") == ["found"]
    assert asked(door, "r2/c", name="pay") == ["ann"]
    assert len(till.paid) == 2


def test_a_store_that_fails_at_the_commit_of_the_caller_leaves_the_effect_to_an_equal_call(tmp_path: Path) -> None:
    """Nothing could be written then, and nothing has to be."""
    till, path = Till(), tmp_path / "s.db"
    with store.open(f"sqlite:///{path}", busy=timedelta(seconds=0.1)) as kept, Session.open(kept, "s") as session:
        door = till.door(session)
        other = sqlite3.connect(path, isolation_level=None)
        till.ends = lambda: other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RecordingError):
            asked(door, "r1/c")
        other.close()
        till.ends = str
    with store.open(f"sqlite:///{path}") as kept, Session.open(kept, "s") as session:
        assert asked(till.door(session), "r2/c", "r3/c") == ["True", "False"]
    assert len(till.paid) == 2


def checkout_in(folder: str, name: str) -> tuple[str, list[str]]:
    """Ask for the same checkout, with a payment of that id; returns the answer and what was paid."""
    till = Till(id=name)
    with store.open(f"sqlite:///{folder}/s.db") as kept, Session.open(kept, "s") as session:
        return asked(till.door(session), "r1/c")[0], till.paid


def test_what_a_killed_caller_has_paid_answers_it_when_it_is_resumed(tmp_path: Path) -> None:
    """Also if it gives the payment another id."""
    assert isinstance(fork_to_crash(checkout_in, str(tmp_path), "n", at="after-record"), Crashed)
    assert checkout_in(str(tmp_path), "m") == ("True", [])


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


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("error", ENDS.values(), ids=list(ENDS))
def test_an_equal_call_is_answered_once_with_an_effect_whose_call_has_raised(
    session: Session, error: BaseException, times: int
) -> None:
    """Its message was never given; nor was that of an equal call that is interrupted as well."""
    world = World()
    door = world.door(session)
    for number in range(times):
        world.end = raising(error)
        with pytest.raises(type(error)):
            ask(door, f"q{number}/c1")
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


@pytest.mark.parametrize("end", [KeyboardInterrupt(), ValueError("the printer is jammed")])
def test_the_effect_of_a_nested_call_is_left_when_its_caller_fails(session: Session, end: BaseException) -> None:
    """The model reads that the caller has failed, or reads nothing, and asks again."""
    world, ends = World(), [end]

    @tool
    def teller() -> str:
        """Pay twice, and print."""
        messages = [door.execute(ToolCall(ref, "pay", {"to": "ann"})) for ref in ("n1", "n2")]
        if ends:
            raise ends.pop()
        return str([message.replayed for message in messages])

    door = world.door(session, teller)
    with nullcontext() if isinstance(end, Exception) else pytest.raises(KeyboardInterrupt):
        assert not door.execute(ToolCall("c", "teller"), reply="r1").success
    later = [door.execute(ToolCall("c", "teller"), reply=reply).content for reply in ("r2", "r3")]
    assert (later, world.paid) == (["[True, True]", "[False, False]"], ["ann"] * 4)


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
