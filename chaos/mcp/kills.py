"""Rounds in which calls over MCP are made, and what makes or answers them is killed by SIGKILL at a random moment.

The victims are the client, `handrail proxy` or `handrail serve`, the bank behind the proxy, or two of them; in some
rounds they are killed again while they are started again. Then the client makes its calls again until each has an
answer. At the end everything is closed, and the books of the bank, the ledger and the answers are compared:

| the client was answered last | the bank has paid | the ledger says |
|---|---|---|
| done | once | done |
| failed | not | failed, or nothing |
| unknown | at most once | unknown |

Whatever was answered, nothing is paid twice; what can be found out is not unknown; and no process is left.
"""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal, get_args

from chaos.books import Books
from chaos.mcp.client import Mode, Payment, Setup, Task, url, write_config
from handrail import store as stores

Victim = Literal["client", "proxy", "bank"]
"""What is killed; `proxy` is also `handrail serve`."""

_ROOT = Path(__file__).parents[2]
_PATIENCE = 60.0
_LONGEST_WAIT = 0.15
"""How long the bank waits at most before it pays, and after that."""

_LONGEST_DELAY = 0.2
"""After which time of the first payment of a round something is killed, at the latest."""

_RESTART = 2.0
"""How long it takes until what was killed is started again, about."""

_MOST_CALLS = 4
_PAIRS: Sequence[tuple[Victim, ...]] = (("client", "proxy"), ("proxy", "bank"), ("client", "bank"))
_PROXIED: Sequence[tuple[Victim, ...]] = (*((victim,) for victim in get_args(Victim)), *_PAIRS)
_SERVED: Sequence[tuple[Victim, ...]] = (("client",), ("proxy",), ("client", "proxy"))
_TOOLS = ("pay", "pay_in_thread", "pay_findable")


@dataclass(frozen=True, slots=True)
class Kind:
    """What is called, and what of it is killed."""

    setup: Setup
    victims: tuple[Victim, ...]

    def __str__(self) -> str:
        return f"{self.setup}, killed: {' and '.join(self.victims)}"


KINDS: tuple[Kind, ...] = tuple(
    Kind(setup, victims) for setup in get_args(Setup) for victims in (_SERVED if setup == "serve" else _PROXIED)
)


@dataclass
class Count:
    """What came of the rounds of one setup.

    Attributes:
        rounds: how many rounds there were, each with a kill.
        signals: how many processes were killed.
        under_way: how many calls had no answer at a kill.
        calls: how many calls were made.
        answers: how many of them were answered so at last.
        settled: how many were unknown first, and then done or failed.
        twice: how many were paid more than once.
        faults: what was wrong.
    """

    rounds: int = 0
    signals: int = 0
    under_way: int = 0
    calls: int = 0
    answers: Counter[str] = field(default_factory=Counter[str])
    settled: int = 0
    twice: int = 0
    faults: list[str] = field(default_factory=list[str])


def play(setup: Setup, kinds: Sequence[Kind], dice: random.Random) -> Count:
    """Plays a round of each kind, over one store, and judges what is left; with faults, the folder is kept."""
    count, folder = Count(), Path(mkdtemp(prefix="chaos-mcp-"))
    scene = _Scene(folder, setup, dice, count)
    try:
        for kind in kinds:
            scene.play(kind)
    finally:
        scene.end()
    scene.judge()
    if count.faults:
        count.faults.append(f"what is left is in {folder}")
    else:
        shutil.rmtree(folder)
    return count


def kinds_of(rounds: int) -> list[Kind]:
    """The kinds of so many rounds, each in turn."""
    return [KINDS[at % len(KINDS)] for at in range(rounds)]


class _Scene:
    # One store, one bank, and one client at a time.

    def __init__(self, folder: Path, setup: Setup, dice: random.Random, count: Count) -> None:
        self._folder = folder
        self._setup: Setup = setup
        self._dice = dice
        self._count = count
        self._books = Books(folder)
        self._calls: dict[str, Payment] = {}
        self._client: subprocess.Popen[str] | None = None
        write_config(folder, setup)

    def play(self, kind: Kind) -> None:
        """One round."""
        self._count.rounds += 1
        task = Task([self._payment(kind, at) for at in range(self._dice.randint(1, _MOST_CALLS))], self._mode())
        self._calls |= {call.order: call for call in task.calls}
        orders = {call.order for call in task.calls}
        self._send(task)
        if not _wait(lambda: any(entry["order"] in orders for entry in self._books.read("begun"))):
            self._count.faults.append(f"{kind}: no payment was begun")
            return
        time.sleep(self._dice.random() * _LONGEST_DELAY)
        self._count.under_way += len(orders - {entry["order"] for entry in self._books.read("answered")})
        self._kill(kind.victims)
        self._send_again(task)
        if self._dice.random() < 1 / 4:  # again, while they are started
            time.sleep(self._dice.random() * _RESTART)
            self._kill(kind.victims)
            self._send_again(task)
        if not self._is_done():
            self._count.faults.append(f"{kind}: not everything was answered")
            self.end()

    def judge(self) -> None:
        """Compares the books, the ledger and the answers, when everything has ended."""
        payments = self._books.read("paid")
        paid = Counter(entry["order"] for entry in payments)
        self._count.faults += [f"{entry['order']}: paid without a key" for entry in payments if not entry["key"]]
        with stores.open(url(self._folder)) as store:
            rows = [(row.key, row.arguments or b"", row.status) for row in store.rows()]
        answers: dict[str, list[str]] = {order: [] for order in self._calls}
        for entry in self._books.read("answered"):
            answers[entry["order"]].append(entry["outcome"])
        for order, call in self._calls.items():
            states: set[str] = {status for _, arguments, status in rows if f'"{order}"'.encode() in arguments}
            self._count.faults += [f"{order}: {fault}" for fault in _faults(call, answers[order], paid[order], states)]
            self._count.answers.update(answers[order][-1:])
            self._count.calls += 1
            self._count.twice += paid[order] > 1
            self._count.settled += "unknown" in answers[order] and answers[order][-1] != "unknown"

    def _payment(self, kind: Kind, at: int) -> Payment:
        dice, order = self._dice, f"{self._count.rounds}.{at} ({kind})"
        waits = {name: dice.random() * _LONGEST_WAIT for name in ("before", "after")}
        tool = dice.choice(_TOOLS) if self._setup == "serve" else "pay"
        stubborn = {} if self._setup in {"serve", "find"} else {"stubborn": dice.random() < 1 / 2}
        return Payment(
            order=order,
            tool=tool,
            arguments={"order": order, **waits, **stubborn},
            delay=dice.random() * _RESTART if at > 1 else 0,
            has_key=self._setup != "keys of arguments",
            retries=dice.random() < 1 / 2,
            settles=self._setup == "find" or tool == "pay_findable",
        )

    def _mode(self) -> Mode:
        return self._dice.choice(get_args(Mode))

    # ------------------------------------------------------------------------------------------------- processes

    def _send(self, task: Task) -> None:
        client = self._client or self._start()
        assert client.stdin is not None
        client.stdin.write(task.line)
        client.stdin.flush()

    def _send_again(self, task: Task) -> None:
        # To a new client, if the other one was killed.
        if self._client is None:
            self._send(task)

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "chaos.mcp.client", str(self._folder), self._setup]
        with (self._folder / "log.txt").open("a") as log:
            self._client = subprocess.Popen(  # noqa: S603 - this program
                command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )
        return self._client

    def _kill(self, victims: Sequence[Victim]) -> None:
        newest = (self._books.read("begun") or [{}])[-1]
        pids = {"proxy": newest.get("parent"), "bank": newest.get("pid")}
        if self._setup == "serve":
            pids = {"proxy": newest.get("pid")}
        for victim in victims:
            if victim == "client" and self._client is not None:
                self._count.signals += 1
                self._client.kill()
            elif (pid := pids.get(victim)) is not None and self._runs(pid):
                self._count.signals += 1
                os.kill(pid, signal.SIGKILL)
        if "client" in victims and self._client is not None:
            self._close(self._client)
            self._client = None

    def _is_done(self) -> bool:
        client = self._client
        assert client is not None
        assert client.stdout is not None
        return bool(select.select([client.stdout], [], [], _PATIENCE)[0]) and client.stdout.readline() == "done\n"

    def end(self) -> None:
        """Closes the input of the client, which ends all that it has started."""
        client, self._client = self._client, None
        if client is not None:
            assert client.stdin is not None
            client.stdin.close()
            try:
                client.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._count.faults.append("the client does not end")
                client.kill()
            self._close(client)
        begun = self._books.read("begun")
        pids = {entry[name] for entry in begun for name in ("pid", "parent")}
        if not _wait(lambda: not any(map(self._runs, pids))):
            self._count.faults.append("a process is left")
            for pid in filter(self._runs, pids):
                os.kill(pid, signal.SIGKILL)

    @staticmethod
    def _close(client: subprocess.Popen[str]) -> None:
        for stream in (client.stdin, client.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        client.wait()

    def _runs(self, pid: int) -> bool:
        # A process of this scene: the id may be that of another one by now.
        with suppress(OSError):
            return str(self._folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False


def _faults(call: Payment, answers: Sequence[str], paid: int, states: set[str]) -> Generator[str]:
    last = answers[-1] if answers else "not answered"
    seen = f"answered {', '.join(answers)}; paid {paid} times; the ledger says {', '.join(sorted(states))}"
    if paid > 1:
        yield f"paid twice: {seen}"
    if "done" in answers and set(answers[answers.index("done") :]) != {"done"}:
        yield f"it was done, and then not: {seen}"
    may_be = {
        "done": paid == 1 and "done" in states,
        "failed": not paid and states <= {"failed"},
        "unknown": states == {"unknown"} and not call.settles,
    }
    if not may_be.get(last, False):
        yield f"that is not so: {seen}"


def _wait(is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + _PATIENCE
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.002)
    return True
