"""The gate of a run, and the policy that enforces its decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from handrail.agents import Answer, ApprovalRules, Decision, GatedCall, Rule
from handrail.agents.approval.decisions import ApprovalMode, Grant
from handrail.agents.approval.gate import ApprovalGate, GatePolicy
from handrail.errors import CallPostponed
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.redaction import MASK
from handrail.runtime import ToolInvoked, ToolMessage
from handrail.session import Session
from handrail.session.calls import CallRef
from tests.agents.approval.calls import Heard, gated
from tests.agents.kit import Person
from tests.kit import Note, call, executor, tool
from tests.wording import Wording

pytestmark = pytest.mark.anyio

NO_RULES = ApprovalRules()


KEY = ("s", CallRef("r", "call-1"))


def gate(
    asker: Any = None, *, rules: ApprovalRules = NO_RULES, mode: ApprovalMode = "ask", heard: Heard | None = None
) -> ApprovalGate:
    """A gate of a run that is not stored."""
    return ApprovalGate(rules, mode, asker, on_event=heard)


@pytest.mark.requirement("A-29")
async def test_each_call_is_asked_about_once(wording: Wording) -> None:
    """Whoever wants to know later is told what was decided; looking asks nobody."""
    person, heard = Person(), Heard()
    door = gate(person, heard=heard)
    for number in range(3):
        call = gated(id=f"call-{number}")
        assert door.judge(call).verdict == "ask"
        first = await door.decide(call)
        assert first == Decision("allow", call.digest, wording, "person")
        assert await door.decide(call) is first
        assert door.judge(call).verdict == "allow"
    assert person.ids == ["call-0", "call-1", "call-2"]
    assert heard.events[:2] == [("call-0", "asked"), ("call-0", "allow by person")]
    assert len(heard.events) == 6
    assert list(door.decisions) == [("s", CallRef("r", f"call-{number}")) for number in range(3)]


async def test_a_policys_new_question_is_asked_although_the_call_was() -> None:
    """A yes answers what was asked; fewer questions later are answered by it too."""
    person = Person()
    door = gate(person)
    call = gated(asks=("Over 100?",))
    await door.decide(call)
    await door.decide(replace(call, asks=()))
    await door.decide(replace(call, asks=("Over 100?",)))
    assert len(person.asked) == 1
    await door.decide(replace(call, asks=("Over 100?", "Abroad?")))
    assert len(person.asked) == 2


@pytest.mark.parametrize("rules,mode,verdict,by", [
    (ApprovalRules(allow=(Rule("*"),)), "ask", "allow", "rule"),
    (ApprovalRules(deny=(Rule("*"),)), "ask", "deny", "rule"),
    (ApprovalRules(deny=(Rule("*"),)), "deny-all", "deny", "rule"),
    (ApprovalRules(allow=(Rule("*"),)), "deny-all", "allow", "rule"), (NO_RULES, "approve-all", "allow", "mode"),
    (NO_RULES, "deny-all", "deny", "mode"),
])  # fmt: skip
async def test_nobody_is_asked_where_rules_or_mode_decide(
    rules: ApprovalRules, mode: ApprovalMode, verdict: str, by: str
) -> None:
    """The decision says which of them it was, and is told once."""
    person, heard = Person(), Heard()
    door = gate(person, rules=rules, mode=mode, heard=heard)
    decision = await door.decide(gated())
    assert (decision.verdict, decision.by) == (verdict, by)
    assert await door.decide(gated()) == decision
    assert person.asked == []
    assert heard.events == [("call-1", f"{verdict} by {by}")]


async def test_what_rules_allowed_is_looked_at_again() -> None:
    """A rule decided about the call as it was; what must be asked about by now is asked."""
    person = Person()
    door = gate(person)
    assert (await door.decide(gated(effect="read"))).by == "rule"
    assert (await door.decide(gated(effect="read", default="ask"))).by == "person"


@pytest.mark.parametrize("call,rules", [
    pytest.param(gated(), NO_RULES, id="no rule"),
    pytest.param(gated(), ApprovalRules(ask=(Rule("write_*"),)), id="ask rule"),
    pytest.param(gated(asks=("Sure?",)), NO_RULES, id="policy"),
])  # fmt: skip
async def test_with_nobody_to_ask_the_call_is_denied(call: GatedCall, rules: ApprovalRules, wording: Wording) -> None:
    """The reason says so, why it had to be asked, and what would let it run."""
    heard = Heard()
    decision = await gate(rules=rules, heard=heard).decide(call)
    assert (decision.verdict, decision.by) == ("deny", "nobody")
    assert decision.reason == wording
    assert heard.events == [("call-1", "deny by nobody")]


@pytest.mark.requirement("A-32")
async def test_nested_agents_ask_at_the_same_gate(wording: Wording) -> None:
    """The question shows who called whom, and an answer for all arguments holds for every agent."""
    person = Person(Answer("yes", remember="rule"))
    door = gate(person)
    inner = replace(gated(path=("desk", "research"), arguments={"path": "x"}), session_id="child")
    await door.decide(inner)
    assert person.asked[0].path == ("desk", "research")
    assert (await door.decide(gated())).by == "remembered"
    assert door.grants == (Grant("write_file", None, reason=wording),)


async def test_a_yes_for_a_tool_answers_no_policys_question(wording: Wording) -> None:
    """A policy asks about these arguments; a no for the tool is a no to that as well."""
    person = Person(Answer("yes", remember="rule"))
    door = gate(person)
    await door.decide(gated(id="a"))
    await door.decide(gated(id="b", asks=("Over 100?",)))
    assert person.ids == ["a", "b"]
    person.answer = Answer("no", remember="rule", reason="never")
    await door.decide(gated("pay", id="c"))
    decision = await door.decide(gated("pay", id="d", asks=("Over 100?",)))
    assert decision.reason == wording
    assert (decision.verdict, decision.by) == ("deny", "remembered")


async def test_a_remembered_no_wins_over_a_remembered_yes(wording: Wording) -> None:
    """In doubt it does not run."""
    person = Person(Answer("no", remember="arguments"))
    door = gate(person)
    await door.decide(gated(id="a"))
    person.answer = Answer("yes", remember="rule")
    await door.decide(gated(id="b", arguments={}))
    assert door.judge(gated(id="c")).verdict == "deny"
    assert door.judge(gated(id="d", arguments={"path": "x"})).verdict == "allow"
    no = Grant("write_file", gated().digest, verdict="deny", reason=wording)
    assert door.grants == (no, Grant("write_file", None, reason=wording))


async def test_a_remembered_yes_answers_only_what_policies_had_asked() -> None:
    """Also one for these arguments: what makes a policy ask may have happened since. A no needs no question."""
    person = Person(Answer("yes", remember="arguments"))
    door = gate(person)
    await door.decide(gated(id="a"))
    assert door.judge(gated(id="b")).verdict == "allow"
    tainted = gated(id="c", asks=("The session has read a mail.",))
    assert door.judge(tainted).verdict == "ask"
    await door.decide(tainted)
    assert door.judge(replace(tainted, call_id="d")).verdict == "allow"
    assert door.judge(gated(id="e", asks=("Another question.",))).verdict == "ask"
    person.answer = Answer("no", remember="arguments")
    await door.decide(gated(id="f", asks=("Another question.",)))
    assert door.judge(gated(id="g", asks=("A third.",))).verdict == "deny"


async def test_what_was_granted_in_an_earlier_run_holds_as_it_did_there(wording: Wording) -> None:
    """For the tool of its origin alone, as a yes or as a no, with its reason; each is kept once."""
    person = Person(Answer("later"))
    door = gate(person)
    yes = Grant("write_file", None, origin="tools.py")
    no = Grant("pay", None, origin="tools.py", verdict="deny", reason="a person said no: never")
    door.resume({}, [yes, no, no])
    assert door.grants == (yes, no)
    assert door.judge(gated(origin="tools.py")).reason == wording
    assert door.judge(gated(origin="shop.py")).verdict == "ask"
    assert door.judge(gated("pay", origin="shop.py")).verdict == "ask"
    refused = await door.decide(gated("pay", origin="tools.py"))
    assert (refused.verdict, refused.reason) == ("deny", wording)
    assert person.ids == []
    assert door.judge(replace(gated("pay", origin="tools.py"), call_id="x")).verdict == "deny"
    door.resume({}, [Grant("peek", None, verdict="deny")])
    assert door.judge(gated("peek")).reason == wording


async def test_no_answer_lifts_a_denial_of_the_rules() -> None:
    """Neither a grant nor a decision from elsewhere."""
    door = gate(Person(), rules=ApprovalRules(deny=(Rule("write_file"),)))
    door.resume({KEY: Decision("allow", gated().digest, by="person")}, [Grant("write_file", None)])
    assert door.judge(gated()).verdict == "deny"
    assert (await door.decide(gated())).verdict == "deny"
    assert door.decisions[KEY].by == "rule"


async def test_a_reason_has_no_secret(wording: Wording) -> None:
    """It is stored, with the decision and with what it holds for; so is that of an asker that fails."""
    door = gate(Person(Answer("no", "rule", "password=hunter2")))
    decision = await door.decide(gated())
    assert decision.reason == door.grants[0].reason == wording
    assert f"password={MASK}" in decision.reason

    def fails(_call: GatedCall) -> Answer:
        raise OSError("password=hunter2")

    assert "hunter2" not in (await ApprovalGate(NO_RULES, "ask", fails).decide(gated())).reason


async def test_later_is_a_denial_for_a_call_with_a_secret(wording: Wording) -> None:
    """The secret is not stored, so the run that is resumed could not make the call: the model would ask for ever."""
    door = ApprovalGate(NO_RULES, "ask", Person(Answer("later")), can_wait=True)
    decision = await door.decide(gated(arguments={"user": "ada", "keys": [{"key": MASK}]}))
    assert (decision.verdict, decision.reason) == ("deny", wording)
    assert door.open == ()


class Desk:
    """One tool behind a gate; `noted` is what its handler has done."""

    def __init__(self, door: ApprovalGate) -> None:
        self.noted: list[str] = []
        policy, self.session = GatePolicy(door, self.describe), Session(session_id="s")
        note = tool("note", self._note)
        self.door = executor(note, policies=[policy], session=self.session, approver=policy.answer)

    def describe(self, tool: Tool[Any, Any], params: Any, ref: CallRef, _: ToolContext | None = None) -> GatedCall:
        return gated(tool.name, {"text": params.text}, tool.effect, ref.call_id, reply=ref.reply)

    def ahead(self, text: str) -> GatedCall:
        """The call as it is described before it is made."""
        return self.describe(tool("note"), Note(text), CallRef("r", "c"))

    async def call(self, text: str) -> ToolMessage:
        """Make a call."""
        return await self.door.execute_async(call("note", text, id="c"), reply="r")

    def _note(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        self.noted.append(params.text)
        return ToolResult.ok(params)


def policy_gate(asker: Any = None, *, allow: tuple[Rule, ...] = (), deny: tuple[Rule, ...] = ()) -> ApprovalGate:
    """A gate of a run that can wait."""
    return ApprovalGate(ApprovalRules(allow=allow, deny=deny), "ask", asker, can_wait=True)


async def test_a_question_of_the_pipeline_may_be_left_open() -> None:
    """Nothing is recorded of the call, which runs once it is answered."""
    door = policy_gate(Person(Answer("later")))
    desk = Desk(door)
    with pytest.raises(CallPostponed):
        await desk.call("a")
    assert ([call.call_id for call in door.open], desk.noted, [*desk.session[ToolInvoked]]) == (["c"], [], [])
    assert door.judge(desk.ahead("a")).verdict == "ask"


async def test_a_yes_to_other_arguments_lets_nothing_run() -> None:
    """What runs is what was asked about."""
    person = Person()
    door = policy_gate(person)
    desk = Desk(door)
    await door.decide(desk.ahead("harmless"))
    person.answer = Answer("no")
    assert not (await desk.call("harmful")).success
    assert [call.arguments["text"] for call in person.asked] == ["harmless", "harmful"]
    assert desk.noted == []


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_denial_that_nobody_decided_is_not_final(*, ahead: bool) -> None:
    """The same call is judged again when it is asked again; what a person or a rule has denied is not."""

    def unwell(_call: GatedCall) -> Answer:
        raise ConnectionError("no line")

    for door, final in (
        (policy_gate(), False),
        (policy_gate(unwell), False),
        (policy_gate(Person(Answer("no"))), True),
        (policy_gate(deny=(Rule("note"),)), True),
    ):
        desk = Desk(door)
        if ahead:
            await door.decide(desk.ahead("a"))
        assert not (await desk.call("a")).success
        assert [event.final for event in desk.session[ToolInvoked]] == [final]
