"""The secrets that a value of Python holds, and the texts that they have in what a program says of them.

A handler has values, not JSON: what it raises shows `repr(b"...")`, `datetime.date(1947, 11, 8)` or `ident.hex`. So the
texts of a secret are looked for beside its JSON:

| a secret is | its texts |
|---|---|
| text | it |
| bytes | in UTF-8 if they are that, as `repr` has them, in hexadecimal digits, in both alphabets of base64 |
| a member of an enum | `str`, `repr`, and those of its value |
| anything else | `str`, `repr`, `hex` of a UUID, `isoformat` of a moment |

Of a secret that is shorter than what is looked for, no longer form is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Protocol, cast
from uuid import UUID

from pydantic import BaseModel

from handrail.redaction import SHORTEST_WORD
from handrail.serde.record_types import field_values
from handrail.serde.secret_types import is_secret_value


class SecretPlaces(Protocol):
    """The places of a type or schema: where secrets are, and what lies below a place."""

    def is_secret(self, place: Any, /) -> bool:  # noqa: ANN401 - an annotation, or a node of a schema
        """Whether the values of a place must not be shown."""
        ...

    def reaches(self, place: Any, /) -> bool:  # noqa: ANN401 - as above
        """Whether the place is secret, or one below it."""
        ...

    def below(self, place: Any, name: str | None, /) -> Iterable[object]:  # noqa: ANN401 - as above
        """The places that an item of that name may have; `None` is for the items of an array."""
        ...


def secret_texts(value: object, here: Sequence[object], places: SecretPlaces) -> Iterator[str]:
    """The texts of the secrets in a value, as a program shows them.

    Args:
        value: a value of the type, or decoded JSON.
        here: the places that it may have; without any its name is not declared, and it counts as secret.
        places: where secrets are.

    Raises:
        RecursionError: it is nested too deeply, or in a cycle.
    """
    if not here or is_secret_value(value) or any(map(places.is_secret, here)):
        yield from _texts_in(value)
    elif any(map(places.reaches, here)):
        if not _is_composed(value):  # it may be the member of a union that has no secrets, and is masked all the same
            yield from _texts_in(value)
            return
        for name, item in _parts(value):
            inner = tuple(below for place in here for below in places.below(place, name))
            yield from secret_texts(item, inner, places)


def _texts_in(value: object) -> Iterator[str]:
    """The texts of a secret, and of all that it holds."""
    if is_secret_value(value):
        yield from _texts_in(value.get_secret_value())
    elif isinstance(value, bytes | bytearray | memoryview):
        yield from _texts_of_bytes(bytes(cast("bytes", value)))
    elif isinstance(value, Enum):
        yield from _texts_in(value.value)
        yield from _shown(value)
    elif isinstance(value, str):
        yield str.__str__(value)  # a subclass may show another text
    elif _is_composed(value):
        for _name, item in _parts(value):
            yield from _texts_in(item)
    elif value is not None and not isinstance(value, bool):
        yield from _shown(value)


def _texts_of_bytes(value: bytes) -> Iterator[str]:
    if len(value) < SHORTEST_WORD:
        return
    with suppress(UnicodeDecodeError):
        yield value.decode()
    yield repr(value)[2:-1]
    yield value.hex()
    yield value.hex().upper()
    for encoded in (base64.b64encode(value).decode(), base64.urlsafe_b64encode(value).decode()):
        yield encoded
        yield encoded.rstrip("=")


def _shown(value: object) -> Iterator[str]:
    said = _said(str, value)
    if len(said) < SHORTEST_WORD:
        return
    yield said
    yield _said(repr, value)
    if isinstance(value, UUID):
        yield value.hex
    elif isinstance(value, datetime):
        yield value.isoformat()


def _said(show: Callable[[object], str], value: object) -> str:
    try:
        return show(value)
    except Exception:  # noqa: BLE001 - code of the program; what cannot be shown is in no text
        return ""


def _is_composed(value: object) -> bool:
    if isinstance(value, str | bytes | bytearray | memoryview):
        return False
    return isinstance(value, BaseModel | Collection) or is_dataclass(value)


def _parts(value: object) -> Iterator[tuple[str | None, object]]:
    """The items of a record or a collection, with their names; those of an array have none."""
    if isinstance(value, Mapping):
        yield from ((str(name), item) for name, item in cast("Mapping[object, object]", value).items())
    elif isinstance(value, BaseModel):
        yield from field_values(value)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value) if hasattr(value, field.name))
    elif isinstance(value, Collection):
        yield from ((None, item) for item in cast("Collection[object]", value))
