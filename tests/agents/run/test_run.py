"""Runs of agents from Python: which model, what input and which options they take, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import CallDeferred
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import FunctionToolset

from handrail.agents import LoadedAgent, RunOptions, RunStarted
from handrail.errors import AgentError
from handrail.prompt import MarkdownSection, PromptValidationError, ToolContext, ToolResult
from handrail.prompt import Tool as HandrailTool
from handrail.resources import Binding, ResourceRegistry
from handrail.session import Session
from handrail.testing import Call, Outcome, Reply
from tests.agents.kit import DONE, CallLog, Heard, agent, called, desk, outcomes, play, refusal
from tests.agents.run.test_approval import CAREFUL
from tests.agents.toolsets.traced import named
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


@pytest.mark.parametrize(
    "chosen,file,project,environment,used",
    [
        (MODEL, "test", "test", "nowhere", "chosen"),
        ("test", "nowhere:a", "nowhere:b", "nowhere:c", "test"),
        (None, "test", "nowhere:b", "nowhere:c", "test"),
        (None, "", "test", "nowhere:c", "test"),
        (None, "", "", "test", "test"),
    ],
)
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


class Pipe:
    """A resource that knows whether it was closed."""

    closed = 0

    def close(self) -> None:
        """Close it."""
        self.closed += 1


@pytest.mark.parametrize("input", ["Go.", ""])
def test_what_a_run_has_opened_is_closed_even_if_it_cannot_begin(tmp_path: Path, input: str) -> None:
    """As soon as it is over."""
    pipes: list[Pipe] = []

    def provide(_: object) -> Pipe:
        pipes.append(Pipe())
        return pipes[-1]

    resources = ResourceRegistry.of(Binding(Pipe, provide, eager=True))
    options = RunOptions(model=MODEL, resources=resources)
    if input:
        desk(tmp_path).run(input, options)
    else:
        with pytest.raises(AgentError):
            desk(tmp_path).run(input, options)
    assert [pipe.closed for pipe in pipes] == [1] * len(pipes)
    assert pipes


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
    "session": "s",
    "model": 7,
    "rules": "allow",
    "root": "folder",
    "resources": 7,
    "max_depth": "5",
    "request_limit": 1.5,
    "deadline": 7,
    "heartbeat": 7,
    "run_context": "run-1",
    "check_names": "no",
    "asker": "me",
    "listener": 7,
}


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
