"""How long an event loop stands still at the longest: here, or in a program of its own that has agents and no more.

A task sleeps for 5 ms again and again; it is measured how much too late it wakes. It is as users have it: the longest
of the whole run, from the first call on, with the garbage collector on. What that takes depends on all that a process
has in memory, so agents on SQLite are measured in a process that has imported what they need::

    python -m benchmarks.pauses sqlite:///near.db 200 10            # 200 agents, ten calls each
    python -m benchmarks.pauses sqlite:///near.db 200 10 --freeze   # after gc.freeze()
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import astuple, replace
from operator import attrgetter
from typing import Any, TypeAlias

from benchmarks.stored_agents import agents_in, call_together
from benchmarks.timing import Stopwatch, Timing

Work: TypeAlias = Callable[[], Coroutine[Any, Any, object]]
"""What runs on the loop meanwhile."""

_WAKES_EVERY = 0.005


def longest_pause(runner: asyncio.Runner, work: Work) -> Timing:
    """The longest time for which a task that wakes again and again had to wait for its turn while the work is done."""
    gc.collect()
    return runner.run(_longest_pause(work))


async def _longest_pause(work: Work) -> Timing:
    working = asyncio.ensure_future(work())
    longest = Timing(0.0, 0.0, 0.0)
    while not working.done():
        with Stopwatch() as stopwatch:
            await asyncio.sleep(_WAKES_EVERY)
        longest = max(longest, stopwatch.timing(), key=attrgetter("time"))
    await working
    late = longest.time - _WAKES_EVERY * 1e6
    return replace(longest, time=late, collector=min(late, longest.collector))


def pause_of_program(url: str, agents: int, calls: int, *options: str) -> Timing:
    """The longest pause of a process that has so many agents in the store at a URL, with so many calls each."""
    line = (sys.executable, "-m", "benchmarks.pauses", url, str(agents), str(calls), *options)
    return Timing(*json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout))


def main(url: str, agents: str, calls: str, *options: str) -> None:
    """Print what was measured, as JSON."""
    with ExitStack() as opened, asyncio.Runner() as runner:
        there = agents_in(url, int(agents), opened)
        if "--freeze" in options:
            gc.collect()
            gc.freeze()
        print(json.dumps(astuple(longest_pause(runner, lambda: call_together(there, int(calls))))))


if __name__ == "__main__":
    main(*sys.argv[1:])
