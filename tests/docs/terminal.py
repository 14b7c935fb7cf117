"""What the command shows on a terminal, as images for the pages: `make diagrams` draws them.

The command runs before a terminal, and every run of one style becomes a text of the image. No font is loaded.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import chdir
from tempfile import TemporaryDirectory
from textwrap import wrap
from typing import NamedTuple
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from tests.architecture.sources import ROOT
from tests.cli.desk import Terminal
from tests.docs.evening import fill
from tests.docs.kit import comparable
from tests.docs.test_reference import TYPED

WIDTH = 96
_LINE, _SIZE, _LEFT, _TOP = 19, 14, 16, 44
_LETTER = 8.43  # the width of a letter of a monospaced font of this size; `textLength` makes every font fit
_WORDS = re.compile(r"\S+(?: \S+)*")
_CONSOLE = Console(width=WIDTH, file=io.StringIO())
_INK, _GROUND, _PALE = "#d8dee9", "#1f2430", "#8a93a6"


class Shown(NamedTuple):
    """A screen: its title, and the command line that is typed."""

    title: str
    line: str


FOLDER = ROOT / "docs" / "reference" / "terminal"
SCREENS: Mapping[str, Shown] = {
    "check.svg": Shown("What holds for each tool of an agent", "handrail check notes/notes.agent"),
    "effects.svg": Shown("The effects of an evening at a refund desk", "handrail ledger list"),
}
"""The images, by their files."""


def draw(name: str) -> str:
    """One of the images, as SVG."""
    shown = SCREENS[name]
    lines = list(_typed(shown))
    width, height = round(2 * _LEFT + WIDTH * _LETTER), _TOP + (len(lines) - 1) * _LINE + 18
    rows = "".join(_row(line, _TOP + number * _LINE) for number, line in enumerate(lines))
    dots = "".join(f'<circle cx="{20 + 18 * place}" cy="18" r="5" fill="{_PALE}"/>' for place in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{_SIZE}">\n'
        f"<title>{escape(shown.title)}</title>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="{_GROUND}"/>{dots}\n{rows}</svg>\n'
    )


def read_text(image: str) -> str:
    """What an image shows, without what time makes of it."""
    root = ET.fromstring(image)  # noqa: S314 - drawn here
    texts = [part for part in root if part.tag.endswith("text")]
    lines: dict[str, list[str]] = {}
    for part in texts:
        lines.setdefault(part.get("y", ""), []).append(part.text or "")
    return comparable("\n".join(" ".join(" ".join(words).split()) for words in lines.values()))


def _typed(shown: Shown) -> Iterator[Text]:
    """The lines on the screen: what is typed, and what the command shows, in a folder with an agent and a store."""
    first, *others = wrap(f"$ {shown.line}", WIDTH - 2, subsequent_indent="    ", break_on_hyphens=False)
    ends = [*(" \\" for _ in others), ""]
    for part, end in zip((first, *others), ends, strict=True):
        yield Text(f"{part}{end}", "bold")
    with TemporaryDirectory() as folder, chdir(folder), pytest.MonkeyPatch.context() as patch:
        for name in ("HANDRAIL_STORE", "HANDRAIL_MODEL", "NO_COLOR"):
            patch.delenv(name, raising=False)
        fill("sqlite:///desk.db")
        patch.setenv("HANDRAIL_STORE", "sqlite:///desk.db")
        terminal = Terminal(patch)
        assert terminal.run(*shlex.split(TYPED[0][0])[1:]) == 0
        assert terminal.run(*shlex.split(shown.line)[1:], width=WIDTH) == 0
    for line in terminal.screen.rstrip("\n").split("\n"):
        yield Text.from_ansi(line)


def _row(line: Text, y: int) -> str:
    found, column = "", 0
    for segment in line.render(_CONSOLE):
        for words in _WORDS.finditer(segment.text):
            found += _text(words[0], segment.style or Style(), column + words.start(), y)
        column += len(segment.text)
    return found


def _text(text: str, style: Style, column: int, y: int) -> str:
    ink = style.color.get_truecolor(DIMMED_MONOKAI).hex if style.color and not style.color.is_default else _INK
    kind = f' fill="{_PALE if style.dim else ink}"' + (' font-weight="bold"' if style.bold else "")
    place = f'x="{_LEFT + column * _LETTER:.1f}" y="{y}" textLength="{len(text) * _LETTER:.1f}"'
    return f"<text {place}{kind}>{escape(text)}</text>\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in SCREENS:
        (FOLDER / each).write_text(draw(each), encoding="utf-8")
