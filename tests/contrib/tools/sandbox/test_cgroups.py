"""Control groups: where they are made, with what limits, and that those of dead processes are removed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from handrail.contrib.tools.sandbox.cgroups import ControlGroup, control_group, missing_limits
from handrail.contrib.tools.sandbox.limits import SandboxLimits
from handrail.process_identity import own_name
from tests.wording import Wording

LIMITS = SandboxLimits(memory_bytes=1 << 25, processes=10, cpus=0.5)
OWN_GROUPS = "9:pids:/p\n7:memory:/m/below\n3:cpu,cpuacct:/\n0::/unified\n"


@dataclass
class Machine:
    """The files by which a kernel has control groups, below a folder: there they are ordinary files.

    Attributes:
        folder: where they are.
    """

    folder: Path

    @property
    def mounts(self) -> Path:
        """Where the groups are."""
        return self.folder / "groups"

    def unified(self, enabled: str) -> None:
        """Have version 2 alone."""
        self.mounts.mkdir()
        (self.mounts / "cgroup.subtree_control").write_text(enabled)

    def hierarchies(self, own_groups: str = OWN_GROUPS) -> None:
        """Have version 1."""
        (self.folder / "own").write_text(own_groups)
        for path in ("pids/p", "memory/m/below", "cpu"):
            (self.mounts / path).mkdir(parents=True)

    def process(self, own_groups: str, limits: Mapping[str, str]) -> tuple[str, ...]:
        """What is not limited for a process of these groups, whose files have these limits."""
        groups = self.folder / "1" / "cgroup"
        groups.parent.mkdir()
        groups.write_text(own_groups)
        for name, text in limits.items():
            (self.mounts / name).parent.mkdir(parents=True, exist_ok=True)
            (self.mounts / name).write_text(text)
        return missing_limits(1, LIMITS, mounts=self.mounts, processes=self.folder)

    def group(self) -> ControlGroup | None:
        """A group that is made there."""
        return control_group(LIMITS, mounts=self.mounts, own_groups=self.folder / "own")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without control groups."""
    return Machine(tmp_path)


def test_group_of_version_2_is_one_folder_with_all_limits(machine: Machine) -> None:
    """Swap is limited where the kernel has it."""
    machine.unified("cpuset cpu io memory pids\n")
    group = machine.group()
    assert group is not None
    (folder,) = group.folders
    assert folder.parent == machine.mounts
    assert group.joins == (folder / "cgroup.procs",)
    limits = {path.name: path.read_text() for path in folder.iterdir()}
    assert limits == {"memory.max": str(1 << 25), "pids.max": "14", "cpu.max": "50000 100000"}


def test_group_of_version_1_is_a_folder_in_each_hierarchy(machine: Machine) -> None:
    """Below the group of this process."""
    machine.hierarchies()
    group = machine.group()
    assert group is not None
    assert [folder.parent.relative_to(machine.mounts).as_posix() for folder in group.folders] == [
        "memory/m/below", "pids/p", "cpu",
    ]  # fmt: skip
    limits = {path.name: path.read_text() for folder in group.folders for path in folder.iterdir()}
    assert limits == {
        "memory.limit_in_bytes": str(1 << 25),
        "pids.max": "14",
        "cpu.cfs_period_us": "100000",
        "cpu.cfs_quota_us": "50000",
    }
    assert group.joins == tuple(folder / "tasks" for folder in group.folders)


def test_there_is_no_group_where_none_can_be_made(machine: Machine) -> None:
    """No control groups, controllers that are not enabled or have no hierarchy, and folders that cannot be made."""
    assert machine.group() is None
    machine.hierarchies("9:pids:/p\n0::/\n")
    assert machine.group() is None
    (machine.folder / "own").write_text(OWN_GROUPS.replace("/m/below", "/not-there"))
    assert machine.group() is None
    assert not list(machine.mounts.rglob("handrail-*"))
    (machine.mounts / "cgroup.subtree_control").write_text("memory pids")
    assert machine.group() is None


def test_groups_of_dead_processes_are_removed(machine: Machine) -> None:
    """Not those of processes that run, and not what others have made."""
    machine.unified("memory pids cpu")
    own = own_name(os.getpid())
    stay = [f"handrail-{own.pid}-{own.started}-0a", "handrail-a-b-c", "another"]
    for name in (*stay, f"handrail-{own.pid}-1-0b"):
        (machine.mounts / name).mkdir()
    used = machine.mounts / f"handrail-{own.pid}-2-0c"
    (used / "below").mkdir(parents=True)  # as one in which a process is left: it cannot be removed
    group = machine.group()
    assert group is not None
    there = {path.name for path in machine.mounts.iterdir() if path.is_dir()}
    assert there == {*stay, used.name, group.folders[0].name}


LIMITED_2 = {"cgroup.controllers": "cpu memory pids\n", "a/b/memory.max": f"{1 << 25}\n", "a/b/pids.max": "11\n"}
LIMITED_1 = {
    "memory/m/below/memory.limit_in_bytes": f"{1 << 25}\n",
    "pids/p/pids.max": "11\n",
    "cpu/cpu.cfs_quota_us": "50000\n",
    "cpu/cpu.cfs_period_us": "100000\n",
}


@pytest.mark.parametrize(
    "own_groups, limits",
    [
        ("0::/a/b\n", LIMITED_2 | {"a/b/cpu.max": "50000 100000\n"}),
        # A limit of a group above holds, too.
        ("0::/a/b/container\n", LIMITED_2 | {"a/b/container/pids.max": "max\n", "a/cpu.max": "1000 100000\n"}),
        ("0::/a/b\n", LIMITED_2 | {"a/b/cpu.max": "max 100000\n"}),
        ("0::/a/b\n", LIMITED_2 | {"a/b/memory.max": f"{1 << 26}\n"}),
        (OWN_GROUPS, LIMITED_1),
        (OWN_GROUPS, LIMITED_1 | {"cpu/cpu.cfs_quota_us": "-1\n"}),
        ("0::/\n", LIMITED_1),
        ("9:pids:/else\n", LIMITED_1),
    ],
    ids=["2", "2 above", "2 without cpu", "2 wider", "1", "1 without cpu", "beside 1", "another group"],
)
def test_what_no_group_limits_is_known(
    machine: Machine, own_groups: str, limits: Mapping[str, str], wording: Wording
) -> None:
    """By the files of the kernel, whatever the program that should have set them says."""
    assert machine.process(own_groups, limits) == wording


def test_process_that_has_ended_has_no_limits(machine: Machine) -> None:
    """As far as is known."""
    assert len(missing_limits(1, LIMITS, mounts=machine.mounts, processes=machine.folder)) == 3
