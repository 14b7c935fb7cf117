"""The commands of `handrail approvals`."""

from __future__ import annotations

from cyclopts import App

from handrail.cli.approvals.answer import ANSWER_USAGE, answer_question
from handrail.cli.approvals.show import list_questions, show_question

approvals: App = App(name="approvals", help="List, show and answer the questions about calls that wait.")
"""The group."""

approvals.command(list_questions, name="list", sort_key=1)
approvals.command(show_question, name="show", sort_key=2)
approvals.command(answer_question, name="answer", sort_key=3, usage=ANSWER_USAGE)
