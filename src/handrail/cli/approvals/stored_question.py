"""A question about a call as a store holds it, and the answer of a person to it.

The question of an agent is stored in the session of its outermost run, also if the call belongs to a session below it;
that is the session in which the run is resumed. The question of a program's own loop is stored in the session of the
call. An answer is a row of the store until the holder of the session takes it in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from handrail.errors import SessionError
from handrail.runtime.ledger.recorded_arguments import read_arguments
from handrail.serde.secrets import mask_places
from handrail.session.call_ref import CallRef
from handrail.session.given_answers import GivenAnswer, RecordedAnswer, answer_in
from handrail.session.persistence.protocol import AnswerRow
from handrail.session.postponed_calls import (
    PostponedCall,
    answer_in_words,
    call_answer,
    last_postponed,
    own_items,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQuestion:
    """A question about a call that has not been carried out.

    Attributes:
        session_id: the session in which it is stored, and which is resumed.
        call_session: the session of the call.
        call: the identity of the call there.
        path: the agents that called each other; empty for a program's own loop.
        tool: the tool.
        effect: what the tool does to the world.
        origin: where the tool comes from, in words.
        description: what the model reads of the tool; empty if it is not known.
        asked_at: when it was asked.
        first_asked: when it was first asked; a run asks again what was left open.
        reason: why it is asked; for a call of a program's own loop, why it was postponed.
        asks: what policies ask.
        arguments: the arguments as JSON has them; a string if they were cut, or cannot be shown.
        written: what the model wrote, where that differs.
        reached: the paths to which links in the arguments lead, by argument.
        digest: names exactly these arguments; empty if the call waits for something else.
        command: how the run was typed, a `RunCommand`; `None` for a program's own loop.
        answer: what has been answered; `None` as long as it is open.
        record: the item of the session that holds it.
        row: the answer to its call that is a row of the store, also one to an earlier question about the call.
        recorded: that answer, if it is to this question and the session has not taken it in yet.
    """

    session_id: str
    call_session: str
    call: CallRef
    path: tuple[str, ...] = ()
    tool: str
    effect: str = ""
    origin: str = ""
    description: str = ""
    asked_at: datetime
    first_asked: datetime | None = None
    reason: str = ""
    asks: tuple[str, ...] = ()
    arguments: Any = None
    written: Any = None
    reached: dict[str, str] = field(default_factory=dict[str, str])
    digest: str = ""
    command: Any = field(default=None, repr=False)
    answer: GivenAnswer | None = None
    record: Any = field(default=None, repr=False)
    row: AnswerRow | None = field(default=None, repr=False)
    recorded: RecordedAnswer | None = field(default=None, repr=False)

    @property
    def is_recorded(self) -> bool:
        """Whether it is known what was asked; a call that waits for something else has no question."""
        return bool(self.digest)

    @property
    def because(self) -> str:
        """Why it is asked, in one line."""
        # The reason of an agent's question names what its policies ask.
        parts = (self.reason,) if self.path and self.reason else self.asks
        return "; ".join(parts)

    @property
    def unstored(self) -> str:
        """The places of secrets among the arguments, which are not stored; empty for most calls."""
        return ", ".join(mask_places(self.arguments))

    def is_same(self, other: StoredQuestion) -> bool:
        """Whether the same is asked about the same call and arguments."""
        mine, others = ((each.call_session, each.call, each.digest, each.asks) for each in (self, other))
        return mine == others


def loop_questions(items: Sequence[PostponedCall], session_id: str) -> Iterator[StoredQuestion]:
    """The questions of a program's own loop, open and answered, and its calls that wait for something else."""
    own: list[PostponedCall] = own_items(items, session_id)
    for item in last_postponed(own).values():
        asked = StoredQuestion(
            session_id=session_id,
            call_session=session_id,
            call=item.call,
            tool=item.tool,
            asked_at=item.at,
            first_asked=item.at,
            record=item,
        )
        question, answer = item.question, item.answer
        if question is None:
            yield asked
            continue
        shown = read_arguments(question.arguments.encode())
        given = (
            None
            if answer is None
            else GivenAnswer(approved=answer.approved, reason=answer.reason, by=answer.by, at=answer.at)
        )
        yield replace(
            asked,
            effect=question.effect,
            description=question.description,
            reason=question.reason,
            asks=question.asks,
            arguments=shown.arguments,
            written=shown.written,
            digest=question.digest,
            answer=given,
        )


def with_row(question: StoredQuestion, row: AnswerRow, last_attempt: datetime | None, *, store: str) -> StoredQuestion:
    """A question with the row of an answer to its call.

    Args:
        question: the question.
        row: the row.
        last_attempt: as of `RecordedAnswer`.
        store: names the store.

    Raises:
        StoreCorruptError: the answer cannot be read.
    """
    found = replace(question, row=row)
    if question.answer is not None or not question.is_recorded:
        return found
    recorded = answer_in(row, store=store)
    if not recorded.is_about(question.digest, question.asks, last_attempt, first_asked=question.first_asked):
        return found
    given = recorded.given
    said = replace(given, reason=answer_in_words(given.approved, given.reason))
    return replace(found, answer=said, recorded=recorded)


def answered_loop(item: PostponedCall, answer: RecordedAnswer) -> tuple[PostponedCall]:
    """What a session gets of an answer to a question of a program's own loop."""
    return (replace(item, answer=call_answer(answer.given, answer.last_attempt)),)


def check_answerable(question: StoredQuestion, answer: GivenAnswer) -> None:
    """Refuse an answer that holds for later calls where no gate would look for it.

    Raises:
        SessionError: the question is that of a program's own loop.
    """
    if isinstance(question.record, PostponedCall) and answer.remember != "nothing":
        raise SessionError(
            f"call {question.call} of session {question.call_session} belongs to a program's own loop, where an answer "
            "holds for one call; leave out --remember"
        )
