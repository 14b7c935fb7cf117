"""The programs of `docs/how-to/durable-engines.md`, in processes that are killed after a payment and started again."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import handrail.store
from tests.architecture.sources import ROOT
from tests.wording import Wording

PAGE = (ROOT / "docs" / "how-to" / "durable-engines.md").read_text("utf-8")
TOOL, ON_DBOS, ON_CELERY = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(WITH_AGENT,) = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(OUTPUT,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

_PAYMENT = '        service.write(f"{number}\\n")\n'
_KILL = """
    if number == "A-2" and not Path("died").exists():
        Path("died").touch()
        __import__("os").kill(__import__("os").getpid(), 9)
"""


def save_tool(folder: Path, *, kill: bool = False) -> None:
    """Makes a folder with the tool; with `kill`, its process is killed once, after the payment of A-2."""
    folder.mkdir(exist_ok=True)
    assert TOOL.count(_PAYMENT) == 1
    program = TOOL.replace(_PAYMENT, _PAYMENT + _KILL) if kill else TOOL
    (folder / "payments.py").write_text(program, encoding="utf-8")


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
    save_tool(whole)
    save_tool(killed, kill=True)
    done = run(ON_DBOS, whole)
    assert (done.stdout, done.returncode) == (OUTPUT, 0), done.stderr
    assert run(ON_DBOS, killed).returncode == -signal.SIGKILL
    assert paid(killed) == paid(whole) == ["A-1", "A-2"]
    done = run(ON_DBOS, killed)
    assert (done.stdout, done.returncode) == (wording, 0), done.stderr
    assert paid(killed) == ["A-1", "A-2"]


@pytest.mark.timeout(120)  # it starts DBOS
def test_the_program_on_dbos_comes_again_for_a_session_that_another_process_has(tmp_path: Path) -> None:
    """The step is repeated until the session is free."""
    save_tool(tmp_path)
    with handrail.store.open(f"sqlite:///{tmp_path}/desk.db") as store:
        session = store.session("friday")
        command = [sys.executable, "-u", "-c", ON_DBOS]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            assert program.stderr is not None
            assert any("SessionLockedError" in line for line in program.stderr)
            session.close()
            printed, log = program.communicate()
    assert (printed, program.returncode) == (OUTPUT, 0), log
    assert paid(tmp_path) == ["A-1", "A-2"]


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
def worker(folder: Path) -> Generator[tuple[Path, dict[str, str]]]:
    """A worker of the program, with its queue in files of a folder: its log, and the environment of others."""
    (folder / "tasks.py").write_text(ON_CELERY, encoding="utf-8")
    (folder / "settings.py").write_text("broker_transport = 'chaos.engines.queue_files:Transport'\n", encoding="utf-8")
    for name in ("data_in", "results"):
        (folder / name).mkdir()
    (folder / "data_out").symlink_to("data_in")
    environment = {
        **os.environ,
        "CELERY_BROKER_URL": "filesystem://",
        "CELERY_CONFIG_MODULE": "settings",
        "CELERY_RESULT_BACKEND": f"file://{folder}/results",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "celery", "--app", "tasks", "worker", "--concurrency", "1"]
    command += ["--loglevel", "INFO", "--", "worker.lost_wait=0.1"]
    options: Any = {"cwd": folder, "env": environment, "stdout": subprocess.DEVNULL, "start_new_session": True}
    with (folder / "log.txt").open("wb") as log, subprocess.Popen(command, stderr=log, **options) as process:
        try:
            yield folder / "log.txt", environment
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def ask_task(folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    """A program that has the task of a worker done, and prints its result."""
    ask = 'answer.apply_async((["A-1", "A-2"],), task_id="friday").get(timeout=60)'
    program = f'from tasks import answer; print(*{ask}, sep="\\n")'
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.timeout(120)  # it starts a worker
def test_the_task_of_celery_pays_once_when_its_process_was_killed(tmp_path: Path, wording: Wording) -> None:
    """Another process of the pool gets the task; the first answer is from the record, and the second says unknown."""
    save_tool(tmp_path, kill=True)
    with worker(tmp_path) as (_, environment), ask_task(tmp_path, environment) as program:
        assert program.communicate()[0] == wording
    assert paid(tmp_path) == ["A-1", "A-2"]


@pytest.mark.timeout(120)  # it starts a worker
@pytest.mark.short(0)  # as the program on DBOS
def test_the_task_of_celery_comes_again_for_a_session_that_another_process_has(tmp_path: Path) -> None:
    """Until the session is free."""
    save_tool(tmp_path)
    with (
        handrail.store.open(f"sqlite:///{tmp_path}/desk.db") as store,
        store.session("friday") as session,
        worker(tmp_path) as (log, environment),
        ask_task(tmp_path, environment) as program,
    ):
        while "Retry in" not in log.read_text("utf-8"):
            select.select([], [], [], 0.05)
        session.close()
        assert program.communicate()[0] == OUTPUT
    assert paid(tmp_path) == ["A-1", "A-2"]
