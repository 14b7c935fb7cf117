"""How long the pages of `handrail view` take: a long session in a browser, a file of one, and a run that is looked at.

The pages are served by a process of their own, as the command starts it. A browser is started once; each opening is of
a server that has read nothing yet. A run that is looked at makes its calls in this process, one after the other.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, sync_playwright

from benchmarks.timing import Limit
from benchmarks.transcripts import fill, loop_items
from handrail import ToolExecutor, store, tool
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.runtime import Session, ToolCall
from handrail.store import Store
from handrail.view.export import export_run

CALLS, SMALLER = 10_000, 1_000

OPENED = f"a session of {CALLS:,} calls in a browser, until its first calls can be seen"
WHOLE = f"a session of {CALLS:,} calls in a browser, until all of them are there"
SCROLLED = f"a session of {CALLS:,} calls that is scrolled through: 95 of 100 frames"
EXPORTED = f"a file of a session of {SMALLER:,} calls"
SIZE = f"the size of a file of a session of {SMALLER:,} calls"
RECORDED = "a call that writes a file, with what it changed in its record, over one without"
FOLLOWED = "a call of a run that a browser follows, over one of a run that none does"

LIMITS = (
    Limit(OPENED, 1_000.0, "ms in Chromium"),
    Limit(WHOLE, None, "ms in Chromium"),
    Limit(SCROLLED, 50.0, "ms in Chromium"),
    Limit(EXPORTED, 2_000.0, "ms"),
    Limit(SIZE, 5.0, "MB"),
    Limit(FOLLOWED, 1.05, "x"),
    Limit(RECORDED, None, "x"),
)

_OPENINGS, _PAIRS, _IN_A_ROW, _ROUNDS = 5, 9, 200, 5
_SETTLES_MS = 1_000
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_SCROLL = """async () => {
  const gaps = [];
  let last = performance.now();
  for (let frame = 0; frame < 300; frame++) {
    window.scrollBy(0, 900);
    await new Promise(requestAnimationFrame);
    gaps.push(performance.now() - last);
    last = performance.now();
  }
  return gaps;
}"""
_ROOT = Path(__file__).parents[1]


@tool(effect="read")
def look(order: str) -> str:
    """Look an order up."""
    return f"order {order}"


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the stores are there for the time of the block, and the browser runs."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        url, live = (f"sqlite:///{folder}/{name}.db" for name in ("long", "live"))
        with store.open(url, durability="normal") as kept:
            fill(kept, "long", loop_items(CALLS))
            fill(kept, "short", loop_items(SMALLER))
        program = next(found for name in _PROGRAMS if (found := shutil.which(name)))
        playwright = opened.enter_context(sync_playwright())
        browser = opened.enter_context(playwright.chromium.launch(executable_path=program, args=["--no-sandbox"]))
        reading = opened.enter_context(store.open(url, read_only=True))
        yield {
            OPENED: partial(_open, browser, url, "first"),
            WHOLE: partial(_open, browser, url, "all"),
            SCROLLED: partial(_scroll, browser, url),
            EXPORTED: partial(export_run, reading, "short"),
            SIZE: lambda: len(export_run(reading, "short").encode()) / 1e6,
            FOLLOWED: partial(_follow, browser, live),
            RECORDED: partial(_compare_records, f"sqlite:///{folder}/records.db"),
        }


@contextmanager
def _served(url: str, session: str) -> Generator[str]:
    """The address of a session, while a process serves its pages."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(_ROOT / "src"), str(_ROOT)))}
    command = [sys.executable, "-m", "handrail", "view", session, "--store", url]
    with subprocess.Popen(command, cwd=_ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def _open(browser: Browser, url: str, until: str) -> float:
    """The milliseconds that the median of several openings takes."""
    return statistics.median(_open_once(browser, url, until) for _ in range(_OPENINGS))


def _open_once(browser: Browser, url: str, until: str) -> float:
    with _served(url, "long") as address, browser.new_context() as context:
        page = context.new_page()
        begun = time.perf_counter()
        page.goto(address, wait_until="commit")
        if until == "first":
            page.locator(".call").first.wait_for()
        else:
            page.locator("#status").wait_for()
        return (time.perf_counter() - begun) * 1e3


def _scroll(browser: Browser, url: str) -> float:
    """The milliseconds within which 95 of 100 frames follow the one before."""
    with _served(url, "long") as address, browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        page.locator("#status").wait_for()
        gaps: list[float] = page.evaluate(_SCROLL)
    return statistics.quantiles(gaps, n=20)[-1]


def _compare_records(url: str) -> float:
    """The median of pairs of so many calls, in sessions of their own, with and without a record of changes."""
    with store.open(url, durability="normal") as kept:
        return statistics.median(
            _write(kept, f"with-{number}", is_recorded=True) / _write(kept, f"without-{number}", is_recorded=False)
            for number in range(_PAIRS)
        )


def _write(kept: Store, name: str, *, is_recorded: bool) -> float:
    numbers = count()
    files = InMemoryFilesystem({"notes.md": "one\ntwo\nthree\n"})

    @tool
    def note(text: str) -> str:
        """Write a note."""
        files.write_text("notes.md", f"one\n{text} {next(numbers)}\nthree\n")
        return "noted"

    with Session.open(kept, name, record_changes=is_recorded) as session:
        executor = ToolExecutor([note], session=session, resources={Filesystem: files})
        return _call(executor, "note", {"text": name})


def _follow(browser: Browser, url: str) -> float:
    """The median of pairs of runs, with and without a browser that has opened theirs and follows."""
    with store.open(url) as kept:
        return statistics.median(
            _run_followed(browser, kept, f"followed-{number}") / _run(kept, f"alone-{number}")
            for number in range(_PAIRS)
        )


def _run_followed(browser: Browser, kept: Store, name: str) -> float:
    with Session.open(kept, name):
        pass
    with _served(kept.url, name) as address, browser.new_context() as context:
        page = context.new_page()
        page.goto(address)
        page.locator("#status").wait_for()
        page.wait_for_timeout(_SETTLES_MS)  # a browser that starts takes a processor
        return _run(kept, name)


def _run(kept: Store, name: str) -> float:
    with Session.open(kept, name) as session, ToolExecutor([look], session=session) as executor:
        return sum(_call(executor, "look", {"order": "A-1"}) for _ in range(_ROUNDS))


def _call(executor: ToolExecutor, name: str, arguments: dict[str, str]) -> float:
    begun, reply = time.perf_counter(), str(time.time_ns())
    for number in range(_IN_A_ROW):
        assert executor.execute(ToolCall(f"call-{number}", name, arguments), reply=reply).success
    return time.perf_counter() - begun
