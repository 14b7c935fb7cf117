"""Other processes that use a store, for tests; `start("tests.store.processes", what, ...)` runs one.

They end when their input does, or when they are killed.

| what | the process |
|---|---|
| `hold`, `unit` | holds a session, or begins a unit, says `ready` and stays; with `fork` a forked child does |
| `owner` | opens the store and says its name; for a line `fork` it forks a process that opens the store anew |
| `handler` | asks for a call, says `in the handler` and stays there |
| `many` | opens more sessions than it may have descriptors |
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import pytest

import handrail.store
from handrail import crash_points
from handrail.errors import StoreError
from handrail.prompt import External, Tool, ToolContext, ToolResult
from handrail.prompt.idempotency import IdempotencyConfig
from handrail.runtime import Deadline, ToolCall, ToolMessage
from handrail.session import Session
from handrail.store import Store
from handrail.transaction import RecordCommit, UnitOfWork
from tests import kit
from tests.crash.forks import Fork, start


@contextmanager
def another_process(url: str, what: str, *then: str) -> Generator[Fork]:
    """Holds the session, or has a unit open, until it is killed; a child that it forked lives until the block ends."""
    with start("tests.store.processes", what, url, "s1", *then) as process:
        assert process.stdout.readline() == "ready\n"
        yield process


def stay_in_store(what: str, url: str, session_id: str, then: str = "") -> None:
    """Hold a session, or begin a unit, and stay so."""
    store = handrail.store.open(url)
    if what == "hold":
        store.acquire(session_id, wait=timedelta(0))
        if then == "fork" and os.fork():
            signal.pause()
        stay()
    else:
        crash_points.arm(lambda point: stay() if point == "unit-before-commit" else None)
        store.apply(UnitOfWork((RecordCommit("j1"),)))


def stay() -> None:
    """Say that it is so, and do nothing more."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


class Child:
    """The other end of such a process.

    Attributes:
        name: the name of its store.
        pid: its process id.
    """

    def __init__(self, process: Fork) -> None:
        self._process = process
        self._forked: list[int] = []
        self.pid = process.pid
        self.name = self._line()

    def kill(self, *, reaped: bool = True) -> None:
        """Kill it; without `reaped` it stays a zombie."""
        self._process.kill()
        self._process.watch(os.WEXITED)
        if reaped:
            self._process.wait()

    def stop(self) -> None:
        """Stop it, as Ctrl-Z does; returns when it has stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        self._process.watch(os.WSTOPPED)

    def fork(self) -> str:
        """Have it fork a process that goes on after its end; returns the name of the store of that."""
        self._process.stdin.write("fork\n")
        self._process.stdin.flush()
        self._forked.append(int(self._line()))
        return self._line()

    def end(self) -> None:
        """Kill what it has forked, if that is still there."""
        for pid in self._forked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _line(self) -> str:
        return self._process.stdout.readline().rstrip("\n")


@contextmanager
def child(url: str) -> Generator[Child]:
    """A process that has the store open and has taken its lock."""
    with start("tests.store.processes", "owner", url) as process:
        started = Child(process)
        try:
            yield started
        finally:
            started.end()


def own_store(url: str) -> None:
    """Open the store, name it, and fork when asked to."""
    store = handrail.store.open(url)
    _say(store.process())
    for _ in sys.stdin:
        if os.fork() == 0:
            store = handrail.store.open(url)
            _say(str(os.getpid()), store.process())
            signal.pause()


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


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


def _keyed(scope: str) -> IdempotencyConfig:
    return IdempotencyConfig(strategy="custom", key_fn=lambda order: order.number, scope=scope)


CONFIGS: dict[str, IdempotencyConfig | None] = {
    "slot": None,
    **{f"key-{word}": _keyed("session") for word in ("unknown", "retry", "reconcile")},
    **{f"shared-{word}": _keyed("shop") for word in ("unknown", "retry", "reconcile")},
}
"""How the tools know an effect again: by the call, by a key of the session, or by one that all sessions share."""


def tool(name: str, service: Service) -> Tool[Order, str]:
    """The tool of that name."""
    word: Any = name.rpartition("-")[2] if "-" in name else "unknown"
    effect = External(on_orphan=word, reconcile=service.ask if word == "reconcile" else None)
    return Tool[Order, str](
        name="pay", description="Pays.", handler=service.pay, effect=effect, idempotency=CONFIGS[name]
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
    with start("tests.store.processes", "handler", url, name, where) as process:
        assert process.stdout.readline() == "in the handler\n"
        yield process


def killed(url: str, name: str, where: Where = "session") -> None:
    """Ask for the call in a process that is killed in the handler."""
    with in_the_handler(url, name, where) as process:
        process.kill()
        process.wait()


def stay_in_handler(url: str, name: str, where: Where) -> None:
    """Ask for the call, and stay in its handler."""
    with handrail.store.open(url) as store, Session.open(store, SESSION) as session, opened(session, where) as owner:
        ask(owner, name, Service(stays=True))


def in_fork(check: Callable[[], bool]) -> bool:
    """What a forked process finds."""
    child = os.fork()
    if child == 0:  # pragma: no cover - another process, which leaves without a word to pytest
        found = False
        try:
            found = check()
        finally:
            os._exit(0 if found else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def refusal_in_fork(store: Store, act: Callable[[], object]) -> str:
    """What the error of a store says that a forked process gets."""
    reading, writing = os.pipe()

    def is_refused() -> bool:
        with pytest.raises(StoreError) as raised:
            act()
        os.write(writing, str(raised.value).encode())
        return True

    with os.fdopen(reading, "rb") as said:
        with os.fdopen(writing, "wb"):
            assert in_fork(is_refused)
        text = said.read().decode()
    return text.replace(store.url, "<store>").replace(str(os.getpid()), "<parent>")


DESCRIPTORS, SESSIONS = 64, 200


def open_many(url: str) -> None:
    """Open the sessions, and say how many are held."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    with handrail.store.open(url, durability="normal") as store, ExitStack() as opened:
        for number in range(SESSIONS):
            opened.enter_context(Session.open(store, f"s{number}"))
        _say(str(len(store.held_sessions())))


def main(what: str, *arguments: Any) -> None:
    """Be one of these processes."""
    acts: dict[str, Callable[..., None]] = {"owner": own_store, "handler": stay_in_handler, "many": open_many}
    acts.get(what, partial(stay_in_store, what))(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
