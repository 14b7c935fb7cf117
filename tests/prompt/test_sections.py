"""Sections and templates: their declaration, and what must not clash across a prompt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass, replace
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from handrail.errors import PromptValidationError, ResourceError, SchemaError
from handrail.prompt import (
    MarkdownSection,
    PromptTemplate,
    ReadBeforeWritePolicy,
    Section,
    SequentialDependencyPolicy,
    ToolPolicy,
)
from handrail.prompt.section import checked_template, fill_template
from tests.kit import raises, refusal
from tests.prompt.samples import Guidance, lookup_tool, named_tool
from tests.wording import Wording

OF_GUIDANCE: Any = Section[Guidance]
OPEN: Any = Section


def refused(kind: Callable[..., object] = OPEN, **changes: object) -> PromptValidationError:
    """The error that a section with these changes is refused with."""
    return refusal(PromptValidationError, kind, **({"title": "Guidance"} | changes))


def test_a_key_is_made_from_the_title() -> None:
    """Who gives no key gets one that can be read."""
    keys = [Section(title=title).key for title in ("Available Tools", "1. First -- steps!", "x" * 100)]
    assert keys == ["available-tools", "1-first-steps", "x" * 64]


@pytest.mark.parametrize("key", ["A", "-a", "a.b", "a b", "a" * 65, "ä", 5])
def test_other_keys_are_refused(key: object, wording: Wording) -> None:
    """A dot would be taken for a step in a path."""
    assert str(refused(key=key)) == wording


@pytest.mark.parametrize("title", ["", " ", "a\nb", None, 5])
def test_a_title_is_one_line(title: object, wording: Wording) -> None:
    """Anything else is no heading."""
    assert str(refused(title=title)) == wording


def test_what_a_section_holds_is_looked_at(wording: Wording) -> None:
    """Tools, children and policies are what they should be; the error names the section."""
    wrong: list[dict[str, Any]] = [{"tools": lookup_tool()}, {"tools": ["lookup"]}, {"children": ["child"]}]
    wrong += [{"policies": ReadBeforeWritePolicy()}, {"policies": ["read first"]}]
    for changes in wrong:
        assert str(refused(**changes)) == wording
    assert refused(tools="lookup").section_path == ("guidance",)


def test_parameters_are_a_dataclass(wording: Wording) -> None:
    """Anything else in the brackets is refused."""
    assert str(refused(OPEN[int])) == wording
    assert str(refused(OPEN["Guidance"])) == wording


def test_resources_are_held_to_their_types() -> None:
    """What the registry finds wrong is not hidden."""
    with pytest.raises(ResourceError):
        Section(title="A", resources={int: "five"})


UNCHECKED: Any = MarkdownSection


def test_a_placeholder_without_a_field_is_refused_when_the_section_is_made(wording: Wording) -> None:
    """The error names the section, the placeholder, the fields and the dataclass."""
    with raises(PromptValidationError, wording) as caught:
        MarkdownSection[Guidance](title="Guidance", template="Prefer ${tools}.")
    assert caught.value.dataclass is Guidance
    with raises(PromptValidationError, wording):
        MarkdownSection(title="Guidance", template="Prefer ${tool}.")


class Level(Enum):
    HIGH = "high"


@dataclass(frozen=True)
class Everything:
    word: str
    number: float
    level: Level
    nothing: None
    names: tuple[str, ...]
    guidance: Guidance


def filled(template: str, params: object = None) -> str:
    """The template with the parameters in it."""
    kind = None if params is None else type(params)
    return fill_template(checked_template(template, kind), params)


@pytest.mark.parametrize(
    "template, text",
    [
        ("Prefer ${tool}.", "Prefer lookup."),
        ("${tool}${tool}", "lookuplookup"),
        ("a $${tool} b", "a ${tool} b"),
        ("It costs $5, or $x, or $$", "It costs $5, or $x, or $$"),
        ("{tool} %(tool)s", "{tool} %(tool)s"),
        ("\n    Two\n      lines: ${tool}\n    ", "Two\n  lines: lookup"),
        ("", ""),
        ("${audience}", "${tool}"),
    ],
)
def test_placeholders_are_filled_and_nothing_else(template: str, text: str) -> None:
    """`${name}` is a field, `$${` a plain `${`, any other dollar sign is itself, and values are not read."""
    assert filled(template, Guidance("lookup", "${tool}")) == text


def test_values_are_shown_as_people_write_them() -> None:
    """Words and numbers as they are, an enum by its value, what has a structure as JSON."""
    params = Everything("wörd", 1.5, Level.HIGH, None, ("a", "b"), Guidance("lookup"))
    template = "${word} ${number} ${level} ${nothing} ${names} ${guidance}"
    assert filled(template, params) == snapshot(
        'wörd 1.5 high None ["a", "b"] {"tool": "lookup", "audience": "beginners"}'
    )


def test_a_placeholder_must_name_a_field(wording: Wording) -> None:
    """The error names it, the fields there are, and the nearest one."""
    wrong = ("${tol}", "${}", "${ tool }", "${tool.name}", "${tool")
    errors = [refused(MarkdownSection[Guidance], template=template) for template in wrong]
    assert [str(error) for error in errors] == wording
    assert {error.section_path for error in errors} == {("guidance",)}


@given(st.lists(st.tuples(st.text("ab{} }", max_size=8), st.text(max_size=8)), max_size=6))
def test_pieces_and_values_come_out_in_their_order(pieces: list[tuple[str, str]]) -> None:
    """Whatever the texts and values are, each value stands between its neighbours, unchanged."""
    kind: Any = make_dataclass("Params", [(f"f{number}", str) for number in range(len(pieces))])
    template = "".join(f"{text}${{f{number}}}" for number, (text, _) in enumerate(pieces))
    expected = "".join(text + value for text, value in pieces)
    assert filled(f"|{template}|", kind(*(value for _, value in pieces))) == f"|{expected}|"


UNCHECKED_TEMPLATE: Any = PromptTemplate


@dataclass(frozen=True)
class Opaque:
    """An answer without a schema."""

    handle: type[int]


def refused_template(kind: Callable[..., object] = UNCHECKED_TEMPLATE, **changes: object) -> PromptValidationError:
    """The error that a template with these changes is refused with."""
    return refusal(PromptValidationError, kind, **({"ns": "tests", "key": "template", "sections": []} | changes))


@pytest.mark.parametrize("value", ["", "/a", "a b", "a" * 129, None], ids=["empty", "slash", "blank", "long", "none"])
def test_namespace_and_key_are_plain_names(value: object, wording: Wording) -> None:
    """Letters, digits and a few signs."""
    assert str(refused_template(ns=value)) == wording
    assert str(refused_template(key=value)) == wording


def test_other_answers_are_refused(wording: Wording) -> None:
    """What is no dataclass, or has no schema."""
    assert str(refused_template(UNCHECKED_TEMPLATE[int])) == wording
    error = refused_template(UNCHECKED_TEMPLATE[Opaque])
    assert error.dataclass is Opaque
    assert isinstance(error.__cause__, SchemaError)


def test_sections_are_sections_and_policies_policies(wording: Wording) -> None:
    """In a sequence."""
    assert str(refused_template(sections=Section(title="A"))) == wording
    assert str(refused_template(sections=["Guidance"])) == wording
    assert str(refused_template(policies=["read first"])) == wording


READ_FIRST = ReadBeforeWritePolicy()
DEPLOY_LAST = SequentialDependencyPolicy(dependencies={"deploy": frozenset({"test"})})


def template(*sections: Section[Any], policies: tuple[ToolPolicy, ...] = ()) -> PromptTemplate[str]:
    """A template of these sections."""
    return PromptTemplate(ns="tests", key="tree", sections=sections, policies=policies)


def refused_tree(*sections: Section[Any], policies: tuple[ToolPolicy, ...] = ()) -> PromptValidationError:
    """The error that a template of these sections is refused with."""
    return refusal(PromptValidationError, template, *sections, policies=policies)


def test_neighbours_have_keys_of_their_own(wording: Wording) -> None:
    """One key twice would name two sections by one path."""
    error = refused_tree(Section(title="Outer", children=[Section(title="A", key="a"), Section(title="B", key="a")]))
    assert str(error) == wording
    assert error.section_path == ("outer", "a")


@pytest.mark.requirement("M-06o")
def test_tools_have_names_of_their_own(wording: Wording) -> None:
    """Two tools of one name are refused, with both sections, also when a section is disabled."""
    one = Section(title="One", tools=[lookup_tool()])
    other = Section(title="Other", children=[Section(title="Deep", tools=[lookup_tool()], enabled=False)])
    error = refused_tree(one, other)
    assert str(error) == wording
    assert (error.tool, error.section_path) == ("lookup", ("other", "deep"))
    assert str(refused_tree(Section(title="One", tools=[lookup_tool(), lookup_tool()]))) == wording
    assert str(refused_tree(one, Section(title="Other", tools=[replace(lookup_tool(), name="Lookup")]))) == wording


@pytest.mark.requirement("M-06p")
def test_policies_in_reach_of_a_tool_have_names_of_their_own(wording: Wording) -> None:
    """Two of one name are refused."""
    inner = Section(title="Inner", policies=[ReadBeforeWritePolicy()], tools=[lookup_tool()])
    assert str(refused_tree(Section(title="Outer", policies=[READ_FIRST], children=[inner]))) == wording
    twice = Section(title="Outer", policies=[READ_FIRST, READ_FIRST], tools=[lookup_tool()])
    assert str(refused_tree(twice)) == wording
    of_prompt = Section(title="Outer", policies=[READ_FIRST], tools=[lookup_tool()])
    assert str(refused_tree(of_prompt, policies=(ReadBeforeWritePolicy(),))) == wording


def test_a_policy_is_asked_whether_it_makes_sense_where_it_stands(wording: Wording) -> None:
    """Tools that it names but does not reach would go unseen; the section is named."""
    apart = Section(title="Deploy", policies=[DEPLOY_LAST], tools=[named_tool("deploy")])
    error = refused_tree(apart, Section(title="Test", tools=[named_tool("test")]))
    assert str(error) == wording
    assert error.section_path == ("deploy",)
    assert str(refused_tree(Section(title="Test"), policies=(DEPLOY_LAST,))) == wording
