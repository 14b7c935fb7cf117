"""Runs of agents from Python: which model, what input and which options they take, and what is foreseen of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset

from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents import LoadedAgent, RunOptions, RunStarted
from handrail.agents.run.calls import ForeseenCall, foresee_call
from handrail.errors import AgentError, PromptEvaluationError, ToolValidationError
from handrail.prompt import (
    MarkdownSection,
    PolicyDecision,
    ToolContext,
    ToolResult,
)
from handrail.prompt import Tool as HandrailTool
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.session import Session
from tests.agents.kit import Heard, agent, desk, refusal
from tests.agents.run.test_approval import CAREFUL
from tests.agents.toolsets.traced import named
from tests.kit import Note, call, events, executor, prompt, tool
from tests.wording import Wording

pytestmark = pytest.mark.anyio

MODEL = TestModel(call_tools=[], custom_output_text="Done.", model_name="chosen")


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


@pytest.mark.parametrize("wrong", ["", " \n", 7, b"Go.", ["Go."]])
def test_an_input_that_says_nothing_is_refused(tmp_path: Path, wrong: Any, wording: Wording) -> None:
    """Before the model is asked."""
    session = Session()
    with refusal(AgentError, wording):
        desk(tmp_path).run(wrong, RunOptions(model=MODEL, session=session))
    assert session.kinds == ()


@pytest.mark.parametrize("wrong", [{"max_depth": 0}, {"request_limit": 0}, {"mode": "all"}], ids=" ".join)
def test_options_out_of_range_are_told(wrong: dict[str, Any], wording: Wording) -> None:
    """With the range."""
    with refusal(ValueError, wording):
        RunOptions(**wrong)


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


def seen_ahead(*policies: Rule) -> ForeseenCall | None:
    """What is foreseen of a call of `echo` with these policies."""
    door = executor(tool("echo"), policies=policies)
    found = asyncio.run(foresee_call(call("echo"), "reply-1", door.environment))
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


def test_what_a_policy_opens_is_closed_and_it_may_end_the_run() -> None:
    """The call itself will have resources of its own."""
    closed: list[str] = []

    class Handle:
        def close(self) -> None:
            closed.append("handle")

    def decide(context: ToolContext) -> PolicyDecision:
        context.resources.get(Handle)
        raise PromptEvaluationError("over")

    registry = ResourceRegistry.of(Binding(Handle, lambda _: Handle(), scope=Scope.TOOL_CALL))
    bound = prompt(tool("echo"), policies=[Rule(decide)]).bind(resources=registry)
    with pytest.raises(PromptEvaluationError):
        asyncio.run(foresee_call(call("echo"), "r", ToolExecutor(prompt=bound, session=Session()).environment))
    assert closed == ["handle"]


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
