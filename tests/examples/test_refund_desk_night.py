"""The second act of the refund desk: a process that is killed twice, and what it leaves."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from desk import INBOX
from handrail import store
from handrail.runtime import Session, ToolInvoked
from night import prepare
from night_desk import SESSION_ID, Life, NightFolder, live
from night_proof import NIGHT_PROMISES, contents_of
from payments import Payments, running_service
from refunds import Refund
from report import REPORT
from screen import PlainScreen
from tests.examples.demos import EXAMPLES, PROMISED, run

MAIN = EXAMPLES / "refund_desk" / "main.py"
ORDERS = ("A-1001", "A-1002", "A-1003", "A-1004", "A-1009", "A-1010")

pytestmark = pytest.mark.timeout(180)  # the first test waits for a night, which takes several processes


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the night leaves its folder."""
    return tmp_path_factory.mktemp("night")


@pytest.fixture(scope="module")
def night(out: Path) -> subprocess.CompletedProcess[str]:
    """A night at the desk, as people run it."""
    return run(MAIN, "--act", "2", "--json", "--out", str(out), folder=out)


@pytest.fixture(scope="module")
def proof(night: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The counts at its end."""
    assert night.returncode == 0, night.stdout + night.stderr
    proofs: dict[str, dict[str, Any]] = json.loads(night.stdout)
    assert list(proofs) == ["night"]
    return proofs["night"]


@pytest.fixture
def payments() -> Iterator[Payments]:
    """A payment service."""
    with running_service() as service:
        yield service


def test_a_desk_that_is_killed_twice_refunds_each_order_once(proof: dict[str, Any]) -> None:
    """The service pays whatever it is asked for, and counts one refund for each order."""
    assert proof["charges"] == dict.fromkeys(ORDERS, 1)
    assert [finding for finding in proof["findings"] if not finding["holds"]] == []
    assert [finding["found"] for finding in proof["findings"][:2]] == [
        "return code -9; 3 paid, 2 recorded",
        "return code -9; on disk: handover.md, notes.md, report.md, requests.csv",
    ]


def test_the_session_holds_the_calls_of_all_lives_and_each_refund_once(proof: dict[str, Any]) -> None:
    """The first life recorded 11 calls, the second 15, the third 17; the two that were killed stand nowhere.

    Before the model is asked, the second life records one more: the refund of the first that is found out.
    """
    slices = [proof["slices"][each] for each in ("ToolInvoked", "Refund", "ReportFiled")]
    assert slices == [11 + (1 + 15) + 17, 6, 1]
    assert proof["outcomes"] == {"committed": 34, "replayed": 10, "refused": 0, "rolled back": 0}


def test_the_trace_tells_of_each_death_and_of_what_was_found(night: subprocess.CompletedProcess[str]) -> None:
    """A reader sees the death, the state that it left, and how the next life gets out of it."""
    told = iter(night.stderr.splitlines())
    for line in (
        "* session night-desk is begun",
        "* A-1003: 18.50 EUR are paid, rf-003; here the process dies",
        "* the desk was killed by SIGKILL",
        "* found: 3 refunds paid, 2 of them recorded",
        "is running, and nobody runs it",
        "* session night-desk is resumed, with 11 calls in it",
        "so the service is asked: rf-003 was paid for A-1003",
        "issue_refund: replayed: A-1003: 18.50 EUR refunded, rf-003",
        "* the desk was killed by SIGKILL",
        "* report.md is half of a report: refunds.csv is missing, and the session knows of neither",
        "* session night-desk is resumed, with 27 calls in it",
        "file_report: committed: report.md and refunds.csv written: 11 requests, 588.40 EUR paid",
    ):
        assert any(line in shown for shown in told), line


def test_what_is_left_on_disk_can_be_looked_at(
    night: subprocess.CompletedProcess[str], proof: dict[str, Any], out: Path
) -> None:
    """`--out` keeps database, files and journal."""
    folder = NightFolder(out / "night")
    assert hashlib.sha256((folder.files / REPORT).read_bytes()).hexdigest() == proof["report_sha256"]
    assert (folder.files / "requests.csv").read_bytes() == (INBOX / "requests.csv").read_bytes()
    assert folder.journal.is_dir()


@pytest.mark.timeout(180)  # it types a dozen commands
@pytest.mark.short(0)
def test_what_is_proposed_at_the_end_works_as_it_is_typed(night: subprocess.CompletedProcess[str], out: Path) -> None:
    """From the folder in which the demo was started; the lines of a command that goes on belong to it."""
    proposed = night.stderr.partition("\nTry next:\n")[2]
    lines = proposed.partition("\n*")[0].replace("\\\n", " ").splitlines()  # before the place of the page
    commands = [["sh", "-c", line] for line in lines if not line.startswith("  #")]
    ran = [subprocess.run(each, check=False, capture_output=True, encoding="utf-8", cwd=out) for each in commands]
    assert [(each.returncode, "Traceback" in each.stderr) for each in ran] == [(code, False) for code in (0, 0, 1, 0)]
    assert ran[0].stdout.count("shop:issue_refund:") == len(ORDERS)
    assert "prompt examples/refund-desk" in ran[1].stdout
    assert "FAIL: 1 of 6 promises is broken." in ran[2].stdout
    assert (out / "notes" / "notes.agent").is_file()


def test_the_promises_of_the_night_are_those_that_are_judged(night: subprocess.CompletedProcess[str]) -> None:
    """In their order."""
    assert PROMISED.findall(night.stderr) == list(NIGHT_PROMISES)
    assert re.findall(r"^PASS: (.+) \(.*\)$", night.stderr, re.MULTILINE) == list(NIGHT_PROMISES)


def test_a_night_begins_anew_where_another_was(tmp_path: Path) -> None:
    """A second run in the same folder does not go on with the first."""
    folder = prepare(tmp_path / "night")
    folder.database.write_bytes(b"of an earlier night")
    (folder.files / REPORT).write_text("of an earlier night")
    assert prepare(folder.path) == folder
    assert not folder.database.exists()
    assert set(contents_of(folder.files)) == {path.name for path in INBOX.iterdir()}


def test_a_life_after_one_that_ended_well_pays_nothing_again(tmp_path: Path, payments: Payments) -> None:
    """All refunds are in the ledger, so a night that is repeated takes them from there."""
    folder = prepare(tmp_path / "night")
    life = Life(folder.path, payments.port, None, None)
    assert [live(life, PlainScreen(io.StringIO(), compact=True)) for _ in range(2)] == [True, True]
    assert payments.counts() == dict.fromkeys(ORDERS, 1)
    with store.open(folder.store_url) as kept, Session.open(kept, SESSION_ID) as session:
        assert len(session[Refund]) == len(ORDERS)
        refunds = [call for call in session[ToolInvoked].all() if call.name == "issue_refund"]
    assert [call.replayed for call in refunds] == [False] * 6 + [True] * 6


def test_a_life_whose_agent_fails_says_why(tmp_path: Path) -> None:
    """Without a payment service the model is sent failures that its script does not expect."""
    folder = prepare(tmp_path / "night")
    with running_service() as gone:
        pass
    shown = io.StringIO()
    assert not live(Life(folder.path, gone.port, None, None), PlainScreen(shown, compact=True))
    assert "did not answer" in shown.getvalue()
    assert "\n* ScriptError: " in shown.getvalue()
