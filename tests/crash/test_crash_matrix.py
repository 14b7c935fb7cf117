"""A real process is killed at each point, over each store, under each policy: see `crash-points.md`."""

from __future__ import annotations

from itertools import count, product

import pytest

from handrail.crash_points import POINTS
from handrail.prompt.idempotency import OnOrphan
from tests.crash.cells import Cell, Left, Told
from tests.crash.conftest import Desk
from tests.crash.forge import Forge
from tests.crash.pages import APPLY, EXTERNAL, GROUP, LATE, NOWHERE, OTHER, STATE, rows, table
from tests.extent import some

POLICIES: list[tuple[OnOrphan, bool]] = [("unknown", False), ("retry", False), ("retry", True), ("reconcile", False)]
"""The columns of the table: what becomes of an orphan, and whether the service knows a key again."""

ORPHANS: tuple[OnOrphan, ...] = ("unknown", "retry")
"""The columns of the table of late results: what becomes of an orphan."""

SUCCESSES = {"runs", "replays", "asked, runs", "found"}
NOTHING = {"nothing": 0, "everything": 1}


@pytest.mark.parametrize("point, column", some([*product(table(EXTERNAL), range(len(POLICIES)))], 17))
def test_an_external_effect_after_a_kill_is_what_the_page_says(
    point: str, column: int, desk: Desk, smith: Forge
) -> None:
    """The ledger's row, the answer to the same call asked again, the count at the service, and the session."""
    ledger, *columns = table(EXTERNAL)[point]
    answer, _, times = columns[column].partition(": ")
    policy, forwarded = POLICIES[column]
    cell = desk.cell("external", policy, forwarded=forwarded)

    assert smith.dies(cell, point)
    (left, after, at_last), (told, again) = smith.look(cell, asks=2)
    assert left.ledger == ledger
    assert _named(cell, told, left, after) == answer
    assert after.changed == int(times)
    assert after.applied == (answer in SUCCESSES)
    assert at_last == after
    assert again == (Told(success=True, replayed=True, content=told.content) if told.success else told)


@pytest.mark.parametrize("found, point", some([row[:2] for row in rows(APPLY)], 9))
def test_what_an_effect_applies_is_there_once_after_a_kill(found: str, point: str, desk: Desk, smith: Forge) -> None:
    """The rows that `apply` has written, the mark in the ledger, the session and the answer, before and after."""
    ledger, written, answer, finally_ = next(row[2:] for row in rows(APPLY) if row[:2] == (found, point))
    cell = desk.cell("applied", "reconcile")
    if found == "by the reconciler":
        assert smith.dies(cell, "after-handler")
    assert smith.dies(cell, point)
    (left, after, at_last), (told, again) = smith.look(cell, asks=2)
    assert (left.ledger, left.rows) == (ledger, int(written))
    assert left.marked == (left.rows == 1)
    assert left.applied == left.rows
    assert _named(cell, told, left, after, asked_before=left.asked) == answer
    assert (after.rows, after.applied, after.changed, after.marked) == (int(finally_), 1, 1, True)
    assert at_last == after
    assert again == Told(success=True, replayed=True, content=told.content)


@pytest.mark.parametrize("accepts_late, point, policy", some([*product((False, True), table(LATE), ORPHANS)], 7))
def test_an_effect_whose_handler_overran_is_what_the_page_says(
    point: str, policy: OnOrphan, desk: Desk, smith: Forge, *, accepts_late: bool
) -> None:
    """The ledger, the answer to the same call asked again, and the count at the service, of one that died or lived."""
    ledger, *answers = table(LATE)[point][3 * accepts_late :][:3]
    answer, _, times = answers[ORPHANS.index(policy)].partition(": ")
    cell = desk.cell("late", policy, accepts_late=accepts_late)

    assert smith.dies_late(cell, None if point == NOWHERE else point) == (point != NOWHERE)
    (left, after), (told,) = smith.look(cell, asks=1)
    assert (left.ledger, left.applied, left.changed) == (ledger, 0, 1)
    assert _named(cell, told, left, after) == answer
    assert after.changed == int(times)
    assert after.applied == (answer in SUCCESSES)


@pytest.mark.parametrize("point", some([*table(STATE)], 7))
def test_files_after_a_kill_are_as_before_the_call_or_as_after_it(point: str, desk: Desk, smith: Forge) -> None:
    """Whichever time it is that the call comes to the point; the session agrees, and the call can be asked again."""
    expected = NOTHING[table(STATE)[point][1]]
    for nth in count(1):
        cell = desk.cell("files")
        if not smith.dies(cell, point, nth):
            assert nth > 1, f"a tool that writes files does not come to {point}"
            break
        _assert_whole(cell, smith, expected)


@pytest.mark.parametrize("point", [point for point, (row, _) in table(STATE).items() if row != "-"])
def test_a_row_after_a_kill_is_there_with_the_session_or_not_at_all(point: str, desk: Desk, smith: Forge) -> None:
    """What a handler writes through its connection is committed with the call."""
    cell = desk.cell("row")
    assert smith.dies(cell, point)
    _assert_whole(cell, smith, NOTHING[table(STATE)[point][0]])


@pytest.mark.parametrize("point", [point for point, (row, _) in table(STATE).items() if row == "-"])
@pytest.mark.short(1)
def test_a_row_has_nothing_to_do_with_journals_of_files(point: str, desk: Desk, smith: Forge) -> None:
    """The page has no cell for them."""
    assert not smith.dies(desk.cell("row"), point)


@pytest.mark.parametrize("point", some([*table(OTHER)], 7))
def test_another_database_after_a_kill_is_what_the_page_says(point: str, desk: Desk, smith: Forge) -> None:
    """Once what is prepared has been recovered, it has what the session has."""
    cell = desk.cell("prepared")
    assert smith.dies(cell, point)
    _assert_whole(cell, smith, NOTHING[table(OTHER)[point][0]])


@pytest.mark.parametrize("point", [point for point in table(STATE) if point not in table(EXTERNAL)])
def test_an_external_effect_has_nothing_to_do_with_journals_of_files(point: str, desk: Desk, smith: Forge) -> None:
    """The page has no row for them."""
    assert not smith.dies(desk.cell("external"), point)


def _assert_whole(cell: Cell, smith: Forge, expected: int) -> None:
    """Everything or nothing is there; and what is missing can be had by asking again."""
    (left, *after), tolds = smith.look(cell, asks=1 - expected)
    assert left == Left("absent", expected, expected, 0)
    assert after == [Left("absent", 1, 1, 0)] * (1 - expected)
    assert all(told.success for told in tolds)


def _named(cell: Cell, told: Told, before: Left, after: Left, *, asked_before: int = 0) -> str:
    """What the page calls an answer."""
    if not told.success:
        assert (after.ledger, told.replayed) == ("unknown", False)
        return "unknown"
    asked = after.asked > asked_before
    assert before.asked == asked_before
    assert not asked or cell.policy == "reconcile"
    if told.replayed:
        return "found" if asked else "replays"
    return "asked, runs" if asked else "runs"


def test_every_point_is_in_one_of_the_matrices_and_nothing_else_is() -> None:
    """What happens at a point is told for some tool."""
    applied = {point for _, point, *_ in rows(APPLY)}
    grouped = {point for _, point, *_ in rows(GROUP)}
    undone = table("What is left of an undo")
    assert {*table(EXTERNAL), *table(OTHER), *table(STATE), *grouped, *applied, *undone} == set(POINTS)
    assert set(POINTS).issuperset(table(LATE).keys() - {NOWHERE})
