"""An agent for benchmarks: a stored session of its own, and calls of a tool that returns at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.prompt.signature import Effect
from handrail.runtime import Session, ToolCall, ToolMessage
from handrail.session import stored_as


@dataclass(frozen=True, slots=True)
class Payment:
    """The arguments of the calls."""

    order: str
    cents: int


@stored_as("benchmarks.stored_agents.receipt")
@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of the calls."""

    order: str
    number: str

    def render(self) -> str:
        """What the model is shown."""
        return f"{self.order}: {self.number}"


def _pay_inline(params: Payment, *, context: ToolContext) -> ToolResult[Receipt]:
    return ToolResult.ok(Receipt(params.order, f"R-{params.order}"))


async def _pay(params: Payment, *, context: ToolContext) -> ToolResult[Receipt]:
    return _pay_inline(params, context=context)


def _prompt(effect: Effect, *, is_async: bool) -> Prompt[None]:
    handler = _pay if is_async else _pay_inline
    tool = Tool[Payment, Receipt](name="pay", description="Pay for an order.", handler=handler, effect=effect)
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=[tool])
    return Prompt(PromptTemplate(ns="benchmarks", key="stored-agents", sections=[section]))


class StoredAgent:
    """An agent that calls one tool again and again, each time with an id and arguments of its own.

    Args:
        session: its session, for no other agent.
        effect: the effect of the tool.
        is_async: whether its handler is `async def`; the synchronous entry runs such a handler on a loop of its own.
    """

    def __init__(self, session: Session, effect: Effect = "external", *, is_async: bool = True) -> None:
        self._executor = ToolExecutor(prompt=_prompt(effect, is_async=is_async), session=session)
        self._numbers = count(1)

    def call(self) -> None:
        """Make a call through the synchronous entry."""
        _check(self._executor.execute(self._next()))

    async def call_async(self) -> None:
        """Make a call through the asynchronous entry."""
        _check(await self._executor.execute_async(self._next()))

    def _next(self) -> ToolCall:
        number = next(self._numbers)
        return ToolCall(f"call-{number}", "pay", f'{{"order":"A-{number}","cents":1250}}')


def agents_in(url: str, number: int, opened: ExitStack) -> list[StoredAgent]:
    """So many agents in the store at a URL, which is closed with the stack, as their sessions are."""
    kept = opened.enter_context(store.open(url))
    return [StoredAgent(opened.enter_context(Session.open(kept, f"agent-{place}"))) for place in range(number)]


async def call_together(agents: Sequence[StoredAgent], each: int) -> None:
    """Have each agent make so many calls on this loop; between two calls it lets the others run."""
    await asyncio.gather(*(_call_often(agent, each) for agent in agents))


async def _call_often(agent: StoredAgent, times: int) -> None:
    for _ in range(times):
        await agent.call_async()
        await asyncio.sleep(0)


def _check(message: ToolMessage) -> None:
    assert message.success, message.content
    assert not message.replayed
