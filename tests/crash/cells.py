"""One call of one tool in one session, as it is asked before and after a crash, and what is found in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

import psycopg

from chaos.service import Client
from chaos.table import insert_for, rows_of
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.crash_points import arm
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import External, IdempotencyConfig, Prompt, PromptTemplate, Section, Tool, ToolContext, ToolResult
from handrail.prompt.idempotency import OnOrphan
from handrail.runtime import EffectLedger, Session, ToolCall, ToolMessage
from handrail.testing import crash_at
from handrail.testing.crash import CrashTrap
from handrail.transaction import RecordCommit, UnitStore, enlist
from handrail.transaction.unit_of_work import CommitRecordStore
from tests.handler_threads import HandlerThreads

Kind = Literal["external", "applied", "late", "row", "files", "prepared"]
"""What the tool changes: the world outside, the same with `apply`, which writes a row of the store's own database, the
same with a handler that ends late, the store's own database, files, and another database that prepares its commit."""

TIMEOUT = timedelta(milliseconds=20)
LEASE = timedelta(milliseconds=100)
PATIENCE = timedelta(seconds=20)
N = 1
OLD = {"changed.txt": "old", "removed.txt": "old"}
NEW = {"changed.txt": "new", "folder/made.txt": "new"}


class Cell(NamedTuple):
    """One place in the matrix; every one has a session and an order of its own.

    Attributes:
        kind: what the tool changes.
        policy: what becomes of an orphan.
        forwarded: whether the service is asked to know the key again.
        name: the id of the session, and the name of the order.
        url: the store.
        folder: where files and journals are.
        service: the address of the outside world.
        accepts_late: whether a late result settles its effect.
        other: the URL of another database.
    """

    kind: Kind
    policy: OnOrphan
    forwarded: bool
    name: str
    url: str
    folder: str
    service: str
    accepts_late: bool = False
    other: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    order: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a call leaves in its session."""

    order: str


TYPES = (Receipt,)

Handler = Callable[..., ToolResult[Receipt]]


@dataclass(frozen=True, slots=True)
class Left:
    """What is found when nobody is at work.

    Attributes:
        ledger: the status of the effect; `"absent"` if it has no row.
        applied: how many receipts the session has.
        changed: how often the effect has happened: at the service, in the table, or on disk; `None` if the files are
            neither as they were nor as they should be.
        asked: how often the service was asked what had happened.
        rows: how many rows `apply` has written.
        marked: whether the row of the effect says that it is applied.
    """

    ledger: str
    applied: int
    changed: int | None
    asked: int
    rows: int = 0
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What a call was answered."""

    success: bool
    replayed: bool
    content: str


def ask(cell: Cell, at: str | None, nth: int) -> Told:
    """Ask the call, in the session of the cell, and die at a point of it."""
    with (
        store.open(cell.url) as kept_in,
        _files(cell, kept_in) as files,
        Session.open(kept_in, cell.name, types=TYPES, wait=PATIENCE) as session,
    ):
        if at is not None:
            crash_at(at, nth=nth)
        message = _execute(cell, session, files, _tool(cell, session, EffectLedger(kept_in)))
        return Told(message.success, message.replayed, message.content)


def overrun(cell: Cell, at: str | None) -> Told:
    """Ask the call with a handler that overruns its timeout, and die at a point; at none, the handler ends late.

    The handler charges before the call is answered.
    """
    charged, release, entered = threading.Event(), threading.Event(), threading.Event()
    threads = HandlerThreads()
    trap = None if at is None else CrashTrap(at, 1)

    def reached(point: str) -> None:
        if entered.is_set():
            charged.wait()
        if point == "before-handler":
            entered.set()
        elif trap is not None:
            trap(point)

    def linger() -> None:
        charged.set()
        release.wait()

    with (
        store.open(cell.url) as kept_in,
        _files(cell, kept_in) as files,
        Session.open(kept_in, cell.name, types=TYPES, wait=PATIENCE) as session,
    ):
        charging = _external(cell, session, EffectLedger(kept_in), timeout=TIMEOUT, linger=linger)
        arm(reached)
        message = _execute(cell, session, files, charging)
        charged.wait()
        arm(None)
        release.set()
        threads.join()
        return Told(message.success, message.replayed, message.content)


def _execute(cell: Cell, session: Session, files: HostFilesystem, tool: Tool[Order, Receipt]) -> ToolMessage:
    prompt = Prompt(PromptTemplate(ns="tests", key="crash", sections=[Section(title="Desk", tools=[tool])]))
    executor = ToolExecutor(prompt=prompt.bind(resources={Filesystem: files}), session=session)
    return executor.execute(ToolCall("call-1", "charge", {"order": cell.name}), reply="reply-1")


def look(cell: Cell) -> Left:
    """Open everything, and see what there is."""
    with store.open(cell.url) as kept_in, _files(cell, kept_in):
        with Session.open(kept_in, cell.name, types=TYPES, wait=PATIENCE) as session:
            applied = len(session[Receipt].all())
            if cell.kind == "prepared":
                recover(cell.other, session)
        rows = [row for row in kept_in.rows() if row.partition == cell.name]
    assert len(rows) <= 1
    client = Client(cell.service)
    try:
        report = client.report()
    finally:
        client.close()
    is_external = cell.kind in {"external", "late", "applied"}
    changed = report.charged.get(cell.name, 0) if is_external else _changed(cell)
    return Left(
        rows[0].status if rows else "absent",
        applied,
        changed,
        sum(report.asked.get(row.key, 0) for row in rows),
        len(rows_of(cell.url, cell.name)) if cell.kind == "applied" else 0,
        cell.kind == "applied" and any(row.applied_at is not None for row in rows),
    )


def _changed(cell: Cell) -> int | None:
    if cell.kind in {"row", "prepared"}:
        return len(rows_of(cell.other or cell.url, cell.name))
    root = _root(cell)
    tree = {str(path.relative_to(root)): path.read_text("utf-8") for path in root.rglob("*") if path.is_file()}
    folders = {path.name for path in root.rglob("*") if path.is_dir()}
    if (tree, folders) == (OLD, set[str]()):
        return 0
    return 1 if (tree, folders) == (NEW, {"folder"}) else None


def _root(cell: Cell) -> Path:
    return Path(cell.folder) / cell.name


def _files(cell: Cell, kept_in: store.Store) -> HostFilesystem:
    root = _root(cell)
    if not root.exists():
        root.mkdir()
        for name, text in OLD.items():
            (root / name).write_text(text, encoding="utf-8")
    return HostFilesystem(root, journal=Path(f"{root}-journal"), store=kept_in, wait=PATIENCE)


def _tool(cell: Cell, session: Session, ledger: EffectLedger) -> Tool[Order, Receipt]:
    if cell.kind in {"external", "late", "applied"}:
        return _external(cell, session, ledger)
    handlers: dict[Kind, Handler] = {"prepared": partial(_write_elsewhere, cell), "row": _write_row}
    handler = handlers.get(cell.kind, _write_files)
    return Tool[Order, Receipt](name="charge", description="Charges an order.", handler=handler)


def _external(
    cell: Cell,
    session: Session,
    ledger: EffectLedger,
    *,
    timeout: timedelta | None = None,
    linger: Callable[[], object] = bool,
) -> Tool[Order, Receipt]:
    client = Client(cell.service)

    def charge(params: Order, *, context: ToolContext) -> ToolResult[Receipt]:
        client.charge(params.order, context.idempotency_key or "", context.fence or 0, once=cell.forwarded)
        linger()
        return ToolResult.ok(Receipt(params.order))

    def reconcile(params: Order, key: str) -> ToolResult[Receipt] | None:
        row = ledger.row(key, partition=session.session_id)
        assert row is not None
        return None if client.find(key, row.fence) is None else ToolResult.ok(Receipt(params.order), "found")

    return Tool[Order, Receipt](
        name="charge",
        description="Charges an order.",
        handler=charge,
        effect=External(
            on_orphan=cell.policy,
            reconcile=reconcile if cell.policy == "reconcile" else None,
            apply=_book if cell.kind == "applied" else None,
            accept_late_result=cell.accepts_late,
            lease=LEASE,
        ),
        idempotency=IdempotencyConfig(),
        timeout=timeout,
    )


def _book(_params: Order, _result: object, *, context: ToolContext) -> None:
    url = context.session.store.url if context.session.store is not None else ""
    context.connection.execute(insert_for(url), (context.session.session_id, N))


def _write_row(params: Order, *, context: ToolContext) -> ToolResult[Receipt]:
    _book(params, None, context=context)
    return ToolResult.ok(Receipt(params.order))


def _write_files(params: Order, *, context: ToolContext) -> ToolResult[Receipt]:
    files = context.resources.get(Filesystem)
    for path, text in NEW.items():
        files.write_text(path, text)
    files.remove("removed.txt")
    return ToolResult.ok(Receipt(params.order))


def _write_elsewhere(cell: Cell, params: Order, *, context: ToolContext) -> ToolResult[Receipt]:
    row = PreparedRow(cell.other, context.session)
    enlist(row)
    row.connection.execute(insert_for(cell.other).encode(), (context.session.session_id, N))
    return ToolResult.ok(Receipt(params.order))


class PreparedRow:
    """It is prepared before the unit of the call, and committed after it.

    Attributes:
        connection: what executes its statements.
        store: where the unit is written.
    """

    def __init__(self, url: str, session: Session) -> None:
        self.connection: psycopg.Connection = psycopg.connect(url)
        self.store: UnitStore | None = session.store
        self._records = _records(session)
        self._name = uuid4().hex
        self.connection.tpc_begin(self.connection.xid(1, session.session_id, self._name))

    def prepare(self) -> None:
        self.connection.tpc_prepare()

    def write(self) -> Sequence[object]:
        return (RecordCommit(self._name),)

    def after_commit(self) -> None:
        with closing(self.connection):
            self.connection.tpc_commit()
        self._records.delete_commit_record(self._name)

    def after_rollback(self) -> None:
        with closing(self.connection):
            self.connection.tpc_rollback()

    def in_doubt(self) -> None:
        self.connection.close()


def recover(url: str, session: Session) -> None:
    """Settle what a killed process has left prepared of a session."""
    store = _records(session)
    with closing(psycopg.connect(url)) as connection:
        for xid in connection.tpc_recover():
            if xid.gtrid == session.session_id:
                settle = connection.tpc_commit if store.is_committed(xid.bqual or "") else connection.tpc_rollback
                settle(xid)


def _records(session: Session) -> CommitRecordStore:
    store: object = session.store
    assert isinstance(store, CommitRecordStore)
    return store
