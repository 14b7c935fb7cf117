"""Snapshots of whole trees on disk, for tools that run other programs in them.

A journal records only changes that are announced to it; a program does not announce its changes. So the whole tree is
scanned before and, if the call fails, after, and differences are restored. File contents are stored as objects in a
folder of their own: two snapshots share what they have in common.

Restored exactly: file contents, the whole mode of files and folders (the root's too), links, empty folders, names that
are not UTF-8. `.gitattributes` is a file like any other, and so is the `.git` of a repository somewhere below the root.

Neither saved nor changed: the root's own `.git`; files that git ignores (`handrail.filesystem.shadow.tree`); the files
of databases that this process has open; sockets, fifos and devices, of which new ones are removed. Not restored:
owners, times, extended attributes and hard links.

A snapshot reads each file's status, and the files that have changed since the last one; the first snapshot of an object
reads the whole tree. Snapshots are never deleted: to free the space, remove that folder while it is not in use.

A restore determines everything that the snapshot needs, and checks that it exists, before anything is changed. Then, in
this order: superfluous entries are removed, folders are made, files and links are made, modes are set, inner ones
first. If the process dies in between, restoring the same snapshot does the rest. Of the present state only files of a
path and a size that the snapshot has too are read; what a program has added is removed unread.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Final, cast

from handrail.clock import SYSTEM_CLOCK, Clock
from handrail.errors import FilesystemError, SnapshotError
from handrail.filesystem.paths import ROOT, join
from handrail.filesystem.shadow.differences import TreeDifference, compare_trees, revert_tree
from handrail.filesystem.shadow.objects import (
    UNREAD,
    ObjectStore,
    TreeEntry,
    decode_tree,
    file_digest,
    objects_missing,
)
from handrail.filesystem.shadow.tree import (
    NO_NAMES,
    UNSETTLED,
    DiskTree,
    Folder,
    FolderRules,
    TreeFile,
    TreeScan,
    UnreadFile,
    disk_at,
    identify,
    names_by_folder,
    scan_tree,
)
from handrail.filesystem.undo_journal import SavedTree
from handrail.process import protected_paths
from handrail.transaction.changes import MOST_COMPARED_BYTES, FileContent

_ATTEMPTS = 3
_UNSETTLED_NS = 2_000_000_000  # the coarsest clock of a usual filesystem, FAT's

MAX_UNTRACKED_BYTES: Final = 100 * 1024 * 1024
"""The largest file that is saved unless another limit is given."""


class ShadowRepository:
    """Snapshots of the tree at `root`, stored in `git_dir`; for one thread at a time, which holds the journal's folder.

    Args:
        root: the folder whose tree is saved, without links.
        git_dir: a folder of its own, outside the tree; it is made when it is first needed.
        max_untracked_bytes: the size above which a file is refused, unless git ignores it; `None` for any size.
        clock: its time of day decides which files were changed so recently that they must be read again. It may differ
            from the clock that stamps the files by less than two seconds.
    """

    def __init__(
        self,
        root: Path,
        git_dir: Path,
        *,
        max_untracked_bytes: int | None = MAX_UNTRACKED_BYTES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.root: Path = root
        self._max_untracked_bytes = max_untracked_bytes
        self._clock = clock
        self._objects = ObjectStore(git_dir)
        self._last_scan: Folder | None = None
        self._left_out = NO_NAMES
        self._newest = UNREAD

    def snapshot(self, left_out: frozenset[str] = NO_NAMES) -> SavedTree:
        """Saves the tree as it is, without the paths `left_out`: the same id for the same tree.

        Raises:
            RootMissingError: there is no tree.
            FilesystemError: files are too large (all are named), cannot be read or keep changing; or they cannot be
                stored. No snapshot has been taken then, and the tree is as it was.
        """
        self._objects.prepare()
        with disk_at(self.root, TreeScan()) as disk:
            folder, left_out = self._store_tree(disk, left_out)
            if (folder, left_out) != (self._last_scan, self._left_out):
                newest = self._store_root(folder, left_out)
                # Only now: the next scan relies on everything that `_last_scan` names being stored.
                self._last_scan, self._left_out, self._newest = folder, left_out, newest
            return SavedTree(self._newest, left_out)

    def restore(self, snapshot: str) -> frozenset[str]:
        """Restores the tree to a snapshot, by its id, also of an earlier process; returns the paths that it leaves out.

        Raises:
            SnapshotError: it is not a snapshot of this repository.
            JournalError: something that the snapshot needs has been lost.
            RootMissingError: there is no tree.
            FilesystemError: the disk fails. The message begins with `cannot restore` if the tree is between
                the two states, and restoring again continues; after any other error the tree is as it was, but for
                folders that were made accessible.
        """
        objects = self._objects
        target, left_out = read_snapshot(objects, snapshot)
        apart = left_out.union(protected_paths(self.root))
        scan = TreeScan(is_restoring=True, left_out=names_by_folder(apart))
        with disk_at(self.root, scan) as disk:
            present = scan_tree(disk.root, self._last_scan, scan)
            identify(present)
            steps = CheckoutPlan()
            _plan(objects, ROOT, target, present, steps)
            # Before the first change: a restore that stops half way for a lost object could never be completed.
            compare_contents(steps, objects, disk)
            apply_checkout(steps, objects, disk)
        return left_out

    def compare(self, before: str, after: str) -> dict[str, TreeDifference]:
        """The entries that differ between two snapshots, by path, without what the second one leaves out.

        Raises:
            SnapshotError: one of them is not a snapshot of this repository.
            JournalError: something of a snapshot has been lost.
        """
        objects, differences = self._objects, dict[str, TreeDifference]()
        (old, _), (new, left_out) = read_snapshot(objects, before), read_snapshot(objects, after)
        compare_trees(objects, ROOT, TreeDifference(old, new), left_out, differences)
        return differences

    def revert(self, before: str, after: str, present: str) -> str:
        """Stores what a snapshot would be without the changes between two others; returns its id.

        Raises:
            PathConflictError: what has been changed is not as the second one left it.
            SnapshotError: one of them is not a snapshot of this repository.
            JournalError: something of a snapshot has been lost.
        """
        objects = self._objects
        (old, _), (new, left_out) = read_snapshot(objects, before), read_snapshot(objects, after)
        now, apart = read_snapshot(objects, present)
        root = revert_tree(objects, ROOT, TreeDifference(old, new), now, left_out)
        # The root of a snapshot is a folder.
        return self._store_root(cast("Folder", root), apart)

    def content(self, blob_id: str) -> FileContent:
        """The content of a file or the target of a link, by its id; the size of one that is too long to be compared."""
        size = self._objects.size(blob_id) or 0
        return f"{size:,} bytes" if size > MOST_COMPARED_BYTES else b"".join(self._objects.blob(blob_id))

    def _store_root(self, folder: Folder, left_out: frozenset[str]) -> str:
        above = Folder(0, folders={ABOVE: folder})
        if left_out:
            content = b"".join(os.fsencode(path) + b"\0" for path in sorted(left_out))
            blob_id = self._objects.store_blob(BytesIO(content), len(content))
            above.leaves[LEFT_OUT] = TreeFile(stat.S_IFREG, blob_id, UNSETTLED)
        for tree_id, tree in identify(above):
            if not self._objects.has(tree_id):
                self._objects.store(tree_id, b"tree", len(tree), (tree,))
        return above.id

    def _store_tree(self, disk: DiskTree, left_out: frozenset[str]) -> tuple[Folder, frozenset[str]]:
        changing: list[str] = []
        for _ in range(_ATTEMPTS):
            # Read before the scan, so that what is written during it counts as recent.
            settled_before = int(self._clock.now().timestamp() * 1e9) - _UNSETTLED_NS
            apart = left_out.union(protected_paths(self.root))
            scan = TreeScan(left_out=names_by_folder(apart), rules=FolderRules(disk.root))
            folder = scan_tree(disk.root, self._last_scan, scan)
            changing = self._store_contents(disk, scan.unread, settled_before)
            if not changing:
                return folder, apart.union(scan.ignored)
        msg = f"{changing[0]!r} keeps changing while it is read; stop what writes to it, then try again"
        raise FilesystemError(msg, path=changing[0])

    def _store_contents(self, disk: DiskTree, unread: Sequence[UnreadFile], settled_before: int) -> list[str]:
        self._refuse_large(unread)
        for item in unread:
            item.record_id(disk.read(item, self._objects.store_blob), settled_before=settled_before)
        return [item.path for item in unread if item.leaf.id == UNREAD]

    def _refuse_large(self, unread: Iterable[UnreadFile]) -> None:
        limit = self._max_untracked_bytes
        too_large = sorted(item.path for item in unread if limit is not None and item.leaf.signature[0] > limit)
        if too_large:
            msg = (
                f"files of more than {limit:,} bytes are not saved: "
                f"{', '.join(map(repr, too_large))}. Name them in .gitignore, move them out of the tree, or raise "
                "max_untracked_bytes."
            )
            raise FilesystemError(msg, path=too_large[0])


ABOVE = "root"
"""The name of the root in the tree object of a snapshot, so that its mode is stored too."""

LEFT_OUT = "left-out"
"""The name there of the paths that the snapshot leaves out, if there are any."""

_ID = re.compile("[0-9a-f]{40}")

_MADE = frozenset({stat.S_IFREG, stat.S_IFLNK})
"""The kinds of leaves that a restore can make."""

_EMPTY = Folder(0)


@dataclass(slots=True)
class CheckoutPlan:
    """The steps of a restore, in order; folders come before what they hold.

    `surplus` is removed. `unread` are the files to read to know whether to make them, each with the entry to be there.
    """

    surplus: list[str] = field(default_factory=list[str])
    folders: list[str] = field(default_factory=list[str])
    leaves: list[tuple[str, TreeEntry]] = field(default_factory=list[tuple[str, TreeEntry]])
    modes: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    unread: list[tuple[UnreadFile, TreeEntry]] = field(default_factory=list[tuple[UnreadFile, TreeEntry]])


def read_snapshot(objects: ObjectStore, snapshot: str) -> tuple[TreeEntry, frozenset[str]]:
    """The root of a snapshot, and the paths that it leaves out.

    `SnapshotError` if it is not one of this repository, `JournalError` if it has losses.
    """
    # Only a whole id: it is the path of an object.
    content = objects.tree(snapshot) if _ID.fullmatch(snapshot) else None
    entries = {entry.name: entry for entry in decode_tree(content or b"")}
    if ABOVE not in entries or not entries.keys() <= {ABOVE, LEFT_OUT}:
        msg = f"{snapshot!r} is not a snapshot of this shadow repository; restore what its `snapshot` returned"
        raise SnapshotError(msg)
    paths = b"".join(objects.blob(entries[LEFT_OUT].id)) if LEFT_OUT in entries else b""
    return entries[ABOVE], frozenset(os.fsdecode(path) for path in paths.split(b"\0") if path)


def compare_contents(steps: CheckoutPlan, objects: ObjectStore, disk: DiskTree) -> None:
    """Reads the files that may have the right content, and plans for others."""
    for item, entry in steps.unread:
        if not _holds(item, entry, objects.size(entry.id), disk):
            steps.leaves.append((item.path, entry))
        elif item.leaf.mode != entry.mode:
            steps.modes.append((item.path, entry.mode))
    missing = [entry.id for _, entry in steps.leaves if not objects.has(entry.id)]
    if missing:
        raise objects_missing(missing)


def _holds(item: UnreadFile, entry: TreeEntry, size: int | None, disk: DiskTree) -> bool:
    try:
        return size in {None, item.leaf.signature[0]} and disk.read(item, file_digest) == entry.id
    except FilesystemError:  # what cannot be read is replaced
        return False


def apply_checkout(steps: CheckoutPlan, objects: ObjectStore, disk: DiskTree) -> None:
    """Makes the changes of a plan; what cannot be removed does not keep the rest from being restored."""
    failures: list[FilesystemError] = []
    for path in steps.surplus:
        try:
            disk.remove(path)
        except FilesystemError as error:
            failures.append(error)
    _make(steps, objects, disk)
    if failures:
        more = f" (and {len(failures) - 1} more)" if failures[1:] else ""
        raise FilesystemError(f"{failures[0]}{more}", path=failures[0].path) from failures[0]


def _make(steps: CheckoutPlan, objects: ObjectStore, disk: DiskTree) -> None:
    for path in steps.folders:
        disk.make_folder(path)
    for path, leaf in steps.leaves:
        if stat.S_ISLNK(leaf.mode):
            disk.make_link(path, b"".join(objects.blob(leaf.id)))
        else:
            disk.make_file(path, leaf.mode, objects.blob(leaf.id))
    # Inner ones first: the mode of a folder may deny access to what it holds.
    for path, mode in reversed(steps.modes):
        disk.set_mode(path, mode)


def _plan(objects: ObjectStore, path: str, target: TreeEntry, present: Folder | None, steps: CheckoutPlan) -> None:
    if present is None:
        steps.folders.append(path)
        present = Folder(stat.S_IFDIR | stat.S_IRWXU)
    if present.mode != target.mode:
        steps.modes.append((path, target.mode))
    # After the mode, which is stored in the folder above and is not part of the id.
    if present.id == target.id:
        return
    if (content := objects.tree(target.id)) is None:
        raise objects_missing([target.id])
    entries = list(decode_tree(content))
    names = {entry.name for entry in entries}
    # What is of another kind than wanted is not in here: making the new one removes it.
    surplus = [name for name in (*present.leaves, *present.folders) if name not in names]
    # A folder in which a database was opened since stays.
    steps.surplus += [join(path, name) for name in surplus if not _holds_apart(present.folders.get(name, _EMPTY))]
    for entry in entries:
        if entry.name in present.apart:
            continue
        inner = join(path, entry.name)
        if stat.S_ISDIR(entry.mode):
            _plan(objects, inner, entry, present.folders.get(entry.name), steps)
            continue
        _plan_leaf(inner, entry, present, steps)


def _holds_apart(folder: Folder) -> bool:
    waiting = [folder]  # a program may have nested folders deeper than functions may call each other
    while waiting:
        inner = waiting.pop()
        if inner.apart:
            return True
        waiting += inner.folders.values()
    return False


def _plan_leaf(path: str, target: TreeEntry, present: Folder, steps: CheckoutPlan) -> None:
    leaf = present.leaves.get(target.name)
    if leaf is not None and stat.S_IFMT(leaf.mode) == stat.S_IFMT(target.mode):
        if leaf.id == UNREAD:
            steps.unread.append((UnreadFile(path, present, target.name), target))
            return
        if leaf.id == target.id:
            if leaf.mode != target.mode:
                steps.modes.append((path, target.mode))
            return
    if stat.S_IFMT(target.mode) in _MADE:
        steps.leaves.append((path, target))
    elif leaf is not None or target.name in present.folders:
        # A socket or fifo is of use only to the processes that have opened it, and a device is made by the system.
        steps.surplus.append(path)
