"""Undo journals: the before-images that a store needs to restore a snapshot.

A journal is a chain of *spans*, one for each snapshot, from old to new. A span holds what changed between its snapshot
and the next: for each path what was there before the first change. Restoring a snapshot means restoring, for each path
that any span from there on holds, the oldest entry. A snapshot costs the same whatever the store holds, and restoring
it costs the changes since.

The references, so that nothing is stored for snapshots that are no longer referenced::

    snapshot (held by its owner) ──> span ──> next span ──> ... ──> newest span
                                                                        ^
    journal - - - - - - - - - - - - weakly - - - - - - - - - - - - - - - ┘

When the newest spans' snapshots have been dropped, the next snapshot or restore merges them into the one before: the
cost of a long-held snapshot is the number of paths changed since, not the number of changes.

A span may also hold a *tree*: the state of all files at one moment, for changes that cannot be predicted. The earliest
tree wins: restoring a snapshot means restoring the first tree since then, and after that the entries recorded between
the two. What a tree does not include (`SavedTree.covers`) is recorded as usual.

A journal has no lock: its store calls it under the store's lock.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

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


class JournalSpan(Generic[E]):
    """The changes between one snapshot and the next; the references to earlier spans and the snapshot are weak.

    Attributes:
        before: for each path that changed, what was there at the span's snapshot.
        tree: the first tree that was recorded since then; `LOST` if there was one that was not stored.
    """

    __slots__ = ("__weakref__", "before", "earlier", "later", "snapshot", "tree")

    def __init__(self, earlier: JournalSpan[E] | None) -> None:
        self.before: dict[str, E] = {}
        self.later: JournalSpan[E] | None = None
        self.earlier: Callable[[], JournalSpan[E] | None] = _nothing if earlier is None else weakref.ref(earlier)
        self.snapshot: Callable[[], Snapshot[E] | None] = _nothing
        self.tree: SavedTree | None = None

    def lacks(self, path: str) -> bool:
        """Returns whether restoring the span's snapshot needs what is at a path now."""
        return path not in self.before and (self.tree is None or not self.tree.covers(path))


class Snapshot(Generic[E]):
    """A state that can be restored for as long as the snapshot is referenced."""

    __slots__ = ("__weakref__", "journal", "span")

    def __init__(self, journal: UndoJournal[E], span: JournalSpan[E]) -> None:
        self.journal: UndoJournal[E] = journal
        self.span: JournalSpan[E] = span


class UndoJournal(Generic[E]):
    """The changes of one store since the oldest snapshot that is referenced."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        self._newest: Callable[[], JournalSpan[E] | None] = _nothing

    def record(self, path: str, before: E) -> None:
        """Records that a path is about to change; does nothing if no snapshot is referenced."""
        newest = self._newest()
        # Only the first change since the snapshot counts: later ones replace what the call itself has written.
        if newest is not None and newest.lacks(path):
            newest.before[path] = before

    def record_tree(self, tree: SavedTree) -> None:
        """Records that everything may change from now on; the first `tree` since a snapshot counts."""
        newest = self._newest()
        if newest is not None and newest.tree is None:
            newest.tree = tree

    def lacks(self, path: str) -> bool:
        """Returns whether a snapshot is referenced since which the path has not been recorded."""
        newest = self._newest()
        return newest is not None and newest.lacks(path)

    def lacks_tree(self) -> bool:
        """Returns whether a snapshot is referenced since which no tree has been recorded."""
        newest = self._newest()
        return newest is not None and newest.tree is None

    def snapshot(self) -> Snapshot[E]:
        """A snapshot of the present state; the last one if it is still referenced and nothing has changed since."""
        last = self._newest_snapshot()
        # Nothing has changed since the last one, so that both are one state and one span serves both.
        if last is not None and not last.span.before and last.span.tree is None:
            return last
        span = JournalSpan[E](None if last is None else last.span)
        if last is not None:
            last.span.later = span
        snapshot = Snapshot(self, span)
        span.snapshot = weakref.ref(snapshot)
        # Weakly: the snapshot holds its span, so that the span goes with the last snapshot that needs it.
        self._newest = weakref.ref(span)
        return snapshot

    def since(self, snapshot: object) -> Since[E]:
        """The changes to undo to reach a snapshot; `SnapshotError` if it is none of this journal, or is lost."""
        own = cast("Snapshot[E]", snapshot)
        if not isinstance(snapshot, Snapshot) or own.journal is not self:
            raise SnapshotError("this was not taken here; a filesystem restores what its `snapshot` returned")
        # First merges the spans whose snapshots are gone, so that the chain from here to the end is complete.
        self._newest_snapshot()
        oldest = JournalSpan[E](None)
        span: JournalSpan[E] | None = own.span
        while span is not None:
            _add(span, to=oldest)
            span = span.later
        if oldest.tree == LOST:
            msg = "this snapshot was taken in a call that was rolled back by its tree, so it cannot be restored"
            raise SnapshotError(msg)
        return Since(oldest.before, oldest.tree)

    def record_restore(self, snapshot: object) -> None:
        """Records that the changes of `since` have been undone: there are no changes since."""
        # Of an older snapshot the restoring itself is recorded in newer spans, which their snapshots need.
        newest = self._newest()
        if newest is not None and newest.snapshot() is snapshot:
            newest.before.clear()
            newest.tree = None

    def _newest_snapshot(self) -> Snapshot[E] | None:
        span = self._newest()
        snapshot = None
        while span is not None:
            # A strong reference from here on, so that no other thread can drop the snapshot while its span is used.
            snapshot = span.snapshot()
            if snapshot is not None:
                break
            earlier = span.earlier()
            # An older span has the older image of a path, which is the one to restore; it wins in `_add`.
            if earlier is not None:
                _add(span, to=earlier)
                earlier.later = None
            span = earlier
        self._newest = _nothing if span is None else weakref.ref(span)
        return snapshot


def _add(span: JournalSpan[E], *, to: JournalSpan[E]) -> None:
    for path, before in span.before.items():
        if to.lacks(path):
            # Not recorded in `to`, so the path had not changed before this span.
            to.before[path] = before
    # After the images: with the tree set, `lacks` would leave out those that were recorded before it.
    if to.tree is None:
        to.tree = span.tree


def _nothing() -> None:
    """Takes the place of a weak reference to nothing."""
