"""What approval rules say of a call: rules before declarations before defaults, then policies, then the mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.agents.approval.decisions import ApprovalMode, Verdict
from handrail.agents.approval.rules import DEFAULTS, ApprovalRules, Rule, judge_call
from handrail.errors import AgentError
from tests.agents.approval.calls import gated
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
    with pytest.raises(AgentError) as raised:
        make()
    assert str(raised.value) == wording


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
