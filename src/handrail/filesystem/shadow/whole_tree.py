"""The whole tree of a filesystem on disk, saved before a call starts a program.

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
after it. The root's own `.git` and what is left out are not part of a tree: their images count, whenever they were
taken.

Restoring the tree makes new files, which are marked as made by the call. What another process has written since the
tree was saved cannot be distinguished from what the program has written, and is removed.
"""

from __future__ import annotations

from handrail.errors import JournalError, SnapshotError
from handrail.filesystem.journal.before_images import BeforeImages, file_identity
from handrail.filesystem.journal.journal_file import JournalFile
from handrail.filesystem.paths import ROOT
from handrail.filesystem.root import Root
from handrail.filesystem.shadow.ignored import spelled
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.filesystem.undo_journal import SavedTree
from handrail.loop_guard import check_blocking

GIT_DIR = "tree.git"
"""The name in the journal's folder of the git dir that holds the trees."""


class WholeTree:
    """Saves and restores the tree below a root.

    Attributes:
        root: the tree.
        images: what was at its paths.
    """

    __slots__ = ("_left_out", "_shadow", "_synced", "images", "root")

    def __init__(self, root: Root, images: BeforeImages, shadow: ShadowRepository) -> None:
        """Save what is below a root in a shadow repository of that root."""
        self.root: Root = root
        self.images: BeforeImages = images
        self._shadow = shadow
        self._synced = ""
        self._left_out: frozenset[str] = frozenset()

    def keep(self, *, synced: bool, is_first: bool) -> SavedTree:
        """Save the tree as it is now; `synced` to fsync it. `is_first` says that the call has saved none yet.

        Raises:
            FilesystemError: it cannot be saved; see `ShadowRepository.snapshot`.
            OSError: the disk fails.
        """
        check_blocking("saving the whole tree")
        self.images.separate()
        # What the first tree of a call leaves out, the later ones do, too: so images are taken of what the first one
        # does not restore, also after a program has changed the rules.
        taken = self._shadow.take(frozenset() if is_first else self._left_out)
        self._left_out = taken.left_out
        # Syncing the whole disk is slow, and the same tree has been synced already.
        if synced and taken.id != self._synced:
            self.sync()
            self._synced = taken.id
        return SavedTree(taken.id, spelled(taken.left_out))

    def put_back(self, tree: SavedTree, journal: JournalFile) -> None:
        """Restore the tree, before images are restored; a repetition continues where it stopped.

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

    def sync(self) -> None:
        """Sync everything that a program may have written."""
        self.images.disk.sync_all()
