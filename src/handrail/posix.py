"""What only POSIX systems have: modules that other systems lack are imported here.

Where a module is missing, a stand-in takes its place: importing it does not fail, and using it says what is missing.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handrail.errors import PosixRequiredError

if TYPE_CHECKING:
    import fcntl as fcntl  # noqa: PLC0414 - so that it may be imported from here
    import resource as resource  # noqa: PLC0414


class MissingModule:
    """Stands for a module that this system lacks.

    Args:
        name: its name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - it stands for all names of a module
        raise PosixRequiredError("this", needed=f"{self._name}.{name}")


def _imported(name: str) -> Any:  # noqa: ANN401 - a module, or what stands for it
    try:
        return import_module(name)
    except ImportError:
        return MissingModule(name)


if not TYPE_CHECKING:
    fcntl = _imported("fcntl")
    resource = _imported("resource")

HAS_FILE_LOCKS: bool = find_spec("fcntl") is not None
"""Whether this system can lock an open file."""


def require_posix(
    what: str, *, has_file_locks: bool = HAS_FILE_LOCKS, has_folders: bool = os.open in os.supports_dir_fd
) -> None:
    """Check that this is a POSIX system.

    Args:
        what: the name of what needs one.
        has_file_locks: whether open files can be locked.
        has_folders: whether a path can begin at the descriptor of a folder.

    Raises:
        PosixRequiredError: it is not.
    """
    if not has_file_locks:
        raise PosixRequiredError(what, needed="locks of open files")
    if not has_folders:
        raise PosixRequiredError(what, needed="descriptors of folders")


def has_processes(processes: Path = Path("/proc")) -> bool:
    """Whether the system shows its processes as files, as Linux does."""
    return (processes / "self" / "stat").exists()
