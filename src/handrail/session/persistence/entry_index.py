"""Where the items of a slice stand among the entries of its session, and reading them, from the end of the slice on.

A slice that was appended to a thousand times is one *run*: the items of all its entries from the first to the last. A
change in the middle cuts a run in two and puts a run of its own between the halves. A layout is small, however many
items it counts.

Reading
    A run says between which entries
    its items stand and how many these are, but not in which of the entries an item stands. So the whole of a run is
    read by the numbers of its entries, and the end of a run by asking the store for its newest entries, until they have
    brought enough. What is left to be read is then the same run without them.

    Each entry says at which place in the slice it has put its items, so the entries of a run fit together, and the last
    of them is the one that the run names. A missing one is noticed although the entries before it are not read.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

from pydantic_core import from_json

from handrail.errors import StoreCorruptError, UnknownTypeError
from handrail.session.persistence.protocol import EntryPosition, SessionEntry, SessionStore
from handrail.session.persistence.stored_types import StoredType

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


_MOST_QUERIES = 16
"""In how many stretches the items of a slice are read, if they are scattered over many."""

_MOST_AT_ONCE = 1000
"""How many entries are asked for at once when the end of a run is read."""


class ItemReader:
    """Reads the items of a slice as its store had them when the session was opened; for one `StoredItems`.

    Args:
        store: where the session is kept.
        session_id: the session.
        layout: where the items stand.
        stored: how values of their type are stored.
    """

    __slots__ = ("_begun", "_runs", "_session_id", "_store", "_stored")

    def __init__(self, store: SessionStore, session_id: str, layout: EntryIndex, stored: StoredType) -> None:
        self._store = store
        self._session_id = session_id
        self._stored = stored
        self._runs = layout.runs  # of the items that have not been read
        self._begun: tuple[ItemRange, int] | None = None  # of which the end was read: its rest, and where that ends

    def __call__(self, start: int, stop: int) -> list[Any]:
        """The items from `start` up to `stop`, and those before them that stand in the same entries.

        Items from `stop` on are not asked for any more; they were read, or were cut off.

        Raises:
            StoreCorruptError: they cannot be read.
            UnknownTypeError: they do not fit their class.
            StoreUnavailableError: the store does not answer. The next call reads them.
        """
        runs = runs_between(self._runs, 0, stop)
        before, position = 0, 0
        while before < len(runs) and position + runs[before].size <= start:
            position += runs[before].size
            before += 1
        whole = runs[before:]
        left, items, begun = runs[:before], list[Any](), self._begun
        if whole and position < start:  # the first of them is not needed from its beginning
            items, begun = self._end_of(whole[0], position + whole[0].size - start)
            left, whole = (*left, begun[0]) if begun[0].size else left, whole[1:]
        items += self._all_of(whole)
        self._runs, self._begun = left, begun  # last: if the store fails, the next call reads the same
        return items

    def _all_of(self, runs: Sequence[ItemRange]) -> list[Any]:
        """All items of some runs."""
        entries: list[SessionEntry] = []
        for first, last in entry_ranges(tuple(runs), most=_MOST_QUERIES):
            found = self._store.entries(self._session_id, after=first - 1, until=last, type_name=self._stored.name)
            entries.extend(entry for entry in found if entry.role != "event")
        numbers = [entry.number for entry in entries]
        read: dict[int, list[Any]] = {}
        items: list[Any] = []
        for run in runs:
            of_run: list[Any] = []
            # A range may join runs, and hold entries that belong to none of them: each run picks its own.
            for entry in entries[bisect_left(numbers, run.first) : bisect_left(numbers, run.last + 1)]:
                # A change in the middle of an entry leaves two runs of it: it is decoded once.
                if entry.number not in read:
                    read[entry.number] = self._items(entry)
                of_run.extend(read[entry.number])
            if len(of_run) != run.total:
                raise self._too_few(run, len(of_run))
            items.extend(of_run[run.offset : run.offset + run.size])
        return items

    def _end_of(self, run: ItemRange, size: int) -> tuple[list[Any], tuple[ItemRange, int]]:
        """At least the last `size` items of a run; and the run without them, and where in the slice that ends."""
        behind = run.total - run.offset - run.size  # items of its newest entries that are not in the slice any more
        pages: list[list[Any]] = []
        read, last, end = 0, run.last, self._end_before(run)
        while read < size + behind:
            most = min(size + behind - read, _MOST_AT_ONCE)
            entries = self._store.newest_changes(
                self._session_id, self._stored.name, after=run.first - 1, until=last, limit=most
            )
            if not entries or (end is None and entries[-1].number != run.last):
                raise self._too_few(run, read)
            for entry in reversed(entries):
                items = self._items(entry)
                if len(items) != entry.added or end not in {None, entry.start + entry.added}:
                    fault = "its items do not end where those of the next entry of its slice begin"
                    raise corrupt(fault, entry.number, entry.number, self._session_id, self._store)
                pages.append(items)
                read, last, end = read + len(items), entry.number - 1, entry.start
        items = [item for page in reversed(pages) for item in page]
        left = run.total - read
        # Of the first of these entries some items may have been removed from the beginning of the run.
        wanted = items[max(run.offset - left, 0) : len(items) - behind]
        return wanted, (run._replace(last=last, size=run.size - len(wanted), total=left), end or 0)

    def _end_before(self, run: ItemRange) -> int | None:
        """Where in the slice the entries of a run end of which the end was read before; `None` if it was not."""
        begun = self._begun
        is_begun = begun is not None and (begun[0].first, begun[0].last) == (run.first, run.last)
        return begun[1] if begun is not None and is_begun else None

    def _items(self, entry: SessionEntry) -> list[Any]:
        return decoded_items(self._stored, entry, self._session_id, self._store)

    def _too_few(self, run: ItemRange, found: int) -> StoreCorruptError:
        fault = f"hold {found} items where {run.total} are due"
        return corrupt(fault, run.first, run.last, self._session_id, self._store)


def decoded_items(stored: StoredType, entry: SessionEntry, session_id: str, store: SessionStore) -> list[Any]:
    """The items of an entry.

    Raises:
        StoreCorruptError: they cannot be read.
        UnknownTypeError: they do not fit their class.
    """
    try:
        items = stored.load(entry.items, entry.type_version)
    except (ValueError, UnknownTypeError) as error:
        # Valid JSON that does not fit the class is a matter of versions; anything else is damage to the store.
        if isinstance(error, UnknownTypeError) and _is_array(entry.items):
            raise
        fault = f"cannot be read as JSON: {error}"
        raise corrupt(fault, entry.number, entry.number, session_id, store) from error
    return items


def _is_array(data: bytes) -> bool:
    try:
        return isinstance(from_json(data), list)
    except ValueError:
        return False


def corrupt(fault: str, first: int, last: int, session_id: str, store: SessionStore) -> StoreCorruptError:
    """What to raise for entries that cannot be read."""
    entries = f"entry {first}" if first == last else f"entries {first} to {last}"
    return StoreCorruptError(
        f"{entries} of session {session_id!r} in {store.url}: {fault}. Restore the store from a copy.", store=store.url
    )
