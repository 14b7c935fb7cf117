"""Which calls of a session have been recorded: what the store is asked for, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.errors import StoreUnavailableError
from handrail.session.call_records import (
    FEW_ENTRIES,
    MANY_ENTRIES,
    MOST_LOOKUPS,
    MOST_OF_REPLY,
    CallRecord,
    CallRecords,
)
from handrail.session.call_ref import CallRef


@dataclass(frozen=True)
class Record:
    """The record in an entry."""

    number: int
    session_id: str = "s"
    final: bool = True


@dataclass
class Stored:
    """The records in a store, which counts what it is asked for."""

    calls: list[CallRef]
    at_most: int
    asked: list[str] = field(default_factory=list[str])
    fails: bool = False

    def _answer(self, question: str) -> None:
        self.asked.append(question)
        if self.fails:
            raise StoreUnavailableError("down", store="memory:")

    def _numbered(self) -> list[tuple[CallRef, int]]:
        return [(call, number) for number, call in enumerate(self.calls, 1)][::-1]

    def newest(self, limit: int) -> list[tuple[CallRef, int]]:
        self._answer("newest")
        return self._numbered()[:limit]

    def of_reply(self, reply: str, limit: int) -> list[tuple[CallRef, int]] | None:
        self._answer(f"of {reply}")
        found = [each for each in self._numbered() if each[0].reply == reply]
        return found if len(found) < limit else None

    def number_of(self, ref: CallRef) -> int | None:
        self._answer(f"number of {ref}")
        return dict(self._numbered()[::-1]).get(ref)

    def read(self, number: int) -> CallRecord:
        self._answer(f"read {number}")
        return Record(number)


def test_the_records_of_a_small_session_are_known_after_one_question() -> None:
    """Then neither an old call nor a new one is asked for; a record is read once."""
    stored = Stored([CallRef("r", "1"), CallRef("r", "2"), CallRef("r", "1")], FEW_ENTRIES)
    records = CallRecords(stored)
    for _ in range(2):
        assert records.find(CallRef("r", "1")) == Record(3)
        assert records.find(CallRef("new", "1")) is None
        assert records.find(CallRef(None, "1")) is None
    assert stored.asked == ["newest", "read 3"]


def test_a_large_session_is_asked_once_for_each_reply() -> None:
    """However many calls it has, and also if it has none."""
    stored = Stored([CallRef(f"r{number}", "1") for number in range(50)], MANY_ENTRIES + 1)
    records = CallRecords(stored)
    for number in range(60):
        assert records.find(CallRef(f"r{number}", "2")) is None
        assert records.find(CallRef(f"r{number}", "1")) == (Record(number + 1) if number < 50 else None)
    assert [question for question in stored.asked if not question.startswith("read")] == [
        f"of r{number}" for number in range(60)
    ]


def test_a_program_that_goes_on_with_a_session_comes_to_know_all_records() -> None:
    """From then on a call costs no query."""
    stored = Stored([CallRef(f"r{number}", "1") for number in range(50)], MANY_ENTRIES)
    records = CallRecords(stored)
    for number in range(100):
        assert records.find(CallRef(f"new{number}", "1")) is None
    assert len(stored.asked) == MOST_LOOKUPS + 1
    assert stored.asked[-1] == "newest"
    assert records.find(CallRef("r0", "1")) == Record(1)


@pytest.mark.parametrize("reply", [None, "r"])
def test_calls_without_a_reply_of_few_calls_are_asked_for_one_by_one(reply: str | None) -> None:
    """A program may state no reply, or the same one for all calls; each call is asked for once."""
    calls = [CallRef(reply, str(number)) for number in range(MOST_OF_REPLY)]
    stored = Stored(calls, MANY_ENTRIES + 1)
    records = CallRecords(stored)
    for _ in range(2):
        assert records.find(calls[0]) == Record(1)
        assert records.find(CallRef(reply, "new")) is None
    names = [str(calls[0]), str(CallRef(reply, "new"))]
    expected = [f"number of {names[0]}", "read 1", f"number of {names[1]}"]
    assert stored.asked == (expected if reply is None else ["of r", *expected])


def test_what_was_recorded_since_the_opening_is_newer_than_what_is_stored() -> None:
    """Whenever the store is asked."""
    call = CallRef("r", "1")
    records = CallRecords(Stored([call, CallRef("r", "2")], MANY_ENTRIES + 1))
    records.add(call, Record(7))
    assert records.find(CallRef("r", "2")) == Record(2)
    assert records.find(call) == Record(7)
    assert CallRecords().find(call) is None


@pytest.mark.parametrize("at_most", [FEW_ENTRIES, MANY_ENTRIES + 1])
def test_a_store_that_fails_is_asked_again_for_a_record(at_most: int) -> None:
    """No call is taken for a new one because the store could not be read."""
    stored = Stored([CallRef("r", "1"), CallRef(None, "2")], at_most)
    records = CallRecords(stored)
    for call, number in ((CallRef("r", "1"), 1), (CallRef(None, "2"), 2)):
        stored.fails = True
        with pytest.raises(StoreUnavailableError):
            records.find(call)
        stored.fails = False
        assert records.find(call) == Record(number)


CALLS = st.builds(CallRef, st.sampled_from([None, "a", "b", "c"]), st.sampled_from("123"))


@given(
    stored=st.lists(CALLS, max_size=12),
    at_most=st.sampled_from([FEW_ENTRIES, MANY_ENTRIES, MANY_ENTRIES + 1]),
    asked=st.lists(st.tuples(st.sampled_from(["find", "add", "fail"]), CALLS), max_size=40),
)
def test_the_newest_record_is_found_whatever_is_asked_before(
    stored: list[CallRef], at_most: int, asked: list[tuple[str, CallRef]]
) -> None:
    """As in a dictionary of all records."""
    model: dict[CallRef, CallRecord] = {call: Record(number) for number, call in enumerate(stored, 1)}
    store = Stored(stored, at_most)
    records = CallRecords(store)
    for place, (act, call) in enumerate(asked):
        if act == "add":
            model[call] = Record(100 + place)
            records.add(call, model[call])
        store.fails = act == "fail"
        try:
            assert records.find(call) == model.get(call)
        except StoreUnavailableError:
            assert act == "fail"
