"""The pages that list, and the one that compares, as a browser gets them."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from handrail import store as stores
from handrail.runtime import Session
from handrail.session.persistence.protocol import SessionRow
from handrail.store import MemoryStore, Store
from handrail.testing import FakeClock
from handrail.view import lists
from tests.cli.approvals.loops import Loop, pay_call
from tests.cli.desk import effect
from tests.kit import call, executor, tool
from tests.store.kit import insert, session_row
from tests.view.client import see, visit
from tests.wording import Wording

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>\u202e\x1b[31m"""


@pytest.fixture
def clock() -> FakeClock:
    """The time of the store."""
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Store:
    """An empty store."""
    return MemoryStore(clock=clock)


@pytest.fixture
def client(store: Store) -> TestClient:
    """A browser that looks at it."""
    return visit(store)


@pytest.fixture
def waiting(tmp_path: Path) -> Generator[Store]:
    """A store with a run that waits."""
    url = f"sqlite:///{tmp_path}/desk.db"
    Loop(url, calls=(pay_call(HOSTILE),)).waits(note=HOSTILE)
    with stores.open(url, read_only=True) as store:
        yield store


@pytest.mark.parametrize("address", ["/", "/effects", "/questions", "/compare"])
def test_pages_of_an_empty_store_say_so(client: TestClient, address: str, wording: Wording) -> None:
    """And each leads to the others."""
    page = see(client, address)
    assert [*page.links.items()][:4] == [
        ("Sessions", "/"),
        ("Effects", "/effects"),
        ("Questions", "/questions"),
        ("Compare", "/compare"),
    ]
    assert page.words == wording


def test_sessions_go_on_at_the_next_page(client: TestClient, store: Store, clock: FakeClock) -> None:
    """The filter goes along; the newest ones are a link away."""
    for number in range(60):
        store.create(session_row(clock, f"s{number:02}"))
    first = see(client, "/?text=s")
    assert (len(first.rows), "the newest" in first.links) == (lists.ROWS_OF_PAGE, False)
    second = see(client, first.links["older ones"])
    assert [row.split()[0] for row in second.rows] == [f"s{number:02}" for number in range(9, -1, -1)]
    assert "older ones" not in second.links
    assert see(client, f"/{second.links['the newest']}").rows == first.rows


def test_row_of_a_session_leads_to_its_run(client: TestClient, store: Store, clock: FakeClock) -> None:
    """Ids stand in the query alone, so that no id is a path."""
    name = "a/b?c=d&e#f ü"
    store.create(session_row(clock, name))
    address = see(client, "/").links[name]
    assert address == f"/run?{urlencode({'session': name})}"
    assert name in see(client, address).words


def test_what_others_have_written_is_text(waiting: Store) -> None:
    """On each page, in a cell, in an attribute, and in the message of an error."""
    client = visit(waiting)
    queries = (("/", "text"), ("/effects", "tool"), ("/compare", "with"), ("/run", "session"))
    for address in ("/", "/questions", *(f"{page}?session=x&{urlencode({name: HOSTILE})}" for page, name in queries)):
        text = client.get(address).text
        assert [part for part in ("<script>", "<img", "\u202e", "\x1b") if part in text] == []


def test_question_shows_what_is_asked(waiting: Store, wording: Wording) -> None:
    """And nothing to answer it with: the store is open for reading."""
    page = see(visit(waiting), "/questions")
    assert page.words.partition(" asked ")[0] + page.words.partition(" UTC ")[2] == wording
    assert page.forms == []


def test_effects_show_what_the_ledger_has(client: TestClient, store: Store, clock: FakeClock, wording: Wording) -> None:
    """With a link to the run, and to the call."""
    insert(store, effect("session:pay:A-1", "unknown", clock.now(), note="the bank has not answered"))
    insert(store, effect("session:pay:A-2", "running", clock.now(), effect_id="2" * 32))
    page = see(client, "/effects")
    assert page.rows == wording
    assert page.links["session:pay:A-1"].startswith("/call?session=3f2a")


def test_call_of_an_effect_is_a_page(tmp_path: Path) -> None:
    """The link of the ledger leads to it."""
    with stores.open(f"sqlite:///{tmp_path}/desk.db") as store:
        with Session.open(store, "s") as session:
            executor(tool("pay", effect="external"), session=session).execute(call("pay"), reply="r1")
        client = visit(store)
        page = see(client, "/effects")
        (key,) = (row.key for row in store.rows())
        assert "pay" in see(client, page.links[key]).words


@pytest.mark.parametrize(
    "address", ["/?state=held", "/?after=x", "/effects?state=open", "/effects?after=x", "/questions?after=x"]
)
def test_list_that_is_none_is_refused(client: TestClient, address: str) -> None:
    """An address may be written by hand."""
    assert client.get(address).status_code == 400


def test_fork_is_compared_with_its_parent(tmp_path: Path, wording: Wording) -> None:
    """From its own page, and from the list; a session that was made for another one is not."""
    with stores.open(f"sqlite:///{tmp_path}/desk.db") as store:
        with Session.open(store, "night") as session, session.fork(session_id="again"):
            pass
        store.create(SessionRow("night/help", {}, "night", store.now()))
        client = visit(store)
        address = "/compare?session=night&with=again"
        assert see(client, "/").links["compare with night"] == address
        assert see(client, "/run?session=again").links["compare with night"] == address
        assert "compare with night" not in see(client, "/run?session=night%2Fhelp").links
        assert see(client, address).words == wording


def test_changes_of_calls_are_said_in_words(store: Store, client: TestClient, wording: Wording) -> None:
    """And not by colour alone."""
    for name, text in (("left", "7"), ("right", "8")):
        with Session.open(store, name) as session:
            executor(tool("pay"), session=session).execute(call("pay", text), reply="r1")
    text = see(client, "/compare?session=left&with=right").words
    assert re.sub(r"[\d.]+ ms", "1 ms", text) == wording


def test_session_that_is_not_there_is_not_compared(client: TestClient) -> None:
    """The form is sent by hand."""
    assert client.get("/compare?session=a&with=b").status_code == 404
