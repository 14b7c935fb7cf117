"""Plain functions of agent files: converted as by `tool`, and given what PydanticAI gives its functions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field
from pydantic_ai import (
    ApprovalRequired,
    BinaryContent,
    ModelRetry,
    RunContext,
    RunUsage,
    ToolFailed,
    UsageLimitExceeded,
    UsageLimits,
)
from pydantic_ai.messages import BinaryImage, ToolReturnPart

from handrail import tool
from handrail.adapters.pydantic_ai import tool_context
from handrail.agents import parse_rules
from handrail.agents.approval.decisions import Answer
from handrail.errors import PromptEvaluationError, UnboundResourceError
from handrail.prompt import BinaryPart, TextPart, ToolContext
from handrail.runtime import Session
from handrail.testing import Call, Outcome
from tests.agents.desks import Person, called, desk, events, play
from tests.wording import Wording

pytestmark = pytest.mark.anyio

Decorate = Callable[[Callable[..., object]], Any]


def undecorated(function: Callable[..., object]) -> Any:
    """The function as it is."""
    return function


DECORATORS = pytest.mark.parametrize("decorate", [undecorated, tool], ids=["plain", "decorated"])
"""A function may be decorated, for the options of a tool, and does the same."""

ALLOWED = parse_rules("defaults: {read: allow, state: allow, external: ask}", file="approval.yaml")


class Bank:
    """A client of the program."""

    def pay(self, order: str) -> str:
        return f"paid {order}"


async def test_the_arguments_are_read_as_those_of_every_tool(tmp_path: Path, wording: Wording) -> None:
    """Strictly, and with all faults at once; the function gets values of its types."""
    taken: list[object] = []

    def book(day: date, seats: Annotated[int, Field(ge=1)], names: list[str], *, note: str = "") -> dict[str, object]:
        taken.append((day, seats, names, note))
        return {"seats": seats, "day": day.isoformat()}

    wrong = {"day": 1735689600, "seats": 0, "names": ["a", 7], "at": "noon"}
    right = {"day": "2026-01-31", "seats": 2.0, "names": ["a"]}
    session = Session()
    script = called(Call("book", wrong), Call("book", right), c1=Outcome.failed(), c2=Outcome.ok('"seats":2'))
    await play(desk(tmp_path, tools=[book]), script, session=session)
    assert taken == [(date(2026, 1, 31), 2, ["a"], "")]
    refused, done = events(session)
    assert refused.result.render() == wording
    assert (done.params.day, done.params.note) == (date(2026, 1, 31), "")
    assert done.result.render() == '{"seats":2,"day":"2026-01-31"}'


async def test_a_function_may_return_files(tmp_path: Path) -> None:
    """Handrail's and PydanticAI's, alone or in a list with text; the model is sent them in PydanticAI's form."""

    def photograph() -> BinaryContent:
        return BinaryContent(b"photo", media_type="image/png")

    def draw() -> list[str | BinaryContent]:
        return ["Drawn.", BinaryImage(b"drawing", media_type="image/png"), "Signed."]

    def scan() -> BinaryPart | str:
        return BinaryPart(b"scan", "application/pdf")

    session = Session()
    script = called(Call("photograph"), Call("draw"), Call("scan"), c1=Outcome.ok(), c2=Outcome.ok(), c3=Outcome.ok())
    result = await play(desk(tmp_path, tools=[photograph, draw, scan]), script, session=session)
    assert [event.result.parts for event in events(session)] == [
        (BinaryPart(b"photo", "image/png"),),
        (BinaryPart(b"drawing", "image/png"), TextPart("Signed.")),
        (BinaryPart(b"scan", "application/pdf"),),
    ]
    returns = [part for message in result.messages for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [[file.data for file in part.files if isinstance(file, BinaryContent)] for part in returns] == [
        [b"photo"],
        [b"drawing"],
        [b"scan"],
    ]


async def test_a_resource_that_nothing_binds_stops_a_run_before_its_model_is_asked(tmp_path: Path) -> None:
    """The program binds it with the options of a run, so that an inspection needs none."""

    def pay(order: str, bank: Bank) -> str:
        raise NotImplementedError

    loaded = desk(tmp_path, tools=[pay])
    assert [each.name for each in await loaded.inspect()] == ["pay"]
    with pytest.raises(UnboundResourceError) as raised:
        await play(loaded, [])
    assert raised.value.protocol is Bank


@DECORATORS
async def test_a_function_is_given_what_it_asks_for(tmp_path: Path, decorate: Decorate) -> None:
    """PydanticAI's run context, Handrail's context, resources of the run; a model sees none of it."""
    given: list[object] = []

    @decorate
    def look(ctx: RunContext[dict[str, int]], text: str, bank: Bank, *, context: ToolContext) -> str:
        given.extend([ctx.deps, ctx.tool_call_id, context.call_id, bank.pay(text), tool_context() is context])
        return text

    @decorate
    async def wait(text: str, ctx: RunContext) -> str:
        own = tool_context()
        assert own is not None
        given.extend([ctx.tool_name, own.call_id])
        return text

    loaded = desk(tmp_path, tools=[look, wait])
    script = called(Call("look", {"text": "a"}), Call("wait", {"text": "b"}), c1=Outcome.ok("a"), c2=Outcome.ok("b"))
    await play(loaded, script, deps={"a": 1}, resources={Bank: Bank()})
    assert given == [{"a": 1}, "c1", "c1", "paid a", True, "wait", "c2"]
    assert tool_context() is None


@DECORATORS
@pytest.mark.parametrize("kind", [ModelRetry, ToolFailed])
async def test_a_function_may_refuse_a_call_as_for_pydantic_ai(
    tmp_path: Path, kind: type[ModelRetry | ToolFailed], decorate: Decorate, caplog: pytest.LogCaptureFixture
) -> None:
    """The model reads the text, as often as it asks; a refusal spends no retry, is not logged, and is final."""

    @decorate
    def find(name: str) -> str:
        raise kind(f"there is no {name}; look at the list")

    session = Session()
    came = {f"c{number}": Outcome.failed("there is no x; look at the list") for number in (1, 2, 3)}
    await play(desk(tmp_path, tools=[find]), called(*[Call("find", {"name": "x"})] * 3, **came), session=session)
    assert [(event.result.message, event.final) for event in events(session)] == [
        ("there is no x; look at the list", True)
    ] * 3
    assert caplog.messages == []


@DECORATORS
@pytest.mark.parametrize("answer, came", [("yes", Outcome.ok("paid")), ("no", Outcome.failed("pay"))])
async def test_a_function_may_ask_for_approval_itself(
    tmp_path: Path, answer: Any, came: Outcome, decorate: Decorate
) -> None:
    """The call is postponed, and made again once it was answered."""

    @decorate
    def pay(ctx: RunContext[Any], cents: int) -> str:
        if cents > 100 and not ctx.tool_call_approved:
            raise ApprovalRequired
        return "paid"

    person, session = Person(Answer(answer)), Session()
    script = called(Call("pay", {"cents": 5}), Call("pay", {"cents": 500}), c1=Outcome.ok("paid"), c2=came)
    await play(desk(tmp_path, tools=[pay]), script, asker=person, session=session, mode="ask", rules=ALLOWED)
    assert person.ids == ["c2"]
    assert [event.call_id for event in events(session)] == ["c1", "c2"]


@DECORATORS
async def test_a_limit_that_a_function_exceeds_ends_the_run(tmp_path: Path, decorate: Decorate) -> None:
    """As of a model that it asks itself."""

    @decorate
    def ask() -> str:
        UsageLimits(request_limit=1).check_before_request(RunUsage(requests=1))
        return "not reached"

    session = Session()
    with pytest.raises(PromptEvaluationError) as caught:
        await play(desk(tmp_path, tools=[ask]), called(Call("ask")), session=session)
    assert (caught.value.phase, type(caught.value.__cause__)) == ("budget", UsageLimitExceeded)
    assert [event.success for event in events(session)] == [False]
