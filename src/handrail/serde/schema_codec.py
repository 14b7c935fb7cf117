"""The codec of arguments whose schema is data: decoded JSON, checked by the library `jsonschema`.

It needs the extra `schemas`, so it is imported when the first tool is made of such a schema. What is wrong is said in
the words that the faults of a dataclass have. The messages of the library repeat the value, which may be a secret.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import chain, groupby, islice
from typing import Any, Final, NoReturn, cast

from pydantic_core import from_json

from handrail.errors import DumpError, ParseError, SchemaError
from handrail.serde.faults import (
    MOST_FAULTS,
    Fault,
    Path,
    describe_expected,
    fault_message,
    got_kind,
    got_size,
    join_alternatives,
    unknown_field,
)
from handrail.serde.formatting import format_path, shorten
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import (
    Text,
    decoded_text,
    json_of,
    json_syntax_fault,
    lone_surrogate,
    number_faults,
    repeated_keys,
    size_faults,
)
from handrail.serde.typed import Codec

try:
    from jsonschema import Draft7Validator, Draft201909Validator, Draft202012Validator, ValidationError, validators
    from jsonschema.exceptions import SchemaError as InvalidSchema
    from jsonschema.exceptions import UnknownType
    from referencing import Registry
    from referencing.exceptions import Unresolvable
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f'a JSON Schema that is data needs {_error.name}, which is not installed: pip install "handrail[schemas]"',
        name=_error.name,
    ) from _error


class _SchemaCodec:
    """Parses and writes objects of a JSON Schema, as the codec of a dataclass does; immutable."""

    kind: Final = dict
    differs_from_shown: Final = False

    def __init__(self, validator: Any, shown: Mapping[str, Any], max_bytes: int | None = None) -> None:  # noqa: ANN401 - as below
        self._validator = validator
        self._shown = shown
        self._max_bytes = max_bytes
        self.parsed_json = json_of

    def within(self, max_bytes: int | None) -> _SchemaCodec:
        """The codec of the same arguments that parses so much at most."""
        return _SchemaCodec(self._validator, self._shown, max_bytes)

    def with_schema(self, schema: Mapping[str, Any]) -> _SchemaCodec:
        """The codec of the same arguments that shows another schema: this one with other descriptions."""
        return _SchemaCodec(self._validator, schema, self._max_bytes)

    def for_keys(self) -> None:
        """No other codec: no default is filled in."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema; a new one each time."""
        return cast("dict[str, Any]", from_json(json_of(self._shown)))

    def parse(self, data: Text | Mapping[str, object]) -> dict[str, Any]:
        """The object that `data` says, as JSON or decoded already.

        Raises:
            ParseError: it does not fit; `faults` has all that is wrong with it.
        """
        return self.parse_json(json_of(data) if isinstance(data, Mapping) else data)

    def parse_json(self, data: Text) -> dict[str, Any]:
        """The object that `data` says.

        Raises:
            ParseError: it does not fit; `faults` has all that is wrong with it.
        """
        if self._max_bytes is not None and (faults := size_faults(data, self._max_bytes)):
            raise _refusal(faults)
        try:
            value: object = from_json(data)
        except ValueError as error:
            raise _refusal((("$", json_syntax_fault(str(error), data)),)) from None
        except TypeError:  # pydantic's reader takes a lone surrogate for no text at all
            raise _refusal((("$", lone_surrogate(str(data))),)) from None
        faults = _faults(self._validator, value)
        if faults and _read_texts(self._validator, value):
            faults = _faults(self._validator, value)
        if faults := (*faults, *number_faults(data), *repeated_keys(data)):
            raise _refusal(faults)
        return cast("dict[str, Any]", value)  # the schema takes objects alone

    def dump_json(self, value: object) -> bytes:
        """An object as JSON.

        Raises:
            DumpError: JSON cannot say it, or it does not fit the schema.
        """
        data = json_of(value)
        if faults := number_faults(data) or _faults(self._validator, from_json(data)):
            raise DumpError(fault_message(faults), faults=faults)
        return data

    def dump(self, value: object) -> Any:  # noqa: ANN401 - decoded JSON
        """An object as decoded JSON."""
        return from_json(self.dump_json(value))


def _refusal(faults: tuple[Fault, ...]) -> ParseError:
    return ParseError(fault_message(faults), faults=faults)


# ---------------------------------------------------------------------------------------------------------- the schema

_COMPONENTS: Final = "#/components/schemas/"
"""How parts of an OpenAPI document refer to its schemas."""

_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def schema_codec(schema: object) -> Codec[dict[str, Any]]:
    """The codec of arguments that a JSON Schema describes.

    Args:
        schema: the schema of an object, as decoded JSON. Where it says nothing of other fields, it takes them.

    Raises:
        SchemaError: it is not a JSON Schema of an object, or refers to another document; `path` is a JSON pointer.
    """
    if not is_object(schema):
        _refuse("#", f"the schema is of type {type(schema).__name__}, and must be a dict", schema)
    if schema.get("type") != "object":
        _refuse("#/type", 'arguments are an object; write "type": "object"', schema)
    # A copy, because the caller may change its own.
    published = _of_openapi(from_json(json_of(schema)))
    draft = _DRAFTS.get(str(published.get("$schema")).rstrip("#"), _LATEST)
    try:
        draft.check_schema(published)
    except InvalidSchema as error:
        path, text = next(_explain(error))
        _refuse("/".join(("#", *map(_escape, path))), text, schema)
    # Without `$schema`, by which the library would choose the class again; a registry that retrieves nothing.
    checked = {name: part for name, part in published.items() if name != "$schema"}
    validator = draft(checked, registry=Registry[Any]())
    _check_references(validator, checked, "#")
    return cast("Codec[dict[str, Any]]", _SchemaCodec(validator, published))  # all that tools need of a codec


def _of_openapi(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the `components` of an OpenAPI document as its `$defs`, where every reader looks for them."""
    components = schema.get("components")
    if not is_object(components) or not is_object(schemas := components.get("schemas")):
        return cast("dict[str, Any]", _rewritten(schema))
    rest: Any = _rewritten({name: value for name, value in schema.items() if name != "components"})
    own = rest.get("$defs", {})
    if twice := sorted(schemas.keys() & own.keys()):
        _refuse(f"#/components/schemas/{twice[0]}", "$defs has this name too; rename one of them", schema)
    return {**rest, "$defs": {**own, **_rewritten(dict(schemas))}}


def _rewritten(node: Any) -> Any:  # noqa: ANN401 - decoded JSON
    """A part of a schema whose references to `components` lead to `$defs`, and with a type for `nullable`."""
    if is_array(node):
        return [_rewritten(each) for each in node]
    if isinstance(node, str) and node.startswith(_COMPONENTS):
        return f"#/$defs/{node.removeprefix(_COMPONENTS)}"
    if not is_object(node):
        return node
    if node.get("nullable") is True and isinstance(kind := node.get("type"), str):
        node = {**node, "type": [kind, "null"]}
    return {name: _rewritten(value) for name, value in node.items()}


def _check_references(validator: Any, node: object, pointer: str) -> None:  # noqa: ANN401 - of the library
    """Refuse a reference that leads out of the document, nowhere, or back to itself, and a draft of a part."""
    for name, value in node.items() if is_object(node) else enumerate(node) if is_array(node) else ():
        here = f"{pointer}/{_escape(name)}"
        if name in _REFERENCES and isinstance(value, str):
            try:
                # Any value meets what is wrong with the reference itself.
                list(validator.evolve(schema={name: value}).iter_errors(None))
            except (Unresolvable, UnknownType, AttributeError, TypeError, RecursionError):
                fault = "it leads to no schema in this document, or back to itself; copy what it means into $defs"
                _refuse(here, fault, value)
        # The library would read the part without what is said of keywords below.
        if name == "$schema" and isinstance(value, str):
            _refuse(here, "a draft is named by the whole schema alone; leave it out here", value)
        _check_references(validator, value, here)


def _refuse(pointer: str, fault: str, value: object) -> NoReturn:
    raise SchemaError(f"{pointer}: {fault}", type=value, path=pointer)


def _escape(segment: str | int) -> str:
    return str(segment).replace("~", "~0").replace("/", "~1")


# ----------------------------------------------------------------------------------------------------------- the check


def _required(validator: Any, names: Any, value: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401 - of the library
    """`required`, with the place of the field that is missing."""
    del schema
    if validator.is_type(value, "object"):
        yield from (ValidationError("missing", path=(name,)) for name in names if name not in value)


def _additional(validator: Any, given: Any, value: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    """`additionalProperties`, with the place of each field and in their order; the library has the order of a set."""
    patterns: list[str] = list(schema.get("patternProperties", ()))
    for name in value if validator.is_type(value, "object") else ():
        if name not in schema.get("properties", ()) and not any(re.search(pattern, name) for pattern in patterns):
            if given is False:
                yield ValidationError("unknown", path=(name,))
            else:
                yield from validator.descend(value[name], given, path=name)


def _alternatives(validator: Any, options: Any, value: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    """`anyOf` and `oneOf`, with so many errors of each alternative as are reported; the library holds all of them."""
    every: list[Any] = [validator.descend(value, option, schema_path=number) for number, option in enumerate(options)]
    errors: list[list[Any]] = [list(islice(each, MOST_FAULTS)) for each in every]
    if all(errors):
        yield ValidationError("none fits", context=list(chain.from_iterable(errors)))
    elif options is schema.get("oneOf") and errors.count([]) > 1:
        yield ValidationError("several fit")


def _multiple_of(validator: Any, factor: Any, value: Any, schema: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    """`multipleOf` for the decimal numbers that were written: 0.3 is a multiple of 0.1, though their floats are not."""
    del schema
    is_finite = validator.is_type(value, "number") and (isinstance(value, int) or math.isfinite(value))
    if is_finite and Fraction(str(value)) % Fraction(str(factor)):
        yield ValidationError("not a multiple")


_KEYWORDS: Final = {
    "required": _required,
    "additionalProperties": _additional,
    "multipleOf": _multiple_of,
    "anyOf": _alternatives,
    "oneOf": _alternatives,
}
# The stub of `extend` has no types.
_DRAFTS: Final[Mapping[str, Any]] = {
    str(each.META_SCHEMA["$schema"]).rstrip("#"): cast("Any", validators).extend(each, _KEYWORDS)
    for each in (Draft7Validator, Draft201909Validator, Draft202012Validator)
}
_LATEST: Final = _DRAFTS["https://json-schema.org/draft/2020-12/schema"]


def _faults(validator: Any, value: Any) -> tuple[Fault, ...]:  # noqa: ANN401 - of the library, and decoded JSON
    """All that is wrong with a value, with its path; nothing if it fits. Of very many faults the first hundred."""
    try:
        every = chain.from_iterable(map(_explain, validator.iter_errors(value)))
        # Several keywords may find the same.
        return tuple(dict.fromkeys((format_path(path), text) for path, text in islice(every, MOST_FAULTS)))
    except RecursionError:
        return (("$", "nested too deeply for its schema; send a flatter value"),)


def _read_texts(validator: Any, value: Any) -> bool:  # noqa: ANN401 - of the library, and decoded JSON
    """Put an array or object in the place of each field that is a text which holds it, where no text is taken.

    Returns:
        Whether there was one.
    """
    fields: Mapping[str, object] = value if is_object(value) else {}
    if not any(isinstance(each, str) and each.lstrip()[:1] in {"[", "{"} for each in fields.values()):
        return False
    values: dict[str, object] = {}
    for error in islice(validator.iter_errors(value), MOST_FAULTS):
        causes: list[Any] = error.context or [error]
        # A choice of texts, or a rule for them, is not a fault of the type.
        if len(error.absolute_path) == 1 and all(each.validator == "type" for each in causes):
            kinds = {kind for each in causes for kind in _kinds(each.validator_value)}
            text = error.instance
            if isinstance(text, str) and (decoded := decoded_text(text, kinds)) is not None:
                values[error.absolute_path[0]] = decoded
    value.update(values)
    return bool(values)


# ----------------------------------------------------------------------------------------------------------- the words

_KIND: Final[Mapping[str, str]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), "string"),
    **dict.fromkeys(("minItems", "maxItems"), "array"),
    **dict.fromkeys(("minProperties", "maxProperties"), "object"),
}
"""The type of the values that a keyword is of."""

_RULES: Final = ("enum", "const", "type")
_SIZES: Final = ("Length", "Items", "Properties")

_LONGEST_RULE: Final = 200


def _explain(error: Any) -> Iterator[tuple[Path, str]]:  # noqa: ANN401 - of the library
    """The faults that an error of the library stands for."""
    path: Path = tuple(error.absolute_path)
    keyword, value, instance = error.validator, error.validator_value, error.instance
    if keyword is None:  # the schema `false`, of which the library does not say where it stands
        yield path, "a field or an item is here that the schema excludes; leave it out"
    elif keyword == "required":
        field = error.schema.get("properties", {}).get(path[-1])
        rules = [f"; expected {_expected(word, field[word])}" for word in _RULES if is_object(field) and word in field]
        yield path, f"missing field {path[-1]}{''.join(rules[:1])}"
    elif keyword == "additionalProperties":
        yield path, unknown_field(str(path[-1]), list(error.schema.get("properties", ())))
    elif error.context:
        yield from _explain_union(error)
    elif "propertyNames" in error.absolute_schema_path and "propertyNames" not in path:
        yield (*path, instance), f"wrong key: expected {_expected(keyword, value)}"
    elif keyword == "type":
        yield path, f"expected {_expected(keyword, value)}, {got_kind(instance, {*_kinds(value)})}"
    else:
        got = got_size(instance) if keyword in _KIND and keyword.endswith(_SIZES) else "got another value"
        yield path, f"expected {_expected(keyword, value)}, {got}"


def _explain_union(error: Any) -> Iterator[tuple[Path, str]]:  # noqa: ANN401 - as above
    """The faults of the alternatives that the value can have meant; else what the alternatives are."""
    groups = groupby(error.context, lambda each: tuple(each.relative_schema_path)[:1])
    alternatives = [list(errors) for _, errors in groups]
    meant = [errors for errors in alternatives if not any(map(_means_another, errors))]
    for number, errors in enumerate(meant, start=1):
        for place, text in chain.from_iterable(map(_explain, errors)):
            yield place, text if len(meant) == 1 else f"{text} (in reading {number} of {len(meant)})"
    if not meant:
        others = [next(filter(_means_another, errors)) for errors in alternatives]
        depth = max(len(each.relative_path) for each in others)
        nearest = [each for each in others if len(each.relative_path) == depth]
        expected = join_alternatives(_expected(each.validator, each.validator_value) for each in nearest)
        got = f"{got_kind(nearest[0].instance, set())} that is none of these"
        yield tuple(nearest[0].absolute_path), f"expected {expected}, {got}"


def _means_another(error: Any) -> bool:  # noqa: ANN401 - as above
    """Whether the value is altogether another one, or has another mark than the alternative."""
    depth = len(error.relative_path)
    return depth == 0 or (depth == 1 and error.validator in {"const", "enum"})


def _expected(keyword: str, value: Any) -> str:  # noqa: ANN401 - the value of a keyword
    """What a keyword expects, with its article."""
    if keyword == "type":
        return describe_expected({"anyOf": [{"type": kind} for kind in _kinds(value)]}, {})
    if keyword in {"enum", "const"}:
        return describe_expected({keyword: value}, {})
    if keyword in _KIND:
        return describe_expected({"type": _KIND[keyword], keyword: value}, {})
    return f"a value that fits {shorten(json.dumps({keyword: value}, ensure_ascii=False), _LONGEST_RULE)}"


def _kinds(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value
