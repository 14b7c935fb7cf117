"""The coding agent, the mail assistant, proxy and workers, run by their path as people run them, without a terminal."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples.demos import CALL, EXAMPLES, PROMISED, judged, run
from tests.store.postgres_server import fresh_url

DEMO = EXAMPLES / "coding_agent" / "demo.py"
READING = Path("durations", "reading.py")


def test_every_promise_holds_in_a_sandbox(tmp_path: Path) -> None:
    """The script is played to its end: calls fail and are rolled back, and the change that is left solves the issue."""
    told = run(DEMO, "--out", str(tmp_path))
    assert (told.returncode, told.stderr) == (0, ""), told.stdout + told.stderr
    opening, _, trace = told.stdout.partition("\n=== ")
    assert judged(told) == dict.fromkeys(PROMISED.findall(opening), True)
    assert len(judged(told)) == 6
    assert "Commands run in a sandbox of bubblewrap" in trace
    calls = CALL.findall(trace)
    assert calls.count(("shell_execute", "rolled back")) == 6
    assert ("edit_file", "refused at 4, policy") in calls
    assert calls[-1] == ("shell_execute", "committed")
    before, after = DEMO.parent / "project", tmp_path / "project"
    changed = [
        path for path in before.rglob("*.py") if path.read_bytes() != (after / path.relative_to(before)).read_bytes()
    ]
    assert [path.relative_to(before) for path in changed] == [READING]
    again = run(DEMO, "--out", str(tmp_path))
    assert again.returncode == 2
    assert "give --out another folder" in again.stderr


@pytest.mark.short(0)
def test_a_broken_promise_ends_in_fail_where_commands_run_on_the_host(tmp_path: Path) -> None:
    """Without bubblewrap the first lines say what that means; and a test that was changed past the runtime is found."""
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "git").symlink_to(git)
    told = run(DEMO, "--fault", PATH=str(tmp_path))
    assert (told.returncode, told.stderr) == (1, ""), told.stdout + told.stderr
    assert "Commands run on this machine, and can read what you can read" in told.stdout
    assert ("shell_run", "committed") in CALL.findall(told.stdout)
    assert [promise for promise, holds in judged(told).items() if not holds] == [
        "the tests pass at the end, and are those of the beginning"
    ]
    assert len(judged(told)) == 5


MAIL_DEMO = EXAMPLES / "mail_assistant" / "mail_demo.py"
LOST = re.compile(r"^\* The attacker has (\S+) euros, and (\d) mails? with the contacts\.$", re.MULTILINE)


def test_an_attacker_gets_what_the_mail_asks_for_without_the_policy_and_nothing_with_it() -> None:
    """Both runs make the same calls, and the task of the owner is done in both."""
    shown = run(MAIL_DEMO)
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout + shown.stderr
    opening, _, _ = shown.stdout.partition("\n=== ")
    assert judged(shown) == dict.fromkeys(PROMISED.findall(opening), True)
    assert len(judged(shown)) == 6
    assert LOST.findall(shown.stdout) == [("480.00", "1"), ("0.00", "0")]


@pytest.mark.short(0)
def test_without_the_policy_two_promises_are_broken() -> None:
    """`--fault` leaves it out of the second run."""
    shown = run(MAIL_DEMO, "--fault")
    assert (shown.returncode, shown.stderr) == (1, ""), shown.stdout + shown.stderr
    assert [promise for promise, holds in judged(shown).items() if not holds] == [
        "no money goes to the account of an attacker",
        "no address goes to an attacker",
    ]


PROXY_DEMO = EXAMPLES / "mcp_proxy" / "proxy_demo.py"
PAID = re.compile(r"^\* The bank has paid it (\d) x\.$", re.MULTILINE)
COMMAND = re.compile(r"^  (\S*python\S* -m handrail .+?[^\\])$", re.MULTILINE | re.DOTALL)


@pytest.mark.short(0)  # `tests/crash/test_mcp_kills.py` kills a bank and a proxy
def test_bank_pays_once_behind_the_proxy_and_twice_without_it(tmp_path: Path) -> None:
    """The bank and the proxy are killed in payments; afterwards the store shows each payment once, as done."""
    shown = run(PROXY_DEMO, TMPDIR=str(tmp_path))
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout + shown.stderr
    opening, _, _ = shown.stdout.partition("\n=== ")
    assert judged(shown) == dict.fromkeys(PROMISED.findall(opening), True)
    assert len(judged(shown)) == 3
    assert PAID.findall(shown.stdout) == ["1", "1", "1", "2", "2"]
    calls, ledger = [
        subprocess.run(["sh", "-c", command], capture_output=True, encoding="utf-8", check=True).stdout
        for command in COMMAND.findall(shown.stdout)
    ]
    assert calls.count("  pay(order=") == 3
    assert len(re.findall(r"pay +done", ledger)) == 3


@pytest.mark.short(0)
def test_without_the_proxy_every_promise_is_broken(tmp_path: Path) -> None:
    """`--fault` leaves it out: nobody is asked, and two orders are paid twice."""
    shown = run(PROXY_DEMO, "--fault", TMPDIR=str(tmp_path))
    assert (shown.returncode, shown.stderr) == (1, ""), shown.stdout + shown.stderr
    assert [*judged(shown).values()] == [False, False, False]


WORKER_DEMO = EXAMPLES / "worker" / "worker_demo.py"
PAID_BY_WORKERS = re.compile(r"^\* A-\d+: paid (\d) x, run finished: A-\d+ is paid", re.MULTILINE)


@pytest.mark.short(0)  # `tests/crash/test_worker_kills.py` kills workers
@pytest.mark.timeout(120)  # six processes die, one after the other
def test_each_order_is_paid_once_however_many_workers_are_killed(tmp_path: Path) -> None:
    """Six are killed between a payment and its answer; then the store shows each run, and the calls of one."""
    shown = run(WORKER_DEMO, TMPDIR=str(tmp_path), HANDRAIL_STORE="")
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout + shown.stderr
    opening, _, _ = shown.stdout.partition("\n=== ")
    assert judged(shown) == dict.fromkeys(PROMISED.findall(opening), True)
    assert len(judged(shown)) == 2
    assert PAID_BY_WORKERS.findall(shown.stdout) == ["1"] * 12
    assert shown.stdout.count("is killed;") == 4
    assert "is paid, says the bank" in shown.stdout
    runs, calls = [
        subprocess.run(["sh", "-c", command], capture_output=True, encoding="utf-8", check=True).stdout
        for command in COMMAND.findall(shown.stdout)
    ]
    assert runs.count("  clerk  finished  ") == 12
    assert calls.count("  pay(order=") == 1


@pytest.mark.short(0)
@pytest.mark.timeout(120)  # as above
def test_two_workers_on_a_server_pay_each_order_once(tmp_path: Path) -> None:
    """`HANDRAIL_STORE` names a store in PostgreSQL."""
    with fresh_url() as url:
        shown = run(WORKER_DEMO, TMPDIR=str(tmp_path), HANDRAIL_STORE=url)
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout + shown.stderr
    assert [*judged(shown).values()] == [True, True]


@pytest.mark.short(0)
@pytest.mark.timeout(120)  # as above
def test_payments_that_are_made_again_break_a_promise(tmp_path: Path) -> None:
    """`--fault` has the tool say that a second time does no harm."""
    shown = run(WORKER_DEMO, "--fault", TMPDIR=str(tmp_path), HANDRAIL_STORE="")
    assert (shown.returncode, shown.stderr) == (1, ""), shown.stdout + shown.stderr
    assert [*judged(shown).values()] == [True, False]
