"""The gate in the pipeline: what was decided ahead holds there, and nothing slips past it."""

from __future__ import annotations

import asyncio
import threading
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
from handrail.session.call_ref import CallRef
from tests.agents.approval.calls import Person, Thinker
from tests.wording import Wording


@dataclass(frozen=True)
class Note:
    """What to note."""

    text: str


@dataclass(frozen=True)
class AskAbove:
    """A policy of a section: long notes are asked about."""

    length: int
    name: str = "length"

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        too_long = len(params.text) > self.length
        return PolicyDecision.ask(f"{len(params.text)} letters?") if too_long else PolicyDecision.allow()

    def on_result(self, tool: Any, params: Any, result: Any, *, context: ToolContext) -> None: ...


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
async def test_what_rules_allow_runs_and_what_they_deny_does_not(wording: Wording) -> None:
    """Nobody is asked; the model reads the rule."""
    person = Person()
    desk = Desk(gate(person, allow=(Rule("note", {"text": "a*"}),), deny=(Rule("note", {"text": "*b"}),)))
    assert (await desk.call("a")).success
    message = await desk.call("ab", id="d")
    assert message.content == wording
    assert desk.noted == ["a"]
    assert person.asked == []


@pytest.mark.anyio
async def test_a_call_that_was_asked_about_ahead_is_not_asked_about_again(wording: Wording) -> None:
    """A yes lets it run, a no is told with its reason."""
    person = Person()
    door = gate(person)
    desk = Desk(door)
    await door.decide(desk.ahead("a"))
    assert (await desk.call("a")).success
    person.answer = Answer("no", reason="not now")
    await door.decide(desk.ahead("b", id="d"))
    assert (await desk.call("b", id="d")).content == wording
    assert person.ids == ["c", "d"]
    assert desk.noted == ["a"]


@pytest.mark.anyio
async def test_a_call_that_nobody_asked_about_ahead_is_asked_about_in_the_pipeline(wording: Wording) -> None:
    """Nothing slips past by another door."""
    person = Person(Answer("no", reason="not now"))
    desk = Desk(gate(person))
    assert (await desk.call("a")).content == wording
    assert person.ids == ["c"]
    assert desk.noted == []


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
    desk = Desk(door, AskAbove(3))
    assert (await desk.call("abc")).success
    assert (await door.decide(desk.ahead("abcde", id="d"))).verdict == "allow"
    assert not (await desk.call("abcde", id="d")).success
    assert [call.asks for call in person.asked] == [("5 letters?",)]
    assert desk.noted == ["abc"]


@pytest.mark.anyio
async def test_a_question_that_is_left_open_postpones_the_call(wording: Wording) -> None:
    """It is not run and not recorded; once it is settled, the same call runs."""
    person = Person(Answer("later"))
    door = gate(person)
    desk = Desk(door)
    with pytest.raises(CallPostponed) as raised:
        await desk.call("a")
    assert str(raised.value) == wording
    assert desk.session[ToolInvoked].all() == ()
    assert [call.call_id for call in door.open] == ["c"]
    with pytest.raises(CallPostponed):
        await desk.call("a")
    assert person.ids == ["c"]
    again = gate()
    resumed = Desk(again)
    again.settle((resumed.session.session_id, CallRef("r", "c")), await gate(Person()).decide(resumed.ahead("a")))
    assert (await resumed.call("a")).success


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


@pytest.mark.anyio
async def test_with_nobody_to_ask_the_model_is_told_to_do_without(wording: Wording) -> None:
    """And which rule would let it run."""
    content = (await Desk(gate()).call("a")).content
    assert content == wording


@pytest.mark.anyio
@pytest.mark.requirement("A-33")
async def test_calls_in_the_pipeline_are_asked_about_one_at_a_time() -> None:
    """Side by side or not, one question stands, and nothing has run before its answer."""
    person = Thinker()
    door = gate(person)
    desks = [Desk(door), Desk(door)]
    tasks = [asyncio.create_task(desk.call("a", id=f"{number}")) for number, desk in enumerate(desks)]
    for desk in desks:
        await person.question()
        assert desk.noted == []
        person.say(Answer("yes"))
    assert [message.success for message in await asyncio.gather(*tasks)] == [True, True]
    assert person.most_at_once == 1


@pytest.mark.anyio
async def test_a_call_from_another_event_loop_is_refused_if_it_has_to_be_asked_about(wording: Wording) -> None:
    """A gate asks on one event loop; the refusal says so."""
    person = Person()
    door = gate(person)
    desk = Desk(door)
    await door.decide(desk.ahead("a"))
    told: list[ToolMessage] = []
    thread = threading.Thread(target=lambda: told.append(desk.door.execute(ToolCall("d", "note", {"text": "b"}))))
    thread.start()
    thread.join()
    assert told[0].content == wording
    assert desk.noted == []
