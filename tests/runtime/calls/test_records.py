"""The record of a call: what is stored of its arguments and its result, and how it is read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from handrail import store, tool
from handrail.errors import SchemaError, SessionUseError
from handrail.limits import RunContext
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session, ToolCall, ToolInvoked, ToolMessage
from handrail.runtime.calls import Step
from handrail.session import stored_as
from handrail.session.persistence.stored_types import stored_type
from handrail.store import MemoryStore
from tests.kit import Note, call, executor, raises
from tests.serde.kit import Approve, Disc, Reject, Tile, held
from tests.wording import Wording


@dataclass(frozen=True)
class AmbiguousUnionsApprove:
    """An answer."""

    why: str


@dataclass(frozen=True)
class AmbiguousUnionsReject:
    """The other one."""

    reason: str


def returns(kind: Any, value: Any, name: str = "look", **options: Any) -> Tool[Any, Any]:
    """A tool that returns a value of a type, and has written a note."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        context.session[Note].append(params)
        return ToolResult.ok(value)

    made: Any = Tool[Note, kind]
    returned: Tool[Any, Any] = made(name=name, description="Looks.", handler=handler, **options)
    return returned


def answered(folder: Path, *tools: Tool[Any, Any]) -> ToolMessage:
    """The same call, made of these tools; each in a session that has been opened anew."""
    message = None
    for each in tools:
        with store.open(f"sqlite:///{folder}/s.db") as opened, Session.open(opened, "s") as session:
            message = executor(each, session=session).execute(ToolCall("c", "look", '{"text": "a"}'), reply="r")
    assert message is not None
    return message


VALUES: dict[str, tuple[Any, Any]] = {
    "dataclasses": (list[AmbiguousUnionsApprove], [AmbiguousUnionsApprove("a")]),
    "by name": (dict[str, AmbiguousUnionsApprove | AmbiguousUnionsReject], {"x": AmbiguousUnionsReject("a")}),
    "a set": (set[int], {1, 2}),
    "a tuple": (tuple[int, ...], (1, 2)),
    "bytes": (bytes, b"hi"),
    "moments": (list[datetime], [datetime.fromisoformat("2026-01-31T12:00:00+00:00")]),
    "a text": (str, "a"),
    "a dataclass of two": (AmbiguousUnionsApprove | AmbiguousUnionsReject, AmbiguousUnionsReject("a")),
    "keys that are numbers": (dict[int, str], {1: "a"}),
    "nothing in it": (list[AmbiguousUnionsApprove], []),
    "nothing": (None, None),
}


@pytest.mark.parametrize("kind, value", VALUES.values(), ids=VALUES)
def test_a_value_comes_back_as_its_declared_type(kind: Any, value: Any, tmp_path: Path) -> None:
    """After the first answer, and after a record that was read and stored again; the model reads the same."""
    looking = returns(kind, value)
    first = answered(tmp_path, looking)
    again = answered(tmp_path, looking, looking)
    assert (first.replayed, again.replayed, again.result.value) == (False, True, value)
    assert type(again.result.value) is type(value)
    assert (again.content, again.success) == (first.content, True)


def test_a_value_that_no_longer_fits_is_given_as_json(tmp_path: Path) -> None:
    """The record stands, whatever has become of the tool."""
    message = answered(
        tmp_path, returns(list[AmbiguousUnionsApprove], [AmbiguousUnionsApprove("a")]), returns(set[int], {1})
    )
    assert (message.replayed, message.result.value) == (True, [{"why": "a"}])


AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@tool
def remind(text: str, at: datetime, copies: int = 1) -> str:
    """Remind of something."""
    return f"{copies} of {text} at {at:%H:%M}"


def called(folder: Path, made: Tool[Any, Any], arguments: str) -> tuple[ToolInvoked, ToolInvoked]:
    """The event of a call, and the same from the store."""
    with store.open(f"sqlite:///{folder}/s.db") as opened:
        with Session.open(opened, "s") as session:
            assert executor(made, session=session).execute(ToolCall("c", made.name, arguments), reply="r").success
            (event,) = session[ToolInvoked]
        with Session.open(opened, "s") as session:
            (read,) = session[ToolInvoked]
    return event, read


@pytest.mark.parametrize("long", ["", " and tell everybody" * 100])
def test_the_arguments_of_a_function_come_back_as_json(tmp_path: Path, long: str) -> None:
    """With the defaults, and nothing of the class or the module of the function; the tool of today reads them."""
    words = json.dumps({"text": f"lunch{long}", "at": "2026-01-31T12:00:00Z"})
    event, read = called(tmp_path, remind, words)
    assert (event.params.text, event.params.at, event.params.copies) == (f"lunch{long}", AT, 1)
    assert read.params == {"text": f"lunch{long}", "at": "2026-01-31T12:00:00Z", "copies": 1}
    assert __name__.encode() not in stored_type(ToolInvoked).dump((event,))
    assert remind.parse(read.params) == event.params


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
        (json.dumps({"text": BIG}), Note(BIG), True),
        (json.dumps({"number": 1, "text": BIG}), Loose(1, BIG), True),
        (json.dumps({"number": 1.0, "text": BIG}), Loose(1, BIG), False),
        (json.dumps({"number": True, "text": BIG}), Loose(1, BIG), False),
        (json.dumps({"number": [1, {"a": None}], "text": BIG}), Loose([1, {"a": None}], BIG), True),
        (json.dumps({"text": BIG, "number": 1}), Loose(1, BIG), False),
        (json.dumps({"text": BIG}), Loose(None, BIG), False),
        ({"text": BIG}, Note(BIG), False),
        (json.dumps({"text": BIG}), {"text": BIG}, True),
        (json.dumps({"text": BIG}), {"text": BIG, "more": 1}, False),
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


def test_a_value_goes_through_the_upgrades_and_is_shown_as_json_when_its_class_is_gone() -> None:
    """Each value has the version of its class beside it; a record stays readable without the tool that made it."""
    assert with_value({"type": "tests.receipt", "version": 1, "value": {"sum": 3}}) == Receipt(3)
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


WRONG: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a number for a value": {"value": 1},
    "a value without its version": {"value": {"type": "tests.receipt", "value": {"amount": 1}}},
    "a type that is no name": {"value": {"type": 1, "version": 1, "value": {}}},
    "a number for parameters": {"params": 1},
    "a step that is none": {"refused_at": "lunch"},
    "a time that is none": {"at": 7},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_is_no_record_is_refused(change: Any, wording: Wording) -> None:
    """Somebody has changed the row."""
    stored = stored_type(ToolInvoked)
    (data,) = json.loads(stored.dump((invoked(),)))
    with raises(ValueError, wording):
        stored.load(json.dumps([data | change if change else {}]).encode(), 1)


Kind = Literal["state", "external"]


def in_store() -> Session:
    """A session in a store."""
    return Session.open(MemoryStore(), "s")


EITHER: Any = Approve | Reject


HELD: Any = held(EITHER)


@pytest.mark.parametrize("make, effect", [(in_store, "state"), (in_store, "external"), (Session, "external")])
def test_it_is_refused_where_the_executor_has_a_store_or_the_effect_a_ledger(
    make: Callable[[], Session], effect: Kind, wording: Wording
) -> None:
    """When the executor is made: the error names the tool, the place, both members and the cure."""
    tool = returns(list[datetime | str], ["noon"], "decide", effect=effect)
    with pytest.raises(SchemaError) as raised:
        executor(tool, session=make(), effect_ledger=EffectLedger())
    assert (raised.value.path, str(raised.value)) == ("$[*]", wording)


def test_a_slice_is_refused_when_it_is_stored(wording: Wording) -> None:
    """It is named, with the same cure."""
    with raises(SessionUseError, wording):
        in_store()[HELD].append(HELD(Reject("a")))


@pytest.mark.parametrize("effect", ["state", "external"])
def test_members_with_a_literal_field_come_back_from_a_store(effect: Kind) -> None:
    """As what they were."""
    store, tool = MemoryStore(), returns(Disc | Tile, Tile("a"), effect=effect)
    messages: list[ToolMessage] = []
    for _ in range(2):
        with Session.open(store, "s") as session:
            messages.append(executor(tool, session=session).execute(call("look"), reply="r"))
    assert [(each.result.value, each.replayed) for each in messages] == [(Tile("a"), False), (Tile("a"), True)]


@dataclass(frozen=True)
class Point:
    x: int = 0


@dataclass(frozen=True)
class Label:
    y: str = ""


@pytest.fixture
def stored(tmp_path: Path) -> Generator[Session]:
    """A stored session."""
    with store.open(f"sqlite:///{tmp_path}/s.db") as opened, Session.open(opened, "s") as session:
        yield session


WRONG_RESULTS_WRONG = (
    pytest.param(list[Point], [Label()], id="class"),
    pytest.param(list[int], [1, "a"], id="number"),
    pytest.param(list[Literal["a"]], ["a", "b"], id="literal"),
    pytest.param(dict[str, int], {1: 1}, id="key"),
    pytest.param(tuple[int, str], (1, 2), id="text"),
)


@pytest.mark.parametrize("kind, value", WRONG_RESULTS_WRONG)
@pytest.mark.parametrize("where", ["memory", "store"])
def test_a_wrong_item_fails_the_call(kind: Any, value: Any, where: str, stored: Session, wording: Wording) -> None:
    """Where it is, and what would be right; the changes are undone."""
    session = stored if where == "store" else Session()
    message = executor(returns(kind, value, "list"), session=session).execute(call("list"), reply="r")
    assert (message.success, message.content) == (False, wording)
    assert not session[Note].all()


def test_an_infinite_number_fails_the_call_where_it_would_be_stored(stored: Session, wording: Wording) -> None:
    """In memory nothing is stored, so nothing is refused."""
    tool = returns(list[float], [float("inf")], "list")
    assert executor(tool, session=stored).execute(call("list"), reply="r").content == wording
    assert executor(tool, session=Session()).execute(call("list")).success
