"""The items of a slice whose beginning is in a store."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import StoreUnavailableError
from handrail.session.slices import StoredItems


class Reading:
    """Reads from a list, in entries of some items; notes what was asked for, and fails when it is told to."""

    def __init__(self, items: str = "abc", *, per_entry: int = 1) -> None:
        self.asked: list[tuple[int, int]] = []
        self.fails = False
        self._items = list(items)
        self._per_entry = per_entry

    def __call__(self, start: int, stop: int) -> list[str]:
        self.asked.append((start, stop))
        if self.fails:
            raise StoreUnavailableError("down", store="memory:")
        return self._items[start - start % self._per_entry : stop]


def test_counting_and_adding_read_nothing() -> None:
    """What only grows costs nothing to those who never look."""
    read = Reading()
    items = StoredItems(3, read)
    items.append("d")
    assert (len(items), read.asked, items.is_loaded) == (4, [], False)


def test_the_first_item_reads_all_of_them_once() -> None:
    """A place, or a range from the beginning."""
    read = Reading()
    items = StoredItems(3, read)
    items.append("d")
    assert items[0] == "a"
    assert items[:] == ["a", "b", "c", "d"]
    assert items[1:3] == ["b", "c"]
    assert (read.asked, items.is_loaded, len(items)) == ([(0, 3)], True, 4)


def test_the_end_is_read_alone_and_the_rest_later() -> None:
    """No item is read twice."""
    read = Reading("abcdefgh")
    items = StoredItems(8, read)
    items.append("i")
    assert items[-3:] == ["g", "h", "i"]
    assert (read.asked, items.is_loaded, len(items)) == ([(6, 8)], False, 9)
    assert items[7:] == ["h", "i"]
    assert items[-1] == "i"
    assert items[:] == list("abcdefghi")
    assert (read.asked, items.is_loaded) == ([(6, 8), (0, 6)], True)


def test_what_stands_in_the_same_entry_is_taken_with_it() -> None:
    """The store returns more than was asked for, and it is not read again."""
    read = Reading("abcdefgh", per_entry=4)
    items = StoredItems(8, read)
    assert items[-1] == "h"
    assert items[4:6] == ["e", "f"]
    assert items[3] == "d"
    assert read.asked == [(7, 8), (0, 4)]


def test_going_back_item_by_item_asks_seldom() -> None:
    """Each question reads as many as have been read before."""
    read = Reading("abcdefghijklmnop")
    items = StoredItems(16, read)
    assert [items[place] for place in reversed(range(16))] == list("ponmlkjihgfedcba")
    assert read.asked == [(15, 16), (14, 15), (12, 14), (8, 12), (0, 8)]


def test_threads_that_ask_together_read_once() -> None:
    """One of them reads; the others wait for it, and get the same."""
    for _ in range(20):
        read = Reading("abcdefgh")
        items = StoredItems(8, read)
        together = Barrier(4)
        found: list[list[str]] = []

        def look(items: StoredItems[str] = items, together: Barrier = together, found: list[list[str]] = found) -> None:
            together.wait()
            found.append(items[4:])

        threads = [Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (found, read.asked) == ([list("efgh")] * 4, [(4, 8)])


@given(
    per_entry=st.integers(1, 3),
    acts=st.lists(
        st.tuples(st.sampled_from(["item", "range", "append", "cut", "fail"]), st.integers(-9, 9), st.integers(-9, 9)),
        max_size=12,
    ),
)
def test_they_are_what_a_list_is(per_entry: int, acts: list[tuple[str, int, int]]) -> None:
    """Whatever is read, appended and cut off, and however often the store fails."""
    read = Reading("abcdefg", per_entry=per_entry)
    items, model = StoredItems(7, read), list("abcdefg")
    for act, one, other in acts:
        read.fails = act == "fail"
        if act == "append":
            items.append(str(one))
            model.append(str(one))
        elif act == "cut":
            del items[abs(one) :]
            del model[abs(one) :]
        elif act == "range":
            assert items[one:other] == model[one:other]
        elif act == "item" and -len(model) <= one < len(model):
            assert items[one] == model[one]
        elif act == "item":
            with pytest.raises(IndexError):
                items[one]
        elif act == "fail" and not items.is_loaded:
            with pytest.raises(StoreUnavailableError):
                items[:]
        assert len(items) == len(model)
    read.fails = False
    assert items[:] == model
    asked = [place for start, stop in read.asked for place in range(start, stop)]
    assert all(start < stop for start, stop in read.asked)
    if not any(act in {"cut", "fail"} for act, _, _ in acts):
        assert len(asked) == len(set(asked))
