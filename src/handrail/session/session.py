"""A session: events go in, reducers decide, slices come out; it can be kept in a store, or saved as JSON for people.

Who may write
    Inside a call, writes belong to the call's transaction (see `handrail.transaction`), however the session was
    reached. Until the call has committed, readers outside it see what was there before.
    Outside of calls each write is a transaction of its own, and needs the session's turn to be free.
    A LOG takes events from any caller at any time. Rules are not state: what is registered inside a call stays.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import timedelta
from functools import cached_property, partial
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, TypeVar, Unpack, cast

from handrail.errors import InvalidArgumentError, SessionError, SessionUseError, SnapshotError, TransactionClosedError
from handrail.errors.developer import check_argument
from handrail.events import Dispatcher
from handrail.interrupts import HeldInterrupts
from handrail.serde.json_values import escape_surrogates
from handrail.session.calls import CallMasking, CallRecords, OpenCall
from handrail.session.reducers import SessionSlices, Slice, SliceRules
from handrail.session.slices import Reducer, SessionSnapshot, SlicePolicy, list_items, make_versions
from handrail.transaction import current
from handrail.turns import Turn
from handrail.waiting import asynchronous, closing_after, completed, run_in_thread

if TYPE_CHECKING:
    from handrail.session.conversation import Conversation
    from handrail.session.persistence.loading import LoadedSession
    from handrail.session.persistence.protocol import DatabaseConnection, SessionStore
    from handrail.session.persistence.recorder import SessionRecorder


T = TypeVar("T")
E = TypeVar("E")
SessionT = TypeVar("SessionT", bound="Session")

_ID = "text of 1 character or more, of valid Unicode and without a zero character: 'desk' or str(number)"
_TAGS = "a mapping from text to text: {'customer': '7'}"


def _check(
    function: str, session_id: str | None, tags: object = None, parent: object = None, dispatcher: object = None
) -> None:
    """Refuse an id or tags that no store could hold, and what cannot be the parent or the dispatcher of a session.

    Args:
        function: who was given them.
        session_id: the id; `None` for one that is yet to be made.
        tags: the tags; `None` for none.
        parent: given as the parent.
        dispatcher: given as the dispatcher.

    Raises:
        InvalidArgumentError: the id or a tag is not text, or has a lone surrogate; the id is empty, or has a zero
            character; or something is of another type.
    """
    check_argument(function, "tags", tags, (Mapping, NoneType), _TAGS)
    check_argument(function, "parent", parent, (Session, NoneType), "a Session, or None")
    check_argument(function, "dispatcher", dispatcher, (Dispatcher, NoneType), "a Dispatcher, or None")
    is_id = session_id is None or (_is_text(session_id) and bool(session_id) and "\0" not in session_id)
    texts = [("session_id", session_id, is_id, _ID)]
    for name, value in cast("Mapping[Any, Any]", tags or {}).items():
        texts.append(("a name in tags", name, _is_text(name), _TAGS))
        texts.append((f"tags[{name!r}]", value, _is_text(value), "text of valid Unicode; write str(...) around it"))
    for argument, value, fits, expected in texts:
        if not fits:
            raise InvalidArgumentError(function=function, argument=argument, given=value, expected=expected)


def _is_text(value: object) -> bool:
    # A lone surrogate has no UTF-8, so stores cannot hold it: it is dropped, and the text differs.
    return isinstance(value, str) and escape_surrogates(value) is value


class OpenOptions(TypedDict, total=False):
    """What `Session.open` takes beside the store and the id; see there."""

    types: Iterable[type[object]]
    tags: Mapping[str, str] | None
    dispatcher: Dispatcher | None
    create: bool
    wait: timedelta
    checkpoint_every: int
    evict: bool


async def _open_on_thread(opening: Callable[[], SessionT]) -> SessionT:
    """Open a session on a thread; one that is opened after this task has been cancelled is closed again.

    Raises:
        CancelledError: the task was cancelled; the session may be held for as long as the opening still waits.
        Exception: what `opening` raises.
    """
    opening_future = run_in_thread(opening)
    try:
        await completed(opening_future)
    except BaseException:
        opening_future.add_done_callback(_close_again)
        raise
    return opening_future.result()


def _close_again(future: Future[SessionT]) -> None:
    if future.exception() is None:  # else it was not opened, and no caller waits for the reason
        future.result().close()


class Session:
    """The state of one conversation or run.

    Attributes:
        session_id: names the session in keys, events and stores.
        tags: what the program wants to find it by.
        parent: the session that this one was made for, by `child`.
        dispatcher: notifies subscribers of every dispatched event.
        turn: the turn that calls take on this session.
        slices: its slices, as what is above sessions writes to them.
        calls: the records of its calls.
        call_masking: which arguments of its calls are secret, and so are not stored or exported.
        recorder: writes it to its store; `None` for one in memory.
        unbound: the session itself, where this is the view of it that the handler of a call has.
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
        _check("Session", session_id, tags, parent, dispatcher)
        self.session_id: str = session_id if session_id is not None else new_id()
        self.dispatcher: Dispatcher = dispatcher if dispatcher is not None else Dispatcher()
        self.turn: Turn = Turn()
        self.call_masking: CallMasking = CallMasking()
        self.slices: SessionSlices = SessionSlices(self, self.turn, self.dispatcher, self.session_id)
        self.calls: CallRecords = self.slices.calls
        self.unbound: Session = self
        self.attached: dict[object, Any] = {}
        self.recorder: SessionRecorder | None = None
        self._access: dict[type[Any], Slice[Any]] = {}
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
            evict: whether to take it from one that lives and has it open, whose next write is refused.

        Raises:
            InvalidArgumentError: an argument is of another type. Nothing was written.
            SessionNotFoundError: the session does not exist, and `create` is false.
            SessionLockedError: it is open elsewhere, and stays so for longer than `wait`.
            UnknownTypeError: it holds values of a class that is not known here.
            StoreError: the store cannot be used.
        """
        from handrail.session.persistence.loading import LoadedSession  # noqa: PLC0415

        check_argument("Session.open", "session_id", session_id, str, _ID)
        _check("Session.open", session_id, tags, parent, dispatcher)
        opening = LoadedSession(store, types, create, wait, checkpoint_every, evict).checked()
        return cls._resume(opening, session_id, tags, parent, dispatcher)

    @classmethod
    async def open_async(
        cls, store: SessionStore, session_id: str, *, parent: Session | None = None, **options: Unpack[OpenOptions]
    ) -> Self:
        """As `open`, on a thread: the event loop runs meanwhile. One opened for a cancelled task is closed again."""
        return await _open_on_thread(partial(cls.open, store, session_id, parent=parent, **options))

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
    def store(self) -> SessionStore | None:
        """Where the session is kept; `None` for one in memory alone."""
        return None if self.recorder is None else self.recorder.store

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The types that have a slice with something in it, STATE first."""
        with self.slices.lock:
            both = (self.slices.state.visible(), self.slices.log)
            return tuple(kind for slices in both for kind in slices if slices[kind].length)

    def close(self) -> None:
        """Let others open the session, and refuse what is written later. Only stored sessions need it. Idempotent."""
        if self.recorder is not None:
            self.recorder.close()

    @cached_property
    def conversation(self) -> Conversation:
        """The messages of a model; see `handrail.session.conversation`."""
        from handrail.session.conversation import Conversation, ConversationPart  # noqa: PLC0415

        return Conversation(self[ConversationPart], self.calls)

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """The calls that have not come to their end, each once; for those who resume a session.

        These are the calls whose effect is running, unknown or not applied in the store of the session, the calls that
        were postponed, and where the session holds a conversation, the calls of the last reply that have no final
        record. A session in memory knows of the last kind alone.

        Raises:
            StoreError: the store cannot be read.
        """
        from handrail.session.open_calls import list_open_calls  # noqa: PLC0415

        items = {kind: self[kind].all() for kind in self.kinds if hasattr(kind, "listed_calls")}
        claims = () if self.recorder is None else self.recorder.store.open_claims(self.session_id)
        return list_open_calls(items, self.session_id, claims, self.calls.is_final)

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

    def fork(self, *, session_id: str | None = None, at: tuple[str | None, str] | None = None) -> Session:
        """A session that starts with everything this one holds and goes its own way.

        Its reducers are the same, its dispatcher is its own: it has no subscribers yet. The fork of a session in
        memory costs what `snapshot` costs; that of a stored one is stored beside it, which copies the entries.

        Args:
            session_id: the id of the fork; a new one by default.
            at: a call of a stored session, as `(reply, call id)`: the fork holds what there was when that call had been
                recorded.

        Raises:
            SessionError: `at` names no call of it, or the session is in memory and has no history; or a stored session
                is forked in the middle of a call, or to an id that is taken.
        """
        _check("Session.fork", session_id)
        new_id = self._new_id() if session_id is None else session_id
        if self.recorder is not None and self._opening is not None:
            from handrail.session.persistence.loading import copy_for_fork  # noqa: PLC0415

            opening, note = copy_for_fork(self.recorder, self._opening, new_id, at)
            copy = self._resume(opening, new_id, parent=self.parent, rules=self.slices.rules)
            copy[type(note)].append(note)
            return copy
        if at is not None:
            raise SessionError("a session in memory keeps no history to go back to; fork(at=...) needs Session.open")
        fork = Session(session_id=new_id, tags=self.tags, parent=self.parent, new_id=self._new_id)
        with self.slices.lock:
            fork.slices.adopt(self.slices.state.share(), self.slices.log, self.slices.rules)
        return fork

    async def fork_async(self, *, session_id: str | None = None, at: tuple[str | None, str] | None = None) -> Session:
        """As `fork`, on a thread; a fork that is made for a task which has been cancelled is closed again."""
        return await _open_on_thread(partial(self.fork, session_id=session_id, at=at))

    def child(self, *, session_id: str | None = None, tags: Mapping[str, str] | None = None) -> Session:
        """An empty session for work done on behalf of this one, as an agent used as a tool does; stored beside it.

        It lives longer than the call that makes it; only what it is given is undone.

        Raises:
            InvalidArgumentError: an id is text, and so are tags.
            TransactionClosedError: the call that makes it has ended.
            StoreError: this session is stored, and its store cannot be used.
        """
        _check("Session.child", session_id, tags)
        call = current()
        if call is not None and not call.is_open():
            raise TransactionClosedError(call.tool, "make a child session")
        if self._opening is None:
            return Session(session_id=session_id, tags=tags, parent=self, new_id=self._new_id)
        new_id = self._new_id() if session_id is None else session_id
        return self._resume(self._opening._replace(create=True), new_id, tags, self)

    async def child_async(self, *, session_id: str | None = None, tags: Mapping[str, str] | None = None) -> Session:
        """As `child`, on a thread; a child that is opened for a task which has been cancelled is closed again."""
        return await _open_on_thread(partial(self.child, session_id=session_id, tags=tags))

    def to_json(self) -> str:
        """Id, tags and slices as this context sees them, as JSON for people; no reducers, subscribers or parent.

        Raises:
            SnapshotError: an item cannot be said in JSON, or would not come back the same; it names slice and item.
        """
        from handrail.session.conversation import masked_item  # noqa: PLC0415
        from handrail.session.persistence.stored_types import dump_session_json  # noqa: PLC0415

        with self.slices.lock:
            state, log = list_items(self.slices.state.visible()), list_items(self.slices.log)
        mask = partial(masked_item, masking=self.call_masking)
        masked = {kind: tuple(map(mask, items)) for kind, items in log.items()}
        return dump_session_json(self.session_id, self.tags, state, masked)

    @staticmethod
    def from_json(data: str | bytes, *, types: Iterable[type[Any]], parent: Session | None = None) -> Session:
        """The session that `to_json` wrote, as a new one in memory; register reducers and subscribers again.

        Raises:
            SnapshotError: the data is not a saved session, or has values of other types than `types`.
            InvalidArgumentError: it has an id that no session can have.
        """
        from handrail.session.persistence.stored_types import load_session_json  # noqa: PLC0415

        session_id, tags, state, log = load_session_json(data, types=types)
        session = Session(session_id=session_id, tags=tags, parent=parent)
        owner = session.slices.owner
        session.slices.adopt(make_versions(state, owner), make_versions(log, owner))
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
        from handrail.session.conversation import masked_item  # noqa: PLC0415
        from handrail.session.persistence import loading  # noqa: PLC0415

        with HeldInterrupts():  # where Ctrl-C came, the session is collected, which releases it
            recorder = loading.load_session(
                opening, session_id, tags or {}, None if parent is None else parent.session_id
            )
            session = cls(
                session_id=session_id, tags=recorder.session_lock.row.tags, parent=parent, dispatcher=dispatcher
            )
            slices = session.slices
            slices.adopt(*loading.stored_slices(recorder, slices.owner), rules)
            session.recorder, session._opening = recorder, opening
            # One lock guards the slices and what the recorder knows of them.
            recorder.lock, recorder.state, recorder.log = slices.lock, slices.state, slices.log
            slices.recorder, recorder.mask = recorder, partial(masked_item, masking=session.call_masking)
            if recorder.head:
                session.calls = slices.calls = loading.StoredCallRecords(recorder)
            recorder.calls = session.calls
            session.call_masking.on_added = recorder.mask_pending
            loading.release_with(session, opening.store, recorder.session_lock)
        return session

    def __getitem__(self, kind: type[T]) -> Slice[T]:
        """The slice of a type; empty when nothing of that type has come in.

        Raises:
            SessionUseError: `kind` is not a dataclass.
        """
        access = self._access.get(kind)
        if access is None:
            self.slices.rules.policy(kind)
            access = self._access[kind] = Slice(self.slices, kind)
        return cast("Slice[T]", access)  # the mapping cannot say that key and value belong together

    def declare(self, kind: type[Any], policy: SlicePolicy) -> None:
        """Declare what a rollback does to a type's slice in this session, before anything is in it.

        Raises:
            SessionUseError: the slice holds something already, or something that has not been committed yet.
            ReducerError: it would be a LOG, and reducers decide on it.
        """
        slices = self.slices
        with slices.lock:
            if slices.state.is_used(kind) or kind in slices.log:
                raise SessionUseError(f"slice {kind.__name__} is in use; declare its policy before the first event")
            slices.rules.declare(kind, policy)

    def install(self, state: type[T], *, initial: Callable[[], T] | None = None) -> None:
        """Register the methods of a state slice that are marked `@reducer(on=Event)`.

        `initial` makes the value that the first event meets; without it, events are passed over until there is one.

        Raises:
            ReducerError: no method is marked, or the slice has reducers already, or is a LOG. Nothing is registered.
            SessionUseError: the class or one of the events is not a dataclass. Nothing is registered.
        """
        with self.slices.lock:
            self.slices.rules.install(state, initial)

    def register(self, event_type: type[E], reducer: Reducer[T, E], *, into: type[T]) -> None:
        """Register a reducer that computes slice `into` when an event of that type is dispatched. Idempotent.

        Raises:
            ReducerError: another reducer of the slice takes events of that type already, or the slice is a LOG.
        """
        self[into].register(event_type, reducer)

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
        self.slices.dispatch(event)

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
        from handrail.session.open_calls import check_resettable  # noqa: PLC0415

        self.slices.reset(lambda: check_resettable(self.session_id, () if with_open_calls else self.open_calls))

    def snapshot(self) -> SessionSnapshot:
        """The STATE slices as this context sees them; costs the same however much they hold."""
        with self.slices.lock:
            return SessionSnapshot(self.slices.owner, self.slices.state.share())

    def restore(self, snapshot: SessionSnapshot) -> None:
        """Put the STATE slices back; LOG slices stay. It is a write like any other, and undone with its call.

        Raises:
            SnapshotError: the snapshot belongs to another session.
            SessionBusyError: outside of calls, while a call holds the session.
        """
        if snapshot.owner is not self.slices.owner:
            raise SnapshotError(f"the snapshot belongs to session {snapshot.owner.session_id}, not {self.session_id}")
        self.slices.undo(snapshot)

    dispatch_async: Final = asynchronous(dispatch)
    reset_async: Final = asynchronous(reset)
    restore_async: Final = asynchronous(restore)
    close_async: Final = asynchronous(close)
