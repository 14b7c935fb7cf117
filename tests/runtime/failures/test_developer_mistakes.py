"""The developer's mistakes that show while a call runs, also in values: raised, recorded, and kept from the model."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    CircularResourceError,
    DeveloperMistake,
    EffectUncertain,
    InvalidArgumentError,
    InvalidReturnError,
    PromptEvaluationError,
    ReducerError,
    ResourceUseError,
    SessionUseError,
    ToolValidationError,
    UnboundResourceError,
    WrongResourceError,
)
from handrail.events import Dispatcher
from handrail.prompt import External, PolicyDecision, Tool, ToolContext, ToolResult
from handrail.resources import Binding, ResourceRegistry, Scope
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, ToolCall, ToolInvoked, ToolMessage
from tests.kit import ASKS, Decides, Kept, Note, Run, both_ways, call, events, executor, raises, scribble, tool
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
    ("approver returns text", lambda: executor(tool("t"), policies=(ASKS,), approver=unclear), InvalidReturnError),
    ("on_result returns a coroutine", lambda: executor(tool("t"), policies=(Notes(later),)), InvalidReturnError),
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
    assert (re.sub(" at 0x[0-9a-f]+", "", str(raised.value)), door.environment.session[Kept].all()) == (wording, ())
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


@both_alls
def test_what_ends_the_run_goes_before_a_mistake_and_has_it_as_a_note(all_calls: Any) -> None:
    """The run is over at once; the mistake is not lost."""

    def ends(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise PromptEvaluationError("enough")

    door = executor(tool("wrong", asks_for(Client)), tool("ends", ends))
    with pytest.raises(PromptEvaluationError, match="enough") as caught:
        all_calls(door, call("wrong", id="1"), call("ends", id="2"))
    assert "UnboundResourceError" in caught.value.__notes__[0]


def test_a_mistake_of_a_nested_call_is_raised_through_the_outer_one() -> None:
    """Both are recorded, and both are undone."""

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("outer"))
        door.execute(call("inner", id="i"))
        raise AssertionError

    door = executor(tool("outer", outer), tool("inner", asks_for(Client)))
    with pytest.raises(UnboundResourceError):
        door.execute(call("outer", id="o"))
    assert (door.environment.session[Kept].all(), [event.name for event in events(door)]) == ((), ["inner", "outer"])


Wrap = Callable[[DeveloperMistake], Exception]


TEXT = str(UnboundResourceError(Client)).partition(" (")[0]


class Till:
    """Another."""


def wrapping(wrap: Wrap, *, cause: bool = True) -> Any:
    """A handler that comes to a mistake, and raises what it makes of it."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        try:
            context.resources.get(Client)
        except DeveloperMistake as mistake:
            if cause:
                raise wrap(mistake) from mistake
            raise wrap(mistake) from None
        raise AssertionError

    return handler


def grouped(mistake: DeveloperMistake) -> Exception:
    """What a task group raises."""
    return ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("odd"), mistake])


def grouped_deep(mistake: DeveloperMistake) -> Exception:
    """In a group in a group."""
    return ExceptionGroup("outer", [ExceptionGroup("inner", [mistake]), ValueError("odd")])


@both_ways
@pytest.mark.parametrize("wrap", [grouped, grouped_deep])
def test_a_group_that_holds_a_mistake_is_raised(wrap: Wrap, way: Run, caplog: pytest.LogCaptureFixture) -> None:
    """To the developer, whole; the call is undone and recorded, its record is not final, nothing is logged."""
    door = executor(tool("t", wrapping(wrap)))
    with pytest.raises(ExceptionGroup) as caught:
        way(door, call("t"))
    assert caught.group_contains(UnboundResourceError) or caught.group_contains(UnboundResourceError, depth=2)
    [event] = events(door)
    assert (event.success, event.final, door.environment.session[Kept].all()) == (False, False, ())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def quoting(mistake: DeveloperMistake) -> Exception:
    """The text of the mistake, within words of the program."""
    return RuntimeError(f"the till is closed ({mistake}); come back")


WRAPPED: dict[str, Wrap] = {
    "its own words": lambda _: RuntimeError("the till is closed"),
    "no words": lambda _: RuntimeError(),
    "quoted": quoting,
    "its text alone": lambda mistake: RuntimeError(str(mistake)),
    "represented": lambda mistake: RuntimeError(f"closed: {mistake!r}"),
    "for the model": lambda mistake: ToolValidationError(f"no: {mistake}"),
    "uncertain": lambda mistake: EffectUncertain(f"who knows: {mistake}"),
}


@both_ways
@pytest.mark.parametrize("cause", [True, False], ids=["from the mistake", "from None"])
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_an_exception_raised_from_a_mistake_is_the_programs_own(
    wrap: Wrap, cause: bool, way: Run, wording: Wording
) -> None:
    """A failed result with type and message; the text of the mistake is replaced in it."""
    door = executor(tool("t", wrapping(wrap, cause=cause)))
    message = way(door, call("t"))
    assert (message.success, message.content) == (False, wording)
    assert TEXT not in events(door)[0].result.message


def test_the_model_does_not_read_a_mistake_of_an_effect_that_is_unknown(wording: Wording) -> None:
    """Neither at once nor when it asks again, nor in the note of the effect."""
    for wrap in (None, quoting, grouped):
        door = executor(tool("t", _asks if wrap is None else wrapping(wrap), effect="external"))
        try:
            told = door.execute(call("t", id="1"), reply="r").content
        except (DeveloperMistake, ExceptionGroup):
            told = ""
        again = door.execute(call("t", id="2"), reply="r").content
        assert again == wording
        assert TEXT not in told + again
        (row,) = door.environment.find_ledger().rows()
        assert TEXT not in row.note


def _asks(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    context.resources.get(Client)
    raise AssertionError


def raised_from_mistake(wrap: Wrap) -> NoReturn:
    """Raise what is made of a mistake."""
    mistake = UnboundResourceError(Client)
    raise wrap(mistake) from mistake


def _answers_by(wrap: Wrap, _: object) -> bool:
    raised_from_mistake(wrap)


def by_policy(wrap: Wrap) -> ToolExecutor:
    """A policy comes to a mistake."""
    return executor(tool("t"), policies=(Decides(lambda _tool, _params: raised_from_mistake(wrap), name="rule"),))


def by_approver(wrap: Wrap) -> ToolExecutor:
    """An approver does."""
    return executor(tool("t"), policies=(ASKS,), approver=partial(_answers_by, wrap))


def by_provider(wrap: Wrap) -> ToolExecutor:
    """A provider does."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.resources.get(Till)
        raise AssertionError

    return executor(tool("t", handler), resources={Till: Binding(Till, lambda _: raised_from_mistake(wrap))})


def by_reconciler(wrap: Wrap) -> ToolExecutor:
    """A reconciler does, of an effect that is unknown."""

    def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise TimeoutError("slow")

    def reconcile(params: Note, key: str) -> ToolResult[Note] | None:
        raised_from_mistake(wrap)

    door = executor(tool("t", pay, effect=External(reconcile=reconcile)), effect_ledger=EffectLedger())
    assert not door.execute(call("t"), reply="r").success
    return door


@pytest.mark.parametrize("make", [by_policy, by_approver, by_provider, by_reconciler])
def test_it_holds_for_what_runs_beside_the_handler(make: Callable[[Wrap], ToolExecutor], wording: Wording) -> None:
    """A group is raised; what the model reads of anything else holds no text of the mistake."""
    with pytest.raises(ExceptionGroup, match="TaskGroup"):
        make(grouped).execute(call("t"), reply="r")
    message = make(quoting).execute(call("t"), reply="r")
    assert not message.success
    assert TEXT not in message.content
    assert message.content == wording


def test_what_subscribers_raise_is_looked_through() -> None:
    """`DispatchError` quotes all of them, and is raised from the first alone."""
    dispatcher = Dispatcher()

    def first(event: Note) -> None:
        raise ValueError("odd")

    def second(event: Note) -> None:
        raise UnboundResourceError(Client)

    dispatcher.subscribe(Note, first)
    dispatcher.subscribe(Note, second)
    door = executor(tool("t"), session=Session(session_id="s", dispatcher=dispatcher))
    content = door.execute(call("t")).content
    assert "odd" in content
    assert TEXT not in content


@dataclass(frozen=True)
class Impossible:
    """No JSON says it."""

    value: complex


@dataclass(frozen=True)
class Anything:
    """JSON may say it."""

    value: Any


@dataclass(frozen=True)
class Measured:
    """A number."""

    value: float


@pytest.fixture
def session(tmp_path: Path) -> Generator[Session]:
    """A stored session."""
    with store.open(f"sqlite:///{tmp_path}/s.db") as opened, Session.open(opened, "s") as session:
        yield session


def appends(value: Any, times: list[str] | None = None) -> Any:
    """A handler that leaves a value in the session."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        if times is not None:
            times.append(params.text)
        kind: Any = value.__class__
        context.session[kind].append(value)
        return ToolResult.ok(params)

    return handler


def of_result(kind: Any, value: Any, **options: Any) -> Tool[Any, Any]:
    """A tool that returns a value of a type."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Any]:
        return ToolResult.ok(value)

    made: Any = Tool[Note, kind]
    returned: Tool[Any, Any] = made(name="wrong", description="Wrong.", handler=handler, **options)
    return returned


MISTAKES: dict[str, Callable[[], Tool[Any, Any]]] = {
    "a class without JSON": lambda: tool("wrong", appends(Impossible(1j))),
    "Any with a key that is no text": lambda: tool("wrong", appends(Anything({1: 2}))),
    "Any with a set": lambda: tool("wrong", appends(Anything({"a": {1}}))),
    "a value of another type": lambda: tool("wrong", appends(Kept(5))),  # type: ignore[arg-type]
    "a result with Any": lambda: of_result(Anything, Anything({1: 2})),
    "an external result": lambda: of_result(Anything, Anything({1: 2}), effect="external"),
}


@pytest.mark.parametrize("make", MISTAKES.values(), ids=MISTAKES)
def test_it_is_raised_when_the_other_calls_have_been_recorded(
    make: Callable[[], Tool[Any, Any]], session: Session, wording: Wording
) -> None:
    """The call is undone and recorded as failed; its record is not final."""
    door = executor(make(), tool("fine"), session=session)
    calls = [call("fine", "a", id="1"), call("wrong", "b", id="2"), call("fine", "c", id="3")]
    with raises(SessionUseError, wording) as caught:
        door.execute_all(calls, reply="r")
    assert isinstance(caught.value, DeveloperMistake)
    assert [(event.call_id, event.success, event.final) for event in events(door)] == [
        ("1", True, True),
        ("2", False, False),
        ("3", True, True),
    ]
    assert session[Note].all() == (Note("a"), Note("c"))
    assert not session[Anything]


def test_the_effect_of_such_a_call_is_done(session: Session) -> None:
    """Its handler ran to its end: once the program is right, it is answered from the ledger and not run again."""
    done: list[str] = []
    key = IdempotencyConfig()
    wrong = tool("pay", appends(Impossible(1j), done), effect="external", idempotency=key)
    with pytest.raises(SessionUseError):
        _paid(wrong, session)
    right = tool("pay", appends(Kept("x"), done), effect="external", idempotency=key)
    message = _paid(right, session)
    assert (message.success, message.replayed, done) == (True, True, ["hello"])


def _paid(paying: Tool[Any, Any], session: Session) -> ToolMessage:
    return executor(paying, session=session).execute(call("pay", id="1"), reply="r")
