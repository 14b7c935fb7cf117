"""A prompt as it is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from handrail.errors import PromptValidationError, SchemaError
from handrail.prompt import MarkdownSection, PromptTemplate, Section
from tests.prompt.samples import Found, Guidance, Lookup
from tests.wording import Wording

UNCHECKED: Any = PromptTemplate


@dataclass(frozen=True)
class Opaque:
    """An answer without a schema."""

    handle: type[int]


def refused(kind: Callable[..., object] = UNCHECKED, **changes: object) -> PromptValidationError:
    """The error that a template with these changes is refused with."""
    declared: dict[str, object] = {"ns": "tests", "key": "template", "sections": []}
    with pytest.raises(PromptValidationError) as caught:
        kind(**(declared | changes))
    return caught.value


def test_a_template_is_named_by_namespace_and_key() -> None:
    """Unless it is given a name."""
    assert PromptTemplate(ns="examples/tooling", key="demo", sections=[]).name == "examples/tooling/demo"
    assert PromptTemplate(ns="examples/tooling", key="demo", sections=[], name="Demo").name == "Demo"


@pytest.mark.parametrize("value", ["", "/a", "a b", "a" * 129, None], ids=["empty", "slash", "blank", "long", "none"])
def test_namespace_and_key_are_plain_names(value: object, wording: Wording) -> None:
    """Letters, digits and a few signs."""
    assert str(refused(ns=value)) == wording
    assert str(refused(key=value)) == wording


def test_the_answer_is_text_unless_the_brackets_say_otherwise() -> None:
    """`None` is an answer that nobody reads, and a dataclass one with these fields."""
    assert PromptTemplate(ns="t", key="t", sections=[]).output_type is str
    assert PromptTemplate[str](ns="t", key="t", sections=[]).output_type is str
    assert PromptTemplate[None](ns="t", key="t", sections=[]).output_type is None
    assert PromptTemplate[Found](ns="t", key="t", sections=[]).output_type is Found


def test_other_answers_are_refused(wording: Wording) -> None:
    """What is no dataclass, or has no schema."""
    assert str(refused(UNCHECKED[int])) == wording
    error = refused(UNCHECKED[Opaque])
    assert error.dataclass is Opaque
    assert isinstance(error.__cause__, SchemaError)


def test_sections_are_sections_and_policies_policies(wording: Wording) -> None:
    """In a sequence."""
    assert str(refused(sections=Section(title="A"))) == wording
    assert str(refused(sections=["Guidance"])) == wording
    assert str(refused(policies=["read first"])) == wording


def test_a_template_knows_the_parameters_of_its_sections() -> None:
    """Each type once, in the order of the sections; disabled sections count."""
    sections: list[Section[Any]] = [
        MarkdownSection[Guidance](title="A", template="${tool}", children=[Section[Lookup](title="B", enabled=False)]),
        MarkdownSection[Guidance](title="C", template="${tool}"),
        Section(title="D"),
    ]
    assert PromptTemplate(ns="t", key="t", sections=sections).params_types == (Guidance, Lookup)
