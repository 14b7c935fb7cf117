"""One day at the desk: everything is set up, the agent works, and what is left is counted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

from pydantic_ai.models import Model

from call_trace import CallTrace
from day_proof import Proof, pay_past_the_runtime, prove
from desk import Desk, desk_prompt, inbox_files
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.errors import HandrailError
from handrail.limits import Deadline
from handrail.prompt import Approval, ApprovalRequest
from handrail.runtime import Session, ToolInvoked
from handrail.testing import ScriptedModel
from payments import running_service
from refunds import Rules, Supervisor
from replies import replies_shown
from report import REPORT
from screen import Screen
from shop import Shop
from termination import run_interruptible

SCRIPT = Path(__file__).with_name("model.yaml")
"""What the scripted model says."""

DAY = date(2026, 3, 4)
"""The day of the newest request. The report is dated with it, so that the same decisions give the same report."""

PATIENCE = timedelta(minutes=10)
"""How long the agent may work."""

ANSWER_LOST_FOR = ("A-1009", "A-1010")
"""The payment service pays the first refund of these orders, and then its answer is lost."""

BOOKED_LATE_FOR = ("A-1010",)
"""The first look-up does not find these refunds yet, so their outcome is unknown until it is looked up again."""


def scripted_model() -> ScriptedModel:
    """The model that errs the way models do."""
    return ScriptedModel.from_file(SCRIPT, name=f"scripted by {SCRIPT.name}")


def work(model: Model | str, folder: Path, screen: Screen, *, fault: bool = False) -> Proof:
    """Let a model work for a day; the shop, the report and the handover are left in the folder.

    Args:
        model: the model, or its PydanticAI name.
        folder: where the files are left.
        screen: where the day is shown.
        fault: whether to pay a refund past the runtime, so that a promise is broken.

    Raises:
        UserError, ImportError, UnknownModelError: PydanticAI cannot use the model.
    """
    folder.mkdir(parents=True, exist_ok=True)
    screen.opened(model if isinstance(model, str) else model.model_name)
    with running_service(lose_answers_for=ANSWER_LOST_FOR, book_late_for=BOOKED_LATE_FOR) as payments:
        desk = Desk(
            shop=Shop.make(folder / "shop.db"),
            payments=payments,
            rules=Rules(DAY),
            session=Session(session_id="refund-desk"),
            files=inbox_files(),
        )
        trace = CallTrace(desk.session, desk.files, screen.called)
        desk.session.dispatcher.subscribe(ToolInvoked, trace)
        failure = run_agent(model, desk, screen)
        if fault:
            pay_past_the_runtime(payments)
        proof = prove(desk, trace, failure=failure)
    screen.closed(desk.files.read_text(REPORT) if desk.files.exists(REPORT) else "", proof)
    for stat in desk.files.list():
        (folder / stat.path).write_bytes(desk.files.read_bytes(stat.path))
    return proof


def run_agent(model: Model | str, desk: Desk, screen: Screen) -> str:
    """Run the agent of a desk to its answer; what went wrong instead, or nothing.

    Raises:
        UserError, ImportError, UnknownModelError: PydanticAI cannot use the model.
    """
    adapter = PydanticAIAdapter(model, approver=_supervised(desk.shop, screen), capabilities=[replies_shown(screen)])
    try:
        # The scripted model begins with its first reply in each process, so an interrupted evaluation is not resumed.
        evaluation = adapter.evaluate_async(
            desk_prompt(desk), session=desk.session, deadline=Deadline.after(PATIENCE), unfinished="discard"
        )
        response = run_interruptible(evaluation)
        if isinstance(model, ScriptedModel):
            model.assert_finished()
    except HandrailError as error:
        return f"{type(error).__name__}: {error}"
    if response.output is not None:
        screen.answered(response.output)
    return ""


def _supervised(shop: Shop, screen: Screen) -> Callable[[ApprovalRequest], Approval]:
    """The supervisor, with what was asked and answered shown on the screen."""
    supervisor = Supervisor(shop)

    def approve(request: ApprovalRequest) -> Approval:
        answer = supervisor(request)
        screen.asked(request, answer)
        return answer

    return approve
