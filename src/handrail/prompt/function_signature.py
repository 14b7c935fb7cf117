"""The signature of a function that becomes a tool: the parameters that the model fills, and those that are injected.

| a parameter | is |
|---|---|
| of type `ToolContext` | injected: the context of the call |
| annotated `Annotated[T, Resource]` | injected: the resource bound for `T` |
| of a class that serde cannot read, such as a client or a protocol | injected: the resource bound for that class |
| of such a class with arguments, as `Cache[str]` | injected: the resource bound for `Cache` |
| of any other type | a field of the arguments |

An injected parameter may have a default, or be `T | None`: it gets that where nothing is bound. All this is decided
when the function becomes a tool. At a call the fields are passed by name and the resources are looked up; nothing is
inspected.

What is returned is the value of a success; a `ToolResult` is passed on as it is, and `None` is a success without a
value, which the model reads as `OK`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from types import NoneType, SimpleNamespace
from typing import Any, Final, Never, NoReturn, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from typing_extensions import is_typeddict

from handrail.errors import SchemaError, SignatureFault, ToolSignatureError
from handrail.prompt.arguments import ArgumentField, arguments_class, arguments_dataclass
from handrail.prompt.context import ToolContext
from handrail.prompt.docstrings import Description, description_in
from handrail.prompt.signature import AnyCallable, annotation_names, callable_signature
from handrail.prompt.tool_result import ToolResult
from handrail.resources import Resource
from handrail.serde import codec, stored_codec
from handrail.serde.annotations import is_union, known_type, options_around
from handrail.serde.bounded_cache import BoundedCache
from handrail.serde.formatting import type_name

_DATA: Final = frozenset(
    {"builtins", "collections", "collections.abc", "datetime", "decimal", "pathlib", "types", "uuid"}
)
"""Modules whose classes are data and never resources, whether serde reads them or not."""

_MANY: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})

_RETURN: Final = "return"

_FIELD_MODULE: Final = "pydantic.fields"  # not imported, because it takes longer than all the rest here

_UNRESOLVED: Final = (NameError, AttributeError, TypeError, SyntaxError)


@dataclass(frozen=True, slots=True)
class InjectedParameter:
    """A parameter that is injected.

    Attributes:
        name: its name.
        kind: the class that the resource is bound for; `ToolContext` for the context of the call.
        default: what is passed if nothing is bound; `inspect.Parameter.empty` if the resource must be bound.
        reason: why serde cannot read the type, if that makes it a resource.
    """

    name: str
    kind: type[Any]
    default: object
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """What is known of a function that becomes a tool.

    Attributes:
        function: the function, without what `staticmethod` or `classmethod` puts around it.
        fields: the parameters that the model fills.
        injected: the parameters that are injected.
        params_type: the class of the arguments, a subclass of `Arguments`; `None` for a function without fields.
        result_type: the type of the value that it returns; `None` for none.
        is_async: whether calling it gives an awaitable in any case.
        may_await: whether it may return an awaitable nevertheless, because its annotation does not exclude it.
        description: what its docstring says.
    """

    function: AnyCallable
    fields: tuple[ArgumentField, ...]
    injected: tuple[InjectedParameter, ...]
    params_type: type[Any] | None
    result_type: Any
    is_async: bool
    may_await: bool
    description: Description


def read_signature(
    function: AnyCallable, *, names: Mapping[str, Any] | None = None, is_method: bool = False, takes_data: bool = False
) -> FunctionSignature:
    """Read the signature of a function that is to become a tool.

    Args:
        function: the function.
        names: what its annotations may refer to beside the names of its module, as the variables around it.
        is_method: whether its first parameter is the object, which is bound later.
        takes_data: whether its first parameter takes all arguments as one dict. Then it has no fields.

    Raises:
        ToolSignatureError: it cannot become a tool; the error has every fault.
    """
    return _Reading(function, names or {}, is_method=is_method, takes_data=takes_data).signature()


class _Reading:
    """Reads one signature, and collects its faults."""

    def __init__(self, function: AnyCallable, names: Mapping[str, Any], *, is_method: bool, takes_data: bool) -> None:
        self._function = function
        self._globals = annotation_names(function)
        # A name of the module that the variables around hide is hidden for the function too.
        self._locals = names
        self._takes_data = takes_data
        self._skipped = int(is_method or takes_data)
        self._faults: list[SignatureFault] = []
        self._fields: list[ArgumentField] = []
        self._injected: list[InjectedParameter] = []

    def signature(self) -> FunctionSignature:
        function = self._function
        read = callable_signature(function) if inspect.isroutine(function) else None
        if read is None:
            self._add("", f"it is {_kind_of(function)}; write a function with def and annotations")
            self._refuse()
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            self._add("", "it is a generator, which returns nothing to send to the model; return a list")
        parameters = list(read.parameters.values())
        for parameter in parameters[self._skipped :]:
            self._parameter(parameter)
        if len(parameters) < self._skipped or any(each.kind in _MANY for each in parameters[: self._skipped]):
            self._add("", "its first parameter is missing, which takes the arguments or the object of the method")
        if self._takes_data:
            for each in self._fields:
                self._add(each.name, "the arguments come as one dict; only a context or a resource can be beside it")
        result_type, awaits = self._result(read.return_annotation)
        described = description_in(function.__doc__, read.parameters)
        params_type = self._params_type(described)
        if self._faults:
            self._refuse()
        is_async = inspect.iscoroutinefunction(function)
        # A decorator may have put an `async` function behind a plain one, whose annotations are those of the first.
        may_await = awaits or hasattr(function, "__wrapped__")
        return FunctionSignature(
            function,
            tuple(self._fields),
            tuple(self._injected),
            params_type,
            result_type,
            is_async,
            may_await,
            described,
        )

    def _add(self, parameter: str, text: str) -> None:
        self._faults.append(SignatureFault(parameter, text))

    def _refuse(self) -> NoReturn:
        code: Any = getattr(inspect.unwrap(self._function), "__code__", None)
        raise ToolSignatureError(
            function=getattr(self._function, "__qualname__", type(self._function).__name__),
            file="" if code is None else code.co_filename,
            line=0 if code is None else code.co_firstlineno,
            faults=self._faults,
        )

    # ------------------------------------------------------------------------------------------------------ parameters

    def _parameter(self, parameter: inspect.Parameter) -> None:
        name = parameter.name
        if parameter.kind in _MANY:
            self._add(str(parameter).partition(":")[0], "a model names each argument; declare each as a parameter")
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            self._add(name, "it is positional-only, and arguments have names; remove the /")
        elif name.startswith("__"):
            self._add(name, "names that begin with two underscores are reserved; rename it")
        elif parameter.annotation is inspect.Parameter.empty:
            wanted = f"{name}: ToolContext" if name in {"context", "ctx"} else f"{name}: str, or its type"
            self._add(name, f"it has no annotation; write {wanted}")
        else:
            self._annotated(parameter)

    def _annotated(self, parameter: inspect.Parameter) -> None:
        name, default = parameter.name, parameter.default
        try:
            hint = self._resolved(parameter.annotation)
        except _UNRESOLVED as error:
            self._add(name, _unresolved(parameter.annotation, error))
            return
        if type(default).__module__ == _FIELD_MODULE:
            self._add(name, "a Field(...) is not a default; write Annotated[T, Field(...)], and = and the default")
            return
        options, inner = options_around(hint)
        kind, is_optional = _one_type_in(inner)
        cls = _class_of(kind)
        if default is inspect.Parameter.empty and is_optional:
            default = None
        if any(option is Resource or isinstance(option, Resource) for option in options):
            if cls is None:
                self._add(name, f"a resource is bound for a class, and {type_name(inner)} is not one")
                return
            self._injected.append(InjectedParameter(name, cls, default))
        elif cls is not None and issubclass(cls, ToolContext):
            self._injected.append(InjectedParameter(name, ToolContext, default))
        elif cls is not None and (reason := _unreadable(cls, kind)):
            self._injected.append(InjectedParameter(name, cls, default, reason))
        else:
            self._fields.append(ArgumentField(name, hint, parameter.default))

    def _resolved(self, annotation: object) -> Any:  # noqa: ANN401 - an annotation may be any object
        if (known := known_type(annotation, self._locals, self._globals)) is not None:
            return known
        holder = SimpleNamespace(__annotations__={"it": annotation})
        return get_type_hints(holder, self._globals, dict(self._locals), include_extras=True)["it"]

    def _params_type(self, described: Description) -> type[Any] | None:
        """The class of the arguments; the faults of all fields that serde cannot read are added."""
        if not self._fields:
            return None
        made = arguments_class(self._function, self._fields, described)
        try:
            codec(made)
        except SchemaError as error:
            self._blame(error, described)
        return made

    def _blame(self, error: SchemaError, described: Description) -> None:
        before = len(self._faults)
        for each in self._fields:
            # serde reports the first fault of a type; by itself each field reports its own.
            try:
                codec(arguments_class(self._function, [each], described))
            except SchemaError as own:
                self._add(each.name, _without_place(own, each.name))
        if len(self._faults) == before:
            self._add("", str(error))

    # ---------------------------------------------------------------------------------------------------------- result

    def _result(self, annotation: object) -> tuple[Any, bool]:
        """The type of the value, and whether an awaitable may be returned."""
        if annotation is inspect.Signature.empty:
            return Any, True
        try:
            hint = self._resolved(annotation)
        except _UNRESOLVED as error:
            self._add(_RETURN, _unresolved(annotation, error))
            return Any, True
        members: list[object] = []
        awaits = False
        for member in _members(hint):
            origin = get_origin(member) or member
            if isinstance(origin, type) and issubclass(origin, Awaitable):
                awaits = True
                members.extend(_members((get_args(member) or (Any,))[-1]))
            else:
                members.append(member)
        kind = _union_of([kind for member in members for kind in _values_of(member)])
        awaits = awaits or kind is Any
        if kind is not None:
            try:
                stored_codec(kind)
            except SchemaError as error:
                self._add(_RETURN, f"{type_name(kind)} cannot be the result: {error}")
        return kind, awaits


def _members(hint: object) -> Sequence[Any]:
    inner = options_around(hint)[1]
    return get_args(inner) if is_union(inner) else (hint,)


def _values_of(member: object) -> Iterator[Any]:
    """The types of the values that a returned type means."""
    if get_origin(member) is ToolResult:
        yield from (kind for kind in _members(get_args(member)[0]) if kind not in (Never, NoReturn))
    elif isinstance(member, type) and issubclass(member, ToolResult):
        yield Any
    elif member not in (Never, NoReturn):
        yield member


def _union_of(kinds: Sequence[Any]) -> Any:  # noqa: ANN401 - a type
    """The type of all of some types; `None` if there is no value."""
    if Any in kinds or object in kinds:
        return Any
    found = [NoneType if kind is None else kind for kind in kinds]
    if not found or found == [NoneType]:
        return None
    union: Any = Union  # untyped, because checkers want to see the members written out
    return union[tuple(found)]


def _one_type_in(inner: object) -> tuple[object, bool]:
    """The one type that is meant beside `None`, which is itself if there are several; and whether `None` is meant."""
    if not is_union(inner):
        return inner, False
    others = [kind for kind in get_args(inner) if kind is not NoneType]
    is_optional = len(others) < len(get_args(inner))
    return (options_around(others[0])[1] if len(others) == 1 else inner), is_optional


def _class_of(kind: object) -> type[Any] | None:
    """The class of a type, without its arguments; `None` for what is not a class."""
    cls = get_origin(kind) or kind
    return cls if isinstance(cls, type) and not is_union(kind) else None


_reasons: Final[BoundedCache[tuple[str]]] = BoundedCache()


def _unreadable(cls: type[Any], kind: Any) -> str:  # noqa: ANN401 - a type
    """Why serde cannot read a type that a resource may have; empty if it can, or no resource could have it.

    Args:
        cls: the class of the type.
        kind: the type: the class, with its arguments if it is generic.
    """
    if cls.__module__ in _DATA or issubclass(cls, Enum | BaseModel | tuple | str | AbstractSet) or is_typeddict(cls):
        return ""
    return _reasons.get(kind, lambda: (_reason_of(kind),))[0]


def _reason_of(kind: Any) -> str:  # noqa: ANN401 - as above
    try:
        codec(arguments_dataclass("Held", {"it": kind}, {}))
    except SchemaError as error:
        return f"{type_name(kind)} cannot be an argument: {_without_place(error, 'it')}"
    return ""


def _without_place(error: SchemaError, name: str) -> str:
    """The text of an error of serde, with the path below the parameter only."""
    path, _, text = str(error).partition(": ")
    below = path.removeprefix(f"$.{name}")
    return f"{below.lstrip('.')}: {text}" if below and below != path else text or path


def _unresolved(annotation: object, error: Exception) -> str:
    return (
        f"its annotation {annotation!r} cannot be resolved ({error}); define or import the type above the function, "
        "outside TYPE_CHECKING blocks"
    )


def _kind_of(value: object) -> str:
    return "a class" if isinstance(value, type) else f"of type {type(value).__name__}"
