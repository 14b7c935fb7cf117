"""A desk whose calls are undone: slices of its session, files on disk, what a program has changed, and payments.

The payments are those of a service that survives every kill: the books in the folder of a scene. A refund is the undo
of a payment, and the books say whether it was made.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from chaos.books import Books
from handrail import store as stores
from handrail import tool, undo
from handrail.adapters.tool_executor import Answers, ToolExecutor
from handrail.contrib.tools import ShellToolsSection
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import External, Prompt, PromptTemplate, Tool, ToolContext, ToolResult, ToolsSection, Undo
from handrail.runtime import Session, ToolCall

LEASE = timedelta(milliseconds=100)
"""How long a process that was killed is believed to be refunding."""

_FILES = {"plan.txt": "one\ntwo\n", "notes/old.txt": "old\n", "notes/list.txt": "a\nb\n"}
_FIXED = ("sed", "-i", "s/one/1/", "plan.txt", "notes/list.txt")


@dataclass(frozen=True, slots=True)
class Note:
    """What the desk has noted."""

    text: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """A payment that was made; it goes into the session's slice of receipts."""

    number: str
    order: str


CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("note", {"text": "morning"}),
    ("pay", {"order": "A-1"}),
    ("write", {"path": "plan.txt", "text": "one\ntwo\nthree\n"}),
    ("shell_run", {"command": _FIXED}),
    ("pay", {"order": "A-2"}),
    ("note", {"text": "noon"}),
    ("remove", {"path": "notes/old.txt"}),
    ("write", {"path": "notes/new/day.txt", "text": "done\n"}),
    ("pay", {"order": "A-3"}),
    ("write", {"path": "plan.txt", "text": "closed\n"}),
)
"""What the model asks for."""


@tool
def note(text: str) -> Note:
    """Note something."""
    return Note(text)


@tool
def write(path: str, text: str, *, files: Filesystem) -> str:
    """Write a file."""
    files.write_text(path, text)
    return path


@tool
def remove(path: str, *, files: Filesystem) -> str:
    """Remove a file."""
    files.remove(path)
    return path


@dataclass(frozen=True, slots=True)
class Desk:
    """A desk, in a folder that has its files and its books.

    Attributes:
        folder: the folder.
        url: the store of its session.
    """

    folder: Path
    url: str

    @property
    def root(self) -> Path:
        """The folder with the files."""
        return self.folder / "files"

    @property
    def books(self) -> Books:
        """The books of the service that pays."""
        return Books(self.folder)

    @property
    def session_id(self) -> str:
        """The id of its session."""
        return f"desk-{self.folder.name}"

    def begin(self) -> None:
        """Makes the files."""
        for name, text in _FILES.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    @contextmanager
    def open(self) -> Generator[ToolExecutor]:
        """An executor of its session."""
        with ExitStack() as held:
            store = held.enter_context(stores.open(self.url))
            files = held.enter_context(
                HostFilesystem(self.root, journal=self.folder / "journal", store=store, durability="normal")
            )
            session = held.enter_context(Session.open(store, self.session_id))
            shell = ShellToolsSection(files, allow=[("sed", "-i")])
            sections = [ToolsSection(title="Desk", tools=self.tools), shell]
            prompt = Prompt(PromptTemplate(ns="chaos", key="undo", sections=sections))
            yield ToolExecutor(prompt=prompt.bind(resources={Filesystem: files}), session=session)

    @property
    def tools(self) -> list[Tool[Any, Any]]:
        """The tools, with the books of the service."""
        books = self.books

        def balance(_: object) -> int:
            return len(books.read("paid")) - len(books.read("refunded"))

        def refund(_: object, result: ToolResult[Receipt], before: int, *, context: ToolContext) -> ToolResult[None]:
            assert result.value is not None
            books.write("refunded", order=result.value.order, key=context.idempotency_key, before=before)
            return ToolResult.ok(None, message="refunded")

        def find_refund(_: object, key: str) -> ToolResult[None] | None:
            keys = {entry["key"] for entry in books.read("refunded")}
            return ToolResult.ok(None, message="refunded") if key in keys else None

        declared = External(on_orphan="reconcile", reconcile=find_refund, lease=LEASE)

        @tool(effect="external", capture=balance, undo=Undo(refund, declared))
        def pay(order: str, *, context: ToolContext) -> Receipt:
            """Pay an order."""
            return Receipt(books.pay(order, context.idempotency_key), order)

        return [note, write, remove, pay]

    def work(self) -> None:
        """Makes the calls, of one reply of a model, and answers them."""
        calls = [ToolCall(f"call-{number}", name, json.dumps(words)) for number, (name, words) in enumerate(CALLS)]
        with self.open() as executor:
            talk = executor.environment.session.conversation
            talk.append({"role": "user", "content": "Work."})
            talk.append({"role": "assistant"}, calls=calls, reply="reply")
            answers = executor.answer()
            assert isinstance(answers, Answers), answers
            assert all(message.success for message in answers), answers
            talk.append({"role": "tool", "content": [message.content for message in answers]})

    async def undo(self) -> bool:
        """Undoes them; whether the undo is complete. What it says is written to the books."""
        with self.open() as executor:
            plan = undo.plan(executor.environment.session, executors=executor)
            self.books.write("asked", steps=describe(plan.steps))
            report = await undo.apply(plan)
            self.books.write("answered", failed=str(report.failed))
            return report.complete

    def read_state(self) -> tuple[list[list[str]], dict[str, tuple[int, str | None]]]:
        """The slices of the session, and the files with their permissions."""
        with self.open() as executor:
            session = executor.environment.session
            slices = [[repr(item) for item in session[kind].all()] for kind in (Note, Receipt)]
        files = {
            str(path.relative_to(self.root)): (path.stat().st_mode, path.read_text() if path.is_file() else None)
            for path in sorted(self.root.rglob("*"))
        }
        return slices, files

    def read_messages(self) -> list[Any]:
        """The conversation of the session."""
        with self.open() as executor:
            return executor.environment.session.conversation.messages


def describe(steps: Iterable[undo.UndoStep]) -> list[list[str]]:
    """Steps without what differs from round to round."""
    return [[step.tool, step.ref.call_id, step.outcome] for step in steps]
