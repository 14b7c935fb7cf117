"""What a shadow refuses; a git that is missing, fails or dies; and the user's settings, which change nothing."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.errors import FilesystemBusyError, FilesystemError, JournalError, RootMissingError, SnapshotError
from handrail.filesystem.shadow.git import UNREAD, ObjectReader, ObjectWriter, Pipes
from handrail.filesystem.shadow.repository import ShadowRepository
from tests.filesystem.kit import unchanged
from tests.filesystem.shadow_trees import SavedTree, pack, picture, script
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
    saved = SavedTree(root, shadow)
    root.rename(root.with_name("elsewhere"))
    for attempt in (shadow.snapshot, lambda: shadow.restore(saved.snapshot)):
        with raises(RootMissingError, wording):
            attempt()
    root.write_text("a file")
    with pytest.raises(RootMissingError):
        shadow.snapshot()
    root.unlink()
    root.mkdir()
    saved.restore()


@pytest.mark.parametrize("snapshot", ["", "HEAD", "0" * 40, "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "a b\nc"])
def test_what_is_no_snapshot_is_refused(snapshot: str, root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """And nothing is touched."""
    (root / "empty" / "inside" / "4b").mkdir()  # so that git has the empty tree
    shadow.snapshot()
    (root / "new").touch()
    with unchanged(picture, root), raises(SnapshotError, wording):
        shadow.restore(snapshot)


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


def test_file_that_becomes_shorter_while_it_is_stored_is_unread() -> None:
    """What git was told to expect is filled up."""
    stdin = io.BytesIO()
    assert ObjectWriter(stdin).blob(io.BytesIO(b"ab"), 5) == UNREAD
    assert stdin.getvalue() == b"blob\ndata 5\nab\0\0\0\n"


@pytest.mark.parametrize("answer, kind", [(b"id tree 2\nab\n", JournalError), (b"id blob 3\nab", BrokenPipeError)])
def test_what_is_no_whole_blob_is_not_restored(answer: bytes, kind: type[Exception]) -> None:
    """The content of a file would be wrong."""
    with pytest.raises(kind):
        list(ObjectReader(Pipes(io.BytesIO(), io.BytesIO(answer))).blob("id"))


def test_a_missing_git_is_named_with_the_cure(root: Path, tmp_path: Path, wording: Wording) -> None:
    """Whether it is missing from the beginning or only later; the tree is as it was."""
    snapshot = ShadowRepository(root, tmp_path / "shadow.git").snapshot()
    (root / "new").touch()
    with unchanged(picture, root):
        for git_dir in (tmp_path / "new.git", tmp_path / "shadow.git"):
            missing = ShadowRepository(root, git_dir, git="no-such-git")
            with raises(FilesystemError, wording):
                missing.snapshot()
            with raises(FilesystemError, wording):
                missing.restore(snapshot)


@pytest.mark.parametrize("command", ["init", "fast-import", "mktree"])
def test_a_failing_git_takes_no_snapshot(command: str, root: Path, tmp_path: Path, wording: Wording) -> None:
    """The error holds what git said; the tree is as it was, and the next attempt succeeds."""
    before = picture(root)
    failing = script(tmp_path, command, "echo no room left >&2; exit 7")
    with raises(FilesystemError, wording):
        ShadowRepository(root, tmp_path / "shadow.git", git=failing).snapshot()
    assert picture(root) == before
    shadow = ShadowRepository(root, tmp_path / "shadow.git")
    snapshot = shadow.snapshot()
    shutil.rmtree(root / "src")
    shadow.restore(snapshot)
    assert picture(root) == before


@pytest.mark.parametrize("case", ["--batch", "--batch-check"])
@pytest.mark.parametrize("then", ["exit 5", "exit 0"])
def test_a_failing_git_restores_nothing(case: str, then: str, root: Path, tmp_path: Path, wording: Wording) -> None:
    """The tree is as it was, also where folders had to be made accessible to be looked at."""
    snapshot = ShadowRepository(root, tmp_path / "shadow.git").snapshot()
    (root / "secret").write_text("changed")
    before = picture(root)
    failing = ShadowRepository(root, tmp_path / "shadow.git", git=script(tmp_path, case, then))
    with raises(FilesystemError, wording):
        failing.restore(snapshot)
    assert picture(root) == before


def test_a_git_that_keeps_other_trees_is_refused(root: Path, tmp_path: Path, wording: Wording) -> None:
    """A git that would drop whole modes must not be relied on."""
    other = script(tmp_path, "mktree", f"echo {UNREAD}; exit 0")
    with raises(FilesystemError, wording):
        ShadowRepository(root, tmp_path / "shadow.git", git=other).snapshot()


def test_what_a_killed_git_left_is_removed(root: Path, tmp_path: Path) -> None:
    """Locks and half of an object stand in nobody's way."""
    git_dir = tmp_path / "shadow.git"
    snapshot = ShadowRepository(root, git_dir).snapshot()
    (git_dir / "objects" / "ab").mkdir(exist_ok=True)
    left = ("index.lock", "config.lock", "objects/pack/tmp_pack_x", "objects/ab/tmp_obj_x", "fast_import_crash_1")
    for name in left:
        (git_dir / name).write_text("half")
    assert ShadowRepository(root, git_dir).snapshot() == snapshot
    assert not [name for name in left if (git_dir / name).exists()]


def test_the_user_s_settings_change_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither configuration nor environment: filters, hooks, ignored names, another index or object folder."""
    settings = tmp_path / "config"
    settings.write_text(
        "[core]\n autocrlf = true\n excludesFile = /dev/null\n"
        '[filter "lfs"]\n clean = false\n smudge = false\n required = true\n'
        f"[init]\n defaultObjectFormat = sha256\n templateDir = {tmp_path}\n"
    )
    expected = ShadowRepository(root, tmp_path / "plain.git").snapshot()
    for name, value in {
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_DIR": str(tmp_path / "theirs"),
        "GIT_INDEX_FILE": str(tmp_path / "their-index"),
        "GIT_OBJECT_DIRECTORY": str(tmp_path / "their-objects"),
        "GIT_WORK_TREE": str(tmp_path),
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.autocrlf",
        "GIT_CONFIG_VALUE_0": "true",
    }.items():
        monkeypatch.setenv(name, value)
    before = picture(root)
    shadow = ShadowRepository(root, tmp_path / "shadow.git")
    assert shadow.snapshot() == expected
    shutil.rmtree(root / "src")
    (root / "mixed.txt").unlink()
    shadow.restore(expected)
    assert picture(root) == before
    assert not [name for name in ("theirs", "their-index", "their-objects") if (tmp_path / name).exists()]
