"""Slices: their versions, the changes of reducers, items that stay in a store until they are read, and STATE slices.

Versions
    A `Version` is a list and a length: the first `length` items are the slice. Its owner appends in place, which gives
    a version that is one longer; older versions stay as they were. So appending costs O(1), and keeping a version costs
    nothing. Any other change makes a new list. The slices of a session are a mapping from type to `Version` that is
    replaced, never changed. A snapshot is that mapping.

What is read of a store
    A session is opened without reading an item. What has been read is always an end of the slice: asking for an item
    reads that item and those after it. No item is read twice.

What a reader sees
    Readers take no lock: one tuple, replaced atomically, holds the outermost transaction that wrote last, the slices as
    it has left them, and the slices as they were before it, which others see until it has been committed. A reader that
    finds it committed looks again whether the tuple is still the same, because the writer may have replaced it before.

What a rollback costs
    A rollback cuts off what its call has appended, so that the next append grows the list in place. What a handler has
    taken out of its own call, as a snapshot or a fork, may count these items: then the next append copies the list.

A LOG grows with every writer, whatever the outcome of the call, and only `Session.reset` empties it. Its list is never
copied, but for the first item that a fork adds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast, overload

from handrail.errors import ReducerError, SessionUseError, TurnConflictError
from handrail.serde.annotations import subscriptable
from handrail.transaction import Snapshotable, Transaction, current

E = TypeVar("E")
S = TypeVar("S")

T = TypeVar("T")


class StoredItems(Generic[T]):
    """The part of a list that a slice needs. Items are read when one of them is asked for, from there to the end.

    Appending reads nothing. Going back from the end, item by item, reads twice as many with each question to the store.

    Args:
        count: how many items are in the store.
        read: reads those from one place up to another, and maybe some before the first place. If it raises, nothing has
            changed, and the next caller tries again.
    """

    __slots__ = ("_buffer", "_loaded_count", "_lock", "_read")

    def __init__(self, count: int, read: Callable[[int, int], list[T]]) -> None:
        self._read = read
        self._lock = threading.RLock()
        self._loaded_count = 0  # how many items have come from the store
        # How many items at the beginning have not been read, and those after them. In one tuple, which is replaced when
        # items are read: an interrupt leaves all of it or nothing, and the length is known without the lock.
        self._buffer: tuple[int, list[T]] = (count, [])

    @property
    def is_loaded(self) -> bool:
        """Returns whether nothing is left to be read from the store."""
        return not self._buffer[0]

    def __len__(self) -> int:
        unread, items = self._buffer
        return unread + len(items)

    def append(self, item: T) -> None:
        """Appends an item."""
        with self._lock:
            self._buffer[1].append(item)

    def __delitem__(self, place: slice) -> None:
        with self._lock:
            unread, items = self._buffer
            del items[place.start - unread :]  # what was appended, and so never what is still in the store

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            start, stop, _ = place.indices(len(self))
            if start >= stop:
                return []
            unread, items = self._from(start)
            return items[start - unread : stop - unread]
        start = place + len(self) if place < 0 else place
        if start < 0:
            raise IndexError(f"there are {len(self)} items, and none at {place}")
        unread, items = self._from(start)
        return items[start - unread]

    def _from(self, start: int) -> tuple[int, list[T]]:
        with self._lock:
            unread, items = self._buffer
            if start < unread:
                read = self._read(max(min(start, unread - self._loaded_count), 0), unread)
                self._loaded_count += len(read)
                self._buffer = (unread - len(read), [*read, *items])
            return self._buffer


LogWrite: TypeAlias = Literal["now", "deferred", "record", "surely"]
"""When a stored session stores an item of a LOG.

`"now"` is at once, `"deferred"` with its next unit; `"record"` is as `"now"`, of an item that a closed session takes
too. A store that fails is logged, and gets the item with the next unit; with `"surely"`, which is as `"now"`, that is
raised, too.
"""


class SlicePolicy(Enum):
    """The effect of a rollback on a slice.

    A dataclass declares it by a class variable: `slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG`.
    """

    STATE = "state"
    """Working state: it goes back with the call. The default."""
    LOG = "log"
    """A record of what happened: it only grows, and stays whatever becomes of the call."""


@dataclass(slots=True, eq=False)
class SliceOwner:
    """The right to grow a list in place: stands for one session, and does not keep it alive."""

    session_id: str


class Version(Generic[T]):
    """One state of a slice; treat it as a value."""

    __slots__ = ("items", "length", "owner")

    def __init__(self, owner: SliceOwner, items: list[T] | StoredItems[T], length: int) -> None:
        self.owner: SliceOwner = owner  # may grow the list in place
        # The list; only the first `length` items belong to this version. Its beginning may still be in the store.
        self.items: list[T] | StoredItems[T] = items
        self.length: int = length  # how many items the slice has

    def append(self, owner: SliceOwner, item: T) -> Version[T]:
        """The version with one item more; O(1) for the owner of the newest version."""
        items = self.items
        length = self.length
        # A list that is longer was grown by a newer version, as of a call that was rolled back, and a list of another
        # owner (the origin of a fork) may grow at any time: in both cases this version gets a copy.
        if owner is not self.owner or len(items) != length:
            items = items[:length]
        items.append(item)
        return Version(owner, items, length + 1)


def appended(version: Version[T] | None, owner: SliceOwner, item: T) -> Version[T]:
    """The version with one item more; `None` is the empty slice."""
    return Version(owner, [item], 1) if version is None else version.append(owner, item)


Versions: TypeAlias = Mapping[type[Any], Version[Any]]
"""The slices of a session by their type. Replaced when one of them changes, never changed itself."""


class SessionSnapshot(NamedTuple):
    """The STATE slices of a session at one moment; made by `Session.snapshot`, for `Session.restore`."""

    owner: SliceOwner  # stands for the session that it belongs to
    slices: Versions  # the version of every slice


class SliceView(Sequence[T], Generic[T]):
    """A slice to look at, as reducers receive it: a sequence, oldest first."""

    __slots__ = ("_version",)

    def __init__(self, version: Version[T] | None) -> None:
        self._version = version

    @property
    def version(self) -> Version[T] | None:
        """The version that is looked at; `None` for the empty slice."""
        return self._version

    def __len__(self) -> int:
        version = self.version
        return 0 if version is None else version.length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        version = self.version
        length = 0 if version is None else version.length
        if isinstance(index, slice):
            places = range(length)[index]
            if version is None or not places:
                return ()
            first = min(places[0], places[-1])
            items = version.items[first : max(places[0], places[-1]) + 1]
            return tuple(items) if places.step == 1 else tuple([items[place - first] for place in places])
        position = index + length if index < 0 else index
        if version is None or not 0 <= position < length:
            raise IndexError(f"the slice has {length} items, and none at {index}")
        return version.items[position]

    def __iter__(self) -> Iterator[T]:
        return iter(self.all())

    def latest(self) -> T | None:
        """The newest item, or `None` when there is none. No older one is read."""
        version = self.version
        return version.items[version.length - 1] if version is not None and version.length else None

    def all(self) -> tuple[T, ...]:
        """All items, oldest first."""
        version = self.version
        return () if version is None else tuple(version.items[: version.length])

    def where(self, predicate: Callable[[T], bool]) -> tuple[T, ...]:
        """The items for which the predicate holds, oldest first."""
        return tuple(item for item in self.all() if predicate(item))


class SliceChange:
    """Base of `Append`, `Replace` and `Unchanged`."""

    __slots__ = ()

    def apply(self, version: Version[Any] | None, _owner: SliceOwner, /) -> Version[Any] | None:
        """The version that the change leads to; `None` is the empty slice."""
        return version


@subscriptable
@dataclass(frozen=True, slots=True)
class Append(SliceChange, Generic[T]):
    """A reducer's answer: the slice gets one item more."""

    item: T

    def apply(self, version: Version[Any] | None, owner: SliceOwner, /) -> Version[Any]:
        """Grows the version's list in place where `Version.append` does."""
        return appended(version, owner, self.item)


@subscriptable
@dataclass(frozen=True, slots=True)
class Replace(SliceChange, Generic[T]):
    """A reducer's answer: the slice becomes these items."""

    items: tuple[T, ...]

    def apply(self, _version: Version[Any] | None, owner: SliceOwner, /) -> Version[Any]:
        """Makes a new list."""
        return Version(owner, list(self.items), len(self.items))


@dataclass(frozen=True, slots=True)
class Remove(SliceChange):
    """A change that removes the items for which the predicate is true. Not for reducers, which know the items."""

    where: Callable[[Any], bool]

    def apply(self, version: Version[Any] | None, owner: SliceOwner, /) -> Version[Any] | None:
        """Makes a new list, unless no item goes."""
        items = SliceView(version).all()
        rest = [item for item in items if not self.where(item)]
        return version if len(rest) == len(items) else Version(owner, rest, len(rest))


@dataclass(frozen=True, slots=True)
class Unchanged(SliceChange):
    """A reducer's answer: the slice stays as it is."""


Change: TypeAlias = Append[T] | Replace[T] | Unchanged
"""What a reducer returns."""


def check_change(change: object, slice_type: type[object]) -> None:
    """Checks what a reducer has returned; raises `ReducerError`."""
    if not isinstance(change, SliceChange):
        raise ReducerError(
            f"a reducer of slice {slice_type.__name__} returned {change!r:.100}; return Append(item), "
            "Replace((item, ...)) or Unchanged()"
        )
    one = cast("Append[Any]", change)  # if it is one
    check_items((one.item,) if isinstance(change, Append) else getattr(change, "items", ()), slice_type)


def check_items(items: Iterable[object], slice_type: type[object]) -> None:
    """Checks that these are items of a slice; raises as `check_change`."""
    for item in items:
        if not isinstance(item, slice_type):
            raise ReducerError(f"slice {slice_type.__name__} cannot hold a {type(item).__name__}: {item!r:.100}")


Reducer: TypeAlias = Callable[[SliceView[S], E], Change[S]]
"""Takes the slice and the event; returns the change of the slice. Has no effects."""


def list_resettable(slices: Versions) -> list[tuple[type[Any], int]]:
    """The types whose slices `Session.reset` empties, with how many items they have.

    A class whose items stay declares `survives_reset: ClassVar[bool] = True`.
    """
    lengths = [(kind, version.length) for kind, version in slices.items() if version.length]
    return [(kind, length) for kind, length in lengths if not getattr(kind, "survives_reset", False)]


def shorten_logs(log: dict[Any, Version[Any]], owner: SliceOwner, lengths: list[tuple[type[Any], int]]) -> None:
    """Removes so many of the oldest items of some LOGs; with the session's lock held."""
    for kind, length in lengths:
        rest = SliceView(log[kind])[length:]
        log[kind] = Version(owner, list(rest), len(rest))


SliceChanges: TypeAlias = Iterable[tuple[type[Any], SliceChange]]
"""Changes of slices, each with its type."""


class StateSlices:
    """The STATE slices of one session. All methods but `visible` are called with the session's lock held."""

    __slots__ = ("_end_is_held", "now", "owner")

    def __init__(self, owner: SliceOwner, slices: Versions) -> None:
        self.owner: SliceOwner = owner
        # The last writer, the slices as they are for it, and as they were before it.
        self.now: tuple[Transaction | None, Versions, Versions] = (None, slices, slices)
        self._end_is_held = False  # whether versions that the writer has made are held outside

    def visible(self) -> Versions:
        """The slices as this context sees them: its call's own changes, or what has been committed."""
        while True:
            now = self.now
            writer, working, before = now
            if writer is not None and not writer.committed:
                call = current()
                return working if call is not None and call.root is writer else before
            if self.now is now:  # else it was committed with more in it than was read
                return working

    def hand_out(self) -> Versions:
        """The slices as this context sees them, for a caller that may keep them."""
        slices = self.visible()
        self._end_is_held |= slices is not self.now[2]  # a rollback never cuts those from before the writer
        return slices

    def open(self, participant: Snapshotable[Any], call: Transaction, what: str) -> bool:
        """Makes sure that a call may write, and separates its changes from what others see.

        Args:
            participant: the session.
            call: the call that is about to write.
            what: the write, for messages.

        Returns whether this is the first write of the outermost transaction.

        Raises:
            ModelVisibleError: it may not; see `handrail.transaction.check_write`.
        """
        root = call if call.parent is None else call.root
        writer = self.now[0]
        # A call that has been closed is left to `check_may_write`, whose error states that.
        if writer is not root and writer is not None and writer.state != "ended" and call.is_open():
            msg = f"{call.tool} cannot {what} while {writer.tool} writes there; make the calls one after the other"
            raise TurnConflictError(msg)
        call.check_may_write(participant, what, snapshot=self._snapshot)
        writer, working, before = self.now
        if root is not writer:
            committed = working if writer is None or writer.committed else before
            self.now = (root, committed, committed)
            self._end_is_held = False
            return True
        return False

    def _snapshot(self) -> SessionSnapshot:
        return SessionSnapshot(self.owner, self.visible())

    def append(self, kind: type[Any], item: object) -> None:
        """Appends an item for the writer that `open` admitted."""
        writer, working, before = self.now
        # A copy, because snapshots and readers without the lock hold the mapping that is replaced.
        self.now = (writer, {**working, kind: appended(working.get(kind), self.owner, item)}, before)

    def apply(self, changes: SliceChanges) -> None:
        """Changes slices atomically for the writer that `open` admitted; raises `SessionUseError`."""
        now = self.now
        writer, working, before = now
        becomes = dict(working)
        for kind, change in changes:
            version = change.apply(becomes.get(kind), self.owner)
            if version is not None:
                becomes[kind] = version
        if self.now is not now:
            raise SessionUseError("the predicate of clear wrote to the session; it may only look at the item")
        self.now = (writer, becomes, before)

    def restore(self, slices: Versions) -> None:
        """Restores a snapshot, which its holder keeps, for the writer that `open` admitted."""
        writer, _, before = self.now
        self._end_is_held = True
        self.now = (writer, slices, before)

    def undo(self, slices: Versions) -> None:
        """Restores the snapshot of a transaction that is rolled back; costs what has changed since."""
        writer, working, before = self.now
        if not self._end_is_held:
            for kind, version in slices.items():
                later = working.get(kind)
                # A list that was replaced or copied has no items of the later version.
                if later is not None and later is not version and later.items is version.items:
                    del version.items[version.length :]
        self.now = (writer, slices, before)
