"""What could not be read back from a store, or would be changed by being read, is refused when it is stored."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Annotated, Any, Literal, cast

import pytest
from pydantic import AfterValidator, Field, PlainSerializer, SecretBytes, SecretStr, StringConstraints

from handrail.errors import DumpError
from handrail.serde import stored_codec
from tests.kit import refusal
from tests.wording import Wording


@dataclass(frozen=True)
class Doubled:
    """Is another value each time it is read."""

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.size * 2)


def held(kind: object) -> Any:
    """A dataclass with one field of a type."""
    return dataclasses.make_dataclass("Held", [("x", kind)], frozen=True)


UNREADABLE: list[tuple[Any, Any, str]] = [
    (Literal["paid"], "held", "$.x"),
    (list[Literal[1, 2]], [1, 3], "$.x[1]"),
    (Annotated[int, Field(le=10)], 11, "$.x"),
    (Annotated[int, Field(ge=10)], 9, "$.x"),
    (Annotated[str, Field(min_length=2)], "a", "$.x"),
    (Annotated[list[int], Field(max_length=1)], [1, 2], "$.x"),
    (Annotated[str, Field(pattern="^a+$")], "b", "$.x"),
    (Annotated[Decimal, Field(max_digits=3)], Decimal(1234), "$.x"),
    (Annotated[Decimal, Field(decimal_places=1)], Decimal("1.25"), "$.x"),
    (dict[int, str], {True: "a"}, "$.x.True"),
    (dict[int, int], {-1: None}, "$.x[-1]"),
    (Annotated[int, PlainSerializer(str)], 5, "$.x"),
]


@pytest.mark.parametrize("kind, value, place", UNREADABLE, ids=count())
def test_value_that_its_type_would_not_read_is_refused(kind: Any, value: Any, place: str, wording: Wording) -> None:
    """At its place; the message says that it cannot be read back."""
    cls = held(kind)
    with pytest.raises(DumpError) as caught:
        stored_codec(cls).dump_json(cls(value))
    assert caught.value.faults[0][0] == place
    assert str(caught.value) == wording


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
    (Annotated[str, StringConstraints(to_lower=True)], "A"),
    (Annotated[str, StringConstraints(strip_whitespace=True)], " a "),
    (Annotated[int, AfterValidator(lambda given: given + 1)], 1),
    (list[Doubled], [Doubled(1)]),
]


@pytest.mark.parametrize("kind, value", CHANGED, ids=count())
def test_value_that_reading_would_change_is_refused(kind: Any, value: Any, wording: Wording) -> None:
    """That is a mistake of the program: its type does not give its values back."""
    cls = held(kind)
    with pytest.raises(DumpError) as caught:
        stored_codec(cls).dump_json(cls(value))
    assert str(caught.value) == wording
    assert caught.value.is_mistyped


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


@pytest.mark.parametrize(
    "secret",
    [
        (Annotated[SecretStr, Field(min_length=12)], SecretStr("x" * 20)),
        (Annotated[SecretBytes, Field(min_length=12)], SecretBytes(b"x" * 20)),
    ],
    ids=count(),
)
def test_mask_of_a_secret_is_read_whatever_its_bounds(secret: tuple[Any, Any]) -> None:
    """The mask keeps to no bound, so it comes back as text, as for a place that is marked."""
    kind, value = secret
    cls = held(kind)
    stored = stored_codec(cls)
    assert stored.parse_json(stored.dump_json(cls(value))) == cls("**********")
