"""The tools of the refund desk, called through the pipeline; its payment service, its proof, and SIGTERM."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date

import pytest

from call_trace import CallTrace, Outcome, outcome_of, state_digest
from day_proof import prove
from desk import Desk, desk_prompt, inbox_files
from handrail.adapters.tool_executor import ToolExecutor
from handrail.runtime import Session, Step, ToolCall, ToolInvoked, ToolMessage
from payments import PROGRAM, Payments, running_service
from refunds import Refund, Rules, Supervisor
from report import REFUNDS, REPORT
from shop import Shop
from termination import interrupt_on_sigterm, run_interruptible


class DeskAtWork:
    """A desk and the executor of its calls."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.trace = CallTrace(desk.session, desk.files, lambda _call: None)
        desk.session.dispatcher.subscribe(ToolInvoked, self.trace)
        self._executor = ToolExecutor(prompt=desk_prompt(desk), session=desk.session, approver=Supervisor(desk.shop))

    def call(self, name: str, **arguments: object) -> ToolMessage:
        """Make a call."""
        return self._executor.execute(ToolCall(f"call-{len(self.trace.calls) + 1}", name, json.dumps(arguments)))

    def refund(self, order_id: str, amount_cents: int) -> ToolMessage:
        """Ask for a refund, as a model does that has looked an order up."""
        self.call("lookup_order", order_id="A-1001")
        return self.call("issue_refund", order_id=order_id, amount_cents=amount_cents)

    @property
    def last(self) -> ToolInvoked:
        """What was recorded of the last call."""
        return self.trace.calls[-1].event


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """The shop, as the desk finds it."""
    return Shop.make(tmp_path_factory.mktemp("shop") / "shop.db")


@pytest.fixture
def payments() -> Iterator[Payments]:
    """A payment service that loses its first answers for A-1009 and A-1010, and books A-1010 late."""
    with running_service(lose_answers_for=["A-1009", "A-1010"], book_late_for=["A-1010"]) as service:
        yield service


@pytest.fixture
def at_work(shop: Shop, payments: Payments) -> DeskAtWork:
    """A desk at the beginning of the day."""
    return DeskAtWork(Desk(shop, payments, Rules(date(2026, 3, 4)), Session(), inbox_files()))


@pytest.mark.parametrize("order_id, amount_cents, step, told", [
    ("A-1999", 100, Step.POLICY, "no order A-1999"), ("A-1006", 6_400, Step.POLICY, "refunded before today"),
    ("A-1001", 4_991, Step.POLICY, "paid with 4990 cents"), ("A-1001", 0, Step.POLICY, "0 cents cannot be refunded"),
    ("A-1008", 100_001, Step.POLICY, "more than the desk may pay"),
    ("A-1007", 20_001, Step.APPROVAL, "neither lost nor back"),
    ("A-1008", 100_000, Step.APPROVAL, "neither lost nor back"),
])  # fmt: skip
def test_a_refund_against_the_rules_is_refused_and_not_paid(
    at_work: DeskAtWork, order_id: str, amount_cents: int, step: Step, told: str
) -> None:
    """Policy and supervisor judge before anything runs, so neither the service nor the ledger hears of the refund."""
    message = at_work.refund(order_id, amount_cents)
    assert not message.success
    assert told in message.content
    assert at_work.last.refused_at is step
    assert outcome_of(at_work.last) is Outcome.REFUSED
    assert at_work.desk.payments.counts() == {}


def test_a_large_refund_for_lost_goods_is_paid(at_work: DeskAtWork) -> None:
    """The supervisor agrees to what was lost on the way."""
    assert at_work.refund("A-1004", 32_000).success
    assert at_work.desk.payments.counts() == {"A-1004": 1}


def test_a_refund_before_any_look_at_an_order_is_refused(at_work: DeskAtWork) -> None:
    """The desk looks before it pays."""
    message = at_work.call("issue_refund", order_id="A-1001", amount_cents=4_990)
    assert not message.success
    assert "lookup_order" in message.content


def test_a_lost_answer_is_found_out_and_not_paid_again(at_work: DeskAtWork) -> None:
    """The refund was paid, nobody heard of it, and the same call is answered with what the service has for its key."""
    for _ in range(2):
        found = at_work.refund("A-1009", 3_500)
        assert (found.success, found.replayed) == (True, True)
        assert at_work.desk.session[Refund].all() == (Refund("rf-001", "A-1009", 3_500),)
        assert at_work.desk.payments.counts() == {"A-1009": 1}


def test_a_refund_that_is_not_booked_yet_is_unknown_and_not_paid_again(at_work: DeskAtWork) -> None:
    """It may still be on its way, so its absence proves nothing; asking again finds it by its key."""
    lost = at_work.refund("A-1010", 4_500)
    assert not lost.success
    assert "nobody knows" in lost.content
    assert outcome_of(at_work.last) is Outcome.ROLLED_BACK
    assert at_work.desk.session[Refund].all() == ()
    assert at_work.desk.payments.counts() == {"A-1010": 1}
    found = at_work.refund("A-1010", 4_500)
    assert (found.success, found.replayed) == (True, True)
    assert at_work.desk.session[Refund].all() == (Refund("rf-001", "A-1010", 4_500),)
    assert at_work.desk.payments.counts() == {"A-1010": 1}


def test_a_report_that_fails_half_way_leaves_nothing(at_work: DeskAtWork) -> None:
    """The first file had been written when the figures turned out to be wrong; all faults are told at once."""
    at_work.refund("A-1001", 4_990)
    before = state_digest(at_work.desk.session, at_work.desk.files)
    twice = {"request": "R-01", "verdict": "refunded", "amount_cents": 4_990, "note": "-"}
    message = at_work.call("file_report", decisions=[twice, twice, {**twice, "request": "R-99"}])
    assert outcome_of(at_work.last) is Outcome.ROLLED_BACK
    for fault in ("R-02 is missing", "no request R-99", "R-01 is decided 2 times", "14970 cents, but 4990 cents"):
        assert fault in message.content
    assert not at_work.desk.files.exists(REPORT)
    assert state_digest(at_work.desk.session, at_work.desk.files) == before


def test_a_right_report_is_filed_in_two_files(at_work: DeskAtWork) -> None:
    """What the session knows was paid stands in the list for the book-keeping; notes cannot break the table."""
    at_work.refund("A-1001", 4_990)
    paid = {"request": "R-01", "verdict": "refunded", "amount_cents": 4_990, "note": "broken"}
    no = {"verdict": "refused", "amount_cents": 0, "note": "a|b\nc"}
    decisions = [paid, *({"request": f"R-{number:02}", **no} for number in range(2, 12))]
    assert at_work.call("file_report", decisions=decisions).success
    page = at_work.desk.files.read_text(REPORT)
    assert "| R-01 | refunded | 49.90 EUR | broken |" in page
    assert "| R-11 | refused |  | a\\|b c |" in page
    assert at_work.desk.files.read_text(REFUNDS) == "refund,order,amount_cents\nrf-001,A-1001,4990\n"


def test_a_refund_paid_twice_breaks_the_proof(at_work: DeskAtWork) -> None:
    """The service honours no key: whoever goes past the runtime is counted, and the proof says so."""
    at_work.refund("A-1001", 4_990)
    at_work.desk.payments.pay("A-1001", 4_990, key="past the runtime")
    proof = prove(at_work.desk, at_work.trace, failure="")
    assert not proof.holds
    assert "A-1001 2 times" in [finding.found for finding in proof.findings if not finding.holds]


def test_a_refund_that_only_the_service_knows_breaks_the_proof(at_work: DeskAtWork) -> None:
    """What was paid and what the session holds must be the same orders."""
    at_work.desk.payments.pay("A-1002", 1, key="past the runtime")
    proof = prove(at_work.desk, at_work.trace, failure="")
    assert "0 in the session, 1 paid" in [finding.found for finding in proof.findings if not finding.holds]


def test_the_service_ends_when_its_caller_dies() -> None:
    """A caller that is killed cannot close anything; the end of the service's standard input is enough."""
    start = f"subprocess.Popen([sys.executable, {str(PROGRAM)!r}], stdin=subprocess.PIPE)"
    caller = f"import os, subprocess, sys\nservice = {start}\nos._exit(7)"
    # The service inherits the pipe of the caller's output, so reading that to its end is waiting for the service.
    ended = subprocess.run([sys.executable, "-c", caller], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 7


@pytest.fixture
def sigterm() -> Iterator[None]:
    """SIGTERM as the desk takes it."""
    before = signal.getsignal(signal.SIGTERM)
    interrupt_on_sigterm()
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm", "ctrl_c")
@pytest.mark.parametrize("ctrl_c_ignored", [False, True])
def test_sigterm_in_a_nested_task_ends_the_run_in_order(ctrl_c_ignored: bool) -> None:
    """The signal handler runs in the nested task, but what ends is the main task; no exception group is raised.

    It does not depend on SIGINT, which is ignored where the desk runs in the background of a script.
    """
    if ctrl_c_ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended: list[str] = []

    async def terminated() -> None:
        signal.raise_signal(signal.SIGTERM)
        ended.append("handler returned")

    async def work() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(terminated())
                await asyncio.Event().wait()
        finally:
            ended.append("main task cancelled")

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work())
    assert ended == ["handler returned", "main task cancelled"]
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler


@pytest.mark.usefixtures("sigterm")
def test_sigterm_that_comes_too_late_to_cancel_is_not_lost() -> None:
    """The coroutine has returned before its task could be cancelled."""

    async def work() -> None:
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work())
