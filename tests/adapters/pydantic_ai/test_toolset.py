"""`HandrailToolset`: what an agent is offered, added tools, lost marks, and results from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, RunUsage
from pydantic_ai.exceptions import CallDeferred, ModelRetry
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, Tool, ToolDefinition
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from handrail import tool
from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PipelineCapability
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptValidationError
from handrail.prompt import BinaryPart, Prompt, PromptTemplate, ToolContext, ToolResult, ToolsSection
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.runtime import Session, ToolInvoked
from handrail.taint import TaintPolicy, list_taints
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.adapters.kit import ADD_NOTE, READ_NOTES, Note, evaluate, notes_prompt
from tests.kit import raises
from tests.long_logs import LOG, fetch
from tests.taint.desk import MAIL, desk
from tests.wording import Wording

pytestmark = pytest.mark.anyio

CONTEXT: RunContext[Any] = RunContext(deps=None, model=TestModel(), usage=RunUsage())


def make_toolset(session: Session | None = None, name: str | None = None) -> HandrailToolset:
    """A toolset of two tools."""
    prompt = notes_prompt(tools=(ADD_NOTE, READ_NOTES))
    return HandrailToolset(ToolExecutor(prompt=prompt, session=session or Session()), id=name)


async def test_tools_are_offered_in_the_order_of_their_declaration(wording: Wording) -> None:
    """The model gets names, descriptions with examples, and the schema that arguments are parsed by."""
    tools = await make_toolset().get_tools(CONTEXT)
    assert list(tools) == ["add_note", "read_notes"]
    assert tools["add_note"].tool_def == ToolDefinition(
        name="add_note",
        description=wording,
        parameters_json_schema=ADD_NOTE.parameters_schema,
        metadata={"effect": "state", "handrail": "add_note"},
        sequential=True,
        return_schema={"type": "string"},
        toolset_id="tests/notes",
    )
    assert tools["read_notes"].tool_def.description == wording


async def test_reads_run_together_and_a_write_alone_in_the_order_asked() -> None:
    """What PydanticAI makes of `sequential` is the order of turns."""
    session, met = Session(), asyncio.Barrier(2)

    @tool(effect="read")
    async def look(context: ToolContext) -> int:
        await met.wait()  # the other one is there, too
        return len(context.session[Note])

    prompt = notes_prompt(tools=(look, ADD_NOTE))
    toolset = HandrailToolset(ToolExecutor(prompt=prompt, session=session))
    looks = [Call("look"), Call("look")]
    calls = [*looks, Call("add_note", {"text": "milk"}), *looks]
    with ScriptedModel([Reply(calls=calls), Reply(text="Done.")]) as model:
        await Agent(model, toolsets=[toolset]).run("Look.")
    assert [event.result.value for event in session[ToolInvoked]] == [0, 0, Note("milk"), 1, 1]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"text": ', id="malformed", marks=pytest.mark.requirement("M-06a")),
        pytest.param('{"text": 7}', id="wrong type", marks=pytest.mark.requirement("M-06e")),
        pytest.param("[]", id="no object"),
    ],
)
async def test_wrong_arguments_are_a_failed_return_and_spend_no_retry(arguments: str, wording: Wording) -> None:
    """The pipeline tells what is wrong, any number of times; PydanticAI neither retries nor ends the run."""
    session = Session()
    wrong = [Reply(calls=[Call("add_note", arguments)]) for _ in range(3)]
    end = Reply(text="I give up.", expect=Expect(messages={"call-3": Outcome.failed()}))
    with ScriptedModel([*wrong, end]) as model:
        await Agent(model, toolsets=[make_toolset(session)], retries=0).run("Note milk.")
    assert [event.success for event in session[ToolInvoked].all()] == [False, False, False]
    assert session[ToolInvoked].all()[2].result.message == wording


def executor(session: Session | None = None, *tools: Any, key: str = "logs") -> ToolExecutor:
    """An executor of these tools, by default of `fetch`."""
    section = ToolsSection(title="Logs", tools=tools or [fetch])
    prompt = Prompt(PromptTemplate[str](ns="t", key=key, sections=[section]))
    return ToolExecutor(prompt=prompt, session=Session() if session is None else session)


class Reader:
    """A model that calls a tool, reads what was cut, and notes what it was offered at each step."""

    def __init__(self, *first: str) -> None:
        self.first = first
        self.offered: list[list[str]] = []
        self.returned: list[Any] = []

    @property
    def model(self) -> FunctionModel:
        """The model."""
        return FunctionModel(self.reply)

    def reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """The next reply."""
        self.offered.append([entry.name for entry in info.function_tools])
        returns = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        self.returned += [part.content for part in returns]
        step = len(self.offered)
        if step == 1:
            calls = [ToolCallPart(name, {}, f"c{number}") for number, name in enumerate(self.first, 1)]
            return ModelResponse(calls)
        if step == 2:
            return ModelResponse([ToolCallPart("read_result", {"call": "c1"}, "r")])
        return ModelResponse([TextPart("done")])


WAYS_IN: dict[str, Callable[[Reader], Any]] = {
    "capability": lambda reader: Agent(reader.model, capabilities=[HandrailCapability(executor())]).run("Go."),
    "toolset": lambda reader: Agent(reader.model, toolsets=[HandrailToolset(executor())]).run("Go."),
    "evaluate": lambda reader: evaluate(reader.model, executor()),
}


@pytest.mark.parametrize("run", WAYS_IN.values(), ids=WAYS_IN)
async def test_the_rest_of_a_cut_result_is_read_by_a_tool_that_is_offered_then(run: Callable[[Reader], Any]) -> None:
    """Before the first cut result no request has its definition."""
    reader = Reader("fetch")
    await run(reader)
    assert reader.offered == [["fetch"], ["fetch", "read_result"], ["fetch", "read_result"]]
    cut, part = reader.returned
    assert len(cut) <= MAX_RESULT_CHARS
    assert cut.startswith("line 0\n")
    assert part.partition("\n")[2].startswith("line 0")


async def test_a_tool_of_the_agent_of_that_name_stays() -> None:
    """The run goes on."""
    reader, mine = Reader("fetch"), FunctionToolset[Any]()

    @mine.tool_plain
    def read_result(call: str) -> str:
        return f"mine: {call}"

    await Agent(reader.model, toolsets=[mine], capabilities=[HandrailCapability(executor())]).run("Go.")
    assert reader.offered[-1] == ["read_result", "fetch"]
    assert reader.returned[-1] == "mine: c1"


async def test_results_of_other_tools_in_the_pipeline_are_cut_too() -> None:
    """Text and JSON are; a value with files reaches the model as it is, and metadata stay."""
    session, reader, others = Session(), Reader("dump", "picture", "noted"), FunctionToolset[Any]()
    image = BinaryContent(b"\x89" * 50_000, media_type="image/png")

    @others.tool_plain
    def dump() -> dict[str, str]:
        return {"log": LOG}

    @others.tool_plain
    def picture() -> BinaryContent:
        return image

    @others.tool_plain
    def noted() -> ToolReturn:
        return ToolReturn(LOG, content="as asked", metadata={"kept": True})

    capability = PipelineCapability(executor(session))
    result = await Agent(reader.model, toolsets=[others], capabilities=[capability]).run("Go.")
    text, views, said, part = reader.returned
    assert len(text) <= MAX_RESULT_CHARS
    assert text.startswith('{"log":"line 0')
    assert views == image
    assert len(said) <= MAX_RESULT_CHARS
    assert part.partition("\n")[2].startswith('{"log"')
    assert session[ToolInvoked].all()[0].result.value == {"log": LOG}
    assert session[ToolInvoked].all()[1].result == ToolResult.ok(None, parts=[BinaryPart(image.data, "image/png")])
    parts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert parts[2].metadata == {"kept": True}


async def test_a_long_failure_of_another_tool_is_cut() -> None:
    """It stays the failure that the tool has chosen."""
    reader, others = Reader("dump"), FunctionToolset[Any]()

    @others.tool_plain
    def dump() -> str:
        raise ModelRetry(LOG)

    await Agent(reader.model, toolsets=[others], capabilities=[PipelineCapability(executor())]).run("Go.")
    assert len(reader.returned[0]) <= MAX_RESULT_CHARS
    assert reader.returned[-1].partition("\n")[2].startswith("line 0")


def web() -> str:
    """Read a page."""
    return MAIL


KINDS: dict[str, Callable[[ToolExecutor], dict[str, Any]]] = {
    "HandrailToolset": lambda executor: {"toolsets": [HandrailToolset(executor)]},
    "HandrailCapability": lambda executor: {"capabilities": [HandrailCapability(executor)]},
    "PipelineCapability": lambda executor: {"capabilities": [PipelineCapability(executor)]},
}
IBAN = "DE89370400440532013000"
PAY = Reply(calls=[Call("pay", {"iban": IBAN, "cents": 5})])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_marked_tool_whose_calls_do_not_reach_the_pipeline_is_refused(kind: str, wording: Wording) -> None:
    """At the latest when a tool of Handrail's would act; the message says what to use instead.

    With the capability of all tools the mark holds, as for a tool of a section.
    """
    session = Session()
    script = ScriptedModel([Reply(calls=[Call("web")]), PAY, Reply(text="done")])
    agent = Agent(script, tools=[Tool(web, metadata={"untrusted": True})], **KINDS[kind](desk(session)))
    if kind != "PipelineCapability":
        with raises(PromptValidationError, wording):
            await agent.run("Pay.")
        return
    await agent.run("Pay.")
    assert [entry.provenance.tool for entry in list_taints(session)] == ["web"]


@tool(effect="read", untrusted=True)
def browse(url: str) -> str:
    """Read a page, later."""
    raise CallDeferred


def outside(*, untrusted: bool) -> ExternalToolset[Any]:
    """A toolset that the program does not run."""
    parameters = {"type": "object", "properties": {"url": {"type": "string"}}}
    definition = ToolDefinition(
        name="browse", parameters_json_schema=parameters, metadata={"untrusted": untrusted, "effect": "read"}
    )
    return ExternalToolset([definition])


async def play_outside(session: Session, given: object, toolset: ExternalToolset[Any] | None) -> list[Any]:
    """The parts of the requests of two runs, the second of which has the result that the first one lacked."""
    web = [] if toolset is not None else [ToolsSection(title="Web", tools=[browse])]
    executor = desk(session, TaintPolicy(), sections=web)
    script = ScriptedModel([Reply(calls=[Call("browse", {"url": "x"})]), PAY, Reply(text="done")])
    options: dict[str, Any] = {"output_type": [str, DeferredToolRequests], "toolsets": [toolset] if toolset else []}
    agent: Agent[Any, Any] = Agent(script, capabilities=[PipelineCapability(executor)], **options)
    first = await agent.run("Pay.")
    assert isinstance(first.output, DeferredToolRequests)
    results = DeferredToolResults(calls={entry.tool_call_id: given for entry in first.output.calls})
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=results)
    return [part for entry in second.new_messages() if isinstance(entry, ModelRequest) for part in entry.parts]


@pytest.mark.parametrize("toolset", [outside(untrusted=True), None], ids=["external toolset", "deferred call"])
@pytest.mark.parametrize("given", [MAIL, {"text": MAIL}, ToolReturn(MAIL, content=MAIL)], ids=["text", "JSON", "more"])
async def test_what_comes_back_for_an_untrusted_tool_taints_and_is_delimited(
    toolset: ExternalToolset[Any] | None, given: object, wording: Wording
) -> None:
    """So the payment that follows is asked about, and what is said beside the value is delimited, too."""
    session = Session()
    parts = await play_outside(session, given, toolset)
    (item,) = list_taints(session)
    assert (item.provenance.tool, item.provenance.arguments) == ("browse", '{"url":"x"}')
    value, paid = [part.content for part in parts if isinstance(part, ToolReturnPart)]
    opening = str(value).splitlines()[0]
    assert opening.startswith("<untrusted ")
    assert str(value).endswith(opening.replace("<", "</"))
    assert paid == wording
    said = [part.content for part in parts if isinstance(part, UserPromptPart) and MAIL in part.content]
    assert [list(entry)[-1] for entry in said] == [opening.replace("<", "</")] * len(said)
    assert len(said) == isinstance(given, ToolReturn)


async def test_what_comes_back_for_a_trusted_tool_is_as_it_was_given() -> None:
    """And nothing is asked about."""
    session = Session()
    parts = await play_outside(session, MAIL, outside(untrusted=False))
    value, paid = [part.content for part in parts if isinstance(part, ToolReturnPart)]
    assert (value, paid) == (MAIL, f"paid 5 to {IBAN}")
    assert list_taints(session) == ()
