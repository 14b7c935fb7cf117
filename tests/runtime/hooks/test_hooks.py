"""Completion checkers and feedback providers of a prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import handrail.store
from handrail import tool
from handrail.adapters.hooks import SentBack
from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.errors import CompletionCheckError, UnboundResourceError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import (
    BinaryPart,
    CompletionCheck,
    CompletionContext,
    Feedback,
    FeedbackContext,
    FeedbackProvider,
    FeedbackTrigger,
    FilesExist,
    Prompt,
    PromptTemplate,
    ToolsSection,
)
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.testing import FakeClock
from tests.runtime.kit import expect
from tests.wording import Wording


@dataclass
class Checker:
    """A checker that notes the answers, and returns or raises what it was given."""

    misses: Any = ("The report is missing.",)
    answers: list[object] = field(default_factory=list[object])

    def missing(self, context: CompletionContext, /) -> Sequence[str]:
        """What it was given."""
        self.answers.append(context.answer)
        if isinstance(self.misses, Exception):
            raise self.misses
        found: Sequence[str] = self.misses
        return found


def desk(
    completion: Any = None,
    *providers: FeedbackProvider,
    session: Session | None = None,
    files: InMemoryFilesystem | None = None,
    **options: Any,
) -> ToolExecutor:
    """An executor of a prompt with this completion and these providers."""
    section = ToolsSection(title="Desk", tools=options.pop("tools", [lookup, picture]))
    template = PromptTemplate[str](ns="t", key="desk", sections=[section], completion=completion, feedback=providers)
    prompt = Prompt(template).bind(resources={} if files is None else {Filesystem: files})
    return ToolExecutor(prompt=prompt, session=Session() if session is None else session, **options)


def test_the_model_reads_what_is_missing(wording: Wording) -> None:
    """One sentence stands by itself, several as a list."""
    assert desk(Checker()).completion("Done.") == wording
    assert desk(Checker(["The report is missing.", "Step 2 is not done."])).completion("Done.") == wording


@pytest.mark.parametrize("most", [0, 2])
def test_an_answer_is_accepted_after_the_model_was_sent_back_so_often(
    most: int, caplog: pytest.LogCaptureFixture
) -> None:
    """That is logged with what is missing; the count begins anew after it."""
    executor = desk(CompletionCheck(Checker(), most_sent_back=most))
    given = [executor.completion("Done.") is None for _ in range(2 * most + 2)]
    assert given == [*[False] * most, True] * 2
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "The report is missing." in caplog.records[0].getMessage()


def test_an_answer_with_a_name_counts_once() -> None:
    """It may be checked again after a restart, and stays sent back."""
    executor = desk(CompletionCheck(Checker(), most_sent_back=1))
    given = [executor.completion("Done.", reply=reply) is None for reply in ("r1", "r1", "r2", "r3")]
    assert given == [False, False, True, False]
    assert [each.reply for each in executor.environment.session[SentBack]] == ["r1", "r2", "r3"]


def test_a_checker_that_fails_is_a_mistake_of_the_program() -> None:
    """The model is not told; the developer gets the cause."""
    cause = ValueError("broken")
    with pytest.raises(CompletionCheckError) as caught:
        desk(Checker(cause)).completion("Done.")
    assert (caught.value.prompt, caught.value.__cause__) == ("t/desk", cause)
    assert "ValueError: broken" in caught.value.fault
    with pytest.raises(UnboundResourceError):
        desk(FilesExist(["report.md"])).completion("Done.")


@pytest.mark.parametrize("returned", [True, False, [1], [""]])
def test_a_checker_that_returns_no_sentences_is_a_mistake_of_the_program(returned: object) -> None:
    """A truth value says nothing of what is missing."""
    with pytest.raises(CompletionCheckError):
        desk(Checker(returned)).completion("Done.")


def test_a_function_returns_sentences_or_nothing() -> None:
    """It stands for a checker."""

    def short(context: CompletionContext) -> str | None:
        return None if len(context.answer) > 3 else "Say more."

    def several(sentences: list[str], _context: CompletionContext) -> list[str]:
        return sentences

    executor = desk(short)
    assert executor.completion("long enough") is None
    assert "Say more." in str(executor.completion("no"))
    assert "- A\n- B" in str(desk(partial(several, ["A", "B"])).completion("no"))
    assert desk(partial(several, [])).completion("no") is None


@pytest.mark.anyio
async def test_completion_async_does_the_same() -> None:
    """On an event loop the checker runs on another thread."""
    executor = desk(CompletionCheck(Checker(), most_sent_back=1))
    assert await executor.completion_async("Done.") is not None
    assert await executor.completion_async("Done.") is None


ALWAYS = FeedbackTrigger(every_calls=1)


@tool  # its calls run one by one, so that each has the feedback that is due at it
def lookup(number: int) -> str:
    """Look something up."""
    if number < 0:
        raise LookupError("no such number")
    return f"found {number}"


@tool(effect="read")
def picture() -> BinaryPart:
    """Draw something."""
    return BinaryPart(b"png", "image/png")


@dataclass
class Provider:
    """A provider that notes what it was asked, and says or raises what it was given."""

    trigger: FeedbackTrigger
    says: Feedback | Exception | None = field(default_factory=lambda: Feedback("Look again."))
    name: str = "advice"
    asked: list[FeedbackContext] = field(default_factory=list[FeedbackContext])

    def provide(self, context: FeedbackContext, /) -> Feedback | None:
        """What it was given to say."""
        self.asked.append(context)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def answered(executor: ToolExecutor, reply: str, *numbers: int) -> list[str]:
    """The feedback of the messages of a reply."""
    calls = [ToolCall(f"c{place}", "lookup", {"number": number}) for place, number in enumerate(numbers)]
    messages = expect(Answers, executor.answer(calls, reply=reply))
    return [message.feedback for message in messages]


def test_feedback_ends_the_message_and_is_not_in_the_result(wording: Wording) -> None:
    """The message has it behind a line that marks it; the result and the record have not."""
    executor = desk(None, Provider(ALWAYS, Feedback("Look again.", ("Take another number.",))))
    message = executor.execute(ToolCall("c", "lookup", {"number": 1}), reply="r")
    assert (message.feedback, message.content) == (wording, f"found 1\n\n{message.feedback}")
    assert message.result.value == "found 1"
    record = executor.environment.session[ToolInvoked].all()[0]
    assert "Look again" not in repr(record)


def test_calls_are_counted_for_each_provider_from_its_last_feedback() -> None:
    """Whether they belong to one reply or to several."""
    second, third = Provider(FeedbackTrigger(every_calls=2)), Provider(FeedbackTrigger(every_calls=3), name="other")
    executor = desk(None, second, third)
    given = [*answered(executor, "r1", 1, 1, 1, 1), *answered(executor, "r2", 1, 1)]
    assert [len(text.split("[Feedback")) - 1 for text in given] == [0, 1, 1, 1, 0, 2]
    assert [context.calls for context in second.asked] == [2, 2, 2]


def test_time_counts_from_the_first_call_and_then_from_the_last_feedback() -> None:
    """Nothing is due before the span has passed."""
    clock = FakeClock()
    executor = desk(None, Provider(FeedbackTrigger(every=timedelta(minutes=5))), clock=clock)
    given = [answered(executor, "r0", 1)]
    for place, minutes in enumerate((4, 1, 4, 1), start=1):
        clock.advance(timedelta(minutes=minutes))
        given.append(answered(executor, f"r{place}", 1))
    assert [bool(texts[0]) for texts in given] == [False, False, True, False, True]


def test_a_file_is_answered_once_for_each_path() -> None:
    """A file that is deleted and appears again is not answered again."""
    files = InMemoryFilesystem()
    provider = Provider(FeedbackTrigger(on_file="docs/*.md"))
    executor = desk(None, provider, files=files)
    given = answered(executor, "r0", 1)
    files.write_text("docs/b.md", "b")
    files.write_text("docs/a.md", "a")
    given += answered(executor, "r1", 1)
    files.remove("docs/a.md")
    given += answered(executor, "r2", 1)
    files.write_text("docs/a.md", "a")
    files.write_text("docs/c.md", "c")
    given += answered(executor, "r3", 1)
    assert [bool(text) for text in given] == [False, True, False, True]
    assert [context.files for context in provider.asked] == [("docs/a.md", "docs/b.md"), ("docs/c.md",)]
    assert answered(desk(None, provider), "r", 1) == [""]  # no filesystem is bound


def test_only_the_same_call_counts_as_a_repeated_failure() -> None:
    """Another tool, other arguments and a success in between are something else."""
    executor = desk(None, Provider(FeedbackTrigger(on_repeated_failure=2)))
    given = [answered(executor, f"r{place}", number)[0] for place, number in enumerate((-1, -2, 1, -1, -1, -1, -1))]
    assert [bool(text) for text in given] == [False, False, False, True, False, True, False]


def test_a_provider_that_fails_or_says_something_else_is_logged(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The call is answered all the same, with what the other providers say."""
    executor = desk(
        None,
        Provider(ALWAYS, ValueError("broken"), name="fails"),
        Provider(ALWAYS, "text", name="wrong"),  # type: ignore[arg-type]
        Provider(ALWAYS, None, name="silent"),
        Provider(ALWAYS),
    )
    message = executor.execute(ToolCall("c", "lookup", {"number": 1}), reply="r")
    assert (message.success, message.feedback) == (True, wording)
    assert caplog.messages == wording


def test_a_repeated_call_has_the_same_message_and_no_other_feedback() -> None:
    """The request that the model is sent again is the same, byte for byte."""
    provider = Provider(ALWAYS)
    executor = desk(None, provider)
    call = ToolCall("c", "lookup", {"number": 1})
    first, again = executor.execute(call, reply="r"), executor.execute(call, reply="r")
    assert (again.content, again.replayed, len(provider.asked)) == (first.content, True, 1)


def resumed(folder: Path, provider: Provider) -> tuple[list[Any], ToolMessage]:
    """The conversation that is stored, and the answer of its last call again, as another process reads it."""
    with handrail.store.open(f"sqlite:///{folder}/s.db") as store, Session.open(store, "s") as session:
        executor = desk(None, provider, session=session)
        again = executor.execute(ToolCall("c", "lookup", {"number": 1}), reply="r1")
        return session.conversation.messages, again


def test_a_resumed_conversation_is_what_the_model_was_sent(tmp_path: Path) -> None:
    """The stored messages have the feedback, and another process neither loses nor repeats it."""
    provider = Provider(FeedbackTrigger(every_calls=2))
    sent: list[str] = []
    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store, Session.open(store, "s") as session:
        executor = desk(None, provider, session=session)
        for reply in ("r0", "r1"):
            session.conversation.append("asks", calls=[ToolCall("c", "lookup", {"number": 1})], reply=reply)
            messages = expect(Answers, executor.answer())
            sent.append(messages[0].content)
            session.conversation.append(messages[0].content)
    assert "Look again." in sent[1]
    stored, again = resumed(tmp_path, provider)
    assert (stored, again.content, len(provider.asked)) == (["asks", sent[0], "asks", sent[1]], sent[1], 1)


def test_a_nested_call_has_no_feedback_although_some_is_due() -> None:
    """The call that it is nested in has it."""
    inner: list[ToolMessage] = []
    clock = FakeClock()

    @tool(effect="read")
    def outer() -> str:
        """Call another tool after some time."""
        clock.advance(timedelta(minutes=5))
        inner.append(executor.execute(ToolCall("n", "lookup", {"number": 1})))
        return "done"

    provider = Provider(FeedbackTrigger(every=timedelta(minutes=5)))
    executor = desk(None, provider, tools=[lookup, outer], clock=clock)
    given = [executor.execute(ToolCall("o", "outer"), reply=f"r{place}").feedback for place in range(3)]
    assert [bool(text) for text in given] == [False, True, True]
    assert [message.feedback for message in inner] == ["", "", ""]
    assert [context.call.name for context in provider.asked] == ["outer", "outer"]


class Asynchronous:
    """A provider whose API is asynchronous."""

    name = "advice"
    trigger = ALWAYS

    async def provide(self, _context: FeedbackContext, /) -> Feedback | None:
        """Says it after a turn of the loop."""
        await asyncio.sleep(0)
        return Feedback("Look again.")


class Cancelling:
    """A provider that awaits a task that is cancelled."""

    name = "cancelling"
    trigger = ALWAYS

    async def provide(self, _context: FeedbackContext, /) -> Feedback | None:
        """Does not come to an end."""
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task
        return None


class Cancelled:
    """The same without an event loop."""

    name = "cancelled"
    trigger = ALWAYS

    def provide(self, _context: FeedbackContext, /) -> Feedback | None:
        """Raises what a future that was cancelled raises."""
        raise asyncio.CancelledError


def test_a_provider_whose_own_task_is_cancelled_has_failed(caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """It does not cancel the call, and the other providers are asked."""
    executor = desk(None, Cancelling(), Cancelled(), Asynchronous())
    call = ToolCall("c", "lookup", {"number": 1})
    assert "Look again." in executor.execute(call, reply="r1").feedback
    assert "Look again." in asyncio.run(executor.execute_async(call, reply="r2")).feedback
    assert caplog.messages == wording


def test_a_call_that_is_cancelled_while_a_provider_is_asked_is_cancelled() -> None:
    """The cancellation is not the provider's."""

    class PendingAnswers:
        name = "waiting"
        trigger = ALWAYS

        async def provide(self, _context: FeedbackContext, /) -> Feedback | None:
            started.set()
            await asyncio.Event().wait()
            return None

    async def cancel() -> None:
        task = asyncio.create_task(executor.execute_async(ToolCall("c", "lookup", {"number": 1}), reply="r"))
        await started.wait()
        task.cancel()
        await task

    started = asyncio.Event()
    executor = desk(None, PendingAnswers())
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel())
