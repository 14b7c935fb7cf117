"""Reducers: pure functions that compute the next state of a slice when an event arrives.

A reducer takes the slice as it is and the event, and returns `Append`, `Replace` or `Unchanged`. A state slice is a
dataclass whose methods, marked with `@reducer(on=Event)`, take the event and return the next value of the class.

`SliceRules` says which slices of a session are LOGs, and which reducers take which events. `SessionSlices` is what a
session and its slices write through.

Writes from outside of calls
    Each is a transaction of its own, and none waits for a call. They wait for each other, so that threads of the
    program need no lock of theirs. A call holds the session for as long as its handler takes, which may be a request to
    a model. So a write that meets one is refused, and the program decides.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable
from dataclasses import is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from handrail.errors import ReducerError, SessionBusyError, SessionLostError, SessionUseError
from handrail.events import Dispatcher
from handrail.session.calls import CallRecord, CallRecords, CallRef
from handrail.session.slices import (
    Append,
    Change,
    LogWrite,
    Reducer,
    Replace,
    S,
    SessionSnapshot,
    SliceChange,
    SliceOwner,
    SlicePolicy,
    SliceView,
    Unchanged,
    Version,
    Versions,
    VersionView,
    check_change,
    resettable,
)
from handrail.session.state import LogSlices, SliceChanges, StateSlices
from handrail.transaction import Snapshotable, Transaction, current, is_rolling_back
from handrail.turns import Turn, draw_ticket

if TYPE_CHECKING:
    from handrail.session.persistence.recorder import SessionRecorder

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


class SessionSlices:
    """The slices of one session, and how they are written to; all but a LOG that is appended to belongs to a call.

    Attributes:
        owner: stands for the session in its slices.
        lock: guards rules, records and slices.
        state: the STATE slices.
        log: the LOG slices.
        rules: which slices are LOGs, and which reducers take which events.
        calls: the records of calls.
        recorder: writes the session to its store; `None` for one in memory.
    """

    def __init__(self, session: Snapshotable[Any], turn: Turn, dispatcher: Dispatcher, session_id: str) -> None:
        """Begin with empty slices.

        Args:
            session: takes part in the calls that write.
            turn: the turn that calls take on it.
            dispatcher: notifies subscribers of events.
            session_id: the id of the session.
        """
        self._session, self._turn, self._dispatcher, self._session_id = session, turn, dispatcher, session_id
        self._outside = threading.RLock()  # writes from outside of calls wait for each other
        self.owner: SliceOwner = SliceOwner(session_id)
        self.lock: threading.RLock = threading.RLock()
        self.calls: CallRecords = CallRecords(session_id, self.lock)
        self.recorder: SessionRecorder | None = None
        self.adopt({}, {})

    def adopt(self, state: Versions, log: Versions, rules: SliceRules | None = None) -> None:
        """Become what these slices are, with those rules; before the session is used."""
        policies = dict.fromkeys(state, SlicePolicy.STATE) | dict.fromkeys(log, SlicePolicy.LOG)
        self.state: StateSlices = StateSlices(self.owner, state)
        self.log: LogSlices = LogSlices(self.owner, log)
        self.rules: SliceRules = SliceRules(policies, {}) if rules is None else rules.copy()

    def version_of(self, kind: type[T]) -> Version[T] | None:
        """The version of a slice that this context sees: its call's own changes, or what has been committed."""
        return (self.log.slices if self.rules.policy(kind) is SlicePolicy.LOG else self.state.seen()).get(kind)

    def append(self, kind: type[T], item: T) -> None:
        """Add one item to a slice, past all reducers and subscribers; `Slice.append` reads better."""
        check_change(Append(item), kind)
        route, add = self.rules.route(kind), partial(self.state.append, kind, item)
        self.log_item(kind, item) if route.logged else self._write(route.append, add, current())

    def change(self, kind: type[Any], change: SliceChange, what: str) -> None:
        """Change a STATE slice past all reducers in another way than by `append`; `what` names the act in errors."""
        check_change(change, kind)
        if self.rules.policy(kind) is SlicePolicy.LOG:
            raise SessionUseError(f"slice {kind.__name__} is a LOG, which only grows: it cannot {what}")
        self._write(what, partial(self.state.apply, ((kind, change),)), current())

    def register(self, event_type: type[E], reducer: Reducer[T, E], *, into: type[T]) -> None:
        """Register a reducer; see `Session.register`."""
        with self.lock:
            self.rules.register(event_type, reducer, into=into)

    def listens(self, event_type: type[Any]) -> bool:
        """Whether events of this type have a reducer or a subscriber."""
        dispatcher = self._dispatcher
        return self.rules.reduces(event_type) or (not dispatcher.is_quiet and dispatcher.listens(event_type))

    def dispatch(self, event: object) -> None:
        """Take an event in; see `Session.dispatch`."""
        if self.rules.route(type(event)).logged:
            self.log_item(type(event), event)
        self.announce(event)

    def announce(self, event: object) -> None:
        """The same for an event that is in its LOG already; see `dispatch`."""
        route = self.rules.route(type(event))
        if route.logged and not route.reducers:
            self._dispatcher.dispatch(event)
            return
        call = current()
        if call is None:
            self._write_outside(route.what, partial(self._take_in, event, route))
        else:
            self._take_in(event, route, call)

    def record(self, event: CallRecord, ref: CallRef, *, nested: bool = False) -> None:
        """Append the event that records a call to its LOG, on its own: the call has done nothing, or is inside another.

        A store that fails is logged, and gets the event with the next unit. That of a call which is `nested` is not
        found among `calls`, because it may still be undone.
        """
        self.log_item(type(event), event, ref, written="record")
        if not nested and ref.is_named and not (ref[0] is None and self.recorder is None):
            self.calls.add(ref, event)

    def record_with(self, event: CallRecord, ref: CallRef, transaction: Transaction) -> None:
        """Have the LOG of a stored session get the event that records a call, in one unit with what the call has done.

        Its transaction is about to commit, and is nested in no other.

        Raises:
            SessionError: the store cannot hold the event.
        """
        if self.recorder is not None:
            with self.lock:
                self.recorder.part_of(transaction).record = self.recorder.noting(type(event), event, ref)

    def undo(self, snapshot: SessionSnapshot) -> None:
        """Become again what a snapshot of this session holds; see `Session.restore`."""
        # A rollback has no current transaction, and its call still holds the turn: `_write` would be refused.
        if is_rolling_back():
            with self.lock:
                self.state.undo(snapshot.slices, snapshot.taken)
        else:
            self._write("restore a snapshot", partial(self.state.restore, snapshot.slices), current())

    def reset(self, check: Callable[[], None]) -> None:
        """Empty the slices that a reset empties, in one unit of work; `check` may refuse it. See `Session.reset`."""
        if current() is not None:
            raise SessionUseError("a session is reset between calls, not by one: its record would be removed with it")
        gone: list[tuple[type[Any], int]] = []

        def empty(call: Transaction) -> None:
            check()
            with self.lock:
                self._open(call, "reset the session")
                self.state.empty()
                gone.extend(resettable(self.log.slices))
                if self.recorder is not None:
                    self.recorder.part_of(call).emptied = tuple(kind for kind, _ in gone)

        self._write_outside("reset the session", empty)
        if self.recorder is None:
            with self.lock:
                self.log.cut_off_start(gone)

    def log_item(self, kind: type[T], item: T, ref: CallRef | None = None, *, written: LogWrite = "now") -> None:
        """Append an item of a call to the LOG of a type, past reducers and subscribers; see `LogWrite`.

        Raises:
            SessionError: it cannot be stored, the session is closed, or it may not wait here. Nothing was appended.
            StoreError: it was to be written surely, and was not; or `CommitInDoubtError`.
        """
        if (kept := self.recorder) is None:
            with self.lock:
                self.log.append(kind, item)
            return
        caller = current()
        # One of a call that writes to this session goes with the unit of the call.
        in_call = caller is not None and caller.root.state != "ended" and caller.holds(self._turn)
        if written != "record":
            kept.check_open()
            if not (in_call or written == "deferred"):
                kept.check_wait()
        with self.lock:
            # The item is dumped first: one that cannot be stored is refused before the LOG has it.
            kept.note(kind, item, ref, deferred=written == "deferred")
            self.log.append(kind, item)
        error = None if in_call or written == "deferred" else kept.flush()
        if error is not None and (written == "surely" or isinstance(error, SessionLostError)):
            raise error

    def _write(self, what: str, act: Callable[[], None], call: Transaction | None) -> None:
        if call is None:
            self._write_outside(what, partial(self._write, what, act))
        else:
            with self.lock:
                self._open(call, what)
                act()

    def _write_outside(self, what: str, write: Callable[[Transaction], None]) -> None:
        """Have `write` called in a transaction, and commit it; `what` names the act in errors.

        Raises:
            SessionBusyError: a call holds the session. Nothing was written.
            Exception: what `write`, or the commit, raises. It has been rolled back.
        """
        if not self._outside.acquire(blocking=False):
            if self.recorder is not None:
                self.recorder.queue.check_wait()
            self._outside.acquire()
        try:
            ticket = draw_ticket((self._turn,), exclusive=True)
            try:
                if ticket.waiter is not None:
                    raise SessionBusyError(self._session_id)
                with Transaction(what, ticket=ticket, writes=True) as transaction:
                    write(transaction)
                    transaction.commit()
            finally:
                ticket.release()
        finally:
            self._outside.release()

    def _open(self, call: Transaction, what: str) -> None:
        if self.state.open(self._session, call, what, snapshot=self._snapshot_of_call) and self.recorder is not None:
            self.recorder.part_of(call.root)

    def _snapshot_of_call(self) -> SessionSnapshot:  # to roll back to; unlike `snapshot`, it is dropped with the call
        return SessionSnapshot(self.owner, self.state.seen(), self.state.taken_so_far())

    def _take_in(self, event: object, route: EventRoute, call: Transaction) -> None:
        with self.lock:
            self._open(call, route.what)
            if route.reducers:
                self.state.apply(decided_changes(event, route.reducers, self.state))
            else:
                self.state.append(type(event), event)
            if self.recorder is not None and not route.logged:
                self.state.taken.append(event)
        # Outside of the lock, because a subscriber may wait for a thread that uses the session.
        if not self._dispatcher.is_quiet:
            self._dispatcher.dispatch(event)
