"""How many calls of MCP a server of Handrail and `handrail proxy` answer, beside a bare server of the SDK.

Client, servers and proxies are processes of their own (`benchmarks.mcp_programs`). Four callers of one client make 300
calls together, of a tool that reads. What a proxied call adds is measured with one caller and a store. This module does
not import the SDK, so that what other groups measure has no more for the garbage collector to look at.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.compare import Worker
from benchmarks.timing import Block, Bound, Limit

CALLERS, CALLS = 4, 300

BARE_STDIO = "bare server of the SDK, stdio"
SERVER_STDIO = "server of Handrail, stdio"
PROXY_STDIO = "proxy of the bare server, stdio"
BARE_HTTP = "bare server of the SDK, HTTP"
SERVER_HTTP = "server of Handrail, HTTP"
PROXY_HTTP = "proxy of the bare server, HTTP"
RELAY_HTTP = "relay of the bare server by the SDK alone, HTTP"
OVER_HTTP = (BARE_HTTP, SERVER_HTTP, PROXY_HTTP, RELAY_HTTP)
ALONE = "bare server of the SDK, stdio, one call at a time"
ALONE_RELAY = "relay of the bare server by the SDK alone, stdio"
ALONE_READ = "proxy with SQLite (full), stdio, a call that reads"
ALONE_EXTERNAL = "proxy with SQLite (full), stdio, an external call"

BOUNDS = (
    Bound(SERVER_STDIO, BARE_STDIO, 0.9, "at least"),
    Bound(SERVER_HTTP, BARE_HTTP, 0.9, "at least"),
    Bound(PROXY_STDIO, BARE_STDIO, 0.5, "at least"),
    Bound(PROXY_HTTP, BARE_HTTP, 0.5, "at least"),
)
LIMITS = (
    Limit(ALONE, None, "ms"),
    Limit(ALONE_RELAY, None, "ms over a direct call"),
    Limit(ALONE_READ, 2.0, "ms over a direct call"),
    Limit(ALONE_EXTERNAL, 2.0, "ms over a direct call"),
)

_ROOT = Path(__file__).parents[1]
_TOGETHER = (BARE_STDIO, SERVER_STDIO, PROXY_STDIO, *OVER_HTTP)
_ROUNDS, _IN_A_ROW = 9, 100
_LONGEST_START = 30.0  # seconds


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; client, servers and proxies run for the time of the block."""
    with ExitStack() as opened:
        folder = opened.enter_context(TemporaryDirectory(prefix="handrail-bench-"))
        bare = _served(opened, "-m", "benchmarks.mcp_programs", "bare")
        server = _served(opened, "-m", "benchmarks.mcp_programs", "server")
        proxy = _served(opened, "-m", "handrail", "proxy", "--url", bare, "--http")
        relay = _served(opened, "-m", "benchmarks.mcp_programs", "relay", bare)
        urls = (bare, server, proxy, relay)
        client = Worker(_started(opened, "-m", "benchmarks.mcp_programs", "client", folder, *urls))
        together = {name: Block(CALLS, partial(client.time, name, CALLS)) for name in _TOGETHER}
        direct = Block(_IN_A_ROW, partial(client.time, ALONE, _IN_A_ROW))
        over = {name: partial(_over, client, name) for name in (ALONE_RELAY, ALONE_READ, ALONE_EXTERNAL)}
        yield {**together, ALONE: direct, **over}


def _over(client: Worker, case: str) -> float:
    """The milliseconds that a call takes over a direct one: of both the best of several rounds, which alternate."""
    pairs = [[client.time(name, _IN_A_ROW)[0] for name in (case, ALONE)] for _ in range(_ROUNDS)]
    return (min(proxied for proxied, _ in pairs) - min(direct for _, direct in pairs)) / 1000


def _started(opened: ExitStack, *arguments: str) -> subprocess.Popen[str]:
    """A process of this Python, whose standard input ends with the block; the client then ends its servers."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(_ROOT / "src"), str(_ROOT)))}
    pipe, command = subprocess.PIPE, [sys.executable, *arguments]
    return opened.enter_context(subprocess.Popen(command, cwd=_ROOT, env=env, stdin=pipe, stdout=pipe, text=True))


def _served(opened: ExitStack, *arguments: str) -> str:
    """The URL of a server on a free port, once it listens there; the port is its last argument."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = _started(opened, *arguments, str(port))
    opened.callback(process.terminate)
    end = time.monotonic() + _LONGEST_START
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return f"http://127.0.0.1:{port}/mcp"
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"{' '.join(arguments)} does not serve; its error is above")
        time.sleep(0.05)
