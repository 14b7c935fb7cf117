"""The refund desk, run as people run it: by its path, with no terminal, as a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.examples.demos import CALL, EXAMPLES, PROMISED, judged
from tests.examples.demos import run as run_program
from tests.extent import some

MAIN = EXAMPLES / "refund_desk" / "main.py"
run = partial(run_program, MAIN)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the desk leaves its files."""
    return tmp_path_factory.mktemp("desk")


@pytest.fixture(scope="module")
def day(out: Path) -> subprocess.CompletedProcess[str]:
    """A day at the desk."""
    return run("--act", "1", "--out", str(out))


def test_all_that_is_claimed_at_the_end_holds(day: subprocess.CompletedProcess[str]) -> None:
    """The script is played to the end, where the promises of the beginning are judged, in their order."""
    assert (day.returncode, day.stderr) == (0, ""), day.stdout + day.stderr
    assert day.stdout.count("\nPASS: ") == 7  # six promises, and the total
    assert "FAIL" not in day.stdout
    assert not re.search(r"[\x1b\u2500-\u257f]", day.stdout)  # no escape sequences and no frames without a terminal
    opening = day.stdout.partition("\n=== ")[0]
    assert list(judged(day)) == PROMISED.findall(opening)


@pytest.mark.short(0)
def test_a_broken_promise_ends_in_fail_and_exit_code_1() -> None:
    """A refund that was paid past the runtime is found, and nothing else is."""
    broken = run("--act", "1", "--fault")
    assert (broken.returncode, broken.stderr) == (1, "")
    assert re.findall(r"^FAIL.*$", broken.stdout, re.MULTILINE) == [
        "FAIL: no order is refunded twice (A-1001 2 times)",
        "FAIL: 1 of 6 promises is broken.",
    ]


def test_the_trace_shows_every_way_in_which_a_call_ends(day: subprocess.CompletedProcess[str]) -> None:
    """The scripted model errs in every way that the desk is there to show."""
    calls = CALL.findall(day.stdout)
    assert {
        ("read_csv", "refused at 1, look up"), ("issue_refund", "refused at 2, parse"),
        ("write_file", "refused at 4, policy"), ("issue_refund", "refused at 4, policy"),
        ("issue_refund", "refused at 7, claim"), ("issue_refund", "committed"), ("issue_refund", "replayed"),
        ("issue_refund", "rolled back"), ("file_report", "rolled back"), ("file_report", "committed"),
        ("edit_file", "committed"),
    } <= set(calls)  # fmt: skip
    assert len(calls) == day.stdout.count("\n    asked: ")


def test_every_order_is_charged_once(day: subprocess.CompletedProcess[str]) -> None:
    """Though three refunds were asked for twice, and two had lost their answers, the service counts one charge each."""
    orders = ("A-1001", "A-1002", "A-1003", "A-1004", "A-1009", "A-1010")
    assert f"\ncharges per order: {', '.join(f'{order} 1' for order in orders)}\n" in day.stdout


def test_the_files_are_what_the_trace_says(day: subprocess.CompletedProcess[str], out: Path) -> None:
    """The report that is left has the hash that was shown, and the handover keeps what others wrote."""
    report = (out / "report.md").read_bytes()
    assert f"report sha256: {hashlib.sha256(report).hexdigest()}\n" in day.stdout
    assert "Paid in all: 588.40 EUR" in report.decode()
    before = (MAIN.parent / "inbox" / "handover.md").read_text(encoding="utf-8")
    after = (out / "handover.md").read_text(encoding="utf-8")
    assert after.startswith(before)
    assert len(after) > len(before)
    assert {path.name for path in out.iterdir()} == {
        "handover.md", "refunds.csv", "report.md", "requests.csv", "shop.db",
    }  # fmt: skip


@pytest.mark.short(0)
def test_another_run_gives_the_same_report(out: Path, day: subprocess.CompletedProcess[str]) -> None:
    """The same script gives the same bytes, the same charges and the same slices; without `--act` both acts are run."""
    assert day.returncode == 0
    again = run("--json")
    assert again.returncode == 0, again.stderr
    proofs = json.loads(again.stdout)
    assert list(proofs) == ["day", "night"]
    proof = proofs["day"]
    assert all(proofs["night"][each] == proof[each] for each in ("report_sha256", "charges"))
    assert proof["report_sha256"] == hashlib.sha256((out / "report.md").read_bytes()).hexdigest()
    assert set(proof["charges"].values()) == {1}
    assert proof["outcomes"] == {"committed": 25, "replayed": 4, "refused": 7, "rolled back": 3}
    assert (proof["slices"]["Refund"], proof["slices"]["ToolInvoked"]) == (6, 39)
    assert all(finding["holds"] for finding in proof["findings"])
    assert "call 39" in again.stderr


@pytest.mark.parametrize("act, model", some([("1", "nonsense"), ("1", "openai:gpt-5.2"), ("2", "openai:gpt-5.2")], 2))
@pytest.mark.short(0)
def test_a_model_that_cannot_be_used_is_told_and_nothing_runs(act: str, model: str) -> None:
    """A missing key and an unknown name are one clear line and exit code 2, not a traceback."""
    told = run("--model", model, "--act", act)
    assert told.returncode == 2
    assert told.stderr.startswith(f"refund desk: the model {model} cannot be used: ")
    assert "Traceback" not in told.stderr
    assert "call 1" not in told.stdout


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("act, ended_by", some([("1", signal.SIGINT), ("1", signal.SIGTERM), ("2", signal.SIGTERM)], 2))
@pytest.mark.short(1)
def test_an_interrupted_desk_leaves_nothing_behind(tmp_path: Path, act: str, ended_by: signal.Signals) -> None:
    """Ctrl-C while the model is asked stops the service and the night desk, and removes the temporary folder."""
    with socket.create_server(("127.0.0.1", 0)) as provider:
        provider.settimeout(60)
        url = f"http://127.0.0.1:{provider.getsockname()[1]}"
        env = {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": url, "TMPDIR": str(tmp_path)}
        command = [sys.executable, str(MAIN), "--act", act, "--model", "openai:gpt-5.2"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env) as desk:
            connection, _ = provider.accept()  # from here on the desk waits for the model's reply
            with connection:
                assert list(tmp_path.iterdir()) != []
                desk.send_signal(ended_by)
                # Service and night desk inherit the pipe, so reading that to its end is waiting for both.
                _, told = desk.communicate(timeout=60)
    assert desk.returncode == 130, told
    assert b"interrupted" in told
    assert list(tmp_path.iterdir()) == []
