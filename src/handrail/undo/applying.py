"""Applying a plan: each undo is a call in the pipeline, the newest first, and the conversation says what was undone.

| before anything is undone | |
|---|---|
| the plan has a call that stays | refused, unless it is applied in part |
| a plan made now has other steps, but for those that are done | refused: something has changed |
| a policy denies one of the calls | refused |
| policies ask about some of them | one approval covers the plan; without it, refused |

An undo has the slot, the transaction, the record and the turns of any call, and is answered from its record when the
plan is applied again: nothing is undone twice. One that fails, or whose outcome is unknown, stops the rest. A process
that dies leaves what is done and, at most, one undo whose outcome has to be found out, as of any call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial as bind

from handrail.adapters.tool_executor import ToolExecutor
from handrail.crash_points import reached
from handrail.errors import CallPostponed, UndoRefusedError
from handrail.prompt import Approval, ApprovalRequest, Approver, PolicyDecision, PolicyQuestion, Tool, ToolContext
from handrail.prompt.policy import ToolPolicy, policy_may_block
from handrail.prompt.signature import is_async
from handrail.redaction import redacted_logger
from handrail.runtime.approval import ask_policy, invalid_answer
from handrail.runtime.calls import ToolMessage
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC, run_to_end
from handrail.runtime.failures import CallRefusedError
from handrail.runtime.invoke import invoke
from handrail.runtime.plan import find_plan
from handrail.session.calls import CallRef, ToolCall
from handrail.undo.calls import free_key, undo_call
from handrail.undo.planning import plan_after
from handrail.undo.reporting import UndoReport, undo_record, with_message
from handrail.undo.steps import UndoPlan, UndoStep, UndoWork
from handrail.waiting import asynchronous_entry

_log = redacted_logger("handrail.undo")


@dataclass(frozen=True, slots=True)
class UndoneCalls:
    """The calls that a plan undoes, as an approver is asked about them.

    Attributes:
        digest: that of the plan, to which the approval is bound.
        calls: a line for each.
    """

    digest: str
    calls: tuple[str, ...]


@asynchronous_entry
async def apply(plan: UndoPlan, *, partial: bool = False, approver: Approver | None = None) -> UndoReport:
    """Undoes the calls of a plan; applied again after a failure or a crash, it continues.

    Args:
        plan: the plan.
        partial: whether calls that cannot be undone may stay.
        approver: is asked once, if policies ask about calls of it; by default the approver of the executor.

    Raises:
        UndoRefusedError: a call would stay, something has changed since, or a policy or the approver denies. Nothing
            was undone.
        CallPostponed: the approver leaves the question open. Nothing was undone.
        RunAbortedError: a store is unavailable; what is undone is recorded.
        DeveloperMistake: the program is at fault. The calls before are undone.
    """
    if not (plan.is_complete or partial):
        stays = ", ".join(f"{step.tool} ({step.ref}): {step.why}" for step in plan.steps if not step.is_undone)
        raise UndoRefusedError(f"not every call can be undone; apply the plan in part, or see to {stays}", plan=plan)
    done = await ASYNC.in_thread(bind(_find_done, plan))
    present = await ASYNC.in_thread(bind(plan_after, plan.session, plan.after, plan.executors))
    todo = [step for step in plan.steps if step.ref not in done]
    if [(step.ref, step.digest) for step in present.steps] != [(step.ref, step.digest) for step in todo]:
        raise UndoRefusedError("something has changed since the plan was made; make it anew", plan=plan)
    calls = [(step, step.work, *undo_call(step.work)) for step in present.steps if step.work is not None]
    await _approve(plan, [(work, call, environment) for _, work, call, environment in calls], approver)
    reached("undo-begun")
    for step in plan.steps:
        if step.work is not None and step.ref in done:
            await ASYNC.in_thread(bind(free_key, step.work))
    failed: tuple[UndoStep, ToolMessage] | None = None
    for step, work, call, environment in calls:
        approved = replace(environment, approver=_approved)
        message = await invoke(call, step.ref.reply, approved, ASYNC)
        if not message.success:
            failed = step, message
            break
        done[step.ref] = message
        await ASYNC.in_thread(bind(free_key, work))
        reached("undo-call-done")
    undone = tuple((step, done[step.ref]) for step in plan.steps if step.ref in done)
    return await ASYNC.in_thread(bind(with_message, UndoReport(plan, undone, failed)))


def _approved(_: ApprovalRequest) -> bool:
    return True  # the plan is, as a whole


def _find_done(plan: UndoPlan) -> dict[CallRef, ToolMessage]:
    records = ((step.ref, undo_record(plan.session, step.ref)) for step in plan.steps)
    return {
        ref: ToolMessage(event.call_id, event.result.render(), success=True, result=event.result, replayed=True)
        for ref, event in records
        if event is not None
    }


async def _approve(
    plan: UndoPlan, calls: Sequence[tuple[UndoWork, ToolCall, Environment]], approver: Approver | None
) -> None:
    questions: dict[PolicyQuestion, None] = {}
    for work, call, environment in calls:
        try:
            questions |= dict.fromkeys(await _ask_policies(work, call, environment))
        except CallRefusedError as error:
            raise UndoRefusedError(str(error), plan=plan) from error
    if not questions:
        return
    approver = approver or calls[0][2].approver
    if approver is None:
        asks = "; ".join(f"{question.policy}: {question.text}" for question in questions)
        raise UndoRefusedError(f"the undo needs approval ({asks}), and there is no approver; give one", plan=plan)
    lines = tuple(f"{step.outcome}: {step.tool} ({step.ref})" for step in plan.steps)
    undone, name = UndoneCalls(plan.digest, lines), f"undo:{plan.digest[:12]}"
    planned = Tool[UndoneCalls, None](name="undo", description="Undoes calls of the session.", effect="external")
    request = ApprovalRequest(name, planned, undone, tuple(questions), plan.session_id)
    asked = approver
    answer: object = await run_to_end(ASYNC, lambda: asked(request), is_async=is_async(asked), seconds=None)
    if isinstance(answer, Approval) and answer.left_open:
        raise CallPostponed(answer.reason or "the undo waits for approval", question=request)
    if not isinstance(answer, bool | Approval):
        raise invalid_answer("the approver", planned, answer, "True, False or an Approval")
    if not (answer if isinstance(answer, bool) else answer.approved):
        reason = f": {answer.reason}" if isinstance(answer, Approval) and answer.reason else ""
        raise UndoRefusedError(f"the undo was not approved{reason}", plan=plan)


async def _ask_policies(work: UndoWork, call: ToolCall, environment: Environment) -> list[PolicyQuestion]:
    ref = CallRef(work.call.ref.reply, call.id)
    plan = find_plan(environment, call.name, ref.reply)
    if (tool := plan.tool) is None:
        return []

    async def by_policy(policy: ToolPolicy, act: Callable[[], PolicyDecision]) -> PolicyDecision:
        return await ASYNC.in_thread(act) if policy_may_block(policy, tool, environment.session) else act()

    with environment.resources.call_scope() as resources:
        context = ToolContext(environment, resources, ref)
        asked: list[Awaitable[PolicyQuestion | None]] = [
            ask_policy(policy, tool, work.params, context, by_policy) for policy in plan.policies
        ]
        answers = [await question for question in asked]
    return [question for question in answers if question is not None]


@asynccontextmanager
async def on_abort(
    executor: ToolExecutor, *, own: Callable[[], Sequence[ToolExecutor]] = tuple
) -> AsyncGenerator[None]:
    """Undoes the calls of a block that ends with an exception, as far as they can be; what stays is a note of it.

    A failed call raises nothing, so it undoes nothing. Nor does a run that waits for an approval.

    Args:
        executor: that of the run, on a stored session.
        own: returns further ones, which are made during the run.
    """
    session = executor.environment.session
    after = 0 if session.recorder is None else session.recorder.head
    try:
        yield
    except CallPostponed:
        raise
    except (Exception, asyncio.CancelledError) as error:
        # In a task of its own, which is not being cancelled.
        undoing = asyncio.ensure_future(_undo_after((*own(), executor), after))
        try:
            report = await asyncio.shield(undoing)
        except Exception as failure:  # noqa: BLE001 - logged; what has ended the run is raised
            _log.exception("the calls of an aborted run could not be undone")
            error.add_note(f"its calls could not be undone: {failure}")
        else:
            stays = [step for step in report.plan.steps if step.ref not in {undone.ref for undone, _ in report.undone}]
            names = ", ".join(f"{step.tool} ({step.ref})" for step in stays)
            error.add_note(f"{len(report.undone)} calls were undone{f', and these were not: {names}' if names else ''}")
        raise


async def _undo_after(executors: tuple[ToolExecutor, ...], after: int) -> UndoReport:
    for executor in executors:
        await executor.settle_open_async()
    make = bind(plan_after, executors[0].environment.session, after, executors)
    return await apply(await ASYNC.in_thread(make), partial=True)
