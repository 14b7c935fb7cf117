"""A process that is killed while it undoes: nothing is undone twice, and nothing is left out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail import undo
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import External, Tool, ToolContext, ToolResult, Undo
from handrail.runtime import Session, ToolCall
from handrail.testing import Crashed, run_to_crash
from handrail.undo import UndoReport
from tests.crash.pages import rows
from tests.undo.desk import Note, Order, Receipt, note

KILLS = {point: cells for point, *cells in rows("What is left of an undo")}


def _tool(book: Path) -> Tool[Order, Receipt]:
    def pay(params: Order, *, context: ToolContext) -> ToolResult[Receipt]:
        _write(book, f"paid {params.order}")
        return ToolResult.ok(Receipt(f"payment of {params.order}", params.order))

    def refund(params: Order, result: ToolResult[Receipt], before: Any, *, context: ToolContext) -> None:
        _write(book, f"refunded {params.order} {context.idempotency_key}")

    def find(params: Order, key: str) -> ToolResult[None] | None:
        return ToolResult.ok(None) if key in book.read_text() else None

    own = Undo(refund, External(on_orphan="reconcile", reconcile=find, reconcile_proves_absence=True))
    return Tool[Order, Receipt](name="pay", description="Pays.", handler=pay, effect="external", undo=own)


def _write(book: Path, line: str) -> None:
    with book.open("a") as file:
        file.write(f"{line}\n")


def refunds(book: Path) -> int:
    """How often money has come back."""
    return book.read_text().count("refunded")


def pay(url: str, book: Path) -> None:
    """Notes something, and pays twice."""
    with stores.open(url) as store, Session.open(store, "desk") as session:
        executor = ToolExecutor([_tool(book), note], session=session)
        for name, arguments in (("note", {"text": "x"}), ("pay", {"order": "A"}), ("pay", {"order": "B"})):
            executor.execute(ToolCall(f"{name}-{len(arguments)}-{arguments}", name, arguments), reply="r")


def undo_all(url: str, book: Path) -> tuple[UndoReport, tuple[object, ...]]:
    """Undoes all, and says what the session has then."""
    with stores.open(url) as store, Session.open(store, "desk") as session:
        executor = ToolExecutor([_tool(book), note], session=session)
        executor.settle_open()
        report = asyncio.run(undo.apply(undo.plan(session, executors=executor)))
        return report, (*session[Note].all(), *session[Receipt].all())


def undo_in_process(url: str, book: str) -> None:
    """The same, in a process that is killed."""
    undo_all(url, Path(book))


@pytest.mark.parametrize("point", KILLS)
@pytest.mark.short(3)
def test_an_undo_that_was_killed_is_completed_by_another_process(point: str, tmp_path: Path) -> None:
    """Two payments, of which the newer is refunded first; the page says how many are after the kill."""
    url, book = f"sqlite:///{tmp_path}/desk.db", tmp_path / "book"
    pay(url, book)
    died = run_to_crash(undo_in_process, url, str(book), at=point)
    assert isinstance(died, Crashed)
    after, again = KILLS[point]
    assert str(refunds(book)) == after
    report, left = undo_all(url, book)
    assert report.complete
    assert str(len(report.undone)) == again
    assert left == ()
    assert refunds(book) == 2
    report, _ = undo_all(url, book)
    assert report.undone == ()
    assert refunds(book) == 2
