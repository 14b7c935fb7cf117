"""Handrail below a loop of one's own: the session stores the conversation, and `executor.answer` runs the calls."""

from __future__ import annotations

import json

from handrail import ToolExecutor, store
from handrail.adapters.tool_executor import PendingAnswers
from handrail.prompt import Approval, ApprovalRequest
from handrail.runtime import ToolCall
from proof.contenders.handrail_tools import open_prompt
from proof.desk import Answer, Desk


class Office:
    """Answers for a person: what was not asked yet waits, so that the program can close its session meanwhile."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._verdicts: dict[tuple[str, str], bool | None] = {}

    def approve(self, request: ApprovalRequest) -> Approval:
        """The verdict about a payment, exactly as it stands."""
        verdict = self._verdicts.setdefault((request.params.order, request.params.amount), None)
        return Approval.later() if verdict is None else Approval(approved=verdict)

    def ask(self) -> None:
        """Asks about all that waits."""
        for payment, verdict in self._verdicts.items():
            self._verdicts[payment] = self._desk.ask_person(*payment) if verdict is None else verdict


def run(desk: Desk) -> None:
    """Brings the conversation to its end; while a person thinks, the session is closed."""
    office = Office(desk)
    while not work(desk, office):
        office.ask()


def work(desk: Desk, office: Office) -> bool:
    """Runs calls until the conversation ends, or waits for a person; whether it has ended."""
    with (
        store.open(f"sqlite:///{desk.folder / 'desk.db'}") as opened,
        opened.session("run") as session,
        open_prompt(desk, opened) as (prompt, shop),
    ):
        executor = ToolExecutor(prompt=prompt, session=session, approver=office.approve)
        talk = session.conversation
        while not isinstance(answers := executor.answer(), PendingAnswers):
            talk.append(*({"role": "tool", "id": each.call_id, "text": each.content} for each in answers))
            read = [Answer(each["id"], each["text"]) for each in talk.messages if each["role"] == "tool"]
            calls = [ToolCall(call.id, call.name, json.dumps(call.arguments)) for call in desk.ask_model(read)]
            if not calls:
                desk.finish(shop.value)
                return True
            talk.append({"role": "assistant"}, calls=calls, reply=f"reply-{len(talk)}")
    return False
