"""Codecs: they parse, dump and describe values of a declared type; made once for a type.

`codec` is for parameters, `result_codec` for results. Where JSON leaves it open:

* An object of the parameters that holds a key twice is refused, because readers of JSON do not agree on what it means.
* `bytes` are base64 with the alphabet that is safe in URLs (RFC 4648, section 5), a `Decimal` is a string, an enum its
  value, a set an array. A moment's offset from UTC is written in whole minutes (RFC 3339).
* A number with a fraction of zero is an integer in JSON Schema: `5.0` is `5`. pydantic's strict integers refuse it.
  Models send an array or object as a text that holds its JSON; it is read where no text is taken. Both are looked for
  only in arguments that do not fit, so that others cost nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import partial, reduce
from itertools import islice
from operator import getitem
from typing import Any, Final, Generic, TypeVar, cast, overload

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, from_json, to_json

from handrail.errors import DumpError, ParseError
from handrail.redaction import MASK
from handrail.serde.adapter import closed_adapter, inexact_numbers
from handrail.serde.build import Built, build, reader_for_keys
from handrail.serde.core_schemas import Core, cached, check_stored_unions
from handrail.serde.formatting import (
    MOST_FAULTS,
    DataPath,
    Fault,
    fault_message,
    format_path,
    format_reason,
    kinds_asked,
    locate,
    report_faults,
)
from handrail.serde.json_schema import Node, SchemaMode
from handrail.serde.json_values import (
    CHECKS_ALL,
    MAX_JSON_DEPTH,
    MOST_LEVELS,
    MOST_WRITTEN,
    TOO_DEEPLY,
    Text,
    decoded_text,
    encode_json,
    endless,
    find_unserializable,
    foreign_faults,
    is_decoded,
    is_read_back,
    lone_surrogate,
    number_faults,
    repeated_keys,
    size_faults,
    syntax_fault,
    unreadable,
)

T = TypeVar("T")


class Codec(Generic[T]):
    """Parses, dumps and describes one type; immutable, and safe to use from any thread.

    Attributes:
        kind: the type.
        hides: whether a place is secret by its type or by a mark.
        is_marked: whether a field is secret, and pydantic does not know it.
        parsed_json: writes a value that this codec has parsed as `dump_json` does, several times faster, because
            nothing is checked once more.
    """

    __slots__ = (
        *("_colons", "_has_any", "_may_hold_numbers", "_reads_back", "_schema"),
        *("_for_store", "_shown_json", "_validate", "hides", "is_marked", "kind", "parsed_json"),
    )

    def __init__(self, build_: Built, mode: SchemaMode, *, for_store: bool = False) -> None:
        self.kind: type[T] = cast("type[T]", build_.kind)
        self.hides: bool = build_.hides
        self.is_marked: bool = build_.is_marked
        self._for_store = for_store
        self._reads_back = for_store and is_read_back(build_.adapter.core)
        required, self._has_any, self._may_hold_numbers = build_.facts
        # As many colons as a text has keys at least: with no more of them, none of its keys can be there twice.
        self._colons = required if mode == "validation" else None
        self._validate: Callable[..., T] = build_.adapter.validator.validate_json
        self.parsed_json: Callable[..., bytes] = build_.adapter.serializer.to_json
        self._schema = build_.schema
        self._shown_json = build_.shown_json

    def with_schema(self, schema: Mapping[str, Any]) -> Codec[T]:
        """The codec of the same type that shows another schema, with other descriptions."""
        # The validators are those of this codec, so nothing is built again.
        return self._with(_shown_json=to_json(schema))

    def _with(self, **attributes: object) -> Codec[T]:
        changed = copy.copy(self)
        for name, value in attributes.items():
            setattr(changed, name, value)
        return changed

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema for the model; a new one each time, so that a caller may change it."""
        return cast("dict[str, Any]", from_json(self._shown_json))

    def for_keys(self) -> Codec[T] | None:
        """The codec that reads arguments for keys, if that differs: see `handrail.serde.build`."""
        read = _reader_for_keys(self.kind)
        return None if read is None else self._with(_validate=read)

    def parse_json(self, data: Text) -> T:
        """Parses strictly: `"7"` is not an integer, and `true` is not a number.

        Raises:
            ParseError: the data does not fit; `faults` has all that is wrong with it.
            Exception: what the dataclass's own `__post_init__` raises, if it is not a `ValueError`.
        """
        if self._has_any and (faults := number_faults(data)):
            raise parse_error(faults)
        try:
            value = self._validate(data, strict=True)
        except ValidationError as error:
            data, faults = self._repaired(error, data)
            if faults:
                # Not chained: pydantic's error holds the whole input, and would take it into every log.
                raise parse_error(faults) from None
            value = self._validate(data, strict=True)
        # After the validator, which has shown that the text is JSON. Its reader takes the last of two values for one
        # key and reports nothing.
        if self._colons is not None:
            colons = data.count(":") if isinstance(data, str) else data.count(b":")
            if colons > self._colons and (faults := repeated_keys(data)):
                raise parse_error(faults)
        return value

    def parse(self, data: Text | Mapping[str, object], *, max_bytes: int | None = None) -> T:
        """Parses JSON or decoded JSON, of at most `max_bytes` as JSON in UTF-8; otherwise as `parse_json`.

        Raises:
            ParseError: the data does not fit, or a part of it is not what JSON could have held: bytes, a moment.
        """
        text = data if isinstance(data, str | bytes | bytearray) else _encoded(data)
        if max_bytes is not None and (faults := size_faults(text, max_bytes)):
            raise parse_error(faults)
        return self.parse_json(text)

    def dump_json(self, value: T) -> bytes:
        """Writes a value as JSON in UTF-8, without white space.

        Raises:
            DumpError: a part of it is not of its declared type, not finite, not Unicode, or endless; or it is to be
                stored, and could not be read back.
            Exception: what a dataclass's own `__post_init__` raises when the fields are checked once more.
        """
        try:
            data = self.parsed_json(value, warnings="error")
            # pydantic writes `None` in the place of any type without a warning.
            if data.find(b"null") >= 0:
                self._refuse_misfits(value, lambda line: line["input"] is None)
        except PydanticSerializationError:
            data = self._doubted(value)
        self._check_dumped(value, data)
        return data

    def _check_dumped(self, value: T, data: bytes) -> None:
        if self._may_hold_numbers and (data.find(b"NaN") >= 0 or data.find(b"Infinity") >= 0):
            if faults := number_faults(data):
                raise _unsayable(faults)
            # A `Decimal` is written as a string, so that its NaN is not among the numbers of the JSON.
            self._refuse_misfits(value, lambda line: line["type"] == "finite_number")
        if self._for_store:
            if fault := unreadable(value, data):
                raise _unsayable([fault])
            # Last, because it parses the whole value once more: the checks above refuse most values for less.
            if self._reads_back:
                self._read_back(value, data)

    def _doubted(self, value: T) -> bytes:
        # First, because pydantic's validator has words of its own for a cycle, which name neither JSON nor a limit.
        if fault := endless(value, MOST_LEVELS if self._for_store else MOST_WRITTEN):
            raise _unsayable([fault]) from None
        # A lone surrogate is in a value of the right type: the next check reports it, with its place.
        self._refuse_misfits(value, lambda line: line["type"] != "string_unicode")
        if fault := find_unserializable(value):
            raise _unsayable([fault]) from None  # pydantic's error holds the value, and would take it into every log
        with suppress(PydanticSerializationError, ParseError):
            data = self.parsed_json(value, warnings=False)
            if self.parse_json(data) == value:
                return data
        doubt = f"{type(value).__name__} is written as no member of its type, or as another one"
        raise _unsayable([("$", doubt)]) from None

    def _read_back(self, value: T, data: bytes) -> None:
        try:
            read = self.parse_json(data)
        except ParseError as error:
            raise _unsayable((place, f"{fault}, so it cannot be read back") for place, fault in error.faults) from None
        # A validator or a `__post_init__` of the program runs here, and may raise anything.
        except Exception as error:
            raise _unsayable([("$", f"it cannot be read back: {type(error).__name__}: {error}")]) from error
        if read == value:
            return
        # Values without `==` are compared by their JSON, and so are those with secrets.
        has_equality = CHECKS_ALL and MASK.encode() not in data and self.parse_json(data) == read
        if has_equality or self.parsed_json(read, warnings=False) != data:
            fault = "it would come back as another value: its type says less, or a validator or __post_init__ alters it"
            raise _unsayable([("$", fault)], is_mistyped=True)

    def dump(self, value: T) -> Any:  # noqa: ANN401 - decoded JSON
        """Returns JSON-ready Python, of dict, list, str, int, float, bool and None alone.

        Raises:
            DumpError: as `dump_json`, or it holds an integer with too many digits to be read back.
        """
        return _decoded(self.dump_json(value))

    def _repaired(self, error: ValidationError, data: Text) -> tuple[Text, tuple[Fault, ...]]:
        lines = error.errors(include_url=False, include_input=False)
        if lines[0]["type"] == "json_invalid":
            return data, (("$", syntax_fault(lines[0]["msg"], data)),)
        if lines[0]["type"] == "string_unicode" and isinstance(data, str):
            return data, (("$", lone_surrogate(data)),)
        decoded: object = from_json(data)
        if not repair(lines, self._schema, decoded, inexact_numbers(data)):
            return data, report_faults(lines, self._schema, decoded)
        # A repeated key is in what is decoded only one time; two values for one key are a fault all the same.
        repaired, repeated = to_json(decoded, inf_nan_mode="constants"), repeated_keys(data)
        try:
            self._validate(repaired, strict=True)
        except ValidationError as again:
            # A text that held JSON may have held such numbers or texts again.
            whole, faults = self._repaired(again, repaired)
            return whole, (*faults, *repeated)
        return repaired, repeated

    def _refuse_misfits(self, value: object, which: Callable[[ErrorDetails], bool]) -> None:
        # Made at the first doubt: building it costs as much as the codec, and most programs never need it.
        recheck = _recheck(self.kind).validator
        try:
            recheck.validate_python(value, strict=True)
        except ValidationError as error:
            lines = [line for line in error.errors(include_url=False) if which(line)]
            spots = locate((line["loc"] for line in lines[:MOST_FAULTS]), self._schema, None)
            places = [format_path(spot.path) for spot in spots]
            words = [f"{format_reason(line)}, got {type(line['input']).__name__}" for line in lines[:MOST_FAULTS]]
            # Or of what a value of the right type holds.
            is_mistyped = any(line["type"].endswith("_type") or line["type"] == "is_instance_of" for line in lines)
            if lines:
                raise _unsayable(dict.fromkeys(zip(places, words, strict=True)), is_mistyped=is_mistyped) from None


@cached
def codec(cls: type[T]) -> Codec[T]:
    """The codec of a parameter type: a dataclass, a pydantic model or a TypedDict; also a generic one, `Page[Item]`.

    Raises:
        SchemaError: the type cannot be closed, or JSON cannot restore its values.
    """
    return Codec(_build(cls, "validation"), "validation")


@overload
def result_codec(kind: type[T]) -> Codec[T]: ...
@overload
def result_codec(kind: object) -> Codec[Any]: ...
@cached
def result_codec(kind: object) -> Codec[Any]:
    """The codec of a result type: any type whose values JSON can say, or a union of such types.

    Raises:
        SchemaError: the type cannot be closed, or JSON cannot restore its values.
    """
    return Codec(_build(kind, "serialization"), "serialization")


@overload
def stored_codec(kind: type[T], *, unambiguous: bool = True) -> Codec[T]: ...
@overload
def stored_codec(kind: object, *, unambiguous: bool = True) -> Codec[Any]: ...
@cached
def stored_codec(kind: object, *, unambiguous: bool = True) -> Codec[Any]:
    """The codec of a type whose values are stored: it writes what that of `result_codec` does, if it can be read back.

    Raises:
        SchemaError: as `result_codec`; or, if it has to be `unambiguous`, JSON does not distinguish the members of a
            union.
    """
    build_ = _build(kind, "serialization")
    if unambiguous and "union" in build_.adapter.kinds:
        check_stored_unions(kind, cast("Core", build_.adapter.type_adapter.core_schema))
    return Codec(build_, "serialization", for_store=True)


def parse(cls: type[T], data: Text | Mapping[str, object]) -> T:
    """Parses a value of the dataclass `cls` from JSON, or from decoded JSON.

    Raises:
        ParseError: the data does not fit; `faults` has all that is wrong with it.
        SchemaError: the type cannot be closed, or JSON cannot restore its values.
    """
    return codec(cls).parse(data)


def schema(cls: type[Any]) -> dict[str, Any]:
    """The JSON Schema of the dataclass `cls`, as a model sees it; a new one each time. Raises `SchemaError`."""
    return codec(cls).schema


def dump(value: object) -> Any:  # noqa: ANN401 - decoded JSON
    """Returns JSON-ready Python, of dict, list, str, int, float, bool and None alone.

    A dataclass is written by its declared types, so that `parse(type(x), dump(x)) == x`; anything else by what it is.

    Raises:
        DumpError: a part of it is not of its declared type, not finite, not Unicode, endless, or has no form in JSON.
        SchemaError: it is of a dataclass that Handrail does not take.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return result_codec(type(value)).dump(value)
    data = encode_json(value)
    if faults := number_faults(data):
        raise _unsayable(faults)
    return _decoded(data)


def _encoded(data: Mapping[str, object]) -> bytes:
    try:
        encoded = encode_json(data)
    except DumpError as error:
        raise parse_error(error.faults) from None
    # After `encode_json`, which refuses a cycle: the two walks through the data below have no bound of their own.
    if not is_decoded(data) and (foreign := tuple(islice(foreign_faults(data), MOST_FAULTS))):
        raise parse_error(foreign)
    return encoded


def _decoded(data: bytes) -> Any:  # noqa: ANN401 - decoded JSON
    try:
        return from_json(data)
    except ValueError as error:
        is_deep = "recursion limit" in str(error)
        fault = TOO_DEEPLY.format(levels=MAX_JSON_DEPTH) if is_deep else f"JSON cannot give it back ({error})"
        raise _unsayable([("$", fault)]) from None


def parse_error(faults: Iterable[Fault]) -> ParseError:
    """The error that has these faults of an input."""
    text = tuple(faults)
    return ParseError(fault_message(text), faults=text)


def _unsayable(faults: Iterable[Fault], *, is_mistyped: bool = False) -> DumpError:
    text = tuple(faults)
    return DumpError(fault_message(text), faults=text, is_mistyped=is_mistyped)


_build: Final = cached(build)
_recheck: Final = cached(partial(closed_adapter, recheck=True))


@cached
def _reader_for_keys(kind: object) -> Callable[..., Any] | None:
    return reader_for_keys(_build(kind, "validation").adapter)


def repair(lines: Sequence[ErrorDetails], schema: Node, data: object, inexact: frozenset[float]) -> bool:
    """Replaces in `data` numbers with a fraction of zero by integers, and texts that hold an array or object by that.

    Returns whether there was one, and no number that the reader has rounded (`inexact`) is at fault.
    """
    spots = locate((line["loc"] for line in lines), schema, data)
    # Of every branch of a union, for each has reported why it does not take the value.
    kinds_at: dict[DataPath, set[str]] = {}
    for spot in spots:
        kinds_at.setdefault(spot.path, set()).update(kind for node in spot.nodes for kind in kinds_asked(node, schema))
    repairs: dict[DataPath, object] = {}
    for spot in spots:
        value, kinds = spot.value, kinds_at[spot.path]
        if isinstance(value, float) and value.is_integer() and "integer" in kinds:
            # What is written for the second reading has no more digits of it.
            if value in inexact:
                return False
            repairs[spot.path] = int(value)
        elif isinstance(value, str) and not spot.is_key and (decoded := decoded_text(value, kinds)) is not None:
            repairs[spot.path] = decoded
    # A number by itself is only read from a store, where an integer is written as one.
    repairs.pop((), None)
    for path, value in repairs.items():
        reduce(getitem, path[:-1], cast("Any", data))[path[-1]] = value
    return bool(repairs)
