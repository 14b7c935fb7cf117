"""Calls that wait for an approval: what was asked about them, and the answer that a person has recorded.

An approver that leaves a question open postpones the call. A stored session then holds the question, so that it can be
shown and answered by another process (`handrail approvals`). When the call is made again, its approval step looks for
the answer here before it asks the approver.

The slice is a LOG, and the last item of a call is the one that holds:

| the last item has | the call |
|---|---|
| a question, and no answer | waits for an answer |
| a question and an answer | is to be made again, with that answer |
| neither | waits for something else: a nested call, an agent that it has called, what its handler waits for |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeVar

from handrail.session.call_records import OpenCall
from handrail.session.call_ref import CallRef
from handrail.session.given_answers import GivenAnswer
from handrail.session.persistence.stored_types import stored_as
from handrail.session.slices import Slice, SlicePolicy

T = TypeVar("T")


class SessionSlices(Protocol):
    """The slices of a session, for what is below it."""

    @property
    def session_id(self) -> str:
        """The id of the session."""
        ...

    def __getitem__(self, kind: type[T], /) -> Slice[T]:
        """The slice of a type."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQuestion:
    """What was asked about a call.

    Attributes:
        arguments: the arguments of the call as JSON, without secrets; see `handrail.runtime.ledger.recorded_arguments`.
        digest: names exactly the tool and these arguments.
        asks: the questions of the policies, each with the name of its policy.
        effect: what the tool does to the world.
        description: what the model reads of the tool.
        reason: why the call was postponed, as the approver says.
    """

    arguments: str
    digest: str
    asks: tuple[str, ...]
    effect: str
    description: str = ""
    reason: str = ""

    def is_same(self, other: CallQuestion | None) -> bool:
        """Whether the same is asked about the same arguments; an approver may say it in other words each time."""
        return other is not None and (self.digest, self.asks) == (other.digest, other.asks)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer:
    """The answer of a person to a question about a call. It is for one attempt of that call with those arguments.

    Attributes:
        approved: whether the call may run.
        reason: why, in words; for a no the model reads it.
        by: who has answered; empty if that is not known.
        at: when.
        last_attempt: when the newest attempt of the call was recorded that came before the answer; `None` if there was
            none. Once there is another one, the answer has been used.
    """

    approved: bool
    reason: str
    by: str
    at: datetime
    last_attempt: datetime | None = None


@stored_as("handrail.postponed_call")
@dataclass(frozen=True, slots=True)
class PostponedCall:
    """A call was postponed: an approver has left the question open. Its slice is a LOG; see the head of this module.

    Attributes:
        session_id: the session of the call.
        reply: the reply of the model that asked for the call; `None` if the program did not say.
        call_id: the id of the call.
        tool: name of the tool.
        at: when it was first postponed with this question.
        question: what was asked; `None` if the call waits for something else.
        answer: what a person has answered; `None` as long as the question is open.
    """

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    session_id: str
    reply: str | None
    call_id: str
    tool: str
    at: datetime
    question: CallQuestion | None = None
    answer: CallAnswer | None = None

    @property
    def call(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)

    @staticmethod
    def listed_calls(items: Sequence[PostponedCall]) -> Iterable[OpenCall]:
        """The calls that were postponed, whether or not they have been recorded since."""
        for item in last_postponed(items).values():
            # An answered call waits only for its program to make it again.
            yield OpenCall(call=item.call, tool=item.tool, state="postponed" if item.answer is None else "unrecorded")


def note_postponed(
    session: SessionSlices, ref: CallRef, tool: str, at: datetime, question: CallQuestion | None = None
) -> None:
    """Append a postponed call to the LOG of a stored session, unless it is there with the same question.

    Nothing is appended for a call without reply and id: no record of it could be found later.

    Raises:
        SessionError: the session is closed.
        StoreError: the store cannot be read.
    """
    if not ref.is_named:
        return
    stored = ref.stored if ref.call_id else ref  # an empty id is listed as it is
    last = postponed_call(session, stored)
    # A question that was answered is open again: the answer did not fit, or the call has been made with it.
    if last is None or last.answer is not None or (question is not None and not question.is_same(last.question)):
        session[PostponedCall].append(PostponedCall(session.session_id, *stored, tool, at, question))


def postponed_call(session: SessionSlices, stored: CallRef) -> PostponedCall | None:
    """The item that holds for a call of a session; `None` if it was not postponed.

    Args:
        session: the session.
        stored: the call, as a store names it.

    Raises:
        StoreError: the store cannot be read.
    """
    items: list[PostponedCall] = own_items(session[PostponedCall].all(), session.session_id)
    return next((item for item in reversed(items) if item.call == stored), None)


def last_postponed(items: Iterable[PostponedCall]) -> dict[CallRef, PostponedCall]:
    """The item that holds for each call, in the order in which the calls were first postponed."""
    return {item.call: item for item in items}


def recorded_as(call: CallRef) -> CallRef:
    """The call whose record says that a call has been made: itself, or for a nested one the outermost."""
    return (call, *call.ancestors)[-1]


def answer_in_words(approved: bool, reason: str) -> str:  # noqa: FBT001 - a yes or a no
    """The answer of a person as it is recorded, and as the model reads a no."""
    said = f"a person said {'yes' if approved else 'no'}"
    return f"{said}: {reason.strip()}" if reason.strip() else said


def call_answer(given: GivenAnswer, last_attempt: datetime | None) -> CallAnswer:
    """What a session gets of an answer to a question of a program's own loop.

    Args:
        given: the answer, its reason as it was typed.
        last_attempt: as of `CallAnswer`.

    Raises:
        ValueError: the time of the answer is not known.
    """
    if given.at is None:
        raise ValueError("an answer is recorded with its time")
    reason = answer_in_words(given.approved, given.reason)
    return CallAnswer(approved=given.approved, reason=reason, by=given.by, at=given.at, last_attempt=last_attempt)


def own_items(items: Sequence[Any], session_id: str) -> list[Any]:
    """The items that belong to a session, and not to the one that it was forked from."""
    return [item for item in items if getattr(item, "session_id", session_id) == session_id]
