"""The whole tree of a filesystem on disk, saved before a call starts a program.

A call that starts other programs saves the whole tree. A *tree* is a snapshot of a shadow repository
(`handrail.filesystem.shadow.repository`), whose git dir lies in the journal's folder and is used by all openings of the
root. A call saves one before it starts a program:

=====================================================  ============================================================
step of `HostFilesystem.keep_tree`                     a crash after it
=====================================================  ============================================================
images that are files of the tree too become copies    nothing has been touched
the tree is saved, and synced                          the same
what it leaves out, and the root's `.git`, are         the same
recorded (`handrail.filesystem.shadow.watch_record`)
it is recorded in the journal on disk, and synced      the journal restores the tree, and then the images
the program makes changes                              the same
=====================================================  ============================================================

The earliest tree wins. It covers everything that changes after it, by a program or by the filesystem itself, so later
images are needed only to restore later snapshots, which the journal in memory does. Images from before it are restored
after it. The root's own `.git` and what is left out are not part of a tree: their images count, whenever they were
taken.

Restoring the tree makes new files, which are marked as made by the call. What another process has written since the
tree was saved cannot be distinguished from what the program has written, and is removed.
"""

from __future__ import annotations

from handrail.errors import JournalError, SnapshotError
from handrail.filesystem.journal.before_images import BeforeImages, file_identity
from handrail.filesystem.journal.journal_file import JournalFile
from handrail.filesystem.own_git.state import git_dir_state
from handrail.filesystem.paths import ROOT
from handrail.filesystem.root import Root
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.filesystem.shadow.scope import spelled
from handrail.filesystem.shadow.watch import UnrestoredWatch
from handrail.filesystem.shadow.watch_record import WatchRecord
from handrail.filesystem.undo_journal import SavedTree
from handrail.loop_guard import check_blocking

GIT_DIR = "tree.git"
"""The name in the journal's folder of the git dir that holds the trees."""


class WholeTree:
    """Saves and restores the tree below a root.

    Attributes:
        root: the tree.
        images: what was at its paths.
        watches: what is recorded of what a rollback does not restore.
    """

    __slots__ = ("_shadow", "_synced", "_taken", "images", "root", "watches")

    def __init__(self, root: Root, images: BeforeImages, shadow: ShadowRepository) -> None:
        """Save what is below a root in a shadow repository of that root."""
        self.root: Root = root
        self.images: BeforeImages = images
        self.watches: WatchRecord = WatchRecord(images.folder, images.disk)
        self._shadow = shadow
        self._synced = self._taken = ""

    def keep(self, *, synced: bool) -> tuple[SavedTree, UnrestoredWatch]:
        """Save the tree as it is now, and look at what is left out of it; `synced` to fsync it.

        Raises:
            FilesystemError: it cannot be saved; see `ShadowRepository.snapshot`.
            OSError: the disk fails.
        """
        check_blocking("saving the whole tree")
        self.images.separate()
        taken = self._shadow.take()
        self._taken = taken.id
        # Syncing the whole disk is slow, and the same tree has been synced already.
        if synced and taken.id != self._synced:
            self.sync()
            self._synced = taken.id
        self._shadow.save_index(synced=synced)
        root = self.root.path
        return SavedTree(taken.id, spelled(taken.left_out)), UnrestoredWatch(root, taken.entries, git_dir_state(root))

    def save_index(self) -> None:
        """Write the index of the last tree for the next opening."""
        self._shadow.save_index(synced=self._synced == self._taken, always=True)

    def put_back(self, tree: SavedTree, journal: JournalFile) -> frozenset[str]:
        """Restore the tree, before images are restored; a repetition continues where it stopped.

        Returns the paths that are left as they are.

        Raises:
            FilesystemError: it cannot be restored; see `ShadowRepository.restore`. A `JournalError` if it is lost.
            OSError: the disk fails.
        """
        check_blocking("restoring the whole tree")
        self.images.separate()
        try:
            left_out = self._shadow.put_back(tree.id)
        except SnapshotError as error:
            msg = f"the folder {GIT_DIR!r} in the journal's folder has lost the tree to restore; put it back"
            raise JournalError(msg, path=ROOT) from error
        # The restored files are new inodes. If the process dies before they are marked, the next rollback restores the
        # tree again and marks them then.
        changed = dict.fromkeys([*journal.written.images, *journal.written.marks])
        restored = SavedTree(tree.id, spelled(left_out))
        journal.mark([(path, file_identity(self.root.look(path))) for path in changed if restored.covers(path)])
        return restored.left_out

    def sync(self) -> None:
        """Sync everything that a program may have written."""
        self.images.disk.sync_all()
