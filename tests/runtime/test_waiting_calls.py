"""The record of a call that waited, with the answer of the program itself."""

from __future__ import annotations

import pytest

from handrail.errors import DispatchError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.runtime.approval import record_outside_answer
from handrail.runtime.execution import BLOCKING, run_to_completion
from handrail.session.call_ref import CallRef
from tests.kit import executor

WAITED = ToolCall("call-1", "pay", {"order": "A-1"})
REF = CallRef("reply-1", "call-1")
ANSWER = ToolResult[None].error("not today")


def record(session: Session) -> None:
    """Record the answer outside of any call."""
    environment = executor(session=session).environment
    run_to_completion(record_outside_answer(environment, BLOCKING, REF, WAITED, ANSWER))


def test_who_listens_is_notified_of_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    """As of the record of any other call; a subscriber that fails is logged, because the call is over."""
    session, heard = Session(), list[ToolInvoked]()

    def refuse(_: ToolInvoked) -> None:
        raise OSError("the screen is gone")

    with session.dispatcher.subscribe(ToolInvoked, refuse), session.dispatcher.subscribe(ToolInvoked, heard.append):
        record(session)
    assert [type(logged.exc_info[1]) for logged in caplog.records if logged.exc_info] == [DispatchError]
    assert heard == list(session[ToolInvoked])
    assert [(event.ref, event.result.message, event.final) for event in heard] == [(REF, "not today", True)]


def test_nothing_is_recorded_within_a_call() -> None:
    """It may be undone, and the record of an answer would stay."""
    session = Session()

    def pay(_: None, *, context: ToolContext) -> ToolResult[None]:
        record(session)
        assert not session[ToolInvoked]
        return ToolResult.ok(None)

    handler = Tool[None, None](name="outer", description="Records within.", handler=pay)
    assert executor(handler, session=session).execute(ToolCall("call-2", "outer", {})).success
    assert [event.call_id for event in session[ToolInvoked]] == ["call-2"]
