"""Signatures: the faults of functions and handlers, and random signatures that are taken."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from handrail.errors import PromptValidationError, ToolSignatureError
from handrail.prompt import FunctionTool, Prompt, PromptTemplate, Tool, ToolContext, ToolResult, ToolsSection, tool
from handrail.resources import Resource
from tests.kit import raises
from tests.prompt.function_tools.functions import Client, Config, Item
from tests.wording import Wording

if TYPE_CHECKING:
    from fractions import Fraction
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Never, NoReturn, Optional, Protocol, runtime_checkable

from handrail.prompt.signature import handler_types, is_async, role_fault
from handrail.session import Session
from tests.prompt.samples import Found, Guidance, Lookup, look_up


class Pair(NamedTuple):
    one: int
    other: int


def faulty(  # noqa: D103, PLR0913, PLR0917 - one for each fault
    first: int,
    /,
    context: ToolContext,
    other: int,
    ratio: Fraction,
    amount: complex,
    pair: Pair,
    many: list[Client],
    bounded: int = Field(5, gt=0),
    __private: int = 0,
    *rest: int,
    either: Annotated[int | str, Resource],
    **more: int,
) -> Client:
    raise NotImplementedError


# Checkers want annotations where the tool does.
del faulty.__annotations__["context"], faulty.__annotations__["other"]

UNCHECKED: Any = tool


def test_every_fault_of_a_signature_is_raised_at_once(wording: Wording) -> None:
    """With file and line of the function."""
    with pytest.raises(ToolSignatureError) as caught:
        UNCHECKED(faulty)
    error = caught.value
    assert (error.function, Path(error.file), error.line) == ("faulty", Path(__file__), faulty.__code__.co_firstlineno)
    assert [str(fault) for fault in error.faults] == wording
    assert isinstance(error, PromptValidationError)


def generating(word: str) -> Iterator[str]:  # noqa: D103 - a case
    yield word


def unresolved_result() -> Fraction:  # noqa: D103 - a case
    raise NotImplementedError


def taken(word: str) -> str:  # noqa: D103 - a case
    return word


@wraps(tool(taken))
def around(word: str) -> str:  # noqa: D103 - a case
    return word


REFUSED: list[Any] = [
    *(generating, unresolved_result, Path, len, None, partial(taken, word="a"), tool(taken), around, "taken"),
    lambda *words: 0,
]


@pytest.mark.parametrize("function", REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_a_tool_is_refused(function: Any, wording: Wording) -> None:
    """A generator, a class, an object, a tool; with the file of what has code."""
    with pytest.raises(ToolSignatureError) as caught:
        UNCHECKED()(function)
    assert [str(fault) for fault in caught.value.faults] == wording
    assert (Path(caught.value.file) == Path(__file__)) == hasattr(function, "__code__")


def test_the_result_is_what_is_awaited() -> None:
    """Anything, where the annotation does not say what."""

    def later(word: str) -> Awaitable[int]:
        raise NotImplementedError

    def some_day(word: str) -> Any:
        raise NotImplementedError

    some_day.__annotations__["return"] = Awaitable

    def never(word: str) -> NoReturn:
        raise NotImplementedError

    assert [UNCHECKED(function).result_type for function in (later, some_day, never)] == [int, Any, None]


def bound_at(place: str, one: Tool[Any, Any]) -> Prompt[str]:
    """A prompt that binds `Config` in one place."""
    at = {place: {Config: Config("north")}}
    section = ToolsSection(title="Tools", tools=[one], resources=at.get("section"))
    template = PromptTemplate(ns="a", key="b", sections=[section], resources=at.get("template"))
    return Prompt(template).bind(resources=at.get("bind"))


@pytest.mark.parametrize("place", ["bind", "section", "template"])
def test_a_prompt_that_binds_the_type_of_a_parameter_is_refused(place: str, wording: Wording) -> None:
    """Both places are named."""

    @tool
    def use(config: Config | None, item: Item) -> str:
        raise NotImplementedError

    with raises(PromptValidationError, wording) as raised:
        bound_at(place, use)
    assert (raised.value.tool, raised.value.dataclass, raised.value.section_path) == ("use", Config, ("tools",))


# ---------------------------------------------------------------------------------------------------- random signatures

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=5)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "str": TEXT,
    "int": st.integers(-5, 5),
    "bool": st.booleans(),
    "float": st.floats(-9, 9),
    "list[int]": st.lists(st.integers(0, 3), max_size=2),
    "dict[str, bool]": st.dictionaries(TEXT, st.booleans(), max_size=2),
    "int | None": st.none() | st.integers(0, 3),
    "Annotated[int, Field(ge=0)]": st.integers(0, 5),
    "Item": st.builds(Item, sku=TEXT, count=st.integers(0, 3)),
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a random function, and the argument of a call."""

    name: str
    kind: str
    value: Any
    default: Any = field(default=None)
    has_default: bool = False


@st.composite
def parameters(draw: st.DrawFn) -> list[Parameter]:
    """Parameters of different names, each with an argument, and some with a default."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5))
    made: list[Parameter] = []
    for name in names:
        kind = draw(st.sampled_from(sorted(KINDS)))
        has_default = kind != "Item" and draw(st.booleans())
        made.append(Parameter(name, kind, draw(KINDS[kind]), draw(KINDS[kind]), has_default))
    return made


@settings(max_examples=60)
@given(parameters(), st.sampled_from(["", "async "]), st.sampled_from(["", "context: ToolContext", "client: Client"]))
def test_a_random_function_is_called_with_what_the_model_wrote(
    given_parameters: list[Parameter], prefix: str, extra: str
) -> None:
    """What is left out has its default; what is injected is not in the schema."""
    defaults = {each.name: each.default for each in given_parameters if each.has_default}
    written = [
        f"{each.name}: {each.kind}" + (f" = defaults[{each.name!r}]" if each.has_default else "")
        for each in given_parameters
    ]
    source = f"{prefix}def made(*, {', '.join([*written, *([extra] if extra else [])])}) -> None:\n"
    source = source.replace("(*, )", "()") + f"    seen.append({{k: v for k, v in locals().items() if k in {NAMES}}})\n"
    seen: list[dict[str, Any]] = []
    names: dict[str, Any] = {**globals(), "defaults": defaults, "seen": seen}
    exec(compile(source, "made", "exec", dont_inherit=True), names)  # noqa: S102 - the source is made above
    made: FunctionTool[..., Any, Any] = UNCHECKED(names["made"])

    schema = made.parameters_schema
    assert set(schema["properties"]) == {each.name for each in given_parameters}
    assert set(schema.get("required", ())) == {each.name for each in given_parameters if not each.has_default}

    sent = {each.name: each.value for each in given_parameters if not each.has_default}
    arguments = json.dumps(sent, default=lambda item: item.model_dump())
    context = ToolContext.of(resources={Client: Client()})
    handler: Any = made.handler
    result = handler(made.parse(arguments), context=context)
    if made.is_async:
        with pytest.raises(StopIteration) as stopped:
            result.send(None)
        result = stopped.value.value
    assert result == ToolResult("", None)
    assert seen == [{**defaults, **sent}]


NAMES = set("abcdefgh")


# Lambdas without annotations are among the cases.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false


V = TypeVar("V")
LOOKUP = (Lookup, Found)
Answer = ToolResult[Found]


class Asks(Protocol):
    """What only type checkers can ask for."""

    entity_id: str


@runtime_checkable
class Renders(Protocol):
    """What anybody can ask for."""

    def render(self) -> str: ...


def handler(*, params: object = Lookup, context: object = ToolContext, returns: object = Answer) -> Callable[..., Any]:
    """A handler with those annotations, which may also be text."""

    def made(params: object, *, context: object) -> object:
        raise NotImplementedError

    made.__annotations__ = {"params": params, "context": context, "return": returns}
    return made


def reconciler(*, key: object = str, returns: object = Optional[Answer]) -> Callable[..., Any]:  # noqa: UP045 - a value
    """A reconciler with those annotations."""

    def made(params: object, key: object) -> object:
        raise NotImplementedError

    made.__annotations__ = {"params": Lookup, "key": key, "return": returns}
    return made


async def awaited(params: Lookup, *, context: ToolContext) -> Answer:
    """An `async` handler."""
    return look_up(params, context=context)


class Worker:
    """An object that is called."""

    def __call__(self, params: Lookup, *, context: ToolContext) -> Answer:
        return look_up(params, context=context)

    async def later(self, params: Lookup, *, context: ToolContext) -> Answer:
        return look_up(params, context=context)

    @classmethod
    def of_class(cls, params: Lookup, *, context: ToolContext) -> Answer:
        return look_up(params, context=context)

    @staticmethod
    def of_nobody(params: Lookup, *, context: ToolContext) -> Answer:
        return look_up(params, context=context)


class AsyncWorker:
    """An object that is called and awaited."""

    async def __call__(self, params: Lookup, *, context: ToolContext) -> Answer:
        return look_up(params, context=context)


@wraps(look_up)
def wrapped(*args: object, **kwargs: object) -> object:
    """A handler behind a decorator."""
    raise NotImplementedError


def with_more(params: Lookup, more: str, *, context: ToolContext) -> Answer:
    """A handler that lacks an argument, to be filled in."""
    raise NotImplementedError


def yields(params: Lookup, *, context: ToolContext) -> Iterator[Answer]:
    """A generator."""
    yield look_up(params, context=context)


async def yields_later(params: Lookup, *, context: ToolContext) -> AsyncIterator[Answer]:
    """An asynchronous generator."""
    yield look_up(params, context=context)


def test_a_callable_that_fits_is_a_handler() -> None:
    """Functions, partials, methods, lambdas, objects, and what is behind a decorator."""
    handlers: list[Callable[..., object]] = [look_up, awaited, wrapped, dict]
    handlers += [Worker(), Worker().later, Worker.of_class, Worker.of_nobody, AsyncWorker()]
    handlers += [partial(with_more, more="a"), partial(partial(with_more), more="b")]
    handlers += [lambda params, *, context: None, lambda params, context: None, lambda *args, **kwargs: None]
    handlers += [lambda params, *, context, verbose=False: None]
    assert [fault for each in handlers if (fault := role_fault("handler", each, *LOOKUP))] == []


PARAMS = (Lookup, Any, object, V, Lookup | Guidance, Lookup | None, Asks, "Lookup", "list[Unheard]", "1 +")


@pytest.mark.parametrize("params", PARAMS, ids=repr)
def test_parameters_may_be_annotated_by_whatever_takes_them(params: object) -> None:
    """The dataclass, a union with it, a base, a protocol, a variable, or what only type checkers resolve."""
    assert role_fault("handler", handler(params=params), *LOOKUP) is None


@pytest.mark.requirement("M-06l")
def test_a_callable_that_cannot_be_called_is_told_why(wording: Wording) -> None:
    """What it takes, and what is missing or too much."""
    handlers: list[Callable[..., object]] = [lambda params: None, lambda: None, lambda params, more, *, context: None]
    handlers += [lambda context, params: None, print, yields, yields_later]
    told = [(role_fault("handler", each, *LOOKUP) or "").partition(". Write: ")[0] for each in handlers]
    assert told == wording


@pytest.mark.requirement("M-06l")
def test_annotations_that_cannot_be_right_are_told(wording: Wording) -> None:
    """The parameter or result that is annotated wrongly, and the signature that would fit."""
    handlers = [handler(params=Guidance), handler(params=Guidance | str), handler(params=Renders), handler(params=None)]
    handlers += [handler(context=Session), handler(context="Session"), handler(returns=str), handler(returns=Found)]
    handlers += [handler(returns=None), handler(returns=ToolResult[Lookup])]
    handlers += [handler(returns=Awaitable[ToolResult[Lookup]])]
    told = [(role_fault("handler", each, *LOOKUP) or "").partition(". Write: ")[0] for each in handlers]
    assert told == wording
    assert role_fault("handler", handler(params=Guidance), *LOOKUP) == wording
    assert role_fault("handler", look_up, None, None) == wording
    listed: tuple[Any, Any] = (Lookup, Sequence[str])  # a list is a sequence; a dictionary is none
    assert role_fault("handler", handler(returns=ToolResult[list[str]]), *listed) is None
    assert role_fault("handler", handler(returns=ToolResult[dict[str, str]]), *listed) == wording


def test_reconcile_takes_parameters_and_key(wording: Wording) -> None:
    """It may answer `None`, which a handler may not, and may be awaited."""
    later = Awaitable[Optional[Answer]]  # noqa: UP045 - a value
    fitting: list[Any] = [reconciler(), reconciler(returns=later), lambda params, key: None, dict]
    fitting += [lambda params, key, *, context: None]
    assert [fault for each in fitting if (fault := role_fault("reconcile", each, *LOOKUP))] == []
    for wrong in (look_up, reconciler(key=int), reconciler(returns=str), lambda params: None):
        assert role_fault("reconcile", wrong, *LOOKUP) == wording


def test_what_must_be_awaited_is_seen_by_definition_or_annotation() -> None:
    """An `async def`, an object with one as its `__call__`, or a function that says it returns an awaitable."""
    must_be: list[Callable[..., object]] = [awaited, AsyncWorker(), Worker().later, partial(awaited)]
    must_be += [handler(returns=Awaitable[Answer]), handler(returns=asyncio.Future)]
    must_not: list[Callable[..., object]] = [look_up, Worker(), handler(returns=Any), handler(returns="Unheard")]
    must_not += [print, dict, lambda: None]
    assert [is_async(function) for function in must_be] == [True] * len(must_be)
    assert [is_async(function) for function in must_not] == [False] * len(must_not)


@pytest.mark.parametrize(
    "returns, known",
    [
        *((Answer, Found), (Awaitable[Answer], Found), (Answer | ToolResult[Never], Found), ("Answer", Found)),
        *((Answer | ToolResult[str], Found | str), (Awaitable[Found], Found), (Awaitable, None), ("Unheard", None)),
        (ToolResult, None),
    ],
    ids=str,
)
def test_the_types_of_a_handler_are_those_of_its_annotations(returns: object, known: object) -> None:
    """Also behind what is awaited, and of several results."""
    assert handler_types(handler(returns=returns)) == (None if known is None else (Lookup, known))
