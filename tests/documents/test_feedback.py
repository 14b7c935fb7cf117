"""The cases of weakincentives' tests of feedback, in the words of Handrail.

The cases are those of `test_feedback.py`, `test_feedback_trigger.py`, `test_feedback_file_trigger.py` and
`test_feedback_file_created.py` in `tests/prompt`. Those that `tests/runtime/hooks/test_hooks.py` has are there alone.

What is different here, on purpose:

| there | here | why |
|---|---|---|
| a configuration pairs a provider with its trigger | a provider has its trigger | one value |
| `should_run`, then `provide` | `provide` returns `None` | one answer |
| a summary, observations, suggestions, a severity, a time | a text and suggestions | that is what a model reads |
| a trigger without conditions never fires | `InvalidArgumentError` | it is a mistake |
| the first call fires a trigger of time | time counts from the first call | nothing has passed yet |
| a file, by its name, once for all providers | a pattern, once for each provider and path | independent providers |
| no trigger of failures | `on_repeated_failure` | the model goes in circles |
| calls are those of the prompt | calls are those of the session | a record names no prompt |
| the session has the feedback as a value | and the call that it was given to | a message is made again as it was |
| a provider that raises fails the hook | it is logged | advice fails no call |
| the deadline tells the elapsed time too | the time left | a resumed run has no start |
| two providers may have one name | `PromptValidationError` | counts are by name |
| the context counts and lists the calls | it has the last; the session has all | `session[ToolInvoked]` does it |
| feedback for a deadline without one raises | there is nothing to say | a prompt may run without a deadline |
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from handrail import tool
from handrail.adapters.hooks import FeedbackGiven
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import InvalidArgumentError, PathEscapeError, PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import (
    DeadlineFeedback,
    Feedback,
    FeedbackContext,
    FeedbackProvider,
    FeedbackTrigger,
    Prompt,
    PromptTemplate,
    StaticFeedback,
    ToolsSection,
)
from handrail.runtime import Deadline, Session, ToolCall, ToolInvoked
from handrail.testing import FakeClock
from tests.wording import Wording

ALWAYS = FeedbackTrigger(every_calls=1)


@tool(effect="read")
def lookup() -> str:
    """Look something up."""
    return "found"


def template(*providers: Any) -> PromptTemplate[str]:
    """A prompt with these providers."""
    return PromptTemplate[str](
        ns="t", key="desk", sections=[ToolsSection(title="Desk", tools=[lookup])], feedback=providers
    )


def executor(*providers: FeedbackProvider, files: InMemoryFilesystem | None = None, **options: Any) -> ToolExecutor:
    """An executor of such a prompt."""
    prompt = Prompt(template(*providers)).bind(resources={} if files is None else {Filesystem: files})
    return ToolExecutor(prompt=prompt, session=Session(), **options)


def said(run: ToolExecutor, reply: str = "r") -> str:
    """The feedback of the next call."""
    return run.execute(ToolCall("c", "lookup"), reply=reply).feedback


def note(name: str, trigger: FeedbackTrigger = ALWAYS) -> StaticFeedback:
    """A provider that says its name."""
    return StaticFeedback(text=f"This is {name}.", trigger=trigger, name=name)


def test_feedback_is_a_frozen_value_with_a_text_and_suggestions(wording: Wording) -> None:
    """It is rendered with the name of its provider."""
    assert Feedback("Mind the time.").render("deadline") == wording
    assert Feedback("Mind the time.", ("Hurry.", "Stop.")).render("d").endswith("\n- Hurry.\n- Stop.")
    with pytest.raises(InvalidArgumentError):
        Feedback(" ")
    with pytest.raises(InvalidArgumentError):
        Feedback("Mind the time.", ("",))


@pytest.mark.parametrize(
    "conditions",
    [
        *({}, {"every_calls": 0}, {"every_calls": True}, {"every": timedelta(0)}, {"every": 30}, {"on_file": "../x"}),
        {"on_repeated_failure": 1},
    ],
    ids=str,
)
def test_a_trigger_has_valid_conditions(conditions: dict[str, Any]) -> None:
    """One without any is a mistake, and so is a span without its unit."""
    with pytest.raises((InvalidArgumentError, PathEscapeError)):
        FeedbackTrigger(**conditions)


def test_a_prompt_without_providers_gives_no_feedback() -> None:
    """That is the default."""
    assert template().feedback == ()
    assert said(executor()) == ""
    assert executor().environment.feedback is None


UNTIMED: Any = "10"
WRONG: list[Any] = ["text", [ALWAYS], [note("a"), note("a")], [note("a\nb")], [note("a", UNTIMED)]]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_the_providers_of_a_prompt_are_checked(wrong: Any) -> None:
    """When the prompt is declared."""
    with pytest.raises(PromptValidationError):
        PromptTemplate[str](ns="t", key="desk", sections=[], feedback=wrong)


def test_all_providers_that_are_due_are_heard_in_their_order() -> None:
    """Each by itself, with its own count."""
    run = executor(note("a"), note("b", FeedbackTrigger(every_calls=2)), note("c"))
    assert said(run).count("This is") == 2
    texts = said(run, "r2").split("\n\n")
    assert [text.splitlines()[1] for text in texts] == ["This is a.", "This is b.", "This is c."]
    given = run.environment.session[FeedbackGiven].all()
    assert [each.provider for each in given] == ["a", "c", "a", "b", "c"]


def test_any_condition_of_a_trigger_suffices() -> None:
    """Calls or time, whichever comes first."""
    clock = FakeClock()
    run = executor(note("a", FeedbackTrigger(every_calls=3, every=timedelta(minutes=1))), clock=clock)
    given = [bool(said(run, f"r{place}")) for place in range(3)]
    clock.advance(timedelta(minutes=1))
    assert [*given, bool(said(run, "r3"))] == [False, False, True, True]


SECONDS, MINUTES, HOURS = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
LEFT = [(2 * HOURS + MINUTES, 0), (HOURS, 0), (5 * MINUTES + 59 * SECONDS, 0), (90 * SECONDS, 2), (SECONDS, 2)]


@pytest.mark.parametrize("left, suggestions", [*LEFT, (-SECONDS, 1)], ids=str)
def test_the_deadline_tells_the_time_left(left: timedelta, suggestions: int, wording: Wording) -> None:
    """With little time it suggests to come to an end."""
    clock = FakeClock()
    deadline = Deadline.after(9 * HOURS, clock=clock)

    @tool(effect="read")
    def wait() -> str:
        """Let time pass."""
        clock.advance(9 * HOURS - left)
        return "waited"

    section, provider = ToolsSection(title="Desk", tools=[wait]), DeadlineFeedback(trigger=ALWAYS)
    prompt = Prompt(PromptTemplate[str](ns="t", key="desk", sections=[section], feedback=[provider]))
    run = ToolExecutor(prompt=prompt, session=Session(), clock=clock, deadline=deadline)
    lines = run.execute(ToolCall("c", "wait"), reply="r").feedback.splitlines()
    assert (lines[1], len(lines) - 2) == (wording, suggestions)


def test_the_context_has_the_run_and_the_call() -> None:
    """Session, resources and limits, the call and its count; no files are bound here."""
    seen: list[FeedbackContext] = []

    class Notes(StaticFeedback):
        def provide(self, context: FeedbackContext, /) -> Feedback:
            seen.append(context)
            return super().provide(context)

    deadline = Deadline.after(timedelta(hours=1))
    run = executor(Notes(text="Note.", trigger=FeedbackTrigger(every_calls=2)), deadline=deadline)
    assert [bool(said(run, f"r{place}")) for place in range(4)] == [False, True, False, True]
    last = seen[-1]
    assert (last.prompt, last.session, last.deadline) == ("t/desk", run.environment.session, deadline)
    assert (last.call.name, last.success, last.calls, last.files) == ("lookup", True, 2, ())
    assert last.resources.get(Filesystem, None) is None
    assert last.filesystem is None
    assert len(last.session[ToolInvoked]) == 4


def test_a_file_is_not_looked_for_without_files() -> None:
    """Nothing is said, and nothing is logged."""
    assert said(executor(note("a", FeedbackTrigger(on_file="*")))) == ""


def test_the_time_from_which_the_deadline_warns_can_be_chosen() -> None:
    """Instead of two minutes."""
    deadline = Deadline.after(timedelta(hours=1))
    provider = DeadlineFeedback(trigger=ALWAYS, warn_below=timedelta(hours=2))
    assert len(said(executor(provider, deadline=deadline)).splitlines()) == 4


def test_without_a_deadline_there_is_nothing_to_say() -> None:
    """Nothing is added to the message."""
    assert said(executor(DeadlineFeedback(trigger=ALWAYS))) == ""
