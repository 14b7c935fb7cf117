"""The pages of a store in a browser: what each shows, for eyes, keys and readers of screens, wide and narrow."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

from handrail import store as stores
from handrail.view.export import export_run
from tests.view import hostile, sample
from tests.view.browser.conftest import AXE, OTHER_HOST, Visitor
from tests.view.served_pages import ServedPages, served_pages

RUN = f"run?session={sample.NIGHT}"
CALL = f"call?{urlencode({'session': sample.NIGHT, 'call': f'{sample.NIGHT}/reply-4/call-1'})}"
PAGES = {
    "sessions": "",
    "sessions that match nothing": "?text=nothing-like-it",
    "a run": RUN,
    "a run of agents": f"run?session={sample.SALES}",
    "a call": CALL,
    "effects": "effects",
    "questions": "questions",
    "comparison": f"compare?session={sample.NIGHT}&with={sample.FORK}",
    "nothing to compare": "compare",
}
"""The pages, by what they show, with their addresses."""

LOOKS = [("light", 1280), ("dark", 400), ("dark", 1280), ("light", 400), ("light", 800)]


def enter(visitor: Visitor, pages: ServedPages, path: str, **options: Any) -> Page:
    """A page, in a browser that has not been let in before."""
    return visitor.visit(f"{pages.base}/{path}{'&' if '?' in path else '?'}token={pages.token}", **options)


def call(page: Page, tool: str, arguments: str) -> Locator:
    """A call that a page shows."""
    return page.locator("details.call").filter(has=page.locator("> summary .name", has_text=f"{tool} ({arguments}"))


def unfold(page: Page, tool: str, arguments: str) -> Locator:
    """The same, unfolded."""
    found = call(page, tool, arguments)
    found.locator("> summary").click()
    expect(found).to_contain_text("Arguments")
    return found


def unfold_all(page: Page) -> None:
    """Unfold each call, and what is within."""
    for _ in range(2):
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        expect(page.locator("details.call[open]:not(:has(> .body > .facts))")).to_have_count(0)


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
@pytest.mark.parametrize("looks", LOOKS, ids=str)
@pytest.mark.short(3)
def test_page_is_for_every_reader_and_window(
    visitor: Visitor, pages: ServedPages, path: str, looks: tuple[str, int]
) -> None:
    """No page is wider than its window, and axe finds nothing of a serious impact."""
    scheme, width = looks
    page = enter(visitor, pages, path, color_scheme=scheme, width=width)
    unfold_all(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    serious = [
        (rule["id"], node["html"], node["failureSummary"])
        for rule in found["violations"]
        if rule["impact"] in {"serious", "critical"}
        for node in rule["nodes"]
    ]
    assert serious == []


def test_each_page_leads_to_the_others(visitor: Visitor, pages: ServedPages) -> None:
    """A row leads to its run, a call of the ledger to its page, and each page says where it is."""
    page = enter(visitor, pages, "")
    page.get_by_role("link", name=sample.NIGHT, exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(sample.NIGHT)
    page.get_by_role("link", name="Effects").click()
    expect(page.get_by_role("link", name="Effects")).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name="session:refund:").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("refund")
    page.get_by_role("link", name=sample.NIGHT).click()
    expect(page.locator("details[open]")).to_have_count(1)
    page.get_by_role("link", name="Questions").click()
    page.get_by_role("link", name="refund").click()
    expect(page.get_by_role("heading", name="Question")).to_be_visible()
    page.get_by_role("link", name="Sessions").click()
    page.get_by_role("link", name=f"compare with {sample.NIGHT}").click()
    expect(page.get_by_text("parts are the same")).to_be_visible()


@pytest.mark.short(0)
def test_sessions_are_filtered_by_what_has_come_of_them(visitor: Visitor, pages: ServedPages) -> None:
    """The filter stays in the form."""
    page = enter(visitor, pages, "")
    page.get_by_label("State").select_option("waiting")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".row a.main")).to_have_text([sample.NIGHT])
    expect(page.get_by_label("State")).to_have_value("waiting")
    page.get_by_label("State").select_option("any")
    page.get_by_label("Search").fill("again")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".row a.main")).to_have_text([sample.FORK])


# --------------------------------------------------------------------------------------------------------------- calls


@pytest.fixture(scope="module")
def exported(filled: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the file of the run."""
    file = tmp_path_factory.mktemp("exported") / "run.html"
    with stores.open(filled, read_only=True) as store:
        file.write_text(export_run(store, sample.NIGHT), encoding="utf-8")
    return file.as_uri()


@pytest.fixture(params=["served", "file"])
def run(request: pytest.FixtureRequest, visitor: Visitor, pages: ServedPages, exported: str) -> Page:
    """The page of the run."""
    return enter(visitor, pages, RUN) if request.param == "served" else visitor.visit(exported)


@pytest.mark.short(1)
def test_call_shows_what_it_has_done(run: Page) -> None:
    """Its arguments, what the model reads, and its effect; a secret is masked."""
    refund = unfold(run, "refund", 'order="A-17"')
    expect(refund.locator("> summary").get_by_role("img", name="its handler runs 340 ms")).to_be_visible()
    expect(refund).to_contain_text('"card": "**********"')
    expect(refund).to_contain_text("2490 cents were refunded for A-17")
    for text in ("status done", "fence 1", "owner this call"):
        expect(refund.get_by_role("row", name=text)).to_have_count(1)
    assert sample.SECRET not in run.content()


@pytest.mark.short(1)
def test_call_shows_what_it_has_changed(run: Page) -> None:
    """Files as a diff, and slices by their items, with those of the calls of its handler, which are below it."""
    filed = unfold(run, "file_report", 'orders=["A-17"])')
    expect(filed.get_by_role("heading", name="What it changed")).to_be_visible()
    expect(filed.locator(".diff .added")).to_have_text(
        ['+{"order": "A-17", "text": "in the report"}', "+| A-17 | 2490 |", "+1 orders"]
    )
    note = filed.locator("details.call")
    note.locator("> summary").click()
    expect(note).to_contain_text("note-1 of reply-5/call-1")
    expect(note.get_by_role("heading", name="Result as recorded")).to_be_visible()


@pytest.mark.short(1)
def test_failed_call_shows_what_was_undone(run: Page) -> None:
    """Its reason stands in its row."""
    failed = call(run, "file_report", 'orders=["A-17", "A-19"]')
    expect(failed.locator("> summary")).to_contain_text("A-19 has no receipt")
    failed.locator("> summary").click()
    expect(failed.get_by_role("heading", name="What was rolled back")).to_be_visible()
    expect(failed.locator("details .outcome")).to_have_text(["rolled back with its caller"] * 2)
    expect(failed.locator("> .body > .wide > .diff").last).to_have_text(
        '+{"order": "A-17", "text": "in the report"}+{"order": "A-19", "text": "in the report"}'
    )


@pytest.mark.short(1)
def test_call_shows_what_policies_and_people_have_decided(run: Page) -> None:
    """Who was asked what, and has approved it."""
    refund = unfold(run, "refund", 'order="A-18", cents=8400')
    expect(refund.locator("> summary .note")).to_have_text("waited 95 s for ada: approved")
    expect(refund.get_by_role("listitem").filter(has_text="84.00 euros are more than 50")).to_have_count(1)
    refused = call(run, "cancel_order", 'order="A-18"')
    expect(refused.locator("> summary")).to_contain_text("Orders are cancelled by the shop alone")


@pytest.mark.short(1)
def test_parallel_calls_stand_beside_each_other(run: Page) -> None:
    """Each begins at the same moment, and its bar is as long as it took; when that was stands above them."""
    expect(run.locator(".place").first).to_have_text("+2.5 s, for 350 ms")
    bars = run.locator("details.call", has_text="look_up").locator("svg rect")
    assert [bars.nth(number).get_attribute("x") for number in range(3)] == ["0.0"] * 3
    widths = [float(bars.nth(number).get_attribute("width") or 0) for number in range(3)]
    assert widths == sorted(widths)
    assert widths[-1] == 100


def test_long_value_is_cut_and_leads_to_the_whole(visitor: Visitor, pages: ServedPages) -> None:
    """How long it is stands there, with its digest."""
    page = enter(visitor, pages, RUN)
    log = unfold(page, "read_log", "day=")
    expect(log.get_by_text(re.compile("more characters; SHA-256 of all [0-9a-f]{16}…")).first).to_be_visible()
    expect(log).not_to_contain_text("2026-01-05 23:59")
    log.get_by_role("link", name="All of it").first.click()
    expect(page.get_by_text("2026-01-05 23:59 all is well").first).to_be_visible()


def test_agent_that_a_call_has_asked_is_below_it(visitor: Visitor, pages: ServedPages) -> None:
    """With what was said there, and its calls."""
    page = enter(visitor, pages, f"run?session={sample.SALES}")
    asked = unfold(page, "analyst", 'input="Which region')
    expect(asked.get_by_text("I sum the sales up by region.")).to_be_visible()
    inner = asked.locator("details.call").filter(has_text="North")
    inner.locator("> summary").click()
    expect(inner).to_contain_text("there are no sales of region 'North'")


def test_file_is_readable_without_script(visitor: Visitor, exported: str) -> None:
    """Calls unfold; nothing else is asked for."""
    page = visitor.visit(exported, java_script_enabled=False)
    refund = call(page, "refund", 'order="A-17"')
    refund.locator("> summary").click()
    expect(refund.get_by_text("2490 cents were refunded for A-17").first).to_be_visible()


@pytest.mark.short(1)
def test_run_is_printed_in_black(run: Page) -> None:
    """Also where it is looked at in the dark; what a sheet has no use for is left out."""
    run.emulate_media(media="print", color_scheme="dark")
    expect(run.locator("body")).to_have_css("color", "rgb(0, 0, 0)")
    expect(run.locator("#status")).to_have_css("position", "static")
    for unused in run.locator("header, .tools").all():
        expect(unused).to_be_hidden()


def test_page_is_readable_without_script(visitor: Visitor, pages: ServedPages) -> None:
    """A call leads to its own page."""
    page = enter(visitor, pages, RUN, java_script_enabled=False)
    refund = call(page, "refund", 'order="A-17"')
    refund.locator("> summary").click()
    refund.get_by_role("link", name="All of this call").click()
    expect(page.get_by_text("2490 cents were refunded for A-17")).to_be_visible()


# ---------------------------------------------------------------------------------------------------------------- keys


@pytest.mark.short(1)
def test_keys_lead_through_a_run(run: Page) -> None:
    """`j` and `k` go from call to call, Enter unfolds, `/` searches, Escape ends that, `?` says all of this."""
    rows = run.locator("details.call > summary")
    run.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    run.keyboard.press("j")
    run.keyboard.press("j")
    run.keyboard.press("k")
    expect(rows.nth(1)).to_be_focused()
    run.keyboard.press("Enter")
    expect(run.locator("details[open]")).to_have_count(1)
    run.keyboard.press("/")
    expect(run.get_by_label("Search")).to_be_focused()
    run.keyboard.type("CANCEL_order")
    expect(run.locator("#parts > * > :not([hidden])")).to_have_count(1)
    expect(run.locator("#matches")).to_have_text("1 found")
    run.keyboard.press("Escape")
    expect(run.locator("#parts [hidden]")).to_have_count(0)
    expect(run.get_by_label("Search")).not_to_be_focused()
    run.keyboard.press("?")
    expect(run.get_by_role("dialog")).to_be_visible()
    run.keyboard.press("Escape")
    expect(run.get_by_role("dialog")).to_be_hidden()


def test_keys_lead_through_a_list(visitor: Visitor, pages: ServedPages) -> None:
    """The same keys; Enter follows the link of the row."""
    page = enter(visitor, pages, "")
    page.keyboard.press("/")
    page.keyboard.type(sample.FORK)
    page.keyboard.press("Enter")
    page.wait_for_url("**/?text=*")
    page.wait_for_load_state()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(sample.FORK)


@pytest.mark.short(2)
@pytest.mark.parametrize("name", ["reply-3/call-2", "@reply-4%2Fcall-1/note-2"])
def test_link_opens_its_call(run: Page, name: str) -> None:
    """Also one that is within another."""
    run.goto(f"{run.url.partition('#')[0]}#{quote(f'{sample.NIGHT}/{name}')}")
    call = run.locator(f'[id="{sample.NIGHT}/{name}"]')
    expect(call).to_have_attribute("open", "")
    expect(call).to_be_in_viewport()
    expect(call).to_contain_text("Arguments")


# ------------------------------------------------------------------------------------------------------------- hostile


@pytest.fixture(scope="module")
def besieged(filled: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store with a session whose every field is hostile."""
    url = f"sqlite:///{tmp_path_factory.mktemp('hostile')}/desk.db"
    hostile.fill(url)
    hostile.fill(url, hostile.OTHER)
    return url


@pytest.fixture(scope="module")
def hostile_pages(besieged: str) -> Iterator[ServedPages]:
    """Its pages."""
    with served_pages(besieged, "--allow-actions") as pages:
        yield pages


HOSTILE_PAGES = {
    "sessions": "",
    "a search": f"?{urlencode({'text': hostile.HOSTILE})}",
    "a run": f"run?{urlencode({'session': hostile.HOSTILE})}",
    "effects": "effects",
    "questions": "questions",
    "comparison": f"compare?{urlencode({'session': hostile.HOSTILE, 'with': hostile.OTHER})}",
}


def _is_text(page: Page) -> None:
    # Nothing of it is an element, and no character turns the direction of text.
    unfold_all(page)
    text = page.locator("body").inner_text()
    assert hostile.MARK in text
    assert not {*hostile.CONTROLS} & {*text}
    assert (
        page.locator("img:not([src='/static/icon.svg']), main script, main b b, main a[href^='javascript']").count()
        == 0
    )
    assert page.title() != "run"


@pytest.mark.parametrize("path", HOSTILE_PAGES.values(), ids=HOSTILE_PAGES)
@pytest.mark.short(2)
def test_hostile_text_stays_text(visitor: Visitor, hostile_pages: ServedPages, path: str) -> None:
    """In each field that a model, a tool or a person writes."""
    _is_text(enter(visitor, hostile_pages, path))


def test_hostile_text_stays_text_in_a_file(visitor: Visitor, besieged: str, tmp_path: Path) -> None:
    """Which has the rights of files of this machine in some browsers."""
    with stores.open(besieged, read_only=True) as store:
        page = export_run(store, hostile.HOSTILE)
    (tmp_path / "run.html").write_text(page, encoding="utf-8")
    _is_text(visitor.visit((tmp_path / "run.html").as_uri()))


@pytest.fixture
def other_site(tmp_path: Path, pages: ServedPages) -> Iterator[str]:
    """The address of another program of this machine: one of its pages has a frame with ours, one leads to them."""
    for name, html in {
        "frame": f'<iframe src="{pages.base}/">',
        "link": f'<a href="{pages.address}">pages</a>',
    }.items():
        (tmp_path / f"{name}.html").write_text(f'<link rel="icon" href="data:,">{html}', encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def test_page_in_a_frame_is_refused(visitor: Visitor, pages: ServedPages, other_site: str) -> None:
    """Also by a page of the same host, to which the browser would send the cookie."""
    visitor.expected = "frame"
    page = visitor.visit(pages.address)
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.goto(f"{other_site}/frame.html")
    assert [frame.url for frame in page.frames if frame.parent_frame] == ["chrome-error://chromewebdata/"]


def test_link_of_another_site_lets_in(visitor: Visitor, pages: ServedPages, other_site: str) -> None:
    """The token is in no address afterwards, also not in one that Back leads to."""
    other = f"{other_site.replace('127.0.0.1', OTHER_HOST)}/link.html"
    page = visitor.visit(other)
    page.get_by_role("link", name="pages").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
    assert page.url == f"{pages.base}/"
    page.go_back()
    expect(page).to_have_url(other)
