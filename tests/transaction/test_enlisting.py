"""A participant of the program is committed with the call, or rolled back with it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

import pytest

from handrail.errors import (
    InvalidArgumentError,
    ReadOnlyViolation,
    SecondStoreError,
    SessionUseError,
    TransactionClosedError,
)
from handrail.store import MemoryStore
from handrail.transaction import RecordCommit, UnitStore, enlist
from handrail.transaction.unit_of_work import WriteQueue
from tests.session.faulty_stores import FaultyStore
from tests.transaction.notebooks import Notebook, Receipt, call
from tests.wording import Wording


class Shop:
    """A participant of a program, which remembers how it is settled."""

    def __init__(self, settled: list[str], name: str = "", *, store: UnitStore | None = None, fails: str = "") -> None:
        self.store = store
        self._settled = settled
        self._name = name
        self._fails = fails

    def _do(self, what: str) -> None:
        self._settled.append(f"{self._name}{what}")
        if what == self._fails:
            raise ValueError(f"{what} has failed")

    def prepare(self) -> None:
        self._do("prepare")

    def write(self) -> Sequence[object]:
        self._do("write")
        return () if self.store is None else (RecordCommit(f"shop:{self._name}"),)

    def after_commit(self) -> None:
        self._do("after_commit")

    def in_doubt(self) -> None:
        self._do("in_doubt")

    def after_rollback(self) -> None:
        self._do("after_rollback")


@pytest.fixture
def store() -> FaultyStore:
    """A store that fails when it is told to."""
    return FaultyStore(MemoryStore())


@pytest.mark.parametrize("has_unit", [True, False])
def test_all_prepare_before_the_unit_and_commit_after_it(store: FaultyStore, has_unit: bool) -> None:
    """Each step of all participants comes before the next one of any; a session in memory has no unit."""
    settled: list[str] = []
    with call() as transaction:
        enlist(Shop(settled, "a ", store=store if has_unit else None))
        enlist(Shop(settled, "b "))
        store.at("commit", lambda: settled.append("the unit"))
        transaction.commit()
    steps = [
        "a prepare",
        "b prepare",
        "a write",
        "b write",
        *["the unit"] * has_unit,
        "a after_commit",
        "b after_commit",
    ]
    assert (settled, store.is_committed("shop:a ")) == (steps, has_unit)


@pytest.mark.parametrize("fails", ["prepare", "write"])
def test_one_that_refuses_rolls_the_call_and_all_others_back(store: FaultyStore, fails: str) -> None:
    """Nothing is written, what was is undone, and the exception fails the call."""
    settled: list[str] = []
    notebook = Notebook()
    with call(notebook) as transaction:
        notebook.write("a")
        enlist(Shop(settled, "a ", store=store))
        enlist(Shop(settled, "b ", fails=fails))
        with pytest.raises(ValueError, match="has failed"):
            transaction.commit()
        with pytest.raises(TransactionClosedError):
            transaction.commit()
    assert settled.count("a prepare") == 1
    assert settled[-2:] == ["b after_rollback", "a after_rollback"]
    assert "a after_commit" not in settled
    assert not store.is_committed("shop:a ")
    assert notebook.lines == ()


@pytest.mark.parametrize("fails", ["nobody", "inner", "outer"])
def test_a_nested_call_commits_with_its_parent(fails: str) -> None:
    """If it fails, its own participants alone are rolled back, and if its parent fails, they are too."""
    settled: list[str] = []
    with call() as outer:
        with suppress(ValueError), call(parent=outer) as inner:
            enlist(Shop(settled))
            if fails == "inner":
                raise ValueError
            inner.commit()
        assert settled == ["after_rollback"] * (fails == "inner")
        if fails != "outer":
            outer.commit()
    assert settled == (["prepare", "write", "after_commit"] if fails == "nobody" else ["after_rollback"])


def test_what_cannot_be_enlisted_is_refused(store: FaultyStore, wording: Wording) -> None:
    """Outside of calls, in one that reads or has ended, over a second store; and what is not a participant."""
    settled: list[str] = []
    with pytest.raises(SessionUseError) as outside:
        enlist(Shop(settled))
    with call(writes=False), pytest.raises(ReadOnlyViolation) as reading:
        enlist(Shop(settled))
    with call(), pytest.raises(InvalidArgumentError) as wrong:
        enlist(Receipt)  # type: ignore[arg-type]  # the class of one
    assert (wrong.value.function, wrong.value.argument) == ("transaction.enlist", "participant")
    with call() as transaction:
        transaction.enlist(_stored(store))
        with pytest.raises(SecondStoreError):
            enlist(Shop(settled, store=FaultyStore(MemoryStore())))
        transaction.commit()
        with pytest.raises(TransactionClosedError):
            enlist(Shop(settled))
    assert settled == []
    assert [str(outside.value), str(reading.value), str(wrong.value)] == wording


def _stored(store: FaultyStore) -> Receipt:
    receipt = Receipt()
    receipt.store = store
    return receipt


def test_a_participant_is_enlisted_once() -> None:
    """Also by a nested call: it would be prepared and committed twice, or rolled back in part."""
    settled: list[str] = []
    shop = Shop(settled)
    with call() as outer:
        enlist(shop)
        with pytest.raises(InvalidArgumentError) as raised:
            enlist(shop)
        assert raised.value.argument == "participant"
        with call(parent=outer), pytest.raises(InvalidArgumentError):
            enlist(shop)
        outer.commit()
    assert settled == ["prepare", "write", "after_commit"]


def test_a_failure_after_the_commit_is_logged(
    store: FaultyStore, caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """The call is committed, and the other participants are."""
    settled: list[str] = []
    with call() as transaction:
        enlist(Shop(settled, "a ", store=store, fails="after_commit"))
        enlist(Shop(settled, "b "))
        transaction.commit()
    assert transaction.committed
    assert settled[-2:] == ["a after_commit", "b after_commit"]
    assert caplog.messages == wording


def test_a_thread_waits_for_its_turn() -> None:
    """The next one gets it when the block ends."""
    queue, order, asked = WriteQueue(), list[str](), threading.Event()

    def write() -> None:
        asked.set()
        with queue.turn():
            order.append("second")

    other = threading.Thread(target=write)
    with queue.turn():
        other.start()
        asked.wait()
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert queue.enter("third") is None
