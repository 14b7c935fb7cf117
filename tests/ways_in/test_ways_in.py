"""One script through every way in: the model reads the same, and state, records, ledger and events are the same."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from handrail.store import MemoryStore
from tests.ways_in.desk import Desk
from tests.ways_in.script import CASES, Left
from tests.ways_in.ways import WAYS, Answer, run

_REPLY = re.compile(r"\(call [^)]*\)")
_SECRET = re.compile(r"\b[0-9a-f]{24}\b")


def play(way: str, case: str, folder: Path) -> tuple[list[Answer], list[Left]]:
    """What the model has read at the end of a case, and what was left after each run of it."""
    desk = Desk(CASES[case], MemoryStore(), folder)
    try:
        answers, lefts = run(WAYS[way], desk), [desk.left()]
        if desk.case.resumed is not None:
            desk.verdict = "yes"
            answers = run(WAYS[way], desk)
            lefts.append(desk.left())
    finally:
        desk.release.set()
    return [answer._replace(text=_same(answer.text)) for answer in answers], lefts


def _same(text: str) -> str:
    """A text without the name of its reply, and without the secret of its session."""
    return _SECRET.sub("SECRET", _REPLY.sub("(call)", text))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_script_leaves_the_same_by_every_way_in(way: str, case: str, tmp_path: Path) -> None:
    """State, effects, records, ledger, events and open calls are those of the script."""
    answers, lefts = play(way, case, tmp_path)
    expected = CASES[case]
    assert lefts == [left for left in (expected.left, expected.resumed) if left is not None]
    print(answers)
