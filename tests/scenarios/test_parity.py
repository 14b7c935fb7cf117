"""One script through every door: the same messages, and the same state, files, ledger and events after it."""

from __future__ import annotations

import pytest

from handrail.runtime import ToolInvoked
from tests.kit import Note
from tests.scenarios.desk import CANCELLED, SCRIPT, Desk, outcomes
from tests.scenarios.doors import DOORS, Door, every_door

REFERENCE = DOORS["own loop"]
CANCELLABLE = [name for name in DOORS if name != "own loop"]
"""A thread that waits cannot be cancelled."""


@every_door
@pytest.mark.requirement("M-02")
def test_one_script_leaves_the_same_through_every_door(door: Door) -> None:
    """What the model reads, every slice, every file, every row of the ledger, every event."""
    desk, reference = Desk(), Desk()
    answers, expected = door.play(SCRIPT, desk.executor), REFERENCE.play(SCRIPT, reference.executor)
    desk.release.set()
    reference.release.set()
    assert answers == expected
    assert desk.left() == reference.left()


@every_door
def test_the_script_meets_every_outcome(door: Door) -> None:
    """The comparison is worth something: the calls end as they were made to end, and leave what they should."""
    desk = Desk()
    succeeded = outcomes(door.play(SCRIPT, desk.executor))
    desk.release.set()
    first = [succeeded[f"call-{number}"] for number in range(1, 17)]
    assert [number for number, success in enumerate(first, start=1) if success] == [1, 8, 9, 14, 16]
    assert sum(event.replayed for event in desk.session[ToolInvoked]) == 2
    assert desk.charged == ["fee", "kept", "lost"]
    assert [row.status for row in desk.ledger.rows()] == ["done", "unknown", "done", "done"]
    written = ["first", "fee", "kept", "kept", "seen: 7"]
    assert [note.text for note in desk.session[Note].all()[:5]] == written
    assert desk.files.read_text("note.txt") == "17"
    assert len(desk.session[ToolInvoked]) == 16 + 4 + 20 + 1


@pytest.mark.parametrize("name", CANCELLABLE)
@pytest.mark.requirement("M-02", "M-03d")
def test_a_cancelled_run_leaves_the_same_through_every_door(name: str) -> None:
    """What had been committed stays; the call that waited is undone, recorded, and its effect unknown."""
    desk, reference = Desk(), Desk()
    assert DOORS[name].play_until_cancelled(CANCELLED, desk.executor, desk.waiting)
    assert DOORS["own loop, async"].play_until_cancelled(CANCELLED, reference.executor, reference.waiting)
    assert desk.left() == reference.left()
    assert desk.files.read_text("note.txt") == "first"
    assert [event.success for event in desk.session[ToolInvoked]] == [True, False]
    assert [row.status for row in desk.ledger.rows()] == ["unknown"]
