"""What a shadow refuses, and what becomes of it when its process is killed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.errors import FilesystemBusyError, FilesystemError, JournalError, RootMissingError, SnapshotError
from handrail.filesystem.shadow.repository import ShadowRepository
from tests.filesystem.shadow_trees import fill, pack, picture
from tests.wording import Wording

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with one of everything."""
    (tmp_path / "tree").mkdir()
    return fill(tmp_path / "tree")


@pytest.fixture
def shadow(root: Path, tmp_path: Path) -> ShadowRepository:
    """A shadow of it."""
    return ShadowRepository(root, tmp_path / "shadow.git")


def test_large_files_are_refused_by_name(root: Path, tmp_path: Path, wording: Wording) -> None:
    """All of them at once, and no snapshot is taken; a higher limit, or none, takes them."""
    (root / ".gitignore").unlink()
    (root / "big.bin").write_bytes(bytes(3_000))
    (root / "src" / "huge.bin").write_bytes(bytes(4_000))
    before = picture(root)
    shadow = ShadowRepository(root, tmp_path / "shadow.git", max_untracked_bytes=2_000)
    with pytest.raises(FilesystemError) as raised:
        shadow.snapshot()
    assert str(raised.value) == wording
    assert picture(root) == before
    snapshot = ShadowRepository(root, tmp_path / "shadow.git", max_untracked_bytes=None).snapshot()
    assert shadow.snapshot() == snapshot, "what is kept already is no burden"
    (root / "big.bin").unlink()
    shadow.restore(snapshot)
    assert picture(root) == before


def test_large_files_of_the_own_repository_are_kept(root: Path, tmp_path: Path) -> None:
    """What its packs hold costs nothing; once changed, it counts as any other."""
    (root / ".gitignore").unlink()
    (root / "big.bin").write_bytes(os.urandom(3_000))
    pack(root, "big.bin")
    before = picture(root)
    shadow = ShadowRepository(root, tmp_path / "shadow.git", max_untracked_bytes=2_000)
    snapshot = shadow.snapshot()
    assert shadow.snapshot() == snapshot
    (root / "big.bin").write_bytes(os.urandom(3_000))
    with pytest.raises(FilesystemError, match=r"big\.bin"):
        shadow.snapshot()
    shadow.restore(snapshot)
    assert picture(root) == before


def test_a_git_dir_in_the_tree_is_refused(root: Path, tmp_path: Path, wording: Wording) -> None:
    """It would be part of what it keeps."""
    for git_dir in (root / "shadow.git", root, tmp_path):
        with pytest.raises(FilesystemError) as raised:
            ShadowRepository(root, git_dir)
        assert str(raised.value) == wording


def test_a_tree_that_is_gone_is_named(root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """It may be a disk that is not there now, so nothing is made in its place."""
    before = picture(root)
    snapshot = shadow.snapshot()
    root.rename(root.with_name("elsewhere"))
    for attempt in (shadow.snapshot, lambda: shadow.restore(snapshot)):
        with pytest.raises(RootMissingError) as raised:
            attempt()
        assert str(raised.value) == wording
    root.write_text("a file")
    with pytest.raises(RootMissingError):
        shadow.snapshot()
    root.unlink()
    root.mkdir()
    shadow.restore(snapshot)
    assert picture(root) == before


@pytest.mark.parametrize("snapshot", ["", "HEAD", "0" * 40, "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "a b\nc"])
def test_what_is_no_snapshot_is_refused(snapshot: str, root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """And nothing is touched."""
    (root / "empty" / "inside" / "4b").mkdir()  # so that git has the empty tree
    shadow.snapshot()
    (root / "new").touch()
    before = picture(root)
    with pytest.raises(SnapshotError) as raised:
        shadow.restore(snapshot)
    assert str(raised.value) == wording
    assert picture(root) == before


@pytest.mark.parametrize("kind", [b"blob", b"tree"])
def test_a_snapshot_that_has_lost_something_is_refused(
    kind: bytes, root: Path, shadow: ShadowRepository, wording: Wording
) -> None:
    """It is found out before anything is touched."""
    snapshot = shadow.snapshot()
    (root / "src" / "main.py").write_text("kept, but then lost")
    changed = shadow.snapshot()
    shadow.restore(snapshot)
    (root / "src" / "deep").chmod(0)
    before = picture(root) if not os.geteuid() else {}
    for path in shadow.git_dir.glob("objects/??/*"):
        question = ["git", "cat-file", "-t", path.parent.name + path.name]
        found = subprocess.run(
            question, env=os.environ | {"GIT_DIR": str(shadow.git_dir)}, capture_output=True, check=True
        )
        line = ["git", "ls-tree", changed]
        tops = subprocess.run(line, env=os.environ | {"GIT_DIR": str(shadow.git_dir)}, capture_output=True, check=True)
        is_needed = path.parent.name + path.name == changed or (path.parent.name + path.name).encode() in tops.stdout
        if found.stdout.strip() == kind and not is_needed:
            path.unlink()
    with pytest.raises(JournalError) as raised:
        shadow.restore(changed)
    assert str(raised.value) == wording
    assert stat.S_IMODE((root / "src" / "deep").stat().st_mode) == 0
    assert not before or picture(root) == before
    (root / "src" / "deep").chmod(0o755)


def test_two_cannot_use_a_git_dir_at_once(root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """Another process is refused at once rather than kept waiting."""
    shadow.snapshot()
    holding = (
        "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); input()"
    )
    line = [sys.executable, "-c", holding, str(shadow.git_dir / "handrail-lock")]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(FilesystemBusyError) as raised:
            shadow.snapshot()
        assert str(raised.value) == wording
        other.communicate(b"\n")
    shadow.snapshot()


def test_a_git_dir_that_cannot_be_made_is_named(root: Path, tmp_path: Path, wording: Wording) -> None:
    """A file is in its place."""
    (tmp_path / "file").touch()
    with pytest.raises(FilesystemError) as raised:
        ShadowRepository(root, tmp_path / "file").snapshot()
    assert str(raised.value) == wording


@pytest.mark.parametrize("what", ["snapshot", "restore"])
@pytest.mark.short(1)
def test_a_process_killed_at_any_step_leaves_nothing_that_the_next_cannot_mend(what: str, tmp_path: Path) -> None:
    """A snapshot that was cut short has not touched the tree; a restore that was, goes on when it is called again."""
    line = [sys.executable, "-m", "tests.filesystem.shadow_killing", what, str(tmp_path)]
    done = subprocess.run(line, cwd=REPOSITORY, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 25
