"""Constraints that pydantic would apply to the values of a type, and cannot.

pydantic builds a validator for a constraint on a type that it does not know to have it, such as a length of a path, and
raises `TypeError` when the first value arrives. Here the constraint is tried when the type is built, on a value of each
kind that the type may hold.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import PurePath
from typing import Any, Final, cast
from uuid import UUID

from pydantic_core import CoreSchema, SchemaError, SchemaValidator, to_json

from handrail.serde.core_schemas import Core, choices_of, core_definitions, parts_of, places_of, python_view
from handrail.serde.formatting import type_name
from handrail.serde.supported_types import unsupported_field

_SAMPLES: Final[Mapping[str, object]] = {
    "str": "",
    "int": 1,
    "float": 1.0,
    "bool": True,
    "bytes": b"",
    "none": None,
    "any": None,
    "decimal": Decimal(1),
    "fraction": Fraction(1),
    "datetime": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "date": dt.date(2026, 1, 1),
    "time": dt.time(1),
    "timedelta": dt.timedelta(1),
    "uuid": UUID(int=1),
    "list": [],
    "set": set[object](),
    "frozenset": frozenset[object](),
    "tuple": (),
    "deque": [],
    "dict": {},
    "ordered-dict": {},
    "counter": {},
}
"""A value of each kind of part; those of other kinds are made from what the part says."""

CONSTRAINING: Final = frozenset({"function-after", "chain"})
"""The types of the parts in which pydantic puts a constraint that it could not build into a type."""

_OF_CONSTRAINTS: Final = "pydantic._internal._validators"
_STEP: Final = "apply_known_metadata."
_TEXT_WORDS: Final = ("pattern", "strip_whitespace", "to_lower", "to_upper")
_METHODS: Final[Mapping[str, str]] = {
    **{word: f"__{word}__" for word in ("gt", "ge", "lt", "le")},
    "multiple_of": "__mod__",
    "min_length": "__len__",
    "max_length": "__len__",
    "max_digits": "as_tuple",
    "decimal_places": "as_tuple",
}
"""What a value needs for a constraint."""

# A value for the types of pydantic: a URL, an address, a path, and this file for the path of an existing file.
_TEXTS: Final = ("1", '"a"', '"1"', '"http://a.b"', '"127.0.0.1"', '"."', to_json(__file__), "true", "null", "{}", "[]")
_LIBRARIES: Final = frozenset({"pydantic", "pydantic_core", "ipaddress", "builtins"})

_CANNOT: Final = "Unable to apply constraint"


def check_applicable(kind: object, core: Core) -> None:
    """Refuses a constraint that cannot be applied to a value of the type that it stands on.

    Args:
        kind: the type, as the error names it.
        core: what pydantic made of it.

    Raises:
        SchemaError: a constraint cannot be applied; `path` says where.
    """
    definitions = core_definitions(core)
    for path, part in places_of(core, definitions):
        for word, misfit in _misfits(part, definitions):
            given = type_name(type(misfit))
            unsupported_field(
                kind,
                path,
                f"the constraint {word} cannot be applied to a value of type {given} ({type_name(kind)})",
                f"leave it out, write it on the type that it is for, as in Annotated[str, Field({word}=...)], or check "
                "the value in __post_init__",
            )


def _misfits(part: Core, definitions: Mapping[str, Core]) -> Iterator[tuple[str, object]]:
    """The constraints of a part that cannot be applied, each with a value that it cannot be applied to."""
    if part["type"] == "function-after" and isinstance(apply := part["function"]["function"], partial):
        if getattr(apply.func, "__module__", None) == _OF_CONSTRAINTS and apply.keywords:
            # pydantic's functions for bounds take the value and one keyword, which is called as the constraint is.
            word = next(iter(apply.keywords))
            yield from (
                (word, value) for value in _values(part["schema"], definitions) if not _takes(apply, word, value)
            )
    elif part["type"] == "chain":
        first, *steps = part["steps"]
        # pydantic puts the constraints of texts behind the type as steps, and each of them refuses what is not a
        # string.
        words = [word for step in steps if _is_of_text(step) for word in _TEXT_WORDS if word in step["schema"]]
        for value in _values(first, definitions):
            if words and not isinstance(value, str):
                yield words[0], value


def _is_of_text(step: Core) -> bool:
    function = step.get("function", {}).get("function")
    return getattr(function, "__qualname__", "").startswith(_STEP)


def _takes(apply: Any, word: str, value: object) -> bool:  # noqa: ANN401 - what pydantic calls with a value
    # `object` has `__lt__` and its like, which compare nothing: a value that can be compared has its own.
    if (method := _METHODS.get(word)) and getattr(type(value), method, None) is getattr(object, method, None):
        return False
    try:
        apply(value)
    except TypeError as error:
        return _CANNOT not in str(error)
    except Exception:  # noqa: BLE001 - the value does not fit, or a class of the program compares what it does not hold
        return True
    return True


def _samples(core: Core, definitions: Mapping[str, Core]) -> Iterator[object]:
    """A value of each kind that a part may hold; none where that is not known."""
    kind = core["type"]
    if kind in _SAMPLES:
        yield _SAMPLES[kind]
    elif kind in _VALUES:
        yield from _VALUES[kind](core)
    elif kind == "union" and "custom_error_type" not in core:
        for choice in choices_of(core):
            yield from _samples(choice, definitions)
    elif not _is_known(core):
        return
    elif kind in _AROUND:
        yield from (None,) if kind == "nullable" else ()
        yield from _samples(core["schema"], definitions)
    elif kind == "json-or-python" and core["json_schema"]["type"] in {"list", "dict"}:  # as Sequence is read
        yield from _samples(core["json_schema"], definitions)
    elif (viewed := python_view(core, definitions)) is not core and viewed["type"] not in _AROUND:
        yield from _samples(viewed, definitions)


def _values(core: Core, definitions: Mapping[str, Core]) -> list[object]:
    """A value of each kind that a part may hold, made by the part itself if its kinds are not known."""
    return list(_samples(core, definitions)) or list(_parsed(core, definitions))


def _parsed(core: Core, definitions: Mapping[str, Core]) -> Iterator[object]:
    """What a part of a type of pydantic's own makes of some JSON; none if a function of the program is in it."""
    # A function of the program would be called when the type is built, with values that no model has sent.
    if not all(map(_is_of_pydantic, _functions_in(core, definitions, set()))):
        return
    # With the shared parts, because a part alone may refer to them.
    whole = {"type": "definitions", "schema": core, "definitions": list(definitions.values())} if definitions else core
    try:
        validator = SchemaValidator(cast("CoreSchema", whole))
    except SchemaError:  # the type itself is at fault, and building the whole has said so
        return
    for text in _TEXTS:
        with suppress(ValueError):
            yield validator.validate_json(text)


def _functions_in(core: Core, definitions: Mapping[str, Core], seen: set[str]) -> Iterator[object]:
    if core["type"] == "definition-ref":
        if core["schema_ref"] not in seen and core["schema_ref"] in definitions:
            seen.add(core["schema_ref"])
            yield from _functions_in(definitions[core["schema_ref"]], definitions, seen)
        return
    if isinstance(core.get("function"), dict):
        yield core["function"]["function"]
    for part in parts_of(core):
        yield from _functions_in(part, definitions, seen)


def _is_of_pydantic(function: object) -> bool:
    module = getattr(getattr(function, "func", function), "__module__", None) or ""
    return module.partition(".")[0] in _LIBRARIES


def _is_known(core: Core) -> bool:
    """Whether what a part does to its values is known: not if a function of the program makes them."""
    makes = core["type"] in {"function-after", "function-wrap"}
    return not makes or isinstance(core["function"]["function"], partial)


def _patterns(core: Core) -> Iterator[object]:
    if getattr(core["function"]["function"], "__module__", None) == _OF_CONSTRAINTS:  # nothing else there is plain
        yield re.compile("")


def _instances(core: Core) -> Iterator[object]:
    if isinstance(core["cls"], type):
        cls = cast("type[Any]", core["cls"])
        with suppress(TypeError):  # an abstract class
            # Without `__init__`, which is the program's own and may do anything.
            yield cls("a") if issubclass(cls, PurePath) else object.__new__(cls)


_VALUES: Final[Mapping[str, Callable[[Core], Iterator[object]]]] = {
    "enum": lambda core: iter(core["members"]),
    "literal": lambda core: iter(core["expected"]),
    "dataclass": lambda core: iter([object.__new__(core["cls"])]),
    "is-instance": _instances,
    "function-plain": _patterns,
}
_AROUND: Final = frozenset({"nullable", "default", "definitions", "function-after"})
