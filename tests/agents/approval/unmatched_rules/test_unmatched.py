"""Rules whose names are those of nothing: what is an error, what is a warning, and what is neither."""

from __future__ import annotations

from typing import Any

import pytest

from handrail.agents.approval.rules import ApprovalRules, Rule, parse_rules
from handrail.agents.approval.unmatched_rules import KnownNames, KnownTool, Unmatched, unmatched
from tests.wording import Wording


def known_tool(name: str, *arguments: str, other: frozenset[str] | None = frozenset()) -> KnownTool:
    """A tool with arguments that are text."""
    schema: dict[str, Any] = {"type": "object", "properties": {argument: {"type": "string"} for argument in arguments}}
    return KnownTool(name, lambda: schema, lambda: other)


TOOLS = (
    known_tool("read_file", "path"),
    known_tool("write_file", "path", "content"),
    known_tool("move_file", "path", "new_path"),
    known_tool("pay", "cents", other=frozenset({"amount"})),
    known_tool("renaming", "to", other=None),
    KnownTool("unknown_arguments"),
)
AGENTS = {"desk": ("clerk",), "clerk": ("clerk",), "alone": ()}
KNOWN = KnownNames(tools=TOOLS, agents=AGENTS)
RUNNING = KnownNames(tools=TOOLS, running=("toolset shop (tools.py)",), agents=AGENTS)
MAKING = KnownNames(tools=TOOLS, agents=AGENTS, makes_agents=True)


def found(rule: str, known: KnownNames = KNOWN) -> list[Unmatched]:
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
        "{tool: '*_file', arguments: {content: x}}",
        "{tool: pay, arguments: {amount: '7'}}",
        "{tool: unknown_arguments, arguments: {anything: x}}",
        "{tool: '*', arguments: {anything: x}}",
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
        pytest.param("{tool: write_file, arguments: {path.name: x}}", id="argument in text"),
        pytest.param("{tool: 'm*_file', arguments: {new_pth: x}}", id="argument of a glob over one tool"),
        pytest.param("{tool: '*_file', arguments: {contnet: x}}", id="argument of a glob over several"),
        pytest.param("{tool: pay, arguments: {amont: x}}", id="argument with other names"),
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
        pytest.param("'wirte_*'", KNOWN, id="glob"),
        pytest.param("'wirte_*'", RUNNING, id="glob over tools of a run"),
        pytest.param("refund", RUNNING, id="tool of a run"),
        pytest.param("{tool: '*_file', arguments: {contnet: x}}", RUNNING, id="argument of a run"),
        pytest.param("{tool: renaming, arguments: {too: x}}", KNOWN, id="argument renamed"),
        pytest.param("{tool: '*', agent: made}", MAKING, id="agent of a run"),
        pytest.param("{tool: '*', agent: alone/desk}", KNOWN, id="agents apart"),
        pytest.param("{tool: '*', agent: 'x*'}", KNOWN, id="glob over agents"),
    ],
)
def test_what_only_a_run_can_tell_and_globs_that_fit_nothing_are_warnings(
    rule: str, known: KnownNames, wording: Wording
) -> None:
    """They say why they are no errors."""
    (one,) = found(rule, known)
    assert not one.certain
    assert str(one) == wording


def test_an_argument_of_a_tool_that_is_known_is_an_error_whatever_else_runs() -> None:
    """No other toolset can give the tool another argument."""
    (one,) = found("{tool: write_file, arguments: {pth: x}}", RUNNING)
    assert one.certain


@pytest.mark.parametrize("rule", ["{tool: refund, expect: unmatched}", "{tool: 'x*', agent: y, expect: unmatched}"])
def test_a_rule_that_is_expected_to_fit_nothing_is_not_remarked_on(rule: str) -> None:
    """And it is a rule like others."""
    assert found(rule) == []
    (held,) = parse_rules(f"deny: [{rule}]", file="approval.yaml").deny
    assert held == Rule(held.tool, agent=held.agent)
    assert held.expect == "unmatched"


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


def test_long_names_are_cut() -> None:
    """A message stays short whatever a file holds."""
    rule = f"{{tool: {'x' * 100_000}, agent: {'y' * 100_000}, arguments: {{path: {'z' * 100_000}}}}}"
    assert all(len(str(one)) < 1_000 for one in found(rule))


def test_agents_that_all_call_each_other_take_no_time() -> None:
    """There are more ways through them than can be looked at, so nothing is said of globs over them."""
    names = [f"agent{number}" for number in range(200)]
    known = KnownNames(tools=TOOLS, agents=dict.fromkeys(names, tuple(names)))
    assert found("{tool: '*', agent: 'nobody*'}", known) == []
    assert found("{tool: '*', agent: nobody}", known)[0].certain


def test_the_nearest_name_is_looked_for_as_often_as_a_screen_can_show() -> None:
    """To look for it takes a while; of ten thousand faults only the first are told with a question."""
    rules = ApprovalRules(
        deny=tuple(Rule("write_file", {f"pat{number}": "x"}) for number in range(10_000)),
        ask=tuple(Rule(f"write_fil{number}") for number in range(10_000)),
    )
    told = [str(one) for one in unmatched(rules, KNOWN)]
    assert len(told) == 20_000
    assert ["?" in one for one in told] == [True] * 25 + [False] * 19_975


def test_errors_have_nearest_names_after_any_number_of_warnings() -> None:
    """A screen shows the first of both."""
    rules = ApprovalRules(
        ask=tuple(Rule("renaming", {f"t{number}o": "x"}) for number in range(50)),
        deny=tuple(Rule("write_file", {f"pat{number}": "x"}) for number in range(50)),
    )
    near = [one.certain for one in unmatched(rules, KNOWN) if "?" in str(one)]
    assert (near.count(False), near.count(True)) == (25, 25)


def test_names_of_a_tools_arguments_are_asked_for_once() -> None:
    """To find them out takes milliseconds, and thousands of rules may name an argument that the tool does not have."""
    asked: list[str] = []

    def parameters() -> dict[str, Any]:
        asked.append("parameters")
        return {"type": "object", "properties": {"path": {"type": "string"}}}

    def other_names() -> frozenset[str]:
        asked.append("other names")
        return frozenset()

    known = KnownNames(tools=(KnownTool("read", parameters, other_names),), agents={})
    rules = ApprovalRules(deny=tuple(Rule("*", {f"path{number}": "x"}) for number in range(100)))
    assert len(unmatched(rules, known)) == 100
    assert sorted(asked) == ["other names", "parameters"]
