"""Workers that do not do what they should: programs in place of an interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import handrail
from handrail.contrib.tools.python.workers import PythonWorkers

_SOURCE = os.fspath(Path(handrail.__file__).parents[1])

_START = """
import os, sys, time
sys.path.append(sys.argv[1])
from handrail.python_worker.channel import Channel
agent = Channel(0, 1, time.monotonic)
agent.send({"ready": []})
"""

ENDS = _START
"""Ends when it is ready."""

ENDS_LATER = f"{_START}\nagent.receive()\nos._exit(5)"
"""Ends when it is asked."""

SILENT = f"{_START}\nagent.receive()\ntime.sleep(600)"
"""Never answers."""


def sending(message: object) -> str:
    """Sends a message in place of a result, and then waits."""
    return f"{_START}\nagent.receive()\nagent.send({message!r})\nagent.receive()"


def workers(script: str) -> PythonWorkers:
    """Workers that run a script."""
    return PythonWorkers(lambda _engine, _memory: (sys.executable, "-I", "-S", "-c", script, _SOURCE))
