"""A desk that pays orders with a loop of its own, over files, rows and a session; and all that may change about it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from handrail import store as stores
from handrail.adapters.run_task import RunTask
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import ToolValidationError
from handrail.filesystem import Filesystem
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolPolicy, ToolResult
from handrail.runtime import Session, ToolCall
from handrail.undo import DryRunPlan, apply_plan, dry_run
from tests.kit import Kept, Note, executor, tool

SESSION = "desk"
Call: TypeAlias = tuple[str, str]
"""The tool and the text of a call."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a payment comes to."""

    order: str
    number: str


@dataclass(frozen=True, slots=True)
class Setup:
    """What a program says of its desk, and may say otherwise when the plan is executed.

    Attributes:
        tools: its tools, in order; made for a desk.
        replies: what its model says: the calls of each reply, with the answer at last.
        model: the name of its model.
        settings: the settings of its requests.
        instructions: what its model is told first.
        policies: what judges its calls.
    """

    tools: Callable[[Desk], Sequence[Tool[Any, Any]]]
    replies: Sequence[Sequence[Call]] = (
        (("look", "notes.txt"), ("stock", "tea"), ("note", "seen")),
        (("pay", "A-17"),),
        (("mail", "A-17"),),
    )
    model: str = "small"
    settings: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.1, "top_p": 1.0, "seed": 7})
    instructions: str = "Pay what is in stock."
    policies: Sequence[ToolPolicy] = ()


@dataclass
class Desk:
    """A desk in a folder: its files are in `files`, its store beside them.

    Attributes:
        folder: where it is.
        setup: what its program says.
        url: its store.
        root: the folder that it works on.
        paid: the orders that were paid, in order.
        mailed: the orders about which a mail was sent.
        ran: the tools whose handlers have run.
        asked: how often its model was asked.
        world: what differs outside, by the names of tools.
    """

    folder: Path
    setup: Setup
    url: str
    root: Path
    paid: list[str] = field(default_factory=list[str])
    mailed: list[str] = field(default_factory=list[str])
    ran: list[str] = field(default_factory=list[str])
    asked: int = 0
    world: dict[str, str] = field(default_factory=dict[str, str])

    async def desk(self, task: RunTask) -> object:
        """Pay what the model asks for."""
        setup, session = self.setup, task.session
        if not session.conversation or task.input:
            session.conversation.append({"role": "user", "content": task.input})
        with task.filesystem(self.root) as files:
            section = MarkdownSection(
                title="Desk", key="desk", template="Pay.", tools=setup.tools(self), policies=setup.policies
            )
            template = PromptTemplate[str](ns="tests", key="desk", sections=[section])
            prompt = Prompt(template).bind(resources={Filesystem: files})
            with ToolExecutor(prompt=prompt, session=session, approver=_refuse) as loop:
                return await self._answer(task, loop)

    async def _answer(self, task: RunTask, loop: ToolExecutor) -> object:
        setup, session = self.setup, task.session
        for number, calls in enumerate((*setup.replies, ())):
            request = {
                "model": setup.model,
                "settings": setup.settings,
                "instructions": setup.instructions,
                "tools": [{"name": one.name, "schema": one.parameters_schema} for one in loop.tools],
                "messages": session.conversation.messages,
            }

            async def ask(number: int = number, calls: Sequence[Call] = calls) -> Any:
                self.asked += 1
                names = [f"c{number}{place}" for place in range(len(calls))]
                return {"calls": [[name, *call] for name, call in zip(names, calls, strict=True)], "text": "Done."}

            reply = await task.reply(request, ask)
            made = [ToolCall(call_id, name, json.dumps({"text": text})) for call_id, name, text in reply["calls"]]
            session.conversation.append(reply, calls=made, reply=f"r{number}" if made else None)
            if not made:
                return reply["text"]
            answers = await loop.answer_async()
            assert not isinstance(answers, PendingAnswers)
            session.conversation.append(
                *({"role": "tool", "tool_call_id": one.call_id, "content": one.content} for one in answers)
            )
        return None

    async def rehearse(self, input: str | None = "Pay.", **options: Any) -> DryRunPlan:
        """The plan of a run in its session."""
        with stores.open(self.url, durability="normal") as store:
            return await dry_run(self.desk, input, store=store, session=SESSION, **options)

    async def execute(self, plan: DryRunPlan, **options: Any) -> object:
        """Execute a plan."""
        with stores.open(options.pop("url", self.url), durability="normal") as store:
            return await apply_plan(plan, self.desk, store=store, **options)

    def session(self, change: Callable[[Session], object]) -> None:
        """Change the session by another process."""
        with stores.open(self.url, durability="normal") as store, store.session(SESSION) as session:
            change(session)

    def sql(self, statement: str) -> None:
        """Change a row in the database of the store."""
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as database, database:
            database.execute(statement)


def _refuse(_: object) -> bool:
    raise AssertionError("the approver of the run was asked")


# -------------------------------------------------------------------------------------------------------------- tools


def look(desk: Desk, **options: Any) -> Tool[Note, Note]:
    """Reads a file."""

    def read(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        desk.ran.append("look")
        return ToolResult.ok(
            Note(context.resources.get(Filesystem).read_text(params.text) + desk.world.get("look", ""))
        )

    return tool("look", read, **{"effect": "read", **options})


def stock(desk: Desk, **options: Any) -> Tool[Note, Note]:
    """Says only whether there is enough, whatever the number is."""

    def count(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        desk.ran.append("stock")
        rows = context.connection.execute("SELECT number, shelf FROM stock WHERE name = ?", (params.text,)).fetchall()
        return ToolResult.ok(Note("enough" if rows else "none"))

    return tool("stock", count, **{"effect": "read", **options})


def note(desk: Desk, **options: Any) -> Tool[Note, Note]:
    """Writes to the session, to a file, and to the database."""

    def write(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        desk.ran.append("note")
        context.session[Kept].append(Kept(params.text))
        context.resources.get(Filesystem).write_text("seen.txt", params.text)
        context.connection.execute("INSERT INTO seen (text) VALUES (?)", (params.text,))
        return ToolResult.ok(Note(desk.world.get("note", params.text)))

    return tool("note", write, **{"effect": "state", **options})


def preview_payment(params: Note) -> ToolResult[Receipt]:
    """What a payment will come to, but for its number."""
    return ToolResult.ok(Receipt(params.text, "is not known yet"))


def pay(desk: Desk, **options: Any) -> Tool[Note, Receipt]:
    """Pays an order."""

    def transfer(params: Note, *, context: ToolContext) -> ToolResult[Receipt]:
        desk.ran.append("pay")
        if why := desk.world.get("refuses"):
            raise ToolValidationError(why)
        desk.paid.append(params.text)
        return ToolResult.ok(Receipt(desk.world.get("pay", params.text), f"re-{len(desk.paid)}"))

    defaults: dict[str, Any] = {"effect": "external", "preview": preview_payment, "description": "Pays."}
    return Tool[Note, Receipt](name="pay", handler=transfer, **{**defaults, **options})


def preview_mail(params: Note) -> ToolResult[Note]:
    """What a mail answers."""
    return ToolResult.ok(Note("sent"))


def mail(desk: Desk, **options: Any) -> Tool[Note, Note]:
    """Sends a mail."""

    def send(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        desk.ran.append("mail")
        desk.mailed.append(params.text)
        return ToolResult.ok(Note("sent"))

    return tool("mail", send, **{"effect": "external", "preview": preview_mail, **options})


MAKERS: Mapping[str, Callable[..., Tool[Any, Any]]] = {
    "look": look,
    "stock": stock,
    "note": note,
    "pay": pay,
    "mail": mail,
}
"""What makes each tool of a desk."""


def with_options(**changed: Mapping[str, Any]) -> Callable[[Desk], list[Tool[Any, Any]]]:
    """The tools, some of them with other options."""
    return lambda desk: [make(desk, **changed.get(name, {})) for name, make in MAKERS.items()]


def desk_in(folder: Path, url: str = "", **setup: Any) -> Desk:
    """Make a desk, whose session has been used before."""
    root = folder / "files"
    root.mkdir(parents=True)
    for name, text in {"notes.txt": "tea", ".gitignore": "*.log\n", "run.log": "old", ".hidden": "h"}.items():
        (root / name).write_text(text, encoding="utf-8")
    (root / "deep" / "er").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "deep" / "er" / "data.bin").write_bytes(bytes(range(256)))
    (root / "link").symlink_to("notes.txt")
    desk = Desk(folder, Setup(with_options(), **setup), url or f"sqlite:///{folder / 'desk.db'}", root)
    with stores.open(desk.url, durability="normal") as store, store.session(SESSION, tags={"for": "tests"}) as session:
        session[Kept].append(Kept("before"))
        session.conversation.append({"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."})
        with executor(pay(desk), session=session) as loop:
            assert loop.execute(ToolCall("old", "pay", '{"text": "old"}'), reply="r-old").success
    desk.paid.clear()
    desk.ran.clear()
    if not url:
        desk.sql("CREATE TABLE stock (name TEXT, number INTEGER, shelf TEXT)")
        desk.sql("CREATE TABLE seen (text TEXT)")
        desk.sql("INSERT INTO stock VALUES ('tea', 3, 'A'), ('milk', 1, 'B')")
    return desk


def change(desk: Desk, **setup: Any) -> None:
    """Have the program say something else."""
    desk.setup = replace(desk.setup, **setup)
