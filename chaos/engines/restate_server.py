"""Restate's server on free ports of this machine; `make restate` installs it."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaos.engines.scene import Answer

_MACHINES = {"x86_64": "x64", "aarch64": "arm64"}
_PACKAGE = f"restate-server-linux-{_MACHINES.get(platform.machine(), 'x64')}"
_PROGRAM = Path(__file__).parents[2] / ".venv" / "restate" / "node_modules" / "@restatedev" / _PACKAGE / "bin"
_PATIENCE = 60.0


class Server:
    """A running server.

    Args:
        admin: the address of its interface for administration.
        ingress: the address at which it takes calls.
    """

    def __init__(self, admin: str, ingress: str) -> None:
        self._admin = f"http://{admin}"
        self._ingress = f"http://{ingress}"

    @classmethod
    @contextmanager
    def running(cls, folder: Path) -> Generator[Server]:
        """A new server while the block runs, whose data and log are in a folder."""
        admin, ingress, node = (f"127.0.0.1:{free_port()}" for _ in range(3))
        environment = {
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_BASE_DIR": str(folder / "restate"),
            "RESTATE_ADMIN__BIND_ADDRESS": admin,
            "RESTATE_INGRESS__BIND_ADDRESS": ingress,
            "RESTATE_BIND_ADDRESS": node,
            "RESTATE_ADVERTISED_ADDRESS": f"http://{node}",
            "RESTATE_DEFAULT_NUM_PARTITIONS": "1",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "64 MB",
            "RESTATE_LOG_FILTER": "warn",
        }
        with (folder / "restate.log").open("wb") as log:
            command = [str(_PROGRAM / "restate-server")]
            process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)  # noqa: S603
        server = cls(admin, ingress)
        try:
            server.wait()
            yield server
        finally:
            process.kill()
            process.wait()

    def wait(self) -> None:
        """Waits until it answers."""
        _retry(lambda: _ask(f"{self._admin}/health"))
        _retry(lambda: _ask(f"{self._ingress}/restate/health"))

    def register(self, address: str) -> None:
        """Registers the service at an address, when it answers."""
        _retry(lambda: _ask(f"{self._admin}/deployments", {"uri": f"http://{address}", "force": True}))

    def call(self, run_id: str, orders: list[str], *, seconds: float) -> dict[str, Answer]:
        """Has the service pay orders, and waits for the answers; twice by one id is once."""
        url = f"{self._ingress}/desk/pay_orders"
        answers: dict[str, Answer] = _ask(url, orders, seconds=seconds, headers={"idempotency-key": run_id})
        return answers


def free_port() -> int:
    """A port of this machine on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _ask(url: str, body: object = None, *, seconds: float = 5.0, headers: dict[str, str] | None = None) -> Any:  # noqa: ANN401 - decoded JSON
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})})  # noqa: S310
    with urllib.request.urlopen(request, timeout=seconds) as response:  # noqa: S310 - a server of this machine
        return json.loads(response.read() or b"null")


def _retry(act: Callable[[], object]) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            act()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
