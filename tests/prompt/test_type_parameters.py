"""The brackets of `Tool[P, R]` and its like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Optional, TypeVar, get_type_hints

import pytest

from handrail.errors import PromptValidationError
from handrail.prompt import FunctionTool, MarkdownSection, PromptTemplate, Section, Tool
from tests.prompt.samples import Found, Guidance, Lookup
from tests.wording import Wording

S = TypeVar("S")


def annotated(tool: Tool[Lookup, Found] | None, other: Optional[Tool[Lookup, None]]) -> FunctionTool[..., Any, Found]:  # noqa: UP045 - both spellings are meant
    """A function that is only read."""
    raise NotImplementedError


class GuidanceSection(MarkdownSection[Guidance]):
    """A section class that fixes the type."""


class DeeperSection(GuidanceSection):
    """One that inherits it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenSection(MarkdownSection[S], Generic[S]):
    """One that leaves it open."""


def test_brackets_serve_as_annotations() -> None:
    """`Tool[P, R]` resolves in annotations, also as an option."""
    hints = get_type_hints(annotated)
    assert hints["tool"] == Tool[Lookup, Found] | None
    assert hints["return"] == FunctionTool[..., Any, Found]
    assert hints["other"] == Optional[Tool[Lookup, None]]  # noqa: UP045 - this spelling is meant


def test_a_subclass_inherits_the_types_of_its_base() -> None:
    """A class may fix the types of a base, at any distance, or leave them to its own brackets."""
    template = "Prefer ${tool}."
    assert GuidanceSection(title="A", template=template).params_type is Guidance
    assert DeeperSection(title="A", template=template).params_type is Guidance
    assert OpenSection[Guidance](title="A", template=template).params_type is Guidance
    unchecked: Any = OpenSection
    assert unchecked[S][Guidance](title="A", template=template).params_type is Guidance


def test_without_types_there_are_no_parameters() -> None:
    """A section without brackets, or with `None`, has no parameters."""
    unchecked: Any = OpenSection
    assert unchecked(title="A", template="a").params_type is None
    assert OpenSection[None](title="A", template="a").params_type is None
    assert Section(title="A").params_type is None


def test_a_wrong_number_of_types_is_refused(wording: Wording) -> None:
    """Brackets with too many or too few types say what should stand there."""
    unchecked: Any = Tool
    with pytest.raises(PromptValidationError) as raised:
        unchecked[Lookup]
    assert str(raised.value) == wording
    unchecked = PromptTemplate
    with pytest.raises(PromptValidationError) as raised:
        unchecked[Lookup, Found]
    assert str(raised.value) == wording
