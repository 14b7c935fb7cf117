"""Layouts against plain lists: where the items of a slice stand, after any changes, in any number of entries."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.session.persistence.loading import entry_ranges
from handrail.session.persistence.protocol import (
    EntryIndex,
    ItemRange,
    SessionEntry,
    dump_indexes,
    find_index,
    load_indexes,
)


@dataclass
class History:
    """A slice as a plain list, with the entries that made it and what its layout has become."""

    items: list[int] = field(default_factory=list[int])
    brought: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    layout: EntryIndex = field(default_factory=lambda: EntryIndex("state"))
    number: int = 0

    def change(self, start: int, removed: int, come: int) -> None:
        """Take some items away, and put others in their place."""
        self.number += 1
        start = min(start, len(self.items))
        removed = min(removed, len(self.items) - start)
        new = [self.number * 100 + place for place in range(come)]
        self.items[start : start + removed] = new
        self.brought[self.number] = new
        entry = SessionEntry(self.number, "", "", "state", "T", 1, start, removed, come, b"")
        self.layout = self.layout.after(entry)

    def something_else(self) -> None:
        """An entry of another slice."""
        self.number += 1

    def read(self) -> list[int]:
        """The items by the layout, as opening a session reads them."""
        items: list[int] = []
        for run in self.layout.runs:
            within = [item for number in range(run.first, run.last + 1) for item in self.brought.get(number, [])]
            assert len(within) == run.total
            items += within[run.offset : run.offset + run.size]
        return items


@given(changes=st.lists(st.none() | st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 4)), max_size=30))
def test_a_layout_says_where_every_item_stands(changes: list[tuple[int, int, int] | None]) -> None:
    """Whatever becomes of the slice, and whatever stands between its entries; also after it was stored and read."""
    history = History()
    for change in changes:
        if change is None:
            history.something_else()
        else:
            history.change(*change)
        assert history.layout.length == len(history.items)
        assert history.read() == history.items
    assert load_indexes(dump_indexes({"T": history.layout})) == {"T": history.layout}


def test_what_only_grew_is_one_run() -> None:
    """A checkpoint of it is small, however many entries there are."""
    history = History()
    for _ in range(100):
        history.change(len(history.items), 0, 2)
        history.something_else()
    assert history.layout.runs == (ItemRange(1, 199, 0, 200, 200),)


def test_a_change_in_the_middle_cuts_a_run_in_two() -> None:
    """What is before it, what has come, and what is behind it."""
    history = History()
    history.change(0, 0, 5)
    history.change(2, 1, 1)
    assert history.layout.runs == (ItemRange(1, 1, 0, 2, 5), ItemRange(2, 2, 0, 1, 1), ItemRange(1, 1, 3, 2, 5))


def test_an_empty_slice_may_become_one_of_the_other_role() -> None:
    """One with items may not: that is for whoever reads it to refuse."""
    empty, full = EntryIndex("state", (), 3), EntryIndex("state", (ItemRange(1, 1, 0, 1, 1),), 1)
    assert find_index({"T": empty}, "T", "log") == EntryIndex("log")
    assert find_index({"T": empty}, "T", "state") is empty
    assert find_index({"T": full}, "T", "log") is full
    assert find_index({}, "T", "log") == EntryIndex("log")


WRONG = {
    "no JSON": b"{",
    "of another format": b'{"format":"handrail.checkpoint/2","slices":{}}',
    "without slices": b'{"format":"handrail.checkpoint/1"}',
    "with a slice of too few fields": b'{"format":"handrail.checkpoint/1","slices":{"T":["state",1]}}',
    "with a slice of another role": b'{"format":"handrail.checkpoint/1","slices":{"T":["event",1,[]]}}',
    "with a number below zero": b'{"format":"handrail.checkpoint/1","slices":{"T":["state",1,[[1,1,-1,1,1]]]}}',
    "with more items than there are": b'{"format":"handrail.checkpoint/1","slices":{"T":["log",1,[[1,1,1,1,1]]]}}',
    "with a run that ends too early": b'{"format":"handrail.checkpoint/1","slices":{"T":["log",2,[[2,1,0,1,1]]]}}',
}


@pytest.mark.parametrize("data", WRONG.values(), ids=list(WRONG))
def test_what_is_no_checkpoint_is_refused(data: bytes) -> None:
    """It is never taken for one that says something else."""
    with pytest.raises(ValueError, match=r"checkpoint|format|Expecting"):
        load_indexes(data)


def test_few_stretches_are_read_for_many_runs() -> None:
    """More than are read one by one are read together, with what stands between them."""
    runs = tuple(ItemRange(number, number, 0, 1, 1) for number in (9, 1, 2, 20, 9))
    assert entry_ranges(runs, most=9) == ((1, 1), (2, 2), (9, 9), (20, 20))
    assert entry_ranges(runs, most=2) == ((1, 20),)
    assert entry_ranges((), most=2) == ()
