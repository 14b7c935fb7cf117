"""What must not clash across a prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handrail.errors import PromptValidationError
from handrail.prompt import PromptTemplate, ReadBeforeWritePolicy, Section, SequentialDependencyPolicy, ToolPolicy
from tests.prompt.samples import lookup_tool, named_tool
from tests.wording import Wording

READ_FIRST = ReadBeforeWritePolicy()
DEPLOY_LAST = SequentialDependencyPolicy(dependencies={"deploy": frozenset({"test"})})


def template(*sections: Section[Any], policies: tuple[ToolPolicy, ...] = ()) -> PromptTemplate[str]:
    """A template of these sections."""
    return PromptTemplate(ns="tests", key="tree", sections=sections, policies=policies)


def refused(*sections: Section[Any], policies: tuple[ToolPolicy, ...] = ()) -> PromptValidationError:
    """The error that a template of these sections is refused with."""
    with pytest.raises(PromptValidationError) as caught:
        template(*sections, policies=policies)
    return caught.value


def test_neighbours_have_keys_of_their_own(wording: Wording) -> None:
    """One key twice would name two sections by one path."""
    error = refused(Section(title="Outer", children=[Section(title="A", key="a"), Section(title="B", key="a")]))
    assert str(error) == wording
    assert error.section_path == ("outer", "a")


def test_one_key_in_two_places_is_fine() -> None:
    """Paths differ."""
    one, other = (Section(title=title, children=[Section(title="Notes")]) for title in ("One", "Other"))
    assert [placed.dotted for root in template(one, other).tree for placed in root.walk()] == [
        "one",
        "one.notes",
        "other",
        "other.notes",
    ]


@pytest.mark.requirement("M-06o")
def test_tools_have_names_of_their_own(wording: Wording) -> None:
    """Two tools of one name are refused, with both sections, also when a section is disabled."""
    one = Section(title="One", tools=[lookup_tool()])
    other = Section(title="Other", children=[Section(title="Deep", tools=[lookup_tool()], enabled=False)])
    error = refused(one, other)
    assert str(error) == wording
    assert (error.tool, error.section_path) == ("lookup", ("other", "deep"))
    assert str(refused(Section(title="One", tools=[lookup_tool(), lookup_tool()]))) == wording
    assert str(refused(one, Section(title="Other", tools=[replace(lookup_tool(), name="Lookup")]))) == wording


@pytest.mark.requirement("M-06p")
def test_policies_in_reach_of_a_tool_have_names_of_their_own(wording: Wording) -> None:
    """Two of one name are refused."""
    inner = Section(title="Inner", policies=[ReadBeforeWritePolicy()], tools=[lookup_tool()])
    assert str(refused(Section(title="Outer", policies=[READ_FIRST], children=[inner]))) == wording
    twice = Section(title="Outer", policies=[READ_FIRST, READ_FIRST], tools=[lookup_tool()])
    assert str(refused(twice)) == wording
    of_prompt = Section(title="Outer", policies=[READ_FIRST], tools=[lookup_tool()])
    assert str(refused(of_prompt, policies=(ReadBeforeWritePolicy(),))) == wording


def test_policies_of_one_name_may_stand_apart() -> None:
    """Beside each other they judge different tools, and another name keeps them apart on one."""
    one = Section(title="One", policies=[ReadBeforeWritePolicy()], tools=[named_tool("one")])
    other = Section(title="Other", policies=[ReadBeforeWritePolicy()], tools=[named_tool("other")])
    group = Section(title="Group", policies=[ReadBeforeWritePolicy(name="all")], children=[one, other])
    assert len(template(group).tree[0].children) == 2


def test_a_policy_is_asked_whether_it_makes_sense_where_it_stands(wording: Wording) -> None:
    """Tools that it names but does not reach would go unseen; the section is named."""
    apart = Section(title="Deploy", policies=[DEPLOY_LAST], tools=[named_tool("deploy")])
    error = refused(apart, Section(title="Test", tools=[named_tool("test")]))
    assert str(error) == wording
    assert error.section_path == ("deploy",)
    assert str(refused(Section(title="Test"), policies=(DEPLOY_LAST,))) == wording


def test_a_policy_of_the_prompt_reaches_every_tool() -> None:
    """Its tools may stand in different sections."""
    deploy, test = (Section(title=name, tools=[named_tool(name)]) for name in ("deploy", "test"))
    assert template(deploy, test, policies=(DEPLOY_LAST,)).policies == (DEPLOY_LAST,)
