"""JSON text as it arrives: its size, whether it is JSON at all, and the numbers that JSON does not have.

A model, or a client in between, writes this text; whatever it holds, the answer is a value or a fault in words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from pydantic_core import from_json

from handrail.serde.faults import MOST_FAULTS, NOT_FINITE, Fault
from handrail.serde.formatting import place
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.location import Path

Text = str | bytes | bytearray
"""JSON, as a string or in UTF-8."""

# What a number beyond the range of a float must hold: one of the two words, an exponent, or very many digits.
_SUSPECT: Final = re.compile(r"NaN|Infinity|[0-9][eE]|[0-9]{309}")
_SUSPECT_BYTES: Final = re.compile(_SUSPECT.pattern.encode())


def size_in_bytes(data: Text) -> int:
    """How many bytes `data` takes in UTF-8."""
    if not isinstance(data, str):
        return len(data)
    return len(data) if data.isascii() else len(data.encode("utf-8", "surrogatepass"))


def size_faults(data: Text, max_bytes: int) -> tuple[Fault, ...]:
    """A fault if `data` is larger than `max_bytes`."""
    if len(data) * (4 if isinstance(data, str) else 1) <= max_bytes:
        return ()
    size = size_in_bytes(data)
    if size <= max_bytes:
        return ()
    return (
        (
            "$",
            f"too large: {size:,} bytes, and at most {max_bytes:,} are taken; send less, in several calls if need be",
        ),
    )


def number_faults(data: Text) -> tuple[Fault, ...]:
    """A fault for every NaN, infinity and number beyond the range of a float; none if `data` is not JSON."""
    found = _SUSPECT.search(data) if isinstance(data, str) else _SUSPECT_BYTES.search(data)
    if not found:
        return ()
    try:
        decoded = from_json(data)
    except ValueError:
        return ()
    return tuple((place(path), NOT_FINITE) for path in islice(_not_finite(decoded, ()), MOST_FAULTS))


class FlatKeys:
    """The keys of an object of scalars, by which it is found out soon that none of them is given twice."""

    __slots__ = ("_bytes", "_escape", "_text")

    def __init__(self, names: Iterable[str]) -> None:
        """Take the names of all fields of the object."""
        self._text = tuple(json.dumps(name, ensure_ascii=False) for name in names)
        self._bytes = tuple(name.encode() for name in self._text)
        self._escape = "\\u00" if all(name.isascii() for name in self._text) else "\\u"

    def surely_once(self, data: Text) -> bool:
        """Whether no key can stand in `data` twice, neither as it is nor spelled with an escape.

        Within a string a quotation mark is escaped, so hardly anything there looks like a key.
        """
        if isinstance(data, str):
            if self._escape in data:
                return False
            for name in self._text:  # noqa: SIM110 - `all` with a generator takes twice as long
                if data.count(name) > 1:
                    return False
            return True
        return self._escape.encode() not in data and all(data.count(name) <= 1 for name in self._bytes)


def repeated_keys(data: Text) -> tuple[Fault, ...]:
    """A fault for every key that an object in `data`, which is JSON, holds more than once.

    Readers of JSON do not agree on which of the values counts.
    """
    text = data if isinstance(data, str) else data.decode()
    try:
        _have_keys_once(text)
    except _RepeatedKeyError:
        found: object = json.loads(text, object_pairs_hook=_Pairs)
        return tuple(islice(_repeated(found, ()), MOST_FAULTS))
    return ()


def malformed(reason: str, data: Text) -> str:
    """Why `data` is not JSON, from pydantic's reason, and what to send instead."""
    detail = reason.removeprefix("Invalid JSON: ")
    where = detail[detail.rfind(" at line ") :]
    if not data.strip():
        return "empty; send a JSON object, {} if there is nothing to say"
    if "recursion limit" in detail:
        return f"nested too deeply{where}; send a flatter value"
    if "number out of range" in detail:
        return f"a number with too many digits{where}; send a shorter one, or a string"
    if "surrogate" in detail or "hex escape" in detail:
        return f"malformed JSON: {detail}; write whole characters, not one half of a surrogate pair"
    return f"malformed JSON: {detail}"


def lone_surrogate(data: str) -> str:
    """That `data` holds a lone surrogate, and where."""
    at = next(position for position, character in enumerate(data, start=1) if "\ud800" <= character <= "\udfff")
    return f"not Unicode: character {at} is one half of a surrogate pair; send the whole character or leave it out"


class _RepeatedKeyError(Exception):
    """An object holds a key twice."""


def _check_pairs(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _RepeatedKeyError


_have_keys_once: Final = json.JSONDecoder(object_pairs_hook=_check_pairs).decode


class _Pairs(list[tuple[str, object]]):
    """The keys and values of an object as they were written."""


def _repeated(value: object, path: Path) -> Iterator[Fault]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, child in value:
            if key in seen:
                yield place((*path, key)), "this key is given twice in one object; give it once"
            seen.add(key)
            yield from _repeated(child, (*path, key))
    elif is_array(value):
        for position, child in enumerate(value):
            yield from _repeated(child, (*path, position))


def _not_finite(value: object, path: Path) -> Iterator[Path]:
    """Where the numbers stand that are not finite; the parser bounds the depth."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path
    elif is_object(value):
        for key, child in value.items():
            yield from _not_finite(child, (*path, key))
    elif is_array(value):
        for position, child in enumerate(value):
            yield from _not_finite(child, (*path, position))
