"""What an undo journal keeps, and for how long."""

from __future__ import annotations

import weakref

from handrail.filesystem.memory import NO_NODE, MemoryNode
from handrail.filesystem.undo_journal import SavedTree, UndoJournal


def test_nothing_is_recorded_while_nobody_holds_a_snapshot() -> None:
    """Without a snapshot there is nothing to come back to."""
    journal = UndoJournal[MemoryNode]()
    journal.record("a", b"0")
    snapshot = journal.snapshot()
    assert journal.since(snapshot).before == {}


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
