"""The dicts and lists of records: dicts and lists of Python that record their changes.

Each method that changes one asks first whether the caller may, and records what was there. Each method that reads gives
what the caller may see. What goes in is copied, so that each container has one place.

Some C code reads or changes the storage of a dict or list without its methods. pydantic reads it so, and `json.dumps`
looks there whether a dict is empty: within a call that is the same, outside of calls it may be what a call has not
committed, so a reader there takes a copy with `plain` first. `heapq` changes a list so, which is not recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex, TypeAlias, cast, overload

from handrail.errors import InvalidArgumentError
from handrail.resources.records.changes import ABSENT, ORDER, WHOLE, RecordChanges

MAX_RECORD_DEPTH: Final = 200
"""So many levels a record may have, as JSON that Handrail reads."""

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_NO_DEFAULT: Final = object()
_LONGEST_PATH: Final = 10
"""So many parts of a path are in a message."""

Json: TypeAlias = Any
"""A value of a record: decoded JSON, whose dicts and lists are a `RecordDict` and a `RecordList`."""

_DICT: type[dict[str, Json]] = dict
_LIST: type[list[Json]] = list
"""For the storage of a container, past the methods that record changes."""

_Reduced: TypeAlias = tuple[Callable[[], object], tuple[object, ...]]


class RecordDict(dict[str, Json]):
    """A JSON object within `Records`: a dict whose changes are rolled back with the call that makes them.

    Attributes:
        outer: the handle that a program has of it; `None` for none.
    """

    __slots__ = ("_changes", "outer")

    def __init__(self, changes: RecordChanges, content: Mapping[str, Json]) -> None:
        """Made by `Records`; `content` holds values as they are stored."""
        super().__init__(content)
        self._changes = changes
        self.outer: RecordDict | None = None

    @property
    def changes(self) -> RecordChanges:
        """Where its changes are recorded."""
        return self._changes

    # --------------------------------------------------------------------------------------------------------- reading

    def plain(self) -> dict[str, Json]:
        """A copy of this object and all that is in it, of plain dicts and lists, as it is at one moment."""
        with self._changes.lock:
            return cast("dict[str, Json]", _plain(self, self._changes.seen))

    def copy(self) -> dict[str, Json]:
        """A plain dict with the same values; those that are dicts or lists are still those of the records."""
        with self._changes.lock:
            return dict(_DICT.items(self._changes.seen(self)))

    def __getitem__(self, key: str, /) -> Json:
        with self._changes.lock:
            return _DICT.__getitem__(self._changes.seen(self), key)

    def get(self, key: str, default: Json = None, /) -> Json:
        """The value of a key, or the default."""
        with self._changes.lock:
            return _DICT.get(self._changes.seen(self), key, default)

    def __contains__(self, key: object, /) -> bool:
        with self._changes.lock:
            return _DICT.__contains__(self._changes.seen(self), key)

    def __len__(self) -> int:
        with self._changes.lock:
            return _DICT.__len__(self._changes.seen(self))

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self.copy())

    def keys(self) -> KeysView[str]:  # type: ignore[override] # a view of a copy, which is not changed by others
        """The keys as they are at this moment."""
        return self.copy().keys()

    def values(self) -> ValuesView[Json]:  # type: ignore[override] # as above
        """The values as they are at this moment."""
        return self.copy().values()

    def items(self) -> ItemsView[str, Json]:  # type: ignore[override] # as above
        """The keys and values as they are at this moment."""
        return self.copy().items()

    def __eq__(self, other: object, /) -> bool:
        return self.copy() == (other.copy() if isinstance(other, RecordDict) else other)

    def __ne__(self, other: object, /) -> bool:
        return not self == other

    __hash__ = None

    def __or__(self, other: Mapping[Json, Json], /) -> dict[Json, Json]:
        return {**self.copy(), **other}

    def __ror__(self, other: Mapping[Json, Json], /) -> dict[Json, Json]:
        return {**other, **self.copy()}

    def __repr__(self) -> str:
        return repr(self.copy())

    def __copy__(self) -> dict[str, Json]:
        return self.copy()

    def __deepcopy__(self, memo: object, /) -> dict[str, Json]:
        return self.plain()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> _Reduced:
        return dict, (self.plain(),)

    # --------------------------------------------------------------------------------------------------------- writing

    def __setitem__(self, key: str, value: Json, /) -> None:
        self._set({key: value}, f"set {key!r}")

    def __delitem__(self, key: str, /) -> None:
        self.pop(key)

    def pop(self, key: str, default: Json = _NO_DEFAULT, /) -> Json:
        """Remove a key, and return its value.

        Raises:
            KeyError: there is no such key, and no default.
        """
        with self._changes.lock:
            self._changes.check(f"remove {key!r}")
            if _DICT.__contains__(self, key):
                return self._remove(key)
        if default is _NO_DEFAULT:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[str, Json]:
        """Remove the last key, and return it with its value.

        Raises:
            KeyError: there is none.
        """
        with self._changes.lock:
            self._changes.check("remove the last key")
            for key in _DICT.__reversed__(self):
                return key, self._remove(key)
        raise KeyError("the dict is empty")

    def clear(self) -> None:
        """Remove all keys."""
        with self._changes.lock:
            self._changes.check("remove all keys")
            for key in tuple(_DICT.__iter__(self)):
                self._remove(key)

    def setdefault(self, key: str, default: Json = None, /) -> Json:
        """The value of a key, which is set to the default where there is none."""
        check_keys((key,), ())
        stored = stored_value(default, self._changes, (key,))
        with self._changes.lock:
            if key not in self:
                self._store({key: stored}, f"set {key!r}")
            return self[key]

    def update(self, *others: Json, **values: Json) -> None:
        """Set the keys of a mapping, or of pairs, and those that are given by name.

        Raises:
            InvalidArgumentError: a value has no form in JSON. Nothing is set.
        """
        self._set(dict(*others, **values), "set several keys")

    # mypy and pyright disagree on which signatures fit that of `dict`, so they see that one.
    if not TYPE_CHECKING:  # pragma: no branch - at run time it is always so

        def __ior__(self, other: object, /) -> Self:
            self.update(other)
            return self

    def _set(self, values: Mapping[str, Json], what: str) -> None:
        check_keys(values, ())
        changes = self._changes
        # Copied before the lock is taken, because reading a foreign value may run code of its own. What is under the
        # key already stays itself, as after `items += [...]`.
        stored = {
            key: value if _DICT.get(self, key, ABSENT) is value else stored_value(value, changes, (key,))
            for key, value in values.items()
        }
        self._store(stored, what)

    def _store(self, stored: Mapping[str, Json], what: str) -> None:
        changes = self._changes
        with changes.lock:
            changes.check(what)
            for key, value in stored.items():
                changes.record(self, key, _DICT.get(self, key, ABSENT))
                self._put(key, value)

    def _put(self, key: str, value: Json) -> None:
        _DICT.__setitem__(self, key, value)
        if self.outer is not None:
            _DICT.__setitem__(self.outer, key, value)

    def _drop(self, key: str) -> Json:
        if self.outer is not None:
            _DICT.pop(self.outer, key, None)
        return _DICT.pop(self, key, None)

    def _remove(self, key: str) -> Json:
        changes = self._changes
        if changes.lacks(self, ORDER):
            changes.record(self, ORDER, tuple(_DICT.__iter__(self)))
        changes.record(self, key, _DICT.__getitem__(self, key))
        return self._drop(key)

    # -------------------------------------------------------------------------------------------------------- restoring

    def content_before(self, before: Mapping[object, Json], /) -> dict[str, Json]:
        """The content before the changes; see `RecordContainer`."""
        values = {**dict(_DICT.items(self)), **cast("Mapping[str, Json]", before)}
        order = before[ORDER] if ORDER in before else _DICT.__iter__(self)
        return {key: values[key] for key in order if values.get(key, ABSENT) is not ABSENT}

    def record_before(self, before: Mapping[object, Json], /) -> None:
        """Record what `restore_before` changes; see `RecordContainer`."""
        self._changes.record(self, ORDER, tuple(_DICT.__iter__(self)))
        for key in before.keys() - {ORDER}:
            self._changes.record(self, key, _DICT.get(self, cast("str", key), ABSENT))

    def restore_before(self, before: Mapping[object, Json], /) -> None:
        """Restore the content before the changes; see `RecordContainer`."""
        if ORDER in before:
            content = self.content_before(before)
            for each in (self,) if self.outer is None else (self, self.outer):
                _DICT.clear(each)
                _DICT.update(each, content)
            return
        # Nothing has been removed, so what was replaced has its place still.
        for key, value in before.items():
            if value is ABSENT:
                self._drop(cast("str", key))
            else:
                self._put(cast("str", key), value)


class RecordList(list[Json]):
    """A JSON array within `Records`: a list whose changes are rolled back with the call that makes them.

    Attributes:
        outer: the handle that a program has of it; `None` for none.
    """

    __slots__ = ("_changes", "outer")

    def __init__(self, changes: RecordChanges, content: Iterable[Json]) -> None:
        """Made by `Records`; `content` holds values as they are stored."""
        super().__init__(content)
        self._changes = changes
        self.outer: RecordList | None = None

    @property
    def changes(self) -> RecordChanges:
        """Where its changes are recorded."""
        return self._changes

    # --------------------------------------------------------------------------------------------------------- reading

    def plain(self) -> list[Json]:
        """A copy of this array and all that is in it, of plain dicts and lists, as it is at one moment."""
        with self._changes.lock:
            return cast("list[Json]", _plain(self, self._changes.seen))

    def copy(self) -> list[Json]:
        """A plain list with the same values; those that are dicts or lists are still those of the records."""
        with self._changes.lock:
            return list(_LIST.__iter__(self._changes.seen(self)))

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> Json: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Json]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> Json:
        with self._changes.lock:
            return _LIST.__getitem__(self._changes.seen(self), index)

    def __len__(self) -> int:
        with self._changes.lock:
            return _LIST.__len__(self._changes.seen(self))

    def __iter__(self) -> Iterator[Json]:
        return iter(self.copy())

    def __reversed__(self) -> Iterator[Json]:
        return reversed(self.copy())

    def __contains__(self, value: object, /) -> bool:
        return value in self.copy()

    def index(self, value: Json, *bounds: SupportsIndex) -> int:
        """The first position of a value, within bounds.

        Raises:
            ValueError: it is not there.
        """
        return self.copy().index(value, *bounds)

    def count(self, value: Json, /) -> int:
        """How often a value is there."""
        return self.copy().count(value)

    def __eq__(self, other: object, /) -> bool:
        return self.copy() == _copied(other)

    def __ne__(self, other: object, /) -> bool:
        return not self == other

    def __lt__(self, other: list[Json], /) -> bool:
        return self.copy() < _copied(other)

    def __le__(self, other: list[Json], /) -> bool:
        return self.copy() <= _copied(other)

    def __gt__(self, other: list[Json], /) -> bool:
        return self.copy() > _copied(other)

    def __ge__(self, other: list[Json], /) -> bool:
        return self.copy() >= _copied(other)

    __hash__ = None

    def __add__(self, other: list[Json], /) -> list[Json]:
        return self.copy() + _copied(other)

    def __radd__(self, other: list[Json], /) -> list[Json]:
        return other + self.copy()

    def __mul__(self, times: SupportsIndex, /) -> list[Json]:
        return self.copy() * times

    def __rmul__(self, times: SupportsIndex, /) -> list[Json]:
        return self.copy() * times

    def __repr__(self) -> str:
        return repr(self.copy())

    def __copy__(self) -> list[Json]:
        return self.copy()

    def __deepcopy__(self, memo: object, /) -> list[Json]:
        return self.plain()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> _Reduced:
        return list, (self.plain(),)

    # --------------------------------------------------------------------------------------------------------- writing

    @overload
    def __setitem__(self, index: SupportsIndex, value: Json, /) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[Json], /) -> None: ...
    def __setitem__(self, index: SupportsIndex | slice, value: Json, /) -> None:
        replaced = self[index]
        if isinstance(index, slice):
            value = self._stored(value, own=replaced)
        elif value is not replaced:
            value = stored_value(value, self._changes, (0,))
        self._change("replace items", lambda: _LIST.__setitem__(self, index, value))

    def __delitem__(self, index: SupportsIndex | slice, /) -> None:
        self._change("remove items", lambda: _LIST.__delitem__(self, index))

    def append(self, value: Json, /) -> None:
        """Add a value at the end."""
        stored = stored_value(value, self._changes, (0,))
        self._change("append an item", lambda: _LIST.append(self, stored))

    def extend(self, values: Iterable[Json], /) -> None:
        """Add values at the end."""
        stored = self._stored(values)
        self._change("append items", lambda: _LIST.extend(self, stored))

    def insert(self, index: SupportsIndex, value: Json, /) -> None:
        """Add a value at a position."""
        stored = stored_value(value, self._changes, (0,))
        self._change("insert an item", lambda: _LIST.insert(self, index, stored))

    def pop(self, index: SupportsIndex = -1, /) -> Json:
        """Remove the value at a position, and return it.

        Raises:
            IndexError: there is none.
        """
        return self._change("remove an item", lambda: _LIST.pop(self, index))

    def remove(self, value: Json, /) -> None:
        """Remove the first value that is equal.

        Raises:
            ValueError: there is none.
        """
        self._change("remove an item", lambda: _LIST.__delitem__(self, _LIST.index(self, value)))

    def clear(self) -> None:
        """Remove all values."""
        self._change("remove all items", lambda: _LIST.clear(self))

    def reverse(self) -> None:
        """Reverse the order."""
        self._change("reverse the items", lambda: _LIST.reverse(self))

    def sort(self, *, key: Callable[[Json], Json] | None = None, reverse: bool = False) -> None:
        """Sort the values."""
        # Before the lock is taken, because `key` is code of the program.
        in_order = sorted(self.copy(), key=cast("Json", key), reverse=reverse)
        self._change("sort the items", lambda: _LIST.__setitem__(self, slice(None), in_order))

    def __iadd__(self, values: Iterable[Json], /) -> Self:
        self.extend(values)
        return self

    def __imul__(self, times: SupportsIndex, /) -> Self:
        self[:] = self.copy() * times
        return self

    def _stored(self, values: Iterable[Json], own: Sequence[Json] = ()) -> list[Json]:
        """Values as they are stored; those of `own`, which are about to be replaced, stay themselves, each once."""
        staying = {id(value) for value in own if isinstance(value, RecordDict | RecordList)}
        stored: list[Json] = []
        for place, value in enumerate(values):
            if id(value) in staying:
                staying.remove(id(value))
                stored.append(value)
            else:
                stored.append(stored_value(value, self._changes, (place,)))
        return stored

    def _change(self, what: str, change: Callable[[], Json]) -> Json:
        changes = self._changes
        with changes.lock:
            changes.check(what)
            if changes.lacks(self, WHOLE):
                changes.record(self, WHOLE, list(_LIST.__iter__(self)))
            try:
                return change()
            finally:
                self._copy_to_outer()

    def _copy_to_outer(self) -> None:
        if self.outer is not None:
            _LIST.__setitem__(self.outer, slice(None), _LIST.__iter__(self))

    # -------------------------------------------------------------------------------------------------------- restoring

    def content_before(self, before: Mapping[object, Json], /) -> list[Json]:
        """The content before the changes; see `RecordContainer`."""
        content: list[Json] = before[WHOLE]
        return content

    def record_before(self, before: Mapping[object, Json], /) -> None:  # noqa: ARG002 - a list is recorded whole
        """Record what `restore_before` changes; see `RecordContainer`."""
        self._changes.record(self, WHOLE, list(_LIST.__iter__(self)))

    def restore_before(self, before: Mapping[object, Json], /) -> None:
        """Restore the content before the changes; see `RecordContainer`."""
        _LIST.__setitem__(self, slice(None), before[WHOLE])
        self._copy_to_outer()


def stored_value(
    value: object,
    changes: RecordChanges,
    path: tuple[str | int, ...],
    within: tuple[int, ...] = (),
) -> Json:
    """A copy of a value whose dicts and lists record their changes.

    Args:
        value: what a program wants to store.
        changes: where changes are recorded.
        path: where it is to be stored, for messages.
        within: the identities of what it is in.

    Raises:
        InvalidArgumentError: it has no form in JSON, contains itself, or is nested too deeply.
    """
    if type(value) in _PLAIN or (isinstance(value, float) and math.isfinite(value)):
        return value
    if id(value) in within or len(within) >= MAX_RECORD_DEPTH:
        raise _invalid(value, path, f"at most {MAX_RECORD_DEPTH} levels deep, and must not contain itself")
    inner = (*within, id(value))
    if isinstance(value, Mapping):
        members = dict(cast("Mapping[str, Json]", value))
        check_keys(members, path)
        stored = {
            key: part if type(part) in _PLAIN else stored_value(part, changes, (*path, key), inner)
            for key, part in members.items()
        }
        return RecordDict(changes, stored)
    if isinstance(value, list | tuple):
        items = list(cast("Sequence[object]", value))
        parts = [
            part if type(part) in _PLAIN else stored_value(part, changes, (*path, place), inner)
            for place, part in enumerate(items)
        ]
        return RecordList(changes, parts)
    if isinstance(value, str | int):  # of a subclass, such as the member of an enumeration
        return value
    raise _invalid(value, path, "JSON: a dict with keys of text, a list, text, a finite number, a bool or None")


def check_keys(keys: Iterable[object], path: tuple[str | int, ...]) -> None:
    """Check that keys of an object are text.

    Raises:
        InvalidArgumentError: one is not.
    """
    for key in keys:
        if not isinstance(key, str):
            raise _invalid(key, path, "text, as every key of a JSON object", what="a key of ")


def _plain(value: object, seen: Callable[[Any], Any]) -> object:
    """A value of the records as plain dicts and lists, of what `seen` gives for each container."""
    if isinstance(value, RecordDict):
        return {key: _plain(part, seen) for key, part in _DICT.items(seen(value))}
    if isinstance(value, RecordList):
        return [_plain(part, seen) for part in _LIST.__iter__(seen(value))]
    return value


def _copied(other: object) -> list[Json]:
    # Whatever it is, Python's own method answers for it.
    return other.copy() if isinstance(other, RecordList) else cast("list[Json]", other)


def _invalid(value: object, path: tuple[str | int, ...], expected: str, what: str = "") -> InvalidArgumentError:
    where = "".join(f"[{part!r}]" for part in path[:_LONGEST_PATH]) + ("..." if len(path) > _LONGEST_PATH else "")
    return InvalidArgumentError(function="Records", argument=f"{what}data{where}", given=value, expected=expected)
