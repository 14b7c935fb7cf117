"""The tools of an agent as an MCP server, in process: listed, judged by the gate, run by their toolsets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as t
import pytest
from mcp import Client
from pydantic_ai import FunctionToolset

from handrail import tool
from handrail.adapters.mcp import ToolServer
from handrail.agents import LoadedAgent, RunOptions
from handrail.agents.serve import open_agent
from handrail.errors import AgentError
from handrail.prompt import ToolContext
from handrail.runtime import ToolInvoked
from handrail.session import Session
from tests.adapters.mcp.kit import ERAS, text
from tests.agents.kit import agent, desk, refusal, ruled
from tests.wording import Wording

pytestmark = pytest.mark.anyio

SENT: list[str] = []
"""What was sent outside; each test begins with none."""


@tool(effect="external")
def send(to: str) -> str:
    """Sends a letter."""
    SENT.append(to)
    return f"sent to {to}"


@tool(effect="read")
def look(what: str, context: ToolContext) -> list[str]:
    """Looks something up."""
    context.progress(1, 2, f"looks for {what}")
    return [what]


def plain(text: str) -> str:
    """Is run by PydanticAI alone."""
    return text


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


@pytest.fixture
def served(tmp_path: Path) -> LoadedAgent:
    """An agent with two tools and a folder of files."""
    (tmp_path / "notes.txt").write_text("milk")
    return desk(tmp_path, tools=[send, look], also=["project_files"])


@asynccontextmanager
async def client_of(
    agent: LoadedAgent, mode: Any = "auto", *, session: Session | None = None, rules: str = "", **client: Any
) -> AsyncGenerator[Client]:
    """A client of an agent that is served."""
    options = RunOptions(session=session or Session(), rules=ruled(rules) if rules else None)
    async with open_agent(agent, options) as source:
        tools = ToolServer(source, name="desk", instructions=source.instructions)
        async with Client(tools.protocol, mode=mode, **client) as connected:
            yield connected


def answer(**content: Any) -> Callable[..., Any]:
    """A person who accepts each question with this content."""

    async def show(_context: object, params: t.ElicitRequestParams) -> t.ElicitResult:
        del params
        return t.ElicitResult(action="accept", content=content)

    return show


async def test_tools_are_listed_as_declared_and_run_by_their_toolsets(served: LoadedAgent) -> None:
    """With the hints of their effects and their output schemas; those of a toolset with a resource, too."""
    session = Session()
    async with client_of(served, session=session) as client:
        listing = {one.name: one for one in (await client.list_tools()).tools}
        assert (listing["look"].annotations, listing["look"].output_schema) != (None, None)
        assert client.instructions == "You work at the desk."
        assert (await client.call_tool("look", {"what": "it"})).structured_content == {"result": ["it"]}
        assert "milk" in text(await client.call_tool("read_file", {"path": "notes.txt"}))
    assert [event.name for event in session[ToolInvoked].all()] == ["look", "read_file"]


async def test_progress_reaches_the_client(served: LoadedAgent) -> None:
    """From the toolset that runs the call."""
    reports: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        reports.append(f"{message} {progress:g}/{total:g}" if total else message)

    async with client_of(served) as client:
        await client.call_tool("look", {"what": "it"}, progress_callback=note)
    assert reports == ["looks for it 1/2"]


async def test_unknown_tool_is_a_failed_call_that_names_the_tools(served: LoadedAgent, wording: Wording) -> None:
    """And nothing is recorded."""
    async with client_of(served) as client:
        result = await client.call_tool("fly", {})
    assert (result.is_error, text(result)) == (True, wording)


@pytest.mark.short(2)
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("approve", [True, False])
async def test_gate_puts_its_question_to_the_person_at_the_client(
    served: LoadedAgent, mode: str, approve: bool, wording: Wording
) -> None:
    """The call runs, or is refused with the reason; the next call is a question of its own."""
    person = answer(approve=approve, reason="not today")
    async with client_of(served, mode, elicitation_callback=person) as client:
        first = await client.call_tool("send", {"to": "Ada"})
        assert (first.is_error, text(first)) == (not approve, wording)
        await client.call_tool("send", {"to": "Ada"})
    assert (["Ada", "Ada"] if approve else []) == SENT


async def test_question_that_is_closed_leaves_the_call_open(served: LoadedAgent, wording: Wording) -> None:
    """The client may make it again."""

    async def close(_context: object, _params: t.ElicitRequestParams) -> t.ElicitResult:
        return t.ElicitResult(action="cancel")

    async with client_of(served, elicitation_callback=close) as client:
        result = await client.call_tool("send", {"to": "Ada"})
    assert (result.is_error, text(result), SENT) == (True, wording, [])


@pytest.mark.parametrize("rules", ["allow: [send]", "deny: [send]"])
async def test_rules_decide_before_a_person_is_asked(served: LoadedAgent, rules: str, wording: Wording) -> None:
    """As in a run."""
    async with client_of(served, rules=rules) as client:
        result = await client.call_tool("send", {"to": "Ada"})
    assert (text(result), SENT) == (wording, ["Ada"] if rules.startswith("allow") else [])


@pytest.mark.parametrize("what", ["a toolset of functions", "another agent"])
async def test_tool_that_only_pydantic_ai_runs_is_refused(tmp_path: Path, what: str, wording: Wording) -> None:
    """When the server starts, by its name."""
    toolset = FunctionToolset[Any]([plain], id="plain")
    foreign = desk(
        tmp_path,
        toolsets={"plain": toolset} if what == "a toolset of functions" else {},
        also=[] if what == "a toolset of functions" else ["helper"],
        others={"helper.agent": agent("helper")},
    )
    with refusal(AgentError, wording):
        async with open_agent(foreign, RunOptions(session=Session())):
            pass
