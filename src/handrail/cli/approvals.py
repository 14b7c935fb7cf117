"""`handrail approvals list|show|answer`: the questions about calls that wait for a person, and the answers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from handrail.cli.options import MORE_THAN_ZERO, Entity, Limit, StoreOptions
from handrail.cli.screen import Field, Screen
from handrail.operations.answers import give_answer, user_name
from handrail.operations.questions import StoredQuestion, agents_asking, find_question, shorten_call, stored_questions
from handrail.operations.sessions import find_session
from handrail.readable import format_duration
from handrail.serde.formatting import count_noun
from handrail.session.open_calls import GivenAnswer
from handrail.session.persistence.protocol import RunRow
from handrail.store import Store

GivenVerdict = Literal["yes", "no"]
"""The answers."""

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
            "in the folder", lambda view: view.question.reached, lambda view: view.question.reached or None, "reached"
        ),
        Field("model wrote", lambda view: view.question.model_text, key="written"),
        Field("", lambda view: view.question.digest or None, key="digest"),
        Field("", lambda view: view.question.is_recorded and view.question.answer is None, key="answerable"),
        Field("answered", lambda view: view.answer, _text_of_answer, key="answer"),
    ),
)
"""A question. `answerable` is false if what was asked is not recorded."""


def list_questions(
    *,
    session: Annotated[str | None, Parameter(metavar="ID")] = None,
    older_than: Annotated[timedelta | None, MORE_THAN_ZERO] = None,
    limit: Limit = None,
    options: StoreOptions = StoreOptions(),
) -> int:
    """List the questions that are open, the oldest first. Filters are combined with AND.

    These are the calls of agents, and of programs with a loop of their own, that wait for an approval. A call that
    waits for something else, such as a result of its program, is listed as well; only its program can answer it.

    Example: `handrail approvals list --older-than 2h`

    Args:
        session: Only those of this session, and of the sessions below it.
        older_than: Only those that were asked longer ago, such as 2h or 3d.
        limit: How many.
        options: The store and the output format.
    """
    with options.open() as store:
        if session is not None:
            find_session(store, session)
        faults: list[str] = []
        now = store.now()
        last = None if older_than is None else now - older_than
        all_questions = stored_questions(store, session, faults)
        questions = sorted(
            (item for item in all_questions if item.answer is None and (last is None or item.asked_at <= last)),
            key=attrgetter("asked_at"),
        )
        views = [QuestionView(store, question, questions, now) for question in questions]
        return QUESTION.print_list(views, limit, options, faults)


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
        run = store.run(question.session_id)
        _print_resuming(screen, question, store.url, others_open=bool(others), run=run)


def _print_resuming(
    screen: Screen, question: StoredQuestion, url: str, *, others_open: bool, run: RunRow | None
) -> None:
    if run is not None and run.status in {"failed", "cancelled"}:
        screen.say(f"Its run is {run.status}, so nothing resumes it but handrail runs retry {question.session_id}.")
    elif run is not None and not question.unstored:
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
            screen.say("How its program began the run is not recorded: name its agent file, model, --root and --rules.")


def answer_question(  # noqa: PLR0913 - the options of the command
    session: str,
    call: str,
    verdict: Annotated[GivenVerdict, Parameter(metavar="yes|no")],
    /,
    *,
    reason: Annotated[str, Parameter(metavar="TEXT")] = "",
    remember: Literal["arguments", "rule"] | None = None,
    by: Annotated[str | None, Parameter(metavar="NAME")] = None,
    options: StoreOptions = StoreOptions(),
) -> None:
    """Answer the question about a call: `yes`, it runs when it is resumed; `no`, it is refused then.

    The answer is stored for this call and exactly these arguments. A rule or a policy that denies the call still holds.
    A process that has the session open takes the answer in at its next step.

    Example: `handrail approvals answer night-desk call-4 no --reason "It was paid yesterday."`

    Args:
        session: The session, as `approvals list` shows it, or that of the call.
        call: The call, as `approvals list` shows it.
        verdict: The answer.
        reason: Why; the model reads it if the answer is no.
        remember: What else the answer holds for, in the session of an agent: later calls of the tool with exactly these
            `arguments`, or all later calls of the tool, as a `rule`. Else for this call alone.
        by: Who answers, for the record; else the name you are logged in with.
        options: The store and the output format.
    """
    screen, by = Screen(), user_name() if by is None else by.strip()
    answer = GivenAnswer(approved=verdict == "yes", reason=reason, by=by, remember=remember or "nothing")
    with options.open(writing=True) as store:
        question = find_question(store, session, call)
        run = store.run(question.session_id)
        question_now = give_answer(store, question, answer)
        among = stored_questions(store, question.session_id)
        still_open = sum(question.answer is None for question in among)
        is_held = question.session_id in store.held_sessions()
        if options.as_json:
            row = QuestionView(store, question_now, among, store.now())
            screen.json(QUESTION.json(row) | {"open_questions": still_open})
            return
    _say_recorded(screen, question_now, among)
    if is_held:
        screen.say(f"A process has session {question.session_id} open, and takes the answer in at its next step.")
    if still_open:
        screen.say(f"Still open in session {question.session_id}: {count_noun(still_open, 'question')}.")
    _print_resuming(screen, question_now, store.url, others_open=bool(still_open), run=run)


def _say_recorded(screen: Screen, question: StoredQuestion, among: Sequence[StoredQuestion]) -> None:
    verdict = "may run" if question.answer is not None and question.answer.approved else "is refused"
    reason = "" if question.answer is None else question.answer.reason
    what = f"call {shorten_call(question, among)} of {question.tool}"
    screen.say(f"{question.session_id}: recorded that {what} {verdict}: {reason}")
