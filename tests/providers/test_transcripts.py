"""The transcripts of what the programs of the pages store: one for each form of messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail import store
from handrail.transcript import ConversationId, TranscriptCall, TranscriptItem, TranscriptMessage, TranscriptReader
from tests.providers.forge import Forge
from tests.providers.programs import ADAPTERS, PROVIDERS, program_of

SPEAKERS = {"prompt": ConversationId("prompt", "shop/desk"), "agent": ConversationId("agent", "payments")}


def line(item: TranscriptItem) -> str:
    """What an item says, in short."""
    if isinstance(item, TranscriptMessage):
        return f"{item.role}: {' | '.join(block.text for block in item.blocks)}"
    assert isinstance(item, TranscriptCall)
    return f"{item.tool} {item.arguments} {item.outcome}: {item.content}"


@pytest.mark.parametrize("name", [*PROVIDERS, *ADAPTERS])
def test_a_conversation_reads_the_same_in_every_form(name: str, smith: Forge, tmp_path: Path) -> None:
    """Texts, calls and their answers are found in the messages of each API, and the outcomes in the records."""
    program = program_of(name)
    smith.run(program, tmp_path)
    with store.open(f"sqlite:///{tmp_path / 'desk.db'}", read_only=True) as content:
        reader = TranscriptReader(content, program.session)
        items = [*reader.read(), *reader.finish()]
    assert list(map(line, items)) == [
        "user: Pay the orders A-17 and A-18, and note it.",
        "assistant: First A-17.",
        "pay {'number': 'A-17'} ok: A-17 is paid",
        "note {'text': 'A-17 is paid'} ok: noted: A-17 is paid",
        "assistant: ",
        "pay {'number': 'A-18'} ok: A-18 is paid",
        "assistant: A-17 and A-18 are paid.",
    ]
    assert {item.conversation for item in items} == {SPEAKERS.get(name, ConversationId("loop"))}
    assert all(item.at is not None for item in items)
