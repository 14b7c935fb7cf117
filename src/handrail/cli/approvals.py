"""`handrail approvals list|show|answer`: the questions about calls that wait for a person, and the answers.

An answer is a row of the store, which is written while a run has the session open, too. What was shown is looked at
again before, because another person may have answered it, or a run may have resumed it, since; and of two rows for one
call the store takes the first. So of two answers to one question the first counts, and the other is refused. The holder
of the session takes the answer in at its next step; if no process holds the session, this command does.
"""

from __future__ import annotations

import getpass
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, get_args

from cyclopts import CycloptsError, Parameter

from handrail.cli.options import PAGE, Entity, Limit, StoreOptions, Yes, check_can_ask
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.questions import (
    QuestionFilter,
    StoredQuestion,
    agents_asking,
    find_question,
    last_attempt,
    session_items,
    shorten_call,
    stored_questions,
)
from handrail.cli.screen import Field, Screen, format_duration
from handrail.cli.sessions.listing import name_call
from handrail.errors import HandrailError, SessionError, SessionLockedError
from handrail.redaction import redacted
from handrail.serde.formatting import count_noun
from handrail.session.open_calls import GivenAnswer, PostponedCall, RecordedAnswer, answer_row
from handrail.session.persistence.loading import append_to_logs, held_session
from handrail.session.persistence.protocol import AnswerChange
from handrail.store import Store
from handrail.transaction import UnitOfWork

GivenVerdict = Literal["yes", "no"]
"""The answers."""

_VERDICTS: tuple[GivenVerdict, ...] = get_args(GivenVerdict)
_WORDS = 3
_NOT_RECORDED = "not recorded"


class QuestionView(NamedTuple):
    """A question of an open store, with the questions beside it; `now` is the time of the store."""

    store: Store
    question: StoredQuestion
    among: Sequence[StoredQuestion]
    now: datetime

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that called each other, down to the one whose call is asked about."""
        return agents_asking(self.store, self.question)

    @property
    def name(self) -> str:
        """The shortest name of its call that the commands take."""
        return shorten_call(self.question, self.among)

    @property
    def answer(self) -> dict[str, Any] | None:
        """The answer, who has given it, and when."""
        if (answer := self.question.answer) is None:
            return None
        return {"approved": answer.approved, "reason": answer.reason, "by": answer.by or None, "at": answer.at}


def _text_of_answer(view: QuestionView) -> str:
    answer = view.question.answer
    return "" if answer is None else f"{answer.reason}{f' ({answer.by})' if answer.by else ''}"


def _arguments(view: QuestionView) -> Any:  # noqa: ANN401 - any value of JSON
    return view.question.arguments if view.question.is_recorded else _NOT_RECORDED


QUESTION: Entity[QuestionView] = Entity(
    "open questions",
    ("session", "call", "agent", "tool", "asked", "because", "arguments"),
    (
        Field("session", lambda view: view.question.session_id, key="session_id"),
        Field("", lambda view: view.question.call_session, key="call_session"),
        Field("call", lambda view: view.question.call.call_id, lambda view: view.name, key="call_id"),
        Field("", lambda view: view.question.call.reply, key="reply"),
        Field("agent", lambda view: list(view.agents), lambda view: "/".join(view.agents), key="agents"),
        Field("", lambda view: not view.question.path, key="own_loop"),
        Field("tool", lambda view: view.question.tool),
        Field("description", lambda view: view.question.description or None),
        Field("effect", lambda view: view.question.effect or None),
        Field("origin", lambda view: view.question.origin or None),
        Field(
            "asked",
            lambda view: view.question.asked_at,
            lambda view: f"{format_duration(view.now - view.question.asked_at)} ago",
            key="asked_at",
        ),
        Field(
            "because",
            lambda view: view.question.reason or None,
            lambda view: "; ".join(filter(None, (*view.question.asks, view.question.reason))) or None,
        ),
        Field("", lambda view: list(view.question.asks), key="asks"),
        Field("arguments", lambda view: view.question.arguments, _arguments),
        Field(
            "links lead to", lambda view: view.question.reached, lambda view: view.question.reached or None, "reached"
        ),
        Field("model wrote", lambda view: view.question.model_text, key="written"),
        Field("", lambda view: view.question.digest or None, key="digest"),
        Field("", lambda view: view.question.is_recorded and view.question.answer is None, key="answerable"),
        Field("answered", lambda view: view.answer, _text_of_answer, key="answer"),
    ),
)
"""A question. `answerable` is false if what was asked is not recorded."""


def list_questions(
    *, selection: QuestionFilter = QuestionFilter(), limit: Limit = None, options: StoreOptions = StoreOptions()
) -> int:
    """List the questions that are open, the oldest first. Filters are combined with AND.

    These are the calls of agents, and of programs with a loop of their own, that wait for an approval. A call that
    waits for something else, such as a result of its program, is listed as well; only its program can answer it.

    Example: `handrail approvals list --agent desk --older-than 2h`

    Args:
        selection: Which ones.
        limit: How many.
        options: The store and the output format.
    """
    with options.open() as store:
        unreadable: dict[str, str] = {}
        QUESTION.print_list(_views(store, selection.select(store, unreadable)), limit, options)
    return _report_unreadable(Screen(), unreadable)


def _views(store: Store, questions: Sequence[StoredQuestion]) -> list[QuestionView]:
    now = store.now()
    return [QuestionView(store, question, questions, now) for question in questions]


def _report_unreadable(screen: Screen, unreadable: Mapping[str, str]) -> int:
    for session_id, why in unreadable.items():
        screen.fault(f"the questions of session {session_id} cannot be read: {why}")
    return FAILED if unreadable else DONE


def show_question(session: str, call: str, /, *, options: StoreOptions = StoreOptions()) -> None:
    """Show all that is known of one question, and what an answer to it does.

    The arguments are shown whole.

    Example: `handrail approvals show night-desk call-4`

    Args:
        session: The session, as `approvals list` shows it, or that of the call.
        call: The call, as `approvals list` shows it: REPLY/CALL, or an id that only one has.
        options: The store and the output format.
    """
    screen = Screen()
    with options.open() as store:
        question = find_question(store, session, call)
        of_session = stored_questions(store, question.session_id)
        row = QuestionView(store, question, of_session, store.now())
        QUESTION.print_one(row, options)
        if options.as_json:
            return
        screen.say("")
        if not question.is_recorded:
            screen.say("No question about it is recorded. Only its program can answer: run that again.")
            return
        if question.answer is None:
            screen.say("Answer it with yes or no:")
            words = ("handrail", "approvals", "answer", question.session_id, row.name, "yes", "--store", store.url)
            screen.command([shlex.quote(word) for word in words])
        others = [other for other in of_session if other.answer is None and not other.is_same(question)]
        _print_resuming(screen, question, store.url, others_open=bool(others))


def _print_resuming(screen: Screen, question: StoredQuestion, url: str, *, others_open: bool) -> None:
    if question.answer is not None and not question.answer.approved and not question.path:
        screen.say("Its model reads that when its program is run again.")
    elif question.unstored:
        screen.say(
            f"The secret at {question.unstored} is not stored. The process that asked makes the call, while it has the "
            "session open; any other one has its model ask again."
        )
    elif not question.path:
        screen.say("Its program makes the call with the answer when it is run again.")
    else:
        screen.say("The run is resumed with the answer by:")
        # Without it they are asked, and denied where there is no terminal.
        approve = "later" if others_open else "ask"
        screen.command(question.command.resuming(question.session_id, store=url, approve=approve))
        if not question.command.folder:
            screen.say(
                "How the run was begun is not recorded: name its agent file, its model, and its --root and --rules."
            )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """The options of an answer.

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

    def answer(self, verdict: str) -> GivenAnswer:
        """The answer."""
        by = self.by or ""
        with suppress(OSError, KeyError, ImportError):  # a process without a user name, as in a container
            by = getpass.getuser() if self.by is None else self.by
        remember, reason = self.remember or "nothing", redacted(self.reason)
        return GivenAnswer(approved=verdict == "yes", reason=reason, by=by.strip(), remember=remember)


def answer_question(  # noqa: PLR0913 - they are its options
    session: str | None = None,
    call: str | None = None,
    verdict: Annotated[GivenVerdict | None, Parameter(metavar="yes|no")] = None,
    /,
    *,
    how: AnswerOptions = AnswerOptions(),
    selection: QuestionFilter = QuestionFilter(),
    options: StoreOptions = StoreOptions(),
) -> int:
    """Answer the question about a call: `yes`, it runs when it is resumed; `no`, it is refused then.

    The answer is stored for this call and exactly these arguments. A rule or a policy that denies the call still holds.
    With --all the questions are shown first, and you are asked; the answer is recorded for those that were shown, and
    for no others. A process that has the session open takes the answer in at its next step.

    Example: `handrail approvals answer night-desk call-4 no --reason "It was paid yesterday."`

    Args:
        session: The session, as `approvals list` shows it, or that of the call.
        call: The call, as `approvals list` shows it.
        verdict: The answer; with --all it stands alone.
        how: How to show or answer it.
        selection: Which ones.
        options: The store and the output format.
    """
    words = [word for word in (session, call, verdict) if word is not None]
    _check(words, how, selection)
    screen = Screen()
    check_can_ask(screen, "answers several questions", yes=how.yes or not how.all)
    answer = how.answer(words[-1])
    with options.open(writing=True) as store:
        if how.all:
            unreadable: dict[str, str] = {}
            questions = [question for question in selection.select(store, unreadable) if question.is_recorded]
            code = _answer_all(screen, store, questions, answer, yes=how.yes, as_json=options.as_json)
            return max(code, _report_unreadable(screen, unreadable))
        question = find_question(store, words[0], words[1])
        (stored_question,) = _record(store, question.session_id, [question], answer)
        of_session = stored_questions(store, question.session_id)
        still_open = sum(question.answer is None for question in of_session)
        if options.as_json:
            row = QuestionView(store, stored_question, of_session, store.now())
            screen.json(QUESTION.json(row) | {"open_questions": still_open})
            return DONE
    _say_recorded(screen, [stored_question], of_session)
    if still_open:
        screen.say(f"Still open in session {question.session_id}: {count_noun(still_open, 'question')}.")
    _print_resuming(screen, stored_question, store.url, others_open=bool(still_open))
    return DONE


def _check(words: Sequence[str], how: AnswerOptions, selection: QuestionFilter) -> None:
    expected = 1 if how.all else _WORDS
    if len(words) != expected or words[-1] not in _VERDICTS:
        expected_words = (
            "--all is given, so name the verdict alone" if how.all else "name the SESSION, the CALL, and the verdict"
        )
        raise CycloptsError(msg=f"{expected_words}: yes or no")
    if selection != QuestionFilter() and not how.all:
        raise CycloptsError(msg="--session, --agent, --tool and --older-than go with --all")


# ---------------------------------------------------------------------------------------------------------- the record


def _record(
    store: Store, session_id: str, questions: Sequence[StoredQuestion], answer: GivenAnswer
) -> list[StoredQuestion]:
    """Records one answer to questions of a session, in one unit; if it fails, nothing was written."""
    while True:
        before = stored_questions(store, session_id)
        current = [_find_same(before, question) for question in questions]
        changes = [_change(store, question, answer) for question in current]
        _check_unstored(store, session_id, current, answer)
        if store.apply(UnitOfWork(tuple(changes))) is None:
            break
        # Another person has answered meanwhile, so the questions are looked at again.
    _take_in(store, session_id)
    after = stored_questions(store, session_id)
    return [next(other for other in after if other.is_same(question)) for question in current]


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


def _check_unstored(store: Store, session_id: str, questions: Sequence[StoredQuestion], answer: GivenAnswer) -> None:
    question = next((question for question in questions if question.unstored), None) if answer.approved else None
    if question is not None:
        with suppress(SessionLockedError), held_session(store, session_id, wait=timedelta(0)):
            raise SessionError(
                f"call {name_call(question.call)} of session {question.call_session} cannot be made any more: the "
                f"secret at {question.unstored} is not stored, and the process that asked has closed the session. "
                "Nothing was recorded. Answer no, or run its program again: its model reads that it has to ask again"
            )


def _change(store: Store, question: StoredQuestion, answer: GivenAnswer) -> AnswerChange:
    if isinstance(question.record, PostponedCall) and answer.remember != "nothing":
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


def _take_in(store: Store, session_id: str) -> None:
    with suppress(SessionLockedError), held_session(store, session_id, wait=timedelta(0)) as lock:
        own = (entry for entry in stored_questions(store, session_id) if entry.session_id == session_id)
        answers = [(entry, entry.row_answer) for entry in own if entry.row_answer]
        append_to_logs(store, lock, [item for pair in answers for item in session_items(*pair)])


# ------------------------------------------------------------------------------------------------------ several of them


def _answer_all(  # noqa: PLR0913 - the parts of one command
    screen: Screen, store: Store, questions: Sequence[StoredQuestion], answer: GivenAnswer, *, yes: bool, as_json: bool
) -> int:
    if not as_json:
        QUESTION.table(screen, _views(store, questions), most=PAGE)
    count = count_noun(len(questions), "question")
    if questions and not yes and not screen.confirm(f"Answer {count} with {answer.word}?"):
        screen.remark("Nothing was recorded.")
        return FAILED
    by_session: dict[str, list[StoredQuestion]] = defaultdict(list)
    for question in questions:
        by_session[question.session_id].append(question)
    done: list[StoredQuestion] = []
    failures: dict[str, str] = {}
    for session_id, group in by_session.items():
        try:
            done += _record(store, session_id, group, answer)
        # One session that cannot be written to does not hold up the others.
        except HandrailError as error:
            failures[session_id] = str(error)
    if as_json:
        documents = [QUESTION.json(row) for row in _views(store, done)]
        reasons = [{"session_id": session_id, "because": why} for session_id, why in failures.items()]
        screen.json({"answered": documents, "failed": reasons})
    else:
        _say_recorded(screen, done, done)
        for why in failures.values():
            screen.fault(why)
    return FAILED if failures else DONE


def _say_recorded(screen: Screen, questions: Sequence[StoredQuestion], among: Sequence[StoredQuestion]) -> None:
    if not questions:
        screen.note("No question was answered.")
    for question in questions:
        verdict = "may run" if question.answer is not None and question.answer.approved else "is refused"
        reason = "" if question.answer is None else question.answer.reason
        what = f"call {shorten_call(question, among)} of {question.tool}"
        screen.say(f"{question.session_id}: recorded that {what} {verdict}: {reason}")
    for session_id in dict.fromkeys(question.session_id for question in questions if question.row_answer is not None):
        screen.say(f"A process has session {session_id} open, and takes the answer in at its next step.")
