"""Approval rules, and files of rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents import ApprovalRules, Rule, judge_call, parse_rules, read_rules
from handrail.agents.approval import rules as rules_module
from handrail.agents.approval.decisions import ApprovalMode, Verdict
from handrail.errors import AgentError, ApprovalRulesError
from tests.agents.approval.calls import gated
from tests.kit import raises
from tests.wording import Wording

EVERY = Rule("*")


NO_RULES = ApprovalRules()


def ruling(mode: ApprovalMode = "ask", **rules: Any) -> tuple[ApprovalMode, ApprovalRules]:
    """A mode, and rules of which each is a rule or several."""
    several: dict[str, Any] = {name: (each,) if isinstance(each, Rule) else each for name, each in rules.items()}
    return mode, ApprovalRules(**several)


ENV, NOTES = Rule("*", {"path": "**/.env"}), Rule("*", {"path": "*.md"})
RENAMED = {"arguments": {"p": ".env"}, "written": {"path": ".env"}}
CHANGED = {"arguments": {"path": "a.md"}, "written": {"path": "../a.md"}}
ASKS: dict[str, Any] = {"asks": ("Is it over 100?",)}
REPORTS = ruling(deny=ENV, ask=Rule("*", {"path": "*.lock"}), allow=Rule("*", {"path": "reports/**"}))

JUDGED: dict[str, list[tuple[dict[str, Any], tuple[ApprovalMode, ApprovalRules], str]]] = {
    "without rules the effect decides; what nobody has thought of is asked": [
        ({"effect": "read"}, ruling(), "allow"), ({}, ruling(), "ask"), ({"effect": "external"}, ruling(), "ask"),
        ({"effect": "magic"}, ruling(), "ask"), ({"effect": "external"}, ruling(defaults={"external": "deny"}), "deny"),
    ],
    "deny wins over ask and ask over allow, whatever their order and number": [
        ({}, ruling(allow=EVERY, ask=EVERY, deny=EVERY), "deny"), ({}, ruling(allow=(EVERY, EVERY), ask=EVERY), "ask"),
        ({}, ruling(allow=(Rule("x"), EVERY)), "allow"),
    ],
    "a rule wins over the tool's word, and that over the default": [
        ({"effect": "read", "default": "deny"}, ruling(), "deny"),
        ({"effect": "read", "default": "deny"}, ruling(allow=EVERY), "allow"),
        ({"effect": "external", "default": "allow"}, ruling(), "allow"),
    ],
    "to deny or ask, what runs or what was written is enough; to allow, both must fit": [
        (RENAMED, ruling("approve-all", deny=ENV), "deny"), (RENAMED, ruling(allow=EVERY, ask=ENV), "ask"),
        (CHANGED, ruling(allow=NOTES), "ask"), ({"arguments": {"path": "a.md"}}, ruling(allow=NOTES), "allow"),
    ],
    "a policy's question makes an allow an ask, and lifts no denial": [
        (ASKS, ruling(allow=EVERY), "ask"), (ASKS, ruling(defaults={"state": "allow"}), "ask"),
        (ASKS, ruling("approve-all", allow=EVERY), "allow"), (ASKS, ruling("deny-all", allow=EVERY), "deny"),
        ({"asks": ("Sure?", "Really?")}, ruling(), "ask"), (ASKS, ruling(deny=EVERY), "deny"),
    ],
    "approve-all answers questions and lifts no denial": [
        ({}, ruling("approve-all"), "allow"), ({}, ruling("approve-all", deny=EVERY), "deny"),
        ({"default": "deny"}, ruling("approve-all"), "deny"),
    ],
    "deny-all lets run what a rule allows, for which no default and no word of the tool is enough": [
        ({}, ruling("deny-all", allow=EVERY), "allow"), ({"effect": "read"}, ruling("deny-all"), "deny"),
        ({"default": "allow"}, ruling("deny-all"), "deny"), ({}, ruling("deny-all", ask=EVERY), "deny"),
    ],
    "a roundabout spelling is denied, and one that leads out of the folder is not allowed": [
        ({"arguments": {"path": "reports/a.md"}}, REPORTS, "allow"),
        ({"arguments": {"path": "reports/a.lock"}}, REPORTS, "ask"),
        ({"arguments": {"path": "reports/.env"}}, REPORTS, "deny"),
        ({"arguments": {"path": "x/../.env"}}, ("approve-all", REPORTS[1]), "deny"),
        ({"arguments": {"path": "reports/../../etc/passwd"}}, REPORTS, "ask"),
        ({"arguments": {}, "effect": "read"}, REPORTS, "allow"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("rule", JUDGED)
def test_the_verdict_on_a_call_and_its_reason(rule: str, wording: Wording) -> None:
    """Rules, modes, defaults, the tool's own word and what policies ask."""
    for options, (mode, rules), verdict in JUDGED[rule]:
        found = judge_call(gated(**options), rules, mode)
        assert (found.verdict, found.reason) == (verdict, wording)
    plain, ruled = (judge_call(gated(), rules, "ask") for rules in (NO_RULES, ApprovalRules(allow=(EVERY,))))
    assert (plain.explicit, ruled.explicit) == (False, True)


def test_all_that_a_rule_names_must_fit() -> None:
    """Tool, agents and every argument."""
    rule = Rule("write_*", {"path": "reports/**", "mode": "new"}, agent="desk/*")
    fitting = {"path": "reports/a", "mode": "new"}
    assert rule.fits(gated(arguments=fitting, path=("desk", "x")), "narrow")
    assert not rule.fits(gated("read_file", arguments=fitting, path=("desk", "x")), "narrow")
    assert not rule.fits(gated(arguments=fitting), "narrow")
    assert not rule.fits(gated(arguments={**fitting, "mode": "old"}, path=("desk", "x")), "narrow")
    assert not rule.fits(gated(arguments={"path": "reports/a"}, path=("desk", "x")), "narrow")


@pytest.mark.parametrize("rule, text", [
    (Rule("write_file"), "write_file"), (Rule("*"), '"*"'), (Rule("true"), '"true"'),
    (Rule("x", source="a.yaml:3"), "x (a.yaml:3)"),
    (Rule("x", {"s[0].title": "a"}, agent="desk/*"), '{tool: x, arguments: {"s[0].title": a}, agent: "desk/*"}'),
])  # fmt: skip
def test_a_rule_is_told_as_a_file_has_it(rule: Rule, text: str) -> None:
    """So that a reader finds it, and can copy it."""
    assert str(rule) == text


@pytest.mark.parametrize(
    "options", [{"tool": " "}, {"tool": "x", "agent": ""}, {"tool": "x", "arguments": {"a..b": ""}}]
)
def test_what_is_no_rule_is_refused(options: dict[str, Any], wording: Wording) -> None:
    """A blank glob, and a path to no argument; a file is refused for the same."""
    with raises(AgentError, wording):
        Rule(**options)


GLOBS = st.sampled_from(["*", "a", "b", "**/.env", "x/**", "a?*", "[ab]"])


RULES = st.builds(
    Rule,
    GLOBS,
    st.dictionaries(st.sampled_from(["path", "list", "list[*]", "deep.key", "*"]), GLOBS, max_size=2),
    st.none() | GLOBS,
)


MANY = st.lists(RULES, max_size=3).map(tuple)


CALLS = st.builds(
    gated, st.sampled_from(["a", "b", "ab", "x/y"]),
    st.fixed_dictionaries({}, optional={"path": st.sampled_from(["a", "x/a", "x/../.env", ".env", "b"]),
        "list": st.lists(st.sampled_from(["a", "b", ".env"]), max_size=2),
        "deep": st.fixed_dictionaries({"key": st.sampled_from(["a", 1, None])})}),
    st.sampled_from(["read", "state", "external"]),
    path=st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2).map(tuple), asks=st.sampled_from([(), ("?",)]),
    default=st.sampled_from([None, "allow", "ask", "deny"]),
)  # fmt: skip


MODES: st.SearchStrategy[ApprovalMode] = st.sampled_from(["ask", "approve-all", "deny-all"])


STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


def more(rules: ApprovalRules, which: Verdict, rule: Rule) -> ApprovalRules:
    """The rules, and one more."""
    return replace(rules, **cast("Any", {which: (rule, *getattr(rules, which))}))


@given(CALLS, MANY, MANY, MANY, RULES, MODES)
def test_one_more_rule_never_turns_a_verdict_the_wrong_way(  # noqa: PLR0913, PLR0917 - what Hypothesis draws
    call: Any, allow: tuple[Rule, ...], ask: tuple[Rule, ...], deny: tuple[Rule, ...], rule: Rule, mode: ApprovalMode
) -> None:
    """A deny rule makes nothing laxer; an allow rule lifts no denial that a rule has spoken, nor a rule's question."""
    rules = ApprovalRules(allow=allow, ask=ask, deny=deny)
    before = judge_call(call, rules, mode)
    assert STRICTNESS[judge_call(call, more(rules, "deny", rule), mode).verdict] >= STRICTNESS[before.verdict]
    after = judge_call(call, more(rules, "allow", rule), mode)
    if before.explicit and before.verdict != "allow":
        assert after.verdict == before.verdict
    else:
        assert STRICTNESS[after.verdict] <= STRICTNESS[before.verdict]
    asked = judge_call(call, more(rules, "ask", rule), mode)
    if mode == "ask" and before.explicit:
        assert STRICTNESS[asked.verdict] >= STRICTNESS[before.verdict]


@given(CALLS, MANY, MANY, MANY)
def test_modes_only_answer_questions(
    call: Any, allow: tuple[Rule, ...], ask: tuple[Rule, ...], deny: tuple[Rule, ...]
) -> None:
    """With `approve-all` nothing is asked and nothing more is denied; with `deny-all` nothing is asked or laxer."""
    rules = ApprovalRules(allow=allow, ask=ask, deny=deny)
    plain = judge_call(call, rules, "ask").verdict
    assert judge_call(call, rules, "approve-all").verdict == ("deny" if plain == "deny" else "allow")
    assert judge_call(call, rules, "deny-all").verdict in {plain, "deny"} - {"ask"}


def test_braces_in_a_glob_are_refused_where_they_would_stand_for_themselves(wording: Wording) -> None:
    """A rule that denies nothing would be the worst of all; JSON of a mapping begins with a brace."""
    with raises(AgentError, wording):
        Rule("*", {"path": "**/*.{key,pem}"})
    assert Rule("*", {"options": '{"a":1,"b":2}'}).arguments["options"].startswith("{")


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


def test_arguments_that_are_no_text_are_what_json_writes() -> None:
    """`True`, `1.0` and `0x10` are the numbers and truths that an argument may be; quotes make them text."""
    rules = parsed('deny:\n- {tool: x, arguments: {a: True, b: 1.0, c: 0x10, d: null, e: "True", f: "", "g[0].h": y}}')
    held = {"a": "true", "b": "1", "c": "16", "d": "null", "e": "True", "f": "", "g[0].h": "y"}
    assert rules.deny[0].arguments == held


def test_names_are_read_without_the_blanks_around_them() -> None:
    """Nobody means them."""
    assert parsed("allow: [' x ', {tool: 'y ', agent: ' z'}]").allow == (Rule("x"), Rule("y", agent="z"))


FAULTS = {
    "list": "- a", "unknown key": "alow: []", "key twice": "allow: [a]\nallow: [b]", "allow nothing": "allow:",
    "ask mapping": "ask: {tool: x}", "unknown effect": "defaults: {reed: ask}",
    "unknown default": "defaults: {read: alow}", "tool number": "allow: [5]", "tool empty": "allow: ['']",
    "tool mapping": "allow: [{tool: {a: b}}]", "agent number": "allow: [{tool: x, agent: 3}]",
    "empty rule": "allow: [{}]", "no tool": "allow: [{agent: x}]",
    "unknown key of a rule": "allow: [{tol: x, tool: y}]", "arguments text": "allow: [{tool: x, arguments: path}]",
    "several globs": "allow: [{tool: x, arguments: {path: [a, b]}}]",
    "no glob": "allow: [{tool: x, arguments: {path: }}]",
    "argument nowhere": "allow: [{tool: x, arguments: {a..b: x}}]",
    "infinite": "allow: [{tool: x, arguments: {a: .inf}}]", "unknown expect": "allow: [{tool: x, expect: nothing}]",
    "expect nothing": "allow: [{tool: x, expect: }]", "star": "deny:\n- *\n", "documents": "---\n---\n",
}  # fmt: skip


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
