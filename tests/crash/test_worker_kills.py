"""Workers that are killed, stopped and cut off while they carry out runs: `make chaos` in short, and its judge."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from chaos.books import Books
from chaos.workers import agents, kills
from chaos.workers.agents import AGENTS, POISON
from chaos.workers.kills import Database, Plan
from chaos.workers.verdict import Count, judge
from handrail import store as stores
from handrail.operations.runs import change_run
from handrail.store import Store
from handrail.worker import Finished, resume, submit
from handrail.worker.resuming import MOST_ATTEMPTS
from tests.extent import SHORT

_IDS = [f"run-{number}" for number in range(2 * len(AGENTS))]


# Half of it is the start of programs. It ends itself: its workers would live on.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["postgres", "sqlite"])
@pytest.mark.short(1)
def test_each_run_ends_as_if_no_worker_had_been_killed_stopped_or_cut_off(database: Database) -> None:
    """Nothing is paid twice or lost, and the conversations are those of runs that nothing has disturbed."""
    plan = Plan.for_kills(6, database, 2)
    if SHORT:
        plan = Plan(runs=6, workers=2, kills=2, stops=1, restarts=0, is_whole=False, interval=0.5, pause=0.2)
    count = kills.play(database, plan, random.Random(f"0 {database}"))  # noqa: S311
    assert count.faults == []
    assert count.finished == plan.runs
    assert (count.happened["kill"], count.happened["stop"]) == (plan.kills, plan.stops)
    assert (count.twice, count.lost) == (0, 0)
    assert count.calls.total() == plan.runs * agents.CALLS
    # Whatever has ended them: one that the storm has killed is an attempt, too.
    assert count.poisoned == MOST_ATTEMPTS * plan.is_whole
    assert (count.happened["died of a note"] > 0) == plan.is_whole


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Store]:
    """Runs that nothing has disturbed, and one that has failed as it must."""
    for name, text in agents.PROJECT.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv(agents.FOLDER, str(tmp_path))
    monkeypatch.setenv(agents.PAUSE, "0")
    agents.file_agent.cache_clear()
    with stores.open(f"sqlite:///{tmp_path / 'desk.db'}") as opened:
        for number, session_id in enumerate(_IDS):
            agent = AGENTS[number % len(AGENTS)]
            submit(opened, session_id, agent=agent, input="pay")
            assert isinstance(asyncio.run(resume(opened, session_id, agent)), Finished)
        submit(opened, POISON, agent=AGENTS[0], input="pay")
        change_run(opened, POISON, lambda run: run.change("failed", text="it came no further"))
        yield opened


def _judge(store: Store, folder: Path) -> Count:
    count = Count()
    judge(store, Books(folder), count, ids=_IDS, deaths=[])
    return count


def test_the_judge_finds_no_fault_in_runs_that_nothing_has_disturbed(store: Store, tmp_path: Path) -> None:
    """Each call is done, once, and no request was made again."""
    count = _judge(store, tmp_path)
    assert count.faults == []
    assert (count.finished, count.repeats, count.attempts) == (len(_IDS), 0, len(_IDS))
    assert dict(count.calls) == {"done": len(_IDS) * agents.CALLS}


def _pay_again(books: Books) -> None:
    books.pay("run-3.4", None)


def _ask_again(books: Books) -> None:
    books.write("asked", session="run-4", place=1, answers={})


def _tell_otherwise(books: Books) -> None:
    books.write("begun", session="run-5", pid=0, at=0.0)
    books.write("asked", session="run-5", place=1, answers={"call-0": "its outcome is unknown"})


@pytest.mark.parametrize(
    "disturb, fault",
    [
        (_pay_again, "run-3: call-4: receipt of ID.4; it happened 2 times"),
        (_ask_again, "run-4: 1 requests were made again in 1 attempts"),
        (_tell_otherwise, "run-5: call-0: receipt of ID.0; a model was told"),
    ],
)
def test_the_judge_finds(disturb: Callable[[Books], None], fault: str, store: Store, tmp_path: Path) -> None:
    """A payment that is made twice, a request that is made again without a death, and an answer that is lost."""
    disturb(Books(tmp_path))
    (line,) = _judge(store, tmp_path).faults
    assert line.startswith(fault)


def test_the_judge_misses_a_payment_that_was_answered(store: Store, tmp_path: Path) -> None:
    """An answer says that it is done, and the bank has no record."""
    book = tmp_path / "paid.jsonl"
    book.write_text("".join(line for line in book.read_text().splitlines(keepends=True) if "run-3.4" not in line))
    assert _judge(store, tmp_path).faults == ["run-3: call-4: receipt of ID.4; it happened 0 times"]


def test_the_judge_wants_each_run_to_end(store: Store, tmp_path: Path) -> None:
    """A run that is open; and one that kills its process, which must fail."""
    submit(store, "run-6", agent=AGENTS[0], input="pay")
    change_run(store, POISON, lambda run: run.change("open"))
    count = Count()
    judge(store, Books(tmp_path), count, ids=[*_IDS, "run-6"], deaths=[])
    open_run, poisoned = count.faults
    assert open_run.startswith("run-6: its run is ('open'")
    assert poisoned.startswith(f"{POISON}: open")
