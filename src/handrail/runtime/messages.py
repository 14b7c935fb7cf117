"""The message of a call: from its result, or from its record."""

from __future__ import annotations

from functools import partial
from typing import Any

from handrail.errors import CallIdReusedError, StoreError
from handrail.prompt import ToolResult
from handrail.prompt.tool_result import BinaryPart, TextPart
from handrail.redaction import current_redaction
from handrail.runtime.call import CallState
from handrail.runtime.calls import ToolInvoked, ToolMessage, declared_result, is_same_call
from handrail.runtime.masked_records import has_same_secrets, masked_result
from handrail.session.calls import ToolCall, shown_id


async def answer_from_record(run: CallState) -> ToolMessage | None:
    """The message of a call that has a final record; `None` for one that goes through the pipeline.

    Calls whose repeats are not recognized have none.

    Raises:
        CallIdReusedError: the identity belongs to another call, or a call without a reply has a final record.
        RecordingError: the store is unavailable.
    """
    session = run.environment.session
    if not run.has_identity:
        return None
    reads = None if session.calls.is_at_hand(run.ref) else session.store
    return await run.mode.write_to(reads, partial(_recorded, run))


def _recorded(run: CallState) -> ToolMessage | None:
    ref, environment = run.ref, run.environment
    try:
        event = environment.session.calls.find(ref)
    except StoreError as error:  # also after the handler of a call that shares its turn
        raise run.recording_error(error, "was not answered, because its record cannot be read") from error
    if not isinstance(event, ToolInvoked):
        return None
    if ref.reply is None and event.final:
        raise reused_id(event)
    is_same = is_same_call(run.call, event.call) and has_same_secrets(run.call, event, run.tool, environment)
    if ref.reply is not None and not is_same:
        raise reused_id(event, run.call)
    return _rendered(run, declared_result(run.tool, event), replayed=True) if event.final else None


def reused_id(recorded: ToolInvoked, call: ToolCall | None = None) -> CallIdReusedError:
    """The error for a call whose identity belongs to another call, or has a final record.

    Args:
        recorded: the record of that identity.
        call: the call that differs from it; `None` if a call without a reply has a final record.
    """
    when = f"recorded at {recorded.at.isoformat(timespec='seconds')}"
    if call is None:
        msg = (
            f"call {shown_id(recorded.call_id)} of session {recorded.session_id!r} (tool {recorded.name}) has a final "
            f"record, {when}. State the reply: execute(call, reply=...) answers a call that is asked again from its "
            "record; a new call needs an id of its own"
        )
    else:
        other = f"tool {call.name}" if call.name != recorded.name else "other arguments"
        msg = (
            f"call {shown_id(recorded.call_id)} of reply {shown_id(recorded.reply)} in session "
            f"{recorded.session_id!r} belongs to a call of {recorded.name}, {when}, and was repeated with "
            f"{other}. Give each reply of the model a name of its own; if the model gave several calls of it one id, "
            "pass all of them together to ToolExecutor.answer or execute_all"
        )
    return CallIdReusedError(
        msg, call_id=recorded.call_id, reply=recorded.reply, recorded_at=recorded.at, tool=recorded.name
    )


def render_message(run: CallState, result: ToolResult[Any]) -> ToolMessage:
    """Step 13: the message to the model.

    Raises:
        BaseException: the failure that ends the run, if the call had one.
    """
    if run.raises is not None:
        raise run.raises
    render = partial(_rendered, run, result, replayed=run.claim.stored is not None)
    message = render() if run.secrets is None else run.secrets.during(render)  # one that fails is logged
    return message if run.refusal is None else message._replace(refusal=run.refusal)


def _rendered(run: CallState, result: ToolResult[Any], *, replayed: bool) -> ToolMessage:
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
        from handrail.runtime.long_results import cut_text, note_cut  # noqa: PLC0415

        note_cut(environment.session, run.ref, run.call.name, len(text))
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
