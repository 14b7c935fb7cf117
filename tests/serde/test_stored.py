"""A place of type `Any` holds what JSON gives back, or is not stored."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Secret, SecretBytes, SecretStr

from handrail.errors import DumpError
from handrail.serde import stored_codec
from tests.serde.shapes import Circle, Inner, Json, Loose, Page, Status


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


REFUSED: list[tuple[Any, str]] = [
    (dt.date(2026, 1, 31), "$.anything"),
    ({"a": [1, Decimal(1)]}, "$.anything.a[1]"),
    ([(1, 2)], "$.anything[0]"),
    ({"a": {1, 2}}, "$.anything.a"),
    ({"a": {1: "b"}}, '$.anything.a["1"]'),
    (b"a", "$.anything"),
    (Circle("circle", 1.0), "$.anything"),
    ([Status.DONE], "$.anything[0]"),
    (OrderedDict(a=1), "$.anything"),
    (object(), "$.anything"),
]


@pytest.mark.parametrize("value, path", REFUSED, ids=count())
def test_what_json_does_not_give_back_is_refused_at_its_place(value: Any, path: str) -> None:
    """It would come back as something else."""
    with pytest.raises(DumpError) as caught:
        stored_codec(Loose).dump_json(Loose(value))
    assert [found for found, _ in caught.value.faults] == [path]


def test_collections_without_types_are_held_to_the_same() -> None:
    """A bare list or dict holds anything, and so does a type variable."""
    wrong: list[tuple[Any, Any, str]] = [
        (Anything, Anything(None, [dt.time(1)], {}), "$.rows[0]"),
        (Anything, Anything(None, [], {"a": (1,)}), "$.table.a"),
        (Anything, Anything(None, [], {1: 1}), "$.table"),
        (Page, Page([Inner("a")]), "$.items[0]"),
    ]
    for kind, value, path in wrong:
        with pytest.raises(DumpError) as caught:
            stored_codec(kind).dump_json(value)
        assert str(caught.value).startswith(path)


@dataclass(frozen=True)
class Login:
    """Secrets, alone and in a union."""

    user: str
    password: SecretStr
    either: SecretStr | int = 0


def test_secrets_are_stored_as_their_masks() -> None:
    """The unions of which pydantic makes their schemas are none of the program's."""
    stored = stored_codec(Login)
    data = stored.dump_json(Login("ann", SecretStr("hunter2"), SecretStr("hunter4")))
    assert b"hunter" not in data
    mask = SecretStr("**********")
    assert stored.parse_json(data) == Login("ann", mask, mask)


@dataclass(frozen=True)
class Vault:
    """Secrets that are not texts."""

    key: SecretBytes
    pin: Secret[int]
    spare: SecretBytes | None = None
    more: tuple[SecretBytes, ...] = ()


def test_secrets_that_are_not_texts_come_back_from_their_masks() -> None:
    """Else whoever stored one could not read it."""
    stored = stored_codec(Vault)
    key = SecretBytes(b"hunter2")
    back = stored.parse_json(stored.dump_json(Vault(key, Secret(1234), key, (key,))))
    mask = SecretBytes(b"**********")
    assert back == Vault(mask, cast("Secret[int]", Secret("**********")), mask, (mask,))
    assert stored.parse_json(b'{"key":"aGk=","pin":1}') == Vault(SecretBytes(b"hi"), Secret(1))
