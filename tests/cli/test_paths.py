"""Paths that were typed and cannot be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.desk import Command

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
