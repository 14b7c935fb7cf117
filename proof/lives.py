"""Starts the programs of contenders, in the environment of each, and waits for them."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

from proof.desk import Scene

ROOT = Path(__file__).parents[1]

_START_PATIENCE = 120.0
_PATIENCE = 60.0


class Lives:
    """Starts a contender's program as often as needed; what it imports is imported once.

    Args:
        python: the interpreter of its environment.
        contender: the module of `proof.contenders`.
        environment: variables of the environment.
    """

    def __init__(self, python: Path, contender: str, environment: dict[str, str]) -> None:
        path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
        self._process = subprocess.Popen(
            [str(python), "-m", "proof.child", contender],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._requests, self._answers = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        try:
            self._read(_START_PATIENCE)
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._requests.close()
        self._answers.close()
        self._process.wait()

    def run(self, scene: Scene, times: int = 1) -> Sequence[int]:
        """Starts a program so many times at once; the exit codes."""
        pids = [int(self._ask(asdict(scene))) for _ in range(times)]
        return [self._wait(pid) for pid in pids]

    def _wait(self, pid: int) -> int:
        try:
            return int(self._ask(pid))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._read(_PATIENCE)
            return -signal.SIGALRM  # it would not end by itself

    def _ask(self, request: object) -> str:
        self._requests.write(json.dumps(request).encode() + b"\n")
        self._requests.flush()
        return self._read(_PATIENCE)

    def _read(self, seconds: float) -> str:
        stream = self._answers
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise TimeoutError("a program has not ended")
        line = stream.readline().decode().strip()
        if not line:
            raise ChildProcessError("the process that starts the programs has ended")
        return line
