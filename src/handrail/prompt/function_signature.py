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
inspected: the handler (`handler_of`) passes the arguments by name, injects, and makes a result of the value.

What is returned is the value of a success; a `ToolResult` is passed on as it is, and `None` is a success without a
value, which the model reads as `OK`. A file, or a list of files and text, is the parts of a result without a value.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import partial
from types import MappingProxyType, NoneType, SimpleNamespace
from typing import Any, Final, NamedTuple, Never, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from typing_extensions import is_typeddict

from handrail.errors import SchemaError, SignatureFault, ToolSignatureError
from handrail.prompt.arguments import ArgumentField, Description, arguments_class, arguments_dataclass, description_in
from handrail.prompt.content_parts import TextPart, is_file_type, parts_of_files
from handrail.prompt.context import ToolContext
from handrail.prompt.signature import AnyCallable, annotation_names, callable_signature
from handrail.prompt.tool_declaration import description_fault, name_fault, near_name
from handrail.prompt.tool_result import ToolResult
from handrail.resources import Resource
from handrail.serde import codec, result_codec
from handrail.serde.annotations import default_fault, is_mutable, is_union, known_type, options_around
from handrail.serde.core_schemas import cached
from handrail.serde.formatting import type_name

_DATA: Final = frozenset(
    {"builtins", "collections", "collections.abc", "datetime", "decimal", "pathlib", "types", "uuid"}
)
"""Modules whose classes are data and never resources, whether serde reads them or not."""

_MANY: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})

_MANY_FAULT: Final = (
    "a model names each argument; declare each as a parameter, or, in a decorator, copy the signature with "
    "functools.wraps"
)

_RETURN: Final = "return"

_FIELD_MODULE: Final = "pydantic.fields"  # not imported, because it takes longer than all the rest here

_UNRESOLVED: Final = (NameError, AttributeError, TypeError, SyntaxError)


class InjectedParameter(NamedTuple):
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

    @property
    def must_be_bound(self) -> bool:
        """Whether a resource must be bound for it."""
        return self.kind is not ToolContext and self.default is inspect.Parameter.empty

    @property
    def origin(self) -> str:
        """Why it is injected, in words."""
        because = f" because {self.reason}" if self.reason else f", a {type_name(self.kind)}"
        return f"the parameter {self.name} is a resource{because}"


class FunctionSignature(NamedTuple):
    """What is known of a function that becomes a tool.

    Attributes:
        function: the function, without what `staticmethod` or `classmethod` puts around it.
        fields: the parameters that the model fills.
        injected: the parameters that are injected.
        params_type: the class of the arguments, a subclass of `Arguments`; `None` for a function without fields.
        result_type: the type of the value that it returns; `None` for none.
        is_async: whether calling it gives an awaitable in any case.
        may_return_files: whether it may return files, which are parts of a result and not its value.
        description: what its docstring says.
    """

    function: AnyCallable
    fields: tuple[ArgumentField, ...]
    injected: tuple[InjectedParameter, ...]
    params_type: type[Any] | None
    result_type: Any
    is_async: bool
    may_return_files: bool
    description: Description


class DecoratedFunction(NamedTuple):
    """A function that is to become a tool, and what is known of it there.

    Attributes:
        function: the function.
        names: what its annotations may refer to beside the names of its module, as the variables around it.
        place: file and line where it becomes a tool, for what has no code of its own.
        is_method: whether its first parameter is the object, which is bound later.
        takes_data: whether its first parameter takes all arguments as one dict. Then it has no fields.
        says: which of `name` and `description` it has to say itself.
    """

    function: AnyCallable
    names: Mapping[str, Any] = MappingProxyType({})
    place: tuple[str, int] = ("", 0)
    is_method: bool = False
    takes_data: bool = False
    says: AbstractSet[str] = frozenset()

    def refuse(self, faults: Sequence[SignatureFault]) -> NoReturn:
        """Raise the error for some faults, with file and line of the function."""
        function = self.function
        while isinstance(function, partial):
            function = cast("partial[object]", function).func
        code: Any = getattr(inspect.unwrap(function), "__code__", None)
        file, line = self.place if code is None else (code.co_filename, code.co_firstlineno)
        name = getattr(function, "__qualname__", type(function).__name__)
        raise ToolSignatureError(function=name, file=file, line=line, faults=faults)


def read_signature(decorated: DecoratedFunction) -> FunctionSignature:
    """Read the signature of a function that is to become a tool.

    Raises:
        ToolSignatureError: it cannot become a tool; the error has every fault, in the order of the signature.
    """
    return _Reading(decorated).signature()


class _Reading:
    """Reads one signature, and collects its faults."""

    def __init__(self, decorated: DecoratedFunction) -> None:
        self._decorated = decorated
        self._function = decorated.function
        self._globals = annotation_names(self._function)
        # A name of the module that the variables around hide is hidden for the function too.
        self._locals = decorated.names
        self._skipped = int(decorated.is_method or decorated.takes_data)
        self._faults: list[SignatureFault] = []
        self._fields: list[ArgumentField] = []
        self._injected: list[InjectedParameter] = []

    def signature(self) -> FunctionSignature:
        function = self._function
        read = callable_signature(function) if inspect.isroutine(function) else None
        if read is None:
            self._add("", f"it is {_kind_of(function)}; write a function with def and annotations")
            self._decorated.refuse(self._faults)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            self._add("", "it is a generator, which returns nothing to send to the model; return a list")
        parameters = list(read.parameters.values())
        for parameter in parameters[self._skipped :]:
            self._parameter(parameter)
        if len(parameters) < self._skipped or any(each.kind in _MANY for each in parameters[: self._skipped]):
            self._add("", "its first parameter is missing, which takes the arguments or the object of the method")
        if self._decorated.takes_data:
            for each in self._fields:
                self._add(each.name, "the arguments come as one dict; only a context or a resource can be beside it")
        described = description_in(function.__doc__, read.parameters)
        self._check_texts(described)
        params_type = self._params_type(described)
        result_type, may_return_files = self._result(read.return_annotation)
        if self._faults:
            self._decorated.refuse(_in_order(self._faults, tuple(read.parameters)))
        is_async = inspect.iscoroutinefunction(function)
        return FunctionSignature(
            function,
            tuple(self._fields),
            tuple(self._injected),
            params_type,
            result_type,
            is_async,
            may_return_files,
            described,
        )

    def _add(self, parameter: str, text: str) -> None:
        self._faults.append(SignatureFault(parameter, text))

    def _check_texts(self, described: Description) -> None:
        """Check the name and the descriptions that the function says itself."""
        name: str = getattr(self._function, "__name__", "")
        if "name" in self._decorated.says and (fault := name_fault(name)):
            self._add("", f"its name {name!r} {fault}; write @tool(name={near_name(name)!r})")
        if "description" in self._decorated.says and described.text and (fault := description_fault(described.text)):
            self._add("", f"its docstring {fault}")

    # ------------------------------------------------------------------------------------------------------ parameters

    def _parameter(self, parameter: inspect.Parameter) -> None:
        name = parameter.name
        if parameter.kind in _MANY:
            self._add(str(parameter).partition(":")[0], _MANY_FAULT)
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
        if fault := _variable_fault(hint):
            self._add(name, fault)
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
            # The field has a factory that copies it, which serde does not call.
            if is_mutable(default) and (unfit := default_fault(default, hint) or _copy_fault(default)):
                self._add(name, "; ".join(unfit))

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
        except SchemaError:
            self._blame(described)
        return made

    def _blame(self, described: Description) -> None:
        for each in self._fields:
            # serde reports the first fault of a type; by itself each field reports its own.
            try:
                codec(arguments_class(self._function, [each], described))
            except SchemaError as own:
                self._add(each.name, _without_place(own, each.name))

    # ---------------------------------------------------------------------------------------------------------- result

    def _result(self, annotation: object) -> tuple[Any, bool]:
        """The type of the value, and whether it may be files."""
        if annotation is inspect.Signature.empty:
            return _ANYTHING
        try:
            hint = self._resolved(annotation)
        except _UNRESOLVED as error:
            self._add(_RETURN, _unresolved(annotation, error))
            return _ANYTHING
        if fault := _variable_fault(hint):
            self._add(_RETURN, fault)
            return _ANYTHING
        members: list[object] = []
        for member in _members(hint):
            origin = get_origin(member) or member
            if isinstance(origin, type) and issubclass(origin, Awaitable):
                members.extend(_members((get_args(member) or (Any,))[-1]))
            else:
                members.append(member)
        values = [member for member in members if not _means_files(member)]
        has_files = len(values) < len(members)
        # With a file the result has no value.
        kinds = [kind for member in values for kind in _values_of(member)]
        kind = _union_of([*kinds, None] if has_files else kinds)
        if kind is not None:
            try:
                result_codec(kind)
            except SchemaError as error:
                self._add(_RETURN, f"{type_name(kind)} cannot be the result: {_without_root(error)}")
        return kind, has_files or kind is Any


_ANYTHING: Final = (Any, True)


def _means_files(member: object) -> bool:
    """Whether a returned type means files: a class of them, or a list or tuple of them and text."""
    if is_file_type(member):
        return True
    if get_origin(member) not in (list, tuple, Sequence):
        return False
    items = [kind for argument in get_args(member) if argument is not ... for kind in _members(argument)]
    files = [is_file_type(kind) for kind in items]
    return any(files) and all(is_file or kind in (str, TextPart) for kind, is_file in zip(items, files, strict=True))


def _copy_fault(default: object) -> tuple[str, str] | None:
    try:
        copy.deepcopy(default)
    except Exception as error:  # noqa: BLE001 - the program's own code may run
        return f"its default cannot be copied for each call ({error})", "use None, and make it in the function"
    return None


def _variable_fault(hint: object) -> str:
    """The fault of a type that has type variables; empty if it has none."""
    # A generic class without arguments has variables too, but they are its own, and mean any type.
    held = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
    variables = [hint] if isinstance(hint, TypeVar) else held
    if not variables:
        return ""
    names = ", ".join(each.__name__ for each in variables)
    shown = type_name(hint).replace("~", "")
    return f"{shown} has the type variable {names}, which nothing fills; write the type itself"


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


def _unreadable(cls: type[Any], kind: Any) -> str:  # noqa: ANN401 - a type
    """Why serde cannot read a type that a resource may have; empty if it can, or no resource could have it.

    Args:
        cls: the class of the type.
        kind: the type: the class, with its arguments if it is generic.
    """
    if cls.__module__ in _DATA or issubclass(cls, Enum | BaseModel | tuple | str | AbstractSet) or is_typeddict(cls):
        return ""
    return _reason_of(kind)


@cached
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


def _without_root(error: SchemaError) -> str:
    """The text of an error of serde, without its path if that is the type itself."""
    return str(error).removeprefix("$: ")


def _in_order(faults: Sequence[SignatureFault], parameters: Sequence[str]) -> Sequence[SignatureFault]:
    """Faults in the order of a signature: those of the function itself, of its parameters, and of its result."""
    places = {name: place for place, name in enumerate(parameters, start=1)} | {"": 0}
    return sorted(faults, key=lambda fault: places.get(fault.parameter.lstrip("*"), len(places)))


def _unresolved(annotation: object, error: Exception) -> str:
    return (
        f"its annotation {annotation!r} cannot be resolved ({error}); define or import the type above the function, "
        "outside TYPE_CHECKING blocks"
    )


def _kind_of(value: object) -> str:
    return "a class" if isinstance(value, type) else f"of type {type(value).__name__}"


_RESULT: type[object] = ToolResult


def handler_of(function: AnyCallable, signature: FunctionSignature, *, takes_data: bool = False) -> Callable[..., Any]:
    """The handler that calls a function.

    Args:
        function: what is called: that of the signature, or a method that is bound to its object.
        signature: the signature, as `read_signature` has read it.
        takes_data: as for `read_signature`.
    """
    call = _call_of(function, signature, takes_data=takes_data)
    kind = signature.result_type
    as_result = _files_or_result if signature.may_return_files else _as_result

    async def handle_async(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401 - the arguments, and a result
        return as_result(await call(params, context))

    async def finish_async(value: Awaitable[object]) -> Any:  # noqa: ANN401 - as above
        return as_result(await value)

    def finish(value: object) -> Any:  # noqa: ANN401 - as above
        # Whatever is declared: a decorator may have put an `async` function behind a plain one.
        if not isinstance(value, _RESULT) and inspect.isawaitable(value):
            return finish_async(value)
        return as_result(value)

    def handle(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401 - as above
        return finish(call(params, context))

    def handle_fields(params: Any, /, *, context: ToolContext) -> Any:  # noqa: ANN401, ARG001 - as above
        # The same for the commonest function, which needs nothing but the arguments: each call between costs time.
        value = function(**vars(params))
        return ToolResult("", value) if type(value) is kind else finish(value)

    if signature.is_async:
        return handle_async
    is_plain = signature.fields and not (signature.injected or takes_data or signature.may_return_files)
    return handle_fields if is_plain else handle


_Call = Callable[[Any, ToolContext], Any]
"""Calls the function with the arguments of a call and its context."""


def _call_of(function: AnyCallable, signature: FunctionSignature, *, takes_data: bool) -> _Call:
    inject = _injection(signature.injected)
    if takes_data:
        return lambda params, context: function(params, **inject(context))
    if not signature.fields:
        return lambda _params, context: function(**inject(context))
    if not signature.injected:
        return lambda params, _context: function(**vars(params))
    return lambda params, context: function(**vars(params), **inject(context))


def _injection(injected: Sequence[InjectedParameter]) -> Callable[[ToolContext], dict[str, object]]:
    """Makes what is injected, by the names of the parameters."""
    contexts = [each.name for each in injected if each.kind is ToolContext]
    resources = [each for each in injected if each.kind is not ToolContext]
    if not resources:
        return lambda context: dict.fromkeys(contexts, context)

    def inject(context: ToolContext) -> dict[str, object]:
        values: dict[str, object] = dict.fromkeys(contexts, context)
        for each in resources:
            values[each.name] = _resource(each, context)
        return values

    return inject


def _resource(parameter: InjectedParameter, context: ToolContext) -> object:
    if parameter.default is not inspect.Parameter.empty:
        return context.resources.get(parameter.kind, parameter.default)
    return context.resources.get(parameter.kind)


def _as_result(value: object) -> Any:  # noqa: ANN401 - a result of any value
    return value if isinstance(value, _RESULT) else ToolResult("", value)


def _files_or_result(value: object) -> Any:  # noqa: ANN401 - as above
    parts = parts_of_files(value)
    if not parts:
        return _as_result(value)
    # The text of a result stands before its parts.
    first, *others = parts
    text, files = (first.text, tuple(others)) if isinstance(first, TextPart) else ("", parts)
    made: ToolResult[None] = ToolResult(text, None, parts=files)
    return made
