"""A week at the desk as one file, which a test replays: `python examples/refund_desk/week.py runs/week.json`.

The model is a script. The payment service is real when the week is recorded, and is not there when it is replayed.
"""

from __future__ import annotations

import sys
from datetime import date
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from day import ANSWER_LOST_FOR, BOOKED_LATE_FOR, SCRIPT
from desk import Desk, desk_prompt, inbox_files
from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.replay import Recording
from handrail.runtime import Session, ToolCall
from handrail.testing.script_file import read_script
from payments import Payments, running_service
from refunds import Rules, Supervisor
from shop import Shop

DAY = date(2026, 3, 4)
"""The day with which reports are dated."""

LATER = Path(__file__).with_name("week.yaml")
"""What the scripted model says after the first day."""


@cache
def week_shop() -> tuple[Shop, TemporaryDirectory[str]]:
    """The shop of this process, in a folder that is removed at its end."""
    folder = TemporaryDirectory(prefix="refund-desk-")
    return Shop.make(Path(folder.name) / "shop.db"), folder


def desk_executor(session: Session, payments: Payments | None = None) -> ToolExecutor:
    """The executor of the desk for a session; a replay pays nothing, so it needs no service."""
    shop, _ = week_shop()
    desk = Desk(shop, payments or Payments(0), Rules(DAY), session, inbox_files())
    return ToolExecutor(prompt=desk_prompt(desk), session=session, approver=Supervisor(shop))


def record_week() -> Recording:
    """Let the scripted model work for a week, and record it."""
    replies = [*read_script(SCRIPT).replies, *read_script(LATER).replies]
    with (
        store.open("memory:") as kept,
        running_service(lose_answers_for=ANSWER_LOST_FOR, book_late_for=BOOKED_LATE_FOR) as payments,
        Session.open(kept, "desk-week") as session,
        desk_executor(session, payments) as executor,
    ):
        talk, begins = session.conversation, True
        for number, reply in enumerate(replies):
            if begins:
                talk.append({"role": "user", "content": "Decide what has come in."})
            calls = [ToolCall(call.id, call.name, call.arguments_text) for call in reply.calls]
            said = {"role": "assistant", "content": reply.text}
            talk.append(said, calls=calls, reply=f"reply-{number}" if calls else None, ended=not calls)
            begins = not calls
            if calls:
                answers = executor.execute_all(talk.calls, reply=talk.reply)
                talk.append(*({"role": "tool", "tool_call_id": one.call_id, "content": one.content} for one in answers))
        return Recording.of(kept, "desk-week")


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    record_week().save(path)
