"""`handrail.adapters.pydantic_ai.added_tools`: a tool that appears in the middle of a run, in every way in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelResponse, ModelRetry, TextPart, ToolCallPart, ToolReturn
from pydantic_ai.messages import BinaryContent, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PipelineCapability, PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import BinaryPart, Prompt, PromptTemplate, ToolResult, ToolsSection
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.runtime import Session, ToolInvoked
from tests.long_logs import LOG, copy, fetch

pytestmark = pytest.mark.anyio


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
        self.offered.append([each.name for each in info.function_tools])
        returns = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        self.returned += [part.content for part in returns]
        step = len(self.offered)
        if step == 1:
            calls = [ToolCallPart(name, {}, f"c{number}") for number, name in enumerate(self.first, 1)]
            return ModelResponse(calls)
        if step == 2:
            return ModelResponse([ToolCallPart("read_result", {"call": "c1", "limit": 6}, "r")])
        return ModelResponse([TextPart("done")])


def _capability(reader: Reader) -> Any:
    return Agent(reader.model, capabilities=[HandrailCapability(executor())]).run("Go.")


def _toolset(reader: Reader) -> Any:
    return Agent(reader.model, toolsets=[HandrailToolset(executor())]).run("Go.")


def _evaluate(reader: Reader) -> Any:
    return PydanticAIAdapter(reader.model).run_async(executor())


@pytest.mark.parametrize("run", [_capability, _toolset, _evaluate])
async def test_the_rest_of_a_cut_result_is_read_by_a_tool_that_is_offered_then(run: Callable[[Reader], Any]) -> None:
    """Before the first cut result no request has its definition."""
    reader = Reader("fetch")
    await run(reader)
    assert reader.offered == [["fetch"], ["fetch", "read_result"], ["fetch", "read_result"]]
    cut, part = reader.returned
    assert len(cut) <= MAX_RESULT_CHARS
    assert cut.startswith("line 0\n")
    assert part.endswith("\nline 0")


async def test_several_toolsets_offer_it_once() -> None:
    """Whichever is first: PydanticAI ends a run in which two tools have one name."""
    session, reader = Session(), Reader("fetch", "copy")
    toolsets = [HandrailToolset(executor(session)), HandrailToolset(executor(session, copy, key="copies"))]
    await Agent(reader.model, toolsets=toolsets).run("Go.")
    assert reader.offered[-1] == ["fetch", "read_result", "copy"]
    assert reader.returned[-1].endswith("\nline 0")


async def test_a_tool_of_the_agent_of_that_name_stays() -> None:
    """The run goes on."""
    reader, mine = Reader("fetch"), FunctionToolset[Any]()

    @mine.tool_plain
    def read_result(call: str, limit: int) -> str:
        return f"mine: {call} {limit}"

    await Agent(reader.model, toolsets=[mine], capabilities=[HandrailCapability(executor())]).run("Go.")
    assert reader.offered[-1] == ["read_result", "fetch"]
    assert reader.returned[-1] == "mine: c1 6"


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
    text, seen, said, part = reader.returned
    assert len(text) <= MAX_RESULT_CHARS
    assert text.startswith('{"log":"line 0')
    assert seen == image
    assert len(said) <= MAX_RESULT_CHARS
    assert part.endswith('\n{"log"')
    assert session[ToolInvoked].all()[0].result.value == {"log": LOG}
    assert session[ToolInvoked].all()[1].result == ToolResult.ok(None, parts=[BinaryPart(image.data, "image/png")])
    parts = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert parts[2].metadata == {"kept": True}


async def test_a_tool_says_how_much_of_its_results_is_shown() -> None:
    """In the metadata of a tool that is not Handrail's."""
    reader, others = Reader("dump"), FunctionToolset[Any]()

    @others.tool_plain(metadata={"max_result_chars": 300_000})
    def dump() -> str:
        return LOG

    await Agent(reader.model, toolsets=[others], capabilities=[PipelineCapability(executor())]).run("Go.")
    assert reader.returned[0] == LOG
    assert "read_result" not in reader.offered[1]


async def test_a_long_failure_of_another_tool_is_cut() -> None:
    """It stays the failure that the tool has chosen."""
    reader, others = Reader("dump"), FunctionToolset[Any]()

    @others.tool_plain
    def dump() -> str:
        raise ModelRetry(LOG)

    await Agent(reader.model, toolsets=[others], capabilities=[PipelineCapability(executor())]).run("Go.")
    assert len(reader.returned[0]) <= MAX_RESULT_CHARS
    assert reader.returned[-1].endswith("\nline 0")
