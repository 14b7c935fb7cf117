"""`input_model_ref` of an agent file: the type of what the agent is asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic_ai import UserPromptPart

from handrail.agents import LoadedAgent, Project, RunOptions, load_agent
from handrail.errors import AgentError
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Call, Reply, ScriptedModel
from tests.agents.desks import DONE, inside, play
from tests.agents.folders import write

pytestmark = pytest.mark.anyio

TYPES = """
from dataclasses import dataclass
from pydantic import BaseModel

class Ticket(BaseModel):
    order: str
    cents: int = 3

@dataclass(frozen=True)
class Refund:
    order: str
    cents: int = 3

TOOLS = []
"""


def agents(folder: Path, ref: str = "types_of/tickets.py:Ticket") -> Path:
    """A clerk with this type of input, a boss who may call it, and a guard who has nothing to do with it."""
    clerk = f"---\nname: clerk\ninput_model_ref: {ref}\n---\nRefund.\n"
    boss = "---\nname: boss\ntoolsets: [clerk, dynamic_agents]\n---\nLead.\n"
    guard = "---\nname: guard\n---\nWatch.\n"
    write(folder, {"clerk.agent": clerk, "boss.agent": boss, "guard.agent": guard, "types_of/tickets.py": TYPES})
    return folder


def asked(agent: LoadedAgent, input: object) -> str:
    """What the model of the agent is asked."""
    prompt = agent.run(input, RunOptions(model=ScriptedModel([DONE]))).messages[0].parts[0]
    assert isinstance(prompt, UserPromptPart)
    return str(prompt.content)


@dataclass(frozen=True)
class Ticket:
    """What a program asks, in its own words."""

    order: str
    cents: int


@pytest.mark.parametrize("ref", ["types_of/tickets.py:Ticket", "types_of.tickets.Ticket", "types_of/tickets.py:Refund"])
def test_input_is_a_value_or_json_of_its_type(tmp_path: Path, ref: str) -> None:
    """It is refused before the model is asked, if it does not fit."""
    clerk = load_agent(agents(tmp_path, ref) / "clerk.agent")
    assert asked(clerk, Ticket("A-1", 5)) == '{"cents":5,"order":"A-1"}'
    assert asked(clerk, '{"order": "A-1"}') == '{"order": "A-1"}'
    for wrong in ("Refund A-1.", '{"order": 1}', '{"order": "A-1", "more": 1}', {"cents": 1}):
        with pytest.raises(AgentError, match="clerk"):
            asked(clerk, wrong)


async def test_callers_fill_the_fields(tmp_path: Path) -> None:
    """A call that does not fit is refused, and the next one is the whole task."""
    project = Project.load(agents(tmp_path))
    boss = LoadedAgent(project, project.resolve("boss"))
    (report, *_) = await boss.inspect()
    assert sorted(report.parameters["properties"]) == ["cents", "order"]
    session = Session()
    wrong = [Call("clerk", {"order": 1}), Call("clerk", {"input": "A-1"})]
    right = Call("clerk", {"order": "A-1"}, id="right")
    script = [Reply(calls=wrong), Reply(calls=[right]), *inside("right", [DONE]), DONE]
    await play(boss, script, session=session)
    assert [(each.success, each.handler_seconds is None) for each in session[ToolInvoked]] == [
        *((False, True), (False, True), (True, False))
    ]


@pytest.mark.parametrize("ref", ["types_of/tickets.py:Tickt", "Ticket", "types_of.tickets.TOOLS", "nowhere.py:Ticket"])
def test_fault_of_the_type_is_that_of_the_agent(tmp_path: Path, ref: str) -> None:
    """And of those who call it; no other agent is kept from running."""
    folder = agents(tmp_path, ref)
    for name in ("clerk", "boss"):
        with pytest.raises(AgentError):
            load_agent(folder / f"{name}.agent")
    assert load_agent(folder / "guard.agent").name == "guard"
