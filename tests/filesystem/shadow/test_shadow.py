"""What snapshots of whole trees keep, put back and leave alone."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from handrail.errors import FilesystemError
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.filesystem.shadow.tree import MAX_TREE_DEPTH
from handrail.testing import FakeClock
from handrail.transaction import Snapshotable
from tests.filesystem.shadow_trees import SavedTree, fill, git, pack, picture, script
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
    "nothing": lambda root: None,
    "an edit": lambda root: (root / "src" / "main.py").write_text("changed"),
    "a file removed": lambda root: (root / "src" / "main.py").unlink(),
    "attributes removed": lambda root: [clear(root / name) for name in (".gitattributes", "mixed.txt")],
    "a mode that git does not know": lambda root: (root / "secret").chmod(0o4640),
    "a folder without any right": lambda root: (root / "src" / "deep").chmod(0),
    "the mode of the root": lambda root: root.chmod(0o711),
    "a root without any right": lambda root: root.chmod(0),
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
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_was_done_to_the_tree_is_undone(
    change: Callable[[Path], object], root: Path, shadow: ShadowRepository
) -> None:
    """Contents, whole modes, links, empty folders and names come back; and so does what was there in between."""
    before = picture(root)
    first = shadow.snapshot()
    assert picture(root) == before
    change(root)
    if change is CHANGES["a root without any right"] and os.geteuid():
        shadow.restore(first)  # nobody but root can look at it, or keep it
    else:
        after = picture(root)
        second = shadow.snapshot()
        shadow.restore(first)
        assert picture(root) == before
        shadow.restore(second)
        assert picture(root) == after
        shadow.restore(first)
    assert picture(root) == before
    assert shadow.snapshot() == first


def test_equal_trees_have_one_id(root: Path, shadow: ShadowRepository, tmp_path: Path) -> None:
    """The id says what is in the tree, and nothing of where, when or by whom it was kept; a shadow is a resource."""
    assert isinstance(shadow, Snapshotable)
    (tmp_path / "twin").mkdir()
    twin = ShadowRepository(fill(tmp_path / "twin"), tmp_path / "twin.git")
    assert shadow.snapshot() == twin.snapshot() == shadow.snapshot()
    (root / "secret").chmod(0o640)
    assert shadow.snapshot() != twin.snapshot()


def test_what_has_not_changed_is_not_read_again(root: Path, tmp_path: Path) -> None:
    """Once files have not been touched for a while, only a change of what the disk says of them has them read."""
    counting = script(tmp_path, "-c", f"echo >> {tmp_path}/started")
    later = FakeClock(datetime.now(UTC) + timedelta(hours=1))
    shadow = ShadowRepository(root, tmp_path / "shadow.git", git=counting, clock=later)
    saved = SavedTree(root, shadow)
    (tmp_path / "started").unlink()
    assert shadow.snapshot() == saved.snapshot
    assert not (tmp_path / "started").exists(), "no git is needed to find that nothing has changed"
    (root / "src" / "main.py").write_text("changed")
    assert shadow.snapshot() != saved.snapshot
    assert len((tmp_path / "started").read_text()) == 2
    saved.restore()


def test_edits_of_equal_size_in_one_moment_are_seen(root: Path, shadow: ShadowRepository) -> None:
    """No edit is so quick that size and times hide it, nor can setting the times back."""
    path = root / "secret"
    status = path.stat()
    ids: list[str] = []
    for number in range(20):
        path.write_text(f"{number:06}")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        ids.append(shadow.snapshot())
    assert len(set(ids)) == 20
    for number, snapshot in enumerate(ids):
        shadow.restore(snapshot)
        assert path.read_text() == f"{number:06}"


@pytest.mark.parametrize("commits", [True, False])
def test_a_repository_below_the_root_is_kept_like_any_folder(
    root: Path, shadow: ShadowRepository, *, commits: bool
) -> None:
    """Its git dir comes back to the byte, whether it has commits or has been removed."""
    inner = root / "src" / "vendored"
    inner.mkdir()
    git(inner, "init")
    (inner / "file").write_text("vendored")
    if commits:
        git(inner, "add", "-A")
        git(inner, "commit", "-m", "first")
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
    snapshot = shadow.snapshot()
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
def test_the_own_repository_does_no_harm(
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
    assert shadow.snapshot() != saved.snapshot


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
