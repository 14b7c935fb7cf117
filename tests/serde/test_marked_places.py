"""Places that are marked as secret are written as the mask, and read from it; parameters are read as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from handrail.errors import ParseError
from handrail.serde import MASK, Codec, codec, digest, dump, result_codec, stored_codec, type_masking
from tests.kit import refusal

MARK = Field(json_schema_extra={"writeOnly": True})


class Model(BaseModel):
    """A model that marks a field by its default."""

    code: str = Field(json_schema_extra={"format": "password"})
    count: int = 1


class Named(TypedDict):
    """A TypedDict that marks a field by its type."""

    code: Annotated[str, MARK]


@dataclass(frozen=True)
class Card:
    """Marks of every kind, on types of every kind."""

    owner: str
    number: Annotated[str, MARK, Field(min_length=4, max_length=6)]
    pin: int | None = field(default=None, metadata={"secret": True})
    codes: list[Annotated[str, MARK]] = field(default_factory=list[str])
    either: Annotated[str, MARK] | int = 0
    token: SecretStr | None = None


@dataclass(frozen=True)
class Wallet:
    """Cards, and other classes with marks."""

    cards: list[Card]
    model: Model
    named: Named


CARD = Card("ada", "12345", 7, ["a"], "b", SecretStr("c"))
SHOWN = {"owner": "ada", "number": MASK, "pin": MASK, "codes": MASK, "either": MASK, "token": MASK}
WALLET = Wallet([CARD], Model(code="x"), {"code": "y"})


@pytest.mark.parametrize("make", [result_codec, stored_codec])
def test_marked_places_are_written_as_the_mask(make: Any) -> None:
    """In whatever kind of class, and also where pydantic's own secrets stand beside them."""
    held: Codec[Wallet] = make(Wallet)
    shown = {"cards": [SHOWN], "model": {"code": MASK, "count": 1}, "named": {"code": MASK}}
    assert held.dump(WALLET) == dump(WALLET) == shown


def test_the_mask_is_read_whatever_the_type_of_the_place() -> None:
    """And is written again as it is; null is nothing to hide."""
    held = stored_codec(Wallet)
    data = held.dump_json(WALLET)
    read = held.parse_json(data)
    assert {name: vars(read.cards[0])[name] for name in ("pin", "number", "codes")} == dict.fromkeys(
        ("pin", "number", "codes"), MASK
    )
    assert held.dump_json(read) == data
    assert stored_codec(Card).dump(Card("ada", "12345"))["pin"] is None


def test_parameters_are_read_and_written_as_they_are() -> None:
    """The handler gets the values, and a mask is none."""
    card = codec(Card).parse({"owner": "ada", "number": "12345", "pin": 7})
    assert (card.number, card.pin) == ("12345", 7)
    refusal(ParseError, codec(Card).parse, {"owner": "ada", "number": "12345", "pin": MASK})
    assert codec(Card).dump(card)["pin"] == 7


def test_values_that_differ_in_a_marked_place_are_told_apart() -> None:
    """A digest is of what a value holds."""
    assert digest(Card("ada", "12345")) != digest(Card("ada", "12346"))


@pytest.mark.parametrize(
    "given, places",
    [
        (
            {"cards": [SHOWN]},
            ["$.cards[0].number", "$.cards[0].pin", "$.cards[0].codes", "$.cards[0].either", "$.cards[0].token"],
        ),
        ({"cards": [{"owner": MASK, "number": "1"}], "model": {"code": "x"}}, []),
        ({"cards": [{"token": SecretStr(MASK)}]}, ["$.cards[0].token"]),
        ({"cards": [{"codes": ["a", MASK]}], "walet": {"a": MASK}}, ["$.cards[0].codes", "$.walet"]),
        (MASK, ["$"]),
        ("text", []),
    ],
)
def test_masks_are_found_where_a_secret_is_due(given: object, places: list[str]) -> None:
    """What does not fit counts as a secret; asterisks elsewhere are text."""
    found = list(type_masking(Wallet).masks_in(given))
    assert found == places
    assert type_masking(BaseModel).masks_in(MASK) == ()
