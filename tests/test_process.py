"""`handrail.process`: the identity of a process, and systems without POSIX."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from handrail.process import ProcessName, has_processes, is_running, own_name, process_in_words
from handrail.threads import ASSIGNING, FORKING, forks
from handrail.waiting import run_in_thread
from tests.architecture.sources import ROOT


def test_name_is_read_back() -> None:
    """And is shown to people without what only the kernel needs."""
    own = own_name()
    assert ProcessName.parse(str(own)) == own
    assert ProcessName.parse(str(own._replace(boot=""))) == own._replace(boot="")
    assert process_in_words(str(own)) == f"process {os.getpid()} on {own.host}"
    assert process_in_words(f"{own} {'a' * 32}") == process_in_words(str(own))
    assert process_in_words("call 1") == "call 1"
    assert process_in_words("") == ""


def test_a_process_of_which_the_system_says_nothing_has_a_name_of_its_own() -> None:
    """As where `/proc` shows the processes of another namespace: such a name proves nothing."""
    first, second = own_name.__wrapped__(0), own_name.__wrapped__(0)
    assert (first.boot, first.pid) == ("", 0)
    assert first.start != second.start
    assert ProcessName.parse(str(first)) == first


def test_a_process_that_cannot_be_looked_for_is_taken_to_run() -> None:
    """No process wrote this name, so that nothing shows that one has ended."""
    assert is_running(own_name()._replace(pid=0))


def test_a_process_of_another_user_runs() -> None:
    """The first one of the machine belongs to the superuser."""
    (started,) = Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19:20]
    assert is_running(own_name()._replace(pid=1, start=started))


def test_a_pid_that_was_used_again_is_another_process() -> None:
    """The start time distinguishes the two."""
    own = own_name()
    assert not is_running(own._replace(start=str(int(own.start) - 1)))


def test_a_forked_process_has_its_own_name_and_free_locks() -> None:
    """Whatever another thread of its parent was doing with them at that moment."""
    ended = threading.Event()

    def use_locks() -> None:
        while not ended.is_set():
            with FORKING, ASSIGNING:
                pass

    using, before = run_in_thread(use_locks), forks()
    for _ in range(5):
        child = os.fork()
        if child == 0:
            are_free = FORKING.acquire(timeout=10) and ASSIGNING.acquire(timeout=10)
            os._exit(0 if are_free and own_name().pid == os.getpid() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ended.set()
    using.result()
    assert forks() == before + 5


CORE = (
    *("tests/runtime/test_invoke.py", "tests/runtime/test_rollback.py", "tests/transaction", "tests/turns"),
    *("tests/serde/test_faults.py", "tests/session/test_slices.py"),
)
"""The quick ones among the tests of `make test-fast`."""


@pytest.mark.timeout(180)  # other tests, on a machine that is busy with these
@pytest.mark.short(0)
def test_the_core_runs_where_no_processes_are_shown() -> None:
    """With `/proc` empty, as on macOS."""
    unneeded = [
        word for name in ("cacheprovider", "xdist", "randomly", "inline_snapshot") for word in ("-p", f"no:{name}")
    ]
    command = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/proc", sys.executable, "-m", "pytest", "-q", *unneeded]
    ended = subprocess.run(
        [*command, "-k", "not postgres", *CORE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert int(re.findall(r"(\d+) passed", ended.stdout)[-1]) > 150


def test_a_system_that_shows_no_processes_is_known(tmp_path: Path) -> None:
    """What a program has left is found by what the system shows; without, its group is killed."""
    assert has_processes() == (sys.platform == "linux")
    assert not has_processes(tmp_path)
