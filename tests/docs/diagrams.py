"""The diagrams of the docs, drawn from the tables that the tests read: `make diagrams` writes them.

| diagram | drawn from |
|---|---|
| `pipeline.svg` | the table of `handrail.runtime.invoke` |
| `effect-states.svg` | the table of `handrail.runtime.ledger.effects` |
| `layers.svg` | the contract of `lint-imports` in `pyproject.toml` |
| `trace.svg` | the spans of an agent that is run; see `tests.docs.trace_picture` |
| `terminal.svg` | the first output of `handrail undo` in its how-to page, which the tests type |
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.sax.saxutils import escape

from handrail.runtime import invoke
from handrail.runtime.ledger import effects
from tests.architecture.sources import ROOT
from tests.docs import trace_picture

FOLDER = ROOT / "docs" / "explanation" / "diagrams"

_LINE = 16
_INK, _PALE, _EDGE = "#1f2933", "#52606d", "#9aa5b1"
_FILLS = {"plain": "#f5f7fa", "inside": "#e3f8ee", "held": "#e6f0ff", "end": "#fff3d6", "bad": "#ffe8e6"}


class Point(NamedTuple):
    """A place on a drawing, in pixels from its left upper corner."""

    x: float
    y: float


@dataclass
class Drawing:
    """An SVG image that is put together part by part."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list[str])

    def box(self, at: Point, size: tuple[float, float], lines: Sequence[str], fill: str = "plain") -> None:
        """A rectangle with centred lines of text, the first of them bold."""
        x, y = at
        width, height = size
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{_FILLS[fill]}" '
            f'stroke="{_EDGE}"/>'
        )
        top = y + height / 2 - (len(lines) - 1) * _LINE / 2 + 4
        for number, line in enumerate(lines):
            self.text(Point(x + width / 2, top + number * _LINE), line, anchor="middle", bold=number == 0)

    def text(self, at: Point, line: str, *, anchor: str = "start", bold: bool = False, pale: bool = False) -> None:
        """One line of text."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{at.x:g}" y="{at.y:g}" text-anchor="{anchor}" fill="{_PALE if pale else _INK}"{weight}>'
            f"{escape(line)}</text>"
        )

    def arrow(self, path: Iterable[Point], label: Sequence[str] = (), label_at: Point | None = None) -> None:
        """A line through points, with a head at its end, and lines of text."""
        points = " ".join(f"{x:g},{y:g}" for x, y in path)
        self.parts.append(f'<polyline points="{points}" fill="none" stroke="{_PALE}" marker-end="url(#head)"/>')
        if label_at is not None:
            for number, line in enumerate(label):
                self.text(Point(label_at.x, label_at.y + number * _LINE), line, pale=True)

    def svg(self) -> str:
        """The image, as text."""
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" font-family="sans-serif" font-size="13">\n'
            f"<title>{escape(self.title)}</title>\n"
            f'<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{_PALE}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>\n{body}\n</svg>\n'
        )


def steps() -> list[tuple[str, str, str]]:
    """The rows of the table of the pipeline: number, step, what a refusal there becomes."""
    rows = re.findall(r"^\| (\d+) \| (.*?) \| (.*?) ?\|$", invoke.__doc__ or "", re.MULTILINE)
    return [(number, step, outcome) for number, step, outcome in rows]


def pipeline() -> str:
    """The steps of a call from top to bottom, and beside each what a refusal there becomes."""
    rows, top, step_height = steps(), 60, 50
    drawing = Drawing(900, top + len(rows) * step_height + 20, "The thirteen steps of a call")
    drawing.text(Point(240, 30), "step", anchor="middle", bold=True)
    drawing.text(Point(470, 30), "a refusal or failure here", bold=True)
    for place, (number, step, outcome) in enumerate(rows):
        y = top + place * step_height
        fill = "inside" if 8 <= int(number) <= 11 else "held" if 3 <= int(number) <= 12 else "plain"
        first, *rest = textwrap.wrap(f"{number}. {step.replace('`', '')}", 44)
        drawing.box(Point(70, y), (370, 40), [first, *rest[:1]], fill)
        if place:
            drawing.arrow([Point(255, y - 10), Point(255, y)])
        for line, words in enumerate(textwrap.wrap(outcome.replace("`", ""), 58)[:2]):
            drawing.text(Point(470, y + (18 if len(outcome) < 60 else 14) + line * _LINE), words, pale=True)
    for name, first_step, last_step, x in (("turn", 3, 12, 20), ("transaction", 8, 11, 45)):
        y, end = top + (first_step - 1) * step_height, top + last_step * step_height - 10
        drawing.parts.append(
            f'<path d="M{x + 12} {y} H{x} V{end} H{x + 12}" fill="none" stroke="{_PALE}"/>'
            f'<text transform="translate({x - 5} {(y + end) / 2}) rotate(-90)" text-anchor="middle" '
            f'fill="{_PALE}">{name}</text>'
        )
    return drawing.svg()


def changes() -> dict[tuple[str, str], list[str]]:
    """The events that change the status of a row, by the status before and after; `removed` is none."""
    table = re.findall(r"^    (\w+)  +(\S.*?)  +(\S.*?)  +(\w+)$", effects.__doc__ or "", re.MULTILINE)
    found: dict[tuple[str, str], list[str]] = {}
    for row, event, becomes, _ in table:
        status = re.split(",| ", becomes)[0]
        after = "lapsed" if becomes == "running, lapsed" else "removed" if status == "absent" else status
        before = "absent" if row == "expired" and after != "removed" else row
        if before not in {"corrupt", after} and status not in {"as", "becomes"} and set(row) != {"="}:
            events = found.setdefault((before, after), [])
            if event not in events and not (event.endswith(", other arguments") and event.split(",")[0] in events):
                events.append(event)
    return found


_STATES: Mapping[str, tuple[Point, str, str]] = {
    "absent": (Point(30, 190), "no row, or expired", "plain"),
    "running": (Point(330, 60), "an owner has a lease", "held"),
    "lapsed": (Point(330, 330), "the lease has expired", "held"),
    "unknown": (Point(640, 190), "it may have happened", "end"),
    "done": (Point(960, 60), "with its result", "inside"),
    "failed": (Point(960, 330), "it has not happened", "bad"),
}
_SIZE = (170, 56)


class Route(NamedTuple):
    """How an arrow is drawn: its points, where its label begins, and how many characters a line of that has."""

    path: tuple[tuple[float, float], ...]
    label_at: tuple[float, float]
    width: int = 30


_ARROWS: Mapping[tuple[str, str], Route] = {
    ("absent", "running"): Route(((150, 190), (150, 88), (330, 88)), (160, 82)),
    ("absent", "done"): Route(((90, 190), (90, 20), (1045, 20), (1045, 60)), (100, 38)),
    ("running", "done"): Route(((500, 75), (960, 75)), (700, 69)),
    ("running", "failed"): Route(
        ((350, 116), (350, 150), (310, 150), (310, 445), (1080, 445), (1080, 386)), (322, 461)
    ),
    ("running", "unknown"): Route(((500, 100), (690, 100), (690, 190)), (560, 116)),
    ("running", "lapsed"): Route(((380, 116), (380, 330)), (387, 240), 12),
    ("lapsed", "running"): Route(((490, 330), (490, 116)), (498, 264)),
    ("lapsed", "unknown"): Route(((500, 345), (670, 345), (670, 246)), (552, 322)),
    ("lapsed", "done"): Route(((420, 386), (420, 425), (1150, 425), (1150, 88), (1130, 88)), (432, 403)),
    ("lapsed", "failed"): Route(((500, 375), (960, 375)), (700, 369)),
    ("failed", "running"): Route(((1000, 386), (1000, 485), (290, 485), (290, 105), (330, 105)), (300, 501)),
    ("failed", "done"): Route(((1020, 330), (1020, 116)), (1028, 290)),
    ("unknown", "running"): Route(((640, 205), (470, 205), (470, 116)), (540, 222)),
    ("unknown", "done"): Route(((780, 190), (780, 100), (960, 100)), (790, 116)),
    ("unknown", "failed"): Route(((780, 246), (780, 345), (960, 345)), (790, 320)),
}


def effect_states() -> str:
    """The states of an effect and what leads from one to another."""
    drawing = Drawing(1180, 560, "The states of an effect in the ledger")
    events = changes()
    for (before, after), route in _ARROWS.items():
        label = [line for event in _shown(events[before, after]) for line in textwrap.wrap(event, route.width)]
        drawing.arrow([Point(*point) for point in route.path], label, Point(*route.label_at))
    for name, (at, meaning, fill) in _STATES.items():
        drawing.box(at, _SIZE, [name, meaning], fill)
    removed = sorted((events[before, after][0], before) for before, after in events if after == "removed")
    by_event: dict[str, list[str]] = {}
    for event, before in removed:
        by_event.setdefault(event, []).append(before)
    said = "; ".join(f"{event} ({', '.join(found)})" for event, found in by_event.items())
    drawing.text(Point(30, 530), f"A row is removed by: {said}.", pale=True)
    return drawing.svg()


def drawn_changes() -> set[tuple[str, str]]:
    """The changes of status that have an arrow."""
    return {*_ARROWS}


def _shown(events: Sequence[str]) -> list[str]:
    return [event.replace("resolve: it", "resolved: it") for event in events]


def layers() -> str:
    """The packages from the command line down to the clock; imports go down only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == "layers"]
    there = {path.stem for path in (ROOT / "src" / "handrail").iterdir()}
    rows = [[name.strip("() ") for name in re.split(r"\||:", line)] for line in contract["layers"]]
    rows = [[name for name in row if name in there] for row in rows]
    rows = [row for row in rows if row]
    drawing = Drawing(720, 40 + len(rows) * 60, "The layers of Handrail")
    for place, row in enumerate(rows):
        y, width = 20 + place * 60, (680 - 10 * (len(row) - 1)) / len(row)
        for number, name in enumerate(row):
            drawing.box(Point(20 + number * (width + 10), y), (width, 40), [name], "plain")
        if place:
            drawing.arrow([Point(360, y - 20), Point(360, y)])
    return drawing.svg()


def trace() -> str:
    """The spans of an agent, those inside another one below it, with what Handrail adds."""
    spans = trace_picture.run_agent()
    rows, places = trace_picture.ordered(spans), trace_picture.places(spans)
    heights = [48 if trace_picture.described(span) else 30 for _, span in rows]
    drawing = Drawing(960, 30 + sum(heights), "A trace of an agent that pays two orders")
    step = 470 / max(places.values())
    for number, (depth, span) in enumerate(rows):
        y, x = 20 + sum(heights[:number]), 20 + 20 * depth
        about, events = trace_picture.described(span), trace_picture.handrail_events(span)
        drawing.text(Point(x, y + 13), span.name, bold=bool(about))
        start, end = (460 + step * places[moment or 0] for moment in (span.start_time, span.end_time))
        fill = "bad" if span.status.status_code.name == "ERROR" else "inside" if about else "plain"
        drawing.box(Point(start, y), (end - start, 18), [], fill)
        for event in events:
            at = 460 + step * places[event.timestamp]
            drawing.parts.append(f'<circle cx="{at:g}" cy="{y + 9}" r="3" fill="{_PALE}"/>')
        if about:
            names = ", ".join(event.name.removeprefix("handrail.") for event in events)
            drawing.text(Point(x, y + 13 + _LINE), about, pale=True)
            drawing.text(Point(min(start, 760), y + 17 + _LINE), names, pale=True)
    return drawing.svg()


_INKS = (("$", "#ffffff"), ("  -", "#ff9f97"), ("  +", "#8be0a8"), ("  @", "#8ab8ff"), ("Undone", "#8be0a8"))
"""How a line of a terminal begins, and its colour."""


def terminal() -> str:
    """The plan of an undo, and its end, as they stand in a terminal."""
    page = (ROOT / "docs" / "how-to" / "undo.md").read_text(encoding="utf-8")
    _, begin, rest = page.partition("$ handrail undo")
    lines = (begin + rest.partition("```")[0]).splitlines()
    height = 44 + len(lines) * 18
    drawing = Drawing(760, height, "A payment and a note are undone in a terminal")
    drawing.parts.append(f'<rect width="760" height="{height}" rx="8" fill="#1f2933"/>')
    drawing.parts += [
        f'<circle cx="{22 + 18 * number}" cy="17" r="5" fill="{fill}"/>'
        for number, fill in enumerate(("#ff6b60", "#ffc24b", "#4fc26b"))
    ]
    for number, line in enumerate(lines):
        ink = next((ink for start, ink in _INKS if line.startswith(start)), "#d9e2ec")
        drawing.parts.append(
            f'<text x="18" y="{48 + number * 18}" fill="{ink}" xml:space="preserve" font-family="monospace">'
            f"{escape(line)}</text>"
        )
    return drawing.svg()


_DRAWINGS = (terminal, pipeline, effect_states, layers, trace)
DIAGRAMS: Mapping[str, Callable[[], str]] = {f"{draw.__name__.replace('_', '-')}.svg": draw for draw in _DRAWINGS}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DIAGRAMS.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
