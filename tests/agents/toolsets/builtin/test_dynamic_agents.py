"""Agents that an agent makes while it runs: with nothing but what their maker has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from handrail.agents.toolsets.builtin import DynamicAgent, session_agents
from handrail.session import Session
from handrail.testing import Call, Outcome, Reply
from tests.agents.desks import CallLog, called, desk, inside, outcomes, play, texts
from tests.agents.folders import agent
from tests.agents.toolsets.traced import named
from tests.wording import Wording

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("A-38")]


def create(name: str, *, tools: Iterable[str] = (), toolsets: Iterable[str] = (), id: str = "") -> Call:
    """A call that makes an agent."""
    arguments = {"name": name, "instructions": "Work.", "tools": list(tools), "toolsets": list(toolsets)}
    return Call("agent_create", arguments, id=id)


def task(name: str, id: str = "") -> Call:
    """A call that gives an agent a task."""
    return Call("agent_call", {"agent": name, "input": "Go."}, id=id)


async def test_an_agent_is_made_and_called_in_one_reply(tmp_path: Path, wording: Wording) -> None:
    """In the order asked; it has what it was given, and the model of its maker."""
    session = Session()
    loaded = desk(tmp_path, tools=[named("ping"), named("pong")], also=["dynamic_agents"])
    first, last = called(
        create("helper", tools=["ping", "ping"]), task("helper"), c1=Outcome.ok(), c2=Outcome.ok("found")
    )
    inner = Reply(calls=[Call("ping", id="n1"), Call("pong", id="n2")], within="c2")
    told = {"n1": Outcome.ok("ping"), "n2": Outcome.failed()}
    answer = called(**told)[1]
    script = [first, inner, Reply(text="found", within="c2", expect=answer.expect), last]
    await play(loaded, script, session=session, listener=(log := CallLog()))
    assert [log.told["c1"], log.told["n2"]] == wording
    assert session[DynamicAgent].all() == (DynamicAgent("helper", "Work.", "", ("ping",), ()),)
    assert outcomes(session) == [("c1", True), ("c2", True)]
    assert list(texts(tmp_path)) == ["desk.agent"]


async def test_an_agent_cannot_be_given_what_its_maker_does_not_have(tmp_path: Path, wording: Wording) -> None:
    """Neither what is registered for others, nor what there is not; all is told at once, and nothing is made."""
    session = Session()
    others = {"other.agent": agent("other", toolsets="[shell]")}
    loaded = desk(tmp_path, tools=[named("ping")], also=["dynamic_agents"], others=others)
    calls = [create("helper", tools=["nope", "ping", "pong", "nope"], toolsets=["shell", "other"]), task("helper")]
    script = called(*calls, c1=Outcome.failed(), c2=Outcome.failed())
    await play(loaded, script, session=session, listener=(log := CallLog()))
    assert [log.told["c1"], log.told["c2"]] == wording
    assert session_agents(session) == {}


async def test_a_name_that_is_taken_or_none_is_refused(tmp_path: Path, wording: Wording) -> None:
    """By an agent of the project, also one out of reach, or by one that was made before."""
    session = Session()
    loaded = desk(tmp_path, also=["dynamic_agents"], others={"other.agent": agent("other")})
    calls = [create("desk"), create("other"), create("new"), create("new"), create("a b/../c"), create("")]
    failed = Outcome.failed()
    script = called(*calls, c1=failed, c2=failed, c3=Outcome.ok(), c4=failed, c5=failed, c6=failed)
    await play(loaded, script, session=session, listener=(log := CallLog()))
    assert [log.told[f"c{number}"] for number in range(1, 7)] == wording
    assert list(session_agents(session)) == ["new"]


async def test_only_agents_within_reach_are_called(tmp_path: Path, wording: Wording) -> None:
    """Those that were made, and those among the toolsets of the agent; an unknown name is told with all of them."""
    others = {"child.agent": agent("child"), "other.agent": agent("other")}
    loaded = desk(tmp_path, also=["dynamic_agents", "child"], others=others)
    calls = [create("helper"), task("other"), task("helpr"), task("child")]
    came = {"c2": Outcome.failed(), "c3": Outcome.failed(), "c4": Outcome.ok("found")}
    first, last = called(*calls, c1=Outcome.ok(), **came)
    await play(loaded, [first, Reply(text="found", within="c4"), last], listener=(log := CallLog()))
    assert [log.told["c2"], log.told["c3"]] == wording


async def test_an_agent_that_was_made_may_make_agents_if_its_maker_lets_it(tmp_path: Path, wording: Wording) -> None:
    """Its own are its own, may have no more than it has itself, and are as deep as any."""
    session = Session()
    loaded = desk(tmp_path, tools=[named("ping")], also=["dynamic_agents"])
    first, last = called(
        create("helper", toolsets=["dynamic_agents"]), task("helper"), c1=Outcome.ok(), c2=Outcome.ok()
    )
    calls = [
        create("inner", tools=["ping"], id="n1"),
        create("inner", id="n2"),
        task("inner", "n3"),
        task("helper", "n4"),
    ]
    told = {"n1": Outcome.failed(), "n2": Outcome.ok(), "n3": Outcome.failed(), "n4": Outcome.failed()}
    inner = inside("c2", called(*calls, **told))
    await play(loaded, [first, *inner, last], session=session, max_depth=2, listener=(log := CallLog()))
    assert [log.told[call] for call in ("n1", "n3", "n4")] == wording
    assert list(session_agents(session)) == ["helper"]


async def test_in_deny_all_no_agent_is_made_or_called(tmp_path: Path) -> None:
    """They are tools like others."""
    session = Session()
    loaded = desk(tmp_path, also=["dynamic_agents"])
    script = called(create("helper"), task("helper"), c1=Outcome.failed("deny-all"), c2=Outcome.failed("deny-all"))
    await play(loaded, script, session=session, mode="deny-all")
    assert session_agents(session) == {}
