"""Which words of a field's metadata constrain it, and those that look as if they did.

pydantic reads `Annotated[T, Field(...)]`, the types of `annotated_types`, and the `field(metadata={...})` of a
dataclass. It passes over words that it does not know, so that a constraint in the spelling of JSON Schema, or in a
dictionary inside `Annotated`, would constrain nothing, without a word. Such words are refused; all other
metadata is the program's own, and is left alone.

Some constraints cannot be applied to the values of a type: pydantic builds a validator for one on a type that it does
not know to have it, such as a length of a path, and raises `TypeError` when the first value arrives. Here the
constraint is tried when the type is built, on a value of each kind that the type may hold.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NoReturn, Union, cast, get_args, get_origin
from uuid import UUID

from pydantic_core import CoreSchema, SchemaValidator, core_schema, to_json
from pydantic_core import SchemaError as CoreSchemaError

from handrail.errors import SchemaError
from handrail.serde.annotations import options_around
from handrail.serde.core_schemas import (
    Core,
    choices_of,
    core_definitions,
    innermost,
    is_bound,
    is_of_the_program,
    places_of,
)
from handrail.serde.formatting import type_name
from handrail.serde.json_values import escape_surrogates

ACTING: Final = frozenset(
    {"gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "max_digits", "decimal_places"}
)
"""The words that constrain a field: as arguments of `Field`, and as keys of `field(metadata=...)`."""

_ACTING_IN_ORDER: Final = sorted(ACTING)

_INSTEAD: Final[Mapping[str, str]] = {
    "minimum": "ge",
    "min": "ge",
    "min_value": "ge",
    "maximum": "le",
    "max": "le",
    "max_value": "le",
    "exclusiveMinimum": "gt",
    "exclusive_minimum": "gt",
    "exclusiveMaximum": "lt",
    "exclusive_maximum": "lt",
    "multipleOf": "multiple_of",
    **dict.fromkeys(("minLength", "minItems", "min_items", "minProperties", "min_properties"), "min_length"),
    **dict.fromkeys(("maxLength", "maxItems", "max_items", "maxProperties", "max_properties"), "max_length"),
    "regex": "pattern",
    "regexp": "pattern",
}
"""Words of JSON Schema and of other libraries, with those that act."""

_BY_TYPE: Final[Mapping[str, str]] = {
    "const": "write a Literal type",
    **dict.fromkeys(("enum", "choices"), "write a Literal type, or an Enum"),
    "length": "write min_length and max_length",
    "format": "write a type of that form, such as datetime or UUID, or a pattern",
    "uniqueItems": "write a set or frozenset type",
    "unique_items": "write a set or frozenset type",
    "coerce_numbers_to_str": "write int | str, or float | str, and convert the number",
    **dict.fromkeys(
        ("strip_whitespace", "to_lower", "to_upper"), "write Annotated[str, StringConstraints(...)] of pydantic"
    ),
}
"""Words that a type says instead."""

WORDS: Final = ACTING | _INSTEAD.keys() | _BY_TYPE.keys()
"""All words that constrain a field, in this spelling or place or in another."""
_NO_TEXT: Final = (int, float, NoneType, date, time, timedelta, UUID, list, tuple, set, frozenset, dict)
_TOO_COMMON: Final = frozenset({"min", "max", "const", "enum", "choices", "length", "format"})
"""Names that attributes of any object may have."""

_DESCRIBING: Final[Mapping[str, tuple[tuple[type[Any], ...], str]]] = {
    "title": ((str,), "a string"),
    "examples": ((list,), "a list"),
    "deprecated": ((bool, str), "a bool or a string"),
}
"""Words that reach the schema as they are, with what a JSON Schema may hold there."""

_TEXTS: Final = ("title", "description")
"""Words whose text a model reads."""

_BOUNDS: Final = ("gt", "ge", "lt", "le", "multiple_of")

_LEAST: Final[Mapping[str, int]] = {"min_length": 0, "max_length": 0, "max_digits": 1, "decimal_places": 0}
"""Words that count, with the least that each may be."""

_LOWER: Final = ("gt", "ge", "min_length")
_UPPER: Final[Mapping[str, tuple[str, ...]]] = {
    "gt": ("lt", "le"),
    "ge": ("lt", "le"),
    "min_length": ("max_length",),
}
"""For each word that bounds from below, those that bound the same from above."""

_SHAPING: Final = frozenset(
    {"type", "items", "prefixItems", "properties", "required", "additionalProperties", "propertyNames", "$ref"}
    | {"patternProperties", "anyOf", "oneOf", "allOf", "not"}
)
"""Words of JSON Schema that a type says."""

_OPEN: Final = frozenset({"gt", "lt"})
"""Bounds that are not met by their own value."""

_READ_BY_PYDANTIC: Final = ("pydantic", "annotated_types", "typing", "typing_extensions")

ConstraintFault = tuple[str, str]
"""What is wrong, and what to write instead."""


def metadata_fault(metadata: Mapping[Any, object], hint: object) -> ConstraintFault | None:
    """What is wrong with the constraints in the metadata of a field; `None` if nothing is."""
    for word, value in metadata.items():
        # pydantic takes None for a constraint that is not given.
        if value is None:
            continue
        if word in _INSTEAD:
            return f"its metadata {word!r} constrains nothing", f"write field(metadata={{{_INSTEAD[word]!r}: ...}})"
        if word in _BY_TYPE:
            return f"its metadata {word!r} constrains nothing", _BY_TYPE[word]
        if word == "pattern" and not _may_be_text(hint):
            return "a pattern constrains strings, and this is not one", "leave the pattern out"
    return (
        _beaten_fault(metadata, hint) or _value_fault(metadata, hint) or _extra_fault(metadata.get("json_schema_extra"))
    )


def option_fault(option: object, hint: object) -> ConstraintFault | None:
    """What is wrong with the constraints in an option of `Annotated`; `None` if nothing is."""
    if isinstance(option, Mapping):
        words = [word for word in cast("Mapping[object, object]", option) if word in WORDS]
        return _misplaced(f"a dictionary with {words[0]!r}", str(words[0])) if words else None
    if isinstance(option, re.Pattern):
        return (
            "a compiled regular expression inside Annotated constrains nothing",
            "write Field(pattern=...) of pydantic",
        )
    if any(getattr(part, "pattern", None) for part in _parts(option)) and not _may_be_text(hint):
        return "a pattern constrains strings, and this is not one", "leave the pattern out"
    if fault := _extra_fault(getattr(option, "json_schema_extra", None)):
        return fault
    if type(option).__module__.partition(".")[0] in _READ_BY_PYDANTIC:
        return _read_fault(option, hint)
    # An object of another library: only a word that hardly means anything else is taken for a constraint.
    words = [word for word in sorted(WORDS - _TOO_COMMON) if _is_value(getattr(option, word, None))]
    # With this hook an object defines its own core schema, whatever else its attributes are called.
    is_read = hasattr(option, "__get_pydantic_core_schema__") or not words
    return None if is_read else _misplaced(f"the {words[0]} of {type(option).__name__}", words[0])


def joint_fault(metadata: Mapping[Any, object], hint: object) -> ConstraintFault | None:
    """What is wrong with all constraints of a type together: no value meets them, or the schema cannot say them.

    Args:
        metadata: that of the field, or nothing.
        hint: the type, with all that is written around it and, if it is a union, around its members.
    """
    own = (
        [(word, metadata[word]) for word in ACTING & metadata.keys() if metadata[word] is not None] if metadata else []
    )
    # Most fields are of a class without constraints, and all below takes longer.
    if not own and isinstance(hint, type) and get_origin(hint) is None:
        return None
    return _joint_fault(own, hint)


def _joint_fault(words: Sequence[tuple[str, object]], hint: object) -> ConstraintFault | None:
    options, inner = options_around(hint)
    # What stands around a union holds for each of its members, so it is handed on to them.
    found = [*words, *(pair for option in options for pair in _words_of(option))]
    return _listed_fault(found, inner) or _contradiction(found, inner)


def _listed_fault(words: Sequence[tuple[str, object]], inner: object) -> ConstraintFault | None:
    """What is wrong with a constraint of a type whose schema lists its values, or its items."""
    if not words:
        return None
    cls = get_origin(inner) or inner
    if cls is Literal or (isinstance(cls, type) and issubclass(cls, Enum)):
        fault = f"{words[0][0]} cannot leave out a value of {type_name(inner)}, because its schema lists its values"
        return fault, "leave the constraint out, and list the values that are meant"
    if isinstance(cls, type) and issubclass(cls, tuple) and inner is not tuple and get_args(inner)[-1:] != (...,):
        return f"{words[0][0]} constrains a tuple of fixed items, and its length is that of its items", "leave it out"
    return None


def _contradiction(found: Sequence[tuple[str, object]], inner: object) -> ConstraintFault | None:
    for low, (word, least) in ((low, pair) for low in _LOWER for pair in found if pair[0] == low):
        for other, most in (pair for pair in found if pair[0] in _UPPER[low]):
            # Between two whole numbers next to each other there is a float, and no integer.
            if not _leave_a_value(word, least, other, most, is_whole=word == "min_length" or inner is int):
                met_by_none = f"{word} is {least!r} and {other} is {most!r}, so that no value can meet both"
                return met_by_none, "change one of the two"
    members = get_args(inner) if get_origin(inner) in {Union, UnionType} else ()
    return next((fault for member in members if (fault := _joint_fault(found, member))), None)


def _words_of(option: object) -> Iterator[tuple[str, object]]:
    """The constraints of an option that pydantic reads."""
    if type(option).__module__.partition(".")[0] in _READ_BY_PYDANTIC:
        for part in _parts(option):
            yield from ((word, value) for word in _ACTING_IN_ORDER if _is_value(value := getattr(part, word, None)))


def _leave_a_value(word: str, least: Any, other: str, most: Any, *, is_whole: bool) -> bool:  # noqa: ANN401 - of any type
    try:
        if is_whole:
            # Whole bounds are made inclusive, so that one comparison serves for all four pairs of bounds.
            least, most = least + (word in _OPEN), most - (other in _OPEN)
            return bool(math.ceil(least) <= math.floor(most))
        return bool(least < most or (least == most and not {word, other} & _OPEN))
    except (TypeError, ValueError, OverflowError):  # not to be compared, which is another fault
        return True


def _read_fault(option: object, hint: object) -> ConstraintFault | None:
    """What is wrong with an option that pydantic reads, or is known to read."""
    if type(option).__name__ == "Timezone":  # of annotated_types
        return "Timezone inside Annotated constrains nothing", "write AwareDatetime or NaiveDatetime of pydantic"
    words: dict[str, object] = {}
    for part in _parts(option):
        if getattr(part, "coerce_numbers_to_str", None):
            return "its coerce_numbers_to_str takes numbers, and the schema says strings", _BY_TYPE[
                "coerce_numbers_to_str"
            ]
        words |= {word: value for word in (*_DESCRIBING, *_TEXTS) if (value := getattr(part, word, None)) is not None}
    return _value_fault({**words, **dict(_words_of(option))}, hint)


def _beaten_fault(metadata: Mapping[Any, object], hint: object) -> ConstraintFault | None:
    """What is wrong with a constraint beside another of the same word; pydantic takes that of the annotation."""
    options = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    # Sorted, so that the same fault is reported in every process.
    for word in sorted(ACTING & metadata.keys()):
        for part in (part for option in options for part in _parts(option)):
            other = getattr(part, word, None)
            if metadata[word] is not None and other is not None and other != metadata[word]:
                return (
                    f"its metadata {word!r} constrains nothing beside the {word} inside Annotated, which is {other!r}",
                    "write one of the two",
                )
    return None


def _value_fault(words: Mapping[Any, object], hint: object) -> ConstraintFault | None:
    """What is wrong with the value of a word, where pydantic takes it and the schema may not hold it."""
    for word, (kinds, wanted) in _DESCRIBING.items():
        value = words.get(word)
        if value is not None and not isinstance(value, kinds):
            return f"its {word} is {value!r}, and a schema takes {wanted} there", f"write {wanted}"
    for word in _TEXTS:
        value = words.get(word)
        if isinstance(value, str) and escape_surrogates(value) is not value:
            return f"its {word} has a lone surrogate, which is not Unicode", "leave it out"
    for word in _BOUNDS:
        value = words.get(word)
        if isinstance(value, str) and _is_number(hint):
            return f"its {word} is the text {value!r}, and this is a number", "write a number"
        # Each comparison with NaN is false.
        if isinstance(value, float | Decimal) and math.isnan(value):
            return f"its {word} is {value!r}, so that no value can meet it", "write a number"
    return _count_fault(words) or _multiple_fault(words.get("multiple_of")) or _pattern_fault(words.get("pattern"))


def _count_fault(words: Mapping[Any, object]) -> ConstraintFault | None:
    for word, least in _LEAST.items():
        value = words.get(word)
        if value is not None and not (type(value) is int and value >= least):
            return f"its {word} is {value!r}, which counts nothing", f"write an integer of at least {least}"
    return None


def _multiple_fault(value: Any) -> ConstraintFault | None:  # noqa: ANN401 - of any type that can be divided
    try:
        # The zero of its own type, because a `timedelta` may be divided too, and is not comparable with 0.
        is_positive = value is None or value > type(value)()
    except TypeError:  # not a number: pydantic reports it
        return None
    return (
        None if is_positive else (f"its multiple_of is {value!r}, which is not more than zero", "write a positive one")
    )


def _pattern_fault(value: object) -> ConstraintFault | None:
    """What is wrong with a pattern: pydantic compiles a string in the dialect of Rust."""
    if isinstance(value, re.Pattern):
        pattern = cast("re.Pattern[str]", cast("object", value))
        plain = re.compile(pattern.pattern)
        # A schema holds only the text of the pattern: the model would read another rule than the one that holds.
        if plain.flags != pattern.flags:
            return (
                "the flags of its pattern are not in the schema",
                'write them into the pattern, as in pattern="(?i)a"',
            )
        return None
    if not isinstance(value, str):
        return None
    try:
        # Compiled by what will use it: Python's own `re` takes patterns that Rust does not, and the other way round.
        SchemaValidator(core_schema.str_schema(pattern=value))
    except CoreSchemaError as error:
        reason = str(error).splitlines()[-1].strip().removeprefix("error: ").removeprefix("SchemaError: ").rstrip(".")
        return (
            f"its pattern {value!r} does not compile ({reason})",
            "write a regular expression of Rust: it has neither look-around nor backreferences",
        )
    return None


def _is_number(hint: object) -> bool:
    """Whether JSON Schema has bounds for the values of a type."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_number(get_args(hint)[0])
    if origin in {Union, UnionType}:
        return any(map(_is_number, get_args(hint)))
    # Not `Decimal`: pydantic reads a bound of a decimal that is text as the number that it says.
    return hint is int or hint is float


def _misplaced(what: str, word: str) -> ConstraintFault:
    cure = _BY_TYPE.get(word) or f"write Annotated[..., Field({_INSTEAD.get(word, word)}=...)] with pydantic's Field"
    return f"{what} inside Annotated constrains nothing", cure


def _extra_fault(extra: object) -> ConstraintFault | None:
    if not isinstance(extra, Mapping):
        return None
    given = cast("Mapping[object, object]", extra)
    shaping = [word for word in given if word in _SHAPING]
    if shaping:
        return (
            f"{shaping[0]!r} in json_schema_extra is shown to the model, and something else is parsed",
            "declare the type that the schema is to say",
        )
    words = [word for word in given if word in WORDS and word != "format"]
    if not words:  # a format describes, in JSON Schema too
        return None
    return f"{words[0]!r} in json_schema_extra is shown to the model and constrains nothing", _misplaced(
        "", str(words[0])
    )[1]


def _parts(option: object) -> Iterator[object]:
    """The option, and the constraints that a `Field` holds."""
    yield option
    # A `Field` keeps its constraints as objects of `annotated_types` in this list, and not as attributes.
    held: object = getattr(option, "metadata", ())
    if isinstance(held, list | tuple):
        yield from cast("list[object]", held)


def _may_be_text(hint: object) -> bool:
    """Whether a pattern can constrain values of the type; only what is surely not a string cannot be."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _may_be_text(get_args(hint)[0])
    if origin in {Union, UnionType}:
        return any(map(_may_be_text, get_args(hint)))
    kind = origin or hint
    return not (isinstance(kind, type) and issubclass(kind, _NO_TEXT))


def _is_value(value: object) -> bool:
    # A class of the program may have a method or property that is called as a constraint is.
    return value is not None and not callable(value) and not isinstance(value, property)


def unsupported_field(kind: object, path: str, fault: str, cure: str) -> NoReturn:
    """Raises the `SchemaError` that names the place, what is wrong there, and what to write instead."""
    raise SchemaError(f"{path}: {fault}; {cure}", type=kind, path=path)


# ----------------------------------------------------------------------------------------------- constraints that apply


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
_TRIED: Final = (
    "1",
    '"a"',
    '"1"',
    '"http://a.b"',
    '"127.0.0.1"',
    '"."',
    to_json(__file__),
    "true",
    "null",
    "{}",
    "[]",
)

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
    if part["type"] == "function-after" and _is_constraint(apply := part["function"]["function"]):
        # It takes the value and one keyword, which is called as the constraint is.
        word = next(iter(apply.keywords))
        yield from ((word, value) for value in _values(part["schema"], definitions) if not _takes(apply, word, value))
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
    elif (viewed := innermost(core, definitions)) is not core and viewed["type"] not in _AROUND:
        yield from _samples(viewed, definitions)


def _values(core: Core, definitions: Mapping[str, Core]) -> list[object]:
    """A value of each kind that a part may hold, made by the part itself if its kinds are not known."""
    return list(_samples(core, definitions)) or list(_parsed(core, definitions))


def _parsed(core: Core, definitions: Mapping[str, Core]) -> Iterator[object]:
    """What a part of a type of pydantic's own makes of some JSON; none if a function of the program is in it."""
    # A function of the program would be called when the type is built, with values that no model has sent.
    if any(is_of_the_program(part.get("function")) for _, part in places_of(core, definitions)):
        return
    # With the shared parts, because a part alone may refer to them.
    whole = {"type": "definitions", "schema": core, "definitions": list(definitions.values())} if definitions else core
    validator = SchemaValidator(cast("CoreSchema", whole))
    for text in _TRIED:
        with suppress(ValueError):
            yield validator.validate_json(text)


def _is_known(core: Core) -> bool:
    """Whether what a part does to its values is known: not if a function of the program makes them."""
    makes = core["type"] in {"function-after", "function-wrap"}
    return not makes or _is_constraint(core["function"]["function"])


def _is_constraint(function: object) -> bool:
    return isinstance(function, partial) and is_bound(cast("object", function))


def _patterns(core: Core) -> Iterator[object]:
    if is_bound(core["function"]):  # nothing else there is plain
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
