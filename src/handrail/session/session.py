"""A session: events go in, reducers decide, slices come out; it can be kept in a store, or saved as JSON for people.

Who may write
    Inside a call, writes belong to the call's transaction (see `handrail.transaction`), however the session was
    reached. Until the call has committed, readers outside it see what was there before.
    Outside of calls each write is a transaction of its own, and needs the session's turn to be free.
    A LOG takes events from any caller at any time. Rules are not state: what is registered inside a call stays.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack, cast

from handrail.errors import SessionError, SessionLostError, SessionUseError, SnapshotError
from handrail.events import Dispatcher
from handrail.session.call_masking import CallMasking
from handrail.session.call_records import CallRecord, CallRecords, OpenCall
from handrail.session.call_ref import CallRef
from handrail.session.opening import OpenOptions, check_identity, check_relatives, check_stored_id, open_on_thread
from handrail.session.reducers import EventRoute, SliceRules, decided_changes
from handrail.session.slices import (
    Append,
    LogWrite,
    Reducer,
    SessionSnapshot,
    Slice,
    SliceChange,
    SliceOwner,
    SlicePolicy,
    Version,
    Versions,
    check_change,
    filled,
    versions_of,
)
from handrail.session.state import LogSlices, OutsideWrites, StateSlices
from handrail.transaction import Transaction, current, is_rolling_back
from handrail.turns import Turn
from handrail.waiting import asynchronous, closing_after

if TYPE_CHECKING:
    from handrail.session.conversation import Conversation
    from handrail.session.persistence.loading import LoadedSession
    from handrail.session.persistence.protocol import DatabaseConnection, SessionStore
    from handrail.session.persistence.recorder import SessionRecorder

T = TypeVar("T")
E = TypeVar("E")


class Session:
    """The state of one conversation or run.

    Attributes:
        session_id: names the session in keys, events and stores.
        tags: what the program wants to find it by.
        parent: the session that this one was made for, by `child`.
        dispatcher: notifies subscribers of every dispatched event.
        turn: the turn that calls take on this session.
        call_masking: which arguments of its calls are secret, and so are not stored or exported.
        recorder: writes it to its store; `None` for one in memory.
        attached: what layers above have for this session alone, as long as it lives, each by a key of its own.
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
        """Make an empty session in memory; `new_id` names it when no `session_id` is given.

        Raises:
            InvalidArgumentError: something is of another type: an id is text, and so are tags.
        """
        check_identity("Session", session_id, tags)
        check_relatives("Session", Session, parent, dispatcher)
        self.session_id: str = session_id if session_id is not None else new_id()
        self.dispatcher: Dispatcher = dispatcher if dispatcher is not None else Dispatcher()
        self.turn: Turn = Turn()
        self.call_masking: CallMasking = CallMasking()
        self._owner = SliceOwner(self.session_id)
        self._lock = threading.RLock()
        self._outside = OutsideWrites(self.session_id, self.turn)
        self._adopt({}, {}, SliceRules({}, {}))
        self._access: dict[type[Any], Slice[Any]] = {}
        self._records = CallRecords()
        self.attached: dict[object, Any] = {}
        self.recorder: SessionRecorder | None = None
        self.tags: Mapping[str, str] = MappingProxyType(dict(tags or {}))
        self.parent: Session | None = None if parent is None else parent.unbound
        self._new_id = new_id
        self._opening: LoadedSession | None = None

    @classmethod
    def open(  # noqa: PLR0913 - a session's own arguments, and how it is kept
        cls,
        store: SessionStore,
        session_id: str,
        *,
        types: Iterable[type[Any]] = (),
        tags: Mapping[str, str] | None = None,
        parent: Session | None = None,
        dispatcher: Dispatcher | None = None,
        create: bool = True,
        wait: timedelta = timedelta(seconds=5),
        checkpoint_every: int = 1000,
        evict: bool = False,
    ) -> Self:
        """Resume the session of that id in a store, or begin it: its values are there, and changes are stored.

        It is this program's until it is closed or the process ends, however it ends. Register reducers and subscribers
        as for a new session; no reducer is run again. Values are read when they are first asked for.

        Args:
            store: from `handrail.store.open`.
            session_id: the id.
            types: classes of values in it that the program has not imported or named by `stored_as`.
            tags: the tags of a new session; one that exists keeps its own.
            parent: the session that a new one is made for; in the store, its id.
            dispatcher: notifies subscribers of every event; nothing is dispatched for what is read.
            create: whether to begin a session that is not there.
            wait: how long to wait for another process that has the session open.
            checkpoint_every: after how many entries the store gets a checkpoint, from which opening begins.
            evict: whether to end the connection to PostgreSQL of another process that has it open, which is lost there.

        Raises:
            InvalidArgumentError: an argument is of another type. Nothing was written.
            SessionNotFoundError: the session does not exist, and `create` is false.
            SessionLockedError: it is open elsewhere, and stays so for longer than `wait`.
            UnknownTypeError: it holds values of a class that is not known here.
            StoreError: the store cannot be used.
        """
        from handrail.session.persistence.loading import LoadedSession  # noqa: PLC0415

        check_stored_id("Session.open", session_id, tags)
        check_relatives("Session.open", Session, parent, dispatcher)
        every = checkpoint_every
        opening = LoadedSession.checked(store, types, create=create, wait=wait, checkpoint_every=every, evict=evict)
        return cls._resume(opening, session_id, tags, parent, dispatcher)

    @classmethod
    async def open_async(
        cls, store: SessionStore, session_id: str, *, parent: Session | None = None, **options: Unpack[OpenOptions]
    ) -> Self:
        """As `open`, on a thread: the event loop runs meanwhile. One opened for a cancelled task is closed again."""
        return await open_on_thread(partial(cls.open, store, session_id, parent=parent, **options))

    def __repr__(self) -> str:
        return f"Session({self.session_id!r})"

    def __enter__(self) -> Self:
        """Close it at the end of the block."""
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with closing_after(error, self):
            self.close()

    async def __aenter__(self) -> Self:
        """Close it at the end of the block, by `close_async`."""
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with closing_after(error, self):
            if isinstance(error, GeneratorExit):  # a coroutine that is closed, as with its loop, cannot await anything
                self.close()
            else:
                await self.close_async()

    @property
    def unbound(self) -> Session:
        """The session itself, where this is the view of it that the handler of a call has."""
        return self

    @property
    def store(self) -> SessionStore | None:
        """Where the session is kept; `None` for one in memory alone."""
        return None if self.recorder is None else self.recorder.store

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The types that have a slice with something in it, STATE first."""
        with self._lock:
            return tuple(kind for held in (self._state.seen(), self._log.slices) for kind in held if held[kind].length)

    def close(self) -> None:
        """Let others open the session, and refuse what is written later. Only stored sessions need it. Idempotent."""
        if self.recorder is not None:
            self.recorder.close()

    def commit_event(self, event: CallRecord, ref: CallRef, transaction: Transaction) -> None:
        """Have the LOG of a stored session get the event that records a call, in one unit with what the call has done.

        Its transaction is about to commit, and is nested in no other. `recorded_call` and `fork` find it by `ref`.

        Raises:
            SessionError: the store cannot hold the event.
        """
        if self.recorder is not None:
            with self._lock:
                self.recorder.part_of(transaction).close_with(event, ref, self._records)

    def log_event(self, event: CallRecord, ref: CallRef, *, nested: bool = False) -> None:
        """Append the event that records a call to its LOG, on its own: the call has done nothing, or is inside another.

        A store that fails is logged, and gets the event with the next unit. That of a call which is `nested` is not
        found by `recorded_call`, because it may still be undone.
        """
        self.log_item(type(event), event, ref, written="record")
        if not nested and ref.is_named and not (ref[0] is None and self.recorder is None):
            with self._lock:
                self._records.add(ref.stored, event)

    def recorded_call(self, ref: CallRef, *, own: bool = True) -> CallRecord | None:
        """The event that recorded a call of this session last; `None` if there is none.

        A session in memory finds only calls that have a reply, and a fork with `own` only calls of its own.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._lock:
            record = self._records.find(ref.stored)
        return None if record is None or (own and record.session_id != self.session_id) else record

    def has_record_at_hand(self, ref: CallRef) -> bool:
        """Whether `recorded_call` reads nothing from the store."""
        return self._records.is_at_hand(ref.stored)

    def adopt_record(self, ref: CallRef, record: CallRecord) -> None:
        """Have `recorded_call` find a record of the session that this one is a fork of, as long as this is open."""
        with self._lock:
            self._records.add(ref, record)

    @cached_property
    def conversation(self) -> Conversation:
        """The messages of a model; see `handrail.session.conversation`."""
        from handrail.session.conversation import Conversation  # noqa: PLC0415

        return Conversation(self)

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """The calls that have not come to their end, each once; for those who resume a session.

        These are the calls whose effect is running, unknown or not applied in the store of the session, the calls that
        were postponed, and where the session holds a conversation, the calls of the last reply that have no final
        record. A session in memory knows of the last kind alone.

        Raises:
            StoreError: the store cannot be read.
        """
        from handrail.session.open_calls import open_calls_of  # noqa: PLC0415

        return open_calls_of(self, () if self.recorder is None else self.recorder.store.open_claims(self.session_id))

    def connection(self) -> DatabaseConnection:
        """The database of the session's store, inside the transaction of the call; `context.connection` reads better.

        Raises:
            SessionError: the session is kept in no database, or no call runs here.
        """
        if self.recorder is None:
            raise SessionUseError(
                "this session is kept in no database; open it with Session.open(handrail.store.open('sqlite:///...'), "
                "session_id)"
            )
        return self.recorder.store.connection()

    def fork(self, *, session_id: str | None = None, at: str | tuple[str | None, str] | None = None) -> Session:
        """A session that starts with everything this one holds and goes its own way.

        Its reducers are the same, its dispatcher is its own: it has no subscribers yet. The fork of a session in
        memory costs what `snapshot` costs; that of a stored one is stored beside it, which copies the entries.

        Args:
            session_id: the id of the fork; a new one by default.
            at: a call of a stored session, as `(reply, call id)`, or its id if only one reply has a call of that id:
                the fork holds what there was when that call had been recorded.

        Raises:
            SessionError: `at` names no call of it, or several, or the session is in memory and has no history; or a
                stored session is forked in the middle of a call, or to an id that is taken.
        """
        check_identity("Session.fork", session_id)
        new_id = self._new_id() if session_id is None else session_id
        if self.recorder is not None and self._opening is not None:
            from handrail.session.persistence.loading import copy_for_fork  # noqa: PLC0415

            opening, note = copy_for_fork(self.recorder, self._opening, new_id, at)
            stored = self._resume(opening, new_id, parent=self.parent, rules=self._rules)
            stored.log_item(type(note), note)
            return stored
        if at is not None:
            raise SessionError("a session in memory keeps no history to go back to; fork(at=...) needs Session.open")
        fork = Session(session_id=new_id, tags=self.tags, parent=self.parent, new_id=self._new_id)
        with self._lock:
            fork._adopt(self._state.held(), self._log.slices, self._rules.copy())
        return fork

    async def fork_async(
        self, *, session_id: str | None = None, at: str | tuple[str | None, str] | None = None
    ) -> Session:
        """As `fork`, on a thread; a fork that is made for a task which has been cancelled is closed again."""
        return await open_on_thread(partial(self.fork, session_id=session_id, at=at))

    def child(self, *, session_id: str | None = None, tags: Mapping[str, str] | None = None) -> Session:
        """An empty session for work done on behalf of this one, as an agent used as a tool does; stored beside it.

        Raises:
            InvalidArgumentError: an id is text, and so are tags.
            StoreError: this session is stored, and its store cannot be used.
        """
        check_identity("Session.child", session_id, tags)
        if self._opening is None:
            return Session(session_id=session_id, tags=tags, parent=self, new_id=self._new_id)
        new_id = self._new_id() if session_id is None else session_id
        return self._resume(self._opening._replace(create=True), new_id, tags, self)

    async def child_async(self, *, session_id: str | None = None, tags: Mapping[str, str] | None = None) -> Session:
        """As `child`, on a thread; a child that is opened for a task which has been cancelled is closed again."""
        return await open_on_thread(partial(self.child, session_id=session_id, tags=tags))

    def to_json(self) -> str:
        """Id, tags and slices as this context sees them, as JSON for people; no reducers, subscribers or parent.

        Raises:
            SnapshotError: an item cannot be said in JSON, or would not come back the same; it names slice and item.
        """
        from handrail.session.json_export import SessionDocument, dump_session_json  # noqa: PLC0415

        with self._lock:
            state, log = filled(self._state.seen()), self.call_masking.logs(filled(self._log.slices))
        return dump_session_json(SessionDocument(self.session_id, self.tags, state, log))

    @staticmethod
    def from_json(data: str | bytes, *, types: Iterable[type[Any]], parent: Session | None = None) -> Session:
        """The session that `to_json` wrote, as a new one in memory; register reducers and subscribers again.

        Raises:
            SnapshotError: the data is not a saved session, or has values of other types than `types`.
        """
        from handrail.session.json_export import load_session_json  # noqa: PLC0415

        saved = load_session_json(data, types=types)
        session = Session(session_id=saved.session_id, tags=saved.tags, parent=parent)
        state, log = (versions_of(items, session._owner) for items in (saved.state, saved.log))
        policies = dict.fromkeys(state, SlicePolicy.STATE) | dict.fromkeys(log, SlicePolicy.LOG)
        session._adopt(state, log, SliceRules(policies, {}))
        return session

    @classmethod
    def _resume(  # noqa: PLR0913, PLR0917 - what `open` takes
        cls,
        opening: LoadedSession,
        session_id: str,
        tags: Mapping[str, str] | None = None,
        parent: Session | None = None,
        dispatcher: Dispatcher | None = None,
        rules: SliceRules | None = None,
    ) -> Self:
        from handrail.session.persistence import loading  # noqa: PLC0415

        kept, row = loading.load_session(opening, session_id, tags or {}, None if parent is None else parent.session_id)
        session = cls(session_id=session_id, tags=row.tags, parent=parent, dispatcher=dispatcher)
        state, log, policies = loading.stored_slices(kept, session._owner)
        session._adopt(state, log, SliceRules(policies, {}) if rules is None else rules.copy())
        session.recorder, session._opening = kept, opening
        if kept.head:
            session._records = CallRecords(loading.RecordsInStore(kept))
        # One lock guards the slices and what the recorder knows of them.
        kept.lock, kept.slices, kept.masks = session._lock, (session._state, session._log), session.call_masking.masks
        session.call_masking.on_added = kept.mask_noted
        session._outside.check_wait = kept.queue.check_wait
        loading.release_with(session, opening.store, kept.session_lock)
        return session

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
        """Declare what a rollback does to a type's slice in this session, before anything is in it.

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

        `initial` makes the value that the first event meets; without it, events are passed over until there is one.

        Raises:
            ReducerError: no method is marked, or the slice has reducers already, or is a LOG. Nothing is registered.
            SessionUseError: the class or one of the events is not a dataclass. Nothing is registered.
        """
        with self._lock:
            self._rules.install(state, initial)

    def register(self, event_type: type[E], reducer: Reducer[T, E], *, into: type[T]) -> None:
        """Register a reducer that computes slice `into` when an event of that type is dispatched. Idempotent.

        Raises:
            ReducerError: another reducer of the slice takes events of that type already, or the slice is a LOG.
        """
        with self._lock:
            self._rules.register(event_type, reducer, into=into)

    def listens(self, event_type: type[Any]) -> bool:
        """Whether events of this type have a reducer or a subscriber."""
        return self._rules.reduces(event_type) or (not self.dispatcher.is_quiet and self.dispatcher.listens(event_type))

    def dispatch(self, event: object) -> None:
        """Take an event in: its reducers decide (by default it is appended to its own slice), then subscribers hear.

        Inside a call, all of it belongs to the call. Outside, the event is taken in whole or, when one of them raises,
        not at all. An event whose slice is a LOG is kept in either case; if no reducer takes it, it needs no turn.

        Raises:
            SessionError: the event is not a dataclass instance, or the session's store cannot hold it.
            SessionBusyError: outside of calls, while a call holds the session.
            StoreUnavailableError: outside of calls, the session's store does not answer; nothing is taken in.
            DispatchError: subscribers raised.
            ReducerError: a reducer returned what no slice can become, or wrote to the session.
            Exception: what a reducer raises.
        """
        route = self._rules.route(type(event))
        if route.logged:
            self.log_item(type(event), event)
        self.announce(event)

    def announce(self, event: object) -> None:
        """The same for an event that is in its LOG already; see `dispatch`."""
        route = self._rules.route(type(event))
        if route.logged and not route.reducers:
            self.dispatcher.dispatch(event)
            return
        call = current()
        if call is None:
            self._outside.write(route.what, partial(self._take_in, event, route))
        else:
            self._take_in(event, route, call)

    def append(self, kind: type[T], item: T) -> None:
        """Add one item to a slice, past all reducers and subscribers; `Slice.append` reads better."""
        check_change(Append(item), kind)
        route, add = self._rules.route(kind), partial(self._state.append, kind, item)
        self.log_item(kind, item) if route.logged else self._write(route.append, add, current())

    def change(self, kind: type[Any], change: SliceChange, what: str) -> None:
        """Change a STATE slice past all reducers in another way than by `append`; `what` names the act in errors."""
        check_change(change, kind)
        if self._rules.policy(kind) is SlicePolicy.LOG:
            raise SessionUseError(f"slice {kind.__name__} is a LOG, which only grows: it cannot {what}")
        self._write(what, partial(self._state.apply, ((kind, change),)), current())

    def reset(self, *, with_open_calls: bool = False) -> None:
        """Empty all slices, STATE and LOG, in one unit of work; the conversation is in one of them.

        The ledger, the records of calls and slices with `survives_reset`, such as `EffectApplied`, stay: no effect
        happens twice, and a call with a final record is answered from it. With `with_open_calls` calls are abandoned
        that are open, as `open_calls` lists them; those whose effects are in the ledger stay there.

        Raises:
            SessionError: a call is open, and is named; nothing was changed.
            SessionUseError: a call runs in this context, or the session is closed.
            SessionBusyError: a call holds the session.
            StoreError: the session's store cannot be used.
        """
        if current() is not None:
            raise SessionUseError("a session is reset between calls, not by one: its record would be removed with it")
        gone: list[tuple[type[Any], int]] = []
        self._outside.write("reset the session", partial(self._reset, gone, with_open_calls=with_open_calls))
        if self.recorder is None:
            with self._lock:
                self._log.cut_off_start(gone)

    def _reset(self, gone: list[tuple[type[Any], int]], call: Transaction, *, with_open_calls: bool) -> None:
        from handrail.session.open_calls import check_resettable  # noqa: PLC0415

        check_resettable(self.session_id, () if with_open_calls else self.open_calls)
        with self._lock:
            self._open(call, "reset the session")
            self._state.empty()
            gone += self._log.resettable()
            if self.recorder is not None:
                self.recorder.part_of(call).emptied = tuple(kind for kind, _ in gone)

    def version_of(self, kind: type[T]) -> Version[T] | None:
        """The version of a slice that this context sees: its call's own changes, or what has been committed."""
        return (self._log.slices if self._rules.policy(kind) is SlicePolicy.LOG else self._state.seen()).get(kind)

    def snapshot(self) -> SessionSnapshot:
        """The STATE slices as this context sees them; costs the same however much they hold."""
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
        # A rollback has no current transaction, and its call still holds the turn: `_write` would be refused.
        if is_rolling_back():
            with self._lock:
                self._state.undo(snapshot.slices, snapshot.taken)
        else:
            self._write("restore a snapshot", partial(self._state.restore, snapshot.slices), current())

    append_async: Final = asynchronous(append)
    dispatch_async: Final = asynchronous(dispatch)
    reset_async: Final = asynchronous(reset)
    restore_async: Final = asynchronous(restore)
    close_async: Final = asynchronous(close)

    def _adopt(self, state: Versions, log: Versions, rules: SliceRules) -> None:
        self._state, self._log, self._rules = StateSlices(self._owner, state), LogSlices(self._owner, log), rules

    def _open(self, call: Transaction, what: str) -> None:
        if self._state.open(self, call, what, snapshot=self._snapshot_of_call) and self.recorder is not None:
            self.recorder.part_of(call.root)

    def _snapshot_of_call(self) -> SessionSnapshot:  # to roll back to; unlike `snapshot`, it is dropped with the call
        return SessionSnapshot(self._owner, self._state.seen(), self._state.taken_so_far())

    def log_item(self, kind: type[T], item: T, ref: CallRef | None = None, *, written: LogWrite = "now") -> None:
        """Append an item of a call to the LOG of a type, past reducers and subscribers; see `LogWrite`.

        Raises:
            SessionError: it cannot be stored, the session is closed, or it may not wait here. Nothing was appended.
            StoreError: it was to be written surely, and was not; or `CommitInDoubtError`.
        """
        if (kept := self.recorder) is None:
            with self._lock:
                self._log.append(kind, item)
            return
        caller = current()
        # One of a call that writes to this session goes with the unit of the call.
        in_call = caller is not None and caller.root.state != "ended" and caller.holds(self.turn)
        if written != "record":
            kept.check_open()
            if not (in_call or written == "deferred"):
                kept.check_wait()
        with self._lock:
            # The item is dumped first: one that cannot be stored is refused before the LOG has it.
            kept.note(kept.noting(kind, item, ref), deferred=written == "deferred")
            self._log.append(kind, item)
        error = None if in_call or written == "deferred" else kept.flush()
        if error is not None and (written == "surely" or isinstance(error, SessionLostError)):
            raise error

    def _write(self, what: str, act: Callable[[], None], call: Transaction | None) -> None:
        if call is None:
            self._outside.write(what, partial(self._write, what, act))
        else:
            with self._lock:
                self._open(call, what)
                act()

    def _take_in(self, event: object, route: EventRoute, call: Transaction) -> None:
        with self._lock:
            self._open(call, route.what)
            if route.reducers:
                self._state.apply(decided_changes(event, route.reducers, self._state))
            else:
                self._state.append(type(event), event)
            if self.recorder is not None and not route.logged:
                self._state.taken.append(event)
        # Outside of the lock, because a subscriber may wait for a thread that uses the session.
        if not self.dispatcher.is_quiet:
            self.dispatcher.dispatch(event)
