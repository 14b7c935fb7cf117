"""Reducers: pure functions that compute the next state of a slice when an event arrives.

A reducer takes the slice as it is and the event, and returns `Append`, `Replace` or `Unchanged`. A state slice is a
dataclass whose methods, marked with `@reducer(on=Event)`, take the event and return the next value of the class.

`SliceRules` says which slices of a session are LOGs, and which reducers take which events.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from handrail.errors import ReducerError, SessionUseError
from handrail.session.slices import (
    Append,
    Change,
    Reducer,
    Replace,
    S,
    SliceChange,
    SlicePolicy,
    SliceView,
    Unchanged,
    VersionView,
    check_change,
)
from handrail.session.state import SliceChanges, StateSlices

M = TypeVar("M", bound=Callable[..., Any])

_MARK = "__handrail_reducer_on__"

T = TypeVar("T")

E = TypeVar("E")

Reducers: TypeAlias = tuple[tuple[type[Any], Reducer[Any, Any]], ...]
"""Reducers of one event, each with the slice that it decides on."""


def decided_changes(event: object, reducers: Reducers, state: StateSlices) -> SliceChanges:
    """What all reducers make of an event; nothing is applied before all have answered.

    Raises:
        ReducerError: one returned what no slice can become, or wrote to the session.
    """
    now = state.now
    changes: list[tuple[type[Any], SliceChange]] = []
    for into, reducer in reducers:
        change = reducer(VersionView(now[1].get(into)), event)
        check_change(change, into)
        changes.append((into, change))
    if state.now is not now:
        msg = f"a reducer of {type(event).__name__} wrote to the session itself; it may only return what to change"
        raise ReducerError(msg)
    return changes


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
        # A seed may have put several items of one key into the slice: all of them are replaced by the event.
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
    # From the class itself a name is looked up once, so a method that overrides a marked one replaces it.
    names = dict.fromkeys(name for cls in reversed(state.__mro__) for name in vars(cls))
    for name in names:
        # Looked up statically, because `getattr` would run properties of the class.
        for event_type in _marks_of(inspect.getattr_static(state, name)):
            if event_type in found:
                msg = (
                    f"{state.__name__}.{name} reduces {event_type.__name__}, which another of its methods does already"
                )
                raise ReducerError(msg)
            found[event_type] = _method_reducer(state, name, initial)
    if not found:
        raise ReducerError(f"{state.__name__} has no method marked @reducer(on=Event), so there is nothing to install")
    return found


def _marks_of(method: object) -> tuple[type[Any], ...]:
    marks: tuple[type[Any], ...] = getattr(method, _MARK, ())
    return marks


def _method_reducer(state: type[S], name: str, initial: Callable[[], S] | None) -> Reducer[S, Any]:
    def reduce(view: SliceView[S], event: object) -> Change[S]:
        now = view.latest()
        if now is None:
            # Without a value there is no method to call, so the event is passed over until the slice is seeded.
            if initial is None:
                return Unchanged()
            now = initial()
        becomes: object = getattr(now, name)(event)
        if isinstance(becomes, state):
            return Replace((becomes,))
        if isinstance(becomes, SliceChange):
            return cast("Change[S]", becomes)  # whether its items fit is checked with every other change
        msg = f"{state.__name__}.{name} returned {becomes!r:.100}; return the next {state.__name__}, or a change of it"
        raise ReducerError(msg)

    return reduce


class EventRoute(NamedTuple):
    """How the events of one type are handled.

    Attributes:
        logged: whether their own slice is a LOG, which gets them whatever else becomes of them.
        reducers: those that are called; without any, and without a LOG, an event is appended to its own slice.
        what: names the taking in of such an event, for messages.
        append: names the appending of such a value past all reducers, for messages.
    """

    logged: bool
    reducers: Reducers
    what: str
    append: str


class SliceRules:
    """The rules of one session, which guards their changing with its lock; looking them up needs none."""

    __slots__ = ("_policies", "_reducers", "_routes")

    def __init__(self, policies: dict[type[Any], SlicePolicy], reducers: dict[type[Any], Reducers]) -> None:
        """Make rules of dictionaries that the caller hands over; a class that is not among them declares its own."""
        self._policies = policies
        self._reducers = reducers
        self._routes: dict[type[Any], EventRoute] = {}  # replaced whenever the rules change

    def copy(self) -> SliceRules:
        """The same rules for another session."""
        return SliceRules(dict(self._policies), dict(self._reducers))

    def policy(self, kind: type[Any]) -> SlicePolicy:
        """What a rollback does to the slice of a type.

        Raises:
            SessionUseError: `kind` is not a dataclass.
        """
        policy = self._policies.get(kind)
        if policy is None:
            policy = self._policies[kind] = _policy_of(kind)
        return policy

    def route(self, event_type: type[Any]) -> EventRoute:
        """How the events of a type are handled.

        Raises:
            SessionUseError: it is not a dataclass.
        """
        routes = self._routes  # before the rules are read: what is found by old rules must not be kept among new ones
        route = routes.get(event_type)
        if route is None:
            logged = self.policy(event_type) is SlicePolicy.LOG
            reducers = self._reducers.get(event_type, ())
            route = routes[event_type] = EventRoute(
                logged, reducers, f"dispatch {event_type.__name__}", f"append to {event_type.__name__}"
            )
        return route

    def reduces(self, event_type: type[Any]) -> bool:
        """Whether a reducer takes events of this type."""
        return event_type in self._reducers

    def declare(self, kind: type[Any], policy: SlicePolicy) -> None:
        """Set the policy of a slice, which is empty; see `Session.declare`."""
        self.policy(kind)  # raises for what is not a dataclass
        if policy is SlicePolicy.LOG and self._decides_on(kind):
            raise _no_log(kind)
        self._policies[kind] = policy
        self._routes = {}

    def register(self, event_type: type[E], reducer: Reducer[T, E], *, into: type[T]) -> None:
        """Add a reducer; see `Session.register`."""
        self.policy(event_type)  # raises for what is not a dataclass
        if self.policy(into) is SlicePolicy.LOG:
            raise _no_log(into)
        reducers = self._reducers.get(event_type, ())
        known = dict(reducers).get(into, reducer)
        if known is not reducer:
            raise ReducerError(f"slice {into.__name__} has another reducer for {event_type.__name__} already")
        self._reducers[event_type] = (*(entry for entry in reducers if entry[0] is not into), (into, reducer))
        # Replaced and not cleared: a thread that is computing a route by the old rules writes it into the old
        # dictionary.
        self._routes = {}

    def install(self, state: type[T], initial: Callable[[], T] | None) -> None:
        """Add the reducers that a state slice declares; see `Session.install`."""
        if self._decides_on(state):
            raise ReducerError(f"{state.__name__} has reducers in this session already")
        methods = methods_of(state, initial)
        for kind in (state, *methods):
            self.policy(kind)  # all must be dataclasses before anything is registered
        for event_type, reducer in methods.items():
            self.register(event_type, reducer, into=state)

    def _decides_on(self, kind: type[Any]) -> bool:
        return any(into is kind for reducers in self._reducers.values() for into, _ in reducers)


def _no_log(kind: type[Any]) -> ReducerError:
    return ReducerError(
        f"slice {kind.__name__} is a LOG, which gets every event of its own type and no other; let reducers decide on "
        "STATE slices"
    )


def _policy_of(kind: object) -> SlicePolicy:
    if not (isinstance(kind, type) and is_dataclass(kind)):
        msg = f"a slice holds values of a dataclass, and {kind!r:.100} is none; name a class decorated with @dataclass"
        raise SessionUseError(msg)
    policy: object = getattr(kind, "slice_policy", SlicePolicy.STATE)
    if not isinstance(policy, SlicePolicy):
        msg = f"{kind.__name__}.slice_policy is {policy!r:.100}; make it SlicePolicy.STATE or SlicePolicy.LOG"
        raise SessionUseError(msg)
    return policy
