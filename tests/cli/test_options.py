"""Which store a command opens, and paths that were typed and cannot be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from handrail.cli.options import StoreOptions
from handrail.errors import StoreError, StoreReadOnlyError
from handrail.session.persistence.protocol import SessionRow
from tests.cli.desk import Command
from tests.wording import Wording


def test_a_command_needs_a_store(handrail: Command, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """Nothing is looked for by a guess."""
    monkeypatch.delenv("HANDRAIL_STORE")
    ran = handrail("sessions", "list")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == wording


def test_the_option_counts_more_than_the_environment(handrail: Command, tmp_path: Path) -> None:
    """Who types a store means it."""
    ran = handrail("sessions", "list", "--store", f"sqlite:///{tmp_path / 'other.db'}")
    assert ran.code == 1
    assert "other.db" in ran.err


def test_a_store_in_memory_cannot_be_seen_from_here(wording: Wording) -> None:
    """It lives in another process, if at all."""
    with pytest.raises(CycloptsError) as raised:
        StoreOptions(store="memory:").open()
    assert str(raised.value) == wording


@pytest.mark.parametrize("writing", [True, False])
def test_no_command_makes_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writing: bool, wording: Wording
) -> None:
    """A slip in a path is not an empty store; the error names the path, and the folder that it starts from."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as raised:
        StoreOptions(store="sqlite:///my%20desk.db").open(writing=writing)
    assert str(raised.value) == wording
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_reads_cannot_write(url: str) -> None:
    """Looking at a store leaves it as it is, whatever a command would do."""
    with StoreOptions(store=url).open() as store, pytest.raises(StoreReadOnlyError):
        store.create(SessionRow("new", {}, None, store.now()))
    with StoreOptions(store=url).open(writing=True) as store:
        assert store.create(SessionRow("new", {}, None, store.now()))


def test_a_database_without_tables_is_not_given_any_by_looking_at_it(
    handrail: Command, tmp_path: Path, wording: Wording
) -> None:
    """An empty file may belong to somebody else."""
    path = tmp_path / "empty.db"
    path.touch()
    ran = handrail("sessions", "list", "--store", f"sqlite:///{path}")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == wording
    assert path.stat().st_size == 0


LONG = "n" * 300


URL = "postgresql://desk:secret-word@host/desk"


@pytest.mark.parametrize(
    "words",
    [
        ("run", URL, "hello"),
        ("check", URL),
        ("run", "desk.agent", "hello", "--root", URL),
        ("run", "desk.agent", "hello", "--rules", URL),
    ],
)
def test_a_url_in_the_place_of_a_path_is_shown_by_its_scheme_alone(
    folder: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str]
) -> None:
    """A path keeps one of its slashes, so that its password would not be recognized."""
    assert (folder / "desk.agent").exists()
    ran = Command("", capsys)(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "(postgresql:...)" in ran.err
    assert "secret-word" not in ran.err


@pytest.mark.parametrize(
    "words, code",
    [
        (("run", LONG, "hello", "--model", "test"), 2),
        (("run", "desk.agent", "hello", "--model", "test", "--root", LONG), 1),
        (("run", "desk.agent", "hello", "--model", "test", "--rules", LONG), 2),
        (("run", "desk.agent", "hello", "--model", "test", "--store", f"sqlite:///{LONG}"), 1),
        (("run", "desk.agent", "hello", "--model", f"script:{LONG}"), 2),
        (("check", LONG), 2),
        (("new", "other", "--folder", LONG), 1),
        (("sessions", "list", "--store", f"sqlite:///{LONG}"), 1),
    ],
)
def test_a_name_that_is_too_long_ends_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str], code: int
) -> None:
    """With the name, and nothing of the output."""
    ran = Command("", capsys)(*words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (code, "", 1)
    assert LONG in ran.err
    assert "output" not in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("run", "desk.agent", "hello", "--model", "test"),
        ("check", "desk.agent"),
        ("new", "other"),
        ("sessions", "list", "--store", "sqlite:///desk.db"),
    ],
)
def test_a_folder_that_is_gone_ends_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str]
) -> None:
    """The folder in which the command is typed may have been removed."""
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    ran = Command("", capsys)(*words)
    assert (ran.code in {1, 2}, ran.out, len(ran.err.splitlines())) == (True, "", 1)
    assert "output" not in ran.err
