"""Codecs: parsing, dumping, round trips and caching."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from itertools import count
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import DumpError, ParseError
from handrail.serde import Codec, codec, dump, parse, result_codec, schema
from handrail.serde.core_schemas import MAX_CACHED, cached
from tests.kit import refusal
from tests.serde import kit
from tests.wording import Wording


@dataclass
class Broken:
    text: str

    def __post_init__(self) -> None:
        """Raises what is no `ValueError`."""
        raise LookupError(self.text)


@dataclass
class Money:
    amount: float
    exact: Decimal = Decimal(0)
    note: str = ""


def test_keys_of_a_mapping_that_json_writes_the_same_are_a_fault(wording: Wording) -> None:
    """A mapping is read as the JSON that it would be."""
    assert str(refusal(ParseError, parse, kit.Loose, {"anything": {1: "a", "1": "b"}})) == wording


@pytest.mark.parametrize("wrap", [dict, MappingProxyType])
def test_a_mapping_is_parsed_as_the_json_that_it_would_be(wrap: kit.Json) -> None:
    """Decoded already, by whatever kind of mapping; its own values may still be Python's."""
    data = wrap({"objective": "a", "steps": [wrap({"title": "b", "status": kit.Status.DONE})]})
    assert parse(kit.Plan, data) == kit.Plan("a", steps=(kit.Step("b", kit.Status.DONE),))


IMPOSSIBLE: list[Any] = [{"objective": object()}, {"objective": "a", "notes": {"b": [1, {2}, print]}}]


@pytest.mark.parametrize("data", [*IMPOSSIBLE, [], 5, None, object()], ids=count())
def test_what_could_not_have_come_from_json_is_a_fault(data: kit.Json, wording: Wording) -> None:
    """Also a value that is no mapping at all."""
    assert str(refusal(ParseError, parse, kit.Plan, data)) == wording


def test_what_a_dataclass_raises_itself_is_not_hidden() -> None:
    """A `ValueError` is a fault of the input (see the faults); anything else is the dataclass's own."""
    with pytest.raises(LookupError, match="a"):
        parse(Broken, '{"text": "a"}')


def test_a_value_that_is_not_of_its_declared_type_is_not_dumped(wording: Wording) -> None:
    """The type checker sees most of it; what it has not seen is told with its path."""
    wrong: list[tuple[Any, Any]] = [
        (kit.Circle, kit.Circle("circle", "wide")),  # type: ignore[arg-type]
        (kit.Plan, kit.Plan("a", steps=(kit.Step("b", "done"),))),  # type: ignore[arg-type]
        (kit.Plan, kit.Plan("a", steps=[kit.Step("b")])),  # type: ignore[arg-type]
        (kit.Plan, kit.Step("b")),
        (kit.Drawing, kit.Drawing(size=1.5)),  # type: ignore[arg-type]
        (dict[str, int], {"a": "b"}),
        (list[kit.Step], (kit.Step("a"),)),
        (str, 5),
        (kit.Circle, None),
        (kit.Plan, kit.Plan(None, steps=(None,))),  # type: ignore[arg-type]
        (kit.Loose, kit.Loose(anything=None, numbers={"a": None})),  # type: ignore[dict-item]
    ]
    told: list[str] = []
    for kind, value in wrong:
        error = refusal(DumpError, result_codec(kind).dump_json, value)
        assert error.faults
        told += str(error).splitlines()
    assert told == wording


def test_a_value_that_json_cannot_say_is_not_dumped(wording: Wording) -> None:
    """Not finite, not Unicode, endless, or of a type without a form in JSON: told with its path."""
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    unsayable: list[Any] = [
        Money(float("nan")),
        Money(float("inf"), Decimal("NaN")),
        Money(1.0, Decimal("-Infinity")),
        kit.Loose(numbers={"a": float("-inf")}),
        kit.Loose(anything=[1, {"a": float("nan")}]),
        kit.Loose(anything={"a": [object()]}),
        kit.Loose(anything=kit.Inner("a", parts=(kit.Inner("\ud800"),))),
        kit.Loose(anything=endless),
        kit.Loose(anything=deep),
        kit.Inner("\ud800"),
    ]
    told: list[str] = []
    for value in unsayable:
        error = refusal(DumpError, dump, value)
        told += str(error).splitlines()
    assert told == wording


def test_anything_without_a_declared_type_is_dumped_by_what_it_is() -> None:
    """Mappings, sequences, scalars, and dataclasses among them."""
    assert dump({"a": [kit.Circle("circle", 1.5), kit.Status.DONE, b"\xff", Decimal("1.0"), None]}) == {
        "a": [{"kind": "circle", "radius": 1.5}, "done", "_w==", "1.0", None]
    }
    assert dump(MappingProxyType({"a": MappingProxyType({1: 2})})) == {"a": {"1": 2}}
    assert dump((1, "a")) == [1, "a"]
    assert dump("text") == "text"
    assert dump(None) is None
    assert dump(kit.Empty()) == {}


@dataclass(frozen=True)
class Row:
    number: int


@dataclass(frozen=True)
class Sheet:
    rows: list[Row] = field(default_factory=list[Row])
    named: dict[str, Row] | None = None
    amounts: tuple[Decimal, ...] = ()
    text: list[int] | str = ""


@pytest.mark.parametrize(
    "sent, value",
    [
        ({"rows": '[{"number": 1}]'}, Sheet([Row(1)])),
        ({"rows": ['{"number": 1.0}']}, Sheet([Row(1)])),
        ({"named": ' {"a": "{\\"number\\": 1}"} '}, Sheet(named={"a": Row(1)})),
        ({"amounts": '["1.50"]'}, Sheet(amounts=(Decimal("1.5"),))),
        ({"text": "[1]"}, Sheet(text="[1]")),
    ],
)
def test_an_array_or_object_in_a_text_is_read(sent: dict[str, Any], value: Sheet) -> None:
    """Where its place takes no text: models send the JSON of an argument once more in a string."""
    assert codec(Sheet).parse(sent) == value


@pytest.mark.parametrize(
    "sent",
    [
        *({"rows": '[{"number": 1}'}, {"rows": '{"number": 1}'}, {"named": "null"}, {"rows": '["a"]'}),
        *({"named": '{"a": {"number": 1, "number": 2}}'}, {"amounts": "[1.00000000000000000001]"}),
        *({"amounts": "[NaN]"}, {"rows": '[{"number": 1, "more": "\\ud800"}]'}, {"rows": "1"}),
    ],
)
def test_a_text_that_does_not_say_all_of_it_is_refused(sent: dict[str, Any]) -> None:
    """Nothing is lost: neither digits nor one of two values for a key."""
    error = refusal(ParseError, codec(Sheet).parse, sent)
    assert {path.split(".")[1].partition("[")[0] for path, _ in error.faults} == set(sent)


def test_one_goes_when_there_are_too_many() -> None:
    """So that types made at run time do not fill the memory."""
    made: Callable[[int], list[int]] = cached(lambda number: [number])
    first, last = made(-1), [made(number) for number in range(MAX_CACHED)][-1]
    assert made(-1) == first
    assert made(-1) is not first
    assert made(MAX_CACHED - 1) is last


def test_what_could_not_be_made_is_asked_again() -> None:
    """A name may be defined by then."""
    names: dict[str, int] = {}
    made: Callable[[str], int] = cached(lambda name: names[name])
    refusal(KeyError, made, "a")
    names["a"] = 1
    assert made("a") == 1


def test_two_caches_may_ask_each_other() -> None:
    """No lock is held while a value is made: what makes it is code of the program, which may ask for another one."""
    both_make = threading.Barrier(2)

    def ask(name: str, others: list[Callable[[str], str]]) -> str:
        if name == "inner":
            return "made"
        both_make.wait(timeout=30)
        return others[0]("inner")

    one: Callable[[str], str] = cached(lambda name: ask(name, [other]))
    other: Callable[[str], str] = cached(lambda name: ask(name, [one]))
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(one, "a"), pool.submit(other, "b")]
        assert [each.result() for each in asked] == ["made", "made"]


def test_a_simple_type_is_built_when_it_is_first_used() -> None:
    """Many functions are made tools, and few are called; the threads that use one first agree."""
    kind: type[Any] = make_dataclass("Order", [("number", str), ("cents", int)])
    made: Codec[Any] = codec(kind)
    ready = threading.Barrier(4)

    def parsed(cents: int) -> object:
        ready.wait(timeout=30)
        return made.parse({"number": "a", "cents": cents})

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(parsed, range(4))] == [kind("a", cents) for cents in range(4)]
    assert codec(kind) is made


@given(kit.everything())
def test_every_type_survives_a_round_trip(value: kit.Everything) -> None:
    """`parse(type(x), dump(x)) == x`, through Python and through JSON."""
    assert parse(kit.Everything, dump(value)) == value
    parameters = codec(kit.Everything)
    assert parameters.parse_json(parameters.dump_json(value)) == value


@given(kit.everything())
def test_what_is_dumped_is_json(value: kit.Everything) -> None:
    """`dump` gives the Python that the standard library writes and reads without loss."""
    dumped = dump(value)
    assert json.loads(json.dumps(dumped, allow_nan=False)) == dumped


@given(kit.everything())
def test_what_is_dumped_has_the_fields_of_the_schema(value: kit.Everything) -> None:
    """The model is shown exactly the fields that a value has, and is asked for those without a default."""
    shown: dict[str, Any] = schema(kit.Everything)
    assert list(shown["properties"]) == list(dump(value))
    assert set(shown["required"]) == set(dump(value)) - {"nothing", "default"}


@given(st.lists(kit.inners(), max_size=4))
def test_a_generic_dataclass_survives_a_round_trip(items: list[kit.Inner]) -> None:
    """`Page[Inner]` makes its items of type `Inner`, though `Page` alone does not know them."""
    page = kit.Page(items, kit.Page(items))
    assert parse(kit.Page[kit.Inner], dump(page)) == page


ROUND = kit.Circle("circle", 1.5)
RESULTS: list[tuple[Any, Any]] = [
    *((dict[str, int], {"a": 1}), (tuple[kit.Circle, ...], (ROUND,)), (str, "text"), (kit.Circle | None, None)),
    *((list[kit.Circle | kit.Square], [ROUND, kit.Square("square", 2.0)]), (frozenset[int], frozenset({1, 2}))),
    (kit.Page[int], kit.Page([1, 2])),
]


@pytest.mark.parametrize("kind, value", RESULTS)
def test_a_result_survives_a_round_trip(kind: object, value: object) -> None:
    """A result may also be a mapping, a sequence, a set or a string, or nothing."""
    results = result_codec(kind)
    assert results.parse_json(results.dump_json(value)) == value
