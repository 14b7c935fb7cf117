"""Large texts that a session holds more than once: what is written for them, and what is read again."""

from __future__ import annotations

import ast
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CommitInDoubtError, StoreCorruptError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.runtime import ToolCall, ToolInvoked
from handrail.session import Session, SlicePolicy
from handrail.session.persistence.protocol import SessionEntry
from handrail.session.persistence.shared_texts import (
    MOST_HEADS,
    MOST_LARGE,
    SMALLEST_TEXT,
    SharedTexts,
    UnitTexts,
    read_entries,
)
from handrail.store import SqliteStore
from tests.architecture.sources import python_sources
from tests.session.faulty_stores import FaultyStore
from tests.session.samples import Note, Task
from tests.wording import Wording

TEXT = "a line of 'text' with \"quotes\", a \\ and an é\n" * 40
OTHER = "x" * 5000


@dataclass(frozen=True)
class Shown:
    """What a model was shown."""

    slice_policy: ClassVar[SlicePolicy] = SlicePolicy.LOG

    text: str


class Entries:
    """The data of entries, as a store has them.

    Args:
        data: of each entry, from the first on; `None` where one is missing.
    """

    url = "memory:"

    def __init__(self, data: Sequence[bytes | None]) -> None:
        self._entries = [
            SessionEntry(number, "", "", "log", "t", 1, 0, 0, 1, items)
            for number, items in enumerate(data, 1)
            if items is not None
        ]

    def entries(
        self, session_id: str, *, after: int = 0, until: int | None = None, type_name: str | None = None
    ) -> Iterator[SessionEntry]:
        """Those of a range."""
        assert (session_id, type_name) == ("s", None)
        return (entry for entry in self._entries if after < entry.number and (until is None or entry.number <= until))

    def newest_changes(
        self, session_id: str, type_name: str, *, after: int, until: int, limit: int
    ) -> list[SessionEntry]:
        """The newest of a range."""
        assert type_name == "t"
        return list(self.entries(session_id, after=after, until=until))[-limit:]

    def entries_at(self, session_id: str, numbers: Sequence[int]) -> Iterator[SessionEntry]:
        """Those of some numbers."""
        assert session_id == "s"
        return (entry for entry in self._entries if entry.number in numbers)


def stored(units: Sequence[Sequence[bytes]]) -> list[bytes]:
    """What is stored of the data of entries, unit by unit."""
    known = SharedTexts()
    written: list[bytes] = []
    for unit in units:
        texts = UnitTexts(known)
        for data in unit:
            written.append(texts.share(len(written) + 1, data))
        known.add(texts)
    return written


def read(data: Sequence[bytes | None], *, after: int = 0) -> list[bytes]:
    """The data of stored entries, whole."""
    return [entry.items for entry in read_entries(Entries(data), "s", after=after)]


_PARTS = ["a", '"', "\\", 'x\\"', "\n", "\\n", "line\n", "\ud800", "é\n", '{"a": "b\\n"}', "\x01\x02\x03"]


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Texts, most of them large, of few kinds, so that they come again."""
    before = draw(st.sampled_from(["", "", "head\n", "one\ntwo\n", "\\", '"']))
    after = draw(st.sampled_from(["", "", "tail", "\\", '"']))
    text = draw(st.sampled_from(_PARTS)) * draw(st.sampled_from([200, 600, 1100, 2500, 9000]))
    shown = text if draw(st.booleans()) else f"{text[: len(text) // 2]}\n[...]\n{text[-2000:]}"
    return before + shown + after


def values() -> st.SearchStrategy[Any]:
    """Decoded JSON with such texts, also as keys."""
    scalars: list[st.SearchStrategy[Any]] = [texts(), st.text(max_size=20), st.integers(), st.booleans(), st.none()]

    def within(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        keys: st.SearchStrategy[str] = st.one_of(texts(), st.text(max_size=5))
        containers: list[st.SearchStrategy[Any]] = [
            st.lists(inner, max_size=4),
            st.dictionaries(keys, inner, max_size=4),
        ]
        return st.one_of(containers)

    return st.recursive(st.one_of(scalars), within, max_leaves=8)


@given(written=st.lists(st.lists(values(), min_size=1, max_size=3), min_size=1, max_size=3), escaped=st.booleans())
def test_what_is_read_is_what_was_written(written: list[list[Any]], escaped: bool) -> None:
    """Byte for byte, whatever the texts are, where they stand, and how often they come again."""
    again = [*written, *written]
    units = [[json.dumps(each, ensure_ascii=escaped).encode(errors="surrogatepass") for each in unit] for unit in again]
    data = stored(units)
    assert read(data) == [entry for unit in units for entry in unit]
    large = SMALLEST_TEXT + 64
    for first, second in zip(data[: len(data) // 2], data[len(data) // 2 :], strict=True):
        assert len(second) <= len(first) or len(second) < large * (second.count(b"\x02") + 1)


@pytest.mark.parametrize(
    "again, more",
    [
        (TEXT, 60),
        (f"notes.md: all of it.\n{TEXT}", 90),
        (f"one\ntwo\nthree\n{TEXT}\n[exit code 0]", 90),
        (f"{TEXT}\n\n{TEXT}", 120),
        (TEXT + "y" * (SMALLEST_TEXT - 1), SMALLEST_TEXT + 60),
    ],
)
def test_a_text_that_comes_again_is_a_reference(again: str, more: int) -> None:
    """Also with some words around it, as a model is shown a result."""
    first, second = stored([[json.dumps([TEXT]).encode()], [json.dumps([{"said": again}]).encode()]])
    assert first == json.dumps([TEXT]).encode()
    assert second[:1] == b"\x01"
    assert len(second) < more
    assert json.loads(read([first, second])[1]) == [{"said": again}]


LONG = "".join(f"line {number} of 'text' with \"quotes\", a \\ and an \u00e9\n" for number in range(2000))
"""A text that is too long for a model."""

SHOWN = f"{LONG[:19_800]}\n[...]\n{LONG[-9_900:]}\n[Characters 19,801 to 80,000 are left out.]"


@pytest.mark.parametrize(
    "shown", [SHOWN, f"it failed\n{SHOWN}", LONG[:29_000], f"{LONG[:9_000]}..."], ids=["cut", "below", "start", "short"]
)
@pytest.mark.parametrize("text", [LONG, "x" * 100_000, "\u00e9\n" * 40_000], ids=["lines", "one line", "repeated"])
def test_what_a_message_shows_of_a_large_text_is_a_reference(text: str, shown: str) -> None:
    """Its beginning and its end: the middle is left out for the model."""
    shown = shown if text is LONG else f"{text[:19_800]}\n[...]\n{text[-9_900:]}\n[Characters are left out.]"
    units = [[json.dumps([text]).encode()], [json.dumps([{"said": shown}]).encode()]]
    first, second = stored(units)
    assert first == units[0][0]
    assert len(second) < 250
    assert read([first, second])[1] == units[1][0]


def test_only_the_newest_large_texts_are_remembered_by_their_sides() -> None:
    """They take more memory than a digest."""
    long = [f"{number} {LONG}" for number in range(MOST_LARGE + 1)]
    cut = [json.dumps([text[:9_000]]).encode() for text in long]
    data = stored([*([json.dumps([text]).encode()] for text in long), cut])[len(long) :]
    assert [len(each) < 250 for each in data] == [False, *[True] * MOST_LARGE]


@pytest.mark.parametrize(
    "other",
    [
        TEXT[: SMALLEST_TEXT // 2],
        TEXT + "y" * SMALLEST_TEXT,
        f"{'y' * SMALLEST_TEXT}\n{TEXT}",
        TEXT[:-1] + "y",
        f"in one line: {TEXT}",
    ],
)
def test_another_text_is_stored_as_it_is(other: str) -> None:
    """One that is smaller, one with much around the earlier one, and one that only begins like it."""
    data = json.dumps([other]).encode()
    assert stored([[json.dumps([TEXT]).encode()], [data]])[1] == data


def test_a_text_is_stored_once_within_an_entry_and_within_a_unit() -> None:
    """The record of a call has its message and its value."""
    unit = [json.dumps([{"message": TEXT, "value": TEXT, TEXT: 1}]).encode(), json.dumps([TEXT]).encode()]
    data = stored([unit])
    assert sum(map(len, data)) < len(json.dumps(TEXT)) + 250
    assert read(data) == unit
    assert read(data, after=1) == unit[1:]


def test_a_unit_that_was_not_committed_is_not_referred_to() -> None:
    """Its texts are forgotten with it."""
    known = SharedTexts()
    data = json.dumps([TEXT]).encode()
    assert UnitTexts(known).share(1, data) == data
    assert UnitTexts(known).share(1, data) == data


def test_data_that_is_not_json_is_stored_as_it_is() -> None:
    """It could be read as a reference."""
    data = b'["' + b"x" * 2000 + b'\x02"]'
    assert stored([[data], [data]]) == [data, data]


def test_old_texts_are_forgotten() -> None:
    """So that a long session takes no more memory than a short one."""
    units = [[json.dumps([f"{number:04}" * 300]).encode()] for number in range(MOST_HEADS + 1)]
    data = stored([*units, units[0], units[2]])
    assert data[-2] == units[0][0]
    assert data[-1] != units[2][0]


def test_texts_of_one_beginning_are_distinguished() -> None:
    """The newest of them are known."""
    units = [[json.dumps([OTHER + str(number)]).encode()] for number in range(20)]
    data = stored([*units, *units])
    assert data[:20] == [unit[0] for unit in units]
    assert read(data)[20:] == [unit[0] for unit in units]
    assert stored([*units, units[-1]])[-1][:1] == b"\x01"


@pytest.mark.parametrize(
    "fault",
    [
        [None, b'\x01["\x021:2:2:00000000\x03"]'],
        [b'["%s"]' % (b"y" * 2000), b'\x01["\x021:2:2000:00000000\x03"]'],
        [b"[]", b'\x01["\x022:0:2:00000000\x03"]'],
        [b"[]", b'\x01["\x023:0:2:00000000\x03"]', b"[]"],
        [b"[]", b'\x01["\x02of another version\x03"]'],
    ],
    ids=["missing", "changed", "itself", "later", "unknown"],
)
def test_a_reference_to_what_is_missing_or_damaged_is_damage(fault: list[bytes | None], wording: Wording) -> None:
    """The error names session and entries, and says what to do."""
    with pytest.raises(StoreCorruptError) as caught:
        read(fault, after=1)
    assert str(caught.value) == wording
    assert caught.value.store == "memory:"


# ---------------------------------------------------------------------------------------------------------- in sessions


def size_of(store: FaultyStore, session_id: str = "s") -> int:
    """How many bytes the entries of a session have."""
    return sum(len(entry.items) for entry in store.entries(session_id))


def test_a_session_stores_a_text_once(store: FaultyStore) -> None:
    """In any store; it is read as it was, also after the session was opened again."""
    with Session.open(store, "s") as session:
        for _ in range(5):
            session[Shown].append(Shown(OTHER))
    assert size_of(store) < len(OTHER) + 500
    with Session.open(store, "s") as session:
        assert session[Shown].all() == (Shown(OTHER),) * 5
        session[Shown].append(Shown(OTHER))  # the memory of the first opening is gone
        session[Shown].append(Shown(OTHER))
    assert len(OTHER) * 2 < size_of(store) < len(OTHER) * 2 + 600
    with Session.open(store, "s") as session:
        assert session[Shown].all() == (Shown(OTHER),) * 7


def test_a_fork_reads_the_texts_of_its_origin(store: FaultyStore) -> None:
    """The entries are copied with their numbers, and neither needs the other from then on."""
    with Session.open(store, "s") as session:
        session[Shown].append(Shown(OTHER))
        session[Shown].append(Shown(OTHER))
        with session.fork(session_id="f") as fork:
            fork[Shown].append(Shown(TEXT))
            fork[Shown].append(Shown(TEXT))
            session[Shown].append(Shown("end"))
    with Session.open(store, "f") as fork:
        assert fork[Shown].all() == (Shown(OTHER), Shown(OTHER), Shown(TEXT), Shown(TEXT))


def test_what_was_rolled_back_is_not_referred_to(store: FaultyStore) -> None:
    """A unit that the store refused is written again, whole."""
    with Session.open(store, "s") as session:
        store.lose("commit", times=1)
        session[Shown].append(Shown(OTHER))
        session[Shown].append(Shown(OTHER))
    assert [entry.items[:1] for entry in store.entries("s")] == [b"[", b"\x01"]
    with Session.open(store, "s") as session:
        assert session[Shown].all() == (Shown(OTHER), Shown(OTHER))


def test_a_session_that_was_in_doubt_refers_to_what_is_stored(store: FaultyStore) -> None:
    """It is opened again, and knows no texts then."""
    session = Session.open(store, "s")
    store.lose("committed")
    store.at("begin", lambda: None)
    store.go_down("begin")
    with pytest.raises(CommitInDoubtError):
        session[Task].append(Task("t", OTHER))
    store.come_back()
    session.close()
    with Session.open(store, "s") as again:
        again[Shown].append(Shown(OTHER))
        again[Shown].append(Shown(OTHER))
    assert [entry.items[:1] for entry in store.entries("s")] == [b"[", b"[", b"\x01"]
    with Session.open(store, "s") as again:
        assert again[Task].all() == (Task("t", OTHER),)
        assert again[Shown].all() == (Shown(OTHER), Shown(OTHER))


def test_texts_are_shared_between_the_slices_of_a_call(store: FaultyStore) -> None:
    """What a handler puts into a slice and returns is stored once, with the record of the call."""

    def keep(params: Task, *, context: ToolContext) -> ToolResult[str]:
        context.session[Task].append(params)
        return ToolResult.ok(params.text, params.text)

    tool = Tool[Task, str](name="keep", description="Keeps.", handler=keep)
    section = MarkdownSection(title="Tools", key="tools", template="Use them.", tools=[tool])
    prompt = Prompt(PromptTemplate(ns="tests", key="keep", sections=[section]))
    arguments = json.dumps({"key": "a", "text": OTHER})
    with Session.open(store, "s") as session:
        message = ToolExecutor(prompt=prompt, session=session).execute(ToolCall("c", "keep", arguments), reply="r")
        session[Shown].append(Shown(message.content))
    assert size_of(store) < len(OTHER) * 2 + 2000  # the arguments as text, and the text
    with Session.open(store, "s") as session:
        assert session[Task].all() == (Task("a", OTHER),)
        assert session[Shown].all() == (Shown(message.content),)
        (event,) = session[ToolInvoked].all()
        assert event.params == Task("a", OTHER)
        assert event.call.arguments == arguments
        assert (event.result.value, event.result.message) == (OTHER, OTHER)


def test_an_entry_whose_text_is_missing_is_damage_of_the_store(tmp_path: Path, wording: Wording) -> None:
    """The rest of the session can be read."""
    path = tmp_path / "desk.db"
    with SqliteStore(path) as store, Session.open(store, "s") as session:
        session[Shown].append(Shown(OTHER))
        session[Task].append(Task("t", OTHER))
        session[Note].append(Note("n"))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE handrail_entries SET items = '[]' WHERE number = 1")
        connection.execute("UPDATE handrail_entries SET items = CAST(items AS BLOB)")
    with SqliteStore(path) as store, Session.open(store, "s") as session:
        assert session[Note].all() == (Note("n"),)
        with pytest.raises(StoreCorruptError) as caught:
            session[Task].all()
    assert str(caught.value) == wording


def test_all_that_reads_entries_reads_them_whole() -> None:
    """Beside the stores, `read_entries` alone asks for entries: nothing else has to know of references."""
    found = [
        f"{source.path}:{node.lineno}"
        for source in python_sources("src")
        if not source.module.startswith("handrail.store.")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("entries")
    ]
    assert {place.partition(":")[0] for place in found} == {"src/handrail/session/persistence/shared_texts.py"}
