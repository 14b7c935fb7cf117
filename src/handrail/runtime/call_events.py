"""What is emitted and noted beside the record of a call, which `handrail.runtime.calls` has.

Most calls have none of it, so this module is imported where one is made.

| event | subscribers are notified |
|---|---|
| `EffectAwaited` | before the call waits for an effect |
| `ToolRaised` | before the call is recorded |
| `EffectUnsettled` | when it is recorded, before `ToolInvoked` |
| `EffectApplied` | never: it is an item of the session, written in the unit of the call |
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from handrail.session import stored_as
from handrail.session.calls import CallRef
from handrail.store.protocol import ClaimOwner


@dataclass(frozen=True, slots=True)
class _CallEvent:
    session_id: str
    reply: str | None
    call_id: str
    tool: str

    @property
    def ref(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)


@dataclass(frozen=True, slots=True)
class EffectAwaited(_CallEvent):
    """A call waits for an effect that another process, or a handler left behind in this one, has claimed.

    Subscribers of the session are notified once for each wait, before it begins. It is not stored, and has no slice.

    Attributes:
        session_id: the session of the call that waits.
        reply: the reply of the model that asked for it; `None` if it was not given.
        call_id: the id of the call that waits.
        tool: name of its tool.
        key: the key of the effect.
        owner: the call that has claimed the effect, and its process; possibly an earlier attempt of the waiting call.
        until: when the lease of the claim ends, aware, unless its owner renews it.
    """

    key: str
    owner: ClaimOwner
    until: datetime

    def __str__(self) -> str:
        """The effect, its owner and the end of its lease, for people."""
        owner, until = self.owner.in_words or "another call", self.until.isoformat(timespec="seconds")
        return (
            f"call {self.ref} of {self.tool} waits for effect {self.key}, which {owner} has claimed; its lease ends at "
            f"{until}, unless it is renewed"
        )


@dataclass(frozen=True, slots=True)
class EffectUnsettled(_CallEvent):
    """A call has failed, and its effect may have been applied: it is unknown, or its outcome could not be recorded.

    Subscribers of the session are notified before `ToolInvoked` of the same call, if anything listens to that. It is
    not stored, and has no slice.

    Attributes:
        session_id: the session of the call.
        reply: the reply of the model that asked for it; `None` if it was not given.
        call_id: the id of the call.
        tool: name of its tool.
        key: the key of the effect.
    """

    key: str


@dataclass(frozen=True, slots=True)
class ToolRaised(_CallEvent):
    """A call has failed by an exception of which the model reads only the type and message; carries the exception.

    Subscribers of the session are notified before the call is recorded, after it has been rolled back. It is not
    stored, and has no slice. Refusals, and exceptions that a handler raises for the model, are not reported.

    Attributes:
        session_id: the session of the call.
        reply: the reply of the model that asked for it; `None` if it was not given.
        call_id: the id of the call.
        tool: name of its tool.
        error: the exception, with its traceback.
    """

    error: BaseException


@stored_as("handrail.effect_applied")
@dataclass(frozen=True, slots=True)
class EffectApplied:
    """This session has applied the result of an effect; its slice prevents a replay from applying it twice.

    Attributes:
        key: the effect's key.
        effect_id: the effect's identity; an expired key that runs again gets a new one.
    """

    survives_reset: ClassVar[bool] = True

    key: str
    effect_id: str
