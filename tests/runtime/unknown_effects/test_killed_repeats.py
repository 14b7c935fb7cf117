"""A process dies at each point of a call that repeats one which is found to have happened; then it is resumed."""

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
from tests.runtime import payments
from tests.runtime.bench import executor
from tests.wording import Wording


@stored_as("tests.killed_repeats.payment")
@dataclass(frozen=True)
class Payment:
    """What is paid."""

    to: str


def door(folder: str, session: Session) -> ToolExecutor:
    """A bank that charges, answers nothing the first time, and knows what it has charged."""
    book = Path(folder, "bank.txt")

    def pay(params: Payment, *, context: ToolContext) -> ToolResult[str]:
        first = not book.exists()
        with book.open("a") as page:
            page.write(f"{context.idempotency_key}\n")
        if first:
            raise TimeoutError("no answer")
        return ToolResult.ok("paid")

    def find(_params: object, key: str) -> ToolResult[str] | None:
        return ToolResult.ok("the bank says: paid") if key in book.read_text().split() else None

    return executor(payments.paying(Payment, pay, reconcile=find), session=session)


def ask(folder: str, ref: str) -> ToolMessage:
    """Ask for the payment in the stored session."""
    with store.open(f"sqlite:///{folder}/s.db") as kept, Session.open(kept, "s") as session:
        return payments.ask(door(folder, session), ref, {"to": "ann"})


def repeat(folder: str) -> None:
    """Ask for it once more in another reply: the first one is found to have happened, so this one is refused."""
    assert not ask(folder, "r2/c2").success


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
def test_a_repeat_whose_process_dies_is_refused_again_when_it_is_resumed(
    row: tuple[str, ...], tmp_path: Path, wording: Wording
) -> None:
    """At whatever point it dies: what it repeats is recorded as done only once its own refusal is."""
    point, first, refusal, told = row
    folder = begun(tmp_path / "desk")
    fork_to_crash(repeat, folder, at=None if point == "nowhere" else point)
    with store.open(f"sqlite:///{folder}/s.db") as kept, Session.open(kept, "s") as session:
        standing = kept.get("s", "call:r1/c1")
        assert standing is not None
        recorded = any(event.call_id == "c2" and event.final for event in session[ToolInvoked])
    assert (standing.status, "recorded" if recorded else "not recorded") == (first, refusal)

    again = ask(folder, "r2/c2")
    charges = Path(folder, "bank.txt").read_text().split()
    assert f"{'ran' if again.success else 'refused'}: {len(charges)}" == told
    assert again.content == wording
    assert ask(folder, "r1/c1").success
    assert Path(folder, "bank.txt").read_text().split() == ["call:r1/c1"]
