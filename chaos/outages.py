"""Calls over PostgreSQL whose connections are cut, and whose answers are lost: `chaos.proxy` is before the server.

What passes is delayed by 5 ms in each direction. Several threads ask for the same calls until each has succeeded. Then
each effect must have happened once, and each row that a handler has written through `context.connection` must stand
there once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg

import handrail.store
from chaos.proxy import Proxy
from handrail import ToolExecutor, tool
from handrail.errors import HandrailError
from handrail.prompt import External, ToolContext, ToolResult
from handrail.runtime import ToolCall
from handrail.session import Session
from handrail.store import Store

_DELAY = 0.005
_MOST_ATTEMPTS = 400
_THREADS = 12


@dataclass(frozen=True, slots=True)
class Outages:
    """What came of one run.

    Attributes:
        calls: how many calls were asked for.
        cut: how many connections were cut before the server had what was sent.
        lost: how many answers were lost, those of a COMMIT included.
        commits: how many of these were answers of a COMMIT.
        faults: what was not as it must be.
    """

    calls: int
    cut: int
    lost: int
    commits: int
    faults: list[str]


@dataclass(slots=True)
class _Shop:
    """What has happened outside, and what has been answered; shared by the threads."""

    paid: Counter[str] = field(default_factory=Counter[str])
    answered: Counter[str] = field(default_factory=Counter[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tools(self) -> list[Any]:
        """A tool that pays outside, and can find out whether it has; and one that writes a row in the store."""

        def ask(params: Any, _key: str, *, context: ToolContext) -> ToolResult[str] | None:  # noqa: ANN401, ARG001
            return ToolResult.ok(f"{params.number} is paid") if self.paid[params.number] else None

        @tool(effect=External(reconcile=ask))
        def pay(number: str) -> str:
            """Pay an order."""
            with self.lock:
                self.paid[number] += 1
            return f"{number} is paid"

        @tool
        def sell(number: str, context: ToolContext) -> str:
            """Sell what was ordered."""
            context.connection.execute("INSERT INTO sold (number) VALUES (%s)", (number,))
            return f"{number} is sold"

        return [pay, sell]


def play(url: str, *, orders: int, dice: random.Random, often: float = 0.02) -> Outages:
    """One run.

    Args:
        url: an empty database on a Unix socket.
        orders: how many orders each thread pays and sells.
        dice: decides what is cut and lost.
        often: how often that happens to a message, from 0 to 1.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE sold (number text)")
    proxy = Proxy(url, dice=dice, often=often, delay=_DELAY)
    shop = _Shop()
    with proxy.running(), _opened(proxy.url) as store:
        threads = [threading.Thread(target=_work, args=(store, shop, place, orders)) for place in range(_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    numbers = [f"{place}-{order}" for place in range(_THREADS) for order in range(orders)]
    with psycopg.connect(url) as connection:
        sold = Counter(str(number) for (number,) in connection.execute("SELECT number FROM sold"))
    faults = [f"order {number} was paid {shop.paid[number]} times" for number in numbers if shop.paid[number] != 1]
    faults += [f"order {number} was sold {sold[number]} times" for number in numbers if sold[number] != 1]
    faults += [f"a call of order {number} has no answer" for number in numbers if shop.answered[number] != len("ps")]
    with handrail.store.open(url) as store:
        faults += [
            f"the effect of {row.key} is {row.status}: {row.note}" for row in store.rows() if row.status != "done"
        ]
    counts = proxy.counts
    return Outages(2 * len(numbers), counts["cut"], counts["lost"], counts["commits"], faults)


@contextmanager
def _opened(url: str) -> Generator[Store]:
    """The store behind the proxy, as soon as it can be opened; that it cannot be closed is no fault."""
    store = _attempted(partial(handrail.store.open, url))
    try:
        yield store
    finally:
        with suppress(HandrailError):
            store.close()


def _work(store: Store, shop: _Shop, place: int, orders: int) -> None:
    """Pay and sell each order; after an error the session is opened anew, as by another process."""
    session: Session | None = None
    for number in (f"{place}-{order}" for order in range(orders)):
        for name in ("pay", "sell"):
            for _ in range(_MOST_ATTEMPTS):
                try:
                    session = session or Session.open(store, f"thread-{place}")
                    call = ToolCall(name, name, {"number": number})
                    if ToolExecutor(shop.tools(), session=session).execute(call, reply=f"reply-{number}").success:
                        with shop.lock:
                            shop.answered[number] += 1
                        break
                except HandrailError:
                    if session is not None:
                        with suppress(HandrailError):
                            session.close()
                    session = None
    if session is not None:
        with suppress(HandrailError):
            session.close()


def _attempted(act: Any) -> Any:  # noqa: ANN401 - what the act returns
    for _ in range(_MOST_ATTEMPTS):
        with suppress(HandrailError):
            return act()
    raise TimeoutError("the database cannot be reached")
