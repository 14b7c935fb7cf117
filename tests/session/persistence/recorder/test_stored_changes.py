"""What a call has done to a slice, found by comparing."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from handrail.session.persistence.recorder import SliceDifference, order_differences, slice_difference
from handrail.session.slices import SliceOwner, StoredItems, Version
from tests.session.samples import NOTES, A, Add, B, C, Note

OWNER = SliceOwner("s")
notes = st.lists(st.sampled_from(NOTES), max_size=8)


def version(items: Sequence[Note]) -> Version[Note]:
    """A slice of these items."""
    return Version(OWNER, list(items), len(items))


@given(before=notes, after=notes)
def test_a_difference_makes_the_one_of_the_other(before: list[Note], after: list[Note]) -> None:
    """And there is none between what is the same."""
    found = slice_difference(version(before), version(after))
    assert (found is None) == (before == after)
    if found is not None:
        before[found.start : found.start + found.removed_count] = found.items
    assert before == after


@given(items=notes, first=st.integers(0, 8), second=st.integers(0, 8))
def test_versions_of_one_list_differ_in_their_ends(items: list[Note], first: int, second: int) -> None:
    """Nothing is compared: the list has only grown between the two."""
    first, second = min(first, len(items)), min(second, len(items))
    found = slice_difference(Version(OWNER, items, first), Version(OWNER, items, second))
    if first == second:
        assert found is None
    else:
        shorter = min(first, second)
        assert found is not None
        assert (found.start, found.removed_count, [*found.items]) == (shorter, first - shorter, items[shorter:second])


def test_what_nobody_has_read_is_not_read_to_compare() -> None:
    """It is replaced as a whole."""

    def load(_start: int, _stop: int) -> list[Note]:
        raise AssertionError("it was read")

    unread: StoredItems[Note] = StoredItems(3, load)
    assert slice_difference(Version(OWNER, unread, 3), version([A])) == SliceDifference(0, 3, [A])
    unread.append(B)
    assert slice_difference(Version(OWNER, unread, 3), Version(OWNER, unread, 4)) == SliceDifference(3, 0, [B])


def test_what_has_been_read_is_compared() -> None:
    """Then the change is as small as it is."""
    read: StoredItems[Note] = StoredItems(2, lambda start, stop: [A, B][start:stop])
    assert read[0] is A
    assert slice_difference(Version(OWNER, read, 2), version([A, C])) == SliceDifference(1, 1, [C])


def test_events_stand_after_the_changes_in_the_order_in_which_they_were_taken_in() -> None:
    """Those that reducers took for themselves; others are items of the slice that has kept them."""
    one, other = Add(1), Add(2)
    kept = SliceDifference(4, 0, [A, B, C])
    assert list(order_differences([A, one, B, other], {Note: kept, Add: None})) == [
        (Note, kept),
        (Add, SliceDifference(0, 0, (one,), "event")),
        (Add, SliceDifference(0, 0, (other,), "event")),
    ]


def test_an_event_that_its_slice_has_not_kept_is_told_for_itself() -> None:
    """It was cleared away, or something else has come in its place, which may be equal."""
    equal = Note(A.text)
    for change in (SliceDifference(0, 2, [equal]), SliceDifference(0, 0, [B])):
        assert list(order_differences([A], {Note: change})) == [
            (Note, change),
            (Note, SliceDifference(0, 0, (A,), "event")),
        ]
