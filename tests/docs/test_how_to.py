"""Programs of pages over databases, other libraries, and changed parameters."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from handrail import store, tool
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.prompt import IdempotencyConfig, Prompt, PromptTemplate, ToolsSection
from handrail.runtime import Session, ToolCall
from tests.architecture.sources import ROOT
from tests.docs.killed_programs import Killer, Trial
from tests.extent import FULL
from tests.store.postgres_server import fresh_url

ENDED = ToolCall("call-1", "pay", {"order": "A-1", "cents": 5})


OPEN = ToolCall("call-2", "pay", {"order": "A-2", "cents": 5})


def make_executor(session: Session, pay: Callable[..., str], idempotency: IdempotencyConfig) -> ToolExecutor:
    """An executor with one tool, made of a version of the function."""
    made = tool(effect="external", name="pay", description="Pay.", idempotency=idempotency)(pay)
    section = ToolsSection(title="Desk", tools=[made])
    return ToolExecutor(prompt=Prompt(PromptTemplate(ns="shop", key="desk", sections=[section])), session=session)


def before(order: str, cents: int) -> str:
    """The first version."""
    return f"{order}: {cents}"


def with_default(order: str, cents: int, note: str = "") -> str:
    """A version with one more parameter."""
    return f"{order}: {cents} again{note}"


def renamed(order: str, amount: int) -> str:
    """A version in which a parameter has another name."""
    return f"{order}: {amount} again"


VERSIONS = [
    (with_default, IdempotencyConfig(), "A-2: 5 again", "A-1: 5 again"),
    (with_default, IdempotencyConfig(strategy="params", param_keys=("order",)), "A-2: 5 again", "A-1: 5"),
    (renamed, IdempotencyConfig(), None, None),
]


@pytest.mark.parametrize("now, idempotency, open_call, equal_call", VERSIONS)
@pytest.mark.short(3)
def test_calls_of_the_store_meet_the_new_parameters(
    now: Callable[..., str], idempotency: IdempotencyConfig, open_call: str | None, equal_call: str | None
) -> None:
    """An ended call keeps its answer, an open one is checked again, a key may be another one; `None` is a refusal."""
    with store.open("memory:") as kept:
        with Session.open(kept, "desk") as session:
            assert make_executor(session, before, idempotency).execute(ENDED, reply="reply-1").content == "A-1: 5"
            session.conversation.append({"role": "assistant"}, calls=[OPEN], reply="reply-2")
        with Session.open(kept, "desk") as session:
            executor = make_executor(session, now, idempotency)
            assert executor.execute(ENDED, reply="reply-1").content == "A-1: 5"
            answers = executor.answer()
            assert not isinstance(answers, PendingAnswers)
            assert [answer.content if answer.success else None for answer in answers] == [open_call]
            equal = executor.execute(ENDED, reply="reply-3")
            assert (equal.content.partition("\n")[0] if equal.success else None) == equal_call


OWN_DATABASE = ROOT / "docs" / "how-to" / "your-own-database.md"


SAME, ANOTHER, OUTBOX = re.findall(r"^```python\n(.*?)^```$", OWN_DATABASE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


OUTPUTS = re.findall(r"^```text\n(.*?)^```$", OWN_DATABASE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def found(path: Path, sql: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def stored(path: Path, type_name: str) -> list[tuple[object, ...]]:
    """How many values of a type the session has."""
    return found(path, f"SELECT sum(added) FROM handrail_entries WHERE type_name = '{type_name}'")  # noqa: S608 - ours


@pytest.mark.timeout(300)  # of the full form: a kill is two processes
def test_the_same_database_agrees_with_the_session(killer: Killer, tmp_path: Path) -> None:
    """Each order is paid once, marked once and counted once, wherever the process was killed."""

    def check(folder: Path) -> None:
        paid = [line.split()[1] for line in (folder / "bank.txt").read_text("utf-8").splitlines()]
        assert sorted(paid) == ["A-1", "A-2"]
        assert found(folder / "shop.db", "SELECT number, paid FROM orders ORDER BY 1") == [("A-1", 1), ("A-2", 1)]
        assert stored(folder / "shop.db", "shop.paid") == [(2,)]
        assert found(folder / "shop.db", "SELECT number FROM sales ORDER BY 1") == [("A-1",), ("A-2",)]

    Trial(killer, SAME, OUTPUTS[0], tmp_path).survives(check)


@pytest.mark.timeout(300)  # as above
def test_another_database_agrees_with_the_session(killer: Killer, tmp_path: Path) -> None:
    """Each article is taken from the stock once, and nothing stays prepared."""
    with fresh_url() as url, psycopg.connect(url, autocommit=True) as stock:

        def check(folder: Path) -> None:
            taken = stock.execute("SELECT article, 10 - pieces FROM stock ORDER BY 1").fetchall()
            assert taken == [("desk", 1), ("lamp", 1)]
            assert stored(folder / "desk.db", "shop.reserved") == [(2,)]
            assert not [xid for xid in stock.tpc_recover() if xid.database == stock.info.dbname]

        def begin() -> None:
            stock.execute("UPDATE stock SET pieces = 10")

        stock.execute("CREATE TABLE stock (article text PRIMARY KEY, pieces integer NOT NULL)")
        stock.execute("INSERT INTO stock VALUES ('lamp', 10), ('desk', 10)")
        program = ANOTHER.replace("postgresql://localhost/stock", url)
        Trial(killer, program, OUTPUTS[1], tmp_path, begin).survives(check)


@pytest.mark.timeout(300)  # as above
def test_the_outbox_is_emptied(killer: Killer, tmp_path: Path) -> None:
    """Each order is sent, under a key of its own."""

    def check(folder: Path) -> None:
        assert sorted((folder / "sent.txt").read_text("utf-8").splitlines()) == ["orders/r1/1 lamp", "orders/r1/2 desk"]
        assert found(folder / "desk.db", "SELECT * FROM outbox") == []
        assert stored(folder / "desk.db", "handrail.tool_invoked") == [(2,)]

    Trial(killer, OUTBOX, OUTPUTS[2], tmp_path).survives(check)


OTHER_LIBRARIES = ROOT / "docs" / "how-to" / "your-own-database.md"


BLOCKS: list[str] = re.findall(r"^```py\n(.*?)^```$", OTHER_LIBRARIES.read_text("utf-8"), re.MULTILINE | re.DOTALL)


SQLALCHEMY, DJANGO = BLOCKS


(PARTICIPANT,) = re.findall(
    r"^(from contextlib import closing, suppress\n.*?)^@stored_as",
    OTHER_LIBRARIES.read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)


_HEAD = """
from pathlib import Path
import handrail.store
from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, ToolContext, ToolsSection
from handrail.runtime import Session, ToolCall
"""


_WITH_DJANGO = """
import django
from django.conf import settings
from django.db import IntegrityError, models, transaction
from django.utils import timezone
SERVER = {"ENGINE": "django.db.backends.postgresql", "NAME": "unused"}
settings.configure(DATABASES={"default": SERVER}, TIME_ZONE="Europe/Berlin")
django.setup()
class Stock(models.Model):
    article = models.TextField(primary_key=True)
    pieces = models.IntegerField()
    sold = models.DateTimeField(null=True)
    class Meta:
        app_label = "shop"
        db_table = "stock"
def sell(article: str, context: ToolContext) -> str:
    stock = StockTransaction(context.session)
    enlist(stock)
    with django_in(stock.connection), transaction.atomic():
        now = timezone.now()
        Stock.objects.filter(article=article).update(pieces=models.F("pieces") - 1, sold=now)
        assert Stock.objects.get(article=article).sold == now
        transaction.on_commit(lambda: print("the transaction of the call was committed by Django"))
    assert connections["default"].connection is None  # Django's own, which is not used here
    return f"{article} is sold"
"""


_TOOLS = """
@tool
def lose(article: str, context: ToolContext) -> str:
    '''Sells an article, and fails.'''
    sell(article, context)
    raise ValueError("lost")
@tool
def sell_any(context: ToolContext) -> str:
    '''Sells a desk, or else a lamp.'''
    try:
        return sell("desk", context)
    except IntegrityError:
        return sell("lamp", context)
tools = [tool(sell), lose, sell_any]
prompt = Prompt(PromptTemplate(ns="shop", key="till", sections=[ToolsSection(title="Till", tools=tools)]))
with handrail.store.open(URL) as store, Session.open(store, Path.cwd().name) as session:
    executor = ToolExecutor(prompt=prompt, session=session)
    lamp, desk = {"article": "lamp"}, {"article": "desk"}
    recover(session)
    for number, called in enumerate((("sell", lamp), ("sell", desk), ("lose", lamp), ("sell_any", {}))):
        message = executor.execute(ToolCall(f"call-{number}", *called), reply="r1")
        print(called[0], message.success)
"""


OUTPUT = "sell True\nsell False\nlose False\nsell_any True\n"


_TABLE = (
    "CREATE TABLE IF NOT EXISTS stock (article text PRIMARY KEY, pieces integer NOT NULL CHECK (pieces >= 0), sold {})"
)


_ARTICLES = "INSERT INTO stock (article, pieces) VALUES ('lamp', 10), ('desk', 0) ON CONFLICT DO NOTHING"


_STOCK = "SELECT article, pieces FROM stock ORDER BY article"


class Database(NamedTuple):
    """A database with a stock of ten lamps and no desk; a session whose name is that of its folder.

    Attributes:
        name: as the libraries name it.
        opening: makes the table, if the program has to.
        url: that of the store.
        begin: brings back the stock, where the database is not in the folder of the program.
        stock: how many pieces of each article there are, in the database of a folder.
    """

    name: str
    opening: str
    url: str
    begin: Callable[[], object]
    stock: Callable[[Path], list[Any]]

    def using(self, library: str) -> str:
        """The program that sells by a library."""
        if library == "django":
            participant = PARTICIPANT.replace("postgresql://localhost/stock", self.url)
            return f"{participant}\n{_HEAD}\nURL = {self.url!r}\n{DJANGO}\n{_WITH_DJANGO}\n{_TOOLS}"
        selling = SQLALCHEMY.replace("@tool\n", "")
        if self.name == "postgresql":
            selling = selling.replace("dialects.sqlite", "dialects.postgresql.psycopg").replace('"named"', '"pyformat"')
        errors = (
            "from sqlite3 import IntegrityError" if self.name == "sqlite3" else "from psycopg import IntegrityError"
        )
        recovering = "def recover(session):\n    pass\n"
        return f"{_HEAD}\n{errors}\nURL = {self.url!r}\n{self.opening}\n{selling}\n{recovering}\n{_TOOLS}"


@contextmanager
def _on_sqlite() -> Generator[Database]:
    opening = f"""
import sqlite3
from contextlib import closing
with closing(sqlite3.connect("shop.db")) as tables, tables:
    tables.execute({_TABLE.format("timestamp")!r})
    tables.execute({_ARTICLES!r})
"""

    def stock(folder: Path) -> list[Any]:
        with closing(sqlite3.connect(folder / "shop.db")) as connection:
            return connection.execute(_STOCK).fetchall()

    yield Database("sqlite3", opening, "sqlite:///shop.db", bool, stock)


@contextmanager
def _on_postgres() -> Generator[Database]:
    with fresh_url() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_TABLE.format("timestamptz").encode())
        connection.execute(_ARTICLES)

        def begin() -> None:
            connection.execute("UPDATE stock SET pieces = 10 WHERE article = 'lamp'")

        def stock(_folder: Path) -> list[Any]:
            return connection.execute(_STOCK).fetchall()

        yield Database("postgresql", "", url, begin, stock)


@pytest.mark.timeout(300)  # of the full form: a kill is two processes
@pytest.mark.parametrize(
    "library, database",
    [("sqlalchemy", _on_sqlite), ("sqlalchemy", _on_postgres), ("django", _on_postgres)],
    ids=["sqlalchemy-sqlite", "sqlalchemy-postgres", "django-postgres"],
)
@pytest.mark.short(1)
def test_what_a_library_writes_commits_with_the_call(
    library: str, database: Callable[[], AbstractContextManager[Database]], killer: Killer, tmp_path: Path
) -> None:
    """What it has written is undone with a call that fails or is killed, and a statement that fails fails no call.

    Of four calls one sells a lamp; one fails, for there is no desk; one fails when the library has written; one goes on
    when a statement of the library has failed. Wherever the process is killed between the update and the end of a call,
    and is started again, two lamps are sold.
    """
    with database() as opened:
        program = opened.using(library)

        def check(folder: Path) -> None:
            assert opened.stock(folder) == [("desk", 0), ("lamp", 8)]

        lines = lines_of_sell(program)
        Trial(killer, program, OUTPUT, tmp_path, opened.begin).survives(check, lines if FULL else lines[-1:])


def lines_of_sell(program: str) -> range:
    """From the line that has the library write to the end of the handler."""
    ends = re.compile(r"    execute\(context, sold|    with django_in|    return .* is sold")
    first, last = (at for at, line in enumerate(program.splitlines(), 1) if ends.match(line))
    return range(first, last + 1)
