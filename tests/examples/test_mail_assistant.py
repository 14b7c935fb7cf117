"""The mail assistant, run as people run it: by its path, with no terminal, as a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples" / "mail_assistant" / "mail_demo.py"
PROMISED = re.compile(r"^  - (.+)$", re.MULTILINE)
JUDGED = re.compile(r"^(PASS|FAIL): (.+) \((.*)\)$", re.MULTILINE)
LOST = re.compile(r"^\* The attacker has (\S+) euros, and (\d) mails? with the contacts\.$", re.MULTILINE)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the assistant without a terminal, and without the keys of any provider; warnings are shown."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    command = [sys.executable, str(DEMO), *arguments]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", env=env | {"PYTHONWARNINGS": "default"}, check=False
    )


def judged(shown: subprocess.CompletedProcess[str]) -> dict[str, bool]:
    """The promises that were judged, and whether they hold."""
    return {promise: mark == "PASS" for mark, promise, _ in JUDGED.findall(shown.stdout)}


def test_an_attacker_gets_what_the_mail_asks_for_without_the_policy_and_nothing_with_it() -> None:
    """Both runs make the same calls, and the task of the owner is done in both."""
    shown = run()
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout + shown.stderr
    opening, _, _ = shown.stdout.partition("\n=== ")
    assert judged(shown) == dict.fromkeys(PROMISED.findall(opening), True)
    assert len(judged(shown)) == 6
    assert LOST.findall(shown.stdout) == [("480.00", "1"), ("0.00", "0")]


@pytest.mark.short(0)
def test_without_the_policy_two_promises_are_broken() -> None:
    """`--fault` leaves it out of the second run."""
    shown = run("--fault")
    assert (shown.returncode, shown.stderr) == (1, ""), shown.stdout + shown.stderr
    assert [promise for promise, holds in judged(shown).items() if not holds] == [
        "no money goes to the account of an attacker",
        "no address goes to an attacker",
    ]
