"""A run of an agent applies first what a person has found out about an effect of an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo

from handrail import store
from handrail.agents import RunEvent
from handrail.runtime import EffectLedger, Session
from handrail.runtime.ledger.effects import EffectResult
from tests.agents.folders import write
from tests.agents.stored_desks import Asked, Desk, Reader, Replies

_TOOLS = """
from pathlib import Path

from handrail import tool
from handrail.prompt import External, ToolContext, ToolResult

BOOKED = Path(__file__).parent / "world"


def book(params, result: ToolResult[str], *, context: ToolContext) -> None:
    BOOKED.write_text(f"{params.order}-{result.value}")


@tool(effect=External(apply=book))
def pay(order: str) -> str:
    "Pays."
    raise TimeoutError


TOOLS = [pay]
"""

_AGENT = """---
name: desk
description: The desk.
tools: [pay]
---
I am desk
"""


class _Watching(Reader):
    """A reader that notes what had been booked when it was asked."""

    def __init__(self, replies: Replies, desk: Desk) -> None:
        super().__init__(replies)
        self.desk = desk
        self.booked: list[list[str]] = []

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.booked.append(self.desk.world)
        return super()._reply(messages, info)


@pytest.mark.parametrize("listens", [False, True])
def test_a_result_that_a_person_has_found_is_applied_before_the_model_is_asked(tmp_path: Path, listens: bool) -> None:
    """The next run of the session has it; nothing is left open, and the tool does not run again."""
    desk = Desk(
        write(
            tmp_path,
            {
                "tools.py": _TOOLS,
                "desk.agent": _AGENT,
                "approval.yaml": "allow: [pay]\n",
                "pyproject.toml": '[tool.handrail]\napproval = "approval.yaml"\n',
            },
        ),
        f"sqlite:///{tmp_path / 'desk.db'}",
    )
    replies: Replies = {"desk": [[Asked("p1", "pay", {"order": "lamp"})], "One.", "Two."]}
    events: list[RunEvent] = []
    options: dict[str, Any] = {"listener": events.append} if listens else {}
    assert desk.run(Reader(replies), "Pay.", **options).output == "One."
    with store.open(desk.url) as kept:
        (row,) = kept.rows()
        assert EffectLedger(kept).resolve(row, EffectResult("paid", b'"receipt"'))
    assert desk.world == []
    watching = _Watching(replies, desk)
    assert desk.run(watching, "And now?", **options).output == "Two."
    assert (desk.world, watching.booked) == (["lamp-receipt"], [["lamp-receipt"]])
    with store.open(desk.url) as kept, Session.open(kept, "s") as session:
        assert session.open_calls == ()
