"""What a default makes up for each call, and the model did not send, is `None` for keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Annotated, Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, model_validator

from handrail.serde import codec, digest

_numbers = count()


def number() -> str:
    """Another text each time."""
    return f"made up {next(_numbers)}"


@dataclass(frozen=True, slots=True)
class Line:
    """A record that may hold its like."""

    sku: str
    trace: str = field(default_factory=number)
    parts: list[Line] = field(default_factory=list["Line"])

    def __post_init__(self) -> None:
        """Need the value that the factory made."""
        object.__setattr__(self, "sku", self.sku + self.trace[:0])


class Header(BaseModel):
    """The same of pydantic."""

    model_config = ConfigDict(extra="forbid")

    title: str = ""
    at: datetime | str = Field(default_factory=lambda: datetime.now(UTC))
    key: str = Field(default_factory=lambda data: data["title"] + number())

    @model_validator(mode="after")
    def needs_its_key(self) -> Self:
        """Need the value that the factory made."""
        self.key.strip()
        return self


@dataclass
class Note:
    """A record without slots."""

    text: str
    at: str = field(default_factory=number)


@dataclass(frozen=True)
class Order:
    """Holds records in all that may hold them."""

    trace: Annotated[str, Field(default_factory=number)]
    first: Line | None = None
    lines: tuple[Line, ...] = ()
    headers: dict[str, Header] = field(default_factory=dict[str, Header])
    note: Note | Line | int = 0
    names: frozenset[str] = field(default_factory=frozenset[str])


ORDERS = codec(Order)
FOR_KEYS = ORDERS.for_keys()


def key(arguments: dict[str, Any]) -> str:
    """The digest of arguments, as a key is made of it."""
    assert FOR_KEYS is not None
    return digest(FOR_KEYS.parse(arguments))


def lines() -> st.SearchStrategy[dict[str, Any]]:
    """Lines of which some send their trace."""
    sku, trace = {"sku": st.sampled_from("ab")}, {"trace": st.sampled_from("xy")}

    def with_parts(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({**sku, "parts": st.lists(inner, max_size=2)}, optional=trace)

    plain: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(sku, optional=trace)
    return st.recursive(plain, with_parts, max_leaves=4)


def orders() -> st.SearchStrategy[dict[str, Any]]:
    """Arguments that send some of what is made up otherwise."""
    title, text = st.sampled_from(["", "t"]), st.sampled_from("xy")
    at = st.sampled_from(["2026-01-01T00:00:00Z", "now"])
    header = st.fixed_dictionaries({}, optional={"title": title, "at": at, "key": text})
    note = st.fixed_dictionaries({"text": text}, optional={"at": text})
    return st.fixed_dictionaries(
        {},
        optional={
            "trace": text,
            "first": lines() | st.none(),
            "lines": st.lists(lines(), max_size=2),
            "headers": st.dictionaries(text, header, max_size=2),
            "note": note | lines() | st.just(0),
            "names": st.lists(text, max_size=2, unique=True),
        },
    )


@given(orders())
def test_an_equal_request_has_an_equal_key(arguments: dict[str, Any]) -> None:
    """Whatever the factories made, and whether a plain default is sent or left out."""
    defaults: dict[str, Any] = {"first": None, "lines": [], "headers": {}, "note": 0, "names": []}
    written = defaults | arguments
    assert key(arguments) == key(arguments) == key(written)


@given(orders(), st.sampled_from("xyz"))
def test_what_is_sent_is_part_of_the_key(arguments: dict[str, Any], trace: str) -> None:
    """Another value that the model wrote is another request, at any depth."""
    line: dict[str, Any] = {"sku": "a", "parts": [{"sku": "b", "trace": f"{trace} sent"}]}
    left_out: dict[str, Any] = {"sku": "a", "parts": [{"sku": "b"}]}
    other: dict[str, Any] = {"sku": "a", "trace": f"{trace} sent", "parts": [{"sku": "b"}]}
    assert len({key(arguments | {"first": first}) for first in (line, left_out, other)}) == 3


@given(orders())
def test_the_parameters_of_the_handler_are_complete(arguments: dict[str, Any]) -> None:
    """Only what a key is made of has `None` in the place of a value."""
    parsed = ORDERS.parse(arguments)
    assert all(isinstance(trace, str) for trace in (parsed.trace, *(line.trace for line in parsed.lines)))
    assert parsed.headers.keys() == arguments.get("headers", {}).keys()


def test_a_record_of_a_union_that_failed_leaves_no_trace() -> None:
    """The attempt to read a `Note` has called no factory for the `Line` that is read."""
    assert key({"note": {"sku": "a"}}) == key({"note": {"sku": "a"}})
    assert key({"note": {"sku": "a", "trace": "x"}}) != key({"note": {"sku": "a"}})
    assert key({"note": {"text": "a"}}) == key({"note": {"text": "a"}})


@dataclass(frozen=True)
class Plain:
    """Its defaults are equal for each call."""

    sku: str = "a"
    tags: list[str] = field(default_factory=list[str])


@pytest.mark.parametrize("kind", [Plain, Line])
def test_a_type_whose_defaults_are_constant_needs_no_second_reading(kind: type[Any]) -> None:
    """Such a tool pays nothing."""
    assert (codec(kind).for_keys() is None) is (kind is Plain)
