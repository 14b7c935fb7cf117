"""What may become of a slice: it gets an item more, becomes other items, or stays as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from handrail.errors import ReducerError
from handrail.session.slices import Owner, Version

T = TypeVar("T")


class SliceChange:
    """What `Append`, `Replace` and `Keep` have in common."""

    __slots__ = ()

    @property
    def brings(self) -> tuple[object, ...]:
        """The items that come into the slice."""
        return ()

    def apply(self, version: Version[Any] | None, _owner: Owner, /) -> Version[Any] | None:
        """The version that the change leads to; `None` is the slice that nothing has come into."""
        return version


@dataclass(frozen=True, slots=True)
class Append(SliceChange, Generic[T]):
    """A reducer's answer: the slice gets one item more."""

    item: T

    @property
    def brings(self) -> tuple[object, ...]:
        """The one item."""
        return (self.item,)

    def apply(self, version: Version[Any] | None, owner: Owner, /) -> Version[Any]:
        """Grow the version's list in place where `Version.append` does."""
        return Version(owner, [self.item], 1) if version is None else version.append(owner, self.item)


@dataclass(frozen=True, slots=True)
class Replace(SliceChange, Generic[T]):
    """A reducer's answer: the slice becomes these items."""

    items: tuple[T, ...]

    @property
    def brings(self) -> tuple[object, ...]:
        """All the items."""
        return tuple(self.items)

    def apply(self, _version: Version[Any] | None, owner: Owner, /) -> Version[Any]:
        """Make a new list."""
        return Version(owner, list(self.items), len(self.items))


@dataclass(frozen=True, slots=True)
class Keep(SliceChange):
    """A reducer's answer: the slice stays as it is."""


Change: TypeAlias = Append[T] | Replace[T] | Keep
"""What a reducer returns."""


def check_change(change: object, slice_type: type[object]) -> None:
    """Check what a reducer has returned.

    Raises:
        ReducerError: it is not a `Change`, or brings something that is no item of the slice.
    """
    if not isinstance(change, SliceChange):
        msg = (
            f"a reducer of slice {slice_type.__name__} returned {change!r:.100}; return Append(item), "
            "Replace((item, ...)) or Keep()"
        )
        raise ReducerError(msg)
    for item in change.brings:
        if not isinstance(item, slice_type):
            msg = f"slice {slice_type.__name__} cannot hold a {type(item).__name__}: {item!r:.100}"
            raise ReducerError(msg)
