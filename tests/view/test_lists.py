"""The lists of the pages: what is on a page, in which states, and where the next one begins."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.agents.approval.decisions import ApprovalRecord, Decision, GatedCall
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.session.calls import CallRef
from handrail.session.open_calls import PostponedCall
from handrail.session.persistence.protocol import SessionRow
from handrail.session.persistence.stored_types import stored_type
from handrail.store import MemoryStore, Store
from handrail.store.protocol import ClaimOwner
from handrail.testing import FakeClock
from handrail.view import lists
from handrail.view.lists import (
    InvalidListError,
    ListPage,
    SessionLine,
    read_effect_page,
    read_question_page,
    read_session_page,
)
from tests.cli.approvals.loops import Loop
from tests.cli.desk import effect
from tests.kit import Note, call, echo, executor, hide_agents, tool
from tests.store.kit import append, entry, insert, session_row

SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> FakeClock:
    """The time of the store."""
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> Store:
    """An empty store."""
    return MemoryStore(clock=clock)


def create(store: Store, clock: FakeClock, count: int) -> None:
    """Sessions of one second each."""
    for number in range(count):
        store.create(session_row(clock, f"s{number:03}"))
        clock.advance(SECOND)


def names(page: ListPage[SessionLine]) -> list[str]:
    """The sessions of a page."""
    return [line.row.session_id for line in page.rows]


def fail(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Fail."""
    raise RuntimeError("the bank is closed")


# ------------------------------------------------------------------------------------------------------------- sessions


def test_sessions_are_paged_by_their_places(store: Store, clock: FakeClock) -> None:
    """Each is on one page, also if others come and go meanwhile."""
    create(store, clock, 120)
    first = read_session_page(store)
    assert names(first) == [f"s{number:03}" for number in range(119, 69, -1)]
    store.create(session_row(clock, "new"))
    store.delete_session(store.acquire("s070", wait=timedelta(0)))
    second = read_session_page(store, after=first.after)
    third = read_session_page(store, after=second.after)
    assert names(second) + names(third) == [f"s{number:03}" for number in range(69, -1, -1)]
    assert third.after == ""


def test_full_last_page_leads_nowhere(store: Store, clock: FakeClock) -> None:
    """It is known whether there are more."""
    create(store, clock, lists.ROWS_OF_PAGE)
    assert read_session_page(store).after == ""


def test_session_is_in_the_states_that_its_calls_and_its_holder_make(store: Store, clock: FakeClock) -> None:
    """What the filters select is what the rows say."""
    create(store, clock, 1)
    with Session.open(store, "bad", tags={"agent": "clerk"}) as session:
        executor(tool("pay", fail), session=session).execute(call("pay"), reply="r1")
    clock.advance(SECOND)
    owner = ClaimOwner("s000", "r1", "c1", "")
    insert(store, effect("call:1", "unknown", clock.now(), partition="s000", owner=owner))
    with Session.open(store, "asks") as session:
        session[PostponedCall].append(PostponedCall("asks", "r1", "c1", "pay", clock.now()))
    clock.advance(SECOND)
    with Session.open(store, "busy"):
        lines = {line.row.session_id: line for line in read_session_page(store).rows}
        assert {name: line.states for name, line in lines.items()} == {
            "busy": ("running",),
            "asks": ("waiting",),
            "bad": ("failed",),
            "s000": ("unknown",),
        }
        assert lines["bad"].agent == "clerk"
        for name, line in lines.items():
            assert names(read_session_page(store, state=line.states[0])) == [name]


def test_effect_whose_owner_has_died_may_have_happened(store: Store, clock: FakeClock) -> None:
    """Nothing has claimed it again since, so its row is still that of a running one."""
    create(store, clock, 1)
    row = effect("call:1", "running", clock.now(), partition="s000", lease_until=clock.now() - SECOND)
    insert(store, row._replace(owner=ClaimOwner("s000", "r1", "c1", "")))
    assert read_session_page(store).rows[0].states == ("unknown",)
    assert names(read_session_page(store, state="unknown")) == ["s000"]


def test_refused_call_has_not_failed(store: Store) -> None:
    """Its handler was not started, so nothing was rolled back."""
    with Session.open(store, "s") as session:
        executor(tool("pay"), session=session).execute(ToolCall("c1", "pay", {"wrong": 1}), reply="r1")
    assert read_session_page(store).rows[0].states == ()


def test_failure_counts_among_the_last_calls(store: Store) -> None:
    """A session that has recovered long ago is like any other."""
    with Session.open(store, "s") as session:
        desk = executor(tool("pay", fail), tool("echo", echo), session=session)
        desk.execute(call("pay", id="c0"), reply="r0")
        for number in range(1, 50):
            desk.execute(call("echo", id=f"c{number}"), reply=f"r{number}")
        assert read_session_page(store, state="failed").rows
        desk.execute(call("echo", id="c50"), reply="r50")
    assert not read_session_page(store, state="failed").rows


def test_filter_with_few_matches_reads_a_bounded_number(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page says so, and where it goes on."""
    monkeypatch.setattr(lists, "MOST_READ", 3)
    with Session.open(store, "asks") as session:
        session[PostponedCall].append(PostponedCall("asks", "r1", "c1", "pay", clock.now()))
    clock.advance(SECOND)
    create(store, clock, 5)
    first = read_session_page(store, state="waiting")
    assert (names(first), first.reads) == ([], 3)
    second = read_session_page(store, state="waiting", after=first.after)
    assert (names(second), second.after) == (["asks"], "")


def test_session_is_searched_by_id_tag_and_agent(store: Store, clock: FakeClock) -> None:
    """Upper and lower case are the same; the one of exactly that id comes first, however old it is."""
    store.create(SessionRow("night", {"desk": "Zürich"}, None, clock.now()))
    clock.advance(SECOND)
    create(store, clock, 60)
    store.create(SessionRow("NIGHT-2", {"agent": "clerk"}, None, clock.now()))
    assert names(read_session_page(store, text="night")) == ["night", "NIGHT-2"]
    assert names(read_session_page(store, text="zÜR")) == ["night"]
    assert names(read_session_page(store, text="clerk")) == ["NIGHT-2"]


def test_session_that_cannot_be_read_does_not_hide_the_others(store: Store, clock: FakeClock) -> None:
    """Its row says so, and its questions are a fault on their page."""
    create(store, clock, 1)
    lock = store.acquire("s000", wait=timedelta(0))
    damaged = entry(1, "", stored_type(PostponedCall).name, b'[{"session_id": 7}]', reply="")
    append(store, lock, 0, [damaged], None)
    store.create(session_row(clock, "s001"))
    assert {line.row.session_id: line.states for line in read_session_page(store).rows} == {
        "s000": ("running", "unreadable"),
        "s001": (),
    }
    (fault,) = read_question_page(store).faults
    assert "s000" in fault


def test_record_of_a_call_that_is_damaged_makes_the_session_unreadable(store: Store, clock: FakeClock) -> None:
    """Something other than Handrail has written it."""
    create(store, clock, 1)
    lock = store.acquire("s000", wait=timedelta(0))
    append(store, lock, 0, [entry(1, "c1", stored_type(ToolInvoked).name, b"[false")], None)
    store.release(lock)
    assert read_session_page(store).rows[0].states == ("unreadable",)


def test_fork_is_told_from_a_session_that_was_made_for_another(tmp_path: Path) -> None:
    """Both rows name a parent."""
    with stores.open(f"sqlite:///{tmp_path}/desk.db") as store, Session.open(store, "s") as session:
        with session.fork(session_id="fork"), session.child(session_id="s/help"):
            pass
        rows = {line.row.session_id: line.row for line in read_session_page(store).rows}
        assert [(rows[name].origin, rows[name].parent) for name in ("fork", "s/help")] == [("s", None), (None, "s")]


@pytest.mark.parametrize("after", ["x", "0001-01-01T00:00:00+23:00 s", "open x y"])
def test_place_that_is_none_is_refused(store: Store, after: str) -> None:
    """An address may be written by hand."""
    with pytest.raises(InvalidListError):
        read_session_page(store, after=after)
    with pytest.raises(InvalidListError):
        read_effect_page(store, after=after)


# ------------------------------------------------------------------------------------------------------------ questions


def test_open_questions_are_listed_oldest_first(tmp_path: Path) -> None:
    """An answered one is none."""
    url = f"sqlite:///{tmp_path}/desk.db"
    for name in ("first", "second"):
        Loop(url, session_id=name).waits(agent=name)
    with stores.open(url) as store:
        lines = read_question_page(store).rows
        assert [(line.question.session_id, line.agents) for line in lines] == [
            ("first", ("first",)),
            ("second", ("second",)),
        ]
        assert [line.question.session_id for line in read_question_page(store, text="SECOND").rows] == ["second"]
        assert [line.question.session_id for line in read_question_page(store, session="first").rows] == ["first"]
        assert not read_question_page(store, session="nobody").rows


def ask(store: Store, clock: FakeClock, session_id: str) -> None:
    """Store the question of an agent about a call of a session in the session of the outermost run."""
    call = GatedCall(
        session_id=session_id,
        reply="r2",
        call_id="c2",
        tool="pay",
        path=("boss", "clerk"),
        effect="external",
        arguments={"order": "A-1"},
        digest="d" * 64,
    )
    item = ApprovalRecord(call=call, decision=Decision("later", call.digest, "it pays"), at=clock.now())
    with Session.open(store, "run") as session:
        session[ApprovalRecord].append(item)


def test_question_that_an_outermost_run_stores_is_listed_once(store: Store, clock: FakeClock) -> None:
    """Both sessions wait: that of the run, and that of the call."""
    store.create(session_row(clock, "run"))
    store.create(session_row(clock, "run/r1/c1", parent="run"))
    ask(store, clock, "run/r1/c1")
    assert [line.question.call for line in read_question_page(store).rows] == [CallRef("r2", "c2")]
    assert sorted(names(read_session_page(store, state="waiting"))) == ["run", "run/r1/c1"]


def test_questions_of_agents_need_agents(store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are not installed, the page says so, and shows the rest."""
    store.create(session_row(clock, "run"))
    ask(store, clock, "run")
    with Session.open(store, "asks") as session:
        session[PostponedCall].append(PostponedCall("asks", "r1", "c1", "pay", clock.now()))
    hide_agents(monkeypatch)
    page = read_question_page(store)
    assert [line.question.session_id for line in page.rows] == ["asks"]
    assert "handrail[agents]" in page.faults[0]
    assert names(read_session_page(store, state="unreadable")) == ["run"]


# -------------------------------------------------------------------------------------------------------------- effects


def fill_ledger(store: Store, clock: FakeClock) -> None:
    """An effect in each state, the older the later in this order."""
    now = clock.now()
    rows = [
        effect("done", "done", now),
        effect("running", "running", now, owner=ClaimOwner("s", "r", "c", "")),
        effect("lapsed", "running", now, lease_until=now - SECOND),
        effect("unknown", "unknown", now, tool="mail", note="the bank has not answered"),
        effect("failed", "failed", now),
        effect("expired", "done", now, expires_at=now - SECOND),
    ]
    for age, row in enumerate(rows):
        insert(store, row._replace(effect_id=f"{age:032x}", created_at=now - age * SECOND))


def test_effects_that_need_a_person_come_first(store: Store, clock: FakeClock) -> None:
    """Then what runs, then the others by age."""
    fill_ledger(store, clock)
    assert [view.row.key for view in read_effect_page(store).rows] == [
        "lapsed",
        "unknown",
        "running",
        "done",
        "failed",
        "expired",
    ]


@pytest.mark.parametrize("state", lists.EFFECT_STATES)
def test_effects_are_filtered_by_state(store: Store, clock: FakeClock, state: str) -> None:
    """One whose lease has expired may have happened, as an unknown one."""
    fill_ledger(store, clock)
    keys = ["lapsed", "unknown"] if state == "unknown" else [state]
    assert [view.row.key for view in read_effect_page(store, state=state).rows] == keys


def test_effects_are_filtered_by_tool_and_text(store: Store, clock: FakeClock) -> None:
    """The tool is named exactly, the text may stand anywhere."""
    fill_ledger(store, clock)
    assert [view.row.key for view in read_effect_page(store, tool="mail").rows] == ["unknown"]
    assert [view.row.key for view in read_effect_page(store, tool="mai").rows] == []
    assert [view.row.key for view in read_effect_page(store, text="the BANK").rows] == ["unknown"]


def test_effects_are_paged_by_their_places(store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what is open to what is settled; each is on one page."""
    monkeypatch.setattr(lists, "ROWS_OF_PAGE", 2)
    fill_ledger(store, clock)
    keys, after = list[str](), ""
    while True:
        page = read_effect_page(store, after=after)
        keys += [view.row.key for view in page.rows]
        if not (after := page.after):
            break
    assert keys == ["lapsed", "running", "unknown", "done", "failed", "expired"]


def test_states_of_lists_are_checked(store: Store) -> None:
    """The message names them."""
    with pytest.raises(InvalidListError, match="running, waiting"):
        read_session_page(store, state="held")
    with pytest.raises(InvalidListError, match="running, lapsed"):
        read_effect_page(store, state="open")


def test_row_that_cannot_be_read_takes_no_other_from_the_lists(tmp_path: Path, clock: FakeClock) -> None:
    """The page says what is wrong with it."""
    path = tmp_path / "desk.db"
    with stores.open(f"sqlite:///{path}", clock=clock) as store:
        create(store, clock, 3)
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("UPDATE handrail_sessions SET tags = x'3f' WHERE session_id = 's001'")
        page, questions = read_session_page(store), read_question_page(store)
    assert names(page) == ["s002", "s000"]
    assert [("s001" in fault) for fault in (*page.faults, *questions.faults)] == [True, True]
