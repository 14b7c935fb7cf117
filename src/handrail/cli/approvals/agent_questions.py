"""The questions of agents in a stored session, and what records an answer to one. Needs the extra `agents`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import cast

from handrail.agents.approval.decisions import (
    Answer,
    ApprovalRecord,
    Grant,
    approval_record,
    decision_of,
    first_asked,
    last_records,
)
from handrail.agents.run.options import RunCommand
from handrail.cli.approvals.questions import StoredQuestion
from handrail.session.open_calls import GivenAnswer, RecordedAnswer

RECORD = ApprovalRecord
"""The class of the records."""

COMMAND = RunCommand
"""The class of what is stored of how a run was typed."""


def agent_questions(
    records: Sequence[ApprovalRecord], session_id: str, commands: Sequence[RunCommand]
) -> Iterator[StoredQuestion]:
    """The questions of the agents of a session and of those below it, open and answered by a person.

    Args:
        records: the records of the session.
        session_id: the session.
        commands: how its runs were typed; empty for those of a program.
    """
    asked = {record.call.key: record for record in records if record.is_open}
    for record in last_records(records, session_id):
        question = asked.get(record.call.key)
        if question is None or not (record.is_open or record.decision.by == "person"):
            continue  # no person was asked, or a rule has decided since
        call = record.call
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
            # Of the run of a program no command is recorded; this is the name that `handrail new` gives the agent file.
            command=commands[-1] if commands else RunCommand(agent_file=f"{call.path[0]}.agent"),
            answer=_answer_in(record),
            record=record,
        )


def _answer_in(record: ApprovalRecord) -> GivenAnswer | None:
    if record.is_open:
        return None
    found = record.decision
    return GivenAnswer(approved=found.verdict == "allow", reason=found.reason, by=found.answered_by, at=record.at)


def answered_agent(
    record: ApprovalRecord, answer: RecordedAnswer
) -> tuple[ApprovalRecord] | tuple[Grant, ApprovalRecord]:
    """What a session gets of an answer to a question of an agent, as the gate of a run records it."""
    given = answer.given
    verdict = Answer("yes" if given.approved else "no", given.remember, given.reason)
    decision, grant = decision_of(record.call, verdict, by=given.by, at=given.at)
    decided = approval_record(record.call, decision, at=given.at)
    return (decided,) if grant is None else (grant, decided)
