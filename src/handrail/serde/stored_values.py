"""Whether a value that is written for a store can be read back: a row that cannot be read loses a session.

What the JSON shows is looked at in the JSON: digits, depth, lone surrogates. A value of a type that checks what it
reads, by bounds, a `Literal`, a validator or a `__post_init__`, is read back when it is stored. All values are where
the environment has `HANDRAIL_CHECK_STORED=1`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, cast

from pydantic_core import from_json

from handrail.serde.core_schemas import Core, core_definitions, is_bound, is_of_the_program, places_of
from handrail.serde.faults import Fault
from handrail.serde.formatting import format_path
from handrail.serde.json_values import endless, parts_of_value
from handrail.serde.location import Path

MOST_DIGITS: Final = 4300
"""So many digits of an integer are read."""

MOST_LEVELS: Final = 192
"""How deeply a stored value may nest; the parser takes 201 levels, and stores wrap a value into a few of their own."""

_TOO_DEEP: Final = (
    f"nested too deeply to be read back: the limit is a depth of {MOST_LEVELS} levels as JSON; store several values"
)
"""What is said of a value that nests more deeply."""

_LEAST_TOO_LONG: Final = 10**MOST_DIGITS
_LEVELS_OF_PARSER: Final = 201
_DIGITS: Final = frozenset(b"0123456789")

# A lone surrogate takes three bytes, and each of them is replaced by the three of U+FFFD.
_REPLACED: Final = b"\xef\xbf\xbd" * 3
"""What pydantic writes for a lone surrogate in a key."""

CHECKS_ALL: Final = os.environ.get("HANDRAIL_CHECK_STORED") == "1"
"""Whether all values are read back that are stored, and have to be equal; for tests of a program."""

_BOUNDS: Final = (
    *("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "max_digits", "decimal_places", "pattern"),
    *("strip_whitespace", "to_lower", "to_upper"),
)
"""What a part of a core schema holds its values to when it reads them, and not when it writes them."""


def is_read_back(core: Core) -> bool:
    """Whether only reading shows that a value can be read.

    Args:
        core: what pydantic made of the type.
    """
    return CHECKS_ALL or any(_checks(part) for _, part in places_of(core, core_definitions(core)))


def _checks(part: Core) -> bool:
    if part["type"] == "literal" or part.get("post_init") or any(part.get(name) is not None for name in _BOUNDS):
        return True
    # Keys are written without a look at their type.
    if part.get("keys_schema", {}).get("type", "str") not in {"str", "any"}:
        return True
    functions = [part.get("function"), cast("Core", part.get("serialization", {})).get("function")]
    return any(is_of_the_program(each) or is_bound(each) for each in functions)


def unreadable(value: object, data: bytes) -> Fault | None:
    """The innermost place of a value whose JSON cannot be read back, and why; `None` if it can."""
    # pydantic replaces a lone surrogate in a key without a word; a text that holds the characters as such is rare.
    if data.find(_REPLACED) >= 0 and (path := _first(value, _has_lone_key, ())) is not None:
        return format_path(path), "a key holds a lone surrogate, so that it would come back as another key"
    if len(data) <= MOST_LEVELS:
        return None
    # A number of too many digits has one at such a position. Texts may have too, so that reading has to decide.
    if not _DIGITS.isdisjoint(data[MOST_DIGITS :: MOST_DIGITS + 1]) and _fault_of(data) == "number out of range":
        path = _first(value, _is_too_long, ()) or ()
        return format_path(path), f"an integer of more than {MOST_DIGITS:,} digits cannot be read back; declare str"
    # The number of brackets is an upper bound of the depth, and takes no walk through the value.
    if data.count(b"[") + data.count(b"{") > MOST_LEVELS:
        # So many brackets around the JSON leave the parser exactly the levels that a value may have; a bracket within a
        # text counts for nothing then.
        around = _LEVELS_OF_PARSER - MOST_LEVELS
        if _fault_of(b"[" * around + data + b"]" * around):
            return (endless(value, MOST_LEVELS) or ("$", ""))[0], _TOO_DEEP
    return None


def _fault_of(data: bytes) -> str:
    """Why JSON cannot be read; empty if it can."""
    try:
        from_json(data)
    except ValueError as error:
        return str(error).partition(" at line ")[0]
    return ""


def _first(value: object, is_at_fault: Callable[[object], bool], path: Path) -> Path | None:
    """The path of the first part of a value that is at fault."""
    if is_at_fault(value):
        return path
    inner = (_first(child, is_at_fault, (*path, segment)) for segment, child in parts_of_value(value))
    return next((each for each in inner if each is not None), None)


def _is_too_long(value: object) -> bool:
    numbers = [value, *cast("Mapping[object, object]", value)] if isinstance(value, Mapping) else [value]
    return any(isinstance(each, int) and abs(each) >= _LEAST_TOO_LONG for each in numbers)


def _has_lone_key(value: object) -> bool:
    keys = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else ()
    return any(
        isinstance(key, str) and key.encode(errors="replace") != key.encode(errors="surrogatepass") for key in keys
    )
