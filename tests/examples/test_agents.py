"""The agents of `examples/`, run as people run them: by the command, with the model that their README names."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from handrail.agents import load_agent
from handrail.runtime import Session, ToolInvoked
from handrail.store import open as open_store
from tests.extent import some

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
HANDRAIL = Path(sys.executable).with_name("handrail")


@dataclass(frozen=True)
class Ended:
    """How a command ended, and the events that it printed."""

    code: int
    out: str
    told: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    def calls(self) -> list[tuple[str, bool]]:
        """The tool of every call and whether it succeeded, in the order in which they ended."""
        return [(event["tool"], event["success"]) for event in self.events if event["event"] == "call_ended"]

    def failed(self) -> set[str]:
        """The ids of the calls that failed."""
        return {event["call_id"] for event in self.events if event["event"] == "call_ended" and not event["success"]}


def handrail(*arguments: str | Path, folder: Path = ROOT) -> Ended:
    """Run the command without a terminal, without standard input, and without the keys of any provider."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env = {key: value for key, value in kept.items() if not key.startswith("HANDRAIL_")} | {"PYTHONWARNINGS": "error"}
    words = [*map(str, (HANDRAIL, *arguments))]
    ended = subprocess.run(
        words, env=env, cwd=folder, check=False, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def play(name: str, *options: str | Path, script: str = "script.yaml") -> Ended:
    """Run the agent of a folder with the scripted model of that folder."""
    folder = EXAMPLES / name
    return handrail("run", folder / f"{name}.agent", "Go on.", "--model", f"script:{folder / script}", *options)


def paths(folder: Path) -> set[str]:
    """The files below a folder, by their paths in it."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def said(name: str) -> str:
    """What the README of a folder says that the agent answers."""
    text = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"standard output is\n\n((?:(?:    .*)?\n)+)", text)
    assert len(blocks) == 1
    return "\n".join(line.removeprefix("    ") for line in blocks[0].splitlines()).strip()


@dataclass(frozen=True)
class Played:
    """A run of an example, and the folder that it worked on."""

    ended: Ended
    folder: Path
    store: str = ""

    @property
    def answer(self) -> str:
        """What the agent answered."""
        events = [event for event in self.ended.events if event["event"] == "run_ended" and len(event["path"]) == 1]
        assert [event["status"] for event in events] == ["done"]
        return str(events[0]["output"])


def make_mess(folder: Path) -> Path:
    """The messy folder, as its program makes it."""
    program = EXAMPLES / "organiser" / "make_mess.py"
    made = subprocess.run([sys.executable, str(program), str(folder)], check=False, capture_output=True)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="module")
def organised(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The organiser has sorted a messy folder; what happened is in a store."""
    folder = make_mess(tmp_path_factory.mktemp("organiser") / "mess")
    store = f"sqlite:///{folder.parent / 'runs.db'}"
    kept = ("--store", store, "--session", "sorted")
    ended = play("organiser", "--root", folder, "--approve", "approve-all", "--format", "json", *kept)
    assert ended.code == 0, ended.told
    return Played(ended, folder, store)


@pytest.fixture(scope="module")
def reported() -> Played:
    """The report has been written; nobody was there to be asked, and nothing had to be."""
    ended = play("report", "--format", "json")
    assert ended.code == 0, ended.told
    return Played(ended, EXAMPLES / "report")


@pytest.fixture(scope="module")
def refunded(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The refund desk has decided a copy of the inbox."""
    folder = tmp_path_factory.mktemp("refunds") / "desk"
    shutil.copytree(EXAMPLES / "refund_desk" / "inbox", folder)
    script = "agent.yaml"
    ended = play("refund_desk", "--root", folder, "--approve", "approve-all", "--format", "json", script=script)
    assert ended.code == 0, ended.told
    return Played(ended, folder)


def test_the_organiser_sorts_a_folder_and_loses_nothing(organised: Played, tmp_path: Path) -> None:
    """Every file is there with its content, in its folder, and in the index; what is denied has not happened."""
    mess, sorted_folder = make_mess(tmp_path / "mess"), organised.folder
    before = {path: (mess / path).read_bytes() for path in paths(mess)}
    after = {path: (sorted_folder / path).read_bytes() for path in paths(sorted_folder)}
    assert set(after) == {
        "index.md", "invoices/Invoice 2026-014.txt", "invoices/Invoice 2026-015.txt", "invoices/Invoice 2026-016.txt",
        "notes/todo.md", "photos/IMG_0042.jpg", "photos/IMG_0043.jpg", "to-check/IMG_0042 (1).jpg",
        "to-check/~$tmp.dat", "travel/packing list.md", "travel/京都.md",
    }  # fmt: skip
    index = after.pop("index.md").decode()
    assert index.startswith(before.pop("index.md").decode())
    assert Counter(after.values()) == Counter(before.values())
    assert "- travel: 2 files" in index
    assert not (sorted_folder.parent / "copies").exists()
    assert organised.ended.failed() == {"unseen", "rubbish", "outside", "taken"}


@pytest.mark.short(0)
def test_the_organiser_moves_nothing_where_nobody_can_be_asked(tmp_path: Path) -> None:
    """Without a terminal and without `--approve` a move is denied, which the script of a good day does not expect."""
    mess = make_mess(tmp_path / "mess")
    before = paths(mess)
    ended = play("organiser", "--root", mess)
    assert (ended.code, "--approve approve-all" in ended.told, "Traceback" in ended.told) == (1, True, False)
    assert paths(mess) == before


def test_every_call_of_the_organiser_is_recorded_once(organised: Played) -> None:
    """The `ToolInvoked` of the stored session are the calls that were told of while they ran, each once."""
    load_agent(EXAMPLES / "organiser" / "organiser.agent")  # makes the types known that the session holds
    with open_store(organised.store) as store, Session.open(store, "sorted") as session:
        recorded = [(event.name, event.success) for event in session[ToolInvoked].all()]
    assert recorded == organised.ended.calls()
    assert len(recorded) > 15


def test_the_report_has_the_figures_of_the_file(reported: Played) -> None:
    """Two agents make the report, and each of its figures is one that the file adds up to."""
    with (EXAMPLES / "report" / "sales.csv").open(encoding="utf-8", newline="") as file:
        cents: Counter[str] = Counter()
        for row in csv.DictReader(file):
            cents[row["region"]] += int(row["cents"])
    assert {f"{cents[region] / 100:.2f}" for region in ("north", "south")} <= set(reported.answer.split())
    ended = reported.ended
    assert ended.failed() == {"not-mine", "capital"}
    assert Counter(ended.calls())["note_finding", True] == 2
    callers = {tuple(event["path"]) for event in ended.events if event["event"] == "call_ended"}
    assert callers == {("report",), ("report", "analyst")}


def test_the_refund_desk_pays_every_order_once(refunded: Played) -> None:
    """The report of the agent file is that of the program: six refunds, each once, though two were asked for twice."""
    inbox, ended = refunded.folder, refunded.ended
    with (inbox / "refunds.csv").open(encoding="utf-8", newline="") as file:
        paid = [row["order"] for row in csv.DictReader(file)]
    assert sorted(paid) == ["A-1001", "A-1002", "A-1003", "A-1004", "A-1009", "A-1010"]
    assert "Paid in all: 588.40 EUR" in (inbox / "report.md").read_text(encoding="utf-8")
    assert "see report.md" in (inbox / "handover.md").read_text(encoding="utf-8")
    assert (inbox / "requests.csv").read_bytes() == (EXAMPLES / "refund_desk" / "inbox" / "requests.csv").read_bytes()
    replayed = {event["call_id"] for event in ended.events if event["event"] == "call_ended" and event["replayed"]}
    assert replayed == {"again", "lost-answer", "paid-before"}
    refused = {"too-early", "rewritten", "no-such-order", "refunded-before", "too-much", "half-way"}
    assert ended.failed() == refused


@pytest.mark.parametrize("name", some(["organiser", "report", "refund_desk"], 2))
@pytest.mark.short(1)
def test_every_agent_can_be_checked_without_a_model(name: str, tmp_path: Path) -> None:
    """`handrail check` finds no problem in any file of the project, from whatever folder it is called."""
    ended = handrail("check", EXAMPLES / name / f"{name}.agent", folder=tmp_path)
    assert ended.code == 0, ended.told + ended.out
    assert list(tmp_path.iterdir()) == []


def test_every_readme_says_what_its_agent_answers(organised: Played, reported: Played, refunded: Played) -> None:
    """What is shown there is the answer of the scripted model, word for word."""
    for name, played in {"organiser": organised, "report": reported, "refund_desk": refunded}.items():
        assert played.answer.split() == said(name).split()


@pytest.mark.short(0)
def test_nothing_is_written_to_standard_error_unasked(
    organised: Played, reported: Played, refunded: Played, tmp_path: Path
) -> None:
    """No warning of Python and no line of a log: with `--format json` all that is asked for is on standard output."""
    assert [played.ended.told for played in (organised, reported, refunded)] == ["", "", ""]
    made = handrail("new", "notes", folder=tmp_path)
    model = f"script:{tmp_path}/notes/script.yaml"
    words = ("run", "notes/notes.agent", "Remember that I want to buy milk.", "--model", model)
    ran = handrail(*words, "--approve", "approve-all", "--format", "json", folder=tmp_path)
    assert [(ended.code, ended.told) for ended in (made, ran)] == [(0, ""), (0, "")]
