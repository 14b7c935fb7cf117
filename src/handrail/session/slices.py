"""What a slice holds: versions of a growing list, cheap to keep and cheap to go back to.

A `Version` is a list and a length: the first `length` items are the slice. Appending at the end of the list by its
owner grows the list in place and gives a version that is one longer; every older version stays as it was, because it
looks at fewer items. So appending costs O(1), and keeping a version costs nothing. Anything else (replacing, appending
to an old version, appending by another owner, as a fork does) makes a new list.

Going back may cut off the end of the list, so that the next append grows it in place again. Only who knows that nobody
holds a version that looks at what is cut off may do that: see `handrail.session.session`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar, overload

from handrail.session.stored_items import StoredItems

T = TypeVar("T")


class SlicePolicy(Enum):
    """What becomes of a slice when a call is rolled back.

    A dataclass says which by a class variable: `slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG`.
    """

    STATE = "state"
    """Working state: it goes back with the call. The default."""
    LOG = "log"
    """A record of what happened: it only grows, and stays whatever becomes of the call."""


class Owner:
    """Who may grow a list in place: stands for one session, and does not keep it alive."""

    __slots__ = ("session_id",)

    def __init__(self, session_id: str) -> None:
        """Stand for a session."""
        self.session_id = session_id


class Version(Generic[T]):
    """One state of a slice; treat it as a value, unless it is of a LOG.

    Attributes:
        owner: who may grow the list in place.
        items: the list; only the first `length` items belong to this version. In a stored session its beginning may
            not have been read yet.
        length: how many items the slice has.
    """

    __slots__ = ("items", "length", "owner")

    def __init__(self, owner: Owner, items: list[T] | StoredItems[T], length: int) -> None:
        """Make a version of a list that the caller hands over."""
        self.owner = owner
        self.items = items
        self.length = length

    def append(self, owner: Owner, item: T) -> Version[T]:
        """The version with one item more; O(1) for the owner of the newest version."""
        items = self.items
        length = self.length
        if owner is not self.owner or len(items) != length:
            items = items[:length]
        items.append(item)
        return Version(owner, items, length + 1)

    def grow(self, owner: Owner, item: T) -> bool:
        """Become one item longer, if this owner may; for a LOG, whose versions nobody keeps. Returns whether it did."""
        if owner is not self.owner or len(self.items) != self.length:
            return False
        self.items.append(item)
        self.length += 1
        return True

    def cut_off(self, later: Version[T]) -> None:
        """Forget what was appended to this version on the way to `later`; to be called when nobody holds that."""
        if later.items is self.items:
            del self.items[self.length :]


Versions: TypeAlias = Mapping[type[Any], Version[Any]]
"""The slices of a session by their type. Replaced when one of them changes, never changed itself."""


class SessionSnapshot:
    """The STATE slices of a session at one moment; made by `Session.snapshot`, taken by `Session.restore`.

    A value; no frozen dataclass, because one is made for each call that writes.

    Attributes:
        owner: stands for the session that it belongs to.
        slices: the version of every slice.
        taken: how many events the call that is writing had taken in.
    """

    __slots__ = ("owner", "slices", "taken")

    def __init__(self, owner: Owner, slices: Versions, taken: int = 0) -> None:
        """Made by `Session.snapshot`."""
        self.owner = owner
        self.slices = slices
        self.taken = taken


class SliceView(Sequence[T], Generic[T]):
    """A slice to look at, as reducers receive it: a sequence, oldest first."""

    __slots__ = ()

    @property
    @abstractmethod
    def version(self) -> Version[T] | None:
        """The version that is looked at; `None` for a slice that nothing has come into."""

    def __len__(self) -> int:
        """How many items the slice has."""
        version = self.version
        return 0 if version is None else version.length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        """The item at an index, or the items of a range as a tuple.

        Raises:
            IndexError: there is no item at that index.
        """
        if isinstance(index, slice):
            return self.all()[index]
        version = self.version
        length = 0 if version is None else version.length
        position = index + length if index < 0 else index
        if version is None or not 0 <= position < length:
            msg = f"the slice has {length} items, so there is none at {index}"
            raise IndexError(msg)
        return version.items[position]

    def __iter__(self) -> Iterator[T]:
        """The items, oldest first, as they are at this moment."""
        return iter(self.all())

    def latest(self) -> T | None:
        """The newest item, or `None` when there is none."""
        version = self.version
        return version.items[version.length - 1] if version is not None and version.length else None

    def all(self) -> tuple[T, ...]:
        """All items, oldest first."""
        version = self.version
        return () if version is None else tuple(version.items[: version.length])

    def where(self, predicate: Callable[[T], bool]) -> tuple[T, ...]:
        """The items for which the predicate holds, oldest first."""
        return tuple(item for item in self.all() if predicate(item))


class FixedView(SliceView[T], Generic[T]):
    """A look at one version, which stays the same whatever becomes of the slice."""

    __slots__ = ("_version",)

    def __init__(self, version: Version[T] | None) -> None:
        """Look at a version; `None` is the empty slice."""
        self._version = version

    @property
    def version(self) -> Version[T] | None:
        """The version that is looked at."""
        return self._version
