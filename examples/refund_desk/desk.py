"""The refund desk: the prompt of its agent, with the tools it has and the resources they work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from handrail.contrib.tools import PlanningStrategy, PlanningToolsSection, VfsToolsSection
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, SequentialDependencyPolicy, ToolPolicy
from handrail.runtime import Session
from payments import Payments
from refunds import RefundRules, Rules, issue_refund, lookup_order
from report import file_report
from shop import Shop

INBOX = Path(__file__).with_name("inbox")
"""What lies on the desk in the morning."""

TASK = """\
You work at the refund desk of a small shop. It is ${day}.

`requests.csv` holds the refunds that customers ask for. Read it, make a plan, and decide every request:

- Look the order up before you pay anything.
- Refund what was asked for, but only for an order that exists, was not refunded before, and was paid with at least as
  much. If the reason shows that less is due, refund less.
- A second request for the same refund is a duplicate.
- Above ${ask_above_cents} cents a supervisor is asked by the desk itself; more than ${never_above_cents} cents are not
  paid here.
- What cannot be refunded is refused. Do not try to get round a refusal.

When every request is decided, file the report, and add one line to `handover.md` for whoever works here tomorrow.
Keep what the others have written there."""


@dataclass(frozen=True, slots=True)
class DeskSummary:
    """What the agent answers with when the day is done."""

    refunded: int = field(metadata={"description": "How many requests were refunded"})
    duplicates: int = field(metadata={"description": "How many requests asked for the same refund again"})
    refused: int = field(metadata={"description": "How many requests were refused"})
    total_cents: int = field(metadata={"description": "What was paid in all, in euro cents"})
    for_a_person: tuple[str, ...] = field(metadata={"description": "Requests that a person should look into"})


@dataclass(frozen=True, slots=True)
class Desk:
    """Everything that a day at the desk needs."""

    shop: Shop
    payments: Payments
    rules: Rules
    session: Session
    files: Filesystem


def inbox_files() -> InMemoryFilesystem:
    """The files of the inbox, in memory: the desk works on them, and the folder stays as it is."""
    return InMemoryFilesystem({path.name: path.read_bytes() for path in sorted(INBOX.iterdir())})


DESK_TOOLS = (lookup_order, issue_refund, file_report)
"""What the model can do at the desk."""


def desk_policies() -> tuple[ToolPolicy, ...]:
    """What judges their calls: orders are looked up first, and the rules of the desk hold."""
    looked_up = frozenset({"lookup_order"})
    first = SequentialDependencyPolicy(dependencies={"issue_refund": looked_up, "file_report": looked_up})
    return first, RefundRules()


def desk_prompt(desk: Desk) -> Prompt[DeskSummary]:
    """The prompt of the agent, bound to the desk: each section brings its tools, their guidance and their policies."""
    template = PromptTemplate[DeskSummary](
        ns="examples",
        key="refund-desk",
        sections=[
            MarkdownSection[Rules](
                title="Refund desk", key="desk", template=TASK, tools=DESK_TOOLS, policies=desk_policies()
            ),
            PlanningToolsSection(session=desk.session, strategy=PlanningStrategy.PLAN_ACT_REFLECT),
            VfsToolsSection(),
        ],
    )
    return Prompt(template).bind(
        desk.rules, resources={Shop: desk.shop, Payments: desk.payments, Rules: desk.rules, Filesystem: desk.files}
    )
