"""What happens between looking at the disk, reading it and putting it back: changes, refusals, a full disk."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from handrail.errors import FilesystemError
from handrail.filesystem.shadow.objects import UNREAD, file_digest
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.filesystem.shadow.tree import MAX_TREE_DEPTH, DiskTree, TreeScan, scan_tree
from tests.filesystem.shadow_trees import SavedTree, fill
from tests.kit import raises
from tests.wording import Wording


@pytest.fixture
def scratch() -> Generator[Path]:
    """A folder to work in as somebody who is not root, so that modes mean something."""
    folder = Path(tempfile.mkdtemp())
    is_root = not os.geteuid()
    nobody = 65534
    if is_root:
        os.chown(folder, nobody, nobody)
        os.seteuid(nobody)
    try:
        yield folder
    finally:
        if is_root:
            os.seteuid(0)
        shutil.rmtree(folder, onerror=_open_up)


def _open_up(again: Callable[[str], object], path: str, _: object) -> None:
    Path(path).parent.chmod(0o700)
    again(path)


@pytest.fixture
def root(scratch: Path) -> Path:
    """A tree with one of everything, in it."""
    (scratch / "tree").mkdir()
    return fill(scratch / "tree")


@pytest.fixture
def shadow(root: Path, scratch: Path) -> ShadowRepository:
    """A shadow of it."""
    return ShadowRepository(root, scratch / "shadow.git")


@pytest.mark.parametrize("name", ["secret", "src/deep", "."])
def test_what_cannot_be_read_is_named(name: str, root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """No snapshot is taken that could not be restored."""
    mode = (root / name).stat().st_mode
    (root / name).chmod(0)
    with raises(FilesystemError, wording) as caught:
        shadow.snapshot()
    assert caught.value.path == name
    (root / name).chmod(stat.S_IMODE(mode))
    shadow.snapshot()


def test_rights_that_were_taken_are_given_back(root: Path, shadow: ShadowRepository) -> None:
    """A tool that locks files, folders and the root itself keeps nobody from undoing it."""
    saved = SavedTree(root, shadow)
    (root / "secret").chmod(0)
    (root / "src" / "main.py").unlink()
    (root / "src" / "deep" / "deeper" / "new").mkdir()
    (root / "new" / "inside").mkdir(parents=True)
    (root / "new" / "inside" / "file").touch()
    for folder in ("new/inside", "new", "src/deep/deeper", "src/deep", "src", "locked", "."):
        (root / folder).chmod(0)
    saved.restore()


@pytest.mark.parametrize("size", [0, 1, 300_000])
def test_set_id_bits_are_restored_with_the_content(size: int, root: Path, shadow: ShadowRepository) -> None:
    """A process without privileges restores them too: the content is written before the mode is set."""
    (root / "run.sh").write_bytes(b"x" * size)
    (root / "run.sh").chmod(0o4755)
    saved = SavedTree(root, shadow)
    (root / "run.sh").unlink()
    saved.restore()


def make_theirs(root: Path) -> None:
    """Make a folder that another user owns, if this process may do so."""
    (root / "theirs").mkdir(mode=0o755)
    (root / "theirs" / "file").write_text("theirs")
    user = os.geteuid()
    if not os.getuid():
        os.seteuid(0)
        os.chown(root / "theirs", 0, 0)
    (root / "theirs").chmod(0o555)
    os.seteuid(user)


def test_a_lock_of_somebody_else_matters_only_where_something_changed(root: Path, shadow: ShadowRepository) -> None:
    """A folder that cannot be opened up is in nobody's way as long as it can be read."""
    make_theirs(root)
    saved = SavedTree(root, shadow)
    (root / "src" / "main.py").unlink()
    saved.restore()


def test_a_full_disk_is_named_and_restored_later(root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """The tree is between two states, which the message says; to restore again finishes."""
    (root / "big").write_bytes(os.urandom(300_000))
    saved = SavedTree(root, shadow)
    shutil.rmtree(root / "src")
    (root / "big").unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with raises(FilesystemError, wording):
            shadow.restore(saved.snapshot)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    saved.restore()


class Meddling(int):
    """A limit: when the size of a file is compared with it, the file changes, as often as it is to."""

    path: Path
    times: int

    def __lt__(self, other: int) -> bool:
        if self.times and other == self.path.stat().st_size:
            self.times -= 1
            with self.path.open("a") as file:
                file.write("more")
        return super().__lt__(other)


@pytest.mark.parametrize("times", [1, 100])
def test_a_file_that_changes_once_is_read_again(root: Path, scratch: Path, wording: Wording, times: int) -> None:
    """The snapshot is of one moment of each file; if it keeps changing, no snapshot is taken after a few attempts."""
    (root / "secret").write_text("x" * 5_000)
    limit = Meddling(10_000)
    limit.path, limit.times = root / "secret", times
    shadow = ShadowRepository(root, scratch / "shadow.git", max_untracked_bytes=limit)
    if times > 1:
        with raises(FilesystemError, wording):
            shadow.snapshot()
        return
    snapshot = shadow.snapshot().id
    (root / "secret").unlink()
    shadow.restore(snapshot)
    assert (root / "secret").read_text() == f"{'x' * 5_000}more"


def test_folders_nested_too_deep_are_refused(root: Path, shadow: ShadowRepository, wording: Wording) -> None:
    """Before descriptors and stack are used up."""
    inner = root
    for _ in range(MAX_TREE_DEPTH + 1):
        inner /= "d"
    inner.mkdir(parents=True)
    with raises(FilesystemError, wording):
        shadow.snapshot()


@contextmanager
def open_root(root: Path) -> Generator[DiskTree]:
    """The disk below a root."""
    fd = os.open(root, os.O_RDONLY)
    try:
        yield DiskTree(fd)
    finally:
        os.close(fd)


def _write(path: Path) -> None:
    path.write_text("changed")


def _link_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.parent / "b")
    path.parent.symlink_to("b")


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


MEANWHILE: dict[str, Callable[[Path], None]] = {
    "written": _write, "removed": lambda path: path.unlink(), "its folder a link": _link_the_folder, "a link": _link,
}  # fmt: skip


@pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE)
@pytest.mark.parametrize("when", ["before", "while"])
def test_what_changes_meanwhile_is_not_taken(meanwhile: Callable[[Path], None], when: str, scratch: Path) -> None:
    """And no link is followed to read it."""
    path = scratch / "a" / "file"
    path.parent.mkdir()
    path.write_text("content")
    with open_root(scratch) as disk:
        come_upon = TreeScan()
        scan_tree(disk.root, None, come_upon)
        (item,) = come_upon.unread

        def read(source: object, size: int) -> str:
            meanwhile(path)
            return "read"

        if when == "before":
            meanwhile(path)
        found = disk.read(item, file_digest if when == "before" else read)
    moved_while_open = when == "while" and path.exists() and path.read_text() == "content"
    assert found == ("read" if moved_while_open else UNREAD)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_mode_is_not_set_through_a_link(kind: str, scratch: Path) -> None:
    """Not even if a process replaces a file or folder by a link: nothing outside the root is changed."""
    outside, root = scratch / "outside", scratch / "root"
    root.mkdir()
    outside.mkdir(mode=0o500)
    (root / "replaced").symlink_to(outside)
    with open_root(root) as disk:
        if kind == "folder":
            TreeScan(is_restoring=True).open_up(stat.S_IFDIR, "replaced", disk.root)
        else:
            with pytest.raises(FilesystemError) as caught:
                disk.set_mode("replaced", 0o777)
            assert caught.value.path == "replaced"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500
