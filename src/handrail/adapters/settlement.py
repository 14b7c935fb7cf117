"""Settling the effects of open calls that no call of the model will ask for again, when a session is resumed.

The reconciler of the tool is asked about an effect that is unknown. One that has not happened is failed, and its call
may run again. One that has happened is done; and the call is open: `"unapplied"`. The pipeline applies its result as
that of a call that is answered from the ledger. Policies and approvers are not asked, and no handler runs.

What was done is recorded as a call nested in the open one, named `settled`: the arguments that the model wrote are not
known here, and a call is recognized by them. Asked again, the open call is answered from the ledger. Where the
parameters that the effect began with are not known any more, as those with secrets after a restart, a person applies
the result by hand, and records that (`handrail ledger reconcile --applied`).

An effect of a nested call is left to its parent, in whose transaction its result is applied, unless the parent has a
final record: then it is not made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from handrail.adapters.loop import DeferredMistakes
from handrail.errors import ParseError
from handrail.prompt import ApprovalRequest, Tool, ToolResult
from handrail.redaction import MASK, redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.calls import ToolMessage, masks_in
from handrail.runtime.claim_step import settle_unknown
from handrail.runtime.environment import Environment
from handrail.runtime.execution import ExecutionMode
from handrail.runtime.failures import SECRETS_GONE, CallRefusedError, cannot_apply
from handrail.runtime.invoke import invoke
from handrail.runtime.ledger.effects import lease_expired
from handrail.runtime.ledger.records import is_recorded_as, read_arguments
from handrail.runtime.steps import parse_arguments
from handrail.session.calls import CallRef, OpenCall, ToolCall
from handrail.session.session import Session
from handrail.store.protocol import EffectRow
from handrail.transaction import current

_log = redacted_logger("handrail.runtime")

SETTLED = "settled"
"""The id under which the application of a result is recorded."""


@dataclass(frozen=True, slots=True)
class SettledCall:
    """An open call whose effect is known now.

    Attributes:
        message: if it is a success, the effect has happened and the result is applied; if not, it says that the effect
            has not happened, or why its result still waits.
    """

    call: CallRef
    tool: str
    message: ToolMessage


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A call that waits for an answer of a person.

    Attributes:
        call: the call.
        request: what the approver was asked; `None` if the call waits for something else.
        reason: why it was postponed, as the approver says.
    """

    call: ToolCall
    request: ApprovalRequest | None
    reason: str


@dataclass(frozen=True, slots=True)
class PendingAnswers:
    """The answer to a reply some of whose calls wait for a person. Answered again, the reply continues with these.

    Attributes:
        messages: of the calls that have been answered, in the order asked.
        questions: the calls that wait, in the order asked; at least one.
        prompt_changed: whether `executor.text` or `executor.tools` have changed meanwhile.
    """

    messages: tuple[ToolMessage, ...]
    questions: tuple[OpenQuestion, ...]
    prompt_changed: bool = False


async def settle_before_run(environment: Environment, mode: ExecutionMode) -> None:
    """Settles, before a model is asked, the calls of tools that have `apply` or `reconcile`.

    Inside a call nothing is done: its result may be applied by that call.
    """
    if environment.session.store is None or current() is not None:
        return
    placed = (tool for tool, _ in environment.prompt.template.placed_tools())
    if any(tool.apply is not None or tool.reconcile is not None for tool in placed):
        await settle_open(environment, mode)


async def settle_open(environment: Environment, mode: ExecutionMode) -> tuple[SettledCall, ...]:
    """Settles the open calls of a session one by one, as `ToolExecutor.settle_open` says."""
    outcomes: list[SettledCall] = []
    mistakes = DeferredMistakes()
    for call, row in await mode.in_thread(lambda: list(_unsettled(environment))):
        try:
            outcome = await _settle(environment, mode, call.call, row)
        except BaseException as error:  # noqa: BLE001 - raised there unless it is a mistake
            mistakes.defer(error)
            continue
        if outcome is not None:
            outcomes.append(outcome)
            if not outcome.message.success:
                _log.warning("call %s: %s", outcome.call, outcome.message.content)
    mistakes.raise_first()
    return tuple(outcomes)


def _unsettled(environment: Environment) -> Iterator[tuple[OpenCall, EffectRow]]:
    """The open calls whose effects are unknown, or done and not applied, without those left to their parents."""
    session, store, ledger = environment.session, environment.session.store, environment.find_ledger()
    if store is None or store is not ledger.units:
        return
    open_calls = {call.call: call for call in session.open_calls}
    # A nested call whose effect a person has found is not listed: the row does not show that its tool has `apply`.
    nested = [call for call in store.open_claims(session.session_id) if call.call.parent is not None]
    applying = {tool.name for tool, _ in environment.prompt.template.placed_tools() if tool.apply is not None}
    unlisted = (call for call in nested if call.call not in open_calls and call.tool in applying)
    for call in (*open_calls.values(), *unlisted):
        if call.key is None or _is_left_to_parent(session, call.call):
            continue
        for partition in (session.session_id, ""):
            row = ledger.row(call.key, partition=partition)
            if row is not None and row.owner.call == call.call and _waits(environment, row):
                yield call, row
                break


def _waits(environment: Environment, row: EffectRow) -> bool:
    if row.status == "done":
        return row.applied_at is None
    if row.status != "unknown" and not lease_expired(row, environment.find_ledger().store.now()):
        return False
    tool = _find_tool(environment, row.tool)
    return tool is not None and tool.reconcile is not None


def _is_left_to_parent(session: Session, ref: CallRef) -> bool:
    records = [session.calls.find(parent) for parent in ref.ancestors]
    return bool(records) and not any(record is not None and record.final for record in records)


async def _settle(environment: Environment, mode: ExecutionMode, ref: CallRef, row: EffectRow) -> SettledCall | None:
    """The outcome of an open call; `None` while its effect is unknown."""
    tool = _find_tool(environment, row.tool)
    arguments = None if tool is None else await mode.in_thread(partial(_find_arguments, environment, ref, row, tool))
    if tool is None or arguments is None:
        if row.status != "done":
            return None
        return _refusal(ref, row, cannot_apply(row.tool, _why_not(tool, row)))
    if environment.tool(row.tool) is None:  # its section is closed
        prompt = environment.rendered_prompt
        environment = environment.with_rendered(replace(prompt, tools=(*prompt.tools, tool)))
    name = CallRef.nested(ref, SETTLED)
    call = ToolCall(SETTLED, tool.name, arguments)
    if row.status != "done":
        asks = CallState(call, name.reply, replace(environment, settles=row), mode)
        if (outcome := await _reconcile(asks, tool, row)) is None:
            return None
        row = outcome
    if row.status == "failed":
        return _refusal(ref, row, f"{tool.name} has not taken effect, as is known now. It was not run again.")
    return SettledCall(ref, row.tool, await invoke(call, name.reply, replace(environment, settles=row), mode))


def _refusal(ref: CallRef, row: EffectRow, why: str) -> SettledCall:
    return SettledCall(ref, row.tool, ToolMessage(SETTLED, why, success=False, result=ToolResult.error(why)))


async def _reconcile(run: CallState, tool: Tool[Any, Any], row: EffectRow) -> EffectRow | None:
    try:
        await parse_arguments(run, tool)
        await run.turn.acquire(run.mode, run.environment.deadline)
        return await settle_unknown(run, tool, row)
    except CallRefusedError as error:
        _log.warning("the outcome of call %s is still unknown: %s", row.owner.call, error)
        return None
    finally:
        run.close()


def _why_not(tool: Tool[Any, Any] | None, row: EffectRow) -> str:
    if tool is None:
        return "this prompt has no tool of that name"
    if tool.masking.hides and row.arguments is not None and MASK.encode() in row.arguments:
        return SECRETS_GONE
    return "the parameters that it began with cannot be restored from their record"


def _find_tool(environment: Environment, name: str) -> Tool[Any, Any] | None:
    placed = (tool for tool, _ in environment.prompt.template.placed_tools())
    return environment.tool(name) or next((tool for tool in placed if tool.name == name), None)


def _find_arguments(
    environment: Environment, ref: CallRef, row: EffectRow, tool: Tool[Any, Any]
) -> str | bytes | Mapping[str, Any] | None:
    """Arguments that parse to the parameters of an effect: those of the call, where they are known, or the recorded."""
    if row.arguments is None:
        return None
    conversation = environment.session.conversation
    calls = [call for call in conversation.calls if (conversation.reply, call.id) == (ref.reply, ref.call_id)]
    record: Any = read_arguments(row.arguments).arguments
    # A mask would be used as the secret.
    candidates = [call.arguments for call in calls if call.name == tool.name and not masks_in(call, tool)]
    if isinstance(record, dict) and not (tool.masking.hides and MASK.encode() in row.arguments):
        candidates.append(cast("dict[str, Any]", record))  # decoded JSON
    for arguments in candidates:
        try:
            if is_recorded_as(row.arguments, tool.parse(arguments), tool.masking):
                return arguments
        except ParseError:
            continue
    return None
