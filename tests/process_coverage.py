"""Coverage of processes that a test forks off or starts: each saves what it has executed, and that alone.

The patches `fork` and `_exit` of coverage do this too, but a process then saves what its parents had executed before
the fork as well, which takes half a second for each generation, and once more when the files are combined. The patch
`subprocess` doubles the time of all tests; here a test that starts programs says that they are measured.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Final, NoReturn

import pytest
from coverage import Coverage

_EXIT: Final = os._exit


def pytest_sessionstart(session: pytest.Session) -> None:
    """Measure the processes that are forked off from now on, if this one is measured at the time."""
    root = session.config.rootpath
    os.register_at_fork(after_in_child=lambda: _begin(root))


def _begin(root: Path) -> None:
    parents = Coverage.current()
    if parents is None:
        return
    parents.stop()
    file = root / str(parents.get_option("run:data_file"))  # a test may have changed the folder
    own = Coverage(str(file), data_suffix=True, config_file=str(root / "pyproject.toml"))
    own.start()

    def save_and_exit(status: int) -> NoReturn:
        with warnings.catch_warnings(action="ignore"):  # such as that nothing of Handrail was executed
            own.stop()
            own.save()
        _EXIT(status)

    os._exit = save_and_exit


@pytest.fixture
def measured_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has Python programs that the test starts with its environment measured, if the test is."""
    if (measured := Coverage.current()) is not None:
        monkeypatch.setenv("COVERAGE_PROCESS_CONFIG", measured.config.serialize())
