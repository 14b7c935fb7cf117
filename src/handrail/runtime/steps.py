"""The steps of a call that are functions, in the order of the table in `handrail.runtime.invoke`.

The `apply` of a tool runs as its handler does, bounded by the timeout of the tool and the deadline. What it writes is
committed with the call, in one unit with the mark on the row of the effect (`handrail.runtime.ledger.replays`), and
undone with it. A call that is still open is not recorded (`handrail.runtime.approval`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Never, cast

from handrail.crash_points import reached
from handrail.errors import (
    CallPostponed,
    DeadlineExceededError,
    ParseError,
    SessionLostError,
    StoreError,
    VisibilityExpansionRequired,
)
from handrail.interrupts import allow_interrupts
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.context import CALL_CONTEXT
from handrail.prompt.tool_result import BinaryPart, TextPart
from handrail.redaction import MASK, current_redaction, redacted_logger
from handrail.runtime.call import CallState, announce_alone
from handrail.runtime.calls import (
    ToolInvoked,
    ToolMessage,
    declared_result,
    is_same_call,
    masked_result,
    masks_in,
    reused_id,
    written_arguments,
)
from handrail.runtime.execution import (
    ExecutionTimeoutError,
    await_result,
    drop_unawaited,
    is_cancellation,
    run_to_end,
)
from handrail.runtime.failures import (
    SECRETS_GONE,
    CallRefusedError,
    FinalRefusal,
    HandlerTimeoutError,
    OutcomeUnknownError,
    cannot_apply,
    handler_mismatch,
    raise_as_meant,
)
from handrail.runtime.ledger.records import started_params
from handrail.runtime.ledger.replays import Claim, UnappliedResult, is_result
from handrail.serde.formatting import enumerated, nearest, shorten
from handrail.session import OpenCall
from handrail.transaction import Transaction

if TYPE_CHECKING:
    from handrail.runtime.execution import Late
    from handrail.store.protocol import EffectRow

# Characters of an unknown name that the message repeats; names of tools have at most 64.
_LONGEST_NAME = 80

# Bytes of UTF-8 in the message for an unknown tool, however many tools there are.
_LONGEST_MESSAGE = 999

_log = redacted_logger("handrail.runtime")


# ---------------------------------------------------------------------------------------------- steps LOOK_UP and PARSE


async def unknown_tool(run: CallState) -> Never:
    """Refuses a call of an unknown tool.

    Raises:
        FinalRefusal: the message has the nearest name, and as many others as fit into 1,000 bytes.
        CallRefusedError: a closed section brings the tool.
        OutcomeUnknownError: the call was started when there was such a tool.
    """
    name = shorten(repr(run.call.name), _LONGEST_NAME)
    if await _find_started(run) is not None:
        raise _in_doubt(f"there is no tool {name} now. This call was started before")
    section = run.environment.rendering.find_closed_section(run.call.name, run.ref.reply)
    if section is not None:
        opener = run.environment.rendering.opener
        raise CallRefusedError(
            f"{run.call.name} was not run: it is a tool of the section {section}, which was closed when this reply "
            f'began. Open it with {opener}(paths=["{section}"]), and call {run.call.name} after that.'
        )
    searched = name.strip("'")
    names = [tool.name for tool in run.environment.tools] or ["none"]
    near = nearest(searched, names)
    hint = f" Did you mean {shorten(near, _LONGEST_NAME)}?" if near else ""
    text = f"there is no tool {name}.{hint} The tools are: "
    room = _LONGEST_MESSAGE - len(f"{text}.".encode(errors="surrogatepass"))
    raise FinalRefusal(f"{text}{enumerated(names, limit=room, near=searched)}.")


async def _find_started(run: CallState) -> OpenCall | None:
    recorder = run.environment.session.recorder
    if recorder is None or not run.has_identity:
        return None
    session_id = run.environment.session.session_id
    claims = await run.mode.write_to(recorder.store, partial(recorder.store.open_claims, session_id))
    return next((claim for claim in claims if claim.call.storable == run.ref.storable), None)


async def parse_arguments(run: CallState, tool: Tool[Any, Any]) -> None:
    """Parses the arguments into `run.params`.

    Raises:
        ParseError: they do not fit; the message names every fault with its path, and ends with the tool's first
            example.
        FinalRefusal: they have the mask in place of a secret, which is not stored; or a person has said no to the call.
        OutcomeUnknownError: so they have, and the call was started before.
    """
    masking = run.plan.masking
    if masking is not None:
        run.add_secrets(written_arguments(run.call), masking)
        if run.environment.settles is None:
            await _refuse_masks(run, tool)
    read_params(run, tool)
    if masking is not None:
        run.add_secrets(tool.with_secrets(run.params), masking)


def read_params(run: CallState, tool: Tool[Any, Any]) -> None:
    """Parses the arguments into `run.params`, without a look at secrets; raises as `parse_arguments`."""
    try:
        run.params = run.plan.parse(run.call.arguments)
    except ParseError as error:
        raise ParseError(f"{tool.name} was not run: {error}{_format_example(tool)}", faults=error.faults) from error


async def _refuse_masks(run: CallState, tool: Tool[Any, Any]) -> None:
    """Refuses a call that was interrupted, and lacks its secrets since: the mask is not used as one."""
    masked = masks_in(run.call, tool)
    if not masked:
        return
    effect = await _find_started(run)
    if effect is not None and effect.state == "unapplied":
        raise CallRefusedError(cannot_apply(tool.name, SECRETS_GONE))
    if effect is not None:
        raise _in_doubt(f"{tool.name} was interrupted after it had started")
    if await _has_taken_effect(run, tool):
        raise FinalRefusal(
            f"{tool.name} took effect before it was interrupted, and was not run again. Its result has been applied by "
            "hand. Do not ask for it again."
        )
    from handrail.runtime.approval import approval_refusal, recorded_answer  # noqa: PLC0415

    no = await recorded_answer(run, tool, None)
    if no is not None:
        raise approval_refusal(tool.name, no)
    raise FinalRefusal(
        f"{tool.name} was interrupted and not run: its arguments have {MASK} at {', '.join(masked)}, which stands for "
        "a secret that is not stored. Ask for it again, with the value itself."
    )


def _in_doubt(what: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{what}, and it is not known whether it took effect. It was not run again. Do not ask for it again; a person "
        "has to find out what happened."
    )


async def _has_taken_effect(run: CallState, tool: Tool[Any, Any]) -> bool:
    # A declared key needs the secrets, and answers the call that has them.
    if not run.plan.claims or tool.idempotency is not None or not run.has_identity:
        return False
    from handrail.prompt.idempotency import slot_key  # noqa: PLC0415

    ledger, session_id = run.environment.find_ledger(), run.environment.session.session_id
    row = await run.mode.write_to(ledger.units, partial(ledger.row, slot_key(run.ref), partition=session_id))
    return row is not None and (row.tool, row.status) == (tool.name, "done")


def _format_example(tool: Tool[Any, Any]) -> str:
    if tool.params_type is None:
        return "\nIt takes no arguments: send {}."
    return f"\nA call that is right: {tool.codec.dump_json(tool.examples[0].input).decode()}" if tool.examples else ""


# --------------------------------------------------------------------------------------------------------- step HANDLER


async def run_handler(run: CallState, tool: Tool[Any, Any], claim: Claim) -> ToolResult[Any]:
    """Runs the handler and checks its result, unless the claim has one; reports the state of the effect to the claim.

    An awaitable returned by a `def` handler is awaited, within the same time.

    Raises:
        CallRefusedError: there is no handler, it overran its timeout, or its result is invalid.
        DeadlineExceededError: it overran the deadline.
    """
    if claim.result is not None:
        run.record_taint()
        return claim.result
    if tool.handler is None:
        raise CallRefusedError(f"{tool.name} is declared without a handler, so it cannot be run here. Do without it.")
    now = run.environment.clock.monotonic
    start = now()
    context = run.context(claim)
    token = CALL_CONTEXT.set(context)
    try:
        reached("before-handler")
        result = await _run_bounded(run, tool, claim, partial(_call, run, tool, claim, context))
        reached("after-handler")
    # Also for Ctrl-C and cancellation: the effect may have happened, whatever ended the handler.
    except BaseException as error:
        # These prove that nothing was done, unless a call that the handler has made has raised them.
        is_proof = isinstance(error, CallPostponed | VisibilityExpansionRequired)
        is_nested = run.nested_calls and tool.external is not None and is_proof
        claim.take_error(error, unknown="a call that its handler made has ended it" if is_nested else "")
        raise_as_meant(error, tool.name)
        raise
    finally:
        CALL_CONTEXT.reset(token)
        run.handler_seconds = now() - start
        run.record_taint()
    # Before the result is checked: an effect that has happened is recorded, however invalid its result is.
    if claim.records_at_once and run.shares_store and run.turn.is_next():
        claim.records_at_once = False  # the commit follows
    if claim.records_at_once:
        await run.mode.write_to(run.environment.find_ledger().units, partial(claim.take_result, result))
    else:
        claim.take_result(result)
    if run.observer is not None and claim.is_done:
        run.observer.notify("recorded")
    return _check_result(tool, result, is_stored=run.plan.is_stored)


def _check_result(tool: Tool[Any, Any], result: object, *, is_stored: bool) -> ToolResult[Any]:
    if not is_result(result):
        raise _invalid_result(tool, f"returned a value of type {type(result).__name__} instead of a ToolResult")
    # Nearly all results are so.
    fits = type(result.value) is tool.result_type or (result.value is None and result.success is False)
    fits = fits and type(result.message) is str and type(result.success) is bool
    fault = None if fits and not result.parts else tool.result_fault(result, is_stored=is_stored)
    if fault:
        drop_unawaited(result.value)
        raise _invalid_result(tool, fault)
    return result


async def _run_bounded(
    run: CallState, tool: Tool[Any, Any], claim: Claim, body: Callable[[], Any], *, applies: bool = False
) -> object:
    """Runs the handler of a tool, or its `apply`, no longer than its timeout and until the deadline."""
    seconds, by_deadline = (None, False) if run.plan.time_limit is None else run.plan.time_limit()
    is_async = inspect.iscoroutinefunction(claim.apply) if applies else run.plan.is_async
    # The fast path: nothing to bound and no event loop to spare, so the handler is a plain call on this thread.
    if seconds is None and run.mode.inline and not is_async:
        result: Any = body()
        if result.__class__ is not ToolResult and inspect.isawaitable(result):
            result = await await_result(run.mode, result, seconds=None)
        return result
    if by_deadline and not seconds:
        raise DeadlineExceededError("the deadline has passed; it was not run")
    late: Late | None = None
    if claim.effect is not None and not applies:  # what has overrun says nothing of the secrets of the call
        take, secrets = claim.take_late_outcome, run.secrets
        late = take if secrets is None else lambda future: secrets.during(take, future)
    try:
        return await run_to_end(run.mode, body, is_async=is_async, seconds=seconds, late=late)
    except ExecutionTimeoutError as overrun:
        if by_deadline:
            msg = "the deadline passed while it ran; its changes to session and files were undone"
            raise DeadlineExceededError(msg) from overrun
        raise HandlerTimeoutError(
            f"{tool.name} was stopped after its timeout of {seconds:g} s, and its changes to session and files were "
            "undone."
        ) from overrun


def _invalid_result(tool: Tool[Any, Any], fault: str) -> CallRefusedError:
    return CallRefusedError(
        f"{tool.name} returned an invalid result: its handler {fault}. Its changes to session and files were undone; "
        "do without it."
    )


def _call(run: CallState, tool: Tool[Any, Any], claim: Claim, context: ToolContext) -> Any:  # noqa: ANN401 - whatever a handler returns
    try:
        return allow_interrupts(partial(_call_handler, tool, claim, run.params, context))
    finally:
        claim.end_handler()


def _call_handler(tool: Tool[Any, Any], claim: Claim, params: object, context: ToolContext) -> Any:  # noqa: ANN401 - as above
    claim.hand_over()  # a Ctrl-C that was held back has been raised: it does not leave the effect unknown
    handler: Any = tool.handler  # which a tool has whose calls come to this
    try:
        return handler(params, context=context)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # before the handler's first line
            raise handler_mismatch(tool, error) from error
        raise


# ----------------------------------------------------------------------------------------------------------- step APPLY


async def apply_result(
    run: CallState, tool: Tool[Any, Any], result: ToolResult[Any], claim: Claim, transaction: Transaction
) -> None:
    """Applies a successful result; an exception rolls the call back.

    The tool's `apply` runs once for each effect, policies, reducers and subscribers once for each effect and session.
    The call has the turn to write: a concurrent call has waited for earlier calls.

    Raises:
        DeveloperMistake: a policy returned an awaitable, or requested an unbound resource.
    """
    session = run.environment.session
    if run.plan.result_masking is not None:
        run.add_secrets(result.value, run.plan.result_masking)
    # A handler that only reads may still return a value that is dispatched to the session.
    if not transaction.writes:
        transaction.open_for_results(session)
    if claim.effect is not None:
        if claim.apply is not None:
            await _apply_effect(run, tool, claim, result)
        if not await _record_applied(run, claim, claim.effect):
            return
    for policy in run.plan.policies:
        on_result: Callable[..., object] = policy.on_result
        noted = await run.by_policy(policy, partial(on_result, tool, run.params, result, context=run.context(claim)))
        if noted is not None and inspect.isawaitable(noted):
            from handrail.runtime.approval import invalid_answer  # noqa: PLC0415

            expected = "None: on_result is not awaited; await in the handler"
            raise invalid_answer(f"on_result of policy {policy.name}", tool, noted, expected)
    value: object = result.value
    if hasattr(type(value), "__dataclass_fields__"):  # it is an event
        session.dispatch(value)
    if tool.sanitizes:
        from handrail.taint.policy import record_sanitized  # noqa: PLC0415

        record_sanitized(session, tool, run.ref, result.value)


async def _apply_effect(run: CallState, tool: Tool[Any, Any], claim: Claim, result: ToolResult[Any]) -> None:
    record = claim.row.arguments if isinstance(claim, UnappliedResult) else None
    params = started_params(record, run.call, run.params, tool)
    if params is None:
        raise CallRefusedError(
            f"{tool.name} was not applied: the parameters that it started with cannot be restored from their record."
        )
    context, apply = run.context(claim), cast("Callable[..., Any]", claim.apply)  # a claim that has none has no step
    token = CALL_CONTEXT.set(context)
    try:
        body = partial(allow_interrupts, partial(apply, params[0], result, context=context))
        await _run_bounded(run, tool, claim, body, applies=True)
        reached("after-apply")
    finally:
        CALL_CONTEXT.reset(token)


async def _record_applied(run: CallState, claim: Claim, effect: EffectRow) -> bool:
    from handrail.runtime.claim_step import EffectApplied  # noqa: PLC0415

    session, effect_id = run.environment.session, effect.effect_id
    # From the end: a replay mostly repeats a recent effect. A session that was resumed reads them from its store.
    if claim.result is not None and await run.mode.write_to(
        session.store, lambda: any(one.effect_id == effect_id for one in reversed(session[EffectApplied]))
    ):
        return False
    session[EffectApplied].append(EffectApplied(effect.key, effect_id))
    return True


# ---------------------------------------------------------------------------------------------------------- step RECORD


async def record_call(run: CallState, result: ToolResult[Any]) -> None:
    """Appends the event to the log, unless the commit did, and notifies its listeners; their failures are logged."""
    if run.raises is not None and run.is_unrecorded(run.raises):
        from handrail.runtime.approval import record_open_call  # noqa: PLC0415

        await record_open_call(run, run.raises)
        return
    session, event = run.environment.session, run.committed_event
    try:
        # A call that failed, or is nested, or whose session is in memory, was not recorded by its commit.
        if event is None:
            event = run.event(result)
            nested = run.turn.outer is not None
            if nested or not run.plan.is_stored:  # the record of a nested call is written with its parent
                session.slices.record(event, run.ref, nested=nested)
            else:
                await run.mode.write_to(session.store, partial(session.slices.record, event, run.ref))
        reached("after-record")
    except SessionLostError as lost:
        run.end_run(run.raises or run.recording_error(lost, "has ended, and its record was not stored"))
        return
    except BaseException as error:
        # The cancellation of its task, or the end of its loop; it is recorded by then.
        if not isinstance(error, GeneratorExit) and not is_cancellation(error):
            raise
        run.end_run(error)
    if event is not None and (run.claim.unsettled or session.slices.listens(ToolInvoked)):
        notify_listeners(run, event)


def notify_listeners(run: CallState, event: ToolInvoked) -> None:
    """Notifies reducers and subscribers of a recorded call; what they raise is logged.

    That is in its turn, if it has acquired it: they may write, in a transaction of their own; concurrently with other
    calls, only to the session. A call that ended before it was first in its turn, or whose parent has ended, releases
    its ticket before; then reducers are notified only if the session is free.
    """
    session, turn, effect = run.environment.session, run.turn, run.claim.effect
    try:
        if run.claim.unsettled and effect is not None:
            from handrail.runtime.claim_step import EffectUnsettled  # noqa: PLC0415

            session.dispatcher.dispatch(EffectUnsettled(event.session_id, *run.ref, event.name, effect.key))
        if turn.is_first and turn.ticket.runs and (turn.outer is None or turn.outer.is_open()):
            title = f"record {run.call.name}"
            with Transaction(title, ticket=turn.ticket, writes=not turn.shared, parent=turn.outer) as transaction:
                transaction.open_for_results(session)
                session.slices.announce(event)
                transaction.commit()
            return
        turn.ticket.release()
        announce_alone(session, event)
    except Exception:  # noqa: BLE001 - logged, because the call is over
        _log.exception("%s was recorded, but a reducer or subscriber failed", run.call.name)


async def answer_from_record(run: CallState) -> ToolMessage | None:
    """The message of a call that has a final record; `None` for one that goes through the pipeline.

    Raises:
        CallIdReusedError: the identity belongs to another call, or a call without a reply has a final record.
        RecordingError: the store is unavailable.
    """
    session = run.environment.session
    if not run.has_identity:
        return None
    reads = None if session.calls.is_at_hand(run.ref) else session.store
    return await run.mode.write_to(reads, partial(_find_message, run))


def _find_message(run: CallState) -> ToolMessage | None:
    ref, environment = run.ref, run.environment
    try:
        event = environment.session.calls.find(ref)
    except StoreError as error:  # also after the handler of a call that shares its turn
        raise run.recording_error(error, "was not answered, because its record cannot be read") from error
    if not isinstance(event, ToolInvoked):
        return None
    if ref.reply is None and event.final:
        raise reused_id(event)
    if ref.reply is not None and not (is_same_call(run.call, event.call) and _has_same_secrets(run, event)):
        raise reused_id(event, run.call)
    return _build_message(run, declared_result(run.tool, event), replayed=True) if event.final else None


def _has_same_secrets(run: CallState, event: ToolInvoked) -> bool:
    if event.arguments_digest is None or run.tool is None or masks_in(run.call, run.tool):
        return True
    return run.environment.digest_arguments(run.call) in {None, event.arguments_digest}


def render_message(run: CallState, result: ToolResult[Any]) -> ToolMessage:
    """Step RENDER: the message to the model; raises the failure that ends the run, if the call had one."""
    if run.raises is not None:
        raise run.raises
    render = partial(_build_message, run, result, replayed=run.claim.result is not None)
    message = render() if run.secrets is None else run.secrets.during(render)  # one that fails is logged
    return message if run.refusal is None else message._replace(refusal=run.refusal)


def _build_message(run: CallState, result: ToolResult[Any], *, replayed: bool) -> ToolMessage:
    environment = run.environment
    masked = result if run.plan.result_masking is None else masked_result(result, run.tool)
    text = masked.render()
    most = run.plan.most_characters
    parts = masked.all_parts() if result.parts else ()
    redaction = current_redaction()
    if redaction.results:
        hide = redaction.text if run.secrets is None else run.secrets.join(redaction)
        text = hide(text)
        parts = tuple(TextPart(hide(part.text)) if isinstance(part, TextPart) else part for part in parts)
    is_cut = len(text) > most
    if is_cut:
        from handrail.runtime.long_results import cut_text, record_cut  # noqa: PLC0415

        record_cut(environment.session, run.ref, run.call.name, len(text))
        text = cut_text(text, most, run.ref, environment.reader_name)
        # The cut text names all parts.
        parts = (TextPart(text), *(part for part in parts if isinstance(part, BinaryPart))) if parts else ()
    marks = None
    if environment.is_tainted:
        from handrail.taint import find_marks  # noqa: PLC0415

        marks = find_marks(environment.taints, run.ref, run.taint_place)
    if marks is not None:
        text, parts = marks.around(text), marks.around_parts(parts)
    return ToolMessage(run.call.id, text, result.success, result, replayed, is_cut, parts, marks=marks)
