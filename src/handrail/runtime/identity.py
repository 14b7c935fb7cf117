"""Whether two calls of one identity are the same call: the same tool, asked for in the same words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic_core import from_json

from handrail.errors import CallIdReusedError, DumpError, SchemaError
from handrail.runtime.calls import ToolInvoked
from handrail.runtime.messages import ToolCall
from handrail.runtime.stored_calls import as_recorded
from handrail.serde import digest
from handrail.session.calls import shown_id


def written_arguments(call: ToolCall) -> object:
    """The arguments as the model wrote them, decoded; as they are if they are not JSON."""
    words: Any = call.arguments if call.written is None else call.written  # an adapter may hand over anything
    if not isinstance(words, str | bytes):
        return dict(cast("Mapping[object, object]", words)) if isinstance(words, Mapping) else words
    try:
        return from_json(words)
    except (ValueError, TypeError):  # the latter for a lone surrogate
        return words if isinstance(words, str) else words.decode(errors="backslashreplace")


def is_same_call(call: ToolCall, recorded: ToolCall) -> bool:
    """Whether a call is the one that was recorded under its identity."""
    if call.name != recorded.name:
        return False
    if call.words == recorded.words:
        return True
    try:
        return digest(written_arguments(call)) == digest(written_arguments(recorded))
    except (DumpError, SchemaError, RecursionError):  # not JSON, so the record holds them as text
        return bool(as_recorded(call.words) == as_recorded(recorded.words))


def reused_id(recorded: ToolInvoked, call: ToolCall | None = None) -> CallIdReusedError:
    """What to raise for a call whose identity stands for another one, or was used up.

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
            f"{recorded.session_id!r} stands for a call of {recorded.name}, {when}, and was asked for again with "
            f"{other}. Give each reply of the model a name of its own, and each call of a reply an id of its own"
        )
    return CallIdReusedError(
        msg, call_id=recorded.call_id, reply=recorded.reply, recorded_at=recorded.at, tool=recorded.name
    )
