"""What a session's subscribers are notified of when a call fails and its effect may have been applied."""

from __future__ import annotations

from typing import Any

from handrail.errors import ToolValidationError
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import EffectUnsettled, ToolInvoked
from tests.kit import Note, both_ways, call, executor, tool


def heard_by(door: Any) -> list[object]:
    """What the subscribers of its session are notified of: an effect that is unsettled, and that a call has ended."""
    heard: list[object] = []
    for each in (EffectUnsettled, ToolInvoked):
        door.environment.session.dispatcher.subscribe(each, heard.append)
    return heard


def breaks(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Raise what says nothing of the effect."""
    raise OSError("the line is dead")


def refuses(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Raise what says that there is no effect."""
    raise ToolValidationError("that is no note")


@both_ways
def test_an_effect_that_is_unknown_is_said_before_the_end_of_its_call(way: Any) -> None:
    """Once, with the identity of the call and the key of the effect; no slice keeps the event."""
    door = executor(tool("send", breaks, effect="external"))
    heard = heard_by(door)
    way(door, call("send"))
    unsettled, ended = heard
    assert isinstance(unsettled, EffectUnsettled)
    assert isinstance(ended, ToolInvoked)
    assert (unsettled.session_id, unsettled.ref, unsettled.tool) == ("s", ended.ref, "send")
    assert unsettled.key == ended.effect_key
    assert door.environment.session[EffectUnsettled].all() == ()


@both_ways
def test_who_listens_for_nothing_else_is_notified_too(way: Any) -> None:
    """An alarm for money needs no subscription to all calls."""
    door, heard = executor(tool("send", breaks, effect="external")), list[object]()
    door.environment.session.dispatcher.subscribe(EffectUnsettled, heard.append)
    way(door, call("send"))
    assert [type(event) for event in heard] == [EffectUnsettled]


@both_ways
def test_an_effect_that_is_known_not_to_have_happened_is_settled(way: Any) -> None:
    """By a refusal of the handler, and by the rollback of a tool that changes the session alone."""
    door = executor(tool("send", refuses, effect="external"), tool("jot", breaks))
    heard = heard_by(door)
    way(door, call("send"))
    way(door, call("jot", id="call-2"))
    assert [type(event) for event in heard] == [ToolInvoked, ToolInvoked]
