"""What a failed program has changed, and a rollback does not restore, is named."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from handrail.filesystem import ShadowRepository
from handrail.filesystem.own_git.state import git_dir_state
from handrail.filesystem.shadow.watch import UnrestoredWatch
from tests.filesystem.shadow_trees import git
from tests.wording import Wording


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with a large folder and a large file that are ignored."""
    root = tmp_path / "tree"
    for number in range(12):
        (root / f".venv/lib/part{number % 3}").mkdir(parents=True, exist_ok=True)
        (root / f".venv/lib/part{number % 3}/file{number}").write_text(f"{number:4}")
    (root / "data.bin").write_bytes(bytes(5000))
    (root / ".gitignore").write_text(".venv\ndata.bin\n")
    (root / "main.py").write_text("main")
    return root


def watched(root: Path, **options: Any) -> UnrestoredWatch:
    """What is not restored, watched from now on."""
    shadow = ShadowRepository(root, root.with_name("git"), max_tree_bytes=0, **options)
    return UnrestoredWatch(root, shadow.take().entries, git_dir_state(root))


def test_a_socket_that_was_there_is_named_and_a_pipe_is_not(root: Path, wording: Wording) -> None:
    """A restore makes a pipe again. Other programs could not reach the socket that it would make."""
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as other, chdir(root):
        server.bind("a.sock")
        other.bind("b.sock")
        os.mkfifo("pipe")
        watch = watched(root)
        for name in ("a.sock", "pipe"):
            Path(name).unlink()
        Path("new").mkdir()
        assert [change.text for change in watch.changes()] == wording


def test_a_root_without_any_right_is_looked_at_all_the_same(root: Path) -> None:
    """Its mode is restored, so that nothing else in it has changed; matters to users other than root."""
    git(root, "init")
    watch = watched(root)
    root.chmod(0)
    assert (watch.changes(), root.stat().st_mode & 0o777) == ((), 0)
    root.chmod(0o700)


def test_what_is_not_looked_at_is_not_named_by_another_process(root: Path) -> None:
    """It knows it from the index."""
    for _ in range(2):
        shadow = ShadowRepository(root, root.with_name("git"), snapshot_tree="tracked")
        watch = UnrestoredWatch(root, shadow.take().entries, git_dir_state(root))
        shadow.save_index(synced=True, always=True)
        change_all(root)
        assert watch.changes() == ()


def change_all(root: Path) -> None:
    """Write to every file of the environment."""
    for path in root.glob(".venv/lib/*/*"):
        path.write_text("1234")


def replace_folder(root: Path) -> None:
    """Put a link to elsewhere where the environment was."""
    shutil.rmtree(root / ".venv")
    (root / ".venv").symlink_to("..")


def add_a_hard_link(root: Path) -> None:
    """What an installer does elsewhere."""
    (root.with_name("elsewhere")).hardlink_to(root / ".venv/lib/part0/file0")


def move_folder(root: Path) -> None:
    """Two folders differ then, with all that is in them."""
    (root / ".venv/lib/part0").rename(root / ".venv/lib/part9")


def nest_deeply(root: Path) -> None:
    """Make folders without end."""
    line = "import os\nfor _ in range(600):\n    os.mkdir('x')\n    os.chdir('x')\n"
    subprocess.run([sys.executable, "-c", line], cwd=root / ".venv", check=True)


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda root: (root / "main.py").write_text("restored anyway"),
    "all files": change_all,
    "one file": lambda root: (root / ".venv/lib/part0/file0").unlink(),
    "a new file": lambda root: (root / ".venv/new").touch(),
    "a new empty folder": lambda root: (root / ".venv/new").mkdir(),
    "a mode": lambda root: (root / ".venv/lib").chmod(0o700),
    "a moved folder": move_folder,
    "the folder removed": lambda root: shutil.rmtree(root / ".venv"),
    "the folder replaced": replace_folder,
    "the file changed": lambda root: (root / "data.bin").write_text("x"),
    "the file removed": lambda root: (root / "data.bin").unlink(),
    "a hard link": add_a_hard_link,
    "everything removed": shutil.rmtree,
    "a folder that cannot be scanned": nest_deeply,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_has_changed_is_named(change: Callable[[Path], object], root: Path, wording: Wording) -> None:
    """In one sentence for each entry that is left out."""
    watch = watched(root)
    change(root)
    assert "\n".join(each.text for each in watch.changes()) == wording


def test_the_time_of_an_edit_of_equal_size_is_enough(root: Path) -> None:
    """A file whose time was set back as well is not noticed: it has not been read."""
    path = root / "data.bin"
    watch = watched(root)
    path.write_bytes(b"x" * 5000)
    assert len(watch.changes()) == 1
    watch = watched(root)
    status = path.stat()
    path.write_bytes(b"y" * 5000)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not watch.changes()


def test_many_entries_are_counted(root: Path, wording: Wording) -> None:
    """The first ones are named."""
    with (root / ".gitignore").open("a") as file:
        file.write("*.log\n")
    for number in range(9):
        (root / f"{number}.log").touch()
    watch = watched(root)
    for number in range(9):
        (root / f"{number}.log").unlink()
    assert "\n".join(each.text for each in watch.changes()) == wording


def test_what_is_not_looked_at_is_not_named(root: Path) -> None:
    """Nor was its status read before."""
    watch = watched(root, snapshot_tree="tracked")
    change_all(root)
    assert not watch.changes()


def test_the_own_repository_is_part_of_what_is_watched(root: Path, wording: Wording) -> None:
    """One sentence has all that differs, with one command."""
    git(root, "init", "--initial-branch=main")
    git(root, "commit", "--allow-empty", "--message", "first")
    assert not watched(root).changes()
    watch = watched(root)
    git(root, "checkout", "-b", "topic")
    (change,) = watch.changes()
    assert watch.changes() == (change,)
    assert f"{change.text}: {change.command}" == wording


def test_a_repository_that_is_made_is_named(root: Path, wording: Wording) -> None:
    """There was none before."""
    watch = watched(root)
    git(root, "init", "--initial-branch=main")
    (change,) = watch.changes()
    assert f"{change.text}: {change.command}" == wording
