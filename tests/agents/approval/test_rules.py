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
from handrail.agents.approval.rules import DEFAULTS
from handrail.errors import AgentError, ApprovalRulesError
from tests.agents.approval.calls import gated
from tests.agents.kit import refusal
from tests.kit import raises
from tests.wording import Wording

EVERY = Rule("*")


NO_RULES = ApprovalRules()


@pytest.mark.parametrize("effect,verdict", [("read", "allow"), ("state", "ask"), ("external", "ask")])
def test_without_rules_the_effect_decides(effect: Any, verdict: str, wording: Wording) -> None:
    """What reads runs, and what changes something is asked."""
    found = judge_call(gated(effect=effect), NO_RULES, "ask")
    assert (found.verdict, found.explicit) == (verdict, False)
    assert found.reason == wording


def test_an_effect_without_a_default_is_asked() -> None:
    """What nobody has thought of does not run by itself."""
    assert judge_call(gated(effect=cast("Any", "magic")), NO_RULES, "ask").verdict == "ask"


def test_defaults_that_are_given_leave_the_others_as_they_are() -> None:
    """One may be set without the rest."""
    rules = ApprovalRules(defaults={"external": "deny"})
    assert dict(rules.defaults) == {**DEFAULTS, "external": "deny"}
    assert judge_call(gated(effect="external"), rules, "ask").verdict == "deny"


def test_deny_wins_over_ask_and_ask_over_allow(wording: Wording) -> None:
    """Whatever their order and number."""
    call = gated()
    assert judge_call(call, ApprovalRules(allow=(EVERY,), ask=(EVERY,), deny=(EVERY,)), "ask").verdict == "deny"
    assert judge_call(call, ApprovalRules(allow=(EVERY, EVERY), ask=(EVERY,)), "ask").verdict == "ask"
    found = judge_call(call, ApprovalRules(allow=(Rule("x"), EVERY)), "ask")
    assert (found.verdict, found.explicit, found.reason) == ("allow", True, wording)


def test_a_rule_wins_over_the_tools_word_and_that_over_the_default(wording: Wording) -> None:
    """A tool may say itself what is done with its calls, where no rule speaks."""
    call = gated(effect="read", default="deny")
    assert judge_call(call, NO_RULES, "ask").verdict == "deny"
    assert judge_call(call, NO_RULES, "ask").reason == wording
    assert judge_call(call, ApprovalRules(allow=(EVERY,)), "ask").verdict == "allow"
    assert judge_call(gated(effect="external", default="allow"), NO_RULES, "ask").verdict == "allow"


def test_rules_look_at_what_runs_and_at_what_the_model_wrote() -> None:
    """To deny or ask, either is enough; to allow, both must fit."""
    env, notes = Rule("*", {"path": "**/.env"}), Rule("*", {"path": "*.md"})
    renamed = gated(arguments={"p": ".env"}, written={"path": ".env"})
    assert judge_call(renamed, ApprovalRules(deny=(env,)), "approve-all").verdict == "deny"
    assert judge_call(renamed, ApprovalRules(allow=(EVERY,), ask=(env,)), "ask").verdict == "ask"
    changed = gated(arguments={"path": "a.md"}, written={"path": "../a.md"})
    assert judge_call(changed, ApprovalRules(allow=(notes,)), "ask").verdict == "ask"
    assert judge_call(gated(arguments={"path": "a.md"}), ApprovalRules(allow=(notes,)), "ask").verdict == "allow"


def test_all_that_a_rule_names_must_fit() -> None:
    """Tool, agents and every argument."""
    rule = Rule("write_*", {"path": "reports/**", "mode": "new"}, agent="desk/*")
    fitting = {"path": "reports/a", "mode": "new"}
    assert rule.fits(gated(arguments=fitting, path=("desk", "x")), "narrow")
    assert not rule.fits(gated("read_file", arguments=fitting, path=("desk", "x")), "narrow")
    assert not rule.fits(gated(arguments=fitting), "narrow")
    assert not rule.fits(gated(arguments={**fitting, "mode": "old"}, path=("desk", "x")), "narrow")
    assert not rule.fits(gated(arguments={"path": "reports/a"}, path=("desk", "x")), "narrow")


def test_a_deny_rule_over_a_path_is_not_dodged_and_an_allow_rule_not_stretched() -> None:
    """A roundabout spelling is denied; one that leads out of the folder is not allowed."""
    rules = ApprovalRules(
        deny=(Rule("*", {"path": "**/.env"}),),
        ask=(Rule("*", {"path": "*.lock"}),),
        allow=(Rule("*", {"path": "reports/**"}),),
    )

    def said(path: str) -> Verdict:
        return judge_call(
            gated(arguments={"path": path}), rules, "approve-all" if path == "x/../.env" else "ask"
        ).verdict

    assert said("reports/a.md") == "allow"
    assert said("reports/a.lock") == "ask"
    assert said("reports/.env") == "deny"
    assert said("x/../.env") == "deny"
    assert said("reports/../../etc/passwd") == "ask"
    assert judge_call(gated(arguments={}, effect="read"), rules, "ask").verdict == "allow"


@pytest.mark.parametrize("rules", [ApprovalRules(allow=(EVERY,)), ApprovalRules(defaults={"state": "allow"})])
def test_a_policys_question_makes_an_allow_an_ask(rules: ApprovalRules, wording: Wording) -> None:
    """Whoever allowed it, unless the mode answers."""
    call = gated(asks=("Is it over 100?",))
    found = judge_call(call, rules, "ask")
    assert (found.verdict, found.reason) == ("ask", wording)
    assert judge_call(call, rules, "approve-all").verdict == "allow"
    assert judge_call(call, rules, "deny-all").verdict == "deny"


def test_a_policys_question_is_told_beside_the_rules_and_lifts_no_denial(wording: Wording) -> None:
    """The person reads both; what is denied is not asked."""
    call = gated(asks=("Sure?", "Really?"))
    assert judge_call(call, NO_RULES, "ask").reason == wording
    assert judge_call(call, ApprovalRules(deny=(EVERY,)), "ask").verdict == "deny"


def test_approve_all_answers_questions_and_lifts_no_denial(wording: Wording) -> None:
    """Deny stays deny."""
    found = judge_call(gated(), NO_RULES, "approve-all")
    assert found.verdict == "allow"
    assert found.reason == wording
    assert judge_call(gated(), ApprovalRules(deny=(EVERY,)), "approve-all").verdict == "deny"
    assert judge_call(gated(default="deny"), NO_RULES, "approve-all").verdict == "deny"


def test_deny_all_lets_run_what_a_rule_allows_and_nothing_else(wording: Wording) -> None:
    """Neither a default nor a tool's own word is enough."""
    assert judge_call(gated(), ApprovalRules(allow=(EVERY,)), "deny-all").verdict == "allow"
    assert judge_call(gated(effect="read"), NO_RULES, "deny-all").verdict == "deny"
    assert judge_call(gated(default="allow"), NO_RULES, "deny-all").verdict == "deny"
    found = judge_call(gated(), ApprovalRules(ask=(EVERY,)), "deny-all")
    assert (found.verdict, found.reason) == ("deny", wording)


@pytest.mark.parametrize(
    "rule,text",
    [
        (Rule("write_file"), "write_file"),
        (Rule("*"), '"*"'),
        (Rule("true"), '"true"'),
        (Rule("x", source="a.yaml:3"), "x (a.yaml:3)"),
        (
            Rule("x", {"steps[0].title": "a", "b": ""}, agent="desk/*"),
            '{tool: x, arguments: {"steps[0].title": a, b: ""}, agent: "desk/*"}',
        ),
        (
            Rule("x", reads_everything=True, commit_on=cast("Any", [0, 1])),
            "{tool: x, reads_everything: true, commit_on: [0, 1]}",
        ),
    ],
)
def test_a_rule_is_told_as_a_file_has_it(rule: Rule, text: str) -> None:
    """So that a reader finds it, and can copy it."""
    assert str(rule) == text


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Rule(cast("Any", 3)), id="tool number"),
        pytest.param(lambda: Rule(" "), id="tool blank"),
        pytest.param(lambda: ApprovalRules(defaults=cast("Any", ["read"])), id="defaults list"),
        pytest.param(lambda: Rule("x", agent=cast("Any", ["a"])), id="agent list"),
        pytest.param(lambda: Rule("x", cast("Any", ["path"])), id="arguments list"),
        pytest.param(lambda: Rule("x", {"path": cast("Any", ["a"])}), id="glob list"),
        pytest.param(lambda: ApprovalRules(allow=cast("Any", ("x",))), id="allow name"),
        pytest.param(lambda: Rule("x", reads_everything=cast("Any", "yes")), id="reads everything text"),
        pytest.param(lambda: ApprovalRules(ask=(Rule("x", reads_everything=True),)), id="reads everything in ask"),
        pytest.param(lambda: Rule("x", commit_on=cast("Any", "1")), id="commit on text"),
        pytest.param(lambda: ApprovalRules(deny=(Rule("x", commit_on=(1,)),)), id="commit on in deny"),
        pytest.param(lambda: ApprovalRules(ask=cast("Any", "x")), id="ask text"),
        pytest.param(lambda: ApprovalRules(defaults=cast("Any", {"reed": "ask"})), id="effect unknown"),
        pytest.param(lambda: ApprovalRules(defaults=cast("Any", {"read": "alow"})), id="default unknown"),
    ],
)
def test_what_is_no_rule_is_told(make: Any, wording: Wording) -> None:
    """Every wrong kind has its own words."""
    with refusal(AgentError, wording):
        make()


GLOBS = st.sampled_from(["*", "a", "b", "**/.env", "x/**", "a?*", "[ab]"])


RULES = st.builds(
    Rule,
    GLOBS,
    st.dictionaries(st.sampled_from(["path", "list", "list[*]", "deep.key", "*"]), GLOBS, max_size=2),
    st.none() | GLOBS,
)


MANY = st.lists(RULES, max_size=3).map(tuple)


CALLS = st.builds(
    gated,
    st.sampled_from(["a", "b", "ab", "x/y"]),
    st.fixed_dictionaries(
        {},
        optional={
            "path": st.sampled_from(["a", "x/a", "x/../.env", ".env", "b"]),
            "list": st.lists(st.sampled_from(["a", "b", ".env"]), max_size=2),
            "deep": st.fixed_dictionaries({"key": st.sampled_from(["a", 1, None])}),
        },
    ),
    st.sampled_from(["read", "state", "external"]),
    path=st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2).map(tuple),
    asks=st.sampled_from([(), ("?",)]),
    default=st.sampled_from([None, "allow", "ask", "deny"]),
)


MODES: st.SearchStrategy[ApprovalMode] = st.sampled_from(["ask", "approve-all", "deny-all"])


STRICTNESS: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}


def more(rules: ApprovalRules, which: Verdict, rule: Rule) -> ApprovalRules:
    """The rules, and one more."""
    match which:
        case "allow":
            return replace(rules, allow=(rule, *rules.allow))
        case "ask":
            return replace(rules, ask=(rule, *rules.ask))
        case "deny":
            return replace(rules, deny=(rule, *rules.deny))


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
