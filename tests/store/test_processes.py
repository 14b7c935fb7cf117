"""What proves the life and the death of a process by the kernel's word, with real processes and real kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.process_identity import ProcessName, own_name
from handrail.store.processes import KernelProcesses
from tests.store.process_child import child

KERNEL = KernelProcesses()


def test_process_that_was_killed_is_dead() -> None:
    """And it was not before."""
    with child() as other:
        assert KERNEL.lives(other.name) is True
        other.kill()
        assert KERNEL.lives(other.name) is False


def test_zombie_is_dead() -> None:
    """It runs nothing any more, though its parent has not asked what came of it."""
    with child() as other:
        other.kill(reaped=False)
        assert KERNEL.lives(other.name) is False


def test_process_that_was_stopped_is_alive() -> None:
    """It may go on."""
    with child() as other:
        other.stop()
        assert KERNEL.lives(other.name) is True


def test_process_that_is_forked_off_has_a_name_of_its_own() -> None:
    """It lives on when its parent is dead."""
    with child() as other:
        forked = other.fork()
        other.kill()
        assert KERNEL.lives(other.name) is False
        assert forked != other.name
        assert KERNEL.lives(forked) is True


def test_nothing_is_proved_of_this_process() -> None:
    """Which of its claims live, its ledgers know."""
    assert KERNEL.lives(KERNEL.own(list)) is None
    KERNEL.close()
    assert KERNEL.own(list) == str(own_name())


def test_pid_that_was_used_again_is_another_process() -> None:
    """The start time distinguishes the two: the pid of a live process does not keep a dead one alive."""
    own = own_name()
    assert KERNEL.lives(str(own._replace(started=str(int(own.started) - 1)))) is False


@pytest.mark.parametrize("field", ["boot_id", "pid namespace", "time namespace"])
def test_nothing_is_proved_of_a_process_of_another_boot_or_namespace(field: str) -> None:
    """There its pid names another process, or none; nor is one whose boot is not known."""
    with child() as other:
        other.kill()
        name = ProcessName.parse(other.name)
        assert name is not None
        parts = name.boot.split("/")
        parts[["boot_id", "pid namespace", "time namespace"].index(field)] += "0"
        assert KERNEL.lives(str(name._replace(boot="/".join(parts)))) is None
        assert KERNEL.lives(str(name._replace(boot=""))) is None


def test_process_of_another_user_is_alive() -> None:
    """The first one of the machine belongs to the superuser."""
    (started,) = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19:20]
    assert KERNEL.lives(str(own_name()._replace(pid=1, started=started))) is True


@pytest.mark.parametrize("name", ["", "night/call_1", "a b c d", "a b 1", "- - 1 0"])
def test_name_that_no_process_has_written_proves_nothing(name: str) -> None:
    """As in a row that was written by hand."""
    assert KERNEL.lives(name) is None


def test_pid_that_no_kernel_gives_proves_nothing() -> None:
    """A corrupt row must neither end a lease nor hold its key for ever."""
    for pid in (2**31, 2**70):
        assert KERNEL.lives(str(own_name()._replace(pid=pid))) is None
