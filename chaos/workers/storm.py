"""Workers of the command, and what is done to them: killed, stopped past their heartbeat, and cut off.

A worker that has ended is started again, as a supervisor does it. The workers reach PostgreSQL through a proxy that
cuts connections and loses answers. The server is restarted, and once the tables of the queue are dropped.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import psycopg

from chaos.books import Books
from chaos.proxy import Proxy
from chaos.workers.agents import FOLDER, PAUSE

HEARTBEAT = 3.0
"""The heartbeat of the workers, in seconds."""

_ROOT = Path(__file__).parents[2]
_AGENTS = "chaos.workers.agents"
_CONCURRENCY = 8
_STOP_HEARTBEATS = (2.2, 3.5)
_TICK = 0.02
_DROP = """
DO $$ DECLARE item record; BEGIN
    FOR item IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'procrastinate%' LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I CASCADE', item.relname);
    END LOOP;
    FOR item IN SELECT oid::regprocedure AS name FROM pg_proc WHERE proname LIKE 'procrastinate%' LOOP
        EXECUTE format('DROP ROUTINE IF EXISTS %s CASCADE', item.name);
    END LOOP;
    FOR item IN SELECT typname FROM pg_type WHERE typname LIKE 'procrastinate%' AND typtype IN ('e', 'c') LOOP
        EXECUTE format('DROP TYPE IF EXISTS %I CASCADE', item.typname);
    END LOOP;
END $$
"""

Blow = Literal["kill", "stop", "restart", "drop"]


class Death(NamedTuple):
    """A worker that was killed or stopped, and when, by `time.monotonic`."""

    blow: Blow
    pid: int
    at: float


@dataclass
class Storm:
    """The workers of a store, and what happens to them.

    Attributes:
        folder: has the books, and the log of the workers.
        url: where the workers reach the store.
        server_url: the server itself; empty without one.
        proxy: before the server.
        trouble: has something bad happen to the store, and returns when it is over.
        workers: how many there are.
        pause: how long a call pauses at most before its effect, and after it, in seconds.
        dice: decides whom it strikes, and when.
        deaths: of the workers.
        counts: what has happened, and how many workers have ended by themselves.
    """

    folder: Path
    url: str
    server_url: str
    proxy: Proxy | None
    trouble: Callable[[], object]
    workers: int
    pause: float
    dice: random.Random
    deaths: list[Death] = field(default_factory=list[Death])
    counts: Counter[str] = field(default_factory=Counter[str])
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])
    _kills: set[int] = field(default_factory=set[int])
    _stops: dict[int, float] = field(default_factory=dict[int, float])

    @property
    def _books(self) -> Books:
        return Books(self.folder)

    @contextmanager
    def running(self) -> Generator[None]:
        """The workers, while the block runs."""
        self._processes = [self._start() for _ in range(self.workers)]
        try:
            yield
        finally:
            for process in self._processes:
                process.kill()
                process.wait()

    def cut_often(self, often: float) -> None:
        """Has the proxy cut and lose messages so often, from 0 to 1."""
        if self.proxy is not None:
            self.proxy.often = often

    def strike(self, blow: Blow) -> None:
        """Has something happen; a worker is killed or stopped that carries out runs, if there is one."""
        if blow in {"kill", "stop"}:
            # One works on when another one is stopped.
            self.wait_until(lambda: len(self._victims()) > (blow == "stop"))
            busy = self._victims(busy=True)
            self._hit(self.dice.choice(busy or self._victims()), blow)
        elif blow == "restart":
            thread = threading.Thread(target=self.trouble)
            thread.start()
            self.wait_until(lambda: not thread.is_alive())
        elif not self.server_url:
            return  # there is no queue to drop
        else:
            self.wait_until(self._drop_queue)
        self.counts[blow] += 1

    def wait_until(self, is_so: Callable[[], bool], *, seconds: float = 600.0) -> bool:
        """Waits until something is so; meanwhile workers that have ended are started again, stopped ones continue."""
        until = time.monotonic() + seconds
        while not (reached := is_so()) and time.monotonic() < until:
            now = time.monotonic()
            for pid in [pid for pid, end in self._stops.items() if end < now]:
                del self._stops[pid]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            for place, process in enumerate(self._processes):
                if process.poll() is not None:
                    if process.pid not in self._kills:
                        self.counts["died of a note" if process.returncode == -signal.SIGKILL else "ended"] += 1
                    self._processes[place] = self._start()
            time.sleep(_TICK)
        return reached

    def _victims(self, *, busy: bool = False) -> list[int]:
        names = Counter(entry["pid"] for entry in self._books.read("begun"))
        if busy:
            names -= Counter(entry["pid"] for entry in self._books.read("left"))
        living = [process.pid for process in self._processes if process.poll() is None]
        return [pid for pid in living if names[pid] or not busy if pid not in self._stops and pid not in self._kills]

    def _hit(self, pid: int, blow: Blow) -> None:
        if blow == "stop":
            self._stops[pid] = time.monotonic() + HEARTBEAT * self.dice.uniform(*_STOP_HEARTBEATS)
        else:
            self._kills.add(pid)
        self.deaths.append(Death(blow, pid, time.monotonic()))
        os.kill(pid, signal.SIGSTOP if blow == "stop" else signal.SIGKILL)

    def _drop_queue(self) -> bool:
        # A worker that is stopped may have a lock, so it is tried again.
        with suppress(psycopg.Error), psycopg.connect(self.server_url, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '500ms'")
            connection.execute(_DROP)
            return True
        return False

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join((str(_ROOT), str(_ROOT / "src")))
        command = [sys.executable, "-m", "handrail", "worker", "--agents", _AGENTS, "--store", self.url]
        command += ["--concurrency", str(_CONCURRENCY), "--heartbeat", f"{HEARTBEAT:g}s"]
        environment = {**os.environ, "PYTHONPATH": path, FOLDER: str(self.folder), PAUSE: str(self.pause)}
        with (self.folder / "log.txt").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=log, stderr=log)  # noqa: S603
