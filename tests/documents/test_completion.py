"""The cases of weakincentives' tests of task completion, in the words of Handrail.

The cases are those of `tests/prompt/test_task_completion.py`, and of `test_task_completion.py` and
`test_verify_task_completion.py` in `tests/adapters/claude_agent_sdk`.
Those that `tests/runtime/hooks/test_hooks.py` has are there alone.

What is different here, on purpose:

| there | here | why |
|---|---|---|
| a result is complete or not, with feedback | what is missing, in sentences | no refusal without a reason |
| a result that is complete may have feedback | nothing | nobody reads it |
| without a filesystem the model is sent back | `UnboundResourceError` | it is a mistake of the program |
| all: the first that is not complete is heard | all are heard | the model repairs everything in one turn |
| `CompositeChecker(all_must_pass=)` | a function that asks several | `all` and `any` are Python's |
| any of no checkers is complete | the same | nothing is asked for |
| three files are named, then `...` | as many as fit in a sentence, and a count | the model needs their names |
| the model is sent back without a limit | three times, unless the prompt says another number | a run must end |
| an answer that is not complete is logged, and ends | the model is sent back; then it is logged | it is one mechanism |
| the end of a stream asks the checker | `run_stream` raises what is missing | no request can follow a stream |
| a failure to look for a file is ignored | `CompletionCheckError` | a broken check must not look like a passed one |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from handrail.contrib.tools import Plan, PlanCompleted, PlanStep
from handrail.errors import InvalidArgumentError, PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import (
    CompletionCheck,
    CompletionContext,
    FilesExist,
    MarkdownSection,
    Prompt,
    PromptTemplate,
)
from handrail.runtime import Session
from tests.wording import Wording


def context(*files: str, session: Session | None = None) -> CompletionContext:
    """The context of an answer, with these files."""
    filesystem = InMemoryFilesystem()
    for path in files:
        filesystem.write_text(path, "text")
    prompt = Prompt(template()).bind(resources={Filesystem: filesystem})
    own = Session() if session is None else session
    return CompletionContext(prompt=prompt.name, session=own, resources=prompt.resources, answer="Done.")


def template(completion: Any = None) -> PromptTemplate[str]:
    """A prompt with this completion."""
    section = MarkdownSection(title="Desk", template="Write the report.")
    return PromptTemplate[str](ns="t", key="desk", sections=[section], completion=completion)


class Misses:
    """A checker that misses this, and notes that it was asked."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences
        self.asked = 0

    def missing(self, _context: CompletionContext, /) -> Sequence[str]:
        """The sentences."""
        self.asked += 1
        return self.sentences


def test_files_that_exist_are_complete() -> None:
    """No files are complete too, whatever is bound."""
    assert not FilesExist(["a.md", "b.md"]).missing(context("a.md", "b.md"))
    assert not FilesExist([]).missing(context())
    unbound = Prompt(template()).resources
    assert not FilesExist([]).missing(CompletionContext(prompt="p", session=Session(), resources=unbound))


def test_files_that_do_not_exist_are_named(wording: Wording) -> None:
    """Many of them are counted."""
    assert FilesExist(["a.md", "b.md"]).missing(context("a.md")) == (wording,)
    (sentence,) = FilesExist([f"report-{number}.md" for number in range(200)]).missing(context())
    assert "report-0.md" in sentence
    assert len(sentence) < 500
    with pytest.raises(InvalidArgumentError):
        FilesExist("a.md")


@pytest.mark.parametrize(
    "plan, faults",
    [
        (None, 0),
        (Plan("Refund", "completed", (PlanStep(1, "Look", "done"),)), 0),
        (Plan("Refund", "active"), 1),
        (Plan("Refund", "active", (PlanStep(1, "Look", "done"), PlanStep(2, "Pay\nback", "in_progress"))), 1),
    ],
    ids=["no plan", "done", "no steps", "a step"],
)
def test_a_plan_is_complete_when_its_steps_are_done(plan: Plan | None, faults: int, wording: Wording) -> None:
    """No plan is complete, unless one is required."""
    session = Session()
    if plan is not None:
        session[Plan].seed(plan)
    assert PlanCompleted().missing(context(session=session)) == (wording,) * faults
    assert bool(PlanCompleted(required=True).missing(context(session=session))) == (plan is None or bool(faults))


def test_a_prompt_has_the_completion_that_it_was_given() -> None:
    """None by default; a checker alone is a `CompletionCheck` with the default number."""
    checker = Misses()
    assert template().accepts is None
    assert template(checker).accepts == CompletionCheck(checker, most_sent_back=3)
    given = CompletionCheck(checker, most_sent_back=1)
    assert template(given).accepts is given


@pytest.mark.parametrize("wrong", ["text", 1, Misses, FilesExist, int], ids=str)
def test_what_is_no_checker_is_refused_when_the_prompt_is_declared(wrong: Any) -> None:
    """A class in the place of its instance is the usual mistake."""
    with pytest.raises(PromptValidationError):
        template(wrong)
    with pytest.raises(PromptValidationError):
        CompletionCheck(wrong)


@pytest.mark.parametrize("most", [-1, True, "3"])
def test_the_number_is_a_number(most: Any) -> None:
    """0 sends nobody back."""
    with pytest.raises(InvalidArgumentError):
        CompletionCheck(Misses(), most_sent_back=most)
