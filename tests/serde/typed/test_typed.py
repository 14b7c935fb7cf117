"""Codecs: built once, kept, shared between threads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any

import pytest

from handrail.errors import DumpError, ParseError, SchemaError
from handrail.serde import codec, dump, parse, result_codec
from tests.kit import refusal
from tests.serde.refused import HasOpenModel, OpenModel
from tests.serde.shapes import Circle, Drawing, Empty, Inner, Json, Loose, Page, Plan, Status, Step
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


def test_a_codec_is_built_once() -> None:
    """Asked again for the same type, and for an equal alias of it, the same codec is given."""
    assert codec(Plan) is codec(Plan)
    assert codec(Page[Step]) is codec(Page[Step])
    assert codec(Page[Circle]).kind == Page[Circle]
    assert codec(Plan) is not result_codec(Plan)
    assert codec(Plan).kind is Plan


def test_parsing_is_strict() -> None:
    """Nothing is converted that JSON can say; what it cannot say comes as a string, in one form."""
    assert parse(Loose, '{"exact": "1.50", "numbers": {"a": 1}}') == Loose(exact=Decimal("1.50"), numbers={"a": 1.0})
    assert parse(Plan, '{"objective": "a", "steps": [{"title": "b", "status": "done"}]}').steps == (
        Step("b", Status.DONE),
    )
    for slip in ('{"objective": 1}', '{"objective": "a", "limit": 1.5}', '{"objective": "a", "limit": true}'):
        refusal(ParseError, parse, Plan, slip)


def test_keys_of_a_mapping_that_json_writes_the_same_are_a_fault(wording: Wording) -> None:
    """A mapping is read as the JSON that it would be."""
    assert str(refusal(ParseError, parse, Loose, {"anything": {1: "a", "1": "b"}})) == wording


@pytest.mark.parametrize("wrap", [dict, MappingProxyType])
def test_a_mapping_is_parsed_as_the_json_that_it_would_be(wrap: Json) -> None:
    """Decoded already, by whatever kind of mapping; its own values may still be Python's."""
    data = wrap({"objective": "a", "steps": [wrap({"title": "b", "status": Status.DONE})]})
    assert parse(Plan, data) == Plan("a", steps=(Step("b", Status.DONE),))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"objective": object()}, id="object in a field"),
        pytest.param({"objective": "a", "notes": {"b": [1, {2}, print]}}, id="function in a list"),
        pytest.param([], id="list"),
        pytest.param(5, id="integer"),
        pytest.param(None, id="None"),
        pytest.param(object(), id="object"),
    ],
)
def test_what_could_not_have_come_from_json_is_a_fault(data: Json, wording: Wording) -> None:
    """Also a value that is no mapping at all."""
    assert str(refusal(ParseError, parse, Plan, data)) == wording


def test_what_a_dataclass_raises_itself_is_not_hidden() -> None:
    """A `ValueError` is a fault of the input (see the faults); anything else is the dataclass's own."""
    with pytest.raises(LookupError, match="a"):
        parse(Broken, '{"text": "a"}')


def test_a_value_that_is_not_of_its_declared_type_is_not_dumped(wording: Wording) -> None:
    """The type checker sees most of it; what it has not seen is told with its path."""
    wrong: list[tuple[Any, Any]] = [
        (Circle, Circle("circle", "wide")),  # type: ignore[arg-type]
        (Plan, Plan("a", steps=(Step("b", "done"),))),  # type: ignore[arg-type]
        (Plan, Plan("a", steps=[Step("b")])),  # type: ignore[arg-type]
        (Plan, Step("b")),
        (Drawing, Drawing(size=1.5)),  # type: ignore[arg-type]
        (dict[str, int], {"a": "b"}),
        (list[Step], (Step("a"),)),
        (str, 5),
        (Circle, None),
        (Plan, Plan(None, steps=(None,))),  # type: ignore[arg-type]
        (Loose, Loose(anything=None, numbers={"a": None})),  # type: ignore[dict-item]
    ]
    told: list[str] = []
    for kind, value in wrong:
        with pytest.raises(DumpError) as caught:
            result_codec(kind).dump_json(value)
        assert caught.value.faults
        told += str(caught.value).splitlines()
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
        Loose(numbers={"a": float("-inf")}),
        Loose(anything=[1, {"a": float("nan")}]),
        Loose(anything={"a": [object()]}),
        Loose(anything=Inner("a", parts=(Inner("\ud800"),))),
        Loose(anything=endless),
        Loose(anything=deep),
        Inner("\ud800"),
    ]
    told: list[str] = []
    for value in unsayable:
        error = refusal(DumpError, dump, value)
        told += str(error).splitlines()
    assert told == wording


def test_an_integer_that_could_not_be_read_back_is_not_dumped_to_python(wording: Wording) -> None:
    """Python and pydantic read some thousands of digits and no more."""
    assert str(refusal(DumpError, dump, Loose(anything=10**5000))) == wording


def test_anything_without_a_declared_type_is_dumped_by_what_it_is() -> None:
    """Mappings, sequences, scalars, and dataclasses among them."""
    assert dump({"a": [Circle("circle", 1.5), Status.DONE, b"\xff", Decimal("1.0"), None]}) == {
        "a": [{"kind": "circle", "radius": 1.5}, "done", "_w==", "1.0", None]
    }
    assert dump(MappingProxyType({"a": MappingProxyType({1: 2})})) == {"a": {"1": 2}}
    assert dump((1, "a")) == [1, "a"]
    assert dump("text") == "text"
    assert dump(None) is None
    assert dump(Empty()) == {}


@pytest.mark.parametrize("value", [[float("nan")], {"a": object()}, Plan, "\ud800"])
def test_without_a_declared_type_the_same_is_refused(value: object) -> None:
    """A class is no value either."""
    refusal(DumpError, dump, value)


def test_a_dataclass_that_is_not_taken_cannot_be_dumped() -> None:
    """It could not be read back."""
    refusal(SchemaError, dump, HasOpenModel([OpenModel(name="a")]))


@dataclass(frozen=True, slots=True)
class Scalars:
    text: str
    whole: int
    real: float
    flag: bool
    status: Status
    day: Annotated[date, "any"] = date(2026, 1, 31)
    maybe: str | None = None
    either: int | str | None = None


@pytest.mark.parametrize(
    "change", [{"text": None}, {"whole": "1"}, {"real": float("nan")}, {"status": "done"}, {"either": 1.5}], ids=str
)
def test_a_value_of_scalars_is_refused_by_its_types(change: Json) -> None:
    """What is not of its declared type goes the thorough way, and is told."""
    with pytest.raises(DumpError, match=rf"^\$\.{next(iter(change))}: "):
        result_codec(Scalars).dump_json(replace(Scalars("a", 1, 2.0, True, Status.DONE), **change))


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
