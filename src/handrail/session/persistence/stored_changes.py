"""What a call has done to slices, as changes that a store can keep: found by comparing them with what they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from handrail.session.persistence.protocol import Role
from handrail.session.slices import Version
from handrail.session.stored_items import StoredItems


class SliceDifference(NamedTuple):
    """From `start` on, `removed` items have gone, and `items` have come in their place."""

    start: int
    removed: int
    items: Sequence[Any]
    role: Role = "state"


def difference(before: Version[Any] | None, after: Version[Any] | None) -> SliceDifference | None:
    """What has become of a slice, told by the identity of its items; `None` if nothing has.

    What is read of `before` is no more than what has been read already.
    """
    if after is None:  # back to before its first item
        return SliceDifference(0, before.length, ()) if before is not None and before.length else None
    if before is None:
        return SliceDifference(0, 0, after.items[: after.length]) if after.length else None
    if after.items is before.items:
        if after.length < before.length:
            return SliceDifference(after.length, before.length - after.length, ())
        grown = after.items[before.length : after.length]
        return SliceDifference(before.length, 0, grown) if grown else None
    items = after.items[: after.length]
    stored = before.items
    if isinstance(stored, StoredItems) and not stored.is_loaded:
        return SliceDifference(0, before.length, items)
    old = stored[: before.length]
    shorter = min(len(old), len(items))
    start = next((place for place in range(shorter) if old[place] is not items[place]), shorter)
    left = shorter - start
    same_end = next((place for place in range(left) if old[-1 - place] is not items[-1 - place]), left)
    removed, come = len(old) - start - same_end, items[start : len(items) - same_end]
    return SliceDifference(start, removed, come) if removed or come else None


def in_order(
    taken: Sequence[object], differences: Mapping[type[Any], SliceDifference | None]
) -> Iterator[tuple[type[Any], SliceDifference]]:
    """The differences in the order of the events that made them, and between them the events that no slice has kept.

    An event that was appended to its own slice stands where it was taken in; what reducers, seeds and restores have
    made of slices comes after all events.
    """
    told: dict[type[Any], int] = {}
    for event in taken:
        kind = type(event)
        change = differences.get(kind)
        place = told.get(kind, 0)
        if change and not change.removed and place < len(change.items) and change.items[place] is event:
            told[kind] = place + 1
            yield kind, SliceDifference(change.start + place, 0, (event,))
        else:
            yield kind, SliceDifference(0, 0, (event,), "event")
    for kind, change in differences.items():
        place = told.get(kind, 0)
        if change and not place:
            yield kind, change
        elif change and place < len(change.items):
            yield kind, SliceDifference(change.start + place, 0, change.items[place:])
