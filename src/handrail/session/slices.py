"""Slices: what a program sees of the values of one type, what may become of them, and the versions under them.

A `Version` is a list and a length: the first `length` items are the slice. Appending at the end of the list by its
owner grows the list in place and gives a version that is one longer; every older version stays as it was, because it
looks at fewer items. So appending costs O(1), and keeping a version costs nothing. Anything else (replacing, appending
to an old version, appending by another owner, as a fork does) makes a new list.

Going back may cut off the end of the list, so that the next append grows it in place again. Only a caller that knows
that nothing holds a version that looks at what is cut off may do that: see `handrail.session.session`.

A slice gets an item more, becomes other items, or stays as it is (`Append`, `Replace`, `Unchanged`). The beginning of
its items may stay in the store until they are read (`StoredItems`); reading the end of a slice reads
no more than that.

A session is opened without reading an item. Most programs look at the newest items of a slice, so what has been read is
always an end of it: asking for an item reads that item and those after it, and a later question for an older one
reads the items in between. No item is read twice.

STATE slices: what their writer sees, what other readers see, and how a call is rolled back. LOG slices only grow.

The slices are a mapping from type to `Version` that is replaced, never changed. A snapshot is that mapping, so it costs
nothing; going back is putting the mapping back.

What a reader sees
    Readers take no lock: all they need is in one tuple, which is replaced atomically. It holds the outermost
    transaction that wrote last, the slices as it has left them so far, and the slices as they were before it. The
    latter are what readers outside of it see, until it has been committed. A reader that finds that it has been
    looks again whether the tuple is still the same, because the writer may have replaced it before it was committed.

When an end is cut off
    Undoing a call cuts off what it appended to lists that are still there, so that the next append can grow them in
    place. Nothing outside of the call can hold a version that looks at those items, but a handler inside can, which has
    taken a snapshot, made a fork, or gone back to a snapshot of an earlier call. Then nothing is cut off until the
    outermost transaction has ended, and the next append copies the list instead.

LOG slices are not part of this: each grows with every writer, whatever the outcome of the call, and only
`Session.reset` empties it. Their list is never copied, but for the first item that a fork adds.
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
    """As much of a list as a slice needs. Items are read when one of them is asked for, from there to the end.

    Appending reads nothing, so a slice of a hundred thousand items costs nothing to a program that only appends. A
    program that goes back from the end, item by item, reads twice as many with each question to the store.

    Args:
        count: how many items are in the store.
        read: reads those from one place up to another, without the latter; and maybe more, those before the first
            place that stand in the same entries. If it raises, nothing has changed, and the next caller tries again.
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
        """Whether nothing is left to be read from the store."""
        return not self._buffer[0]

    def __len__(self) -> int:
        """How many items there are, read or not."""
        unread, items = self._buffer
        return unread + len(items)

    def append(self, item: T) -> None:
        """Add an item at the end."""
        with self._lock:
            self._buffer[1].append(item)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        """An item, or a list of those from one place up to another.

        Raises:
            IndexError: there is no item at that place.
            StoreError: items had to be read and could not be.
        """
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

    def __delitem__(self, place: slice) -> None:
        """Cut the end off: `del items[length:]`. Nothing is read."""
        with self._lock:
            unread, items = self._buffer
            if place.start < unread:
                self._buffer = (place.start, [])
            else:
                del items[place.start - unread :]

    def _from(self, start: int) -> tuple[int, list[T]]:
        """How many items are not read, once those from `start` on are; and the items after these."""
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
    """What a rollback does to a slice.

    A dataclass says which by a class variable: `slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG`.
    """

    STATE = "state"
    """Working state: it goes back with the call. The default."""
    LOG = "log"
    """A record of what happened: it only grows, and stays whatever becomes of the call."""


@dataclass(slots=True, eq=False)
class SliceOwner:
    """Who may grow a list in place: stands for one session, and does not keep it alive."""

    session_id: str


class Version(Generic[T]):
    """One state of a slice; treat it as a value.

    Attributes:
        owner: who may grow the list in place.
        items: the list; only the first `length` items belong to this version. In a stored session its beginning may
            not have been read yet.
        length: how many items the slice has.
    """

    __slots__ = ("items", "length", "owner")

    def __init__(self, owner: SliceOwner, items: list[T] | StoredItems[T], length: int) -> None:
        """Make a version of a list that the caller hands over."""
        self.owner: SliceOwner = owner
        self.items: list[T] | StoredItems[T] = items
        self.length: int = length

    def append(self, owner: SliceOwner, item: T) -> Version[T]:
        """The version with one item more; O(1) for the owner of the newest version."""
        items = self.items
        length = self.length
        # A list that is longer was grown by a newer version, and a list of another owner (the origin of a fork) may
        # grow at any time: in both cases this version gets a copy.
        if owner is not self.owner or len(items) != length:
            items = items[:length]
        items.append(item)
        return Version(owner, items, length + 1)


def appended(version: Version[T] | None, owner: SliceOwner, item: T) -> Version[T]:
    """The version with one item more; `None` is the slice that nothing has come into."""
    return Version(owner, [item], 1) if version is None else version.append(owner, item)


Versions: TypeAlias = Mapping[type[Any], Version[Any]]
"""The slices of a session by their type. Replaced when one of them changes, never changed itself."""


class SessionSnapshot(NamedTuple):
    """The STATE slices of a session at one moment; made by `Session.snapshot`, taken by `Session.restore`.

    Attributes:
        owner: stands for the session that it belongs to.
        slices: the version of every slice.
        taken: how many events the call that is writing had taken in.
    """

    owner: SliceOwner
    slices: Versions
    event_count: int = 0


class SliceView(Sequence[T], Generic[T]):
    """A slice to look at, as reducers receive it: a sequence, oldest first."""

    __slots__ = ("_version",)

    def __init__(self, version: Version[T] | None) -> None:
        """Look at a version, which stays the same whatever becomes of the slice; `None` is the empty slice."""
        self._version = version

    @property
    def version(self) -> Version[T] | None:
        """The version that is looked at; `None` for a slice that nothing has come into."""
        return self._version

    def __len__(self) -> int:
        """How many items the slice has."""
        version = self.version
        return 0 if version is None else version.length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """The item at an index, or the items of a range as a tuple: `session[Plan][-10:]` are the newest ten.

        In a stored session an item is read when it is first asked for, with those after it; older ones are not.

        Raises:
            IndexError: no item has that index.
            StoreError: the items cannot be read.
        """
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
        """The items, oldest first, as they are at this moment."""
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
    """What `Append`, `Replace` and `Unchanged` have in common."""

    __slots__ = ()

    def apply(self, version: Version[Any] | None, _owner: SliceOwner, /) -> Version[Any] | None:
        """The version that the change leads to; `None` is the slice that nothing has come into."""
        return version


@subscriptable
@dataclass(frozen=True, slots=True)
class Append(SliceChange, Generic[T]):
    """A reducer's answer: the slice gets one item more."""

    item: T

    def apply(self, version: Version[Any] | None, owner: SliceOwner, /) -> Version[Any]:
        """Grow the version's list in place where `Version.append` does."""
        return appended(version, owner, self.item)


@subscriptable
@dataclass(frozen=True, slots=True)
class Replace(SliceChange, Generic[T]):
    """A reducer's answer: the slice becomes these items."""

    items: tuple[T, ...]

    def apply(self, _version: Version[Any] | None, owner: SliceOwner, /) -> Version[Any]:
        """Make a new list."""
        return Version(owner, list(self.items), len(self.items))


@dataclass(frozen=True, slots=True)
class Remove(SliceChange):
    """The slice loses the items for which the predicate is true. Not for reducers, which know the items."""

    where: Callable[[Any], bool]

    def apply(self, version: Version[Any] | None, owner: SliceOwner, /) -> Version[Any] | None:
        """Make a new list, unless no item goes."""
        items = SliceView(version).all()
        rest = [item for item in items if not self.where(item)]
        return version if len(rest) == len(items) else Version(owner, rest, len(rest))


@dataclass(frozen=True, slots=True)
class Unchanged(SliceChange):
    """A reducer's answer: the slice stays as it is."""


Change: TypeAlias = Append[T] | Replace[T] | Unchanged
"""What a reducer returns."""


def check_change(change: object, slice_type: type[object]) -> None:
    """Check what a reducer has returned.

    Raises:
        ReducerError: it is not a `Change`, or brings something that is not an item of the slice.
    """
    if not isinstance(change, SliceChange):
        raise ReducerError(
            f"a reducer of slice {slice_type.__name__} returned {change!r:.100}; return Append(item), "
            "Replace((item, ...)) or Unchanged()"
        )
    one = cast("Append[Any]", change)  # if it is one
    check_items((one.item,) if isinstance(change, Append) else getattr(change, "items", ()), slice_type)


def check_items(items: Iterable[object], slice_type: type[object]) -> None:
    """Check that these are items of a slice; raises as `check_change`."""
    for item in items:
        if not isinstance(item, slice_type):
            raise ReducerError(f"slice {slice_type.__name__} cannot hold a {type(item).__name__}: {item!r:.100}")


Reducer: TypeAlias = Callable[[SliceView[S], E], Change[S]]
"""Takes the slice and the event; returns the change of the slice. Has no effects."""


def list_resettable(slices: Versions) -> list[tuple[type[Any], int]]:
    """The types whose slices have items and are emptied by `Session.reset`, with how many items they have.

    A class whose items are to stay says so by a class variable: `survives_reset: ClassVar[bool] = True`.
    """
    lengths = [(kind, version.length) for kind, version in slices.items() if version.length]
    return [(kind, length) for kind, length in lengths if not getattr(kind, "survives_reset", False)]


def shorten_logs(log: dict[Any, Version[Any]], owner: SliceOwner, lengths: list[tuple[type[Any], int]]) -> None:
    """Remove so many of the oldest items of some LOGs; with the session's lock held."""
    for kind, length in lengths:
        rest = SliceView(log[kind])[length:]
        log[kind] = Version(owner, list(rest), len(rest))


Items: TypeAlias = Mapping[type[Any], tuple[Any, ...]]
"""What slices hold, by their type."""


def list_items(slices: Versions) -> Items:
    """The items of the slices that have any, by their type."""
    return {kind: SliceView(version).all() for kind, version in slices.items() if version.length}


def make_versions(items: Items, owner: SliceOwner) -> Versions:
    """The slices that hold these items, by their type; `owner` may grow them in place."""
    return {kind: Version(owner, list(values), len(values)) for kind, values in items.items()}


SliceChanges: TypeAlias = Iterable[tuple[type[Any], SliceChange]]
"""Changes of slices, each with its type."""


class StateSlices:
    """The STATE slices of one session. All methods but `seen` are called with the session's lock held.

    Attributes:
        owner: stands for the session.
        now: who wrote last, the slices as they are for the writer, and as they were before it.
        taken: the events that the writer has taken in so far, in a stored session.
    """

    __slots__ = ("_end_is_shared", "events", "now", "owner")

    def __init__(self, owner: SliceOwner, slices: Versions) -> None:
        """Make the state of a session without values."""
        self.owner: SliceOwner = owner
        self.now: tuple[Transaction | None, Versions, Versions] = (None, slices, slices)
        self.events: list[object] = []
        self._end_is_shared = False

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

    def is_used(self, kind: type[Any]) -> bool:
        """Whether a slice holds something, for its writer or for other readers."""
        writer, working, before = self.now
        views = (working,) if writer is None or writer.committed else (working, before)
        return any(kind in slices and slices[kind].length for slices in views)

    def share(self) -> Versions:
        """The slices as this context sees them, for a caller that may hold them for ever."""
        slices = self.visible()
        # The slices from before the writer are never cut off, so a holder of these needs no protection.
        self._end_is_shared |= slices is not self.now[2]
        return slices

    def open(self, participant: Snapshotable[Any], call: Transaction, what: str) -> bool:
        """Make sure that a call may write to the participant whose state this is, and keep apart what it writes.

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
            self._end_is_shared = False
            self.events = []
            return True
        return False

    def _snapshot(self) -> SessionSnapshot:
        """What a call that joins is rolled back to; unlike that of `Session.snapshot`, it is dropped with the call."""
        call = current()
        count = len(self.events) if call is not None and call.root is self.now[0] else 0
        return SessionSnapshot(self.owner, self.visible(), count)

    def append(self, kind: type[Any], item: object) -> None:
        """Let a slice get an item more, for the writer that `open` admitted."""
        writer, working, before = self.now
        # A copy, because snapshots and readers without the lock hold the mapping that is replaced.
        self.now = (writer, {**working, kind: appended(working.get(kind), self.owner, item)}, before)

    def apply(self, changes: SliceChanges) -> None:
        """Change slices, all atomically, for the writer that `open` admitted.

        Raises:
            SessionUseError: a predicate that removes items has written to the session.
        """
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
        """Restore what a snapshot holds, for the writer that `open` admitted."""
        writer, _, before = self.now
        # The caller holds the snapshot, whose versions may count items at the end of lists that an undo would cut off.
        self._end_is_shared = True
        self.now = (writer, slices, before)

    def undo(self, slices: Versions, event_count: int) -> None:
        """Become again what a transaction held when it joined; costs what has changed since."""
        writer, working, before = self.now
        del self.events[event_count:]
        # Otherwise a snapshot or a fork may look at the items at the end of the list.
        if not self._end_is_shared:
            for kind, version in slices.items():
                later = working.get(kind)
                # A version with another list was replaced or copied, so this list has no items of it.
                if later is not None and later is not version and later.items is version.items:
                    del version.items[version.length :]
        self.now = (writer, slices, before)
