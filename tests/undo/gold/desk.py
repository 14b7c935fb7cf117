"""The day at the refund desk of the examples: refunds are undone by charges, files and slices are restored.

The service pays two refunds without an answer, and finds one of them only when it is asked a second time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from day import ANSWER_LOST_FOR, BOOKED_LATE_FOR, DAY, SCRIPT
from desk import DESK_TOOLS, TASK, desk_policies, inbox_files
from handrail.contrib.tools import PlanningStrategy, PlanningToolsSection, VfsToolsSection
from handrail.filesystem import Filesystem
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, ToolContext, ToolResult, Undo
from handrail.runtime import Session
from payment_service import Book, Paid
from payments import Payments
from refunds import Refund, Rules, Supervisor, issue_refund
from shop import Shop
from tests.taint.agentdojo.injected import Asked
from tests.undo.gold.worlds import Entry, World


@dataclass(frozen=True, slots=True)
class BookInProcess(Payments):
    """The payment service of the example, without its process; a charge takes a refund back."""

    book: Book

    def pay(self, order_id: str, amount_cents: int, *, key: str) -> Paid:
        paid, has_answered = self.book.pay(order_id, amount_cents, key)
        if not has_answered:
            raise ConnectionError("the service did not answer")
        return paid

    def find(self, key: str) -> Paid | None:
        return self.book.find(key)

    def charge(self, refund_id: str) -> None:
        self.book.paid[:] = [paid for paid in self.book.paid if paid.refund_id != refund_id]


def _charge(params: Any, result: ToolResult[Refund], before: None, *, context: ToolContext) -> None:
    assert result.value is not None
    payments = context.resources.get(Payments)
    assert isinstance(payments, BookInProcess)
    payments.charge(result.value.refund_id)


_TOOLS = [replace(each, undo=Undo(_charge)) if each is issue_refund else each for each in DESK_TOOLS]


def entry(folder: Path) -> Entry:
    """The day, with its shop in a folder."""
    shop = Shop.make(folder / "shop.db")

    def begin() -> World:
        book = Book(set(ANSWER_LOST_FOR), set(BOOKED_LATE_FOR))
        return World(book, _run, book.counts, inbox_files())

    def make_prompt(world: World, session: Session) -> Prompt[Any]:
        assert isinstance(world.root, Book)
        desk = MarkdownSection[Rules](title="Refund desk", template=TASK, tools=_TOOLS, policies=desk_policies())
        plans = PlanningToolsSection(session=session, strategy=PlanningStrategy.PLAN_ACT_REFLECT)
        template = PromptTemplate(ns="tests", key="desk", sections=[desk, plans, VfsToolsSection()])
        rules, payments = Rules(DAY), BookInProcess(0, world.root)
        resources = {Shop: shop, Payments: payments, Rules: rules, Filesystem: world.files}
        return Prompt(template).bind(rules, resources=resources)

    return Entry("Refund desk", "day", _calls(), make_prompt, begin, Supervisor(shop))


def _run(asked: Asked) -> Any:
    raise NotImplementedError(asked.function)


def _calls() -> list[Asked]:
    """What the scripted model of the example asks for, its mistakes among them."""
    yaml: Any = YAML(typ="safe")  # has no types
    script = yaml.load(SCRIPT.read_text(encoding="utf-8"))
    calls = [call for reply in script["replies"] for call in reply.get("calls", [])]
    return [Asked(call["name"], call["arguments"]) for call in calls]
