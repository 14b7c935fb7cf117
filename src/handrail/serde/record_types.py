"""Classes whose values are written as objects with named fields: dataclasses, pydantic models and TypedDicts.

A dataclass is resolved by `supported_types`, which looks at its fields one by one. Of a model pydantic has resolved the
fields already; a TypedDict resolves its own annotations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, Final, NotRequired, Required, TypeGuard, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, PydanticUndefinedAnnotation
from typing_extensions import ReadOnly, is_typeddict

from handrail.serde.annotations import substitute_variables

_QUALIFIERS: Final = frozenset({Required, NotRequired, ReadOnly})
"""What a TypedDict writes around the type of a field."""


def is_record(kind: object) -> TypeGuard[type[Any]]:
    """Whether it is a class of objects with named fields; a generic one without its arguments."""
    cls = cast("type[object]", kind)  # if it is a class
    return isinstance(kind, type) and (is_dataclass(cls) or is_model(cls) or is_typeddict(cls))


def is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    """Whether it is a class of pydantic models."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def model_fault(model: type[BaseModel]) -> tuple[str, str, str] | None:
    """The first thing in a model that JSON could not restore; its field, the fault, and the cure."""
    name = model.__name__
    if model.__pydantic_root_model__:
        return "", f"{name} is a RootModel", "declare the type of its root"
    if model.model_config.get("extra") == "allow":
        return (
            "",
            f'{name} takes unknown fields (extra="allow")',
            "remove the option, and declare a dict for what has no name",
        )
    computed = next(iter(model.model_computed_fields), None)
    if computed is not None:
        return (
            computed,
            "a computed field is written, and could not be read back",
            "make it a property without @computed_field",
        )
    return None


def model_hints(model: type[BaseModel]) -> Mapping[str, Any]:
    """The types of the fields of a model, each with its constraints around it.

    Raises:
        NameError: an annotation cannot be resolved.
    """
    # A model that refers to a later class is completed when it is first used.
    try:
        model.model_rebuild()
    except PydanticUndefinedAnnotation as error:
        raise NameError(f"name {error.name!r} is not defined") from error
    hints: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        options = tuple(field.metadata)
        hints[name] = Annotated[(field.annotation, *options)] if options else field.annotation
    return hints


def typed_dict_hints(kind: object) -> Mapping[str, Any]:
    """The types of the fields of a TypedDict, without what says whether they may be left out.

    Args:
        kind: the class, with its arguments if it is generic.

    Raises:
        NameError: an annotation cannot be resolved.
    """
    cls: Any = get_origin(kind) or kind
    bindings: dict[object, object] = dict(zip(getattr(cls, "__parameters__", ()), get_args(kind), strict=False))
    hints = get_type_hints(cls, include_extras=True)
    return {name: substitute_variables(_unqualified(hint), bindings) for name, hint in hints.items()}


def field_values(value: BaseModel) -> Iterator[tuple[str, object]]:
    """The fields of a model with their values."""
    return ((name, getattr(value, name)) for name in type(value).model_fields)


def _unqualified(hint: Any) -> Any:  # noqa: ANN401 - an annotation may be any object
    while get_origin(hint) in _QUALIFIERS:
        (hint,) = get_args(hint)
    return hint
