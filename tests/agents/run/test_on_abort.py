"""A run that is aborted is undone, if its options say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail.agents import RunOptions
from handrail.errors import PromptEvaluationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.session import Session
from handrail.session.conversation import ConversationPart
from handrail.store import MemoryStore, Store
from handrail.testing import Call, Reply, ScriptedModel
from tests.agents.kit import DONE, desk
from tests.undo.desk import Book, Note, mail, note

PAYS = (Call("pay", {"order": "A-1"}), Call("note", {"text": "one"}))


@pytest.fixture
def store() -> Any:
    """A store in memory."""
    with MemoryStore() as store:
        yield store


def _run(folder: Path, session: Session, book: Book, *replies: Reply, **options: Any) -> None:
    def stop(params: None, *, context: ToolContext) -> ToolResult[None]:
        raise PromptEvaluationError("the program stops")

    stopping = Tool[None, None](name="stop", description="Stops.", handler=stop)
    tools = [book.pays(), note, mail, stopping]
    model = ScriptedModel([*replies])
    options = {"on_abort": "undo", **options}
    desk(folder, tools=tools).run("Go.", RunOptions(session=session, model=model, mode="approve-all", **options))


def test_a_run_that_is_aborted_is_undone(tmp_path: Path, store: Store) -> None:
    """What it did before stays; the model reads, when it is resumed, what was undone and what was not carried out."""
    book = Book()
    with Session.open(store, "monday") as session:
        _run(tmp_path / "a", session, book, Reply(calls=(Call("note", {"text": "before"}),)), DONE)
        with pytest.raises(PromptEvaluationError) as raised:
            _run(
                tmp_path / "b", session, book, Reply(calls=PAYS), Reply(calls=(Call("mail", {"to": "x"}), Call("stop")))
            )
        assert book.paid == []
        assert session[Note].all() == (Note("before"),)
        assert any("2 calls were undone" in noted for noted in raised.value.__notes__)
        (message,) = session[ConversationPart].all()[-1].messages
        kinds = [part["part_kind"] for part in message["parts"]]
        assert kinds[-1] == "user-prompt"
        assert "have been undone" in message["parts"][-1]["content"]


def test_a_run_that_says_nothing_is_not_undone(tmp_path: Path, store: Store) -> None:
    """Its calls are committed."""
    book = Book()
    with Session.open(store, "monday") as session, pytest.raises(PromptEvaluationError):
        _run(tmp_path, session, book, Reply(calls=PAYS), Reply(calls=(Call("stop"),)), on_abort=None)
    assert book.paid == ["payment-1"]


def test_on_abort_needs_a_stored_session() -> None:
    """Nothing is kept of one in memory."""
    with pytest.raises(ValueError, match="store"):
        RunOptions(session=Session(), on_abort="undo")
    with pytest.raises(ValueError, match="undo"):
        RunOptions(on_abort="redo")  # type: ignore[arg-type]
