"""Sections that are closed when a run of an agent begins, and what opens them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handrail import tool
from handrail.agents import LoadedAgent, RunOptions
from handrail.errors import ToolConflictError
from handrail.prompt import MarkdownSection
from handrail.prompt.disclosure import OpenSections
from handrail.session import Session
from handrail.store import SqliteStore
from handrail.testing import Call, Expect, Outcome, Reply
from tests.agents.kit import CallLog, called, desk, outcomes, play, returns, ruled, watched
from tests.wording import Wording

pytestmark = pytest.mark.anyio

OPEN = "open_sections"


@tool(effect="read")
def look(order: str) -> str:
    """Look an order up."""
    return f"{order}: paid"


@tool(effect="read")
def audit() -> str:
    """Audit the books."""
    return "all is well"


@tool
def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


def money() -> MarkdownSection[None]:
    """A closed section with one tool and instructions."""
    return MarkdownSection(title="Money", template="Refund with care.", summary="Refunds orders.", tools=[refund])


def books() -> MarkdownSection[None]:
    """A closed section with a tool that reads."""
    return MarkdownSection(title="Books", template="How to keep books.", summary="Audits the books.", tools=[audit])


def orders() -> MarkdownSection[None]:
    """A section without a summary."""
    return MarkdownSection(title="Orders", template="What orders are.", tools=[look])


def loaded(folder: Path, **toolsets: Any) -> LoadedAgent:
    """The agent `desk`, which names all these toolsets."""
    return desk(folder / "project", toolsets=toolsets)


def opens(*paths: str, id: str = "open") -> Call:
    """A call that opens these sections."""
    return Call(OPEN, {"paths": list(paths), "reason": "they are needed"}, id=id)


async def test_a_section_is_closed_until_the_model_opens_it(tmp_path: Path, wording: Wording) -> None:
    """The same run goes on: the next request has its instructions and tools."""
    agent, session = loaded(tmp_path, orders=orders(), money=money()), Session()
    opened = {"open": Outcome.ok(), "early": Outcome.failed()}
    replies = [
        Reply(calls=[opens("money"), Call("refund", {"order": "A-1"}, id="early")]),
        Reply(calls=[Call("refund", {"order": "A-1"}, id="late")], expect=Expect(messages=opened)),
        Reply(text="Done.", expect=Expect(messages={"late": Outcome.ok("refunded A-1")})),
    ]
    model = await watched(agent, replies, session=session)
    assert [part.content for part in returns(model.messages)[:2]] == wording
    assert model.tools[0] == ["look", OPEN]
    assert model.tools[1] == ["look", OPEN, "refund"]
    assert model.instructions[:2] == [wording, wording]
    assert outcomes(session) == [("open", False), ("early", False), ("late", True)]
    assert session[OpenSections].all() == (OpenSections("desk", ("money",), session[OpenSections].all()[0].reply),)


async def test_a_resumed_run_finds_open_what_was_opened(tmp_path: Path) -> None:
    """In another process, too: it is state of the session."""
    agent = loaded(tmp_path, orders=orders(), money=money())
    with SqliteStore(tmp_path / "s.db") as store:
        with Session.open(store, "s") as session:
            await watched(agent, [Reply(calls=[opens("money")]), Reply(text="Done.")], session=session)
        with Session.open(store, "s") as session:
            model = await watched(agent, [Reply(text="Done.")], session=session)
    assert "refund" in model.tools[0]


async def test_sections_of_a_toolset_are_opened_by_the_tools_of_the_run(tmp_path: Path, wording: Wording) -> None:
    """Whichever toolset brings them; the gate of the run judges their calls as it judges all others."""
    rules = ruled("deny: [audit]")
    agent = loaded(tmp_path, orders=orders(), books=books())
    denied, log = {"audit": Outcome.failed()}, CallLog()
    replies = [
        Reply(calls=[opens("books")], expect=Expect(instructions=["Audits the books."])),
        Reply(calls=[Call("audit", {}, id="audit")], expect=Expect(instructions=["How to keep books."])),
        Reply(text="Done.", expect=Expect(messages=denied)),
    ]
    await watched(agent, replies, rules=rules, listener=log)
    assert log.told["audit"] == wording
    await watched(agent, [*replies[:2], Reply(text="Done.", expect=Expect(messages={"audit": Outcome.ok("well")}))])


async def test_opening_is_not_asked_about_and_a_rule_may_deny_it(tmp_path: Path, wording: Wording) -> None:
    """It shows tools, and each of their calls is judged for itself."""
    agent = loaded(tmp_path, money=money())
    for rules, came in ((ruled(""), Outcome.ok()), (ruled("deny: [open_sections]"), Outcome.failed())):
        result = await play(agent, called(opens("money"), open=came), mode="ask", rules=rules)
        assert returns(result.messages)[0].content == wording


@tool(effect="read", name="open_sections")
def open_newspaper(page: str) -> str:
    """Open the sections of a newspaper."""
    return page


async def test_no_tool_has_the_name_of_one_that_opens_what_is_closed(tmp_path: Path, wording: Wording) -> None:
    """A run and `handrail check` say where both come from. Without closed sections it may."""
    text = MarkdownSection[None](title="Prices", template="A lamp costs 64.", summary="Has prices.")
    paper = MarkdownSection[None](title="Paper", template="A newspaper.", tools=[open_newspaper])
    agent = loaded(tmp_path, text=text, paper=paper, money=money())
    with pytest.raises(ToolConflictError) as caught:
        await watched(agent, [])
    assert (caught.value.tools, str(caught.value)) == ((OPEN,), wording)
    with pytest.raises(ToolConflictError):
        await agent.inspection(RunOptions(root=tmp_path))
    with pytest.raises(ToolConflictError):
        await watched(agent, [], check_names=False)
    assert (await watched(loaded(tmp_path / "open", paper=paper), [Reply(text="Done.")])).tools == [[OPEN]]


async def test_an_inspection_shows_closed_tools(tmp_path: Path) -> None:
    """Without opening anything for the model."""
    marked = loaded(tmp_path / "a", orders=orders(), money=money(), books=books())
    inspection = await marked.inspection(RunOptions(root=tmp_path))
    assert sorted(report.name for report in inspection.tools) == ["audit", "look", "refund"]
