"""What is measured of a workspace, also while it changes, and when a disk is almost full."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handrail.contrib.tools.sandbox.workspace_watch import WorkspaceUse, WorkspaceWatch, measure, removed_size


def test_every_entry_counts_and_the_walk_ends_at_the_limit(tmp_path: Path) -> None:
    """Empty files, folders and links count a block; of more than the limit no more than that is known."""
    for number in range(10):
        (tmp_path / f"empty{number}").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to("nowhere")
    assert measure(tmp_path, 1 << 30) == WorkspaceUse(12 * 4096)
    assert measure(tmp_path, 3 * 4096).size == 4 * 4096


def test_what_vanishes_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file after its name was read, and a folder before it is."""
    scan = os.scandir

    @contextmanager
    def vanishing(path: Path) -> Generator[Iterator[os.DirEntry[str]]]:
        with scan(path) as found:
            entries = list(found)
        for entry in entries:
            Path(entry.path).unlink()
        yield iter(entries)

    assert measure(tmp_path / "not-there", 1 << 30) == WorkspaceUse(0)
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "scandir", vanishing)
    assert measure(tmp_path, 1 << 30) == WorkspaceUse(0)


def test_only_new_files_with_set_user_id_count(tmp_path: Path) -> None:
    """One that was there before is nothing that the command has made."""
    path = tmp_path / "program"
    path.touch()
    path.chmod(0o4755)
    changed = path.stat().st_ctime_ns
    assert measure(tmp_path, 1 << 30, changed).set_id == "program"
    assert measure(tmp_path, 1 << 30, changed + 1).set_id is None


def test_removed_file_that_is_open_counts_once(tmp_path: Path) -> None:
    """A process may have it open twice; a process that has ended has none."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    device = path.stat().st_dev
    with path.open("rb") as one, path.open("rb") as two:
        path.unlink()
        size = os.fstat(one.fileno()).st_blocks * 512
        assert removed_size([os.getpid(), 2**22 + 1], device) == size == os.fstat(two.fileno()).st_blocks * 512
        assert removed_size([os.getpid()], device + 1) == 0


def test_command_that_leaves_no_free_space_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the workspace is small."""
    free = [1000, 100]
    system = os.statvfs(tmp_path)

    def statvfs(_path: Path) -> os.statvfs_result:
        fields = list(system)
        fields[1], fields[3] = 1, free[0]  # the size of a block, and how many are free
        del free[: len(free) - 1]
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", statvfs)
    with WorkspaceWatch(tmp_path, 1 << 30, bool, list[int], now=0) as watch:
        pass
    assert watch.fault == "the disk is almost full"
