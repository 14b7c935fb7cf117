"""What every test stands on: the Hypothesis profiles, and asyncio as the loop of the `async def` tests.

An `async def` test carries `@pytest.mark.anyio`.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import certifi
import pytest
from hypothesis import HealthCheck, settings

from tests.extent import FULL, SHORT

# Before Handrail is imported, which reads them once; processes that tests start inherit it.
os.environ["HANDRAIL_LOOP_GUARD"] = "1"
os.environ["HANDRAIL_CHECK_STORED"] = "1"

pytest_plugins = [
    "tests.cases",
    "tests.collection",
    "tests.endless_tests",
    "tests.process_coverage",
    "tests.forked_workers",
    "tests.left_threads",
    "tests.tracing",
    "tests.wording",
]

# Neither profile measures time: a slow machine must not fail a test. In CI the examples are the same at every run.
_UNTIMED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100 if FULL else 20 if SHORT else 40,
    stateful_step_count=50,
)
settings.register_profile("dev", _UNTIMED)
settings.register_profile("ci", _UNTIMED, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


_RUN = "HANDRAIL_TEST_RUN"

_BOTH_WAYS = ("tests/runtime", "tests/scenarios", "tests/session", "tests/transaction")
"""Whose tests run by turns with the straight way of calls and without; `make test-more` runs each of them both ways."""

MINUTE = 60
"""The seconds after which a test fails that does not say how long it may take."""


def pytest_configure(config: pytest.Config) -> None:
    """Make a folder that all workers of a run share, in the process that starts them, which SIGTERM ends in order."""
    if hasattr(config, "workerinput"):
        return
    # A path with a blank is not quoted by what starts the servers of PostgreSQL there.
    usual = tempfile.gettempdir()
    os.environ[_RUN] = tempfile.mkdtemp(prefix="handrail-run-", dir="/tmp" if " " in usual else usual)  # noqa: S108
    Path(os.environ[_RUN]).chmod(0o755)  # the servers may run as another user than the tests
    # Each client of HTTP reads the certificates of all authorities, which takes longer than most tests; none is needed.
    end = "-----END CERTIFICATE-----\n"
    authority = Path(os.environ[_RUN]) / "authority.pem"
    authority.write_text(Path(certifi.where()).read_text("utf-8").partition(end)[0] + end, "utf-8")
    os.environ["SSL_CERT_FILE"] = str(authority)
    # pytest-xdist would give the worker in the place of one that a test has ended the same test.
    config.option.maxworkerrestart = "0"
    has_workers = config.option.forked_workers or config.getoption("numprocesses", None)
    if has_workers and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # As Ctrl-C; so the folder is removed, and the servers that have their data there end by themselves. The next one
    # ends the process.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it, when the workers have ended."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(_RUN), ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files first whose tests may take more than the usual minute, the longest first, and then those of many tests.

    A worker that comes to a long file last keeps the others waiting. Files are in random order otherwise.
    """
    count = Counter(item.path for item in items)
    longest: dict[Path, float] = defaultdict(lambda: MINUTE)
    for item in items:
        if (mark := item.get_closest_marker("timeout")) is not None:
            longest[item.path] = max(longest[item.path], mark.args[0])
    items.sort(key=lambda item: (-longest[item.path], -count[item.path]))


def pytest_collection_finish() -> None:
    """Leave what thousands of tests are made of out of every later garbage collection; hardly any of it is garbage."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the calls of every other test take the long way, unless the environment says which way they take."""
    if "HANDRAIL_FAST" not in os.environ and item.nodeid.startswith(_BOTH_WAYS):
        from handrail.runtime import invoke  # noqa: PLC0415 - after the environment is set

        invoke.MAY_BE_STRAIGHT = zlib.crc32(item.nodeid.encode()) % 2 == 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """The same for what the tests of a file have made and other objects keep: classes, codecs, reports.

    There is ever more of it, and tests that look for what is left of a call collect everything.
    """
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop that Handrail supports."""
    return "asyncio"


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT as a terminal delivers it, to this process and to those that a test starts.

    A shell that starts a run in the background of a script has it ignore SIGINT, and each child inherits that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store that other processes can open, one kind after the other."""
    from tests.store.postgres_server import fresh_url  # noqa: PLC0415 - it needs POSIX

    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'desk.db'}"
        return
    with fresh_url() as fresh:
        yield fresh


@pytest.fixture
def url(database_url: str) -> str:
    """The same, where no nearer fixture says which store the tests are about."""
    return database_url
