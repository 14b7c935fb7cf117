"""Reducers: pure functions that say what becomes of a slice when an event arrives.

A reducer takes the slice as it is and the event, and returns `Append`, `Replace` or `Keep`. A state slice is a
dataclass whose methods, marked with `@reducer(on=Event)`, take the event and return the next value of the class.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias, TypeVar, cast

from handrail.errors import ReducerError
from handrail.session.changes import Append, Change, Keep, Replace, SliceChange
from handrail.session.slices import SliceView

S = TypeVar("S")
E = TypeVar("E")
M = TypeVar("M", bound=Callable[..., Any])

Reducer: TypeAlias = Callable[[SliceView[S], E], Change[S]]
"""Takes the slice and the event; returns what becomes of the slice. Has no effects."""

_MARK = "__handrail_reducer_on__"


def append_all(_view: SliceView[S], event: S) -> Append[S]:
    """Keep every event: the slice gets it as its newest item. What a slice does when nothing else is registered."""
    return Append(event)


def replace_latest(_view: SliceView[S], event: S) -> Replace[S]:
    """Keep the newest event only."""
    return Replace((event,))


def upsert_by(key: Callable[[S], Hashable]) -> Reducer[S, S]:
    """Keep the newest event of each key, in the place where its key first appeared. Costs what the slice holds."""

    def upsert(view: SliceView[S], event: S) -> Change[S]:
        wanted = key(event)
        keys = [key(item) for item in view]
        if wanted not in keys:
            return Append(event)
        first = keys.index(wanted)
        others = [(place, item) for place, item in enumerate(view) if keys[place] != wanted]
        before = [item for place, item in others if place < first]
        after = [item for place, item in others if place > first]
        return Replace((*before, event, *after))

    return upsert


def reducer(*, on: type[object]) -> Callable[[M], M]:
    """Mark a method of a state slice as the reducer of an event type; a method may be marked for several.

    The method takes the event and returns the next value of the slice (an instance of its class), or a `Change`.
    """

    def mark(method: M) -> M:
        setattr(method, _MARK, (on, *_marks_of(method)))
        return method

    return mark


def methods_of(state: type[S], initial: Callable[[], S] | None) -> dict[type[Any], Reducer[S, Any]]:
    """The reducers that a state slice declares or inherits, by their event type.

    Raises:
        ReducerError: the class marks no method, or two for one event.
    """
    found: dict[type[Any], Reducer[S, Any]] = {}
    names = dict.fromkeys(name for cls in reversed(state.__mro__) for name in vars(cls))
    for name in names:
        for event_type in _marks_of(inspect.getattr_static(state, name)):
            if event_type in found:
                msg = (
                    f"{state.__name__}.{name} reduces {event_type.__name__}, which another of its methods does already"
                )
                raise ReducerError(msg)
            found[event_type] = _method_reducer(state, name, initial)
    if not found:
        msg = f"{state.__name__} has no method marked @reducer(on=Event), so there is nothing to install"
        raise ReducerError(msg)
    return found


def _marks_of(method: object) -> tuple[type[Any], ...]:
    marks: tuple[type[Any], ...] = getattr(method, _MARK, ())
    return marks


def _method_reducer(state: type[S], name: str, initial: Callable[[], S] | None) -> Reducer[S, Any]:
    def reduce(view: SliceView[S], event: object) -> Change[S]:
        now = view.latest()
        if now is None:
            if initial is None:
                return Keep()
            now = initial()
        becomes: object = getattr(now, name)(event)
        if isinstance(becomes, state):
            return Replace((becomes,))
        if isinstance(becomes, SliceChange):
            return cast("Change[S]", becomes)  # whether its items fit is checked with every other change
        msg = f"{state.__name__}.{name} returned {becomes!r:.100}; return the next {state.__name__}, or a change of it"
        raise ReducerError(msg)

    return reduce
