"""The tools of the desk as tools of Handrail, in a prompt, for each of its columns."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Literal

from handrail import tool
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import (
    External,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.resources import Copied
from handrail.runtime import IdempotencyConfig, Session
from handrail.store import Store
from handrail.taint import TaintPolicy
from proof.desk import Desk
from proof.sets import Environment

LEASE = timedelta(seconds=5)


@dataclass(frozen=True)
class Shop:
    """What the desk has shipped: a slice of the session, which rolls back, and survives the process."""

    stock: int = 10
    shipped: list[str] = field(default_factory=list[str])


class Suite(Copied[Environment | None]):
    """The state of an entry of a set; it rolls back."""


class AsksAboutPayments:
    """Asks a person before each payment."""

    name = "payments"

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        """Asks."""
        return PolicyDecision.ask("May it be paid?") if tool.name == "pay" else PolicyDecision.allow()

    def on_result(self, tool: Any, params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Notes nothing."""


def read_shop(session: Session) -> dict[str, Any]:
    """What the desk has shipped; empty if nothing was."""
    latest = session[Shop].latest()
    return asdict(latest) if latest else {}


@contextmanager
def open_prompt(desk: Desk, store: Store) -> Generator[Prompt[Any]]:
    """The prompt."""
    once = IdempotencyConfig(strategy="params", param_keys=("order",), ttl=None)
    orphan: Literal["retry", "unknown"] = "retry" if desk.takes_keys else "unknown"

    @tool(effect=External(not_applied_on=(ConnectionRefusedError,), on_orphan=orphan, lease=LEASE), idempotency=once)
    def pay(order: str, amount: str, context: ToolContext) -> str:
        """Pays an order."""
        return desk.pay(order, amount, key=context.idempotency_key)

    @tool
    def ship(order: str, files: Filesystem, context: ToolContext) -> str:
        """Ships an order."""
        state = read_shop(context.session)
        text = desk.ship(order, state, files)
        context.session[Shop].append(Shop(**state))
        return text

    @tool(effect="external" if desk.environment is None else "state")
    def act(function: str, arguments: dict[str, Any], suite: Suite) -> str:
        """Calls a function."""
        desk.environment = suite.value
        return desk.act(function, arguments)

    read_mail = tool(effect="read", untrusted=desk.guards)(desk.read_mail)
    policies = [AsksAboutPayments()] if desk.asks else [TaintPolicy(on_tainted="deny")] if desk.guards else []
    section = ToolsSection(title="Desk", tools=[pay, ship, act, read_mail], policies=policies)
    with HostFilesystem(desk.root, journal=desk.folder / "journal", store=store) as files:
        resources = {Suite: Suite(desk.environment), Filesystem: files}
        yield Prompt(PromptTemplate(ns="proof", key="desk", sections=[section])).bind(resources=resources)
