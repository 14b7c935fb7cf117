"""How long the pages of `handrail view` take that list, over a store of many sessions and effects.

A request goes through the ASGI application in this process, without a browser and a socket. The store is filled by SQL:
a session of a few calls is copied, under ids of their own.
"""

# ruff: noqa: S608 - what is put into statements here are names of our own tables

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from sqlite3 import Cursor, connect
from tempfile import TemporaryDirectory

from starlette.testclient import TestClient

from benchmarks.timing import Limit
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, ToolsSection, tool
from handrail.runtime import Session, ToolCall
from handrail.view.server import ViewServer

SESSIONS, CALLS, PORT = 100_000, 3, 8_000

LIST = f"list of {SESSIONS:,} sessions, SQLite"
LATER = f"{LIST}: a page in the middle"
WAITING = f"{LIST}: those that wait"
FAILED = f"{LIST}: those that have failed"
UNKNOWN = f"{LIST}: those with an unknown effect"
EFFECTS = f"ledger of {SESSIONS:,} effects, SQLite"
QUESTIONS = f"open questions of {SESSIONS:,} sessions, SQLite"
LIMITS = (
    Limit(LIST, 300.0, "ms"),
    Limit(LATER, 300.0, "ms"),
    *(Limit(name, None, "ms") for name in (WAITING, FAILED, UNKNOWN, EFFECTS, QUESTIONS)),
)

_TEMPLATE = "template"
_NUMBERS = f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {SESSIONS})"


@tool(effect="external")
def pay(number: str) -> str:
    """Pay an order."""
    return f"{number} is paid"


def _fill(path: Path) -> None:
    section = ToolsSection(title="Desk", tools=[pay])
    prompt = Prompt(PromptTemplate(ns="bench", key="view", sections=[section]))
    tags = {"agent": "clerk", "desk": "refunds"}
    with (
        store.open(f"sqlite:///{path}", durability="normal") as kept,
        Session.open(kept, _TEMPLATE, tags=tags) as session,
    ):
        executor, talk = ToolExecutor(prompt=prompt, session=session), session.conversation
        for number in range(CALLS):
            call = ToolCall(f"call-{number}", "pay", {"number": f"A-{number}"})
            talk.append({"role": "assistant", "content": "Next."}, calls=[call], reply=f"r-{number}")
            answer = executor.execute(call, reply=f"r-{number}")
            talk.append({"role": "tool", "tool_call_id": call.id, "content": answer.content})
    with closing(connect(path)) as tables, tables:
        _copy(tables.execute, "handrail_sessions", "session_id", "created_at")
        _copy(tables.execute, "handrail_entries", "session_id")
        _copy(
            tables.execute,
            "handrail_effects",
            "partition",
            "created_at",
            "effect_id",
            where=" AND owner_call = 'call-0'",
        )


def _copy(execute: Callable[[str], Cursor], table: str, key: str, *changed: str, where: str = "") -> None:
    columns = [row[1] for row in execute(f"PRAGMA table_info({table})")]
    values = {"created_at": "created_at - n", "effect_id": "printf('%032x', n)", key: "printf('s-%06d', n)"}
    selection = ", ".join(values[name] if name in {key, *changed} else name for name in columns)
    execute(
        f"INSERT INTO {table} ({', '.join(columns)}) {_NUMBERS} "
        f"SELECT {selection} FROM {table}, numbers WHERE {key} = '{_TEMPLATE}'{where}"
    )


def _see(client: TestClient, address: str) -> int:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return len(answer.content)


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the database is there for the time of the block."""
    with ExitStack() as opened:
        path = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-"))) / "desk.db"
        _fill(path)
        kept = opened.enter_context(store.open(f"sqlite:///{path}", read_only=True))
        server = ViewServer(kept, PORT)
        client = opened.enter_context(TestClient(server.app, base_url=f"http://localhost:{PORT}"))
        client.get(f"/?token={server.app.token}")
        *_, middle = zip(range(SESSIONS // 2), kept.sessions(), strict=False)
        row = middle[1]
        addresses = {
            LIST: "/",
            LATER: f"/?after={row.created_at.isoformat()} {row.session_id}".replace("+", "%2B"),
            WAITING: "/?state=waiting",
            FAILED: "/?state=failed",
            UNKNOWN: "/?state=unknown",
            EFFECTS: "/effects",
            QUESTIONS: "/questions",
        }
        yield {name: partial(_see, client, address) for name, address in addresses.items()}
