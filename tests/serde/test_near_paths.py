"""`handrail.serde.formatting`: the path that was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from handrail.serde.formatting import did_you_mean, files_in, nearest_path
from tests.wording import Wording

FILES = ("desk.agent", "desk.py", "refunds/night.agent", "refunds/day.agent", "other/x.txt")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a few files, which is the current one."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    "typed, meant",
    [
        ("desk", "desk.agent"),
        ("dsk.agent", "desk.agent"),
        ("desk.agnet", "desk.agent"),
        ("Desk.agent", "desk.agent"),
        ("refund/night.agent", "refunds/night.agent"),
        ("refund/nigt.agent", "refunds/night.agent"),
        ("refunds/night", "refunds/night.agent"),
        ("refunds/../dsk.agent", "refunds/../desk.agent"),
        ("desk.txt", "desk.agent"),
        ("letters.agent", None),
        ("elsewhere/desk.agent", None),
        ("refunds/zebra.agent", None),
        ("", None),
        ("a\0b", None),
    ],
)
def test_the_nearest_path_is_proposed(typed: str, meant: str | None) -> None:
    """Part by part, among the files of that kind; one that is like no other has none."""
    near = nearest_path(Path(typed), suffix=".agent")
    assert near == (None if meant is None else Path(meant))


def test_a_path_keeps_its_form(place: Path) -> None:
    """An absolute one stays absolute."""
    assert nearest_path(place / "refunds" / "dya.agent", suffix=".agent") == place / "refunds" / "day.agent"


@pytest.mark.usefixtures("place")
def test_a_folder_is_proposed_where_one_was_meant() -> None:
    """And no file."""
    assert nearest_path(Path("refund"), folder=True) == Path("refunds")
    assert nearest_path(Path("desk.agnt"), folder=True) is None


@pytest.mark.usefixtures("place")
def test_a_proposal_is_a_sentence(wording: Wording) -> None:
    """Which may be nothing."""
    assert did_you_mean(Path("desk"), suffix=".agent") == wording
    assert did_you_mean(Path("zebra"), suffix=".agent") == ""


def test_the_files_of_a_folder_are_listed_up_to_a_few(tmp_path: Path) -> None:
    """With the number of the others."""
    for number in range(7):
        (tmp_path / f"{number}.agent").touch()
    (tmp_path / "tools.py").touch()
    named = ", ".join(str(tmp_path / f"{number}.agent") for number in range(4))
    assert files_in(tmp_path, suffix=".agent") == f"{named} and 3 more"
    assert files_in(tmp_path, suffix=".yaml") == ""
    assert files_in(tmp_path / "nowhere", suffix=".yaml") == ""
