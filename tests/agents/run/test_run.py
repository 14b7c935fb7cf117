"""Runs of agents from Python: which model, what input and which options they take, and what is foreseen of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel
from pydantic_ai import CallDeferred
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset

from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents import LoadedAgent, RunOptions, RunStarted
from handrail.agents.run.calls import ForeseenCall, foresee_call
from handrail.errors import AgentError, PromptEvaluationError, ToolValidationError
from handrail.prompt import (
    ApprovalRequest,
    MarkdownSection,
    PolicyDecision,
    PromptValidationError,
    ToolContext,
    ToolResult,
)
from handrail.prompt import Tool as HandrailTool
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import IdempotencyConfig, ToolCall
from handrail.session import Session
from handrail.testing import Call, Outcome, Reply
from handrail.transaction import current
from tests.agents.kit import DONE, CallLog, Heard, agent, called, desk, outcomes, play, refusal
from tests.agents.run.test_approval import CAREFUL
from tests.agents.toolsets.traced import named
from tests.kit import Note, call, echo, events, executor, prompt, tool
from tests.wording import Wording

pytestmark = pytest.mark.anyio

MODEL = TestModel(call_tools=[], custom_output_text="Done.", model_name="chosen")


class Sum(BaseModel):
    """An answer with a shape."""

    total: int


def with_models(folder: Path, *, file: str = "", project: str = "") -> LoadedAgent:
    """The agent `desk`, whose file and project may name a model."""
    text = agent("desk").replace("name: desk", f"name: desk\nmodel: {file}") if file else agent("desk")
    toml = f'[tool.handrail]\nmodel = "{project}"\n' if project else ""
    return desk(folder, others={"pyproject.toml": toml, "desk.agent": text})


@pytest.mark.parametrize("chosen,file,project,environment,used", [
    (MODEL, "test", "test", "nowhere", "chosen"), ("test", "nowhere:a", "nowhere:b", "nowhere:c", "test"),
    (None, "test", "nowhere:b", "nowhere:c", "test"), (None, "", "test", "nowhere:c", "test"),
    (None, "", "", "test", "test"),
])  # fmt: skip
def test_the_first_that_names_a_model_is_taken(  # noqa: PLR0913, PLR0917 - those who may name one
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: Any, file: str, project: str, environment: str, used: str
) -> None:
    """The program's choice, the agent's file, the project, the environment."""
    monkeypatch.setenv("HANDRAIL_MODEL", environment)
    heard = Heard()
    with_models(tmp_path, file=file, project=project).run("Go.", RunOptions(model=chosen, listener=heard))
    started = heard.events[0]
    assert isinstance(started, RunStarted)
    assert started.model == used


@pytest.mark.parametrize("environment", ["", None])
def test_without_any_model_the_error_says_where_one_may_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: str | None, wording: Wording
) -> None:
    """An empty variable names none."""
    monkeypatch.delenv("HANDRAIL_MODEL", raising=False)
    if environment is not None:
        monkeypatch.setenv("HANDRAIL_MODEL", environment)
    with refusal(AgentError, wording):
        with_models(tmp_path).run("Go.")


async def test_on_an_event_loop_run_says_what_to_use(tmp_path: Path, wording: Wording) -> None:
    """It would stop the loop."""
    with refusal(AgentError, wording):
        desk(tmp_path).run("Go.", RunOptions(model=MODEL))


@pytest.mark.parametrize("wrong", ["", " \n", 7, b"Go.", ["Go."]])
def test_an_input_that_says_nothing_is_refused(tmp_path: Path, wrong: Any, wording: Wording) -> None:
    """Before the model is asked."""
    session = Session()
    with refusal(AgentError, wording):
        desk(tmp_path).run(wrong, RunOptions(model=MODEL, session=session))
    assert session.kinds == ()


def test_a_structured_answer_is_of_the_type_asked_for(tmp_path: Path) -> None:
    """PydanticAI's ways to say it hold, several types among them."""
    loaded = desk(tmp_path)
    answer = TestModel(call_tools=[], custom_output_args={"total": 7})
    for output_type in (Sum, [Sum, int]):
        assert loaded.run("Go.", RunOptions(model=answer, output_type=output_type)).output == Sum(total=7)


async def test_a_tool_whose_calls_nobody_here_carries_out_is_told(tmp_path: Path, wording: Wording) -> None:
    """What is put off to somebody outside would never come back."""

    async def elsewhere() -> str:
        raise CallDeferred

    session = Session()
    with refusal(AgentError, wording):
        await play(desk(tmp_path, tools=[elsewhere]), [Reply(calls=[Call("elsewhere")])], session=session)
    assert outcomes(session) == []


async def test_rules_of_the_project_hold_unless_the_program_has_others(tmp_path: Path, wording: Wording) -> None:
    """From the file that its `pyproject.toml` names."""
    others = {"pyproject.toml": '[tool.handrail]\napproval = "rules.yaml"\n', "rules.yaml": "allow: [ping]\n"}
    loaded = desk(tmp_path, tools=[named("ping"), named("pong")], others=others)
    script = called(Call("ping"), Call("pong"), c1=Outcome.ok("ping"), c2=Outcome.failed())
    await play(loaded, script, mode="ask", listener=(log := CallLog()))
    assert log.told["c2"] == wording
    assert loaded.rules().allow[0].tool == "ping"


WRONG: Mapping[str, Any] = {
    "session": "s", "model": 7, "rules": "allow", "root": "folder", "resources": 7, "max_depth": "5",
    "request_limit": 1.5, "deadline": 7, "heartbeat": 7, "run_context": "run-1", "check_names": "no", "asker": "me",
    "listener": 7,
}  # fmt: skip


def test_options_of_the_wrong_kind_are_told_all_at_once(wording: Wording) -> None:
    """Each with what it must be."""
    with refusal(ValueError, wording):
        RunOptions(**WRONG)


@pytest.mark.parametrize("wrong", [{"max_depth": 0}, {"request_limit": 0}, {"mode": "all"}], ids=" ".join)
def test_options_out_of_range_are_told(wrong: dict[str, Any], wording: Wording) -> None:
    """With the range."""
    with refusal(ValueError, wording):
        RunOptions(**wrong)


def add(params: Sum, *, context: ToolContext) -> ToolResult[None]:
    """A tool of Handrail's."""
    return ToolResult.ok(None)


async def test_inspection_tells_each_tool_with_its_origin_its_judges_and_the_rules(tmp_path: Path) -> None:
    """No model is asked; a toolset may have the name of a tool."""
    tool = HandrailTool[None, None](name="own", description="Own.")
    inner = HandrailTool[None, None](name="placed", description="Placed.")
    section = MarkdownSection(title="Outer", template="T.", tools=[inner], policies=[CAREFUL])
    toolsets = {"own": FunctionToolset([named("ping")], id="own"), "section": section}
    reports = await desk(tmp_path, tools=[tool], toolsets=toolsets, also=["planning"]).inspect()
    assert [(each.name, each.source, each.section, each.policies, each.approval.verdict) for each in reports[:3]] == [
        ("own", "tool own (program)", "", (), "ask"),
        ("ping", "toolset own (program)", "", (), "ask"),
        ("placed", "toolset section (program)", "outer", ("careful",), "ask"),
    ]
    assert {(each.source, each.approval.verdict) for each in reports[3:]} == {("toolset planning (built-in)", "allow")}
    assert reports[0].parameters["type"] == "object"


async def test_metadata_that_says_nothing_known_ends_the_run_before_the_model_is_asked(
    tmp_path: Path, wording: Wording
) -> None:
    """It is the developer's fault."""
    toolset = FunctionToolset([named("ping")]).with_metadata(effect="writes")
    with refusal(PromptValidationError, wording):
        await play(desk(tmp_path, toolsets={"ping": toolset}), [DONE])


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
    [call("ehco"), ToolCall("c", "echo", '{"text": 7}'), ToolCall("c", "echo", "{"),
        ToolCall("c", "echo", {"text": "x", "more": 1}), ToolCall("c", "echo", '{"text": "' + "x" * 2_000_000 + '"}')],
    ids=["unknown tool", "bad argument", "no JSON", "unknown argument", "too long"],
)  # fmt: skip
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
    with pytest.raises(type(decision)) if isinstance(decision, PromptEvaluationError) else nullcontext():
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
