"""Plain function calls: a loop over the replies of the model. A program that was killed begins again."""

from __future__ import annotations

from typing import Any

from proof.desk import Answer, Call, Desk, PlainFiles


def run(desk: Desk) -> None:
    """Brings the conversation to its end."""
    state: dict[str, Any] = {}
    files = PlainFiles(desk.root)

    def execute(call: Call) -> str:
        if call.name == "pay":
            if desk.asks and not desk.ask_person(**call.arguments):
                return "a person has refused it"
            return desk.pay(**call.arguments, key=f"pay {call.arguments['order']}")
        if call.name == "ship":
            return desk.ship(**call.arguments, state=state, files=files)
        return desk.read_mail() if call.name == "read_mail" else desk.act(**call.arguments)

    answers: list[Answer] = []
    while calls := desk.ask_model(answers):
        for call in calls:
            try:
                text = execute(call)
            except Exception as error:  # noqa: BLE001 - the model reads it, and may try again
                text = f"{type(error).__name__}: {error}"
            answers.append(Answer(call.id, text))
    desk.finish(state)
