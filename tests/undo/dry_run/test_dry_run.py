"""A dry run rehearses on copies, makes no external effect, and leaves nothing; its plan is executed as it is."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.errors import PlanRefusedError
from handrail.runtime import ToolInvoked
from handrail.undo import DryRunPlan
from handrail.undo.plan_file import PlannedCall
from tests.kit import Kept
from tests.undo.dry_run.desks import SESSION, Desk, desk_in

pytestmark = pytest.mark.anyio


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk; temporary folders are made in one of its own."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return desk_in(tmp_path / "desk")


def everything(desk: Desk) -> object:
    """All that a dry run could change."""
    files = {str(path): path.read_bytes() for path in sorted(desk.root.rglob("*")) if path.is_file()}
    with stores.open(desk.url) as store:
        sessions = [(row, *store.entries(row.session_id)) for row in store.sessions()]
        rows = list(store.rows())
    left = list((desk.folder.parent / "temporary").iterdir())
    return files, sessions, rows, left, desk.paid, desk.mailed, sorted(desk.folder.iterdir())


async def test_dry_run_changes_nothing(desk: Desk) -> None:
    """No session, row, file or temporary folder is left of it, and no external effect was made."""
    before = everything(desk)
    plan = await desk.rehearse()
    assert everything(desk) == before
    assert (sorted(desk.ran), desk.asked) == (["look", "note", "stock"], 4)
    assert [(call.id, call.tool, call.is_preview, call.success) for call in plan.calls] == [
        ("c00", "look", False, True),
        ("c01", "stock", False, True),
        ("c02", "note", False, True),
        ("c10", "pay", True, True),
        ("c20", "mail", True, True),
    ]
    assert (plan.ends, plan.output, plan.session, len(plan.replies)) == ("", "Done.", SESSION, 4)


async def test_plan_is_executed_as_it_is(desk: Desk, tmp_path: Path) -> None:
    """The model is not asked; its recorded replies are given; each call runs once, and a second time is refused."""
    plan = await desk.rehearse()
    plan.save(tmp_path / "plan.json")
    desk.ran.clear()
    desk.asked = 0
    assert await desk.execute(DryRunPlan.load(tmp_path / "plan.json")) == "Done."
    assert sorted(desk.ran) == ["look", "mail", "note", "pay", "stock"]
    assert (desk.paid, desk.mailed, desk.asked) == (["A-17"], ["A-17"], 0)
    with stores.open(desk.url) as store, store.session(SESSION) as session:
        assert [one.text for one in session[Kept]] == ["before", "seen"]
        assert [event.call_id for event in session[ToolInvoked]] == ["old", "c00", "c01", "c02", "c10", "c20"]
    assert (desk.root / "seen.txt").read_text(encoding="utf-8") == "seen"
    with pytest.raises(PlanRefusedError):
        await desk.execute(plan)
    assert desk.paid == ["A-17"]


async def test_plan_file_is_read_as_it_was_written(desk: Desk, tmp_path: Path) -> None:
    """Only its owner may read it."""
    plan = await desk.rehearse()
    plan.save(tmp_path / "plan.json")
    assert DryRunPlan.load(tmp_path / "plan.json") == plan
    assert (tmp_path / "plan.json").stat().st_mode & 0o777 == 0o600
    assert all(isinstance(call, PlannedCall) for call in plan.calls)
