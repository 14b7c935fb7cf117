"""`handrail approvals list|show`: the questions about calls that wait for a person."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, cast

from cyclopts import Parameter

from handrail.cli.approvals.questions import (
    ANY_QUESTION,
    QuestionFilter,
    agents_of,
    found_question,
    name_of,
    short_name,
    stored_questions,
)
from handrail.cli.approvals.stored_question import StoredQuestion
from handrail.cli.ledger.show import CONVERSATION
from handrail.cli.options import AS_SET, Limit, StoreOptions, paginate
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import NO_VALUE_CELL, Screen, clean, format_duration, format_when
from handrail.cli.table import Column
from handrail.errors import UnknownTypeError
from handrail.session.conversation_parts import ConversationPart
from handrail.session.persistence.protocol import SessionEntry
from handrail.session.persistence.shared_texts import read_entries
from handrail.store import Store

_COLUMNS = (
    Column("session"),
    Column("call"),
    Column("agent", spare=2),
    Column("tool"),
    Column("asked"),
    Column("because", cut=True, spare=1),
    Column("arguments", cut=True),
)

_NOT_RECORDED = "not recorded"
_LAST_ENTRIES = 200
"""Among so many entries at the end of a session the reply that asked for a call is looked for."""

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
    wanted.check()
    size = paginate(limit, options)
    screen = Screen()
    with options.open() as store:
        unreadable: dict[str, str] = {}
        found = wanted.found(store, unreadable)
        shown = list(islice(found, size))
        now = store.now()
        agents = {each.session_id: agents_of(store, each) for each in shown if not each.path}
    if options.as_json:
        for each in shown:
            screen.json(question_json(each, each.path or agents[each.session_id]), lines=True)
    elif found:
        print_questions(screen, shown, now, agents)
        if len(found) > len(shown):
            screen.note(f"These are the oldest {len(shown):,} of {len(found):,} open questions; --limit shows more.")
    else:
        screen.note(f"No open question{'' if wanted == ANY_QUESTION else ' matches'} in {store.url}.")
    return report_unreadable(screen, unreadable)


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
        question = found_question(store, session, call)
        agents = agents_of(store, question)
        said = said_with(store, question)
        of_session = stored_questions(store, question.session_id)
        now = store.now()
        url = store.url
    if options.as_json:
        screen.json(question_json(question, agents) | {"model_said": said or None})
        return 0
    screen.record(stored_question_fields(question, agents, said, now))
    screen.say("")
    if not question.is_recorded:
        screen.say("No question about it is recorded. Only its program can answer: run that again.")
    elif question.answer is None:
        screen.say("Answer it with yes or no:")
        name = short_name(question, of_session)
        screen.command(_quoted(["approvals", "answer", question.session_id, name, "yes"], url))
    if question.is_recorded:
        others = [each for each in of_session if each.answer is None and not each.is_same(question)]
        print_resuming(screen, question, url, others_open=bool(others))
    return 0


def print_questions(
    screen: Screen, questions: Sequence[StoredQuestion], now: datetime, agents: Mapping[str, tuple[str, ...]]
) -> None:
    """Print questions as a table; `agents` has those of programs with a loop of their own, by session."""
    rows = [
        (
            each.session_id,
            short_name(each, questions),
            "/".join(each.path or agents.get(each.session_id, ())) or NO_VALUE_CELL,
            each.tool,
            _age(each, now),
            each.because or _NOT_RECORDED,
            _in_line(each.arguments) if each.is_recorded else _NOT_RECORDED,
        )
        for each in questions
    ]
    screen.table(_COLUMNS, rows)


def print_resuming(screen: Screen, question: StoredQuestion, url: str, *, others_open: bool) -> None:
    """Print how the call of a question is resumed; with `others_open`, so that other questions stay open."""
    if question.answer is not None and not question.answer.approved and not question.path:
        screen.say("Its model reads that when its program is run again.")
        return
    if question.unstored:
        screen.say(
            f"The secret at {question.unstored} is not stored. The process that asked makes the call, while it has the "
            "session open; any other one has its model ask again."
        )
        return
    if not question.path:
        screen.say("Its program makes the call with the answer when it is run again.")
        return
    screen.say("The run is resumed with the answer by:")
    # Without it they are asked, and denied where there is no terminal.
    approve = "later" if others_open else "ask"
    screen.command(question.command.resuming(question.session_id, store=url, approve=approve))
    if not question.command.folder:
        screen.say("How the run was begun is not recorded: name its agent file, its model, and its --root and --rules.")


def stored_question_fields(
    question: StoredQuestion, agents: Sequence[str], said: str, now: datetime
) -> list[tuple[str, str]]:
    """All that is known of a question, for people."""
    of_call = question.call_session if question.call_session != question.session_id else ""
    answer = question.answer
    fields = [
        ("session", question.session_id),
        ("of call", of_call),
        ("call", name_of(question.call)),
        ("agent", "/".join(agents)),
        ("tool", question.tool),
        ("description", question.description),
        ("effect", question.effect),
        ("origin", question.origin),
        ("asked", _asked(question, now)),
        ("because", question.reason or _NOT_RECORDED),
        ("policies ask", "\n".join(question.asks)),
        ("arguments", _arguments(question) if question.is_recorded else _NOT_RECORDED),
        ("model wrote", "" if question.written is None else _indented(question.written)),
        ("model said", said),
        ("answered", "" if answer is None else f"{answer.reason}{f' ({answer.by})' if answer.by else ''}"),
        ("answered at", "" if answer is None else format_when(answer.at)),
    ]
    return [(name, value) for name, value in fields if value]


def question_json(question: StoredQuestion, agents: Sequence[str]) -> dict[str, Any]:
    """All that is known of a question, for programs. `answerable` is false if what was asked is not recorded."""
    answer = question.answer
    return {
        "session_id": question.session_id,
        "call_session": question.call_session,
        "reply": question.call.reply,
        "call_id": question.call.call_id,
        "agents": list(agents),
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


# ------------------------------------------------------------------------------------------------- what the model said


def said_with(store: Store, question: StoredQuestion) -> str:
    """The text of the reply that asks for a call; empty if there is none, or if it is not found near the end."""
    row = store.find(question.call_session)
    if row is None:
        return ""
    after = max(0, row.head - _LAST_ENTRIES)
    entries = read_entries(store, row.session_id, after=after, until=row.head, type_name=CONVERSATION.name)
    for part in (part for entry in reversed(entries) for part in reversed(_parts(entry))):
        if any(ref.stored == question.call.stored for ref in part.call_refs):
            return "\n".join(text for message in _mappings(part.messages) for text in _texts(message))
    return ""


def _parts(entry: SessionEntry) -> list[ConversationPart]:
    # The text is only shown, so what cannot be read is left out.
    try:
        parts: list[ConversationPart] = CONVERSATION.load(entry.items, entry.type_version)
    except (ValueError, UnknownTypeError):
        return []
    return parts


def _texts(message: Mapping[str, Any]) -> list[str]:
    """The texts in a message of a model, in the form of PydanticAI or of a provider."""
    content: Any = message.get("content")
    if isinstance(content, str):
        return [content]
    said = [part.get("content") for part in _mappings(message.get("parts")) if part.get("part_kind") == "text"]
    said += [block.get("text") for block in _mappings(content)]
    return [text for text in said if isinstance(text, str)]


def _mappings(value: object) -> list[dict[str, Any]]:
    members = cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()
    return [cast("dict[str, Any]", each) for each in members if isinstance(each, dict)]


# ---------------------------------------------------------------------------------------------------------------- texts


def _age(question: StoredQuestion, now: datetime) -> str:
    return f"{format_duration(now - question.asked_at)} ago"


def _asked(question: StoredQuestion, now: datetime) -> str:
    return f"{format_when(question.asked_at)}, {_age(question, now)}"


def _arguments(question: StoredQuestion) -> str:
    """The arguments whole, each on a line of its own as JSON; a path that leads through a link has its target."""
    arguments = question.arguments
    if not isinstance(arguments, dict):
        return str(arguments)
    led = {name: f" -> {_as_json(path)}" for name, path in question.reached.items()}
    named = cast("dict[str, Any]", arguments)
    lines = [f"{clean(name)} = {clean(_as_json(value))}{clean(led.get(name, ''))}" for name, value in named.items()]
    return "\n".join(lines) or "none"


def _in_line(value: object) -> str:
    # Arguments that were cut are a string already.
    return value if isinstance(value, str) else _as_json(value)


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _indented(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _quoted(words: Sequence[str], url: str) -> list[str]:
    return [shlex.quote(word) for word in ("handrail", *words, "--store", url)]
