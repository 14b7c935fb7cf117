"""Which parts of a value are secret, and what is shown of the others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeVar

import pytest
from pydantic import Secret, SecretBytes, SecretStr
from typing_extensions import TypeAliasType

from handrail.errors import DumpError
from handrail.serde import MASK, codec, digest, parse, schema_masking, type_masking
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
    return type_masking(cls).mask({"x": {"user": "ada"}}) == {"x": MASK}


@pytest.mark.parametrize(
    "kind, secret",
    [
        (SecretStr, True),
        (Secret[int], True),
        (ApiToken, True),
        (Annotated[SecretStr, "of the bank"], True),
        (list[SecretStr], True),
        (tuple[int, SecretBytes], True),
        (list[dict[str, list[SecretStr]]], True),
        (str, False),
        (Literal["secret"], False),
        (Any, False),
        (Login, False),
    ],
    ids=str,
)
def test_a_place_is_secret_if_its_type_holds_a_secret(kind: object, secret: bool) -> None:
    """Through unions, collections and `Annotated`; a nested dataclass has secret fields of its own."""
    assert is_secret(kind) is secret


def test_a_field_is_secret_by_its_metadata_or_its_type() -> None:
    """Also one of a class that quotes its annotations."""
    shown = type_masking(Everything).mask({name: {"user": "ada"} for name in ("plain", "pin", "whole", "tokens")})
    assert shown == {"plain": {"user": "ada"}, "pin": MASK, "whole": MASK, "tokens": MASK}
    assert type_masking(_with_types()).mask({"user": 1, "token": 2, "pin": 3}) == {
        "user": 1,
        "token": MASK,
        "pin": MASK,
    }


def _with_types() -> type[Any]:
    namespace: dict[str, Any] = {"user": "", "token": None, "pin": field(default=0, metadata={"secret": True})}
    namespace["__annotations__"] = {"user": str, "token": SecretStr | None, "pin": int}
    return dataclass(type("Resolved", (), namespace))


SHOWN: dict[str, Any] = {
    "plain": {"text": "a", "numbers": [1]},
    "login": {"user": "ada", "password": MASK},
    "logins": [{"user": "bob", "password": MASK}],
    "by_name": {"eve": {"user": "eve", "password": MASK}},
    "either": {"user": "joe", "password": MASK},
    "tokens": MASK,
    "pin": MASK,
    "open_pin": 3,
    "whole": MASK,
}
GIVEN: dict[str, Any] = {
    "plain": {"text": "a", "numbers": [1]},
    "login": {"user": "ada", "password": "hunter2"},
    "logins": [{"user": "bob", "password": "hunter2"}],
    "by_name": {"eve": {"user": "eve", "password": "hunter2"}},
    "either": {"user": "joe", "password": "hunter2"},
    "tokens": ["hunter2", "hunter2"],
    "pin": 1234,
    "open_pin": 3,
    "whole": {"text": "hunter2", "numbers": []},
}


def test_secrets_are_masked_wherever_they_stand() -> None:
    """In nested dataclasses, in collections of them, in unions, and where metadata marks the field."""
    masking = type_masking(Everything)
    value = parse(Everything, GIVEN)
    assert masking.hides
    assert json.loads(masking.json(value)) == SHOWN
    assert masking.mask(GIVEN) == SHOWN


def test_a_secret_that_is_not_given_is_null() -> None:
    """Nothing is hidden by a mask there, and a person sees that it was not given."""
    assert type_masking(Tree).json(Tree("root")) == b'{"name":"root","key":null,"children":[]}'


def test_recursive_and_generic_types_are_looked_into() -> None:
    """Each as deep as its value goes."""
    tree = parse(Tree, {"name": "a", "children": [{"name": "b", "key": "a2V5", "children": [{"name": "c"}]}]})
    shown = json.loads(type_masking(Tree).json(tree))
    assert shown["children"][0]["key"] == MASK
    assert shown["children"][0]["children"][0] == {"name": "c", "key": None, "children": []}
    box = parse(Box[Login], {"content": {"user": "ada", "password": "hunter2"}})
    assert type_masking(Box[Login]).json(box) == b'{"content":{"user":"ada","password":"**********"}}'
    assert not type_masking(Box[int]).hides
    assert not type_masking(Ring).hides


@pytest.mark.parametrize(
    "written, shown",
    [
        ({"user": "ada", "password": {"of": "hunter2"}}, {"user": "ada", "password": MASK}),
        ({"user": "ada", "pasword": "hunter2"}, {"user": "ada", "pasword": MASK}),
        ({"user": {"password": "x"}, "credentials": {"hunter2": 1}}, {"user": {"password": "x"}, "credentials": MASK}),
        (["hunter2"], [MASK]),
        ("hunter2", MASK),
        ({}, {}),
    ],
)
def test_what_does_not_fit_beside_secrets_is_masked(written: object, shown: object) -> None:
    """A model may misspell the name of a secret, or give it another shape, and a person may put that right."""
    assert type_masking(Login).mask(written) == shown
    inside = type_masking(Box[Login]).mask({"content": written})
    assert inside == {"content": shown}


def test_types_without_secrets_are_shown_as_they_are() -> None:
    """Whatever is given; nothing is decoded for it."""
    masking = type_masking(Plain)
    strange = {"pasword": ["x"], "numbers": "none"}
    assert not masking.hides
    assert masking.mask(strange) is strange
    assert masking.json(Plain("ü", [1])) == '{"text":"ü","numbers":[1]}'.encode()
    assert type_masking(Plain) is masking


# ------------------------------------------------------------------------------------------------------------- schemas


MARKED: dict[str, Any] = {"type": "string", "format": "password", "writeOnly": True}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "user": {"type": "string"},
        "password": MARKED,
        "maybe": {"anyOf": [MARKED, {"type": "null"}]},
        "tokens": {"type": "array", "items": {"type": "string", "writeOnly": True}},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"format": "password"}]},
        "headers": {"type": "object", "additionalProperties": MARKED},
        "login": {"$ref": "#/$defs/Login"},
        "by_name": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Login"}},
        "logins": {"type": "array", "items": {"$ref": "#/$defs/Login"}},
        "free": {"type": "object"},
        "anything": True,
        "outside": {"$ref": "https://example.org/schema"},
        "nowhere": {"$ref": "#/$defs/None/of~1these"},
    },
    "patternProperties": {"^x-": {"type": "string"}},
    "$defs": {
        "Login": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "key": MARKED, "next": {"$ref": "#/$defs/Login"}},
        }
    },
}
MANY_NAMES = {f"name {number}": {"name": "a"} for number in range(1_100)}


@pytest.mark.parametrize(
    "given, shown",
    [
        ({"user": "ada", "password": "p"}, {"user": "ada", "password": MASK}),
        ({"maybe": None}, {"maybe": None}),
        ({"maybe": "p", "tokens": ["p"], "pair": ["a", "p"]}, {"maybe": MASK, "tokens": MASK, "pair": MASK}),
        ({"headers": {"a": "p"}, "free": {"a": "b"}}, {"headers": MASK, "free": {"a": "b"}}),
        (
            {"login": {"name": "a", "key": "p", "next": {"name": "b", "key": "p"}}},
            {"login": {"name": "a", "key": MASK, "next": {"name": "b", "key": MASK}}},
        ),
        ({"by_name": {"a": {"key": "p"}} | MANY_NAMES}, {"by_name": {"a": {"key": MASK}} | MANY_NAMES}),
        ({"logins": [{"name": "a", "kye": "p"}]}, {"logins": [{"name": "a", "kye": MASK}]}),
        ({"pasword": "p", "x-trace": "t"}, {"pasword": MASK, "x-trace": MASK}),
        (
            {"outside": "o", "nowhere": {"a": 1}, "anything": [1]},
            {"outside": "o", "nowhere": {"a": 1}, "anything": MASK},
        ),
        ("p", MASK),
    ],
)
def test_secrets_are_masked_by_a_schema(given: object, shown: object) -> None:
    """`writeOnly` and the format `password` mark them, through references, unions and arrays."""
    assert schema_masking(SCHEMA).mask(given) == shown


def test_properties_of_any_name_are_shown_if_their_schema_has_no_secret() -> None:
    """It is said what they are; a pattern that marks some of them counts for all."""
    schema = SCHEMA | {"additionalProperties": {"type": "string"}}
    assert schema_masking(schema).mask({"note": "n", "password": "p"}) == {"note": "n", "password": MASK}
    schema |= {"patternProperties": {"^key": MARKED}}
    assert schema_masking(schema).mask({"note": "n", "user": "ada"}) == {"note": MASK, "user": "ada"}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"a": {"type": "string", "writeOnly": False, "format": "email"}}},
        {"$ref": "#"},
        {"properties": "none", "anyOf": 7, "items": [1], "$ref": 3},
        {"$ref": "#/properties/a", "properties": {"a": {"$ref": "#"}}},
    ],
)
def test_a_schema_without_marks_hides_nothing(schema: dict[str, Any]) -> None:
    """A server may send any schema, one that refers to itself too."""
    masking = schema_masking(schema)
    assert not masking.hides
    assert masking.json({"a": "b"}) == b'{"a":"b"}'


# ------------------------------------------------------------------------------------------------------------- digests


def test_a_digest_with_a_key_tells_secrets_apart() -> None:
    """Without a key a secret counts as its mask, because canonical JSON may be shown."""
    one, other = Login("ada", SecretStr("one")), Login("ada", SecretStr("two"))
    key = b"k" * 32
    assert digest(one) == digest(other)
    assert digest(one, key=key) != digest(other, key=key)
    assert digest(one, key=key) == digest(Login("ada", SecretStr("one")), key=key)
    assert digest(one, key=key) == digest({"password": "one", "user": "ada"}, key=key)
    assert digest(one, key=key) != digest(one, key=b"l" * 32)
    assert len(digest(one, key=key)) == len(digest(one))


def test_a_digest_with_a_key_looks_into_every_kind_of_secret(wording: Wording) -> None:
    """Bytes, values of other types, and sets of secrets, which have no order."""
    key = b"k" * 32
    assert digest(Secret(1), key=key) == digest(1, key=key)
    assert digest([SecretBytes(b"a")], key=key) == digest([b"a"], key=key)
    secrets = [SecretStr(text) for text in "abc"]
    assert digest(frozenset(secrets), key=key) == digest(frozenset(secrets[::-1]), key=key)
    assert str(refusal(DumpError, digest, [Secret(float("inf"))], key=key)) == wording


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
    masked = type_masking(cls)
    assert masked.hides
    one, other = (codec(cls).parse_json(f'{{"ibans": ["{iban}"]}}') for iban in ("DE1", "DE2"))
    assert digest(one, key=b"k") != digest(other, key=b"k")
