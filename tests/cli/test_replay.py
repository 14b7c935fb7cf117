"""`handrail replay` and `handrail sessions export`: exit codes, the report, the files that are written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from runpy import run_path
from xml.etree import ElementTree as ET

import psycopg
import pytest

from handrail import store as stores
from handrail.runtime import ToolCall
from tests.cli.agent_folders import call, script, write
from tests.cli.desk import Command, Run
from tests.store.postgres_server import fresh_url
from tests.wording import Wording

AGENT = "---\nname: desk\ntools: [pay, note]\ntoolsets: [files]\n---\nYou pay.\n"

TOOLS = """\
from pathlib import Path
from handrail import ToolExecutor, tool

@tool(effect="external")
def pay(order: str) -> str:
    "Pays."
    with Path("book").open("a") as book:
        book.write(order)
    return "paid"

@tool
def note(text: str) -> str:
    "Takes a note."
    colon = Path("colon")
    return f"noted{colon.read_text() if colon.exists() else ''} {text}"

TOOLS = [pay, note]

def desk(session):
    return ToolExecutor([pay, note], session=session)
"""

STORE = ("--store", "sqlite:///pay.db")


@pytest.fixture
def desk(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which an agent has paid, and written a file."""
    monkeypatch.delitem(sys.modules, "tools", raising=False)  # that of another test
    write(folder, desk__agent=AGENT, tools__py=TOOLS, kept__txt="as it was\n")
    calls = [call("pay", "c1", order="A-1"), call("write_file", "c2", path="new.txt", content="new")]
    model = script(folder, {"calls": calls}, {"calls": [call("note", "c3", text="it")]}, {"text": "Done."})
    ran = run("pay it", "--model", model, *STORE, "--session", "monday", "--approve", "approve-all")
    assert ran.out == "Done.\n", ran.err
    return folder


def test_run_of_an_agent_replays_equal(desk: Path, handrail: Command, wording: Wording) -> None:
    """With the agent, the model and the folder of its run, of which nothing is changed."""
    done = handrail("replay", "monday", *STORE)
    assert (done.code, done.out) == (0, wording), done.err
    assert ((desk / "book").read_text(), (desk / "new.txt").read_text()) == ("A-1", "new")


def test_difference_is_shown_and_written(desk: Path, handrail: Command) -> None:
    """Exit code 1; JUnit has a case for each call, and the page both sessions."""
    (desk / "colon").write_text(":", encoding="utf-8")
    done = handrail("replay", "monday", *STORE, "--junit", "cases.xml", "--html", "both.html")
    assert done.code == 1
    assert all(text in done.out for text in ("c3 note: result", '-"noted it"', '+"noted: it"', "3 of 3 calls"))
    suite = ET.fromstring((desk / "cases.xml").read_text(encoding="utf-8"))  # noqa: S314 - our own
    failures = [(case.get("name", "").rpartition("/")[2], len(case)) for case in suite]
    assert failures == [("c1 pay", 0), ("c2 write_file", 0), ("c3 note", 1)]
    page = (desk / "both.html").read_text(encoding="utf-8")
    assert all(text in page for text in ("noted it", "noted: it", "monday"))
    document = json.loads(handrail("replay", "monday", *STORE, "--all", "--format", "json").out)
    assert (document["equal"], [one["kind"] for one in document["differences"]]) == (False, ["result"])


def test_calls_after_the_end_are_skipped(desk: Path, handrail: Command) -> None:
    """A prompt that differs is a failure of the first call that sees it."""
    (desk / "desk.agent").write_text(AGENT.replace("You pay.", "You pay twice."), encoding="utf-8")
    assert handrail("replay", "monday", *STORE, "--junit", "cases.xml").code == 1
    suite = ET.fromstring((desk / "cases.xml").read_text(encoding="utf-8"))  # noqa: S314 - our own
    assert [[one.tag for one in case] for case in suite] == [["failure"], [], ["skipped"]]


def test_recording_is_replayed_without_its_store(desk: Path, handrail: Command) -> None:
    """Against an agent, or what makes an executor."""
    text = handrail("sessions", "export", "monday", *STORE)
    assert (text.code, text.err) == (0, "")
    (desk / "monday.json").write_text(text.out, encoding="utf-8")
    (desk / "new.txt").unlink()
    (desk / "pay.db").unlink()
    assert handrail("replay", "monday.json").code == 0
    assert handrail("replay", "monday.json", "--against", "desk.agent").code == 0
    done = handrail("replay", "monday.json", "--against", "tools:desk")
    assert (done.code, "c2 write_file: arguments" in done.out) == (1, True)
    (desk / "colon").write_text(":", encoding="utf-8")
    assert handrail("replay", "monday.json").code == 1


def test_fork_of_a_folder(desk: Path, handrail: Command) -> None:
    """As it was at the call."""
    shown = json.loads(handrail("sessions", "show", "monday", *STORE, "--format", "json").out)["conversation"]
    (call_name,) = [f"{one['reply']}/{one['call_id']}" for one in shown if one.get("call_id") == "c1"]
    done = handrail("sessions", "fork", "monday", "--at", call_name, "--files", "../then", *STORE)
    assert done.code == 0, done.err
    assert (desk / "new.txt").exists()
    assert not (desk.parent / "then" / "new.txt").exists()


@pytest.mark.parametrize(
    "words, code",
    [
        (("none",), 1),
        (("monday", "--against", "tools:nobody"), 2),
        (("monday", "--against", "none.agent"), 2),
        (("tools.py",), 1),
    ],
)
def test_what_cannot_be_replayed_is_refused(desk: Path, handrail: Command, words: tuple[str, ...], code: int) -> None:
    """Exit code 1 for what is not there, 2 for what is named wrongly."""
    assert handrail("replay", *words, *STORE).code == code


ROWS = """\
from handrail import ToolExecutor, tool
from handrail.prompt import ToolContext

@tool
def write(text: str, context: ToolContext) -> str:
    "Writes a row."
    context.connection.execute("INSERT INTO texts VALUES (%s)", (text,))
    return text

def desk(session):
    return ToolExecutor([write], session=session)
"""


def test_rows_of_postgresql_are_written_to_a_copy(folder: Path, handrail: Command) -> None:
    """The command only reads the store."""
    write(folder, rows__py=ROWS)
    with fresh_url() as url:
        with psycopg.connect(url, autocommit=True) as rows:
            rows.execute("CREATE TABLE texts (text text)")
        with stores.open(url) as store, store.session("s") as session:
            made = run_path(str(folder / "rows.py"))["desk"](session)
            made.execute(ToolCall("c", "write", {"text": "a"}), reply="r")
        done = handrail("replay", "s", "--against", "rows:desk", "--store", url)
        assert (done.code, done.out) == (0, "1 of 1 call compared: equal.\n"), done.err
        with psycopg.connect(url) as rows:
            assert rows.execute("SELECT text FROM texts").fetchall() == [("a",)]


def test_junit_has_what_xml_cannot_have_replaced(desk: Path, handrail: Command) -> None:
    """A difference may quote whatever a tool returns."""
    (desk / "colon").write_text("\x00\x1b\ufffe", encoding="utf-8")
    assert handrail("replay", "monday", *STORE, "--junit", "cases.xml").code == 1
    suite = ET.fromstring((desk / "cases.xml").read_text(encoding="utf-8"))  # noqa: S314 - our own
    assert [case.get("name", "").rpartition(" ")[2] for case in suite if len(case)] == ["note"]
