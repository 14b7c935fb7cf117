"""A developer's mistake that the program wraps: a group is raised, and no message holds the text of a mistake."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    DeveloperMistake,
    EffectUncertain,
    ToolValidationError,
    UnboundResourceError,
)
from handrail.events import Dispatcher
from handrail.prompt import ToolContext, ToolResult
from handrail.resources import Binding
from handrail.runtime import EffectLedger, Session, ToolCall
from tests.kit import ASKS, Decides, Kept, Note, Run, both_ways, call, events, executor, tool
from tests.wording import Wording

Wrap = Callable[[DeveloperMistake], Exception]


class Client:
    """A resource that nobody binds."""


TEXT = str(UnboundResourceError(Client)).partition(" (")[0]


class Till:
    """Another."""


def wrapping(wrap: Wrap, *, cause: bool = True) -> Any:
    """A handler that comes to a mistake, and raises what it makes of it."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        try:
            context.resources.get(Client)
        except DeveloperMistake as mistake:
            if cause:
                raise wrap(mistake) from mistake
            raise wrap(mistake) from None
        raise AssertionError

    return handler


def grouped(mistake: DeveloperMistake) -> Exception:
    """What a task group raises."""
    return ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("odd"), mistake])


def grouped_deep(mistake: DeveloperMistake) -> Exception:
    """In a group in a group."""
    return ExceptionGroup("outer", [ExceptionGroup("inner", [mistake]), ValueError("odd")])


@both_ways
@pytest.mark.parametrize("wrap", [grouped, grouped_deep])
def test_a_group_that_holds_a_mistake_is_raised(wrap: Wrap, way: Run, caplog: pytest.LogCaptureFixture) -> None:
    """To the developer, whole; the call is undone and recorded, its record is not final, nothing is logged."""
    door = executor(tool("t", wrapping(wrap)))
    with pytest.raises(ExceptionGroup) as caught:
        way(door, call("t"))
    assert caught.group_contains(UnboundResourceError) or caught.group_contains(UnboundResourceError, depth=2)
    [event] = events(door)
    assert (event.success, event.final) == (False, False)
    assert door.environment.session[Kept].all() == ()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def all_of(door: ToolExecutor, *calls: ToolCall) -> object:
    """Carry out on this thread."""
    return door.execute_all(calls, reply="r")


def all_on_loop(door: ToolExecutor, *calls: ToolCall) -> object:
    """Carry out on an event loop."""
    return asyncio.run(door.execute_all_async(calls, reply="r"))


@pytest.mark.parametrize("all_calls", [all_of, all_on_loop], ids=lambda way: way.__name__)
def test_a_group_is_raised_when_the_other_calls_have_ended(all_calls: Any) -> None:
    """As a mistake by itself; of several, the first is raised, and notes on it name the others with all they hold."""
    door = executor(tool("fine"), tool("wrong", wrapping(grouped)))
    asked = [call("wrong", id="1"), call("fine", "a", id="2"), call("wrong", id="3"), call("fine", "b", id="4")]
    with pytest.raises(ExceptionGroup, match="TaskGroup") as caught:
        all_calls(door, *asked)
    assert [(event.call_id, event.success) for event in events(door)] == [
        ("1", False),
        ("2", True),
        ("3", False),
        ("4", True),
    ]
    [note] = caught.value.__notes__
    assert TEXT in note


@both_ways
def test_a_group_without_a_mistake_is_a_failed_result(way: Run, wording: Wording) -> None:
    """It is an exception of the handler's body."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise ExceptionGroup("two things", [ValueError("odd"), OSError("gone")])

    content = way(executor(tool("t", handler)), call("t")).content
    assert content == wording


def quoting(mistake: DeveloperMistake) -> Exception:
    """The text of the mistake, within words of the program."""
    return RuntimeError(f"the till is closed ({mistake}); come back")


WRAPPED: dict[str, Wrap] = {
    "its own words": lambda _: RuntimeError("the till is closed"),
    "no words": lambda _: RuntimeError(),
    "quoted": quoting,
    "its text alone": lambda mistake: RuntimeError(str(mistake)),
    "represented": lambda mistake: RuntimeError(f"closed: {mistake!r}"),
    "for the model": lambda mistake: ToolValidationError(f"no: {mistake}"),
    "uncertain": lambda mistake: EffectUncertain(f"who knows: {mistake}"),
}


@both_ways
@pytest.mark.parametrize("cause", [True, False], ids=["from the mistake", "from None"])
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_an_exception_raised_from_a_mistake_is_the_programs_own(
    wrap: Wrap, cause: bool, way: Run, wording: Wording
) -> None:
    """A failed result with type and message; the text of the mistake is replaced in it."""
    door = executor(tool("t", wrapping(wrap, cause=cause)))
    message = way(door, call("t"))
    assert (message.success, message.content) == (False, wording)
    assert TEXT not in events(door)[0].result.message


def test_the_chain_of_an_exception_may_be_a_circle_and_hold_groups(wording: Wording) -> None:
    """Whatever a program chains, it is looked through once."""

    def chained(mistake: DeveloperMistake) -> Exception:
        first, second = RuntimeError(f"first: {mistake}"), ValueError("second")
        first.__context__, second.__context__ = ExceptionGroup("some", [mistake, second]), first
        return first

    content = executor(tool("t", wrapping(chained))).execute(call("t")).content
    assert content == wording


def test_the_model_does_not_read_a_mistake_of_an_effect_that_is_unknown(wording: Wording) -> None:
    """Neither at once nor when it asks again; the note of the effect has the text, below its first line."""
    for wrap in (None, quoting, grouped):
        door = executor(tool("t", _asks if wrap is None else wrapping(wrap), effect="external"))
        try:
            told = door.execute(call("t", id="1"), reply="r").content
        except (DeveloperMistake, ExceptionGroup):
            told = ""
        again = door.execute(call("t", id="2"), reply="r").content
        assert again == wording
        assert TEXT not in told + again
        (row,) = door.environment.effect_ledger.rows()
        first, _, rest = row.note.partition("\n")
        assert TEXT not in first
        assert TEXT in rest


def _asks(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    context.resources.get(Client)
    raise AssertionError


def raised_from_mistake(wrap: Wrap) -> NoReturn:
    """Raise what is made of a mistake."""
    mistake = UnboundResourceError(Client)
    raise wrap(mistake) from mistake


def _answers_by(wrap: Wrap, _: object) -> bool:
    raised_from_mistake(wrap)


def by_policy(wrap: Wrap) -> ToolExecutor:
    """A policy comes to a mistake."""
    return executor(tool("t"), policies=(Decides(lambda _tool, _params: raised_from_mistake(wrap), name="rule"),))


def by_approver(wrap: Wrap) -> ToolExecutor:
    """An approver does."""
    return executor(tool("t"), policies=(ASKS,), approver=partial(_answers_by, wrap))


def by_provider(wrap: Wrap) -> ToolExecutor:
    """A provider does."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.resources.get(Till)
        raise AssertionError

    return executor(tool("t", handler), resources={Till: Binding(Till, lambda _: raised_from_mistake(wrap))})


def by_reconciler(wrap: Wrap) -> ToolExecutor:
    """A reconciler does, of an effect that is unknown."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise TimeoutError("slow")

    def reconcile(params: Note, key: str) -> ToolResult[Note] | None:
        raised_from_mistake(wrap)

    door = executor(tool("t", pay, effect="external", reconcile=reconcile), effect_ledger=EffectLedger())
    assert not door.execute(call("t"), reply="r").success
    return door


@pytest.mark.parametrize("make", [by_policy, by_approver, by_provider, by_reconciler])
def test_it_holds_for_what_runs_beside_the_handler(make: Callable[[Wrap], ToolExecutor], wording: Wording) -> None:
    """A group is raised; what the model reads of anything else holds no text of the mistake."""
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        make(grouped).execute(call("t"), reply="r")
    message = make(quoting).execute(call("t"), reply="r")
    assert not message.success
    assert TEXT not in message.content
    assert message.content == wording


def test_what_subscribers_raise_is_looked_through() -> None:
    """`DispatchError` quotes all of them, and is raised from the first alone."""
    dispatcher = Dispatcher()

    def first(event: Note) -> None:
        raise ValueError("odd")

    def second(event: Note) -> None:
        raise UnboundResourceError(Client)

    dispatcher.subscribe(Note, first)
    dispatcher.subscribe(Note, second)
    door = executor(tool("t"), session=Session(session_id="s", dispatcher=dispatcher))
    content = door.execute(call("t")).content
    assert "odd" in content
    assert TEXT not in content
