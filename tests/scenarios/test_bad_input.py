"""Bad input at every door: the model is told what to do, nothing changes, one event says so, and the run goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem
from handrail.limits import TokenUsage
from handrail.prompt import ToolExample
from handrail.runtime import Step, ToolCall
from handrail.testing import Call, Reply, Script
from tests.kit import Kept, Note, Run, both_ways, events, executor, files, scribble, tool
from tests.scenarios.doors import Door, every_door
from tests.wording import Wording

GOOD = '{"text": "good"}'
COUNTED = TokenUsage(1, 1)  # or PydanticAI's fake model counts for itself, and stumbles over the arguments


ARGUMENTS = {
    "malformed": '{"text": ', "array": '["a"]', "unknown field": '{"text": "a", "txet": 1}',
    "wrong type": '{"text": 7}', "missing field": "{}", "NaN": '{"text": NaN}',
    "10 MB": json.dumps({"text": "x" * 10_000_000}), "a string": '"text"', "blanks": "  ",
    "deep nesting": '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}", "escaped surrogate": '{"text": "\\ud800"}',
    "raw surrogate": '{"text": "\ud800"}', "surrogate in a key": '{"\\ud800": 1}',
    "a key twice": '{"text": "a", "text": "b"}', "null": "null", "byte order mark": "\ufeff" + GOOD,
    "two objects": GOOD + GOOD, "long number": '{"text": 1' + "0" * 5_000 + "}",
    "infinite number": '{"text": 1e999999}', "endless key": json.dumps({"text": "a", "k" * 500_000: 1}),
}  # fmt: skip
NAMES = {"unknown tool": "wriet", "surrogate in a name": "\ud800", "endless name": "write" * 1_000_000}
ROWS = [
    *(pytest.param("write", text, Step.PARSE, id=name) for name, text in ARGUMENTS.items()),
    *(pytest.param(tool_name, GOOD, Step.LOOK_UP, id=name) for name, tool_name in NAMES.items()),
]
"""The tool that a call names, the text that it sends, and the step that refuses it."""


def _executor(**options: Any) -> ToolExecutor:
    hint = ToolExample(description="Keeps hi", input=Note("hi"), output=Note("hi"))
    return executor(tool("write", scribble, examples=(hint,)), resources={Filesystem: files(note="before")}, **options)


@every_door
@pytest.mark.requirement("M-06a", "M-06b", "M-06c", "M-06d", "M-06e", "M-06f", "M-06g", "M-06h", "M-06i", "M-06j")
@pytest.mark.parametrize("name, arguments, refused_at", ROWS)
def test_bad_input_is_answered_and_the_run_goes_on(
    door: Door, name: str, arguments: str, refused_at: Step, wording: Wording
) -> None:
    """The call before it and the call after it are carried out; it changes nothing, and is recorded once."""
    desk = _executor()
    asked = [Call("write", GOOD), Call(name, arguments), Call("write", GOOD)]
    script = Script([*(Reply(calls=[call], usage=COUNTED) for call in asked), Reply(text="Done.", usage=COUNTED)])
    first, answer, last = door.play(script, desk)
    assert (first.success, answer.success, last.success) == (True, False, True)
    assert answer.content == wording
    assert answer.content.encode()
    assert [event.refused_at for event in events(desk)] == [None, refused_at, None]
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


OBJECTS: dict[str, Any] = {
    "None": None, "a number": 5, "a list": ["a"], "bytes that are no UTF-8": b'{"text": "\xff\xfe"}',
    "bytes for text": {"text": b"abc"}, "NaN": {"text": float("nan")}, "surrogate": {"text": "\ud800"},
    "a key that is no string": {5: "a"}, "an object": {"text": object()}, "10 MB": {"text": "x" * 10_000_000},
    "circular": Circular(), "deep nesting": _deep(),
}  # fmt: skip


@both_ways
@pytest.mark.parametrize("arguments", OBJECTS.values(), ids=OBJECTS)
def test_arguments_that_no_model_sends_are_answered_too(way: Run, arguments: Any, wording: Wording) -> None:
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
def test_a_name_that_is_no_text_is_an_unknown_tool(way: Run, name: Any, wording: Wording) -> None:
    """Whatever stands where a name is due, the answer lists the names there are."""
    desk = _executor()
    message = way(desk, ToolCall("c", name, GOOD))
    assert not message.success
    assert message.content == wording
    assert [event.refused_at for event in events(desk)] == [Step.LOOK_UP]


@both_ways
def test_an_external_call_without_an_id_is_refused(way: Run) -> None:
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
