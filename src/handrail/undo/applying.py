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

Which calls are undone is known from their records, so the message of an `apply` that died before it could write it, or
return it, is written and returned by the next one. A conversation whose last reply waits for answers takes no message:
one of PydanticAI gets the answers with it, and in that of a program's own loop they are the program's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial as bind
from typing import Any, ClassVar

from handrail.adapters.tool_executor import ToolExecutor
from handrail.crash_points import reached
from handrail.errors import CallPostponed, UndoRefusedError
from handrail.prompt import Approval, ApprovalRequest, Approver, PolicyQuestion, Tool, ToolContext
from handrail.prompt.signature import is_async
from handrail.redaction import redacted_logger
from handrail.runtime.approval import ask_policy, invalid_answer
from handrail.runtime.calls import ToolInvoked, ToolMessage
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ASYNC, run_to_end
from handrail.runtime.failures import CallRefusedError
from handrail.runtime.invoke import invoke
from handrail.runtime.ledger.ledger import EffectLedger
from handrail.runtime.plan import find_plan
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef, ToolCall
from handrail.session.conversation import Conversation, ConversationPart, OpenReply, Speaker, open_reply
from handrail.store.protocol import change_effect
from handrail.undo.planning import plan as make_plan
from handrail.undo.records import UNDO, UNDO_TOOL, find_undone
from handrail.undo.steps import UndoPlan, UndoStep, undo_call
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


@stored_as("handrail.undo_message")
@dataclass(frozen=True, slots=True)
class UndoMessage:
    """The message in the conversations of a session that calls are undone. Its slice is a LOG.

    Attributes:
        calls: the calls that undid others, as text.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    survives_reset: ClassVar[bool] = True

    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UndoReport:
    """The outcome of a plan.

    Attributes:
        plan: the plan.
        undone: the calls that are undone, with the messages of their undos, the newest first.
        failed: the call whose undo failed or is unknown, and its message; older ones have not been tried.
        message: what the conversation says of it; a program with messages of its own appends it there.
        in_conversation: whether the conversations of the session have the message; not if a reply of the program's
            own loop waits for answers. The next `apply` appends it then.
    """

    plan: UndoPlan
    undone: tuple[tuple[UndoStep, ToolMessage], ...]
    failed: tuple[UndoStep, ToolMessage] | None = None
    message: str = ""
    in_conversation: bool = True

    @property
    def complete(self) -> bool:
        """True if every call of the plan is undone."""
        return len(self.undone) == len(self.plan.steps)


@asynchronous_entry
async def apply(plan: UndoPlan, *, partial: bool = False, approver: Approver | None = None) -> UndoReport:
    """Undoes the calls of a plan; applied again after a failure or a crash, it continues.

    Args:
        plan: the plan.
        partial: whether calls that cannot be undone may stay.
        approver: is asked once, if policies ask about calls of it; by default the approver of the executor.

    Raises:
        UndoRefusedError: a call would stay, something has changed since, or a policy or the approver denies, or the
            approver leaves the question open. Nothing was undone.
        RunAbortedError: a store is unavailable; what is undone is recorded.
        DeveloperMistake: the program is at fault. The calls before are undone.
    """
    if not (plan.is_complete or partial):
        stays = ", ".join(f"{step.tool} ({step.ref}): {step.why}" for step in plan.steps if not step.is_undone)
        raise UndoRefusedError(f"not every call can be undone; apply the plan in part, or see to {stays}", plan=plan)
    present = await ASYNC.in_thread(bind(make_plan, plan.session, executors=plan.executors, after=plan.after))
    done = await ASYNC.in_thread(bind(_find_done, plan))
    todo = [(step.ref, step.digest) for step in plan.steps if step.ref not in done]
    if [(step.ref, step.digest) for step in present.steps] != todo:
        raise UndoRefusedError("something has changed since the plan was made; make it anew", plan=plan)
    calls = [(step, *undo_call(step.work)) for step in plan.steps if step.work is not None]
    await _approve(plan, [one for one in calls if one[0].ref not in done], approver)
    reached("undo-begun")
    undone: list[tuple[UndoStep, ToolMessage]] = []
    failed: tuple[UndoStep, ToolMessage] | None = None
    for step, call, environment in calls:
        approved = replace(environment, approver=_approve_each)
        message = done.get(step.ref) or await invoke(call, step.ref.reply, approved, ASYNC)
        if not message.success:
            failed = step, message
            break
        undone.append((step, message))
        reached("undo-call-done")
    return await ASYNC.in_thread(bind(_settle, UndoReport(plan, tuple(undone), failed)))


def _approve_each(_: ApprovalRequest) -> bool:
    return True  # the plan is approved, as a whole


def _find_done(plan: UndoPlan) -> dict[CallRef, ToolMessage]:
    done: dict[CallRef, ToolMessage] = {}
    for step in plan.steps:
        event = plan.session.calls.find(CallRef(step.ref.reply, f"{UNDO}{step.ref.call_id}"))
        if isinstance(event, ToolInvoked) and (result := event.result).success:
            done[step.ref] = ToolMessage(event.call_id, result.render(), success=True, result=result, replayed=True)
    return done


async def _approve(
    plan: UndoPlan, calls: Sequence[tuple[UndoStep, ToolCall, Environment]], approver: Approver | None
) -> None:
    questions: dict[PolicyQuestion, None] = {}
    for step, call, environment in calls:
        try:
            questions |= dict.fromkeys(await _ask_policies(step, call, environment))
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
    answer: object = await run_to_end(ASYNC, bind(approver, request), is_async=is_async(approver), seconds=None)
    if not isinstance(answer, bool | Approval):
        raise invalid_answer("the approver", planned, answer, "True, False or an Approval")
    if not (answer if isinstance(answer, bool) else answer.approved):
        reason = f": {answer.reason}" if isinstance(answer, Approval) and answer.reason else ""
        raise UndoRefusedError(f"the undo was not approved{reason}", plan=plan)


async def _ask_policies(step: UndoStep, call: ToolCall, environment: Environment) -> list[PolicyQuestion]:
    ref = CallRef(step.ref.reply, call.id)
    plan = find_plan(environment, call.name, ref.reply)
    if (tool := plan.tool) is None or (work := step.work) is None:
        return []
    with environment.resources.call_scope() as resources:
        context = ToolContext(environment, resources, ref)
        ask = bind(
            ask_policy, tool=tool, params=work.params, context=context, by_policy=lambda _, act: ASYNC.in_thread(act)
        )
        answers = [await ask(policy) for policy in plan.policies]
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
    make = bind(make_plan, executors[0].environment.session, executors=executors, after=after)
    return await apply(await ASYNC.in_thread(make), partial=True)


def _settle(report: UndoReport) -> UndoReport:
    # Frees the keys of what is undone, and appends to the conversations what they do not say yet.
    session = report.plan.session
    earlier = {call for item in session[UndoMessage].all() for call in item.calls}
    events = [event for event in session[ToolInvoked].all() if event.session_id == session.session_id]
    undos = {call: event for event in events if event.success and (call := find_undone(event.ref, event.name))}
    untold = {call: event for call, event in undos.items() if str(event.ref) not in earlier}
    text = _text(untold or {step.ref: undos[step.ref] for step, _ in report.undone if step.ref in undos}, report)
    report = replace(report, message=text)
    if not untold:
        return report
    calls = {event.ref.storable: event for event in events if event.effect_key is not None}
    for call in untold.keys() & calls.keys():
        _free_key(session, report.plan.executors[0].environment.find_ledger(), calls[call])
    own: dict[tuple[Speaker, str], list[ConversationPart]] = {}
    for part in session[ConversationPart].all():
        own.setdefault((part.speaker, part.name), []).append(part)
    if any(speaker == "loop" and open_reply(reversed(parts)).calls for (speaker, _), parts in own.items()):
        return replace(report, in_conversation=False)
    for (speaker, name), parts in own.items():
        conversation = Conversation(session[ConversationPart], session.calls, speaker, name)
        reply = open_reply(reversed(parts))
        message = {"role": "user", "content": text} if speaker == "loop" else _request(session, reply, text)
        conversation.add(ConversationPart((message,), ended=not parts[-1].is_unfinished), write="deferred")
    # In one unit with the messages.
    session[UndoMessage].log(UndoMessage(tuple(str(event.ref) for event in untold.values())), write="surely")
    return report


def _free_key(session: Session, ledger: EffectLedger, event: ToolInvoked) -> None:
    # So that the same request runs anew, also the same call in a fork; not if another call has done the same since. A
    # call that has failed and was settled later has its success in its slot alone.
    for partition in (session.session_id, ""):
        row = ledger.row(str(event.effect_key), partition=partition)
        if row is None or row.status != "done" or row.owner.session_id != session.session_id:
            continue
        owner = row.owner.call.storable
        record: Any = None if owner == event.ref.storable else session.calls.find(owner)
        if (event.success or not row.is_slot) and (record is None or not record.summary[1]):
            change_effect(ledger.store, row, None)


def _text(undos: dict[CallRef, ToolInvoked], report: UndoReport) -> str:
    if not undos:
        return ""
    lines = ["Calls of this conversation have been undone. Their results do not hold any more:"]
    for call, event in reversed(undos.items()):
        lines.append(f"- {event.name.removeprefix(UNDO_TOOL)} (call {call}): {event.result.message}")
    undone = {step.ref for step, _ in report.undone}
    if stays := [f"- {step.tool} (call {step.ref})" for step in report.plan.steps if step.ref not in undone]:
        lines += ["These calls have not been undone:", *stays]
    return "\n".join(lines)


def _request(session: Session, reply: OpenReply, text: str) -> dict[str, Any]:
    """A request of PydanticAI with a message of the user, after the answers of the open calls."""
    answers: Iterable[dict[str, Any]] = (
        {"part_kind": "tool-return", "tool_name": call.name, "tool_call_id": call.id, "content": _answer(session, ref)}
        for ref, call in reply.calls
    )
    return {"kind": "request", "parts": [*answers, {"part_kind": "user-prompt", "content": text}]}


def _answer(session: Session, ref: CallRef) -> str:
    event = session.calls.find(ref)
    return event.result.render() if isinstance(event, ToolInvoked) else "It was not carried out."
