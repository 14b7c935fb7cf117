"""Undo journals: what a store must put back to come back to a snapshot.

A journal is a chain of *spans*, one for each snapshot, from old to new. A span holds what changed between its snapshot
and the next: for each path what was there before the first change. Going back to a snapshot means putting back, for
each path that any span from there on holds, the oldest entry.

Cost: a snapshot costs the same whatever the store holds, and restoring it costs the changes since.

Who keeps what alive, so that nothing is kept for snapshots that nobody holds::

    snapshot (held by whoever took it) ──> span ──> next span ──> ... ──> newest span
                                                                              ^
    journal - - - - - - - - - - - - - - weakly - - - - - - - - - - - - - - - - ┘

A span lives while its own snapshot or an older one is held. When the newest spans' snapshots have been dropped, the
next snapshot or restore merges them into the one before: a snapshot that is held for long costs the paths that have
changed since, and not each of their changes.

A span may also hold a *tree*: what names the state of everything at one moment, because nobody can tell what is going
to change after it. The earliest tree wins: going back to a snapshot means to put back the first tree since then, and
after that the entries recorded between the two. What a tree does not hold (`is_outside_git_dir`) is recorded as ever.

A journal has no lock: its store calls it under its own.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from handrail.errors import SnapshotError
from handrail.filesystem.paths import is_outside_git_dir

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E")
"""What a store keeps of what was at a path."""


LOST = ""
"""The tree of a moment to which nothing leads back."""


class Since(NamedTuple, Generic[E]):
    """What has changed since a snapshot.

    Attributes:
        before: for each path that changed, what was there; put back after the tree.
        tree: what to put back first; `None` if that is nothing.
    """

    before: dict[str, E]
    tree: str | None


class JournalSpan(Generic[E]):
    """What changed between one snapshot and the next.

    Attributes:
        before: for each path that changed, what was there at the span's snapshot.
        later: the next span.
        earlier: the span before, weakly.
        snapshot: the snapshot that the span begins with, weakly.
        tree: the first tree that was kept since then; `LOST` if there was one that was not kept.
    """

    __slots__ = ("__weakref__", "before", "earlier", "later", "snapshot", "tree")

    def __init__(self, earlier: JournalSpan[E] | None) -> None:
        """Make a span in which nothing has changed."""
        self.before: dict[str, E] = {}
        self.later: JournalSpan[E] | None = None
        self.earlier: Callable[[], JournalSpan[E] | None] = _nothing if earlier is None else weakref.ref(earlier)
        self.snapshot: Callable[[], Snapshot[E] | None] = _nothing
        self.tree: str | None = None

    def lacks(self, path: str) -> bool:
        """Whether what is at a path now is needed to come back to the span's snapshot."""
        return path not in self.before and (self.tree is None or not is_outside_git_dir(path))


class Snapshot(Generic[E]):
    """A moment to come back to, for as long as it is held. It has no use but to be restored.

    Attributes:
        journal: the journal that it was taken from.
        span: where the journal goes on from this moment.
    """

    __slots__ = ("__weakref__", "journal", "span")

    def __init__(self, journal: UndoJournal[E], span: JournalSpan[E]) -> None:
        """Mark the beginning of a span."""
        self.journal = journal
        self.span = span


class UndoJournal(Generic[E]):
    """The changes of one store since the oldest snapshot that somebody holds."""

    __slots__ = ("_newest",)

    def __init__(self) -> None:
        """Make a journal in which nobody holds a snapshot."""
        self._newest: Callable[[], JournalSpan[E] | None] = _nothing

    def record(self, path: str, before: E) -> None:
        """Note that a path is about to change; nothing is noted when nobody holds a snapshot."""
        newest = self._newest()
        if newest is not None and newest.lacks(path):
            newest.before[path] = before

    def record_tree(self, tree: str) -> None:
        """Note that everything may change from now on; nothing is noted where there is a tree since the last snapshot.

        Args:
            tree: names the state that everything has now; `LOST` if that is not kept.
        """
        newest = self._newest()
        if newest is not None and newest.tree is None:
            newest.tree = tree

    def lacks(self, path: str) -> bool:
        """Whether somebody holds a snapshot since which the path has not been recorded."""
        newest = self._newest()
        return newest is not None and newest.lacks(path)

    def lacks_tree(self) -> bool:
        """Whether somebody holds a snapshot since which no tree has been recorded."""
        newest = self._newest()
        return newest is not None and newest.tree is None

    def snapshot(self) -> Snapshot[E]:
        """This moment; the same snapshot as before if that is still held and nothing has changed since."""
        held = self._newest_held()
        if held is not None and not held.span.before and held.span.tree is None:
            return held
        span = JournalSpan[E](None if held is None else held.span)
        if held is not None:
            held.span.later = span
        snapshot = Snapshot(self, span)
        span.snapshot = weakref.ref(snapshot)
        self._newest = weakref.ref(span)
        return snapshot

    def own(self, snapshot: object) -> Snapshot[E]:
        """The snapshot, if it is one.

        Raises:
            SnapshotError: it is none at all. That it may be another journal's is for `before` to find.
        """
        if not isinstance(snapshot, Snapshot):
            raise SnapshotError(f"a filesystem restores what its `snapshot` returned, not {type(snapshot).__name__}")
        return cast("Snapshot[E]", snapshot)  # what it holds follows from whose it is, which `before` looks at

    def since(self, snapshot: Snapshot[E]) -> Since[E]:
        """What to put back to come to the snapshot; whoever puts it back records that as any other change.

        Raises:
            SnapshotError: the snapshot was taken from another journal, or what it needs was lost.
        """
        if snapshot.journal is not self:
            raise SnapshotError("this snapshot was taken from something else; restore what `snapshot` returned here")
        self._newest_held()
        oldest = JournalSpan[E](None)
        span: JournalSpan[E] | None = snapshot.span
        while span is not None:
            _add(span, to=oldest)
            span = span.later
        if oldest.tree == LOST:
            msg = "this snapshot was taken in a call that kept the tree and was undone, so nothing leads back to it"
            raise SnapshotError(msg)
        return Since(oldest.before, oldest.tree)

    def has_come_back(self, snapshot: Snapshot[E]) -> None:
        """Note that everything `since` told has been put back: the changes since are none."""
        if self._newest() is snapshot.span:
            snapshot.span.before.clear()
            snapshot.span.tree = None

    def _newest_held(self) -> Snapshot[E] | None:
        """The newest snapshot that somebody holds; everything that has changed since is merged into its span."""
        span = self._newest()
        held = None
        while span is not None:
            held = span.snapshot()
            if held is not None:
                break
            earlier = span.earlier()
            if earlier is not None:
                _add(span, to=earlier)
                earlier.later = None
            span = earlier
        self._newest = _nothing if span is None else weakref.ref(span)
        return held


def _add(span: JournalSpan[E], *, to: JournalSpan[E]) -> None:
    """Add what was recorded in a span to one before it."""
    for path, before in span.before.items():
        if to.lacks(path):
            to.before[path] = before
    if to.tree is None:
        to.tree = span.tree


def _nothing() -> None:
    """What stands where a weak reference to nothing would."""
