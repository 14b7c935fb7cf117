"""What is recorded of a foreign call: its value as JSON has it, whatever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import BinaryContent, Tool, ToolReturn
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.toolsets import FunctionToolset
from pydantic_core import from_json, to_json

from handrail.adapters.pydantic_ai.foreign.values import replayed_value
from handrail.runtime import Session, ToolMessage
from handrail.testing import Call, Outcome
from tests.adapters.foreign_desk import call_by_hand, called, events, pipeline, play, returns, write
from tests.adapters.notes import noted
from tests.runtime.calls.test_records import through_a_store
from tests.wording import Wording


class Mute:
    """It cannot even be looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Shy(BaseModel):
    """Its JSON cannot be made."""

    part: Any

    def __repr__(self) -> str:
        return "shy \ud800"


def _deep(levels: int = 100_000) -> list[Any]:
    deep: list[Any] = []
    for _ in range(levels):
        deep = [deep]
    return deep


def _itself() -> dict[str, Any]:
    ring: dict[str, Any] = {}
    ring["ring"] = ring
    return ring


UNSAYABLE = object()
"""What is told of a list that cannot be shown."""
VALUES: dict[str, tuple[Callable[[], Any], Any]] = {
    "nothing": (lambda: None, None),
    "number": (lambda: 2**70, 2**70),
    "not a number": (lambda: {"rate": float("nan")}, {"rate": "NaN"}),
    "model": (lambda: Shy(part=7), {"part": 7}),
    "bytes": (lambda: b"\xff", r"b'\xff'"),
    "odd text": (lambda: "Zoë 🍞", "Zoë 🍞"),
    "half a character": (lambda: "\ud800", r"'\ud800'"),
    "half a character by repr": (lambda: Shy(part="\ud800"), r"shy \ud800"),
    "huge": (lambda: "x" * 30_000, "x" * 30_000),
    "holds itself": (_itself, {"ring": "..."}),
    "too deep": (_deep, UNSAYABLE),
    "too deep in a message": (lambda: _deep(195), str(_deep(195))),
    "object": (lambda: len, "<built-in function len>"),
    "object in a mapping": (lambda: {"of": len}, {"of": "<built-in function len>"}),
    "cannot be looked at": (lambda: [Mute(), "\ud800"], UNSAYABLE),
    "number too long": (lambda: [10**5000], UNSAYABLE),
}


AS_THEY_ARE = {"nothing", "number", "not a number", "model", "bytes", "odd text", "huge"}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.anyio
async def test_a_value_is_recorded_as_json_has_it(name: str, wording: Wording) -> None:
    """What JSON cannot say is told in words, to the model too; any other value reaches PydanticAI as it is."""
    make, kept = VALUES[name]
    kept = wording if kept is UNSAYABLE else kept
    value = make()

    async def give() -> Any:
        return value

    session = Session()
    given = await call_by_hand(pipeline(session), FunctionToolset[Any]([give]), "give")
    if name in AS_THEY_ARE:
        assert given is value
    else:
        assert given == kept
    assert events(session)[0].result.value == kept
    assert through_a_store(events(session)[0]).result.value == kept


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.anyio
async def test_no_value_ends_the_run_later(name: str) -> None:
    """The history can be written and read again, and what stands beside a value is kept."""
    value = VALUES[name][0]()

    async def give() -> Any:
        return ToolReturn[Any](value, content=["a picture"], metadata={"size": 3})

    result = await play(pipeline(Session()), called(Call("give")), tools=[give])
    history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(result.all_messages()))
    assert (returns(history)["c1"].outcome, returns(history)["c1"].metadata) == ("success", {"size": 3})
    assert "a picture" in str(history)


@pytest.mark.anyio
async def test_pictures_reach_the_model_as_they_are() -> None:
    """Bytes that PydanticAI has a form for are none that it cannot tell."""
    picture = BinaryContent(data=b"\xff", media_type="image/png")

    async def look() -> Any:
        return [picture, {"size": 1}]

    result = await play(pipeline(Session()), called(Call("look")), tools=[look])
    assert returns(result.all_messages())["c1"].content == [picture, {"size": 1}]


def _noting(*words: str) -> Iterator[str]:
    for word in words:
        write(word)
        yield word


READ: dict[str, tuple[Callable[[], Any], Any]] = {
    "map": (lambda: map(str, (1, 2)), ["1", "2"]),
    "in a mapping": (lambda: {"a": _noting("x"), "b": 1}, {"a": ["x"], "b": 1}),
    "in each other": (lambda: ({"a": (_noting("x"),)} for _ in range(2)), [{"a": (["x"],)}] * 2),
    "groups": (lambda: groupby("aab"), [("a", ["a", "a"]), ("b", ["b"])]),
    "beside what cannot be told": (lambda: {"a": _noting("x"), "b": len}, {"a": ["x"], "b": "<built-in function len>"}),
    "in a return": (lambda: ToolReturn[Any]({"a": _noting("x")}), {"a": ["x"]}),
}


@pytest.mark.parametrize("make, seen", READ.values(), ids=READ)
@pytest.mark.anyio
async def test_iterators_are_read_inside_the_call(make: Callable[[], Any], seen: Any) -> None:
    """Wherever they stand: the model and the record have the same items."""

    async def give() -> Any:
        return make()

    session = Session()
    given = await call_by_hand(pipeline(session), FunctionToolset[Any]([give]), "give")
    assert (given.return_value if isinstance(given, ToolReturn) else given) == seen
    assert events(session)[0].result.value == from_json(to_json(seen))
    assert set(noted(session)) <= {"x"}


@pytest.mark.anyio
async def test_an_iterator_that_fails_fails_its_call() -> None:
    """What it did before is undone."""

    def late() -> Iterator[str]:
        yield from _noting("half")
        raise KeyError("late")

    async def give() -> Any:
        return {"lines": late()}

    session = Session()
    await play(pipeline(session), called(Call("give"), c1=Outcome.failed("KeyError: 'late'")), tools=[give])
    assert noted(session) == []


async def _yielding() -> object:
    """An `async def` that yields: PydanticAI takes it for a function that returns a generator."""
    write("half")
    yield "one"


async def _handing_on() -> Any:
    """A function that returns one, deep in something else."""
    write("half")
    return {"lines": [_yielding()]}


@pytest.mark.parametrize("function", [_yielding, _handing_on])
@pytest.mark.anyio
async def test_what_yields_asynchronously_is_a_failed_call(function: Any, wording: Wording) -> None:
    """Nobody would read it, and the model would be told of an object at some address."""
    session = Session()
    script = called(Call("give"), c1=Outcome.failed())
    result = await play(pipeline(session), script, tools=[Tool(function, name="give")])
    assert returns(result.all_messages())["c1"].content == wording
    assert (noted(session), [event.success for event in events(session)]) == ([], [False])


IMAGE, OTHER = (BinaryContent.narrow_type(BinaryContent(data, media_type="image/png")) for data in (b"1", b"2"))


@pytest.mark.parametrize(
    "returned, kept, given",
    [
        (IMAGE, None, [IMAGE]),
        (["one", IMAGE, {"two": 2}, OTHER], ["one", {"two": 2}], ["one", {"two": 2}, IMAGE, OTHER]),
        (ToolReturn([IMAGE], content="aside"), [], [IMAGE]),
        ("text", "text", "text"),
    ],
    ids=["a file", "among others", "in a return", "none"],
)
@pytest.mark.anyio
async def test_files_are_recorded_as_parts_and_replayed_as_files(returned: Any, kept: Any, given: Any) -> None:
    """The model gets the files again, and not their JSON."""

    async def give() -> Any:
        return returned

    session = Session()
    assert await call_by_hand(pipeline(session), FunctionToolset[Any]([give]), "give") == returned
    event = through_a_store(events(session)[0])
    assert event.result.value == kept
    again = ToolMessage("c1", "", success=True, result=event.result)
    assert replayed_value(again) == given
