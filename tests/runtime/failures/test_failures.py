"""The exception table: what each exception becomes, through both entries."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    BudgetExceededError,
    CallPostponed,
    DeadlineExceededError,
    EffectUncertain,
    FilesystemBusyError,
    JournalError,
    PromptEvaluationError,
    RootMissingError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.prompt import TextPart, ToolContext, ToolResult
from handrail.redaction import MASK, Redaction, use_redaction
from handrail.runtime import EffectUnsettled, ToolInvoked, ToolRaised
from tests.handler_threads import HandlerThreads
from tests.kit import Decides, Kept, Note, Run, both_ways, call, events, executor, raises, soon, sync, tool
from tests.wording import Wording


def raising(error: BaseException, cause: Exception | None = None) -> Any:
    """A handler that writes, then raises."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        raise error from cause

    return handler


IS_RAISED: dict[str, BaseException] = {
    "evaluation": PromptEvaluationError("stop", phase="tool"),
    "expansion": VisibilityExpansionRequired("open it", section_keys=["a.b"]),
    "budget": BudgetExceededError(dimension="total tokens", usage=2, limit=1),
    "Ctrl-C": KeyboardInterrupt("now"),
    "exit": SystemExit("now"),
    "generator exit": GeneratorExit("now"),
}
"""What a handler raises and the caller gets; an event loop has its own way with the last three."""

IS_READ: dict[str, Exception] = {
    "validation": ToolValidationError("text must not be a greeting"),
    "type error": TypeError("text is no number"),
    "lookup": LookupError("no such row"),
}
"""What the model reads."""


def left_by(door: ToolExecutor) -> tuple[object, ...]:
    """What a call has left: in the session, in the records, and in the queue of the session."""
    session = door.environment.session
    return session[Kept].all(), [event.success for event in events(door)], session.turn.queue


@both_ways
@pytest.mark.requirement("E-01", "E-07", "M-03b")
@pytest.mark.parametrize("kind", IS_READ)
def test_what_the_model_reads_of_a_failure(
    kind: str, way: Run, wording: Wording, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal as it is; of any other exception type and message, and the log has the traceback."""
    door = executor(tool("check", raising(IS_READ[kind])))
    message = way(door, call("check"))
    assert message.content == wording
    assert "Traceback" not in message.content
    assert left_by(door) == ((), [False], [])
    tracebacks = [entry.exc_info is not None for entry in caplog.records if entry.name == "handrail.runtime"]
    assert tracebacks == ([] if kind == "validation" else [True])


@both_ways
@pytest.mark.requirement("E-03", "E-05", "M-03c")
@pytest.mark.parametrize("kind", IS_RAISED)
def test_what_ends_the_run_is_undone_recorded_and_raised_as_it_is(kind: str, way: Run) -> None:
    """The same object reaches the caller."""
    error = IS_RAISED[kind]
    door = executor(tool("stop", raising(error)))
    way = way if isinstance(error, Exception) else sync
    with pytest.raises(type(error)) as caught:
        way(door, call("stop"))
    assert caught.value is error
    assert left_by(door) == ((), [False], [])


@both_ways
@pytest.mark.requirement("S-12a")
def test_a_postponed_call_is_undone_and_raised_and_not_recorded(way: Run) -> None:
    """The same object reaches the caller; the call is made again, and recorded then."""
    error = CallPostponed("it waits for approval")
    door = executor(tool("later", raising(error)))
    with pytest.raises(CallPostponed) as caught:
        way(door, call("later"))
    assert caught.value is error
    assert left_by(door) == ((), [], [])


def _takes_one(params: Note) -> Note:
    return params


@both_ways
@pytest.mark.requirement("E-02")
def test_calling_the_handler_wrongly_says_what_it_must_accept(way: Run, wording: Wording) -> None:
    """A signature can change after the tool was made; the call says what is due."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(params)

    door = executor(tool("changed", handler))
    handler.__code__ = _takes_one.__code__
    handler.__kwdefaults__ = None
    message = way(door, call("changed"))
    assert message.content == wording


@both_ways
@pytest.mark.requirement("E-04")
def test_a_deadline_error_ends_the_run_as_an_evaluation_error(way: Run, wording: Wording) -> None:
    """Whoever notices the deadline, the caller sees one exception."""
    door = executor(tool("late", raising(DeadlineExceededError("too late"))))
    with pytest.raises(PromptEvaluationError) as caught:
        way(door, call("late"))
    assert (str(caught.value), caught.value.phase, caught.value.tool) == (wording, "tool", "late")
    assert isinstance(caught.value.__cause__, DeadlineExceededError)
    assert len(events(door)) == 1


@pytest.mark.requirement("E-05")
@pytest.mark.anyio
async def test_a_base_exception_of_a_thread_reaches_the_caller_of_the_loop() -> None:
    """A `def` handler runs on a thread there; what it raises is raised here."""

    class Odd(BaseException):
        pass

    door = executor(tool("stop", raising(Odd())))
    with pytest.raises(Odd):
        await door.execute_async(call("stop"))
    assert [event.success for event in events(door)] == [False]


@both_ways
@pytest.mark.requirement("E-06", "M-03e")
def test_a_timeout_undoes_the_call_and_tells_the_model(way: Run, wording: Wording) -> None:
    """The handler is left behind, and the model reads that its changes were undone."""
    release = threading.Event()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("half"))
        release.wait()
        return ToolResult.ok(params)

    door = executor(tool("slow", handler, timeout=timedelta(milliseconds=20)))
    message = way(door, call("slow"))
    release.set()
    assert (message.content, left_by(door)) == (wording, ((), [False], []))


@both_ways
@pytest.mark.requirement("E-06", "S-07d")
def test_a_timed_out_external_effect_is_unknown_and_not_run_again(way: Run, wording: Wording) -> None:
    """Nobody knows whether it took effect; the next call is told so instead of repeating it."""
    starts: list[str] = []
    release, threads = threading.Event(), HandlerThreads()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        starts.append(params.text)
        release.wait()
        return ToolResult.ok(params)

    door = executor(tool("charge", handler, effect="external", timeout=timedelta(milliseconds=20)))
    first, again = way(door, call("charge")), way(door, call("charge"))
    release.set()
    threads.join()  # one that begins late has been started all the same
    assert (first.content, again.content, again.success, starts) == (wording, wording, False, ["hello"])


@both_ways
@pytest.mark.requirement("S-09", "E-04")
def test_the_deadline_bounds_a_running_handler(way: Run, wording: Wording) -> None:
    """A handler that hangs does not hold up the end of the run."""
    release = threading.Event()

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        release.wait()
        return ToolResult.ok(params)

    door = executor(tool("hang", handler), deadline=soon())
    with raises(PromptEvaluationError, wording):
        way(door, call("hang"))
    release.set()
    assert len(events(door)) == 1


@both_ways
@pytest.mark.requirement("M-06m", "M-03a")
def test_a_result_of_the_wrong_type_fails_the_call(way: Run, wording: Wording) -> None:
    """What the handler declares is what it must return; otherwise nothing of it stays."""

    def no_result(params: Note, *, context: ToolContext) -> Any:
        context.session[Kept].append(Kept("half"))
        return params

    def wrong_value(params: Note, *, context: ToolContext) -> Any:
        context.session[Kept].append(Kept("half"))
        return ToolResult.ok(Kept("x"))

    door = executor(tool("bare", no_result), tool("wrong", wrong_value))
    assert way(door, call("bare")).content == wording
    assert way(door, call("wrong")).content == wording
    assert door.environment.session[Kept].all() == ()


@pytest.mark.anyio
async def test_an_async_handler_through_the_synchronous_entry_on_a_loop_says_what_to_call(wording: Wording) -> None:
    """`execute` would stop the loop; the developer reads what to write instead."""

    async def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(params)

    with raises(PromptEvaluationError, wording):
        executor(tool("free", handler)).execute(call("free"))


PLACE = "postgresql://ada@db.internal:5432/desk"


ENVIRONMENT = {"STRIPE_API_KEY": "stripe-key-of-the-shop", "LANG": "en_GB.UTF-8"}


KEY = ENVIRONMENT["STRIPE_API_KEY"]


STORAGE = [
    StoreError(f"{PLACE} refuses: out of memory", store=PLACE),
    StoreUnavailableError(f"{PLACE} does not answer", store=PLACE),
    StoreCorruptError(f"entry 3 in {PLACE} is odd", store=PLACE),
    StoreReadOnlyError(f"{PLACE} is read-only", store=PLACE),
    StoreVersionError(f"{PLACE} is newer", store=PLACE, version=9, supported_version=3),
    JournalError(f"the journal of {PLACE} cannot be read", path="."),
    RootMissingError(f"{PLACE} is gone", path="."),
    FilesystemBusyError(f"another process works on {PLACE}", path="."),
]


@pytest.fixture
def secret() -> Iterator[None]:
    """A process whose environment has a secret."""
    before = use_redaction(Redaction.of_environment(ENVIRONMENT))
    yield
    use_redaction(before)


RAISED = {
    "foreign": KeyError(ENVIRONMENT),
    "for the model": ToolValidationError(f"the key {KEY} is refused"),
    "in a group": ExceptionGroup(KEY, [ValueError(KEY)]),
}


@pytest.mark.usefixtures("secret")
@both_ways
@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
def test_a_secret_of_the_environment_is_in_no_message(error: Exception, way: Run) -> None:
    """Nor in the record of the call; the rest of the text is there."""
    door = executor(tool("t", raising(error)))
    message = way(door, call("t"))
    [event] = events(door)
    assert KEY not in message.content + event.result.message
    assert MASK in message.content


@pytest.mark.usefixtures("secret")
@both_ways
def test_a_secret_is_not_in_the_note_of_an_effect(way: Run) -> None:
    """People read it."""
    door = executor(tool("t", raising(EffectUncertain(f"{KEY}: who knows")), effect="external"))
    assert KEY not in way(door, call("t")).content
    (row,) = door.environment.find_ledger().rows()
    assert "who knows" in row.note
    assert KEY not in row.note


@pytest.mark.usefixtures("secret")
def test_a_secret_that_a_policy_raises_is_not_told() -> None:
    """Whatever fails on the way of a call."""

    def fails(*_: object) -> Any:
        raise RuntimeError(KEY)

    assert KEY not in executor(tool("t"), policies=(Decides(fails),)).execute(call("t")).content


@pytest.mark.usefixtures("secret")
@both_ways
@pytest.mark.parametrize("error", STORAGE, ids=lambda error: type(error).__name__)
def test_the_model_reads_what_failed_and_not_where(error: StoreError, way: Run) -> None:
    """Of an error of the store, or of files on disk, also where the program repeats its text."""
    assert error.text_for_model
    for raised in (error, RuntimeError(f"cannot save: {error}"), ToolValidationError(f"try later, {error}")):
        told = way(executor(tool("t", raising(raised, None if raised is error else error))), call("t")).content
        assert PLACE not in told
        assert error.text_for_model in told


@pytest.mark.usefixtures("secret")
@both_ways
@pytest.mark.parametrize("results", [False, True])
def test_what_a_tool_returns_is_redacted_if_that_is_asked_for(results: bool, way: Run) -> None:
    """The value that the session records is what the tool has returned."""
    use_redaction(Redaction(values=frozenset({KEY}), results=results))

    def shows(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note(f"{KEY}."), parts=[TextPart(KEY)])

    door = executor(tool("t", shows))
    message = way(door, call("t"))
    assert (KEY in message.content, MASK in message.content) == (not results, results)
    assert (KEY in str(message.parts)) is not results
    assert events(door)[0].result.value == Note(f"{KEY}.")


breaks, refuses = raising(OSError("no ink")), raising(ToolValidationError("that is no note"))


def heard_by(door: ToolExecutor, *kinds: type[Any]) -> list[Any]:
    """What the subscribers of its session are notified of."""
    heard: list[Any] = []
    for kind in kinds or (ToolRaised,):
        door.environment.session.dispatcher.subscribe(kind, heard.append)
    return heard


@both_ways
def test_what_a_tool_raises_is_said_with_the_exception(way: Any) -> None:
    """Once, when the call is undone and not yet recorded; the model reads type and message, and no slice keeps it."""
    door = executor(tool("jot", breaks))
    heard, session, seen = heard_by(door), door.environment.session, list[tuple[int, int]]()
    session.dispatcher.subscribe(ToolRaised, lambda _: seen.append((len(session[Kept]), len(session[ToolInvoked]))))
    message = way(door, call("jot"))
    (event,) = heard
    assert (event.session_id, event.reply, event.call_id, event.tool) == ("s", None, "call-1", "jot")
    assert event.ref == session[ToolInvoked].all()[0].ref
    assert type(event.error) is OSError
    assert event.error.__traceback__ is not None
    assert (message.content, session[ToolRaised].all(), seen) == ("jot failed: OSError: no ink", (), [(0, 0)])


def fails(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Return a failure."""
    return ToolResult.error("no ink")


@both_ways
@pytest.mark.parametrize("handler", [refuses, fails, None], ids=["refuses", "fails", "missing"])
def test_what_is_meant_for_the_model_is_no_such_exception(way: Any, handler: Callable[..., Any] | None) -> None:
    """A refusal of the handler, a failed result, and a refusal of the pipeline."""
    door = executor(tool("jot", handler))
    heard = heard_by(door)
    assert not way(door, call("jot")).success
    assert not way(door, call("jott", id="call-2")).success
    assert heard == []


@both_ways
def test_a_subscriber_that_raises_changes_nothing(way: Any, caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """It is logged."""
    door = executor(tool("jot", breaks))

    def fail(_: ToolRaised) -> None:
        raise RuntimeError("the subscriber is broken")

    door.environment.session.dispatcher.subscribe(ToolRaised, fail)
    with caplog.at_level(logging.ERROR, "handrail.runtime"):
        assert way(door, call("jot")).content == "jot failed: OSError: no ink"
    assert caplog.messages == wording


@both_ways
def test_an_effect_that_is_unknown_is_said_before_the_end_of_its_call(way: Any) -> None:
    """Once, with the identity of the call and the key of the effect; no slice keeps the event."""
    door = executor(tool("send", breaks, effect="external"))
    heard = heard_by(door, EffectUnsettled, ToolInvoked)
    way(door, call("send"))
    unsettled, ended = heard
    assert isinstance(unsettled, EffectUnsettled)
    assert isinstance(ended, ToolInvoked)
    assert (unsettled.session_id, unsettled.ref, unsettled.tool) == ("s", ended.ref, "send")
    assert (unsettled.key, door.environment.session[EffectUnsettled].all()) == (ended.effect_key, ())


@both_ways
def test_who_listens_for_nothing_else_is_notified_too(way: Any) -> None:
    """An alarm for money needs no subscription to all calls."""
    door = executor(tool("send", breaks, effect="external"))
    heard = heard_by(door, EffectUnsettled)
    way(door, call("send"))
    assert [type(event) for event in heard] == [EffectUnsettled]


@both_ways
def test_an_effect_that_is_known_not_to_have_happened_is_settled(way: Any) -> None:
    """By a refusal of the handler, and by the rollback of a tool that changes the session alone."""
    door = executor(tool("send", refuses, effect="external"), tool("jot", breaks))
    heard = heard_by(door, EffectUnsettled, ToolInvoked)
    way(door, call("send"))
    way(door, call("jot", id="call-2"))
    assert [type(event) for event in heard] == [ToolInvoked, ToolInvoked]
