"""Handrail below a loop of one's own: the session stores the conversation, and `executor.answer` runs the calls."""

from __future__ import annotations

import json

from handrail import ToolExecutor, store
from handrail.adapters.tool_executor import PendingAnswers
from handrail.runtime import ToolCall
from proof.contenders.handrail_office import answer_questions, leave_open
from proof.contenders.handrail_tools import open_prompt, read_shop
from proof.desk import Answer, Desk


def run(desk: Desk) -> None:
    """Brings the conversation to its end; while a person thinks, the session is closed."""
    while not work(desk):
        answer_questions(desk)


def work(desk: Desk) -> bool:
    """Runs calls until the conversation ends, or waits for a person; whether it has ended."""
    with (
        store.open(f"sqlite:///{desk.folder / 'desk.db'}") as opened,
        opened.session("run") as session,
        open_prompt(desk, opened) as prompt,
    ):
        executor = ToolExecutor(prompt=prompt, session=session, approver=leave_open)
        talk = session.conversation
        while not isinstance(answers := executor.answer(), PendingAnswers):
            talk.append(*({"role": "tool", "id": each.call_id, "text": each.content} for each in answers))
            read = [Answer(each["id"], each["text"]) for each in talk.messages if each["role"] == "tool"]
            calls = [ToolCall(call.id, call.name, json.dumps(call.arguments)) for call in desk.ask_model(read)]
            if not calls:
                desk.finish(read_shop(session))
                return True
            talk.append({"role": "assistant"}, calls=calls, reply=f"reply-{len(talk)}")
    return False
