"""Approval rules in YAML: what is read, and what is said of everything else."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.approval import rules as rules_module
from handrail.agents.approval.rules import ApprovalRules, Rule, judge_call, parse_rules, read_rules
from handrail.errors import ApprovalRulesError
from tests.agents.approval.calls import gated
from tests.wording import Wording


def parsed(text: str) -> ApprovalRules:
    """The rules of a file `approval.yaml`."""
    return parse_rules(text, file="approval.yaml")


def fault_of(text: str) -> ApprovalRulesError:
    """What is wrong with a file `approval.yaml`."""
    with pytest.raises(ApprovalRulesError) as caught:
        parsed(text)
    return caught.value


def test_the_example_of_the_module_is_read_as_it_says() -> None:
    """Tools by glob, arguments by glob, agents by glob, and defaults."""
    [example] = [part for part in (rules_module.__doc__ or "").split("\n\n") if part.startswith("    defaults:")]
    rules = parsed(dedent(example))
    assert rules.allow == (
        Rule("list_files"),
        Rule("shell_run", {"command": "git status*"}),
        Rule("lookup", agent="desk/*"),
    )
    assert rules.ask == (Rule("write_file", {"path": "reports/**"}),)
    assert rules.deny == (Rule("*", {"path": "**/.env"}), Rule("refund"))
    assert [rule.expect for rule in rules.deny] == [None, "unmatched"]
    assert rules.defaults == {"read": "allow", "state": "ask", "external": "ask"}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "\ufeff", "{}", "allow: []\ndefaults: {}\n"])
def test_a_file_that_says_nothing_holds_no_rules(text: str) -> None:
    """What holds without a file holds with it."""
    assert parsed(text) == ApprovalRules()


def test_a_verdict_names_the_rule_with_file_and_line(wording: Wording) -> None:
    """So that it is found; the model reads no folder."""
    rules = parse_rules("ask: []\ndeny:\n- write_*\n", file="/srv/desk/approval.yaml")
    assert judge_call(gated(), rules, "ask").reason == wording


def test_arguments_that_are_no_text_are_what_json_writes() -> None:
    """`True`, `1.0` and `0x10` are the numbers and truths that an argument may be; quotes make them text."""
    rules = parsed('deny:\n- {tool: x, arguments: {a: True, b: 1.0, c: 0x10, d: null, e: "True", f: "", "g[0].h": y}}')
    held = {"a": "true", "b": "1", "c": "16", "d": "null", "e": "True", "f": "", "g[0].h": "y"}
    assert rules.deny[0].arguments == held


def test_names_are_read_without_the_blanks_around_them() -> None:
    """Nobody means them."""
    assert parsed("allow: [' x ', {tool: 'y ', agent: ' z'}]").allow == (Rule("x"), Rule("y", agent="z"))


FAULTS = {
    "list": "- a",
    "unknown key": "alow: []",
    "key twice": "allow: [a]\nallow: [b]",
    "allow nothing": "allow:",
    "ask mapping": "ask: {tool: x}",
    "unknown effect": "defaults: {reed: ask}",
    "unknown default": "defaults: {read: alow}",
    "tool number": "allow: [5]",
    "tool empty": "allow: ['']",
    "tool mapping": "allow: [{tool: {a: b}}]",
    "agent number": "allow: [{tool: x, agent: 3}]",
    "empty rule": "allow: [{}]",
    "no tool": "allow: [{agent: x}]",
    "unknown key of a rule": "allow: [{tol: x, tool: y}]",
    "arguments text": "allow: [{tool: x, arguments: path}]",
    "several globs": "allow: [{tool: x, arguments: {path: [a, b]}}]",
    "no glob": "allow: [{tool: x, arguments: {path: }}]",
    "argument nowhere": "allow: [{tool: x, arguments: {a..b: x}}]",
    "infinite": "allow: [{tool: x, arguments: {a: .inf}}]",
    "unknown expect": "allow: [{tool: x, expect: nothing}]",
    "reads everything in deny": "deny: [{tool: x, reads_everything: true}]",
    "reads everything text": "allow: [{tool: x, reads_everything: 'yes'}]",
    "commit on in ask": "ask: [{tool: x, commit_on: [0, 1]}]",
    "commit on large": "allow: [{tool: x, commit_on: 256}]",
    "expect nothing": "allow: [{tool: x, expect: }]",
    "star": "deny:\n- *\n",
    "documents": "---\n---\n",
}


@pytest.mark.parametrize("text", FAULTS.values(), ids=FAULTS)
def test_what_is_no_rule_is_told_with_its_place(text: str, wording: Wording) -> None:
    """File, line and column, what is wrong, and what would be right."""
    fault = fault_of(text)
    assert str(fault) == wording
    assert fault.file == "approval.yaml"


def test_all_faults_of_a_file_are_told_at_once(wording: Wording) -> None:
    """In the order of the file; each is a problem of its own."""
    error = fault_of(
        "deny: [{tool: 5, agent: [], arguments: {a.: x, b: {}}}]\nalow: [x]\n"
        "defaults: {read: perhaps, sate: ask}\nallow: [a, {}, b, '']\n"
    )
    assert [
        (problem.line, problem.column) for problem in error.problems if isinstance(problem, ApprovalRulesError)
    ] == [(1, 15), (1, 25), (1, 45), (1, 51), (2, 1), (3, 18), (3, 27), (4, 12), (4, 19)]
    assert str(error) == wording
    assert all(str(problem) in str(error) for problem in error.problems)


def test_a_file_is_read(tmp_path: Path) -> None:
    """In UTF-8, with or without a mark at its start."""
    path = tmp_path / "approval.yaml"
    path.write_bytes("\ufeffallow: [caf\u00e9]\r\n".encode())
    assert read_rules(path).allow == (Rule("caf\u00e9"),)


KEYS = ("allow", "deny", "defaults", "tool", "arguments", "agent")
WORDS = st.sampled_from([*"{}[]:,-&*!\n ?#'\"x1~é\0", ": ", "- ", "\n  ", *KEYS])


@given(st.one_of(st.text(max_size=40), st.lists(WORDS, max_size=20).map("".join)))
def test_any_text_is_read_or_refused(text: str) -> None:
    """With an error of ours, and nothing else."""
    try:
        parsed(text)
    except ApprovalRulesError as error:
        told = str(error)
    else:
        told = "approval.yaml"
    assert told.startswith("approval.yaml")
