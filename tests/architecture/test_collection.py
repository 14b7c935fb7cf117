"""Each worker begins the collection with another part of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collection import files_of, turned


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_each_worker_begins_elsewhere_and_leaves_nothing_out(workers: int) -> None:
    """The parts before the first files of the next worker are all files, each once."""
    items = list("abcdefg")
    lists = [turned(items, worker, workers) for worker in range(workers)]
    assert all(sorted(turn) == items for turn in lists)
    firsts = [turn[0] for turn in lists]
    assert firsts == sorted(set(firsts))
    assert firsts[0] == "a"


def test_a_folder_stands_for_its_files_of_tests(tmp_path: Path) -> None:
    """A file, and a test of it, are left as they are."""
    for name in ("b/test_two.py", "test_one.py", "b/fakes.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert files_of(str(tmp_path)) == [str(tmp_path / "b/test_two.py"), str(tmp_path / "test_one.py")]
    assert files_of("tests/test_one.py::test_it") == ["tests/test_one.py::test_it"]
