"""The files that a process has open, as Linux shows them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def open_files(pid: int | None = None) -> list[Path]:
    """What each descriptor of a process is of; of a socket or a pipe, a name that the kernel gives it.

    Other threads may open and close files meanwhile, and so may the garbage of earlier tests: look for what is the
    test's own, or collect the garbage before, and expect no more than there was.

    Args:
        pid: the process; this one by default.
    """
    found: list[Path] = []
    for descriptor in Path(f"/proc/{os.getpid() if pid is None else pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(descriptor.readlink())
    return found
