"""The agents of files: they rehearse with those that they call; their files, rules and options count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handrail import store as stores
from handrail.agents import RunOptions, load_agent, parse_rules
from handrail.errors import PlanRefusedError
from handrail.undo import DryRunPlan, apply_plan, dry_run
from tests.agents.kit import write
from tests.agents.stored_desks import Asked, Reader, Replies

pytestmark = pytest.mark.anyio

TOOLS = '''
from pathlib import Path
from pydantic_ai import Tool as PydanticTool
from handrail import tool
from handrail.agents import shell_toolset
from handrail.contrib.tools import READING
from handrail.prompt import ToolContext, ToolResult
BOOK = Path(__file__).parent.parent / "book"


def preview(params) -> ToolResult[str]:
    """What a payment will come to."""
    return ToolResult.ok(f"{params.order} is paid")


@tool(effect="external", preview=preview)
def pay(order: str) -> str:
    """Pay an order."""
    with BOOK.open("a") as book:
        book.write(f"{order}\\n")
    return f"{order} is paid"


@tool(effect="external")
def call(number: str) -> str:
    """Call somebody."""
    with BOOK.open("a") as book:
        book.write(f"{number}\\n")
    return "called"


def act(what: str) -> str:
    """Do anything."""
    with BOOK.open("a") as book:
        book.write(f"{what}\\n")
    return "done"


@tool(effect="read")
def where(context: ToolContext) -> str:
    """Say where the files are."""
    return str(context.filesystem.root)


TOOLS = [pay, call, PydanticTool(act), where]
TOOLSETS = {"sh": shell_toolset(allow=[("touch",), *READING])}
'''
FILES = {
    "tools.py": TOOLS,
    "approval.yaml": "allow: [helper, read_file, write_file]\nask: [pay]\n",
    "pyproject.toml": '[tool.handrail]\napproval = "approval.yaml"\n',
    "desk.agent": "---\nname: desk\ndescription: d\ntools: [pay, call, act]\n"
    "toolsets: [files, helper]\n---\nI am desk\n",
    "helper.agent": "---\nname: helper\ndescription: h\ntools: [pay]\n---\nI am helper\n",
}
REPLIES: Replies = {
    "desk": [
        [Asked("d1", "read_file", {"path": "a.txt"}), Asked("d2", "write_file", {"path": "a.txt", "content": "new"})],
        [Asked("d3", "helper", {"input": "Pay tea."})],
        [Asked("d4", "pay", {"order": "milk"})],
        "Done.",
    ],
    "helper": [[Asked("h1", "pay", {"order": "tea"})], "Paid."],
}


class Shop:
    """A project, the folder that it works on, and a store."""

    def __init__(self, folder: Path) -> None:
        """Make it."""
        self.project = write(folder / "project", FILES)
        self.root = folder / "work"
        self.root.mkdir()
        (self.root / "a.txt").write_text("old", encoding="utf-8")
        self.book = folder / "book"
        self.url = f"sqlite:///{folder / 'shop.db'}"
        self.options: dict[str, Any] = {}

    @property
    def paid(self) -> list[str]:
        """What was done outside, in order."""
        return self.book.read_text(encoding="utf-8").split() if self.book.exists() else []

    def task(self, replies: Replies = REPLIES) -> Any:
        """The agent as a function."""
        options: dict[str, Any] = {"model": Reader(replies).model(), "root": self.root, **self.options}
        return load_agent(self.project / "desk.agent").task(RunOptions(**options))

    async def rehearse(self, replies: Replies = REPLIES) -> DryRunPlan:
        """The plan of a run."""
        with stores.open(self.url, durability="normal") as store:
            return await dry_run(self.task(replies), "Do it.", store=store, session="s")

    async def execute(self, plan: DryRunPlan, **options: Any) -> object:
        """Execute it; the model fails if it is asked."""
        with stores.open(self.url, durability="normal") as store:
            return await apply_plan(plan, self.task({"desk": [], "helper": []}), store=store, **options)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop."""
    return Shop(tmp_path)


def yes(_: DryRunPlan) -> bool:
    """Approve it."""
    return True


def no(_: DryRunPlan) -> bool:
    """Refuse it."""
    return False


def text_of(shop: Shop) -> str:
    """What the file has."""
    return (shop.root / "a.txt").read_text(encoding="utf-8")


async def test_agents_rehearse_together(shop: Shop) -> None:
    """Also an agent that another one calls; the plan names its conversation, and the questions about its calls."""
    plan = await shop.rehearse()
    assert (shop.paid, text_of(shop), plan.ends) == ([], "old", "")
    calls = [(call.conversation, call.id, call.tool, bool(call.asks)) for call in plan.calls]
    assert calls == [
        ("", "d1", "read_file", False),
        ("", "d2", "write_file", False),
        ("", "d3", "helper", False),
        ("d3", "h1", "pay", True),
        ("", "d4", "pay", True),
    ]
    with pytest.raises(PlanRefusedError):
        await shop.execute(plan)
    with pytest.raises(PlanRefusedError):
        await shop.execute(plan, approver=no)
    assert (shop.paid, text_of(shop)) == ([], "old")
    asked: list[DryRunPlan] = []

    def approve(one: DryRunPlan) -> bool:
        asked.append(one)
        return True

    assert await shop.execute(plan, approver=approve) == "Done."
    assert (shop.paid, text_of(shop), asked) == (["tea", "milk"], "new", [plan])


@pytest.mark.parametrize("call", [Asked("d1", "call", {"number": "1"}), Asked("d1", "act", {"what": "x"})])
async def test_plan_ends_where_nothing_can_be_previewed(shop: Shop, call: Asked) -> None:
    """At an external tool without a preview, and at one that does not declare its effect; it is not executed."""
    plan = await shop.rehearse({"desk": [[call], "Done."]})
    assert (shop.paid, plan.calls, plan.output) == ([], (), "")
    assert call.tool in plan.ends
    with pytest.raises(PlanRefusedError):
        await shop.execute(plan, approver=yes)
    assert shop.paid == []


SHELL: Replies = {
    "desk": [
        [Asked("d1", "shell_run", {"command": ["ls"]}), Asked("d2", "where", {})],
        [Asked("d3", "shell_run", {"command": ["touch", "x"]})],
        "Done.",
    ]
}


async def test_programs_that_only_read_are_rehearsed(shop: Shop) -> None:
    """Any other one may act outside. The plan has the path of the folder itself where the model saw that of a copy."""
    (shop.project / "desk.agent").write_text(
        "---\nname: desk\ndescription: d\ntools: [where]\ntoolsets: [sh, files]\n---\nI am desk\n", encoding="utf-8"
    )
    (shop.project / "approval.yaml").write_text("allow: [shell_run]\n", encoding="utf-8")
    plan = await shop.rehearse(SHELL)
    looks, place, _ = plan.calls
    assert ("approval.yaml" in looks.message, looks.is_preview, place.value) == (True, True, str(shop.root))
    assert "touch" in plan.ends
    plan = await shop.rehearse({"desk": [SHELL["desk"][0], "Done."]})
    assert await shop.execute(plan) == "Done."


# --------------------------------------------------------------------------------------------------------- the changes


def in_project(name: str, old: str, new: str) -> Callable[[Shop], object]:
    """A file of the project has other words."""

    def act(shop: Shop) -> None:
        text = (shop.project / name).read_text(encoding="utf-8")
        assert old in text
        (shop.project / name).write_text(text.replace(old, new), encoding="utf-8")

    return act


def with_options(**options: Any) -> Callable[[Shop], object]:
    """The run has other options."""
    return lambda shop: shop.options.update(options)


CHANGES: dict[str, Callable[[Shop], object]] = {
    "instructions": in_project("desk.agent", "I am desk", "I am desk, too"),
    "description": in_project("desk.agent", "description: d", "description: e"),
    "order of tools": in_project("desk.agent", "[pay, call, act]", "[call, pay, act]"),
    "a tool less": in_project("desk.agent", "[pay, call, act]", "[pay, call]"),
    "a toolset more": in_project("desk.agent", "[files, helper]", "[files, helper, planning]"),
    "a toolset that only reads": in_project("desk.agent", "[files, helper]", "[files_ro, helper]"),
    "excluded paths": in_project("desk.agent", "toolsets:", "exclude: [b.txt]\ntoolsets:"),
    "instructions of the other agent": in_project("helper.agent", "I am helper", "I am a helper"),
    "code of a tool": in_project("tools.py", 'return "called"', 'return "done"'),
    "a preview": in_project("tools.py", "{params.order} is paid", "{params.order} is  paid"),
    "a rule that denies": in_project("approval.yaml", "ask: [pay]", "deny: [pay]"),
    "a rule that allows": in_project("approval.yaml", "ask: [pay]", "ask: []"),
    "a rule on arguments": in_project("approval.yaml", "[pay]", "[{tool: pay, arguments: {order: beer}}]"),
    "settings of the project": in_project("pyproject.toml", "[tool.handrail]", '[tool.handrail]\nmodel = "test"'),
    "the model": with_options(model="test"),
    "the fallback model": with_options(fallback_model="test"),
    "the depth": with_options(max_depth=3),
    "the requests": with_options(request_limit=9),
    "the retries": with_options(retries=1),
    "the rules of the run": with_options(rules=parse_rules("deny: [pay]", file="rules.yaml")),
    "the type of the answer": with_options(output_type=int),
    "another folder": lambda shop: shop.options.update(root=shop.project),
    "a file": lambda shop: (shop.root / "a.txt").write_text("other", encoding="utf-8"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_plan_of_an_agent_is_refused_after_a_change(shop: Shop, name: str) -> None:
    """Of its files, rules, model, options and folder."""
    plan = await shop.rehearse()
    CHANGES[name](shop)
    with pytest.raises(PlanRefusedError) as refused:
        await shop.execute(plan, approver=yes)
    assert refused.value.changes
    assert (shop.paid, text_of(shop)) != (["tea"], "new")
    assert shop.paid == []
