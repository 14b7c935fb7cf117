"""A session: events go in, reducers decide, slices come out.

A session owns its rules (`handrail.session.rules`), its STATE slices (`handrail.session.state`) and its LOG slices,
and guards their changing with one lock.

Who may write
    Inside a call, writes belong to the call's transaction (see `handrail.transaction`), however the session was
    reached. Until the call has committed, everybody outside it goes on seeing what was there before.
    Outside of calls each write is a transaction of its own, and needs the session's turn to be free.
    A LOG takes events from anybody at any time. Rules are no state: what is registered inside a call stays.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from handrail.errors import ReducerError, SessionBusyError, SessionError, SnapshotError
from handrail.events import Dispatcher
from handrail.session.changes import Append, Change, Replace, SliceChange, check_change
from handrail.session.log import Log
from handrail.session.reducers import Reducer
from handrail.session.rules import Reducers, Route, Rules
from handrail.session.saved import Saved, read, write
from handrail.session.slices import FixedView, Owner, SessionSnapshot, SlicePolicy, SliceView, Version, Versions
from handrail.session.state import Changes, State
from handrail.transaction import Transaction, current, undoing
from handrail.turns import Turn, draw

T = TypeVar("T")
E = TypeVar("E")


class Slice(SliceView[T], Generic[T]):
    """The values of one type in a session: `session[Plan]`.

    Reading takes no turn; writing follows the session's rules. Items are values: change a slice by giving it others,
    not by changing an item, which nothing could undo.
    """

    __slots__ = ("_kind", "_session")

    def __init__(self, session: Session, kind: type[T]) -> None:
        """Made by `Session.__getitem__`."""
        self._session = session
        self._kind = kind

    @property
    def version(self) -> Version[T] | None:
        """The version that this context sees now."""
        return self._session.version_of(self._kind)

    def append(self, item: T) -> None:
        """Add one item, past all reducers and subscribers; use `Session.dispatch` for events."""
        self._session.append(self._kind, item)

    def seed(self, *items: T) -> None:
        """Make the slice hold just these items."""
        self._session.change(self._kind, Replace(items), f"seed {self._kind.__name__}")

    def clear(self) -> None:
        """Make the slice empty."""
        self._session.change(self._kind, Replace(()), f"clear {self._kind.__name__}")

    def register(self, event_type: type[E], reducer: Reducer[T, E]) -> None:
        """Let a reducer decide what becomes of this slice; see `Session.register`."""
        self._session.register(event_type, reducer, into=self._kind)


class Session:
    """The state of one conversation or run.

    Attributes:
        session_id: names the session in keys, events and stores.
        tags: what the program wants to find it by.
        parent: the session that this one was made for, by `child`.
        dispatcher: tells subscribers of every dispatched event.
        turn: the turn that calls take on this session.
    """

    def __init__(
        self,
        *,
        session_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        parent: Session | None = None,
        dispatcher: Dispatcher | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Make an empty session; `new_id` names it when no `session_id` is given."""
        self.session_id = session_id if session_id is not None else new_id()
        self.tags: Mapping[str, str] = MappingProxyType(dict(tags or {}))
        self.parent = parent
        self.dispatcher = dispatcher if dispatcher is not None else Dispatcher()
        self.turn = Turn()
        self._new_id = new_id
        self._owner = Owner(self.session_id)
        self._lock = threading.RLock()
        self._outside = threading.RLock()
        self._rules = Rules({}, {})
        self._state = State(self._owner, {})
        self._log = Log(self._owner, {})
        self._access: dict[type[Any], Slice[Any]] = {}

    def __repr__(self) -> str:
        return f"Session({self.session_id!r})"

    def __getitem__(self, kind: type[T]) -> Slice[T]:
        """The slice of a type; empty when nothing of that type has come in.

        Raises:
            SessionError: `kind` is not a dataclass.
        """
        access = self._access.get(kind)
        if access is None:
            self._rules.policy(kind)
            access = self._access[kind] = Slice(self, kind)
        return cast("Slice[T]", access)  # the mapping cannot say that key and value belong together

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The types that have a slice with something in it, STATE first."""
        with self._lock:
            return (*_items(self._state.seen()), *_items(self._log.slices))

    def declare(self, kind: type[Any], policy: SlicePolicy) -> None:
        """Say what becomes of a type's slice on rollback, in this session, before anything is in it.

        Raises:
            SessionError: the slice holds something already, or something that has not been committed yet.
            ReducerError: it would be a LOG, and reducers decide on it.
        """
        with self._lock:
            if self._state.is_used(kind) or kind in self._log.slices:
                raise SessionError(f"slice {kind.__name__} is in use; declare its policy before the first event")
            self._rules.declare(kind, policy)

    def install(self, state: type[T], *, initial: Callable[[], T] | None = None) -> None:
        """Register the methods of a state slice that are marked `@reducer(on=Event)`.

        Args:
            state: the class; its newest value is `session[state].latest()`.
            initial: makes the value that the first event meets; without it, events are passed over until the slice is
                seeded.

        Raises:
            ReducerError: no method is marked, or the slice has reducers already, or is a LOG. Nothing is registered.
            SessionError: the class or one of the events is no dataclass. Nothing is registered.
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
            SessionError: the event is no dataclass instance.
            SessionBusyError: outside of calls, while a call holds the session.
            DispatchError: subscribers raised.
            ReducerError: a reducer returned what no slice can become, or wrote to the session; what a reducer raises
                itself passes unchanged.
        """
        route = self._rules.route(type(event))
        if route.logged:
            with self._lock:
                self._log.append(type(event), event)
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
                self._state.open(self, call, route.append)
                self._state.append(kind, item)

    def change(self, kind: type[T], change: Change[T], what: str) -> None:
        """Change one slice past all reducers; the `Slice` methods are made of it. `what` names the act in errors."""
        check_change(change, kind)
        if self._rules.policy(kind) is SlicePolicy.LOG:
            if not isinstance(change, Append):
                raise SessionError(f"slice {kind.__name__} is a LOG, which only grows: it cannot {what}")
            with self._lock:
                self._log.append(kind, change.item)
        else:
            self._write(what, partial(self._state.apply, ((kind, change),)), current())

    def version_of(self, kind: type[T]) -> Version[T] | None:
        """The version of a slice that this context sees: its call's own changes, or what has been committed."""
        slices = self._log.slices if self._rules.policy(kind) is SlicePolicy.LOG else self._state.seen()
        return slices.get(kind)

    def snapshot(self) -> SessionSnapshot:
        """The STATE slices as this context sees them; costs the same however much they hold."""
        if self._state.joining == threading.get_ident():
            return SessionSnapshot(self._owner, self._state.seen())
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
                self._state.undo(snapshot.slices)
        else:
            self._write("restore a snapshot", partial(self._state.go_back, snapshot.slices), current())

    def fork(self, *, session_id: str | None = None) -> Session:
        """A session that starts with everything this one holds and goes its own way; costs what `snapshot` costs.

        Its reducers are the same, its dispatcher is its own: nobody has subscribed to it yet.
        """
        fork = Session(session_id=session_id, tags=self.tags, parent=self.parent, new_id=self._new_id)
        with self._lock:
            fork._adopt(self._state.held(), self._log.slices, self._rules.copy())
        return fork

    def child(self, *, session_id: str | None = None, tags: Mapping[str, str] | None = None) -> Session:
        """An empty session for work done on behalf of this one, as an agent used as a tool does."""
        return Session(session_id=session_id, tags=tags, parent=self, new_id=self._new_id)

    def to_json(self) -> str:
        """Id, tags and slices as this context sees them, as JSON for people; no reducers, subscribers or parent.

        Raises:
            SnapshotError: an item cannot be said in JSON, or would not come back the same; it names slice and item.
        """
        with self._lock:
            state, log = self._state.seen(), dict(self._log.slices)
        return write(Saved(self.session_id, self.tags, _items(state), _items(log)))

    @staticmethod
    def from_json(data: str | bytes, *, types: Iterable[type[Any]], parent: Session | None = None) -> Session:
        """The session that `to_json` wrote, as a new one; register reducers and subscribers again.

        Raises:
            SnapshotError: the data is no saved session, or holds what is of none of `types`; nothing else is imported.
        """
        saved = read(data, types=types)
        session = Session(session_id=saved.session_id, tags=saved.tags, parent=parent)
        state, log = (
            {kind: Version(session._owner, list(items), len(items)) for kind, items in slices.items()}
            for slices in (saved.state, saved.log)
        )
        policies = dict.fromkeys(state, SlicePolicy.STATE) | dict.fromkeys(log, SlicePolicy.LOG)
        session._adopt(state, log, Rules(policies, {}))
        return session

    def _adopt(self, state: Versions, log: Versions, rules: Rules) -> None:
        self._state = State(self._owner, state)
        self._log = Log(self._owner, log)
        self._rules = rules

    def _write(self, what: str, act: Callable[[], None], call: Transaction | None) -> None:
        """Change the STATE slices by `act`, in a call or alone; `what` names the act in errors."""
        if call is None:
            self._alone(what, partial(self._write, what, act))
        else:
            with self._lock:
                self._state.open(self, call, what)
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
            self._state.open(self, call, route.what)
            if route.reducers:
                self._state.apply(self._decisions(event, route.reducers))
            else:
                self._state.append(type(event), event)
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


def _items(slices: Versions) -> dict[type[Any], tuple[Any, ...]]:
    return {kind: FixedView(version).all() for kind, version in slices.items() if version.length}
