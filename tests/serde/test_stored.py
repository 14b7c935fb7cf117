"""What JSON gives back comes back from a place of type `Any`, and secrets from their masks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Secret, SecretBytes, SecretStr

from handrail.serde import result_codec, stored_codec, type_masking
from tests.serde.members import held
from tests.serde.shapes import Json


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
    password: SecretStr
    either: SecretStr | int = 0


def test_secrets_are_stored_as_their_masks() -> None:
    """The unions of which pydantic makes their schemas are none of the program's."""
    stored = stored_codec(Login)
    data = stored.dump_json(Login("ann", SecretStr("hunter2"), SecretStr("hunter4")))
    assert b"hunter" not in data
    assert stored.parse_json(data) == Login("ann", SecretStr("**********"), cast("Any", "**********"))


MIXED: list[tuple[Any, Any]] = [
    (SecretStr | int, 12345678),
    (Secret[int] | str, "hunter2-hunter2"),
    (SecretStr | list[str], ["hunter2-hunter2"]),
    (list[SecretStr | int], [12345678]),
    (tuple[str, SecretStr], ("hunter2-hunter2", SecretStr("a"))),
    (dict[str, SecretStr], {"hunter2-hunter2": SecretStr("a")}),
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
