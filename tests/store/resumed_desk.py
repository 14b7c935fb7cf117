"""A call that is killed in its handler, for tests.

The process opens the session, asks the call, says `in the handler`, and stays there until it is killed.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import handrail.store
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.idempotency import IdempotencyConfig, OnOrphan
from handrail.runtime import Deadline, ToolCall, ToolMessage
from handrail.session import Session
from tests import kit
from tests.crash.forks import Fork, start

Where = Literal["session", "child"]
"""Whose call it is: the session's, or that of a child session."""

SESSION, CHILD, REPLY = "night", "night-agent", "resp_1"


@dataclass(frozen=True)
class Order:
    number: str


class Service:
    """The world outside: what was done to it, and what it answers when it is asked."""

    def __init__(self, *, stays: bool = False) -> None:
        self.done: list[str] = []
        self.found: ToolResult[str] | None = None
        self._stays = stays

    def pay(self, params: Order, *, context: ToolContext) -> ToolResult[str]:
        """Pay; in the process that is to be killed, never come to an end."""
        self.done.append(str(context.idempotency_key))
        if self._stays:
            sys.stdout.write("in the handler\n")
            sys.stdout.flush()
            signal.pause()
        return ToolResult.ok(params.number, "paid")

    def ask(self, params: Order, key: str) -> ToolResult[str] | None:
        """What the other side knows."""
        return self.found


def _keyed(scope: str, on_orphan: OnOrphan) -> IdempotencyConfig:
    return IdempotencyConfig(strategy="custom", key_fn=lambda order: order.number, scope=scope, on_orphan=on_orphan)


CONFIGS: dict[str, IdempotencyConfig | None] = {
    "slot": None,
    **{f"key-{word}": _keyed("session", word) for word in ("unknown", "retry", "reconcile")},
    **{f"shared-{word}": _keyed("shop", word) for word in ("unknown", "retry", "reconcile")},
}
"""How the tools know an effect again: by the call, by a key of the session, or by one that all sessions share."""


def tool(name: str, service: Service) -> Tool[Order, str]:
    """The tool of that name."""
    asks = service.ask if name.endswith("reconcile") else None
    return Tool[Order, str](
        name="pay",
        description="Pays.",
        handler=service.pay,
        effect="external",
        idempotency=CONFIGS[name],
        reconcile=asks,
    )


def ask(session: Session, name: str, service: Service, *, seconds: float | None = None) -> ToolMessage:
    """Ask for the call, and end at the latest after so many seconds."""
    deadline = None if seconds is None else Deadline.after(timedelta(seconds=seconds))
    executor = kit.executor(tool(name, service), session=session, deadline=deadline)
    return executor.execute(ToolCall("call_0", "pay", {"number": "A-1"}), reply=REPLY)


@contextmanager
def opened(session: Session, where: Where) -> Generator[Session]:
    """The session whose call it is."""
    if where == "session":
        yield session
        return
    with session.child(session_id=CHILD) as child:
        yield child


@contextmanager
def in_the_handler(url: str, name: str, where: Where = "session") -> Generator[Fork]:
    """A process that is in the handler of the call; killed at the end, if it is still there."""
    with start("tests.store.resumed_desk", url, name, where) as process:
        assert process.stdout.readline() == "in the handler\n"
        yield process


def killed(url: str, name: str, where: Where = "session") -> None:
    """Ask for the call in a process that is killed in the handler."""
    with in_the_handler(url, name, where) as process:
        process.kill()
        process.wait()


def main(url: str, name: str, where: Where) -> None:
    """Ask for the call, and stay in its handler."""
    with (
        handrail.store.open(url) as store,
        Session.open(store, SESSION) as session,
        opened(session, where) as owner,
    ):
        ask(owner, name, Service(stays=True))
