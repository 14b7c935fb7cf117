"""What a call records for a later undo (`handrail.undo`): before its effect, and with its commit.

A tool with `undo` registers each call before its effect is claimed, in the unit of the claim: a process that dies
between the effect and its record still leaves how the call is undone. The registration has what `capture` has read. It
is not read again for a repeat of a call whose effect has started, because the world is another one by then.

Nothing of this is done for a session that is not stored. What participants keep of a call is recorded with its commit
(`handrail.transaction.undoing`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

from pydantic_core import from_json, to_json

from handrail.errors import RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.prompt import Tool
from handrail.prompt.signature import AnyCallable, make_union, returned_type
from handrail.prompt.undo import captured_codec
from handrail.redaction import redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.execution import reading_form
from handrail.runtime.failures import CallRefusedError, describe_error
from handrail.session import Session, SlicePolicy, stored_as
from handrail.session.calls import CallRef

_log = redacted_logger("handrail.runtime")

_CURE = "capture returns what undo needs; the handler writes."


@stored_as("handrail.undo_registration")
@dataclass(frozen=True, slots=True)
class UndoRegistration:
    """A call that can be undone by the `undo` of its tool. Its slice is a LOG; the newest of a call counts.

    Attributes:
        reply, call_id: the identity of the call, as a store names it.
        tool: the tool.
        before: what its `capture` returned, as JSON; empty if that is not known.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG
    survives_reset: ClassVar[bool] = True

    reply: str | None
    call_id: str
    tool: str
    before: str


def registrations(session: Session) -> dict[CallRef, UndoRegistration]:
    """The registrations of a session, by their calls; read once, and kept with it."""
    index: dict[CallRef, UndoRegistration] | None = session.attached.get(UndoRegistration)
    if index is None:
        items = {CallRef(item.reply, item.call_id): item for item in session[UndoRegistration].all()}
        index = cast("dict[CallRef, UndoRegistration]", session.attached.setdefault(UndoRegistration, items))
    return index


async def register_undo(run: CallState, tool: Tool[Any, Any], find_started: Callable[..., Awaitable[Any]]) -> None:
    """Registers a call of a tool with `undo`, which goes into the unit that claims its effect.

    If an attempt has started the effect, of this call or of one with the same key, what was captured before that one
    is registered; nothing if that was in another session.

    Raises:
        CallRefusedError: `capture` failed, so the call could not be undone. It has not run.
        DeveloperMistake: `capture` requested an unbound resource.
    """
    session, ref = run.environment.session, run.ref.storable
    index = await run.mode.write_to(session.store, partial(registrations, session))
    if tool.capture is None:
        before = "null"
    elif (ref in index or tool.idempotency is not None) and (row := await find_started(run, tool)) is not None:
        first = index.get(row.owner.call.storable) if row.owner.session_id == session.session_id else None
        before = "" if first is None else first.before
    else:
        before = await _capture(run, tool, tool.capture)
    if ref in index and index[ref].before == before:
        return
    item = UndoRegistration(*ref, tool.name, before)
    session[UndoRegistration].log(item, write="deferred")
    index[ref] = item


async def _capture(run: CallState, tool: Tool[Any, Any], capture: AnyCallable) -> str:
    if run.plan.capture is None:
        run.plan.capture = reading_form(capture), captured_codec(capture)
    form, codec = run.plan.capture
    try:
        before = await run.read_by(form, run.params, cure=_CURE)
        is_typed = make_union([returned_type(capture)]) is not Any
        if not (is_typed or repr(from_json(to_json(before, fallback=repr))) == repr(before)):  # 1 == 1.0
            raise TypeError("JSON does not bring it back as it is; annotate what capture returns")  # noqa: TRY301
        return codec.dump_json(before).decode()
    except Exception as error:
        if isinstance(error, RunAbortedError) or mistakes_in(error):
            raise
        _log.exception("capture of %s failed", tool.name)
        what = f"{tool.name} was not run: what would undo it could not be read before it ({describe_error(error)})."
        raise CallRefusedError(what) from error
