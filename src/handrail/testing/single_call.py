"""Runs one call of one tool through the whole pipeline, without a model, in a prompt with only this tool."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable
from typing import Any

from handrail import undo
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Section, Tool
from handrail.prompt.section import ResourceDeclaration
from handrail.replay import Recording, replay
from handrail.replay.replaying import Against
from handrail.runtime import EffectLedger, ToolCall, ToolMessage
from handrail.serde import dump
from handrail.session import Session
from handrail.store import MemoryStore
from handrail.waiting import run_on_new_loop


def run_tool(
    tool: Tool[Any, Any],
    params: object = None,
    *,
    session: Session | None = None,
    resources: ResourceDeclaration = None,
    effect_ledger: EffectLedger | None = None,
) -> ToolMessage:
    """Runs one tool as if a model had called it, and returns the message that the model would read.

    The message's `result` is the one of the handler, or the failed result that describes the failure.

    Args:
        tool: the tool.
        params: an instance of its parameter type, a mapping, or JSON text, which may be invalid; `None` for no
            arguments.
        session: where results are stored; by default a new one.
        resources: the content of `context.resources`. Resources created by providers are closed at the end.
        effect_ledger: records effects; pass one to test that a second call is replayed.

    Raises:
        RunAbortedError: the call ends the run.
    """
    executor, call = _prepare(tool, params, session, resources, effect_ledger)
    # One call has no run around it, so resources of providers are closed here.
    with executor.environment.prompt.resources:
        return executor.execute(call)


def assert_undoes(
    tool: Tool[Any, Any],
    params: object = None,
    *,
    world: Callable[[], object] = lambda: None,
    resources: ResourceDeclaration = None,
) -> None:
    """Runs one tool, undoes the call, and checks that state, files and the world are as they were before.

    Args:
        tool: the tool.
        params: as of `run_tool`.
        world: returns what is compared of the world outside, as a value; the call must change it. Needed unless the
            call acts on nothing but the session and files.
        resources: as of `run_tool`.

    Raises:
        AssertionError: the call failed, cannot be undone, changed nothing of `world`, or has left something.
        RunAbortedError: the call, or its undo, ends the run.
    """
    with MemoryStore() as store, store.session("undo") as session:
        executor, call = _prepare(tool, params, session, resources, None)
        with executor.environment.prompt.resources:
            before = copy.deepcopy(world())
            message = executor.execute(call)
            plan = undo.plan(session, executors=executor)
            if not message.success or not plan.steps:
                raise AssertionError(f"{tool.name} has changed nothing that could be undone: {message.content}")
            if stays := next((step for step in plan.steps if not step.is_undone), None):
                raise AssertionError(f"{tool.name} cannot be undone: {stays.why}")
            if world() == before and (before is not None or plan.steps[0].outcome == "compensated"):
                raise AssertionError(f"the call of {tool.name} changes nothing of world, so nothing is shown")
            report = run_on_new_loop(undo.apply(plan, approver=lambda _: True))
            if report.failed is not None:
                raise AssertionError(f"the undo of {tool.name} failed: {report.failed[1].content}")
            if (after := world()) != before:
                raise AssertionError(
                    f"the undo of {tool.name} left {after!r:.300}, and before there was {before!r:.300}"
                )


def assert_replays(path: str | os.PathLike[str], against: Against) -> None:
    """Replays the recording of a file, and checks that nothing differs; see `handrail.replay`.

    Args:
        path: a file of `handrail sessions export`.
        against: what makes the executor of a session, the function of a run, or an agent.

    Raises:
        AssertionError: something differs; it names the call, and shows what has changed.
        SessionError: it cannot be replayed.
    """
    if differences := run_on_new_loop(replay(Recording.load(path), against)).differences:
        raise AssertionError(f"{os.fspath(path)} does not replay equal: {differences[0]}")


def _prepare(
    tool: Tool[Any, Any],
    params: object,
    session: Session | None,
    resources: ResourceDeclaration,
    ledger: EffectLedger | None,
) -> tuple[ToolExecutor, ToolCall]:
    template = PromptTemplate(ns="testing", key="run-tool", sections=[Section(title="Tool", tools=[tool])])
    prompt = Prompt(template).bind(resources=resources)
    arguments: Any = {} if params is None else dump(params) if dataclasses.is_dataclass(params) else params
    executor = ToolExecutor(prompt=prompt, session=Session() if session is None else session, effect_ledger=ledger)
    return executor, ToolCall("call-1", tool.name, arguments)
