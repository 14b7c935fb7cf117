"""Paths that were typed and cannot be looked at."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cyclopts import CycloptsError

from handrail.cli.agents.options import RunChoices, check_agent_path
from handrail.cli.paths import file_fault, folder_here, path_status
from tests.cli.desk import Command
from tests.wording import Wording

LONG = "n" * 300
URL = "postgresql://desk:secret-word@host/desk"


def test_what_stands_at_a_path_is_told(tmp_path: Path) -> None:
    """Links are followed."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    named = {"": "folder", "file": "file", "link": "nothing", "file/in": "nothing", "none": "nothing", "pipe": "other"}
    assert {name: path_status(tmp_path / name) for name in named} == named


@pytest.mark.parametrize("name", [LONG, "a\0b"], ids=["long", "NUL"])
def test_a_path_that_cannot_be_looked_at_is_a_slip(name: str, wording: Wording) -> None:
    """With the path, and why."""
    with pytest.raises(CycloptsError) as raised:
        path_status(Path(name))
    said, _, why = str(raised.value).partition(": ")
    assert said == wording
    assert re.search("File name too long|embedded null", why)


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


@pytest.mark.parametrize("check", [lambda: check_agent_path(Path(LONG)), RunChoices(root=Path(LONG)).check])
def test_what_was_typed_is_looked_at_carefully(check: Callable[[], None], wording: Wording) -> None:
    """No error of the machine comes through."""
    with pytest.raises(CycloptsError) as raised:
        check()
    assert str(raised.value) == wording


@pytest.mark.parametrize(
    "words, code",
    [
        (("run", LONG, "hello", "--model", "test"), 2),
        (("run", "desk.agent", "hello", "--model", "test", "--root", LONG), 2),
        (("run", "desk.agent", "hello", "--model", "test", "--rules", LONG), 2),
        (("run", "desk.agent", "hello", "--model", "test", "--store", f"sqlite:///{LONG}"), 1),
        (("run", "desk.agent", "hello", "--model", f"script:{LONG}"), 2),
        (("check", LONG), 2),
        (("new", "other", "--folder", LONG), 1),
        (("sessions", "list", "--store", f"sqlite:///{LONG}"), 2),
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
    folder: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str], wording: Wording
) -> None:
    """The folder in which the command is typed may have been removed."""
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert folder_here() == wording
    ran = Command("", capsys)(*words)
    assert (ran.code in {1, 2}, ran.out, len(ran.err.splitlines())) == (True, "", 1)
    assert "output" not in ran.err


def test_a_run_from_a_folder_that_is_gone_ends_in_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its agent is elsewhere, but there is nothing to work on."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = Command("", capsys)("run", str(folder / "desk.agent"), "hello", "--model", "test", "--approve", "approve-all")
    assert "Traceback" not in ran.err
    assert "output" not in ran.err
    assert (ran.code, ran.out) in {(1, ""), (2, "")} or ran.code == 0


def test_an_unexpected_error_of_a_file_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """By its path, by the folder that is gone, or as the system has it."""
    assert file_fault(PermissionError(13, "Permission denied", "desk.db")) == wording
    missing = FileNotFoundError(2, "No such file or directory")
    assert file_fault(missing) == wording
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert file_fault(missing) == wording
