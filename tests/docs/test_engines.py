"""The programs of `docs/how-to/durable-engines.md`, in processes that are killed after a payment and started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.wording import Wording

PAGE = (ROOT / "docs" / "how-to" / "durable-engines.md").read_text("utf-8")
ON_DBOS, ON_CELERY = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(WITH_AGENT,) = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(OUTPUT,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

_PAYMENT = '        service.write(f"{number}\\n")\n'
_KILL = """
    if number == "A-2" and not Path("died").exists():
        Path("died").touch()
        __import__("os").kill(__import__("os").getpid(), 9)
"""


def with_kill(program: str) -> str:
    """The program, whose process is killed once, after the payment of A-2."""
    assert program.count(_PAYMENT) == 1
    return program.replace(_PAYMENT, _PAYMENT + _KILL)


def paid(folder: Path) -> list[str]:
    """What the service was told."""
    return (folder / "payments.txt").read_text("utf-8").split()


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, check=False, cwd=folder, encoding="utf-8")


@pytest.mark.timeout(120)  # DBOS is started three times
def test_the_program_on_dbos_pays_once_when_it_was_killed(tmp_path: Path, wording: Wording) -> None:
    """It prints what the page shows; after a kill it goes on, and says that the outcome is unknown."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    done = run(ON_DBOS, whole)
    assert (done.stdout, done.returncode) == (OUTPUT, 0), done.stderr
    assert run(with_kill(ON_DBOS), killed).returncode == -signal.SIGKILL
    assert paid(killed) == paid(whole) == ["A-1", "A-2"]
    done = run(with_kill(ON_DBOS), killed)
    assert (done.stdout, done.returncode) == (wording, 0), done.stderr
    assert paid(killed) == ["A-1", "A-2"]


_HEAD = """
import asyncio
from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.capabilities import DynamicCapability
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.test import TestModel
import handrail.store
from handrail import ToolExecutor, tool
from handrail.adapters.pydantic_ai import HandrailCapability
from handrail.runtime import Session
model = TestModel()
@tool(effect="external")
def pay(number: str) -> str:
    '''Pay an order.'''
    return f"{number} is paid"
"""
_TAIL = """
DBOS(config={"name": "desk", "application_version": "1", "log_level": "CRITICAL"})
with handrail.store.open("sqlite:///desk.db") as store:
    DBOS.launch()
    print(DBOS.start_workflow(run, "Pay it.").get_result())
    DBOS.destroy()
"""


@pytest.mark.timeout(120)  # it starts DBOS
def test_the_agent_runs_in_a_workflow(tmp_path: Path) -> None:
    """With an executor for each run. `chaos.engines` kills one such."""
    done = run(_HEAD + WITH_AGENT + _TAIL, tmp_path)
    assert (done.stdout, done.returncode) == ('{"pay":"a is paid"}\n', 0), done.stderr


@contextmanager
def worker(folder: Path) -> Generator[dict[str, str]]:
    """A worker of the program `tasks.py` of a folder, with its queue in a database; gives the environment of others."""
    environment = {
        **os.environ,
        "CELERY_BROKER_URL": f"sqla+sqlite:///{folder}/queue.db",
        "CELERY_RESULT_BACKEND": f"db+sqlite:///{folder}/results.db",
    }
    command = [sys.executable, "-m", "celery", "--app", "tasks", "worker", "--concurrency", "1"]
    command += ["--loglevel", "CRITICAL", "--", "worker.lost_wait=0.1"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield environment
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.timeout(120)  # it starts a worker
def test_the_task_of_celery_pays_once_when_its_process_was_killed(tmp_path: Path, wording: Wording) -> None:
    """Another process of the pool gets the task; the first answer is from the record, and the second says unknown."""
    (tmp_path / "tasks.py").write_text(with_kill(ON_CELERY), encoding="utf-8")
    ask = 'from tasks import answer; print(*answer.delay(["A-1", "A-2"]).get(timeout=60), sep="\\n")'
    with worker(tmp_path) as environment:
        command = [sys.executable, "-c", ask]
        done = subprocess.run(
            command, capture_output=True, check=False, cwd=tmp_path, env=environment, encoding="utf-8"
        )
    assert (done.stdout, done.returncode) == (wording, 0), done.stderr
    assert paid(tmp_path) == ["A-1", "A-2"]
