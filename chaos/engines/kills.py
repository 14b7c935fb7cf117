"""Runs of durable engines that pay orders, in processes that are killed by SIGKILL before, at or after a payment.

The engine gives each run again until it has ended. Then the books of the bank and the answers are compared. A program
without Handrail is counted; of one with it must hold:

| the run was answered | the bank has paid |
|---|---|
| done | once |
| failed | not |
| unknown | at most once |
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal, cast

from chaos import postgres
from chaos.books import Books
from chaos.engines.scene import Answer, Death, Scene, Way

Engine = Literal["DBOS", "Restate", "Celery"]
Database = Literal["SQLite", "PostgreSQL"]

_ROOT = Path(__file__).parents[2]
_PAYMENTS = 3
_LONGEST_DELAY = 0.3
"""After which time of a payment the process is killed at a moment, at the latest."""

_PATIENCE = 120.0
"""How long a run may take, in seconds, beside the time of its deaths."""

_OF_A_DEATH = 15.0
"""How long it may take until a run continues after a death."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is killed: the way in which an engine pays, with its records and those of Handrail in a database."""

    engine: Engine
    database: Database
    way: Way

    def __str__(self) -> str:
        return f"{self.engine}, {self.database}, {self.way}"

    @property
    def has_handrail(self) -> bool:
        """Whether the payments are calls of Handrail."""
        return self.way not in {"plain", "agent"}


KINDS: tuple[Kind, ...] = (
    *(Kind("DBOS", database, way) for database in ("SQLite", "PostgreSQL") for way in ("plain", "executor")),
    *(Kind("DBOS", "SQLite", way) for way in ("agent", "toolset", "capability")),
    *(Kind("Restate", database, way) for database in ("SQLite", "PostgreSQL") for way in ("plain", "executor")),
    *(Kind("Celery", "SQLite", way) for way in ("plain", "executor")),
)


@dataclass
class Count:
    """What came of the runs of one kind.

    Attributes:
        kills: how many processes were killed.
        asked: how many orders were to be paid.
        made: how many payments were made.
        twice: how many orders were paid more than once.
        lost: how many orders were not paid, though no answer says so.
        unknown: how many answers say that the outcome is unknown.
        had_happened: how many of these orders were paid.
        faults: what must not be.
    """

    kills: int = 0
    asked: int = 0
    made: int = 0
    twice: int = 0
    lost: int = 0
    unknown: int = 0
    had_happened: int = 0
    faults: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return (
            f"{self.kills} kills; {self.asked} payments asked for, {self.made} made, {self.twice} orders paid twice, "
            f"{self.lost} lost, {self.unknown} unknown ({self.had_happened} had happened), {len(self.faults)} faults"
        )


def play(kind: Kind, kills: int, dice: random.Random) -> Count:
    """Has runs of an engine pay orders, with so many deaths; with faults, the folder is kept."""
    folder = mkdtemp(prefix="chaos-engines-")
    scene = _plan(kind, kills, dice, folder)
    count = Count()
    with ExitStack() as stack:
        if kind.database == "PostgreSQL":
            server = stack.enter_context(postgres.running())
            scene = replace(scene, url=server.url, engine_url=server.url if scene.engine_url else "")
        try:
            ENGINES[kind.engine](scene)
        except (subprocess.SubprocessError, OSError, TimeoutError) as error:
            count.faults.append(f"the runs did not end: {error}")
    _judge(kind, scene, count)
    if count.faults:
        count.faults.append(f"what is left is in {folder}")
    else:
        shutil.rmtree(folder)
    return count


def _plan(kind: Kind, kills: int, dice: random.Random, folder: str) -> Scene:
    # More than enough: a death at any moment may come after the end of the run.
    deaths = kills + kills // 2 + 1
    runs = max(1, deaths // 2)
    url, engine_url = f"sqlite:///{folder}/desk.db", f"sqlite:///{folder}/engine.db" if kind.engine == "DBOS" else ""
    scene = Scene(folder, url, engine_url, kind.way, runs, _PAYMENTS, kills)
    orders = [order for run_id in scene.run_ids for order in scene.orders(run_id)]
    immediate = cycle(("after", "before"))
    plan: dict[str, Death] = {}
    for place in sorted(dice.sample(range(len(orders)), deaths)):
        # A death at any moment is at the last payment of a run: it must not come into the next one.
        is_last = place % _PAYMENTS == _PAYMENTS - 1
        plan[orders[place]] = dice.random() * _LONGEST_DELAY if is_last else cast("Death", next(immediate))
    return replace(scene, deaths=plan)


# ---------------------------------------------------------------------------------------------------------- the engines


def _run_dbos(scene: Scene) -> None:
    with _process(scene, "-m", "chaos.engines.lives", "chaos.engines.on_dbos", scene.text) as process:
        if (code := process.wait(_patience(scene))) != 0:
            raise OSError(f"the program has ended with {code}: see log.txt")


def _run_restate(scene: Scene) -> None:
    from chaos.engines.restate_server import Server, free_port  # noqa: PLC0415 - its packages are not always installed

    scene = replace(scene, engine_url=f"127.0.0.1:{free_port()}")
    program = ("-m", "chaos.engines.lives", "chaos.engines.on_restate", scene.text)
    with Server.running(Path(scene.folder)) as server, _process(scene, *program):
        server.register(scene.engine_url)
        for run_id in scene.run_ids:
            _note(scene, server.call(run_id, scene.orders(run_id), seconds=_patience(scene)))


def _run_celery(scene: Scene) -> None:
    from chaos.engines import on_celery  # noqa: PLC0415 - so that it makes no application here

    app = on_celery.make_app(scene.folder)
    worker = ("-m", "celery", "--app", "chaos.engines.on_celery", "worker", "--concurrency", "1", "--loglevel", "ERROR")
    options = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    with _process(scene, *worker, *options, **{on_celery.SCENE: scene.text}):
        for run_id in scene.run_ids:
            result = app.send_task(on_celery.TASK, (scene.orders(run_id),), task_id=run_id)
            _note(scene, result.get(timeout=_patience(scene), interval=0.05))


ENGINES: dict[Engine, Callable[[Scene], None]] = {
    "DBOS": _run_dbos,
    "Restate": _run_restate,
    "Celery": _run_celery,
}
"""What has the runs of a scene end, by the engine."""


@contextmanager
def _process(scene: Scene, *arguments: str, **environment: str) -> Generator[subprocess.Popen[bytes]]:
    """A process of Python with all that it starts, while the block runs."""
    path = os.pathsep.join((str(_ROOT), str(_ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])))
    with Path(scene.folder, "log.txt").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, *arguments],
            cwd=scene.folder,
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:  # else its group may be that of another process
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _patience(scene: Scene) -> float:
    return _PATIENCE + _OF_A_DEATH * scene.kills


def _note(scene: Scene, answers: dict[str, Answer]) -> None:
    for order, answer in answers.items():
        Books(Path(scene.folder)).write("answered", order=order, outcome=answer)


# ---------------------------------------------------------------------------------------------------------- the verdict


def _judge(kind: Kind, scene: Scene, count: Count) -> None:
    books = Books(Path(scene.folder))
    paid = Counter(entry["order"] for entry in books.read("paid"))
    answers: dict[str, Answer] = {entry["order"]: entry["outcome"] for entry in books.read("answered")}
    count.kills = len(books.read("died"))
    count.made = paid.total()
    for order in (order for run_id in scene.run_ids for order in scene.orders(run_id)):
        answer, times = answers.get(order), paid[order]
        count.asked += 1
        count.twice += times > 1
        count.lost += not times and answer in {"done", None}
        count.unknown += answer == "unknown"
        count.had_happened += answer == "unknown" and times > 0
        is_so = {"done": times == 1, "failed": times == 0, "unknown": times <= 1}.get(answer or "", False)
        if kind.has_handrail and not is_so:
            count.faults.append(f"{order}: answered {answer}, paid {times} times")
        if answer is None and not kind.has_handrail:
            count.faults.append(f"{order}: not answered")
