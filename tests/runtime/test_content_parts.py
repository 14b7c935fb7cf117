"""Files in results: what the model gets, what is recorded, and what another process repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, ModelMessage, ToolReturnPart

import handrail.store
from handrail import tool
from handrail.adapters.pydantic_ai import HandrailCapability, StoredHistory
from handrail.prompt import (
    BinaryPart,
    IdempotencyConfig,
    TextPart,
    ToolContext,
    ToolResult,
)
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.testing import Call, Reply, ScriptedModel
from handrail.transcript import TranscriptCall, TranscriptReader
from tests.kit import Note, executor
from tests.kit import tool as noting_tool
from tests.wording import Wording

IMAGE = BinaryPart(bytes(range(256)) * 200, "image/png")
DRAWN: list[str] = []


@tool(idempotency=IdempotencyConfig())
def draw(what: str) -> ToolResult[str]:
    """Draw a chart."""
    DRAWN.append(what)
    return ToolResult.ok(f"a chart of {what}", parts=[TextPart("by day:"), IMAGE])


def drawn(session: Session, reply: str = "reply-1") -> ToolMessage:
    """The answer of a call."""
    return executor(draw, session=session).execute(ToolCall("call-1", "draw", '{"what": "sales"}'), reply=reply)


def test_a_message_has_the_text_and_the_files_and_is_repeated_with_them() -> None:
    """From the record of the call, and from that of its effect; the tool is run once."""
    DRAWN.clear()
    with handrail.store.open("memory:") as store:
        with Session.open(store, "s") as session:
            message = drawn(session)
        assert message.content == "a chart of sales\nby day:\n[image/png, 51 kB]"
        assert message.parts == (TextPart("a chart of sales"), TextPart("by day:"), IMAGE)
        with Session.open(store, "s") as session:
            again, hit = drawn(session), drawn(session, "reply-2")
    for each in (again, hit):
        assert (each.replayed, each.content, each.parts) == (True, message.content, message.parts)
        assert each.result == message.result
    assert DRAWN == ["sales"]


def test_what_are_no_parts_is_an_invalid_result(wording: Wording) -> None:
    """The call is rolled back, and says what a part is."""
    for parts in (["text"], ("text",)):
        result = ToolResult("", Note("x"), parts=cast("Any", parts))

        def wrong(params: Note, *, context: ToolContext, made: ToolResult[Note] = result) -> ToolResult[Note]:
            return made

        door = executor(noting_tool("wrong", wrong))
        message = door.execute(ToolCall("call-1", "wrong", '{"text": "x"}'))
        assert not message.success
        assert message.content == wording


def test_a_long_text_is_cut_and_its_files_stay() -> None:
    """Text in parts counts as text."""

    @tool(max_result_chars=1_000)
    def scan() -> ToolResult[None]:
        return ToolResult.ok(None, "page", parts=[TextPart("x" * 5_000), IMAGE])

    message = executor(scan).execute(ToolCall("call-1", "scan"))
    assert message.is_cut
    assert message.parts == (TextPart(message.content), IMAGE)


@pytest.mark.anyio
async def test_pydantic_ai_gets_the_files_of_a_result(tmp_path: Path) -> None:
    """In the tool return, in their order; the transcript names them."""
    file = tmp_path / "s.db"
    with handrail.store.open(f"sqlite:///{file}") as store, Session.open(store, "s") as session:
        stored = StoredHistory(session, "charts")
        model = ScriptedModel([Reply(calls=[Call("draw", {"what": "sales"})]), Reply(text="Done.")])
        handrailed = HandrailCapability(executor(draw, session=session), conversation=stored)
        result = await Agent(model, capabilities=[handrailed]).run("Draw.")
        (part,) = _returns(result.all_messages())
        image = BinaryContent.narrow_type(BinaryContent(IMAGE.data, media_type="image/png"))
        assert part.content == ["a chart of sales", "by day:", image]
        (loaded,) = _returns(StoredHistory(session, "charts").history)
        assert loaded.content == part.content
        reader = TranscriptReader(store, "s")
        items = [*reader.read(), *reader.finish()]
        (call,) = [item for item in items if isinstance(item, TranscriptCall)]
        assert call.content == "a chart of sales\nby day:\n[image/png, 51 kB]"
        assert session[ToolInvoked].all()[0].result.parts == (TextPart("by day:"), IMAGE)


def _returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
