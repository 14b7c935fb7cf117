"""A program that confines itself, tries what code would do that has left its interpreter, and prints the outcomes.

A process of its own: one that is forked off a test could not write the report of what it has executed.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from handrail.python_worker.confinement import confine_computation, confine_tree, own_size

MEMORY = 64 * 1024 * 1024
LOOKS = ("read", "write", "make", "remove", "rename", "link", "list")


def outcome(attempt: Callable[[], object]) -> str:
    """The name of the error, or what it returned."""
    try:
        return f"done: {attempt()}"
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    except MemoryError:
        return "MemoryError"


def attempts(path: Path, agent: int) -> dict[str, Callable[[], object]]:
    """What would change or show something outside."""
    return {
        "read": path.read_text,
        "write": lambda: path.write_text("x"),
        "make": lambda: path.with_name("new").touch(),
        "remove": path.unlink,
        "rename": lambda: path.rename(path.with_name("new")),
        "link": lambda: path.with_name("new").symlink_to(path),
        "list": lambda: list(path.parent.iterdir()),
        "environment": lambda: Path(f"/proc/{agent}/environ").read_bytes(),
        "signal": lambda: os.kill(agent, 0),
        "connect": lambda: socket.socket().close(),
    }


def computation(path: Path, agent: int) -> dict[str, object]:
    """The outcomes in a process that may only compute."""
    tried = attempts(path, agent) | {
        "fork": os.fork,
        "exec": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606
        "pipe": os.pipe,
    }
    confine_computation(own_size() + MEMORY, 5)
    found: dict[str, object] = {name: outcome(attempt) for name, attempt in tried.items()}
    found["memory"] = outcome(lambda: len(bytearray(2 * MEMORY)))
    found["sum"] = outcome(lambda: sum(range(10)))
    return found


def tree(path: Path, agent: int) -> dict[str, object]:
    """The outcomes in a process that starts others."""
    given_up = confine_tree(MEMORY, ("/bin/sh",))
    found: dict[str, object] = {name: outcome(attempt) for name, attempt in attempts(path, agent).items()}
    found["library"] = outcome(lambda: any(Path("/usr/lib").iterdir()))
    found["null"] = outcome(lambda: Path(os.devnull).write_text("x"))
    program = subprocess.run(["/bin/sh", "-c", f"cat {path} > /dev/null 2>&1 || exit 7"], check=False)
    found["program"] = program.returncode
    found["given up"] = list(given_up)
    found["file size"] = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    return found


if __name__ == "__main__":
    form, secret, pid = sys.argv[1:]
    found_out = (computation if form == "computation" else tree)(Path(secret), int(pid))
    os.write(1, json.dumps(found_out).encode())
