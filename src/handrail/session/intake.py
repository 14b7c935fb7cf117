"""What a session takes in: events and changes, by its rules, for whoever may write.

Who may write
    Inside a call, writes belong to the call's transaction (see `handrail.transaction`), however the session was
    reached. Until the call has committed, everybody outside it goes on seeing what was there before.
    Outside of calls each write is a transaction of its own, and needs the session's turn to be free.
    A LOG takes events from anybody at any time. Rules are no state: what is registered inside a call stays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from handrail.errors import ReducerError, SessionBusyError, SessionUseError, SnapshotError
from handrail.events import Dispatcher
from handrail.session.calls import CallRecords, CallRef
from handrail.session.changes import Append, Change, SliceChange, check_change
from handrail.session.log import Log
from handrail.session.persistence.recorder import Kept
from handrail.session.reducers import Reducer
from handrail.session.rules import Reducers, Route, Rules
from handrail.session.slice import Slice
from handrail.session.slices import FixedView, Owner, SessionSnapshot, SlicePolicy, Version, Versions
from handrail.session.state import Changes, State
from handrail.transaction import Transaction, current, undoing
from handrail.turns import Turn, draw

T = TypeVar("T")
E = TypeVar("E")


class Intake:
    """Owns the rules, the STATE slices and the LOG slices of a session, and guards their changing with one lock.

    Attributes:
        session_id: names the session in keys, events and stores.
        dispatcher: tells subscribers of every dispatched event.
        turn: the turn that calls take on this session.
    """

    def __init__(self, session_id: str, dispatcher: Dispatcher | None) -> None:
        """Begin with nothing, for a session that is kept nowhere."""
        self.session_id = session_id
        self.dispatcher = dispatcher if dispatcher is not None else Dispatcher()
        self.turn = Turn()
        self._owner = Owner(session_id)
        self._lock = threading.RLock()
        self._outside = threading.RLock()
        self._rules = Rules({}, {})
        self._state = State(self._owner, {})
        self._log = Log(self._owner, {})
        self._access: dict[type[Any], Slice[Any]] = {}
        self._records = CallRecords()
        self._kept: Kept | None = None

    def __getitem__(self, kind: type[T]) -> Slice[T]:
        """The slice of a type; empty when nothing of that type has come in.

        Raises:
            SessionUseError: `kind` is not a dataclass.
        """
        access = self._access.get(kind)
        if access is None:
            self._rules.policy(kind)
            access = self._access[kind] = Slice(self, kind)
        return cast("Slice[T]", access)  # the mapping cannot say that key and value belong together

    def declare(self, kind: type[Any], policy: SlicePolicy) -> None:
        """Say what becomes of a type's slice on rollback, in this session, before anything is in it.

        Raises:
            SessionUseError: the slice holds something already, or something that has not been committed yet.
            ReducerError: it would be a LOG, and reducers decide on it.
        """
        with self._lock:
            if self._state.is_used(kind) or kind in self._log.slices:
                raise SessionUseError(f"slice {kind.__name__} is in use; declare its policy before the first event")
            self._rules.declare(kind, policy)

    def install(self, state: type[T], *, initial: Callable[[], T] | None = None) -> None:
        """Register the methods of a state slice that are marked `@reducer(on=Event)`.

        Args:
            state: the class; its newest value is `session[state].latest()`.
            initial: makes the value that the first event meets; without it, events are passed over until the slice is
                seeded.

        Raises:
            ReducerError: no method is marked, or the slice has reducers already, or is a LOG. Nothing is registered.
            SessionUseError: the class or one of the events is no dataclass. Nothing is registered.
        """
        with self._lock:
            self._rules.install(state, initial)

    def register(self, event_type: type[E], reducer: Reducer[T, E], *, into: type[T]) -> None:
        """Let a reducer decide what becomes of slice `into` when an event of that type is dispatched.

        Registering the same reducer again changes nothing.

        Raises:
            ReducerError: another reducer of the slice takes events of that type already, or the slice is a LOG.
        """
        with self._lock:
            self._rules.register(event_type, reducer, into=into)

    def listens(self, event_type: type[Any]) -> bool:
        """Whether a reducer or a subscriber would hear of events of this type."""
        return self._rules.reduces(event_type) or (not self.dispatcher.is_quiet and self.dispatcher.listens(event_type))

    def dispatch(self, event: object) -> None:
        """Take an event in: its reducers decide (by default it is appended to its own slice), then subscribers hear.

        Inside a call, all of it belongs to the call. Outside, the event is taken in whole or, when a reducer or a
        subscriber raises, not at all. An event whose slice is a LOG is kept in either case; if no reducer takes it, it
        needs no turn.

        Raises:
            SessionError: the event is no dataclass instance, or the session's store cannot hold it.
            SessionBusyError: outside of calls, while a call holds the session.
            StoreUnavailableError: outside of calls, the session's store does not answer; nothing is taken in.
            DispatchError: subscribers raised.
            ReducerError: a reducer returned what no slice can become, or wrote to the session; what a reducer raises
                itself passes unchanged.
        """
        route = self._rules.route(type(event))
        if route.logged:
            self._log_item(type(event), event)
            if not route.reducers and self.dispatcher.is_quiet:
                return
        self.announce(event)

    def announce(self, event: object) -> None:
        """The same for an event that is in its LOG already; see `dispatch`."""
        route = self._rules.route(type(event))
        if route.logged and not route.reducers:
            if not self.dispatcher.is_quiet:
                self.dispatcher.dispatch(event)
            return
        call = current()
        if call is None:
            self._alone(route.what, partial(self._take_in, event, route))
        else:
            self._take_in(event, route, call)

    def append(self, kind: type[T], item: T) -> None:
        """Add one item to a slice, past all reducers and subscribers; `Slice.append` reads better."""
        route = self._rules.route(kind)
        call = current()
        if route.logged or call is None or type(item) is not kind:
            self.change(kind, Append(item), route.append)
        else:
            with self._lock:
                self._open(call, route.append)
                self._state.append(kind, item)

    def change(self, kind: type[T], change: Change[T], what: str) -> None:
        """Change one slice past all reducers; the `Slice` methods are made of it. `what` names the act in errors."""
        check_change(change, kind)
        if self._rules.policy(kind) is SlicePolicy.LOG:
            if not isinstance(change, Append):
                raise SessionUseError(f"slice {kind.__name__} is a LOG, which only grows: it cannot {what}")
            self._log_item(kind, change.item)
        else:
            self._write(what, partial(self._state.apply, ((kind, change),)), current())

    def version_of(self, kind: type[T]) -> Version[T] | None:
        """The version of a slice that this context sees: its call's own changes, or what has been committed."""
        slices = self._log.slices if self._rules.policy(kind) is SlicePolicy.LOG else self._state.seen()
        return slices.get(kind)

    def snapshot(self) -> SessionSnapshot:
        """The STATE slices as this context sees them; costs the same however much they hold."""
        if self._state.joining == threading.get_ident():
            return SessionSnapshot(self._owner, self._state.seen(), self._state.taken_so_far())
        with self._lock:
            return SessionSnapshot(self._owner, self._state.held())

    def restore(self, snapshot: SessionSnapshot) -> None:
        """Put the STATE slices back; LOG slices stay. It is a write like any other, and undone with its call.

        Raises:
            SnapshotError: the snapshot belongs to another session.
            SessionBusyError: outside of calls, while a call holds the session.
        """
        if snapshot.owner is not self._owner:
            raise SnapshotError(f"the snapshot belongs to session {snapshot.owner.session_id}, not {self.session_id}")
        if undoing():
            with self._lock:
                self._state.undo(snapshot.slices, snapshot.taken)
        else:
            self._write("restore a snapshot", partial(self._state.go_back, snapshot.slices), current())

    def _adopt(self, state: Versions, log: Versions, rules: Rules) -> None:
        self._state = State(self._owner, state)
        self._log = Log(self._owner, log)
        self._rules = rules

    def _open(self, call: Transaction, what: str) -> None:
        """Make sure that a call may write to the STATE slices; see `State.open`."""
        if self._state.open(self, call, what) and self._kept is not None:
            self._kept.part_of(call.root, self._state, self._log)

    def _log_item(self, kind: type[Any], item: object, call: CallRef | None = None, *, closing: bool = False) -> None:
        """Let a LOG get an item; what its store cannot hold is refused before, as is all but what closes a call."""
        kept = self._kept
        if kept is None:
            with self._lock:
                self._log.append(kind, item)
            return
        if not closing:
            kept.check_open()
        with self._lock:
            kept.note(kept.noting(kind, item, call))
            self._log.append(kind, item)
        caller = current()
        if caller is None or not caller.holds(self.turn):  # else it goes with the call that writes to this session
            kept.flush(self._state, self._log)

    def _write(self, what: str, act: Callable[[], None], call: Transaction | None) -> None:
        """Change the STATE slices by `act`, in a call or alone; `what` names the act in errors."""
        if call is None:
            self._alone(what, partial(self._write, what, act))
        else:
            with self._lock:
                self._open(call, what)
                act()

    def _alone(self, what: str, write: Callable[[Transaction], None]) -> None:
        """Write in a transaction of its own, from outside of calls; such writes wait for each other."""
        with self._outside:
            ticket = draw((self.turn,), exclusive=True)
            try:
                if ticket.waiter is not None:
                    raise SessionBusyError(self.session_id)
                with Transaction(what, ticket=ticket, writes=True) as transaction:
                    write(transaction)
                    transaction.commit()
            finally:
                ticket.release()

    def _take_in(self, event: object, route: Route, call: Transaction) -> None:
        with self._lock:
            self._open(call, route.what)
            if route.reducers:
                self._state.apply(self._decisions(event, route.reducers))
            else:
                self._state.append(type(event), event)
            if self._kept is not None and not route.logged:
                self._state.taken.append(event)
        if not self.dispatcher.is_quiet:
            self.dispatcher.dispatch(event)

    def _decisions(self, event: object, reducers: Reducers) -> Changes:
        """What all reducers make of an event; nothing is applied before all have answered."""
        now = self._state.now
        changes: list[tuple[type[Any], SliceChange]] = []
        for into, reducer in reducers:
            change = reducer(FixedView(now[1].get(into)), event)
            check_change(change, into)
            changes.append((into, change))
        if self._state.now is not now:
            msg = f"a reducer of {type(event).__name__} wrote to the session itself; it may only return what to change"
            raise ReducerError(msg)
        return changes
