"""Call ids that no store can look up: a megabyte, a NUL, half a surrogate pair. No driver's error is seen."""

from __future__ import annotations

import logging
from typing import Never

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallIdReusedError, CallPostponed, SessionError
from handrail.prompt import ApprovalRequest, PolicyDecision, ToolContext, ToolResult
from handrail.prompt.idempotency import slot_key
from handrail.runtime import ToolCall
from handrail.session import Session
from handrail.session.calls import CallRef
from handrail.store import Store
from handrail.testing import FakeClock
from tests.kit import Decides, Kept, Note, prompt, tool
from tests.store.stores import STORES
from tests.wording import Wording

IDS = {
    "a megabyte": "x" * 1_000_000,
    "a NUL": "a\0b",
    "no Unicode": "\ud800",
    "wide": "\u6f22" * 3_000,
    "501": "y" * 501,
}


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store, one kind after the other."""
    return STORES[str(request.param)](FakeClock())


def note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Leave the text in the session."""
    context.session[Kept].append(Kept(params.text))
    return ToolResult.ok(params)


def ask_on_ask(_tool: object, params: Note) -> PolicyDecision:
    """Have every call with the text `ask` approved."""
    return PolicyDecision.ask("now?") if params.text == "ask" else PolicyDecision.allow()


def later(_request: ApprovalRequest) -> Never:
    """Leave every question open."""
    raise CallPostponed("later")


def executor(session: Session) -> ToolExecutor:
    """A tool of each effect, over a session."""
    tools = tool("look", effect="read"), tool("note", note), tool("pay", effect="external")
    return ToolExecutor(prompt=prompt(*tools, policies=[Decides(ask_on_ask)]), session=session, approver=later)


@pytest.mark.parametrize("call_id", IDS.values(), ids=IDS)
@pytest.mark.parametrize("reply", [None, "r1"])
def test_a_call_of_any_id_runs_once_is_recorded_and_is_found_again(
    store: Store, call_id: str, reply: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each effect; so does one that waits for approval. Nothing of it is logged as a failure."""
    with Session.open(store, "s") as session:
        door = executor(session)
        for name in ("look", "note", "pay"):
            call = ToolCall(f"{call_id}{name}", name, {"text": "a"})
            assert door.execute(call, reply=reply).content == "a"
            if reply is None:
                with pytest.raises(CallIdReusedError) as caught:
                    door.execute(call)
                assert len(str(caught.value)) < 1_000
            else:
                assert door.execute(call, reply=reply).replayed
        with pytest.raises(CallPostponed):
            door.execute(ToolCall(f"{call_id}ask", "note", {"text": "ask"}), reply=reply)
        (waits,) = session.open_calls
        assert waits.call == CallRef(reply, f"{call_id}ask").storable
    with Session.open(store, "s") as session:
        assert session[Kept].all() == (Kept("a"),)
        assert [each.state for each in session.open_calls] == ["postponed"]
        door = executor(session)
        for name in ("look", "note", "pay") if reply else ():
            again, other = (ToolCall(f"{call_id}{name}", name, {"text": text}) for text in "ab")
            assert door.execute(again, reply=reply).replayed
            with pytest.raises(CallIdReusedError):
                door.execute(other, reply=reply)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("call_id", IDS.values(), ids=IDS)
def test_a_session_is_forked_at_a_call_of_any_id(store: Store, call_id: str, wording: Wording) -> None:
    """By the id as the model gave it; a call that there is not is refused in few words."""
    with Session.open(store, "s") as session:
        door = executor(session)
        for number, text in enumerate("abc"):
            door.execute(ToolCall(f"{call_id}{number}", "note", {"text": text}), reply="r1")
        with session.fork(at=("r1", f"{call_id}1")) as fork:
            assert fork[Kept].all() == (Kept("a"), Kept("b"))
        for gone in ((None, f"{call_id}1"), ("r1", f"{call_id}9"), (call_id, call_id)):
            with pytest.raises(SessionError) as caught:
                session.fork(at=gone)
            assert str(caught.value) == wording
            assert len(str(caught.value)) < 500


@pytest.mark.parametrize("depth", range(1, 7))
def test_the_slot_of_a_call_has_a_key_that_every_store_can_index(depth: int) -> None:
    """However long its id is, and however deep it was made inside others, whose names are its reply."""
    ref = CallRef("\u6f22" * 500, "\u5b57" * 500)
    for _ in range(depth):
        ref = CallRef(str(ref), "\u5b57" * 500)
    assert len(slot_key(ref)) < 1_000
    assert len({slot_key(CallRef(ref.reply, f"{ref.call_id}{number}")) for number in range(9)}) == 9
    assert slot_key(CallRef("r" * 250, "c" * 250)) == f"call:{'r' * 250}/{'c' * 250}"
