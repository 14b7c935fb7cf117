"""Takes screenshots of pages of the site in a browser: light and dark, wide and narrow. `make screenshots` runs it.

It needs a Chromium, on Debian `apt-get install chromium`. All pages are opened in a narrow window. It fails if one is
wider than its window, asks for what is elsewhere, reports an error, or writes to the console, and if the search does
not find a word. The images are in `build/screenshots`.
"""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

Playwright: TypeAlias = Any
"""A value of Playwright: its package is in another environment than the one that the types are checked in."""

playwright: Playwright = import_module("playwright.sync_api")

BUILD = Path(__file__).resolve().parents[1] / "build"
PAGES = (
    "index",
    "recipes/refund",
    "tutorial/first-durable-session",
    "explanation/a-call",
    "explanation/comparison",
    "reference/command-line",
    "reference/limits",
    "reference/python/handrail.prompt",
)
SCHEMES = ("light", "dark")
SIZES = ((1280, 900), (390, 844))
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def served(folder: Path) -> Generator[str]:
    """The address of a server of a folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def watch(page: Playwright, address: str) -> list[str]:
    """What a page asks for elsewhere, what fails on it, and what it writes to the console, from now on."""
    faults: list[str] = []

    def note_request(asked: Playwright) -> None:
        if not asked.url.startswith(address):
            faults.append(f"asks {asked.url}")

    def note_error(error: object) -> None:
        faults.append(str(error))

    def note_message(message: Playwright) -> None:
        faults.append(f"writes to the console: {message.text}")

    page.on("request", note_request)
    page.on("pageerror", note_error)
    page.on("console", note_message)
    return faults


def check(page: Playwright, address: str, name: str) -> None:
    """Open a page of the site, and write it to the console if it is wider than its window."""
    page.goto(f"{address}{name}.html")
    page.wait_for_load_state("networkidle")
    page.evaluate("document.documentElement.scrollWidth > innerWidth && console.log('wider than its window')")


def look(browser: Playwright, address: str, name: str, scheme: str, size: tuple[int, int]) -> Iterator[str]:
    """Take a screenshot of a page, and yield what is wrong with it."""
    width, height = size
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
    page = context.new_page()
    faults = watch(page, address)
    check(page, address, name)
    page.screenshot(path=str(BUILD / "screenshots" / f"{name.replace('/', '-')}-{scheme}-{width}.png"))
    context.close()
    yield from (f"{name}, {scheme}, {width} wide: {fault}" for fault in faults)


def open_all(browser: Playwright, address: str) -> Iterator[str]:
    """Open all pages in a narrow window, one after the other, and yield what is wrong with them."""
    page = browser.new_page(viewport={"width": SIZES[-1][0], "height": SIZES[-1][1]})
    faults, site = watch(page, address), BUILD / "site"
    for path in sorted(site.rglob("*.html")):
        name = str(path.relative_to(site).with_suffix(""))
        if not name.startswith("repository/"):
            check(page, address, name)
            yield from (f"{name}: {fault}" for fault in faults)
            faults.clear()
    page.close()


def search(browser: Playwright, address: str) -> Iterator[str]:
    """Search for a word, and yield what is wrong with the outcome."""
    page = browser.new_page()
    page.goto(f"{address}index.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Control+k")
    page.keyboard.type("reconcile")
    try:
        page.get_by_text(re.compile(r"^\d+ results$")).first.wait_for(timeout=10_000)
    except playwright.TimeoutError:
        yield "the search for 'reconcile' finds nothing"
    page.screenshot(path=str(BUILD / "screenshots" / "search.png"))
    page.close()


def main() -> None:
    """Take all of them."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        sys.exit(f"screenshots need one of these programs: {', '.join(PROGRAMS)}. On Debian: apt-get install chromium")
    (BUILD / "screenshots").mkdir(parents=True, exist_ok=True)
    with served(BUILD / "site") as address, playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        faults = [
            fault
            for name in PAGES
            for scheme in SCHEMES
            for size in SIZES
            for fault in look(browser, address, name, scheme, size)
        ]
        faults += open_all(browser, address)
        faults += search(browser, address)
        browser.close()
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
