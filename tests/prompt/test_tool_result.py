"""The result of a handler, its parts, and what the model reads of it."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from math import inf, nan
from typing import Any, Generic, Literal, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from handrail.errors import InvalidArgumentError
from handrail.prompt import BinaryPart, TextPart, ToolResult
from handrail.prompt.tool_result import check_value, dump_parts, load_parts
from tests.prompt.samples import Found, Lookup
from tests.wording import Wording

V = TypeVar("V")


@dataclass(frozen=True)
class Plain:
    name: str
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Page(Generic[V]):
    items: tuple[V, ...]


@dataclass(frozen=True)
class Broken:
    reason: str

    def render(self) -> str:
        raise RuntimeError(self.reason)


@dataclass(frozen=True)
class Numeric:
    number: int

    def render(self) -> int:
        return self.number


@dataclass(frozen=True)
class NoMethod:
    render: str


FOUND = ToolResult.ok(Found("a"), "Fetched")
READ: list[tuple[ToolResult[Any], str]] = [
    *((FOUND, "found at a"), (replace(FOUND, exclude_value_from_context=True), "Fetched")),
    (ToolResult.ok(Found("a"), exclude_value_from_context=True), "OK"),
    *((ToolResult.ok(None, "Done"), "Done"), (ToolResult.ok(None), "OK")),
    *((ToolResult.ok("some text", "Read"), "Read\nsome text"), (ToolResult.ok("some text"), "some text")),
    *((ToolResult.ok("", "Read"), "Read"), (ToolResult.ok(""), "OK")),
    (ToolResult.ok({"ä": [Plain("b")]}, "Read"), 'Read\n{"ä":[{"name":"b","sizes":[1,2]}]}'),
    *((ToolResult.ok([], "None there"), "None there\n[]"), (ToolResult.ok(NoMethod("a")), '{"render":"a"}')),
    (ToolResult.ok(Page((Plain("a"),))), '{"items":[{"name":"a","sizes":[1,2]}]}'),
    *((ToolResult.error("Too big"), "Too big"), (ToolResult.error(""), "Failed")),
    *((ToolResult.error("Gone", Found("a")), "Gone\nfound at a"), (ToolResult.error("", Found("a")), "found at a")),
    (ToolResult(message="Gone", value=Found("a"), success=False, exclude_value_from_context=True), "Gone"),
]


@pytest.mark.parametrize("result, text", READ)
def test_the_model_reads_the_value_or_the_message(
    result: ToolResult[Any], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A value that renders itself is the text of a success; otherwise message and value follow each other.

    Neither of these forms is worth a line in the log.
    """
    assert result.render() == text
    assert caplog.messages == []


@pytest.mark.parametrize("value", [Broken("no"), Numeric(5)], ids=["raises", "number"])
def test_a_render_that_fails_is_logged_and_json_is_shown(
    value: object, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The call has succeeded, so the model is told all the same, and people are told of the fault."""
    text = ToolResult.ok(value, "Done").render()
    assert text.startswith("Done\n{")
    assert caplog.messages == wording


class Reading(BaseModel):
    mean: float
    of: Plain | None = None


CYCLE: dict[str, Any] = {"name": "a", "parts": [1]}
CYCLE["parts"].append(CYCLE)


@dataclass(frozen=True)
class Login:
    """Holds a secret, and what JSON cannot say."""

    tries: float
    token: str = field(default="hunter2", metadata={"secret": True})


class Refused(BaseModel):
    """Is not taken as a type of results, so nothing is known of it."""

    model_config = ConfigDict(extra="allow")
    tries: float


ODD: list[object] = [
    *(object(), [object()], {"a": nan, "b": [1, -inf], "c": date(2026, 1, 31)}, Plain(5), nan, CYCLE),  # type: ignore[arg-type]
    *(Reading(mean=nan), [Reading(mean=1, of=Plain("b"))], [nan] * 12, Login(inf), [Refused(tries=nan)]),
    {"a": "\ud800", "b": nan, "c": range(3)},
]


@pytest.mark.parametrize("value", ODD)
def test_null_stands_for_what_json_cannot_say(
    value: object, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Its place is named to the model, and what no JSON can be made of is reported to the log; nothing is raised."""
    text = ToolResult.ok(value, "Done").render()
    assert text == wording
    assert caplog.messages == wording


@given(st.text(), st.text(), st.booleans(), st.booleans())
def test_the_text_is_never_empty_unless_the_value_says_so(message: str, url: str, success: bool, hidden: bool) -> None:
    """There is always something to read: the message, the value, or one word."""
    result = ToolResult(message, Found(url), success, hidden)
    assert result.render()
    assert ToolResult(message, None, success, hidden).render() == (message or ("OK" if success else "Failed"))


@pytest.mark.parametrize(
    "expected, value",
    [
        *((Found, Found("a")), (None, None), (str, ""), (list[int], [1]), (Sequence[str], ["a"]), (bytes, b"a")),
        *((Sequence[str], ("a",)), (Mapping[str, int], {}), (dict, {"a": 1}), (Page[int], Page((1,)))),
        *((Found | None, None), (int | None, None), (Found | str, "a"), (Collection[str], {"a"})),
        *((float, 1), (Literal["a", "b"], "c")),
    ],
)
def test_a_value_of_the_declared_class_fits(expected: object, value: object) -> None:
    """The class counts, not what is inside."""
    assert check_value(expected, value) is None


def test_any_other_value_is_told(wording: Wording) -> None:
    """What was returned, and what was declared."""
    cases: list[tuple[object, object]] = [(Found, Lookup("a")), (Found, None), (None, "text"), (str, 5)]
    cases += [(Sequence[str], "text"), (Collection[int], b"ab"), (list[int], (1,)), (dict[str, int], [])]
    cases += [(Page[int], Found("a")), (Found | None, 5), ("Found", Found("a"))]
    assert [check_value(expected, value) for expected, value in cases] == wording


def test_a_file_is_named_by_type_and_size() -> None:
    """In texts for models and people, which do not hold files."""
    shown = [str(BinaryPart(bytes(size), "image/png")) for size in (0, 999, 1_000, 12_400, 2_600_000)]
    sizes = ("0 bytes", "999 bytes", "1 kB", "12 kB", "3 MB")
    assert shown == [f"[image/png, {size}]" for size in sizes]


@pytest.mark.parametrize("data, media_type", [("text", "image/png"), (b"", "png"), (b"", "image/"), (b"", None)])
def test_a_wrong_part_is_the_mistake_of_the_developer(data: Any, media_type: Any) -> None:
    """It names the argument."""
    with pytest.raises(InvalidArgumentError) as raised:
        BinaryPart(data, media_type)
    assert raised.value.argument == ("data" if isinstance(data, str) else "media_type")


def test_what_was_written_is_read(wording: Wording) -> None:
    """Any bytes, and any text."""
    parts = (TextPart("page 1"), BinaryPart(bytes(range(256)), "application/pdf"))
    assert load_parts(dump_parts(parts)) == parts
    wrong: list[Any] = [{}, {"data": "x"}, {"data": "x", "media_type": "image/png"}, 7]
    for each in wrong:
        with pytest.raises(ValueError) as raised:
            load_parts([each])
        assert str(raised.value).partition(": ")[0] == wording


def test_an_api_gets_base64_and_a_url() -> None:
    """In the standard alphabet."""
    part = BinaryPart(b"\xfb\xff", "image/png")
    assert base64.b64decode(part.base64, validate=True) == part.data
    assert part.data_url == f"data:image/png;base64,{part.base64}"


def test_the_text_names_each_part_in_its_place() -> None:
    """The parts begin with the text of message and value."""
    image = BinaryPart(b"x", "image/png")
    result = ToolResult.ok({"page": 1}, "read", parts=[TextPart("below"), image])
    assert result.render() == 'read\n{"page":1}\nbelow\n[image/png, 1 bytes]'
    assert result.all_parts() == (TextPart('read\n{"page":1}'), TextPart("below"), image)
    assert ToolResult.ok("text").all_parts() == ()
