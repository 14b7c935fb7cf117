"""Takes pictures of the pages of `handrail view`, over a store that real calls fill. `make screenshots` runs it.

Each page is taken light and dark, wide and narrow, into `build/screenshots`; and those that the docs show, into
`docs/how-to/pictures`. It needs a Chromium, on Debian `apt-get install chromium`. It fails if a page is wider than its
window or reports an error, or if a picture of the docs is too large.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

from tests.view import sample
from tests.view.served_pages import ServedPages, served_pages

ROOT = Path(__file__).resolve().parents[1]
PICTURES, OF_DOCS = ROOT / "build" / "screenshots", ROOT / "docs" / "how-to" / "pictures"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SCHEMES = ("light", "dark")
WIDTHS = (1280, 400)
WIDTH_OF_DOCS = 960
MOST_HEIGHT = 1_100
MOST_BYTES = 150_000
MOST_PIXELS = 6_000
LIVE = "day-desk"


class View(NamedTuple):
    """A page to take.

    Attributes:
        path: where it is.
        unfolds: the calls that are unfolded, each by a text of its row.
        docs: the name of the picture in the docs; empty for none.
        shows: the first and the last element of that picture, as selectors; all of the page unless they are given.
    """

    path: str
    unfolds: tuple[str, ...] = ()
    docs: str = ""
    shows: tuple[str, str] | None = None


RUN = f"run?session={sample.NIGHT}"
_FAILED = '.together > .calls:has([id$="reply-4/call-1"])'
VIEWS = {
    "sessions": View("", docs="sessions"),
    "sessions-none": View("?text=nothing-like-it"),
    "run": View(RUN, docs="run", shows=("header", '.together > .calls:has([id$="reply-4/call-1"])')),
    "run-unfolded": View(
        RUN,
        ('refund (order="A-17"', 'file_report (orders=["A-17", "A-19"]', "cents=8400", "read_log", '"A-20"'),
        "call",
        (_FAILED, _FAILED),
    ),
    "run-agents": View(f"run?session={sample.SALES}", ("Which region",)),
    "run-live": View(f"run?session={LIVE}", (), "live", ("header", "#status")),
    "call": View(f"call?session={sample.NIGHT}&call={sample.NIGHT}/reply-6/call-1"),
    "effects": View("effects", docs="effects"),
    "questions": View("questions", docs="questions"),
    "questions-none": View("questions?text=nothing-like-it"),
    "comparison": View(f"compare?session={sample.NIGHT}&with={sample.FORK}", docs="comparison"),
    "comparison-none": View("compare"),
    "keys": View(RUN),
}
"""The pages, by the names of their pictures."""


@contextmanager
def live_desk(url: str) -> Generator[None]:
    """A session that is open, with a refund that the bank has not answered yet."""
    with sample.refund_desk(url, LIVE) as desk:
        desk.say("Refund A-31, which came back this morning.")
        desk.bank_answers.clear()
        refund = ("refund", {"order": "A-31", "cents": 4_900, "card": sample.SECRET})
        running = threading.Thread(target=desk.turn, args=("I look it up and refund it.", refund))
        running.start()
        desk.bank_is_asked.wait()
        try:
            yield
        finally:
            desk.bank_answers.set()
            running.join()


def take(browser: Browser, pages: ServedPages, name: str, scheme: str, width: int) -> Iterator[str]:
    """Take a page, and yield what is wrong with it."""
    faults = list[str]()
    with _opened(browser, pages, name, (scheme, width), faults) as page:
        page.screenshot(path=str(PICTURES / f"view-{name}-{scheme}-{width}.png"))
    yield from (f"{name}, {scheme}, {width} wide: {fault}" for fault in faults)


def take_for_docs(browser: Browser, pages: ServedPages, name: str) -> Iterator[str]:
    """Take the picture of a page that the docs show, and yield what is wrong with it."""
    view, faults = VIEWS[name], list[str]()
    file = OF_DOCS / f"view-{view.docs}.png"
    with _opened(browser, pages, name, ("light", WIDTH_OF_DOCS), faults) as page:
        boxes = [page.locator(selector).first.bounding_box() for selector in view.shows or ("header", "footer")]
        top, bottom = (box for box in boxes if box is not None)
        height = min(bottom["y"] + bottom["height"] - top["y"], MOST_HEIGHT)
        page.screenshot(path=str(file), clip={"x": top["x"], "y": top["y"], "width": top["width"], "height": height})
    if (size := file.stat().st_size) > MOST_BYTES:
        faults.append(f"has {size:,} bytes, more than {MOST_BYTES:,}")
    yield from (f"{file.name}: {fault}" for fault in faults)


@contextmanager
def _opened(
    browser: Browser, pages: ServedPages, name: str, look: tuple[str, int], faults: list[str]
) -> Generator[Page]:
    scheme, width = look
    view = VIEWS[name]
    context = browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light", viewport={"width": width, "height": 800}
    )
    page = context.new_page()
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{pages.base}/{view.path}{'&' if '?' in view.path else '?'}token={pages.token}")
    page.wait_for_url(re.compile("^(?!.*token=)"))
    _prepare(page, name, view)
    if page.evaluate("document.documentElement.scrollWidth") > width:
        faults.append("is wider than its window")
    # A window as high as the page: what sticks to its edge would cover the middle of a picture of the whole.
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": width, "height": min(height, MOST_PIXELS)})
    yield page
    context.close()


def _prepare(page: Page, name: str, view: View) -> None:
    for text in view.unfolds:
        page.locator("summary", has_text=text).first.click()
    page.locator("details[open] > .body > .more").first.wait_for(state="detached")
    if name == "keys":
        page.keyboard.press("?")
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")


def main() -> None:
    """Take all of them."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        sys.exit(f"screenshots need one of these programs: {', '.join(PROGRAMS)}. On Debian: apt-get install chromium")
    for folder in (PICTURES, OF_DOCS):
        folder.mkdir(parents=True, exist_ok=True)
    logging.disable()  # a call of the desk fails on purpose
    with TemporaryDirectory(prefix="handrail-view-") as temporary:
        url = f"sqlite:///{temporary}/desk.db"
        sample.fill(url)
        with live_desk(url), served_pages(url, "--allow-actions") as pages, sync_playwright() as started:
            browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
            faults = [
                fault
                for name in VIEWS
                for scheme in SCHEMES
                for width in WIDTHS
                for fault in take(browser, pages, name, scheme, width)
            ]
            faults += [
                fault for name, view in VIEWS.items() if view.docs for fault in take_for_docs(browser, pages, name)
            ]
            browser.close()
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
