"""What is recorded of every call and emitted while one waits, and the thirteen steps that say how far a call got."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass, replace
from datetime import datetime
from enum import IntEnum
from typing import Any, ClassVar

from handrail.limits import RunContext
from handrail.prompt import ToolResult
from handrail.runtime.messages import ToolCall
from handrail.runtime.stored_calls import dump_event, load_fields
from handrail.session import SlicePolicy, stored_as
from handrail.session.calls import CallRef
from handrail.store.protocol import ClaimOwner


class Step(IntEnum):
    """The steps of the pipeline, in order; `handrail.runtime.invoke` tells what each does."""

    LOOK_UP = 1
    PARSE = 2
    TURN = 3
    POLICY = 4
    APPROVAL = 5
    DEADLINE = 6
    CLAIM = 7
    BEGIN = 8
    HANDLER = 9
    APPLY = 10
    COMMIT = 11
    RECORD = 12
    RENDER = 13


class _Form:
    """How a `ToolInvoked` is stored; see `handrail.runtime.stored_calls`."""

    @staticmethod
    def dump(event: ToolInvoked, /) -> bytes:
        return dump_event(event)

    @staticmethod
    def load(data: dict[str, Any], /) -> ToolInvoked:
        read = load_fields(data)
        if read["refused_at"] is not None:
            read["refused_at"] = Step(read["refused_at"])
        event = ToolInvoked(**read)
        return event if "final" in read else replace(event, final=_was_final(event))


@stored_as("handrail.tool_invoked", form=_Form())
@dataclass(frozen=True, slots=True)
class ToolInvoked:
    """A call has ended: one event for each call, whatever came of it. Its slice is a LOG, so no rollback takes it away.

    Attributes:
        call: what the model asked for.
        params: the parsed arguments; `None` if they did not parse, or the tool takes none.
        result: what the handler returned, or the failed result that stands for what went wrong.
        refused_at: the step that refused the call or failed; `None` for a call that succeeded.
        handler_seconds: how long the handler ran; `None` if it did not run.
        total_seconds: how long the whole call took, from its arrival, waiting included.
        effect_key: the key under which the ledger keeps the effect; `None` if it has no part in the call.
        replayed: whether the result comes from the ledger.
        session_id: the session of the call.
        run_context: the correlation ids of the run.
        at: when the call ended.
        reply: the reply of the model that asked for the call; `None` if the program did not say.
        final: whether the same call, asked again, is answered from this record. It is if the call succeeded, if the
            request itself is invalid, if a policy or an approver decided against it, or if the handler refused it by a
            failed result or `ToolValidationError`. Otherwise the same call goes through the pipeline again: after any
            other exception of the handler, and where a policy or an approver has not decided, because it raised or
            because there is no approver.
        value_read: decoded JSON from which the tool makes the value of the result, for records that come from a store;
            see `handrail.runtime.recorded_values`. `None` where the value is what it was.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    call: ToolCall
    params: Any
    result: ToolResult[Any]
    refused_at: Step | None
    handler_seconds: float | None
    total_seconds: float
    effect_key: str | None
    replayed: bool
    session_id: str
    run_context: RunContext | None
    at: datetime
    reply: str | None = None
    final: bool = True
    value_read: Any = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(*values: Any) -> ToolInvoked:  # noqa: ANN401 - the fields, in their order
        """Make one of its fields, in their order; for the pipeline, which makes one for each call.

        A frozen dataclass sets each field by a call of its own, which takes a microsecond in all. A draft with the same
        slots takes them at once, and becomes the event.
        """
        draft = _DRAFT(*values)
        draft.__class__ = ToolInvoked
        event: ToolInvoked = draft
        return event

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call.id)

    @property
    def call_id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool, as the model wrote it."""
        return self.call.name

    @property
    def success(self) -> bool:
        """Whether the call succeeded."""
        return self.result.success


@dataclass(frozen=True, slots=True)
class EffectAwaited:
    """A call waits for an effect that another process, or a handler left behind in this one, has claimed.

    Subscribers of the session are notified once for each wait, before it begins. It is not stored, and has no slice.

    Attributes:
        session_id: the session of the call that waits.
        reply: the reply of the model that asked for it; `None` if the program did not say.
        call_id: the id of the call that waits.
        tool: name of its tool.
        key: the key of the effect.
        owner: the call that has claimed the effect, and its process; maybe an earlier attempt of the call that waits.
        until: when the lease of the claim ends, aware, unless its owner renews it.
    """

    session_id: str
    reply: str | None
    call_id: str
    tool: str
    key: str
    owner: ClaimOwner
    until: datetime

    @property
    def ref(self) -> CallRef:
        """The identity of the call that waits, within its session."""
        return CallRef(self.reply, self.call_id)

    def __str__(self) -> str:
        """What is waited for, whose it is, and until when, for people."""
        owner, until = self.owner.in_words or "another call", self.until.isoformat(timespec="seconds")
        return (
            f"call {self.ref} of {self.tool} waits for effect {self.key}, which {owner} has claimed; its lease ends at "
            f"{until}, unless it is renewed"
        )


@dataclass(frozen=True, slots=True)
class ToolRaised:
    """A call has failed by an exception that the model reads as its type and message alone: for people who look for it.

    Subscribers of the session are notified before the call is recorded, after it has been rolled back. It is not
    stored, and has no slice. Refusals, and what a handler raises for the model to read, are no such exceptions.

    Attributes:
        session_id: the session of the call.
        reply: the reply of the model that asked for it; `None` if the program did not say.
        call_id: the id of the call.
        tool: name of its tool.
        error: the exception, with its traceback.
    """

    session_id: str
    reply: str | None
    call_id: str
    tool: str
    error: BaseException

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)


def _was_final(event: ToolInvoked) -> bool:
    """Whether a record is final that was written before records said so."""
    if event.refused_at in {None, Step.LOOK_UP, Step.PARSE, Step.POLICY, Step.APPROVAL}:
        return True
    return event.refused_at is Step.HANDLER and event.effect_key is None


_FIELDS = tuple(each.name for each in fields(ToolInvoked))
_DRAFT: Any = make_dataclass("_Draft", _FIELDS, slots=True)
"""Has the slots of a `ToolInvoked`, and is not frozen."""
