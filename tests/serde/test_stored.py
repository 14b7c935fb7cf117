"""Values that are stored can be read back, or are refused."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path, PurePath, PureWindowsPath
from typing import Annotated, Any, Final, Literal, cast

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import DumpError, ParseError
from handrail.serde import canonical_json, codec, dump, result_codec, stored_codec, type_masking
from handrail.serde.json_values import MAX_JSON_DEPTH, MOST_LEVELS, MOST_WRITTEN
from tests.kit import refusal
from tests.serde.kit import Base, Card, Everything, Json, Status, everything, held
from tests.wording import Wording


@dataclass(frozen=True)
class Anything:
    value: object
    rows: list  # type: ignore[type-arg]
    table: dict  # type: ignore[type-arg]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
    max_leaves=10,
)


@given(plain)
def test_what_json_gives_back_comes_back(value: Json) -> None:
    """Of the same types, at every depth."""
    stored = stored_codec(Anything)
    whole = Anything(value, [value], {"a": value})
    back = stored.parse_json(stored.dump_json(whole))
    assert repr(back) == repr(whole)


@dataclass(frozen=True)
class Login:
    """Secrets, alone and in a union."""

    user: str
    password: pydantic.SecretStr
    either: pydantic.SecretStr | int = 0


def test_secrets_are_stored_as_their_masks() -> None:
    """The unions of which pydantic makes their schemas are none of the program's."""
    stored = stored_codec(Login)
    data = stored.dump_json(Login("ann", pydantic.SecretStr("hunter2"), pydantic.SecretStr("hunter4")))
    assert b"hunter" not in data
    assert stored.parse_json(data) == Login("ann", pydantic.SecretStr("**********"), cast("Any", "**********"))


MIXED: list[tuple[Any, Any]] = [
    *((pydantic.SecretStr | int, 12345678), (list[pydantic.SecretStr | int], [12345678])),
    *((pydantic.Secret[int] | str, "hunter2-hunter2"), (pydantic.SecretStr | list[str], ["hunter2-hunter2"])),
    (tuple[str, pydantic.SecretStr], ("hunter2-hunter2", pydantic.SecretStr("a"))),
    (dict[str, pydantic.SecretStr], {"hunter2-hunter2": pydantic.SecretStr("a")}),
]


@pytest.mark.parametrize("kind, value", MIXED, ids=count())
def test_what_stands_beside_a_secret_is_masked_with_it(kind: Any, value: Any) -> None:
    """In a field and as a whole result: the member that is sent is not known to be less secret."""
    for made, whole in ((held(kind), held(kind)(value)), (kind, value)):
        data = stored_codec(made, unambiguous=False).dump_json(whole)
        assert b"hunter" not in data
        assert b"12345678" not in data
        assert result_codec(made).dump_json(whole) == data
        assert type_masking(made).hides_plain


@dataclass(frozen=True)
class Vault:
    """Secrets that are not texts."""

    key: pydantic.SecretBytes
    pin: pydantic.Secret[int]
    spare: pydantic.SecretBytes | None = None
    more: tuple[pydantic.SecretBytes, ...] = ()


def test_secrets_that_are_not_texts_come_back_from_their_masks() -> None:
    """Else whoever stored one could not read it."""
    stored = stored_codec(Vault)
    key = pydantic.SecretBytes(b"hunter2")
    back = stored.parse_json(stored.dump_json(Vault(key, pydantic.Secret(1234), key, (key,))))
    mask = pydantic.SecretBytes(b"**********")
    assert back == Vault(mask, cast("pydantic.Secret[int]", pydantic.Secret("**********")), mask, (mask,))
    assert stored.parse_json(b'{"key":"aGk=","pin":1}') == Vault(pydantic.SecretBytes(b"hi"), pydantic.Secret(1))


LONGEST: Final = 2_000
"""So many characters the text of an error of serde has at most."""


@dataclass
class Link:
    """Holds itself alone."""

    next: Link | None = None


@dataclass
class Folder:
    """Holds itself in a list."""

    name: str
    inside: list[Folder] = field(default_factory=list["Folder"])


@dataclass
class Loose:
    """Takes anything."""

    value: Any = None


def links(levels: int) -> Link:
    """So many levels of JSON."""
    made = Link()
    for _ in range(levels - 1):
        made = Link(made)
    return made


def folders(levels: int) -> Folder:
    """The last one holds an empty list, which is a level."""
    made = Folder("a")
    for _ in range(levels // 2 - 1):
        made = Folder("a", [made])
    return made


def nested(levels: int) -> Loose:
    """A list in a list."""
    made: list[Any] = []
    for _ in range(levels - 2):
        made = [made]
    return Loose(made)


DEEP: Final[list[tuple[type[Any], Callable[[int], Any]]]] = [(Link, links), (Folder, folders), (Loose, nested)]
LIMITS: Final = {MAX_JSON_DEPTH, MOST_LEVELS, MOST_WRITTEN}
"""The depths that an error may name."""


def levels_of(data: bytes) -> int:
    """How deep JSON without brackets in its texts nests."""
    deepest = level = 0
    for found in re.findall(rb"[\[{}\]]", data):
        level += 1 if found in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


@pytest.mark.parametrize("kind, made", DEEP, ids=count())
def test_the_deepest_value_is_stored_and_one_level_more_is_refused(
    kind: type[Any], made: Callable[[int], Any], wording: Wording
) -> None:
    """Levels are those of the JSON."""
    stored = stored_codec(kind)
    for levels in range(MOST_LEVELS - 3, MOST_LEVELS + 1):
        value = made(levels)
        data = stored.dump_json(value)
        assert levels_of(data) <= MOST_LEVELS
        assert stored.parse_json(data) == value
        assert canonical_json(value)
    deepest = max(levels_of(stored.dump_json(made(levels))) for levels in range(MOST_LEVELS - 3, MOST_LEVELS + 1))
    assert deepest > MOST_LEVELS - 3
    error = refusal(DumpError, stored.dump_json, made(MOST_LEVELS + 3))
    ((_, text),) = error.faults
    assert str(MOST_LEVELS) in text
    assert text == wording


def dump_fault(way: Callable[[Any], object], value: object) -> DumpError | None:
    """The error that a value raises; None if it is written."""
    try:
        way(value)
    except DumpError as error:
        return error
    return None


@pytest.mark.parametrize("levels", [220, 300, 450, 3_000, 100_000])
@pytest.mark.parametrize("kind, made", DEEP, ids=count())
def test_values_that_nest_too_deeply_are_refused_with_the_limit_in_few_words(
    kind: type[Any], made: Callable[[int], Any], levels: int
) -> None:
    """Wherever they are written."""
    value = made(levels)
    ways: list[Callable[[Any], object]] = [stored_codec(kind).dump_json, result_codec(kind).dump, dump, canonical_json]
    errors = [dump_fault(way, value) for way in ways]
    assert all(errors) if levels >= 450 else errors[0]
    for error in filter(None, errors):
        ((_, text),) = error.faults
        (limit,) = re.findall(r"\d+", text)
        assert int(limit) in LIMITS
        assert len(str(error)) <= LONGEST


def in_itself(kind: type[Any]) -> Any:
    """A value in a cycle."""
    value: Any = Folder("a") if kind is Folder else kind()
    if kind is Link:
        value.next = value
    elif kind is Loose:
        inner: list[Any] = []
        value.value = [inner]
        inner.append(value.value)
    else:
        value.inside.append(value)
    return value


@pytest.mark.parametrize("kind", [Link, Folder, Loose])
def test_a_cycle_is_named_with_its_place(kind: type[Any], wording: Wording) -> None:
    """The first place that holds what it stands in."""
    value = in_itself(kind)
    places = {Link: "$.next", Loose: "$.value[0][0]"}
    for way in (stored_codec(kind).dump_json, result_codec(kind).dump, dump):
        assert refusal(DumpError, way, value).faults == ((places.get(kind, "$.inside[0]"), wording),)
    assert str(refusal(DumpError, canonical_json, value)) == wording


def test_the_text_of_an_error_is_bounded(wording: Wording) -> None:
    """By the paths, by the lines, and by their number."""
    many: dict[str, Any] = {"name": 1, "inside": [{"name": 1, "inside": []}] * 500}
    told = refusal(ParseError, codec(Folder).parse, many)
    assert (len(str(told)) <= LONGEST, len(told.faults)) == (True, 101)
    assert str(told).splitlines()[-1] == wording
    deep: dict[str, Any] = {"name": 1, "inside": []}
    for _ in range(90):
        deep = {"name": "a", "inside": [deep]}
    error = refusal(ParseError, codec(Folder).parse, deep)
    ((path, _),) = error.faults
    assert path.startswith("$.inside[0].inside[0]")
    assert "…" in path
    assert path.endswith(".inside[0].name")
    assert len(path) <= 121


@dataclass(frozen=True)
class Doubled:
    """Is another value each time it is read."""

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.size * 2)


UNREADABLE: list[tuple[Any, Any, str]] = [
    (Literal["paid"], "held", "$.x"),
    (list[Literal[1, 2]], [1, 3], "$.x[1]"),
    (Annotated[int, pydantic.Field(le=10)], 11, "$.x"),
    (Annotated[int, pydantic.Field(ge=10)], 9, "$.x"),
    (Annotated[str, pydantic.Field(min_length=2)], "a", "$.x"),
    (Annotated[list[int], pydantic.Field(max_length=1)], [1, 2], "$.x"),
    (Annotated[str, pydantic.Field(pattern="^a+$")], "b", "$.x"),
    (Annotated[Decimal, pydantic.Field(max_digits=3)], Decimal(1234), "$.x"),
    (Annotated[Decimal, pydantic.Field(decimal_places=1)], Decimal("1.25"), "$.x"),
    (dict[int, str], {True: "a"}, "$.x.True"),
    (dict[int, int], {-1: None}, "$.x[-1]"),
    (Annotated[int, pydantic.PlainSerializer(str)], 5, "$.x"),
]


@pytest.mark.parametrize("kind, value, place", UNREADABLE, ids=count())
def test_value_that_its_type_would_not_read_is_refused(kind: Any, value: Any, place: str, wording: Wording) -> None:
    """At its place; the message says that it cannot be read back."""
    cls = held(kind)
    error = refusal(DumpError, stored_codec(cls).dump_json, cls(value))
    assert error.faults[0][0] == place
    assert str(error) == wording


@dataclass(frozen=True)
class Part:
    """Of scalars and a `Literal`."""

    title: str
    done: bool = False
    size: int = 0
    weight: float | None = None
    mark: Literal["a", "b", 3, True] = "a"


@pytest.mark.parametrize("kind", [list[Part], dict[str, Part], tuple[Part, ...], Part | None], ids=count())
def test_one_wrong_value_among_many_is_found(kind: Any) -> None:
    """Though the values of a field are looked at together."""
    cls = held(kind)
    for wrong in (Part("a", mark=cast("Any", "c")), Part("a", weight=2**53 + 1)):
        value: Any = {"list": [Part("a"), wrong], "dict": {"a": Part("a"), "b": wrong}, "tuple": (Part("a"), wrong)}
        error = refusal(DumpError, stored_codec(cls).dump_json, cls(value.get(getattr(kind, "__name__", ""), wrong)))
        ((path, _),) = error.faults
        assert path == "$" or path.endswith(".mark")


CHANGED: list[tuple[Any, Any]] = [
    (Annotated[str, pydantic.StringConstraints(to_lower=True)], "A"),
    (Annotated[str, pydantic.StringConstraints(strip_whitespace=True)], " a "),
    (Annotated[int, pydantic.AfterValidator(lambda given: given + 1)], 1),
    (list[Doubled], [Doubled(1)]),
]


@pytest.mark.parametrize("kind, value", CHANGED, ids=count())
def test_value_that_reading_would_change_is_refused(kind: Any, value: Any, wording: Wording) -> None:
    """That is a mistake of the program: its type does not give its values back."""
    cls = held(kind)
    error = refusal(DumpError, stored_codec(cls).dump_json, cls(value))
    assert str(error) == wording
    assert error.is_mistyped


@pytest.mark.parametrize("kind, value", [(Any, object()), (re.Pattern[bytes], re.compile(b"secret"))], ids=count())
def test_error_of_pydantic_is_not_shown_with_the_refusal(kind: Any, value: Any) -> None:
    """It holds the value, which would come into every log."""
    cls = held(kind)
    with pytest.raises(DumpError) as caught:
        stored_codec(cls).dump_json(cls(value))
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("kind", [dict[str, int], dict[str, Any]], ids=["int", "Any"])
def test_keys_with_lone_surrogates_are_refused(kind: Any, wording: Wording) -> None:
    """Both would come back as one key. The character that stands for a lost one is a character like others."""
    cls = held(kind)
    error = refusal(DumpError, stored_codec(cls).dump_json, cls(dict.fromkeys(("\ud800", "\ud801"), 1)))
    assert str(error) == wording
    kept = cls({"\ufffd\ufffd\ufffd": 1})
    assert stored_codec(cls).parse_json(stored_codec(cls).dump_json(kept)) == kept


@pytest.mark.parametrize("secret", [pydantic.SecretStr("x" * 20), pydantic.SecretBytes(b"x" * 20)])
def test_mask_of_a_secret_is_read_whatever_its_bounds(secret: Any) -> None:
    """The mask keeps to no bound, so it comes back as text, as for a place that is marked."""
    cls = held(Annotated[secret.__class__, pydantic.Field(min_length=12)])
    stored = stored_codec(cls)
    assert stored.parse_json(stored.dump_json(cls(secret))) == cls("**********")


@dataclass(frozen=True)
class Node:
    below: Base | Node | None = None
    kids: tuple[Node, ...] = ()


class Checked(pydantic.BaseModel):
    """A model whose fields are behind a validator."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    number: int

    @pydantic.model_validator(mode="before")
    @classmethod
    def check(cls, given: object) -> object:
        """Take it as it is."""
        return given


odd = dt.timezone(dt.timedelta(seconds=3601))
HUGE = 10**4300

REFUSED: list[tuple[Any, Any, str]] = [
    *((Base, Card("a", 5), "$"), (list[Base] | str, [Card("a", 5)], "$")),
    *((float, 2**53 + 1, "$"), (float, 10**400, "$.x"), (int, HUGE, "$.x"), (Any, {"a": [HUGE]}, "$.x.a[0]")),
    (dict[int, int], {True: 1}, "$.x.True"),
    (dt.date, dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), "$.x"),
    (dt.datetime, dt.datetime(1900, 1, 1, tzinfo=odd), "$"),
    (list[dt.time], [dt.time(1, tzinfo=odd)], "$"),
    (PurePath, PureWindowsPath("c:\\a"), "$"),
    (re.Pattern[str], re.compile("a", re.IGNORECASE), "$"),
]


@pytest.mark.parametrize("kind, value, path", REFUSED, ids=count())
def test_what_would_come_back_as_something_else_is_refused_at_its_place(kind: Any, value: Any, path: str) -> None:
    """Or what could not be read back. All of it, because the tests set `HANDRAIL_CHECK_STORED`."""
    cls = held(kind)
    assert [found for found, _ in refusal(DumpError, stored_codec(cls).dump_json, cls(value)).faults] == [path]


def _status(value: object) -> Status:
    return Status(value)


TAKEN: list[tuple[Any, Any]] = [
    *((Card, Card("a", 5)), (int | bool, True), (float, 2), (float | str, 2), (float, 2**60), (int, HUGE - 1)),
    (Annotated[Decimal, pydantic.BeforeValidator(Decimal)], Decimal("1.5")),
    (Annotated[Status, pydantic.BeforeValidator(_status)], Status.DONE),
    *((Fraction, Fraction(1, 3)), (PurePath, Path("a")), (re.Pattern[str], re.compile("(?i)a"))),
    (dt.datetime, dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(minutes=61)))),
    *((Annotated[int, kind], 1) for kind in (pydantic.AfterValidator(abs), pydantic.PlainValidator(int))),
    (Checked, Checked(number=1)),
]


@pytest.mark.parametrize("kind, value", TAKEN, ids=count())
def test_what_comes_back_equal_is_stored(kind: Any, value: Any) -> None:
    """Of the declared type, or of one that Python holds for equal."""
    cls = held(kind)
    stored = stored_codec(cls)
    assert stored.parse_json(stored.dump_json(cls(value))) == cls(value)


@given(everything())
def test_what_was_drawn_of_its_types_is_stored(value: Everything) -> None:
    """No value of exactly its declared types is refused."""
    stored = stored_codec(Everything)
    assert stored.parse_json(stored.dump_json(value)) == value
