"""The `.git` of a workspace that had none: a command must not make one.

A rollback leaves the `.git` of the root alone, and it can name programs, which git outside would run.

====================================  =================================================================================
what the root has before a command    what keeps a command from changing it
====================================  =================================================================================
a folder or a file `.git`             it is mounted read-only (`SandboxWorkspace.git`)
a link                                if a command has replaced it, it is made again, and the call fails
nothing, because a mount would        what a command has made is removed, and the call fails
make it
one that was made outside since the   the sandbox is started anew before the command (`Sandbox.running`)
sandbox was started
====================================  =================================================================================

If this process is killed while a command runs, what that has made stays.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_MADE = ".git was made or replaced, which is not allowed"
_NO_LINK = ""


class GitGuard:
    """Knows what a root has as `.git` before a command."""

    def __init__(self, root: Path) -> None:
        """Look at it."""
        self._path = root / ".git"
        self._was = _entry(self._path)

    def fault(self) -> str | None:
        """Why the call must fail, as a clause, after what was made is removed; `None` if nothing was."""
        # A folder or file that was there is read-only inside, and changes outside are not the command's.
        if self._was == _NO_LINK or _entry(self._path) == self._was:
            return None
        try:
            self._remove()
            if self._was is not None:
                self._path.symlink_to(self._was)
        except (OSError, RecursionError):
            return f"{_MADE}; it cannot be removed"
        return f"{_MADE}; it was removed"

    def _remove(self) -> None:
        if self._path.is_symlink() or not self._path.is_dir():
            self._path.unlink(missing_ok=True)
        else:
            shutil.rmtree(self._path)


def _entry(path: Path) -> str | None:
    """Where a link leads; `_NO_LINK` for anything else that is there, and `None` for nothing."""
    if path.is_symlink():
        return os.readlink(path)  # noqa: PTH115 - as text
    return _NO_LINK if path.exists() else None
