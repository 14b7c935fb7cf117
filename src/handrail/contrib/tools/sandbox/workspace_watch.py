"""The size of the workspace while a command runs: a command that fills the disk is stopped.

The kernel bounds the size of a file, and not their number: so the workspace is measured four times a second, and once
more when the command has ended. A file that was removed and is still open has no path: it is found by the processes
that have it open or mapped. What is not found either way is bounded by the free space of the disk.

A command may also make a file with set-user-ID, which would run as the agent's user outside; and what the agent cannot
read, so that no later command could be started, because the tree cannot be saved; or a workspace that no command can
enter. The last measuring finds these, and the call fails. Folders that are nested deeper than a tree can be saved, or
whose path is longer than the system takes, would hide files: the command is stopped.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from handrail.filesystem.paths import ROOT
from handrail.filesystem.shadow.tree import MAX_TREE_DEPTH
from handrail.threads import THREADS

SECONDS_BETWEEN = 0.25
"""How long to wait between two measurings."""

LEAST_ENTRY_BYTES = 4096
"""What each file, folder and link counts at least, so that their number is bounded, too."""

LEAST_FREE_BYTES = 256 * 1024 * 1024
"""A command is stopped when it leaves less than this of the disk free, unless there was less before."""

_BLOCK = 512  # of `st_blocks`, by POSIX
_SHOWN = 40
_ENTERED = stat.S_IRUSR | stat.S_IXUSR


@dataclass(frozen=True, slots=True)
class WorkspaceUse:
    """What is in a workspace.

    Attributes:
        size: how many bytes of the disk it takes, as far as it was measured.
        set_id: the path of a file with set-user-ID or set-group-ID that has been changed since; `None` without any.
        unreadable: the path of a file or folder that this process cannot read, or that of the workspace if a command
            with its owner's rights cannot; `None` without any.
        too_deep: the path of a folder that is longer than the system takes, or that is nested deeper than a tree can
            be saved; `None` without any.
    """

    size: int
    set_id: str | None = None
    unreadable: str | None = None
    too_deep: str | None = None


def measure(root: Path, most_bytes: int, since: int = 0) -> WorkspaceUse:
    """Measure a workspace, until it is larger than `most_bytes`; what vanishes meanwhile is passed over.

    Args:
        root: the folder.
        most_bytes: where to stop.
        since: nanoseconds since 1970: a file with set-user-ID that has not been changed since does not count.
    """
    size, set_id, unreadable, too_deep, user = 0, None, None, None, os.geteuid()
    # A superuser reads it all the same, and a command inside does not.
    if root.exists() and root.stat().st_mode & _ENTERED != _ENTERED:
        return WorkspaceUse(size, unreadable=ROOT)
    for path, status in _entries(root):
        if not isinstance(status, os.stat_result):
            too_deep = path if status == errno.ENAMETOOLONG else too_deep
            unreadable = path
            continue
        # Also what a sparse file has no blocks for: copying or saving it reads all of it.
        size += max(status.st_blocks * _BLOCK, status.st_size, LEAST_ENTRY_BYTES)
        # The time of change cannot be set back by the owner.
        if status.st_ctime_ns >= since and _is_set_id(status.st_mode):
            set_id = path
        if status.st_uid == user != 0 and stat.S_ISREG(status.st_mode) and not status.st_mode & stat.S_IRUSR:
            unreadable = path
        if size > most_bytes:
            break
    return WorkspaceUse(size, set_id, unreadable, too_deep)


def removed_size(processes: Iterable[int], device: int) -> int:
    """How many bytes of a disk files take that have no path any more, and that processes have open or mapped.

    Args:
        processes: their process ids; one that has ended, or is not ours to look at, is passed over.
        device: the disk, as `os.stat` names it.
    """
    found: dict[int, int] = {}
    for pid in processes:
        for kind in ("fd", "map_files"):
            folder = f"/proc/{pid}/{kind}"
            with suppress(OSError):
                for name in os.listdir(folder):  # noqa: PTH208 - half the time of making a path of each
                    with suppress(OSError):
                        status = os.stat(f"{folder}/{name}")  # noqa: PTH116 - the same
                        if not status.st_nlink and status.st_dev == device and stat.S_ISREG(status.st_mode):
                            found[status.st_ino] = status.st_blocks * _BLOCK
    return sum(found.values())


class WorkspaceWatch:
    """Watches a workspace from entering to leaving the context.

    Attributes:
        fault: why the call must fail, as a clause; `None` if it need not.
    """

    def __init__(
        self,
        root: Path,
        most_bytes: int,
        stop: Callable[[], object],
        processes: Callable[[], Iterable[int]],
        *,
        now: int,
    ) -> None:
        """Watch a folder.

        Args:
            root: the folder.
            most_bytes: how large it may become.
            stop: ends the command; called by another thread, once.
            processes: the process ids of the command and of what it has started.
            now: nanoseconds since 1970.
        """
        self.fault: str | None = None
        self._root = root
        self._most = most_bytes
        self._stop = stop
        self._processes = processes
        self._since = now
        self._device = root.stat().st_dev
        self._least_free = min(LEAST_FREE_BYTES, _free(root) // 2)
        self._is_over, self._measuring = threading.Event(), threading.Lock()

    def __enter__(self) -> Self:
        THREADS.run(self._measure_often)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Measure for the last time; the command has ended."""
        self._is_over.set()
        with self._measuring:  # what begins later sees that it is over, and is not waited for
            pass
        if self.fault is None and error is None:
            used = measure(self._root, self._most, self._since)
            self.fault = self._fault(used)
            if self.fault is None and used.set_id is not None:
                self.fault = f"{used.set_id} has been given set-user-ID or set-group-ID, which is not allowed"
            elif self.fault is None and used.unreadable is not None:
                self.fault = f"{_named(used.unreadable)} cannot be read any more; its owner must be able to read it"

    def _measure_often(self) -> None:
        # When the interpreter ends, this may run in the thread of the command itself, and must not wait for its end.
        while threading.main_thread().is_alive() and not self._is_over.wait(SECONDS_BETWEEN):
            with self._measuring:
                if self._is_over.is_set():
                    return
                removed = removed_size(self._processes(), self._device)
                self.fault = self._fault(measure(self._root, self._most), removed)
                if self.fault is not None:
                    self._stop()
                    return

    def _fault(self, used: WorkspaceUse, removed: int = 0) -> str | None:
        if used.too_deep is not None:
            return f"the folder {used.too_deep[:_SHOWN]}... is too deep"
        if used.size + removed > self._most:
            return f"the workspace has grown over {self._most:,} bytes"
        if _free(self._root) < self._least_free:
            return "the disk is almost full"
        return None


def _entries(root: Path) -> Iterator[tuple[str, os.stat_result | int]]:
    """The path and the status of everything below a folder, or the number of the error in place of that."""
    ahead = [""]
    while ahead:
        folder = ahead.pop()
        try:
            with os.scandir(root / folder) as found:
                for entry in found:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        yield path, error.errno or errno.EIO
                        continue
                    if stat.S_ISDIR(status.st_mode):
                        if path.count("/") >= MAX_TREE_DEPTH:
                            yield path, errno.ENAMETOOLONG
                            continue
                        ahead.append(path)
                    yield path, status
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            yield folder or ROOT, error.errno or errno.EIO


def _is_set_id(mode: int) -> bool:
    return stat.S_ISREG(mode) and bool(mode & (stat.S_ISUID | stat.S_ISGID))


def _free(root: Path) -> int:
    system = os.statvfs(root)
    return system.f_bfree * system.f_frsize


def _named(path: str) -> str:
    return "the workspace" if path == ROOT else path
