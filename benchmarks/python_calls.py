"""What a call costs that evaluates Python, over the same evaluation by Monty alone, each in a process of its own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count

from pydantic_monty import Monty, MontySession, ResourceLimits

from benchmarks.timing import Limit, time_calls
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import AstevalSection
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall

BARE = "a bare evaluation by Monty"
CALL = "evaluate_python"

LIMITS = (Limit(CALL, 4.0, "ms over its bare evaluation"),)

_CODE = "sum([number * number for number in range(100)])"
_ROUNDS, _CALLS = 25, 10
_NUMBERS = count()


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name."""
    call = _calling()
    yield {BARE: _bare, CALL: lambda: _over(call, _bare, _CALLS)}


def _bare() -> object:
    session: MontySession
    limits = ResourceLimits(max_feed_duration_secs=10.0, max_memory=1 << 28)
    with Monty(min_processes=0, max_processes=1) as pool, pool.checkout(limits=limits) as session:
        return session.feed_run(_CODE)


def _calling() -> Callable[[], object]:
    prompt = Prompt(PromptTemplate(ns="benchmarks", key="python", sections=[AstevalSection()]))
    executor = ToolExecutor(prompt=prompt, session=Session())

    def call() -> object:
        message = executor.execute(ToolCall(f"call-{next(_NUMBERS)}", "evaluate_python", {"code": _CODE}))
        assert message.content == "Value: 328350", message.content
        return message

    return call


def _over(call: Callable[[], object], bare: Callable[[], object], calls: int) -> float:
    """The milliseconds that a call takes over an evaluation: the median of pairs of so many calls in a row."""
    pairs = [(time_calls(call, calls).time, time_calls(bare, calls).time) for _ in range(_ROUNDS + 1)][1:]
    return statistics.median(taken - floor for taken, floor in pairs) / 1000
