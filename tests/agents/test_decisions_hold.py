"""What a decision holds for: this call of this tool with these arguments, and nothing that only looks like it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic_ai import RunContext, Tool, ToolCallPart

from handrail.agents import Answer, ApprovalRules, Rule, current_run
from handrail.agents.approval.decisions import GatedCall, Grant
from handrail.contrib.tools import PlanningToolsSection
from handrail.errors import PromptEvaluationError
from handrail.prompt import Section, ToolContext, ToolResult
from handrail.prompt import Tool as HandrailTool
from handrail.session import Session
from handrail.testing import Call, Outcome, Reply
from tests.adapters.kit import Note
from tests.agents.desks import DONE, Person, called, desk, inside, play, returns
from tests.agents.folders import agent
from tests.kit import soon
from tests.wording import Wording

pytestmark = pytest.mark.anyio

ASK_NOT = ApprovalRules(allow=(Rule("outer"),))


class Inner:
    """A tool that calls others by the tool manager of its run, under an id that it makes up."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tools(self) -> list[Tool[Any]]:
        """`outer`, and what it calls."""

        async def outer(ctx: RunContext[Any], name: str) -> str:
            assert ctx.tool_manager is not None
            call = ToolCallPart(name, {"amount": 5}, tool_call_id="inner")
            return str(await ctx.tool_manager.handle_call(call, wrap_validation_errors=False))

        def pay(amount: int) -> str:
            self.ran.append("pay")
            return f"paid {amount}"

        def wipe(amount: int) -> str:
            self.ran.append("wipe")
            return f"wiped {amount}"

        return [Tool(outer), Tool(pay), Tool(wipe)]


async def test_a_yes_about_one_tool_is_none_about_another_of_the_same_call_id(tmp_path: Path) -> None:
    """The same arguments under the same id are another question if the tool is another."""
    inner, person = Inner(), Person(to={"wipe": Answer("no")})
    loaded = desk(tmp_path / "desk", tools=inner.tools())
    script = called(
        Call("outer", {"name": "pay"}), Call("outer", {"name": "wipe"}), c1=Outcome.ok(), c2=Outcome.failed()
    )
    await play(loaded, script, mode="ask", asker=person, rules=ASK_NOT)
    assert [call.tool for call in person.asked] == ["pay", "wipe"]
    assert inner.ran == ["pay"]


async def test_a_yes_is_used_up_by_its_call(tmp_path: Path) -> None:
    """A second call of the same id, tool and arguments is asked about again."""
    inner, person = Inner(), Person()
    loaded = desk(tmp_path / "desk", tools=inner.tools())
    await play(loaded, called(*[Call("outer", {"name": "pay"})] * 2), mode="ask", asker=person, rules=ASK_NOT)
    assert [call.tool for call in person.asked] == ["pay", "pay"]
    assert inner.ran == ["pay", "pay"]


async def test_an_answer_remembered_for_arguments_sees_through_what_hides_them(tmp_path: Path) -> None:
    """A secret is shown as asterisks, and two of them are two."""
    tried: list[str] = []

    def login(password: SecretStr) -> str:
        tried.append(password.get_secret_value())
        return "ok"

    person = Person(answer=Answer("yes", "arguments"))
    loaded = desk(tmp_path / "desk", tools=[Tool(login)])
    words = ("one", "one", "two")
    await play(loaded, called(*[Call("login", {"password": word}) for word in words]), mode="ask", asker=person)
    assert tried == ["one", "one", "two"]
    assert len(person.asked) == 2
    assert all("one" not in str(call.arguments) for call in person.asked)


async def test_what_stands_below_a_harmless_section_is_not_harmless_for_it(tmp_path: Path) -> None:
    """Planning runs unasked; a tool that a program puts below it has its own effect."""
    ran: list[str] = []

    def pay(params: Note, *, context: ToolContext) -> ToolResult[None]:
        ran.append(params.text)
        return ToolResult.ok(None)

    tool = HandrailTool[Note, None](name="pay", description="Pays.", handler=pay, effect="external")
    below = Section[None](title="Till", tools=(tool,))

    def plan(_ctx: RunContext[Any]) -> Section[Any]:
        return PlanningToolsSection(session=current_run().session, children=(below,))

    person = Person(answer=Answer("no"))
    script = called(Call("pay", {"text": "x"}), Call("planning_setup_plan", {"objective": "o"}), c2=Outcome.ok())
    await play(desk(tmp_path / "desk", toolsets={"plan": plan}), script, mode="ask", asker=person)
    assert [call.tool for call in person.asked] == ["pay"]
    assert ran == []


async def test_a_question_does_not_outlast_the_deadline(tmp_path: Path, wording: Wording) -> None:
    """Whoever thinks longer is not waited for; the call has not run."""
    ran: list[str] = []

    def put(text: str) -> str:
        ran.append(text)
        return text

    async def think(_call: GatedCall) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    loaded = desk(tmp_path / "desk", tools=[Tool(put)])
    with pytest.raises(PromptEvaluationError) as caught:
        await play(loaded, called(Call("put", {"text": "x"})), mode="ask", asker=think, deadline=soon())
    assert str(caught.value) == wording
    assert caught.value.phase == "tool"
    assert ran == []


async def test_each_answer_is_written_down_once(tmp_path: Path) -> None:
    """However many answers hold for later calls, the next one adds one record."""

    def put(number: int) -> int:
        return number

    session, person = Session(), Person(answer=Answer("yes", "arguments"))
    loaded = desk(tmp_path / "desk", tools=[Tool(put)])
    calls = [Call("put", {"number": number % 5}) for number in range(10)]
    await play(loaded, called(*calls), mode="ask", asker=person, session=session)
    assert len(person.asked) == len(session[Grant].all()) == 5


async def test_two_calls_of_an_agent_under_one_id_are_two_tasks(tmp_path: Path) -> None:
    """The session of the first is not taken for that of the second, whose task is another."""

    async def outer(ctx: RunContext[Any], task: str) -> str:
        call = ToolCallPart("child", {"input": task}, tool_call_id="same")
        assert ctx.tool_manager is not None
        return str(await ctx.tool_manager.handle_call(call, wrap_validation_errors=False))

    others = {"child.agent": agent("child")}
    tool = Tool(outer, metadata={"effect": "state", "concurrent": True})
    loaded = desk(tmp_path / "desk", tools=[tool], also=["child"], others=others)
    script = [
        Reply(calls=[Call("outer", {"task": "one"}, id="c1")]),
        *inside("c1", [Reply(text="Did one.")]),
        Reply(calls=[Call("outer", {"task": "two"}, id="c2")]),
        *inside("c2", [Reply(text="Did two.")]),
        DONE,
    ]
    result = await play(loaded, script)
    assert [part.content for part in returns(result.messages)] == ["Did one.", "Did two."]
