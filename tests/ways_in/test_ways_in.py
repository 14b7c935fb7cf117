"""One script through every way in: the model reads the same, and state, records, ledger and events are the same."""

from __future__ import annotations

import json
import re
import signal
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from handrail.store import MemoryStore
from tests.crash.forks import start
from tests.ways_in.desk import Desk
from tests.ways_in.differences import DIFFERENCES, PAGE, changes, expected, page_with_tables
from tests.ways_in.script import CASES, KILLED, Left
from tests.ways_in.ways import NO_FIELD, WAYS, Answer, run
from tests.wording import Wording

PAIRS = [(way, case) for case in CASES for way in WAYS if changes(way, case) is not None]
_OF_A_RUN = re.compile(
    r"(?<=\(call )[^)]*|(?<=untrusted )[0-9a-f]+|(?<=call:)\S+(?=/)|(?<=desk/)\S+(?=/)|(?<=timeout of )[\d.]+"
)


def _comparable(answers: list[Answer]) -> list[Answer]:
    """Answers in the order of the calls, without names of replies, secrets of sessions, and ids of calls."""
    ordered = sorted(answers, key=lambda answer: (len(answer.call_id), answer.call_id))
    return [Answer("", one.success, _OF_A_RUN.sub("", one.text)) for one in ordered]


def play(way: str, case: str, folder: Path) -> tuple[list[Answer], list[Left]]:
    """What the model has read at the end of a case, and what was left after each run of it."""
    desk = Desk(CASES[case], MemoryStore(), folder)
    try:
        answers: list[Answer] = []
        with pytest.raises(SystemExit) if desk.verdict == "exits" else nullcontext():
            answers = run(WAYS[way], desk)
        lefts = [desk.left()]
        if desk.case.resumed is not None:
            desk.verdict = "yes"
            answers = run(WAYS[way], desk)
            lefts.append(desk.left())
    finally:
        desk.release.set()
    return _comparable(answers), lefts


@cache
def _by_own_loop(case: str) -> list[Answer]:
    with TemporaryDirectory() as folder:
        return play("own loop, async", case, Path(folder))[0]


@pytest.mark.parametrize("way, case", PAIRS)
@pytest.mark.requirement("M-02", "M-03d", "S-05c")
@pytest.mark.short(80)
def test_script_leaves_the_same_by_every_way_in(way: str, case: str, tmp_path: Path, wording: Wording) -> None:
    """What the model reads, state, effects, records, ledger, events and open calls, also of a run that is resumed."""
    answers, lefts = play(way, case, tmp_path)
    row = CASES[case]
    assert lefts == [expected(way, case, left) for left in (row.left, row.resumed) if left is not None]
    differing = {place for change in changes(way, case) or () for place in change.texts}
    for place, (answer, usual) in enumerate(zip(answers, _by_own_loop(case), strict=True)):
        if place in differing:
            assert answer.text == wording
            assert answer.text != usual.text
        else:
            assert answer.text == usual.text
            assert answer.success is (None if way in NO_FIELD else usual.success)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.short(len(WAYS))
def test_process_that_is_killed_in_a_call_pays_nothing_twice(way: str, tmp_path: Path, wording: Wording) -> None:
    """The next process answers the call as unknown, those before it from their record, and runs the others."""
    with start("tests.ways_in.process", way, str(tmp_path), "kill") as process:
        assert process.wait() == -signal.SIGKILL
    with start("tests.ways_in.process", way, str(tmp_path)) as process:
        answers, left = json.loads(process.stdout.read())
        assert process.wait() == 0
    assert Left(**left) == expected(way, "killed", KILLED.left)
    first, killed, *others = _comparable([Answer(*answer) for answer in answers])
    assert [answer.text for answer in (first, *others)] == ["noted a", "noted b", "A-1 is paid"]
    assert killed.text == wording
    success = [answer.success for answer in (first, killed, *others)]
    assert success == ([None] * 4 if way in NO_FIELD else [True, False, True, True])


def test_each_difference_is_one() -> None:
    """It is of ways and cases that exist, and says something else than the script."""
    for row in DIFFERENCES:
        assert {*row.ways} <= {*WAYS}
        for case, change in row.cases.items():
            left = KILLED.left if case == "killed" else CASES[case].left
            assert change is None or change.texts or replace(left, **change.left) != left, (row.reason, case)


def test_page_has_the_tables_of_the_suite() -> None:
    """`python -m tests.ways_in.differences` writes them."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == page_with_tables(text)
