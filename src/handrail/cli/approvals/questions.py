"""Finds the questions of a store: all that are open, or the one that a command names.

A question is open until a person has answered it, a rule has decided since, or its call has a final record. A call that
waits for other calls, of its handler or of an agent that it has called, is not a question itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from types import ModuleType
from typing import Annotated, Any

from cyclopts import CycloptsError, Parameter

from handrail.cli.approvals.stored_question import StoredQuestion, loop_questions, with_row
from handrail.cli.ledger.show import agent_of_session
from handrail.cli.sessions.show import found_session
from handrail.errors import SessionError, StoreCorruptError, UnknownTypeError
from handrail.runtime import ToolInvoked
from handrail.serde.formatting import shorten
from handrail.session.call_ref import CallRef, storable_id
from handrail.session.persistence.loading import known_items, recorded_item
from handrail.session.persistence.protocol import AnswerRow, SessionRow
from handrail.session.persistence.shared_texts import read_entries
from handrail.session.postponed_calls import PostponedCall, recorded_as
from handrail.store import Store

_RECORDS_OF_AGENTS = "handrail.approval"
_LONGEST_SHOWN = 200
_MOST_NAMED = 10


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFilter:
    """Which open questions are meant: those that all options fit.

    Attributes:
        session: the session, or one below it; `None` for any.
        agent: one of the agents that called each other; `None` for any.
        tool: the tool; `None` for any.
        older_than: how long ago they were asked, at least.
    """

    session: Annotated[
        str | None, Parameter(metavar="ID", help="Only those of this session, and of the sessions below it.")
    ] = None
    agent: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            help="Only those of this agent, and of the agents that it has called; of a program's own loop, by the tag "
            "`agent` of its session.",
        ),
    ] = None
    tool: Annotated[str | None, Parameter(metavar="NAME", help="Only those about calls of this tool.")] = None
    older_than: Annotated[
        timedelta | None, Parameter(metavar="TIME", help="Only those that were asked longer ago, such as 2h or 3d.")
    ] = None

    def check(self) -> None:
        """Check the options, before the store is opened.

        Raises:
            CycloptsError: the time is not more than zero.
        """
        if self.older_than is not None and self.older_than <= timedelta(0):
            raise CycloptsError(msg=f"--older-than is {self.older_than}; it must be more than zero, such as 2h or 3d")

    def found(self, store: Store, unreadable: dict[str, str]) -> list[StoredQuestion]:
        """The open questions that fit, the oldest first.

        Args:
            store: the store.
            unreadable: gets the sessions whose questions cannot be read, with the reasons.

        Raises:
            SessionNotFoundError: the session that is named does not exist.
            StoreError: the store cannot be read.
        """
        if self.session is not None:
            found_session(store, self.session)
        now = store.now()
        found = [each for each in stored_questions(store, self.session, unreadable) if each.answer is None]
        return sorted((each for each in found if self._fits(store, each, now)), key=lambda each: each.asked_at)

    def _fits(self, store: Store, question: StoredQuestion, now: datetime) -> bool:
        return (
            self.tool in {None, question.tool}
            and (self.agent is None or self.agent in agents_of(store, question))
            and (self.older_than is None or question.asked_at <= now - self.older_than)
        )


ANY_QUESTION = QuestionFilter()
"""The defaults."""


def agents_of(store: Store, question: StoredQuestion) -> tuple[str, ...]:
    """The agents that called each other, down to the one whose call is asked about; empty if none is known."""
    if question.path:
        return question.path
    row = store.find(question.session_id)
    agent = "" if row is None else agent_of_session(store, row)
    return (agent,) if agent else ()


def stored_questions(
    store: Store, session_id: str | None = None, unreadable: dict[str, str] | None = None
) -> list[StoredQuestion]:
    """The questions about calls that have not been carried out, open and answered.

    Args:
        store: the store.
        session_id: the session in which they are stored, or to which their calls belong; `None` for any.
        unreadable: gets the sessions whose values are damaged, or of a class that has changed, with the reasons: one
            session does not hide the others. `None` to raise.

    Raises:
        ImportError: a session holds questions of agents, and the extra `agents` is not installed.
        StoreError: the store cannot be read.
    """
    rows = [row for row in store.sessions() if session_id is None or _is_related(row.session_id, session_id)]
    found: list[StoredQuestion] = []
    for row in rows:
        try:
            found += _questions_of(store, row)
        except (StoreCorruptError, UnknownTypeError) as error:
            if unreadable is None:
                raise
            unreadable[row.session_id] = str(error)
    found = list(_with_rows(store, found))
    asked = [each for each in found if each.is_recorded]
    waiting = [each for each in found if not (each.is_recorded or _waits_for_calls(store, each, asked))]
    return [each for each in (*asked, *waiting) if _is_meant(each, session_id) and not _is_settled(store, each)]


def found_question(store: Store, session_id: str, call: str) -> StoredQuestion:
    """The question about a call, open or answered.

    Args:
        store: the store.
        session_id: the session in which it is stored, or that of the call.
        call: the call as `REPLY/CALL`, as `/CALL` if it has no reply, or as its id if only one question of the session
            is about a call of that id.

    Raises:
        SessionNotFoundError: the session does not exist.
        SessionError: there is no such question, or several.
    """
    row = found_session(store, session_id)
    of_session = stored_questions(store, session_id)
    found = [each for each in of_session if is_named_by(each.call, call)]
    if len(found) == 1:
        return found[0]
    shown = shorten(call, _LONGEST_SHOWN)
    if not found:
        raise SessionError(_why_not_found(store, row, of_session, call))
    names = ", ".join(f"{each.call_session} {name_of(each.call)}" for each in islice(found, _MOST_NAMED))
    raise SessionError(
        f"{len(found)} questions of session {session_id} are about a call {shown}; name one by session and call: "
        f"{names}"
    )


def name_of(call: CallRef) -> str:
    """The name of a call that no other call has: `REPLY/CALL`, and `/CALL` for one without a reply."""
    return str(call) if call.reply is not None else f"/{call}"


def short_name(question: StoredQuestion, among: Sequence[StoredQuestion]) -> str:
    """The shortest name of its call that the commands take: its id, unless another question has a call of that id."""
    call_id = question.call.call_id
    same = [each for each in among if (each.session_id, each.call.call_id) == (question.session_id, call_id)]
    return str(CallRef(None, call_id)) if call_id and len(same) <= 1 else name_of(question.call)


def is_named_by(call: CallRef, text: str) -> bool:
    """Whether a call is meant by a text, in one of the forms that `found_question` takes."""
    parsed = CallRef.parse(text)
    if parsed.reply is None:
        return call.call_id in {text, parsed.call_id, storable_id(text)}
    return call == CallRef(parsed.reply or None, parsed.call_id).stored or call.call_id == text


def _is_related(row_id: str, session_id: str) -> bool:
    """Whether a session may hold a question of another one: it is the same, above it, or below it."""
    return row_id == session_id or row_id.startswith(f"{session_id}/") or session_id.startswith(f"{row_id}/")


def _is_meant(question: StoredQuestion, session_id: str | None) -> bool:
    ids = (question.session_id, question.call_session)
    return session_id is None or any(each == session_id or each.startswith(f"{session_id}/") for each in ids)


def _waits_for_calls(store: Store, waiting: StoredQuestion, asked: Sequence[StoredQuestion]) -> bool:
    """Whether a postponed call waits for a call of its handler that was asked about, or is that of an agent."""
    if store.find(f"{waiting.call_session}/{waiting.call.key}") is not None:
        return True
    mine = [each for each in asked if each.call_session == waiting.call_session]
    # An answered question counts as well: the call waits until it is made again.
    return any(each.call == waiting.call or waiting.call in each.call.ancestors for each in mine)


def _questions_of(store: Store, row: SessionRow) -> Iterator[StoredQuestion]:
    # Only where a session has them: what they need takes a second to be imported.
    agents = _for_agents(row) if _has_records_of_agents(store, row) else None
    kinds: tuple[type[Any], ...] = (
        (PostponedCall,) if agents is None else (PostponedCall, agents.RECORD, agents.COMMAND)
    )
    items = known_items(store, row, lambda kind: kind in kinds)
    yield from loop_questions(items.get(PostponedCall, ()), row.session_id)
    if agents is not None:
        commands = items.get(agents.COMMAND, ())
        yield from agents.agent_questions(items.get(agents.RECORD, ()), row.session_id, commands)


def last_attempt(store: Store, question: StoredQuestion) -> datetime | None:
    """When the newest attempt of the call of a program's own loop was recorded, as of `RecordedAnswer`."""
    if not isinstance(question.record, PostponedCall):
        return None
    number = store.record_of_call(question.call_session, recorded_as(question.call).stored)
    record = None if number is None else recorded_item(store, question.call_session, number)
    return record.at if isinstance(record, ToolInvoked) else None


def _with_rows(store: Store, questions: Iterable[StoredQuestion]) -> Iterator[StoredQuestion]:
    """The questions with the answers that are rows of the store."""
    rows: dict[str, dict[CallRef, AnswerRow]] = {}
    for each in questions:
        if each.call_session not in rows:
            rows[each.call_session] = {row.call: row for row in store.answers(each.call_session)}
        row = rows[each.call_session].get(each.call.stored)
        yield each if row is None else with_row(each, row, last_attempt(store, each), store=store.url)


def _has_records_of_agents(store: Store, row: SessionRow) -> bool:
    return bool(read_entries(store, row.session_id, until=row.head, type_name=_RECORDS_OF_AGENTS, limit=1))


def _for_agents(row: SessionRow) -> ModuleType:
    """The module for questions of agents.

    Raises:
        ImportError: the extra is not installed.
    """
    if any(find_spec(name) is None for name in ("pydantic_ai", "ruamel")):
        raise ImportError(
            f"session {row.session_id} holds questions of agents, and these need the extra agents, not installed here: "
            'pip install "handrail[agents]"'
        )
    return import_module("handrail.cli.approvals.agent_questions")


def _is_settled(store: Store, question: StoredQuestion) -> bool:
    """Whether the call, or the one that it is nested in, has a final record."""
    number = store.record_of_call(question.call_session, recorded_as(question.call).stored)
    record = None if number is None else recorded_item(store, question.call_session, number)
    return record is not None and record.session_id == question.call_session and bool(record.final)


def _why_not_found(store: Store, row: SessionRow, questions: Iterable[StoredQuestion], call: str) -> str:
    session_id, shown = row.session_id, shorten(call, _LONGEST_SHOWN)
    parsed = CallRef.parse(call)
    ids = {storable_id(call), storable_id(parsed.call_id)}
    recorded = (ref for each in ids for ref, _ in store.recorded_calls(session_id, limit=_MOST_NAMED, call_id=each))
    if any(is_named_by(ref, call) for ref in recorded):
        return (
            f"call {shown} of session {session_id} has been carried out or refused, so there is nothing to answer; "
            f"handrail sessions show {session_id} shows its record"
        )
    names = ", ".join(name_of(each.call) for each in islice(questions, _MOST_NAMED))
    there = (
        f"its questions are about {names}" if names else "it has none; handrail approvals list shows those of others"
    )
    return f"session {session_id} has no question about a call {shown}; {there}"
