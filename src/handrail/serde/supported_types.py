"""Which types Handrail takes: dataclasses, pydantic models, TypedDicts, and below them what JSON can restore.

`accept_type` walks the annotations of a type before pydantic sees it, because pydantic takes much that would leave a
schema open (models of unknown fields, and dataclasses with a configuration of their own) or that JSON could not restore
(a field that the constructor does not take, an enum of tuples), and names no field when it gives up. Every refusal says
where, and what to write instead.

pydantic passes over words that it does not know, so that a constraint in the spelling of JSON Schema, or in a
dictionary inside `Annotated`, would constrain nothing, without a word. Such words are refused; all other metadata is
the program's own, and is left alone. What pydantic makes of the words that it reads is looked at by `build`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import MISSING, Field, InitVar, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, cast, get_args, get_origin
from uuid import UUID

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json

from handrail.errors import SchemaError
from handrail.serde.adapter import BUILD_ERRORS, closed_adapter
from handrail.serde.annotations import is_model, is_record, is_union, options_around, record_types, strip_annotated
from handrail.serde.core_schemas import CHANGING, HOLDING, cached
from handrail.serde.formatting import shorten, type_name
from handrail.serde.json_values import escape_surrogates, parts_of_value

TypeFault = tuple[str, str]
"""What is wrong, and what to write instead."""

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
    (
        lambda cls: issubclass(cls, enum.Flag),
        "{} is a Flag, which JSON cannot restore",
        "use a frozenset of an Enum",
    ),
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

SCALARS: Final = frozenset({str, int, float, bool, NoneType, bytes, Decimal, UUID, datetime, date, time, timedelta})
"""The classes of values that JSON says as one text, number or constant."""

_KEYS: Final = SCALARS - {NoneType} | {Any, object}
_HASHED = (str, bytes, frozenset)
_DEEPEST = 60
_LONGEST_PATH = 60
_FIELD_MODULE = "pydantic.fields"  # not imported, because it takes longer than all the rest here


class AcceptedType(NamedTuple):
    """A dataclass, a pydantic model or a TypedDict that stands somewhere in a type.

    Attributes:
        cls: the class.
        hints: the types of its fields, with type variables replaced.
    """

    cls: type[Any]
    hints: Mapping[str, Any]


class TypePlace(NamedTuple):
    """A place in a type.

    Attributes:
        path: where it is.
        kind: the type that is written there.
        metadata: that of the field, if it is one of a dataclass.
    """

    path: str
    kind: object
    metadata: Mapping[Any, Any]


@cached
def accept_type(kind: object) -> tuple[AcceptedType, ...]:
    """The dataclasses in `kind`, outermost first, once all of it has been found fit.

    Raises:
        SchemaError: something in it cannot be closed, or JSON cannot give it back; `path` says where.
    """
    return tuple(TypeWalk(kind, "$").records)


def refuse_first(faults: Iterable[TypeFault], kind: object, path: str) -> None:
    """Raises the `SchemaError` that names the place, the first thing that is wrong there, and what to write instead."""
    for fault, cure in faults:
        raise SchemaError(f"{path}: {fault}; {cure}", type=kind, path=path)


class TypeWalk:
    """A walk through a type that is fit; remembers what it has seen, because types may be recursive.

    Attributes:
        records: the dataclasses, models and TypedDicts, outermost first.
        places: all places, each before those inside of it.
    """

    __slots__ = ("_seen", "places", "records")

    def __init__(self, kind: object, path: str) -> None:
        """Goes through a type.

        Args:
            kind: the type.
            path: where it stands.

        Raises:
            SchemaError: it is not fit; `path` says where.
        """
        self.records: list[AcceptedType] = []
        self.places: list[TypePlace] = []
        self._seen: list[object] = []
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
        if kind in self._seen:
            return False
        self._seen.append(kind)
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
            if issubclass(cls, AbstractSet):
                refuse_first(_item_faults(args[0]), args[0], f"{path}[*]")
            self._visit(args[0], f"{path}[*]", depth)

    def _record(self, cls: type[Any], kind: object, path: str, depth: int) -> None:
        own: Mapping[str, Field[Any]] = getattr(cls, "__dataclass_fields__", {})
        for name, fault in _member_faults(cls, own):
            refuse_first([fault], cls, f"{path}.{name}")
        hints = record_types(kind, path)
        self.records.append(AcceptedType(cls, hints))
        for name, hint in hints.items():
            if name in own:
                refuse_first(_field_faults(own[name], hint), hint, f"{path}.{name}")
            self._visit(hint, f"{path}.{name}", depth, own.get(name))


def _member_faults(cls: type[Any], own: Mapping[str, Field[Any]]) -> Iterator[tuple[str, TypeFault]]:
    """What is wrong with members of a record that have no type to look at, each with its name."""
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
        key = strip_annotated(args[0])
        texts = [isinstance(value, str) for value in _choices(key)]
        if not (texts and all(texts)) and not any(key is each for each in _KEYS):
            yield f"its keys are of type {type_name(args[0])}, but a key in JSON is a string", "use str keys"


def _choice_faults(kind: object) -> Iterator[TypeFault]:
    # Exact types: a `bool` for an enum, or a subclass, would come back as another value.
    restored = {str, int, bool, NoneType} if get_origin(kind) is Literal else {str, int, float}
    for value in _choices(kind):
        if type(value) not in restored:
            yield f"{type_name(kind)} has the choice {value!r}, which JSON cannot restore", "use strings or numbers"


def _choices(kind: object) -> tuple[object, ...]:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(member.value for member in kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def _item_faults(kind: object) -> Iterator[TypeFault]:
    """Refuses an item of a set that has no hash: what the schema takes could not be read."""
    inner = strip_annotated(kind)
    cls: Any = get_origin(inner) or inner
    if is_union(inner) or (isinstance(cls, type) and issubclass(cls, tuple)):
        for part in get_args(inner):
            yield from _item_faults(part)
    elif isinstance(cls, type):
        has_hash = cls.__hash__ is not None
        # `Sequence` and its like have the hash of `object`, but are read as a list, which has none.
        if not has_hash or (issubclass(cls, Sequence | Mapping | AbstractSet) and not issubclass(cls, _HASHED)):
            cure = "use tuple, frozenset, or a dataclass with @dataclass(frozen=True)"
            yield f"{type_name(kind)} has no hash, so that it cannot be an item of a set", cure


# --------------------------------------------------------------------------------------------------------------- fields


def _field_faults(field: Field[Any], hint: object) -> Iterator[TypeFault]:
    if not field.init:
        yield "the constructor does not take it (init=False), so it could not be restored", "make it a property"
    if type(field.default).__module__ == _FIELD_MODULE:
        yield "a plain dataclass takes pydantic's Field(...) for its default", "use field(metadata={...})"
    yield from _described_faults(field.metadata.get)
    # pydantic takes None for a word that is not given.
    yield from _word_faults((word for word, value in field.metadata.items() if value is not None), "in its metadata")
    # A default factory is not called here: it may do anything, and its value is not in the schema.
    if field.default is not MISSING:
        if fault := default_fault(field.default, hint):
            yield fault
        yield from _shared_faults(field.default)


def _described_faults(said: Callable[[str, None], object]) -> Iterator[TypeFault]:
    """What is wrong with what a `Field` says, or the metadata of a field, by its words."""
    for word, (why, cure) in _RENAMING.items():
        if said(word, None) is not None:
            yield f"{word} is not taken, because {why}", cure
    for word in ("title", "description"):
        text = said(word, None)
        if isinstance(text, str) and escape_surrogates(text) is not text:
            yield f"its {word} has a lone surrogate, which is not Unicode", "leave it out"
    # A function that changes the schema is the program's own; a format describes, in JSON Schema too.
    extra: object = said("json_schema_extra", None)
    extra_words = cast("Mapping[object, object]", extra) if isinstance(extra, Mapping) else ()
    yield from _word_faults(
        extra_words, "in json_schema_extra is shown to the model and", (WORDS | _SHAPING) - {"format"}
    )


def _shared_faults(default: object) -> Iterator[TypeFault]:
    # pydantic copies for each value what has no hash.
    if is_mutable(default):
        with suppress(TypeError):
            hash(default)
            cure = "use a default_factory, or make it immutable: a frozen dataclass, a tuple"
            yield "its default is mutable, and all values would share it", cure


def is_mutable(value: object) -> bool:
    """Whether a default can be changed, itself or in what it holds; a hash by identity does not say that it cannot."""
    cls = type(value)
    if is_dataclass(cls):
        is_changed = not cast("Any", cls).__dataclass_params__.frozen
    else:
        has_identity = cls.__hash__ is object.__hash__ and hasattr(value, "__dict__") and not isinstance(value, type)
        is_changed = cls.__hash__ is None or has_identity
    return is_changed or any(is_mutable(part) for _, part in parts_of_value(value))


def default_fault(default: object, hint: object) -> TypeFault | None:
    """Why `default` cannot be what a field of this type holds; `None` if it can."""
    why = _unfit_default(default, hint)
    shown = type_name(strip_annotated(hint))
    return (f"its default does not fit {shown} ({why})", "change the default or the type") if why else None


_field_adapter: Final = cached(closed_adapter)


def _unfit_default(default: object, hint: Any) -> str:  # noqa: ANN401 - an annotation may be any object
    """Why `default` cannot be what the field holds, or nothing; a contradiction here would reach the model's schema."""
    # The commonest defaults, for which no adapter has to be made; some text JSON cannot say.
    is_plain = type(default) is hint and (hint is int or hint is bool or (hint is str and str(default).isascii()))
    if is_plain or (default is None and NoneType in (hint, *get_args(hint))):
        return ""
    try:
        adapter = _field_adapter(hint)
        adapter.validator.validate_python(default, strict=True)
    except ValidationError as error:
        return error.errors(include_url=False, include_input=False)[0]["msg"]
    except BUILD_ERRORS:
        return ""  # the type itself is at fault, and building the whole reports it
    try:
        # A default is published in the schema, so it has to be JSON that others can read: NaN is not.
        from_json(adapter.serializer.to_json(default, warnings="error"), allow_inf_nan=False)
    except (PydanticSerializationError, ValueError):
        return "JSON cannot say it"
    return ""


# ---------------------------------------------------------------------------------------------------------------- words


ACTING: Final = frozenset({*HOLDING}) - {*CHANGING}
"""The words that constrain a field: as arguments of `Field`, and as keys of `field(metadata=...)`."""

_SPELLINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("minimum", "min", "min_value"), "ge"),
    **dict.fromkeys(("maximum", "max", "max_value"), "le"),
    **dict.fromkeys(("exclusiveMinimum", "exclusive_minimum"), "gt"),
    **dict.fromkeys(("exclusiveMaximum", "exclusive_maximum"), "lt"),
    "multipleOf": "multiple_of",
    **dict.fromkeys(("length", "minLength", "minItems", "min_items", "minProperties", "min_properties"), "min_length"),
    **dict.fromkeys(("maxLength", "maxItems", "max_items", "maxProperties", "max_properties"), "max_length"),
    **dict.fromkeys(("regex", "regexp"), "pattern"),
    **{word: word for word in ACTING},
}
"""Words of JSON Schema and of other libraries, with those that act."""

_BY_TYPE: Final = frozenset(
    {"const", "enum", "choices", "format", "uniqueItems", "unique_items", "coerce_numbers_to_str"} | {*CHANGING}
)
"""Words that a type says instead."""

WORDS: Final = frozenset({*_SPELLINGS, *_BY_TYPE})
"""All words that constrain a field, in this spelling or place or in another."""

_SHAPING: Final = frozenset(
    {"type", "items", "prefixItems", "properties", "required", "additionalProperties", "propertyNames", "$ref"}
    | {"patternProperties", "anyOf", "oneOf", "allOf", "not"}
)
"""Words of JSON Schema that a type says."""

_READ_BY_PYDANTIC: Final = frozenset({"pydantic", "annotated_types", "typing", "typing_extensions"})


def _word_faults(
    words: Iterable[object], where: str, refused: Collection[object] = WORDS - ACTING
) -> Iterator[TypeFault]:
    for word in words:
        if word in refused:
            acting = _SPELLINGS.get(str(word))
            by_type = "a type that says it: a Literal, a set, datetime, int | str, or StringConstraints of pydantic"
            cure = f"Annotated[..., Field({acting}=...)] with pydantic's Field" if acting else by_type
            yield f"{word!r} {where} constrains nothing", f"write {cure}"


def _option_faults(option: object) -> Iterator[TypeFault]:
    """What is wrong with an option of `Annotated` that gives a second name, hides, or constrains nothing."""
    cls = type(option)
    if isinstance(option, Mapping):
        yield from _word_faults(cast("Mapping[object, object]", option), "in a dictionary inside Annotated", WORDS)
    # With this hook an object defines its own core schema, whatever else its attributes are called.
    elif cls.__module__.partition(".")[0] in _READ_BY_PYDANTIC or hasattr(option, "__get_pydantic_core_schema__"):
        yield from _described_faults(partial(getattr, option))
