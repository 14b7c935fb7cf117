"""What must not clash across a prompt."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot

from handrail.errors import PromptValidationError
from handrail.prompt import PromptTemplate, ReadBeforeWritePolicy, Section, SequentialDependencyPolicy, ToolPolicy
from tests.prompt.samples import lookup_tool, named_tool

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


def test_sections_know_their_places() -> None:
    """Path, policies in reach and children; depth first."""
    inner = Section(title="Inner", policies=[DEPLOY_LAST], tools=[named_tool("deploy"), named_tool("test")])
    outer = Section(title="Outer", policies=[READ_FIRST], children=[inner])
    (root,) = template(outer).tree
    assert [placed.dotted for placed in root.walk()] == ["outer", "outer.inner"]
    assert root.policies == (READ_FIRST,)
    assert root.children[0].policies == (READ_FIRST, DEPLOY_LAST)


def test_neighbours_have_keys_of_their_own() -> None:
    """One key twice would name two sections by one path."""
    error = refused(Section(title="Outer", children=[Section(title="A", key="a"), Section(title="B", key="a")]))
    assert str(error) == snapshot(
        "section outer.a: two sibling sections have the key 'a': 'A' and 'B'. Give one of them another key=."
    )
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


def test_a_section_stands_in_one_place() -> None:
    """The same object twice is refused, with both places."""
    shared = Section(title="Shared")
    assert str(refused(Section(title="One", children=[shared]), Section(title="Other", children=[shared]))) == snapshot(
        "section other.shared: the same section is in the prompt twice, at one.shared and at "
        "other.shared. Create a separate section for each position."
    )


@pytest.mark.requirement("M-06o")
def test_tools_have_names_of_their_own() -> None:
    """Two tools of one name are refused, with both sections, also when a section is disabled."""
    one = Section(title="One", tools=[lookup_tool()])
    other = Section(title="Other", children=[Section(title="Deep", tools=[lookup_tool()], enabled=False)])
    error = refused(one, other)
    assert str(error) == snapshot(
        "section other.deep, tool lookup: two tools have this name: in section one and in section "
        "other.deep. The model calls tools by name, so rename one of them."
    )
    assert (error.tool, error.section_path) == ("lookup", ("other", "deep"))
    assert str(refused(Section(title="One", tools=[lookup_tool(), lookup_tool()]))) == snapshot(
        "section one, tool lookup: two tools have this name: both in section one. The model calls "
        "tools by name, so rename one of them."
    )


@pytest.mark.requirement("M-06p")
def test_policies_in_reach_of_a_tool_have_names_of_their_own() -> None:
    """Two of one name are refused, with both carriers."""
    inner = Section(title="Inner", policies=[ReadBeforeWritePolicy()], tools=[lookup_tool()])
    assert str(refused(Section(title="Outer", policies=[READ_FIRST], children=[inner]))) == snapshot(
        "section outer.inner, tool lookup: two policies of this tool have the name "
        "'read_before_write': on section outer and on section outer.inner. Keep one of them, or give "
        "one another name=."
    )
    twice = Section(title="Outer", policies=[READ_FIRST, READ_FIRST], tools=[lookup_tool()])
    assert str(refused(twice)) == snapshot(
        "section outer, tool lookup: two policies of this tool have the name "
        "'read_before_write': on section outer and on section outer. Keep one of them, or give one "
        "another name=."
    )
    of_prompt = Section(title="Outer", policies=[READ_FIRST], tools=[lookup_tool()])
    assert str(refused(of_prompt, policies=(ReadBeforeWritePolicy(),))) == snapshot(
        "section outer, tool lookup: two policies of this tool have the name "
        "'read_before_write': on the prompt itself and on section outer. Keep one of them, or give one "
        "another name=."
    )


def test_policies_of_one_name_may_stand_apart() -> None:
    """Beside each other they judge different tools, and another name keeps them apart on one."""
    one = Section(title="One", policies=[ReadBeforeWritePolicy()], tools=[named_tool("one")])
    other = Section(title="Other", policies=[ReadBeforeWritePolicy()], tools=[named_tool("other")])
    group = Section(title="Group", policies=[ReadBeforeWritePolicy(name="all")], children=[one, other])
    assert len(template(group).tree[0].children) == 2


def test_a_policy_is_asked_whether_it_makes_sense_where_it_stands() -> None:
    """Tools that it names but does not reach would go unseen; the section is named."""
    apart = Section(title="Deploy", policies=[DEPLOY_LAST], tools=[named_tool("deploy")])
    error = refused(apart, Section(title="Test", tools=[named_tool("test")]))
    assert str(error) == snapshot(
        "section deploy: policy sequential_dependency: its dependencies name test, but the section with the policy, "
        "and those below it, declare deploy. Put the policy on a section that contains them all."
    )
    assert error.section_path == ("deploy",)
    assert str(refused(Section(title="Test"), policies=(DEPLOY_LAST,))) == snapshot(
        "policy sequential_dependency: its dependencies name deploy and test, but the section with the policy, and "
        "those below it, declare no tools. Put the policy on a section that contains them all."
    )


def test_a_policy_of_the_prompt_reaches_every_tool() -> None:
    """Its tools may stand in different sections."""
    deploy, test = (Section(title=name, tools=[named_tool(name)]) for name in ("deploy", "test"))
    assert template(deploy, test, policies=(DEPLOY_LAST,)).policies == (DEPLOY_LAST,)
