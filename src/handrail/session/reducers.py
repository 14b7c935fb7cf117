"""Reducers, the rules that register them, and the slices that a session writes through.

A reducer is a pure function: it takes the slice as it is and the event, and returns `Append`, `Replace` or `Unchanged`.
A state slice is a dataclass whose methods, marked with `@reducer(on=Event)`, take the event and return the next value
of the class.

Writes from outside of calls are transactions of their own. They wait for each other, so that threads of the program
need no lock. None waits for a call, which may hold the session as long as a request to a model takes: such a write is
refused, and the program decides.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, cast, overload

from handrail.errors import ReducerError, SessionBusyError, SessionLostError, SessionUseError
from handrail.events import Dispatcher
from handrail.session.calls import CallRecord, CallRecords, CallRef
from handrail.session.slices import (
    Append,
    Change,
    LogWrite,
    Reducer,
    Remove,
    Replace,
    S,
    SessionSnapshot,
    SliceChange,
    SliceChanges,
    SliceOwner,
    SlicePolicy,
    SliceView,
    StateSlices,
    Unchanged,
    Version,
    Versions,
    appended,
    check_change,
    check_items,
    list_resettable,
    shorten_logs,
)
from handrail.transaction import Snapshotable, Transaction, current, is_rolling_back
from handrail.turns import Turn, draw_ticket
from handrail.waiting import asynchronous

if TYPE_CHECKING:
    from handrail.session.persistence.recorder import SessionRecorder

M = TypeVar("M", bound=Callable[..., Any])

_MARK = "__handrail_reducer_on__"

T = TypeVar("T")

E = TypeVar("E")

Reducers: TypeAlias = Mapping[type[Any], Reducer[Any, Any]]
"""Reducers of one event, by the slice that each decides on."""


def decide_changes(event: object, reducers: Reducers, state: StateSlices) -> SliceChanges:
    """Collects what all reducers make of an event, before any of it is applied; raises `ReducerError`."""
    now = state.now
    changes: list[tuple[type[Any], SliceChange]] = []
    for into, reducer in reducers.items():
        change = reducer(SliceView(now[1].get(into)), event)
        check_change(change, into)
        changes.append((into, change))
    if state.now is not now:
        msg = f"a reducer of {type(event).__name__} wrote to the session itself; it may only return what to change"
        raise ReducerError(msg)
    return changes


def append_all(_view: SliceView[S], event: S) -> Append[S]:
    """Appends every event to the slice: the default."""
    return Append(event)


def replace_latest(_view: SliceView[S], event: S) -> Replace[S]:
    """Keeps the newest event only."""
    return Replace((event,))


def upsert_by(key: Callable[[S], Hashable]) -> Reducer[S, S]:
    """Keeps the newest event of each key, in the place where its key first appeared. Costs what the slice holds."""

    def upsert(view: SliceView[S], event: S) -> Change[S]:
        new_key = key(event)
        others = [item for item in view if key(item) != new_key]  # a seed may hold several of the key
        if len(others) == len(view):
            return Append(event)
        first = next(place for place, item in enumerate(view) if key(item) == new_key)
        return Replace((*others[:first], event, *others[first:]))

    return upsert


def reducer(*, on: type[object]) -> Callable[[M], M]:
    """Marks a method of a state slice as the reducer of an event type; a method may be marked for several.

    The method takes the event and returns the next value of the slice (an instance of its class), or a `Change`.
    """

    def mark(method: M) -> M:
        setattr(method, _MARK, (on, *_list_marks(method)))
        return method

    return mark


def collect_methods(state: type[S], initial: Callable[[], S] | None) -> dict[type[Any], Reducer[S, Any]]:
    """The reducers that a state slice declares or inherits, by their event type; raises `ReducerError`."""
    reducers: dict[type[Any], Reducer[S, Any]] = {}
    # From the class itself a name is looked up once, so a method that overrides a marked one replaces it.
    names = dict.fromkeys(name for cls in reversed(state.__mro__) for name in vars(cls))
    for name in names:
        # Looked up statically, because `getattr` would run properties of the class.
        for event_type in _list_marks(inspect.getattr_static(state, name)):
            if event_type in reducers:
                raise ReducerError(
                    f"{state.__name__}.{name} reduces {event_type.__name__}, which another of its methods does already"
                )
            reducers[event_type] = _method_reducer(state, name, initial)
    if not reducers:
        raise ReducerError(f"{state.__name__} has no method marked @reducer(on=Event), so there is nothing to install")
    return reducers


def _list_marks(method: object) -> tuple[type[Any], ...]:
    return cast("tuple[type[Any], ...]", getattr(method, _MARK, ()))  # as `reducer` has set it


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


_NO_REDUCERS: Final[Reducers] = MappingProxyType({})


@dataclass(slots=True)
class SliceRules:
    """The policies of slices and the reducers of events of one session, whose lock guards changes; reading needs none.

    A class that is not among the policies declares its own.
    """

    _policies: dict[type[Any], SlicePolicy]
    _reducers: dict[type[Any], Reducers]

    def copy(self) -> SliceRules:
        """The same rules for another session."""
        return SliceRules(dict(self._policies), dict(self._reducers))

    def policy(self, kind: type[Any]) -> SlicePolicy:
        """The effect of a rollback on the slice of a type; raises `SessionUseError`."""
        return self._policies.get(kind) or self._policies.setdefault(kind, _declared_policy(kind))

    def is_log(self, kind: type[Any]) -> bool:
        """Returns whether the slice of a type is a LOG; raises as `policy`."""
        return (self._policies.get(kind) or self.policy(kind)) is SlicePolicy.LOG

    def reducers(self, event_type: type[Any]) -> Reducers:
        """The reducers of an event; without any, and without a LOG, it is appended to its own slice."""
        return self._reducers.get(event_type, _NO_REDUCERS)

    def register(self, event_type: type[E], reducer: Reducer[T, E], *, into: type[T]) -> None:
        """Adds a reducer; see `Session.register`."""
        self.policy(event_type)  # raises for what is not a dataclass
        if self.is_log(into):
            raise _no_log(into)
        reducers = self.reducers(event_type)
        if reducers.get(into, reducer) is not reducer:
            raise ReducerError(f"slice {into.__name__} has another reducer for {event_type.__name__} already")
        self._reducers[event_type] = {**reducers, into: reducer}

    def install(self, state: type[T], initial: Callable[[], T] | None) -> None:
        """Adds the reducers of a state slice; see `Session.install`."""
        if self._decides_on(state):
            raise ReducerError(f"{state.__name__} has reducers in this session already")
        methods = collect_methods(state, initial)
        for kind in (state, *methods):
            self.policy(kind)  # all must be dataclasses before anything is registered
        for event_type, reducer in methods.items():
            self.register(event_type, reducer, into=state)

    def _decides_on(self, kind: type[Any]) -> bool:
        return any(kind in reducers for reducers in self._reducers.values())


def _no_log(kind: type[Any]) -> ReducerError:
    return ReducerError(
        f"slice {kind.__name__} is a LOG, which gets every event of its own type and no other; let reducers decide on "
        "STATE slices"
    )


def _declared_policy(kind: object) -> SlicePolicy:
    if not (isinstance(kind, type) and is_dataclass(kind)):
        msg = f"a slice holds values of a dataclass, and {kind!r:.100} is none; name a class decorated with @dataclass"
        raise SessionUseError(msg)
    policy: object = getattr(kind, "slice_policy", SlicePolicy.STATE)
    if not isinstance(policy, SlicePolicy):
        msg = f"{kind.__name__}.slice_policy is {policy!r:.100}; make it SlicePolicy.STATE or SlicePolicy.LOG"
        raise SessionUseError(msg)
    return policy


class SessionSlices:
    """The slices of one session, and how they are written to; all but appending to a LOG belongs to a call."""

    def __init__(self, session: Snapshotable[Any], turn: Turn, dispatcher: Dispatcher, session_id: str) -> None:
        self._session, self._turn, self._dispatcher = session, turn, dispatcher
        self._outside = threading.RLock()  # writes from outside of calls wait for each other
        self.owner: SliceOwner = SliceOwner(session_id)  # stands for the session in its slices
        self.lock: threading.RLock = threading.RLock()  # guards rules, records and slices
        self.calls: CallRecords = CallRecords(self.lock)  # the records of calls
        self.recorder: SessionRecorder | None = None  # writes the session to its store; `None` in memory
        self.adopt({}, {})

    def adopt(self, state: Versions, log: Versions, rules: SliceRules | None = None) -> None:
        """Takes over slices and rules; before the session is used."""
        policies = dict.fromkeys(state, SlicePolicy.STATE) | dict.fromkeys(log, SlicePolicy.LOG)
        self.state: StateSlices = StateSlices(self.owner, state)
        self.log: dict[type[Any], Version[Any]] = dict(log)
        # Which slices are LOGs, and which reducers take which events.
        self.rules: SliceRules = SliceRules(policies, {}) if rules is None else rules.copy()

    def listens(self, event_type: type[Any]) -> bool:
        """Returns whether events of this type have a reducer or a subscriber."""
        dispatcher = self._dispatcher
        return bool(self.rules.reducers(event_type)) or (not dispatcher.is_quiet and dispatcher.listens(event_type))

    def dispatch(self, event: object) -> None:
        """Passes on an event; see `Session.dispatch`."""
        if is_log := self.rules.is_log(type(event)):
            self.log_item(type(event), event)
        self.announce(event, is_log=is_log)

    def announce(self, event: object, *, is_log: bool = True) -> None:
        """Passes on an event that is in its LOG already."""
        reducers, call = self.rules.reducers(type(event)), current()
        if is_log and not reducers:
            self._dispatcher.dispatch(event)
        elif call is None:
            self._write_outside(f"dispatch {type(event).__name__}", partial(self._take_in, event, reducers))
        else:
            self._take_in(event, reducers, call)

    def record(self, event: CallRecord, ref: CallRef, *, nested: bool = False) -> None:
        """Appends the event that records a call to its LOG, on its own: the call has done nothing, or is nested.

        A store that fails is logged, and gets the event with the next unit. That of a `nested` call may still be
        undone, so it is not among `calls`.
        """
        self.log_item(type(event), event, ref, write="record")
        if not nested and ref.is_named and not (ref[0] is None and self.recorder is None):
            self.calls.add(ref, event)

    def record_with(self, event: CallRecord, ref: CallRef, transaction: Transaction) -> None:
        """Stores the event that records a call with what the call has done, when its outermost transaction commits.

        Raises:
            SessionError: the store cannot hold the event.
        """
        if self.recorder is not None:
            with self.lock:
                self.recorder.join(transaction).record = self.recorder.dump_item(type(event), event, ref)

    def undo(self, snapshot: SessionSnapshot) -> None:
        """Restores a snapshot of this session; see `Session.restore`."""
        # A rollback has no current transaction, and its call still holds the turn: `_write` would be refused.
        if is_rolling_back():
            with self.lock:
                self.state.undo(snapshot.slices)
        else:
            self.write("restore a snapshot", partial(self.state.restore, snapshot.slices), current())

    def reset(self, check: Callable[[], None]) -> None:
        """Empties slices in one unit of work, unless `check` refuses it; see `Session.reset`."""
        if current() is not None:
            raise SessionUseError("a session is reset between calls, not by one: its record would be removed with it")
        lengths: list[tuple[type[Any], int]] = []

        def empty(call: Transaction) -> None:
            check()
            with self.lock:
                self._open(call, "reset the session")
                self.state.apply([(kind, Replace(())) for kind, _ in list_resettable(self.state.now[1])])
                lengths.extend(list_resettable(self.log))
                if self.recorder is not None:
                    self.recorder.join(call).emptied = tuple(kind for kind, _ in lengths)

        self._write_outside("reset the session", empty)
        if self.recorder is None:
            with self.lock:
                shorten_logs(self.log, self.owner, lengths)

    def log_item(self, kind: type[T], item: T, ref: CallRef | None = None, *, write: LogWrite = "now") -> None:
        """Appends an item to the LOG of a type; see `Slice.log`."""
        if (recorder := self.recorder) is None:
            with self.lock:
                self.log[kind] = appended(self.log.get(kind), self.owner, item)
            return
        caller = current()
        # One of a call that writes to this session goes with the unit of the call.
        in_call = caller is not None and caller.root.state != "ended" and caller.holds(self._turn)
        if write != "record":
            recorder.check_open()
            if not (in_call or write == "deferred"):
                recorder.check_wait()
        with self.lock:
            # The item is dumped first: one that cannot be stored is refused before the LOG has it.
            recorder.record_item(kind, item, ref, deferred=write == "deferred")
            self.log[kind] = appended(self.log.get(kind), self.owner, item)
        error = None if in_call or write == "deferred" else recorder.flush()
        if error is not None and (write == "surely" or isinstance(error, SessionLostError)):
            raise error

    def write(self, what: str, act: Callable[[], None], call: Transaction | None) -> None:
        """Changes STATE slices by `act` in a call, or outside of calls in a transaction of its own."""
        if call is None:
            self._write_outside(what, partial(self.write, what, act))
        else:
            with self.lock:
                self._open(call, what)
                act()

    def _write_outside(self, what: str, write: Callable[[Transaction], None]) -> None:
        if not self._outside.acquire(blocking=False):
            if self.recorder is not None:
                self.recorder.queue.check_wait()
            self._outside.acquire()
        try:
            ticket = draw_ticket((self._turn,), exclusive=True)
            try:
                if ticket.waiter is not None:
                    raise SessionBusyError(self.owner.session_id)
                with Transaction(what, ticket=ticket, writes=True) as transaction:
                    write(transaction)
                    transaction.commit()
            finally:
                ticket.release()
        finally:
            self._outside.release()

    def _open(self, call: Transaction, what: str) -> None:
        if self.state.open(self._session, call, what) and self.recorder is not None:
            self.recorder.join(call.root)

    def _take_in(self, event: object, reducers: Reducers, call: Transaction) -> None:
        kind = type(event)
        with self.lock:
            self._open(call, f"dispatch {kind.__name__}")
            if reducers:
                self.state.apply(decide_changes(event, reducers, self.state))
            else:
                self.state.append(kind, event)
        # Outside of the lock, because a subscriber may wait for a thread that uses the session.
        if not self._dispatcher.is_quiet:
            self._dispatcher.dispatch(event)


class Slice(SliceView[T], Generic[T]):
    """The values of one type in a session: `session[Plan]`.

    Reading takes no turn; writing follows the session's rules. Items are values: replace an item, do not change it,
    which could not be undone.
    """

    __slots__ = ("_kind", "_slices")

    def __init__(self, slices: SessionSlices, kind: type[T]) -> None:
        self._slices = slices
        self._kind = kind

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return self._slices.owner.session_id

    @property
    def version(self) -> Version[T] | None:
        """The version that this context sees now."""
        slices, kind = self._slices, self._kind
        both = slices.log if slices.rules.is_log(kind) else slices.state.visible()
        return both.get(kind)

    def append(self, item: T) -> None:
        """Appends an item, past reducers and subscribers; use `Session.dispatch` for events."""
        slices, kind = self._slices, self._kind
        check_items((item,), kind)
        if slices.rules.is_log(kind):
            slices.log_item(kind, item)
        else:
            slices.write(f"append to {kind.__name__}", partial(slices.state.append, kind, item), current())

    def log(self, item: T, *, write: LogWrite = "now") -> None:
        """Appends an item to the slice, which is a LOG, past reducers and subscribers; see `LogWrite`.

        Raises:
            SessionError: it cannot be stored, the session is closed, or it may not wait here. Nothing was appended.
            StoreError: `write` is `"surely"`, and it was not stored; or `CommitInDoubtError`.
        """
        self._slices.log_item(self._kind, item, write=write)

    @overload
    def seed(self, items: Iterable[T], /) -> None: ...
    @overload
    def seed(self, *items: T) -> None: ...
    def seed(self, *items: T | Iterable[T]) -> None:
        """Replaces the items of the slice: `seed(a, b)`, or by those of one iterable, `seed([a, b])`.

        A dataclass instance is always an item, also if its class is iterable.

        Raises:
            ReducerError: a value is not an item of the slice.
            SessionUseError: the slice is a LOG.
        """
        argument: Any = items[0] if len(items) == 1 else items
        holds_items = isinstance(argument, Iterable) and not hasattr(cast("object", argument), "__dataclass_fields__")
        self._change(Replace(tuple(cast("Iterable[Any]", argument) if holds_items else items)), "seed")

    def clear(self, *, where: Callable[[T], bool] | None = None) -> None:
        """Removes the items for which `where` is true; without it, all.

        Raises:
            SessionUseError: the slice is a LOG, or the predicate writes to the session.
            Exception: what the predicate raises; nothing is removed.
        """
        self._change(Replace(()) if where is None else Remove(where), "clear")

    append_async: Final = asynchronous(append)
    seed_async: Final = asynchronous(seed)
    clear_async: Final = asynchronous(clear)

    def register(self, event_type: type[E], reducer: Reducer[T, E]) -> None:
        """Registers a reducer for this slice; see `Session.register`."""
        with self._slices.lock:
            self._slices.rules.register(event_type, reducer, into=self._kind)

    def _change(self, change: SliceChange, act: str) -> None:
        slices, kind = self._slices, self._kind
        check_change(change, kind)
        what = f"{act} {kind.__name__}"
        if slices.rules.is_log(kind):
            raise SessionUseError(f"slice {kind.__name__} is a LOG, which only grows: it cannot {what}")
        slices.write(what, partial(slices.state.apply, ((kind, change),)), current())
