"""Annotations, and which types Handrail takes.

`accept_type` walks the annotations of a type before pydantic sees it, because pydantic takes much that would leave a
schema open (models of unknown fields, and dataclasses with a configuration of their own) or that JSON could not restore
(a field that the constructor does not take, an enum of tuples), and names no field when it gives up. Every refusal says
where, and what to write instead.
"""

from __future__ import annotations

import enum
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, FrozenInstanceError, InitVar, fields, is_dataclass
from datetime import date
from functools import partial
from types import NoneType
from typing import Annotated, Any, Final, NamedTuple, TypeGuard, TypeVar, cast, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic import BaseModel
from typing_extensions import ReadOnly, TypeAliasType, is_typeddict

from handrail.errors import SchemaError
from handrail.serde.core_schemas import CHANGING, cached
from handrail.serde.formatting import shorten, type_name
from handrail.serde.json_schema import SHAPING, WORDS, TypeFault, word_faults
from handrail.serde.json_values import parts_of_value

_ALIASES: tuple[type[Any], ...] = (TypeAliasType, getattr(typing, "TypeAliasType", TypeAliasType))
_UNIONS = (typing.Union, types.UnionType)

Bindings = Mapping[object, object]
"""What stands for each type variable inside one class."""

C = TypeVar("C", bound=type[Any])


def subscriptable(cls: C) -> C:
    """Lets a frozen, slotted, generic dataclass be made by its subscripted name, as in `ToolResult[str](...)`."""
    # `typing` sets `__orig_class__` on what it makes, and expects an `AttributeError` if it cannot. On Python 3.11 the
    # `__setattr__` of such a dataclass raises a `TypeError`: its `super` refers to the class without slots.
    cast("Any", cls).__setattr__ = _refuse_attribute  # of the class, where checkers see that of an object
    return cls


def _refuse_attribute(_: object, name: str, _value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def strip_annotated(kind: object) -> object:
    """`kind` without what only decorates or names it: `Annotated`, `Final`, `NewType`, type aliases."""
    return options_around(kind)[1]


def options_around(kind: object) -> tuple[tuple[object, ...], object]:
    """The options of every `Annotated` around a type, and the type without what only decorates or names it.

    The text of an alias, as in `TypeAliasType("Many", "list[T]")`, is evaluated; one that cannot be stays a text.
    """
    # Most types are classes, and all below takes longer.
    if type(kind) is type:
        return (), kind
    options: tuple[object, ...] = ()
    while True:
        origin = get_origin(kind)
        alias: Any = origin if isinstance(origin, _ALIASES) else kind
        if origin is Annotated:
            kind, *own = get_args(kind)
            options = (*options, *own)
        elif origin is Final:
            kind = get_args(kind)[0]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif isinstance(alias, _ALIASES):
            kind = substitute_variables(
                _alias_value(alias), dict(zip(alias.__type_params__, get_args(kind), strict=False))
            )
        else:
            return options, kind


def _alias_value(alias: Any) -> object:  # noqa: ANN401 - an alias of either module
    if not isinstance(alias.__value__, str):
        return alias.__value__
    # The alias itself too, because it may be recursive and defined in a function.
    names = {**vars(sys.modules[alias.__module__]), alias.__name__: alias}
    parameters = {parameter.__name__: parameter for parameter in alias.__type_params__}
    try:
        return _evaluated("value", alias.__value__, names, parameters)
    except _UNRESOLVED:
        return alias.__value__


def is_union(kind: object) -> bool:
    """Returns whether `kind` is written `A | B`, `Union[A, B]` or `Optional[A]`."""
    return type(kind) is not type and get_origin(kind) in _UNIONS


def substitute_variables(hint: Any, bindings: Bindings) -> object:  # noqa: ANN401 - an annotation may be any object
    """`hint` with its type variables replaced; those that are not bound stay."""
    if isinstance(hint, TypeVar):
        return bindings.get(hint, hint)
    parameters: tuple[object, ...] = getattr(hint, "__parameters__", ())
    # A generic class without arguments has parameters too, but they are its own and not those of the class around it.
    if isinstance(hint, type) or not any(parameter in bindings for parameter in parameters):
        return hint
    return hint[tuple(bindings.get(parameter, parameter) for parameter in parameters)]


def bindings_by_class(cls: type[Any], args: Sequence[object]) -> Mapping[type[Any], Bindings]:
    """For `cls[args]` and each generic class above it, the types in place of that class's own type variables.

    One variable may mean different things in a class and in its base: `class B(A[list[T]], Generic[T])`.
    """
    own: Bindings = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
    by_class: dict[type[Any], Bindings] = {cls: own}
    # From `vars`: a subclass that is not generic inherits the attribute of its base, which says nothing about its own
    # bases.
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = get_origin(base) or base
        if isinstance(origin, type) and origin is not object:
            by_class |= bindings_by_class(origin, [substitute_variables(arg, own) for arg in get_args(base)])
    return by_class


_QUALIFIERS: Final = frozenset({typing.Required, typing.NotRequired, ReadOnly})
"""What a TypedDict writes around the type of a field."""


def is_record(kind: object) -> TypeGuard[type[Any]]:
    """Returns whether it is a class of objects with named fields; a generic one without its arguments."""
    cls = cast("type[object]", kind)  # if it is a class
    return isinstance(kind, type) and (is_dataclass(cls) or is_model(cls) or is_typeddict(cls))


def is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    """Returns whether it is a class of pydantic models."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@cached
def record_types(kind: object, path: str = "$") -> Mapping[str, Any]:
    """The types of the fields of a record class, with type variables replaced; raises `SchemaError`."""
    cls = cast("type[Any]", get_origin(kind) or kind)
    if is_dataclass(cls):
        bindings = bindings_by_class(cls, get_args(kind))
        types: dict[str, Any] = {}
        for field in fields(cls):
            owner = _owner(cls, field)
            types[field.name] = substitute_variables(_field_type(field, owner, path), bindings.get(owner, {}))
        return types
    try:
        return _model_types(cls) if is_model(cls) else _typed_dict_types(cls, get_args(kind))
    except _UNRESOLVED as error:
        raise _unresolved(f"an annotation of {cls.__name__}", cls, path, error) from error


def _owner(cls: type[Any], field: Field[Any]) -> type[Any]:
    # A subclass holds the very same `Field` object as the base, so that the topmost class with it has written it.
    return next(
        base for base in reversed(cls.__mro__) if vars(base).get("__dataclass_fields__", {}).get(field.name) is field
    )


def _field_type(field: Field[Any], owner: type[Any], path: str) -> object:
    # The class names itself where its module does not: in a function, or while the module is still being imported.
    names = {owner.__name__: owner} | {p.__name__: p for p in getattr(owner, "__type_params__", ())}
    module = sys.modules.get(owner.__module__)
    global_names = vars(module) if module else {}
    # One field at a time: `get_type_hints` of the class would fail as a whole, and not say for which field.
    try:
        return _evaluated(field.name, field.type, global_names, names)
    except _UNRESOLVED as error:
        raise _unresolved(f"its annotation {field.type!r}", owner, f"{path}.{field.name}", error) from error


_UNRESOLVED: Final = (NameError, AttributeError, SyntaxError, TypeError)
"""What an annotation raises that cannot be evaluated."""


def _evaluated(name: str, annotation: object, names: dict[str, Any], inner: dict[str, Any]) -> object:
    holder = type("Holder", (), {"__annotations__": {name: annotation}})
    return get_type_hints(holder, names, inner, include_extras=True)[name]


def _unresolved(what: str, owner: type[Any], path: str, error: Exception) -> SchemaError:
    reason, cure = str(error).splitlines()[0], "outside functions and TYPE_CHECKING blocks"
    text = f"{path}: {what} cannot be resolved ({reason}); define or import the type at the top level of "
    return SchemaError(f"{text}{owner.__module__}, {cure}", type=owner, path=path)


def _model_types(model: type[BaseModel]) -> Mapping[str, Any]:
    model.model_rebuild()  # one that refers to a later class is completed when it is first used
    return {
        name: Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        for name, field in model.model_fields.items()
    }


def _typed_dict_types(cls: Any, args: Sequence[object]) -> Mapping[str, Any]:  # noqa: ANN401 - a TypedDict
    bindings: dict[object, object] = dict(zip(getattr(cls, "__parameters__", ()), args, strict=False))
    hints = get_type_hints(cls, include_extras=True)
    return {name: substitute_variables(_unqualified(hint), bindings) for name, hint in hints.items()}


def _unqualified(hint: Any) -> Any:  # noqa: ANN401 - an annotation may be any object
    while get_origin(hint) in _QUALIFIERS:
        (hint,) = get_args(hint)
    return hint


_PLAIN: Final = "write it as a plain @dataclass(frozen=True, slots=True)"

_REFUSED: Final[Sequence[tuple[Callable[[Any], bool], str, str]]] = (
    (lambda cls: is_model(cls) and cls.__pydantic_root_model__, "{} is a RootModel", "declare the type of its root"),
    (
        lambda cls: is_model(cls) and cls.model_config.get("extra") == "allow",
        '{} takes unknown fields (extra="allow")',
        "remove the option, and declare a dict for what has no name",
    ),
    (lambda cls: hasattr(cls, "_fields") and issubclass(cls, tuple), "{} is a NamedTuple", _PLAIN),
    # A pydantic dataclass has the second, and a plain one may have the first: `closed_adapter` does not reach into it.
    (
        lambda cls: not is_model(cls) and any(hasattr(cls, f"__pydantic_{own}__") for own in ("config", "validator")),
        "{} carries a pydantic configuration of its own",
        _PLAIN,
    ),
    (lambda cls: issubclass(cls, enum.Flag), "{} is a Flag, which JSON cannot restore", "use a frozenset of an Enum"),
    (lambda cls: issubclass(cls, enum.Enum) and not len(cls), "{} has no members, so no value fits", "give it members"),
    (lambda cls: cls is type, "a class has no form in JSON", "use a Literal or an Enum of the names to choose from"),
    (
        lambda cls: cls.__module__ == "collections.abc" and not issubclass(cls, Collection),
        "{} does not say what JSON is taken, or can be read only once",
        "use list or tuple for many values, and else a union of the types that are meant",
    ),
)
"""Classes that are not taken: which, what is wrong, and what to write instead."""

_SECOND_NAME: Final = ("one field has one name everywhere", "rename the field")
_RENAMING: Final[Mapping[str, TypeFault]] = {
    **dict.fromkeys(("alias", "validation_alias", "serialization_alias"), _SECOND_NAME),
    "exclude": (
        "a value that is written without the field could not be read back",
        "remove it; declare SecretStr for what is not to be shown",
    ),
}
"""What gives a field a second name or hides it: why that is not taken, and what to write instead."""

_KEYS: Final = frozenset({str, int, UUID, date, Any, object})
_DEEPEST = 60
_LONGEST_PATH = 60
_FIELD_MODULE = "pydantic.fields"  # not imported, because it takes longer than all the rest here


class AcceptedType(NamedTuple):
    """A dataclass, a pydantic model or a TypedDict in a type, with the types of its fields."""

    cls: type[Any]
    hints: Mapping[str, Any]


class TypePlace(NamedTuple):
    """A place in a type: its path, the type there, and the metadata of a field of a dataclass."""

    path: str
    kind: object
    metadata: Mapping[Any, Any]


@cached
def accept_type(kind: object) -> tuple[AcceptedType, ...]:
    """The dataclasses in `kind`, outermost first, if all of it is accepted.

    Raises:
        SchemaError: a part of it cannot be closed, or JSON cannot restore it; `path` says where.
    """
    return tuple(TypeWalk(kind, "$").records)


def refuse_first(faults: Iterable[TypeFault], kind: object, path: str) -> None:
    """Raises the `SchemaError` of the first fault, if there is one: the place, the fault, and what to write instead."""
    for fault, cure in faults:
        raise SchemaError(f"{path}: {fault}; {cure}", type=kind, path=path)


class TypeWalk:
    """A walk through a type that is fit; remembers what it has seen, because types may be recursive."""

    __slots__ = ("_visited", "places", "records")

    def __init__(self, kind: object, path: str) -> None:
        self.records: list[AcceptedType] = []  # the dataclasses, models and TypedDicts, outermost first
        self.places: list[TypePlace] = []  # all places, each before those inside of it
        self._visited: list[object] = []
        self._visit(kind, path)

    def _visit(self, kind: object, path: str, depth: int = 0, field: Field[Any] | None = None) -> None:
        # A generic type that holds itself with ever larger arguments, `Node[list[T]]`, is new at every level.
        if depth > _DEEPEST:
            cure = "let a recursive type refer to itself as it is"
            refuse_first([("its types nest without end", cure)], kind, shorten(path, _LONGEST_PATH))
        self.places.append(TypePlace(path, kind, field.metadata if field else {}))
        options, inner = options_around(kind)
        refuse_first((fault for option in options for fault in _option_faults(option)), kind, path)
        # An alias may hold itself without a dataclass between.
        if inner is not kind and not self._is_new(kind):
            return
        if is_union(inner):
            for member in get_args(inner):
                self._visit(member, path, depth + 1)
        refuse_first(_choice_faults(inner), kind, path)
        if isinstance(cls := get_origin(inner) or inner, type):
            self._class(cls, inner, path, depth + 1)

    def _is_new(self, kind: object) -> bool:
        # A list, because an annotation may hold options that have no hash.
        if kind in self._visited:
            return False
        self._visited.append(kind)
        return True

    def _class(self, cls: type[Any], kind: object, path: str, depth: int) -> None:
        args = get_args(kind)
        refuse_first(_class_faults(cls, args), kind, path)
        if is_record(cls):
            # By the type with its arguments: `Page[A]` and `Page[B]` have fields of different types.
            if self._is_new(kind):
                self._record(cls, kind, path, depth)
        elif issubclass(cls, Mapping):
            for arg in args:
                self._visit(arg, f"{path}.*", depth)
        # Before `Collection`, which a tuple is too: each position has a type of its own.
        elif issubclass(cls, tuple) and args[-1:] != (...,):
            for position, arg in enumerate(args):
                self._visit(arg, f"{path}[{position}]", depth)
        elif issubclass(cls, Collection) and args:
            self._visit(args[0], f"{path}[*]", depth)

    def _record(self, cls: type[Any], kind: object, path: str, depth: int) -> None:
        own: Mapping[str, Field[Any]] = getattr(cls, "__dataclass_fields__", {})
        for name, fault in _member_faults(cls, own):
            refuse_first([fault], cls, f"{path}.{name}")
        hints = record_types(kind, path)
        self.records.append(AcceptedType(cls, hints))
        for name, hint in hints.items():
            if name in own:
                refuse_first(_field_faults(own[name]), hint, f"{path}.{name}")
            self._visit(hint, f"{path}.{name}", depth, own.get(name))


def _member_faults(cls: type[Any], own: Mapping[str, Field[Any]]) -> Iterator[tuple[str, TypeFault]]:
    # Not those of `dataclasses.fields`, which leaves an `InitVar` out.
    for name, field in own.items():
        if isinstance(field.type, InitVar) or (isinstance(field.type, str) and "InitVar" in field.type):
            yield name, ("an InitVar is not stored in the value, so it could not be restored", "make it a field")
    if is_model(cls):
        for name in cls.model_computed_fields:
            yield name, ("a computed field is written, and could not be read back", "make it a plain property")
        for name, info in cls.model_fields.items():
            yield from ((name, fault) for fault in _described_faults(partial(getattr, info)))
            yield from ((name, fault) for fault in _shared_faults(info.default))


def _class_faults(cls: type[Any], args: Sequence[object]) -> Iterator[TypeFault]:
    yield from ((what.format(type_name(cls)), cure) for fits, what, cure in _REFUSED if fits(cls))
    if args and not is_record(cls) and issubclass(cls, Mapping):
        options, key = options_around(args[0])
        # Two keys that mean the same would be one, and no key is masked.
        is_changed = any(getattr(option, word, None) for option in options for word in (*CHANGING, "json_schema_extra"))
        texts = [isinstance(value, str) for value in _choices(key)]
        if is_changed or not (all(texts) if texts else any(key is key_type for key_type in _KEYS)):
            yield f"its keys are of type {type_name(args[0])}, but a key in JSON is a string", "use str keys"


def _choice_faults(kind: object) -> Iterator[TypeFault]:
    # Exact types: a `bool` for an enum, or a subclass, would come back as another value.
    exact = {str, int, bool, NoneType} if get_origin(kind) is typing.Literal else {str, int, float}
    for value in _choices(kind):
        if type(value) not in exact:
            yield f"{type_name(kind)} has the choice {value!r}, which JSON cannot restore", "use strings or numbers"


def _choices(kind: object) -> tuple[object, ...]:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(member.value for member in kind)
    return get_args(kind) if get_origin(kind) is typing.Literal else ()


def _field_faults(field: Field[Any]) -> Iterator[TypeFault]:
    if not field.init:
        yield "the constructor does not take it (init=False), so it could not be restored", "make it a property"
    if type(field.default).__module__ == _FIELD_MODULE:
        yield "a plain dataclass takes pydantic's Field(...) for its default", "use field(metadata={...})"
    yield from _described_faults(field.metadata.get)
    # pydantic takes None for a word that is not given.
    yield from word_faults((word for word, value in field.metadata.items() if value is not None), "in its metadata")
    # A default factory is not called here: it may do anything, and its value is not in the schema.
    if field.default is not MISSING:
        yield from _shared_faults(field.default)


def _described_faults(read_word: Callable[[str, None], object]) -> Iterator[TypeFault]:
    for word, (why, cure) in _RENAMING.items():
        if read_word(word, None) is not None:
            yield f"{word} is not taken, because {why}", cure
    # A format describes, in JSON Schema too.
    extra: object = read_word("json_schema_extra", None)
    if callable(extra):  # it may mark the field as secret
        yield "a function in json_schema_extra is not taken", "write a dictionary"
    extra_words = cast("Mapping[object, object]", extra) if isinstance(extra, Mapping) else ()
    yield from word_faults(
        extra_words, "in json_schema_extra is shown to the model and", (WORDS | SHAPING) - {"format"}
    )


def _shared_faults(default: object) -> Iterator[TypeFault]:
    # pydantic copies for each value what has no hash.
    if is_mutable(default):
        with suppress(TypeError):
            hash(default)
            cure = "use a default_factory, or make it immutable: a frozen dataclass, a tuple"
            yield "its default is mutable, and all values would share it", cure


def is_mutable(value: object) -> bool:
    """Returns whether a default can be changed, itself or in what it holds, whatever its hash."""
    cls = type(value)
    if is_dataclass(cls):
        is_changed = not cast("Any", cls).__dataclass_params__.frozen
    else:
        has_identity = cls.__hash__ is object.__hash__ and hasattr(value, "__dict__") and not isinstance(value, type)
        is_changed = cls.__hash__ is None or has_identity
    return is_changed or any(is_mutable(part) for _, part in parts_of_value(value))


_READ_BY_PYDANTIC: Final = frozenset({"pydantic", "annotated_types", "typing", "typing_extensions"})


def _option_faults(option: object) -> Iterator[TypeFault]:
    cls = type(option)
    if isinstance(option, Mapping):
        yield from word_faults(cast("Mapping[object, object]", option), "in a dictionary inside Annotated", WORDS)
    # With this hook an object defines its own core schema, whatever else its attributes are called.
    elif cls.__module__.partition(".")[0] in _READ_BY_PYDANTIC or hasattr(option, "__get_pydantic_core_schema__"):
        yield from _described_faults(partial(getattr, option))
