"""What a handler is given."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.clock import SYSTEM_CLOCK
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.limits import Budget, BudgetTracker, Deadline, Heartbeat, RunContext
from handrail.prompt import Prompt, PromptTemplate, Section, ToolContext
from handrail.prompt.context import tool_context
from handrail.prompt.disclosure import PromptRendering
from handrail.runtime import EffectLedger
from handrail.runtime.environment import Environment
from handrail.session import Session
from handrail.session.calls import CallRef, ToolCall
from handrail.testing import FakeClock
from tests.prompt.samples import lookup_tool


class Client:
    """A resource."""


def environment(**changes: object) -> Environment:
    """What a run shares, with those changes."""
    template = PromptTemplate(ns="tests", key="context", sections=[Section(title="A", tools=[lookup_tool()])])
    prompt = Prompt(template).bind(resources={Client: Client()})
    session = changes.pop("session", Session())
    assert isinstance(session, Session)
    return Environment.begin(prompt, PromptRendering(prompt, session), session, find_ledger=EffectLedger, **changes)


def context_in(run: Environment) -> ToolContext:
    """The context of a call in a run, as the pipeline makes it."""
    return ToolContext(run, run.prompt.resources.call_scope(), CallRef("reply-1", "call-1"))


def test_a_context_leads_to_all_that_the_run_shares() -> None:
    """What the door put into the environment, a handler finds in the context."""
    heartbeat, deadline, ids = Heartbeat(), Deadline.after(timedelta(minutes=1)), RunContext(run_id="run")
    run = environment(heartbeat=heartbeat, deadline=deadline, run_context=ids, adapter="door")
    context = context_in(run)
    assert context.environment is run
    assert (context.prompt, context.rendered_prompt, context.session) == (run.prompt, run.rendered_prompt, run.session)
    assert (context.heartbeat, context.deadline, context.run_context) == (heartbeat, deadline, ids)
    assert (context.adapter, context.clock, context.call_id) == ("door", SYSTEM_CLOCK, "call-1")
    assert context.resources.get(Client) is context.prompt.resources.get(Client)


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [None, 30])
async def test_code_without_a_parameter_for_it_finds_the_context_of_its_call(seconds: int | None) -> None:
    """In a handler of either kind, on whatever thread; that of the call in which it runs, if calls are nested."""
    found: list[str | None] = []

    def note() -> None:
        context = tool_context()
        found.append(None if context is None else context.call_id)

    timeout = None if seconds is None else timedelta(seconds=seconds)

    @tool(timeout=timeout)
    def inner() -> None:
        note()

    @tool(timeout=timeout)
    async def outer() -> None:
        note()
        await executor.execute_async(ToolCall("inner", "inner", "{}"))
        note()

    section = Section[None](title="A", tools=[inner, outer])
    executor = ToolExecutor(prompt=Prompt(PromptTemplate(ns="t", key="t", sections=[section])), session=Session())
    note()
    assert (await executor.execute_async(ToolCall("outer", "outer", "{}"))).success
    note()
    assert found == [None, "outer", "inner", "outer", None]


def test_a_context_never_changes() -> None:
    """A handler cannot put something else into it."""
    context: Any = ToolContext.of()
    for name in ("call_id", "session", "resources", "something_else"):
        with pytest.raises(AttributeError):
            setattr(context, name, "other")


def test_the_filesystem_is_the_bound_one() -> None:
    """`context.filesystem` is short for the resource, and `None` when there is none."""
    files = InMemoryFilesystem()
    assert ToolContext.of(resources={Filesystem: files}).filesystem is files
    assert ToolContext.of().filesystem is None


def test_the_budget_tracker_is_the_bound_one_or_that_of_the_run() -> None:
    """A bound tracker takes precedence."""
    of_run, bound = BudgetTracker(Budget()), BudgetTracker(Budget())
    run = environment(budget_tracker=of_run)
    assert context_in(run).budget_tracker is of_run
    run = dataclasses.replace(run, prompt=run.prompt.bind(resources={BudgetTracker: bound}))
    assert context_in(run).budget_tracker is bound
    assert context_in(environment()).budget_tracker is None


def test_a_beat_reaches_the_heartbeat_and_the_claim() -> None:
    """`beat()` says to both that the call is at work, and is harmless where neither is there."""
    clock = FakeClock()
    heartbeat = Heartbeat(clock=clock)
    beats: list[str] = []
    run = environment(heartbeat=heartbeat)
    ref = CallRef(None, "c")
    context = ToolContext(run, run.prompt.resources.call_scope(), ref, "key", 3, lambda: beats.append("claim"))
    clock.advance(timedelta(seconds=5))
    context.beat()
    assert (heartbeat.elapsed(), beats) == (timedelta(0), ["claim"])
    assert (context.idempotency_key, context.fence) == ("key", 3)
    ToolContext.of().beat()


def test_a_context_can_be_made_without_a_run() -> None:
    """`ToolContext.of` is enough to try a handler on its own."""
    clock = FakeClock()
    session, deadline = Session(), Deadline.after(timedelta(minutes=1), clock=clock)
    context = ToolContext.of(session=session, deadline=deadline, clock=clock, call_id="mine")
    assert (context.session, context.deadline, context.clock, context.call_id) == (session, deadline, clock, "mine")
    assert (context.rendered_prompt, context.adapter, context.heartbeat, context.run_context) == (None,) * 4
    assert (context.idempotency_key, context.fence, context.prompt.name) == (None, None, "no prompt")
    assert ToolContext.of().session is not ToolContext.of().session
