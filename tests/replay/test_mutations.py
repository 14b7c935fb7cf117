"""The recorded week of the refund desk replays equal; a change of its program is found, at the call that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

import week
from desk import DESK_TOOLS, TASK, desk_policies, inbox_files
from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import PlanningStrategy, PlanningToolsSection, VfsToolsSection
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import MarkdownSection, PolicyDecision, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.replay import Recording, replay
from handrail.runtime import IdempotencyConfig, Session
from payments import Payments
from refunds import RefundRules, Rules
from report import REFUNDS, REPORT, ReportFiled
from shop import Order, Shop
from tests.kit import Decides, Kept

pytestmark = pytest.mark.anyio

WEEK = Path(week.__file__).with_name("runs") / "week.json"
FIRST = "reply-0/no-such-tool"
"""The first call: what differs in the prompt, or in a schema, is seen by the request before it."""

DAY = Rules(week.DAY)


@dataclass
class Program:
    """The program of the desk, part by part."""

    task: str = TASK
    title: str = "Refund desk"
    tools: dict[str, Tool[Any, Any]] = field(default_factory=lambda: {tool.name: tool for tool in DESK_TOOLS})
    policies: list[Any] = field(default_factory=lambda: list(desk_policies()))
    told: Rules = DAY
    rules: Rules = DAY
    planning: PlanningStrategy | None = PlanningStrategy.PLAN_ACT_REFLECT
    has_files: bool = True
    more: list[Any] = field(default_factory=list[Any])
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def executor(self, session: Session) -> ToolExecutor:
        """It as the executor of a session."""
        desk = MarkdownSection[Rules](
            title=self.title, key="desk", template=self.task, tools=[*self.tools.values()], policies=self.policies
        )
        sections: list[Any] = [desk, *self.more]
        if self.planning is not None:
            sections.insert(1, PlanningToolsSection(session=session, strategy=self.planning))
        if self.has_files:
            sections.append(VfsToolsSection())
        inbox = {**{stat.path: inbox_files().read_bytes(stat.path) for stat in inbox_files().list()}, **self.files}
        shop, _ = week.week_shop()
        resources: dict[type[Any], object] = {Shop: shop, Payments: Payments(0), Rules: self.rules}
        resources[Filesystem] = InMemoryFilesystem(inbox)
        template = PromptTemplate[str](ns="tests", key="desk", sections=sections)
        return ToolExecutor(prompt=Prompt(template).bind(self.told, resources=resources), session=session)


Mutation = Callable[[Program], object]
"""A change of the program."""


def part(**parts: Any) -> Mutation:
    """A part of the program is another one."""
    return lambda program: program.__dict__.update(parts)


def tool_with(name: str, **options: Any) -> Mutation:
    """A tool has other options."""
    return lambda program: program.tools.update({name: replace(program.tools[name], **options)})


def in_place_of(name: str, other: Tool[Any, Any]) -> Mutation:
    """Another tool is there, in the same place."""

    def act(program: Program) -> None:
        program.tools = {key: other if key == name else one for key, one in program.tools.items()}

    return act


def handled(name: str, change: Callable[[Any, ToolContext, ToolResult[Any]], Any]) -> Mutation:
    """The handler of a tool does something else with its result; its schema is the same."""

    def act(program: Program) -> None:
        before: Any = program.tools[name].handler

        def run(params: Any, *, context: ToolContext) -> ToolResult[Any]:
            result: ToolResult[Any] = before(params, context=context)
            changed = change(params, context, result)
            return result if changed is None else changed

        program.tools[name] = replace(program.tools[name], handler=run)

    return act


def policy(decide: Callable[[Tool[Any, Any], Any], PolicyDecision], name: str = "decides") -> Mutation:
    """There is another policy."""
    return lambda program: program.policies.append(Decides(decide, name))


def on_value(change: Callable[[Any], Any]) -> Callable[[Any, ToolContext, ToolResult[Any]], Any]:
    """The value of a success is another one."""
    return lambda _params, _context, result: replace(result, value=change(result.value)) if result.success else None


def asks(name: str) -> Callable[[Tool[Any, Any], Any], PolicyDecision]:
    """Ask about the calls of a tool."""
    return lambda tool, _: PolicyDecision.ask("really?") if tool.name == name else PolicyDecision.allow()


def denies(name: str, **arguments: Any) -> Callable[[Tool[Any, Any], Any], PolicyDecision]:
    """Deny calls of a tool."""

    def decide(tool: Tool[Any, Any], params: Any) -> PolicyDecision:
        fits = tool.name == name and all(getattr(params, key) == value for key, value in arguments.items())
        return PolicyDecision.deny("no") if fits else PolicyDecision.allow()

    return decide


def look_up_with(function: Any) -> Tool[Any, Any]:
    """The tool that looks orders up, with another signature."""
    decorate: Any = tool(effect="read")
    made: Tool[Any, Any] = decorate(function)
    return replace(made, name="lookup_order")


def lookup_number(order_number: str, *, shop: Shop) -> ToolResult[Order]:  # noqa: D417 - a tool: its resource is not an argument
    """Look an order up in the shop: customer, item, what was paid, and its status.

    Args:
        order_number: Number of the order, e.g. A-1001
    """
    return ToolResult.error("no")


def lookup_order(  # noqa: D417 - a tool: its resource is not an argument
    order_id: Annotated[str, Field(max_length=8)], *, shop: Shop
) -> ToolResult[Order]:
    """Look an order up in the shop: customer, item, what was paid, and its status.

    Args:
        order_id: Number of the order, e.g. A-1001
    """
    return ToolResult.error("no")


def lookup_more(order_id: str, with_history: bool = False, *, shop: Shop) -> ToolResult[Order]:  # noqa: D417 - a tool: its resource is not an argument
    """Look an order up in the shop: customer, item, what was paid, and its status.

    Args:
        order_id: Number of the order, e.g. A-1001
        with_history: Also what was before.
    """
    return ToolResult.error("no")


def renamed(program: Program) -> None:
    """A tool has another name."""
    program.tools["find_order"] = replace(program.tools.pop("lookup_order"), name="find_order")
    program.policies = [RULES]


def without_report(program: Program) -> None:
    """A tool is not offered."""
    del program.tools["file_report"]
    program.policies = [RULES]


def reordered(program: Program) -> None:
    """The tools are offered in another order."""
    program.tools = dict(reversed(program.tools.items()))


def key(**options: Any) -> Mutation:
    """Refunds have another key."""
    desk: dict[str, Any] = {"strategy": "params", "param_keys": ("order_id",), "scope": "shop"}
    desk |= {"ttl": timedelta(days=365), "on_other_arguments": "refuse"}
    config = IdempotencyConfig(**{**desk, **options})
    return tool_with("issue_refund", idempotency=config)


def writes(path: str, text: str) -> Callable[[Any, ToolContext, ToolResult[Any]], Any]:
    """The tool writes one more file."""

    def act(_params: Any, context: ToolContext, _result: ToolResult[Any]) -> None:
        context.resources.get(Filesystem).write_text(path, text)

    return act


def notes(_params: Any, context: ToolContext, _result: ToolResult[Any]) -> None:
    """The tool writes to the session."""
    context.session[Kept].append(Kept("seen"))


def with_report(change: Callable[[str], str], path: str = REPORT) -> Callable[[Any, ToolContext, ToolResult[Any]], Any]:
    """The report has other words."""

    def act(_params: Any, context: ToolContext, _result: ToolResult[Any]) -> None:
        files = context.resources.get(Filesystem)
        files.write_text(path, change(files.read_text(path)))

    return act


def unchecked(_params: Any, context: ToolContext) -> ToolResult[ReportFiled]:
    """The report is filed as it is."""
    return ToolResult.ok(ReportFiled((REPORT,), 0, 0))


class OtherWords(RefundRules):
    """The rules, in other words."""

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:
        """Judge as before."""
        decision = super().check(tool, params, context=context)
        return PolicyDecision.deny(f"{decision.reason} Thank you.") if decision.verdict == "deny" else decision


class Remembers(RefundRules):
    """The rules, which remember what was paid."""

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Remember it."""
        if tool.name == "issue_refund":
            context.session[Kept].append(Kept("paid"))


def policies(*others: Any) -> Mutation:
    """Other policies judge."""
    return part(policies=list(others))


ORDER, RULES = desk_policies()
MUTATIONS: dict[str, tuple[Mutation, str, str]] = {
    # prompts
    "a word of the task": (part(task=TASK.replace("small shop", "big shop")), FIRST, "request"),
    "a rule less in the task": (part(task=TASK.replace("- What cannot be refunded is refused.", "")), FIRST, "request"),
    "the day that it states": (part(told=replace(DAY, day=date(2026, 3, 5))), FIRST, "request"),
    "the amount that it states": (part(told=replace(DAY, ask_above_cents=1)), FIRST, "request"),
    "the title of a section": (part(title="Refunds"), FIRST, "request"),
    "the strategy of planning": (part(planning=PlanningStrategy.REACT), FIRST, "request"),
    "a section less": (part(planning=None), FIRST, "request"),
    "the files less": (part(has_files=False), FIRST, "request"),
    "a section more": (
        lambda program: program.more.append(MarkdownSection(title="Tone", key="tone", template="Be kind.")),
        FIRST,
        "request",
    ),
    # schemas and descriptions
    "a description": (tool_with("lookup_order", description="Look an order up."), FIRST, "request"),
    "the description of a payment": (tool_with("issue_refund", description="Pay."), FIRST, "request"),
    "the name of a parameter": (in_place_of("lookup_order", look_up_with(lookup_number)), FIRST, "request"),
    "a parameter more": (in_place_of("lookup_order", look_up_with(lookup_more)), FIRST, "request"),
    "a limit of a parameter": (in_place_of("lookup_order", look_up_with(lookup_order)), FIRST, "request"),
    "an example less": (tool_with("file_report", examples=()), FIRST, "request"),
    "a tool less": (without_report, FIRST, "request"),
    "the name of a tool": (renamed, FIRST, "request"),
    "the order of the tools": (reordered, FIRST, "request"),
    # policies
    "no order of calls": (policies(RULES), "reply-3/too-early", "outcome"),
    "no rules": (policies(ORDER), "reply-6/supervised", "outcome"),
    "a lower limit for questions": (part(rules=replace(DAY, ask_above_cents=10_000)), "reply-5/call-22", "outcome"),
    "a higher limit for questions": (part(rules=replace(DAY, ask_above_cents=50_000)), "reply-6/supervised", "outcome"),
    "a lower limit for payments": (
        part(rules=replace(DAY, never_above_cents=30_000)),
        "reply-6/supervised",
        "outcome",
    ),
    "a higher limit for payments": (
        part(rules=replace(DAY, never_above_cents=200_000)),
        "reply-6/too-much",
        "outcome",
    ),
    "the words of a refusal": (policies(ORDER, OtherWords()), "reply-6/refunded-before", "message"),
    "a policy that remembers": (policies(ORDER, Remembers()), "reply-5/first", "state"),
    "a policy that asks about reports": (policy(asks("file_report")), "reply-8/half-way", "outcome"),
    "a policy that denies one order": (policy(denies("lookup_order", order_id="A-1009")), "reply-4/call-17", "outcome"),
    "a policy that asks about orders": (policy(asks("lookup_order")), "reply-4/call-10", "outcome"),
    "the key of payments has the amount": (
        key(param_keys=("order_id", "amount_cents")),
        "reply-7/other-amount",
        "outcome",
    ),
    "another amount is answered": (key(on_other_arguments="replay"), "reply-7/other-amount", "outcome"),
    "payments have no key": (
        tool_with("issue_refund", idempotency=None, effect="external"),
        "reply-5/beside-it",
        "outcome",
    ),
    # the code of tools
    "another value": (
        handled("lookup_order", on_value(lambda order: replace(order, paid_cents=1))),
        "reply-4/call-10",
        "result",
    ),
    "the value of one order": (
        handled("lookup_order", on_value(lambda one: replace(one, item="mug") if one.order_id == "A-1010" else one)),
        "reply-4/call-18",
        "result",
    ),
    "the words of an error": (
        handled("lookup_order", lambda _p, _c, result: None if result.success else ToolResult.error("Unknown.")),
        "reply-4/no-such-order",
        "message",
    ),
    "an error is a success": (
        handled(
            "lookup_order",
            lambda params, _c, one: None if one.success else ToolResult.ok(Order(params.order_id, "", "", 1, "paid")),
        ),
        "reply-4/no-such-order",
        "outcome",
    ),
    "a message beside the value": (
        handled("lookup_order", lambda _p, _c, one: replace(one, message="found") if one.success else None),
        "reply-4/call-10",
        "message",
    ),
    "a file more": (handled("file_report", writes("copy.md", "a copy\n")), "reply-9/filed", "files"),
    "a line of the report": (
        handled("file_report", with_report(lambda text: text.replace("Paid in all", "Paid"))),
        "reply-9/filed",
        "files",
    ),
    "the columns of the book-keeping": (
        handled("file_report", with_report(lambda text: text.replace("amount_cents", "cents"), REFUNDS)),
        "reply-9/filed",
        "files",
    ),
    "a write to the session": (handled("file_report", notes), "reply-9/filed", "state"),
    "the total": (
        handled("file_report", on_value(lambda filed: replace(filed, total_cents=0))),
        "reply-9/filed",
        "result",
    ),
    "a report that is not checked": (tool_with("file_report", handler=unchecked), "reply-8/half-way", "outcome"),
    "a tool that is not there to run": (tool_with("file_report", handler=None), "reply-8/half-way", "message"),
    "a tool that raises": (
        handled("lookup_order", lambda params, _c, _r: 1 / (params.order_id != "A-1008") and None),
        "reply-4/call-16",
        "outcome",
    ),
    "a file that it begins with": (
        part(files={"handover.md": inbox_files().read_bytes("handover.md").replace(b"Mon", b"Tue")}),
        "reply-2/call-5",
        "result",
    ),
    "a file more at the beginning": (part(files={"new.txt": b""}), "reply-0/list", "result"),
}


async def test_recorded_week_replays_equal() -> None:
    """Without its payment service, and without a model."""
    outcome = await replay(Recording.load(WEEK), week.desk_executor)
    assert (outcome.equal, outcome.compared, len(outcome.calls)) == (True, 53, 53), outcome.differences


async def test_program_in_parts_replays_equal() -> None:
    """What the mutations change is the program of the desk."""
    outcome = await replay(Recording.load(WEEK), Program().executor)
    assert outcome.equal, outcome.differences


@pytest.mark.parametrize("name", MUTATIONS)
async def test_mutation_is_found_at_the_call_that_shows_it(name: str) -> None:
    """A prompt and a schema by the request before the first call that sees it; a policy and a tool by the call."""
    mutate, call, kind = MUTATIONS[name]
    program = Program()
    mutate(program)
    outcome = await replay(Recording.load(WEEK), program.executor)
    assert [(one.call, one.kind) for one in outcome.differences] == [(call, kind)], outcome.differences


def test_there_are_enough_of_them() -> None:
    """Of prompts, schemas, policies and tools."""
    assert len(MUTATIONS) >= 40
