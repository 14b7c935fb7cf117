"""`handrail approvals answer`: records what a person has decided about calls that wait.

An answer is a row of the store, which is written while a run has the session open, too. What was shown is looked at
again before, because another person may have answered it, or a run may have resumed it, since; and of two rows for one
call the store takes the first. So of two answers to one question the first counts, and the other is refused. The holder
of the session takes the answer in at its next step; if no process holds the session, this command does.
"""

from __future__ import annotations

import getpass
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Annotated, Any, Literal, get_args

from cyclopts import CycloptsError, Parameter

from handrail.cli.approvals.questions import (
    ANY_QUESTION,
    QuestionFilter,
    StoredQuestion,
    answered_loop,
    check_answerable,
    find_question,
    last_attempt,
    name_call,
    shorten_call,
    stored_questions,
)
from handrail.cli.approvals.show import (
    QUESTION,
    ShownQuestion,
    print_resuming,
    report_unreadable,
    shown_questions,
)
from handrail.cli.options import AS_SET, PAGE, StoreOptions, Yes, check_can_ask
from handrail.cli.screen import Screen
from handrail.errors import HandrailError, SessionError, SessionLockedError
from handrail.redaction import redacted
from handrail.serde.formatting import count_noun
from handrail.session.open_calls import GivenAnswer, PostponedCall, RecordedAnswer, answer_row
from handrail.session.persistence.loading import append_to_logs, held_session
from handrail.session.persistence.protocol import AnswerChange
from handrail.store import Store
from handrail.transaction import UnitOfWork

GivenVerdict = Literal["yes", "no"]
"""What can be answered."""

_VERDICTS: tuple[GivenVerdict, ...] = get_args(GivenVerdict)
_WORDS = 3


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """How to answer.

    Attributes:
        reason: Why; the model reads it if the answer is no.
        remember: What else the answer holds for, in the session of an agent: later calls of the tool with exactly these
            `arguments`, or all later calls of the tool, as a `rule`. Else for this call alone.
        by: Who answers, for the record; else the name you are logged in with.
        all: Answer all open questions that --session, --agent and so on fit.
        yes: whether to do so without asking.
    """

    reason: Annotated[str, Parameter(metavar="TEXT")] = ""
    remember: Literal["arguments", "rule"] | None = None
    by: Annotated[str | None, Parameter(metavar="NAME")] = None
    all: bool = False
    yes: Yes = False

    def given(self, verdict: str) -> GivenAnswer:
        """The answer."""
        by = _user() if self.by is None else self.by
        return GivenAnswer(
            approved=verdict == "yes", reason=redacted(self.reason), by=by.strip(), remember=self.remember or "nothing"
        )


AS_ASKED = AnswerOptions()
"""The defaults."""


def answer_question(  # noqa: PLR0913 - they are its options
    session: Annotated[str | None, Parameter(metavar="SESSION")] = None,
    call: Annotated[str | None, Parameter(metavar="CALL")] = None,
    verdict: Annotated[GivenVerdict | None, Parameter(metavar="yes|no")] = None,
    /,
    *,
    how: AnswerOptions = AS_ASKED,
    wanted: QuestionFilter = ANY_QUESTION,
    options: StoreOptions = AS_SET,
) -> int:
    """Answer the question about a call: `yes`, it runs when it is resumed; `no`, it is refused then.

    The answer is stored for this call and exactly these arguments. A rule or a policy that denies the call still holds.
    With --all the questions are shown first, and you are asked; the answer is recorded for those that were shown, and
    for no others. A process that has the session open takes the answer in at its next step.

    Args:
        session: The session, as `approvals list` shows it, or that of the call.
        call: The call, as `approvals list` shows it.
        verdict: The answer; with --all it stands alone.
        how: How to show or answer it.
        wanted: Which ones.
        options: The store and the output format.
    """
    words = [word for word in (session, call, verdict) if word is not None]
    _check(words, how, wanted)
    screen = Screen()
    check_can_ask(screen, "answers several questions", yes=how.yes or not how.all)
    given = how.given(words[-1])
    with options.open(writing=True) as store:
        if how.all:
            unreadable: dict[str, str] = {}
            questions = [each for each in wanted.select(store, unreadable) if each.is_recorded]
            code = _answer_all(screen, store, questions, given, how, options)
            return max(code, report_unreadable(screen, unreadable))
        question = find_question(store, words[0], words[1])
        answered = _record(store, question.session_id, [question], given)[0]
        of_session = stored_questions(store, question.session_id)
        still_open = sum(each.answer is None for each in of_session)
        if options.as_json:
            row = ShownQuestion(store, answered, of_session, store.now())
            screen.json(QUESTION.json(row) | {"open_questions": still_open})
            return 0
    screen.say(_said(answered, of_session))
    _report_held(screen, [answered])
    if still_open:
        verb = "is" if still_open == 1 else "are"
        screen.say(f"{count_noun(still_open, 'more question')} of session {question.session_id} {verb} open.")
    print_resuming(screen, answered, store.url, others_open=bool(still_open))
    return 0


def _check(words: Sequence[str], how: AnswerOptions, wanted: QuestionFilter) -> None:
    expected = 1 if how.all else _WORDS
    if len(words) != expected or words[-1] not in _VERDICTS:
        given = (
            "--all is given, so name the verdict alone" if how.all else "name the SESSION, the CALL, and the verdict"
        )
        raise CycloptsError(msg=f"{given}: yes or no")
    if wanted != ANY_QUESTION and not how.all:
        raise CycloptsError(msg="--session, --agent, --tool and --older-than go with --all")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a process without a user name, as in a container
        return ""


# ---------------------------------------------------------------------------------------------------------- the record


def _record(
    store: Store, session_id: str, questions: Sequence[StoredQuestion], given: GivenAnswer
) -> list[StoredQuestion]:
    """Record one answer to questions of a session, in one unit; returns them as they are stored.

    Raises:
        SessionError: one of them has been answered or decided since it was shown, or cannot be answered, or has a
            secret that no process knows any more. Nothing was written.
        StoreError: the store cannot be used.
    """
    while True:
        before = stored_questions(store, session_id)
        standing = [_standing(before, each) for each in questions]
        changes = [_change(store, each, given) for each in standing]
        _check_unstored(store, session_id, standing, given)
        if store.apply(UnitOfWork(tuple(changes))) is None:
            break
        # Another person has answered meanwhile, so the questions are looked at again.
    _take_in(store, session_id)
    after = stored_questions(store, session_id)
    return [next(each for each in after if each.is_same(question)) for question in standing]


def _standing(questions: Iterable[StoredQuestion], shown: StoredQuestion) -> StoredQuestion:
    """The question as it is stored now, if it can be answered."""
    what = f"call {name_call(shown.call)} of session {shown.call_session}"
    found = next(
        (each for each in questions if (each.call_session, each.call) == (shown.call_session, shown.call)), None
    )
    if found is None:
        raise SessionError(
            f"{what} has been decided, carried out or refused meanwhile, so nothing was recorded; "
            f"handrail sessions show {shown.call_session} shows its record"
        )
    if found.answer is not None:
        by = f" ({found.answer.by})" if found.answer.by else ""
        raise SessionError(
            f"{what} has been answered already: {found.answer.reason}{by}. That answer stands; handrail approvals show "
            f"{shown.session_id} {name_call(shown.call)} says how to resume"
        )
    if not found.is_recorded:
        raise SessionError(
            f"{what} waits, and no question about it is recorded, so it cannot be answered here. Only its program can "
            "answer: run that again"
        )
    if not found.is_same(shown):
        raise SessionError(f"the question about {what} has changed since it was shown; look at it again")
    return found


def _check_unstored(store: Store, session_id: str, questions: Sequence[StoredQuestion], given: GivenAnswer) -> None:
    """Check that no yes is given to a call that cannot be made: its secrets have gone with the process that asked."""
    lacking = [each for each in questions if each.unstored] if given.approved else []
    if lacking:
        with suppress(SessionLockedError), held_session(store, session_id, wait=timedelta(0)):
            raise SessionError(
                f"call {name_call(lacking[0].call)} of session {lacking[0].call_session} cannot be made any more: the "
                f"secret at {lacking[0].unstored} is not stored, and the process that asked has closed the session. "
                "Nothing was recorded. Answer no, or run its program again: its model reads that it has to ask again"
            )


def _change(store: Store, question: StoredQuestion, given: GivenAnswer) -> AnswerChange:
    """What is written of an answer to a question that was looked at; an answer to an earlier question is replaced."""
    check_answerable(question, given)
    answer = RecordedAnswer(
        given=given,
        digest=question.digest,
        asks=question.asks,
        last_attempt=last_attempt(store, question),
        first_asked=question.first_asked,
    )
    return AnswerChange(question.row, answer_row(question.call_session, question.call, answer, store.now()))


def _take_in(store: Store, session_id: str) -> None:
    """Append the answers to the session, as its holder does; not if a process holds it, which does so itself."""
    with suppress(SessionLockedError), held_session(store, session_id, wait=timedelta(0)) as lock:
        found = [each for each in stored_questions(store, session_id) if each.session_id == session_id]
        append_to_logs(store, lock, [item for each in found if each.recorded for item in _items(each, each.recorded)])


def _items(question: StoredQuestion, answer: RecordedAnswer) -> tuple[object, ...]:
    record: Any = question.record
    if isinstance(record, PostponedCall):
        return answered_loop(record, answer)
    # The question was found with this module, so the extra that it needs is there.
    answered: tuple[object, ...] = import_module("handrail.cli.approvals.agent_questions").answered_agent(
        record, answer
    )
    return answered


# ------------------------------------------------------------------------------------------------------ several of them


def _answer_all(  # noqa: PLR0913, PLR0917 - the parts of one command
    screen: Screen,
    store: Store,
    questions: Sequence[StoredQuestion],
    given: GivenAnswer,
    how: AnswerOptions,
    options: StoreOptions,
) -> int:
    if not options.as_json:
        if not questions:
            screen.note("No open question to answer.")
            return 0
        screen.table(QUESTION.columns, shown_questions(store, questions), most=PAGE)
    count = count_noun(len(questions), "question")
    if questions and not how.yes and not screen.confirm(f"Answer {count} with {given.word}?"):
        screen.remark("Nothing was recorded.")
        return 1
    by_session: dict[str, list[StoredQuestion]] = defaultdict(list)
    for each in questions:
        by_session[each.session_id].append(each)
    answered: list[StoredQuestion] = []
    failed: dict[str, str] = {}
    for session_id, asked in by_session.items():
        try:
            answered += _record(store, session_id, asked, given)
        # One session that cannot be written to does not hold up the others.
        except HandrailError as error:
            failed[session_id] = str(error)
    if options.as_json:
        recorded = [QUESTION.json(row) for row in shown_questions(store, answered)]
        reasons = [{"session_id": session_id, "because": why} for session_id, why in failed.items()]
        screen.json({"answered": recorded, "failed": reasons})
        return 1 if failed else 0
    for each in answered:
        screen.say(f"{each.session_id}: {_said(each, answered)}")
    _report_held(screen, answered)
    for why in failed.values():
        screen.fault(why)
    return 1 if failed else 0


def _report_held(screen: Screen, answered: Iterable[StoredQuestion]) -> None:
    """Print which sessions have not taken the answers in, because a process has them open."""
    for session_id in dict.fromkeys(each.session_id for each in answered if each.recorded is not None):
        screen.say(f"A process has session {session_id} open, and takes the answer in at its next step.")


def _said(answered: StoredQuestion, among: Sequence[StoredQuestion]) -> str:
    """What was recorded, in one line."""
    given = answered.answer
    what = f"call {shorten_call(answered, among)} of {answered.tool}"
    verdict = "may run" if given is not None and given.approved else "is refused"
    return f"Recorded that {what} {verdict}: {'' if given is None else given.reason}"
