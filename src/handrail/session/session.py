"""Sessions: events go in, reducers decide, slices come out; a store keeps them.

Inside a call, writes belong to the call's transaction (see `handrail.transaction`), however the session was reached.
Readers outside see what was there before, until the call has committed. Outside of calls each write is a transaction of
its own, and needs the session's turn to be free. A LOG takes events from any caller at any time. Rules are not state:
what is registered inside a call stays.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from handrail.session.slices import Reducer, SessionSnapshot
from handrail.transaction import current
from handrail.transaction.changes import CallChange
from handrail.turns import Turn
from handrail.waiting import asynchronous, closing_after, loop_future, run_in_thread

if TYPE_CHECKING:
    from handrail.session.conversation import Conversation
    from handrail.session.persistence.loading import FolderCopies, LoadedSession
    from handrail.session.persistence.protocol import DatabaseConnection, SessionStore
    from handrail.session.persistence.recorder import SessionRecorder


T = TypeVar("T")
E = TypeVar("E")
SessionT = TypeVar("SessionT", bound="Session")

_ID = "text of 1 character or more, of valid Unicode and without a zero character: 'desk' or str(number)"
_TAGS = "a mapping from text to text: {'customer': '7'}"


def check_session_arguments(function: str, session_id: object, tags: object = None) -> None:
    """Checks the id and the tags that a function is to make a session with.

    Raises:
        InvalidArgumentError: one of them cannot be stored.
    """
    check_argument(function, "tags", tags, (Mapping, NoneType), _TAGS)
    is_id = session_id is None or (is_text(session_id) and bool(session_id) and "\0" not in str(session_id))
    texts = [("session_id", session_id, is_id, _ID)]
    for name, value in cast("Mapping[Any, Any]", tags or {}).items():
        texts.append(("a name in tags", name, is_text(name), _TAGS))
        texts.append((f"tags[{name!r}]", value, is_text(value), "text of valid Unicode; write str(...) around it"))
    for argument, value, fits, expected in texts:
        if not fits:
            raise InvalidArgumentError(function=function, argument=argument, value=value, expected=expected)


def is_text(value: object) -> bool:
    """Returns whether a value is text of valid Unicode."""
    # A lone surrogate has no UTF-8, so stores cannot hold it: it is dropped, and the text differs.
    return isinstance(value, str) and escape_surrogates(value) is value


class OpenOptions(TypedDict, total=False):
    """The arguments of `Session.open` beside the store, the id and the parent."""

    types: Iterable[type[object]]
    tags: Mapping[str, str] | None
    dispatcher: Dispatcher | None
    create: bool
    wait: timedelta
    checkpoint_every: int
    evict: bool
    record_changes: bool


async def _open_on_thread(opening: Callable[[], SessionT]) -> SessionT:
    opening_future = run_in_thread(opening)
    try:
        await loop_future(opening_future)
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
        tags: by which the program finds it.
        parent: the session that made this one with `child`.
        dispatcher: notifies subscribers of every dispatched event.
        turn: the turn that calls take on this session.
        slices: its slices, for the layers above.
        calls: the records of its calls.
        call_masking: the arguments of its calls that are secret: neither stored nor exported.
        recorder: writes it to its store; `None` in memory.
        unbound: the session itself; of a view for the handler of a call, the session behind it.
        attached: objects of the layers above that live as long as the session, each under its own key.

    Raises:
        InvalidArgumentError: an id or a tag is invalid. `new_id` makes a missing id.
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
        check_session_arguments("Session", session_id, tags)
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
        record_changes: bool = True,
    ) -> Self:
        """Resumes the session of that id in a store, or creates it.

        It belongs to this program until it is closed or the process ends. Register reducers and subscribers as for a
        new session; no reducer is run again. Values are read at their first use.

        Args:
            store: from `handrail.store.open`.
            session_id: the id.
            types: classes of values in it that the program has not imported or named by `stored_as`.
            tags: the tags of a new session; one that exists keeps its own.
            parent: the session that a new one is made for.
            dispatcher: notifies subscribers of every event; nothing is dispatched for what is read.
            create: whether to create a session that does not exist.
            wait: how long to wait for another process that has the session open.
            checkpoint_every: the number of entries between two checkpoints; opening reads from the newest one.
            evict: whether to take the session from a live holder, whose next write is refused.
            record_changes: whether the record of a call has what it has changed in files, and what was undone.

        Raises:
            InvalidArgumentError: the store, the id or a tag is invalid. Nothing was written.
            SessionNotFoundError: the session does not exist, and `create` is false.
            SessionLockedError: it is open elsewhere for longer than `wait`.
            UnknownTypeError: it holds values of an unknown class.
            StoreError: the store cannot be used.
        """
        from handrail.session.persistence.loading import LoadedSession  # noqa: PLC0415

        check_argument("Session.open", "session_id", session_id, str, _ID)
        check_session_arguments("Session.open", session_id, tags)
        check_argument("Session.open", "wait", wait, timedelta, "a timedelta: timedelta(seconds=5)")
        check_argument("Session.open", "checkpoint_every", checkpoint_every, int, "a number of entries")
        if not hasattr(store, "acquire"):
            expected = "a store: handrail.store.open('sqlite:///desk.db')"
            raise InvalidArgumentError(function="Session.open", argument="store", value=store, expected=expected)
        opening = LoadedSession(store, tuple(types), create, wait, checkpoint_every, evict, record_changes)
        return cls._resume(opening, session_id, tags, parent, dispatcher)

    @classmethod
    async def open_async(
        cls, store: SessionStore, session_id: str, *, parent: Session | None = None, **options: Unpack[OpenOptions]
    ) -> Self:
        """As `open`, on a thread. A session that opens after the task was cancelled is closed again."""
        return await _open_on_thread(partial(cls.open, store, session_id, parent=parent, **options))

    def __repr__(self) -> str:
        return f"Session({self.session_id!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with closing_after(error, self):
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with closing_after(error, self):
            if isinstance(error, GeneratorExit):  # a coroutine that is closed, as with its loop, cannot await anything
                self.close()
            else:
                await self.close_async()

    @property
    def store(self) -> SessionStore | None:
        """The store of the session; `None` in memory."""
        return None if self.recorder is None else self.recorder.store

    @property
    def origins(self) -> tuple[str, ...]:
        """The ids of the stored sessions whose effects a fork does not repeat: its origin, the origin of that, ..."""
        return () if self.recorder is None else self.recorder.origins

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The types whose slices hold items, STATE first."""
        with self.slices.lock:
            both = (self.slices.state.visible(), self.slices.log)
            return tuple(kind for slices in both for kind in slices if slices[kind].length)

    def close(self) -> None:
        """Releases the session and refuses later writes. Only stored sessions need it. Idempotent."""
        if self.recorder is not None:
            self.recorder.close()

    @cached_property
    def conversation(self) -> Conversation:
        """The messages of a model; see `handrail.session.conversation`."""
        from handrail.session.conversation import Conversation, ConversationPart  # noqa: PLC0415

        return Conversation(self[ConversationPart], self.calls)

    @property
    def open_calls(self) -> tuple[OpenCall, ...]:
        """The calls that have not ended, each once; for programs that resume a session.

        These are calls whose effect is running, unknown or not applied, postponed calls, and calls of the last reply of
        a conversation that have no final record. A session in memory knows the last kind alone.

        Raises:
            StoreError: the store cannot be read.
        """
        from handrail.session.open_calls import list_open_calls  # noqa: PLC0415

        items = {kind: self[kind].all() for kind in self.kinds if hasattr(kind, "listed_calls")}
        claims = () if self.recorder is None else self.recorder.store.open_claims(self.session_id)
        return list_open_calls(items, self.session_id, claims, self.calls.is_final)

    def connection(self) -> DatabaseConnection:
        """The database of the store, inside the transaction of the call; `context.connection` reads better.

        Raises:
            SessionError: the session has no database, or no call runs here.
        """
        if self.recorder is None:
            raise SessionUseError(
                "this session is kept in no database; open it with Session.open(handrail.store.open('sqlite:///...'), "
                "session_id)"
            )
        return self.recorder.store.connection()

    def fork(
        self,
        *,
        session_id: str | None = None,
        at: tuple[str | None, str] | None = None,
        new_keys: bool = False,
        files: FolderCopies | None = None,
    ) -> Session:
        """Returns a session that starts with everything this one holds and goes its own way.

        It has the same reducers, and a dispatcher without subscribers. In memory it costs what `snapshot` costs, and
        has a ledger of its own. The fork of a stored session refers to the entries of this one, and repeats none of its
        effects: an equal call or key is answered with the result that this session has.

        Args:
            session_id: the id of the fork; a new one by default.
            at: a call of a stored session, as `(reply, call id)`, whose record is the last entry that both share.
            new_keys: whether calls after it may repeat what a stored session has done, as in a test.
            files: filesystems on disk, each with a new folder, to which it is copied as it was at `at`. Without, both
                sessions work on the same files.

        Raises:
            SessionError: `at` names no recorded call, a call runs here, or the id is taken; or the files as they were
                at `at` are not kept. Nothing was forked.
            FilesystemError: files cannot be copied; as of `HostFilesystem.copy_before`.
        """
        check_session_arguments("Session.fork", session_id)
        new_id = self._new_id() if session_id is None else session_id
        if self.recorder is not None and self._opening is not None:
            from handrail.session.persistence.loading import create_fork  # noqa: PLC0415

            opening = create_fork(self.recorder, self._opening, new_id, at, new_keys=new_keys, files=files or {})
            return self._resume(opening, new_id, parent=self.parent, rules=self.slices.rules)
        if at is not None or files:
            raise SessionError("a session in memory keeps no history to go back to; fork(at=...) needs Session.open")
        fork = Session(session_id=new_id, tags=self.tags, parent=self.parent, new_id=self._new_id)
        with self.slices.lock:
            fork.slices.adopt(self.slices.state.hand_out(), self.slices.log, self.slices.rules)
        return fork

    async def fork_async(
        self,
        *,
        session_id: str | None = None,
        at: tuple[str | None, str] | None = None,
        new_keys: bool = False,
        files: FolderCopies | None = None,
    ) -> Session:
        """As `fork`, on a thread. A fork that is made after the task was cancelled is closed again."""
        return await _open_on_thread(partial(self.fork, session_id=session_id, at=at, new_keys=new_keys, files=files))

    def child(self, *, session_id: str | None = None, tags: Mapping[str, str] | None = None) -> Session:
        """Returns an empty session for work on behalf of this one, as of an agent used as a tool.

        It is stored beside this one, lives longer than the call that makes it, and is not rolled back with it.

        Raises:
            InvalidArgumentError: the id or a tag is invalid.
            TransactionClosedError: the call that makes it has ended.
            StoreError: the store cannot be used.
        """
        check_session_arguments("Session.child", session_id, tags)
        call = current()
        if call is not None and not call.is_open():
            raise TransactionClosedError(call.tool, "make a child session")
        if session_id is None:
            session_id = f"{self.session_id}/{self._new_id()}"  # below its parent's: their equal calls are known
        if self._opening is None:
            return Session(session_id=session_id, tags=tags, parent=self, new_id=self._new_id)
        return self._resume(self._opening._replace(create=True), session_id, tags, self)

    async def child_async(self, *, session_id: str | None = None, tags: Mapping[str, str] | None = None) -> Session:
        """As `child`, on a thread. A child that is made after the task was cancelled is closed again."""
        return await _open_on_thread(partial(self.child, session_id=session_id, tags=tags))

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
            parent_id = None if parent is None else parent.session_id
            recorder = loading.load_session(
                opening, session_id, tags or {}, parent_id, None if parent is None else parent.origins
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
        access = self._access.get(kind)
        if access is None:
            self.slices.rules.policy(kind)
            access = self._access[kind] = Slice(self.slices, kind)
        return cast("Slice[T]", access)  # the mapping cannot say that key and value belong together

    def install(self, state: type[T], *, initial: Callable[[], T] | None = None) -> None:
        """Registers the methods of a state slice that are marked `@reducer(on=Event)`.

        `initial` makes the value that the first event meets; without it, events are ignored until there is a value.

        Raises:
            ReducerError: no method is marked, or the slice has reducers, or is a LOG. Nothing is registered.
            SessionUseError: the class or an event is not a dataclass. Nothing is registered.
        """
        with self.slices.lock:
            self.slices.rules.install(state, initial)

    def register(self, event_type: type[E], reducer: Reducer[T, E], *, into: type[T]) -> None:
        """Registers a reducer that computes slice `into` from events of that type. Idempotent.

        Raises:
            ReducerError: another reducer of the slice takes these events, or the slice is a LOG.
        """
        self[into].register(event_type, reducer)

    def dispatch(self, event: object) -> None:
        """Passes an event to its reducers (by default it is appended to its own slice), then to subscribers.

        Inside a call, all of it belongs to the call. Outside, all of it happens or, when one of them raises, nothing.
        An event whose slice is a LOG stays in either case; if no reducer takes it, it needs no turn.

        Raises:
            SessionError: the event is not a dataclass instance, or cannot be stored.
            SessionBusyError: outside of calls, while a call holds the session.
            StoreUnavailableError: outside of calls, the store does not answer.
            DispatchError: subscribers raised.
            ReducerError: a reducer returned an invalid change, or wrote to the session.
        """
        self.slices.dispatch(event)

    def reset(self, *, with_open_calls: bool = False) -> None:
        """Empties all slices, STATE and LOG, in one unit of work; the conversation is one of them.

        The ledger, the records of calls and slices with `survives_reset` stay: no effect happens twice, and a call with
        a final record is answered from it. `with_open_calls` abandons open calls; their effects stay in the ledger.

        Raises:
            SessionError: a call is open, and is named; nothing was changed.
            SessionUseError: a call runs in this context, or the session is closed.
            SessionBusyError: a call holds the session.
            StoreError: the store cannot be used.
        """
        from handrail.session.open_calls import check_resettable  # noqa: PLC0415

        self.slices.reset(lambda: check_resettable(self.session_id, () if with_open_calls else self.open_calls))

    def snapshot(self) -> SessionSnapshot:
        """Returns the STATE slices as this context sees them, in constant time."""
        with self.slices.lock:
            return SessionSnapshot(self.slices.owner, self.slices.state.hand_out())

    def describe_changes(self, snapshot: SessionSnapshot, /, *, committed: bool) -> Iterator[CallChange]:
        """The slices that have changed since a snapshot, unless their entries say it, as those of a commit do."""
        if not committed:
            from handrail.session.persistence.recorder import describe_slices  # noqa: PLC0415

            yield from describe_slices(snapshot.slices, self.slices.state.visible())

    def restore(self, snapshot: SessionSnapshot) -> None:
        """Restores the STATE slices; LOG slices stay. It is a write like any other, and undone with its call.

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
