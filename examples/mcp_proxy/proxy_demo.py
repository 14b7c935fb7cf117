"""`handrail proxy` in front of a bank: the bank dies in a payment, then the proxy is killed, and nothing is paid twice.

    python examples/mcp_proxy/proxy_demo.py --help

The screen is that of the refund desk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "refund_desk"))

import mcp_types as t
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.session import ClientRequestContext

from day_proof import Finding
from rich_screen import screen_on
from screen import Act, Screen, Step, Verdict
from termination import exit_code_of, run_interruptible
from typed_paths import typed_path

ABOUT = """\
A client pays through the MCP server of a bank, with `handrail proxy` between them. The bank dies in a payment, then the
proxy is killed in one; then the same happens without the proxy. At the end each promise is PASS or FAIL. The exit code
is 0 if all hold, 1 if one does not. --fault leaves the proxy out, to see what FAIL looks like.
"""
FIRST_LINE = (
    "Handrail makes each tool call of an agent a transaction. This demo shows what that means for the tools of an MCP "
    "server behind `handrail proxy`."
)
ASKED = "a person is asked about the payment to a new account, and about no other"
DIED = "when the bank dies in a payment, it has paid once, and the client has the answer"
KILLED = "when the proxy is killed in a payment, the bank has paid once, and the client has the answer"
NEW, BANK_DIES, SERVER_KILLED = "deposit", "rent of May", "rent of June"
ORDERS = {  # the account, and what happens to the first payment
    NEW: ("new-account", ""),
    BANK_DIES: ("landlord", " The bank will die when it has paid."),
    SERVER_KILLED: ("landlord", " The bank will not answer at once."),
}

HERE = Path(__file__).parent
BANK = (sys.executable, str(HERE / "bank_server.py"))


@dataclass
class Customer:
    """A client, which repeats a call whose answer was lost; `server` is the command of what it calls."""

    screen: Screen
    folder: Path
    server: Sequence[str]
    answers: dict[str, object] = field(default_factory=dict[str, object])
    questions: list[str] = field(default_factory=list[str])

    async def pay(self, *orders: str) -> None:
        """Pays orders. A call that is made again has the same key, by which the proxy knows it."""
        killing = asyncio.create_task(self._kill_server())
        while len(self.answers) < len(orders):
            async with Client(self._process(), elicitation_callback=self._answer) as client:
                try:
                    for order in orders[len(self.answers) :]:
                        account, accident = ORDERS[order]
                        will_be = "" if self.paid(order) else accident
                        self.screen.noted(f"The client calls pay for the {order}.{will_be}")
                        arguments = {"order": order, "account": account, "cents": 90_000}
                        key: Any = {"dev.handrail/key": order}
                        result = await client.call_tool("pay", arguments, meta=key)
                        self.answers[order] = result.structured_content
                        self.screen.noted(f"The client reads: {self.answers[order]}")
                        self.screen.noted(f"The bank has paid it {self.paid(order)} x.")
                except MCPError as error:
                    self.screen.noted(f"No answer: {error.message}. The client starts the {self.called} again.")
        await killing

    def paid(self, order: str) -> int:
        """How often the bank has paid an order."""
        payments = self.folder / "payments.jsonl"
        return payments.read_text().count(f'"order": "{order}"') if payments.exists() else 0

    @property
    def called(self) -> str:
        """What the client calls."""
        return "bank" if self.server is BANK else "proxy"

    async def _kill_server(self) -> None:
        while not self.paid(SERVER_KILLED):  # noqa: ASYNC110 - another process pays
            await asyncio.sleep(0.01)
        self.screen.noted(f"The bank has paid. The {self.called} is killed.")
        os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)

    def _process(self) -> StdioServerParameters:
        # The shell writes its process id, and becomes the server.
        words = ["-c", 'echo $$ > "$0"; exec "$@"', str(self.folder / "pid"), *self.server]
        return StdioServerParameters(command="sh", args=words, env=environment(self.folder))

    async def _answer(self, context: ClientRequestContext, params: t.ElicitRequestParams) -> t.ElicitResult:  # noqa: ARG002 - the SDK's
        self.questions.append(params.message)
        self.screen.noted(f"A person is asked: {params.message} The person says yes.")
        return t.ElicitResult(action="accept", content={"approve": True})


def environment(folder: Path) -> dict[str, str]:
    """That of the processes; by `servers.yaml` the bank is run by the first `python` of the path."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "BANK": str(folder), "BANK_DIES": BANK_DIES, "BANK_HANGS": SERVER_KILLED}


def perform(screen: Screen, *, fault: bool) -> bool:
    """Shows both runs; whether all promises hold."""
    act = Act("Through the proxy", (ASKED, DIED, KILLED))
    screen.promised([act])
    folder = Path(mkdtemp(prefix="handrail-proxy-"))
    files = ("--config", str(HERE / "servers.yaml"), "--rules", str(HERE / "approval.yaml"))
    store = ("--store", f"sqlite:///{folder}/calls.db")
    proxy = (sys.executable, "-m", "handrail", "proxy", *files, *store, "--session", "client")
    screen.headed("What the proxy knows of the bank")
    subprocess.run([*proxy, "--explain"], env=environment(folder), check=True)  # noqa: S603 - our own command
    screen.headed(act.title)
    customer = Customer(screen, folder, BANK if fault else proxy)
    run_interruptible(customer.pay(*ORDERS))
    screen.headed("The same accidents without the proxy")
    run_interruptible(Customer(screen, Path(mkdtemp(prefix="handrail-bank-")), BANK).pay(BANK_DIES, SERVER_KILLED))
    found = findings(customer)
    screen.judged([Verdict(act, found)])
    handrail = (typed_path(Path(sys.executable)), "-m", "handrail")
    screen.advised(
        [
            Step("see the calls of the client", (*handrail, "sessions", "show", "client", *store)),
            Step("see the payments in the ledger", (*handrail, "ledger", "list", *store)),
            Step("see promises broken: exit code 1", (handrail[0], typed_path(Path(__file__)), "--fault")),
        ]
    )
    return all(finding.holds for finding in found)


def findings(customer: Customer) -> tuple[Finding, ...]:
    """What came of the promises."""
    asked = [order for text in customer.questions for order in (NEW, BANK_DIES, SERVER_KILLED) if order in text]
    findings = [Finding(ASKED, asked == [NEW], f"asked about: {', '.join(asked) or 'none'}")]
    for promise, order in ((DIED, BANK_DIES), (KILLED, SERVER_KILLED)):
        paid, is_answered = customer.paid(order), f"'order': '{order}'" in f"{customer.answers[order]}"
        findings.append(Finding(promise, paid == 1 and is_answered, f"paid {paid} x"))
    return tuple(findings)


def main() -> int:
    """Perform the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="proxy_demo", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plain", action="store_true", help="plain lines, as without a terminal")
    parser.add_argument("--fault", action="store_true", help="leave the proxy out, to see a FAIL")
    options = parser.parse_args()
    screen = screen_on(sys.stdout, plain=options.plain, about=FIRST_LINE)
    return exit_code_of("proxy demo", None, lambda: 0 if perform(screen, fault=options.fault) else 1)


if __name__ == "__main__":
    sys.exit(main())
