"""The open calls of a session: those that its LOGs list, and postponed ones that wait for the answer of a person.

Calls that have claimed an effect are in the ledger; `Session.open_calls` puts all of them together.

An approver that leaves a question open postpones the call. A stored session then holds the question, so that another
process can show and answer it (`handrail approvals`). When the call is made again, its approval step looks for the
answer here before it asks the approver. The slice is a LOG, and the last item of a call holds:

| the last item has | the call |
|---|---|
| a question, and no answer | waits for an answer |
| a question and an answer | is to be made again, with that answer |
| neither | waits for something else: a nested call, an agent that it has called, what its handler waits for |

The answers of people are rows of a store, because they are given while a run holds the session. The holder looks for
the row when the call comes to its approval step, and appends the answer to the session (`PostponedCall`, or the
`ApprovalRecord` of agents). The row stays until a person answers another question about the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Literal

from handrail.errors import HandrailError, SessionError, StoreCorruptError
from handrail.serde import codec
from handrail.session.calls import CallRef, OpenCall, still_open
from handrail.session.conversation import ConversationPart
from handrail.session.persistence.protocol import AnswerRow, SessionRow, SessionStore
from handrail.session.persistence.stored_types import stored_as
from handrail.session.reducers import Slice
from handrail.session.slices import SlicePolicy

RememberedFor = Literal["nothing", "arguments", "rule"]
"""What an answer holds for; see `handrail.agents.approval.decisions.Remember`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """The answer of a person."""

    approved: bool  # whether the call may run
    reason: str = ""  # as it is typed; in an answer that is stored, with the verdict, as the model reads a no
    by: str = ""  # who has answered; empty if unknown
    at: datetime | None = None  # when it was given; `None` if unknown
    remember: RememberedFor = "nothing"  # what else it holds for

    @property
    def word(self) -> str:
        """The verdict, as it is typed."""
        return "yes" if self.approved else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """An answer with its question."""

    given: GivenAnswer  # the answer, its reason as it was typed
    digest: str  # names exactly the tool and the arguments
    asks: tuple[str, ...] = ()  # the questions of policies
    # When the newest attempt of the call before the answer was recorded; `None` if there was none, and for calls of
    # agents, where an answer holds for every attempt.
    last_attempt: datetime | None = None
    # When the question was first stored in its session, if known. After a reset of the session the same question is
    # another one.
    first_asked: datetime | None = None

    def is_about(
        self, digest: str, asks: Sequence[str], last_attempt: datetime | None = None, *, first_asked: datetime | None
    ) -> bool:
        """Returns whether it answers a question: the same arguments and asks, and no attempt since."""
        # Compared for equality: the process that has answered may have had another clock.
        if None not in {self.first_asked, first_asked} and self.first_asked != first_asked:
            return False
        return (self.digest, self.last_attempt) == (digest, last_attempt) and set(asks) <= set(self.asks)


def answer_row(session_id: str, call: CallRef, answer: RecordedAnswer, at: datetime) -> AnswerRow:
    """The row of an answer that is given at that time of the store's clock."""
    ref = call.storable
    return AnswerRow(session_id, ref.reply or "", ref.call_id, at, codec(RecordedAnswer).dump_json(answer))


def answer_in(row: AnswerRow, *, store: str) -> RecordedAnswer:
    """Parses the answer of a row; `store` names the store for the error; raises `StoreCorruptError`."""
    try:
        answer = codec(RecordedAnswer).parse_json(row.answer)
    except HandrailError as error:
        raise StoreCorruptError(
            f"the answer to call {row.call} of session {row.session_id!r} in {store} cannot be read: {error}. "
            "Something other than Handrail has changed it; restore the store from a copy",
            store=store,
        ) from error
    return replace(answer, given=replace(answer.given, at=row.given_at))


def find_answer(store: SessionStore, session_id: str, call: CallRef) -> RecordedAnswer | None:
    """The answer that a person has given to a call; `None` if there is none; raises `StoreError`."""
    row = next((row for row in store.answers(session_id) if row.call == call.storable), None)
    return None if row is None else answer_in(row, store=store.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallQuestion:
    """A question about a call."""

    arguments: str  # as JSON, without secrets; see `handrail.runtime.ledger.records`
    digest: str  # names exactly the tool and these arguments
    asks: tuple[str, ...]  # the questions of the policies, each with the name of its policy
    effect: str  # what the tool does to the world
    description: str = ""  # what the model reads of the tool
    reason: str = ""  # why the call was postponed, as the approver says
    written: str = ""  # names exactly the tool and the arguments as the model wrote them; empty if unknown

    def is_same(self, other: CallQuestion | None) -> bool:
        """Returns whether the question is the same; an approver may give another reason each time."""
        return other is not None and (self.digest, self.asks) == (other.digest, other.asks)


@stored_as("handrail.postponed_call")
@dataclass(frozen=True, slots=True)
class PostponedCall:
    """A call whose approver has left the question open. Its slice is a LOG; see this module."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    session_id: str
    reply: str | None  # the reply of the model; `None` if the program did not say
    call_id: str
    tool: str
    at: datetime  # when it was first postponed with this question
    question: CallQuestion | None = None  # the question; `None` if the call waits for something else
    # The answer, its reason with the verdict; `None` while the question is open. It is for one attempt of the call with
    # these arguments.
    answer: GivenAnswer | None = None
    # When the newest attempt before the answer was recorded, if any. A newer one has used the answer.
    last_attempt: datetime | None = None

    def with_answer(self, answer: GivenAnswer, last_attempt: datetime | None) -> PostponedCall:
        """The same with an answer, whose reason is as it was typed."""
        verdict = replace(answer, reason=describe_answer(answer.approved, answer.reason))
        return replace(self, answer=verdict, last_attempt=last_attempt)

    @property
    def call(self) -> CallRef:
        """The identity of the call within its session."""
        return CallRef(self.reply, self.call_id)

    @staticmethod
    def listed_calls(items: Sequence[PostponedCall]) -> Iterable[OpenCall]:
        """The postponed calls, whether or not they have been recorded since."""
        for item in last_postponed(items).values():
            # An answered call waits only for its program to make it again.
            yield OpenCall(call=item.call, tool=item.tool, state="postponed" if item.answer is None else "unrecorded")


def record_postponed(
    items: Slice[PostponedCall], ref: CallRef, tool: str, at: datetime, question: CallQuestion | None = None
) -> None:
    """Appends a postponed call to the LOG of a stored session, unless it is there with the same question.

    A call without reply and id is not appended: no record of it could be found later.

    Raises:
        SessionError: the session is closed.
        StoreError: the store cannot be read.
    """
    if not ref.is_named:
        return
    call = ref.storable if ref.call_id else ref  # an empty id is listed as it is
    last = postponed_call(items, call)
    # A question that was answered is open again: the answer did not fit, or the call has been made with it.
    if last is None or last.answer is not None or (question is not None and not question.is_same(last.question)):
        items.append(PostponedCall(items.session_id, *call, tool, at, question))


def postponed_call(items: Slice[PostponedCall], call: CallRef) -> PostponedCall | None:
    """The item that holds for a call, which is named as a store names it; `None` if it was not postponed.

    Raises:
        StoreError: the store cannot be read.
    """
    return last_postponed(own_items(items.all(), items.session_id)).get(call)


def last_postponed(items: Iterable[PostponedCall]) -> dict[CallRef, PostponedCall]:
    """The item that holds for each call, in the order in which the calls were first postponed."""
    return {item.call: item for item in items}


def describe_answer(approved: bool, reason: str) -> str:  # noqa: FBT001 - a yes or a no
    """The answer of a person as it is recorded, and as the model reads a no."""
    text = f"a person said {'yes' if approved else 'no'}"
    return f"{text}: {reason.strip()}" if reason.strip() else text


def own_items(items: Sequence[Any], session_id: str) -> list[Any]:
    """The items of a session itself, without those of the session that it was forked from."""
    return [item for item in items if getattr(item, "session_id", session_id) == session_id]


def list_open_calls(
    items: Mapping[type[Any], Sequence[Any]],
    session_id: str,
    claims: Iterable[OpenCall],
    is_settled: Callable[[CallRef], bool],
) -> tuple[OpenCall, ...]:
    """The open calls of a session; see `still_open`.

    Args:
        items: of the slices whose class has `listed_calls`. Items with a `session_id` count for that session alone.
        session_id: the session.
        claims: calls whose effects the ledger does not know to be settled.
        is_settled: whether a call has a record that answers it.
    """
    requests = [call for kind, values in items.items() for call in kind.listed_calls(own_items(values, session_id))]
    return still_open(claims, requests, is_settled)


def open_calls_in_store(store: SessionStore, row: SessionRow) -> tuple[OpenCall, ...]:
    """The open calls of a stored session as `Session.open_calls` gives them; raises as `open_work_in_store` does."""
    return open_work_in_store(store, row)[0]


def open_work_in_store(store: SessionStore, row: SessionRow) -> tuple[tuple[OpenCall, ...], bool]:
    """The open calls of a stored session, and whether a conversation of it is unfinished; it need not be opened.

    Items of unknown classes are ignored.

    Raises:
        StoreError: the store cannot be read.
    """
    from handrail.session.persistence.loading import known_items, recorded_item  # noqa: PLC0415

    def is_settled(ref: CallRef) -> bool:
        number = store.record_of_call(row.session_id, ref.storable)
        record = None if number is None else recorded_item(store, row.session_id, number)
        return record is not None and record.final

    items = known_items(store, row, lambda kind: hasattr(kind, "listed_calls"))
    calls = list_open_calls(items, row.session_id, store.open_claims(row.session_id), is_settled)
    newest = {(part.speaker, part.name): part for part in items.get(ConversationPart, ())}
    return calls, any(part.is_unfinished for part in newest.values())


def check_resettable(session_id: str, open_calls: Iterable[OpenCall]) -> None:
    """Checks that a session has no open call, which `Session.reset` would forget; raises `SessionError`."""
    if texts := [str(call) for call in open_calls]:
        raise SessionError(
            f"session {session_id!r} cannot be reset before its calls have come to their end: {'; '.join(texts)}. "
            "Ask these calls again, with ToolExecutor.answer if they are those of an open reply; "
            "ToolExecutor.settle_open applies results that are not applied; handrail ledger reconcile resolves an "
            "effect that is unknown, and records what was applied by hand; reset(with_open_calls=True) abandons them"
        )
