"""Models of an evaluation: their names, how they are opened, and why they cannot be reached."""

from __future__ import annotations

import ssl
from socket import gaierror

import pytest
from pydantic_ai import FallbackExceptionGroup
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel

from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.pydantic_ai.models import check_model_name, open_model, unreachable_error
from handrail.errors import AgentError, ModelUnreachableError, PromptEvaluationError, UnknownModelError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate
from handrail.session import Session
from tests.adapters.kit import closed_port, openai_at
from tests.wording import Wording

pytestmark = pytest.mark.anyio

MEANT = {
    "openia:gpt-5": "openai:gpt-5",
    "antropic:claude-x": "anthropic:claude-x",
    "open-routr:some/model": None,
    "gpt-5": "openai:gpt-5",
    "claude-sonnet-4-5": "anthropic:claude-sonnet-4-5",
    "openai/gpt-5": "openai:gpt-5",
    "nobody:x": None,
    "nobody/x": None,
    "zebra-1": None,
    "7": None,
    "openai:": None,
    "openai: ": None,
    ":x": None,
    ":": None,
    "": None,
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


async def test_a_name_is_a_new_model_each_time() -> None:
    """Its connections belong to the loop of the run."""
    async with open_model("test") as first, open_model("test") as second:
        assert isinstance(first, TestModel)
        assert first is not second


def prompt() -> Prompt[str]:
    """A prompt that says nothing much."""
    section = MarkdownSection(title="Desk", template="Be kind.")
    return Prompt(PromptTemplate[str](ns="tests", key="desk", name="desk", sections=[section]))


def test_a_provider_that_cannot_be_reached_is_told_with_host_and_cause() -> None:
    """Through the real client of OpenAI, at a port of this machine on which nothing listens."""
    with closed_port() as port, pytest.raises(ModelUnreachableError) as failure:
        PydanticAIAdapter(openai_at(port)).evaluate(prompt(), session=Session())
    error = failure.value
    assert (error.model, error.host, error.reason) == ("gpt-5", f"127.0.0.1:{port}", "Connection refused")
    assert (error.phase, error.tool) == ("request", None)


def test_several_providers_that_cannot_be_reached_are_all_told() -> None:
    """Models that are tried one after the other."""
    with closed_port() as first, closed_port() as second:
        adapter = PydanticAIAdapter(FallbackModel(openai_at(first), openai_at(second)))
        with pytest.raises(ModelUnreachableError) as failure:
            adapter.evaluate(prompt(), session=Session())
    assert f"127.0.0.1:{first}" in str(failure.value)
    assert f"127.0.0.1:{second}" in str(failure.value)


def caused(*causes: BaseException) -> ModelAPIError:
    """What PydanticAI raises, chained to those."""
    error = ModelAPIError("gpt-5", "Connection error.")
    last: BaseException = error
    for cause in causes:
        last.__cause__ = cause
        last = cause
    return error


@pytest.mark.parametrize(
    "causes",
    [
        pytest.param((gaierror(-2, "Name or service not known"),), id="unknown host"),
        pytest.param((ssl.SSLCertVerificationError(1, "certificate verify failed"),), id="certificate"),
        pytest.param((TimeoutError(),), id="timeout"),
        pytest.param(
            (OSError("all failed"), ExceptionGroup("all", [ConnectionRefusedError(111, "at ::1")])), id="refused"
        ),
    ],
)
def test_the_cause_is_that_of_the_operating_system(causes: tuple[BaseException, ...], wording: Wording) -> None:
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
