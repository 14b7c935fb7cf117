"""The answers of people to the questions of a store.

An answer is a row of the store, which is written while a run has the session open, too. What was shown is looked at
again before, because another person may have answered it, or a run may have resumed it, since; and of two rows for one
call the store takes the first. So of two answers to one question the first counts, and the other is refused. The
process that makes the call reads the answer, and records it in the session. A run of workers that waits is open then.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from handrail.errors import SessionError, SessionLockedError
from handrail.operations.questions import StoredQuestion, last_attempt, stored_questions
from handrail.operations.runs import wake_run
from handrail.operations.sessions import name_call
from handrail.redaction import redacted
from handrail.session.open_calls import GivenAnswer, RecordedAnswer, answer_row
from handrail.session.persistence.loading import held_session
from handrail.session.persistence.protocol import AnswerChange
from handrail.store import Store
from handrail.transaction import UnitOfWork


def user_name() -> str:
    """The name with which the user of this process is logged in; empty for one without, as in a container."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


def give_answer(store: Store, question: StoredQuestion, answer: GivenAnswer) -> StoredQuestion:
    """Records an answer to a question, and returns the question with it.

    Secrets in the reason are masked. If it fails, nothing was written.

    Args:
        store: the store, open for writing.
        question: the question, as it was shown.
        answer: the answer; to a question of a program's own loop it remembers nothing.

    Raises:
        SessionError: the question has been answered or decided since it was shown, or something else is asked; what it
            asks is not recorded; its call cannot be made any more; or the answer is to hold for more than it can.
    """
    answer = replace(answer, reason=redacted(answer.reason))
    session_id = question.session_id
    while True:
        current = _find_same(stored_questions(store, session_id), question)
        change = _change(store, current, answer)
        if answer.approved and current.unstored:
            _check_unstored(store, current)
        if store.apply(UnitOfWork((change,))) is None:
            break
        # Another person has answered meanwhile, so the question is looked at again.
    wake_run(store, session_id)
    # One that is not there any more has been carried out by the holder of its session meanwhile.
    after = stored_questions(store, session_id)
    return next(filter(current.is_same, after), replace(current, answer=answer))


def _find_same(questions: Iterable[StoredQuestion], question: StoredQuestion) -> StoredQuestion:
    what = f"call {name_call(question.call)} of session {question.call_session}"
    match = next(
        (other for other in questions if (other.call_session, other.call) == (question.call_session, question.call)),
        None,
    )
    if match is None or not (match.answer or match.is_same(question)):
        raise SessionError(
            f"{what} has been decided since it was shown, or something else is asked, so nothing was recorded; "
            f"handrail sessions show {question.call_session} shows it"
        )
    if match.answer is not None:
        by = f" ({match.answer.by})" if match.answer.by else ""
        raise SessionError(
            f"{what} has been answered already: {match.answer.reason}{by}. That answer stands; handrail approvals show "
            f"{question.session_id} {name_call(question.call)} says how to resume"
        )
    if not match.is_recorded:
        raise SessionError(
            f"{what} waits, and no question about it is recorded, so it cannot be answered here. Only its program can "
            "answer: run that again"
        )
    return match


def _check_unstored(store: Store, question: StoredQuestion) -> None:
    with suppress(SessionLockedError), held_session(store, question.session_id, wait=timedelta(0)):
        raise SessionError(
            f"call {name_call(question.call)} of session {question.call_session} cannot be made any more: the "
            f"secret at {question.unstored} is not stored, and the process that asked has closed the session. "
            "Nothing was recorded. Answer no, or run its program again: its model reads that it has to ask again"
        )


def _change(store: Store, question: StoredQuestion, answer: GivenAnswer) -> AnswerChange:
    if not question.path and answer.remember != "nothing":
        raise SessionError(
            f"call {question.call} of session {question.call_session} belongs to a program's own loop, where an answer "
            "holds for one call; leave out --remember"
        )
    row_answer = RecordedAnswer(
        given=answer,
        digest=question.digest,
        asks=question.asks,
        last_attempt=last_attempt(store, question),
        first_asked=question.first_asked,
    )
    return AnswerChange(question.row, answer_row(question.call_session, question.call, row_answer, store.now()))
