"""Values without a declared type, written as JSON by what they are: mappings, sequences, scalars, dataclasses."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, cast

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from handrail.errors import DumpError
from handrail.serde.adapter import BYTES_AS
from handrail.serde.faults import Fault, message_of
from handrail.serde.formatting import place, shortened, type_name
from handrail.serde.location import Path

_LONGEST_REASON = 200
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def json_of(value: object) -> bytes:
    """`value` as JSON; a float that is not finite is written as Python does, for the reader to refuse.

    Raises:
        DumpError: something in it is not Unicode, endless, or of a type that JSON has no form for.
    """
    try:
        return _written(value)
    except PydanticSerializationError:
        faults = (culprit(value) or ("$", "JSON cannot say it"),)
    raise DumpError(message_of(faults), faults=faults)


def jsonable(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """`value` as decoded JSON; lone surrogates stay in its texts, but not in keys.

    Raises:
        PydanticSerializationError: as `json_of` raises `DumpError`.
        UnicodeEncodeError: a key holds a lone surrogate.
    """
    return to_jsonable_python(value, bytes_mode=BYTES_AS, fallback=_known)


def culprit(value: object, path: Path = ()) -> Fault | None:
    """The innermost part of `value` that JSON cannot say, if there is one."""
    try:
        _written(value)
    except PydanticSerializationError as error:
        reason = str(error).removeprefix("Error serializing to JSON: ")
    else:
        return None
    if "Circular reference" in reason:
        return place(path), "contains itself"
    if "Maximum serialization depth" in reason:
        return place(path), "nested too deeply"
    inner = (culprit(child, (*path, segment)) for segment, child in parts_of_value(value))
    return next((fault for fault in inner if fault), (place(path), _explained(reason)))


def is_decoded(value: object) -> bool:
    """Whether `value` is what decoded JSON is made of, exactly; found out far sooner than where something else stands.

    Like `bytes_in`, for values that `json_of` could write: those have an end.
    """
    if type(value) in _PLAIN:
        return True
    if type(value) is dict:
        for key, child in cast("dict[object, object]", value).items():
            if type(key) is not str or (type(child) not in _PLAIN and not is_decoded(child)):
                return False
        return True
    return type(value) is list and all(map(is_decoded, cast("list[object]", value)))


def bytes_in(value: object, path: Path = ()) -> Iterator[tuple[Path, bool]]:
    """Where bytes stand in a value that `json_of` could write, and whether they are a key of the mapping there."""
    if isinstance(value.value if isinstance(value, Enum) else value, bytes | bytearray):
        yield path, False
        return
    if isinstance(value, Mapping):
        value = cast("Mapping[object, object]", value)
        if any(isinstance(key, bytes) for key in value):
            yield path, True
    for segment, child in parts_of_value(value):
        yield from bytes_in(child, (*path, segment))


def _written(value: object) -> bytes:
    return to_json(value, bytes_mode=BYTES_AS, fallback=_known)


def _known(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, PurePath):  # pydantic knows the paths of this machine only
        return str(value)
    raise TypeError(f"a value of type {type_name(type(value))} has no form in JSON")


def _explained(reason: str) -> str:
    if reason.startswith("UnicodeEncodeError"):
        return "a string with one half of a surrogate pair is not Unicode"
    return shortened(reason.removeprefix("TypeError: "), _LONGEST_REASON)


def parts_of_value(value: object) -> Iterator[tuple[str | int, object]]:
    """What a value holds directly, with the key, position or name of each; nothing for a scalar."""
    if isinstance(value, Mapping):
        yield from ((_key_text(key), child) for key, child in cast("Mapping[object, object]", value).items())
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from enumerate(cast("Iterable[object]", value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))


def _key_text(key: object) -> str:
    try:
        return str(key)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return f"<{type_name(type(key))}>"
