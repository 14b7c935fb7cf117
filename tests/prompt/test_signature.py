"""Which callables can be handlers."""

# Lambdas without annotations are among the cases.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial, wraps
from typing import Any, Never, Optional, Protocol, TypeVar, runtime_checkable

import pytest

from handrail.prompt import ToolContext, ToolResult
from handrail.prompt.signature import HandlerContract, handler_types, is_async, return_fault, role_fault
from handrail.session import Session
from tests.prompt.samples import Found, Guidance, Lookup, look_up
from tests.wording import Wording

V = TypeVar("V")
LOOKUP = HandlerContract(Lookup, Found)
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
    assert [fault for each in handlers if (fault := role_fault("handler", each, LOOKUP))] == []


@pytest.mark.parametrize("params", [Lookup, Any, object, V, Lookup | Guidance, Lookup | None, Asks, "Lookup"], ids=repr)
def test_parameters_may_be_annotated_by_whatever_takes_them(params: object) -> None:
    """The dataclass, a union with it, a base, a protocol or a variable."""
    assert role_fault("handler", handler(params=params), LOOKUP) is None


@pytest.mark.parametrize(
    "returns",
    [
        *(Answer, ToolResult, ToolResult[Never], ToolResult[Found | None], ToolResult[Any], Any),
        *(Answer | ToolResult[None], Awaitable[Answer], Coroutine[Any, Any, Answer], asyncio.Future[Answer]),
        asyncio.Future,
    ],
    ids=str,
)
def test_the_result_may_be_annotated_by_whatever_it_can_be(returns: object) -> None:
    """The result itself, a failure, either of both, or something to be awaited for it."""
    assert role_fault("handler", handler(returns=returns), LOOKUP) is None


@pytest.mark.parametrize("text", ["Unheard", "unheard.Of", "list[Unheard]", "1 +", "5()"])
def test_annotations_that_do_not_resolve_are_not_held_against_a_handler(text: str) -> None:
    """Names that are known to type checkers only are theirs to check."""
    assert role_fault("handler", handler(params=text, context=text, returns=text), LOOKUP) is None


@pytest.mark.requirement("M-06l")
def test_a_callable_that_cannot_be_called_is_told_why(wording: Wording) -> None:
    """What it takes, and what is missing or too much."""
    handlers: list[Callable[..., object]] = [lambda params: None, lambda: None, lambda params, more, *, context: None]
    handlers += [lambda context, params: None, print, yields, yields_later]
    told = [(role_fault("handler", each, LOOKUP) or "").partition(". Write: ")[0] for each in handlers]
    assert told == wording


@pytest.mark.requirement("M-06l")
def test_annotations_that_cannot_be_right_are_told(wording: Wording) -> None:
    """The parameter or result that is annotated wrongly, and the signature that would fit."""
    handlers = [handler(params=Guidance), handler(params=Guidance | str), handler(params=Renders), handler(params=None)]
    handlers += [handler(context=Session), handler(context="Session"), handler(returns=str), handler(returns=Found)]
    handlers += [handler(returns=None), handler(returns=ToolResult[Lookup])]
    handlers += [handler(returns=Awaitable[ToolResult[Lookup]])]
    told = [(role_fault("handler", each, LOOKUP) or "").partition(". Write: ")[0] for each in handlers]
    assert told == wording
    assert role_fault("handler", handler(params=Guidance), LOOKUP) == wording


def test_a_tool_without_types_is_held_to_none(wording: Wording) -> None:
    """`None` in the brackets is `None` in the annotations."""
    nothing = HandlerContract(None, None)
    assert role_fault("handler", handler(params=None, returns=ToolResult[None]), nothing) is None
    assert role_fault("handler", look_up, nothing) == wording
    assert role_fault("handler", handler(params=None, returns=Answer), nothing) == wording


def test_results_that_are_no_dataclass_are_compared_by_their_class(wording: Wording) -> None:
    """A list is a sequence; a dictionary is none."""
    contract = HandlerContract(Lookup, Sequence[str])
    assert role_fault("handler", handler(returns=ToolResult[list[str]]), contract) is None
    assert role_fault("handler", handler(returns=ToolResult[dict[str, str]]), contract) == wording


def test_reconcile_takes_parameters_and_key(wording: Wording) -> None:
    """It may answer `None`, which a handler may not, and may be awaited."""
    later = Awaitable[Optional[Answer]]  # noqa: UP045 - a value
    fitting: list[Any] = [
        reconciler(),
        reconciler(returns=later),
        lambda params, key: None,
        lambda params, key, *, context: None,
        dict,
    ]
    assert [fault for each in fitting if (fault := role_fault("reconcile", each, LOOKUP))] == []
    assert role_fault("reconcile", look_up, LOOKUP) == wording
    assert role_fault("reconcile", reconciler(key=int), LOOKUP) == wording
    assert role_fault("reconcile", reconciler(returns=str), LOOKUP) == wording
    assert role_fault("reconcile", lambda params: None, LOOKUP) == wording


def test_what_must_be_awaited_is_seen_by_definition_or_annotation() -> None:
    """An `async def`, an object with one as its `__call__`, or a function that says it returns an awaitable."""
    must_be: list[Callable[..., object]] = [awaited, AsyncWorker(), Worker().later, partial(awaited)]
    must_be += [handler(returns=Awaitable[Answer]), handler(returns=asyncio.Future), partial(AsyncWorker())]
    must_not: list[Callable[..., object]] = [look_up, Worker(), handler(returns=Any), handler(returns="Unheard")]
    must_not += [print, dict, lambda: None]
    assert [is_async(function) for function in must_be] == [True] * len(must_be)
    assert [is_async(function) for function in must_not] == [False] * len(must_not)


@pytest.mark.parametrize(
    "returns, known",
    [
        *((Answer, Found), (Awaitable[Answer], Found), (Answer | ToolResult[Never], Found), ("Answer", Found)),
        *((Answer | ToolResult[str], Found | str), (Awaitable[Found], Found), (Awaitable, None), ("Unheard", None)),
    ],
    ids=str,
)
def test_the_types_of_a_handler_are_those_of_its_annotations(returns: object, known: object) -> None:
    """Also behind what is awaited, and of several results."""
    assert handler_types(handler(returns=returns)) == (None if known is None else (Lookup, known))


@pytest.mark.parametrize("returns", [str, str | int, Awaitable, Awaitable[str], Awaitable[str | None], Any], ids=str)
def test_a_return_annotation_may_be_one_of_some_types(returns: object, wording: Wording) -> None:
    """Or await it."""
    assert return_fault(handler(returns=returns), (str,)) is None
    assert return_fault(handler(returns=Awaitable[int]), (str,)) == wording
