"""Rules whose names are those of nothing: what is an error, what is a warning, and what is neither."""

from __future__ import annotations

import pytest

from handrail.agents.approval.rules import ApprovalRules, Rule, parse_rules
from handrail.agents.unmatched_rules import ProjectNames, ToolSummary, Unmatched, unmatched
from tests.wording import Wording


def known_tool(name: str, *arguments: str, kind: str = "string", additional: bool = False) -> ToolSummary:
    """A tool with these arguments."""
    properties = {argument: {"type": kind} for argument in arguments}
    return ToolSummary(name, lambda: {"type": "object", "properties": properties, "additionalProperties": additional})


TOOLS = (
    known_tool("read_file", "path"),
    known_tool("write_file", "path", "content"),
    known_tool("move_file", "path", "new_path"),
    known_tool("any_file", "path", additional=True),
    known_tool("save", "order", kind="object"),
    ToolSummary("unknown_arguments"),
)
AGENTS = ("alone", "clerk", "desk")
KNOWN = ProjectNames(tools=TOOLS, agents=AGENTS)
RUNNING = ProjectNames(tools=TOOLS, running=("toolset shop (tools.py)",), agents=AGENTS)
MAKING = ProjectNames(tools=TOOLS, agents=AGENTS, makes_agents=True)


def found(rule: str, known: ProjectNames = KNOWN) -> list[Unmatched]:
    """What is found of one deny rule."""
    return list(unmatched(parse_rules(f"deny:\n  - {rule}\n", file="approval.yaml"), known))


@pytest.mark.parametrize(
    "rule",
    [
        "write_file",
        "'*'",
        "'*_file'",
        "{tool: write_file, arguments: {path: x, content: y}}",
        "{tool: '*', arguments: {path: '**/.env'}}",
        "{tool: 'm*_file', arguments: {new_path: x}}",
        "{tool: write_file, arguments: {'*': x}}",
        "{tool: write_file, arguments: {content.anything: x}}",
        "{tool: any_file, arguments: {anything: x}}",
        "{tool: save, arguments: {number: x}}",
        "{tool: unknown_arguments, arguments: {anything: x}}",
        "{tool: '*', arguments: {anything: x}}",
        "'wirte_*'",
        "{tool: '*', agent: 'x*'}",
        "{tool: '*', agent: alone/desk}",
        "{tool: '*', agent: desk}",
        "{tool: '*', agent: desk/clerk}",
        "{tool: '*', agent: 'desk/**'}",
        "{tool: '*', agent: 'de*/clerk/*'}",
    ],
)
def test_a_rule_that_can_fit_is_not_remarked_on(rule: str) -> None:
    """Each of its names is that of something."""
    assert found(rule) == []


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("wirte_file", id="tool"),
        pytest.param("zzz", id="tool unlike any"),
        pytest.param("{tool: write_file, arguments: {pth: x}}", id="argument"),
        pytest.param("{tool: write_file, arguments: {pth.name: x}}", id="the way to an argument"),
        pytest.param("{tool: 'm*_file', arguments: {new_pth: x}}", id="argument of a glob over one tool"),
        pytest.param("{tool: '[mw]*_file', arguments: {contnet: x}}", id="argument of a glob over several"),
        pytest.param("{tool: '*', agent: dsk}", id="agent"),
        pytest.param("{tool: '*', agent: 'dsk/*'}", id="agent that calls"),
        pytest.param("{tool: '*', agent: 'desk/clrk/**'}", id="agent that is called"),
    ],
)
def test_an_exact_name_of_nothing_is_an_error(rule: str, wording: Wording) -> None:
    """With the nearest name, and with file, line and column of the rule."""
    (one,) = found(rule)
    error = one.error()
    assert one.certain
    assert str(error) == wording
    assert (error.file, error.line, error.column) == ("approval.yaml", 2, 5)


@pytest.mark.parametrize(
    "rule, known",
    [
        pytest.param("refund", RUNNING, id="tool of a run"),
        pytest.param("{tool: '*', agent: made}", MAKING, id="agent of a run"),
    ],
)
def test_what_only_a_run_can_tell_is_a_warning(rule: str, known: ProjectNames, wording: Wording) -> None:
    """It says why it is no error."""
    (one,) = found(rule, known)
    assert not one.certain
    assert str(one) == wording


def test_all_faults_of_a_rule_are_told_in_the_order_of_the_file(wording: Wording) -> None:
    """Those of a rule in the order of its keys; rules of a program stand in no file."""
    text = "deny: [{tool: write_file, agent: dsk, arguments: {a: x, b: y}}]\nallow: [zzz]\n"
    places = [
        (each.rule.place.line, each.verdict) if each.rule.place else None
        for each in unmatched(parse_rules(text, file="approval.yaml"), KNOWN)
    ]
    assert places == [(1, "deny"), (1, "deny"), (1, "deny"), (2, "allow")]
    (one,) = unmatched(ApprovalRules(ask=(Rule("zzz"),)), KNOWN)
    assert str(one) == wording
