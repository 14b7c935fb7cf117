"""Functions, long results, typed inputs, feedback and checks of answers of an agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    BinaryContent,
    ModelRetry,
    RunContext,
    RunUsage,
    ToolFailed,
    UsageLimitExceeded,
    UsageLimits,
    UserPromptPart,
)
from pydantic_ai import Tool as Allowed
from pydantic_ai.messages import BinaryImage
from pydantic_ai.toolsets import FunctionToolset

from handrail import tool
from handrail.adapters.hooks import FeedbackGiven, SentBack
from handrail.adapters.pydantic_ai import tool_context
from handrail.agents import CallEnded, LoadedAgent, Project, RunOptions, load_agent
from handrail.agents.registry import resolve
from handrail.errors import AgentError, PromptEvaluationError, UnboundResourceError
from handrail.prompt import BinaryPart, FeedbackTrigger, FilesExist, StaticFeedback, TextPart, ToolContext, ToolsSection
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.agents.kit import DONE, Heard, called, desk, events, inside, outcomes, play, returns, write
from tests.long_logs import LOG, copy, fetch
from tests.wording import Wording

pytestmark = pytest.mark.anyio

Decorate = Callable[[Callable[..., object]], Any]


def undecorated(function: Callable[..., object]) -> Any:
    """The function as it is."""
    return function


DECORATORS = pytest.mark.parametrize("decorate", [undecorated, tool], ids=["plain", "decorated"])
"""A function may be decorated, for the options of a tool, and does the same."""


class Bank:
    """A client of the program."""

    def pay(self, order: str) -> str:
        return f"paid {order}"


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
    photo, drawing = BinaryPart(b"photo", "image/png"), (BinaryPart(b"drawing", "image/png"), TextPart("Signed."))
    parts = [event.result.parts for event in events(session)]
    assert parts == [(photo,), drawing, (BinaryPart(b"scan", "application/pdf"),)]
    files = [[file.data for file in part.files if isinstance(file, BinaryContent)] for part in returns(result.messages)]
    assert files == [[b"photo"], [b"drawing"], [b"scan"]]


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
    outside = tool_context()  # a call that another test has abandoned may still be open in the task of the tests

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
    assert tool_context() is outside


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
    refused = ("there is no x; look at the list", True)
    assert [(event.result.message, event.final) for event in events(session)] == [refused] * 3
    assert caplog.messages == []


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


def dump() -> str:
    """Dump a log."""
    return LOG


async def test_one_tool_reads_the_results_of_all_toolsets(tmp_path: Path, wording: Wording) -> None:
    """It runs unasked, as all that reads; the calls of functions are cut, too, and so is what listeners are told."""
    toolsets = {"logs": ToolsSection(title="Logs", tools=[fetch]), "copies": ToolsSection(title="More", tools=[copy])}
    session = Session()
    loaded = desk(tmp_path, tools=[Allowed(dump, metadata={"approval": "allow"})], toolsets=toolsets)
    calls = [Call("fetch", id="a"), Call("copy", id="b"), Call("dump", id="c")]
    cut = {each: Outcome.ok("line 0\n", "read_result") for each in "abc"}
    reads = [Call("read_result", {"call": each, "start": 8}, id=f"read-{each}") for each in "abc"]
    read = {f"read-{each}": Outcome.ok("line 1\n") for each in "abc"}
    replies = [
        Reply(calls=calls),
        Reply(calls=reads, expect=Expect(tools=["read_result"], messages=cut)),
        Reply(text="Done.", expect=Expect(messages=read)),
    ]
    heard = Heard()
    result = await play(loaded, replies, session=session, mode="ask", listener=heard)
    assert result.output == "Done."
    texts = [str(part.content) for part in returns(result.messages)][:3]
    assert [line for text in texts for line in text.splitlines() if "read_result" in line] == wording
    assert all(success for _, success in outcomes(session))
    told = [len(event.content) for event in heard.events if isinstance(event, CallEnded)]
    assert max(told[:3]) <= MAX_RESULT_CHARS < len(LOG)


def money() -> FunctionToolset[Any]:
    """A toolset of PydanticAI with one tool."""
    toolset = FunctionToolset[Any]()

    @toolset.tool_plain(metadata={"effect": "read"})
    def price(order: str) -> str:
        """The price of an order."""
        return f"{order} costs 64"

    return toolset


def advice(text: str, **trigger: Any) -> StaticFeedback:
    """Feedback with that text."""
    return StaticFeedback(text=text, trigger=FeedbackTrigger(**trigger))


async def test_the_files_of_a_built_in_toolset_are_seen(tmp_path: Path, wording: Wording) -> None:
    """By the check of the answer, and by feedback, whichever toolset the call belongs to; excluded paths are not."""
    root = write(tmp_path / "root", {"b.md": "excluded", "c.md": "there"})
    agent = desk(tmp_path / "project", toolsets={"money": money()}, also=["files"], front="exclude: [b.md]")
    replies = [
        Reply(calls=[Call("price", {"order": "A-1"}, id="one")]),
        Reply(text="Done.", expect=Expect(messages={"one": Outcome.ok("A file is there.")})),
        Reply(calls=[Call("write_file", {"path": "a.md", "content": "text"}, id="two")]),
        Reply(text="Done now.", expect=Expect(messages={"two": Outcome.ok("A file is there.")})),
    ]
    session = Session()
    result = await play(
        agent, replies, session=session, root=root, feedback=[advice("A file is there.", on_file="*.md")],
        completion=FilesExist(["a.md"]),
    )  # fmt: skip
    assert result.output == "Done now."
    assert [each.missing for each in session[SentBack].all()] == [(wording,), ()]
    assert [each.files for each in session[FeedbackGiven].all()] == [("c.md",), ("a.md",)]


TYPES = """
from dataclasses import dataclass
from pydantic import BaseModel
class Ticket(BaseModel):
    order: str
    cents: int = 3
@dataclass(frozen=True)
class Refund:
    order: str
    cents: int = 3
TOOLS = []
"""


def agents(folder: Path, ref: str = "types_of/tickets.py:Ticket") -> Path:
    """A clerk with this type of input, a boss who may call it, and a guard who has nothing to do with it."""
    clerk = f"---\nname: clerk\ninput_model_ref: {ref}\n---\nRefund.\n"
    boss = "---\nname: boss\ntoolsets: [clerk, dynamic_agents]\n---\nLead.\n"
    guard = "---\nname: guard\n---\nWatch.\n"
    write(folder, {"clerk.agent": clerk, "boss.agent": boss, "guard.agent": guard, "types_of/tickets.py": TYPES})
    return folder


def asked(agent: LoadedAgent, input: object) -> str:
    """What the model of the agent is asked."""
    prompt = agent.run(input, RunOptions(model=ScriptedModel([DONE]))).messages[0].parts[0]
    assert isinstance(prompt, UserPromptPart)
    return str(prompt.content)


@dataclass(frozen=True)
class Ticket:
    """What a program asks, in its own words."""

    order: str
    cents: int


@pytest.mark.parametrize("ref", ["types_of/tickets.py:Ticket", "types_of.tickets.Ticket", "types_of/tickets.py:Refund"])
def test_input_is_a_value_or_json_of_its_type(tmp_path: Path, ref: str) -> None:
    """It is refused before the model is asked, if it does not fit."""
    clerk = load_agent(agents(tmp_path, ref) / "clerk.agent")
    assert asked(clerk, Ticket("A-1", 5)) == '{"cents":5,"order":"A-1"}'
    assert asked(clerk, '{"order": "A-1"}') == '{"order": "A-1"}'
    for wrong in ("Refund A-1.", '{"order": 1}', '{"order": "A-1", "more": 1}', {"cents": 1}):
        with pytest.raises(AgentError, match="clerk"):
            asked(clerk, wrong)


async def test_callers_fill_the_fields(tmp_path: Path) -> None:
    """A call that does not fit is refused, and the next one is the whole task."""
    project = Project.load(agents(tmp_path))
    boss = LoadedAgent(project, resolve(project.agents["boss"], project.registry))
    (report, *_) = await boss.inspect()
    assert sorted(report.parameters["properties"]) == ["cents", "order"]
    session = Session()
    wrong = [Call("clerk", {"order": 1}), Call("clerk", {"input": "A-1"})]
    right = Call("clerk", {"order": "A-1"}, id="right")
    script = [Reply(calls=wrong), Reply(calls=[right]), *inside("right", [DONE]), DONE]
    await play(boss, script, session=session)
    came = [(each.success, each.handler_seconds is None) for each in session[ToolInvoked]]
    assert came == [(False, True), (False, True), (True, False)]


@pytest.mark.parametrize("ref", ["types_of/tickets.py:Tickt", "Ticket", "types_of.tickets.TOOLS", "nowhere.py:Ticket"])
def test_fault_of_the_type_is_that_of_the_agent(tmp_path: Path, ref: str) -> None:
    """And of those who call it; no other agent is kept from running."""
    folder = agents(tmp_path, ref)
    for name in ("clerk", "boss"):
        with pytest.raises(AgentError):
            load_agent(folder / f"{name}.agent")
    assert load_agent(folder / "guard.agent").name == "guard"
