"""`tool`: a tool is a decorated function.

    @tool(effect="external")
    def charge(order: str, cents: Annotated[int, Field(gt=0)], *, context: ToolContext) -> Receipt:
        '''Charge the card of an order.'''

The returned value is that of a success; a `ToolResult` is passed on as it is, and `None` is a success without a value,
which the model reads as `OK`. A file, or a list of files and text, is the parts of a result without a value.

The tool is called as the function was: `charge("A-1", 5, context=context)`. A method is made a tool where it has its
object: `tool(shop.charge)`. All faults of a function are raised at once, when it is decorated.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from types import FrameType, GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from handrail.errors import ParseError, PromptValidationError, SignatureFault
from handrail.prompt.function_signature import DecoratedFunction, FunctionSignature, make_handler, read_signature
from handrail.prompt.signature import AnyCallable
from handrail.prompt.tool_definition import Tool, ToolExample, ToolOptions
from handrail.prompt.tool_result import ToolResult
from handrail.serde import codec
from handrail.serde.annotations import subscriptable

Q = ParamSpec("Q")
V = TypeVar("V")
Returned = TypeVar("Returned")
Value = TypeVar("Value")


class FunctionOptions(ToolOptions, total=False):
    """The options of `tool`. The input of an example may be a dict of the arguments, as a model writes them."""

    name: str
    description: str


@subscriptable
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionTool(Tool[Any, Value], Generic[Q, Returned, Value]):
    """A tool that is a function. `tool` makes it; calling it calls the function.

    Attributes:
        signature: which of its parameters the model fills, and which are injected.
    """

    has_made_handler: ClassVar[bool] = True

    function: Callable[Q, Returned] = field(repr=False)
    signature: FunctionSignature = field(repr=False)

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> Returned:
        """Calls the function, as without the decorator: nothing is validated, injected or recorded."""
        return self.function(*args, **kwargs)

    if not TYPE_CHECKING:  # checkers know the brackets from `Generic`

        def __class_getitem__(cls, types: Any) -> GenericAlias:  # noqa: ANN401 - types, in one of their many forms
            return GenericAlias(cls, types)


class ToolDecorator:
    """Makes a tool of a function, with the options of `tool`; `around` as for `function_tool`."""

    def __init__(self, options: FunctionOptions, around: FrameType | None) -> None:
        self._options, self._around = options, around

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
    def __call__(self, function: Any, /) -> Any:
        """Makes the tool."""
        return function_tool(function, self._options, around=self._around)


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
    """Makes a tool of a typed function: `@tool`, or `@tool(effect="read")` with options of `Tool`.

    The name is that of the function, the descriptions are in its docstring, and the types are its annotations. What it
    returns is the value of a success; it raises, or returns `ToolResult.error(...)`, for a failure. A parameter of type
    `ToolContext` gets the context of the call, and one of a type that is not data gets the resource of that type.

    Args:
        function: the function, or the method of an object.
        options: the options of `Tool`; `name` and `description` replace what the function says.

    Raises:
        ToolSignatureError: the function cannot become a tool; the error has every fault of its signature.
        PromptValidationError: an option is invalid.
    """
    frame = inspect.currentframe()
    around = frame.f_back if frame is not None else None
    # A decorator is applied in the frame where it is made.
    return ToolDecorator(options, around) if function is None else function_tool(function, options, around=around)


def function_tool(function: Any, options: FunctionOptions, *, around: FrameType | None = None) -> Any:  # noqa: ANN401 - see the overloads of `tool`
    """Makes a tool of a function as `tool` does; `around` is the frame whose variables its annotations may use."""
    names = {} if around is None or around.f_locals is around.f_globals else around.f_locals
    decorated = DecoratedFunction(function, names)
    if isinstance(inspect.unwrap(function, stop=lambda inner: isinstance(inner, FunctionTool)), FunctionTool):
        fault = "it is a tool, or a decorator around one, which would be bypassed; write @tool above all decorators"
        decorated.refuse([SignatureFault("", fault)])
    return _build_tool(function, read_signature(decorated), options)


def _build_tool(function: AnyCallable, signature: FunctionSignature, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - see the overloads of `tool`
    fields = dict(options)
    name = fields.pop("name", getattr(function, "__name__", ""))
    # A function without a docstring is still described by its name.
    description = fields.pop("description", signature.description.text or str(name).replace("_", " "))
    if kind := signature.params_type:
        fields["examples"] = [_with_arguments(example, name, kind) for example in fields.get("examples", ())]
    cls = cast("Callable[..., FunctionTool[..., Any, Any]]", FunctionTool)  # checkers do not see the last fields
    return cls(
        name=name,
        description=description,
        handler=make_handler(signature),
        function=function,
        signature=signature,
        given_types=(signature.params_type, signature.result_type),
        given_injected=signature.injected,
        **fields,
    )


def _with_arguments(example: ToolExample[Any, Any], tool_name: str, kind: type[Any]) -> ToolExample[Any, Any]:
    try:
        return replace(example, input=codec(kind).parse(example.input))
    except ParseError as error:
        raise PromptValidationError(
            f"the input of an example does not fit the parameters: {error}", tool=tool_name, dataclass=kind
        ) from error
