"""What becomes of call ids that no store can look up, where an agent is run: approvals and called agents included."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import ModelMessage, ModelResponse, TextPart, Tool, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.agents import Answer, RunOptions
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.testing import FakeClock
from tests.agents.desks import Person, desk
from tests.agents.folders import agent
from tests.store.stores import STORES

pytestmark = pytest.mark.anyio

IDS = {"a megabyte": "x" * 1_000_000, "a NUL": "a\0b", "no Unicode": "\ud800"}


def pay(cents: int) -> str:
    """Pay."""
    return f"{cents} paid"


def calling(call_id: str) -> FunctionModel:
    """A model whose agents each make their calls under that id, and are done then."""

    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(message, ModelResponse) for message in messages):
            return ModelResponse([TextPart("done")])
        names = [tool.name for tool in info.function_tools]
        wanted: list[tuple[str, dict[str, str | int]]] = [
            ("pay", {"cents": 1}),
            ("clerk", {"input": "Pay."}),
            ("fly", {}),
        ]
        parts = [
            ToolCallPart(name, arguments, tool_call_id=f"{call_id}{name}")
            for name, arguments in wanted
            if name in names or name == "fly"
        ]
        return ModelResponse(parts)

    return FunctionModel(say)


@pytest.mark.parametrize("kind", list(STORES))
@pytest.mark.parametrize("call_id", IDS.values(), ids=IDS)
@pytest.mark.short(2)
async def test_a_run_waits_and_is_resumed_whatever_ids_its_model_gives(tmp_path: Path, kind: str, call_id: str) -> None:
    """The ids are replaced before anything is stored under them; each call is asked about and made once."""
    store = STORES[kind](FakeClock())
    loaded = desk(
        tmp_path,
        tools=[Tool(pay, metadata={"effect": "external"})],
        also=["clerk"],
        others={"clerk.agent": agent("clerk", tools="[pay]")},
    )
    with Session.open(store, "s") as session:
        leave = RunOptions(model=calling(call_id), asker=Person(Answer("later")), session=session, root=tmp_path)
        waiting = await loaded.run_async("Go.", leave)
        assert [call.tool for call in waiting.waiting] == ["pay", "pay"]
        assert all(len(call.call_id) < 64 for call in waiting.waiting)
        assert len(session.open_calls) == 2
    with Session.open(store, "s") as session:
        agree = Person()
        options = RunOptions(model=calling(call_id), asker=agree, session=session, root=tmp_path)
        assert (await loaded.run_async(None, options)).output == "done"
        assert [call.path for call in agree.asked] == [("desk",), ("desk", "clerk")]
        assert {(event.name, event.success) for event in session[ToolInvoked]} == {
            ("pay", True),
            ("clerk", True),
            ("fly", False),
        }
