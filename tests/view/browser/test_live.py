"""A session that another process writes to, in a browser: what comes to it appears, and what the reader does stays."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from handrail import store as stores
from handrail.operations.questions import stored_questions
from tests.view.browser.conftest import Visitor
from tests.view.served_pages import ServedPages, served_pages
from tests.view.writer import Writer, writing


@pytest.fixture(scope="module")
def filled() -> str:
    """These tests need no store before the browser."""
    return ""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Writer]]:
    """A store, and a process that writes to it."""
    url = f"sqlite:///{tmp_path_factory.mktemp('live')}/live.db"
    with writing(url) as writer:
        yield url, writer


@pytest.fixture(scope="module")
def live(process: tuple[str, Writer]) -> Iterator[ServedPages]:
    """The pages of its store."""
    with served_pages(process[0], "--allow-actions") as pages:
        yield pages


@pytest.fixture
def url(process: tuple[str, Writer]) -> str:
    """Its store."""
    return process[0]


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    """A session for the test."""
    return str(request.node.name)


@pytest.fixture
def writer(process: tuple[str, Writer], session: str) -> Iterator[Writer]:
    """The process, which has the session open, with a first call."""
    with process[1].session(session):
        process[1].write("say Note what you see.")
        process[1].write("call note one")
        yield process[1]


@pytest.fixture
def address(live: ServedPages, session: str) -> str:
    """The address of the page of the session, for a browser that has not been let in."""
    return f"{live.base}/run?session={session}&token={live.token}"


def names(page: Page) -> list[str]:
    """The arguments of the calls that a page shows, in order."""
    return page.locator(".call .name code").all_inner_texts()


def test_calls_appear_in_order_while_the_reader_stays(
    writer: Writer, address: str, visitor: Visitor, session: str
) -> None:
    """Nothing is loaded again: a call that was unfolded stays so, and no row that was there moves."""
    page = visitor.visit(address)
    calls, status = page.locator(".call"), page.locator("#status")
    expect(calls).to_have_count(1)
    expect(status).to_contain_text("a process has it open")
    page.get_by_text("Note what you see.").evaluate("(one) => { one.dataset.here = 'yes'; }")
    calls.first.locator("summary").click()
    expect(calls.first).to_contain_text('+{"text": "one"}')
    for word in ("two", "three"):
        writer.write(f"call note {word}")
        expect(calls.last).to_contain_text(word)
    writer.write("say Go on.")
    expect(page.get_by_text("Go on.")).to_be_visible()
    assert names(page) == ['(text="one")', '(text="two")', '(text="three")']
    expect(calls.first).to_have_attribute("open", "")
    expect(calls.first).to_contain_text('+{"text": "one"}')
    expect(page.get_by_text("Note what you see.")).to_have_attribute("data-here", "yes")
    expect(status).to_contain_text("3 calls")
    writer.write("close")
    expect(status).not_to_contain_text("a process has it open")
    writer.write(session)
    assert page.evaluate("window.shifts") == []


def test_call_that_runs_is_shown_before_it_ends(writer: Writer, address: str, visitor: Visitor) -> None:
    """It becomes what it is in the end in its place, and stays unfolded."""
    page = visitor.visit(address)
    writer.write("call hold it", "begun")
    call = page.locator(".call", has_text="hold")
    expect(call.locator("> summary .outcome")).to_contain_text("running")
    call.locator("summary").click()
    expect(call).to_contain_text("Arguments")
    writer.write("end")
    expect(call.locator("> summary .outcome")).to_have_text("ok")
    expect(call).to_contain_text("end of it")
    expect(call).to_have_attribute("open", "")
    expect(call).to_have_count(1)
    assert page.evaluate("window.shifts") == []


def test_approval_answered_on_the_page_resumes_the_run(
    writer: Writer, address: str, visitor: Visitor, url: str, session: str
) -> None:
    """With the name of the person; the page follows without being loaded again."""
    page = visitor.visit(address)
    writer.write("call ask A-17")
    call = page.locator(".call", has_text="A-17")
    expect(call.locator("> summary .outcome")).to_have_text("waits for an approval")
    call.locator("summary").click()
    call.get_by_label("Why").fill("The invoice is there.")
    # What comes meanwhile takes nothing away from what is being typed.
    writer.write("resume")
    expect(call.get_by_label("Why")).to_have_value("The invoice is there.")
    call.get_by_label("Your name").fill("Ada")
    call.get_by_role("button", name="yes").click()
    page.wait_for_url("**/run?session=*#**")
    with stores.open(url, read_only=True) as store:
        (question,) = stored_questions(store, session)
    assert question.answer is not None
    assert (question.answer.by, question.answer.approved) == ("Ada", True)
    writer.write("resume")
    expect(call.locator("> summary .outcome")).to_have_text("ok")
    expect(call).to_contain_text("Ada: approved")
    expect(call).to_contain_text("paid A-17")


def test_effect_settled_on_the_page_is_known(writer: Writer, live: ServedPages, visitor: Visitor, url: str) -> None:
    """What the person has found out, and who it was, is in the ledger."""
    writer.write("call pay A-18")
    page = visitor.visit(f"{live.base}/effects?state=unknown&token={live.token}")
    page.get_by_text("Record whether it has happened").click()
    page.get_by_label("How that is known").fill("It is on the statement.")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_role("button", name="It has happened").click()
    page.wait_for_url("**/effects")
    page.goto(f"{live.base}/effects?tool=pay")
    expect(page.locator(".row .state")).to_have_text("done")
    expect(page.get_by_text("It is on the statement. (Ada)")).to_be_visible()
    with stores.open(url, read_only=True) as store:
        (row,) = [row for row in store.rows() if row.tool == "pay"]
    assert (row.status, row.note) == ("done", "It is on the statement. (Ada)")


def test_page_says_that_its_session_was_deleted(
    writer: Writer, address: str, visitor: Visitor, url: str, session: str
) -> None:
    """What was there stays, and nothing of another session with that id comes to it."""
    visitor.expected = "404"  # the browser reports that it is refused
    page = visitor.visit(address)
    expect(page.locator("#status")).to_contain_text("a process has it open")
    writer.write("close")
    with stores.open(url) as store:
        store.delete_session(store.acquire(session, wait=timedelta(0)))
    writer.write(session)
    writer.write("call note two")
    expect(page.locator("#status")).to_contain_text("was deleted")
    expect(page.locator("#status")).to_have_class("cut-off")
    assert names(page) == ['(text="one")']


# ---------------------------------------------------------------------------------------------------- cut connections


@dataclass
class Cable:
    """What lies between a browser and a server: it can be cut, and hears what is asked.

    Attributes:
        port: where the browser connects to.
        heard: what browsers have sent.
    """

    server: int
    heard: bytearray = field(default_factory=bytearray)
    _sockets: list[socket.socket] = field(default_factory=list[socket.socket])

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Ends all connections; new ones are made."""
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends all connections; no new ones are made."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()
        self._listener.close()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                browser, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server))
                self._sockets += [browser, server]
                for ends in ((browser, server), (server, browser)):
                    thread = threading.Thread(target=self._carry, args=(*ends, ends[0] is browser))
                    thread.start()
                    self._threads.append(thread)

    def _carry(self, source: socket.socket, target: socket.socket, is_browser: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if is_browser:
                    self.heard += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


def test_browser_that_was_cut_off_goes_on_after_its_last_entry(
    writer: Writer, live: ServedPages, address: str, visitor: Visitor
) -> None:
    """It asks for what came since, and shows nothing twice; a call is a link while its details cannot be loaded."""
    visitor.expected = "net::ERR_"  # the browser reports the connection
    cable = Cable(live.port)
    page = visitor.visit(address.replace(f":{live.port}/", f":{cable.port}/"))
    writer.write("call note two")
    expect(page.locator(".call")).to_have_count(2)
    cable.cut()
    expect(page.locator("#status")).to_have_class("cut-off")
    writer.write("call note three")
    expect(page.locator(".call")).to_have_count(3)
    expect(page.locator("#status")).not_to_have_class("cut-off")
    assert names(page) == ['(text="one")', '(text="two")', '(text="three")']
    assert b"last-event-id: " in bytes(cable.heard).lower()
    cable.close()
    page.locator(".call > summary").last.click()
    expect(page.locator(".call").last.get_by_role("link", name="All of this call")).to_be_visible()
    visitor.close()
