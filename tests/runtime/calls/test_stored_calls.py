"""The stored form of `ToolInvoked`: it comes back as it was, or as what can still be said of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from handrail.limits import RunContext
from handrail.prompt import ToolResult
from handrail.runtime import ToolCall, ToolInvoked
from handrail.runtime.calls import Step
from handrail.session import stored_as
from handrail.session.persistence.stored_types import stored_type
from tests.kit import Note
from tests.wording import Wording


def invoked(**changes: Any) -> ToolInvoked:
    """A call that succeeded."""
    fields: dict[str, Any] = {
        "call": ToolCall("call-1", "note", '{"text": "x"}'),
        "params": Note("x"),
        "result": ToolResult.ok(Note("x"), message="noted"),
        "refused_at": None,
        "handler_seconds": 0.5,
        "total_seconds": 1.5,
        "effect_key": "session:note:1",
        "replayed": False,
        "session_id": "s",
        "run_context": RunContext(),
        "at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return ToolInvoked(**fields | changes)


def through_a_store(event: ToolInvoked) -> ToolInvoked:
    """The event as it comes back."""
    stored = stored_type(ToolInvoked)
    (read,) = stored.load(stored.dump((event,)), stored.version)
    assert isinstance(read, ToolInvoked)
    return read


BIG = 'a "big" text\n' * 200


@dataclass(frozen=True)
class Loose:
    """Its fields may be anything."""

    number: Any
    text: str = ""


@pytest.mark.parametrize(
    "arguments, params, derived",
    [
        ('{"text":"x"}', Note("x"), True),
        ('{"text": "x"}', Note("x"), True),
        (json.dumps({"text": BIG}), Note(BIG), True),
        (json.dumps({"text": BIG}, indent=1).encode(), Note(BIG), True),
        (json.dumps({"number": 1, "text": BIG}), Loose(1, BIG), True),
        (json.dumps({"number": 1.0, "text": BIG}), Loose(1, BIG), False),
        (json.dumps({"number": True, "text": BIG}), Loose(1, BIG), False),
        (json.dumps({"number": [1, {"a": None}], "text": BIG}), Loose([1, {"a": None}], BIG), True),
        (json.dumps({"number": [1, 2], "text": BIG}), Loose([1], BIG), False),
        (json.dumps({"text": BIG, "number": 1}), Loose(1, BIG), False),
        (json.dumps({"text": BIG}), Loose(None, BIG), False),
        (json.dumps({"number": BIG}), Loose(BIG), False),
        ({"text": BIG}, Note(BIG), False),
        (json.dumps({"text": BIG}), {"text": BIG}, True),
        (json.dumps({"text": BIG}), {"text": BIG, "more": 1}, False),
        ('{"text":"x"}', {"text": "x"}, True),
        ("not JSON" * 200, Note(BIG), False),
        ("{}", None, False),
    ],
)
def test_parameters_that_the_arguments_say_are_not_stored_again(arguments: Any, params: Any, derived: bool) -> None:
    """They are read as they were, and so are those that decoding the arguments does not give exactly."""
    event = invoked(call=ToolCall("call-1", "note", arguments), params=params)
    read = through_a_store(event)
    assert read.params == params
    assert type(read.params) is type(params)
    if isinstance(params, Loose):
        assert type(read.params.number) is type(params.number)
    (data,) = json.loads(stored_type(ToolInvoked).dump((event,)))
    if params is not None:
        assert ("value" not in data["params"]) is derived


@dataclass
class Unsayable:
    """JSON cannot say it."""

    act: Any = field(default_factory=object)


class Mute:
    """It cannot even be looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "event",
    [
        invoked(),
        invoked(params=None, result=ToolResult.error("no"), refused_at=Step.PARSE, handler_seconds=None),
        invoked(run_context=None, effect_key=None, replayed=True),
        invoked(result=ToolResult("list", ["a", {"b": [1, None]}], exclude_value_from_context=True)),
        invoked(call=ToolCall("call-1", "note", '{"text": "\ud800"}'), params=None),
        invoked(call=ToolCall("call-1", "no\ud800te", {"text": ["x"]}), params=None),
    ],
    ids=["a success", "a refusal", "a replay", "a list", "half a surrogate pair", "decoded arguments"],
)
def test_an_event_comes_back_as_it_was(event: ToolInvoked) -> None:
    """With its parameters and its value as values of their classes."""
    assert through_a_store(event) == event


@pytest.mark.parametrize("value", [Unsayable(), object(), ["\ud800", object()]])
def test_a_value_that_json_cannot_say_is_left_out(
    value: Any, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Its place says so, and the log; the call is recorded."""
    event = invoked(result=ToolResult("done", value))
    assert through_a_store(event).result == ToolResult("done", None)
    assert caplog.messages == wording
    assert b'"unavailable"' in stored_type(ToolInvoked).dump((event,))


@pytest.mark.parametrize(
    "arguments, read",
    [(b"a\xff", "a\\xff"), ({"a": (1, 2)}, {"a": [1, 2]}), (Ellipsis, "Ellipsis"), (Mute(), "<Mute>")],
)
def test_arguments_that_did_not_parse_are_shown(arguments: Any, read: Any) -> None:
    """As JSON, as text, or by their type: they may be anything."""
    found: Any = through_a_store(invoked(call=ToolCall("c", "note", arguments), params=None)).call.arguments
    assert found == read


@stored_as("tests.receipt", version=2, upgrades={1: lambda item: {"amount": item["sum"]}})
@dataclass(frozen=True)
class Receipt:
    """Its field was called `sum` once."""

    amount: int


def with_value(value: Any) -> Any:
    """What of an event is read back, if its value was stored like this."""
    stored = stored_type(ToolInvoked)
    (data,) = json.loads(stored.dump((invoked(),)))
    return stored.load(json.dumps([data | {"value": value}]).encode(), 1)[0].result.value


def test_a_value_of_an_older_version_goes_through_the_upgrades() -> None:
    """Each value has the version of its class beside it."""
    assert with_value({"type": "tests.receipt", "version": 1, "value": {"sum": 3}}) == Receipt(3)


def test_a_value_whose_class_is_gone_is_shown_as_json() -> None:
    """A record stays readable when the tool that made it is not there any more."""
    assert with_value({"type": "gone:Gone", "version": 1, "value": {"a": 1}}) == {"a": 1}


@pytest.mark.parametrize(
    "value",
    [
        {"type": "tests.receipt", "version": 3, "value": {"b": 1}},
        {"type": "tests.receipt", "version": 2, "value": {"b": 1}},
        {"type": "tests.receipt", "version": 1, "value": {"b": 1}},
    ],
    ids=["newer", "does not fit", "an upgrade fails"],
)
def test_a_value_that_no_longer_fits_is_shown_as_json(
    value: Any, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """And the log says so."""
    assert with_value(value) == {"b": 1}
    assert caplog.messages == wording


WRONG = {
    "nothing": {},
    "a number for a value": {"value": 1},
    "a value without its version": {"value": {"type": "tests.receipt", "value": {"amount": 1}}},
    "a number for parameters": {"params": 1},
    "a step that is none": {"refused_at": "lunch"},
    "a time that is none": {"at": 7},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_is_no_record_is_refused(change: Any, wording: Wording) -> None:
    """Somebody has changed the row."""
    stored = stored_type(ToolInvoked)
    (data,) = json.loads(stored.dump((invoked(),)))
    with pytest.raises(ValueError) as raised:
        stored.load(json.dumps([data | change if change else {}]).encode(), 1)
    assert str(raised.value) == wording


def test_a_type_that_is_no_name_is_refused(wording: Wording) -> None:
    """As above, deeper down."""
    with pytest.raises(ValueError) as raised:
        with_value({"type": 1, "version": 1, "value": {}})
    assert str(raised.value) == wording
