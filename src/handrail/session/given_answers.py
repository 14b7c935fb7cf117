"""The answers of people to calls that wait, as rows of a store: they are given while a run holds the session.

A row names its call, and holds what was answered and what was asked. It changes nothing about the session. Its holder
looks for the row when the call comes to its approval step, and appends the answer to the session
(`handrail.session.postponed_calls`, `handrail.agents.approval.records`). The row stays: where it is found again, the
session has the answer already. It is replaced when a person answers another question about the same call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from handrail.errors import HandrailError, StoreCorruptError
from handrail.serde import codec
from handrail.session.call_ref import CallRef
from handrail.session.persistence.protocol import AnswerRow, SessionStore

RememberedFor = Literal["nothing", "arguments", "rule"]
"""What an answer holds for; see `handrail.agents.approval.decisions.Remember`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """The answer of a person.

    Attributes:
        approved: whether the call may run.
        reason: why, as it is typed; in an answer that is stored, with the verdict, as the model reads a no.
        by: who has answered; empty if that is not known.
        at: when it was given; `None` if that is not known.
        remember: what else it holds for.
    """

    approved: bool
    reason: str = ""
    by: str = ""
    at: datetime | None = None
    remember: RememberedFor = "nothing"

    @property
    def word(self) -> str:
        """The verdict, as it is typed."""
        return "yes" if self.approved else "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """An answer with what it is about.

    Attributes:
        given: the answer, its reason as it was typed.
        digest: names exactly the tool and the arguments that were asked about.
        asks: what policies asked.
        last_attempt: when the newest attempt of the call was recorded that came before the answer; `None` if there was
            none, and for calls of agents, where an answer holds for every attempt.
        first_asked: when the question was first stored in its session; `None` if that was not noted. After a reset of
            the session the same question is another one.
    """

    given: GivenAnswer
    digest: str
    asks: tuple[str, ...] = ()
    last_attempt: datetime | None = None
    first_asked: datetime | None = None

    def is_about(
        self,
        digest: str,
        asks: Sequence[str],
        last_attempt: datetime | None = None,
        *,
        first_asked: datetime | None = None,
    ) -> bool:
        """Whether it answers a question: the same arguments, nothing else that is asked, and no attempt since."""
        # Compared for equality: the process that has answered may have had another clock.
        if None not in {self.first_asked, first_asked} and self.first_asked != first_asked:
            return False
        return (self.digest, self.last_attempt) == (digest, last_attempt) and set(asks) <= set(self.asks)


def answer_row(session_id: str, call: CallRef, answer: RecordedAnswer, at: datetime) -> AnswerRow:
    """The row of an answer.

    Args:
        session_id: the session of the call.
        call: the call.
        answer: the answer; its time is that of the row.
        at: when it is given, by the clock of the store.
    """
    ref = call.stored
    return AnswerRow(session_id, ref.reply or "", ref.call_id, at, codec(RecordedAnswer).dump_json(answer))


def answer_in(row: AnswerRow, *, store: str) -> RecordedAnswer:
    """The answer of a row.

    Args:
        row: the row.
        store: names the store, for the error.

    Raises:
        StoreCorruptError: it cannot be read.
    """
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
    """The answer that a person has given to a call; `None` if there is none.

    Raises:
        StoreError: it cannot be read.
    """
    row = find_row(store, session_id, call)
    return None if row is None else answer_in(row, store=store.url)


def find_row(store: SessionStore, session_id: str, call: CallRef) -> AnswerRow | None:
    """The row of the answer to a call; `None` if there is none.

    Raises:
        StoreError: it cannot be read.
    """
    ref = call.stored
    return next((row for row in store.answers(session_id) if row.call == ref), None)
