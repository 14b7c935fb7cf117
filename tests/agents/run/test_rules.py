"""What the start of a run does about approval rules that fit nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import RunContext, Tool
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, FunctionToolset

from handrail.agents import Answer, ApprovalRules, Rule, RunOptions, RunWarned, parse_rules
from handrail.agents.agent import LoadedAgent
from handrail.errors import ApprovalRulesError
from handrail.session import Session
from handrail.testing import Call, Outcome
from tests.agents.desks import DONE, CallLog, Heard, Person, called, desk, inside, play
from tests.agents.folders import agent
from tests.wording import Wording

pytestmark = pytest.mark.anyio


class Target(BaseModel):
    """Where to write."""

    path: str = Field(alias="filePath")


def note(text: str) -> str:
    """Note."""
    return text


def save(target: Target) -> str:
    """Save."""
    return target.path


def ruled(text: str) -> ApprovalRules:
    """Rules of a file `approval.yaml`."""
    return parse_rules(text, file="approval.yaml")


def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
    """Make a toolset with one tool."""
    return FunctionToolset([Tool(note, name="made_note")])


def project(folder: Path, **toolsets: Any) -> LoadedAgent:
    """The agent `desk` with a tool, files, and an agent that it calls."""
    others = {"clerk.agent": agent("clerk", tools="[save]")}
    return desk(folder, tools=[note, Tool(save)], toolsets=toolsets, also=["files_ro", "clerk"], others=others)


async def refused(loaded: LoadedAgent, rules: ApprovalRules, **options: Any) -> ApprovalRulesError:
    """The error of a run that does not begin; no model is asked, and nothing is stored of it."""
    session, heard = Session(), Heard()
    with pytest.raises(ApprovalRulesError) as caught:
        await loaded.run_async(
            "Go.", RunOptions(model="test", mode="approve-all", session=session, rules=rules, listener=heard, **options)
        )
    assert "CallStarted" not in str(heard.story)
    assert session.open_calls == ()
    return caught.value


async def warnings(loaded: LoadedAgent, rules: ApprovalRules, root: Path) -> list[str]:
    """What a run warns of that ends well."""
    heard = Heard()
    await play(loaded, [DONE], rules=rules, listener=heard, root=root)
    return [event.message for event in heard.events if isinstance(event, RunWarned)]


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("nota", id="tool"),
        pytest.param("{tool: read_file, arguments: {pth: x}}", id="argument of read_file"),
        pytest.param("{tool: write_file, arguments: {pth: x}}", id="argument of write_file"),
        pytest.param("{tool: save, arguments: {filePaht: x}}", id="argument with an alias"),
        pytest.param("{tool: '*', agent: dsk}", id="agent"),
    ],
)
async def test_a_rule_that_names_what_there_is_not_keeps_a_run_from_beginning(
    tmp_path: Path, rule: str, wording: Wording
) -> None:
    """Although its calls would be allowed: the rule would protect nothing."""
    error = await refused(project(tmp_path), ruled(f"deny:\n- {rule}"))
    assert str(error) == wording
    assert (error.file, error.line, error.column) == ("approval.yaml", 2, 3)


async def test_all_such_rules_are_told_at_once(tmp_path: Path, wording: Wording) -> None:
    """Those of the program, too."""
    error = await refused(project(tmp_path), ruled("deny: [nota, {tool: '*', agent: dsk}]"))
    assert len(error.problems) == 2
    assert all(str(problem) in str(error) for problem in error.problems)
    error = await refused(project(tmp_path), ApprovalRules(deny=tuple(Rule(f"x{number}") for number in range(500))))
    assert len(error.problems) == 500


@pytest.mark.parametrize(
    "rule",
    [
        "note",
        "write_file",
        "planning_add_step",
        "clerk",
        "{tool: save, arguments: {filePath: x}}",
        "{tool: '*', arguments: {content: x}}",
        "{tool: save, agent: desk/clerk}",
        "{tool: refund, expect: unmatched}",
        "{tool: 'x*', expect: unmatched}",
        "{tool: note, arguments: {tetx: x}, agent: dsk, expect: unmatched}",
    ],
)
async def test_a_rule_about_what_the_project_has_or_expects_is_not_remarked_on(
    tmp_path: Path, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Built-in toolsets count whether or not an agent has them, and agents that can be called."""
    assert await warnings(project(tmp_path), ruled(f"deny:\n- {rule}"), tmp_path) == []
    assert not caplog.records


async def test_the_tools_of_a_factory_are_known_once_it_has_been_called(tmp_path: Path, wording: Wording) -> None:
    """Then a name that none of them has is an error; one that they have is none."""
    loaded = project(tmp_path, shop=make)
    assert await warnings(loaded, ruled("deny: [made_note]"), tmp_path) == []
    error = await refused(loaded, ruled("deny: [made_nota]"), root=tmp_path)
    assert str(error) == wording


async def test_names_that_only_a_running_toolset_can_know_are_warned_of(tmp_path: Path, wording: Wording) -> None:
    """A dynamic toolset may have other tools at the next step; that of an agent that was not called yet has not run."""
    dynamic = DynamicToolset[Any](make)
    loaded = project(tmp_path / "one", shop=dynamic)
    assert await warnings(loaded, ruled("deny: [made_note]"), tmp_path) == []
    (told,) = await warnings(loaded, ruled("deny: [made_nota]"), tmp_path)
    assert told == wording
    loaded = desk(
        tmp_path / "two",
        tools=[note],
        also=["clerk"],
        others={
            "clerk.agent": agent("clerk", toolsets="[shop]"),
            "tools.py": "from pydantic_ai.toolsets import FunctionToolset\n\ndef made_note():\n    pass\n\n"
            "def shop(ctx):\n    return FunctionToolset([made_note])\n\nTOOLSETS = [shop]\n",
        },
    )
    (told,) = await warnings(loaded, ruled("deny: [made_note]"), tmp_path)
    assert told == wording


async def test_a_deny_rule_that_cannot_be_checked_is_applied_all_the_same(tmp_path: Path, wording: Wording) -> None:
    """Warned of or expected to fit nothing: a call that it does fit is denied."""
    for number, expect in enumerate(["", ", expect: unmatched"]):
        loaded = desk(
            tmp_path / str(number),
            tools=[],
            also=["clerk"],
            others={
                "clerk.agent": agent("clerk", toolsets="[shop]"),
                "tools.py": "from pydantic_ai.toolsets import DynamicToolset, FunctionToolset\n\n"
                "def made_note(text: str) -> str:\n    return text\n\n"
                "TOOLSETS = {'shop': DynamicToolset(lambda ctx: FunctionToolset([made_note]))}\n",
            },
        )
        rules = ruled(f"deny:\n- {{tool: made_note{expect}}}")
        inner = inside("ask", called(Call("made_note", {"text": "x"}), c1=Outcome.failed()))
        script = [called(Call("clerk", {"input": "Go."}, id="ask"))[0], *inner, DONE]
        await play(loaded, script, rules=rules, listener=(log := CallLog()))
        assert log.told["c1"] == wording


async def test_nobody_is_asked_before_the_rules_are_checked(tmp_path: Path) -> None:
    """An ask rule that is misspelt would have let calls run unasked."""
    loaded = project(tmp_path)
    session = Session()
    calls = called(Call("note", {"text": "x"}))
    person = Person(Answer("no"))
    with pytest.raises(ApprovalRulesError):
        await play(loaded, calls, mode="ask", asker=person, rules=ruled("ask: [nota]"), session=session)
    assert person.asked == []
