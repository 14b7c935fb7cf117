"""Workers are killed while they pay orders; others continue their runs, and each order is paid once.

    python examples/worker/worker_demo.py --help

The store is a file of SQLite, with one worker at a time; `HANDRAIL_STORE` may name one in PostgreSQL, for two workers.
The screen is that of the refund desk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import IO

sys.path.append(str(Path(__file__).resolve().parents[1] / "refund_desk"))

from day_proof import Finding
from handrail import store
from handrail.operations.runs import decode_run
from handrail.worker import submit
from rich_screen import screen_on
from screen import Act, Screen, Step, Verdict
from termination import exit_code_of
from typed_paths import typed_path

ABOUT = """\
Orders are submitted, and workers pay them. Six times a worker is killed between a payment and its answer, and another
one is started. At the end each promise is PASS or FAIL. The exit code is 0 if all hold, 1 if one does not. --fault
has an interrupted payment made again, to see what FAIL looks like.
"""
FIRST_LINE = "Handrail makes each tool call a transaction. This demo shows what that means when workers are killed."
ENDED = "every run has finished, whichever worker was killed"
ONCE = "the bank has paid each order once"
KILLS, POLL_SECONDS = 4, 0.02  # fewer kills than `MOST_ATTEMPTS` of a run
ORDERS = tuple(f"A-{number}" for number in range(1, 13))

HERE = Path(__file__).parent


@dataclass
class Workers:
    """The processes that work on the queue of one demo.

    Attributes:
        folder: that of the bank and of the log.
        options: the store and the queue, as options of the command.
        log: what the processes write to standard error.
        fault: whether interrupted payments are made again.
        processes: those that run.
    """

    folder: Path
    options: tuple[str, ...]
    log: IO[str]
    fault: bool
    processes: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])

    def start(self) -> subprocess.Popen[str]:
        """Starts one."""
        named = ("-m", "handrail", "worker", "--agents", "order_agent", "--concurrency", "2", *self.options)
        path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        bank, fault = str(self.folder / "bank.txt"), "1" if self.fault else ""
        env = {**os.environ, "PYTHONPATH": path, "BANK": bank, "FAULT": fault}
        process = subprocess.Popen((sys.executable, *named), env=env, stderr=self.log, text=True)  # noqa: S603 - our own
        self.processes.append(process)
        return process

    def kill(self) -> int:
        """Kills the one that was started first; returns its process id."""
        process = self.processes.pop(0)
        process.kill()
        process.wait()
        return process.pid

    def wait(self) -> None:
        """Waits for a moment.

        Raises:
            SystemExit: a worker has ended by itself.
        """
        time.sleep(POLL_SECONDS)
        if any(process.poll() is not None for process in self.processes):
            sys.exit(f"a worker has ended by itself; see {self.log.name}")

    def close(self) -> None:
        """Stops all of them."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()

    def payments(self) -> Counter[str]:
        """How often the bank has paid each order."""
        bank = self.folder / "bank.txt"
        return Counter(bank.read_text(encoding="utf-8").split() if bank.exists() else ())


def perform(screen: Screen, *, fault: bool) -> bool:
    """Shows the kills; whether all promises hold."""
    act = Act("Workers are killed", (ENDED, ONCE))
    screen.promised([act])
    folder = Path(mkdtemp(prefix="handrail-worker-"))
    url = os.environ.get("HANDRAIL_STORE") or f"sqlite:///{folder}/runs.db"
    count = 2 if url.startswith("postgres") else 1
    screen.headed(act.title)
    with (
        store.open(url) as kept,
        (folder / "workers.log").open("w", encoding="utf-8") as log,
        closing(Workers(folder, ("--store", url, "--queue", folder.name), log, fault)) as workers,
    ):
        for order in ORDERS:
            submit(kept, f"{folder.name}-{order}", agent="clerk", input=order, queue=folder.name)
        screen.noted(f"{len(ORDERS)} runs are submitted to {kept.url}, one for each order.")
        pids = [workers.start().pid for _ in range(count)]
        screen.noted(f"Working: {' and '.join(f'worker {pid}' for pid in pids)}.")
        kill_often(screen, workers)
        while any(row.queue == folder.name and row.status == "open" for row in kept.runs()):
            workers.wait()
        runs = [decode_run(row, kept) for row in kept.runs() if row.queue == folder.name]
        payments = workers.payments()
    for row, data in reversed(runs):
        screen.noted(f"{data.input}: paid {payments[data.input or '']} x, run {row.status}: {data.text}")
    ended = sum(row.status == "finished" for row, _ in runs)
    paid_once = sum(payments[order] == 1 for order in ORDERS)
    findings = (
        Finding(ENDED, ended == len(ORDERS), f"{ended} of {len(ORDERS)}, {KILLS} workers killed"),
        Finding(ONCE, paid_once == len(ORDERS), f"{paid_once} of {len(ORDERS)}"),
    )
    screen.judged([Verdict(act, findings)])
    python, options = typed_path(Path(sys.executable)), ("--store", url)
    handrail = (python, "-m", "handrail")
    screen.advised(
        [
            Step("see all runs", (*handrail, "runs", "list", *options)),
            Step("see the calls of one", (*handrail, "sessions", "show", f"{folder.name}-{ORDERS[0]}", *options)),
            Step("see promises broken: exit code 1", (python, typed_path(Path(__file__)), "--fault")),
        ]
    )
    return all(finding.holds for finding in findings)


def kill_often(screen: Screen, workers: Workers) -> None:
    """Kills a worker whenever the bank has paid and not answered yet, and starts another one."""
    for _ in range(KILLS):
        before = workers.payments().total()
        while workers.payments().total() == before:
            workers.wait()
        pid = workers.kill()
        paid = workers.payments().total()
        screen.noted(f"The bank has made {paid} payments. Worker {pid} is killed; worker {workers.start().pid} starts.")


def main() -> int:
    """Performs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="worker_demo", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plain", action="store_true", help="plain lines, as without a terminal")
    parser.add_argument("--fault", action="store_true", help="make interrupted payments again, to see a FAIL")
    options = parser.parse_args()
    screen = screen_on(sys.stdout, plain=options.plain, about=FIRST_LINE)
    return exit_code_of("worker demo", None, lambda: 0 if perform(screen, fault=options.fault) else 1)


if __name__ == "__main__":
    sys.exit(main())
