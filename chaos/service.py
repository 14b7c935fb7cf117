"""The outside world: a service that charges orders, in a process of its own, so that its count survives every kill.

Requests are datagrams on one socket, so the service takes them in the order in which they were sent, whoever sent them
and whether or not that process is still alive: what was asked before a question is known to whoever answers it.

A charge comes with the key and the fence of the claim under which it is made. The service helps in two ways, as outside
services do that are worth trusting with money:

- It refuses a fence that is older than the newest it has seen for the key, in a charge or in a question. So a process
  that was stopped for longer than its lease changes nothing when it comes back.
- If the charge asks for it (`once`), a key that it knows is answered with the receipt of the first time.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_LONGEST = 65_536
_PATIENCE_SECONDS = 30.0
"""How long a client waits for an answer; the service never dies, so it comes unless the machine stands still."""

_IDLE_SECONDS = 5.0
"""After how long without a request a service looks whether anybody is left who could ask."""

_NUMBERS = count()


@dataclass(slots=True)
class Service:
    """What the service knows.

    Attributes:
        charged: how often each order was charged.
        receipts: the number of the receipt, by key.
        firsts: the fence under which each key was charged first; all later charges of it have that one or a newer one.
        fences: the newest fence, by key.
        asked: how often each key was asked about.
        stale: how many charges were refused for their fence.
        repeated: how many charges were answered with the receipt of an earlier one.
    """

    charged: Counter[str] = field(default_factory=Counter[str])
    receipts: dict[str, int] = field(default_factory=dict[str, int])
    firsts: dict[str, int] = field(default_factory=dict[str, int])
    fences: dict[str, int] = field(default_factory=dict[str, int])
    asked: Counter[str] = field(default_factory=Counter[str])
    stale: int = 0
    repeated: int = 0

    def charge(self, order: str, key: str, fence: int, *, once: bool) -> int | None:
        """Charge an order; returns the number of the receipt, `None` if the fence was an old one."""
        if fence < self.fences.get(key, 0):
            self.stale += 1
            return None
        self.fences[key] = fence
        if once and key in self.receipts:
            self.repeated += 1
            return self.receipts[key]
        self.charged[order] += 1
        self.receipts[key] = self.charged.total()
        self.firsts.setdefault(key, fence)
        return self.receipts[key]

    def find(self, key: str, fence: int) -> int | None:
        """The receipt of a key, if it was charged; from now on, charges under an older fence are refused."""
        self.asked[key] += 1
        self.fences[key] = max(fence, self.fences.get(key, 0))
        return self.receipts.get(key)

    def report(self, path: str) -> str:
        """Write everything to a file, for `read_report`; returns its path."""
        names = ("charged", "asked", "firsts", "stale", "repeated")
        known = {name: getattr(self, name) for name in names}
        Path(path).write_text(json.dumps(known), encoding="utf-8")
        return path

    def serve(self, listening: socket.socket) -> None:
        """Answer requests, one by one, until the parent of this process has died. Who has died gets no answer."""
        parent = os.getppid()
        listening.settimeout(_IDLE_SECONDS)
        while True:
            try:
                request, sender = listening.recvfrom(_LONGEST)
            except TimeoutError:
                if os.getppid() != parent:
                    return
                continue
            words: dict[str, Any] = json.loads(request)
            answer = getattr(self, words.pop("do"))(**words)
            with suppress(OSError):
                listening.sendto(json.dumps(answer).encode(), socket.MSG_DONTWAIT, sender)


@dataclass(frozen=True, slots=True)
class Report:
    """What a service has done so far.

    Attributes:
        charged: how often each order was charged.
        asked: how often each key was asked about.
        firsts: the fence under which each key was charged first.
        stale: how many charges were refused for their fence.
        repeated: how many charges were answered with the receipt of an earlier one.
    """

    charged: dict[str, int]
    asked: dict[str, int]
    firsts: dict[str, int]
    stale: int
    repeated: int


class Client:
    """Speaks to a service. Threads and tasks do not share one.

    Args:
        address: the path of the service's socket.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._own = f"{address}.{os.getpid()}.{next(_NUMBERS)}"
        Path(self._own).unlink(missing_ok=True)  # left by a process that was killed and had the same id
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_PATIENCE_SECONDS)
        self._socket.bind(self._own)
        self._socket.connect(address)

    def charge(self, order: str, key: str, fence: int, *, once: bool) -> int | None:
        """See `Service.charge`."""
        receipt: int | None = self._ask(do="charge", order=order, key=key, fence=fence, once=once)
        return receipt

    async def charge_async(self, order: str, key: str, fence: int, *, once: bool) -> int | None:
        """See `Service.charge`. Nobody else may ask meanwhile, and nobody afterwards if it was cancelled."""
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)  # noqa: FBT003 - its only argument
        await loop.sock_sendall(self._socket, _request(do="charge", order=order, key=key, fence=fence, once=once))
        receipt: int | None = json.loads(await loop.sock_recv(self._socket, _LONGEST))
        return receipt

    def find(self, key: str, fence: int) -> int | None:
        """See `Service.find`."""
        receipt: int | None = self._ask(do="find", key=key, fence=fence)
        return receipt

    def report(self) -> Report:
        """What the service has done so far."""
        path = Path(f"{self._own}.json")
        self._ask(do="report", path=str(path))
        return Report(**json.loads(path.read_text(encoding="utf-8")))

    def another(self) -> Client:
        """A client of the same service, for another thread or task."""
        return Client(self._address)

    def close(self) -> None:
        """Leave nothing behind."""
        self._socket.close()
        Path(self._own).unlink(missing_ok=True)

    def _ask(self, **words: Any) -> Any:  # noqa: ANN401 - what each request is answered with
        self._socket.send(_request(**words))
        return json.loads(self._socket.recv(_LONGEST))


def _request(**words: object) -> bytes:
    return json.dumps(words).encode()


@contextmanager
def running() -> Generator[str]:
    """A service in a process of its own, while the block runs; gives the address for `Client`."""
    with TemporaryDirectory(prefix="service-") as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        address = f"{folder}/service"
        listening.bind(address)
        command = [sys.executable, "-P", __file__, str(listening.fileno())]
        process = subprocess.Popen(command, pass_fds=[listening.fileno()], start_new_session=True)  # noqa: S603 - this file
        try:
            yield address
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    Service().serve(socket.socket(fileno=int(sys.argv[1])))
