"""Bad input at every door: the model is told what to do, nothing changes, one event says so, and the run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem
from handrail.limits import TokenUsage
from handrail.prompt import ToolExample
from handrail.runtime import Step, ToolCall, ToolMessage
from handrail.testing import Call, Reply, Script
from tests.kit import Kept, Note, both_ways, events, executor, files, scribble, tool
from tests.scenarios.doors import Door, every_door
from tests.wording import Wording

GOOD = '{"text": "good"}'
COUNTED = TokenUsage(1, 1)  # or PydanticAI's fake model counts for itself, and stumbles over the arguments


@dataclass(frozen=True, slots=True)
class Bad:
    """A call that must be refused.

    Attributes:
        arguments: the text that it sent.
        name: the tool that it named.
        refused_at: the step that refuses it.
    """

    arguments: str = GOOD
    name: str = "write"
    refused_at: Step = Step.PARSE


ROWS = [
    pytest.param(Bad('{"text": '), id="malformed"),
    pytest.param(Bad('["a"]'), id="array"),
    pytest.param(Bad(name="wriet", refused_at=Step.LOOK_UP), id="unknown tool"),
    pytest.param(Bad('{"text": "a", "txet": 1}'), id="unknown field"),
    pytest.param(Bad('{"text": 7}'), id="wrong type"),
    pytest.param(Bad("{}"), id="missing field"),
    pytest.param(Bad('{"text": NaN}'), id="NaN"),
    pytest.param(Bad(json.dumps({"text": "x" * 10_000_000})), id="10 MB"),
    pytest.param(Bad('{"text": ' + "[" * 100_000 + "]" * 100_000 + "}"), id="deep nesting"),
    pytest.param(Bad('{"text": "\\ud800"}'), id="escaped surrogate"),
    pytest.param(Bad('{"text": "\ud800"}'), id="raw surrogate"),
    pytest.param(Bad('{"\\ud800": 1}'), id="surrogate in a key"),
    pytest.param(Bad(name="\ud800", refused_at=Step.LOOK_UP), id="surrogate in a name"),
    pytest.param(Bad(name="write" * 1_000_000, refused_at=Step.LOOK_UP), id="endless name"),
    pytest.param(Bad('{"text": "a", "text": "b"}'), id="a key twice"),
    pytest.param(Bad("null"), id="null"),
    pytest.param(Bad('"text"'), id="a string"),
    pytest.param(Bad("  "), id="blanks"),
    pytest.param(Bad("\ufeff" + GOOD), id="byte order mark"),
    pytest.param(Bad(GOOD + GOOD), id="two objects"),
    pytest.param(Bad('{"text": 1' + "0" * 5_000 + "}"), id="long number"),
    pytest.param(Bad('{"text": 1e999999}'), id="infinite number"),
    pytest.param(Bad(json.dumps({"text": "a", "k" * 500_000: 1})), id="endless key"),
]


def _executor(**options: Any) -> ToolExecutor:
    hint = ToolExample(description="Keeps hi", input=Note("hi"), output=Note("hi"))
    return executor(tool("write", scribble, examples=(hint,)), resources={Filesystem: files(note="before")}, **options)


@every_door
@pytest.mark.requirement("M-06a", "M-06b", "M-06c", "M-06d", "M-06e", "M-06f", "M-06g", "M-06h", "M-06i", "M-06j")
@pytest.mark.parametrize("bad", ROWS)
def test_bad_input_is_answered_and_the_run_goes_on(door: Door, bad: Bad, wording: Wording) -> None:
    """The call before it and the call after it are carried out; it changes nothing, and is recorded once."""
    desk = _executor()
    asked = [Call("write", GOOD), Call(bad.name, bad.arguments), Call("write", GOOD)]
    script = Script([*(Reply(calls=[call], usage=COUNTED) for call in asked), Reply(text="Done.", usage=COUNTED)])
    first, answer, last = door.play(script, desk)
    assert (first.success, answer.success, last.success) == (True, False, True)
    assert answer.content == wording
    assert answer.content.encode()
    assert [event.refused_at for event in events(desk)] == [None, bad.refused_at, None]
    assert len(desk.environment.session[Kept]) == 2
    assert desk.environment.session.turn.queue == []


class Circular(dict[str, Any]):
    """Arguments that hold themselves."""

    def __init__(self) -> None:
        super().__init__(text=self)


def _deep() -> dict[str, Any]:
    value: Any = "x"
    for _ in range(100_000):
        value = [value]
    return {"text": value}


OBJECTS: list[Any] = [
    pytest.param(None, id="None"),
    pytest.param(5, id="a number"),
    pytest.param(["a"], id="a list"),
    pytest.param(b'{"text": "\xff\xfe"}', id="bytes that are no UTF-8"),
    pytest.param({"text": b"abc"}, id="bytes for text"),
    pytest.param({"text": float("nan")}, id="NaN"),
    pytest.param({"text": "\ud800"}, id="surrogate"),
    pytest.param({5: "a"}, id="a key that is no string"),
    pytest.param({"text": object()}, id="an object"),
    pytest.param({"text": "x" * 10_000_000}, id="10 MB"),
    pytest.param(Circular(), id="circular"),
    pytest.param(_deep(), id="deep nesting"),
]


@both_ways
@pytest.mark.parametrize("arguments", OBJECTS)
def test_arguments_that_no_model_sends_are_answered_too(
    way: Callable[[ToolExecutor, ToolCall], ToolMessage], arguments: Any, wording: Wording
) -> None:
    """A program hands over what it has decoded, or has not: the answer is a failed message, never an exception."""
    desk = _executor()
    message = way(desk, ToolCall("c", "write", arguments))
    assert message.content == wording
    assert not message.success
    assert [event.refused_at for event in events(desk)] == [Step.PARSE]
    assert desk.environment.session[Kept].all() == ()
    assert way(desk, ToolCall("d", "write", GOOD)).success


@both_ways
@pytest.mark.requirement("M-06c")
@pytest.mark.parametrize("name", [None, 5, ["write"], {"name": "write"}], ids=repr)
def test_a_name_that_is_no_text_is_an_unknown_tool(
    way: Callable[[ToolExecutor, ToolCall], ToolMessage], name: Any, wording: Wording
) -> None:
    """Whatever stands where a name is due, the answer lists the names there are."""
    desk = _executor()
    message = way(desk, ToolCall("c", name, GOOD))
    assert not message.success
    assert message.content == wording
    assert [event.refused_at for event in events(desk)] == [Step.LOOK_UP]


@both_ways
def test_an_external_call_without_an_id_is_refused(way: Callable[[ToolExecutor, ToolCall], ToolMessage]) -> None:
    """Its id is all that tells it from another one: two calls without would be taken for one effect."""
    done: list[str] = []

    def charge(params: Note, *, context: Any) -> Any:
        done.append(params.text)
        return scribble(params, context=context)

    desk = executor(tool("charge", charge, effect="external"), resources={Filesystem: files()})
    messages = [way(desk, ToolCall("", "charge", GOOD)), way(desk, ToolCall("", "charge", GOOD))]
    assert [message.success for message in messages] == [False, False]
    assert [message.replayed for message in messages] == [False, False]
    assert done == []
