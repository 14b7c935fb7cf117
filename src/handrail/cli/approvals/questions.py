"""The questions of a store: all that are open, or the one that a command names; and the answers of people to them.

A question is open until a person has answered it, a rule has decided since, or its call has a final record. A call that
waits for other calls, of its handler or of an agent that it has called, is not a question itself.

The question of an agent is stored in the session of its outermost run, also if the call belongs to a session below it;
that is the session in which the run is resumed. The question of a program's own loop is stored in the session of the
call. An answer is a row of the store until the holder of the session takes it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from types import ModuleType
from typing import Annotated, Any

from cyclopts import Parameter

from handrail.cli.ledger.show import agent_of_session
from handrail.cli.options import MORE_THAN_ZERO
from handrail.cli.sessions.show import find_session
from handrail.errors import SessionError, StoreCorruptError, UnknownTypeError
from handrail.runtime import ToolInvoked
from handrail.runtime.ledger.records import read_arguments
from handrail.serde.formatting import shorten
from handrail.serde.secrets import mask_places
from handrail.session.calls import CallRef, storable_id
from handrail.session.open_calls import (
    GivenAnswer,
    PostponedCall,
    RecordedAnswer,
    answer_in,
    answer_in_words,
    last_postponed,
    own_items,
)
from handrail.session.persistence.loading import known_items, recorded_item
from handrail.session.persistence.protocol import AnswerRow, SessionRow
from handrail.store import Store

_RECORDS_OF_AGENTS = "handrail.approval"
_LONGEST_SHOWN = 200
_MOST_NAMED = 10


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
        question = item.question
        if question is None:
            yield asked
            continue
        shown = read_arguments(question.arguments.encode())
        yield replace(
            asked,
            effect=question.effect,
            description=question.description,
            reason=question.reason,
            asks=question.asks,
            arguments=shown.arguments,
            written=shown.written,
            digest=question.digest,
            answer=item.answer,
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
    return (item.answered(answer.given, answer.last_attempt),)


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


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFilter:
    """Which open questions are meant: those that all options fit.

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
        """The open questions that fit, the oldest first.

        Args:
            store: the store.
            unreadable: gets the sessions whose questions cannot be read, with the reasons.

        Raises:
            SessionNotFoundError: the session that is named does not exist.
            StoreError: the store cannot be read.
        """
        if self.session is not None:
            find_session(store, self.session)
        now = store.now()
        questions = [each for each in stored_questions(store, self.session, unreadable) if each.answer is None]
        return sorted((each for each in questions if self._fits(store, each, now)), key=lambda each: each.asked_at)

    def _fits(self, store: Store, question: StoredQuestion, now: datetime) -> bool:
        return (
            self.tool in {None, question.tool}
            and (self.agent is None or self.agent in agents_asking(store, question))
            and (self.older_than is None or question.asked_at <= now - self.older_than)
        )


ANY_QUESTION = QuestionFilter()
"""The defaults."""


def agents_asking(store: Store, question: StoredQuestion) -> tuple[str, ...]:
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


def find_question(store: Store, session_id: str, call: str) -> StoredQuestion:
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
    row = find_session(store, session_id)
    of_session = stored_questions(store, session_id)
    matches = [each for each in of_session if is_named_by(each.call, call)]
    if len(matches) == 1:
        return matches[0]
    name = shorten(call, _LONGEST_SHOWN)
    if not matches:
        raise SessionError(_why_not_found(store, row, of_session, call))
    names = ", ".join(f"{each.call_session} {name_call(each.call)}" for each in islice(matches, _MOST_NAMED))
    raise SessionError(
        f"{len(matches)} questions of session {session_id} are about a call {name}; name one by session and call: "
        f"{names}"
    )


def name_call(call: CallRef) -> str:
    """The name of a call that no other call has: `REPLY/CALL`, and `/CALL` for one without a reply."""
    return str(call) if call.reply is not None else f"/{call}"


def shorten_call(question: StoredQuestion, among: Sequence[StoredQuestion]) -> str:
    """The shortest name of its call that the commands take: its id, unless another question has a call of that id."""
    call_id = question.call.call_id
    same = [each for each in among if (each.session_id, each.call.call_id) == (question.session_id, call_id)]
    return str(CallRef(None, call_id)) if call_id and len(same) <= 1 else name_call(question.call)


def is_named_by(call: CallRef, text: str) -> bool:
    """Whether a call is meant by a text, in one of the forms that `find_question` takes."""
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
    number = store.record_of_call(question.call_session, question.call.outermost.stored)
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
    return any(store.entries(row.session_id, until=row.head, type_name=_RECORDS_OF_AGENTS))


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
    number = store.record_of_call(question.call_session, question.call.outermost.stored)
    record = None if number is None else recorded_item(store, question.call_session, number)
    return record is not None and record.session_id == question.call_session and bool(record.final)


def _why_not_found(store: Store, row: SessionRow, questions: Iterable[StoredQuestion], call: str) -> str:
    session_id, shown = row.session_id, shorten(call, _LONGEST_SHOWN)
    if any(is_named_by(ref, call) for ref, _ in store.recorded_calls(session_id, limit=row.head)):
        return (
            f"call {shown} of session {session_id} has been carried out or refused, so there is nothing to answer; "
            f"handrail sessions show {session_id} shows its record"
        )
    names = ", ".join(name_call(each.call) for each in islice(questions, _MOST_NAMED))
    there = (
        f"its questions are about {names}" if names else "it has none; handrail approvals list shows those of others"
    )
    return f"session {session_id} has no question about a call {shown}; {there}"
