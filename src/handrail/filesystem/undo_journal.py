"""Undo journals: the before-images that a store needs to restore a snapshot.

A snapshot has what changed since it was taken: for each path what was there before the first change. A journal records
each change in all of its snapshots that are referenced, and refers to them weakly: nothing is stored for others. So a
snapshot costs the same whatever the store holds, restoring it costs the paths changed since, and a change costs the
snapshots that are referenced, which are those of the calls that are nested in each other.

A snapshot may also have a *tree*: the state of all files at one moment, for changes that cannot be predicted. The
earliest tree wins: restoring a snapshot means restoring the first tree since then, and after that the images recorded
between the two. What a tree does not include (`SavedTree.covers`) is recorded as usual.

A journal has no lock: its store calls it under the store's lock.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast
from weakref import WeakSet

from handrail.errors import SnapshotError
from handrail.filesystem.paths import GIT_FOLDER, folders_above

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E")
"""A store's record of what was at a path."""


class SavedTree(NamedTuple):
    """The state of all files at one moment, without the paths `left_out` and everything in them."""

    id: str
    left_out: frozenset[str] = frozenset()

    def covers(self, path: str) -> bool:
        """Returns whether restoring it restores what was at a path."""
        if path.partition("/")[0] == GIT_FOLDER:
            return False
        return not self.left_out or self.left_out.isdisjoint((path, *folders_above(path)))


LOST = SavedTree("")
"""The tree of a state that cannot be restored."""


class Since(NamedTuple, Generic[E]):
    """The changes since a snapshot: the `tree` to restore first, if any, and what was at other paths `before`."""

    before: dict[str, E]
    tree: SavedTree | None


class Snapshot(Generic[E]):
    """A state that can be restored for as long as the snapshot is referenced.

    Attributes:
        before: for each path that has changed since then, what was there.
        tree: the first tree that was recorded since then; `LOST` if there was one that was not stored.
    """

    __slots__ = ("__weakref__", "before", "tree")

    def __init__(self) -> None:
        self.before: dict[str, E] = {}
        self.tree: SavedTree | None = None

    def lacks(self, path: str) -> bool:
        """Returns whether restoring the snapshot needs what is at a path now."""
        return path not in self.before and (self.tree is None or not self.tree.covers(path))


class UndoJournal(Generic[E]):
    """The changes of one store since each snapshot that is referenced."""

    __slots__ = ("_newest", "_snapshots")

    def __init__(self) -> None:
        self._snapshots = WeakSet[Snapshot[E]]()
        self._newest: Callable[[], Snapshot[E] | None] = _nothing

    def record(self, path: str, before: E) -> None:
        """Records that a path is about to change; does nothing if no snapshot is referenced."""
        for snapshot in self._snapshots:
            # Only the first change since a snapshot counts: later ones replace what the call itself has written.
            if snapshot.lacks(path):
                snapshot.before[path] = before

    def record_tree(self, tree: SavedTree) -> None:
        """Records that everything may change from now on; the first `tree` since a snapshot counts."""
        for snapshot in self._snapshots:
            snapshot.tree = snapshot.tree or tree

    def lacks(self, path: str) -> bool:
        """Returns whether a snapshot is referenced since which the path has not been recorded."""
        return any(snapshot.lacks(path) for snapshot in self._snapshots)

    def lacks_tree(self) -> bool:
        """Returns whether a snapshot is referenced since which no tree has been recorded."""
        return any(snapshot.tree is None for snapshot in self._snapshots)

    def snapshot(self) -> Snapshot[E]:
        """A snapshot of the present state; the last one if it is still referenced and nothing has changed since."""
        newest = self._newest()
        if newest is not None and not newest.before and newest.tree is None:
            return newest
        snapshot = Snapshot[E]()
        self._snapshots.add(snapshot)
        self._newest = weakref.ref(snapshot)
        return snapshot

    def since(self, snapshot: object) -> Since[E]:
        """The changes to undo to reach a snapshot; `SnapshotError` if it is none of this journal, or is lost."""
        if snapshot not in self._snapshots:
            raise SnapshotError("this was not taken here; a filesystem restores what its `snapshot` returned")
        own = cast("Snapshot[E]", snapshot)
        if own.tree == LOST:
            msg = "this snapshot was taken in a call that was rolled back by its tree, so it cannot be restored"
            raise SnapshotError(msg)
        return Since(dict(own.before), own.tree)

    def record_restore(self, snapshot: object) -> None:
        """Records that the changes of `since` have been undone: there are no changes since."""
        # An older snapshot keeps its images, which other programs cannot have written to.
        newest = self._newest()
        if newest is not None and newest is snapshot:
            newest.before.clear()
            newest.tree = None


def _nothing() -> None:
    """Takes the place of a weak reference to nothing."""
