"""How often a call waits for PostgreSQL: round trips, counted by a proxy (`benchmarks.proxy`).

They are counted on a store that has been used, when statements are prepared and connections open. Once a second a store
also asks the server for the time. So each figure is the median of several rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack

from benchmarks.proxy import Proxy
from benchmarks.stored_agents import StoredAgent
from benchmarks.timing import Limit
from handrail import store
from handrail.runtime import Session
from handrail.store import Store

ENTRIES = 20

EXTERNAL = "external call, PostgreSQL"
STATE = "state call, PostgreSQL"
OPENED = "opening a session that has entries, PostgreSQL"
LIMITS = (Limit(EXTERNAL, 2.0, "round trips"), Limit(STATE, 1.0, "round trips"), Limit(OPENED, 3.0, "round trips"))

_ROUNDS, _TIMES, _WARM_UP = 7, 10, 15
_DELAY = 0.001
"""Seconds in each direction: long enough that an answer does not overtake what is sent without waiting for it."""


def cases(proxy: Proxy, opened: ExitStack) -> dict[str, Callable[[], object]]:
    """What is counted, by name; the sessions are closed with the stack."""
    kept = opened.enter_context(store.open(proxy.url))
    external = StoredAgent(opened.enter_context(Session.open(kept, "external")))
    state = StoredAgent(opened.enter_context(Session.open(kept, "state")), "state")
    with Session.open(kept, "reopened") as session:
        agent = StoredAgent(session)
        for _ in range(ENTRIES):
            agent.call()
    return {
        EXTERNAL: lambda: _per_call(proxy, external),
        STATE: lambda: _per_call(proxy, state),
        OPENED: lambda: _per_opening(proxy, kept),
    }


def _per_call(proxy: Proxy, agent: StoredAgent) -> float:
    def call_each() -> int:
        before = proxy.round_trips()
        for _ in range(_TIMES):
            agent.call()
        return proxy.round_trips() - before

    return _median(proxy, agent.call, call_each)


def _per_opening(proxy: Proxy, kept: Store) -> float:
    def open_once() -> int:
        before = proxy.round_trips()
        with Session.open(kept, "reopened"):
            return proxy.round_trips() - before  # without those of closing it

    return _median(proxy, open_once, lambda: sum(open_once() for _ in range(_TIMES)))


def _median(proxy: Proxy, warm_up: Callable[[], object], counted: Callable[[], int]) -> float:
    """Round trips of one of `_TIMES`, the median of several rounds."""
    for _ in range(_WARM_UP):
        warm_up()
    proxy.delay(_DELAY)
    try:
        return statistics.median(counted() for _ in range(_ROUNDS)) / _TIMES
    finally:
        proxy.delay(0)
