"""What a call costs that evaluates Python, over the same evaluation by Monty alone; and what a first one costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count

from pydantic_monty import Monty, MontySession

from benchmarks.timing import Limit, time_calls
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import AstevalSection
from handrail.contrib.tools.python.engines import EngineName, worker_settings
from handrail.contrib.tools.python.workers import WORKERS
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall

BARE = "a bare evaluation by Monty"
WARM = "evaluate_python by Monty"
ASTEVAL = "evaluate_python by asteval"
FIRST = "evaluate_python that starts worker and Monty"

LIMITS = (
    Limit(WARM, 2.0, "ms over its bare evaluation"),
    Limit(ASTEVAL, None, "ms over its bare evaluation"),
    Limit(FIRST, None, "ms over its bare evaluation"),
)

_CODE = "sum([number * number for number in range(100)])"
_ROUNDS, _CALLS = 25, 10
_NUMBERS = count()


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; Monty alone is there while the block runs."""
    with Monty(binary_path=worker_settings("monty", 0).program, max_processes=1) as pool:

        def bare() -> object:
            session: MontySession
            with pool.checkout(limits={"max_feed_duration_secs": 10.0, "max_memory": 1 << 28}) as session:
                return session.feed_run(_CODE)

        warm = _calling("monty")
        yield {
            BARE: bare,
            WARM: lambda: _over(warm, bare, _CALLS),
            ASTEVAL: lambda: _over(_calling("asteval"), bare, _CALLS),
            FIRST: lambda: _over(_first(warm), bare, 1),
        }
    WORKERS.close()


def _calling(engine: EngineName) -> Callable[[], object]:
    prompt = Prompt(PromptTemplate(ns="benchmarks", key="python", sections=[AstevalSection(engine=engine)]))
    executor = ToolExecutor(prompt=prompt, session=Session())

    def call() -> object:
        message = executor.execute(ToolCall(f"call-{next(_NUMBERS)}", "evaluate_python", {"code": _CODE}))
        assert message.content == "Value: 328350", message.content
        return message

    return call


def _first(call: Callable[[], object]) -> Callable[[], object]:
    def first() -> object:
        WORKERS.close()
        return call()

    return first


def _over(call: Callable[[], object], bare: Callable[[], object], calls: int) -> float:
    """The milliseconds that a call takes over an evaluation: the median of pairs of so many calls in a row."""
    pairs = [(time_calls(call, calls), time_calls(bare, calls)) for _ in range(_ROUNDS + 1)][1:]
    return statistics.median(taken - floor for taken, floor in pairs) / 1000
