"""The whole tree as what is put back: for calls that start other programs, which tell nobody what they change.

A *tree* is a snapshot of a shadow repository (`handrail.filesystem.shadow.repository`), whose git dir lies in the
journal's folder and serves all openings of the root. A call keeps one before it starts a program:

=====================================================  ============================================================
step of `HostFilesystem.keep_tree`                     a crash after it
=====================================================  ============================================================
images that are files of the tree too become copies    nothing has been touched
the tree is kept, and synced                           the same
it is noted in the journal on disk, and synced         the journal puts back the tree, and then the images
the program changes what it likes                      the same
=====================================================  ============================================================

The earliest tree wins. It covers everything that changes after it, be it by a program or by the filesystem itself, so
later images are needed only to come back to moments after it, which the journal in memory does. Images from before it
are put back after it. The root's own `.git` is no part of a tree: its images count, whenever they were taken.

Putting back the tree makes files anew, which nobody has marked as left there by the call; so they are marked then. What
somebody else has written since the tree was kept cannot be told from what the program has written, and goes.
"""

from __future__ import annotations

from handrail.errors import JournalError, SnapshotError
from handrail.filesystem.journal.before_images import Images, mark_of
from handrail.filesystem.journal.journal_file import DiskJournal
from handrail.filesystem.paths import ROOT
from handrail.filesystem.root import Root
from handrail.filesystem.shadow.repository import ShadowRepository
from handrail.filesystem.shadow.tree import is_kept

GIT_DIR = "tree.git"
"""The name in the journal's folder of the git dir that holds the trees."""


class WholeTree:
    """Keeps and puts back the tree below a root.

    Attributes:
        root: the tree.
        images: what was at its paths.
    """

    __slots__ = ("_shadow", "_synced", "images", "root")

    def __init__(self, root: Root, images: Images, shadow: ShadowRepository) -> None:
        """Keep what is below a root in a shadow repository of that root."""
        self.root = root
        self.images = images
        self._shadow = shadow
        self._synced = ""

    def keep(self, *, synced: bool) -> str:
        """The tree as it is now; `synced` if it is to outlive a power failure.

        Raises:
            FilesystemError: it cannot be kept; see `ShadowRepository.snapshot`.
            OSError: the disk does not do it.
        """
        self.images.separate()
        tree = self._shadow.snapshot()
        if synced and tree != self._synced:
            self.sync()
            self._synced = tree
        return tree

    def put_back(self, tree: str, journal: DiskJournal) -> None:
        """Make the tree what it was, for images to be put back on top; doing it again goes on where it stopped.

        Raises:
            FilesystemError: it cannot be put back; see `ShadowRepository.restore`. A `JournalError` if it is lost.
            OSError: the disk does not do it.
        """
        self.images.separate()
        try:
            self._shadow.restore(tree)
        except SnapshotError as error:
            msg = f"the folder {GIT_DIR!r} in the journal's folder has lost the tree to put back. Put that folder back."
            raise JournalError(msg, path=ROOT) from error
        changed = dict.fromkeys([*journal.written.images, *journal.written.marks])
        journal.mark([(path, mark_of(self.root.look(path))) for path in changed if is_kept(path)])

    def sync(self) -> None:
        """Have all that a program may have written outlive a power failure."""
        self.images.disk.sync_all()
