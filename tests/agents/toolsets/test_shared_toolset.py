"""`handrail.agents.toolsets.lifetimes`: opened once, and closed when the last one has left."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, DynamicToolset, FunctionToolset

from handrail.agents import shared
from handrail.errors import AgentError
from tests.agents.kit import refusal
from tests.agents.toolsets.traced import Caller, Trace, run
from tests.wording import Wording

pytestmark = pytest.mark.anyio


class Browser(FunctionToolset[Any]):
    """Opens on entry, closes on exit, and counts nothing."""

    def __init__(self, trace: Trace | None = None) -> None:
        """Be closed."""
        super().__init__([self.look], id="browser")
        self.trace = trace or Trace()
        self.page: str | None = None
        self.opened = 0
        self.left_with: list[object] = []

    def look(self) -> str:
        """What there is to see."""
        return f"page: {self.page}"

    async def __aenter__(self) -> Self:
        assert self.page is None
        await self.trace.at("open")
        self.page = "start"
        self.opened += 1
        return self

    async def __aexit__(self, *args: object) -> bool | None:
        self.left_with.append(args[0])
        self.page = None
        await self.trace.at("close")
        return None


@pytest.mark.requirement("A-26")
async def test_an_inner_run_does_not_close_what_an_outer_run_holds() -> None:
    """The outer run still sees its page after the inner one has ended; then all is closed."""
    browser = Browser()
    toolset = shared(browser)
    assert toolset.id == "browser"
    inner_model = Caller(["look"])

    async def ask() -> str:
        return (await Agent(inner_model.agent_model, toolsets=[toolset]).run("go")).output

    outer = Caller(["ask", "look"])
    agent = Agent(outer.agent_model, toolsets=[FunctionToolset([ask]), toolset])
    await agent.run("go")
    assert inner_model.told == ["page: start"]
    assert outer.told == ["done", "page: start"]
    assert (browser.opened, browser.page) == (1, None)
    await agent.run("again")
    assert (browser.opened, browser.page) == (2, None)


async def test_what_ends_the_last_one_reaches_the_toolset() -> None:
    """Only the exit that closes is passed on."""
    browser = Browser()
    toolset = shared(browser)
    error = LookupError()
    for _ in range(2):
        await toolset.__aenter__()
    for _ in range(2):
        await toolset.__aexit__(LookupError, error, None)
    assert browser.left_with == [LookupError]


@pytest.mark.parametrize(
    "toolset",
    [
        pytest.param(CombinedToolset([Browser()]), id="combined"),
        pytest.param(DynamicToolset(lambda _: Browser(), per_run_step=False), id="dynamic"),
    ],
)
async def test_what_makes_a_toolset_for_each_run_cannot_be_shared(
    toolset: AbstractToolset[Any], wording: Wording
) -> None:
    """There is no one instance that all could hold; what is in it may be shared instead."""
    with refusal(AgentError, wording):
        await run(shared(toolset))
    browser = Browser()
    assert (await run(CombinedToolset([shared(browser)]).prefixed("my"), "my_look")).told == ["page: start"]
    assert browser.page is None


def test_one_event_loop_at_a_time_shares_it(wording: Wording) -> None:
    """One after the other; a second one is refused as long as the first holds it, and closes nothing."""
    browser = Browser()
    toolset = shared(browser)

    async def hold() -> None:
        async with toolset:
            assert browser.page == "start"

    async def hold_while_another_loop_asks() -> None:
        async with toolset:
            with ThreadPoolExecutor(1) as threads, pytest.raises(AgentError) as raised:
                await asyncio.wrap_future(threads.submit(asyncio.run, hold()))
            assert str(raised.value) == wording
            assert browser.page == "start"

    for task in (hold(), hold_while_another_loop_asks(), hold()):
        asyncio.run(task)
    assert (browser.page, browser.opened) == (None, 3)


@given(
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    cancelled=st.sets(st.integers(0, 5)),
    failing=st.sets(st.integers(1, 4)),
)
def test_however_tasks_come_and_go_it_is_open_exactly_while_someone_holds_it(
    lengths: list[int], cancelled: set[int], failing: set[int]
) -> None:
    """Some are cancelled, and some openings fail."""

    class Slow(Browser):
        async def __aenter__(self) -> Self:
            self.trace.log.append("try")
            await asyncio.sleep(0)
            if len(self.trace.log) in failing:
                raise OSError
            return await super().__aenter__()

        async def __aexit__(self, *args: object) -> bool | None:
            closed = await super().__aexit__(*args)
            await asyncio.sleep(0)
            return closed

    browser = Slow()
    toolset = shared(browser)

    async def hold(length: int) -> None:
        async with toolset:
            for _ in range(length):
                assert browser.page == "start"
                await asyncio.sleep(0)

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(hold(length)) for length in lengths]
        for number, task in enumerate(tasks):
            await asyncio.sleep(0)
            if number in cancelled:
                task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, OSError | asyncio.CancelledError | None) for end in ended), ended

        assert browser.page is None
        failing.clear()
        await hold(1)

    asyncio.run(all_of_them())
    assert browser.page is None
    assert browser.opened == len(browser.left_with)
