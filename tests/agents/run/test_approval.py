"""Who may say that a call of a run is carried out: whatever its tool is, and however deep the agent that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ApprovalRequired, RunContext, Tool
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.agents import Answer, ApprovalRules, Rule, current_run
from handrail.errors import AgentError
from handrail.prompt import (
    MarkdownSection,
    PolicyDecision,
    ToolContext,
    ToolResult,
)
from handrail.prompt import Tool as HandrailTool
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Call, Outcome, Reply
from tests.adapters.kit import Note
from tests.adapters.mcp_desk import desk_server
from tests.adapters.test_mcp_toolset import InProcess
from tests.agents.desks import CallLog, Person, called, desk, events, outcomes, play, returns
from tests.agents.folders import agent
from tests.kit import Decides, executor
from tests.wording import Wording

pytestmark = pytest.mark.anyio


class Kinds:
    """A tool of every kind, each of which notes that it was carried out."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def function(self, name: str) -> Tool[Any]:
        """A plain function of that name."""

        async def carry_out(text: str) -> str:
            self.ran.append(name)
            return text

        return Tool(carry_out, name=name)

    def handrail(self, name: str) -> HandrailTool[Note, None]:
        """A tool of Handrail's of that name."""

        def carry_out(params: Note, *, context: ToolContext) -> ToolResult[None]:
            self.ran.append(name)
            return ToolResult.ok(None)

        return HandrailTool[Note, None](name=name, description="Carry it out.", handler=carry_out)

    def make(self, ctx: RunContext[Any]) -> AbstractToolset[Any]:
        """A toolset that a factory makes."""
        return FunctionToolset([self.function("of_factory")])

    @property
    def tools(self) -> list[Any]:
        """The tools."""
        return [self.function("function"), self.handrail("of_handrail")]

    @property
    def toolsets(self) -> dict[str, Any]:
        """The toolsets."""
        mcp = MCPToolset[Any](InProcess(desk_server(self.ran)), id="mcp")
        section = MarkdownSection(title="Section", template="Text.", tools=[self.handrail("of_section")])
        toolset = FunctionToolset[Any]([self.function("of_toolset")])
        prefixed = FunctionToolset[Any]([self.function("hidden")]).prefixed("p")
        return {"toolset": toolset, "prefixed": prefixed, "factory": self.make, "mcp": mcp, "section": section}


NAMES = ("function", "of_handrail", "of_toolset", "p_hidden", "of_factory", "look", "send", "of_section")
CALLS = [Call(name, {"text": name}, id=name) for name in NAMES]
CHILD = {"child.agent": agent("child", tools="[function]")}


@pytest.mark.requirement("A-30")
async def test_in_deny_all_no_call_of_whatever_tool_is_carried_out_and_the_run_goes_on(tmp_path: Path) -> None:
    """Each is recorded once, and the model reads a failed result that names the tool."""
    kinds, session = Kinds(), Session()
    loaded = desk(tmp_path, tools=kinds.tools, toolsets=kinds.toolsets, also=["child"], others=CHILD)
    calls = [*CALLS, Call("child", {"input": "Go."}, id="child")]
    came = {call.id: Outcome.failed(call.name, "deny-all") for call in calls}
    result = await play(loaded, called(*calls, **came), mode="deny-all", session=session)
    assert (result.status, result.output, kinds.ran) == ("done", "Done.", [])
    assert outcomes(session) == [(call.id, False) for call in calls]
    assert {part.outcome for part in returns(result.messages)} == {"failed"}


@pytest.mark.requirement("A-30")
async def test_every_kind_of_tool_is_asked_about_once_and_carried_out(tmp_path: Path) -> None:
    """In the order of the reply; also one of which only its server says that it reads."""
    kinds, session, person = Kinds(), Session(), Person()
    loaded = desk(tmp_path, tools=kinds.tools, toolsets=kinds.toolsets)
    came = {call.id: Outcome.ok() for call in CALLS}
    await play(loaded, called(*CALLS, **came), mode="ask", asker=person, session=session)
    assert person.ids == list(NAMES)
    assert len(kinds.ran) == len(NAMES)
    assert sorted(outcomes(session)) == sorted((name, True) for name in NAMES)


def guarded(kinds: Kinds) -> dict[str, Any]:
    """Tools that PydanticAI holds back for approval, in each of its ways and in all at once."""

    async def raises(ctx: RunContext[Any], text: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        kinds.ran.append(text)
        return text

    reads = {"effect": "read"}
    return {
        "flagged": FunctionToolset([Tool(raises, name="flagged", requires_approval=True)]),
        "raising": FunctionToolset([Tool(raises, name="raising")]),
        "reader": FunctionToolset([Tool(raises, name="reader", metadata=reads)]),
        "wrapped": FunctionToolset([Tool(raises, name="inner", metadata=reads)]).approval_required().prefixed("w"),
        "twice": FunctionToolset([Tool(raises, name="twice", requires_approval=True)])
        .approval_required()
        .approval_required(),
    }


GUARDED = ("flagged", "raising", "reader", "w_inner", "twice")


@pytest.mark.requirement("A-31")
@pytest.mark.requirement("A-32")
@pytest.mark.parametrize("name", GUARDED)
async def test_a_tool_that_wants_approval_by_itself_is_asked_about_once(
    tmp_path: Path, name: str, wording: Wording
) -> None:
    """However it says so, and under whatever wrappers; a yes lets it run, a no does not, and both are recorded once."""
    for verdict in ("yes", "no"):
        kinds, session, person = Kinds(), Session(), Person(Answer(verdict, reason="because"))
        loaded = desk(tmp_path, toolsets=guarded(kinds))
        came = Outcome.ok(name) if verdict == "yes" else Outcome.failed()
        script = called(Call(name, {"text": name}), c1=came)
        await play(loaded, script, mode="ask", asker=person, session=session, listener=(log := CallLog()))
        assert verdict == "yes" or log.told["c1"] == wording
        assert person.ids == ["c1"]
        assert kinds.ran == ([name] if verdict == "yes" else [])
        assert outcomes(session) == [("c1", verdict == "yes")]


@pytest.mark.requirement("A-31")
async def test_a_rule_answers_for_a_tool_that_wants_approval(tmp_path: Path) -> None:
    """Nobody is asked where a rule speaks; and in the mode deny-all, without a rule, it does not run."""
    kinds, session, person = Kinds(), Session(), Person()
    loaded = desk(tmp_path, toolsets=guarded(kinds))
    calls = [Call(name, {"text": name}, id=name) for name in GUARDED]
    rules = ApprovalRules(allow=(Rule("flagged"), Rule("raising")), deny=(Rule("reader"),))
    came = {name: Outcome.ok() if name in {"flagged", "raising"} else Outcome.failed() for name in GUARDED}
    script = called(*calls, **came)
    await play(loaded, script, mode="deny-all", rules=rules, asker=person, session=session)
    assert (person.asked, sorted(kinds.ran)) == ([], ["flagged", "raising"])
    assert len(events(session)) == len(GUARDED)


CAREFUL = Decides(lambda _tool, params: PolicyDecision.ask(f"Is {params.text} right?"), name="careful")
"""A policy of a section that wants a person to look."""


@pytest.mark.requirement("A-32")
async def test_a_nested_call_is_asked_about_with_its_path_its_arguments_and_what_policies_ask(
    tmp_path: Path, wording: Wording
) -> None:
    """By the same person, in one question; the rules of the project hold for it by its path."""
    kinds, person, session = Kinds(), Person(), Session()

    async def measure(size: int) -> str:
        return str(size)

    section = MarkdownSection(title="S", template="T.", tools=[kinds.handrail("of_section")], policies=[CAREFUL])
    research = {"research.agent": agent("research", tools="[measure]", toolsets="[section]")}
    loaded = desk(tmp_path, tools=[measure], toolsets={"section": section}, also=["research"], others=research)
    first, last = called(Call("research", {"input": "Go."}), c1=Outcome.ok("Done."))
    inner = [Call("measure", {"size": 7.0}, id="n1"), Call("of_section", {"text": "x"}, id="n2")]
    script = [first, Reply(calls=inner, within="c1"), Reply(text="Done.", within="c1"), last]
    rules = ApprovalRules(allow=(Rule("*", agent="desk"),))
    await play(loaded, script, mode="ask", asker=person, rules=rules, session=session)
    assert [(call.path, call.tool, dict(call.arguments), call.asks) for call in person.asked] == [
        (("desk", "research"), "measure", {"size": 7}, ()),
        (("desk", "research"), "of_section", {"text": "x"}, ("Is x right?",)),
    ]
    (outer,) = [event for event in session[ToolInvoked] if event.name == "research"]
    assert [call.session_id for call in person.asked] == [f"{session.session_id}/{outer.ref}"] * 2
    assert [call.origin for call in person.asked] == [wording, wording]


@pytest.mark.parametrize("tools", ["none", "one of the same id"])
async def test_a_toolset_with_an_executor_of_its_own_is_refused(tmp_path: Path, tools: str, wording: Wording) -> None:
    """Its calls would take another pipeline, where nobody asks; the model is not even asked."""
    kinds = Kinds()
    own = HandrailToolset(executor(kinds.handrail("own")), id="own")
    mine = [] if tools == "none" else [HandrailTool[None, None](name="own", description="Own.")]
    loaded = desk(tmp_path, tools=mine, toolsets={"own": own.prefixed("p")})
    with pytest.raises(AgentError) as raised:
        await play(loaded, called(Call("p_own", {"text": "x"})))
    assert str(raised.value) == wording
    with pytest.raises(AgentError, match="p_own"):
        await loaded.inspect()
    assert kinds.ran == []


async def test_the_cure_for_a_toolset_with_an_executor_of_its_own_works(tmp_path: Path) -> None:
    """A factory that has its section made into a toolset of the run."""
    kinds = Kinds()

    def make(ctx: RunContext[Any]) -> AbstractToolset[Any]:
        section = MarkdownSection(title="S", template="T.", tools=[kinds.handrail("own")])
        return current_run().section_toolset(section, id="own").prefixed("p")

    loaded = desk(tmp_path, toolsets={"own": make})
    await play(loaded, called(Call("p_own", {"text": "x"}), c1=Outcome.ok()))
    assert kinds.ran == ["own"]
