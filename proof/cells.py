"""Plays the trials of a cell: a column under the fault of a row, with a new world for each trial."""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from proof.desk import Scene
from proof.faults import NoFault
from proof.gold import Trial
from proof.judge import Count, judge_entry, judge_parcels, judge_payments
from proof.lives import ROOT, Lives
from proof.model import Model, Step
from proof.rows import Row
from proof.sets import load_environment
from proof.world import World
from scripts.size import count_lines

_MOST_LIVES = 5
_CALLS = 40
_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """What a column costs, without a fault.

    Attributes:
        time: of a call with the request to the model before it, in such calls of `plain`, which is played in turn with
            it; the median of some rounds.
        kilobytes: that one call leaves on the disk.
        lines: of the program and what it imports of other programs here.
        cheaper: the time without the part that the column can leave out; `None` if there is none.
    """

    time: float
    kilobytes: float
    lines: int
    cheaper: float | None = None


def play(row: Row, lives: Lives) -> Count:
    """The count of all trials of a cell."""
    return sum((_play(row, blow(), lives) for blow in row.blows), Count())


def play_gold(trials: Iterable[Trial], lives: Lives, *, in_process: bool) -> Count:
    """The count of all trials of a cell whose row is a set."""
    return sum((_play_gold(trial, lives, in_process=in_process) for trial in trials), Count())


def measure(lives: Lives, plain: Lives, program: str) -> Cost:
    """The cost of a column beside that of plain calls.

    Raises:
        RuntimeError: a program does not pay each order once even without a fault.
    """
    ratios, sizes = list[float](), list[float]()
    for _ in range(_ROUNDS):
        base, _ = _time_call(plain, "plain")
        seconds, size = _time_call(lives, program)
        ratios.append(seconds / base)
        sizes.append(size)
    return Cost(statistics.median(ratios), statistics.median(sizes) / 1_000, count_program(program))


def _time_call(lives: Lives, program: str) -> tuple[float, float]:
    """The seconds and bytes of a call, in a conversation of many."""
    model = Model([[Step("pay", {"order": f"A-{number}", "amount": "10.00"})] for number in range(_CALLS)])
    with _stage(model, NoFault()) as (world, scene):
        run_to_end(world, scene, NoFault(), lives)
        if judge_payments(model, world.books) != Count(of=_CALLS, asked=_CALLS + 1):
            raise RuntimeError(f"{program} does not pay each order once: {world.books.failures}")
        size = sum(path.stat().st_size for path in world.folder.rglob("*") if path.is_file())
        return (world.books.times[-1] - world.books.times[0]) / _CALLS, size / _CALLS


def count_program(program: str) -> int:
    """The lines of code of a program and of those that it imports here."""
    return sum(count_lines(_read(each))[0] for each in _with_imports(program))


def _with_imports(program: str) -> set[str]:
    imported = [line.split()[1] for line in _read(program).splitlines() if line.startswith("from proof.contenders.")]
    return {program}.union(*(_with_imports(module.rpartition(".")[2]) for module in imported))


def _read(program: str) -> str:
    return (ROOT / "proof" / "contenders" / f"{program}.py").read_text(encoding="utf-8")


def _play(row: Row, fault: NoFault, lives: Lives) -> Count:
    with _stage(row.model(), fault, takes_keys=row.takes_keys) as (world, scene):
        asking = replace(scene, asks=row.asks, guards=row.guards, takes_keys=row.takes_keys)
        codes = run_to_end(world, asking, fault, lives)
        if not fault.has_landed(world, codes):
            return Count(void=1)
        if row.subject == "parcels":
            return judge_parcels(world.model, world.books, world.folder / "files")
        return judge_payments(world.model, world.books)


def _play_gold(trial: Trial, lives: Lives, *, in_process: bool) -> Count:
    environment = None if in_process else load_environment(trial.entry.name)
    with _stage(trial.model(), trial.fault) as (world, scene):
        world.environment = environment
        codes = run_to_end(world, replace(scene, entry=trial.entry.name if in_process else ""), trial.fault, lives)
        if not trial.fault.has_landed(world, codes):
            return Count(void=1)
        if environment is None:
            return judge_entry(world.model, trial.ends, world.books.left, None, ended=bool(world.books.ended))
        made = [effect.order for effect in world.books.effects]
        return judge_entry(world.model, trial.ends, environment.dump(), made, ended=bool(world.books.ended))


@contextmanager
def _stage(model: Model, fault: NoFault, *, takes_keys: bool = False) -> Generator[tuple[World, Scene]]:
    """A world that answers while the block runs, and what a program in it is started with."""
    with TemporaryDirectory(prefix="proof-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "files").mkdir()
        address = folder / "world.sock"
        world = World(folder, model, fault, takes_keys=takes_keys)
        with world.serve(address):
            yield world, Scene(name, str(address))


def run_to_end(world: World, scene: Scene, fault: NoFault, lives: Lives) -> list[int]:
    """Starts the program again until the conversation has ended; the exit codes."""
    codes: list[int] = []
    while not codes or (codes[-1] != 0 and len(codes) < _MOST_LIVES):
        codes += sorted(lives.run(scene, fault.lives_at_once if codes else 1))
    return codes
