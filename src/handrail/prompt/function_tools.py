"""`tool`: a tool is a decorated function.

    @tool(effect="external")
    def charge(order: str, cents: Annotated[int, Field(gt=0)], *, context: ToolContext) -> Receipt:
        '''Charge the card of an order.'''

The decorator makes one dataclass of the parameters that the model fills, one handler that calls the function
(`handler_of`), and a `Tool` of both. `function_signature` says which parameter is which. All faults of the function are
raised at once, when it is decorated.

What is returned is the value of a success; a `ToolResult` is passed on as it is, and `None` is a success without a
value, which the model reads as `OK`. A file, or a list of files and text, is the parts of a result without a value.

The tool is called as the function was: `charge("A-1", 5, context=context)`.

A function in the body of a class is a method: its first parameter, without an annotation, is the object. The class then
has a `ToolMethod`, and an object of it a tool: `shop.charge` is bound to `shop` as a method is, a new tool each time.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType, GenericAlias, MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from handrail.errors import ParseError, PromptValidationError, SignatureFault
from handrail.prompt.function_signature import DecoratedFunction, FunctionSignature, handler_of, read_signature
from handrail.prompt.signature import AnyCallable
from handrail.prompt.tool_definition import Tool, ToolExample, ToolOptions
from handrail.prompt.tool_result import ToolResult
from handrail.serde import codec
from handrail.serde.annotations import subscriptable
from handrail.serde.formatting import nearest

Q = ParamSpec("Q")
Q2 = ParamSpec("Q2")
C = TypeVar("C", bound=type[object])
S = TypeVar("S")
V = TypeVar("V")
Returned = TypeVar("Returned")
Value = TypeVar("Value")


class FunctionOptions(ToolOptions, total=False):
    """The options of `tool`: those of a tool, and what the function says otherwise.

    In an example the input may be a dict of the arguments, as a model writes them.
    """

    name: str
    description: str


@subscriptable
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionTool(Tool[Any, Value], Generic[Q, Returned, Value]):
    """A tool that is a function. `tool` makes it; calling it calls the function.

    Attributes:
        function: the function; of a method, the one that is bound to its object.
        signature: which of its parameters the model fills, and which are injected.
    """

    has_made_handler: ClassVar[bool] = True

    function: Callable[Q, Returned] = field(repr=False)
    signature: FunctionSignature = field(repr=False)

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> Returned:
        """Call the function, as without the decorator: nothing is validated, injected or recorded."""
        return self.function(*args, **kwargs)

    if TYPE_CHECKING:
        # A method has a `ToolMethod` at run time, which does this. Checkers see the function below `classmethod` and
        # `staticmethod`, so its first parameter says which it is: mypy compares it only with `Callable`.
        @overload
        def __get__(
            self: Callable[Concatenate[C, Q2], Returned], instance: object, owner: C, /
        ) -> FunctionTool[Q2, Returned, Value]: ...
        @overload
        def __get__(self, instance: None, owner: type[object], /) -> Self: ...
        @overload
        def __get__(
            self: Callable[Concatenate[S, Q2], Returned], instance: S, owner: type[object] | None = None, /
        ) -> FunctionTool[Q2, Returned, Value]: ...
        @overload
        def __get__(self, instance: object, owner: type[object] | None = None, /) -> Self: ...
        def __get__(self, instance: object, owner: type[object] | None = None, /) -> Any: ...

    else:  # pragma: no branch - checkers know the brackets from `Generic`

        def __class_getitem__(cls, types: Any) -> GenericAlias:  # noqa: ANN401 - types, in one of their many forms
            return GenericAlias(cls, types)


class ToolMethod:
    """A tool in the body of a class: a method, which is a tool once it is bound to an object.

    Attributes:
        tool: the tool without its object.
    """

    __slots__ = ("_is_of_class", "tool")

    def __init__(self, tool: FunctionTool[..., Any, Any], *, is_of_class: bool) -> None:
        """Take the tool of a function that has not its object yet.

        Args:
            tool: the tool.
            is_of_class: whether the object is the class.
        """
        self.tool: FunctionTool[..., Any, Any] = tool
        self._is_of_class = is_of_class

    def __get__(
        self, instance: object, owner: type[object] | None = None, /
    ) -> ToolMethod | FunctionTool[..., Any, Any]:
        """The tool that is bound to an object, or to the class if the method is one of the class."""
        if self._is_of_class:
            instance = type(instance) if owner is None else owner
        elif instance is None:
            return self
        bound = MethodType(self.tool.signature.function, instance)
        # Copied and not made anew: nothing that was checked has changed, and methods are looked up often.
        made = copy.copy(self.tool)
        object.__setattr__(made, "function", bound)
        object.__setattr__(made, "handler", handler_of(bound, self.tool.signature))
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the function takes and returns
        """Call the function with the object as the first argument."""
        return self.tool.signature.function(*args, **kwargs)

    def __repr__(self) -> str:
        name = getattr(self.tool.signature.function, "__qualname__", self.tool.name)
        return f"<the tool method {name}; take it from an object, as shop.{self.tool.name}>"


class ToolDecorator(Protocol):
    """Makes a tool of a function, with options that were given before."""

    @overload
    def __call__(
        self, function: Callable[Q, Coroutine[Any, Any, ToolResult[V]]], /
    ) -> FunctionTool[Q, Coroutine[Any, Any, ToolResult[V]], V]: ...
    @overload
    def __call__(
        self, function: Callable[Q, Coroutine[Any, Any, V]], /
    ) -> FunctionTool[Q, Coroutine[Any, Any, V], V]: ...
    @overload
    def __call__(self, function: Callable[Q, ToolResult[V]], /) -> FunctionTool[Q, ToolResult[V], V]: ...
    @overload
    def __call__(self, function: Callable[Q, V], /) -> FunctionTool[Q, V, V]: ...


@overload
def tool(
    function: Callable[Q, Coroutine[Any, Any, ToolResult[V]]], /
) -> FunctionTool[Q, Coroutine[Any, Any, ToolResult[V]], V]: ...
@overload
def tool(function: Callable[Q, Coroutine[Any, Any, V]], /) -> FunctionTool[Q, Coroutine[Any, Any, V], V]: ...
@overload
def tool(function: Callable[Q, ToolResult[V]], /) -> FunctionTool[Q, ToolResult[V], V]: ...
@overload
def tool(function: Callable[Q, V], /) -> FunctionTool[Q, V, V]: ...
@overload
def tool(**options: Unpack[FunctionOptions]) -> ToolDecorator: ...
def tool(function: Any = None, /, **options: Unpack[FunctionOptions]) -> Any:
    """Make a tool of a typed function: `@tool`, or `@tool(effect="read")` with options of `Tool`.

    The name is that of the function, the descriptions are in its docstring, and the types are its annotations. What it
    returns is the value of a success; it raises, or returns `ToolResult.error(...)`, for a failure. A parameter of type
    `ToolContext` gets the context of the call, and one of a type that is not data gets the resource of that type.

    Args:
        function: the function, or a method.
        options: the options of `Tool`; `name` and `description` replace what the function says.

    Raises:
        ToolSignatureError: the function cannot become a tool; the error has every fault of its signature.
        PromptValidationError: an option is invalid.
    """
    frame = inspect.currentframe()
    around = frame.f_back if frame is not None else None
    if function is not None:
        return function_tool(function, options, around=around)

    def decorate(function: Any) -> Any:  # noqa: ANN401 - see the overloads
        # The frame where the decorator was made is that where it is applied.
        return function_tool(function, options, around=around)

    return decorate


def function_tool(
    function: Any,  # noqa: ANN401 - anything may be decorated, and what is not a function is refused
    options: FunctionOptions,
    *,
    around: FrameType | None = None,
) -> Any:  # noqa: ANN401 - a `FunctionTool`, or a `ToolMethod` in the body of a class
    """What `tool` makes of a function.

    Args:
        function: the function.
        options: the options.
        around: the frame that decorates it: its variables may be in annotations that are text.

    Raises:
        ToolSignatureError: the function cannot become a tool.
        PromptValidationError: an option is invalid.
    """
    is_of_class, is_static = isinstance(function, classmethod), isinstance(function, staticmethod)
    inner: AnyCallable = function.__func__ if is_of_class or is_static else function
    is_method = is_of_class or (not is_static and _is_method(inner))
    decorated = DecoratedFunction(
        inner,
        names={} if around is None or around.f_locals is around.f_globals else around.f_locals,
        place=("", 0) if around is None else (around.f_code.co_filename, around.f_lineno),
        is_method=is_method,
        says={"name", "description"} - options.keys(),
    )
    if fault := _tool_fault(inner):
        decorated.refuse([SignatureFault("", fault)])
    made = _made(inner, read_signature(decorated), options)
    return ToolMethod(made, is_of_class=is_of_class) if is_method else made


def _tool_fault(function: object) -> str:
    """The fault of what is a tool already, or a decorator around one; empty if it is neither."""
    if isinstance(function, str):
        return f"it is a text; options have names: write @tool(name={function!r})"
    if isinstance(function, FunctionTool | ToolMethod):
        return "it is a tool already; remove one of the two decorators"
    while (function := getattr(function, "__wrapped__", None)) is not None:
        if isinstance(function, FunctionTool | ToolMethod):
            return "it is a decorator around a tool, which would be bypassed; write @tool above the other decorators"
    return ""


def _is_method(function: AnyCallable) -> bool:
    """Whether a function is defined in the body of a class, and its first parameter is the object."""
    if inspect.ismethod(function) or not inspect.isfunction(function):
        return False
    outer = function.__qualname__.rpartition(".")[0]
    if not outer or outer.endswith("<locals>"):
        return False
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and (first.annotation is inspect.Parameter.empty or first.name in {"self", "cls"})


def _made(function: AnyCallable, signature: FunctionSignature, options: FunctionOptions) -> FunctionTool[..., Any, Any]:
    given: dict[str, Any] = dict(options)
    if unknown := sorted(given.keys() - FunctionOptions.__optional_keys__):
        near = nearest(unknown[0], FunctionOptions.__optional_keys__)
        cure = f"did you mean {near}?" if near else f"they are {', '.join(sorted(FunctionOptions.__optional_keys__))}."
        raise PromptValidationError(f"tool has no option {unknown[0]!r}; {cure}", tool=signature.function.__name__)
    name = given.pop("name", getattr(function, "__name__", ""))
    # A function without a docstring is still described by its name.
    description = given.pop("description", signature.description.text or str(name).replace("_", " "))
    if "examples" in given:
        given["examples"] = _examples(given["examples"], name, signature)
    cls = cast("Callable[..., FunctionTool[..., Any, Any]]", FunctionTool)  # checkers do not see the last fields
    return cls(
        name=name,
        description=description,
        handler=handler_of(function, signature),
        function=function,
        signature=signature,
        given_types=(signature.params_type, signature.result_type),
        given_injected=signature.injected,
        **given,
    )


def _examples(examples: object, tool_name: str, signature: FunctionSignature) -> object:
    """The examples with the arguments of their inputs; what is wrong with the examples themselves, `Tool` finds."""
    kind = signature.params_type
    if kind is None or not isinstance(examples, list | tuple):
        return examples
    given = cast("Sequence[object]", examples)
    return tuple(_with_arguments(each, number, tool_name, kind) for number, each in enumerate(given, start=1))


def _with_arguments(example: Any, number: int, tool_name: str, kind: type[Any]) -> object:  # noqa: ANN401 - checked here
    given = cast("ToolExample[Mapping[str, object], Any]", example)
    if not isinstance(example, ToolExample) or not isinstance(cast("object", given.input), Mapping):
        return given
    try:
        return replace(given, input=codec(kind).parse(given.input))
    except ParseError as error:
        raise PromptValidationError(
            f"the input of example {number} does not fit the parameters: {error}", tool=tool_name, dataclass=kind
        ) from error
