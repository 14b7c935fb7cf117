"""What a session's subscribers are notified of when a call fails by an exception that no model can make use of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from handrail.errors import ToolValidationError
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import ToolInvoked, ToolRaised
from tests.kit import Kept, Note, both_ways, call, executor, tool
from tests.wording import Wording


def breaks(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Write something, then raise."""
    context.session[Kept].append(Kept(params.text))
    raise OSError("no ink")


def heard_by(door: Any) -> list[ToolRaised]:
    """What the subscribers of its session are notified of."""
    heard: list[ToolRaised] = []
    door.environment.session.dispatcher.subscribe(ToolRaised, heard.append)
    return heard


@both_ways
def test_what_a_tool_raises_is_said_with_the_exception(way: Any) -> None:
    """Once, with the identity of the call; the model reads type and message, and no slice keeps the event."""
    door = executor(tool("jot", breaks))
    heard = heard_by(door)
    message = way(door, call("jot"))
    (event,) = heard
    assert (event.session_id, event.reply, event.call_id, event.tool) == ("s", None, "call-1", "jot")
    assert event.ref == door.environment.session[ToolInvoked].all()[0].ref
    assert type(event.error) is OSError
    assert event.error.__traceback__ is not None
    assert message.content == "jot failed: OSError: no ink"
    assert door.environment.session[ToolRaised].all() == ()


@both_ways
def test_it_is_said_when_the_call_is_undone_and_not_yet_recorded(way: Any) -> None:
    """Whoever hears of the record has heard of the exception."""
    door = executor(tool("jot", breaks))
    session, seen = door.environment.session, list[tuple[int, int]]()
    session.dispatcher.subscribe(
        ToolRaised, lambda _: seen.append((len(session[Kept].all()), len(session[ToolInvoked].all())))
    )
    way(door, call("jot"))
    assert seen == [(0, 0)]


def refuses(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Say what is wrong with the arguments."""
    raise ToolValidationError("that is no note")


def fails(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Return a failure."""
    return ToolResult.error("no ink")


@both_ways
@pytest.mark.parametrize("handler", [refuses, fails, None], ids=["refuses", "fails", "missing"])
def test_what_is_meant_for_the_model_is_no_such_exception(way: Any, handler: Callable[..., Any] | None) -> None:
    """A refusal of the handler, a failed result, and a refusal of the pipeline."""
    door = executor(tool("jot", handler))
    heard = heard_by(door)
    assert not way(door, call("jot")).success
    assert not way(door, call("jott", id="call-2")).success
    assert heard == []


@both_ways
def test_a_subscriber_that_raises_changes_nothing(way: Any, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """It is logged."""
    door = executor(tool("jot", breaks))

    def fail(_: ToolRaised) -> None:
        raise RuntimeError("the subscriber is broken")

    door.environment.session.dispatcher.subscribe(ToolRaised, fail)
    with caplog.at_level(logging.ERROR, "handrail.runtime"):
        assert way(door, call("jot")).content == "jot failed: OSError: no ink"
    assert caplog.messages == wording
