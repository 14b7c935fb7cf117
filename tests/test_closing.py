"""An exception that leaves a `with` block of a store or a session is not replaced by what closing raises."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from handrail import store, tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.closing import closing_after
from handrail.errors import RecordingError, SessionLostError, StoreUnavailableError
from handrail.prompt import Prompt, PromptTemplate, ToolsSection
from handrail.runtime import Session, ToolCall
from tests.wording import Wording

CALL = ToolCall("c", "pay", {"order": "A"})


def desk(session: Session, database: Path) -> ToolExecutor:
    """Pays, and loses the database meanwhile."""

    @tool(effect="external")
    def pay(order: str) -> str:
        """Pays an order."""
        database.rename(database.with_suffix(".moved"))
        return f"{order} is paid"

    prompt = Prompt(PromptTemplate(ns="desk", key="d", sections=[ToolsSection(title="Tools", tools=[pay])]))
    return ToolExecutor(prompt=prompt, session=session)


def check_reported(error: RecordingError, logged: pytest.LogCaptureFixture, wording: Wording) -> None:
    """Check that the error says what became of the effect, and that notes and log say what could not be closed."""
    assert error.effect == "unknown"
    assert error.__notes__ == wording
    assert [record.levelno for record in logged.records if record.name == "handrail"] == [logging.WARNING]


def test_a_recording_error_leaves_the_blocks_of_a_store_that_cannot_be_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The program reads whether the payment may have happened, and not only that the file is gone."""
    database = tmp_path / "desk.db"
    with (
        pytest.raises(RecordingError) as raised,
        store.open(f"sqlite:///{database}") as opened,
        Session.open(opened, "s") as session,
    ):
        desk(session, database).execute(CALL, reply="r")
    check_reported(raised.value, caplog, wording)


@pytest.mark.anyio
async def test_a_recording_error_leaves_the_asynchronous_block_of_a_session(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """As that of a blocking one."""
    database = tmp_path / "desk.db"
    with pytest.raises(RecordingError) as raised, store.open(f"sqlite:///{database}") as opened:
        async with await Session.open_async(opened, "s") as session:
            await desk(session, database).execute_async(CALL, reply="r")
    check_reported(raised.value, caplog, wording)


def test_closing_that_fails_raises_at_the_end_of_a_block_that_nothing_has_left(tmp_path: Path) -> None:
    """As `close` does."""
    database = tmp_path / "desk.db"
    with pytest.raises(StoreUnavailableError), store.open(f"sqlite:///{database}"):
        database.unlink()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_closing_is_raised(interrupt: type[BaseException]) -> None:
    """It ends the program, whatever has left the block."""
    with pytest.raises(interrupt), closing_after(SessionLostError("lost", session_id="s"), "a session"):
        raise interrupt()
