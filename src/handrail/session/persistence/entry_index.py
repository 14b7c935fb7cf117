"""Where the items of a slice stand among the entries of its session.

A slice that was appended to a thousand times is one *run*: the items of all its entries from the first to the last. A
change in the middle cuts a run in two and puts a run of its own between the halves. A layout is small, however many
items it counts. The items themselves are read when they are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

from handrail.session.persistence.protocol import EntryPosition, SessionEntry

_FORMAT = "handrail.checkpoint/1"


class ItemRange(NamedTuple):
    """Neighbouring items of a slice.

    Attributes:
        first: the number of the first entry that they come from.
        last: the number of the last one. The slice has no other entries between the two.
        offset: how many of the items of these entries come before them.
        size: how many items the run has.
        total: how many items these entries have brought together.
    """

    first: int
    last: int
    offset: int
    size: int
    total: int


class EntryIndex(NamedTuple):
    """Where the items of one slice stand.

    Attributes:
        role: whether the slice is STATE or LOG.
        runs: the runs, in the order of the items.
        last: the number of the newest entry of the slice.
    """

    role: Literal["state", "log"]
    runs: tuple[ItemRange, ...] = ()
    last: int = 0

    @property
    def length(self) -> int:
        """How many items the slice has."""
        runs = self.runs
        return runs[0].size if len(runs) == 1 else sum([run.size for run in runs])

    def after(self, entry: EntryPosition | SessionEntry) -> EntryIndex:
        """The layout once an entry of the slice has changed it."""
        number, added = entry.number, entry.added
        # The fast path: an append, which is nearly every entry, makes the newest run longer.
        if not entry.removed and self.runs and entry.start == self.length:
            newest = self.runs[-1]
            # Only a run that ends with the newest entry of the slice, and of which no item at the end has been removed:
            # a longer run would count the items in between.
            if newest.last == self.last and newest.offset + newest.size == newest.total:
                grown = ItemRange(newest.first, number, newest.offset, newest.size + added, newest.total + added)
                return EntryIndex(self.role, (*self.runs[:-1], grown) if len(self.runs) > 1 else (grown,), number)
        before = runs_between(self.runs, 0, entry.start)
        behind = runs_between(self.runs, entry.start + entry.removed, self.length)
        come = (ItemRange(number, number, 0, added, added),) if added else ()
        return EntryIndex(self.role, (*before, *come, *behind), number)


def runs_between(runs: tuple[ItemRange, ...], start: int, stop: int) -> tuple[ItemRange, ...]:
    """The runs of the items from `start` up to `stop`."""
    return tuple(_between(runs, start, stop))


def _between(runs: tuple[ItemRange, ...], start: int, stop: int) -> Iterator[ItemRange]:
    position = 0
    for run in runs:
        cut = max(start - position, 0)
        end = min(stop - position, run.size)
        if cut < end:
            yield run._replace(offset=run.offset + cut, size=end - cut)
        position += run.size


def index_of(layouts: Mapping[str, EntryIndex], name: str, role: Literal["state", "log"]) -> EntryIndex:
    """The layout of a slice before a change; an empty slice may become one of the other role."""
    layout = layouts.get(name)
    return EntryIndex(role) if layout is None or (layout.role != role and not layout.runs) else layout


def dump_indexes(layouts: Mapping[str, EntryIndex]) -> bytes:
    """The layouts of a session's slices, by the names of their types, as JSON for a checkpoint."""
    slices = {name: [layout.role, layout.last, layout.runs] for name, layout in layouts.items()}
    return json.dumps({"format": _FORMAT, "slices": slices}, separators=(",", ":")).encode()


def load_indexes(data: bytes) -> dict[str, EntryIndex]:
    """What `dump_indexes` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        read: Any = json.loads(data)
        if read["format"] != _FORMAT:
            raise ValueError(f"its format is {read['format']!r}, not {_FORMAT!r}")
        layouts = {str(name): _layout(*fields) for name, fields in read["slices"].items()}
    # A slice with too few or too many fields is a `TypeError` of the calls of `_layout` and `ItemRange`.
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not a checkpoint: {error!r}") from error
    return layouts


def _layout(role: object, last: object, runs: list[list[int]]) -> EntryIndex:
    parsed = tuple(ItemRange(*run) for run in runs)
    numbers = [last, *(number for run in parsed for number in run)]
    # `type(number) is int`, because JSON `true` is a `bool`, which is an `int` in Python.
    if role not in {"state", "log"} or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("it is not a checkpoint: a slice is neither state nor log, or is not described in numbers")
    if not all(run.first <= run.last and run.size and run.offset + run.size <= run.total for run in parsed):
        raise ValueError("it is not a checkpoint: a slice has more items than its entries bring")
    return EntryIndex("log" if role == "log" else "state", parsed, cast("int", last))  # an int: checked above


def entry_ranges(runs: tuple[ItemRange, ...], *, most: int) -> tuple[tuple[int, int], ...]:
    """The stretches of entries that hold the items of some runs, in order; neighbours are joined down to `most`."""
    stretches: list[tuple[int, int]] = []
    for first, last in sorted({(run.first, run.last) for run in runs}):
        # A change in the middle of an entry leaves two runs of it, and if the end of one is read, it ends earlier.
        if stretches and first <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(stretches[-1][1], last))
        else:
            stretches.append((first, last))
    while len(stretches) > most:
        # The two ranges with the fewest entries between them: those entries are read in vain.
        gap = min(pairwise(stretches), key=lambda pair: pair[1][0] - pair[0][1])
        place = stretches.index(gap[0])
        stretches[place : place + 2] = [(gap[0][0], gap[1][1])]
    return tuple(stretches)
