"""Inside a durable engine: names of replies, the owner of a conversation, and workflows of Temporal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dbos import DBOS
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.test import TestModel

import handrail.store
from handrail.adapters.engines import engine_reply
from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PipelineCapability, PydanticAIAdapter
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import DurableEngineError, InvalidArgumentError
from handrail.runtime import Session, ToolInvoked
from tests.adapters.kit import ADD_NOTE, notes_prompt
from tests.architecture.sources import ROOT
from tests.kit import raises
from tests.wording import Wording


def test_a_reply_is_named_by_the_ids_in_their_order() -> None:
    """A number and its text are one id, as a store of an engine may give either."""
    assert engine_reply("friday", 3) == engine_reply("friday", "3") == "friday:3"
    assert engine_reply("task") == "task"
    assert engine_reply("friday", 0) == "friday:0"


def test_other_ids_make_another_name() -> None:
    """Also where an id has the character between them."""
    ids = [("a:b", "c"), ("a", "b:c"), ("a", "b", "c"), ("a%3Ab", "c"), ("a:b:c",)]
    assert len({engine_reply(*each) for each in ids}) == len(ids)


@pytest.mark.parametrize("ids", [(None, 1), ("friday", None), ("friday", ""), ("friday", 1.5)], ids=str)
def test_a_missing_id_is_refused_with_the_cure(ids: tuple[Any, ...], wording: Wording) -> None:
    """Otherwise all steps of a run, or all runs, would have one name."""
    with raises(InvalidArgumentError, wording) as caught:
        engine_reply(*ids)
    assert caught.value.argument == ("run_id" if ids[0] is None else "ids[0]")


def test_dbos_has_no_ids_outside_of_a_workflow() -> None:
    """So the helper refuses there."""
    with pytest.raises(InvalidArgumentError):
        engine_reply(DBOS.workflow_id, DBOS.step_id)


# ------------------------------------------------------------------------------------------------- two owners


@pytest.mark.timeout(120)  # it starts DBOS
def test_a_conversation_that_the_engine_stores_is_not_stored_twice(tmp_path: Path, wording: Wording) -> None:
    """The run is refused before the model is asked. Outside of a workflow the same agent stores its conversation."""
    command = [sys.executable, "-m", "tests.adapters.dbos_owners", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, check=False, cwd=ROOT, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    refusal, stored = outcomes["inside, stored"]
    assert (refusal, stored) == (wording, 0)
    answer = '{"note":"noted: a"}'
    assert outcomes["inside"] == [answer, 0]
    assert outcomes["outside, stored"] == [answer, 4]


class Engine(AbstractCapability[Any]):
    """The capability of an engine that runs the caller."""

    in_durable_context = True


def test_a_whole_prompt_is_refused_where_an_engine_stores_its_conversation() -> None:
    """An adapter stores it in each stored session, and in no other."""
    adapter = PydanticAIAdapter("test", capabilities=[Engine()])
    assert adapter.evaluate(notes_prompt(), session=Session()).text
    with handrail.store.open("memory:") as store, store.session("desk") as session:
        with pytest.raises(DurableEngineError) as caught:
            adapter.evaluate(notes_prompt(), session=session)
        assert caught.value.engine == "Engine"
        assert len(session[ToolInvoked].all()) == 0


# --------------------------------------------------------------------------------------------------- Temporal


@pytest.fixture
def temporal(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The one function of Temporal's SDK that is asked, in its place; a workflow runs the caller."""
    workflow = ModuleType("temporalio.workflow")
    monkeypatch.setattr(workflow, "in_workflow", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "temporalio.workflow", workflow)
    return workflow


_AGENTS: dict[str, Callable[[ToolExecutor], dict[str, Any]]] = {
    "HandrailToolset": lambda executor: {"toolsets": [HandrailToolset(executor)]},
    "HandrailCapability": lambda executor: {"capabilities": [HandrailCapability(executor)]},
    "PipelineCapability": lambda executor: {"capabilities": [PipelineCapability(executor)]},
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", _AGENTS)
async def test_what_would_run_as_code_of_a_temporal_workflow_is_refused(
    name: str, temporal: ModuleType, wording: Wording
) -> None:
    """The message has the reason and the cure, and nothing has been asked or run."""
    session = Session()
    agent = Agent(TestModel(), **_AGENTS[name](ToolExecutor([ADD_NOTE], session=session)))
    with raises(DurableEngineError, wording) as caught:
        await agent.run("Note it.")
    assert caught.value.engine == "Temporal"
    assert len(session[ToolInvoked].all()) == 0


@pytest.mark.anyio
@pytest.mark.parametrize("name", _AGENTS)
async def test_outside_of_a_workflow_temporal_changes_nothing(
    name: str, temporal: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an activity, where its module is imported too."""
    monkeypatch.setattr(temporal, "in_workflow", lambda: False)
    session = Session()
    await Agent(TestModel(), **_AGENTS[name](ToolExecutor([ADD_NOTE], session=session))).run("Note it.")
    assert len(session[ToolInvoked].all()) == 1
