"""Text with placeholders in it."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from handrail.errors import PromptValidationError
from handrail.prompt.section import MarkdownSection, PlaceholderText
from tests.prompt.samples import Guidance
from tests.wording import Wording


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
    return PlaceholderText.parse(template, kind).fill(params)


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
    ],
)
def test_placeholders_are_filled_and_nothing_else(template: str, text: str) -> None:
    """`${name}` is a field, `$${` a plain `${`, and any other dollar sign is itself."""
    assert filled(template, Guidance("lookup")) == text


def test_values_are_not_read_for_placeholders() -> None:
    """What comes from outside stays text."""
    assert filled("${tool} ${audience}", Guidance("${audience}", "all")) == "${audience} all"


def test_values_are_shown_as_people_write_them() -> None:
    """Words and numbers as they are, an enum by its value, what has a structure as JSON."""
    params = Everything("wörd", 1.5, Level.HIGH, None, ("a", "b"), Guidance("lookup"))
    template = "${word} ${number} ${level} ${nothing} ${names} ${guidance}"
    assert filled(template, params) == snapshot(
        'wörd 1.5 high None ["a", "b"] {"tool": "lookup", "audience": "beginners"}'
    )


def test_a_placeholder_must_name_a_field(wording: Wording) -> None:
    """The error names it, the fields there are, and the nearest one."""
    told: list[str] = []
    for template in ("${tol}", "${}", "${ tool }", "${tool.name}", "${tool"):
        with pytest.raises(PromptValidationError) as caught:
            MarkdownSection[Guidance](title="Guidance", template=template)
        told.append(str(caught.value))
    assert told == wording
    assert caught.value.section_path == ("guidance",)


@given(st.lists(st.tuples(st.text("ab{} }", max_size=8), st.text(max_size=8)), max_size=6))
def test_pieces_and_values_come_out_in_their_order(pieces: list[tuple[str, str]]) -> None:
    """Whatever the texts and values are, each value stands between its neighbours, unchanged."""
    kind: Any = make_dataclass("Params", [(f"f{number}", str) for number in range(len(pieces))])
    template = "".join(f"{text}${{f{number}}}" for number, (text, _) in enumerate(pieces))
    expected = "".join(text + value for text, value in pieces)
    assert filled(f"|{template}|", kind(*(value for _, value in pieces))) == f"|{expected}|"
