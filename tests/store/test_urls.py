"""Which URL opens which store, what is said of one that opens none, and what a closed or forked one refuses."""

from __future__ import annotations

import pickle
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import handrail.store
from handrail import errors
from handrail.session import Session
from handrail.store import SqliteStore
from handrail.store.postgres import Server, harmless_address
from handrail.testing import FakeClock
from tests.kit import raises
from tests.store.kit import NOW, filled, held, refused, session_row
from tests.store.kit import call as a_call
from tests.store.processes import refusal_in_fork
from tests.wording import Wording


def test_file_is_opened_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes and a path from the current folder, or four for an absolute one."""
    monkeypatch.chdir(tmp_path)
    with handrail.store.open("sqlite:///my%20desk.db", durability="normal") as store:
        assert isinstance(store, SqliteStore)
        store.create(session_row(FakeClock()))
    with handrail.store.open(f"sqlite:///{tmp_path}/my desk.db") as store:
        assert store.find("s1") is not None


@pytest.mark.parametrize(
    "url",
    ["", "desk.db", "memory:desk", "sqlite:", "sqlite://desk.db", "sqlite:///", "mysql://host/desk", "postgresql:desk"],
)
def test_other_urls_are_told_the_three_forms(url: str, wording: Wording) -> None:
    """Whoever mistypes a URL reads what it could have been."""
    with raises(errors.StoreError, wording) as raised:
        handrail.store.open(url)
    for form in ("memory:", "sqlite:///desk.db", "postgresql://"):
        assert form in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://clerk:s3cret@host/desk",
        "mysql://clerk:s3?cret@host/desk",
        "postgres+asyncpg://clerk:s3/cret@host/desk",
        "postgresq://clerk:@s3cret@host/desk?password=s3cret",
        "host=127.0.0.1 user=clerk password=s3cret",
        "postgresql://cl\0erk:s3cret@host/desk",
        *(f"postgresql://clerk:{word}@127.0.0.1:1/desk" for word in ("s3cret", "s3?cret", "s3#cret", "s3/cret")),
        *(f"postgresql://clerk:{word}@127.0.0.1:1/desk" for word in ("1/s3cret", "@s3cret", "s3cret\udcff")),
        "sqlite:///desk.db?key=s3cret",
        *("s3cret", "sqlite:s3cret", "memory:s3cret", "postgresql://clerk%3As3cret@127.0.0.1:1/desk"),
        "clerk:s3cret@host",
        "postgresql://clerk@127.0.0.1:1/desk?password=s3cret",
        "postgresql://clerk@127.0.0.1:1/desk?passfile=/s3cret&user=clerk",
        "postgresql://clerk:s3cret@127.0.0.1:1/desk?no_such_option=1&sslpassword=s3cret",
    ],
)
def test_passwords_are_never_shown(url: str) -> None:
    """Neither in what an error says, nor in what it came from, nor in what it names; nor a part of one."""
    with pytest.raises(errors.StoreError) as raised:
        handrail.store.open(url)
    error: BaseException | None = raised.value
    while error is not None:
        text = f"{error!r} {vars(error)} {pickle.dumps(error)!r}"
        assert not [part for part in ("s3", "cret") if part in text]
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "conninfo, shown",
    [
        ("postgresql://clerk:s3?cret@host:5432/desk?options=-ca%3Db", "postgresql://clerk@host:5432/desk"),
        ("postgres://clerk:s3%2Fcret@host/desk?sslmode=require&password=s", "postgresql://clerk@host/desk"),
        ("postgresql:///desk?host=/run/db&password=s", "postgresql://%2Frun%2Fdb/desk"),
        ("postgresql://one:1,two:2/desk?password=s", "postgresql://one,two:1,2/desk"),
    ],
)
def test_an_address_is_shown_by_what_is_known_to_be_harmless(conninfo: str, shown: str) -> None:
    """User, host, port and name."""
    assert harmless_address(conninfo) == shown


def test_server_that_is_not_there_is_unavailable(wording: Wording) -> None:
    """And the reason is given."""
    with raises(errors.StoreUnavailableError, wording):
        handrail.store.open("postgresql://clerk@127.0.0.1:1/desk")


def test_server_shows_no_password() -> None:
    """Nor does the value that describes it."""
    assert "s3cret" not in repr(Server("postgresql://clerk:s3cret@host/desk", "postgresql://clerk@host/desk"))


def test_a_path_is_refused_with_its_url(tmp_path: Path) -> None:
    """The URL opens the store that was meant, whatever characters are in the path."""
    path = tmp_path / "100 % desk.db"
    place: Any = path
    with pytest.raises(errors.InvalidArgumentError) as caught:
        handrail.store.open(place)
    url = caught.value.expected.split('"')[1]
    handrail.store.open(url).close()
    assert path.exists()


@pytest.mark.parametrize(
    "options",
    [{"url": None}, {"connections": 1}, {"durability": "fast"}],
    ids=str,
)
def test_it_says_what_was_given_and_what_is_expected(options: dict[str, Any], tmp_path: Path, wording: Wording) -> None:
    """Nothing is opened."""
    arguments: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/desk.db", **options}
    with raises(errors.InvalidArgumentError, wording):
        handrail.store.open(**arguments)
    assert list(tmp_path.iterdir()) == []


CLOCK = FakeClock()


def test_closed_store_says_so(url: str, wording: Wording) -> None:
    """To each use, also by a call; closing it again is no fault."""
    store = handrail.store.open(url)
    store.close()
    store.close()
    with refused(errors.StoreError, wording, store):
        list(store.rows())
    with a_call(), refused(errors.StoreError, wording, store):
        store.connection().execute("SELECT 1")


def test_process_that_is_forked_off_opens_the_store_anew(url: str, wording: Wording) -> None:
    """A connection cannot be shared; the parent keeps the session that it has."""
    with handrail.store.open(url) as store, handrail.store.open(url) as other:
        held(store, CLOCK)
        assert refusal_in_fork(store, lambda: list(store.rows())) == wording
        assert list(store.rows()) == []
        with pytest.raises(errors.SessionLockedError):
            other.acquire("s1", wait=NOW)


def test_store_opened_for_reading_is_not_written_to(url: str, wording: Wording) -> None:
    """Nor made; a session of it is neither opened nor waited for."""
    with pytest.raises(errors.StoreError) as raised:
        handrail.store.open(url, read_only=True)
    assert str(raised.value).replace(raised.value.store, "<store>") == wording
    handrail.store.open(url).close()
    with handrail.store.open(url, read_only=True) as store, handrail.store.open(url) as writable:
        assert list(store.sessions()) == []
        with refused(errors.StoreReadOnlyError, wording, store):
            store.create(session_row(CLOCK))
        held(writable, CLOCK)
        for session_id in ("s1", "s2"):
            with refused(errors.StoreReadOnlyError, wording, store):
                Session.open(store, session_id, wait=timedelta(hours=1))


def test_no_lock_is_made_where_a_store_is_opened_for_reading(tmp_path: Path) -> None:
    """The folder stays as it was."""
    filled(tmp_path / "desk.db", 3).close()
    shutil.rmtree(tmp_path / "desk.db-holds")
    with handrail.store.open(f"sqlite:///{tmp_path}/desk.db", read_only=True) as store:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(errors.StoreReadOnlyError):
            Session.open(store, "s1")
        assert sorted(tmp_path.rglob("*")) == before
