r"""JSON without a declared type: a text as it arrives, and values written by what they are.

A model, or a client in between, writes the text; the answer is a value or a fault in words: it is too large, it is not
JSON, or it has numbers that JSON does not have. Text that a model reads, or that is stored, has the escapes of Python
and JSON in place of lone surrogates, which UTF-8 cannot encode: `\ud800`.

A stored value has to be readable, because a row that cannot be read loses a session. Digits, depth and lone surrogates
are checked in the JSON. A value of a type that checks what it reads, by bounds, a `Literal`, a validator or a
`__post_init__`, is read back when it is stored; with `HANDRAIL_CHECK_STORED=1` all values are.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import islice
from pathlib import PurePath
from typing import Any, Final, TypeGuard, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json

from handrail.errors import DumpError
from handrail.serde.adapter import BYTES_AS, inexact_numbers
from handrail.serde.core_schemas import HOLDING, Core, core_definitions, is_bound, is_of_the_program, iter_places
from handrail.serde.formatting import (
    MOST_FAULTS,
    NOT_FINITE,
    DataPath,
    Fault,
    fault_message,
    format_path,
    shorten,
    type_name,
)
from handrail.serde.json_schema import is_array, is_object

T = TypeVar("T")
Text = str | bytes | bytearray
"""JSON, as a string or in UTF-8."""

# By which a number beyond the range of a float is found, in bytes whose digits are all 0: an exponent, or very many
# digits. An expression takes ten times as long.
_ZEROS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_SUSPECT: Final = (b"0e", b"NaN", b"Infinity", b"0" * 309)

_LONGEST_REASON = 200

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_FOREIGN: Final = (bytes, bytearray, date, time, timedelta, Decimal, Fraction, UUID, PurePath)
"""Types of values that JSON writes in a string or as a number, and does not have."""

COLLECTIONS: Final = (list, tuple, set, frozenset, deque)
"""Types that JSON writes as arrays."""

MAX_JSON_DEPTH: Final = 200
"""So many levels of JSON are read."""

MOST_WRITTEN: Final = 250
"""So many levels are written, where they need not be read."""

TOO_DEEPLY: Final = "nested too deeply: the limit is a depth of {levels} levels"
"""What is said of a value with more."""


def stated_arguments(data: T) -> T | str:
    """The arguments of a call as they are; `{}` for `null`, an empty text and blanks, by which models say none."""
    text: object = data.strip() if isinstance(data, str | bytes | bytearray) else data
    return "{}" if text in (None, "", "null", b"", b"null") else data  # a tuple, because decoded arguments have no hash


def size_faults(data: Text, max_bytes: int) -> tuple[Fault, ...]:
    """A fault if `data` is larger than `max_bytes`."""
    # A lone surrogate must not raise here: the parser reports it as a fault.
    size = len(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    if size <= max_bytes:
        return ()
    text = f"too large: {size:,} bytes, and at most {max_bytes:,} are taken; send less, in several calls if need be"
    return (("$", text),)


def number_faults(data: Text) -> tuple[Fault, ...]:
    """A fault for every NaN, infinity and number beyond the range of a float; none if `data` is not JSON."""
    encoded = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    zeros = encoded.translate(_ZEROS)
    if not any(suspect in zeros for suspect in _SUSPECT):
        return ()
    try:
        decoded = from_json(data)
    except (ValueError, TypeError):  # the latter for a string with a lone surrogate
        return ()
    numbers = (path for path, part in walk_value(decoded) if isinstance(part, float) and not math.isfinite(part))
    return tuple((format_path(path), NOT_FINITE) for path in islice(numbers, MOST_FAULTS))


def repeated_keys(data: Text) -> tuple[Fault, ...]:
    """A fault for each object in JSON that holds a key more than once: readers do not agree on which counts."""
    text = data if isinstance(data, str) else data.decode()
    # Where no text stands twice, no key does; found out in a fraction of the time that reading takes. Several objects
    # most often have keys in common.
    if text.count("{") == 1 and "\\" not in text:
        texts = text.split('"')[1::2]
        if len({*texts}) == len(texts):
            return ()
    try:
        _have_keys_once(text)
    except _RepeatedKeyError:
        # The paths take a second reading, which only a refused text pays for.
        parts = walk_value(json.loads(text, object_pairs_hook=_mark_repeated))
        paths = (format_path((*path, part)) for path, part in parts if isinstance(part, _RepeatedKey))
        return tuple((path, _TWICE) for path in islice(paths, MOST_FAULTS))
    return ()


def syntax_fault(reason: str, data: Text) -> str:
    """The reason why `data` is not JSON, from pydantic's, and what to send instead."""
    detail = reason.removeprefix("Invalid JSON: ")
    where = detail[detail.rfind(" at line ") :]
    if not data.strip():
        return "empty; send a JSON object, {} if there is nothing to say"
    if "recursion limit" in detail:  # of which the parser does not say how deep it may be
        return f"nested too deeply{where}: the limit is a depth of {MAX_JSON_DEPTH} levels; send a flatter value"
    return f"malformed JSON: {detail}"


def lone_surrogate(data: str) -> str:
    """The fault of a lone surrogate, with its position."""
    at = next(position for position, character in enumerate(data, start=1) if "\ud800" <= character <= "\udfff")
    return f"not Unicode: character {at} is one half of a surrogate pair; send the whole character or leave it out"


def decoded_text(text: str, kinds: Collection[str]) -> list[Any] | dict[str, Any] | None:
    """The array or object that a text holds as JSON, if its place takes `kinds` and no text."""
    if "string" in kinds or not ("array" in kinds or "object" in kinds):
        return None
    try:
        value = from_json(text, allow_inf_nan=False)
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return None
    is_asked = (is_array(value) and "array" in kinds) or (is_object(value) and "object" in kinds)
    # Of a key that is there twice and of a number with too many digits, the value has lost a part.
    return value if is_asked and not repeated_keys(text) and not inexact_numbers(text) else None


_TWICE: Final = "this key is given twice in one object; give it once"


class _RepeatedKeyError(Exception):
    pass


def _check_pairs(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise _RepeatedKeyError


_have_keys_once: Final = json.JSONDecoder(object_pairs_hook=_check_pairs).decode


class _RepeatedKey(str):
    __slots__ = ()


def _mark_repeated(pairs: list[tuple[str, object]]) -> object:
    counts = Counter(key for key, _ in pairs).most_common(1)
    return _RepeatedKey(counts[0][0]) if counts and counts[0][1] > 1 else dict(pairs)


def encode_json(value: object) -> bytes:
    """Writes any value as JSON; a float that is not finite is written as Python does, for the reader to refuse.

    Raises:
        DumpError: something in it is not Unicode, endless, or of a type without a form in JSON.
    """
    try:
        return _write(value)
    except PydanticSerializationError:
        faults = (find_unserializable(value) or ("$", "JSON cannot say it"),)
    raise DumpError(fault_message(faults), faults=faults)


def find_unserializable(value: object) -> Fault | None:
    """The innermost part of `value` that JSON cannot say, if there is one."""
    # Before the walk, which would not end in a cycle.
    return endless(value) or innermost_fault(value, _write)


def innermost_fault(value: object, write: Callable[[object], object], path: DataPath = ()) -> Fault | None:
    """The innermost part of a value, which has an end, that `write` refuses by a `ValueError`, if there is one."""
    try:
        write(value)
    except ValueError as error:
        parts = parts_of_value(value)
        inner = (innermost_fault(child, write, (*path, segment)) for segment, child in parts)
        return next((fault for fault in inner if fault), (format_path(path), _explained(error)))
    return None


def endless(value: object, levels: int = MOST_WRITTEN) -> Fault | None:
    """The place of a cycle, or of what nests more than so many levels deep, if there is one."""
    # Level by level, each part once: lists that each hold the next one twice would take 2 ** depth steps.
    level: dict[int, tuple[DataPath, object, frozenset[int]]] = {id(value): ((), value, frozenset({id(value)}))}
    for _ in range(levels + 1):
        below: dict[int, tuple[DataPath, object, frozenset[int]]] = {}
        for path, part, above in level.values():
            for segment, child in parts_of_value(part):
                if id(child) in above:
                    return format_path((*path, segment)), "contains itself, and JSON has no form for a cycle"
                if type(child) not in _PLAIN:
                    below[id(child)] = (*path, segment), child, above | {id(child)}
        level = below
    return next(((format_path(path), TOO_DEEPLY.format(levels=levels)) for path, _, _ in level.values()), None)


def is_decoded(value: object) -> bool:
    """Returns whether `value` is exactly what decoded JSON is made of; faster than `foreign_faults`."""
    if type(value) in _PLAIN:
        return True
    if type(value) is dict:
        for key, child in cast("dict[object, object]", value).items():
            if type(key) is not str or (type(child) not in _PLAIN and not is_decoded(child)):
                return False
        return True
    return type(value) is list and all(map(is_decoded, cast("list[object]", value)))


def foreign_faults(value: object) -> Iterator[Fault]:
    """The places of what decoded JSON does not hold: a moment, bytes, a path; of a value that has an end."""
    for path, part in walk_value(value):
        plain: object = part.value if isinstance(part, Enum) else part
        if isinstance(plain, _FOREIGN):
            yield format_path(path), f"got a value of type {type(plain).__name__}, which JSON does not have"
        if isinstance(part, Mapping) and any(isinstance(key, bytes) for key in cast("Mapping[object, object]", part)):
            yield format_path(path), "wrong key: expected a string, got a value of type bytes"


def _write(value: object) -> bytes:
    return to_json(value, bytes_mode=BYTES_AS, fallback=_convert)


def _convert(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, PurePath):  # pydantic knows the paths of this machine only
        return str(value)
    raise TypeError(f"a value of type {type_name(type(value))} has no form in JSON")


def _explained(error: ValueError) -> str:
    reason = str(error).removeprefix("Error serializing to JSON: ")
    if "surrogates not allowed" in reason:
        return "a string with one half of a surrogate pair is not Unicode"
    return shorten(reason.removeprefix("TypeError: "), _LONGEST_REASON)


def parts_of_value(value: object) -> Iterator[tuple[str | int, object]]:
    """The direct parts of a value, with the key, position or name of each; nothing for a scalar."""
    if isinstance(value, Mapping):
        yield from ((_key_text(key), child) for key, child in cast("Mapping[object, object]", value).items())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        yield from ((name, getattr(value, name)) for name in names)
    elif isinstance(value, BaseModel):
        yield from field_values(value)
    elif isinstance(value, COLLECTIONS):  # not any: a `range` may have no end that is ever reached
        yield from enumerate(cast("Collection[object]", value))


def field_values(value: BaseModel) -> Iterator[tuple[str, object]]:
    """The fields of a model with their values."""
    return ((name, getattr(value, name)) for name in type(value).model_fields)


def walk_value(value: object, path: DataPath = ()) -> Iterator[tuple[DataPath, object]]:
    """A value that has an end, and all that it holds, each with its path."""
    yield path, value
    for segment, child in parts_of_value(value):
        yield from walk_value(child, (*path, segment))


def _key_text(key: object) -> str:
    try:
        return str(key)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return f"<{type_name(type(key))}>"


def escape_surrogates(text: str) -> str:
    """The text with an escape in the place of each lone surrogate; the very same text if there is none."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def escaped_within(value: Any, within: tuple[int, ...] = ()) -> Any:  # noqa: ANN401 - a value of any type
    """The same for all texts of mappings, lists and tuples; the very same value if nothing is to be escaped.

    What is nested more than 200 deep, or in itself (`within` has the ids of what it is in), is left as it is.
    """
    if isinstance(value, str):
        return escape_surrogates(value)
    # Left as it is: the walk into a cycle would not end.
    if len(within) > MAX_JSON_DEPTH or id(value) in within:
        return value
    if isinstance(value, Mapping):
        parts = [part for entry in cast("Mapping[object, object]", value).items() for part in entry]
    elif isinstance(value, list | tuple):
        parts = list(cast("Sequence[Any]", value))
    else:
        return value
    inner = (*within, id(cast("object", value)))
    texts = [escaped_within(part, inner) for part in parts]
    if all(one is other for one, other in zip(parts, texts, strict=True)):
        return cast("Any", value)
    return dict(zip(texts[::2], texts[1::2], strict=True)) if isinstance(value, Mapping) else texts


# ------------------------------------------------------------------------------------------------ what can be read back


MOST_DIGITS: Final = 4300
"""So many digits of an integer are read."""

MOST_LEVELS: Final = 192
"""How deeply a stored value may nest; the parser takes 201 levels, and stores wrap a value into a few of their own."""

_TOO_DEEP: Final = (
    f"nested too deeply to be read back: the limit is a depth of {MOST_LEVELS} levels as JSON; store several values"
)

_LEVELS_OF_PARSER: Final = 201
_DIGITS: Final = frozenset(b"0123456789")

# A lone surrogate takes three bytes, and each of them is replaced by the three of U+FFFD.
_REPLACED: Final = b"\xef\xbf\xbd" * 3
"""What pydantic writes for a lone surrogate in a key."""

CHECKS_ALL: Final = os.environ.get("HANDRAIL_CHECK_STORED") == "1"
"""Whether all values are read back that are stored, and have to be equal; for tests of a program."""


def is_read_back(core: Core) -> bool:
    """Returns whether only reading shows that a value of the type can be read."""
    return CHECKS_ALL or any(_checks(part) for _, part in iter_places(core, core_definitions(core)))


def _checks(part: Core) -> bool:
    configured = any(word.startswith("str_") for word in part.get("config", ()))
    is_constrained = any(part.get(name) is not None for name in HOLDING)
    if part["type"] == "literal" or part.get("post_init") or configured or is_constrained:
        return True
    # Keys are written without a look at their type.
    if part.get("keys_schema", {}).get("type", "str") not in {"str", "any"}:
        return True
    functions = [part.get("function"), cast("Core", part.get("serialization", {})).get("function")]
    return any(is_of_the_program(function) or is_bound(function) for function in functions)


def unreadable(value: object, data: bytes) -> Fault | None:
    """The innermost place of a value whose JSON cannot be read back, and why; `None` if it can."""
    # pydantic replaces a lone surrogate in a key without a word; a text that holds the characters as such is rare.
    if data.find(_REPLACED) >= 0:
        for path, part in walk_value(value):
            keys = cast("Mapping[object, object]", part) if isinstance(part, Mapping) else ()
            if any(isinstance(key, str) and escape_surrogates(key) is not key for key in keys):
                return format_path(path), "a key holds a lone surrogate, so that it would come back as another key"
    if len(data) <= MOST_LEVELS:
        return None
    # A number of too many digits has one at such a position. Texts may have too, so that reading has to decide.
    if not _DIGITS.isdisjoint(data[MOST_DIGITS :: MOST_DIGITS + 1]) and _syntax_fault(data) == "number out of range":
        place, _ = innermost_fault(value, lambda part: from_json(_write(part))) or ("$", "")
        return place, f"an integer of more than {MOST_DIGITS:,} digits cannot be read back; declare str"
    # The number of brackets is an upper bound of the depth, and takes no walk through the value.
    if data.count(b"[") + data.count(b"{") > MOST_LEVELS:
        # So many brackets around the JSON leave the parser exactly the levels that a value may have; a bracket within a
        # text counts for nothing then.
        around = _LEVELS_OF_PARSER - MOST_LEVELS
        if _syntax_fault(b"[" * around + data + b"]" * around):
            return (endless(value, MOST_LEVELS) or ("$", ""))[0], _TOO_DEEP
    return None


def _syntax_fault(data: bytes) -> str:
    try:
        from_json(data)
    except ValueError as error:
        return str(error).partition(" at line ")[0]
    return ""


# ------------------------------------------------------------------------------------------------------------- secrets


_SECRETS: Final = frozenset({"SecretStr", "SecretBytes", "Secret"})
_MODULE: Final = "pydantic.types"  # not imported, because it takes long; a program with a secret has imported it


def is_secret(value: object) -> TypeGuard[Any]:
    """Returns whether a value is a secret of pydantic's."""
    cls: type[Any] = type(value)
    return is_secret_class(cls)


def is_secret_class(cls: type[Any]) -> bool:
    """Returns whether its values are secrets of pydantic's."""
    # A subclass that the program defines is a secret too.
    return any(base.__module__ == _MODULE and base.__name__ in _SECRETS for base in cls.__mro__)
