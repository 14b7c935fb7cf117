"""The codec of arguments whose schema is data: decoded JSON, checked by the library `jsonschema`.

It needs the extra `schemas`, so it is imported when the first tool is made of such a schema. The library finds what is
wrong and where; its messages repeat the value, which may be a secret, so a fault says what the keyword asks for.
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

from handrail.errors import DumpError, SchemaError
from handrail.serde.formatting import (
    KIND_NAMES,
    MOST_FAULTS,
    DataPath,
    Fault,
    fault_message,
    format_path,
    got_kind,
    join_alternatives,
    join_choices,
    shorten,
    unknown_field,
)
from handrail.serde.json_schema import is_array, is_object
from handrail.serde.json_values import Text, encode_json, lone_surrogate, number_faults, repeated_keys, syntax_fault
from handrail.serde.typed import Codec, parse_error

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


class _SchemaCodec(Codec[dict[str, Any]]):
    __slots__ = ("_validator",)

    def __init__(self, validator: Any, schema: Mapping[str, Any]) -> None:  # noqa: ANN401 - of the library
        self.kind = dict
        self.hides = self.is_marked = False
        self.parsed_json = encode_json
        self._shown_json = encode_json(schema)
        self._validator = validator

    def for_keys(self) -> None:
        pass

    def parse_json(self, data: Text) -> dict[str, Any]:
        try:
            value: object = from_json(data)
        except ValueError as error:
            raise parse_error([("$", syntax_fault(str(error), data))]) from None
        except TypeError:  # pydantic's reader takes a lone surrogate for no text at all
            raise parse_error([("$", lone_surrogate(str(data)))]) from None
        if faults := (*_faults(self._validator, value), *number_faults(data), *repeated_keys(data)):
            raise parse_error(faults)
        return cast("dict[str, Any]", value)  # the schema takes objects alone

    def dump_json(self, value: object) -> bytes:
        data = encode_json(value)
        if faults := number_faults(data) or _faults(self._validator, from_json(data)):
            raise DumpError(fault_message(faults), faults=faults)
        return data


# ---------------------------------------------------------------------------------------------------------- the schema

_COMPONENTS: Final = b'"#/components/schemas/'
"""How parts of an OpenAPI document refer to its schemas."""

_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


def schema_codec(schema: object) -> Codec[dict[str, Any]]:
    """Makes the codec of arguments of a JSON Schema; it takes unknown fields unless the schema says otherwise.

    Raises:
        SchemaError: it is not a JSON Schema of an object, or refers to another document; `path` is a JSON pointer.
    """
    if not is_object(schema):
        _refuse("#", f"the schema is of type {type(schema).__name__}, and must be a dict", schema)
    if schema.get("type") != "object":
        _refuse("#/type", 'arguments are an object; write "type": "object"', schema)
    published = _of_openapi(schema)
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
    return _SchemaCodec(validator, published)


def _of_openapi(schema: dict[str, Any]) -> dict[str, Any]:
    copy: Any = json.loads(encode_json(schema).replace(_COMPONENTS, b'"#/$defs/'), object_hook=_with_null)
    components, own = copy.pop("components", {}).get("schemas", {}), copy.get("$defs", {})
    if twice := sorted(components.keys() & own.keys()):
        _refuse(f"#/components/schemas/{twice[0]}", "$defs has this name too; rename one of them", schema)
    return {**copy, "$defs": {**own, **components}} if components else copy


def _with_null(node: dict[str, Any]) -> dict[str, Any]:
    is_nullable = node.get("nullable") is True and isinstance(node.get("type"), str)
    return {**node, "type": [node["type"], "null"]} if is_nullable else node


def _check_references(validator: Any, node: object, pointer: str) -> None:  # noqa: ANN401 - of the library
    for name, value in node.items() if is_object(node) else enumerate(node) if is_array(node) else ():
        here = f"{pointer}/{_escape(name)}"
        if name in _REFERENCES and isinstance(value, str):
            try:
                # Any value meets what is wrong with the reference itself.
                _errors(validator.evolve(schema={name: value}), None)
            except (Unresolvable, UnknownType, AttributeError, TypeError, RecursionError):
                fault = "it leads to no schema in this document, or back to itself; copy what it means into $defs"
                _refuse(here, fault, value)
        _check_references(validator, value, here)


def _refuse(pointer: str, fault: str, value: object) -> NoReturn:
    raise SchemaError(f"{pointer}: {fault}", type=value, path=pointer)


def _escape(segment: str | int) -> str:
    return str(segment).replace("~", "~0").replace("/", "~1")


# ----------------------------------------------------------------------------------------------------------- the check


def _check_multiple(validator: Any, factor: Any, value: Any, _schema: Any) -> Iterator[Any]:  # noqa: ANN401 - of the library
    is_finite = validator.is_type(value, "number") and (isinstance(value, int) or math.isfinite(value))
    if is_finite and Fraction(str(value)) % Fraction(str(factor)):
        yield ValidationError("not a multiple")


# The stub of `extend` has no types.
_DRAFTS: Final[Mapping[str, Any]] = {
    str(draft.META_SCHEMA["$schema"]).rstrip("#"): cast("Any", validators).extend(
        draft, {"multipleOf": _check_multiple}
    )
    for draft in (Draft7Validator, Draft201909Validator, Draft202012Validator)
}
_LATEST: Final = _DRAFTS["https://json-schema.org/draft/2020-12/schema"]


def _errors(validator: Any, value: Any, most: int | None = None) -> list[Any]:  # noqa: ANN401 - of the library
    try:
        return list(islice(validator.iter_errors(value), most))
    except BaseException as error:
        # Where the stack ends within a map of the library, which is in Rust, it panics.
        if type(error).__name__ == "PanicException":
            raise RecursionError from None
        raise


def _faults(validator: Any, value: Any) -> tuple[Fault, ...]:  # noqa: ANN401 - as above
    try:
        every = chain.from_iterable(map(_explain, _errors(validator, value, MOST_FAULTS)))
    except RecursionError:
        return (("$", "nested too deeply for its schema; send a flatter value"),)
    # Several keywords may find the same, and the library reports each field that is missing by itself.
    faults = dict.fromkeys((format_path(path), text) for path, text in every)
    return tuple(islice(faults, MOST_FAULTS))


# ----------------------------------------------------------------------------------------------------------- the words

_LONGEST_RULE: Final = 200


def _explain(error: Any) -> Iterator[tuple[DataPath, str]]:  # noqa: ANN401 - of the library
    path: DataPath = tuple(error.absolute_path)
    keyword, rule, value = error.validator, error.validator_value, error.instance
    if keyword is None:  # the schema `false`, of which the library does not say where it stands
        yield path, "a field or an item is here that the schema excludes; leave it out"
    elif keyword == "required":
        for name in rule:
            if name not in value:
                field = error.schema.get("properties", {}).get(name)
                word = next((word for word in ("enum", "const", "type") if is_object(field) and word in field), None)
                expected = f"; expected {_expected(word, field[word])}" if word else ""
                yield (*path, name), f"missing field {name}{expected}"
    elif keyword == "additionalProperties":
        names: list[str] = list(error.schema.get("properties", ()))
        patterns: list[str] = list(error.schema.get("patternProperties", ()))
        for name in value:
            if name not in names and not any(re.search(pattern, name) for pattern in patterns):
                yield (*path, name), unknown_field(name, names)
    elif error.context:
        yield from _explain_union(error)
    elif "propertyNames" in error.absolute_schema_path and "propertyNames" not in path:
        yield (*path, value), f"wrong key: expected {_expected(keyword, rule)}"
    else:
        actual = got_kind(value, _kinds(rule)[0]) if keyword == "type" else "got another value"
        yield path, f"expected {_expected(keyword, rule)}, {actual}"


def _explain_union(error: Any) -> Iterator[tuple[DataPath, str]]:  # noqa: ANN401 - as above
    groups = groupby(error.context, lambda error_: error_.relative_schema_path[0])
    alternatives = [list(errors) for _, errors in groups]
    likely = [errors for errors in alternatives if not any(map(_means_another, errors))] or alternatives
    for number, errors in enumerate(likely, start=1):
        for place, text in chain.from_iterable(map(_explain, errors)):
            yield place, text if len(likely) == 1 else f"{text} (in reading {number} of {len(likely)})"


def _means_another(error: Any) -> bool:  # noqa: ANN401 - as above
    depth = len(error.relative_path)
    return (depth == 0 and error.validator == "type") or (depth == 1 and error.validator in {"const", "enum"})


def _expected(keyword: str, rule: Any) -> str:  # noqa: ANN401 - the value of a keyword
    if keyword == "type":
        return join_alternatives(KIND_NAMES[kind] for kind in _kinds(rule))
    if keyword in {"enum", "const"}:
        return join_choices(rule if keyword == "enum" else [rule])
    return f"a value that fits {shorten(json.dumps({keyword: rule}, ensure_ascii=False), _LONGEST_RULE)}"


def _kinds(rule: str | list[str]) -> list[str]:
    return [rule] if isinstance(rule, str) else rule
