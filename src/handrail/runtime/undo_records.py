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

from handrail.errors import RunAbortedError
from handrail.errors.developer import mistakes_in
from handrail.prompt import Tool
from handrail.prompt.undo import captured_codec
from handrail.redaction import redacted_logger
from handrail.runtime.call import CallState
from handrail.runtime.failures import CallRefusedError, describe_error
from handrail.runtime.steps import ReadingForm, reading_form, run_reading
from handrail.serde import Codec
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
        before: what its `capture` returned, as JSON.
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


def undo_registrar(tool: Tool[Any, Any]) -> Callable[..., Awaitable[None]]:
    """What registers the calls of a tool with `undo`: its `capture` is looked at once.

    It takes a call, and what says whether an earlier attempt has started its effect. The registration goes into the
    unit that claims the effect.

    Raises, when it is called:
        CallRefusedError: `capture` failed, so the call could not be undone. It has not run.
        DeveloperMistake: `capture` requested an unbound resource.
    """
    if (capture := tool.capture) is None:
        return partial(_register, tool, _capture_nothing)
    return partial(_register, tool, partial(_capture, tool, reading_form(capture), captured_codec(capture)))


async def _register(
    tool: Tool[Any, Any],
    capture: Callable[[CallState], Awaitable[str]],
    run: CallState,
    has_started: Callable[[CallState, Tool[Any, Any]], Awaitable[bool]],
) -> None:
    session, ref = run.environment.session, run.ref.storable
    index = await run.mode.write_to(session.store, partial(registrations, session))
    if ref in index and await has_started(run, tool):
        return
    item = UndoRegistration(*ref, tool.name, await capture(run))
    session[UndoRegistration].log(item, write="deferred")
    index[ref] = item


async def _capture_nothing(_: CallState) -> str:
    return "null"


async def _capture(tool: Tool[Any, Any], form: ReadingForm, codec: Codec[Any], run: CallState) -> str:
    try:
        return codec.dump_json(await run_reading(run, tool, form, run.params, cure=_CURE)).decode()
    except Exception as error:
        if isinstance(error, RunAbortedError) or mistakes_in(error):
            raise
        _log.exception("capture of %s failed", tool.name)
        what = f"{tool.name} was not run: what would undo it could not be read before it ({describe_error(error)})."
        raise CallRefusedError(what) from error
