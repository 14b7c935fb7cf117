"""`handrail.agents.run.calls`: what is foreseen of a call before it is made, and that this changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.run.calls import ForeseenCall, foresee_call
from handrail.errors import PromptEvaluationError, ToolValidationError
from handrail.filesystem import Filesystem
from handrail.prompt import ApprovalRequest, PolicyDecision, ToolContext, ToolResult
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import IdempotencyConfig, ToolCall
from handrail.session import Session
from handrail.transaction import current
from tests.kit import Note, call, echo, events, executor, prompt, tool


@dataclass
class Rule:
    """Decides as it is told, and keeps what it saw."""

    decide: Callable[[ToolContext], PolicyDecision]
    name: str = "rule"
    seen: list[tuple[str, Any, str]] = field(default_factory=list[tuple[str, Any, str]])

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        self.seen.append((tool.name, params, context.call_id))
        return self.decide(context)

    def on_result(self, tool: Any, params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Take no note."""


def ask(text: str, name: str = "rule") -> Rule:
    """A policy that asks."""
    return Rule(lambda _: PolicyDecision.ask(text), name)


def raising(error: Exception) -> Rule:
    """A policy that breaks."""

    def decide(context: ToolContext) -> PolicyDecision:
        raise error

    return Rule(decide, "raising")


ALLOW = Rule(lambda _: PolicyDecision.allow(), "allow")
DENY = Rule(lambda _: PolicyDecision.deny("no"), "deny")
SILENT = Rule(lambda _: cast("PolicyDecision", None), "silent")


def seen_ahead(*policies: Rule, request: ToolCall | None = None, without: str = "") -> ForeseenCall | None:
    """What is foreseen of a call of `echo` with these policies."""
    door = executor(tool("echo"), policies=policies)
    found = asyncio.run(foresee_call(request or call("echo"), "reply-1", door.environment, without=without))
    assert events(door) == ()
    assert door.environment.session.turn.queue == []
    return found


def test_all_questions_are_gathered_in_the_order_of_the_policies() -> None:
    """With the tool, and the parsed arguments; each policy sees the call as it will be."""
    first = ask("sure?", "first")
    found = seen_ahead(first, ALLOW, ask("really?", "second"))
    assert found is not None
    assert (found.tool.name, found.arguments, found.questions) == ("echo", {"text": "hello"}, ("sure?", "really?"))
    assert first.seen == [("echo", Note("hello"), "call-1")]


@pytest.mark.parametrize(
    "policy",
    [DENY, SILENT, raising(KeyError("x")), raising(ToolValidationError("no"))],
    ids=["denies", "says nothing", "raises", "denies by raising"],
)
def test_what_refuses_a_call_is_left_to_the_pipeline(policy: Rule) -> None:
    """What the policies look at may settle until the call is made; the others are asked nevertheless."""
    found = seen_ahead(policy, ask("sure?"))
    assert found is not None
    assert found.questions == ("sure?",)


@pytest.mark.parametrize(
    "request_",
    [
        call("ehco"),
        ToolCall("c", "echo", '{"text": 7}'),
        ToolCall("c", "echo", "{"),
        ToolCall("c", "echo", {"text": "x", "more": 1}),
        ToolCall("c", "echo", '{"text": "' + "x" * 2_000_000 + '"}'),
    ],
    ids=["unknown tool", "bad argument", "no JSON", "unknown argument", "too long"],
)
def test_a_call_that_will_be_refused_as_it_is_written_is_not_foreseen(request_: ToolCall) -> None:
    """No policy is asked about it."""
    rule = ask("sure?")
    assert seen_ahead(rule, request=request_) is None
    assert rule.seen == []


class Handle:
    """A resource of one call."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        if self.error is not None:
            raise self.error


def using(handle: Handle, decision: PolicyDecision | Exception) -> ToolExecutor:
    """An executor with a policy that takes the handle, and decides."""

    def decide(context: ToolContext) -> PolicyDecision:
        assert context.resources.get(Handle) is handle
        assert current() is None
        if isinstance(decision, Exception):
            raise decision
        return decision

    registry = ResourceRegistry.of(Binding(Handle, lambda _: handle, scope=Scope.TOOL_CALL))
    bound = prompt(tool("echo"), policies=[Rule(decide)]).bind(resources=registry)
    return ToolExecutor(prompt=bound, session=executor().environment.session)


@pytest.mark.parametrize("decision", [PolicyDecision.ask("sure?"), KeyError("x"), PromptEvaluationError("over")])
def test_resources_of_the_call_are_closed(decision: PolicyDecision | Exception) -> None:
    """Whatever the policies come to: the call itself will have its own."""
    handle = Handle()
    door = using(handle, decision)
    if isinstance(decision, PromptEvaluationError):
        with pytest.raises(PromptEvaluationError):
            asyncio.run(foresee_call(call("echo"), "reply-1", door.environment))
    else:
        assert asyncio.run(foresee_call(call("echo"), "reply-1", door.environment)) is not None
    assert handle.closed == 1


def agree(request: ApprovalRequest) -> bool:
    """Say yes."""
    return True


def test_nothing_is_claimed_and_nothing_is_run() -> None:
    """The effect is as free as before."""
    ran: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        ran.append(params.text)
        return echo(params, context=context)

    external = tool("pay", pay, effect="external", idempotency=IdempotencyConfig())
    door = executor(external, policies=[ask("sure?")], approver=agree)
    assert asyncio.run(foresee_call(call("pay"), "reply-1", door.environment)) is not None
    assert ran == []
    assert door.execute(call("pay")).success
    assert ran == ["hello"]
    assert [event.replayed for event in events(door)] == [False]


@pytest.mark.parametrize("error", [OSError("no such folder"), PromptEvaluationError("over")])
def test_paths_that_cannot_be_determined_are_not_known_in_advance(error: Exception) -> None:
    """They are determined again when the call is made, and fail it then; what ends the run propagates."""

    def broken(_: object) -> Filesystem:
        raise error

    registry = ResourceRegistry.of(Binding(Filesystem, broken, scope=Scope.TOOL_CALL))
    bound = prompt(tool("read_file")).bind(resources=registry)
    environment = ToolExecutor(prompt=bound, session=Session()).environment
    if isinstance(error, PromptEvaluationError):
        with pytest.raises(PromptEvaluationError):
            asyncio.run(foresee_call(call("read_file"), "reply-1", environment))
        return
    found = asyncio.run(foresee_call(call("read_file"), "reply-1", environment))
    assert found is not None
    assert found.reached is None
