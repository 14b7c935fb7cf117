"""Whether PydanticAI knows a model of some name, and which one was probably meant."""

from __future__ import annotations

import pytest

from handrail.adapters.pydantic_ai.models import check_model_name
from handrail.errors import AgentError, UnknownModelError

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
    with pytest.raises(UnknownModelError) as caught:
        check_model_name(name, source="--model")
    assert (caught.value.name, caught.value.nearest) == (name, meant)
    assert isinstance(caught.value, AgentError)
    assert isinstance(caught.value, ValueError)
    if meant is not None:
        check_model_name(meant)


def test_a_long_name_is_cut() -> None:
    """In the message, not in the attribute."""
    with pytest.raises(UnknownModelError) as caught:
        check_model_name("x" * 10_000)
    assert len(str(caught.value)) < 400
    assert len(caught.value.name) == 10_000


@pytest.mark.parametrize("name", ["test", "openai:gpt-5.2", "openai:next-year", "groq:llama", "gateway/openai:gpt-5"])
def test_a_name_that_can_be_one_is_not(name: str) -> None:
    """Its model may be new, and its package or key may be missing here."""
    check_model_name(name)
