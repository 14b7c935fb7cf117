"""What is measured of a workspace, also while it changes, and when a disk is almost full."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handrail.contrib.tools.sandbox.workspace_watch import WorkspaceUse, WorkspaceWatch, measure, removed_size
from handrail.filesystem.shadow.tree import MAX_TREE_DEPTH
from tests.wording import Wording


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


def test_sparse_file_counts_as_what_is_read_of_it(tmp_path: Path) -> None:
    """Saving or copying it takes as long, and as much of the disk."""
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 24)
    assert measure(tmp_path, 1 << 30).size == 1 << 24


def test_what_cannot_be_read_fails_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """A folder, and a file of the own user; no tree with it can be saved. A superuser reads everything."""
    path = tmp_path / "file"
    path.touch(mode=0o200)
    assert os.geteuid() or measure(tmp_path, 1 << 30).unreadable is None
    if not os.geteuid():
        os.chown(path, 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid)
    assert measure(tmp_path, 1 << 30).unreadable == "file"
    path.chmod(0o400)
    assert measure(tmp_path, 1 << 30).unreadable is None

    def refused(_path: Path) -> Iterator[os.DirEntry[str]]:
        raise PermissionError(errno.EACCES, "refused")

    monkeypatch.setattr(os, "scandir", refused)
    with WorkspaceWatch(tmp_path, 1 << 30, bool, list[int], now=0) as watch:
        pass
    assert watch.fault == wording


def test_workspace_that_no_command_can_enter_fails_the_call(tmp_path: Path, wording: Wording) -> None:
    """Also where this process is the superuser's, which enters it; else each later command would fail."""
    (tmp_path / "file").touch()
    with WorkspaceWatch(tmp_path, 1 << 30, bool, list[int], now=0) as watch:
        tmp_path.chmod(0o200)
    tmp_path.chmod(0o700)
    assert watch.fault == wording


@pytest.mark.parametrize("name, depth", [("a" * 200, 30), ("a", MAX_TREE_DEPTH + 1)], ids=["long names", "short names"])
def test_folders_that_are_too_deep_stop_the_command(name: str, depth: int, tmp_path: Path, wording: Wording) -> None:
    """What is below a path longer than the system takes is not seen; a deeper tree cannot be saved."""
    at = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    stopped = threading.Event()
    with WorkspaceWatch(tmp_path, 1 << 30, stopped.set, list[int], now=0) as watch:
        assert stopped.wait(30)
    assert watch.fault == wording


def test_removed_file_that_is_open_counts_once(tmp_path: Path) -> None:
    """A process may have it open twice; a process that has ended has none."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    device = path.stat().st_dev
    with path.open("rb") as one, path.open("rb") as two:
        others = removed_size([os.getpid()], device)  # of this process, which runs other tests, too
        path.unlink()
        size = os.fstat(one.fileno()).st_blocks * 512
        assert removed_size([os.getpid(), 2**22 + 1], device) - others == size == os.fstat(two.fileno()).st_blocks * 512
        assert removed_size([os.getpid()], device + 1) == 0


def test_command_that_leaves_no_free_space_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
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
    assert watch.fault == wording
