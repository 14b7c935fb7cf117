"""`handrail.taint.policy`: what of the arguments of a call the policy about taint compares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import SecretStr

from handrail.redaction import MASK
from handrail.serde import dump, parse, schema
from handrail.taint.policy import JudgedArguments

DEFAULT = SecretStr("default")


@dataclass(frozen=True)
class Address:
    """A nested value with a default."""

    street: str
    country: str = "DE"


@dataclass(frozen=True)
class Letter:
    """Parameters with defaults in all places."""

    to: Address
    others: list[Address] = field(default_factory=list[Address])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    copies: float = 1
    note: str | None = None
    urgent: bool = False
    token: SecretStr = DEFAULT
    after: Address | None = None


@pytest.mark.parametrize(
    "given, chosen",
    [
        ({}, set[str]()),
        ({"others": []}, {"[]"}),
        ({"headers": {}}, {"{}"}),
        ({"headers": {"Bcc": "x"}}, {"Bcc", "x"}),
        ({"headers": {"street": "x"}}, {"x"}),
        ({"copies": 2.0}, {"2"}),
        ({"copies": 2.5, "note": "null", "urgent": True}, {"2.5", "null", "true"}),
        ({"others": [{"street": "b", "country": "FR"}], "after": {"street": "c", "country": "DE"}}, {"b", "FR", "c"}),
    ],
    ids=["defaults", "no items", "no keys", "a key", "a declared key", "whole", "scalars", "nested"],
)
def test_every_text_that_the_model_has_chosen_counts(given: dict[str, Any], chosen: set[str]) -> None:
    """Keys, `null` and empty containers included; names that the schema declares, and defaults, are not chosen.

    A default that a factory makes is not declared.
    """
    letter = parse(Letter, {"to": {"street": "a"}, **given})
    values: Any = {**dump(letter), "token": ""}
    for made in ("others", "headers"):
        if made not in given:
            del values[made]
    assert JudgedArguments(values, schema(Letter)).texts() == {"a", "", *chosen}


def test_a_secret_is_not_equal_to_its_default() -> None:
    """Both have the same mask."""
    values = dump(parse(Letter, {"to": {"street": "a"}, "token": "evil"}))
    assert MASK in JudgedArguments(values, schema(Letter)).texts()


def test_a_call_with_nothing_but_defaults_has_chosen_nothing() -> None:
    """As one without arguments."""
    described = {"type": "object", "properties": {"limit": {"type": "integer", "default": 5}}}
    assert JudgedArguments({"limit": 5}, described).texts() == frozenset()
    assert JudgedArguments({"limit": True}, {"properties": {"limit": {"default": 1}}}).texts() == {"true"}


def test_a_schema_of_a_server_may_refer_to_what_is_not_there() -> None:
    """Or to itself; what it declares is found beside that."""
    described = {
        "$defs": {"loop": {"$ref": "#/$defs/loop"}},
        "allOf": [{"$ref": "#/definitions/none"}, {"$ref": "#/$defs/loop"}, {"$ref": "http://example.com/x"}, True],
        "properties": {"to": {"$ref": "#/$defs/loop", "default": "a"}},
    }
    assert JudgedArguments({"to": "a", "more": "b"}, described).texts() == {"more", "b"}
