"""One life of a worker: open a session, and carry its calls out until it is killed or everything is done."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from chaos.desk import TYPES, Desk, Manner, Policy, applied, call_of, session_name
from chaos.faults import Faults
from chaos.service import Client, running
from chaos.table import create, insert_for
from handrail import store
from handrail.crash_points import arm
from handrail.errors import HandrailError
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.runtime import EffectLedger, Session
from handrail.testing.crash import CrashTrap

DONE, TOLD, BROKEN = 0, 3, 4
"""How a worker ends by itself: it is through; it was told that it cannot go on; something is wrong with the library."""

REFUSED = "refused"
"""The word for a call that was refused; that for a worker that ended is the name of the exception."""

_LONGEST_LINE = 300

PATIENCE = timedelta(milliseconds=100)
"""How long a worker waits for a session that another one writes to."""

_BUSY = timedelta(seconds=1)
"""How long a store waits for its database; not for as long as the troubles last."""

_PAUSE_SECONDS = 0.02
"""Between a call that was refused and the same call asked again."""

_MOST_AHEAD = 16
"""Entries that a session may have more than the one beside it."""

_LONGEST_WAIT = 10
"""Pauses that a session waits for the other."""

_REFUSALS_IN_A_ROW = 200
"""After so many, a worker takes another life; refusals are to be expected, but not for ever."""


@dataclass(frozen=True, slots=True)
class World:
    """What all workers of a run share.

    Attributes:
        folder: where files, journals and logs are.
        url: the store.
        service: the address of the outside world.
        policy: how the promise is kept.
    """

    folder: Path
    url: str
    service: str
    policy: Policy

    def open_store(self) -> store.Store:
        """The store, opened by this process."""
        return store.open(self.url, busy=_BUSY)

    @property
    def told(self) -> Path:
        """Where the workers say why they ended or were refused a call: a word, a tab, and why."""
        return self.folder / "told"

    def root(self, session: int) -> Path:
        """The folder of a session's files."""
        return self.folder / "files" / session_name(session)

    def open_files(self, session: int, kept_in: store.Store) -> HostFilesystem:
        """The files of a session; what a crash has left half done is undone."""
        self.root(session).mkdir(parents=True, exist_ok=True)
        journal = self.folder / "journals" / session_name(session)
        return HostFilesystem(self.root(session), journal=journal, store=kept_in, wait=PATIENCE)


class Life(NamedTuple):
    """What one worker does.

    Attributes:
        session: the session that it works on.
        until: how many calls the session is to have taken in; `None` for no end.
        point: at which named point to die, if at one.
        nth: at which time.
        stops: whether it is only stopped there, until somebody lets it go on.
        file_limit: the most bytes that a file may have, for a disk that is full; `None` for a disk that is not.
        faults: where the chance begins that draws the faults of its external handlers; `None` for no faults.
        accepts_late: whether a late result settles its effect.
    """

    session: int
    until: int | None = None
    point: str | None = None
    nth: int = 1
    stops: bool = False
    file_limit: int | None = None
    faults: int | None = None
    accepts_late: bool = False


def start(world: World, life: Life) -> int:
    """Fork a worker; returns its process id."""
    conductor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        code = _live(world, life, conductor)
    finally:
        os._exit(code)  # no cleanup of what the parent owns


def warm(calls: int) -> None:
    """Carry a few calls out in this process, so that what is made once is not made again in each fork of it.

    Raises:
        RuntimeError: a thread is left, and nothing may be forked beside one.
    """
    importlib.import_module("handrail.store.postgres")
    with TemporaryDirectory(prefix="chaos-") as name, running() as service:
        url = f"sqlite:///{name}/desk.db"
        create(url)
        _work(World(Path(name), url, service, "unknown"), Life(0, calls), lambda: True)
    wait_for_threads()


def wait_for_threads() -> None:
    """Wait until the threads of what is no longer used have ended.

    Raises:
        RuntimeError: one is left, and nothing may be forked beside it.
    """
    gc.collect()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(_BUSY.total_seconds())
    if threading.active_count() > 1:
        raise RuntimeError(f"threads are left: {threading.enumerate()}")


def _live(world: World, life: Life, conductor: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the conductor ends its workers itself
    logging.raiseExceptions = False  # a log that is full is no reason to speak of it elsewhere
    logging.basicConfig(filename=world.folder / "workers.log", level=logging.WARNING, force=True)
    if life.file_limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (life.file_limit, resource.RLIM_INFINITY))
    if life.point is not None:
        deed = signal.SIGSTOP if life.stops else signal.SIGKILL
        arm(CrashTrap(life.point, life.nth, kill=lambda: os.kill(os.getpid(), deed)))
    try:
        return _work(world, life, lambda: os.getppid() == conductor)
    except HandrailError as error:
        _tell(world, type(error).__name__, str(error))
        return TOLD
    except BaseException:  # noqa: BLE001 - the run fails, and shows it
        (world.folder / f"broken-{os.getpid()}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return BROKEN


def _work(world: World, life: Life, wanted: Callable[[], bool]) -> int:
    """Carry calls out, for as long as there are any and somebody wants it."""
    name = session_name(life.session)
    with (
        world.open_store() as kept_in,
        Session.open(kept_in, name, types=TYPES, wait=PATIENCE) as session,
        world.open_files(life.session, kept_in) as files,
    ):
        resources: Mapping[type[Any], object] = {Filesystem: files}
        faults = None if life.faults is None else Faults(life.faults)
        manner = Manner(world.policy, faults, life.accepts_late)
        desk = Desk(session, EffectLedger(kept_in), Client(world.service), manner=manner, insert=insert_for(world.url))
        executor = desk.executor(resources)
        n, refusals, reply = applied(session), 0, 0
        while wanted() and (life.until is None or n < life.until):
            if life.until is None:
                _stay_beside(kept_in, life.session)
            message = executor.execute(call_of(life.session, n), reply=f"reply-{n}-{reply}")
            if message.success:
                n, refusals, reply = n + 1, 0, 0
                continue
            reply += message.replayed  # the refusal is final, so a model asks again in another reply
            _tell(world, REFUSED, message.content)
            refusals += 1
            if refusals == _REFUSALS_IN_A_ROW:
                return TOLD
            time.sleep(_PAUSE_SECONDS)
    return DONE


def _stay_beside(kept_in: store.Store, session: int) -> None:
    """Wait for the session that charges the same orders, so that the two ask for them at about the same time."""
    own, other = kept_in.find(session_name(session)), kept_in.find(session_name(session ^ 1))
    for _ in range(_LONGEST_WAIT):
        if own is None or other is None or own.head <= other.head + _MOST_AHEAD:
            return
        time.sleep(_PAUSE_SECONDS)
        other = kept_in.find(session_name(session ^ 1))


def _tell(world: World, what: str, text: str) -> None:
    """Add a line to what the workers have to say; a line is written at once, so that no two are mixed."""
    line = f"{what}\t{' '.join(text.split())[:_LONGEST_LINE]}"
    written = os.open(world.told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(written, f"{line}\n".encode())
    except OSError:  # the disk is full for this worker, which is what it was to show
        logging.getLogger("chaos").warning("could not say: %s", line)
    finally:
        os.close(written)
