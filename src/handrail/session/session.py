"""A session: events go in, reducers decide, slices come out.

What goes in is the affair of `handrail.session.intake`. Here stands what a session is to the program: its name and its
relatives, and the forms in which it outlives the process: JSON for people, and a store.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType, NoneType
from typing import Any, Self

from handrail.errors import SessionError, SessionNotFoundError, SessionUseError
from handrail.errors.mistakes import check_argument
from handrail.events import Dispatcher
from handrail.session.calls import CallRecord, CallRecords, CallRef, OpenCall, shown_id, still_open
from handrail.session.identity import check_given, check_stored_id
from handrail.session.intake import Intake
from handrail.session.json_export import Saved, read, write
from handrail.session.open_calls import listed_calls
from handrail.session.persistence.loading import Opening, RecordsInStore, end_of_call, open_kept, stored_slices
from handrail.session.persistence.protocol import Connection, Hold, SessionStore
from handrail.session.persistence.recorder import Kept
from handrail.session.rules import Rules
from handrail.session.slices import FixedView, SlicePolicy, Version, Versions
from handrail.transaction import Transaction, current


class Session(Intake):
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
        """Make an empty session in memory; `new_id` names it when no `session_id` is given.

        Raises:
            InvalidArgumentError: something is of another type: an id is text, and so are tags.
        """
        check_given("Session", session_id, tags)
        _check_relatives("Session", parent, dispatcher)
        super().__init__(session_id if session_id is not None else new_id(), dispatcher)
        self.tags: Mapping[str, str] = MappingProxyType(dict(tags or {}))
        self.parent = parent
        self._new_id = new_id
        self._opening: Opening | None = None

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
    ) -> Self:
        """Go on with the session of that id in a store, or begin it: what it holds is there, and what it gets is kept.

        It is this program's until it is closed or the process ends, however it ends. Register reducers and subscribers
        as for a new session; no reducer is run again. Values are read when they are first asked for.

        Args:
            store: from `handrail.store.open`.
            session_id: the id.
            types: classes of values in it that the program has not imported or named by `stored_as`.
            tags: the tags of a new session; one that exists keeps its own.
            parent: the session that a new one is made for; in the store, its id.
            dispatcher: tells subscribers of every event; nobody hears of what is read.
            create: whether to begin a session that is not there.
            wait: how long to wait for another process that has the session open.
            checkpoint_every: after how many entries the store notes where everything stands, which is what makes
                opening cheap.

        Raises:
            InvalidArgumentError: something is of another type: a store is opened by `handrail.store.open`, an id is
                text, and so are tags. Nothing was written.
            SessionNotFoundError: there is no such session, and `create` is false.
            SessionHeldError: it is open elsewhere, and stays so for longer than `wait`.
            UnknownTypeError: it holds values of a class that is not known here.
            StoreError: the store cannot be used.
        """
        check_stored_id("Session.open", session_id)
        check_given("Session.open", session_id, tags)
        _check_relatives("Session.open", parent, dispatcher)
        opening = Opening.checked(store, types, create=create, wait=wait, checkpoint_every=checkpoint_every)
        return cls._resume(opening, session_id, tags, parent, dispatcher)

    def __repr__(self) -> str:
        return f"Session({self.session_id!r})"

    def __enter__(self) -> Self:
        """Close it at the end of the block."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Close it."""
        self.close()

    @property
    def store(self) -> SessionStore | None:
        """Where the session is kept; `None` for one in memory alone."""
        return None if self._kept is None else self._kept.store

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The types that have a slice with something in it, STATE first."""
        with self._lock:
            return (*_filled(self._state.seen()), *_filled(self._log.slices))

    def close(self) -> None:
        """Let others open the session; what is written from here on is refused. Only stored sessions need it.

        Doing it twice is doing it once.
        """
        kept = self._kept
        if kept is not None:
            if not kept.closed:
                kept.flush(self._state, self._log)
                kept.closed = "has been closed"
            kept.store.release(kept.hold)

    def check(self) -> None:
        """Make sure that what a call does could be recorded; the pipeline asks before it starts anything.

        Raises:
            SessionError: the session is closed, or has passed to another process.
            StoreUnavailableError: its store does not answer.
        """
        if self._kept is not None:
            self._kept.check()

    def close_call(self, event: CallRecord, call: CallRef, transaction: Transaction) -> None:
        """Have the LOG of a stored session get the event that records a call, in one unit with what the call has done.

        Args:
            event: the event; its slice is a LOG.
            call: the identity of the call, by which `recorded_call` and `fork` find it.
            transaction: the call's, which is about to commit; it is nested in no other.

        Raises:
            SessionError: the store cannot hold the event.
        """
        if self._kept is not None:
            with self._lock:
                part = self._kept.part_of(transaction, self._state, self._log)
                part.close_with(event, call, self._records)

    def log_call(self, event: CallRecord, call: CallRef, *, nested: bool = False) -> None:
        """Append the event that records a call to its LOG, on its own: the call has done nothing, or is inside another.

        A store that fails is logged, and gets the event with the next unit.

        Args:
            event: the event; its slice is a LOG.
            call: the identity of the call.
            nested: whether the call was made inside another; then `recorded_call` does not find it, because what it did
                may still be undone.
        """
        self._log_item(type(event), event, call, closing=True)
        if nested or (call[0] is None and self._kept is None):
            return
        if call.is_named:
            with self._lock:
                self._records.add(call.stored, event)

    def recorded_call(self, call: CallRef) -> CallRecord | None:
        """The event that recorded a call of this session last; `None` if there is none.

        A session in memory finds only calls that have a reply. A fork does not find the calls of the session that it
        was made from.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._lock:
            record = self._records.find(call.stored)
        return record if record is not None and record.session_id == self.session_id else None

    def adopt_record(self, call: CallRef, record: CallRecord) -> None:
        """Have `recorded_call` find a record under an identity that it does not state itself, as long as this is open.

        Records that were written before identities had a reply name none. Who knows the reply of such a call says so.

        Args:
            call: the identity of the call.
            record: an event that records it; its session is this one.
        """
        with self._lock:
            self._records.add(call, record)

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """The calls that have not come to their end, each once; for those who resume a session.

        These are the calls whose effect is running, unknown or not applied in the store of the session, the calls that
        were postponed, and where the session holds a conversation, the calls of the last reply that have no final
        record. A session in memory knows of the last kind alone.

        Raises:
            StoreError: the store cannot be read.
        """
        kept = self._kept
        claimed = () if kept is None else kept.store.open_claims(self.session_id)
        return still_open(claimed, listed_calls(self, self.kinds), self._is_settled)

    def _is_settled(self, call: CallRef) -> bool:
        record = self.recorded_call(call)
        return record is not None and record.final

    def connection(self) -> Connection:
        """The database of the session's store, inside the transaction of the call; `context.connection` reads better.

        Raises:
            SessionError: the session is kept in no database, or no call runs here.
        """
        if self._kept is None:
            raise SessionUseError(
                "this session is kept in no database; open it with Session.open(handrail.store.open('sqlite:///...'), "
                "session_id)"
            )
        return self._kept.store.connection()

    def fork(self, *, session_id: str | None = None, at: str | tuple[str | None, str] | None = None) -> Session:
        """A session that starts with everything this one holds and goes its own way.

        Its reducers are the same, its dispatcher is its own: nobody has subscribed to it yet. The fork of a session in
        memory costs what `snapshot` costs; that of a stored one is stored beside it, which copies the entries.

        Args:
            session_id: the id of the fork; a new one by default.
            at: a call of a stored session, as `(reply, call id)`, or its id if only one reply has a call of that id:
                the fork holds what there was when that call had been recorded.

        Raises:
            SessionError: `at` names no call of it, or several, or the session is in memory and has no history; or a
                stored session is forked in the middle of a call, or to an id that is taken.
        """
        check_given("Session.fork", session_id)
        new_id = self._new_id() if session_id is None else session_id
        if self._kept is not None and self._opening is not None:
            return self._fork_stored(new_id, at, self._kept, self._opening)
        if at is not None:
            raise SessionError("a session in memory keeps no history to go back to; fork(at=...) needs Session.open")
        fork = Session(session_id=new_id, tags=self.tags, parent=self.parent, new_id=self._new_id)
        with self._lock:
            fork._adopt(self._state.held(), self._log.slices, self._rules.copy())
        return fork

    def child(self, *, session_id: str | None = None, tags: Mapping[str, str] | None = None) -> Session:
        """An empty session for work done on behalf of this one, as an agent used as a tool does; stored beside it.

        Raises:
            InvalidArgumentError: an id is text, and so are tags.
            StoreError: this session is stored, and its store cannot be used.
        """
        check_given("Session.child", session_id, tags)
        if self._opening is None:
            return Session(session_id=session_id, tags=tags, parent=self, new_id=self._new_id)
        new_id = self._new_id() if session_id is None else session_id
        return self._resume(self._opening._replace(create=True), new_id, tags, self)

    def to_json(self) -> str:
        """Id, tags and slices as this context sees them, as JSON for people; no reducers, subscribers or parent.

        Raises:
            SnapshotError: an item cannot be said in JSON, or would not come back the same; it names slice and item.
        """
        with self._lock:
            state, log = self._state.seen(), dict(self._log.slices)
        return write(Saved(self.session_id, self.tags, _filled(state), _filled(log)))

    @staticmethod
    def from_json(data: str | bytes, *, types: Iterable[type[Any]], parent: Session | None = None) -> Session:
        """The session that `to_json` wrote, as a new one in memory; register reducers and subscribers again.

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

    def _fork_stored(
        self, new_id: str, at: str | tuple[str | None, str] | None, kept: Kept, opening: Opening
    ) -> Session:
        store = opening.store
        if current() is not None:
            raise SessionError("a stored session is forked between calls, because only what is committed is in it")
        kept.flush(self._state, self._log)
        with self._lock:
            kinds = tuple(kept.kinds.values())
        row = store.find(self.session_id)
        end = None if row is None else row.head
        if at is not None:
            end = end_of_call(store, self.session_id, at)
        if row is None:
            raise SessionNotFoundError(f"session {self.session_id!r} is no longer in the store", session_id=new_id)
        if end is None:
            raise SessionError(
                f"session {self.session_id!r} has recorded no call {shown_id(at)}, so it cannot be forked there"
            )
        fork_row = row._replace(session_id=new_id, parent=self.session_id, created_at=store.now(), head=end)
        if not store.copy(self.session_id, fork_row):
            raise SessionError(f"the store has a session {new_id!r} already; give the fork another id")
        return self._resume(opening._replace(types=(*opening.types, *kinds)), new_id, rules=self._rules)

    @classmethod
    def _resume(  # noqa: PLR0913, PLR0917 - what `open` takes
        cls,
        opening: Opening,
        session_id: str,
        tags: Mapping[str, str] | None = None,
        parent: Session | None = None,
        dispatcher: Dispatcher | None = None,
        rules: Rules | None = None,
    ) -> Self:
        parent_id = None if parent is None else parent.session_id
        kept, row = open_kept(opening, session_id, tags or {}, parent_id)
        session = cls(session_id=session_id, tags=row.tags, parent=parent, dispatcher=dispatcher)
        state, log, policies = stored_slices(kept, session._owner)
        session._adopt(state, log, Rules(policies, {}) if rules is None else rules.copy())
        session._kept, session._opening = kept, opening
        if kept.head:
            session._records = CallRecords(RecordsInStore(kept))
        kept.lock = session._lock
        weakref.finalize(
            session, _abandon, opening.store, kept.hold
        ).atexit = False  # a process that ends holds nothing
        return session


def _check_relatives(function: str, parent: object, dispatcher: object) -> None:
    check_argument(function, "parent", parent, (Session, NoneType), "a Session, or None")
    check_argument(function, "dispatcher", dispatcher, (Dispatcher, NoneType), "a Dispatcher, or None")


def _abandon(store: SessionStore, hold: Hold) -> None:
    """Let go of a session that nobody has closed, from a thread: who collects garbage may hold any lock."""
    threading.Thread(target=store.release, args=(hold,), name="handrail-release", daemon=True).start()


def _filled(slices: Versions) -> dict[type[Any], tuple[Any, ...]]:
    return {kind: FixedView(version).all() for kind, version in slices.items() if version.length}
