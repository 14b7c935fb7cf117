"""`handrail approvals list|show`: the questions about calls that wait for a person."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple, cast

from cyclopts import Parameter

from handrail.cli.approvals.questions import (
    ANY_QUESTION,
    QuestionFilter,
    StoredQuestion,
    agents_asking,
    find_question,
    name_call,
    shorten_call,
    stored_questions,
)
from handrail.cli.entities import Entity
from handrail.cli.ledger.show import CONVERSATION, format_json
from handrail.cli.options import AS_SET, Limit, StoreOptions
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import NO_VALUE_CELL, Column, Screen, clean, format_duration, format_when
from handrail.errors import UnknownTypeError
from handrail.session.conversation import ConversationPart
from handrail.session.persistence.protocol import SessionEntry
from handrail.store import Store
from handrail.transcript.provider_messages import SaidPiece, message_pieces

_NOT_RECORDED = "not recorded"
_LAST_ENTRIES = 200
"""Among so many entries at the end of a session the reply that asked for a call is looked for."""


class ShownQuestion(NamedTuple):
    """A question as it is shown.

    Attributes:
        store: the store, which is open.
        question: the question.
        among: the questions beside it.
        now: the time of the store.
        said: the text of the reply that asks for the call.
    """

    store: Store
    question: StoredQuestion
    among: Sequence[StoredQuestion]
    now: datetime
    said: str = ""

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that called each other, down to the one whose call is asked about."""
        return agents_asking(self.store, self.question)

    @property
    def name(self) -> str:
        """The shortest name of its call that the commands take."""
        return shorten_call(self.question, self.among)

    @property
    def age(self) -> str:
        """How long ago it was asked."""
        return f"{format_duration(self.now - self.question.asked_at)} ago"

    @property
    def arguments(self) -> str:
        """The arguments whole, each on a line of its own as JSON; a path that leads through a link has its target."""
        arguments: Any = self.question.arguments
        if not isinstance(arguments, dict):
            return str(arguments)
        led = {name: f" -> {format_json(path)}" for name, path in self.question.reached.items()}
        named = cast("dict[str, Any]", arguments).items()
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}{led.get(name, '')}" for name, value in named]
        return "\n".join(map(clean, lines)) or "none"

    @property
    def answered(self) -> str:
        """The answer, and who has given it."""
        answer = self.question.answer
        return "" if answer is None else f"{answer.reason}{f' ({answer.by})' if answer.by else ''}"


def question_json(shown: ShownQuestion) -> dict[str, Any]:
    """All that is known of a question, for programs. `answerable` is false if what was asked is not recorded."""
    question, answer = shown.question, shown.question.answer
    return {
        "session_id": question.session_id,
        "call_session": question.call_session,
        "reply": question.call.reply,
        "call_id": question.call.call_id,
        "agents": list(shown.agents),
        "own_loop": not question.path,
        "tool": question.tool,
        "description": question.description or None,
        "effect": question.effect or None,
        "origin": question.origin or None,
        "asked_at": question.asked_at.isoformat(),
        "because": question.reason or None,
        "asks": list(question.asks),
        "arguments": question.arguments,
        "written": question.written,
        "reached": question.reached,
        "digest": question.digest or None,
        "answerable": question.is_recorded and answer is None,
        "answer": None
        if answer is None
        else {
            "approved": answer.approved,
            "reason": answer.reason,
            "by": answer.by or None,
            "at": None if answer.at is None else answer.at.isoformat(),
        },
    }


QUESTION: Entity[ShownQuestion] = Entity(
    "open question",
    (
        Column("session", lambda each: each.question.session_id),
        Column("call", lambda each: each.name),
        Column("agent", lambda each: "/".join(each.agents) or NO_VALUE_CELL, spare=2),
        Column("tool", lambda each: each.question.tool),
        Column("asked", lambda each: each.age),
        Column("because", lambda each: each.question.because or _NOT_RECORDED, cut=True, spare=1),
        Column(
            "arguments",
            lambda each: format_json(each.question.arguments) if each.question.is_recorded else _NOT_RECORDED,
            cut=True,
        ),
    ),
    question_json,
    (
        ("session", lambda each: each.question.session_id),
        (
            "of call",
            lambda each: "" if each.question.call_session == each.question.session_id else each.question.call_session,
        ),
        ("call", lambda each: name_call(each.question.call)),
        ("agent", lambda each: "/".join(each.agents)),
        ("tool", lambda each: each.question.tool),
        ("description", lambda each: each.question.description),
        ("effect", lambda each: each.question.effect),
        ("origin", lambda each: each.question.origin),
        ("asked", lambda each: f"{format_when(each.question.asked_at)}, {each.age}"),
        ("because", lambda each: each.question.reason or _NOT_RECORDED),
        ("policies ask", lambda each: "\n".join(each.question.asks)),
        ("arguments", lambda each: each.arguments if each.question.is_recorded else _NOT_RECORDED),
        (
            "model wrote",
            lambda each: "" if each.question.written is None else format_json(each.question.written, indent=2),
        ),
        ("model said", lambda each: each.said),
        ("answered", lambda each: each.answered),
        ("answered at", lambda each: "" if each.question.answer is None else format_when(each.question.answer.at)),
    ),
    order="oldest",
)
"""A question."""

SessionOfQuestion = Annotated[
    str, Parameter(metavar="SESSION", help="The session, as `approvals list` shows it, or that of the call.")
]
"""In which session."""

CallOfQuestion = Annotated[
    str,
    Parameter(metavar="CALL", help="The call, as `approvals list` shows it: REPLY/CALL, or an id that only one has."),
]
"""About which call."""


def list_questions(
    *,
    wanted: QuestionFilter = ANY_QUESTION,
    limit: Limit = None,
    options: StoreOptions = AS_SET,
) -> int:
    """List the questions that are open, the oldest first. All options that are given must fit.

    These are the calls of agents, and of programs with a loop of their own, that wait for an approval. A call that
    waits for something else, such as a result of its program, is listed as well; only its program can answer it.
    """
    with options.open() as store:
        unreadable: dict[str, str] = {}
        questions = shown_questions(store, wanted.select(store, unreadable))
        none = f"No open question{'' if wanted == ANY_QUESTION else ' matches'} in {store.url}."
        QUESTION.print_list(questions, limit, options, none=none)
    return report_unreadable(Screen(), unreadable)


def shown_questions(store: Store, questions: Sequence[StoredQuestion]) -> list[ShownQuestion]:
    """Questions as they are shown together.

    Raises:
        StoreError: the store cannot be read.
    """
    now = store.now()
    return [ShownQuestion(store, each, questions, now) for each in questions]


def report_unreadable(screen: Screen, unreadable: Mapping[str, str]) -> int:
    """Print the sessions that were left out, with the reasons; returns the exit code."""
    for session_id, why in unreadable.items():
        screen.fault(f"the questions of session {session_id} cannot be read: {why}")
    return FAILED if unreadable else DONE


def show_question(session: SessionOfQuestion, call: CallOfQuestion, /, *, options: StoreOptions = AS_SET) -> int:
    """Show all that is known of one question, and what an answer to it does.

    The arguments are shown whole. `model said` is the text of the reply that asks for the call.
    """
    screen = Screen()
    with options.open() as store:
        question = find_question(store, session, call)
        of_session = stored_questions(store, question.session_id)
        reply = text_of_reply(store, question)
        row = ShownQuestion(store, question, of_session, store.now(), reply)
        QUESTION.print_one(row, options, model_said=reply or None)
        url = store.url
    if options.as_json:
        return 0
    screen.say("")
    if not question.is_recorded:
        screen.say("No question about it is recorded. Only its program can answer: run that again.")
    elif question.answer is None:
        screen.say("Answer it with yes or no:")
        words = ("handrail", "approvals", "answer", question.session_id, row.name, "yes", "--store", url)
        screen.command([shlex.quote(word) for word in words])
    if question.is_recorded:
        others = [each for each in of_session if each.answer is None and not each.is_same(question)]
        print_resuming(screen, question, url, others_open=bool(others))
    return 0


def print_resuming(screen: Screen, question: StoredQuestion, url: str, *, others_open: bool) -> None:
    """Print how the call of a question is resumed; with `others_open`, so that other questions stay open."""
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


def text_of_reply(store: Store, question: StoredQuestion) -> str:
    """The text of the reply that asks for a call; empty if there is none, or if it is not found near the end."""
    row = store.find(question.call_session)
    if row is None:
        return ""
    after = max(0, row.head - _LAST_ENTRIES)
    entries = list(store.entries(row.session_id, after=after, until=row.head, type_name=CONVERSATION.name))
    for part in (part for entry in reversed(entries) for part in reversed(_parts(entry))):
        if any(ref.stored == question.call.stored for ref in part.call_refs):
            pieces = (piece for message in part.messages for piece in message_pieces(message))
            return "\n".join(piece.text for piece in pieces if isinstance(piece, SaidPiece) and piece.kind == "text")
    return ""


def _parts(entry: SessionEntry) -> list[ConversationPart]:
    # The text is only shown, so what cannot be read is left out.
    try:
        parts: list[ConversationPart] = CONVERSATION.load(entry.items, entry.type_version)
    except (ValueError, UnknownTypeError):
        return []
    return parts
