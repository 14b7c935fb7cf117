"""The items of a slice whose beginning is in a store."""

from __future__ import annotations

import pytest

from handrail.errors import StoreUnavailableError
from handrail.session.slices import StoredItems


class Loading:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.times = 0
        self.fails = False

    def __call__(self) -> list[str]:
        self.times += 1
        if self.fails:
            raise StoreUnavailableError("down", store="memory:")
        return ["a", "b", "c"]


def test_counting_and_adding_read_nothing() -> None:
    """What only grows costs nothing to those who never look."""
    load = Loading()
    items = StoredItems(3, load)
    items.append("d")
    assert (len(items), load.times, items.is_loaded) == (4, 0, False)


def test_what_was_added_since_is_had_without_reading() -> None:
    """One item, or a range that begins behind what is in the store."""
    load = Loading()
    items = StoredItems(3, load)
    for item in "def":
        items.append(item)
    assert items[3] == "d"
    assert items[4:] == ["e", "f"]
    assert items[3:5] == ["d", "e"]
    del items[5:]
    assert (len(items), load.times) == (5, 0)


def test_the_first_item_reads_all_of_them_once() -> None:
    """A place, a range from the beginning, or a cut into them."""
    load = Loading()
    items = StoredItems(3, load)
    items.append("d")
    assert items[0] == "a"
    assert items[:] == ["a", "b", "c", "d"]
    assert items[1:3] == ["b", "c"]
    assert (load.times, items.is_loaded, len(items)) == (1, True, 4)
    cut = StoredItems(3, load)
    del cut[2:]
    assert cut[:] == ["a", "b"]


def test_a_place_from_the_end_reads_them_once() -> None:
    """However often it is asked for."""
    load = Loading()
    items = StoredItems(3, load)
    assert (items[-1], items[-1], items[-2:]) == ("c", "c", ["b", "c"])
    assert (load.times, len(items)) == (1, 3)


def test_a_store_that_fails_is_asked_again() -> None:
    """Whoever asked is told; nothing is lost."""
    load = Loading()
    items = StoredItems(3, load)
    load.fails = True
    with pytest.raises(StoreUnavailableError):
        items[0]
    load.fails = False
    assert items[0] == "a"
