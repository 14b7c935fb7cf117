"""Snapshots of whole trees: what they keep, put back, leave alone and refuse; a git that fails; the user's settings."""

from __future__ import annotations

import errno
import io
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from handrail.errors import FilesystemError, JournalError, RootMissingError, SnapshotError
from handrail.filesystem.shadow.git import UNREAD, ObjectReader, ObjectWriter, Pipes
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.filesystem.shadow.tree import MAX_TREE_DEPTH
from tests.filesystem.kit import unchanged
from tests.filesystem.shadow_trees import SavedTree, fill, git, pack, picture, script
from tests.kit import raises
from tests.wording import Wording


def clear(path: Path) -> Path:
    """Remove what is at a path, which is returned."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return path


def make_folder(path: Path) -> Path:
    """Make a folder, which is returned."""
    path.mkdir(parents=True)
    return path


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda root: None, "an edit": lambda root: (root / "src" / "main.py").write_text("changed"),
    "a file removed": lambda root: (root / "src" / "main.py").unlink(),
    "attributes removed": lambda root: [clear(root / name) for name in (".gitattributes", "mixed.txt")],
    "a mode that git does not know": lambda root: (root / "secret").chmod(0o4640),
    "a folder without any right": lambda root: (root / "src" / "deep").chmod(0),
    "the mode of the root": lambda root: root.chmod(0o711), "a root without any right": lambda root: root.chmod(0),
    "a file in a locked folder": lambda root: (root / "locked" / "file").write_text("changed"),
    "an empty folder removed": lambda root: (root / "empty" / "inside").rmdir(),
    "a new empty folder": lambda root: (root / "new" / "inside").mkdir(parents=True),
    "folders with everything in them removed": lambda root: shutil.rmtree(root / "src"),
    "everything removed": lambda root: [clear(path) for path in root.iterdir()],
    "a folder moved": lambda root: (root / "src" / "deep").rename(root / "moved"),
    "a link to a folder above": lambda root: (root / "src" / "out").symlink_to("../.."),
    "a file that became a folder": lambda root: (make_folder(clear(root / "secret")) / "inside").write_text("inside"),
    "a folder that became a file": lambda root: clear(root / "src").write_text("a file now"),
    "a folder that became a link to another": lambda root: clear(root / "src").symlink_to("other"),
    "a name that is not UTF-8": lambda root: (root / os.fsdecode(b"caf\xe9 \xff.txt")).write_text("changed"),
    "a new repository": lambda root: git(make_folder(root / "new"), "init"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_was_done_is_undone(change: Callable[[Path], object], root: Path, shadow: ShadowRepository) -> None:
    """Contents, whole modes, links, empty folders and names come back; and so does what was there in between."""
    before = picture(root)
    first = shadow.snapshot().id
    assert picture(root) == before
    change(root)
    if change is CHANGES["a root without any right"] and os.geteuid():
        shadow.restore(first)  # nobody but root can look at it, or keep it
    else:
        after = picture(root)
        second = shadow.snapshot().id
        shadow.restore(first)
        assert picture(root) == before
        shadow.restore(second)
        assert picture(root) == after
        shadow.restore(first)
    assert picture(root) == before
    assert shadow.snapshot().id == first


def test_edits_of_equal_size_in_one_moment_are_seen(root: Path, shadow: ShadowRepository) -> None:
    """No edit is so quick that size and times hide it, nor can setting the times back."""
    path = root / "secret"
    status = path.stat()
    ids: list[str] = []
    for number in range(20):
        path.write_text(f"{number:06}")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        ids.append(shadow.snapshot().id)
    assert len(set(ids)) == 20
    for number, snapshot in enumerate(ids):
        shadow.restore(snapshot)
        assert path.read_text() == f"{number:06}"


def test_a_repository_below_is_kept_like_any_folder(root: Path, shadow: ShadowRepository) -> None:
    """Its git dir comes back to the byte, though it had no commit, and has been removed."""
    inner = root / "src" / "vendored"
    inner.mkdir()
    git(inner, "init")
    (inner / "file").write_text("vendored")
    saved = SavedTree(root, shadow)
    git(inner, "commit", "--allow-empty", "-m", "more")
    shadow.snapshot()
    shutil.rmtree(inner)
    saved.restore()
    git(inner, "status")


def test_the_own_repository_of_the_root_is_left_alone(root: Path, shadow: ShadowRepository) -> None:
    """Its index, objects and references are neither changed nor put back, though its packs are made use of."""
    pack(root, "src", "run.sh")
    own = picture(root / ".git")
    snapshot = shadow.snapshot().id
    (root / "src" / "main.py").write_text("changed")
    shadow.restore(snapshot)
    assert picture(root / ".git") == own
    git(root, "commit", "--allow-empty", "-m", "second")
    own = picture(root / ".git")
    shadow.restore(snapshot)
    assert picture(root / ".git") == own
    assert list(shadow.git_dir.glob("objects/pack/*.idx"))


def convert(root: Path) -> None:
    """Have git convert line ends."""
    (root / ".gitattributes").write_text("* text eol=crlf\n")
    (root / "mixed.txt").write_bytes(b"one\r\ntwo\r\n")
    pack(root, ".gitattributes", "mixed.txt")


REPOSITORIES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "it converts line ends: the disk is what comes back": (convert, ["mixed.txt"]),
    "it is removed: what was linked stays": (lambda root: pack(root, "src"), [".git", "src"]),
    "its objects have other ids": (lambda root: pack(root, "src", kind="sha256"), ["src"]),
}


@pytest.mark.parametrize("prepare, lost", REPOSITORIES.values(), ids=REPOSITORIES)
def test_own_git_is_safe(
    root: Path, shadow: ShadowRepository, prepare: Callable[[Path], object], lost: list[str]
) -> None:
    """Its packs are made use of where they hold what the disk holds."""
    prepare(root)
    saved = SavedTree(root, shadow)
    for path in lost:
        clear(root / path)
    saved.restore()


def test_new_special_files_are_removed_and_old_ones_not_made_again(root: Path, shadow: ShadowRepository) -> None:
    """A socket or pipe that was there is neither touched nor made: only its process can."""
    os.mkfifo(root / "pipe", 0o640)
    with socket.socket(socket.AF_UNIX) as old, socket.socket(socket.AF_UNIX) as new, chdir(root):
        old.bind("old")
        saved = SavedTree(root, shadow)
        (root / "new").mkdir()
        os.mkfifo(root / "new" / "pipe")
        os.mkfifo(clear(root / "secret"))
        new.bind("src/socket")
        saved.restore()
        assert ((root / "old").is_socket(), (root / "src" / "socket").exists()) == (True, False)
        for name in ("old", "pipe"):
            (root / name).unlink()
            (root / name).write_text("a file now")
        shadow.restore(saved.snapshot)
    del saved.before[b"old"], saved.before[b"pipe"]
    assert picture(root) == saved.before
    assert shadow.snapshot().id != saved.snapshot


def test_what_is_new_is_removed_unread_and_at_any_depth(root: Path, shadow: ShadowRepository) -> None:
    """A file of a terabyte, which would take hours to read, and more folders in each other than a path can name."""
    saved = SavedTree(root, shadow)
    (root / "new").touch()
    os.truncate(root / "new", 1 << 40)
    os.truncate(root / "run.sh", 1 << 40)
    with chdir(root / "src"):
        for number in range(MAX_TREE_DEPTH + 100):
            Path("0" * 100).mkdir()
            Path("1").mkdir()
            Path("1", str(number)).touch()
            os.chdir("0" * 100)
            Path("file").touch()
        Path().chmod(0o500)
    saved.restore()


def test_what_cannot_be_removed_does_not_keep_the_rest_from_being_restored(
    root: Path, shadow: ShadowRepository, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """As a file that is immutable: the error names it, with what the operating system says."""

    def refuse(name: str, **_at: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), name)

    saved = SavedTree(root, shadow)
    shutil.rmtree(root / "src" / "deep")
    (root / "new").mkdir()
    for name in ("new/held", "held"):
        (root / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        with pytest.raises(FilesystemError) as caught:
            shadow.restore(saved.snapshot)
    assert (str(caught.value), (root / "src" / "deep").is_dir()) == (wording, True)
    saved.restore()


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
    snapshot = ShadowRepository(root, tmp_path / "shadow.git", max_untracked_bytes=None).snapshot().id
    assert shadow.snapshot().id == snapshot, "what is kept already is no burden"
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
    snapshot = shadow.snapshot().id
    assert shadow.snapshot().id == snapshot
    (root / "big.bin").write_bytes(os.urandom(3_000))
    with pytest.raises(FilesystemError, match=r"big\.bin"):
        shadow.snapshot()
    shadow.restore(snapshot)
    assert picture(root) == before


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
    snapshot = shadow.snapshot().id
    lost.write_text("changed")
    (root / "src" / "deep").chmod(0o700)
    before = picture(root)
    (shadow.git_dir / "objects" / blob[:2] / blob[2:]).unlink()
    with raises(JournalError, wording):
        shadow.restore(snapshot)
    assert picture(root) == before


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
    snapshot = ShadowRepository(root, tmp_path / "shadow.git").snapshot().id
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
    snapshot = shadow.snapshot().id
    shutil.rmtree(root / "src")
    shadow.restore(snapshot)
    assert picture(root) == before


@pytest.mark.parametrize("case", ["--batch", "--batch-check"])
@pytest.mark.parametrize("then", ["exit 5", "exit 0"])
def test_a_failing_git_restores_nothing(case: str, then: str, root: Path, tmp_path: Path, wording: Wording) -> None:
    """The tree is as it was, also where folders had to be made accessible to be looked at."""
    snapshot = ShadowRepository(root, tmp_path / "shadow.git").snapshot().id
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
    snapshot = ShadowRepository(root, git_dir).snapshot().id
    (git_dir / "objects" / "ab").mkdir(exist_ok=True)
    left = ("index.lock", "config.lock", "objects/pack/tmp_pack_x", "objects/ab/tmp_obj_x", "fast_import_crash_1")
    for name in left:
        (git_dir / name).write_text("half")
    assert ShadowRepository(root, git_dir).snapshot().id == snapshot
    assert not [name for name in left if (git_dir / name).exists()]


def test_the_user_s_settings_change_nothing(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither configuration nor environment: filters, hooks, ignored names, another index or object folder."""
    settings = tmp_path / "config"
    settings.write_text(
        "[core]\n autocrlf = true\n excludesFile = /dev/null\n"
        '[filter "lfs"]\n clean = false\n smudge = false\n required = true\n'
        f"[init]\n defaultObjectFormat = sha256\n templateDir = {tmp_path}\n"
    )
    expected = ShadowRepository(root, tmp_path / "plain.git").snapshot().id
    counted = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.autocrlf", "GIT_CONFIG_VALUE_0": "true"}
    places = {"DIR": "theirs", "INDEX_FILE": "their-index", "OBJECT_DIRECTORY": "their-objects", "WORK_TREE": ""}
    counted |= {f"GIT_{name}": str(tmp_path / place) for name, place in places.items()}
    for name, value in {**counted, "GIT_CONFIG_GLOBAL": str(settings), "GIT_DEFAULT_HASH": "sha256"}.items():
        monkeypatch.setenv(name, value)
    before = picture(root)
    shadow = ShadowRepository(root, tmp_path / "shadow.git")
    assert shadow.snapshot().id == expected
    shutil.rmtree(root / "src")
    (root / "mixed.txt").unlink()
    shadow.restore(expected)
    assert picture(root) == before
    assert not [name for name in ("theirs", "their-index", "their-objects") if (tmp_path / name).exists()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with one of everything."""
    (tmp_path / "tree").mkdir()
    return fill(tmp_path / "tree")


@pytest.fixture
def shadow(root: Path, tmp_path: Path) -> ShadowRepository:
    """A shadow of it."""
    return ShadowRepository(root, tmp_path / "shadow.git")
