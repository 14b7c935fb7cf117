"""`handrail.testing.crash`: processes that are killed at a point."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from handrail import crash_points
from handrail.crash_points import POINTS, reached
from handrail.testing import Completed, Crashed, crash_at, run_to_crash
from handrail.testing.crash import REACHED, RETURNED, CrashTrap, run_child, write_request
from tests.wording import Wording


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    """Whatever a test has armed, the tests after it live."""
    yield
    crash_points.arm(None)


def test_it_kills_when_the_point_is_reached_for_the_nth_time_and_only_then() -> None:
    """Other points do not count."""
    deaths: list[str] = []
    trap = CrashTrap("after-handler", 2, kill=lambda: deaths.append("now"))
    crash_points.arm(trap)
    for point in ("after-handler", "after-claim", "after-claim"):
        reached(point)
    assert deaths == []
    reached("after-handler")
    assert deaths == ["now"]
    reached("after-handler")
    assert deaths == ["now"]


def test_threads_that_reach_a_point_at_once_are_counted_one_by_one() -> None:
    """There is exactly one nth time."""
    deaths: list[str] = []
    trap = CrashTrap("before-claim", 50, kill=lambda: deaths.append("now"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(trap, ["before-claim"] * 100))
    assert deaths == ["now"]


def test_leaving_the_block_takes_the_sentence_back() -> None:
    """This process reaches the point afterwards, and lives."""
    with crash_at("after-handler"):
        reached("before-handler")
    reached("after-handler")


def three_steps(path: str) -> str:
    """Do a little, passing three points; what is buffered is lost with the process."""
    sys.stdout.write("started\n")
    sys.stdout.flush()
    reached("before-handler")
    Path(path).write_text("half", encoding="utf-8")
    reached("after-handler")
    reached("after-handler")
    sys.stdout.write("never flushed before a kill")
    Path(path).write_text("whole", encoding="utf-8")
    reached("after-commit")
    return f"wrote {path}"


async def slowly() -> str:
    """The same, as a coroutine."""
    reached("after-claim")
    return str(Path.cwd())


def fails() -> None:
    """Go wrong."""
    reached("after-claim")
    raise LookupError("no such order")


def dies_of_something_else() -> None:
    """Be killed beside all points."""
    sys.stderr.write("oh\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def hangs() -> None:
    """Wait for what never comes."""
    threading.Event().wait()


@pytest.mark.parametrize("nth", [1, 2])
def test_a_process_is_killed_at_the_point_and_leaves_what_it_had_done(tmp_path: Path, nth: int) -> None:
    """What came before the nth arrival has happened, what comes after has not."""
    path = tmp_path / "file"
    ended = run_to_crash(three_steps, str(path), at="after-handler", nth=nth)
    assert ended == Crashed("after-handler", nth)
    assert ended.reached == ("before-handler", *["after-handler"] * nth)
    assert ended.output == "started\n"
    assert path.read_text(encoding="utf-8") == "half"


def test_a_point_that_was_not_reached_is_told_with_those_that_were(tmp_path: Path, wording: Wording) -> None:
    """The function has come to its end; what it returned is there."""
    path = str(tmp_path / "file")
    ended = run_to_crash(three_steps, path, at="unit-begun")
    assert ended == Completed(f"wrote {path}")
    assert ended.reached == ("before-handler", "after-handler", "after-handler", "after-commit")
    assert ended.output == wording


def test_a_function_can_be_async() -> None:
    """Without a point it is not killed at all."""
    ended = run_to_crash(slowly, at=None)
    assert ended == Completed(str(Path.cwd()))
    assert ended.reached == ("after-claim",)
    assert run_to_crash(slowly, at="after-claim") == Crashed("after-claim")


@pytest.mark.short(0)
def test_a_function_that_raises_is_an_error_with_what_it_wrote() -> None:
    """The traceback of the other process stands in the note."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_to_crash(fails, at="after-handler")
    assert caught.value.returncode == 1
    assert caught.value.cmd == f"{__name__}:fails"
    assert caught.value.__notes__[0].endswith("LookupError: no such order\n")


def test_a_process_that_dies_of_something_else_is_an_error(wording: Wording) -> None:
    """Not every SIGKILL is the one that was asked for."""
    for at in ("after-handler", None):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            run_to_crash(dies_of_something_else, at=at)
        assert caught.value.returncode == -signal.SIGKILL
        assert caught.value.__notes__ == [wording]


def test_a_process_that_takes_too_long_is_killed_and_told(wording: Wording) -> None:
    """Nothing of it is left running."""
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run_to_crash(hangs, at=None, timeout=timedelta(milliseconds=50))
    assert caught.value.__notes__ == [wording]


@pytest.mark.parametrize("point, nth", [("after-handlr", 1), ("after-claim", 0)])
def test_a_point_that_there_is_not_is_refused(point: str, nth: int) -> None:
    """Before anything is armed, or a process is started: a test with a misspelt point would show nothing."""
    for refused in (lambda: crash_at(point, nth=nth), lambda: run_to_crash(fails, at=point, nth=nth)):
        with pytest.raises(ValueError, match="the points are before-claim, after-claim"):
            refused()
    for each in POINTS:  # this process lives, whatever it reaches
        reached(each)


def test_a_function_of_no_module_is_refused() -> None:
    """Another process does not find it."""
    with pytest.raises((pickle.PicklingError, AttributeError)):
        run_to_crash(lambda: None, at=None)


def test_the_other_process_leaves_what_it_came_to(tmp_path: Path) -> None:
    """The points that were reached, and what was returned."""
    write_request(tmp_path, three_steps, (str(tmp_path / "file"),), "unit-begun", 1)
    run_child(str(tmp_path))
    points = ["before-handler", *["after-handler"] * 2, "after-commit"]
    assert (tmp_path / REACHED).read_text(encoding="utf-8").split() == points
    assert pickle.loads((tmp_path / RETURNED).read_bytes()) == f"wrote {tmp_path / 'file'}"  # noqa: S301 - of this process
