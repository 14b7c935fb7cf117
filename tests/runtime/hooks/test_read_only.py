"""`handrail.adapters.hooks`: providers and checkers read, and cannot write, in time or later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import handrail.store
from handrail import tool
from handrail.adapters.hooks import read_only_transaction
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CompletionCheckError, ModelVisibleError, ReadOnlyViolation, TransactionClosedError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.limits import Deadline
from handrail.prompt import Feedback, FeedbackTrigger, Prompt, PromptTemplate, ToolContext, ToolsSection
from handrail.prompt.hooks import RunFilesystem, RunView
from handrail.runtime import Session, ToolCall
from handrail.testing import FakeClock
from handrail.transaction import enlist
from tests.transaction.notebooks import Receipt
from tests.wording import Wording

CALL = ToolCall("c", "note", {"text": "kept"})
AsksBoth = pytest.mark.parametrize("asked", ["a provider", "a checker"])


@dataclass(frozen=True)
class Note:
    """What the tool stores."""

    text: str


@tool
def note(text: str) -> Note:
    """Note something."""
    return Note(text)


@dataclass
class Desk:
    """A run that asks one provider or one checker, whose body is given."""

    body: Callable[[RunView], None]
    files: InMemoryFilesystem = field(default_factory=InMemoryFilesystem)
    session: Session = field(default_factory=Session)
    clock: FakeClock = field(default_factory=FakeClock)
    name: str = "desk"
    trigger: FeedbackTrigger = field(default_factory=lambda: FeedbackTrigger(every_calls=1))

    def provide(self, context: RunView, /) -> Feedback:
        """As a provider."""
        self.body(context)
        return Feedback("Look again.")

    def missing(self, context: RunView, /) -> list[str]:
        """As a checker."""
        self.body(context)
        return ["The report is missing."]

    def executor(self, asked: str, **options: Any) -> ToolExecutor:
        """The executor of the run."""
        template = PromptTemplate[str](
            ns="t",
            key="desk",
            sections=[ToolsSection(title="Desk", tools=[note])],
            feedback=[self] if asked == "a provider" else [],
            completion=self if asked == "a checker" else None,
        )
        prompt = Prompt(template).bind(resources={Filesystem: self.files})
        return ToolExecutor(prompt=prompt, session=self.session, **options)

    def ask(self, asked: str, **options: Any) -> str:
        """Make a call, or give an answer; returns what the model reads of the provider or checker."""
        executor = self.executor(asked, **options)
        message = executor.execute(CALL, reply="r")
        return message.feedback if asked == "a provider" else executor.completion("Done.") or ""

    def writes(self, context: RunView) -> dict[str, Callable[[], object]]:
        """All ways to write that lead past the pipeline."""
        session, files = context.session, context.resources.get(Filesystem)
        return {
            "a slice": lambda: session[Note].append(Note("late")),
            "an event": lambda: session.dispatch(Note("late")),
            "a child": lambda: session.child()[Note].append(Note("late")),
            "a file": lambda: files.write_text("late.md", "late"),
            "the session by a closure": lambda: self.session[Note].append(Note("late")),
            "the files by a closure": lambda: self.files.write_text("late.md", "late"),
        }

    @property
    def is_untouched(self) -> bool:
        """Whether nothing was written but what the call has noted."""
        return self.session[Note].all() == (Note("kept"),) and not self.files.exists("late.md")


def refused(write: Callable[[], object]) -> type[Exception] | None:
    """What a write raises."""
    try:
        write()
    except ModelVisibleError as error:
        return type(error)
    return None


def tried(writes: dict[str, Callable[[], object]]) -> dict[str, type[Exception] | None]:
    """What each write raises here, and those by what was given in a thread that does not copy this context."""
    found = {way: refused(write) for way, write in writes.items()}
    given = ("a slice", "an event", "a file")
    thread = threading.Thread(
        target=lambda: found.update({f"{way}, in a thread": refused(writes[way]) for way in given})
    )
    thread.start()
    thread.join()
    return found


@AsksBoth
def test_what_it_writes_is_refused(asked: str) -> None:
    """Through what it was given also in a thread that does not copy its context; it reads all the same."""
    found: dict[str, type[Exception] | None] = {}

    def body(context: RunView) -> None:
        assert (context.session[Note].all(), context.filesystem) == ((Note("kept"),), context.resources.get(Filesystem))
        found.update(tried(desk.writes(context)))

    desk = Desk(body)
    assert desk.ask(asked)
    assert (len(found), set(found.values())) == (9, {ReadOnlyViolation})
    assert desk.is_untouched


def test_a_write_that_it_does_not_catch_is_a_mistake_that_is_described(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """That of a provider is logged, that of a checker is raised."""
    desk = Desk(lambda context: context.session[Note].append(Note("late")))
    assert not desk.ask("a provider")
    (record,) = caplog.records
    assert record.exc_info is not None
    logged = record.exc_info[1]
    assert isinstance(logged, ReadOnlyViolation)
    assert str(logged) == wording
    with pytest.raises(CompletionCheckError) as caught:
        desk.executor("a checker").completion("Done.")
    cause = caught.value.__cause__
    assert isinstance(cause, ReadOnlyViolation)
    assert (cause.tool, cause.what) == ("the completion check of t/desk", "append to Note")


@AsksBoth
def test_a_write_that_it_catches_says_what_to_do_instead(asked: str, tmp_path: Path, wording: Wording) -> None:
    """Not how a tool would be declared: whatever it writes to, a provider and a checker return text."""
    caught: list[ReadOnlyViolation] = []

    def body(context: RunView) -> None:
        writes: tuple[Callable[[], object], ...] = (
            lambda: context.session[Note].append(Note("late")),
            lambda: context.resources.get(Filesystem).write_text("late.md", "late"),
            lambda: context.session.connection().execute("CREATE TABLE late (n INTEGER)"),
            lambda: enlist(Receipt()),
        )
        for write in writes:
            with pytest.raises(ReadOnlyViolation) as raised:
                write()
            caught.append(raised.value)

    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store, Session.open(store, "s", types=[Note]) as session:
        assert Desk(body, session=session).ask(asked)
    assert [str(error) for error in caught] == wording
    (cure,) = {error.cure for error in caught}
    assert all(str(error).endswith(cure) for error in caught)
    assert cure != ReadOnlyViolation("note", "write").cure


class Late:
    """The body of a provider or checker that is left behind, and tries each way to write then."""

    def __init__(self) -> None:
        self.started, self.released, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.found: dict[str, type[Exception] | None] = {}
        self.desk = Desk(self)

    def __call__(self, context: RunView) -> None:
        """Wait, and write."""
        writes = self.desk.writes(context)
        executor = self.desk.executor("nobody")
        self.started.set()
        self.released.wait()
        self.found = tried(writes)
        self.found["a call"] = None if executor.execute(CALL).success else TransactionClosedError
        self.ended.set()

    def check(self) -> None:
        """Check that nothing that it writes lands."""
        self.released.set()
        self.ended.wait()
        assert (len(self.found), set(self.found.values())) == (10, {TransactionClosedError})
        assert self.desk.is_untouched


def test_a_checker_that_the_deadline_overtakes_is_left_behind_and_writes_nothing(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Nothing could follow, so the answer is accepted, and that is logged; the run does not wait for the checker."""
    late = Late()
    deadline = Deadline.after(timedelta(milliseconds=50), clock=late.desk.clock)
    assert not late.desk.ask("a checker", deadline=deadline)
    assert [record.getMessage() for record in caplog.records] == wording
    late.check()


def test_a_checker_whose_run_is_cancelled_writes_nothing() -> None:
    """Its thread cannot be stopped."""
    late = Late()

    async def cancel() -> None:
        executor = late.desk.executor("a checker")
        await executor.execute_async(CALL, reply="r")
        task = asyncio.create_task(executor.completion_async("Done."))
        await asyncio.to_thread(late.started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    late.check()


@AsksBoth
def test_a_tool_that_it_calls_is_a_call_of_its_own(asked: str) -> None:
    """As of a checker that asks another model: the call commits, also on the session of the run."""
    own = Session()
    desk = Desk(lambda _: None)
    inner = (desk.executor("nobody"), ToolExecutor(prompt=desk.executor("nobody").environment.prompt, session=own))

    def body(_context: RunView) -> None:
        for executor in inner:
            executor.execute(CALL)

    desk.body = body
    assert desk.ask(asked)
    assert (len(desk.session[Note]), len(own[Note])) == (2, 1)


def test_a_call_that_it_makes_inside_a_call_on_the_same_session_is_refused_if_it_writes(wording: Wording) -> None:
    """It would be part of the call, from which a provider of a run in its handler only reads."""
    inner = Desk(lambda _: None).executor("nobody")

    @tool
    def run_another(*, context: ToolContext) -> str:
        """Run something on the session of the call, of which a provider makes a call."""
        with read_only_transaction("reader"):
            return inner.execute(CALL).content

    template = PromptTemplate[str](ns="t", key="run", sections=[ToolsSection(title="Run", tools=[run_another])])
    session = inner.environment.session
    executor = ToolExecutor(prompt=Prompt(template), session=session)
    assert executor.execute(ToolCall("c", "run_another", {})).content == wording
    assert len(session[Note]) == 0


def test_the_database_of_the_session_is_read_and_not_written(tmp_path: Path) -> None:
    """Its connection is released, so the next call can write."""
    found: list[object] = []

    def body(context: RunView) -> None:
        connection = context.session.connection()
        found.append(connection.execute("SELECT 7").fetchone())
        found.append(refused(lambda: connection.execute("CREATE TABLE late (n INTEGER)")))

    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store, Session.open(store, "s", types=[Note]) as session:
        executor = Desk(body, session=session).executor("a checker")
        assert executor.completion("Done.") is not None
        assert executor.execute(CALL, reply="r").success
    assert found == [(7,), ReadOnlyViolation]


def test_files_of_another_prompt_of_the_run_are_read_only_too() -> None:
    """They are found by a resource of the run."""
    files = InMemoryFilesystem()
    beside = Prompt(PromptTemplate[str](ns="t", key="p", sections=[])).bind(
        resources={RunFilesystem: RunFilesystem(lambda: files)}
    )
    view = RunView(prompt="t/p", session=Session(), resources=beside.resources)
    with read_only_transaction("reader") as reading:
        found = view.within(reading, RunView).filesystem
        assert found is not None
    with pytest.raises(TransactionClosedError):
        found.write_text("late.md", "late")
