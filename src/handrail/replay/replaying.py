"""Replays a recorded session against the program of today, on copies, and compares call by call.

    replay = await replay(session, desk_executor)
    assert replay.equal, replay.differences[0]

The replay is a session of its own in a copy of the store, as the recorded one was at its beginning: before its first
call for an executor, before its first message for a run. A fork is replayed from where it was forked.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

from handrail.adapters.run_task import AgentFunction, RunTask
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import SessionError
from handrail.filesystem import HostFilesystem
from handrail.filesystem.copies import copy_folder, folder_size
from handrail.prompt.signature import is_async
from handrail.replay.guard import ReplayGuard
from handrail.replay.journal import Difference, Journal, JournalCall
from handrail.replay.recording import Recording, find_beginning, find_row
from handrail.runtime.environment import RUN_GUARD
from handrail.runtime.execution import ASYNC
from handrail.runtime.guard import Workplace
from handrail.session import Session
from handrail.session.calls import CallRef, ToolCall
from handrail.session.persistence.loading import copy_files, create_fork_of_row
from handrail.session.persistence.protocol import SessionRow
from handrail.store import Store
from handrail.store.rehearsal import check_size, copy_store
from handrail.undo.rehearsal import HasTask, as_function

ExecutorMaker: TypeAlias = Callable[[Session], ToolExecutor]
"""Makes the executor of a program's own loop for a session."""

Against: TypeAlias = ExecutorMaker | AgentFunction | HasTask
"""What a session is replayed against: what makes its executor, the function of a run, or an agent."""

LookAtSessions: TypeAlias = Callable[[Store, SessionRow, SessionRow], object]
"""Looks at the recorded session and its replay, while both exist."""


class ReplayedCall(NamedTuple):
    """A call of a recorded session.

    Attributes:
        session_id: the session that has it.
        name: the call, as `sessions show` writes it.
        tool: its tool.
        is_compared: whether the replay came to it.
    """

    session_id: str
    name: str
    tool: str
    is_compared: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of a replay.

    Attributes:
        session_id: the recorded session.
        calls: its calls and those of its agents, in the order of their records.
        differences: what differs; the first one alone, unless all were asked for.
    """

    session_id: str
    calls: tuple[ReplayedCall, ...]
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """True if there is no difference."""
        return not self.differences

    @property
    def compared(self) -> int:
        """How many of the calls were compared."""
        return sum(call.is_compared for call in self.calls)


async def replay(
    session: Session | Recording | str,
    against: Against,
    *,
    store: Store | None = None,
    all: bool = False,
    look: LookAtSessions | None = None,
) -> Replay:
    """Replays a session of a store. It is not changed, no model is asked, and nothing is done outside.

    Args:
        session: the session, its id, or the recording of a file.
        against: a function that makes the executor of a session; or the function of a run, or an agent, as for a dry
            run.
        store: the store of a session that is given by its id.
        all: whether to continue after the first difference, with the recorded reply.
        look: is called at the end, with the copy of the store.

    Raises:
        SessionNotFoundError: there is no such session.
        SessionError: it cannot be replayed; the message says why.
        StoreError: it cannot be read.
        PlanRefusedError: what it works on is too large to be copied.
    """
    session_id, source = session if isinstance(session, str) else session.session_id, store
    if isinstance(session, Recording):
        source = session.restore()
    elif isinstance(session, Session):
        source = cast("Store | None", session.store)  # only stores have sessions that are open
    if source is None:
        raise SessionError(f"session {session_id!r} is not in a store, so nothing of it is recorded; use Session.open")
    if isinstance(session, Session) and session.recorder is not None:
        await ASYNC.write_to(source, session.recorder.flush)
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="handrail-replay-")
        folder = await ASYNC.in_thread(lambda: Path(stack.enter_context(temporary)).resolve())
        copy = stack.enter_context(await ASYNC.in_thread(partial(copy_store, source, folder)))
        is_run = not callable(against) or is_async(against)
        begin = partial(_begin_again, copy, session_id, is_run=is_run)
        whole, row, original = await ASYNC.in_thread(begin)
        acting = await ASYNC.in_thread(partial(_find_acting, source, session_id))
        folders = _Folders(source, whole, row.head, folder, is_file=isinstance(session, Recording))
        async with await Session.open_async(copy, row.session_id) as replayed:
            guard = ReplayGuard(copy, original, row, folders.copy, acting=acting, reports_all=all)
            stack.callback(guard.restore)
            replayed.attached[RUN_GUARD] = guard
            repeat: Any = _repeat_run if is_run else _repeat_calls
            await ASYNC.write_to(copy, partial(guard.finish, await _ended_by(repeat(against, replayed, guard))))
        if look is not None:
            look(copy, whole, row)
    calls = tuple(
        ReplayedCall(pair.original.session_id, str(ref), call.tool, ref in pair.compared)
        for pair in guard.sessions.values()
        for ref, call in pair.original.calls.items()
    )
    return Replay(session_id, calls, tuple(guard.differences))


def _begin_again(store: Store, session_id: str, *, is_run: bool) -> tuple[SessionRow, SessionRow, Journal]:
    row, name = find_row(store, session_id), f"{session_id}-{uuid.uuid4().hex}"
    begin = find_beginning(store, row, is_run=is_run)
    if row.origin is None:
        again = create_fork_of_row(store, row, name, begin, new_keys=True)
    else:
        again = row._replace(session_id=name, head=begin)
        store.create(again)
    original = Journal(store, session_id, begin)
    original.read(row.head)
    if original.has_undo:
        raise SessionError(f"calls of session {session_id!r} have been undone, which a replay does not repeat")
    return row, again, original


def _find_acting(store: Store, session_id: str) -> set[str]:
    """The tools that have acted outside in the recorded session, its origins, or a session below it."""
    names = [row.session_id for row in store.sessions() if f"{row.session_id}/".startswith(f"{session_id}/")]
    journals = [Journal(store, name, 0) for name in names]
    return {call.tool for journal in journals for call in journal.read() if call.acts}


@dataclass(frozen=True, slots=True)
class _Folders:
    """The folders of a replay, in a temporary folder."""

    store: Store
    row: SessionRow
    begin: int
    folder: Path
    is_file: bool

    def copy(self, root: Path, number: int) -> Workplace:
        place = Workplace(self.folder / f"root-{number}", self.folder / f"journal-{number}")
        check_size(root, folder_size(root))
        if self.is_file:  # what calls have changed since is kept where they ran
            copy_folder(root, place.folder)
            return place
        with HostFilesystem(root) as files:
            copy_files(self.store, self.row, self.begin, {files: place.folder})
        return place


async def _ended_by(run: Awaitable[object]) -> Exception | None:
    try:
        await run
    except Exception as error:  # noqa: BLE001 - it is a part of the first call that was not made
        return error
    return None


async def _repeat_calls(against: ExecutorMaker, session: Session, guard: ReplayGuard) -> None:
    pair = guard.pair(session.session_id)
    requests = {reply.name: reply for reply in pair.original.replies}
    calls = [call for call in pair.original.calls.values() if call.ref.parent is None]
    if not calls:
        raise SessionError(f"session {pair.original.session_id!r} has no calls, so an executor has nothing to compare")
    with against(session) as executor:
        for (name, _), group in groupby(calls, key=lambda call: (call.ref.reply, call.ref.reply or call.ref)):
            if (request := requests.get(name)) is not None and request.is_own_loop and request.request:
                guard.compare_request(pair, request, request._replace(request=executor.request_digests()))
                guard.raise_end()
            read = partial(_read_calls, pair.original, tuple(group))
            asked = await ASYNC.write_to(session.store, read)
            messages = await executor.execute_all_async(asked, reply=name)
            texts = ((CallRef(name, message.call_id).storable, message) for message in messages)
            answers = {ref: message.content for ref, message in texts if not message.parts}
            await ASYNC.write_to(session.store, partial(guard.compare_new, answers))
            guard.raise_end()


def _read_calls(journal: Journal, calls: Iterable[JournalCall]) -> list[ToolCall]:
    return [journal.event(call).call for call in calls]


async def _repeat_run(against: AgentFunction | HasTask, session: Session, guard: ReplayGuard) -> None:
    function = as_function(against)
    for text in guard.pair(session.session_id).original.inputs or [None]:
        if not isinstance(text, str | None):
            raise SessionError("the user has sent more than text, which is not replayed by the run")
        await function(RunTask(session, text))
        await ASYNC.write_to(session.store, guard.compare_new)
        guard.raise_end()
