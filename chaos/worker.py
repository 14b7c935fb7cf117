"""One life of a worker: open its sessions, and carry their calls out until it is killed or everything is done."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import random
import resource
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from chaos.agent import Agent, GaveUp
from chaos.desk import TYPES, Desk, Manner, session_name
from chaos.faults import Faults
from chaos.service import Client, running
from chaos.table import create, insert_for
from chaos.world import PATIENCE, World
from handrail.crash_points import arm
from handrail.errors import HandrailError
from handrail.filesystem import Filesystem
from handrail.runtime import EffectLedger, Session
from handrail.testing.crash import CrashTrap
from handrail.threads import THREADS

DONE, TOLD, BROKEN = 0, 3, 4
"""How a worker ends by itself: it is through; it was told that it cannot go on; something is wrong with the library."""

_LONGEST_END_SECONDS = 1.0
"""How long a thread takes to end at most."""


class Life(NamedTuple):
    """What one worker does.

    Attributes:
        home: whose sessions it works on, the number of a worker.
        until: how many calls each session is to have taken in; `None` for no end.
        point: at which named point to die, if at one.
        nth: at which time.
        stops: whether it is only stopped there, until somebody lets it go on.
        file_limit: the most bytes that a file may have, for a disk that is full; `None` for a disk that is not.
        faults: where the chance begins that draws the faults of its external handlers; `None` for no faults.
        accepts_late: whether a late result settles its effect.
    """

    home: int
    until: int | None = None
    point: str | None = None
    nth: int = 1
    stops: bool = False
    file_limit: int | None = None
    faults: int | None = None
    accepts_late: bool = False


def start(world: World, life: Life, seat: int) -> int:
    """Fork a worker, which counts at `seat` what it writes in groups; returns its process id."""
    conductor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        code = _live(world, life, seat, conductor)
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
    THREADS.retire()
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(_LONGEST_END_SECONDS)
    if threading.active_count() > 1:
        raise RuntimeError(f"threads are left: {threading.enumerate()}")


def _live(world: World, life: Life, seat: int, conductor: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the conductor ends its workers itself
    logging.raiseExceptions = False  # a log that is full is no reason to speak of it elsewhere
    logging.basicConfig(filename=world.folder / "workers.log", level=logging.WARNING, force=True)
    if life.file_limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (life.file_limit, resource.RLIM_INFINITY))
    _watch(world, life, seat)
    try:
        _work(world, life, lambda: os.getppid() == conductor)
        return DONE
    except (GaveUp, HandrailError) as error:
        world.tell(type(error).__name__, str(error))
        return TOLD
    except BaseException:  # noqa: BLE001 - the run fails, and shows it
        (world.folder / f"broken-{os.getpid()}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return BROKEN


def _watch(world: World, life: Life, seat: int) -> None:
    """Count the units that are written in groups, and die at the point of this life."""
    deed = signal.SIGSTOP if life.stops else signal.SIGKILL
    trap = None if life.point is None else CrashTrap(life.point, life.nth, kill=lambda: os.kill(os.getpid(), deed))

    def hook(point: str) -> None:
        if point == "unit-group-written":
            world.grouped.add(seat)
        if trap is not None:
            trap(point)

    arm(hook)


def _work(world: World, life: Life, wanted: Callable[[], bool]) -> None:
    """Carry calls out, for as long as there are any and somebody wants it."""
    with ExitStack() as held:
        kept_in = held.enter_context(world.open_store())
        client = held.enter_context(closing(Client(world.service)))
        agents = list[Agent]()
        for number in world.sessions_of(life.home):
            session = held.enter_context(Session.open(kept_in, session_name(number), types=TYPES, wait=PATIENCE))
            files = held.enter_context(world.open_files(number, kept_in))
            faults = None if life.faults is None else Faults(life.faults + number)
            manner = Manner(world.policy, faults, life.accepts_late, asynchronous=world.agents > 1)
            desk = Desk(session, EffectLedger(kept_in), client, manner=manner, insert=insert_for(world.url))
            executor = desk.executor({Filesystem: files})
            agents.append(Agent(world, number, kept_in, session=session, executor=executor, until=life.until))
        if world.agents == 1:
            agents[0].run(wanted)
        else:
            asyncio.run(_run_all(agents, wanted, random.Random(life.faults)))


async def _run_all(agents: list[Agent], wanted: Callable[[], bool], dice: random.Random) -> None:
    """Run agents as tasks; if one raises, the loop ends, and cancels the others in the middle of what they do."""
    await asyncio.gather(*(agent.run_async(wanted, dice) for agent in agents))
