"""The office that answers the open questions of Handrail's store, by its command, as its pages show."""

from __future__ import annotations

import json
import subprocess
import sys

from handrail.prompt import Approval, ApprovalRequest
from proof.desk import Desk


def leave_open(_: ApprovalRequest) -> Approval:
    """Leaves a question to the office, so that the program can close its session meanwhile."""
    return Approval.later("the office is asked")


def answer_questions(desk: Desk) -> None:
    """Asks the person what the store has as open, and records the answers there."""
    for line in _run_approvals(desk, "list").splitlines():
        question = json.loads(line)
        answer = "yes" if desk.ask_person(**question["arguments"]) else "no"
        _run_approvals(desk, "answer", question["session_id"], question["call_id"], answer, "--by", "office")


def _run_approvals(desk: Desk, *words: str) -> str:
    command = [sys.executable, "-m", "handrail", "approvals", *words]
    command += ["--store", f"sqlite:///{desk.folder / 'desk.db'}", "--format", "json"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
