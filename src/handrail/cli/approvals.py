"""`handrail approvals list|show|answer`: the questions about calls that wait for a person, and the answers."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple, get_args

from cyclopts import CycloptsError, Parameter

from handrail.cli.options import MORE_THAN_ZERO, PAGE, Entity, Limit, StoreOptions, Yes, check_can_ask
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Field, Screen
from handrail.errors import HandrailError
from handrail.operations.answers import give_answer, user_name
from handrail.operations.questions import StoredQuestion, agents_asking, find_question, shorten_call, stored_questions
from handrail.operations.sessions import find_session
from handrail.readable import format_duration
from handrail.serde.formatting import count_noun
from handrail.session.open_calls import GivenAnswer
from handrail.store import Store

GivenVerdict = Literal["yes", "no"]
"""The answers."""

_VERDICTS: tuple[GivenVerdict, ...] = get_args(GivenVerdict)
_WORDS = 3
_NOT_RECORDED = "not recorded"


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFilter:
    """Which open questions are meant; filters are combined with AND.

    Attributes:
        session: Only those of this session, and of the sessions below it.
        agent: Only those of this agent, and of the agents that it has called; of a program's own loop, by the tag
            `agent` of its session.
        tool: Only those about calls of this tool.
        older_than: Only those that were asked longer ago, such as 2h or 3d.
    """

    session: Annotated[str | None, Parameter(metavar="ID")] = None
    agent: Annotated[str | None, Parameter(metavar="NAME")] = None
    tool: Annotated[str | None, Parameter(metavar="NAME")] = None
    older_than: Annotated[timedelta | None, MORE_THAN_ZERO] = None

    def select(self, store: Store, unreadable: dict[str, str]) -> list[StoredQuestion]:
        """The open questions that fit, the oldest first; `unreadable` gets the unreadable sessions, with reasons."""
        if self.session is not None:
            find_session(store, self.session)
        now = store.now()
        questions = stored_questions(store, self.session, unreadable)
        fitting = (item for item in questions if item.answer is None and self._fits(store, item, now))
        return sorted(fitting, key=attrgetter("asked_at"))

    def _fits(self, store: Store, question: StoredQuestion, now: datetime) -> bool:
        return (
            self.tool in {None, question.tool}
            and (self.agent is None or self.agent in agents_asking(store, question))
            and (self.older_than is None or question.asked_at <= now - self.older_than)
        )


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
        has_workers = store.run(question.session_id) is not None
        _print_resuming(screen, question, store.url, others_open=bool(others), has_workers=has_workers)


def _print_resuming(
    screen: Screen, question: StoredQuestion, url: str, *, others_open: bool, has_workers: bool
) -> None:
    if has_workers and not question.unstored:
        screen.say("Its workers resume the run with the answer.")
    elif question.answer is not None and not question.answer.approved and not question.path:
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
        by = user_name() if self.by is None else self.by
        remember = self.remember or "nothing"
        return GivenAnswer(approved=verdict == "yes", reason=self.reason, by=by.strip(), remember=remember)


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
        has_workers = store.run(question.session_id) is not None
        (stored_question,) = give_answer(store, question.session_id, [question], answer)
        of_session = stored_questions(store, question.session_id)
        still_open = sum(question.answer is None for question in of_session)
        if options.as_json:
            row = QuestionView(store, stored_question, of_session, store.now())
            screen.json(QUESTION.json(row) | {"open_questions": still_open})
            return DONE
    _say_recorded(screen, [stored_question], of_session)
    if still_open:
        screen.say(f"Still open in session {question.session_id}: {count_noun(still_open, 'question')}.")
    _print_resuming(screen, stored_question, store.url, others_open=bool(still_open), has_workers=has_workers)
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
            done += give_answer(store, session_id, group, answer)
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
