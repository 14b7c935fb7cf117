"""The core and sessions in memory need neither the modules of POSIX nor `/proc`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.errors import PosixRequiredError
from handrail.posix import MissingModule, has_processes, require_posix
from tests.architecture.sources import ROOT
from tests.wording import Wording

CORE = (
    *("tests/runtime/test_invoke.py", "tests/runtime/test_rollback.py", "tests/transaction/commit"),
    *("tests/serde/test_faults.py", "tests/store/test_memory.py", "tests/store/test_sessions.py"),
)
"""The quick ones among the tests of `make test-fast`."""

OF_STORES = "postgres or sqlite"
"""The tests among them that are about other stores: a file that is written needs locks of files, as its error says."""


@pytest.mark.timeout(180)  # other tests, on a machine that is busy with these
@pytest.mark.short(0)
def test_the_core_runs_without_posix() -> None:
    """With `/proc` empty and without `fcntl` and its like."""
    unneeded = [
        word for name in ("cacheprovider", "xdist", "randomly", "inline_snapshot") for word in ("-p", f"no:{name}")
    ]
    plugins = ("-p", "tests.without_posix", *unneeded)
    command = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/proc", sys.executable, "-m", "pytest", "-q", *plugins]
    ended = subprocess.run(
        [*command, "-k", f"not ({OF_STORES})", *CORE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert int(re.findall(r"(\d+) passed", ended.stdout)[-1]) > 150


def test_a_missing_module_says_so_when_it_is_used(wording: Wording) -> None:
    """Importing it is free."""
    module = MissingModule("fcntl")
    with pytest.raises(PosixRequiredError) as raised:
        module.flock(1, 2)
    assert str(raised.value) == wording
    assert raised.value.needed == "fcntl.flock"


def test_what_needs_posix_says_what_it_needs(wording: Wording) -> None:
    """One error, whatever is missing."""
    require_posix("HostFilesystem")
    for missing in ({"has_file_locks": False}, {"has_folders": False}):
        with pytest.raises(PosixRequiredError) as raised:
            require_posix("HostFilesystem", **missing)
        assert str(raised.value) == wording


def test_a_system_that_shows_no_processes_is_known(tmp_path: Path) -> None:
    """What a program has left is found by what the system shows; without, its group is killed."""
    assert has_processes() == (sys.platform == "linux")
    assert not has_processes(tmp_path)
