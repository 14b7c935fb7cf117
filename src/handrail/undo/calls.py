"""The call that undoes another one: `undo:c` undoes call `c` of the same reply, by a tool that is made for it.

Its parameters are those of the call, so the policies of the tool judge it as they judge that. What it restores is a
change of state like any other. What it compensates is an external effect: the function of `Tool.undo` is its handler,
and what the call changed besides is restored by its `apply`, in the unit that records that the effect has happened,
also if a reconciler or a person finds that out.

A failure that is known to have changed nothing is never final: the same undo may be tried again. So what the function
returns as a failed result, or raises as `ToolValidationError`, becomes `EffectNotApplied`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from handrail.errors import EffectNotApplied, ToolValidationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.signature import Effect, takes_context
from handrail.runtime.environment import Environment
from handrail.session.calls import ToolCall
from handrail.store.protocol import change_effect
from handrail.undo.records import UNDO, UNDO_TOOL
from handrail.undo.steps import UndoWork

_LONGEST_NAME = 64


def undo_call(work: UndoWork) -> tuple[ToolCall, Environment]:
    """The call that undoes another one, and the environment that has its tool."""
    call, environment, name = work.call, work.environment, f"{UNDO_TOOL}{work.call.tool}"[:_LONGEST_NAME]
    prompt = environment.rendered_prompt
    policies = prompt.policies.get(work.tool.name, prompt.prompt_policies)
    with_tool = replace(
        prompt, tools=(*prompt.tools, _undo_tool(work, name)), policies={**prompt.policies, name: policies}
    )
    # It is not a call of the run, which may have ended at its deadline; the model does not read its message.
    environment = replace(environment.with_rendered(with_tool), deadline=None, feedback=None)
    return ToolCall(f"{UNDO}{call.ref.call_id}", name, work.event.call.arguments), environment


def _undo_tool(work: UndoWork, name: str) -> Tool[Any, Any]:
    tool, undo = work.tool, work.tool.undo
    session = work.environment.session
    effect: Any = "state"

    def restore(params: Any, /, *, context: ToolContext) -> ToolResult[None]:  # noqa: ANN401, ARG001 - a handler
        work.restore(session)
        return ToolResult.ok(None, message="what it changed was restored")

    def apply(params: Any, result: ToolResult[Any], /, *, context: ToolContext) -> None:  # noqa: ANN401, ARG001 - as above
        work.restore(session)

    handler: Callable[..., Any] = restore
    if undo is not None and work.result is not None:
        restores = bool(work.call.changes or work.files)
        # Two calls that equal each other are undone one after the other: neither is a repeat.
        effect = replace(undo.effect, repeat_unknown="allow", apply=apply if restores else None)
        handler = partial(_compensate, work, undo.run)
    build = cast("Callable[..., Tool[Any, Any]]", Tool)  # checkers do not see the last fields
    return build(
        name=name,
        description=f"Undoes a call of {tool.name}.",
        handler=handler,
        effect=cast("Effect", effect),
        timeout=tool.timeout,
        given_types=(tool.params_type, None),
        given_schema=getattr(tool, "given_schema"),  # noqa: B009 - a field that type checkers do not see
    )


def _compensate(
    work: UndoWork,
    run: Callable[..., object],
    params: Any,  # noqa: ANN401, ARG001 - those of the record count
    /,
    *,
    context: ToolContext,
) -> ToolResult[None] | Awaitable[ToolResult[None]]:
    keywords = {"context": context} if takes_context(run) else {}
    try:
        answer = run(work.params, work.result, work.before, **keywords)
    except ToolValidationError as error:
        raise EffectNotApplied(str(error)) from error
    return _later(cast("Awaitable[object]", answer)) if inspect.isawaitable(answer) else _result(answer)


async def _later(answer: Awaitable[object]) -> ToolResult[None]:
    try:
        return _result(await answer)
    except ToolValidationError as error:
        raise EffectNotApplied(str(error)) from error


def _result(answer: Any) -> ToolResult[None]:  # noqa: ANN401 - what a function of the program returns
    if not isinstance(answer, ToolResult):  # it has happened, whatever the other side has said
        return ToolResult.ok(None, message="its effect was compensated")
    if not answer.success:
        raise EffectNotApplied(answer.message)
    return ToolResult.ok(None, message=answer.message or "its effect was compensated")


def free_key(work: UndoWork) -> None:
    """Frees the declared key of an undone call, so that the same request runs anew; not if another call has it by now.

    Raises:
        StoreError: the ledger cannot be used.
    """
    session, key = work.environment.session, work.event.effect_key
    if key is None:
        return
    ledger = work.environment.find_ledger()
    for partition in (session.session_id, ""):
        row = ledger.row(key, partition=partition)
        if row is None or row.is_slot or row.status != "done" or row.owner.session_id != session.session_id:
            continue
        owner = row.owner.call.storable
        record: Any = None if owner == work.call.ref else session.calls.find(owner)
        if record is None or not record.summary[1]:  # else it has done the same since
            change_effect(ledger.store, row, None)
