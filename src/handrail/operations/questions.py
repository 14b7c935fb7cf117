"""The questions of a store: all that are open, or the one of a call; and the answers of people to them.

A question is open until a person has answered it, a rule has decided since, or its call has a final record. A call that
waits for other calls, of its handler or of an agent that it has called, is not a question itself.

The question of an agent is stored in the session of its outermost run, also if the call belongs to a session below it;
that is the session in which the run is resumed. The question of a program's own loop is stored in the session of the
call. An answer is a row of the store until the call is made, or asked about again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from handrail.errors import SessionError, StoreCorruptError, UnknownTypeError
from handrail.operations import skip_unreadable
from handrail.operations.sessions import agent_of_session, find_session, is_named_by, name_call
from handrail.runtime import ToolInvoked
from handrail.runtime.ledger.records import read_arguments
from handrail.serde.formatting import shorten
from handrail.serde.secrets import mask_places
from handrail.session.calls import CallRef
from handrail.session.open_calls import (
    CallQuestion,
    GivenAnswer,
    PostponedCall,
    answer_in,
    describe_answer,
    last_postponed,
    own_items,
)
from handrail.session.persistence.loading import known_items, recorded_item, slice_indexes
from handrail.session.persistence.protocol import AnswerRow, SessionRow
from handrail.store import Store

if TYPE_CHECKING:
    from handrail.agents.approval.decisions import ApprovalRecord
    from handrail.agents.run.interface import RunCommand

_RECORDS_OF_AGENTS = "handrail.approval"
# The question of a call that waits for something else.
_NOT_ASKED = CallQuestion(arguments="null", digest="", asks=(), effect="")
_LONGEST_SHOWN = 200
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQuestion:
    """A question about a call that has not been carried out.

    Attributes:
        session_id: the session that stores it.
        call_session: the session of the call.
        path: the agents that called each other; empty for a program's own loop.
        first_asked: when it was first asked; a run asks again what was left open.
        reason: why it is asked; for a call of a program's own loop, why it was postponed.
        asks: the questions of policies.
        arguments: the arguments as JSON has them; a string if they were cut, or cannot be shown.
        model_text: the arguments as the model wrote them, where that differs.
        reached: absolute paths among the arguments as the filesystem names them, by argument.
        digest: names exactly these arguments; empty if the call waits for something else.
        command: the `RunCommand` of the run; `None` for a program's own loop.
        answer: `None` as long as it is open.
        row: the answer to its call that is a row of the store, also one to an earlier question about the call.
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
    model_text: Any = None
    reached: dict[str, str] = field(default_factory=dict[str, str])
    digest: str = ""
    command: Any = field(default=None, repr=False)
    answer: GivenAnswer | None = None
    row: AnswerRow | None = field(default=None, repr=False)

    @property
    def is_recorded(self) -> bool:
        """True if it is known what was asked; a call that waits for something else has no question."""
        return bool(self.digest)

    @property
    def unstored(self) -> str:
        """The places of secrets among the arguments, which are not stored; empty for most calls."""
        return ", ".join(mask_places(self.arguments))

    def is_same(self, other: StoredQuestion) -> bool:
        """Returns whether the same is asked about the same call and arguments."""
        mine, others = ((item.call_session, item.call, item.digest, item.asks) for item in (self, other))
        return mine == others


def _loop_questions(items: Sequence[PostponedCall], session_id: str) -> Iterator[StoredQuestion]:
    own: list[PostponedCall] = own_items(items, session_id)
    for item in last_postponed(own).values():
        question = item.question or _NOT_ASKED
        arguments = read_arguments(question.arguments.encode())
        yield StoredQuestion(
            session_id=session_id,
            call_session=session_id,
            call=item.call,
            tool=item.tool,
            effect=question.effect,
            description=question.description,
            asked_at=item.at,
            first_asked=item.at,
            reason=question.reason,
            asks=question.asks,
            arguments=arguments.arguments,
            model_text=arguments.words,
            digest=question.digest,
            answer=item.answer,
        )


def _agent_questions(
    records: Sequence[ApprovalRecord], session_id: str, commands: Sequence[RunCommand]
) -> Iterator[StoredQuestion]:
    from handrail.agents.approval.decisions import first_asked, last_records  # noqa: PLC0415 - needs the extra
    from handrail.agents.run.interface import RunCommand  # noqa: PLC0415 - as above

    open_records = {record.call.key: record for record in records if record.is_open}
    for record in last_records(records, session_id):
        call, decision = record.call, record.decision
        question = open_records.get(call.key)
        if question is None or not (record.is_open or decision.by == "person"):
            continue  # no person was asked, or a rule has decided since
        answer = GivenAnswer(
            approved=decision.verdict == "allow", reason=decision.reason, by=decision.answered_by, at=record.at
        )
        yield StoredQuestion(
            session_id=session_id,
            call_session=call.session_id,
            call=call.ref,
            path=call.path,
            tool=call.tool,
            effect=call.effect,
            origin=call.origin,
            description=question.call.description,
            asked_at=cast("datetime", question.at),  # `record_decision` says it of a question in a store
            first_asked=first_asked(records, call),
            reason=question.decision.reason,
            asks=question.call.asks,
            arguments=dict(call.arguments),
            # Not what the model wrote: a secret is not masked there. A person before a terminal is not shown it either.
            reached=dict(call.reached or {}),
            digest=call.digest,
            # Of the run of a program no command is recorded; `handrail new` gives the agent file this name.
            command=commands[-1] if commands else RunCommand(agent_file=f"FOLDER/{call.path[0]}.agent"),
            answer=None if record.is_open else answer,
        )


def agents_asking(store: Store, question: StoredQuestion) -> tuple[str, ...]:
    """The agents that called each other, down to the one whose call is asked about; empty if none is known."""
    if question.path:
        return question.path
    row = store.find(question.session_id)
    agent = "" if row is None else agent_of_session(store, row)
    return (agent,) if agent else ()


def stored_questions(
    store: Store, session_id: str | None = None, faults: list[str] | None = None
) -> list[StoredQuestion]:
    """The questions about calls that have not been carried out, open and answered.

    Args:
        store: the store.
        session_id: the session in which they are stored, or to which their calls belong; `None` for any.
        faults: gets what is wrong with sessions that are damaged, or of another class; `None` to raise, unless it is
            the row of the session.
    """
    all_rows = skip_unreadable(store.sessions(), [] if faults is None else faults)
    rows = (row for row in all_rows if session_id is None or _is_related(row.session_id, session_id))
    return [item for item in questions_in(store, rows, faults) if _is_meant(item, session_id)]


def questions_in(store: Store, rows: Iterable[SessionRow], faults: list[str] | None = None) -> list[StoredQuestion]:
    """The questions that some sessions store; give those above a session, too, where its runs may store theirs.

    `faults` is as of `stored_questions`.
    """
    questions: list[StoredQuestion] = []
    for row in rows:
        try:
            questions += _session_questions(store, row)
        except (StoreCorruptError, UnknownTypeError) as error:
            if faults is None:
                raise
            faults.append(f"the questions of session {row.session_id} cannot be read: {error}")
    questions = list(_with_rows(store, questions))
    recorded_ones = [item for item in questions if item.is_recorded]
    others = [item for item in questions if not (item.is_recorded or _waits_for_calls(store, item, recorded_ones))]
    return [item for item in (*recorded_ones, *others) if not _is_settled(store, item)]


def find_question(store: Store, session_id: str, call: str) -> StoredQuestion:
    """The question about a call, open or answered; `call` is `REPLY/CALL`, `/CALL`, or an id that is unique."""
    find_session(store, session_id)
    matches = [item for item in stored_questions(store, session_id) if is_named_by(item.call, call)]
    if len(matches) == 1:
        return matches[0]
    name = shorten(call, _LONGEST_SHOWN)
    if not matches:
        raise SessionError(
            f"session {session_id} has no question about a call {name}; handrail approvals list shows what is open, "
            f"and handrail sessions show {session_id} the record of a call"
        )
    names = ", ".join(f"{item.call_session} {name_call(item.call)}" for item in matches[:_MOST_NAMED])
    raise SessionError(
        f"{len(matches)} questions of session {session_id} are about a call {name}; name one by session and call: "
        f"{names}"
    )


def shorten_call(question: StoredQuestion, among: Sequence[StoredQuestion]) -> str:
    """The shortest name of its call that the commands take: its id, unless another question has a call of that id."""
    call_id = question.call.call_id
    same = [other for other in among if (other.session_id, other.call.call_id) == (question.session_id, call_id)]
    return str(CallRef(None, call_id)) if call_id and len(same) <= 1 else name_call(question.call)


def _is_related(row_id: str, session_id: str) -> bool:
    return row_id == session_id or row_id.startswith(f"{session_id}/") or session_id.startswith(f"{row_id}/")


def _is_meant(question: StoredQuestion, session_id: str | None) -> bool:
    ids = (question.session_id, question.call_session)
    return session_id is None or any(own_id == session_id or own_id.startswith(f"{session_id}/") for own_id in ids)


def _waits_for_calls(store: Store, question: StoredQuestion, others: Sequence[StoredQuestion]) -> bool:
    if store.find(f"{question.call_session}/{question.call.key}") is not None:
        return True
    mine = [other for other in others if other.call_session == question.call_session]
    # An answered question counts as well: the call waits until it is made again.
    return any(other.call == question.call or question.call in other.call.ancestors for other in mine)


def _session_questions(store: Store, row: SessionRow) -> Iterator[StoredQuestion]:
    # Only where a session has them: what they need takes a second to be imported.
    records = slice_indexes(store, row).get(_RECORDS_OF_AGENTS)
    if records is None or not records.runs:
        items = known_items(store, row, lambda kind: kind is PostponedCall)
        yield from _loop_questions(items.get(PostponedCall, ()), row.session_id)
        return
    from handrail.agents.approval.decisions import ApprovalRecord  # noqa: PLC0415 - needs the extra
    from handrail.agents.run.interface import RunCommand  # noqa: PLC0415 - as above

    items = known_items(store, row, lambda kind: kind in {PostponedCall, ApprovalRecord, RunCommand})
    yield from _loop_questions(items.get(PostponedCall, ()), row.session_id)
    yield from _agent_questions(items.get(ApprovalRecord, ()), row.session_id, items.get(RunCommand, ()))


def last_attempt(store: Store, question: StoredQuestion) -> datetime | None:
    """The time of the newest record of the call of a program's own loop, as of `RecordedAnswer`."""
    record = None if question.path else _record(store, question)
    return record.at if isinstance(record, ToolInvoked) else None


def _record(store: Store, question: StoredQuestion) -> Any:  # noqa: ANN401 - of any class
    number = store.record_of_call(question.call_session, question.call.outermost.storable)
    return None if number is None else recorded_item(store, question.call_session, number)


def _with_rows(store: Store, questions: Iterable[StoredQuestion]) -> Iterator[StoredQuestion]:
    rows: dict[str, dict[CallRef, AnswerRow]] = {}
    for loop_question in questions:
        if loop_question.call_session not in rows:
            rows[loop_question.call_session] = {row.call: row for row in store.answers(loop_question.call_session)}
        question = replace(loop_question, row=rows[loop_question.call_session].get(loop_question.call.storable))
        if question.row is not None and question.answer is None and question.is_recorded:
            row_answer = answer_in(question.row, store=store.url)
            last, answer = last_attempt(store, question), row_answer.given
            if row_answer.is_about(question.digest, question.asks, last, first_asked=question.first_asked):
                answer_with_reason = replace(answer, reason=describe_answer(answer.approved, answer.reason))
                question = replace(question, answer=answer_with_reason)
        yield question


def _is_settled(store: Store, question: StoredQuestion) -> bool:
    record = _record(store, question)
    return record is not None and bool(record.final)
