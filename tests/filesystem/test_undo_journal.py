"""What an undo journal keeps, and for how long."""

from __future__ import annotations

import gc
import weakref

import pytest

from handrail.errors import SnapshotError
from handrail.filesystem.memory import FOLDER, NO_NODE, MemoryNode
from handrail.filesystem.undo_journal import LOST, SavedTree, UndoJournal
from tests.wording import Wording


def test_nothing_is_recorded_while_nobody_holds_a_snapshot() -> None:
    """Without a snapshot there is nothing to come back to."""
    journal = UndoJournal[MemoryNode]()
    journal.record("a", b"0")
    snapshot = journal.snapshot()
    assert journal.since(snapshot).before == {}


def test_oldest_entry_of_each_path_is_what_to_put_back() -> None:
    """A path that changes twice had only one content at the snapshot."""
    journal = UndoJournal[MemoryNode]()
    first = journal.snapshot()
    journal.record("a", NO_NODE)
    journal.record("a", b"1")
    second = journal.snapshot()
    journal.record("a", b"2")
    journal.record("b", FOLDER)
    assert journal.since(first).before == {"a": NO_NODE, "b": FOLDER}
    assert journal.since(second).before == {"a": b"2", "b": FOLDER}


def test_snapshot_without_a_change_since_the_last_is_the_same() -> None:
    """The same moment is one snapshot; a change, or letting go of it, makes another."""
    journal = UndoJournal[MemoryNode]()
    first = journal.snapshot()
    assert journal.snapshot() is first
    journal.record("a", NO_NODE)
    assert journal.snapshot() is not first


def test_journal_that_has_come_back_has_no_changes() -> None:
    """After going back to the newest snapshot there is nothing left to put back, and it is the newest moment again."""
    journal = UndoJournal[MemoryNode]()
    snapshot = journal.snapshot()
    journal.record("a", NO_NODE)
    journal.has_come_back(snapshot)
    assert journal.since(snapshot).before == {}
    assert journal.snapshot() is snapshot


def test_snapshot_of_another_journal_is_refused(wording: Wording) -> None:
    """Its changes are no changes of this one, even where it looks like the newest."""
    other = UndoJournal[MemoryNode]().snapshot()
    journal = UndoJournal[MemoryNode]()
    kept = journal.snapshot()
    with pytest.raises(SnapshotError) as raised:
        journal.since(other)
    assert str(raised.value) == wording
    assert journal.since(kept).before == {}


def test_dropped_snapshots_are_freed() -> None:
    """A snapshot that nobody holds keeps nothing alive, at once and without the garbage collector."""
    journal = UndoJournal[MemoryNode]()
    gc.disable()
    try:
        snapshot = journal.snapshot()
        span = weakref.ref(snapshot.span)
        journal.record("a", b"1")
        del snapshot
        assert span() is None
    finally:
        gc.enable()


def test_span_that_outlives_its_snapshot_is_no_snapshot() -> None:
    """Only what `snapshot` returned is held; a thread that looks at a span meanwhile keeps nothing in use."""
    journal = UndoJournal[MemoryNode]()
    span = journal.snapshot().span
    journal.record("a", b"1")
    snapshot = journal.snapshot()
    assert snapshot.span is not span
    assert journal.since(snapshot).before == {}


def test_old_snapshot_keeps_later_spans_alive_and_no_earlier_ones() -> None:
    """Each span leads on to the next and none back."""
    journal = UndoJournal[MemoryNode]()
    first = journal.snapshot()
    journal.record("a", b"1")
    second = journal.snapshot()
    journal.record("a", b"2")
    spans = [weakref.ref(first.span), weakref.ref(second.span)]
    del first
    assert spans[0]() is None
    assert spans[1]() is not None
    assert journal.since(second).before == {"a": b"2"}


def test_snapshot_held_for_long_costs_the_paths_not_the_changes() -> None:
    """Of many calls' snapshots that were taken and dropped meanwhile nothing is left but the oldest entries."""
    journal = UndoJournal[MemoryNode]()
    held = journal.snapshot()
    journal.record("a", b"first")
    spans: list[weakref.ref[object]] = []
    for number in range(100):
        dropped = journal.snapshot()
        spans.append(weakref.ref(dropped.span))
        journal.record("a", str(number).encode())
        journal.record(f"b{number % 3}", NO_NODE)
        del dropped
    assert journal.since(held).before == {"a": b"first", "b0": NO_NODE, "b1": NO_NODE, "b2": NO_NODE}
    assert [span() for span in spans] == [None] * 100


def test_snapshots_dropped_from_the_middle_leave_the_others_right() -> None:
    """Which ones are held, and in which order the others went, changes nothing."""
    journal = UndoJournal[MemoryNode]()
    first = journal.snapshot()
    journal.record("a", b"1")
    second = journal.snapshot()
    journal.record("b", b"2")
    third = journal.snapshot()
    journal.record("c", b"3")
    del second
    assert journal.since(first).before == {"a": b"1", "b": b"2", "c": b"3"}
    assert journal.since(third).before == {"c": b"3"}
    del third
    fourth = journal.snapshot()
    assert journal.since(fourth).before == {}
    assert journal.since(first).before == {"a": b"1", "b": b"2", "c": b"3"}


def test_earliest_tree_covers_what_changes_after_it() -> None:
    """What was recorded before it is put back after it; later entries are for moments after it."""
    journal = UndoJournal[MemoryNode]()
    first = journal.snapshot()
    journal.record("a", b"1")
    assert journal.lacks_tree()
    journal.record_tree(SavedTree("tree 1"))
    assert not journal.lacks_tree()
    assert not journal.lacks("b")
    journal.record("b", b"2")
    second = journal.snapshot()
    assert second is not first
    assert journal.lacks("b")
    journal.record("a", b"3")
    journal.record_tree(SavedTree("tree 2"))
    journal.record_tree(SavedTree("tree 3"))
    assert journal.since(first) == ({"a": b"1"}, SavedTree("tree 1"))
    assert journal.since(second) == ({"a": b"3"}, SavedTree("tree 2"))
    del second
    assert journal.since(first) == ({"a": b"1"}, SavedTree("tree 1"))


def test_tree_of_a_dropped_snapshot_serves_the_one_before() -> None:
    """With what was recorded before it, from both."""
    journal = UndoJournal[MemoryNode]()
    first = journal.snapshot()
    journal.record("a", b"1")
    second = journal.snapshot()
    journal.record("a", b"2")
    journal.record("b", b"2")
    journal.record_tree(SavedTree("tree"))
    del second
    assert journal.since(first) == ({"a": b"1", "b": b"2"}, SavedTree("tree"))
    journal.has_come_back(first)
    assert journal.since(first) == ({}, None)
    assert journal.snapshot() is first


def test_tree_does_not_cover_the_git_dir_of_the_root() -> None:
    """It is no part of it, so its entries count all the same; that of a folder below is."""
    journal = UndoJournal[MemoryNode]()
    first = journal.snapshot()
    journal.record_tree(SavedTree("tree"))
    journal.record(".git/config", b"1")
    journal.record("below/.git/config", b"1")
    second = journal.snapshot()
    journal.record(".git", FOLDER)
    journal.record(".git/config", b"2")
    assert journal.since(first) == ({".git": FOLDER, ".git/config": b"1"}, SavedTree("tree"))
    assert journal.since(second) == ({".git": FOLDER, ".git/config": b"2"}, None)


def test_tree_does_not_cover_what_it_leaves_out() -> None:
    """What is below a path that it leaves out is recorded, and what only begins like it is not."""
    journal = UndoJournal[MemoryNode]()
    first = journal.snapshot()
    tree = SavedTree("tree", frozenset({"data", "a/b"}))
    journal.record_tree(tree)
    for path in ("data", "data/x", "database", "a", "a/b/c/d", "a/bc"):
        journal.record(path, b"1")
    assert journal.since(first) == ({"data": b"1", "data/x": b"1", "a/b/c/d": b"1"}, tree)


def test_snapshot_whose_tree_was_lost_is_refused(wording: Wording) -> None:
    """Nothing leads back to it; older ones are not concerned."""
    journal = UndoJournal[MemoryNode]()
    assert not journal.lacks_tree()
    journal.record_tree(SavedTree("nobody holds a snapshot"))
    first = journal.snapshot()
    journal.record_tree(SavedTree("tree"))
    second = journal.snapshot()
    journal.record_tree(LOST)
    with pytest.raises(SnapshotError) as raised:
        journal.since(second)
    assert str(raised.value) == wording
    assert journal.since(first) == ({}, SavedTree("tree"))
