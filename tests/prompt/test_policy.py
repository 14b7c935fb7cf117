"""What a policy says, and what is one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from handrail.errors import PromptValidationError
from handrail.prompt import PolicyDecision, ReadBeforeWritePolicy, Tool, ToolContext, ToolResult
from handrail.prompt.section import check_policy
from tests.wording import Wording


class Always:
    """A policy that decides as it is told."""

    def __init__(self, name: object = "always") -> None:
        self.name = name

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Remembers nothing."""


class Later(Always):
    async def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:  # type: ignore[override]
        return PolicyDecision.allow()


class Narrow(Always):
    def check(self, tool: Tool[Any, Any]) -> PolicyDecision:  # type: ignore[override]
        return PolicyDecision.allow()


class Deaf:
    name = "deaf"

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.allow()


def test_a_decision_is_one_of_three() -> None:
    """Only `allow` lets a call go on by itself."""
    assert PolicyDecision.allow() == PolicyDecision("allow", "")
    assert PolicyDecision.deny("Read it first.") == PolicyDecision("deny", "Read it first.")
    assert PolicyDecision.ask("Pay 500?") == PolicyDecision("ask", "Pay 500?")
    decisions = (PolicyDecision.allow(), PolicyDecision.deny("a"), PolicyDecision.ask("b"))
    assert [decision.allowed for decision in decisions] == [True, False, False]


def test_a_refusal_needs_its_reason_and_a_question_its_words(wording: Wording) -> None:
    """The model, or a person, must have something to read."""
    with pytest.raises(ValueError) as raised:
        PolicyDecision.deny(" ")
    assert str(raised.value) == wording
    with pytest.raises(ValueError) as raised:
        PolicyDecision.ask("")
    assert str(raised.value) == wording


@pytest.mark.parametrize("policy", [Always(), ReadBeforeWritePolicy()])
def test_whatever_has_name_check_and_on_result_is_a_policy(policy: object) -> None:
    """A policy inherits from nothing."""
    assert check_policy(policy) is policy


def test_anything_else_is_told_what_it_lacks(wording: Wording) -> None:
    """A name, a method, the right parameters, an answer at once."""
    told: list[str] = []
    for policy in (Always(""), Always(None), Always, Deaf(), Narrow(), Later()):
        with pytest.raises(PromptValidationError) as caught:
            check_policy(policy)
        told.append(re.sub(" at 0x[0-9a-f]+", "", str(caught.value)))
    assert told == wording
