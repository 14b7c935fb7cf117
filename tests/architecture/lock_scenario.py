"""What `lock_program.py` runs: calls of each effect, on threads and in tasks, over each kind of store and of files."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

from handrail import store
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents import RunOptions, load_agent
from handrail.contrib.tools import ShellToolsSection
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.prompt import (
    FeedbackTrigger,
    Prompt,
    PromptTemplate,
    StaticFeedback,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.resources import Binding, Copied, Scope
from handrail.runtime import IdempotencyConfig, Session, ToolCall, ToolInvoked
from handrail.store import Store
from handrail.testing import Call, Reply, ScriptedModel
from tests.kit import Note, tool

UNBOUND = Copied[list[str]]([])
"""A value that no prompt binds: a call takes its turn when it first uses it."""


class Notes(Copied[list[str]]):
    """A value that a prompt binds."""


class Client:
    """A resource of a call."""

    def close(self) -> None:
        """Nothing is held."""


def look(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Read the session and the files."""
    context.session[Note].all()
    context.resources.get(Filesystem).list()
    len(context.resources.get(Notes).value)
    return ToolResult.ok(params)


def change(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Write the session and a file; fail on demand."""
    context.resources.get(Client)
    context.resources.get(Filesystem).write_text("a.txt", params.text)
    context.resources.get(Notes).value.append(params.text)
    UNBOUND.value.append(params.text)
    context.session[Note].append(params)
    if params.text == "fail":
        raise ValueError(params.text)
    return ToolResult.ok(params)


def write_rows(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Write to the database of the session."""
    context.connection.execute("CREATE TABLE IF NOT EXISTS own (text TEXT)")
    context.connection.execute("INSERT INTO own VALUES (?)", (params.text,))
    return ToolResult.ok(params)


def pay(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Act outside."""
    if context.heartbeat is not None:
        context.heartbeat.beat()
    if params.text == "fail":
        raise ConnectionError(params.text)
    return ToolResult.ok(params)


def executor(session: Session, files: Filesystem) -> ToolExecutor:
    """Tools of each effect over a session and files."""
    once = IdempotencyConfig()
    tools = (
        tool("look", look, effect="read"),
        tool("change", change),
        tool("slow", look, concurrent=True),
        tool("pay", pay, effect="external", timeout=timedelta(seconds=5)),
        tool("once", pay, effect="external", idempotency=once),
        tool("rows", write_rows),
    )
    section = ToolsSection(title="Tools", tools=tools)
    client = Binding(Client, provider=lambda _: Client(), scope=Scope.TOOL_CALL)
    advice = StaticFeedback(text="Look again.", trigger=FeedbackTrigger(every_calls=1, on_file="*.txt"))
    prompt = Prompt(PromptTemplate(ns="locks", key="locks", sections=[section], feedback=[advice])).bind(
        resources={Filesystem: files, Client: client, Notes: Notes([])}
    )
    return ToolExecutor(prompt=prompt, session=session)


def calls(executing: ToolExecutor, names: tuple[str, ...]) -> None:
    """Calls one by one, of one reply, on threads and in tasks."""
    for text in ("a", "fail"):
        asked = [ToolCall(f"{name}-{text}", name, {"text": text}) for name in names]
        for call in asked:
            executing.execute(call, reply="one by one")
        executing.execute_all(asked, reply=f"together {text}")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(partial(executing.execute, reply=f"threads {text}"), asked))
        asyncio.run(executing.execute_all_async(asked, reply=f"tasks {text}"))


def in_store(kept: Store, files: Filesystem, names: tuple[str, ...]) -> None:
    """A stored session: calls, a fork, a child, a session that is resumed, one that is collected."""
    for _ in range(2):
        with Session.open(kept, "desk", checkpoint_every=3) as session:
            seen: list[ToolInvoked] = []
            session.dispatcher.subscribe(ToolInvoked, seen.append)
            calls(executor(session, files), names)
            session.snapshot()
            session.fork().close()
            session.child(session_id=f"child-{len(seen)}").close()
    Session.open(kept, "lost")
    gc.collect()
    list(kept.rows())


def agents(folder: Path, kept: Store) -> None:
    """A run of an agent file, in a stored session."""
    (folder / "desk.agent").write_text("---\nname: desk\ntools: [note]\ntoolsets: [files]\n---\nYou note.\n")
    (folder / "tools.py").write_text("def note(text: str) -> str:\n    return text\n\n\nTOOLS = [note]\n")
    (folder / "root").mkdir()
    replies = [Reply(calls=[Call("note", {"text": "a"}), Call("list_files", {})]), Reply(text="Done.")]
    with Session.open(kept, "run") as session:
        options = RunOptions(model=ScriptedModel(replies), session=session, root=folder / "root", mode="approve-all")
        load_agent(folder / "desk.agent").run("Go.", options)


def programs(folder: Path) -> None:
    """A program that is run by a call."""
    section = ShellToolsSection(folder, allow=[("true",)])
    executing = ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="locks", key="shell", sections=[section])), session=Session()
    )
    executing.execute(ToolCall("program", "shell_run", {"command": ["true"]}))


def run(folder: Path) -> None:
    """All of it."""
    programs(folder)
    both = ("look", "change", "slow", "pay", "once")
    calls(executor(Session(), InMemoryFilesystem()), both)
    with store.open("memory:") as kept:
        in_store(kept, InMemoryFilesystem(), both)
    (folder / "files").mkdir()
    (folder / "project").mkdir()
    with store.open(f"sqlite:///{folder / 'desk.db'}") as kept:
        with HostFilesystem(folder / "files", store=kept) as files:
            in_store(kept, files, (*both, "rows"))
        agents(folder / "project", kept)
