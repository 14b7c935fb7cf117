"""A long result in the run of an agent: one tool reads the rest for all toolsets of the agent."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import Tool as Allowed

from handrail.agents import CallEnded
from handrail.agents.approval.rules import parse_rules
from handrail.prompt import ToolsSection
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.session import Session
from handrail.testing import Call, Expect, Outcome, Reply
from tests.agents.desks import Heard, desk, outcomes, play, returns
from tests.long_logs import LOG, copy, fetch
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def dump() -> str:
    """Dump a log."""
    return LOG


async def test_one_tool_reads_the_results_of_all_toolsets(tmp_path: Path, wording: Wording) -> None:
    """It runs unasked, as all that reads; the calls of functions are cut, too, and so is what listeners are told."""
    toolsets = {"logs": ToolsSection(title="Logs", tools=[fetch]), "copies": ToolsSection(title="More", tools=[copy])}
    loaded, session = (
        desk(tmp_path, tools=[Allowed(dump, metadata={"approval": "allow"})], toolsets=toolsets),
        Session(),
    )
    calls = [Call("fetch", id="a"), Call("copy", id="b"), Call("dump", id="c")]
    cut = {each: Outcome.ok("line 0\n", "read_result") for each in "abc"}
    reads = [Call("read_result", {"call": each, "start": 8, "limit": 6}, id=f"read-{each}") for each in "abc"]
    read = {f"read-{each}": Outcome.ok("\nline 1") for each in "abc"}
    replies = [
        Reply(calls=calls),
        Reply(calls=reads, expect=Expect(tools=["read_result"], messages=cut)),
        Reply(text="Done.", expect=Expect(messages=read)),
    ]
    heard = Heard()
    result = await play(loaded, replies, session=session, mode="ask", listener=heard)
    assert result.output == "Done."
    texts = [str(part.content) for part in returns(result.messages)][:3]
    assert [line for text in texts for line in text.splitlines() if "read_result" in line] == wording
    assert all(success for _, success in outcomes(session))
    told = [len(event.content) for event in heard.events if isinstance(event, CallEnded)]
    assert max(told[:3]) <= MAX_RESULT_CHARS < len(LOG)


async def test_a_resumed_run_offers_it(tmp_path: Path) -> None:
    """What was cut is state of the session."""
    loaded, session = desk(tmp_path, toolsets={"logs": ToolsSection(title="Logs", tools=[fetch])}), Session()
    await play(loaded, [Reply(calls=[Call("fetch", id="a")]), Reply(text="Done.")], session=session)
    again = Reply(text="Done.", expect=Expect(tools=["read_result"]))
    await play(loaded, [again], session=session)


async def test_a_rule_may_be_about_it(tmp_path: Path) -> None:
    """Although no toolset brings it."""
    rules = parse_rules("deny: [read_result]", file="approval.yaml")
    toolsets = {"logs": ToolsSection(title="Logs", tools=[fetch])}
    loaded, session = desk(tmp_path, toolsets=toolsets), Session()
    replies = [
        Reply(calls=[Call("fetch", id="a")]),
        Reply(calls=[Call("read_result", {"call": "a"}, id="b")]),
        Reply(text="Done.", expect=Expect(messages={"b": Outcome.failed("approval")})),
    ]
    await play(loaded, replies, session=session, mode="ask", rules=rules)
