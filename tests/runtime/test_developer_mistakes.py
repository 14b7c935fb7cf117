"""The developer's mistakes that show while a call runs: raised, recorded, and not told to the model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    CallIdReusedError,
    CallPostponed,
    CircularResourceError,
    DeveloperMistake,
    InvalidArgumentError,
    InvalidReturnError,
    PromptEvaluationError,
    ReducerError,
    ResourceUseError,
    SessionUseError,
    UnboundResourceError,
    WrongResourceError,
)
from handrail.filesystem import Filesystem
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, ToolContext, ToolResult
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import IdempotencyConfig, Session, ToolCall, ToolInvoked
from tests.kit import ASKS, Decides, Kept, Note, Run, both_ways, call, events, executor, scribble, tool
from tests.wording import Wording


class Client:
    """A resource."""


def answering(answer: Callable[[], Any]) -> Decides:
    """A policy that answers whatever it is told to."""
    return Decides(lambda _tool, _params: answer(), name="rule")


class Notes:
    """A policy whose `on_result` answers whatever it is told to."""

    name = "rule"

    def __init__(self, noted: Callable[[], Any]) -> None:
        self.noted = noted

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.allow()

    def on_result(self, tool: Any, params: Any, result: ToolResult[Any], *, context: ToolContext) -> Any:
        return self.noted()


async def later() -> None:
    """What has to be awaited."""


def asks_for(*kinds: Any) -> Any:
    """A handler that writes, then asks for resources."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        for kind in kinds:
            context.resources.get(kind)
        return ToolResult.ok(params)

    return handler


def reads_log(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Take from the log."""
    context.session[ToolInvoked].clear()
    return ToolResult.ok(params)


def needs_database(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Write to a database that is not there."""
    context.connection.execute("SELECT 1")
    return ToolResult.ok(params)


def bad_reducer() -> Session:
    """A session whose reducer returns no change."""
    session = Session(session_id="s")
    session.register(Note, lambda view, event: "no change", into=Kept)  # type: ignore[arg-type, return-value]
    return session


class _Holder:
    def __init__(self, client: Client) -> None:
        self.client = client


def _short_lived() -> ResourceRegistry:
    return ResourceRegistry.of(
        Binding(Client, lambda _: Client(), Scope.TOOL_CALL),
        Binding(_Holder, lambda resources: _Holder(resources.get(Client))),
    )


def unclear(_: object) -> Any:
    """Answer neither yes nor no, as an approver."""
    return "yes"


def keyed_by(key: Any) -> IdempotencyConfig:
    """Keys of whatever type."""
    return IdempotencyConfig(strategy="custom", key_fn=lambda _: key)


def unbound() -> PolicyDecision:
    """Ask for what is not bound, as a policy."""
    ResourceRegistry.build({}).open().get(Client)
    raise AssertionError


CASES: list[tuple[str, Callable[[], ToolExecutor], type[DeveloperMistake]]] = [
    ("nothing bound", lambda: executor(tool("t", scribble)), UnboundResourceError),
    ("no class", lambda: executor(tool("t", asks_for("Client"))), ResourceUseError),
    (
        "wrong type",
        lambda: executor(tool("t", asks_for(Client)), resources={Client: Binding(Client, lambda _: 7)}),
        WrongResourceError,
    ),
    (
        "circle",
        lambda: executor(tool("t", asks_for(Client)), resources={Client: Binding(Client, lambda r: r.get(Client))}),
        CircularResourceError,
    ),
    (
        "lives too short",
        lambda: executor(tool("t", asks_for(_Holder)), resources=_short_lived()),  # type: ignore[arg-type]
        ResourceUseError,
    ),
    ("policy returns True", lambda: executor(tool("t"), policies=(answering(lambda: True),)), InvalidReturnError),
    ("policy returns None", lambda: executor(tool("t"), policies=(answering(lambda: None),)), InvalidReturnError),
    (
        "policy asks for what is not bound",
        lambda: executor(tool("t"), policies=(answering(unbound),)),
        UnboundResourceError,
    ),
    (
        "approver returns text",
        lambda: executor(tool("t"), policies=(ASKS,), approver=unclear),
        InvalidReturnError,
    ),
    (
        "on_result returns a coroutine",
        lambda: executor(tool("t"), policies=(Notes(later),)),
        InvalidReturnError,
    ),
    (
        "key_fn returns a number",
        lambda: executor(tool("t", effect="external", idempotency=keyed_by(7))),
        InvalidReturnError,
    ),
    (
        "key_fn returns nothing",
        lambda: executor(tool("t", effect="external", idempotency=keyed_by(None))),
        InvalidReturnError,
    ),
    ("a log cannot shrink", lambda: executor(tool("t", reads_log)), SessionUseError),
    ("no database", lambda: executor(tool("t", needs_database)), SessionUseError),
    ("a reducer returns text", lambda: executor(tool("t"), session=bad_reducer()), ReducerError),
]


@both_ways
@pytest.mark.parametrize("make, kind", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_mistake_is_raised_and_the_call_is_undone_and_recorded(
    make: Callable[[], ToolExecutor], kind: type[DeveloperMistake], way: Run, wording: Wording
) -> None:
    """The developer reads it; what the call wrote is gone; the record is not final, so the same call runs again."""
    door = make()
    with pytest.raises(kind) as raised:
        way(door, call("t"))
    assert re.sub(" at 0x[0-9a-f]+", "", str(raised.value)) == wording
    assert door.environment.session[Kept].all() == ()
    [event] = events(door)
    assert (event.success, event.final) == (False, False)
    assert kind.__name__ in event.result.message


@both_ways
def test_a_provider_that_raises_fails_the_call(way: Run, wording: Wording) -> None:
    """A server that is down is not a mistake of the program."""

    def provide(_: object) -> Client:
        raise ConnectionError("no route")

    door = executor(tool("t", asks_for(Client)), resources={Client: Binding(Client, provide)})
    assert way(door, call("t")).content == wording


def all_of(door: ToolExecutor, *calls: ToolCall, reply: str | None = None) -> None:
    """Carry out on this thread."""
    door.execute_all(calls, reply=reply)


def all_on_loop(door: ToolExecutor, *calls: ToolCall, reply: str | None = None) -> None:
    """Carry out on an event loop."""
    asyncio.run(door.execute_all_async(calls, reply=reply))


_SEVEN: Any = 7

NOT_CALLS: tuple[Any, ...] = (ToolCall(_SEVEN, "fine", {"text": "b"}), {"id": "2"}, None)
"""What is not a call, or has an id that is not text."""

both_alls = pytest.mark.parametrize("all_calls", [all_of, all_on_loop], ids=lambda way: way.__name__)


@both_alls
@pytest.mark.parametrize("effect", ["read", "state"])
def test_the_other_calls_of_the_reply_end_and_are_recorded_first(all_calls: Any, effect: Any) -> None:
    """Before it and after it in the reply, in the order asked."""
    door = executor(tool("fine", effect=effect), tool("wrong", asks_for(Client)))
    calls = [call("fine", "a", id="1"), call("wrong", "b", id="2"), call("fine", "c", id="3")]
    with pytest.raises(UnboundResourceError):
        all_calls(door, *calls)
    assert [(event.call_id, event.success) for event in events(door)] == [("1", True), ("2", False), ("3", True)]
    assert door.environment.session[Note].all() == (Note("a"), Note("c"))


@both_alls
@pytest.mark.parametrize("wrong", NOT_CALLS, ids=str)
def test_the_other_calls_of_a_reply_end_when_one_of_them_is_no_call(all_calls: Any, wrong: Any) -> None:
    """Nothing of it is run or recorded; the others are."""
    door = executor(tool("fine"))
    with pytest.raises(InvalidArgumentError):
        all_calls(door, call("fine", "a", id="1"), wrong, call("fine", "c", id="3"), reply="r")
    assert [(event.call_id, event.success) for event in events(door)] == [("1", True), ("3", True)]


@both_alls
def test_what_on_result_returns_is_refused_when_the_other_calls_have_ended(all_calls: Any) -> None:
    """Of an external call, too: its effect is done and recorded, so it is not repeated."""
    noted, runs = [later], list[str]()

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        runs.append(params.text)
        return ToolResult.ok(params)

    def note() -> Any:
        return noted.pop()() if noted else None

    door = executor(tool("pay", pay, effect="external"), policies=(Notes(note),))
    calls = [call("pay", "a", id="1"), call("pay", "b", id="2")]
    with pytest.raises(InvalidReturnError) as raised:
        all_calls(door, *calls, reply="r")
    assert raised.value.function == "on_result of policy rule"
    assert [(event.call_id, event.success) for event in events(door)] == [("1", False), ("2", True)]
    all_calls(door, *calls, reply="r")
    assert sorted(runs) == ["a", "b"]


def test_an_approver_may_be_anything_that_takes_a_request() -> None:
    """A function with more parameters that have defaults, a method, an object; annotated or not."""

    class Desk:
        def ask(self, request: ApprovalRequest) -> Approval | bool:
            return True

        async def __call__(self, request: ApprovalRequest, note: str = "") -> bool:
            return True

    def of_anything(*_: Any, **__: Any) -> Any:
        return Approval(approved=True)

    def postpones(request: ApprovalRequest) -> NoReturn:
        raise CallPostponed("later")

    for approver in (Desk().ask, Desk(), of_anything, partial(Desk().__call__, note="x")):
        assert executor(tool("t"), policies=(ASKS,), approver=approver).execute(call("t")).success
    with pytest.raises(CallPostponed):
        executor(tool("t"), policies=(ASKS,), approver=postpones).execute(call("t"))


@both_alls
def test_several_mistakes_are_one_exception_with_notes(all_calls: Any, wording: Wording) -> None:
    """The first is raised; the developer reads of the others beside it."""
    door = executor(tool("one", asks_for(Client)), tool("two", asks_for(Filesystem)))
    with pytest.raises(UnboundResourceError, match="Client") as caught:
        all_calls(door, call("one", id="1"), call("two", id="2"))
    [note] = caught.value.__notes__
    assert note == wording


@both_alls
def test_what_ends_the_run_goes_before_a_mistake_and_has_it_as_a_note(all_calls: Any) -> None:
    """The run is over at once; the mistake is not lost."""

    def ends(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise PromptEvaluationError("enough")

    door = executor(tool("wrong", asks_for(Client)), tool("ends", ends))
    with pytest.raises(PromptEvaluationError, match="enough") as caught:
        all_calls(door, call("wrong", id="1"), call("ends", id="2"))
    assert "UnboundResourceError" in caught.value.__notes__[0]


@both_alls
def test_a_reused_identity_is_raised_when_the_other_calls_have_ended(all_calls: Any) -> None:
    """It runs nothing and records nothing itself; its siblings are carried out."""
    door = executor(tool("fine"))
    door.execute(call("fine", "a", id="1"), reply="r")
    with pytest.raises(CallIdReusedError):
        all_calls(door, call("fine", "b", id="0"), call("fine", "c", id="1"), call("fine", "d", id="2"), reply="r")
    assert door.environment.session[Note].all() == (Note("a"), Note("b"), Note("d"))
    assert len(events(door)) == 3


def test_a_mistake_of_a_nested_call_is_raised_through_the_outer_one() -> None:
    """Both are recorded, and both are undone."""

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("outer"))
        door.execute(call("inner", id="i"))
        raise AssertionError

    door = executor(tool("outer", outer), tool("inner", asks_for(Client)))
    with pytest.raises(UnboundResourceError):
        door.execute(call("outer", id="o"))
    assert door.environment.session[Kept].all() == ()
    assert [event.name for event in events(door)] == ["inner", "outer"]
