"""Values without a declared type, written as JSON by what they are: mappings, sequences, scalars, dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import cast

from pydantic_core import PydanticSerializationError, to_json

from handrail.errors import DumpError
from handrail.serde.adapter import BYTES_AS
from handrail.serde.faults import Fault, message_of
from handrail.serde.location import Path
from handrail.serde.naming import place, shortened, type_name

_LONGEST_REASON = 200


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
    inner = (culprit(child, (*path, segment)) for segment, child in _parts(value))
    return next((fault for fault in inner if fault), (place(path), _explained(reason)))


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


def _parts(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, Mapping):
        yield from ((str(key), child) for key, child in cast("Mapping[object, object]", value).items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from enumerate(cast("Iterable[object]", value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
