"""`handrail.prompt.disclosure`: what is open is state of the session; a call sees what its reply has begun with."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import tool
from handrail.adapters.tool_executor import Answers, PendingAnswers, ToolExecutor
from handrail.clock import SYSTEM_CLOCK
from handrail.errors import CallPostponed, PromptRenderError, RecordingError, VisibilityExpansionRequired
from handrail.prompt import (
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    Section,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.store import SqliteStore
from handrail.testing import Crashed
from tests.crash.forks import fork_to_crash
from tests.kit import Decides, raises
from tests.runtime.kit import expect
from tests.session.faulty_stores import FaultyStore, faulty
from tests.store.stores import STORES
from tests.wording import Wording

PATHS = ("billing", "billing.refunds", "guide")


@tool(effect="read")
def look() -> str:
    """Look an order up."""
    return "paid"


@tool
def charge(order: str) -> str:
    """Charge an order."""
    return f"charged {order}"


@tool
def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool
def needs_guide() -> str:
    """Ask for a section of the prompt."""
    raise VisibilityExpansionRequired("needs the guide", section_keys=["guide"], reason="to know more")


@tool
def needs_more() -> str:
    """Ask for a section that the prompt does not have."""
    raise VisibilityExpansionRequired("needs the manual", section_keys=["manual"])


def sections(*policies: Any) -> list[Section[Any]]:
    """The sections of a desk: two closed ones, of which one has another below it."""
    refunds = MarkdownSection(title="Refunds", template="How to refund.", summary="Refunds.", tools=[refund])
    return [
        MarkdownSection(title="Desk", template="Work.", tools=[look, needs_guide, needs_more]),
        MarkdownSection(
            title="Billing",
            template="All about money.",
            summary="Charges cards.",
            tools=[charge],
            policies=policies,
            children=[refunds],
        ),
        MarkdownSection(title="Guide", template="A long guide.", summary="A guide."),
    ]


def prompt(*policies: Any) -> Prompt[str]:
    """A prompt of these sections."""
    return Prompt(PromptTemplate[str](ns="t", key="desk", sections=sections(*policies)))


PROMPT = prompt()


def desk(session: Session | None = None, *policies: Any) -> ToolExecutor:
    """An executor of that prompt."""
    return ToolExecutor(prompt=prompt(*policies), session=Session() if session is None else session)


def opens(*paths: str, id: str = "open") -> ToolCall:
    """A call that opens these sections."""
    return ToolCall(id, "open_sections", {"paths": list(paths), "reason": "needed"})


ASK_TO_LOOK = Decides(lambda each, _: PolicyDecision.ask("may it?") if each.name == "look" else PolicyDecision.allow())
CHARGE = ToolCall("charge", "charge", {"order": "A-1"})
LOOK = ToolCall("look", "look", {})


def open_paths(executor: ToolExecutor) -> set[str]:
    """The paths of the sections that are open now."""
    return {each.path for each in executor.environment.rendered_prompt.sections if each.is_open}


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> Generator[FaultyStore]:
    """An empty store, one kind after the other."""
    with faulty(str(request.param), SYSTEM_CLOCK) as made:
        yield made


@pytest.mark.parametrize("reply", ["r1", None])
@pytest.mark.parametrize("order", [(opens("billing"), CHARGE, LOOK), (LOOK, CHARGE, opens("billing"))])
@pytest.mark.parametrize("run", ["answer", "answer_async", "execute_all", "execute_all_async"])
def test_all_calls_of_a_reply_see_the_prompt_as_it_was(
    run: str, order: Sequence[ToolCall], reply: str | None, wording: Wording
) -> None:
    """Whatever their order, and whether or not they run at the same time: the model has not seen the new tools yet."""
    executor = desk()
    answered: Any = getattr(executor, run)(order, reply=reply)
    if run.endswith("async"):
        answered = asyncio.run(answered)
    messages = {message.call_id: message for message in answered}
    assert [message.call_id for message in answered] == [call.id for call in order]
    assert {name: message.success for name, message in messages.items()} == {
        "open": True,
        "charge": False,
        "look": True,
    }
    assert sorted(message.content for message in answered) == [wording, wording, "paid"]
    assert isinstance(answered, tuple)
    if run.startswith("answer"):
        assert isinstance(answered, Answers)
        assert answered.prompt_changed
    assert executor.execute(CHARGE, reply="r2").content == "charged A-1"


def test_a_reply_that_changes_nothing_says_so() -> None:
    """So that a loop may send the same prompt again; a reply that waits for a person may have changed it."""
    executor = desk()
    calm = expect(Answers, executor.answer([LOOK], reply="r1"))
    assert not calm.prompt_changed

    def postpone(_request: object) -> bool:
        raise CallPostponed("ask later")

    template = PromptTemplate[str](ns="t", key="ask", sections=sections(), policies=[ASK_TO_LOOK])
    asking = ToolExecutor(prompt=Prompt(template), session=Session(), approver=postpone)
    waiting = expect(PendingAnswers, asking.answer([LOOK, opens("guide")], reply="r1"))
    assert waiting.prompt_changed
    assert [message.call_id for message in waiting.messages] == ["open"]


def test_a_handler_may_ask_for_sections(wording: Wording) -> None:
    """They are open then; its call was undone, and has to be made again. One that names others ends the run."""
    executor = desk()
    (message,) = executor.execute_all([ToolCall("1", "needs_guide", {})], reply="r1")
    assert (message.success, message.content) == (False, wording)
    assert open_paths(executor) == {"guide"}
    with pytest.raises(VisibilityExpansionRequired) as caught:
        executor.execute_all([ToolCall("1", "needs_more", {})], reply="r2")
    assert caught.value.open_sections == ()
    assert open_paths(executor) == {"guide"}


def test_calls_that_run_at_the_same_time_open_all_that_they_ask_for() -> None:
    """None overwrites what another has opened."""
    both = asyncio.Event()
    waiting: list[str] = []

    async def ask(params: None, *, context: ToolContext) -> ToolResult[None]:
        waiting.append(context.call_id)
        if len(waiting) == len(PATHS[::2]):
            both.set()
        await both.wait()
        raise VisibilityExpansionRequired("open it", section_keys=[context.call_id])

    asking = Tool[None, None](name="ask", description="Ask for a section.", handler=ask, effect="read")
    template = PromptTemplate[str](ns="t", key="k", sections=[*sections(), Section(title="Ask", tools=[asking])])
    executor = ToolExecutor(prompt=Prompt(template), session=Session())
    calls = [ToolCall(path, "ask", {}) for path in PATHS[::2]]
    asyncio.run(executor.execute_all_async(calls, reply="r1"))
    assert open_paths(executor) == set(PATHS[::2])


def test_a_section_that_cannot_be_rendered_is_never_opened(caplog: pytest.LogCaptureFixture, wording: Wording) -> None:
    """What was wrong is logged, and the session stays usable."""

    @dataclass(frozen=True, kw_only=True, eq=False)
    class Broken(Section[None]):
        def render_body(self, params: None) -> str:
            raise ValueError("no text")

    broken = Prompt(
        PromptTemplate[str](ns="t", key="k", sections=[Broken(title="Odd", summary="Odd things.", tools=[look])])
    )
    executor = ToolExecutor(prompt=broken, session=Session())
    message = executor.execute(opens("odd"), reply="r1")
    assert (message.success, message.content) == (False, wording)
    [record] = caplog.records
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == wording
    assert open_paths(executor) == set()
    with pytest.raises(PromptRenderError):
        broken.render(open={"odd"})


def test_another_process_finds_open_what_was_opened(store: FaultyStore) -> None:
    """In each kind of store; the reply that was interrupted is answered as it would have been."""
    with Session.open(store, "s") as session:
        executor = desk(session)
        executor.answer([opens("billing"), LOOK], reply="r1")
        text = executor.text
    with Session.open(store, "s") as session:
        executor = desk(session)
        assert executor.text == text
        answered = expect(Answers, executor.answer([opens("billing"), CHARGE, LOOK], reply="r1"))
        opened, early, looked = answered
        assert (opened.success, early.success, looked.replayed) == (True, False, True)
        assert executor.execute(CHARGE, reply="r2").success


def open_and_die(folder: str) -> None:
    """Open a section in a process that is killed."""
    with SqliteStore(Path(folder) / "s.db") as store, Session.open(store, "s") as session:
        desk(session).execute_all([opens("billing")], reply="r1")


@pytest.mark.parametrize("point, is_open", [("unit-before-commit", False), ("unit-after-commit", True)])
def test_a_killed_process_has_opened_and_recorded_or_neither(point: str, is_open: bool, tmp_path: Path) -> None:
    """Between the record and the next request nothing is lost: the repeat of the call says that it is open."""
    # The first unit creates the session.
    assert fork_to_crash(open_and_die, str(tmp_path), at=point, nth=2) == Crashed(point, nth=2)
    with SqliteStore(tmp_path / "s.db") as store, Session.open(store, "s") as session:
        executor = desk(session)
        assert open_paths(executor) == ({"billing"} if is_open else set())
        assert len(session[ToolInvoked]) == int(is_open)
        (message,) = executor.execute_all([opens("billing")], reply="r1")
        assert message.success
        assert open_paths(executor) == {"billing"}


@given(st.lists(st.sets(st.sampled_from(PATHS), min_size=1), max_size=6))
def test_the_open_sections_are_those_of_the_model(steps: list[set[str]]) -> None:
    """Opening opens what is above, too; the text is that of a rendering with just these sections."""
    executor, wanted = ToolExecutor(prompt=PROMPT, session=Session()), set[str]()
    for number, paths in enumerate(steps):
        executor.execute_all([opens(*sorted(paths))], reply=f"r{number}")
        wanted |= paths | ({"billing"} if "billing.refunds" in paths else set())
        assert open_paths(executor) == wanted
        fresh: RenderedPrompt[str] = PROMPT.render(open=wanted)
        assert executor.text == fresh.text
        assert [each.name for each in fresh.tools] == [each.name for each in executor.environment.rendered_prompt.tools]


def test_what_opens_is_written_in_one_unit_with_the_record(store: FaultyStore, wording: Wording) -> None:
    """If the store is lost, neither is: the run ends, and the next call opens it."""
    with Session.open(store, "s") as session:
        executor = desk(session)
        executor.execute(LOOK, reply="r0")
        store.go_down("commit", "append")
        with raises(RecordingError, wording):
            executor.execute_all([opens("billing")], reply="r1")
        assert open_paths(executor) == set()
        store.come_back()
        executor.execute_all([opens("billing", id="2")], reply="r2")
        assert open_paths(executor) == {"billing"}
