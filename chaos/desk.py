"""What the workers do: the calls of a session, one after the other, each of a tool that must happen once.

The call of number n of a session is always the same, so a worker that takes over a session after a crash asks the call
that its predecessor died in again. Every call that succeeds leaves one item in the session, so their count says which
call is next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from chaos.faults import NOT_APPLIED_ON, TIMEOUT, Faults, Plan
from chaos.service import Client
from chaos.table import APPLICATION
from handrail.adapters.tool_executor import ToolExecutor
from handrail.filesystem import Filesystem
from handrail.prompt import External, IdempotencyConfig, Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from handrail.runtime import EffectLedger, Session, ToolCall
from handrail.session import stored_as

Policy = Literal["unknown", "retry"]
"""How the promise is kept: an orphan is unknown until the service has been asked, or it is run again under its key."""

LEASE = timedelta(seconds=1)
"""How long a silent worker is believed to be at work."""

NAMES = ("charge", "ship", "note", "write")
"""The tools, in the order in which a session calls them, over and over."""

APPLYING = "charge"
"""The tool with `apply`. Two sessions charge the same orders, so that both may find a result that is not applied."""

CHARGED, FOUND = "charged", "found"
"""What a result says: the handler has charged the order, or the service was asked and knew of it."""

BOOK = "book.txt"
"""The file of a session that `write` adds a line to."""


@dataclass(frozen=True, slots=True)
class Order:
    """Parameters of `charge` and `ship`."""

    order: str


@dataclass(frozen=True, slots=True)
class Place:
    """Parameters of `note` and `write`."""

    n: int


@stored_as("chaos.receipt")
@dataclass(frozen=True, slots=True)
class Receipt:
    """An order that the service has charged, as the session knows of it."""

    order: str
    number: int

    def render(self) -> str:
        """What the model would read."""
        return f"charged {self.order}"


@stored_as("chaos.noted")
@dataclass(frozen=True, slots=True)
class Noted:
    """A row that was written to the store's database."""

    n: int

    def render(self) -> str:
        """What the model would read."""
        return f"noted {self.n}"


@stored_as("chaos.written")
@dataclass(frozen=True, slots=True)
class Written:
    """A line that was written to the session's file."""

    n: int

    def render(self) -> str:
        """What the model would read."""
        return f"wrote {self.n}"


TYPES = (Receipt, Noted, Written)
"""What the sessions hold."""


def session_name(index: int) -> str:
    """The id of a session."""
    return f"session-{index}"


def order_of(session: int, n: int) -> str:
    """The order that the call of number n of a session charges; empty if it charges none.

    Two sessions charge the same orders: the first and the second, the third and the fourth, and so on.
    """
    match NAMES[n % len(NAMES)]:
        case "charge":
            return f"shared-{session // 2}-{n}"
        case "ship":
            return f"own-{session}-{n}"
        case _:
            return ""


def call_of(session: int, n: int) -> ToolCall:
    """The call of number n of a session."""
    order = order_of(session, n)
    return ToolCall(f"call-{n}", NAMES[n % len(NAMES)], {"order": order} if order else {"n": n})


def applied(session: Session) -> int:
    """How many calls the session has taken in."""
    return sum(len(session[kind].all()) for kind in TYPES)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a worker carries external calls out.

    Attributes:
        policy: how the promise is kept.
        faults: what goes wrong in the handlers; `None` for nothing. With faults, handlers have a timeout.
        accepts_late: whether a late result settles its effect.
        asynchronous: whether the handlers of external tools are `async def`.
    """

    policy: Policy
    faults: Faults | None = None
    accepts_late: bool = False
    asynchronous: bool = False

    def plan(self) -> Plan:
        """What the next run of a handler does beside its effect."""
        return Plan() if self.faults is None else self.faults.plan()


class Desk:
    """The tools, over one session.

    Args:
        session: a session of `store`.
        ledger: the ledger over the same store.
        service: the outside world.
        manner: how external calls are carried out.
        insert: the SQL that adds a row to the table of `chaos.table`.
    """

    def __init__(self, session: Session, ledger: EffectLedger, service: Client, *, manner: Manner, insert: str) -> None:
        self._session = session
        self._ledger = ledger
        self._service = service
        self._manner = manner
        self._insert = insert

    def executor(self, resources: Mapping[type[Any], object]) -> ToolExecutor:
        """Everything put together."""
        section = Section(title="Desk", tools=self._tools())
        prompt = Prompt(PromptTemplate(ns="chaos", key="desk", sections=[section])).bind(resources=resources)
        return ToolExecutor(prompt=prompt, session=self._session, effect_ledger=self._ledger)

    def _tools(self) -> list[Tool[Any, Any]]:
        return [
            self._charging("charge", scope="shop"),
            self._charging("ship", scope="session"),
            Tool[Place, Noted](name="note", description="Adds a row to the database.", handler=self._note),
            Tool[Place, Written](name="write", description="Adds a line to the book.", handler=self._write),
        ]

    def _charging(self, name: str, *, scope: str) -> Tool[Order, Receipt]:
        partition = self._session.session_id if scope == "session" else ""

        def reconcile(params: Order, key: str) -> ToolResult[Receipt] | None:
            row = self._ledger.row(key, partition=partition)
            with closing(self._service.another()) as client:
                number = client.find(key, 0 if row is None else row.fence)
            return None if number is None else ToolResult.ok(Receipt(params.order, number), FOUND)

        manner = self._manner
        return Tool[Order, Receipt](
            name=name,
            description="Charges an order.",
            handler=self._charge_async if manner.asynchronous else self._charge,
            effect=External(
                not_applied_on=NOT_APPLIED_ON,
                on_orphan=manner.policy,
                reconcile=None if manner.policy == "retry" else reconcile,  # run again, it is not asked
                apply=self._apply if name == APPLYING else None,
                accept_late_result=manner.accepts_late,
                lease=LEASE,
            ),
            idempotency=IdempotencyConfig(strategy="params", param_keys=("order",), scope=scope),
            timeout=None if manner.faults is None else TIMEOUT,
        )

    def _charge(self, params: Order, *, context: ToolContext) -> ToolResult[Receipt]:
        plan = self._manner.plan()
        time.sleep(plan.wait_before)
        plan.enter()
        with closing(self._service.another()) as client:  # a handler that was left behind may still use its own
            number = client.charge(params.order, *_claim_of(context), once=self._manner.policy == "retry")
        time.sleep(plan.wait_after)
        plan.leave()
        return _receipt(params.order, number)

    async def _charge_async(self, params: Order, *, context: ToolContext) -> ToolResult[Receipt]:
        plan = self._manner.plan()
        await asyncio.sleep(plan.wait_before)
        plan.enter()
        with closing(self._service.another()) as client:
            number = await client.charge_async(params.order, *_claim_of(context), once=self._manner.policy == "retry")
        await asyncio.sleep(plan.wait_after)
        plan.leave()
        return _receipt(params.order, number)

    def _apply(self, _params: Order, _result: ToolResult[Receipt], *, context: ToolContext) -> None:
        """Add a row for the effect, and fail as handlers do; the next call of the effect tries again."""
        context.connection.execute(self._insert, (context.idempotency_key, APPLICATION))
        self._manner.plan().enter()

    def _note(self, params: Place, *, context: ToolContext) -> ToolResult[Noted]:
        context.connection.execute(self._insert, (context.session.session_id, params.n))
        return ToolResult.ok(Noted(params.n))

    def _write(self, params: Place, *, context: ToolContext) -> ToolResult[Written]:
        files = context.resources.get(Filesystem)
        before = files.read_text(BOOK) if files.exists(BOOK) else ""
        files.write_text(BOOK, f"{before}{params.n}\n")
        return ToolResult.ok(Written(params.n))


def _claim_of(context: ToolContext) -> tuple[str, int]:
    """The key and the fence under which a handler charges."""
    return context.idempotency_key or "", context.fence or 0


def _receipt(order: str, number: int | None) -> ToolResult[Receipt]:
    """The result of a charge; `number` is `None` if the service has refused it."""
    if number is None:
        return ToolResult.error("the service has seen a newer fence, so it has charged nothing")
    return ToolResult.ok(Receipt(order, number), CHARGED)
