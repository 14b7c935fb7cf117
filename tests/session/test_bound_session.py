"""`context.session`: a session that is bound to a call, equal to the session, and not the same object."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import SessionUseError, TransactionClosedError, TurnConflictError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.resources import Binding, Scope
from handrail.runtime import Session, ToolCall
from handrail.session.conversation import Conversation
from handrail.session.views import BoundSession, bound_session
from handrail.testing import run_tool
from handrail.transaction import Transaction, current
from handrail.turns import draw_ticket
from tests.kit import executor, refusal
from tests.wording import Wording


@dataclass(frozen=True)
class Note:
    text: str


class Client:
    """A resource without a view."""


@pytest.fixture
def session() -> Session:
    """A session that no call uses."""
    return Session(session_id="desk", tags={"a": "b"})


@pytest.fixture
def call(session: Session) -> Generator[Transaction]:
    """A call that holds the turn of the session, and is not the current one."""
    ticket = draw_ticket((session.turn,), exclusive=True)
    transaction = Transaction("note", ticket=ticket, writes=True)
    yield transaction
    transaction.rollback()
    ticket.release()


def test_it_is_equal_to_the_session_and_not_the_same_object(session: Session, call: Transaction) -> None:
    """So is each other view of it; another session is not."""
    view = bound_session(session, call)
    again = bound_session(view, call)
    assert isinstance(view, Session)
    assert view is not session
    assert view == session == view == again
    assert hash(view) == hash(session)
    assert {session: 1}[view] == 1
    assert view != Session(session_id="desk")
    assert (view.unbound, again.unbound, session.unbound) == (session,) * 3
    assert view.unbound is again.unbound is session.unbound is session


def test_every_public_method_runs_in_the_session(session: Session, call: Transaction) -> None:
    """None of those that a session gains later is left out: it would find no state in the view."""
    own = {"child", "fork", "unbound", "bound_to", "open", "open_async", "conversation"}
    made_of_others = {name for name in vars(Session) if name.endswith("_async")}
    names = {name for name in vars(Session) if not name.startswith("_")} - own - made_of_others
    assert names <= set(vars(BoundSession))
    view = bound_session(session, call)
    for name in ("session_id", "tags", "turn", "dispatcher"):
        assert getattr(view, name) is getattr(session, name)
    assert (view.store, view.open_calls) == (None, ())
    view.tags = {"c": "d"}
    assert session.tags == {"c": "d"}


def test_a_write_is_of_the_call_whatever_runs_here(session: Session, call: Transaction) -> None:
    """It is seen through the view, and undone with the call; slices and conversation write through the view, too."""
    view = bound_session(session, call)
    assert view[Note] is view[Note]
    view[Note].append(Note("a"))
    view.dispatch(Note("b"))
    assert current() is None
    assert (view[Note].all(), session[Note].all()) == ((Note("a"), Note("b")), ())
    assert isinstance(view.conversation, Conversation)
    assert view.conversation is view.conversation is not session.conversation
    refusal(SessionUseError, view.reset)
    call.rollback()
    assert view[Note].all() == session[Note].all() == ()


ACTS: dict[str, Callable[[Session], object]] = {
    "append": lambda view: view[Note].append(Note("a")),
    "seed": lambda view: view[Note].seed(Note("a")),
    "clear": lambda view: view[Note].clear(),
    "dispatch": lambda view: view.dispatch(Note("a")),
    "restore": lambda view: view.restore(view.snapshot()),
    "child": lambda view: view.child(),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=list(ACTS))
def test_what_changes_something_is_refused_after_the_call(
    act: Callable[[Session], object], session: Session, call: Transaction, wording: Wording
) -> None:
    """The error names the call and what it can no longer do."""
    view = bound_session(session, call)
    act(view)
    call.rollback()
    assert str(refusal(TransactionClosedError, act, view)) == wording
    assert session[Note].all() == ()


def test_in_a_nested_call_a_view_of_the_parent_writes_for_the_nested_one(session: Session, call: Transaction) -> None:
    """It is undone with that. A thread without its context cannot write while the nested call runs, and then can."""
    view = bound_session(session, call)
    with ThreadPoolExecutor(1) as pool, call:
        view[Note].append(Note("parent"))
        ticket = draw_ticket((), exclusive=True, inside=call.ticket)
        with Transaction("inner", ticket=ticket, writes=True, parent=call):
            view[Note].append(Note("nested"))
            assert view[Note].all() == (Note("parent"), Note("nested"))
            assert isinstance(pool.submit(view[Note].append, Note("thread")).exception(), TurnConflictError)
        ticket.release()
        pool.submit(view[Note].append, Note("thread")).result()
        call.commit()
    assert session[Note].all() == (Note("parent"), Note("thread"))


def test_sessions_that_are_reached_from_a_view_are_views() -> None:
    """What is written to them belongs to the call, and a late thread cannot write to them or call a tool on them."""
    main = Session(session_id="main")
    session = main.child(session_id="desk")
    ticket = draw_ticket((session.turn,), exclusive=True)
    call = Transaction("note", ticket=ticket, writes=True)
    view = bound_session(session, call)
    child = view.child(session_id="child")
    reached = {"parent": view.parent, "child": child, "its parent": child.parent, "fork": view.fork()}
    assert (view.parent, child.parent, child.session_id) == (main, session, "child")
    assert view.fork().parent == main
    for name, other in reached.items():
        assert isinstance(other, BoundSession), name
        other[Note].append(Note("in"))
        assert (other[Note].all(), other.unbound[Note].all()) == ((Note("in"),), ()), name
    call.rollback()
    ticket.release()
    for name, other in reached.items():
        assert isinstance(other, BoundSession), name
        refusal(TransactionClosedError, other[Note].append, Note("late"))
        assert other[Note].all() == (), name
    assert session[Note].all() == main[Note].all() == ()


def test_a_late_call_on_a_child_is_refused(wording: Wording) -> None:
    """In a `concurrent` call it is independent, and ends with that call all the same."""
    runs: list[ToolExecutor] = []

    def answer(_: Note, *, context: ToolContext) -> ToolResult[str]:
        return ToolResult.ok(context.session.session_id)

    note = Tool[Note, str](name="note", description="Notes.", handler=answer)

    def leave(_: None, *, context: ToolContext) -> ToolResult[str]:
        runs.append(executor(note, session=context.session.child()))
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(runs[0].execute, ToolCall("b", "note", {"text": "in time"})).result()
        return ToolResult.ok(made.content)

    tool = Tool[None, str](name="leave", description="Leaves.", handler=leave, concurrent=True)
    message = executor(tool, session=Session()).execute(ToolCall("a", "leave", {}), reply="r1")
    late = runs[0].execute(ToolCall("c", "note", {"text": "late"}))
    assert (message.success, late.success) == (True, False)
    assert late.content == wording


def test_a_session_made_with_a_view_has_the_session_as_its_parent(session: Session, call: Transaction) -> None:
    """It is the program's own: it lives longer than the call."""
    view = bound_session(session, call)
    assert Session(parent=view).parent is session
    assert copy.copy(view) == session


def test_resources_of_the_context_are_bound_as_the_session_is() -> None:
    """A session that is bound as a resource, and injected ones; what has no view is the resource itself."""
    other, client = Session(), Client()
    found: list[object] = []

    def look(_: None, *, context: ToolContext) -> ToolResult[None]:
        resources = context.resources
        found.extend((resources.get(Session), resources.get(Session), resources.get(Client), resources.get(Note, None)))
        assert (Session in resources, Note in resources) == (True, False)
        return ToolResult.ok(None)

    tool = Tool[None, None](name="look", description="Looks.", handler=look)
    run_tool(tool, resources={Session: other, Client: client})
    view, again, same, nothing = found
    assert view is again
    assert isinstance(view, BoundSession)
    assert (view, same, nothing) == (other, client, None)


def test_the_resources_of_a_context_can_be_closed() -> None:
    """As the resources themselves: what was built for the call is closed, by `close` or at the end of a block."""
    closed: list[str] = []

    class Closing:
        def close(self) -> None:
            closed.append("built")

    def look(params: Note, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Closing)
        with closing(context.resources) if params.text == "close" else context.resources:
            pass
        closed.append("open")
        return ToolResult.ok(None)

    tool = Tool[Note, None](name="look", description="Looks.", handler=look)
    for how in ("close", "leave"):
        made = Binding(Closing, lambda _: Closing(), scope=Scope.TOOL_CALL)
        assert run_tool(tool, {"text": how}, resources={Closing: made}).success
    assert closed == ["built", "open"] * 2


def test_a_context_without_a_call_has_the_session_itself(session: Session) -> None:
    """As a test of a handler makes it."""
    context = ToolContext.of(session=session)
    assert context.session is session
    assert context.resources is context.resources
