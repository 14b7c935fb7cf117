"""What a shadow refuses, and what becomes of it when its process is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.errors import FilesystemBusyError, FilesystemError, JournalError, RootMissingError, SnapshotError
from handrail.filesystem.shadow.repository import ShadowRepository
from tests.filesystem.shadow_trees import pack, picture
from tests.kit import raises
from tests.wording import Wording


def test_large_files_are_refused_by_name(root: Path, tmp_path: Path, wording: Wording) -> None:
    """All of them at once, and no snapshot is taken; a higher limit, or none, takes them."""
    (root / ".gitignore").unlink()
    (root / "big.bin").write_bytes(bytes(3_000))
    (root / "src" / "huge.bin").write_bytes(bytes(4_000))
    before = picture(root)
    shadow = ShadowRepository(root, tmp_path / "shadow.git", max_untracked_bytes=2_000)
    with raises(FilesystemError, wording):
        shadow.snapshot()
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
        with raises(FilesystemError, wording):
            ShadowRepository(root, git_dir)


def test_a_tree_that_is_gone_is_named(root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """It may be a disk that is not there now, so nothing is made in its place."""
    before = picture(root)
    snapshot = shadow.snapshot()
    root.rename(root.with_name("elsewhere"))
    for attempt in (shadow.snapshot, lambda: shadow.restore(snapshot)):
        with raises(RootMissingError, wording):
            attempt()
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
    with raises(SnapshotError, wording):
        shadow.restore(snapshot)
    assert picture(root) == before


def test_a_snapshot_that_has_lost_a_file_is_refused(root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """It is found out before anything is touched."""
    lost = root / "src" / "main.py"
    git = ["git", "hash-object", "--no-filters", str(lost)]
    blob = subprocess.run(git, capture_output=True, check=True, text=True).stdout.strip()
    snapshot = shadow.snapshot()
    lost.write_text("changed")
    (root / "src" / "deep").chmod(0o700)
    before = picture(root)
    (shadow.git_dir / "objects" / blob[:2] / blob[2:]).unlink()
    with raises(JournalError, wording):
        shadow.restore(snapshot)
    assert picture(root) == before


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
        with raises(FilesystemBusyError, wording):
            shadow.snapshot()
        other.communicate(b"\n")
    shadow.snapshot()


def test_a_git_dir_that_cannot_be_made_is_named(root: Path, tmp_path: Path, wording: Wording) -> None:
    """A file is in its place."""
    (tmp_path / "file").touch()
    with raises(FilesystemError, wording):
        ShadowRepository(root, tmp_path / "file").snapshot()
