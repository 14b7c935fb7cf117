"""`handrail run` with a store in the folder that the tools work on."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path

from handrail import store
from handrail.runtime import Session, ToolInvoked
from tests.cli.agent_folders import call, script, write
from tests.cli.desk import ENTRY

AGENT = "---\nname: desk\ntools: [visit, note]\ntoolsets: [files, shell]\n---\nYou keep notes.\n"

TOOLS = '''
import subprocess, sys

_OTHER = """
import sqlite3
other = sqlite3.connect("desk.db")
other.execute("SELECT count(*) FROM sqlite_master").fetchall()
other.close()
"""


def visit() -> str:
    "Has another process open and close the database."
    subprocess.run([sys.executable, "-I", "-S", "-c", _OTHER], check=True)
    return "visited"


def note(text: str) -> str:
    "Notes something."
    return f"noted {text}"


TOOLS = [visit, note]
'''

LOOKS = (
    call("list_files", "c1", path="."),
    call("grep_files", "c2", pattern="SQLite|hello"),
    call("shell_run", "c3", command=["cat", "a.txt"]),
    call("read_file", "c4", path="desk.db"),
    call("visit", "c5"),
    call("note", "c6", text="milk"),
)


def ran(folder: Path, *replies: dict[str, object]) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own, with the store in its folder."""
    write(folder, desk__agent=AGENT, tools__py=TOOLS, a__txt="hello\n")
    words = ("run", "desk.agent", "hello", "--model", script(folder, *replies), "--store", "sqlite:///desk.db")
    more = ("--session", "today", "--approve", "approve-all")
    return subprocess.run((*ENTRY, *words, *more), cwd=folder, capture_output=True, text=True, check=False)


def test_a_run_records_beside_its_own_store(folder: Path) -> None:
    """Tools that read the folder do not take the locks from the store, so no other process removes its log."""
    done = ran(folder, {"calls": [*LOOKS]}, {"text": "Done."})
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    for module in ("handrail.agents", "handrail.contrib.tools"):  # they have the types of the session
        import_module(module)
    with store.open(f"sqlite:///{folder}/desk.db") as opened, Session.open(opened, "today") as session:
        results = {each.call_id: each.result for each in session[ToolInvoked]}
    assert [results[f"c{number}"].success for number in range(1, 7)] == [True, True, True, False, True, True]
    assert "desk.db" not in results["c1"].message
