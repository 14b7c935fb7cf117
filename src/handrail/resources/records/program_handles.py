"""The records as a program has them outside of calls, beside those that calls get.

A container of records has up to two handles. A call gets the container itself. A program that reads the records outside
of calls gets a handle of its own, which runs each method in the container. So two kinds of writes without a current
call are distinguished. One of the program comes through its handle, and is made if no call uses the records. One of a
handler that runs on after its call, in a thread without the context of the call, comes through the container itself,
and is refused. Within a call, a handle of the program gives the containers themselves.

A handle is made when it is first asked for. Its storage is that of the container, for code that reads it past the
methods, and each change of the container is made there too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Final, cast

from handrail.resources.records.changes import ProgramWrite, RecordChanges
from handrail.resources.records.containers import Json, RecordDict, RecordList
from handrail.transaction import current
from handrail.transaction.call_views import forwarded_attributes

_DICT: type[dict[str, Json]] = dict
_LIST: type[list[Json]] = list
"""For the storage of a container, past the methods that record changes."""

_OF_DICTS: Final = (
    *("plain", "copy", "__getitem__", "get", "__contains__", "__len__", "__iter__", "__reversed__", "keys"),
    *("__eq__", "__repr__", "__setitem__", "__delitem__", "pop", "popitem", "clear", "setdefault", "update", "__ior__"),
)
_OF_LISTS: Final = (
    *("plain", "copy", "__getitem__", "__len__", "__contains__", "index", "count", "__eq__", "__lt__", "__le__"),
    *("__gt__", "__ge__", "__repr__", "__setitem__", "__delitem__", "append", "extend", "insert", "pop", "remove"),
    *("clear", "reverse", "sort", "__iadd__", "__imul__"),
)
"""The methods that run in the container; the others are made of these."""


class ProgramDict(RecordDict):
    """A dict of records, as a program has it outside of calls."""

    __slots__ = ("_inner",)

    def __init__(self, changes: RecordChanges, inner: RecordDict) -> None:
        """Make the handle of a dict; `inner` is the dict."""
        super().__init__(changes, dict(_DICT.items(inner)))
        self._inner = inner
        inner.outer = self

    @property
    def inner(self) -> RecordDict:
        """The dict itself, as calls get it."""
        return self._inner


class ProgramList(RecordList):
    """A list of records, as a program has it outside of calls."""

    __slots__ = ("_inner",)

    def __init__(self, changes: RecordChanges, inner: RecordList) -> None:
        """Make the handle of a list; `inner` is the list."""
        super().__init__(changes, _LIST.__iter__(inner))
        self._inner = inner
        inner.outer = self

    @property
    def inner(self) -> RecordList:
        """The list itself, as calls get it."""
        return self._inner


def _forwarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that runs in the container, as a write of the program or of the call that runs in this context."""
    name = method.__name__

    @wraps(method)
    def run(self: ProgramDict | ProgramList, *args: Json, **kwargs: Json) -> Json:
        changes, call = self.changes, current()
        stored = tuple(map(_unwrapped, args))
        if call is not None:
            changes.last_call = call
            return getattr(self.inner, name)(*stored, **kwargs)
        with ProgramWrite():
            found = getattr(self.inner, name)(*stored, **{key: _unwrapped(value) for key, value in kwargs.items()})
        if name == "plain" or any(found is value for value in args):  # `plain` copies, and a default is the caller's
            return found
        return _for_program(found, changes)

    return run


for _kind, _base, _names in ((ProgramDict, RecordDict, _OF_DICTS), (ProgramList, RecordList, _OF_LISTS)):
    for _name in _names:
        setattr(_kind, _name, _forwarded(vars(_base)[_name]))


def _unwrapped(given: Json) -> Json:
    """A value that is to be stored, with containers in place of handles: for itself, or for the parts that it has."""
    if _is(given, list) and any(isinstance(part, ProgramDict | ProgramList) for part in given):
        return [_inner(part) for part in given]
    if _is(given, dict) and any(isinstance(part, ProgramDict | ProgramList) for part in given.values()):
        return {key: _inner(part) for key, part in given.items()}
    return _inner(given)


def _is(value: object, kind: type[object]) -> bool:
    return type(value) is kind


def _inner(given: Json) -> Json:
    return given.inner if isinstance(given, ProgramDict | ProgramList) else given


def _for_program(found: Json, changes: RecordChanges) -> Json:
    """What a method of a container returns, with handles in place of containers."""
    with changes.lock:  # so that two threads get one handle
        if isinstance(found, RecordDict):
            return ProgramDict(changes, found) if found.outer is None else found.outer
        if isinstance(found, RecordList):
            return ProgramList(changes, found) if found.outer is None else found.outer
    if _is(found, dict):
        return {key: _for_program(part, changes) for key, part in found.items()}
    if _is(found, list):
        return [_for_program(part, changes) for part in found]
    if _is(found, tuple):
        return tuple(_for_program(part, changes) for part in found)
    return found


def container_like(handle: ProgramDict, changes: RecordChanges, content: dict[str, Json]) -> RecordDict:
    """The container of a handle whose class is `Records` or one of the program: of that class, with its attributes.

    `content` holds values as they are stored.
    """
    kind = _class_of_containers(type(handle))
    made = kind.__new__(kind)
    RecordDict.__init__(made, changes, content)
    made.outer = handle
    return made


@cache
def _class_of_containers(kind: type[ProgramDict]) -> type[RecordDict]:
    """A class with the methods of a container, and what a class of the program adds."""
    added = forwarded_attributes(kind, ProgramDict, "outer")
    own = {name: vars(RecordDict)[name] for name in _OF_DICTS if getattr(kind, name) is getattr(ProgramDict, name)}
    attributes = {"__getattr__": _attribute_of_handle, "__setattr__": _set_attribute, "__hash__": None}
    made = type(kind.__name__, (kind,), {**own, **added, **attributes, "__slots__": (), "__doc__": kind.__doc__})
    return cast("type[RecordDict]", made)  # its base is one


def _attribute_of_handle(self: RecordDict, name: str) -> object:
    """An attribute that the container has not: that of the handle."""
    if name in _OWN_ATTRIBUTES:
        raise AttributeError(name)
    return getattr(self.outer, name)


def _set_attribute(self: RecordDict, name: str, value: object) -> None:
    if name in _OWN_ATTRIBUTES:
        object.__setattr__(self, name, value)
    else:
        setattr(self.outer, name, value)


_OWN_ATTRIBUTES: Final = frozenset({"_changes", "outer"})
"""What a container has itself."""
