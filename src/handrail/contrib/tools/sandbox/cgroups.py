"""Control groups: one for the commands of a sandbox, made where this process may; and what those of others limit.

=====================================  ===============================================================================
what the machine has                   where the group is made
=====================================  ===============================================================================
hierarchies of cgroup version 1        in each of `memory`, `pids` and `cpu`, below the group of this process
one of version 2 alone                 at its top, if `memory`, `pids` and `cpu` are enabled for its groups
=====================================  ===============================================================================

A group holds no process once the call of its command has ended, and is removed with the sandbox. The next sandbox
removes those of dead processes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from handrail.contrib.tools.sandbox.limits import SandboxLimits
from handrail.process_identity import is_running, own_name, process_name

_CONTROLLERS = ("memory", "pids", "cpu")
_IN_WORDS = {"memory": "memory", "pids": "the number of processes", "cpu": "processors"}
_PERIOD_MICROSECONDS = 100_000
_ROUNDED_UP = 1.01
_MOUNTS = Path("/sys/fs/cgroup")
_LIMITS = {
    "memory": ("memory.max", "memory.limit_in_bytes"),
    "pids": ("pids.max",),
    "cpu": ("cpu.max", "cpu.cfs_quota_us"),
}
_OWN_PROCESSES = 4
"""Those of bubblewrap and of the programs that become the command."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A group of processes, with limits.

    Attributes:
        folders: its folder in each hierarchy.
        is_unified: whether it is of version 2.
    """

    folders: tuple[Path, ...]
    is_unified: bool

    @property
    def joins(self) -> tuple[Path, ...]:
        """The files by which a process with one thread joins it: it writes "0" to each.

        In version 1 it is that of threads: for a process the kernel waits until no process forks on any processor,
        which takes longer than the start of a command.
        """
        return tuple(folder / ("cgroup.procs" if self.is_unified else "tasks") for folder in self.folders)

    def close(self) -> None:
        """Remove the group; if a process is left in it, a later sandbox removes it."""
        for folder in self.folders:
            with suppress(OSError):
                folder.rmdir()


def control_group(
    limits: SandboxLimits, *, mounts: Path = _MOUNTS, own_groups: Path = Path("/proc/self/cgroup")
) -> ControlGroup | None:
    """Make a group with these limits; `None` where this process may not.

    Args:
        limits: what its processes may use.
        mounts: where the system has its control groups.
        own_groups: the file that names the groups of this process.
    """
    parents = _parents(mounts, own_groups)
    if parents is None:
        return None
    own = own_name(os.getpid())
    name = f"handrail-{own.pid}-{own.started}-{uuid4().hex[:8]}"
    folders = tuple(dict.fromkeys(parent / name for parent in parents.values()))
    group = ControlGroup(folders, is_unified=len(folders) == 1)
    try:
        for folder in group.folders:
            _remove_left_over(folder.parent)
            folder.mkdir()
        for file, value in _settings(limits, is_unified=group.is_unified).items():
            place = parents[file.partition(".")[0]] / name / file
            # Without swap the kernel has no such file, and there is nothing to limit.
            if ("swap" not in file and "memsw" not in file) or place.exists():
                place.write_text(value)
    except OSError:
        group.close()
        return None
    return group


def missing_limits(
    pid: int, limits: SandboxLimits, *, mounts: Path = _MOUNTS, processes: Path = Path("/proc")
) -> tuple[str, ...]:
    """What no control group of a process limits as narrowly as that, in words.

    Args:
        pid: the process.
        limits: what it may use at most, with one process more.
        mounts: where the system has its control groups.
        processes: where the system describes processes.
    """
    page = os.sysconf("SC_PAGE_SIZE")
    most = {"memory": limits.memory_bytes + page, "pids": limits.processes + 1, "cpu": limits.cpus * _ROUNDED_UP}
    folders = _folders(mounts, processes / str(pid) / "cgroup")
    return tuple(
        _IN_WORDS[controller]
        for controller in _CONTROLLERS
        if controller not in folders or _narrowest(controller, folders[controller], mounts) > most[controller]
    )


def _folders(mounts: Path, groups: Path) -> Mapping[str, Path]:
    """The folder of each controller for the group of a process."""
    found: dict[str, Path] = {}
    with suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            # In version 2 one group has all controllers; beside version 1 it has none.
            names = controllers.split(",") if controllers else _CONTROLLERS if _is_unified(mounts) else ()
            hierarchies = {name: mounts / name if controllers else mounts for name in names}
            found |= {name: top / path.lstrip("/") for name, top in hierarchies.items()}
    return found


def _narrowest(controller: str, folder: Path, mounts: Path) -> float:
    """The narrowest limit of a group and of those above it."""
    above = (each for each in (folder, *folder.parents) if each.is_relative_to(mounts))
    return min((_limit(controller, each) for each in above), default=math.inf)


def _limit(controller: str, folder: Path) -> float:
    """The limit of one group; infinite without one."""
    for name in _LIMITS[controller]:
        with suppress(OSError):
            said = (folder / name).read_text().split()
            if controller != "cpu":
                return math.inf if said == ["max"] else int(said[0])
            period = said[1] if len(said) > 1 else (folder / "cpu.cfs_period_us").read_text()
            return math.inf if said[0] in {"max", "-1"} else int(said[0]) / int(period)
    return math.inf


def _is_unified(mounts: Path) -> bool:
    return (mounts / "cgroup.controllers").exists()


def _settings(limits: SandboxLimits, *, is_unified: bool) -> Mapping[str, str]:
    memory, processes = str(limits.memory_bytes), str(limits.processes + _OWN_PROCESSES)
    quota = int(limits.cpus * _PERIOD_MICROSECONDS)
    if is_unified:
        return {
            "memory.max": memory,
            "memory.swap.max": "0",
            "pids.max": processes,
            "cpu.max": f"{quota} {_PERIOD_MICROSECONDS}",
        }
    return {
        "memory.limit_in_bytes": memory,
        "memory.memsw.limit_in_bytes": memory,
        "pids.max": processes,
        "cpu.cfs_period_us": str(_PERIOD_MICROSECONDS),
        "cpu.cfs_quota_us": str(quota),
    }


def _parents(mounts: Path, own_groups: Path) -> Mapping[str, Path] | None:
    """In which folder to make the group, for each controller."""
    with suppress(OSError):
        enabled = (mounts / "cgroup.subtree_control").read_text().split()
        return dict.fromkeys(_CONTROLLERS, mounts) if set(_CONTROLLERS) <= set(enabled) else None
    own: dict[str, str] = {}
    with suppress(OSError):
        for line in own_groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            own |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
    if not set(_CONTROLLERS) <= own.keys():
        return None
    return {each: mounts / each / own[each] for each in _CONTROLLERS}


def _remove_left_over(parent: Path) -> None:
    for folder in parent.glob("handrail-*-*-*"):
        _, pid, started, _ = folder.name.split("-")
        if pid.isdecimal() and not is_running(process_name(int(pid))._replace(started=started)):
            with suppress(OSError):
                folder.rmdir()
