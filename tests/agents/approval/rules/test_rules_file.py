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
    assert rules.deny[0].arguments == {
        "a": "true",
        "b": "1",
        "c": "16",
        "d": "null",
        "e": "True",
        "f": "",
        "g[0].h": "y",
    }


def test_names_are_read_without_the_blanks_around_them() -> None:
    """Nobody means them."""
    assert parsed("allow: [' x ', {tool: 'y ', agent: ' z'}]").allow == (Rule("x"), Rule("y", agent="z"))


@pytest.mark.parametrize(
    "text,told",
    [
        ("- a", "approval.yaml:1:1: a file of approval rules is a mapping, 'key: value'"),
        ("alow: []", "approval.yaml:1:1: a file of approval rules has no key 'alow'. Did you mean 'allow'?"),
        ("allow: [a]\nallow: [b]", "approval.yaml:2:1: the key 'allow' stands here twice"),
        ("allow:", "approval.yaml:1:1: allow is a list; write allow: [...]"),
        ("deny: x", "approval.yaml:1:7: deny is a list"),
        ("ask: {tool: x}", "approval.yaml:1:6: ask is a list"),
        ("defaults: ask", "approval.yaml:1:11: defaults is a mapping"),
        ("defaults: {reed: ask}", "defaults has no key 'reed'. Did you mean 'read'?"),
        (
            "defaults: {read: alow}",
            "approval.yaml:1:18: a default is one of allow, ask, deny, not 'alow'. Did you mean 'allow'?",
        ),
        ("defaults: {read: true}", "a default is one of allow, ask, deny, not 'true'"),
        ("defaults: {read: [ask]}", "approval.yaml:1:18: text is due here"),
        ("defaults: {read: }", "a default is one of allow, ask, deny, not ''"),
        ("allow: [5]", "approval.yaml:1:9: tool is text, a glob, and '5' is none"),
        ("allow:\n-\n", "tool is text, a glob, and nothing stands here"),
        ("allow: ['']", "approval.yaml:1:9: tool is blank; write a glob such as 'write_*', or '*' for all"),
        ("allow: [[a]]", "tool is a glob such as 'write_*', not a list"),
        ("allow: [{tool: {a: b}}]", "tool is a glob such as 'write_*', not a mapping"),
        ("allow: [{tool: x, agent: 3}]", "agent is text, a glob, and '3' is none"),
        ("allow: [{tool: x, agent: ' '}]", "agent is blank"),
        ("allow: [{}]", "approval.yaml:1:9: a rule has the key 'tool', with a glob over names of tools"),
        ("allow: [{agent: x}]", "a rule has the key 'tool'"),
        ("allow: [{tol: x, tool: y}]", "a rule has no key 'tol'. Did you mean 'tool'?"),
        ("allow: [{tool: x, arguments: path}]", "arguments is a mapping"),
        (
            "allow: [{tool: x, arguments: {path: [a, b]}}]",
            "the glob for 'path' is text: path: 'reports/**'; several are",
        ),
        ("allow: [{tool: x, arguments: {path: }}]", "the glob for 'path' is text"),
        ("allow: [{tool: x, arguments: {a..b: x}}]", "approval.yaml:1:37: 'a..b' leads to no argument"),
        ("allow: [{tool: x, arguments: {'': x}}]", "an argument of a rule is blank"),
        (
            "allow: [{tool: x, arguments: {a: .inf}}]",
            "'.inf' is not a number that an argument could have; put it in quotes",
        ),
        ("allow: [{tool: x, expect: nothing}]", "approval.yaml:1:27: expect is one of unmatched, not 'nothing'"),
        (
            "deny: [{tool: x, reads_everything: true}]",
            "approval.yaml:1:8: reads_everything belongs in rules that allow",
        ),
        ("allow: [{tool: x, reads_everything: often}]", "approval.yaml:1:37: reads_everything is true or false"),
        ("ask: [{tool: x, commit_on: [0, 1]}]", "approval.yaml:1:7: commit_on belongs in rules that allow"),
        ("allow: [{tool: x, commit_on: [0, one]}]", "approval.yaml:1:30: commit_on of a rule is a list of exit codes"),
        ("allow: [{tool: x, commit_on: {a: 1}}]", "approval.yaml:1:30: commit_on of a rule is a list of exit codes"),
        ("allow: [{tool: x, commit_on: [[1]]}]", "approval.yaml:1:30: commit_on of a rule is a list of exit codes"),
        ("allow: [{tool: x, commit_on: 256}]", "approval.yaml:1:30: commit_on of a rule is a list of exit codes"),
        ("allow: [{tool: x, expect: }]", "expect is one of unmatched, not ''"),
        ("allow: [{tool: x, expect: [unmatched]}]", "approval.yaml:1:27: text is due here"),
        ("allow: [", "approval.yaml:1:9"),
        ("deny:\n- *\n", "approval.yaml:2:4: a glob that begins with a star is quoted: '*'"),
        ("deny: [{tool: **/x}]", "approval.yaml:1:15: a glob that begins with a star is quoted"),
        ("a\0", "approval.yaml:1:2: the character U+0000"),
        ("---\n---\n", "approval.yaml:2:1"),
    ],
)
def test_what_is_no_rule_is_told_with_its_place(text: str, told: str) -> None:
    """File, line and column, what is wrong, and what would be right."""
    assert told in str(fault_of(text))
    assert fault_of(text).file == "approval.yaml"


def test_all_faults_of_a_file_are_told_at_once(wording: Wording) -> None:
    """In the order of the file; each is a problem of its own."""
    error = fault_of(
        "deny: [{tool: 5, agent: [], arguments: {a.: x, b: {}}}]\nalow: [x]\n"
        "defaults: {read: perhaps, sate: ask}\nallow: [a, {}, b, '']\n"
    )
    assert [
        (problem.line, problem.column) for problem in error.problems if isinstance(problem, ApprovalRulesError)
    ] == [
        (1, 15),
        (1, 25),
        (1, 45),
        (1, 51),
        (2, 1),
        (3, 18),
        (3, 27),
        (4, 12),
        (4, 19),
    ]
    assert str(error) == wording
    assert all(str(problem) in str(error) for problem in error.problems)


def test_a_file_is_read(tmp_path: Path) -> None:
    """In UTF-8, with or without a mark at its start."""
    path = tmp_path / "approval.yaml"
    path.write_bytes("\ufeffallow: [caf\u00e9]\r\n".encode())
    assert read_rules(path).allow == (Rule("caf\u00e9"),)


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    """Each in its own words, with the path."""
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"allow:\n- caf\xe9\n")
    long = tmp_path / ("x" * 300)
    pipe = Path("/dev/null")
    for path, told in [
        (tmp_path / "none.yaml", "none.yaml: the file does not exist"),
        (tmp_path, "this is a folder; approval rules are a text file"),
        (pipe, "this is a device or pipe"),
        (latin, "latin.yaml:2:6: the byte 0xE9 is not UTF-8; save the file as UTF-8"),
        (long, "the file cannot be read: File name too long"),
        (tmp_path / "a\0b", "this cannot be the path of a file"),
    ]:
        with pytest.raises(ApprovalRulesError) as caught:
            read_rules(path)
        assert told in str(caught.value)


WORDS = st.sampled_from(
    [
        *"{}[]:,-&*!\n ?#'\"",
        "allow",
        "deny",
        "defaults",
        "tool",
        "arguments",
        "agent",
        "x",
        ": ",
        "- ",
        "\n  ",
        "1",
        "~",
        "é",
        "\0",
    ]
)


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
