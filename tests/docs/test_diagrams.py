"""The diagrams of the docs show what the code has."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from handrail.runtime import Step
from tests.architecture.sources import ROOT
from tests.docs import terminal
from tests.docs.diagrams import DIAGRAMS, FOLDER, changes, drawn_changes, steps
from tests.docs.terminal import SCREENS, draw, text_of


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_drawn_from_what_there_is(name: str) -> None:
    """If this fails, run `make diagrams` and look at them."""
    assert (FOLDER / name).read_text(encoding="utf-8") == DIAGRAMS[name]()


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_an_image_with_a_title_and_stands_in_a_page(name: str) -> None:
    """With a text for those who do not see it."""
    image = ET.parse(FOLDER / name).getroot()  # noqa: S314 - drawn here
    assert [part.text for part in image if part.tag.endswith("title")] != [None]
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"]
    shown = [
        text for page in pages for text in re.findall(rf"!\[(.+?)\]\(\S*{name}\)", page.read_text(encoding="utf-8"))
    ]
    assert len(shown) == 1


def test_the_pipeline_has_every_step() -> None:
    """In their order."""
    assert [int(number) for number, _, _ in steps()] == [step.number for step in Step]


def test_every_change_of_an_effect_is_drawn() -> None:
    """Those that remove a row are in the line below."""
    assert {change for change in changes() if change[1] != "removed"} == drawn_changes()


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_shows_what_the_command_prints(name: str) -> None:
    """And stands in the page of the command. If this fails, run `make diagrams` and look at it."""
    assert text_of((terminal.FOLDER / name).read_text(encoding="utf-8")) == text_of(draw(name))
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert page.count(f"](terminal/{name})") == 1
