r"""Lone surrogates: characters that a string of Python may hold and UTF-8 cannot encode.

Text that a model reads, or that is stored, has the escapes of Python and JSON in their place: `\ud800`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from pydantic_core import PydanticSerializationError

from handrail.serde.untyped import jsonable

_DEEPEST: Final = 200


def escaped(text: str) -> str:
    """The text with an escape in the place of each lone surrogate; the very same text if there is none."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def escaped_within(value: Any, within: tuple[int, ...] = ()) -> Any:  # noqa: ANN401 - a value of any type
    """The same for all texts of mappings, lists and tuples; the very same value if none of them holds any.

    Args:
        value: the value; what is nested more than 200 deep, or in itself, is left as it is.
        within: the ids of what it stands in.
    """
    if isinstance(value, str):
        return escaped(value)
    if len(within) > _DEEPEST or id(value) in within:
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


def escaped_json(value: object) -> str | None:
    """The JSON of a value whose texts hold lone surrogates, with their escapes; `None` for any other.

    Types that are declared are not looked at: it is for values that `dump` refuses.
    """
    try:
        texts = escaped_within(value)
        decoded = jsonable(texts)
        made = escaped_within(decoded)
        if texts is value and made is decoded:
            return None
        return json.dumps(made, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (PydanticSerializationError, RecursionError, TypeError, ValueError):  # it has no form in JSON
        return None
