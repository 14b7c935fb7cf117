"""What a process has given up: each thing is tried in a process that was forked off."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from handrail.python_worker.confinement import confine_computation, confine_tree, own_size
from tests.python_worker.forks import in_fork

MEMORY = 64 * 1024 * 1024


def outcome(attempt: Callable[[], object]) -> str:
    """The name of the error, or what it returned."""
    try:
        return f"done: {attempt()}"
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    except MemoryError:
        return "MemoryError"


def attempts(path: Path) -> dict[str, Callable[[], object]]:
    """What code would do that has left its interpreter."""
    agent = os.getpid()
    return {
        "read": path.read_text,
        "write": lambda: path.write_text("x"),
        "make": lambda: path.with_name("new").touch(),
        "remove": path.unlink,
        "rename": lambda: path.rename(path.with_name("new")),
        "link": lambda: path.with_name("new").symlink_to(path),
        "list": lambda: list(path.parent.iterdir()),
        "environment": lambda: Path(f"/proc/{agent}/environ").read_bytes(),
        "signal": lambda: os.kill(agent, signal.SIGTERM),
        "connect": lambda: socket.socket().close(),
    }


def test_process_that_computes_can_do_nothing_else(tmp_path: Path) -> None:
    """Each system call of another kind is refused; it may still compute and use what is open."""
    path = tmp_path / "secret"
    path.write_text("hunter2")
    more: dict[str, Callable[[], object]] = {
        "fork": os.fork,
        "exec": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606
        "pipe": os.pipe,
    }
    tried = attempts(path) | more

    def body() -> object:
        confine_computation(own_size() + MEMORY, 5)
        found = {name: outcome(attempt) for name, attempt in tried.items()}
        found["memory"] = outcome(lambda: len(bytearray(2 * MEMORY)))
        found["sum"] = outcome(lambda: sum(range(10)))
        return found

    assert in_fork(body) == dict.fromkeys(tried, "EPERM") | {"memory": "MemoryError", "sum": "done: 45"}
    assert path.read_text() == "hunter2"


def test_process_and_what_it_starts_reach_nothing_outside(tmp_path: Path) -> None:
    """It reads the libraries, and starts programs that are there."""
    path = tmp_path / "secret"
    path.write_text("hunter2")
    tried = attempts(path)

    def body() -> object:
        given_up = confine_tree(MEMORY, ("/bin/sh",))
        found = {name: outcome(attempt) for name, attempt in tried.items()}
        found["library"] = outcome(lambda: any(Path("/usr/lib").iterdir()))
        found["null"] = outcome(lambda: Path(os.devnull).write_text("x"))
        program = subprocess.run(["/bin/sh", "-c", f"cat {path} > /dev/null 2>&1 || exit 7"], check=False)
        found["program"] = str(program.returncode)
        return given_up, found, resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    given_up, found, most = in_fork(body)
    assert most == 0
    assert given_up[0] == "limits"
    if sys.platform == "linux":
        assert {"privileges", "reaching"} <= set(given_up)
        assert found["connect"] == "EPERM"
    if "files" in given_up:
        assert {name: found[name] for name in ("read", "write", "make", "remove", "rename", "link", "list")} == (
            dict.fromkeys(("read", "write", "make", "remove", "rename", "link", "list"), "EACCES")
        )
        assert found["environment"] == "EACCES"
        assert (found["library"], found["null"], found["program"]) == ("done: True", "done: 1", "7")
        assert path.read_text() == "hunter2"
