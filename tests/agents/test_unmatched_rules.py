"""Approval rules that name what a project does not have: errors, warnings, and the start of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import RunContext, Tool
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, DynamicToolset, FunctionToolset

from handrail.agents import ApprovalRules, Entry, LoadedAgent, Rule, RunWarned, parse_rules
from handrail.agents.toolsets.builtin import built_ins
from handrail.agents.unmatched_rules import (
    ProjectNames,
    ToolSummary,
    Unmatched,
    check_rules_match,
    list_tools,
    unmatched,
)
from handrail.errors import ApprovalRulesError
from handrail.session import Session
from handrail.testing import Call, Outcome
from tests.agents.kit import DONE, CallLog, Heard, agent, called, desk, inside, play, ruled
from tests.agents.toolsets.traced import made
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def known_tool(name: str, *arguments: str, kind: str = "string", additional: bool = False) -> ToolSummary:
    """A tool with these arguments."""
    properties = {argument: {"type": kind} for argument in arguments}
    return ToolSummary(name, lambda: {"type": "object", "properties": properties, "additionalProperties": additional})


TOOLS = (
    known_tool("read_file", "path"), known_tool("write_file", "path", "content"),
    known_tool("move_file", "path", "new_path"), known_tool("any_file", "path", additional=True),
    known_tool("save", "order", kind="object"), ToolSummary("unknown_arguments"),
)  # fmt: skip


AGENTS = ("alone", "clerk", "desk")


KNOWN = ProjectNames(tools=TOOLS, agents=AGENTS)


def found(rule: str, known: ProjectNames = KNOWN) -> list[Unmatched]:
    """What is found of one deny rule."""
    return unmatched(ruled(f"deny:\n  - {rule}\n"), known)


@pytest.mark.parametrize("rule", [
    "write_file", "'*'", "'*_file'", "{tool: write_file, arguments: {path: x, content: y}}",
    "{tool: '*', arguments: {path: '**/.env'}}", "{tool: 'm*_file', arguments: {new_pth: x}}",
    "{tool: write_file, arguments: {'*': x}}", "{tool: write_file, arguments: {content.anything: x}}",
    "{tool: any_file, arguments: {anything: x}}", "{tool: save, arguments: {number: x}}",
    "{tool: unknown_arguments, arguments: {anything: x}}", "{tool: '*', arguments: {anything: x}}", "'wirte_*'",
    "{tool: '*', agent: 'x*'}", "{tool: '*', agent: alone/desk}", "{tool: '*', agent: desk}",
    "{tool: '*', agent: desk/clerk}", "{tool: '*', agent: 'desk/**'}", "{tool: '*', agent: 'de*/clerk/*'}",
])  # fmt: skip
def test_a_rule_that_can_fit_is_not_remarked_on(rule: str) -> None:
    """Each of its names is that of something."""
    assert found(rule) == []


@pytest.mark.parametrize("rule", [
    pytest.param("wirte_file", id="tool"), pytest.param("zzz", id="tool unlike any"),
    pytest.param("{tool: write_file, arguments: {pth: x}}", id="argument"),
    pytest.param("{tool: write_file, arguments: {pth.name: x}}", id="the way to an argument"),
    pytest.param("{tool: '*', agent: dsk}", id="agent"),
    pytest.param("{tool: '*', agent: 'dsk/*'}", id="agent that calls"),
    pytest.param("{tool: '*', agent: 'desk/clrk/**'}", id="agent that is called"),
])  # fmt: skip
def test_an_exact_name_of_nothing_is_an_error(rule: str, wording: Wording) -> None:
    """With the nearest name, and with file, line and column of the rule."""
    (one,) = found(rule)
    error = one.error
    assert one.certain
    assert str(error) == wording
    assert (error.file, error.line, error.column) == ("approval.yaml", 2, 5)


def test_what_only_a_run_can_tell_is_a_warning(wording: Wording) -> None:
    """It says why it is no error."""
    (one,) = found("refund", ProjectNames(tools=TOOLS, running=("toolset shop (tools.py)",), agents=AGENTS))
    assert not one.certain
    assert str(one.error) == wording


def test_all_faults_of_a_rule_are_told_in_the_order_of_the_file(wording: Wording) -> None:
    """Rules of a program stand in no file."""
    text = "deny: [{tool: write_file, agent: dsk, arguments: {a: x, b: y}}]\nallow: [zzz]\n"
    with pytest.raises(ApprovalRulesError) as caught:
        check_rules_match(unmatched(parse_rules(text, file="approval.yaml"), KNOWN))
    assert [getattr(problem, "line", None) for problem in caught.value.problems] == [1, 1, 1, 2]
    (one,) = unmatched(ApprovalRules(ask=(Rule("zzz"),)), KNOWN)
    assert str(one.error) == wording


def ping(text: str) -> str:
    """Ping."""
    return text


def make_pings(ctx: RunContext[Any]) -> AbstractToolset[Any]:
    """Make a toolset."""
    return FunctionToolset([ping])


class OfTheProgram(FunctionToolset[Any]):
    """A class of the program, which may list others."""


BOTH = FunctionToolset[Any]([ping, Tool(ping, name="pong")])


@pytest.mark.parametrize("toolset, names", [
    (BOTH, ["ping", "pong"]), (BOTH.prefixed("my"), ["my_ping", "my_pong"]),
    (OfTheProgram([ping]).prefixed("my"), None), (DynamicToolset(make_pings), None), (made(make_pings), None),
    (CombinedToolset([BOTH]), None),
])  # fmt: skip
def test_the_tools_of_a_toolset_are_known_as_far_as_its_class_is(
    toolset: AbstractToolset[Any], names: list[str] | None
) -> None:
    """A class of the program may have others."""
    tools = list_tools(toolset)
    assert (None if tools is None else [each.name for each in tools]) == names


@pytest.mark.parametrize("entry", built_ins(), ids=lambda entry: entry.name)
def test_the_tools_of_what_is_built_in_are_known_with_their_arguments(entry: Entry) -> None:
    """So a rule about one is checked in a project whose agents do not have it."""
    tools = list_tools(entry.value)
    assert tools
    for each in tools:
        assert each.schema is not None
        schema = each.schema()
        assert each.arguments() in (frozenset(schema["properties"]), None)


def test_a_tool_that_is_prepared_may_have_other_arguments() -> None:
    """What its function makes of the schema is known only at each step."""

    async def prepare(ctx: RunContext[Any], definition: ToolDefinition) -> ToolDefinition:
        """Hand it on."""
        return definition

    known = list_tools(FunctionToolset[Any]([Tool(ping, prepare=prepare)])) or ()
    assert [each.arguments() for each in known] == [None]


class Target(BaseModel):
    """Where to write."""

    path: str = Field(alias="filePath")


def note(text: str) -> str:
    """Note."""
    return text


def save(target: Target) -> str:
    """Save."""
    return target.path


def make_notes(ctx: RunContext[Any]) -> AbstractToolset[Any]:
    """Make a toolset with one tool."""
    return FunctionToolset([Tool(note, name="made_note")])


def project(folder: Path, **toolsets: Any) -> LoadedAgent:
    """The agent `desk` with a tool, files, and an agent that it calls."""
    others = {"clerk.agent": agent("clerk", tools="[save]")}
    return desk(folder, tools=[note, Tool(save)], toolsets=toolsets, also=["files_ro", "clerk"], others=others)


def with_shop(toolset: str) -> dict[str, str]:
    """An agent `clerk` whose toolset `shop` is made by this expression of a toolset with one tool."""
    source = (
        "from pydantic_ai.toolsets import DynamicToolset, FunctionToolset\n\ndef made_note(text: str) -> str:\n"
        f"    return text\n\nTOOLSETS = {{'shop': {toolset.format('FunctionToolset([made_note])')}}}\n"
    )
    return {"clerk.agent": agent("clerk", toolsets="[shop]"), "tools.py": source}


async def refused(loaded: LoadedAgent, rules: ApprovalRules, **options: Any) -> ApprovalRulesError:
    """The error of a run that does not begin; no model is asked, and nothing is stored of it."""
    session, heard = Session(), Heard()
    with pytest.raises(ApprovalRulesError) as caught:
        await play(loaded, called(Call("note", {"text": "x"})), session=session, rules=rules, listener=heard, **options)
    assert "CallStarted" not in str(heard.story)
    assert session.open_calls == ()
    return caught.value


async def warnings(loaded: LoadedAgent, rules: ApprovalRules, root: Path) -> list[str]:
    """What a run warns of that ends well."""
    heard = Heard()
    await play(loaded, [DONE], rules=rules, listener=heard, root=root)
    return [event.message for event in heard.events if isinstance(event, RunWarned)]


@pytest.mark.parametrize("rule", [
    pytest.param("nota", id="tool"), pytest.param("{tool: read_file, arguments: {pth: x}}", id="argument of read_file"),
    pytest.param("{tool: write_file, arguments: {pth: x}}", id="argument of write_file"),
    pytest.param("{tool: save, arguments: {filePaht: x}}", id="argument with an alias"),
    pytest.param("{tool: '*', agent: dsk}", id="agent"),
])  # fmt: skip
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


@pytest.mark.parametrize("rule", [
    "note", "write_file", "planning_add_step", "clerk", "{tool: read_result, arguments: {call: x}}",
    "{tool: save, arguments: {filePath: x}}",
    "{tool: '*', arguments: {content: x}}", "{tool: save, agent: desk/clerk}", "{tool: refund, expect: unmatched}",
    "{tool: 'x*', expect: unmatched}", "{tool: note, arguments: {tetx: x}, agent: dsk, expect: unmatched}",
])  # fmt: skip
async def test_a_rule_about_what_the_project_has_or_expects_is_not_remarked_on(
    tmp_path: Path, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Built-in toolsets count whether or not an agent has them, and agents that can be called."""
    assert await warnings(project(tmp_path), ruled(f"deny:\n- {rule}"), tmp_path) == []
    assert not caplog.records


async def test_names_that_only_a_running_toolset_can_know_are_warned_of(tmp_path: Path, wording: Wording) -> None:
    """A factory may make other tools; the toolset of an agent that was not called yet has not run."""
    for name, toolset in (("made", make_notes), ("dynamic", DynamicToolset[Any](make_notes))):
        loaded = project(tmp_path / name, shop=toolset)
        assert await warnings(loaded, ruled("deny: [made_note]"), tmp_path) == []
        (told,) = await warnings(loaded, ruled("deny: [made_nota]"), tmp_path)
        assert told == wording
    loaded = desk(tmp_path / "two", tools=[note], also=["clerk"], others=with_shop("lambda ctx: {}"))
    (told,) = await warnings(loaded, ruled("deny: [made_note]"), tmp_path)
    assert told == wording


async def test_a_deny_rule_that_cannot_be_checked_is_applied_all_the_same(tmp_path: Path, wording: Wording) -> None:
    """Warned of or expected to fit nothing: a call that it does fit is denied."""
    for number, expect in enumerate(["", ", expect: unmatched"]):
        shop = with_shop("DynamicToolset(lambda ctx: {})")
        loaded = desk(tmp_path / str(number), also=["clerk"], others=shop)
        rules = ruled(f"deny:\n- {{tool: made_note{expect}}}")
        inner = inside("ask", called(Call("made_note", {"text": "x"}), c1=Outcome.failed()))
        script = [called(Call("clerk", {"input": "Go."}, id="ask"))[0], *inner, DONE]
        await play(loaded, script, rules=rules, listener=(log := CallLog()))
        assert log.told["c1"] == wording
