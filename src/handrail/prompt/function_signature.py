"""The signature of a function that becomes a tool: the parameters that the model fills, and those that are injected.

| a parameter | is |
|---|---|
| of type `ToolContext` | injected: the context of the call |
| annotated `Annotated[T, Resource]` | injected: the resource bound for `T` |
| of a class that serde cannot read, such as a client or a protocol | injected: the resource bound for that class |
| of such a class with arguments, as `Cache[str]` | injected: the resource bound for `Cache` |
| of any other type | a field of the arguments |

An injected parameter may have a default, or be `T | None`: it gets that where nothing is bound. All this is decided
when the function becomes a tool; at a call nothing is inspected.

The descriptions are those of the docstring, in the style of Google, NumPy or Sphinx. griffe reads it, and is imported
with the first docstring that has sections, here alone (decision 39). A docstring is never an error: one that cannot be
read, or that describes none of the parameters, is the description as it stands.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from inspect import cleandoc
from types import MappingProxyType, NoneType
from typing import Any, Final, NamedTuple, NoReturn, get_args, get_origin

from pydantic import BaseModel
from typing_extensions import is_typeddict

from handrail.errors import SchemaError, SignatureFault, ToolSignatureError
from handrail.prompt.context import ToolContext
from handrail.prompt.signature import (
    MANY,
    UNRESOLVED,
    AnyCallable,
    callable_signature,
    make_union,
    resolve_annotation,
    returned_members,
    union_members,
    value_types,
)
from handrail.prompt.tool_declaration import Arguments
from handrail.prompt.tool_result import TextPart, ToolResult, collect_file_parts, is_file_type
from handrail.resources import Resource
from handrail.serde import codec, result_codec
from handrail.serde.annotations import is_mutable, is_union, options_around
from handrail.serde.core_schemas import cached
from handrail.serde.formatting import type_name

# Modules whose classes are data and never resources, whether serde reads them or not.
_DATA: Final = {"builtins", "collections", "collections.abc", "datetime", "decimal", "pathlib", "types", "uuid"}

_MANY_FAULT: Final = (
    "a model names each argument; declare each as a parameter, or, in a decorator, copy the signature with "
    "functools.wraps"
)

_FIELD_MODULE: Final = "pydantic.fields"  # not imported, because it takes longer than all the rest here

_ANYTHING: Final = (Any, True)

_TITLE: Final = (
    r"(?:args|arguments|params|parameters|keyword args|keyword arguments|other parameters|returns|yields|raises|"
    r"examples?):[ \t]*\n"
)

# By what the styles of docstrings are recognized.
_STYLES: Final[Mapping[str, str]] = {
    "sphinx": r"(?im)^[ \t]*:(?:param|parameter|arg|argument|key|keyword|returns?|raises?|type|rtype)\b[^:\n]*:",
    "numpy": r"(?im)^[ \t]*(?:parameters|other parameters|returns|yields|raises|examples)[ \t]*\n[ \t]*-{3,}[ \t]*$",
    "google": rf"(?im)^[ \t]*{_TITLE}(?:[ \t]*\n)?[ \t]+\S",
}

_CLOSE_TITLE: Final = rf"(?im)^({_TITLE})(?:[ \t]*\n)?(?=[ \t]+\S)"


class Description(NamedTuple):
    """The content of a docstring.

    Attributes:
        text: the description of the function, without the sections on parameters and results.
    """

    text: str
    parameters: Mapping[str, str] = MappingProxyType({})


class ArgumentField(NamedTuple):
    """A parameter that the model fills.

    Attributes:
        default: `inspect.Parameter.empty` if it must be given.
    """

    name: str
    kind: Any
    default: object


class InjectedParameter(NamedTuple):
    """A parameter that is injected.

    Attributes:
        kind: the class that the resource is bound for; `ToolContext` for the context of the call.
        default: the value if nothing is bound; `inspect.Parameter.empty` if the resource must be bound.
        reason: why serde cannot read the type, if that makes it a resource.
    """

    name: str
    kind: type[Any]
    default: object
    reason: str = ""

    @property
    def must_be_bound(self) -> bool:
        """Returns whether a resource must be bound for it."""
        return self.kind is not ToolContext and self.default is inspect.Parameter.empty

    @property
    def origin(self) -> str:
        """The reason for the injection, in words."""
        because = f" because {self.reason}" if self.reason else f", a {type_name(self.kind)}"
        return f"the parameter {self.name} is a resource{because}"


class FunctionSignature(NamedTuple):
    """The signature of a function that becomes a tool.

    Attributes:
        params_type: the class of the arguments, a subclass of `Arguments`; `None` for a function without fields.
        is_async: whether calling it gives an awaitable in any case.
        may_return_files: whether it may return files, which are parts of a result and not its value.
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
    """A function that is to become a tool, with its surroundings.

    Attributes:
        names: the variables around it, which its annotations may use.
        takes_data: whether its first parameter takes all arguments as one dict. Then it has no fields.
    """

    function: AnyCallable
    names: Mapping[str, Any] = MappingProxyType({})
    takes_data: bool = False

    def refuse(self, faults: Sequence[SignatureFault]) -> NoReturn:
        """Raises the error for some faults, with file and line of the function."""
        # A decorator around a tool has code, and what it wraps has none.
        code: Any = getattr(inspect.unwrap(self.function), "__code__", None) or getattr(self.function, "__code__", None)
        file, line = ("", 0) if code is None else (code.co_filename, code.co_firstlineno)
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        raise ToolSignatureError(function=name, file=file, line=line, faults=faults)


def read_signature(decorated: DecoratedFunction) -> FunctionSignature:
    """Reads the signature of a function that is to become a tool."""
    return _Reading(decorated, [], [], []).signature()


@dataclass
class _Reading:
    decorated: DecoratedFunction
    faults: list[SignatureFault]
    fields: list[ArgumentField]
    injected: list[InjectedParameter]

    def signature(self) -> FunctionSignature:
        function = self.decorated.function
        read = callable_signature(function) if inspect.isroutine(function) else None
        if read is None:
            kind = "a class" if isinstance(function, type) else f"of type {type(function).__name__}"
            self._add("", f"it is {kind}; write a function with def and annotations")
            self.decorated.refuse(self.faults)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            self._add("", "it is a generator, which returns nothing to send to the model; return a list")
        parameters = list(read.parameters.values())
        for parameter in parameters[int(self.decorated.takes_data) :]:
            self._parameter(parameter)
        if self.decorated.takes_data:
            for field in self.fields:
                self._add(field.name, "the arguments come as one dict; only a context or a resource can be beside it")
        description = description_in(function.__doc__, read.parameters)
        params_type = self._params_type(description)
        result_type, may_return_files = self._result(read.return_annotation)
        if self.faults:
            self.decorated.refuse(self.faults)
        fields, injected, is_async = tuple(self.fields), tuple(self.injected), inspect.iscoroutinefunction(function)
        kinds = params_type, result_type
        return FunctionSignature(function, fields, injected, *kinds, is_async, may_return_files, description)

    def _add(self, parameter: str, text: str) -> None:
        self.faults.append(SignatureFault(parameter, text))

    def _parameter(self, parameter: inspect.Parameter) -> None:
        name = parameter.name
        if parameter.kind in MANY:
            self._add(str(parameter).partition(":")[0], _MANY_FAULT)
        elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            self._add(name, "it is positional-only, and arguments have names; remove the /")
        elif name.startswith("__"):
            self._add(name, "names that begin with two underscores are reserved; rename it")
        elif parameter.annotation is inspect.Parameter.empty:
            example = f"{name}: ToolContext" if name in {"context", "ctx"} else f"{name}: str, or its type"
            method = "; of a method, make the tool of an object: tool(shop.charge)" if name == "self" else ""
            self._add(name, f"it has no annotation; write {example}{method}")
        elif (hint := self._resolve_type(name, parameter.annotation)) is None:
            return
        elif type(parameter.default).__module__ == _FIELD_MODULE:
            self._add(name, "a Field(...) is not a default; write Annotated[T, Field(...)], and = and the default")
        else:
            self._annotated(name, hint, parameter.default)

    def _resolve_type(self, name: str, annotation: object) -> Any:  # noqa: ANN401 - a type
        try:
            return resolve_annotation(annotation, self.decorated.function, self.decorated.names)
        except UNRESOLVED as error:
            self._add(
                name,
                f"its annotation {annotation!r} cannot be resolved ({error}); define or import the type above the "
                "function, outside TYPE_CHECKING blocks",
            )
            return None

    def _annotated(self, name: str, hint: object, value: object) -> None:
        options, inner = options_around(hint)
        kind, is_optional = _one_type_in(inner)
        cls = _plain_class(kind)
        default = None if value is inspect.Parameter.empty and is_optional else value
        if any(option is Resource or isinstance(option, Resource) for option in options):
            if cls is None:
                self._add(name, f"a resource is bound for a class, and {type_name(inner)} is not one")
            else:
                self.injected.append(InjectedParameter(name, cls, default))
        elif cls is not None and issubclass(cls, ToolContext):
            self.injected.append(InjectedParameter(name, ToolContext, default))
        elif cls is not None and (reason := _unreadable(cls, kind)):
            self.injected.append(InjectedParameter(name, cls, default, reason))
        else:
            self.fields.append(ArgumentField(name, hint, value))

    def _params_type(self, description: Description) -> type[Any] | None:
        if not self.fields:
            return None
        cls = _arguments_class(self.decorated.function, self.fields, description)
        try:
            codec(cls)
        except SchemaError:
            # serde reports the first fault of a type; by itself each field reports its own.
            for field in self.fields:
                try:
                    codec(_arguments_class(self.decorated.function, [field], description))
                except SchemaError as own:
                    self._add(field.name, _without_place(own, field.name))
        return cls

    def _result(self, annotation: object) -> tuple[Any, bool]:
        if annotation is inspect.Signature.empty or (hint := self._resolve_type("return", annotation)) is None:
            return _ANYTHING
        members = returned_members(hint)
        values = [member for member in members if not _means_files(member)]
        has_files = len(values) < len(members)
        # With a file the result has no value.
        kinds = [kind for member in values for kind in value_types(member)]
        kind = make_union([*kinds, None] if has_files else kinds)
        if kind is not None:
            try:
                result_codec(kind)
            except SchemaError as error:
                text = str(error).removeprefix("$: ")  # its path, if that is the type itself
                self._add("return", f"{type_name(kind)} cannot be the result: {text}")
        return kind, has_files or kind is Any


def _means_files(member: object) -> bool:
    if is_file_type(member):
        return True
    if get_origin(member) not in (list, tuple, Sequence):
        return False
    items = [kind for argument in get_args(member) if argument is not ... for kind in union_members(argument)]
    files = [is_file_type(kind) for kind in items]
    return any(files) and all(is_file or kind in (str, TextPart) for kind, is_file in zip(items, files, strict=True))


def _one_type_in(inner: object) -> tuple[object, bool]:
    if not is_union(inner):
        return inner, False
    others = [kind for kind in get_args(inner) if kind is not NoneType]
    is_optional = len(others) < len(get_args(inner))
    return (options_around(others[0])[1] if len(others) == 1 else inner), is_optional


def _plain_class(kind: object) -> type[Any] | None:
    cls = get_origin(kind) or kind
    return cls if isinstance(cls, type) and not is_union(kind) else None


def _unreadable(cls: type[Any], kind: Any) -> str:  # noqa: ANN401 - a type
    if cls.__module__ in _DATA or issubclass(cls, Enum | BaseModel | tuple | str | AbstractSet) or is_typeddict(cls):
        return ""
    return _unreadable_reason(kind)


@cached
def _unreadable_reason(kind: Any) -> str:  # noqa: ANN401 - as above
    try:
        codec(_arguments_dataclass("Held", {"it": kind}, {}))
    except SchemaError as error:
        return f"{type_name(kind)} cannot be an argument: {_without_place(error, 'it')}"
    return ""


def _without_place(error: SchemaError, name: str) -> str:
    path, _, text = str(error).partition(": ")
    below = path.removeprefix(f"$.{name}")
    return f"{below.lstrip('.')}: {text}" if below and below != path else text or path


_RESULT: type[object] = ToolResult


def make_handler(signature: FunctionSignature, *, takes_data: bool = False) -> Callable[..., Any]:
    """The handler that calls a function; `takes_data` as for `DecoratedFunction`."""
    function, has_fields, injected = signature.function, bool(signature.fields), signature.injected
    kind = signature.result_type
    as_result = _files_or_result if signature.may_return_files else _as_result

    def call(params: Any, context: ToolContext) -> Any:  # noqa: ANN401 - the arguments, and what the function returns
        values: dict[str, object] = {**vars(params)} if has_fields else {}
        for parameter in injected:
            values[parameter.name] = _injected(parameter, context)
        return function(params, **values) if takes_data else function(**values)

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
    return handle_fields if has_fields and not (injected or takes_data or signature.may_return_files) else handle


def _injected(parameter: InjectedParameter, context: ToolContext) -> object:
    if parameter.kind is ToolContext:
        return context
    default = () if parameter.default is inspect.Parameter.empty else (parameter.default,)
    return context.resources.get(parameter.kind, *default)


def _as_result(value: object) -> Any:  # noqa: ANN401 - a result of any value
    return value if isinstance(value, _RESULT) else ToolResult("", value)


def _files_or_result(value: object) -> Any:  # noqa: ANN401 - as above
    parts = collect_file_parts(value)
    if not parts:
        return _as_result(value)
    # The text of a result stands before its parts.
    first, *others = parts
    text, files = (first.text, tuple(others)) if isinstance(first, TextPart) else ("", parts)
    result: ToolResult[None] = ToolResult(text, None, parts=files)
    return result


def _arguments_class(function: AnyCallable, fields: Sequence[ArgumentField], description: Description) -> type[Any]:
    defaults: dict[str, Any] = {}
    for argument in fields:
        # What is annotated counts: it is nearer to the parameter than the docstring.
        options = options_around(argument.kind)[0]
        text = _text_among(options) or description.parameters.get(argument.name)
        own = any(getattr(option, "description", None) for option in options)
        default: Any = {} if argument.default is inspect.Parameter.empty else {"default": argument.default}
        if is_mutable(argument.default):  # each call gets a copy
            default = {"default_factory": partial(copy.deepcopy, argument.default)}
        defaults[argument.name] = field(**default, metadata={"description": text} if text and not own else {})
    name: str = getattr(function, "__name__", "function")
    cls = _arguments_dataclass(f"{name}_arguments", {argument.name: argument.kind for argument in fields}, defaults)
    # The name by which it is found from its module, if the function there is the tool. Old records of calls have it.
    cls.__module__ = getattr(function, "__module__", __name__)
    cls.__qualname__ = f"{getattr(function, '__qualname__', name)}.params_type"
    return cls


def _text_among(options: Sequence[object]) -> str:
    texts = (option if isinstance(option, str) else getattr(option, "documentation", None) for option in options)
    return next((text.strip() for text in texts if isinstance(text, str)), "")


def _arguments_dataclass(name: str, kinds: Mapping[str, Any], defaults: Mapping[str, Any]) -> type[Any]:
    # Without a docstring `dataclass` would inspect the signature to write one, which takes long.
    cls = type(name, (Arguments,), {"__annotations__": dict(kinds), "__doc__": name, **defaults})
    # `Arguments` has the methods: making them for each class takes half a millisecond.
    cls = dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    cls.__doc__ = None  # the model would read it
    return cls


def description_in(docstring: object, parameters: Collection[str]) -> Description:
    """The description of a function and its parameters, from a docstring."""
    text = cleandoc(docstring) if isinstance(docstring, str) else ""
    style = next((style for style, pattern in _STYLES.items() if re.search(pattern, text)), None)
    if style is None:
        return Description(text)
    try:
        # griffe wants a blank line before a title, and none behind it.
        sections = list(_sections(re.sub(_CLOSE_TITLE, r"\n\1", text) if style == "google" else text, style))
    except Exception:  # noqa: BLE001  # pragma: no cover - a docstring is prose; no text is known on which griffe fails
        return Description(text)
    items = [
        item
        for section in sections
        if section.kind.value in {"parameters", "other parameters"}
        for item in section.value
    ]
    descriptions = {item.name.lstrip("*"): " ".join(item.description.split()) for item in items}
    own = {name: words for name, words in descriptions.items() if name in parameters}
    prose = "\n\n".join(filter(None, map(_format_prose, sections)))
    # The section was not one of parameters, or is of another function: nothing of it is lost then.
    return Description(text if not prose or (descriptions and not own) else prose, own)


def _format_prose(section: Any) -> str:  # noqa: ANN401 - a section of griffe
    if section.kind.value == "text":
        return str(section.value).strip()
    # A section such as `Note:`, which belongs to the description.
    is_note = section.kind.value == "admonition"
    return f"{section.title}: {section.value.description}".strip() if is_note else ""


def _sections(text: str, style: Any) -> Iterator[Any]:  # noqa: ANN401 - the name of one of griffe's parsers
    # The one import that is not at the head of its module.
    from griffe import Docstring  # noqa: PLC0415

    # Without warnings: griffe logs each docstring that it cannot read completely.
    return iter(Docstring(text, lineno=1).parse(style, warnings=False))
