"""Snapshots of whole trees: what they keep, put back, leave alone and refuse; a git that fails; the user's settings."""

from __future__ import annotations

import errno
import io
import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from handrail.errors import FilesystemError, JournalError, RootMissingError, SnapshotError
from handrail.filesystem.shadow.objects import UNREAD, ObjectStore, object_id
from handrail.filesystem.shadow.repository import ShadowRepository
from tests.filesystem.kit import unchanged
from tests.filesystem.shadow_trees import SavedTree, fill, git, picture
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
    """Its index, objects and references are neither changed nor put back."""
    git(root, "init")
    own = picture(root / ".git")
    snapshot = shadow.snapshot().id
    (root / "src" / "main.py").write_text("changed")
    shadow.restore(snapshot)
    assert picture(root / ".git") == own
    git(root, "commit", "--allow-empty", "-m", "second")
    own = picture(root / ".git")
    shadow.restore(snapshot)
    assert picture(root / ".git") == own


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


def test_what_is_new_is_removed_unread(root: Path, shadow: ShadowRepository) -> None:
    """A file of a terabyte, which would take hours to read."""
    saved = SavedTree(root, shadow)
    (root / "new").touch()
    os.truncate(root / "new", 1 << 40)
    os.truncate(root / "run.sh", 1 << 40)
    (root / "locked" / "inner" / "folders").mkdir(parents=True)
    (root / "locked" / "inner").chmod(0o500)
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
    (root / "big.bin").unlink()
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
    (root / "empty" / "inside" / "4b").mkdir()  # so that there is the empty tree
    shadow.snapshot()
    (root / "new").touch()
    with unchanged(picture, root), raises(SnapshotError, wording):
        shadow.restore(snapshot)


def test_a_snapshot_that_has_lost_a_file_is_refused(root: Path, tmp_path: Path, wording: Wording) -> None:
    """It is found out before anything is changed, but for folders that had to be opened up."""
    shadow = ShadowRepository(root, tmp_path / "shadow.git")
    lost = root / "src" / "main.py"
    git = ["git", "hash-object", "--no-filters", str(lost)]
    blob = subprocess.run(git, capture_output=True, check=True, text=True).stdout.strip()
    snapshot = shadow.snapshot().id
    lost.write_text("changed")
    before = picture(root)
    (tmp_path / "shadow.git" / blob[:2] / blob[2:]).unlink()
    with raises(JournalError, wording):
        shadow.restore(snapshot)
    (root / "locked").chmod(0o550)
    assert picture(root) == before


class Changing(io.BytesIO):
    """A file that becomes shorter each time that it is read from its beginning."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self.truncate(1)
        return super().seek(offset, whence)


def test_file_that_changes_while_it_is_stored_is_unread(tmp_path: Path) -> None:
    """What is stored has its own digest for a name."""
    objects = ObjectStore(tmp_path / "shadow")
    objects.prepare()
    assert objects.store_blob(Changing(b"ab"), 2) == UNREAD
    assert not objects.has(object_id(b"blob", 2, [b"ab"]))


@pytest.mark.parametrize("damage", [b"", b"x", None])
def test_what_is_no_whole_object_is_not_restored(damage: bytes | None, tmp_path: Path) -> None:
    """The content of a file would be wrong."""
    objects, content = ObjectStore(tmp_path / "shadow"), os.urandom(3_000_000)
    objects.prepare()
    blob = objects.store_blob(io.BytesIO(content), len(content))
    assert b"".join(objects.blob(blob)) == content
    assert (objects.size(blob), objects.size(UNREAD), objects.tree(blob)) == (len(content), None, None)
    path = tmp_path / "shadow" / blob[:2] / blob[2:]
    path.write_bytes(path.read_bytes()[:2_000_000] if damage is None else damage)
    with pytest.raises(JournalError):
        list(objects.blob(blob))
    tree = object_id(b"tree", 0, [])
    assert objects.store(tree, b"tree", 0, ())
    with pytest.raises(JournalError):
        objects.blob(tree)


def test_a_tree_that_cannot_be_stored_is_not_taken(root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """The tree is as it was, and the next attempt succeeds."""
    (root / "big").write_bytes(os.urandom(300_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with unchanged(picture, root), raises(FilesystemError, wording):
            shadow.snapshot()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    saved = SavedTree(root, shadow)
    shutil.rmtree(root / "src")
    saved.restore()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with one of everything."""
    (tmp_path / "tree").mkdir()
    return fill(tmp_path / "tree")


@pytest.fixture
def shadow(root: Path, tmp_path: Path) -> ShadowRepository:
    """A shadow of it."""
    return ShadowRepository(root, tmp_path / "shadow.git")
