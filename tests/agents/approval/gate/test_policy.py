"""The gate in the pipeline: what was decided ahead holds there, and nothing slips past it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents.approval.decisions import Answer, GatedCall
from handrail.agents.approval.gate import ApprovalGate, GatePolicy
from handrail.agents.approval.rules import ApprovalRules, Rule
from handrail.errors import CallPostponed
from handrail.prompt import (
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
    ToolsSection,
)
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.serde import digest, dump
from handrail.session.calls import CallRef
from tests.agents.desks import Person
from tests.kit import Decides
from tests.wording import Wording


@dataclass(frozen=True)
class Note:
    """What to note."""

    text: str


LONG_NOTES = Decides(
    lambda _tool, note: (
        PolicyDecision.ask(f"{len(note.text)} letters?") if len(note.text) > 3 else PolicyDecision.allow()
    )
)
"""A policy of a section: long notes are asked about."""


class Desk:
    """One tool behind a gate; `noted` is what its handler has done."""

    def __init__(self, gate: ApprovalGate, *policies: ToolPolicy) -> None:
        self.noted: list[str] = []
        self.session = Session()
        tool = Tool[Note, None](name="note", description="Note.", handler=self._note)
        section = ToolsSection[None](
            title="Desk", key="desk", tools=(tool,), policies=(GatePolicy(gate, self.describe), *policies)
        )
        prompt = Prompt(PromptTemplate[str](ns="tests", key="desk", sections=(section,)))
        self.door = ToolExecutor(prompt=prompt, session=self.session, approver=GatePolicy(gate, self.describe).answer)

    def describe(
        self, tool: Tool[Any, Any], params: Any, ref: CallRef, context: ToolContext | None = None
    ) -> GatedCall:
        arguments: dict[str, Any] = dict(dump(params))
        return GatedCall(
            path=("desk",),
            session_id=self.session.session_id,
            call_id=ref.call_id,
            tool=tool.name,
            effect=tool.effect,
            arguments=arguments,
            digest=digest(arguments),
            reply=ref.reply,
        )

    def ahead(self, text: str, id: str = "c") -> GatedCall:
        """The call as it is described before it is made."""
        return self.describe(Tool[Note, None](name="note", description="Note."), Note(text), CallRef("r", id))

    async def call(self, text: str, id: str = "c") -> ToolMessage:
        """Make a call."""
        return await self.door.execute_async(ToolCall(id, "note", {"text": text}), reply="r")

    def _note(self, params: Note, *, context: ToolContext) -> ToolResult[None]:
        self.noted.append(params.text)
        return ToolResult.ok(None, message="noted")


def gate(asker: Any = None, *, allow: tuple[Rule, ...] = (), deny: tuple[Rule, ...] = ()) -> ApprovalGate:
    """A gate of a run that can wait."""
    return ApprovalGate(ApprovalRules(allow=allow, deny=deny), "ask", asker, can_wait=True)


@pytest.mark.anyio
async def test_a_call_that_nobody_asked_about_ahead_is_asked_about_in_the_pipeline(wording: Wording) -> None:
    """Nothing slips past by another door."""
    person = Person(Answer("no", reason="not now"))
    desk = Desk(gate(person))
    assert (await desk.call("a")).content == wording
    assert person.ids == ["c"]
    assert desk.noted == []


@pytest.mark.anyio
async def test_a_question_of_the_pipeline_may_be_left_open() -> None:
    """Nothing is recorded of the call, which runs once it is answered."""
    door = gate(Person(Answer("later")))
    desk = Desk(door)
    with pytest.raises(CallPostponed):
        await desk.call("a")
    assert ([call.call_id for call in door.open], desk.noted, [*desk.session[ToolInvoked]]) == (["c"], [], [])
    assert door.judge(desk.ahead("a")).verdict == "ask"


@pytest.mark.anyio
async def test_a_yes_to_other_arguments_lets_nothing_run() -> None:
    """What runs is what was asked about."""
    person = Person()
    door = gate(person)
    desk = Desk(door)
    await door.decide(desk.ahead("harmless"))
    person.answer = Answer("no")
    assert not (await desk.call("harmful")).success
    assert [call.arguments["text"] for call in person.asked] == ["harmless", "harmful"]
    assert desk.noted == []


@pytest.mark.anyio
async def test_what_other_policies_ask_is_put_to_the_person() -> None:
    """Also about a call that a rule allows, or that has been asked about without that question."""
    person = Person(Answer("no"))
    door = gate(person, allow=(Rule("*"),))
    desk = Desk(door, LONG_NOTES)
    assert (await desk.call("abc")).success
    assert (await door.decide(desk.ahead("abcde", id="d"))).verdict == "allow"
    assert not (await desk.call("abcde", id="d")).success
    assert [call.asks for call in person.asked] == [("5 letters?",)]
    assert desk.noted == ["abc"]


@pytest.mark.anyio
@pytest.mark.parametrize("ahead", [False, True])
async def test_a_denial_that_nobody_decided_is_not_final(*, ahead: bool) -> None:
    """The same call is judged again when it is asked again; what a person or a rule has denied is not."""

    def unwell(_call: GatedCall) -> Answer:
        raise ConnectionError("no line")

    for door, final in (
        (gate(), False),
        (gate(unwell), False),
        (gate(Person(Answer("no"))), True),
        (gate(deny=(Rule("note"),)), True),
    ):
        desk = Desk(door)
        if ahead:
            await door.decide(desk.ahead("a"))
        assert not (await desk.call("a")).success
        assert [event.final for event in desk.session[ToolInvoked]] == [final]
