"""Validation of decoded JSON by a JSON Schema that is data: that of an OpenAPI operation, an MCP server, a benchmark.

The keywords are those of draft 2020-12 and of the drafts before it that mean the same. One that would need more than a
look at the value itself (`unevaluatedProperties`, `$dynamicRef`, a reference to another document) is refused when the
schema is read, because a model would read a rule that is not checked. `format` and the like describe, and are not
checked, as the specification has it.

A fault names the place and what is expected there, in the words that the faults of a dataclass have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NoReturn

from handrail.errors import SchemaError
from handrail.serde.faults import (
    MOST_FAULTS,
    Fault,
    join_alternatives,
    json_kind,
    json_kind_name,
    unknown_field,
)
from handrail.serde.formatting import count_noun, format_path, shorten
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.location import Path

_KINDS: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

_DESCRIBING: Final = frozenset(
    {"$schema", "$id", "$comment", "$anchor", "title", "description", "default", "examples", "example", "deprecated"}
    | {"readOnly", "writeOnly", "format", "contentEncoding", "contentMediaType", "contentSchema", "discriminator"}
    | {"$defs", "definitions", "xml", "externalDocs", "nullable"}
)
"""Keywords that restrict nothing. `nullable` is OpenAPI 3.0's, and is read beside `type`."""

_LONGEST_CHOICE: Final = 60

_LONGEST_PATTERN: Final = 100


@dataclass(frozen=True, slots=True)
class _Place:
    """A keyword, and what it is checked of.

    Attributes:
        validator: the validator.
        schema: the part of the schema that has the keyword.
        given: the value of the keyword.
        value: the JSON.
        path: where that is.
    """

    validator: JsonSchemaValidator
    schema: Mapping[str, Any]
    given: Any
    value: Any
    path: Path

    def here(self, schema: Any) -> Iterator[Fault]:  # noqa: ANN401 - a schema, which may be a boolean
        """The faults of the value by another schema."""
        return self.validator.of(schema, self.value, self.path)

    def below(self, schema: Any, segment: str | int) -> Iterator[Fault]:  # noqa: ANN401 - as above
        """The faults of a field or an item of the value."""
        return self.validator.of(schema, self.value[segment], (*self.path, segment))


_Check = Callable[[_Place], Iterator[Fault]]
"""The check of one keyword."""


class JsonSchemaValidator:
    """Finds every fault of decoded JSON by a JSON Schema; immutable.

    Attributes:
        schema: the JSON Schema.
    """

    __slots__ = ("_patterns", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Read a schema.

        Raises:
            SchemaError: it is not a JSON Schema, or has a keyword that is not checked here; `path` is a JSON pointer.
        """
        self.schema: Mapping[str, Any] = schema
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._read(schema, "#")
        self._refuse_loops(schema, "#", (), set())

    def faults(self, value: object) -> tuple[Fault, ...]:
        """Every fault of a value with its path; none if it fits. Of very many the first hundred."""
        found: list[Fault] = []
        for fault in self.of(self.schema, value, ()):
            if len(found) == MOST_FAULTS:
                break
            if fault not in found:
                found.append(fault)
        return tuple(found)

    def fits(self, schema: Any, value: object) -> bool:  # noqa: ANN401 - a schema, which may be a boolean
        """Whether a value fits a part of the schema."""
        return next(self.of(schema, value, ()), None) is None

    def pattern(self, text: str) -> re.Pattern[str]:
        """A pattern of the schema."""
        return self._patterns[text]

    def described(self, schema: Any) -> str:  # noqa: ANN401 - as above
        """What a part of the schema expects, with its article."""
        return self._described(schema, 0)

    def of(self, schema: Any, value: object, path: Path) -> Iterator[Fault]:  # noqa: ANN401 - as above
        """The faults of a value by a part of the schema."""
        if schema is True:
            return
        if schema is False:
            yield format_path(path), "nothing is expected here; leave it out"
            return
        for keyword, check in _CHECKS.items():
            if keyword in schema:
                found = list(check(_Place(self, schema, schema[keyword], value, path)))
                yield from found
                # Of another type altogether: what else is wrong with it would mislead.
                if found and keyword == "type":
                    return

    def target(self, reference: str) -> Any:  # noqa: ANN401 - as above
        """The part of the schema that a reference means.

        Raises:
            LookupError: there is none.
        """
        if reference != "#" and not reference.startswith("#/"):
            raise LookupError
        found: Any = self.schema
        for segment in reference.split("/")[1:]:
            name = segment.replace("~1", "/").replace("~0", "~")
            found = found[int(name)] if is_array(found) else found[name]
        return found

    def _described(self, schema: Any, depth: int) -> str:  # noqa: ANN401 - as above
        if not is_object(schema) or depth > 1:
            return "a value"
        if "$ref" in schema:
            return self._described(self.target(schema["$ref"]), depth + 1)
        if "const" in schema or "enum" in schema:
            return join_alternatives(map(_choice, schema.get("enum", [schema.get("const")])))
        options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if options and "type" not in schema:
            return join_alternatives(self._described(option, depth + 1) for option in options)
        # Objects are distinguished by their fields.
        names = schema.get("required") or list(schema.get("properties", ()))
        if names and _types_of(schema) == ["object"]:
            return f"an object with {', '.join(names)}"
        return join_alternatives(map(json_kind_name, _types_of(schema))) or "a value"

    # --------------------------------------------------------------------------------------------------------- reading

    def _read(self, schema: object, pointer: str) -> None:
        if isinstance(schema, bool):
            return
        if not is_object(schema):
            _refuse(pointer, "a schema is an object or a boolean", schema)
        for keyword, value in schema.items():
            here = f"{pointer}/{keyword}"
            if keyword in _CHECKS:
                self._check_keyword(keyword, value, here)
            elif keyword not in _DESCRIBING and keyword not in _BESIDE and not keyword.startswith("x-"):
                _refuse(here, "this keyword is not checked; remove it, or say it with others", value)
            for inner, at in _inner_schemas(keyword, value, here):
                self._read(inner, at)

    def _refuse_loops(self, schema: object, pointer: str, above: tuple[int, ...], done: set[int]) -> None:
        """Refuse a part that refers to itself for the very same value, which would never be checked to the end."""
        if not is_object(schema):
            return
        if id(schema) in above:
            _refuse(pointer, "the schema refers to itself without a field or an item between", schema)
        for keyword, value in schema.items():
            here = f"{pointer}/{keyword}"
            same = [(self.target(value), here)] if keyword == "$ref" else []
            for inner, at in (*same, *_inner_schemas(keyword, value, here)):
                is_same = keyword in _IN_PLACE
                # What was searched from another value needs no second search from there.
                if is_same or id(inner) not in done:
                    done.add(id(inner))
                    self._refuse_loops(inner, at, (*above, id(schema)) if is_same else (), done)

    def _check_keyword(self, keyword: str, value: Any, pointer: str) -> None:  # noqa: ANN401 - a keyword's value
        expected = _FORMS[keyword]
        if not expected[0](value):
            _refuse(pointer, f"its value must be {expected[1]}", value)
        if keyword == "$ref":
            try:
                self.target(value)
            except (LookupError, ValueError, TypeError):
                _refuse(pointer, "the reference leads nowhere in this document", value)
        for text in (value,) if keyword == "pattern" else value if keyword == "patternProperties" else ():
            try:
                self._patterns[text] = re.compile(text)
            except re.error as error:
                _refuse(pointer, f"the pattern does not compile ({error})", text)


def _refuse(pointer: str, fault: str, value: object) -> NoReturn:
    raise SchemaError(f"{pointer}: {fault}", type=value, path=pointer)


def _is_same(one: object, other: object) -> bool:
    """Whether two decoded values are equal in JSON, where `1` is `1.0` and not `true`."""
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(_is_same(item, other[name]) for name, item in one.items())
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _choice(value: object) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), _LONGEST_CHOICE)


def _types_of(schema: Mapping[str, Any]) -> Sequence[str]:
    given: Any = schema.get("type", ())
    kinds = [given] if isinstance(given, str) else list(given)
    return [*kinds, "null"] if schema.get("nullable") is True and kinds else kinds


def _inner_schemas(keyword: str, value: Any, pointer: str) -> Iterator[tuple[object, str]]:  # noqa: ANN401 - a keyword's value
    if keyword in _ONE:
        yield value, pointer
    elif keyword in _SEVERAL:
        yield from ((inner, f"{pointer}/{position}") for position, inner in enumerate(value))
    elif keyword in _NAMED and is_object(value):
        yield from ((inner, f"{pointer}/{name}") for name, inner in value.items())


# --------------------------------------------------------------------------------------------------------- the keywords


def _ref(at: _Place) -> Iterator[Fault]:
    return at.here(at.validator.target(at.given))


def _type(at: _Place) -> Iterator[Fault]:
    kinds = _types_of(at.schema)
    found = kind_of(at.value)
    if found in kinds or (found == "integer" and "number" in kinds):
        return
    hint = "; send the JSON itself, not a string that holds it" if _looks_like_json(at.value, kinds) else ""
    yield format_path(at.path), f"expected {at.validator.described(at.schema)}, got {json_kind_name(found)}{hint}"


def kind_of(value: object) -> str:
    """The type of a decoded value; a number with a fraction of zero is an integer."""
    return "integer" if isinstance(value, float) and value.is_integer() else json_kind(value)


def _looks_like_json(value: object, kinds: Sequence[str]) -> bool:
    is_text = isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}
    return is_text and not {"array", "object"}.isdisjoint(kinds)


def _enum(at: _Place) -> Iterator[Fault]:
    choices: list[object] = at.schema.get("enum", [at.schema.get("const")])
    if not any(_is_same(at.value, choice) for choice in choices):
        yield format_path(at.path), f"expected {join_alternatives(map(_choice, choices))}, got another value"


def _bound(words: str, holds: Callable[[Any, Any], bool]) -> _Check:
    def check(at: _Place) -> Iterator[Fault]:
        if _is_number(at.value) and not holds(at.value, at.given):
            yield format_path(at.path), f"expected a number {words} {at.given}, got one that is not"

    return check


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_multiple(value: float, of: float) -> bool:
    # Of the decimal numbers that were written: 0.3 is a multiple of 0.1, though their floats are not.
    return Fraction(str(value)) % Fraction(str(of)) == 0


def _length(kind: str, what: str, words: str, holds: Callable[[int, int], bool]) -> _Check:
    def check(at: _Place) -> Iterator[Fault]:
        if json_kind(at.value) == kind and not holds(len(at.value), at.given):
            expected = f"{json_kind_name(kind)} of {words} {count_noun(at.given, what)}"
            yield format_path(at.path), f"expected {expected}, got one of {count_noun(len(at.value), what)}"

    return check


def _pattern(at: _Place) -> Iterator[Fault]:
    if isinstance(at.value, str) and at.validator.pattern(at.given).search(at.value) is None:
        yield (
            format_path(at.path),
            f"expected a string matching {shorten(at.given, _LONGEST_PATTERN)}, got one that does not",
        )


def _required(at: _Place) -> Iterator[Fault]:
    if is_object(at.value):
        for name in at.given:
            if name not in at.value:
                expected = at.validator.described(at.schema.get("properties", {}).get(name, True))
                yield format_path((*at.path, name)), f"missing field {name}; expected {expected}"


def _properties(at: _Place) -> Iterator[Fault]:
    if is_object(at.value):
        for name, inner in at.given.items():
            if name in at.value:
                yield from at.below(inner, name)


def _pattern_properties(at: _Place) -> Iterator[Fault]:
    if is_object(at.value):
        for text, inner in at.given.items():
            for name in filter(at.validator.pattern(text).search, at.value):
                yield from at.below(inner, name)


def _additional(at: _Place) -> Iterator[Fault]:
    if not is_object(at.value):
        return
    named: Mapping[str, Any] = at.schema.get("properties", {})
    patterns = [at.validator.pattern(text) for text in at.schema.get("patternProperties", ())]
    for name in at.value:
        if name in named or any(pattern.search(name) for pattern in patterns):
            continue
        if at.given is False:
            yield format_path((*at.path, name)), unknown_field(name, list(named))
        else:
            yield from at.below(at.given, name)


def _property_names(at: _Place) -> Iterator[Fault]:
    if is_object(at.value):
        for name in at.value:
            yield from (
                (place, f"wrong key: {text}") for place, text in at.validator.of(at.given, name, (*at.path, name))
            )


def _dependent_required(at: _Place) -> Iterator[Fault]:
    if is_object(at.value):
        for name, others in at.given.items():
            for other in others if name in at.value else ():
                if other not in at.value:
                    yield format_path((*at.path, other)), f"missing field {other}; it is required beside {name}"


def _items(at: _Place) -> Iterator[Fault]:
    if is_array(at.value):
        # Before draft 2020-12 an array of schemas stood here, for the first items.
        if is_array(at.given):
            yield from _prefix_items(at)
            return
        for position in range(len(at.schema.get("prefixItems", ())), len(at.value)):
            yield from at.below(at.given, position)


def _prefix_items(at: _Place) -> Iterator[Fault]:
    if is_array(at.value):
        for position, inner in enumerate(at.given[: len(at.value)]):
            yield from at.below(inner, position)


def _additional_items(at: _Place) -> Iterator[Fault]:
    first = at.schema.get("items")
    if is_array(at.value) and is_array(first):
        for position in range(len(first), len(at.value)):
            yield from at.below(at.given, position)


def _contains(at: _Place) -> Iterator[Fault]:
    if not is_array(at.value):
        return
    count = sum(at.validator.fits(at.given, item) for item in at.value)
    least, most = at.schema.get("minContains", 1), at.schema.get("maxContains")
    if count < least or (most is not None and count > most):
        words = f"at least {least}" if count < least else f"at most {most}"
        yield (
            format_path(at.path),
            f"expected an array with {words} of {at.validator.described(at.given)}, got one with {count}",
        )


def _unique(at: _Place) -> Iterator[Fault]:
    if at.given and is_array(at.value):
        for position, item in enumerate(at.value):
            if any(_is_same(item, other) for other in at.value[:position]):
                yield format_path((*at.path, position)), "expected an item that is not there before; remove it"


def _all_of(at: _Place) -> Iterator[Fault]:
    for inner in at.given:
        yield from at.here(inner)


def _any_of(at: _Place) -> Iterator[Fault]:
    found = [list(at.here(inner)) for inner in at.given]
    if all(found):
        yield from _nearest(at, found)


def _one_of(at: _Place) -> Iterator[Fault]:
    found = [list(at.here(inner)) for inner in at.given]
    fitting = sum(not faults for faults in found)
    if fitting > 1:
        yield format_path(at.path), f"expected a value of exactly one kind, got one of {fitting} kinds"
    elif not fitting:
        yield from _nearest(at, found)


def _nearest(at: _Place, found: Sequence[list[Fault]]) -> Iterator[Fault]:
    """The faults of the one alternative that the value can have meant; else what the alternatives are."""
    here = format_path(at.path)
    inside = [faults for faults in found if all(place != here for place, _ in faults)]
    if len(inside) == 1:
        yield from inside[0]
    else:
        expected = join_alternatives(at.validator.described(inner) for inner in at.given)
        yield here, f"expected {expected}, got {json_kind_name(kind_of(at.value))} that is none of these"


def _not(at: _Place) -> Iterator[Fault]:
    if at.validator.fits(at.given, at.value):
        yield format_path(at.path), f"expected a value that is not {at.validator.described(at.given)}"


def _if(at: _Place) -> Iterator[Fault]:
    branch = at.schema.get("then" if at.validator.fits(at.given, at.value) else "else", True)
    return at.here(branch)


_CHECKS: Final[Mapping[str, _Check]] = {
    "type": _type,
    "$ref": _ref,
    "enum": _enum,
    "const": _enum,
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "dependentRequired": _dependent_required,
    "minProperties": _length("object", "field", "at least", int.__ge__),
    "maxProperties": _length("object", "field", "at most", int.__le__),
    "prefixItems": _prefix_items,
    "items": _items,
    "additionalItems": _additional_items,
    "minItems": _length("array", "item", "at least", int.__ge__),
    "maxItems": _length("array", "item", "at most", int.__le__),
    "uniqueItems": _unique,
    "contains": _contains,
    "minimum": _bound(">=", lambda value, given: value >= given),
    "maximum": _bound("<=", lambda value, given: value <= given),
    "exclusiveMinimum": _bound(">", lambda value, given: value > given),
    "exclusiveMaximum": _bound("<", lambda value, given: value < given),
    "multipleOf": _bound("divisible by", _is_multiple),
    "minLength": _length("string", "character", "at least", int.__ge__),
    "maxLength": _length("string", "character", "at most", int.__le__),
    "pattern": _pattern,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
}
"""The check of each keyword, in the order in which they are made."""

_BESIDE: Final = frozenset({"then", "else", "minContains", "maxContains"})
"""Keywords that another keyword reads."""

_ONE: Final = frozenset(
    {"additionalProperties", "propertyNames", "additionalItems", "contains", "not", "if", "then", "else"}
)
_IN_PLACE: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"})
"""Keywords whose schemas are of the very same value."""

_SEVERAL: Final = frozenset({"prefixItems", "allOf", "anyOf", "oneOf"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_texts(value: object) -> bool:
    return is_array(value) and all(isinstance(each, str) for each in value)


def _is_type(value: object) -> bool:
    kinds = value if is_array(value) else [value]
    return bool(kinds) and all(each in _KINDS for each in kinds)


_Form = tuple[Callable[[Any], bool], str]
_SCHEMA: Final[_Form] = (lambda value: isinstance(value, bool | Mapping), "a schema")
_SCHEMAS: Final[_Form] = (is_array, "an array of schemas")
_BY_NAME: Final[_Form] = (is_object, "an object of schemas")
_NUMBER: Final[_Form] = (_is_number, "a number; OpenAPI 3.0 and draft 4 have a boolean here")
_COUNT: Final[_Form] = (_is_count, "an integer >= 0")

_FORMS: Final[Mapping[str, _Form]] = {
    "type": (_is_type, f"one of {', '.join(_KINDS)}, or an array of these"),
    "$ref": (lambda value: isinstance(value, str), "a string"),
    "enum": (is_array, "an array"),
    "const": (lambda _: True, "a value"),
    "required": (_is_texts, "an array of names; draft 3 has a boolean here"),
    "dependentRequired": (lambda value: is_object(value) and all(map(_is_texts, value.values())), "names by name"),
    "items": (lambda value: _SCHEMA[0](value) or is_array(value), "a schema"),
    "uniqueItems": (lambda value: isinstance(value, bool), "a boolean"),
    "pattern": (lambda value: isinstance(value, str), "a string"),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number > 0"),
    **dict.fromkeys(("properties", "patternProperties"), _BY_NAME),
    **dict.fromkeys(_ONE - {"then", "else"}, _SCHEMA),
    **dict.fromkeys(_SEVERAL, _SCHEMAS),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT),
}
"""The form of the value of each keyword."""
