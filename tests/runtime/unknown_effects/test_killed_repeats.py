"""A process dies at each point of a call that is answered with the effect which it repeats; then it is resumed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Session, ToolInvoked, ToolMessage
from handrail.session import stored_as
from handrail.testing import Finished
from tests.crash.forks import fork_to_crash
from tests.crash.pages import REPEAT, rows
from tests.kit import executor
from tests.runtime import payments


@stored_as("tests.killed_repeats.payment")
@dataclass(frozen=True)
class Payment:
    """What is paid."""

    to: str


def door(folder: str, session: Session) -> ToolExecutor:
    """A bank that charges, and answers nothing the first time; asked from then on, it knows what it has charged."""
    book, asked = Path(folder, "bank.txt"), Path(folder, "asked.txt")

    def pay(params: Payment, *, context: ToolContext) -> ToolResult[str]:
        first = not book.exists()
        with book.open("a") as page:
            page.write(f"{context.idempotency_key}\n")
        if first:
            raise TimeoutError("no answer")
        return ToolResult.ok("paid")

    def find(_params: object, key: str) -> ToolResult[str] | None:
        if not asked.exists():
            asked.touch()
            raise ConnectionError("the line is dead")
        return ToolResult.ok("the bank says: paid") if key in book.read_text().split() else None

    return executor(payments.paying(Payment, pay, reconcile=find), session=session)


def ask(folder: str, ref: str) -> ToolMessage:
    """Ask for the payment in the stored session."""
    with store.open(f"sqlite:///{folder}/s.db") as kept, Session.open(kept, "s") as session:
        return payments.ask(door(folder, session), ref, {"to": "ann"})


def repeat(folder: str) -> None:
    """Ask for it once more in another reply: the first one is found to have happened, which is the answer."""
    assert ask(folder, "r2/c2").success


def begun(folder: Path) -> str:
    """A folder in which the first payment is unknown."""
    folder.mkdir()
    assert not ask(str(folder), "r1/c1").success
    return str(folder)


def test_the_page_has_a_row_for_each_point_that_a_repeat_passes(tmp_path: Path) -> None:
    """In the order in which it passes them, each once; and one for a process that is not killed."""
    finished = fork_to_crash(repeat, begun(tmp_path / "whole"), at=None)
    assert isinstance(finished, Finished)
    assert [*finished.reached, "nowhere"] == [row[0] for row in rows(REPEAT)]


@pytest.mark.parametrize("row", rows(REPEAT), ids=lambda row: row[0])
@pytest.mark.short(2)
def test_a_repeat_whose_process_dies_is_answered_again_when_it_is_resumed(row: tuple[str, ...], tmp_path: Path) -> None:
    """At whatever point it dies: the effect is answered once, by this call, and an equal call after it is a new one."""
    point, first, answer, told = row
    folder = begun(tmp_path / "desk")
    fork_to_crash(repeat, folder, at=None if point == "nowhere" else point)
    with store.open(f"sqlite:///{folder}/s.db") as kept, Session.open(kept, "s") as session:
        standing = kept.get("s", "call:r1/c1")
        assert standing is not None
        recorded = any(event.call_id == "c2" and event.final for event in session[ToolInvoked])
    assert (standing.status, "recorded" if recorded else "not recorded") == (first, answer)

    again = ask(folder, "r2/c2")
    charges = Path(folder, "bank.txt").read_text().split()
    assert f"{'answered' if again.success else 'refused'}: {len(charges)}" == told
    assert again.content == "the bank says: paid"
    assert ask(folder, "r3/c3").content == "paid"
    assert Path(folder, "bank.txt").read_text().split() == ["call:r1/c1", "call:r3/c3"]
