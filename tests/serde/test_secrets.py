"""Secrets in values, schemas and texts."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, Secret, SecretBytes, SecretStr
from typing_extensions import TypeAliasType, TypedDict

from handrail import serde
from handrail.errors import DumpError, ParseError
from handrail.redaction import MASK
from tests.kit import refusal
from tests.wording import Wording

T = TypeVar("T")


class ApiToken(SecretStr):
    """A secret of the program's own."""


@dataclass(frozen=True, slots=True)
class Login:
    user: str
    password: SecretStr


@dataclass(frozen=True, slots=True)
class Plain:
    text: str
    numbers: list[int] = field(default_factory=list[int])


@dataclass(frozen=True)
class Everything:
    plain: Plain
    login: Login
    logins: tuple[Login, ...] = ()
    by_name: Mapping[str, Login] = field(default_factory=dict[str, Login])
    either: Login | Plain | None = None
    tokens: list[ApiToken] = field(default_factory=list[ApiToken])
    pin: int | None = field(default=None, metadata={"secret": True})
    open_pin: int = field(default=0, metadata={"secret": False})
    whole: Plain | None = field(default=None, metadata={"secret": True})


@dataclass(frozen=True)
class Tree:
    name: str
    key: SecretBytes | None = None
    children: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class Ring:
    name: str
    next: Ring | None = None


@dataclass(frozen=True)
class Box(Generic[T]):
    content: T


def is_secret(kind: Any) -> bool:
    """Whether a field of a type is masked whole."""
    cls = dataclasses.make_dataclass("Held", [("x", kind)])
    return serde.type_masking(cls).mask({"x": {"user": "ada"}}) == {"x": MASK}


def test_a_place_is_secret_if_its_type_holds_a_secret() -> None:
    """Through unions, collections and `Annotated`; a nested dataclass has secret fields of its own."""
    secret: list[Any] = [SecretStr, Secret[int], ApiToken, Annotated[SecretStr, "of the bank"], list[SecretStr]]
    assert all(map(is_secret, [*secret, tuple[int, SecretBytes], list[dict[str, list[SecretStr]]]]))
    assert not any(map(is_secret, [str, Literal["secret"], Any, Login]))


def everything(password: str, tokens: Any, pin: Any, whole: Any) -> dict[str, Any]:
    """What is sent, or shown."""
    users = {name: {"user": name, "password": password} for name in ("ada", "bob", "eve")}
    shown = {"plain": {"text": "a", "numbers": [1]}, "login": users["ada"], "logins": [users["bob"]], "by_name": users}
    return shown | {"either": users["eve"], "open_pin": 3, "tokens": tokens, "pin": pin, "whole": whole}


GIVEN = everything("hunter2", ["hunter2", "hunter2"], 1234, {"text": "hunter2", "numbers": []})
SHOWN = everything(MASK, MASK, MASK, MASK)


def test_secrets_are_masked_wherever_they_stand() -> None:
    """In nested dataclasses, in collections of them, in unions, and where metadata marks the field."""
    masking = serde.type_masking(Everything)
    value = serde.parse(Everything, GIVEN)
    assert masking.hides
    assert json.loads(masking.json(value)) == SHOWN
    assert masking.mask(GIVEN) == SHOWN


def test_recursive_and_generic_types_are_looked_into() -> None:
    """Each as deep as its value goes."""
    tree = serde.parse(Tree, {"name": "a", "children": [{"name": "b", "key": "a2V5", "children": [{"name": "c"}]}]})
    shown = json.loads(serde.type_masking(Tree).json(tree))
    assert shown["children"][0]["key"] == MASK
    assert shown["children"][0]["children"][0] == {"name": "c", "key": None, "children": []}
    box = serde.parse(Box[Login], {"content": {"user": "ada", "password": "hunter2"}})
    assert serde.type_masking(Box[Login]).json(box) == b'{"content":{"user":"ada","password":"**********"}}'
    assert not serde.type_masking(Box[int]).hides
    assert not serde.type_masking(Ring).hides


@pytest.mark.parametrize(
    "written, shown",
    [
        ({"user": "ada", "password": {"of": "hunter2"}}, {"user": "ada", "password": MASK}),
        ({"user": "ada", "pasword": "hunter2"}, {"user": "ada", "pasword": MASK}),
        ({"user": {"a": "x"}, "credentials": {"b": 1}}, {"user": {"a": "x"}, "credentials": MASK}),
        (["hunter2"], [MASK]),
        ("hunter2", MASK),
        ({}, {}),
    ],
)
def test_what_does_not_fit_beside_secrets_is_masked(written: object, shown: object) -> None:
    """A model may misspell the name of a secret, or give it another shape, and a person may put that right."""
    assert serde.type_masking(Login).mask(written) == shown
    inside = serde.type_masking(Box[Login]).mask({"content": written})
    assert inside == {"content": shown}


def test_types_without_secrets_are_shown_as_they_are() -> None:
    """Whatever is given; nothing is decoded for it."""
    masking = serde.type_masking(Plain)
    strange = {"pasword": ["x"], "numbers": "none"}
    assert not masking.hides
    assert masking.mask(strange) is strange
    assert masking.json(Plain("ü", [1])) == '{"text":"ü","numbers":[1]}'.encode()
    assert serde.type_masking(Plain) is masking


# ------------------------------------------------------------------------------------------------------------- schemas


MARKED: dict[str, Any] = {"type": "string", "format": "password", "writeOnly": True}
LOGIN: dict[str, Any] = {"$ref": "#/$defs/Login"}
PROPERTIES: dict[str, Any] = (
    {"user": {"type": "string"}, "password": MARKED, "maybe": {"anyOf": [MARKED, {"type": "null"}]}, "login": LOGIN}
    | {"tokens": {"type": "array", "items": {"type": "string", "writeOnly": True}}, "free": {"type": "object"}}
    | {"pair": {"type": "array", "prefixItems": [{"type": "string"}, {"format": "password"}]}, "anything": True}
    | {"headers": {"type": "object", "additionalProperties": MARKED}, "logins": {"type": "array", "items": LOGIN}}
    | {"by_name": {"type": "object", "additionalProperties": LOGIN}, "nowhere": {"$ref": "#/$defs/None/of~1these"}}
    | {"outside": {"$ref": "https://example.org/schema"}}
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": PROPERTIES,
    "patternProperties": {"^x-": {"type": "string"}},
    "$defs": {"Login": {"type": "object", "properties": {"name": {"type": "string"}, "key": MARKED, "next": LOGIN}}},
}
OUTSIDE: dict[str, Any] = {"outside": "o", "nowhere": {"a": 1}}
MANY_NAMES = {f"name {number}": {"name": "a"} for number in range(1_100)}


@pytest.mark.parametrize(
    "given, shown",
    [
        ({"user": "ada", "password": "p"}, {"user": "ada", "password": MASK}),
        ({"maybe": None}, {"maybe": None}),
        ({"maybe": "p", "tokens": ["p"]}, {"maybe": MASK, "tokens": MASK}),
        ({"pair": ["a", "p"]}, {"pair": MASK}),
        ({"headers": {"a": "p"}, "free": {"a": "b"}}, {"headers": MASK, "free": {"a": "b"}}),
        (
            {"login": {"key": "p", "next": {"name": "b", "key": "p"}}},
            {"login": {"key": MASK, "next": {"name": "b", "key": MASK}}},
        ),
        ({"by_name": {"a": {"key": "p"}} | MANY_NAMES}, {"by_name": {"a": {"key": MASK}} | MANY_NAMES}),
        ({"logins": [{"name": "a", "kye": "p"}]}, {"logins": [{"name": "a", "kye": MASK}]}),
        ({"pasword": "p", "x-trace": "t"}, {"pasword": MASK, "x-trace": MASK}),
        (OUTSIDE | {"anything": [1]}, OUTSIDE | {"anything": MASK}),
        ("p", MASK),
    ],
)
def test_secrets_are_masked_by_a_schema(given: object, shown: object) -> None:
    """`writeOnly` and the format `password` mark them, through references, unions and arrays."""
    assert serde.schema_masking(SCHEMA).mask(given) == shown


def test_properties_of_any_name_are_shown_if_their_schema_has_no_secret() -> None:
    """It is said what they are; a pattern that marks some of them counts for all."""
    schema = SCHEMA | {"additionalProperties": {"type": "string"}}
    assert serde.schema_masking(schema).mask({"note": "n", "password": "p"}) == {"note": "n", "password": MASK}
    schema |= {"patternProperties": {"^key": MARKED}}
    assert serde.schema_masking(schema).mask({"note": "n", "user": "ada"}) == {"note": MASK, "user": "ada"}


def test_a_schema_without_marks_hides_nothing() -> None:
    """A server may send any schema, one that refers to itself too."""
    unmarked = {"type": "object", "properties": {"a": {"type": "string", "writeOnly": False, "format": "email"}}}
    wrong: dict[str, Any] = {"properties": "none", "anyOf": 7, "items": [1], "$ref": 3}
    cycle: dict[str, Any] = {"$ref": "#/properties/a", "properties": {"a": {"$ref": "#"}}}
    for schema in ({}, unmarked, {"$ref": "#"}, wrong, cycle):
        masking = serde.schema_masking(schema)
        assert not masking.hides
        assert masking.json({"a": "b"}) == b'{"a":"b"}'


# ------------------------------------------------------------------------------------------------------------- digests


def test_a_digest_with_a_key_tells_secrets_apart() -> None:
    """Without a key a secret counts as its mask, because canonical JSON may be shown."""
    one, other = Login("ada", SecretStr("one")), Login("ada", SecretStr("two"))
    key = b"k" * 32
    assert serde.digest(one) == serde.digest(other)
    assert serde.digest(one, key=key) != serde.digest(other, key=key)
    assert serde.digest(one, key=key) == serde.digest(Login("ada", SecretStr("one")), key=key)
    assert serde.digest(one, key=key) == serde.digest({"password": "one", "user": "ada"}, key=key)
    assert serde.digest(one, key=key) != serde.digest(one, key=b"l" * 32)
    assert len(serde.digest(one, key=key)) == len(serde.digest(one))


def test_a_digest_with_a_key_looks_into_every_kind_of_secret(wording: Wording) -> None:
    """Bytes, values of other types, and sets of secrets, which have no order."""
    key = b"k" * 32
    assert serde.digest(Secret(1), key=key) == serde.digest(1, key=key)
    assert serde.digest([SecretBytes(b"a")], key=key) == serde.digest([b"a"], key=key)
    secrets = [SecretStr(text) for text in "abc"]
    assert serde.digest(frozenset(secrets), key=key) == serde.digest(frozenset(secrets[::-1]), key=key)
    assert str(refusal(DumpError, serde.digest, [Secret(float("inf"))], key=key)) == wording


Quoted = TypeAliasType("Quoted", "list[T]", type_params=(T,))
Recursive = TypeAliasType("Recursive", "list[Recursive] | SecretStr")
Open = TypeAliasType("Open", "list[Open] | int")


def test_a_secret_in_a_type_alias_that_is_written_as_text_is_secret() -> None:
    """Also where the alias holds itself, or has arguments."""
    assert is_secret(Quoted[SecretStr])
    assert is_secret(Recursive)
    assert not is_secret(Open)
    assert not is_secret(Quoted[int])


def test_two_values_that_differ_in_a_secret_of_an_alias_have_two_digests() -> None:
    """Arguments are masked, and the key of a call is made with the key of the store."""
    cls: Any = dataclasses.make_dataclass("Pay", [("ibans", Quoted[SecretStr])], frozen=True)
    masked = serde.type_masking(cls)
    assert masked.hides
    one, other = (serde.codec(cls).parse_json(f'{{"ibans": ["{iban}"]}}') for iban in ("DE1", "DE2"))
    assert serde.digest(one, key=b"k") != serde.digest(other, key=b"k")


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
class EveryValue:
    """Secrets below records and collections."""

    inner: Inner
    many: list[Model] = field(default_factory=list[Model])
    named: dict[int, SecretBytes] = field(default_factory=dict[int, SecretBytes])
    typed: Typed | None = None
    date: Secret[date] | None = None


def texts(secret: object) -> set[str]:
    """The texts of a value in a secret field."""
    return {*serde.type_masking(Inner).texts_in(Inner("note-123", secret))}


class Hidden:
    """What cannot be shown."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError

    __repr__ = __str__


SHOWN_VALUES: Sequence[tuple[object, Callable[[Any], str]]] = [
    *((secret, str) for secret in ("text-4711", date(1947, 11, 8), MOMENT, Decimal("4711.50"), 4711, 4711.5)),
    *((Colour.DEEP_RED, str), (Colour.DEEP_RED, repr)),
    (Colour.DEEP_RED, lambda secret: secret.value),
    *((timedelta(hours=4711), str), (IDENT, repr)),
    (["listed-4711"], lambda secret: secret[0]),
    ({"k": ("deep-4711",)}, lambda secret: secret["k"][0]),
    (Secret(date(1947, 11, 8)), lambda secret: repr(secret.get_secret_value())),
]
"""Secrets, and what a program may show of each."""


@pytest.mark.parametrize("secret, shown", SHOWN_VALUES)
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
    value = EveryValue(
        Inner("note-123", "first-4711", uncompared="uncompared-4711"),
        [Model(note="note-123", token=SecretStr("second-4711"))],
        {5: SecretBytes(b"third-4711")},
        {"note": "note-123", "token": SecretStr("fourth-4711")},
        Secret(date(1947, 11, 8)),
    )
    found = {*serde.type_masking(EveryValue).texts_in(value)}
    assert found >= {"first-4711", "uncompared-4711", "second-4711", "third-4711", "fourth-4711", "1947-11-08"}
    assert "note-123" not in found


def test_a_value_beside_a_type_with_secrets_counts_as_one() -> None:
    """It is shown as the mask, because it is in a place that may have a secret."""
    assert {*serde.type_masking(Either).texts_in(Either(b"beside-4711"))} >= {"beside-4711", b"beside-4711".hex()}


def test_secrets_of_a_schema_are_found() -> None:
    """Its values are decoded JSON, in which a secret may be one of pydantic's. An undeclared name counts as one."""
    schema = {"type": "object", "properties": {"open": {"type": "string"}, "pin": {"writeOnly": True}}}
    found = {*serde.schema_masking(schema).texts_in({"open": "note-123", "pin": SecretStr("pin-4711"), "other": 47110})}
    assert found == {"pin-4711", "47110"}
    assert {*serde.schema_masking(schema).texts_in({"pin": "pin-4711", "other": [47110, None]})} == found


MARK = Field(json_schema_extra={"writeOnly": True})


class MarkedModel(BaseModel):
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
    model: MarkedModel
    named: Named


CARD = Card("ada", "12345", 7, ["a"], "b", SecretStr("c"))
SHOWN_MARKS = {"owner": "ada", **dict.fromkeys(("number", "pin", "codes", "either", "token"), MASK)}
WALLET = Wallet([CARD], MarkedModel(code="x"), {"code": "y"})


@pytest.mark.parametrize("make", [serde.result_codec, serde.stored_codec])
def test_marked_places_are_written_as_the_mask(make: Any) -> None:
    """In whatever kind of class, and also where pydantic's own secrets stand beside them."""
    held: serde.Codec[Wallet] = make(Wallet)
    shown = {"cards": [SHOWN_MARKS], "model": {"code": MASK, "count": 1}, "named": {"code": MASK}}
    assert held.dump(WALLET) == serde.dump(WALLET) == shown


def test_the_mask_is_read_whatever_the_type_of_the_place() -> None:
    """And is written again as it is; null is nothing to hide."""
    held = serde.stored_codec(Wallet)
    data = held.dump_json(WALLET)
    read = held.parse_json(data)
    assert [vars(read.cards[0])[name] for name in ("pin", "number", "codes")] == [MASK] * 3
    assert held.dump_json(read) == data
    assert serde.stored_codec(Card).dump(Card("ada", "12345"))["pin"] is None


def test_parameters_are_read_and_written_as_they_are() -> None:
    """The handler gets the values, and a mask is none."""
    card = serde.codec(Card).parse({"owner": "ada", "number": "12345", "pin": 7})
    assert (card.number, card.pin) == ("12345", 7)
    refusal(ParseError, serde.codec(Card).parse, {"owner": "ada", "number": "12345", "pin": MASK})
    assert serde.codec(Card).dump(card)["pin"] == 7


def test_values_that_differ_in_a_marked_place_are_told_apart() -> None:
    """A digest is of what a value holds."""
    assert serde.digest(Card("ada", "12345")) != serde.digest(Card("ada", "12346"))


@pytest.mark.parametrize(
    "given, places",
    [
        ({"cards": [SHOWN_MARKS]}, [f"$.cards[0].{name}" for name in ("number", "pin", "codes", "either", "token")]),
        ({"cards": [{"owner": MASK, "number": "1"}], "model": {"code": "x"}}, []),
        ({"cards": [{"token": SecretStr(MASK)}]}, ["$.cards[0].token"]),
        ({"cards": [{"codes": ["a", MASK]}], "walet": {"a": MASK}}, ["$.cards[0].codes", "$.walet"]),
        (MASK, ["$"]),
        ("text", []),
    ],
)
def test_masks_are_found_where_a_secret_is_due(given: object, places: list[str]) -> None:
    """What does not fit counts as a secret; asterisks elsewhere are text."""
    found = list(serde.type_masking(Wallet).masks_in(given))
    assert found == places
    assert serde.type_masking(BaseModel).masks_in(MASK) == ()
