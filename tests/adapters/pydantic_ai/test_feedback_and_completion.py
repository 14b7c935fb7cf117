"""Feedback and completion in runs of PydanticAI: what the model is sent, what is stored, and who counts."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, AgentStreamEvent, BinaryContent, ModelRequest, RunContext, ToolFailed, UserPromptPart
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ToolReturnPart

import handrail.store
from handrail import tool
from handrail.adapters.pydantic_ai import (
    HandrailCapability,
    PipelineCapability,
    PromptResponse,
    PydanticAIAdapter,
)
from handrail.adapters.pydantic_ai import adapter as adapter_module
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptEvaluationError, ScriptError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import (
    CompletionCheck,
    FeedbackTrigger,
    FilesExist,
    Prompt,
    PromptTemplate,
    Section,
    StaticFeedback,
    ToolContext,
    ToolsSection,
)
from handrail.runtime import Session
from handrail.testing import Call, Reply, ScriptedModel
from tests.wording import Wording

pytestmark = pytest.mark.anyio

FEEDBACK = (StaticFeedback(text="Look again.", trigger=FeedbackTrigger(every_calls=1)),)


@tool
def write(path: str, *, context: ToolContext) -> str:
    """Write a file."""
    context.resources.get(Filesystem).write_text(path, "text")
    return "written"


@dataclass(frozen=True, slots=True)
class Answer:
    """A structured answer."""

    title: str


def prompt(kind: Any = str, **options: Any) -> Prompt[Any]:
    """A prompt with that tool."""
    section: Section[Any] = ToolsSection(title="Desk", tools=[write])
    template = PromptTemplate[kind](ns="t", key="desk", sections=[section], **options)
    return Prompt(template).bind(resources={Filesystem: InMemoryFilesystem()})


def sent_back(messages: Any) -> list[str]:
    """The texts with which the model was sent back."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    texts = [str(part.content) for item in requests for part in item.parts if isinstance(part, UserPromptPart)]
    return texts[1:]


def returned(messages: list[ModelMessage]) -> list[object]:
    """What the calls returned to the model."""
    return [part.content for item in messages for part in item.parts if isinstance(part, ToolReturnPart)]


@pytest.mark.parametrize("done", [{"text": "Done."}, {"output": {"title": "Done"}}], ids=["text", "structured"])
async def test_a_run_goes_on_until_its_files_exist(
    done: dict[str, Any], wording: Wording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PydanticAI's limit of output retries does not count, whatever the form of the answer."""
    monkeypatch.setattr(adapter_module, "_OUTPUT_RETRIES", 0)
    kind = str if "text" in done else Answer
    replies = [Reply(**done), Reply(**done), Reply(calls=[Call("write", {"path": "a.md"})]), Reply(**done)]
    adapter = PydanticAIAdapter(ScriptedModel(replies))
    response = await adapter.evaluate_async(prompt(kind, completion=FilesExist(["a.md"])), session=Session())
    assert response.output == ("Done." if kind is str else Answer("Done"))
    assert sent_back(response.messages) == [wording, wording]


def plain() -> str:
    """Return text."""
    return "text"


def listed() -> list[int]:
    """Return a list."""
    return [1]


def drawn() -> BinaryContent:
    """Return a picture."""
    return BinaryContent(b"png", media_type="image/png")


def failed() -> str:
    """Fail."""
    raise ToolFailed("no")


@pytest.mark.parametrize(
    "function, values",
    [(plain, None), (listed, [1]), (drawn, [BinaryContent(b"png", media_type="image/png")]), (failed, None)],
    ids=["text", "list", "picture", "failure"],
)
async def test_a_call_of_a_foreign_tool_has_feedback_too(
    function: Any, values: list[object] | None, wording: Wording
) -> None:
    """The value of the tool is not changed, but for text, behind which it stands."""
    model = ScriptedModel([Reply(calls=[Call(function.__name__, {})]), Reply(text="Done.")])
    executor = ToolExecutor(prompt=prompt(feedback=FEEDBACK), session=Session())
    capabilities: list[AbstractCapability[None]] = [PipelineCapability(executor)]
    result = await Agent(model, tools=[function], capabilities=capabilities).run("Go.")
    assert returned(result.all_messages()) == [wording if values is None else [*values, wording]]


async def test_an_answer_that_is_streamed_is_checked(wording: Wording) -> None:
    """The model cannot be sent back, so the stream ends with an error; with an event handler it is."""
    replies = [Reply(text="Done."), Reply(calls=[Call("write", {"path": "a.md"})]), Reply(text="Done now.")]

    def agent() -> Agent[None, str]:
        executor = ToolExecutor(prompt=prompt(completion=FilesExist(["a.md"])), session=Session())
        return Agent(ScriptedModel(replies), capabilities=[HandrailCapability(executor)])

    async def handle(_ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for _ in events:
            pass

    with pytest.raises(PromptEvaluationError) as failure:
        async with agent().run_stream("Do it.") as stream:
            await stream.get_output()
    assert (failure.value.phase, str(failure.value)) == ("response", wording)
    result = await agent().run("Do it.", event_stream_handler=handle)
    assert (result.output, sent_back(result.all_messages())) == ("Done now.", [wording])


class Desk:
    """A prompt on a stored session, which each evaluation opens anew. A model whose script ends is unreachable.

    Attributes:
        missing: what its checker misses in an answer.
    """

    def __init__(self, folder: Path, *, kind: Any = str, most_sent_back: int = 3) -> None:
        self.missing: str | None = "The report is missing."
        self._url = f"sqlite:///{folder}/s.db"
        check = CompletionCheck(lambda _: self.missing, most_sent_back=most_sent_back)
        self._prompt = prompt(kind, completion=check)

    async def evaluate(self, *replies: Reply) -> PromptResponse[Any]:
        """Evaluate the prompt; an evaluation that has ended is returned."""
        with handrail.store.open(self._url) as store, Session.open(store, "s") as session:
            adapter = PydanticAIAdapter(ScriptedModel(replies))
            return await adapter.evaluate_async(self._prompt, session=session, user_prompt="Go.", finished="return")


FORMS = pytest.mark.parametrize("form", ["text", "structured"])


def answered(form: str, text: str) -> tuple[Reply, object]:
    """A reply with an answer, and the answer."""
    return (Reply(text=text), text) if form == "text" else (Reply(output={"title": text}), Answer(text))


@FORMS
async def test_an_evaluation_that_is_resumed_at_its_check_has_its_answer(tmp_path: Path, form: str) -> None:
    """The answer of before is checked, and accepted or sent back behind the question; it is also what is returned."""
    desk = Desk(tmp_path, kind=str if form == "text" else Answer)
    first, accepted = answered(form, "One.")
    with pytest.raises(ScriptError):
        await desk.evaluate(Reply(calls=[Call("write", {"path": "a.md"})]), first)
    with pytest.raises(ScriptError):
        await desk.evaluate()
    desk.missing = None
    responses = [await desk.evaluate() for _ in range(2)]
    assert [item.output for item in responses] == [accepted, accepted]
    assert responses[0].text == responses[1].text == ("One." if form == "text" else "")


@FORMS
async def test_an_answer_is_sent_back_once_however_often_the_model_is_unreachable(tmp_path: Path, form: str) -> None:
    """Answers are counted, and not how often one is checked; the model reads the question and its first answer."""
    desk = Desk(tmp_path, kind=str if form == "text" else Answer, most_sent_back=1)
    with pytest.raises(ScriptError):
        await desk.evaluate(answered(form, "One.")[0])
    desk.missing = "The report is empty."
    for _ in range(2):
        with pytest.raises(ScriptError):
            await desk.evaluate()
    second, accepted = answered(form, "Two.")
    response = await desk.evaluate(second)
    said = "\n".join(repr(item) for item in response.messages)
    assert response.output == accepted
    assert said.index("Go.") < said.index("One.") < said.index("The report is empty.") < said.index("Two.")
