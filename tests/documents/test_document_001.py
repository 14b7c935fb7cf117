"""What document 001 adds: factories of results, properties of contexts, policies, the table of exceptions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import (
    DeadlineExceededError,
    PromptEvaluationError,
    ToolValidationError,
    VisibilityExpansionRequired,
)
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.limits import BudgetTracker
from handrail.prompt import PolicyDecision, Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from handrail.runtime import Deadline, Session, ToolCall, ToolInvoked
from handrail.testing import FakeClock
from tests.documents.surroundings import Params, Result, find, run, tool
from tests.kit import Decides
from tests.wording import Wording

pytestmark = pytest.mark.requirement("M-01")

EXPANSION = VisibilityExpansionRequired("open it", section_keys=("a",), reason="needed", requested_overrides={})


@dataclass(frozen=True, slots=True)
class Draft:
    """What the handlers here write before they fail."""

    text: str


def executor(
    handler: Callable[..., ToolResult[Result]], *, session: Session, files: Filesystem, **more: Any
) -> ToolExecutor:
    """An executor of one tool, `work`."""
    work = Tool[Params, Result](name="work", description="Works.", handler=handler)
    template = PromptTemplate(ns="documents", key="work", sections=[Section(title="Work", tools=[work])])
    return ToolExecutor(prompt=Prompt(template).bind(resources={Filesystem: files}), session=session, **more)


def work_call() -> ToolCall:
    """A call of `work`."""
    return ToolCall("call-1", "work", "{}")


def test_results_have_two_factories() -> None:
    """`ToolResult.ok(value, message)` and `ToolResult.error(message)`."""
    assert ToolResult.ok(7, "done") == ToolResult(message="done", value=7, success=True)
    assert ToolResult.error("no") == ToolResult(message="no", value=None, success=False)


def test_contexts_have_the_fields_and_properties_of_the_tables() -> None:
    """What there is to read, and `beat()`."""
    context = ToolContext.of()
    for name in ("prompt", "rendered_prompt", "adapter", "session", "deadline", "heartbeat", "run_context"):
        assert hasattr(context, name), name
    assert context.filesystem is None
    assert context.budget_tracker is context.resources.get(BudgetTracker, None) is None
    context.beat()
    assert context.session.dispatcher.listens(Params) is False


def test_resources_are_reached_through_the_context() -> None:
    """The handler of the block gets the bound filesystem."""
    handler = run("001.02")["my_handler"]
    handler(Params(), context=ToolContext.of(resources={Filesystem: InMemoryFilesystem()}))


def test_policies_stand_on_the_section_beside_the_tools() -> None:
    """They judge the calls of its tools."""
    names = run("001.03")
    rendered = Prompt(PromptTemplate(ns="d", key="p", sections=[names["section"]])).bind(Params()).render()
    for one in (names["lookup_tool"], names["search_tool"]):
        assert [policy.name for policy in rendered.policies_for(one.name)] == ["read_before_write"]


def test_a_policy_that_raises_denies(wording: Wording) -> None:
    """Fail-closed: the handler does not run."""

    def check(_tool: Tool[Any, Any], _params: Any) -> PolicyDecision:
        raise RuntimeError("no rules")

    section = Section(title="S", tools=[tool("work")], policies=[Decides(check, "broken")])
    template = PromptTemplate(ns="d", key="p", sections=[section])
    message = ToolExecutor(prompt=Prompt(template), session=Session()).execute(work_call())
    assert not message.success
    assert message.content == wording


def writing(context: ToolContext) -> None:
    """Write to the session and to the files."""
    context.session[Draft].append(Draft("half"))
    context.resources.get(Filesystem).write_text("draft.txt", "half")


@pytest.mark.parametrize(
    "raised, ends_with",
    [
        (ToolValidationError("$.query is empty"), None),
        (TypeError("unsupported operand"), None),
        (KeyError("x"), None),
        (EXPANSION, VisibilityExpansionRequired),
        (PromptEvaluationError("stopped"), PromptEvaluationError),
        (DeadlineExceededError("too late"), PromptEvaluationError),
    ],
    ids=["wrong argument", "wrong type", "missing key", "expansion", "evaluation", "deadline"],
)
def test_exceptions_become_what_the_table_says(
    raised: Exception, ends_with: type[Exception] | None, wording: Wording
) -> None:
    """And all failure paths restore session and resources, and are recorded."""
    session, files = Session(), InMemoryFilesystem({"draft.txt": "whole"})

    def fail(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        writing(context)
        raise raised

    door = executor(fail, session=session, files=files)
    if ends_with is None:
        message = door.execute(work_call())
        assert (message.success, message.content, message.result.value) == (False, wording, None)
    else:
        with pytest.raises(ends_with) as caught:
            door.execute(work_call())
        assert (caught.value is raised) is (type(raised) is ends_with)
    assert session[Draft].all() == ()
    assert files.read_text("draft.txt") == "whole"
    assert [event.success for event in session[ToolInvoked]] == [False]


def test_a_handler_that_cannot_be_called_is_explained(wording: Wording) -> None:
    """The `TypeError` of a wrong call says what the handler must accept."""

    class Moody:
        """Its signature says one thing, and it takes another."""

        __signature__ = inspect.signature(find)

        def __call__(self, params: Params) -> ToolResult[Result]:
            raise AssertionError

    message = executor(Moody(), session=Session(), files=InMemoryFilesystem()).execute(work_call())
    assert not message.success
    assert message.content.rpartition("'")[2] == wording


def test_a_call_past_the_deadline_is_refused() -> None:
    """Before its handler starts."""
    clock = FakeClock()

    def never(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        raise AssertionError

    late = Deadline(datetime(2026, 1, 1, tzinfo=UTC), clock)
    door = executor(never, session=Session(), files=InMemoryFilesystem(), deadline=late, clock=clock)
    with pytest.raises(PromptEvaluationError) as caught:
        door.execute(work_call())
    assert (caught.value.phase, caught.value.tool) == ("tool", "work")
