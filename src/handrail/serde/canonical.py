"""One JSON text for equal values, to be hashed.

Two values of one type that are equal have the same text, in every process and on every platform:

* an object's keys are sorted by code point, a set's members by their text; no white space; UTF-8, nothing escaped that
  JSON lets stand.
* Numbers that are equal are written the same, be they `int`, `float` or `Decimal`: `1.0`, `Decimal("1.00")` and `1` are
  `1`, and `-0.0` is `0`. Booleans are not numbers here: `True` is `true`, though Python holds it equal to `1`.
* Moments that are equal are written the same: an aware `datetime` in UTC.
* A dataclass is an object of the fields that take part in its equality: one with `compare=False` is left out. The name
  of its class is not part of it.
* A list and a tuple are written the same, as are an enum and its value, and other things that JSON has one form for.
* A `SecretStr` and its like are written as asterisks, so that the text may be shown. A digest with a key is of what
  they hold: it distinguishes two secrets, and they cannot be guessed without the key.

The numbers are Python's own, so this is not RFC 8785, which takes every number for a float.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NoReturn, cast
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import from_json

from handrail.errors import DumpError
from handrail.serde.annotations import field_values
from handrail.serde.formatting import format_path, quote
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import json_of
from handrail.serde.secrets import is_secret_value

_DEEPEST: Final = 200
_TOO_DEEP: Final = f"nested too deeply, or in a cycle: the limit is a depth of {_DEEPEST} levels"
_MOST_DIGITS: Final = 4300
_TOO_LONG: Final = f"a number of more than {_MOST_DIGITS} digits is too long"

At = tuple[Any, str | int, int] | None
"""A place, as a chain: what holds it, its key or position there, and how deep it lies. `None` is the root."""


_WITH_SECRETS: Final = object()
"""Stands in the root of a value in which secrets are written as what they hold."""

_encode = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
    check_circular=False,  # `_depth` has refused what has no end
).encode


def canonical_json(value: object) -> bytes:
    """The one JSON text, in UTF-8, of `value` and of all that are equal to it (rules: see the module).

    Raises:
        DumpError: a part of it is not finite, not Unicode, nested more than 200 levels deep (or in a cycle), or has no
            form in JSON.
    """
    return _written(value, None)


def json_with_secrets(value: object) -> bytes:
    """Canonical JSON in which secrets are written as what they hold.

    Raises:
        DumpError: as `canonical_json`.
    """
    return _written(value, (_WITH_SECRETS, "", 0))


def digest(value: object, *, key: bytes | None = None) -> str:
    """The SHA-256 of `canonical_json(value)`, as 64 hexadecimal digits.

    Args:
        value: what to hash.
        key: makes it an HMAC with this key, over canonical JSON in which secrets are written as what they hold.

    Raises:
        DumpError: as `canonical_json`.
    """
    return bytes_digest(_written(value, None) if key is None else json_with_secrets(value), key)


def bytes_digest(data: bytes, key: bytes | None = None) -> str:
    """The SHA-256 of bytes in hexadecimal digits; with a key, their HMAC."""
    if key is None:
        from hashlib import sha256  # noqa: PLC0415

        return sha256(data).hexdigest()
    import hmac  # noqa: PLC0415

    return hmac.digest(key, data, "sha256").hex()


def _written(value: object, root: At) -> bytes:
    plain = _plain(value, root)
    try:
        return _encode(plain).encode()
    except ValueError:  # UnicodeEncodeError is one, and so is what an integer with too many digits raises
        _refuse(*next(_unwritable(plain, None)))


def _plain(value: object, at: At) -> object:
    """`value` as the Python that the encoder takes, with all that is equal made the same."""
    # By the exact type first: most values are of one, and the tests of `_writer_for` take longer.
    write = _WRITERS.get(type(value))
    if write is None:
        write = _writer_for(value)
    return write(value, at)


def _writer_for(value: object) -> Callable[[Any, At], object]:
    # First, because a `StrEnum` is a `str` too, and is written as its value is.
    if isinstance(value, Enum):
        return _enum
    if is_dataclass(value) and not isinstance(value, type):
        return _dataclass
    if isinstance(value, BaseModel):
        return _model
    if isinstance(value, Mapping):
        return _mapping
    if isinstance(value, AbstractSet):
        return _set
    # In the order of the table, where a class precedes those that it is a subclass of: `datetime` is a `date`.
    return next((write for kind, write in _WRITERS.items() if isinstance(value, kind)), _other)


def _same(value: object, at: At) -> object:
    del at
    return value


def _str(value: str, at: At) -> str:
    del at
    # A subclass may have a `__str__` that says something else than its characters.
    return str.__str__(value)


def _int(value: int, at: At) -> int:
    del at
    return int(value)


def _float(value: float, at: At) -> float:
    if not math.isfinite(value):
        _refuse(at, f"{value} is not finite, and JSON has no such number")
    return int(value) if value.is_integer() else float(value)


def _decimal(value: Decimal, at: At) -> object:
    """A number where a float says it exactly, and otherwise its digits as a string, without zeros at the end."""
    if not value.is_finite():
        _refuse(at, f"{value} is not finite, and JSON has no such number")
    # Before `int`, which would write out all the zeros of `Decimal("1e1000000000")`.
    if value.adjusted() >= _MOST_DIGITS:
        _refuse(at, _TOO_LONG)
    if value == value.to_integral_value():
        return int(value)
    nearest = float(value)
    # Both are exact, so that this is whether a float is equal to it. An equal float is written the same.
    if Decimal(nearest) == value:
        return nearest
    # The context of the program may round to fewer digits, and the text would depend on it.
    exact = Context(prec=len(value.as_tuple().digits), Emax=MAX_EMAX, Emin=MIN_EMIN)
    return str(value.normalize(exact))


def _bytes(value: bytes | bytearray, at: At) -> str:
    import base64  # noqa: PLC0415

    del at
    return base64.urlsafe_b64encode(value).decode("ascii")


def _datetime(value: datetime, at: At) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    try:
        # Equal moments in different zones are equal in Python, so that they need one text.
        return value.astimezone(UTC).isoformat()
    except OverflowError:
        _refuse(at, f"{value.isoformat()} lies outside the years 1 to 9999 in UTC")


def _date(value: date, at: At) -> str:
    del at
    return value.isoformat()


def _time(value: time, at: At) -> str:
    offset = value.utcoffset()
    if offset is None:
        return value.replace(tzinfo=None).isoformat()
    # Not wrapped at midnight: Python holds 00:30+01:00 and 23:30+00:00 for different times, because a time has no date.
    since_midnight = timedelta(0, value.second, value.microsecond, 0, value.minute, value.hour)
    return f"{_timedelta(since_midnight - offset, at)}Z"


def _timedelta(value: timedelta, at: At) -> str:
    del at
    return f"P{value.days}DT{value.seconds}.{value.microseconds:06}S"


def _uuid(value: UUID, at: At) -> str:
    del at
    return str(value)


def _enum(value: Enum, at: At) -> object:
    return _plain(value.value, at)


def _list(value: Iterable[object], at: At) -> list[object]:
    depth = _depth(at)
    return [
        item if type(item) in _AS_IT_IS else _plain(item, (at, position, depth)) for position, item in enumerate(value)
    ]


def _set(value: Iterable[object], at: At) -> list[object]:
    items = _list(value, at)
    try:
        # By their text, because the items need not be comparable, and the order of a set differs between processes.
        return sorted(items, key=_encode)
    except ValueError:
        _refuse(*next(_unwritable(items, at)))


def _dataclass(value: object, at: At) -> dict[str, object]:
    cls: Any = type(value)
    depth = _depth(at)
    return {
        name: item if type(item := getattr(value, name)) in _AS_IT_IS else _plain(item, (at, name, depth))
        for name in _compared(cls)
    }


def _model(value: BaseModel, at: At) -> dict[str, object]:
    depth = _depth(at)
    return {name: _plain(item, (at, name, depth)) for name, item in field_values(value)}


def _mapping(value: Mapping[object, object], at: At) -> dict[str, object]:
    depth = _depth(at)
    if (
        # Nothing below needs another form, and the encoder sorts the keys, so that the dict is written as it is.
        value.__class__ is dict
        and _STR.issuperset(map(type, value))
        and _AS_IT_IS.issuperset(map(type, value.values()))
    ):
        return cast("dict[str, object]", value)
    plain: dict[str, object] = {}
    for key, item in value.items():
        name = key if type(key) is str else _key(key, at)
        # `1` and `"1"` are two keys in Python; one of them would be lost, and two values would have one text.
        if name in plain:
            _refuse(at, f"two of its keys are written {quote(name)}")
        plain[name] = item if type(item) in _AS_IT_IS else _plain(item, (at, name, depth))
    return plain


def _key(key: object, at: At) -> str:
    plain = _plain(key, at)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, list | dict):
        _refuse(at, f"a key of type {type(key).__name__} has no form in JSON")
    return _encode(plain)


def _other(value: object, at: At) -> object:
    """What pydantic has a form for: paths, addresses, URLs, secrets."""
    # By default pydantic writes asterisks for it below, which hide it.
    if is_secret_value(value) and _shows_secrets(at):
        return _plain(value.get_secret_value(), at)
    try:
        return _plain(from_json(json_of(value)), at)
    except DumpError as error:
        _refuse(at, error.faults[0][1])


_STR: Final = frozenset({str})
_AS_IT_IS: Final = frozenset({str, int, bool, type(None)})

_WRITERS: Final[dict[type[Any], Callable[[Any, At], object]]] = {
    str: _str,
    bool: _same,
    int: _int,
    type(None): _same,
    float: _float,
    list: _list,
    tuple: _list,
    dict: _mapping,
    set: _set,
    frozenset: _set,
    datetime: _datetime,
    date: _date,
    time: _time,
    timedelta: _timedelta,
    UUID: _uuid,
    Decimal: _decimal,
    bytes: _bytes,
    bytearray: _bytes,
}


@lru_cache(maxsize=1024)
def _compared(cls: type[Any]) -> tuple[str, ...]:
    """The fields that take part in equality."""
    # Kept by class: this is asked for every value that is hashed, and `fields` builds its tuple anew each time.
    return tuple(field.name for field in fields(cls) if field.compare)


def _depth(at: At) -> int:
    depth = at[2] + 1 if at else 1
    # Without the place, which would be a path of 200 segments.
    if depth > _DEEPEST:
        _refuse(None, _TOO_DEEP)
    return depth


def _unwritable(plain: object, at: At) -> Iterator[tuple[At, str]]:
    """What the encoder could not write, and where."""
    if isinstance(plain, str) and not _is_unicode(plain):
        yield at, "a string with one half of a surrogate pair is not Unicode"
    elif isinstance(plain, int) and abs(plain) >= 10**_MOST_DIGITS:
        yield at, _TOO_LONG
    elif is_array(plain):
        for position, item in enumerate(plain):
            yield from _unwritable(item, (at, position, 0))
    elif is_object(plain):
        for name, item in plain.items():
            yield from _unwritable(name, at)
            yield from _unwritable(item, (at, name, 0))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shows_secrets(at: At) -> bool:
    while at:
        at = at[0]
        if at is _WITH_SECRETS:
            return True
    return False


def _refuse(at: At, fault: str) -> NoReturn:
    segments: list[str | int] = []
    while at and at[0] is not _WITH_SECRETS:
        segments.append(at[1])
        at = at[0]
    path = format_path(reversed(segments))
    raise DumpError(f"{path}: {fault}", faults=((path, fault),))
