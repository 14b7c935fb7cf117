"""Snapshots of whole trees on disk, for tools that run other programs in them.

A journal records only changes that are announced to it; a program does not announce its changes. So the whole tree is
scanned before and, if the call fails, after, and differences are restored. File contents are stored as git objects in a
separate git dir: two snapshots share what they have in common, and git's commands can show a snapshot.

Restored exactly: file contents, the whole mode of files and folders (the root's too), links, empty folders, names that
are not UTF-8. Nothing is ignored: `.gitignore` and `.gitattributes` are files like any others, and so is the `.git` of
a repository somewhere below the root.

Not included, neither saved nor changed:

- the root's own `.git`;
- sockets, pipes and devices, but they are removed with a folder that is removed.

Not restored: owners, times, extended attributes and hard links.

Cost: a snapshot reads each file's status, and the files that have changed since the last one; it runs two git
processes, or none if nothing has changed. The first snapshot of an object reads the whole tree. Snapshots are never
deleted: to free the space, remove the git dir while it is not in use.

A call that starts other programs saves the whole tree. A *tree* is a snapshot of a shadow repository
(`handrail.filesystem.shadow.repository`), whose git dir lies in the journal's folder and is used by all openings of the
root. A call saves one before it starts a program:

=====================================================  ============================================================
step of `HostFilesystem.keep_tree`                     a crash after it
=====================================================  ============================================================
images that are files of the tree too become copies    nothing has been touched
the tree is saved, and synced                          the same
it is recorded in the journal on disk, and synced      the journal restores the tree, and then the images
the program makes changes                              the same
=====================================================  ============================================================

The earliest tree wins. It covers everything that changes after it, by a program or by the filesystem itself, so later
images are needed only to restore later snapshots, which the journal in memory does. Images from before it are restored
after it. The root's own `.git` is not part of a tree: its images count, whenever they were taken.

Restoring the tree makes new files, which are marked as made by the call. What another process has written since the
tree was saved cannot be distinguished from what the program has written, and is removed.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import FilesystemBusyError, FilesystemError, JournalError, SnapshotError
from handrail.filesystem.journal.before_images import BeforeImages, file_identity
from handrail.filesystem.journal.journal_file import JournalFile
from handrail.filesystem.paths import ROOT, is_outside_git_dir
from handrail.filesystem.root import Root
from handrail.filesystem.shadow.checkout import (
    ABOVE,
    DiskTree,
    apply_checkout,
    disk_at,
    file_digest,
    plan_checkout,
    wanted_root,
)
from handrail.filesystem.shadow.git import Git
from handrail.filesystem.shadow.tree import UNREAD, Folder, TreeScan, UnreadFile, cannot_snapshot, identify, scan_tree

if sys.platform != "win32":  # pragma: no branch - git dirs are locked with it
    import fcntl

MAX_UNTRACKED_BYTES = 100 * 1024 * 1024
"""The largest file that is saved unless another limit is given."""

_ATTEMPTS = 3
_UNSETTLED_NS = 2_000_000_000  # the coarsest clock of a usual filesystem, FAT's
_FEW = 2  # up to here blobs are stored one by one, because one git for all of them costs as much as three
_LOCK = "handrail-lock"

GIT_DIR = "tree.git"
"""The name in the journal's folder of the git dir that holds the trees."""


class ShadowRepository:
    """Snapshots of the tree at `root`, stored in `git_dir`; a `Snapshotable`. Threads may share it.

    Args:
        root: the folder whose tree is saved.
        git_dir: a folder of its own, outside the tree; it is made when it is first needed.
        max_untracked_bytes: the size above which a file is refused, unless the packs of the user's own repository held
            it when `git_dir` was made; `None` for any size.
        git: the name or path of the git command.
        clock: its time of day decides which files were changed so recently that they must be read again. It may differ
            from the clock that stamps the files by less than two seconds.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        git_dir: str | os.PathLike[str],
        *,
        max_untracked_bytes: int | None = MAX_UNTRACKED_BYTES,
        git: str = "git",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Name the tree and the git dir; neither is accessed yet.

        Raises:
            FilesystemError: the git dir lies in the tree, or the tree in the git dir.
        """
        self.root = Path(root).resolve()
        self.git_dir = Path(git_dir).resolve()
        if self.git_dir.is_relative_to(self.root) or self.root.is_relative_to(self.git_dir):
            msg = f"the git dir {os.fspath(git_dir)!r} and the tree {os.fspath(root)!r} lie in each other; move one out"
            raise FilesystemError(msg, path=ROOT)
        self.max_untracked_bytes = max_untracked_bytes
        self._clock = clock
        self._git = Git(self.git_dir, git)
        self._lock = threading.Lock()
        self._is_prepared = False
        self._known: Folder | None = None
        self._newest = UNREAD

    def snapshot(self) -> str:
        """Save the tree as it is, and return the id of the snapshot: the same id for the same tree.

        Raises:
            RootMissingError: there is no tree.
            FilesystemBusyError: another process uses the git dir at this moment.
            FilesystemError: files are too large (all are named), cannot be read or keep changing; or git is missing or
                fails. No snapshot has been taken then, and the tree is as it was.
        """
        # Without `opened`: taking a snapshot must not change the tree, so a folder that cannot be read is an error.
        with self._alone(), disk_at(self.root, TreeScan()) as disk:
            folder = self._kept(disk)
            if folder is not self._known:
                above = Folder(0, folders={ABOVE: folder})
                self._git.keep_trees(identify(above))
                # Only now: the next scan relies on git having everything that `_known` names.
                self._known, self._newest = folder, above.id
            return self._newest

    def restore(self, snapshot: str, /) -> None:
        """Restore the tree to a snapshot, which another object or process may have taken with this git dir.

        Raises:
            SnapshotError: it is not a snapshot of this repository.
            JournalError: something that the snapshot needs has been lost.
            RootMissingError: there is no tree.
            FilesystemBusyError: another process uses the git dir at this moment.
            FilesystemError: git is missing or fails, or the disk is full or does not allow it. The message begins with
                `cannot restore` if the tree is between the two states; restoring again continues from there.
                After any other error the tree is as it was.
        """
        with self._alone(), self._git.read() as reader:
            wanted = wanted_root(reader, snapshot)
            come_upon = TreeScan(opened=[])
            with disk_at(self.root, come_upon) as disk:
                try:
                    steps = plan_checkout(reader, wanted, self._present(disk, come_upon))
                    # Before the first change: a restore that stops half way for a lost object could never be completed.
                    self._git.refuse_missing(leaf.id for _, leaf in steps.leaves)
                except BaseException as error:
                    # Inner ones first, while the outer ones are still accessible.
                    for path, mode in reversed(come_upon.opened or ()):
                        try:
                            disk.set_mode(path, mode)
                        except FilesystemError as failure:  # it must hide neither the error nor the other modes
                            error.add_note(str(failure))
                    raise
                apply_checkout(steps, reader, disk)

    def _kept(self, disk: DiskTree) -> Folder:
        """The tree as it is, with all file contents stored."""
        changing: list[str] = []
        for _ in range(_ATTEMPTS):
            # Read before the scan, so that what is written during it counts as recent.
            settled_before = int(self._clock.now().timestamp() * 1e9) - _UNSETTLED_NS
            come_upon = TreeScan()
            folder = scan_tree(disk.root, self._known, come_upon)
            changing = self._keep(disk, come_upon.unread, settled_before)
            if not changing:
                return folder
        msg = f"{changing[0]!r} keeps changing while it is read; stop what writes to it, then try again"
        raise FilesystemError(msg, path=changing[0])

    def _keep(self, disk: DiskTree, unread: Sequence[UnreadFile], settled_before: int) -> list[str]:
        """Store what must be read in git; returns the paths of what changed meanwhile."""
        # First the large ones, whose digest needs no space: a refused file must not cost the storing of the others.
        large = [item for item in unread if self._is_large(item)]
        small = [item for item in unread if not self._is_large(item)]
        for item in large:
            item.has_been_read(disk.read(item, file_digest), settled_before=settled_before)
        self._refuse_new(large)
        for item in small:
            # Often only the status has changed, and a digest in this process costs less than storing the content again.
            if item.known_id != UNREAD and disk.read(item, file_digest) == item.known_id:
                item.has_been_read(item.known_id, settled_before=settled_before)
        # Also those whose digest has just differed: they are still unread.
        fresh = [item for item in small if item.leaf.id == UNREAD]
        with self._git.feed() if len(fresh) > _FEW else nullcontext(self._git) as git:
            for item in fresh:
                item.has_been_read(disk.read(item, git.blob), settled_before=settled_before)
        return [item.path for item in unread if item.leaf.id == UNREAD]

    def _is_large(self, item: UnreadFile) -> bool:
        return self.max_untracked_bytes is not None and item.leaf.signature[0] > self.max_untracked_bytes

    def _refuse_new(self, large: Iterable[UnreadFile]) -> None:
        """Refuse large files whose content git does not have already."""
        # What the last scan has read is in git, so git is not asked about it.
        ids = {item.path: item.leaf.id for item in large if item.leaf.id not in {UNREAD, item.known_id}}
        new = self._git.missing(ids.values())
        refused = sorted(path for path, blob_id in ids.items() if blob_id in new)
        if refused:
            msg = (
                f"files of more than {self.max_untracked_bytes:,} bytes are not saved: "
                f"{', '.join(repr(path) for path in refused)}. Move them out of the tree, or raise max_untracked_bytes."
            )
            raise FilesystemError(msg, path=refused[0])

    def _present(self, disk: DiskTree, come_upon: TreeScan) -> Folder:
        """The tree as it is now, with ids; what cannot be read has none, and so always differs."""
        folder = scan_tree(disk.root, self._known, come_upon)
        for item in come_upon.unread:
            with suppress(FilesystemError):
                # Nothing is settled, because no later scan uses this folder as known.
                item.has_been_read(disk.read(item, file_digest), settled_before=0)
        if folder.id == UNREAD:
            identify(folder)
        return folder

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Use the git dir exclusively."""
        # Threads wait for each other here; the lock of the file, which another process may hold, is refused at once.
        with self._lock:
            try:
                self.git_dir.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
                fd = os.open(self.git_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, stat.S_IRUSR | stat.S_IWUSR)
            except OSError as error:
                raise cannot_snapshot("use the git dir", os.fspath(self.git_dir), error) from error
            try:
                _lock(fd)
                if not self._is_prepared:
                    self._git.prepare(self.root)
                self._is_prepared = False  # a failure may leave files behind
                yield
                self._is_prepared = True
            finally:
                os.close(fd)


def _lock(fd: int) -> None:
    """Lock a file until it is closed, at the latest by the end of the process."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        msg = "another process uses the git dir of this shadow repository; give each its own, or try again later"
        raise FilesystemBusyError(msg, path=ROOT) from error


class WholeTree:
    """Saves and restores the tree below a root.

    Attributes:
        root: the tree.
        images: what was at its paths.
    """

    __slots__ = ("_shadow", "_synced", "images", "root")

    def __init__(self, root: Root, images: BeforeImages, shadow: ShadowRepository) -> None:
        """Save what is below a root in a shadow repository of that root."""
        self.root = root
        self.images = images
        self._shadow = shadow
        self._synced = ""

    def keep(self, *, synced: bool) -> str:
        """Save the tree as it is now; `synced` to fsync it.

        Raises:
            FilesystemError: it cannot be saved; see `ShadowRepository.snapshot`.
            OSError: the disk fails.
        """
        self.images.separate()
        tree = self._shadow.snapshot()
        # Syncing the whole disk is slow, and the same tree has been synced already.
        if synced and tree != self._synced:
            self.sync()
            self._synced = tree
        return tree

    def put_back(self, tree: str, journal: JournalFile) -> None:
        """Restore the tree, before images are restored; a repetition continues where it stopped.

        Raises:
            FilesystemError: it cannot be restored; see `ShadowRepository.restore`. A `JournalError` if it is lost.
            OSError: the disk fails.
        """
        self.images.separate()
        try:
            self._shadow.restore(tree)
        except SnapshotError as error:
            msg = f"the folder {GIT_DIR!r} in the journal's folder has lost the tree to restore. Restore that folder."
            raise JournalError(msg, path=ROOT) from error
        # The restored files are new inodes. If the process dies before they are marked, the next rollback restores the
        # tree again and marks them then.
        changed = dict.fromkeys([*journal.written.images, *journal.written.marks])
        journal.mark([(path, file_identity(self.root.look(path))) for path in changed if is_outside_git_dir(path)])

    def sync(self) -> None:
        """Sync everything that a program may have written."""
        self.images.disk.sync_all()
