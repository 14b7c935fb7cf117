"""Reads arguments for keys: what a default makes up for each call, and the model did not send, is `None`.

A `default_factory` makes another value for each call, an id or a time, and two equal requests would differ by it. One
that makes equal values (`list`, or the copy of a default) is like any other default.

pydantic hands a factory the fields of its record that are read already. That dictionary becomes the fields of the
instance, which identifies the record that a factory was called for. The values are replaced when all has been read:
until then the program's own validators see what the factories made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import core_schema

from handrail.serde.adapter import Adapter, agreeing, core_config
from handrail.serde.core_schemas import Core, rebuilt, replacing, validator_of, without_name

_CONSTANT: Final = (dict, frozenset, list, set, tuple)


class _Reading:
    """The names of the fields that one text of arguments leaves out."""

    __slots__ = ("by_fields", "dataclasses", "records")

    def __init__(self) -> None:
        self.by_fields: dict[int, tuple[object, list[str]]] = {}
        self.dataclasses: list[Sequence[str]] = []  # of those whose fields are read, and that are not made yet
        self.records: list[tuple[object, Sequence[str]]] = []


_READING: Final = ContextVar[_Reading]("reading")


def reader_for_keys(adapter: Adapter) -> Callable[..., Any] | None:
    """The `validate_json` of a parameter type for keys; `None` if no default of the type is made up.

    Args:
        adapter: the adapter of the type.
    """
    made_up: list[str] = []

    def change(part: Core, *, was: Core, made: bool) -> Core:
        del was, made
        kind = part["type"]
        if kind == "dataclass-field" and is_made_up(part["schema"].get("default_factory")):
            made_up.append(part["name"])
            return {**part, "schema": _recording(part["name"], part["schema"])}
        if kind == "model":
            made_up.extend(_factories(part["cls"]))
        after = _AFTER.get(kind)
        if after is None:
            return part
        return replacing(part, core_schema.no_info_after_validator_function(after, without_name(part)))

    if "default" not in adapter.kinds:
        return None
    core = rebuilt(agreeing(adapter.core, core_config(), published=True), change)
    if not made_up:
        return None
    return partial(_read, adapter.guarded(validator_of(core, core_config()).validate_json))


def is_made_up(factory: object) -> bool:
    """Whether a `default_factory` may make another value for each call."""
    is_copy = isinstance(factory, partial) and factory.func is copy.deepcopy
    return factory is not None and not is_copy and not any(factory is each for each in _CONSTANT)


def _factories(model: type[BaseModel]) -> list[str]:
    return [name for name, field in model.model_fields.items() if is_made_up(field.default_factory)]


def _read(validate: Callable[..., Any], data: str | bytes | bytearray, **options: Any) -> Any:  # noqa: ANN401 - any type
    reading = _Reading()
    token = _READING.set(reading)
    try:
        value = validate(data, **options)
    finally:
        _READING.reset(token)
    for record, names in reading.records:
        for name in names:
            object.__setattr__(record, name, None)  # it may be frozen, and is of this reading alone
    return value


def _recording(name: str, default: Core) -> Core:
    factory, takes_data = default["default_factory"], default.get("default_factory_takes_data", False)

    def make(fields: dict[str, Any]) -> object:
        # With the fields, so that no other record gets their identity.
        _READING.get().by_fields.setdefault(id(fields), (fields, []))[1].append(name)
        return factory(fields) if takes_data else factory()

    return {**default, "default_factory": make, "default_factory_takes_data": True}


def _take_fields(fields: tuple[Any, ...]) -> tuple[Any, ...]:
    reading = _READING.get()
    reading.dataclasses.append(reading.by_fields.get(id(fields[0]), (None, ()))[1])
    return fields


def _take_dataclass(value: object) -> object:
    reading = _READING.get()
    reading.records.append((value, reading.dataclasses.pop()))
    return value


def _take_model(value: BaseModel) -> BaseModel:
    sent = value.model_fields_set
    _READING.get().records.append((value, [name for name in _factories(type(value)) if name not in sent]))
    return value


_AFTER: Final[dict[str, Callable[..., Any]]] = {
    "dataclass-args": _take_fields,
    "dataclass": _take_dataclass,
    "model": _take_model,
}
