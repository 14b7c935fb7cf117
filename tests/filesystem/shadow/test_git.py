"""What becomes of a shadow when git is missing, fails or dies, and how far it is cut off from the user's settings."""

from __future__ import annotations

import os
import shutil
import subprocess
from io import BytesIO
from pathlib import Path

import pytest

from handrail.errors import FilesystemError, JournalError
from handrail.filesystem.shadow.git import Git, ObjectReader, ObjectWriter, Pipes
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.filesystem.shadow.tree import UNREAD
from tests.filesystem.shadow_trees import fill, git, pack, picture
from tests.wording import Wording

HELLO = "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"  # what git calls the five bytes


def script(folder: Path, case: str, then: str) -> str:
    """A git that does something else, written in shell, when its arguments are such; its path."""
    path = folder / "other-git"
    path.write_text(f'#!/bin/sh\ncase " $* " in *" {case} "*) {then};; esac\nexec git "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with one of everything."""
    (tmp_path / "tree").mkdir()
    return fill(tmp_path / "tree")


def test_a_missing_git_is_named_with_the_cure(root: Path, tmp_path: Path, wording: Wording) -> None:
    """Whether it is missing from the beginning or only later; the tree is as it was."""
    snapshot = ShadowRepository(root, tmp_path / "shadow.git").snapshot()
    (root / "new").touch()
    before = picture(root)
    for git_dir in (tmp_path / "new.git", tmp_path / "shadow.git"):
        missing = ShadowRepository(root, git_dir, git="no-such-git")
        with pytest.raises(FilesystemError) as raised:
            missing.snapshot()
        assert str(raised.value) == wording
        with pytest.raises(FilesystemError) as raised:
            missing.restore(snapshot)
        assert str(raised.value) == wording
    assert picture(root) == before


@pytest.mark.parametrize("command", ["init", "fast-import", "mktree"])
def test_a_failing_git_takes_no_snapshot(command: str, root: Path, tmp_path: Path, wording: Wording) -> None:
    """The error holds what git said; the tree is as it was, and the next attempt succeeds."""
    before = picture(root)
    failing = script(tmp_path, command, "echo no room left >&2; exit 7")
    with pytest.raises(FilesystemError) as raised:
        ShadowRepository(root, tmp_path / "shadow.git", git=failing).snapshot()
    assert str(raised.value) == wording
    assert picture(root) == before
    shadow = ShadowRepository(root, tmp_path / "shadow.git")
    snapshot = shadow.snapshot()
    shutil.rmtree(root / "src")
    shadow.restore(snapshot)
    assert picture(root) == before


@pytest.mark.parametrize("case", ["hash-object", "mktree"])
def test_a_git_that_fails_later_takes_no_snapshot(case: str, root: Path, tmp_path: Path, wording: Wording) -> None:
    """What one object has kept before stays good."""
    flag = tmp_path / "fails"
    shadow = ShadowRepository(root, tmp_path / "git", git=script(tmp_path, case, f"test -e {flag} && kill -9 $$"))
    first = shadow.snapshot()
    before = picture(root)
    (root / "secret").write_text("changed")
    flag.touch()
    with pytest.raises(FilesystemError) as raised:
        shadow.snapshot()
    assert str(raised.value) == wording
    flag.unlink()
    second = shadow.snapshot()
    shadow.restore(first)
    assert picture(root) == before
    shadow.restore(second)
    assert (root / "secret").read_text() == "changed"


def test_a_git_that_dies_while_it_is_fed_takes_no_snapshot(root: Path, tmp_path: Path, wording: Wording) -> None:
    """Its end is reported, and not the broken pipe to it."""
    (root / "big").write_bytes(bytes(1 << 21))
    dying = script(tmp_path, "fast-import", "echo killed >&2; exit 9")
    with pytest.raises(FilesystemError) as raised:
        ShadowRepository(root, tmp_path / "shadow.git", git=dying).snapshot()
    assert str(raised.value) == wording


@pytest.mark.parametrize("case", ["--batch", "--batch-check"])
@pytest.mark.parametrize("then", ["exit 5", "exit 0"])
def test_a_failing_git_restores_nothing(case: str, then: str, root: Path, tmp_path: Path, wording: Wording) -> None:
    """The tree is as it was, also where folders had to be made accessible to be looked at."""
    snapshot = ShadowRepository(root, tmp_path / "shadow.git").snapshot()
    (root / "secret").write_text("changed")
    before = picture(root)
    failing = ShadowRepository(root, tmp_path / "shadow.git", git=script(tmp_path, case, then))
    with pytest.raises(FilesystemError) as raised:
        failing.restore(snapshot)
    assert str(raised.value) == wording
    assert picture(root) == before


def test_a_git_that_keeps_other_trees_is_refused(root: Path, tmp_path: Path, wording: Wording) -> None:
    """A git that would drop whole modes must not be relied on."""
    other = script(tmp_path, "mktree", f"echo {UNREAD}; exit 0")
    with pytest.raises(FilesystemError) as raised:
        ShadowRepository(root, tmp_path / "shadow.git", git=other).snapshot()
    assert str(raised.value) == wording


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


def test_packs_that_cannot_be_linked_are_done_without(root: Path, tmp_path: Path) -> None:
    """It only costs more room."""
    pack(root, "src")
    git_dir = tmp_path / "shadow.git"
    (git_dir / "objects" / "pack").mkdir(parents=True)
    for found in (root / ".git" / "objects" / "pack").iterdir():
        (git_dir / "objects" / "pack" / found.name).touch()  # in the way
    for found in (git_dir / "objects" / "pack").iterdir():
        if found.suffix != ".pack":
            found.unlink()
    before = picture(root)
    shadow = ShadowRepository(root, git_dir)
    snapshot = shadow.snapshot()
    shutil.rmtree(root / "src")
    shadow.restore(snapshot)
    assert picture(root) == before


def test_git_can_show_a_snapshot(root: Path, tmp_path: Path) -> None:
    """The objects are git's own, so that people can look into them."""
    shadow = ShadowRepository(root, tmp_path / "shadow.git")
    snapshot = shadow.snapshot()
    environment = os.environ | {"GIT_DIR": str(shadow.git_dir)}
    line = ["git", "show", f"{snapshot}:root/src/main.py"]
    assert subprocess.run(line, env=environment, capture_output=True, check=True).stdout == b"print('main')\n"
    git(root, f"--git-dir={shadow.git_dir}", "ls-tree", "-r", snapshot)


def test_what_is_shorter_than_it_was_is_padded() -> None:
    """Git waits for as many bytes as it was promised; what it then keeps is never asked for."""
    stdin = BytesIO()
    assert ObjectWriter(stdin).blob(BytesIO(b"hello"), 5) == HELLO
    assert ObjectWriter(stdin).blob(BytesIO(b"he"), 5) == UNREAD
    assert stdin.getvalue() == b"blob\ndata 5\nhello\nblob\ndata 5\nhe\0\0\0\n"


def test_a_blob_that_is_cut_short_is_a_broken_pipe() -> None:
    """It is git that has gone, and git's end is what gets reported."""
    pipes = Pipes(BytesIO(), BytesIO(f"{HELLO} blob 5\nhel".encode()))
    with pytest.raises(BrokenPipeError):
        list(ObjectReader(pipes).blob(HELLO))


def test_a_blob_that_is_none_is_lost() -> None:
    """It went after it was found to be there."""
    with pytest.raises(JournalError, match=HELLO):
        list(ObjectReader(Pipes(BytesIO(), BytesIO(f"{HELLO} missing\n".encode()))).blob(HELLO))


def test_nothing_is_asked_about_nothing(tmp_path: Path) -> None:
    """No git is started to find out that nothing is missing."""
    assert Git(tmp_path, "no-such-git").missing([]) == set()


def test_a_git_that_has_died_before_it_is_asked_has_ended_early(wording: Wording) -> None:
    """As one that dies before it answers: the message does not depend on which comes first."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as stdin, pytest.raises(BrokenPipeError) as raised:
        ObjectReader(Pipes(stdin, BytesIO())).tree("0" * 40)
    assert raised.value.strerror == wording
