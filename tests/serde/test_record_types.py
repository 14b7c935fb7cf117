"""Pydantic models and TypedDicts are read and described as dataclasses are; defaults that are made up for each call."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Annotated, Any, Generic, NotRequired, Self, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from typing_extensions import TypedDict

from handrail.errors import DumpError, ParseError
from handrail.serde import codec, digest, dump, result_codec, stored_codec, type_masking
from tests.kit import refusal
from tests.wording import Wording

T = TypeVar("T")


class Item(BaseModel):
    """What is ordered."""

    sku: str
    count: int = Field(default=1, gt=0, description="How many.")
    weight: float = 0.0
    data: bytes = b""


class Gift(Item):
    wrapped: bool = False


class Address(TypedDict):
    street: Annotated[str, Field(min_length=1)]
    zip: NotRequired[int]


class Page(TypedDict, Generic[T]):
    rows: list[T]


@dataclass(frozen=True, slots=True)
class Order:
    item: Item
    to: Address
    others: tuple[Item, ...] = ()


class Node(BaseModel):
    next: Node | None = None


@dataclass
class Size:
    width: float
    within: Size | None = None


class Parcel(BaseModel):
    model_config = ConfigDict(extra="ignore")

    size: Size
    layers: list[Size] = []
    to: Address | None = None
    either: Size | int = 0
    named: dict[str, tuple[Size, int]] = {}


class Login(BaseModel):
    user: str
    password: SecretStr


class Keys(TypedDict):
    login: Login
    token: SecretStr


ADDRESSES = st.fixed_dictionaries({"street": st.text(min_size=1)}, optional={"zip": st.integers()})
ITEMS = st.builds(
    Item,
    sku=st.text(),
    count=st.integers(min_value=1),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    data=st.binary(),
)


@given(st.builds(Order, item=ITEMS, to=ADDRESSES, others=st.lists(ITEMS, max_size=2).map(tuple)))
def test_what_is_written_is_read_again(order: Order) -> None:
    """Within a dataclass, by themselves, as parameters and from a store."""
    assert codec(Order).parse(dump(order)) == order
    stored = stored_codec(Order)
    assert stored.parse_json(stored.dump_json(order)) == order
    assert codec(Item).parse_json(result_codec(Item).dump_json(order.item)) == order.item
    assert codec(Address).parse_json(stored_codec(Address).dump_json(order.to)) == order.to


@pytest.mark.parametrize(
    "text",
    [
        '{"item": {"sku": "a", "more": 1}, "to": {"street": "b"}}',
        '{"item": {"sku": "a"}, "to": {"street": "b", "more": 1}}',
        '{"item": {"sku": "a", "count": "7"}, "to": {"street": ""}}',
        '{"item": {"sku": "a", "weight": NaN}, "to": {"street": "b"}}',
        '{"item": {"sku": "a", "data": "#"}, "to": {"street": "b"}, "others": [{"count": 0}]}',
    ],
)
def test_faults_in_them_have_their_paths(text: str, wording: Wording) -> None:
    """All of one input at once."""
    assert str(refusal(ParseError, codec(Order).parse_json, text)) == wording


@pytest.mark.parametrize("item", [Gift(sku="a"), Item(sku="a", weight=float("nan")), Item(sku="\ud800")])
def test_a_value_that_would_come_back_as_another_is_refused(item: Item, wording: Wording) -> None:
    """In a store, with its place."""
    assert str(refusal(DumpError, stored_codec(Order).dump_json, Order(item, {"street": "b"}))) == wording


def test_secrets_in_them_are_masked() -> None:
    """In a model, in a TypedDict, and in one within the other."""
    login = Login(user="a", password=SecretStr("b"))
    keys: Keys = {"login": login, "token": SecretStr("c")}
    assert type_masking(Login).hides
    assert type_masking(Login).json(login) == b'{"user":"a","password":"**********"}'
    masked = b'{"login":{"user":"a","password":"**********"},"token":"**********"}'
    assert type_masking(Keys).json(keys) == masked
    assert type_masking(Login).mask({"user": "a", "password": "b"}) == {"user": "a", "password": "**********"}


def test_equal_models_have_one_digest() -> None:
    """That of an object with the same fields; a secret counts only under a key."""
    assert digest(Item(sku="a")) == digest(Item(sku="a", count=1)) != digest(Item(sku="b"))
    one, other = (Login(user="a", password=SecretStr(text)) for text in "bc")
    assert digest(one) == digest(other)
    assert digest(one, key=b"k") != digest(other, key=b"k")


def test_what_a_model_checks_itself_is_checked() -> None:
    """Its validators run, and its own configuration counts where it does not open it."""

    class Range(BaseModel):
        model_config = ConfigDict(str_strip_whitespace=True, extra="ignore")
        name: str
        low: int
        high: int

        @model_validator(mode="after")
        def ordered(self) -> Range:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    assert codec(Range).parse_json('{"name": " a ", "low": 1, "high": 2}').name == "a"
    for text in ('{"name": "a", "low": 3, "high": 2}', '{"name": "a", "low": 1, "high": 2, "more": 3}'):
        refusal(ParseError, codec(Range).parse_json, text)
    stored = stored_codec(Range)
    assert stored.parse_json(stored.dump_json(Range(name="a", low=1, high=2))).high == 2


@pytest.mark.parametrize("cls", [Parcel, Page[Parcel]])
def test_dataclasses_within_a_model_are_closed(cls: type[Any]) -> None:
    """In a list, optional, in a union, a mapping or another of them, as parameters, as results and in a store."""
    size: dict[str, Any] = {"width": 1.5, "within": {"width": 2.5, "within": None}}
    full: dict[str, Any] = {"size": size, "layers": [size], "to": {"street": "a"}, "either": size}
    full["named"] = {"a": [size, 1]}
    wrapped = full if cls is Parcel else {"rows": [full]}
    for each in (codec(cls), result_codec(cls), stored_codec(cls)):
        value = each.parse(wrapped)
        assert each.dump(value) == wrapped
        opened = [node for node in _objects(each.schema) if node.get("additionalProperties") is not False]
        assert [node for node in opened if "properties" in node] == []
        for place in (size, full["to"], size["within"]):
            place["unknown"] = 1
            assert all(path.endswith(".unknown") for path, _ in refusal(ParseError, each.parse, wrapped).faults)
            del place["unknown"]
        size["width"] = float("nan")
        refusal(ParseError, each.parse, wrapped)
        size["width"] = 1.5


class Odd(BaseModel):
    """Its configuration says how values are written, and hands that down."""

    model_config = ConfigDict(ser_json_timedelta="float", polymorphic_serialization=True)
    took: dt.timedelta
    item: Item


def test_the_configuration_of_a_model_does_not_change_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a subclass has more stays out, as for dataclasses; without `HANDRAIL_CHECK_STORED`."""
    for module in ("json_values", "typed"):
        monkeypatch.setattr(f"handrail.serde.{module}.CHECKS_ALL", False)
    stored, whole = stored_codec(Odd), Odd(took=dt.timedelta(1), item=Gift(sku="a", wrapped=True))
    assert stored.parse_json(stored.dump_json(whole)) == Odd(took=dt.timedelta(1), item=Item(sku="a"))


def _objects(node: Any) -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = [node] if isinstance(node, dict) else []
    items: list[Any] = [*node] if isinstance(node, list) else []
    return [
        *own,
        *(found for each in (*items, *(part for one in own for part in one.values())) for found in _objects(each)),
    ]


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
class Request:
    """Holds records in all that may hold them."""

    trace: Annotated[str, Field(default_factory=number)]
    first: Line | None = None
    lines: tuple[Line, ...] = ()
    headers: dict[str, Header] = field(default_factory=dict[str, Header])
    note: Note | Line | int = 0
    names: frozenset[str] = field(default_factory=frozenset[str])


REQUESTS = codec(Request)
FOR_KEYS = REQUESTS.for_keys()


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
    parsed = REQUESTS.parse(arguments)
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
