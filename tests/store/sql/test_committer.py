"""Units that wait at the same time are written together, each is answered once, and one that fails fails alone."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from handrail import threads
from handrail.errors import StoreUnavailableError
from handrail.store.protocol import EffectInsert, RefusedWrite
from handrail.store.sql.units import Committer, PendingUnit, UnitAnswer
from handrail.testing import FakeClock
from handrail.transaction import UnitOfWork
from tests.store.kit import running_row
from tests.wording import Wording

PATIENCE = 20.0
"""Seconds after which a thread that waits has been forgotten."""

REFUSED = RefusedWrite(EffectInsert(running_row(FakeClock())))


def unit(name: object) -> UnitOfWork:
    """A unit that is known by its name."""
    return UnitOfWork((name,))


class Book:
    """Where units are written: what each group held, and what has been committed.

    Attributes:
        groups: the names of the units of each group, in the order in which they were written.
        committed: how often each unit has been committed.
        gate: closed, a group stays in the moment before its commit.
        entered: released each time that a group has come there.
        on_commit: called with the units of a group in that moment.
    """

    def __init__(self) -> None:
        self.groups: list[list[object]] = []
        self.committed: Counter[object] = Counter()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.on_commit: Callable[[Sequence[PendingUnit]], None] = lambda _: None
        self.answer: Callable[[object], UnitAnswer] = lambda _: None

    def write(self, pending: Sequence[PendingUnit]) -> Sequence[UnitAnswer]:
        names = [one.unit.writes[0] for one in pending]
        self.groups.append(names)
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        self.on_commit(pending)
        answers = [self.answer(name) for name in names]
        self.committed.update(name for name, answer in zip(names, answers, strict=True) if answer is None)
        return answers

    def committer(self, *, lanes: int = 1, patience: float = PATIENCE) -> Committer:
        """What writes here."""
        return Committer(self.write, lanes=lanes, patience=timedelta(seconds=patience), url="fake:")


def waiting(book: Book, committed: Committer, names: Sequence[object], threads: ThreadPoolExecutor) -> list[Any]:
    """Units that wait, one after the other, behind one that is being written; the gate is closed."""
    book.gate.clear()
    first = threads.submit(committed.apply, unit("first"))
    assert book.entered.acquire(timeout=PATIENCE)
    futures: list[Any] = []
    for name in names:
        futures.append(threads.submit(committed.apply, unit(name)))
        while len(vars(committed)["_queue"]) < len(futures):  # there is no other sign that a thread waits
            threading.Event().wait(0.001)
    return [first, *futures]


def test_no_unit_is_answered_before_its_commit() -> None:
    """Whether a thread waits for it or a completion does."""
    book = Book()
    committed = book.committer()
    book.gate.clear()
    submitted = committed.submit(unit("a"))
    assert book.entered.acquire(timeout=PATIENCE)
    other = committed.submit(unit("b"))
    assert not submitted.done()
    assert not other.done()
    counts: list[int] = []
    other.add_done_callback(lambda _: counts.append(book.committed["b"]))
    book.gate.set()
    assert (submitted.result(), other.result()) == (None, None)
    assert counts == [1]


def test_interrupted_leader_loses_the_unit_of_no_other_thread() -> None:
    """They are queued again, marked as ones that may have been written; the interrupt is raised to the leader alone."""
    book, marks = Book(), dict[object, bool]()

    def interrupt(pending: Sequence[PendingUnit]) -> None:
        marks.update((one.unit.writes[0], one.may_be_written) for one in pending)
        if len(book.groups) == 2:
            raise KeyboardInterrupt

    book.on_commit = interrupt
    with ThreadPoolExecutor(16) as threads:
        first, leader, b, c = waiting(book, book.committer(), ["a", "b", "c"], threads)
        book.gate.set()
        assert first.result(PATIENCE) is None
        assert isinstance(leader.exception(PATIENCE), KeyboardInterrupt)
        assert (b.result(PATIENCE), c.result(PATIENCE)) == (None, None)
    assert book.groups == [["first"], ["a", "b", "c"], ["b", "c"]]
    assert marks == {"first": False, "a": False, "b": True, "c": True}


def test_thread_whose_patience_ends_withdraws_its_unit(wording: Wording) -> None:
    """Nothing of it is written, the others are not held up, and nobody tries it again at once."""
    book = Book()
    committed = book.committer(patience=0.01)
    book.gate.clear()
    with ThreadPoolExecutor(16) as threads:
        first = threads.submit(committed.apply, unit("first"))
        assert book.entered.acquire(timeout=PATIENCE)
        with pytest.raises(StoreUnavailableError) as raised:
            committed.apply(unit("late"))
        book.gate.set()
        assert first.result(PATIENCE) is None
    assert str(raised.value) == wording
    assert raised.value.waited
    assert committed.apply(unit("next")) is None
    assert book.committed == Counter({"first": 1, "next": 1})


class Storm:
    """Units from threads and for completions, of which some are refused, some raise, and some interrupt their leader.

    Attributes:
        fates: what becomes of each unit.
        outcomes: what each was answered.
        answered: how often each was.
    """

    UNITS = 400

    def __init__(self, seed: str, lanes: int) -> None:
        self._dice = random.Random(seed)  # noqa: S311 - a seed, so that a failure can be repeated
        self._lock = threading.Lock()
        self.fates = [self._dice.choice(["written"] * 6 + ["refused", "raises"]) for _ in range(self.UNITS)]
        self.outcomes: dict[int, object] = {}
        self.answered: Counter[int] = Counter()
        self.book = Book()
        self.book.answer, self.book.on_commit = self._answer, self._commit
        self._committer = self.book.committer(lanes=lanes)
        self._done = threading.Semaphore(0)

    def pass_over(self) -> None:
        """Make all calls, and wait for their answers."""
        with ThreadPoolExecutor(16) as threads:
            for number in range(self.UNITS):
                if number % 3:
                    threads.submit(self._call, number)
                else:
                    self._committer.submit(unit(number)).add_done_callback(partial(self._completed, number))
        for _ in self.fates:
            assert self._done.acquire(timeout=PATIENCE)

    def _answer(self, name: Any) -> UnitAnswer:
        return {"written": None, "refused": REFUSED, "raises": ValueError(name)}[self.fates[name]]

    def _commit(self, _: Sequence[PendingUnit]) -> None:
        with self._lock:
            chance = self._dice.random()
        if chance < 0.05:
            raise StoreUnavailableError("down", store="fake:")
        if chance < 0.1 and threading.current_thread().name != threads.NAME:
            raise KeyboardInterrupt

    def _call(self, number: int) -> None:
        try:
            outcome: object = self._committer.apply(unit(number))
        except BaseException as error:  # noqa: BLE001 - compared by the test
            outcome = error
        self._note(number, outcome)

    def _completed(self, number: int, completion: Future[Any]) -> None:
        try:
            outcome = completion.result()
        except Exception as error:  # noqa: BLE001 - compared by the test
            outcome = error
        self._note(number, outcome)

    def _note(self, number: int, outcome: object) -> None:
        with self._lock:
            self.answered[number] += 1
            self.outcomes[number] = outcome
        self._done.release()


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_every_unit_is_answered_once_whatever_happens_around_it(lanes: int, seed: int) -> None:
    """With its own answer, or with what kept its group from being written: then nothing of it is written."""
    storm = Storm(f"{lanes} {seed}", lanes)
    storm.pass_over()
    assert storm.answered == Counter(range(Storm.UNITS))
    for number, outcome in storm.outcomes.items():
        if isinstance(outcome, StoreUnavailableError | KeyboardInterrupt):
            assert not storm.book.committed[number]
        else:
            kinds = {"written": type(None), "refused": RefusedWrite, "raises": ValueError}
            assert type(outcome) is kinds[storm.fates[number]]
            assert storm.book.committed[number] == (storm.fates[number] == "written")
