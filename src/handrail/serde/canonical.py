"""Canonical JSON: one text for equal values, to be hashed.

Two values of one type that are equal have the same text, in every process and on every platform:

* an object's keys are sorted by code point, a set's members by their text; no white space; UTF-8, nothing escaped that
  JSON lets stand.
* Numbers that are equal are written the same, be they `int`, `float` or `Decimal`: `1.0`, `Decimal("1.00")` and `1` are
  `1`, and `-0.0` is `0`. Booleans are not numbers here.
* Moments that are equal are written the same: an aware `datetime` in UTC.
* A dataclass is an object of the fields that take part in its equality; the name of its class is not part of it.
* A list and a tuple are written the same, as are an enum and its value, and other things that JSON has one form for.
* A `SecretStr` and its like are written as asterisks, so that the text may be shown. A digest with a key is of what
  they hold: it distinguishes two secrets, and they cannot be guessed without the key.

The numbers are Python's own, so this is not RFC 8785, which takes every number for a float.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final, cast

from pydantic import BaseModel
from pydantic_core import from_json

from handrail.errors import DumpError
from handrail.serde.formatting import quote
from handrail.serde.json_values import MOST_DIGITS, encode_json, field_values, innermost_fault, is_secret

_DEEPEST: Final = 200

_encode = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    sort_keys=True,
    separators=(",", ":"),
    check_circular=False,  # `_refuse_deeper` has refused what has no end
).encode


def canonical_json(value: object, *, reveals: bool = False) -> bytes:
    """The one JSON text, in UTF-8, of `value` and of all that are equal to it; `reveals` writes what secrets hold.

    Raises:
        DumpError: a part of it is not finite, not Unicode, nested more than 200 levels deep (or in a cycle), or has no
            form in JSON.
    """
    try:
        return _encoded(value, reveals)
    except RecursionError:
        # Without the place, which would be a path of 200 segments.
        fault = "$", f"nested too deeply, or in a cycle: the limit is a depth of {_DEEPEST} levels"
    except ValueError:
        fault = innermost_fault(value, partial(_encoded, reveals=reveals)) or ("$", "JSON cannot say it")
    raise DumpError(": ".join(fault), faults=(fault,))


def digest(value: object, *, key: bytes | None = None) -> str:
    """The SHA-256 of `canonical_json(value)`, as 64 hexadecimal digits; raises as that.

    With a `key` it is an HMAC, over canonical JSON in which secrets are written as what they hold.
    """
    return bytes_digest(canonical_json(value, reveals=key is not None), key)


def bytes_digest(data: bytes, key: bytes | None = None) -> str:
    """The SHA-256 of bytes in hexadecimal digits; with a key, their HMAC."""
    if key is None:
        from hashlib import sha256  # noqa: PLC0415

        return sha256(data).hexdigest()
    import hmac  # noqa: PLC0415

    return hmac.digest(key, data, "sha256").hex()


def _encoded(value: object, reveals: bool) -> bytes:  # noqa: FBT001 - of the functions below
    return _encode(_plain(value, 0, reveals)).encode()


def _plain(value: object, depth: int, reveals: bool) -> object:  # noqa: FBT001 - as above
    # By the exact type first: most values are of one, and the tests below take longer.
    kind: Any = type(value)
    if (write := _SCALARS.get(kind)) is not None:
        return write(value)
    compose = _composer_for(kind)
    if compose is not None:
        if depth >= _DEEPEST:
            raise RecursionError
        return compose(value, depth + 1, reveals)
    # First, because a `StrEnum` is a `str` too, and is written as its value is.
    if isinstance(value, Enum):
        return _plain(value.value, depth, reveals)
    # In the order of the table, where a class precedes those that it is a subclass of: `datetime` is a `date`.
    write = next((write for kind_above, write in _SCALARS.items() if isinstance(value, kind_above)), None)
    if write is not None:
        return write(value)
    # By default pydantic writes asterisks for it below, which hide it.
    if reveals and is_secret(value):
        return _plain(value.get_secret_value(), depth, reveals)
    try:
        return _plain(from_json(encode_json(value)), depth, reveals)
    except DumpError as error:
        raise ValueError(error.faults[0][1]) from None


@lru_cache(maxsize=1024)
def _composer_for(cls: type[Any]) -> Callable[[Any, int, bool], object] | None:
    if issubclass(cls, Enum):
        return None
    if is_dataclass(cls):
        return _dataclass
    return next((compose for kind, compose in _COMPOSED.items() if issubclass(cls, kind)), None)


def _float(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite, and JSON has no such number")
    return int(value) if value.is_integer() else float(value)


def _decimal(value: Decimal) -> object:
    if not value.is_finite():
        raise ValueError(f"{value} is not finite, and JSON has no such number")
    # Before `int`, which would write out all the zeros of `Decimal("1e1000000000")`.
    if value.adjusted() >= MOST_DIGITS:
        raise ValueError(f"a number of more than {MOST_DIGITS} digits is too long")
    if value == value.to_integral_value():
        return int(value)
    nearest = float(value)
    # Both are exact, so that this is whether a float is equal to it. An equal float is written the same.
    if Decimal(nearest) == value:
        return nearest
    # The context of the program may round to fewer digits, and the text would depend on it.
    exact = Context(prec=len(value.as_tuple().digits), Emax=MAX_EMAX, Emin=MIN_EMIN)
    return str(value.normalize(exact))


def _datetime(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    try:
        # Equal moments in different zones are equal in Python, so that they need one text.
        return value.astimezone(UTC).isoformat()
    except OverflowError:
        raise ValueError(f"{value.isoformat()} lies outside the years 1 to 9999 in UTC") from None


def _time(value: time) -> str:
    offset = value.utcoffset()
    if offset is None:
        return value.replace(tzinfo=None).isoformat()
    # Not wrapped at midnight: Python holds 00:30+01:00 and 23:30+00:00 for different times, because a time has no date.
    since_midnight = timedelta(0, value.second, value.microsecond, 0, value.minute, value.hour)
    return f"{_timedelta(since_midnight - offset)}Z"


def _timedelta(value: timedelta) -> str:
    return f"P{value.days}DT{value.seconds}.{value.microseconds:06}S"


def _list(value: Iterable[object], depth: int, reveals: bool) -> list[object]:  # noqa: FBT001 - as above
    return [item if type(item) in _AS_IT_IS else _plain(item, depth, reveals) for item in value]


def _set(value: Iterable[object], depth: int, reveals: bool) -> list[object]:  # noqa: FBT001 - as above
    # By their text, because the items need not be comparable, and the order of a set differs between processes.
    return sorted(_list(value, depth, reveals), key=_encode)


def _dataclass(value: object, depth: int, reveals: bool) -> dict[str, object]:  # noqa: FBT001 - as above
    cls: Any = type(value)
    return {
        name: item if type(item := getattr(value, name)) in _AS_IT_IS else _plain(item, depth, reveals)
        for name in _compared(cls)
    }


def _model(value: BaseModel, depth: int, reveals: bool) -> dict[str, object]:  # noqa: FBT001 - as above
    return {name: _plain(item, depth, reveals) for name, item in field_values(value)}


def _mapping(value: Mapping[object, object], depth: int, reveals: bool) -> dict[str, object]:  # noqa: FBT001 - as above
    if (
        # Nothing below needs another form, and the encoder sorts the keys, so that the dict is written as it is.
        value.__class__ is dict
        and _STR.issuperset(map(type, value))
        and _AS_IT_IS.issuperset(map(type, value.values()))
    ):
        return cast("dict[str, object]", value)
    plain: dict[str, object] = {}
    for key, item in value.items():
        name = key if type(key) is str else _key(key, depth, reveals)
        # `1` and `"1"` are two keys in Python; one of them would be lost, and two values would have one text.
        if name in plain:
            raise ValueError(f"two of its keys are written {quote(name)}")
        plain[name] = item if type(item) in _AS_IT_IS else _plain(item, depth, reveals)
    return plain


def _key(key: object, depth: int, reveals: bool) -> str:  # noqa: FBT001 - as above
    plain = _plain(key, depth, reveals)
    if isinstance(plain, list | dict):
        raise ValueError(f"a key of type {type(key).__name__} has no form in JSON")  # noqa: TRY004 - as all faults here
    return plain if isinstance(plain, str) else _encode(plain)


_STR: Final = frozenset({str})
_AS_IT_IS: Final = frozenset({str, int, bool, type(None)})

_SCALARS: Final[dict[type[Any], Callable[[Any], object]]] = {
    str: str.__str__,  # a subclass may have a `__str__` that says something else than its characters
    bool: bool,
    int: int,
    type(None): lambda value: value,
    float: _float,
    datetime: _datetime,
    time: _time,
    timedelta: _timedelta,
    Decimal: _decimal,
}
_COMPOSED: Final[Mapping[type[Any], Callable[[Any, int, bool], object]]] = {
    BaseModel: _model,
    Mapping: _mapping,
    AbstractSet: _set,
    list: _list,
    tuple: _list,
}


@lru_cache(maxsize=1024)
def _compared(cls: type[Any]) -> tuple[str, ...]:
    # Kept by class: this is asked for every value that is hashed, and `fields` builds its tuple anew each time.
    return tuple(field.name for field in fields(cls) if field.compare)
