"""The arguments of a function in the record of its call: JSON, which does not depend on where the function is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from handrail import store, tool
from handrail.prompt import Tool
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session.persistence.stored_types import stored_type
from tests.kit import executor

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@tool
def remind(text: str, at: datetime, copies: int = 1) -> str:
    """Remind of something."""
    return f"{copies} of {text} at {at:%H:%M}"


def called(folder: Path, made: Tool[Any, Any], arguments: str) -> tuple[ToolInvoked, ToolInvoked]:
    """The event of a call, and the same from the store."""
    with store.open(f"sqlite:///{folder}/s.db") as opened:
        with Session.open(opened, "s") as session:
            assert executor(made, session=session).execute(ToolCall("c", made.name, arguments), reply="r").success
            (event,) = session[ToolInvoked]
        with Session.open(opened, "s") as session:
            (read,) = session[ToolInvoked]
    return event, read


@pytest.mark.parametrize("long", ["", " and tell everybody" * 100])
def test_the_arguments_of_a_function_come_back_as_json(tmp_path: Path, long: str) -> None:
    """With the defaults, and nothing of the class or the module of the function; the tool of today reads them."""
    words = json.dumps({"text": f"lunch{long}", "at": "2026-01-31T12:00:00Z"})
    event, read = called(tmp_path, remind, words)
    assert (event.params.text, event.params.at, event.params.copies) == (f"lunch{long}", AT, 1)
    assert read.params == {"text": f"lunch{long}", "at": "2026-01-31T12:00:00Z", "copies": 1}
    assert __name__.encode() not in stored_type(ToolInvoked).dump((event,))
    assert remind.parse(read.params) == event.params


def test_arguments_that_are_what_the_model_wrote_are_not_written_again(tmp_path: Path) -> None:
    """A record has them once."""
    event, read = called(tmp_path, remind, '{"text":"lunch","at":"2026-01-31T12:00:00Z","copies":2}')
    assert json.loads(stored_type(ToolInvoked).dump((event,)))[0]["params"] == {"from": "arguments"}
    assert read.params == {"text": "lunch", "at": "2026-01-31T12:00:00Z", "copies": 2}
