"""A provider that cannot be reached is told with host and cause."""

from __future__ import annotations

import ssl
from socket import gaierror

import pytest
from pydantic_ai import FallbackExceptionGroup
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models.fallback import FallbackModel

from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.pydantic_ai.models import unreachable_error
from handrail.errors import ModelUnreachableError, PromptEvaluationError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate
from handrail.session import Session
from tests.adapters.closed_ports import closed_port, openai_at
from tests.wording import Wording


def prompt() -> Prompt[str]:
    """A prompt that says nothing much."""
    section = MarkdownSection(title="Desk", template="Be kind.")
    return Prompt(PromptTemplate[str](ns="tests", key="desk", name="desk", sections=[section]))


def test_a_provider_that_cannot_be_reached_is_told_with_host_and_cause() -> None:
    """Through the real client of OpenAI, at a port of this machine on which nothing listens."""
    with closed_port() as port, pytest.raises(ModelUnreachableError) as caught:
        PydanticAIAdapter(openai_at(port)).evaluate(prompt(), session=Session())
    error = caught.value
    assert (error.model, error.host, error.reason) == ("gpt-5", f"127.0.0.1:{port}", "Connection refused")
    assert (error.phase, error.tool) == ("request", None)


def test_several_providers_that_cannot_be_reached_are_all_told() -> None:
    """Models that are tried one after the other."""
    with closed_port() as first, closed_port() as second:
        adapter = PydanticAIAdapter(FallbackModel(openai_at(first), openai_at(second)))
        with pytest.raises(ModelUnreachableError) as caught:
            adapter.evaluate(prompt(), session=Session())
    assert f"127.0.0.1:{first}" in str(caught.value)
    assert f"127.0.0.1:{second}" in str(caught.value)


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
