"""What a tool is once it is made."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel

from handrail.errors import ParseError
from handrail.prompt import Tool, ToolResult
from handrail.prompt import tool as handrail_tool
from tests.prompt.samples import Found, Lookup, look_up, lookup_tool, named_tool
from tests.wording import Wording

NO_TYPES: Any = Tool


@dataclass(frozen=True)
class Counted:
    """A result that can hold what JSON cannot say."""

    share: float


def test_a_tool_keeps_what_it_was_declared_with() -> None:
    """Defaults are those of a tool that changes state; blanks around the description go."""
    tool = lookup_tool(description="  Looks an entity up.  ")
    assert tool.description == "Looks an entity up."
    assert (tool.handler, tool.examples, tool.accepts_overrides) == (look_up, (), True)
    assert (tool.effect, tool.timeout, tool.idempotency, tool.reconcile) == ("state", None, None, None)
    assert (tool.params_type, tool.result_type) == (Lookup, Found)


def test_a_tool_equals_only_itself() -> None:
    """Two tools declared alike are two tools, whatever their examples can be compared by."""
    tool = lookup_tool()
    assert tool == tool  # noqa: PLR0124 - that is the point
    assert tool != lookup_tool()
    assert len({tool, lookup_tool()}) == 2


@pytest.mark.parametrize(
    "effect, concurrent, writes",
    [
        *(("read", False, False), ("read", True, False), ("state", False, True), ("state", True, False)),
        *(("external", False, True), ("external", True, False)),
    ],
)
def test_only_a_lone_call_may_write(effect: str, concurrent: bool, writes: bool) -> None:
    """A handler may write unless its tool reads or is concurrent."""
    assert lookup_tool(effect=effect, concurrent=concurrent).writes is writes


def test_the_schema_is_that_of_the_parameters() -> None:
    """The model sees the closed schema of the dataclass, field descriptions included."""
    assert lookup_tool().parameters_schema == snapshot(
        {
            "additionalProperties": False,
            "description": "What to look up.",
            "properties": {
                "entity_id": {"description": "ID to fetch", "type": "string"},
                "limit": {"default": 5, "type": "integer"},
            },
            "required": ["entity_id"],
            "type": "object",
        }
    )
    assert named_tool("ping").parameters_schema == snapshot(
        {
            "additionalProperties": False,
            "description": "Takes no arguments.",
            "properties": {},
            "type": "object",
        }
    )


@pytest.mark.parametrize("max_bytes", [None, 1_000, 18])
def test_arguments_parse_in_any_form(max_bytes: int | None) -> None:
    """Text, bytes and decoded objects of a bounded size give the dataclass."""
    forms: list[str | bytes | dict[str, Any]] = ['{"entity_id": "a"}', b'{"entity_id": "a"}', {"entity_id": "a"}]
    assert [lookup_tool().parse(form, max_bytes=max_bytes) for form in forms] == [Lookup("a")] * 3


@pytest.mark.requirement("M-06h")
def test_too_many_bytes_are_not_parsed(wording: Wording) -> None:
    """The size is that in UTF-8, not in characters."""
    forms: list[str | bytes | dict[str, Any]] = ['{"entity_id":"ä"}', b'{"entity_id":"aa"}', {"entity_id": "aa"}]
    for form in forms:
        with pytest.raises(ParseError) as raised:
            lookup_tool().parse(form, max_bytes=17)
        assert str(raised.value) == wording


def test_every_fault_of_the_arguments_is_told(wording: Wording) -> None:
    """A fault each for a wrong type, a missing field and an unknown one."""
    with pytest.raises(ParseError) as caught:
        lookup_tool().parse('{"limit": "7", "entity": "a"}')
    assert str(caught.value) == wording


def test_a_tool_without_parameters_takes_nothing_in_any_form() -> None:
    """Models say nothing in several ways; each of them parses to `None`."""
    tool: Tool[Any, Any] = named_tool("ping")
    forms: list[str | bytes | dict[str, Any]] = ["{}", "", "null", b"{}", b"", {}, " { } "]
    assert [tool.parse(form) for form in forms] == [None] * len(forms)


def page(number: int = 1) -> int:
    """A page."""
    return number


def as_dict(arguments: dict[str, Any]) -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Page:
    number: int = 1


class Model(BaseModel):
    number: int = 1


PAGES: dict[str, Any] = {"type": "object", "properties": {"number": {"type": "integer"}}}


@pytest.mark.parametrize("nothing", ["", " \n", "null", " null ", b"", b"null", {}, None], ids=repr)
def test_nothing_is_no_arguments_where_all_have_defaults(nothing: Any) -> None:
    """However the parameters are declared; also in the key of an effect."""
    assert Tool[Page, None](name="page", description="d").parse(nothing) == Page()
    assert Tool[Model, None](name="page", description="d").parse(nothing) == Model()
    paged = handrail_tool(page)
    assert vars(paged.parse(nothing)) == {"number": 1}
    assert paged.key_params(nothing, paged.parse(nothing)) == paged.parse("{}")
    assert Tool.from_json_schema(name="page", description="d", schema=PAGES, handler=as_dict).parse(nothing) == {}
    with pytest.raises(ParseError) as raised:
        lookup_tool().parse(nothing)
    assert [path for path, _ in raised.value.faults] == ["$.entity_id"]


@pytest.mark.parametrize("arguments", ['{"a": 1}', "[]", {"a": 1}])
def test_a_tool_without_parameters_takes_nothing_else(arguments: str | dict[str, int]) -> None:
    """An argument that the tool does not have is a fault."""
    with pytest.raises(ParseError):
        named_tool("ping").parse(arguments)


def test_a_result_is_held_to_the_declared_type(wording: Wording) -> None:
    """A fault names what was returned and what was declared; a failure may go without a value."""
    tool: Tool[Any, Any] = lookup_tool()
    assert tool.result_fault(ToolResult.ok(Found("a"))) is None
    assert tool.result_fault(ToolResult.error("no")) is None
    assert tool.result_fault(ToolResult.ok(Lookup("a"))) == wording
    assert tool.result_fault(ToolResult("done", None)) == wording
    assert tool.result_fault(ToolResult.error("no", Lookup("a"))) == wording
    no_text: Any = 5
    assert tool.result_fault(ToolResult(no_text, Found("a"))) == wording
    assert tool.result_fault(ToolResult("done", Found("a"), no_text)) == wording
    assert named_tool("ping").result_fault(ToolResult.ok("pong")) == wording
    assert named_tool("ping").result_fault(ToolResult.ok(None)) is None


@pytest.mark.parametrize(
    "kind, value",
    [
        (Found, Found("a")),
        (str, "text"),
        (str, ""),
        (list[Found], [Found("a"), Found("b")]),
        (Sequence[int], [1, 2]),
        (dict[str, Found], {"a": Found("b")}),
        (Mapping[str, int], {}),
        (Found | None, None),
        (None, None),
        (Found | None, Found("a")),
    ],
)
def test_a_kept_value_is_read_as_it_was(kind: object, value: object) -> None:
    """Whatever type a result has, what is written for the ledger reads back equal, falsy values too."""
    tool: Tool[Any, Any] = NO_TYPES[None, kind](name="give", description="Gives.")
    assert tool.result_fault(ToolResult.ok(value)) is None
    kept = tool.dump_value(value)
    assert kept is not None
    assert tool.load_value(kept) == value


def test_a_value_that_json_cannot_say_is_not_kept(caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """The caller learns that there is nothing to keep, and the log why."""
    tool: Tool[Any, Any] = Tool[None, Counted](name="count", description="Counts.")
    with caplog.at_level(logging.WARNING):
        assert tool.dump_value(Counted(float("nan"))) is None
    assert caplog.messages == wording
    ping: Tool[Any, Any] = named_tool("ping")
    assert ping.dump_value("something") is None


def test_a_kept_value_that_does_not_fit_is_refused(wording: Wording) -> None:
    """What another version of the tool has written may no longer be readable."""
    with pytest.raises(ParseError):
        lookup_tool().load_value(b'{"address": "a"}')
    with pytest.raises(ParseError) as raised:
        named_tool("ping").load_value(b'"pong"')
    assert str(raised.value) == wording
