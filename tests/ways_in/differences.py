"""Where a way in differs from the script by design, and why; and the tables of `docs/reference/ways-in.md`.

`python -m tests.ways_in.differences` writes these into the page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.architecture.sources import ROOT
from tests.ways_in.script import CASES, KILLED, Left
from tests.ways_in.ways import WAYS

PAGE = ROOT / "docs" / "reference" / "ways-in.md"
BEGIN, END = "<!-- suite -->\n", "<!-- end -->\n"
_RAN_ALIKE = "="
_KILLED = "killed"


class Change(NamedTuple):
    """What differs in a case.

    Attributes:
        left: the fields of `Left` that are others, with their values.
        texts: the calls of the case whose text is another, by their position from 0.
    """

    left: Mapping[str, Any] = {}
    texts: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference, and its reason.

    Attributes:
        reason: the reason, as the page says it.
        ways: the ways in.
        cases: what differs in each case; `None` for a case that the way in cannot have.
    """

    reason: str
    ways: Sequence[str]
    cases: Mapping[str, Change | None]


_OPENED = ["c2 open_sections: handler, not final", "c3 refund: ok"]

DIFFERENCES: Sequence[Difference] = (
    Difference("A thread that waits cannot be cancelled.", ["own loop", "LangGraph"], {"cancelled": None}),
    Difference(
        "PydanticAI answers a name that is not offered, and nothing is recorded.",
        ["toolset"],
        {
            "unknown tool": Change({"records": ["c2 note: ok"], "events": {"ToolInvoked": 1}}, [0]),
            "disclosure": Change(
                {"records": ["c2 open_sections: handler, not final", "c3 refund: ok"], "events": {"ToolInvoked": 2}},
                [0],
            ),
        },
    ),
    Difference("PydanticAI ends the run.", ["toolset"], {"repeated id": None}),
    Difference(
        "The model also reads why a call was refused.",
        ["agent file"],
        {
            "refused": Change(texts=[0]),
            "asking fails": Change(texts=[0]),
            "asking cancelled": Change(texts=[0]),
            "tainted": Change(texts=[1]),
        },
    ),
    Difference("The client asks.", ["proxy"], dict.fromkeys(("asking fails", "asking cancelled", "asking exits"))),
    Difference("The protocol has arguments as an object.", ["Anthropic", "MCP server", "proxy"], {"malformed": None}),
    Difference(
        "A call is named by the key of the client; with another call's key it is refused.",
        ["MCP server", "proxy"],
        {
            "repeated id": Change(
                {"notes": ["a"], "file": "a", "records": ["c1 note: ok"], "events": {"ToolInvoked": 1}}, [1]
            )
        },
    ),
    Difference(
        "The tools are those of the server behind it, and so is their state.",
        ["proxy"],
        {
            name: Change({"notes": [], "file": ""})
            for name, case in (*CASES.items(), (_KILLED, KILLED))
            if case.left.notes
            and name not in {"malformed", "order", "asking fails", "asking cancelled", "asking exits"}
        },
    ),
    Difference(
        "The server validates by its JSON Schema, so the text is another.", ["proxy"], {"invalid": Change(texts=[0])}
    ),
    Difference(
        "A server's error is its answer, so the call has failed.",
        ["proxy"],
        {
            "raised": Change({"records": ["c1 burst: handler", "c2 note: ok"], "events": {"ToolInvoked": 2}}),
            "unknown": Change(
                {
                    "records": ["c1 pay: handler", "c2 note: ok"],
                    "ledger": ["pay: failed"],
                    "events": {"ToolInvoked": 2},
                    "waits": [],
                }
            ),
        },
    ),
    Difference("All calls of a client reach the server side by side.", ["proxy"], {"order": None}),
    Difference(
        "Calls inside the server are not seen.",
        ["proxy"],
        {"nested": Change({"records": ["c1 nest: ok"], "events": {"ToolInvoked": 1}})},
    ),
    Difference(
        "The sections are those of the server.",
        ["proxy"],
        {"disclosure": Change({"records": ["c1 refund: look_up", "c2 open_sections: ok", "c3 refund: ok"]}, [0])},
    ),
)
"""All differences by design."""


def changes(way: str, case: str) -> list[Change] | None:
    """What differs in a case by a way in; `None` if that cannot have the case."""
    rows = [row.cases[case] for row in DIFFERENCES if way in row.ways and case in row.cases]
    return None if None in rows else [change for change in rows if change is not None]


def expected(way: str, case: str, left: Left) -> Left:
    """What a case leaves by a way in, of what it leaves by the script."""
    for change in changes(way, case) or ():
        left = replace(left, **change.left)
    return left


# ------------------------------------------------------------------------------------------------------------ the page


def tables() -> str:
    """The tables of the page."""
    cases = {**CASES, _KILLED: KILLED}
    lines = ["", f"| case | {' | '.join(WAYS)} |", f"|---|{':-:|' * len(WAYS)}"]
    for name in cases:
        cells = [_cell(way, name) for way in WAYS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        "| case | |",
        "|---|---|",
        *(f"| {name} | {case.about} |" for name, case in cases.items() if case.about),
    ]
    lines += ["", "| | difference |", "|---|---|"]
    lines += [f"| {number} | {row.reason} |" for number, row in enumerate(DIFFERENCES, 1)]
    return "\n".join([*lines, "", ""])


def _cell(way: str, case: str) -> str:
    numbers = [number for number, row in enumerate(DIFFERENCES, 1) if way in row.ways and case in row.cases]
    marks = " ".join(map(str, numbers)) or _RAN_ALIKE
    return f"({marks})" if changes(way, case) is None else marks


def page_with_tables(text: str) -> str:
    """The page with the tables of now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + tables() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
