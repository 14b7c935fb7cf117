"""A Chromium for the tests of a file, and pages in it that may report nothing: no message, error or violation."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.view import sample
from tests.view.served_pages import ROOT, ServedPages, served_pages

OTHER_HOST = "other.example"
"""A name of this machine that is another site."""

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
AXE = ROOT / ".venv" / "npm" / "node_modules" / "axe-core" / "axe.min.js"

expect.set_options(timeout=15_000)

SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries())
    for (const source of entry.sources)
      if (source.node?.closest?.("#parts, #open")) window.shifts.push(source.node.outerHTML);
}).observe({ type: "layout-shift", buffered: true });
"""
"""Notes each part of a run that moves without being asked to."""


@dataclass
class Visitor:
    """A person who looks at pages in windows of a browser.

    Attributes:
        faults: what the pages have reported.
        expected: a text that a report may have.
    """

    browser: Browser
    faults: list[str] = field(default_factory=list[str])
    expected: str = ""
    _contexts: list[BrowserContext] = field(default_factory=list[BrowserContext])

    def visit(self, address: str, *, width: int = 1280, height: int = 900, **options: Any) -> Page:
        """A page, in a window with a memory of its own."""
        context = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        self._contexts.append(context)
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.add_init_script(SHIFTS)
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.goto(address)
        page.wait_for_url(re.compile("^(?!.*token=)"))
        return page

    def close(self) -> None:
        """Closes the windows."""
        for context in self._contexts:
            context.close()

    def _note_message(self, message: ConsoleMessage) -> None:
        if not (self.expected and self.expected in message.text):
            self.faults.append(f"{message.type}: {message.text}")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store that real calls have filled."""
    url = f"sqlite:///{tmp_path_factory.mktemp('filled')}/desk.db"
    sample.fill(url)
    return url


@pytest.fixture(scope="module")
def browser(filled: str) -> Iterator[Browser]:
    """A Chromium."""
    program = next(path for name in PROGRAMS if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--in-process-gpu",
                f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(filled: str) -> Iterator[ServedPages]:
    """The pages of the filled store, which allow actions."""
    with served_pages(filled, "--allow-actions") as pages:
        yield pages


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    """A person who looks at pages, which report nothing."""
    visitor = Visitor(browser)
    yield visitor
    visitor.close()
    assert visitor.faults == []


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of an empty store."""
    return f"sqlite:///{tmp_path}/desk.db"
