"""`handrail.adapters.pydantic_ai.adapter`: a prompt in, an answer out, and what can come instead."""

from __future__ import annotations

import importlib
import importlib.util
import ssl
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from socket import gaierror
from typing import Any

import pytest
from pydantic_ai import FallbackExceptionGroup, ModelHTTPError, ModelMessage, ModelRequest, ModelResponse
from pydantic_ai import RunContext as AgentContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelAPIError, RunTimedOut
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from handrail.adapters.pydantic_ai import PromptResponse, PydanticAIAdapter
from handrail.adapters.pydantic_ai.models import check_model_name, unreachable_error
from handrail.errors import (
    AgentError,
    ModelUnreachableError,
    PromptEvaluationError,
    PromptRenderError,
    ScriptError,
    UnknownModelError,
)
from handrail.limits import TokenUsage
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.resources import Binding, ResourceRegistry
from handrail.runtime import Session
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.adapters.kit import ADD_NOTE, closed_port, noted, notes_prompt, openai_at
from tests.kit import raises
from tests.wording import Wording

pytestmark = pytest.mark.anyio


DONE = Reply(text="Done.")


@dataclass(frozen=True)
class Plan:
    """A structured answer."""

    title: str = field(metadata={"description": "What it is about."})
    steps: tuple[str, ...] = ()


def evaluate(prompt: Prompt[Any], *replies: Reply) -> PromptResponse[Any]:
    """Run a prompt against a script, and see both end together."""
    with ScriptedModel(replies) as model:
        return PydanticAIAdapter(model).evaluate(prompt, session=Session())


def test_a_prompt_without_a_type_is_answered_with_text() -> None:
    """The response tells the prompt's name, the answer, the tokens, and the conversation."""
    response = evaluate(notes_prompt(), Reply(text="Done.", usage=TokenUsage(10, 3, 4)))
    assert (response.prompt_name, response.text, response.output) == ("tests/notes", "Done.", "Done.")
    assert response.usage == TokenUsage(10, 3, 4)
    assert [type(message) for message in response.messages] == [ModelRequest, ModelResponse]


def test_a_dataclass_is_asked_for_and_parsed() -> None:
    """By our schema, with its descriptions, and by our codec: a list becomes the tuple that is declared."""
    asked: list[dict[str, Any]] = []

    async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(info.output_tools[0].parameters_json_schema)
        return await TestModel(custom_output_args={"title": "Shop", "steps": ["milk"]}).request(
            messages, info.model_settings, info.model_request_parameters
        )

    prompt = Prompt(PromptTemplate[Plan](ns="tests", key="plan", sections=[]))
    response = PydanticAIAdapter(FunctionModel(reply)).evaluate(prompt, session=Session())
    assert response.output == Plan("Shop", ("milk",))
    assert response.text == ""
    assert asked[0]["properties"]["title"] == {"type": "string", "description": "What it is about."}


def test_an_answer_that_does_not_fit_goes_back_with_all_its_faults() -> None:
    """The model may try again, as often as the adapter says."""
    prompt = Prompt(PromptTemplate[Plan](ns="tests", key="plan", sections=[]))
    text = Expect(messages={"answer-1": Outcome.failed("$.title", "$.steps[0]", "colour")})
    wrong = Reply(output={"title": 7, "steps": [1], "colour": "red"})
    assert evaluate(prompt, wrong, Reply(output={"title": "Shop"}, expect=text)).output == Plan("Shop")
    with pytest.raises(PromptEvaluationError) as failure:
        evaluate(prompt, wrong, wrong, wrong)
    assert failure.value.phase == "response"


def test_the_text_is_the_instructions_and_somebody_always_speaks(wording: Wording) -> None:
    """The APIs of some providers refuse a conversation in which no user has spoken."""
    sent: list[list[ModelMessage]] = []

    async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent.append(messages)
        return await TestModel(call_tools=[]).request(messages, None, info.model_request_parameters)

    adapter = PydanticAIAdapter(FunctionModel(reply))
    adapter.evaluate(notes_prompt(), session=Session())
    adapter.evaluate(notes_prompt(), session=Session(), user_prompt="Note milk.")
    requests = [messages[0] for messages in sent]
    assert [getattr(request, "instructions", None) for request in requests] == [wording] * 2
    assert [getattr(request.parts[0], "content", None) for request in requests] == [wording, "Note milk."]


class Shelf:
    """A resource that says when it is closed."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def close(self) -> None:
        self.log.append("closed")


@pytest.mark.parametrize("outside", [True, False])
def test_resources_are_open_during_the_run(outside: bool) -> None:
    """They are closed at its end, unless somebody holds them open around it."""
    log: list[str] = []

    def use(params: None, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Shelf).log.append("used")
        return ToolResult.ok(None)

    tool = Tool[None, None](name="use", description="Use.", handler=use)
    section = MarkdownSection(title="Shelf", template="Use it.", tools=[tool])
    registry = ResourceRegistry.of(Binding(Shelf, lambda _: Shelf(log)))
    prompt = Prompt(PromptTemplate[str](ns="tests", key="shelf", sections=[section])).bind(resources=registry)
    with prompt.resources if outside else nullcontext():
        evaluate(prompt, Reply(calls=[Call("use")]), DONE)
        log.append("evaluated")
    assert log == (["used", "evaluated", "closed"] if outside else ["used", "closed", "evaluated"])


@pytest.mark.anyio
async def test_the_synchronous_entries_refuse_an_event_loop(wording: Wording) -> None:
    """They would stop it; the error names the other entry."""
    adapter = PydanticAIAdapter(ScriptedModel([DONE]))
    with raises(PromptEvaluationError, wording):
        adapter.evaluate(notes_prompt(), session=Session())


STOPS: dict[str, tuple[Exception, str]] = {
    "http": (ModelHTTPError(529, "claude"), "request"),
    "fallback": (FallbackExceptionGroup("all failed", [ModelHTTPError(529, "claude")]), "request"),
    "timed out": (RunTimedOut("too slow"), "request"),
}


@pytest.mark.parametrize("error, phase", STOPS.values(), ids=STOPS)
def test_what_stops_pydantic_ai_is_told_with_its_phase(error: Exception, phase: str, wording: Wording) -> None:
    """Chained, so that everything is known of it."""

    async def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise error

    with raises(PromptEvaluationError, wording) as failure:
        PydanticAIAdapter(FunctionModel(fail)).evaluate(notes_prompt(), session=Session())
    assert failure.value.phase == phase
    assert isinstance(failure.value.__cause__, type(error))


def test_what_the_developer_has_wrong_is_raised_as_it_is() -> None:
    """A model that nobody knows, a prompt that lacks parameters, a script that disagrees."""
    with pytest.raises(UnknownModelError):
        PydanticAIAdapter("no-such-provider:model")

    @dataclass(frozen=True)
    class Desk:
        name: str

    section = MarkdownSection[Desk](title="Desk", template="The desk of ${name}.")
    with pytest.raises(PromptRenderError, match="Desk"):
        evaluate(Prompt(PromptTemplate[str](ns="tests", key="desk", sections=[section])))
    with pytest.raises(ScriptError):
        evaluate(notes_prompt())


class Counter(AbstractCapability[Any]):
    """Somebody else's capability."""

    def __init__(self) -> None:
        self.runs = 0

    async def before_run(self, ctx: AgentContext[Any]) -> None:
        self.runs += 1


def test_more_capabilities_and_any_model_of_pydantic_ai_can_be_used() -> None:
    """The test model of PydanticAI calls every tool once."""
    counter, session = Counter(), Session()
    for model in (TestModel(), "test"):
        adapter = PydanticAIAdapter(model, capabilities=[counter])
        adapter.evaluate(notes_prompt(tools=(ADD_NOTE,)), session=session)
    assert counter.runs == 2
    assert noted(session) == ["a", "a"]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """The error says what to install."""
    find = importlib.util.find_spec

    def find_no_pydantic_ai(name: str) -> ModuleSpec | None:
        return None if name == "pydantic_ai" else find(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_no_pydantic_ai)
    monkeypatch.delitem(sys.modules, "handrail.adapters.pydantic_ai")
    with raises(ImportError, wording):
        importlib.import_module("handrail.adapters.pydantic_ai")


MEANT = {
    "openia:gpt-5": "openai:gpt-5",
    "antropic:claude-x": "anthropic:claude-x",
    "gpt-5": "openai:gpt-5",
    "claude-sonnet-4-5": "anthropic:claude-sonnet-4-5",
    "openai/gpt-5": "openai:gpt-5",
    **dict.fromkeys(("open-routr:some/model", "nobody:x", "nobody/x", "zebra-1", "7")),
    **dict.fromkeys(("openai:", "openai: ", ":x", ":", "")),
}


@pytest.mark.parametrize("name, meant", MEANT.items())
def test_a_name_that_can_be_none_is_refused_with_the_nearest(name: str, meant: str | None) -> None:
    """The one that is proposed can be one."""
    with pytest.raises(UnknownModelError) as failure:
        check_model_name(name, source="--model")
    assert (failure.value.name, failure.value.nearest) == (name, meant)
    assert isinstance(failure.value, AgentError)
    assert isinstance(failure.value, ValueError)
    if meant is not None:
        check_model_name(meant)


@pytest.mark.parametrize("name", ["test", "openai:gpt-5.2", "openai:next-year", "groq:llama", "gateway/openai:gpt-5"])
def test_a_name_that_can_be_one_is_not(name: str) -> None:
    """Its model may be new, and its package or key may be missing here."""
    check_model_name(name)


def test_a_provider_that_cannot_be_reached_is_told_with_host_and_cause() -> None:
    """Through the real client of OpenAI, at a port of this machine on which nothing listens."""
    with closed_port() as port, pytest.raises(ModelUnreachableError) as failure:
        PydanticAIAdapter(openai_at(port)).evaluate(notes_prompt(), session=Session())
    error = failure.value
    assert (error.model, error.host, error.reason) == ("gpt-5", f"127.0.0.1:{port}", "Connection refused")
    assert (error.phase, error.tool) == ("request", None)


def caused(*causes: BaseException) -> ModelAPIError:
    """What PydanticAI raises, chained to those."""
    error = ModelAPIError("gpt-5", "Connection error.")
    last: BaseException = error
    for cause in causes:
        last.__cause__ = cause
        last = cause
    return error


REFUSED = ExceptionGroup("all", [ConnectionRefusedError(111, "at ::1")])
CAUSES: dict[str, list[BaseException]] = {
    "unknown host": [gaierror(-2, "Name or service not known")],
    "certificate": [ssl.SSLCertVerificationError(1, "certificate verify failed")],
    "timeout": [TimeoutError()],
    "refused": [OSError("all failed"), REFUSED],
}


@pytest.mark.parametrize("causes", CAUSES.values(), ids=CAUSES)
def test_the_cause_is_that_of_the_operating_system(causes: list[BaseException], wording: Wording) -> None:
    """Its last word, without the addresses that were tried; the host is not known without a request."""
    error = unreachable_error(caused(*causes), "desk")
    assert error is not None
    assert (error.host, error.reason) == (None, wording)


@pytest.mark.parametrize(
    "error",
    [
        caused(),
        caused(ValueError("no JSON")),
        ModelHTTPError(401, "gpt-5"),
        FallbackExceptionGroup("all", [caused(gaierror(-2, "unknown")), ModelHTTPError(401, "gpt-5")]),
        PromptEvaluationError("over"),
    ],
)
def test_what_else_stops_a_run_is_told_as_it_was(error: Exception) -> None:
    """A provider that has answered was reached."""
    assert unreachable_error(error, "desk") is None
