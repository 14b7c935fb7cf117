"""The texts of a secret value: what a program shows of it, beside its JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from typing_extensions import TypedDict

from handrail.serde import schema_masking, type_masking

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
IDENT = UUID("47118899-4711-4711-8899-471188994711")


class Colour(Enum):
    """A secret with a name."""

    DEEP_RED = "crimson"


@dataclass(frozen=True)
class Inner:
    """One secret, of whatever type."""

    note: str
    secret: Any = field(metadata={"secret": True})
    uncompared: Any = field(default=None, compare=False, metadata={"secret": True})


class Model(BaseModel):
    """A secret in a model."""

    note: str
    token: SecretStr


class Typed(TypedDict):
    """A secret in a TypedDict."""

    note: str
    token: SecretStr


@dataclass(frozen=True)
class Either:
    """A record with a secret, or bytes."""

    value: Inner | bytes


@dataclass(frozen=True)
class Everything:
    """Secrets below records and collections."""

    inner: Inner
    many: list[Model] = field(default_factory=list[Model])
    named: dict[int, SecretBytes] = field(default_factory=dict[int, SecretBytes])
    typed: Typed | None = None
    date: Secret[date] | None = None


def texts(secret: object) -> set[str]:
    """The texts of a value in a secret field."""
    return {*type_masking(Inner).texts_in(Inner("note-123", secret))}


class Hidden:
    """What cannot be shown."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError

    __repr__ = __str__


SHOWN: Sequence[tuple[object, Callable[[Any], str]]] = [
    ("text-4711", str),
    (Colour.DEEP_RED, str),
    (Colour.DEEP_RED, repr),
    (Colour.DEEP_RED, lambda secret: secret.value),
    (date(1947, 11, 8), str),
    (MOMENT, str),
    (timedelta(hours=4711), str),
    (IDENT, repr),
    (Decimal("4711.50"), str),
    (4711, str),
    (4711.5, str),
    (["listed-4711"], lambda secret: secret[0]),
    ({"k": ("deep-4711",)}, lambda secret: secret["k"][0]),
    (Secret(date(1947, 11, 8)), lambda secret: repr(secret.get_secret_value())),
]
"""Secrets, and what a program may show of each."""


@pytest.mark.parametrize("secret, shown", SHOWN)
def test_a_secret_has_the_texts_that_a_program_shows(secret: object, shown: Callable[[Any], str]) -> None:
    """As `str` and `repr` have them; of what is beside it there is none."""
    assert shown(secret) in texts(secret)
    assert "note-123" not in texts(secret)


@given(st.binary(min_size=4, max_size=40))
def test_bytes_have_their_decoded_texts(secret: bytes) -> None:
    """Digits, base64, and what `repr` has."""
    found = texts(secret)
    assert found >= {secret.hex(), base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode()}
    assert repr(secret)[2:-1] in found
    assert found == texts(bytearray(secret)) == texts(SecretBytes(secret)) == texts(memoryview(secret))


@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=4, max_size=20))
def test_bytes_that_are_text_are_found_as_text(secret: str) -> None:
    """As a handler decodes them."""
    assert secret in texts(secret.encode())


@pytest.mark.parametrize("secret", [None, True, b"abc", 123, Decimal(5), timedelta(0), Hidden(), Inner])
def test_a_secret_without_a_long_text_has_no_longer_form(secret: object) -> None:
    """`Decimal('5')` has more characters than are needed to be looked for, and the secret has one."""
    assert all(len(text) < 4 or text == "0:00:00" or text.startswith("datetime.") for text in texts(secret))


def test_secrets_below_records_and_collections_are_found() -> None:
    """By the types of their places, also where canonical JSON leaves a field out."""
    value = Everything(
        Inner("note-123", "first-4711", uncompared="uncompared-4711"),
        [Model(note="note-123", token=SecretStr("second-4711"))],
        {5: SecretBytes(b"third-4711")},
        {"note": "note-123", "token": SecretStr("fourth-4711")},
        Secret(date(1947, 11, 8)),
    )
    found = {*type_masking(Everything).texts_in(value)}
    assert found >= {"first-4711", "uncompared-4711", "second-4711", "third-4711", "fourth-4711", "1947-11-08"}
    assert "note-123" not in found


def test_a_value_beside_a_type_with_secrets_counts_as_one() -> None:
    """It is shown as the mask, because it is in a place that may have a secret."""
    assert {*type_masking(Either).texts_in(Either(b"beside-4711"))} >= {"beside-4711", b"beside-4711".hex()}


def test_secrets_of_a_schema_are_found() -> None:
    """Its values are decoded JSON, in which a secret may be one of pydantic's. An undeclared name counts as one."""
    schema = {"type": "object", "properties": {"open": {"type": "string"}, "pin": {"writeOnly": True}}}
    found = {*schema_masking(schema).texts_in({"open": "note-123", "pin": SecretStr("pin-4711"), "other": 47110})}
    assert found == {"pin-4711", "47110"}
    assert {*schema_masking(schema).texts_in({"pin": "pin-4711", "other": [47110, None]})} == found
