"""`handrail.adapters.hooks`: when an answer is accepted, and when the model is sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import handrail.store
from handrail.adapters.hooks import MAX_MISSING_CHARS, SentBack
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    CompletionCheckError,
    UnboundResourceError,
)
from handrail.limits import Budget, BudgetTracker, TokenUsage
from handrail.prompt import (
    CompletionCheck,
    CompletionContext,
    FilesExist,
    MarkdownSection,
    Prompt,
    PromptTemplate,
)
from handrail.runtime import Deadline, Session
from handrail.testing import FakeClock
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


def desk(completion: Any = None, *, session: Session | None = None, **options: Any) -> ToolExecutor:
    """An executor of a prompt with this completion."""
    section = MarkdownSection(title="Desk", template="Write the report.")
    template = PromptTemplate[str](ns="t", key="desk", sections=[section], completion=completion)
    return ToolExecutor(prompt=Prompt(template), session=Session() if session is None else session, **options)


def test_an_answer_is_accepted_when_nothing_is_missing() -> None:
    """A prompt without a checker accepts every answer, and nothing is noted of one that is complete at once."""
    checker = Checker(())
    executor = desk(checker)
    assert executor.completion("It is done.") is None
    assert checker.answers == ["It is done."]
    assert desk().completion("It is done.") is None
    assert not executor.environment.session[SentBack].all()


def test_the_model_reads_what_is_missing(wording: Wording) -> None:
    """One sentence stands by itself, several as a list."""
    assert desk(Checker()).completion("Done.") == wording
    assert desk(Checker(["The report is missing.", "Step 2 is not done."])).completion("Done.") == wording


def test_a_long_text_is_cut() -> None:
    """It is part of a request, and so bounded."""
    text = desk(Checker(["x" * 10_000])).completion("Done.")
    assert text is not None
    assert len(text) == MAX_MISSING_CHARS


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


def test_the_count_is_state_of_the_session(tmp_path: Path) -> None:
    """Another process that resumes the run goes on counting."""
    given: list[bool] = []
    for _ in range(3):
        with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store, Session.open(store, "s") as session:
            given.append(
                desk(CompletionCheck(Checker(), most_sent_back=2), session=session).completion("Done.") is None
            )
    assert given == [False, False, True]


def test_an_answer_with_a_name_counts_once() -> None:
    """It may be checked again after a restart, and stays sent back."""
    executor = desk(CompletionCheck(Checker(), most_sent_back=1))
    given = [executor.completion("Done.", reply=reply) is None for reply in ("r1", "r1", "r2", "r3")]
    assert given == [False, False, True, False]
    assert [each.reply for each in executor.environment.session[SentBack]] == ["r1", "r2", "r3"]


def test_an_answer_is_accepted_if_the_deadline_passes_during_its_check(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing could follow; that is logged."""
    clock = FakeClock()

    def slow(_context: CompletionContext) -> str:
        clock.advance(timedelta(minutes=2))
        return "The report is missing."

    executor = desk(slow, deadline=Deadline.after(timedelta(minutes=1), clock=clock))
    assert executor.completion("Done.") is None
    assert "The report is missing." in caplog.text


def test_nothing_is_checked_past_the_deadline_or_the_budget() -> None:
    """The model could not work on."""
    clock, tracker = FakeClock(), BudgetTracker(Budget(max_total_tokens=10))
    checker = Checker()
    executor = desk(checker, deadline=Deadline.after(timedelta(minutes=1), clock=clock), budget_tracker=tracker)
    assert executor.completion("Done.") is not None
    tracker.record("run", TokenUsage(11, 0))
    assert executor.completion("Done.") is None
    tracker.record("run", TokenUsage(1, 0))
    clock.advance(timedelta(minutes=1))
    assert executor.completion("Done.") is None
    assert checker.answers == ["Done."]


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

    def wrong(_context: CompletionContext) -> Any:
        return True

    def several(sentences: list[str], _context: CompletionContext) -> list[str]:
        return sentences

    executor = desk(short)
    assert executor.completion("long enough") is None
    assert "Say more." in str(executor.completion("no"))
    assert "- A\n- B" in str(desk(partial(several, ["A", "B"])).completion("no"))
    assert desk(partial(several, [])).completion("no") is None
    with pytest.raises(CompletionCheckError):
        desk(wrong).completion("Done.")


@pytest.mark.anyio
async def test_completion_async_does_the_same() -> None:
    """On an event loop the checker runs on another thread."""
    executor = desk(CompletionCheck(Checker(), most_sent_back=1))
    assert await executor.completion_async("Done.") is not None
    assert await executor.completion_async("Done.") is None
