"""Ten tasks, each done by files and commands of its own, by the words of the table in `docs/README.md`."""

from __future__ import annotations

from typing import Final

from tests.docs.typed_pages import Command, File

_STORED = """
from handrail import ToolExecutor, store, tool
from handrail.runtime import ToolCall
"""
"""What the programs with a session in a store import."""

_TOOL = '''
from typing import Annotated

from pydantic import Field

from handrail import ToolExecutor, tool
from handrail.errors import ToolValidationError
from handrail.runtime import Session, ToolCall

@tool(effect="external")
def donate(euros: Annotated[int, Field(gt=0, le=50)]) -> str:
    """Donate."""
    if euros > 20:
        raise ToolValidationError("there are 20 euros in the purse")
    return f"{euros} euros donated"

executor = ToolExecutor([donate], session=Session())
for euros in (5, 30, 500):
    print(executor.execute(ToolCall(f"call-{euros}", "donate", {"euros": euros})).content)
'''

_RESUMED = '''
import os, signal, sys

@tool(effect="external")
def mail(to: str) -> str:
    """Mail."""
    print("mailed", to)
    if to in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{to} has mail"

with store.open("sqlite:///post.db") as opened, opened.session("today") as session:
    executor = ToolExecutor([mail], session=session)
    talk = session.conversation
    if not talk:
        calls = [ToolCall(f"call-{to}", "mail", {"to": to}) for to in ("ann", "bob", "cid")]
        talk.append({"role": "assistant"}, calls=calls, reply="reply-1")
    if talk.calls:
        print(*(answer.content for answer in executor.answer()), sep="\\n")
'''

_ASKING = '''
from handrail.adapters.tool_executor import Waiting
from handrail.prompt import Approval, PolicyDecision, Prompt, PromptTemplate, ToolsSection

@tool
def erase(name: str) -> str:
    """Erase."""
    return f"{name} is erased"

class Careful:
    name = "careful"

    def check(self, tool, params, *, context):
        return PolicyDecision.ask("Really?")

    def on_result(self, tool, params, result, *, context):
        pass

section = ToolsSection(title="Data", tools=[erase], policies=[Careful()])
prompt = Prompt(PromptTemplate(ns="home", key="data", sections=[section]))
with store.open("sqlite:///data.db") as opened, opened.session("today") as session:
    if not session.conversation:
        session.conversation.append({}, calls=[ToolCall("call-1", "erase", {"name": "old"})], reply="reply-1")
    executor = ToolExecutor(prompt=prompt, session=session, approver=lambda request: Approval.later("asked"))
    answers = executor.answer()
print("waits" if isinstance(answers, Waiting) else answers[0].content)
'''

_FAILING = '''
import sys

@tool(effect="external")
def order(pizza: str) -> str:
    """Order."""
    return f"{pizza} is ordered"

with store.open("sqlite:///food.db") as opened, opened.session("friday") as session:
    executor = ToolExecutor([order], session=session)
    for reply, arguments in (("r1", {"pizza": "Margherita"}), ("r2", {"pasta": "Carbonara"})):
        session.conversation.append({"role": "assistant"}, calls=[ToolCall("call-1", "order", arguments)], reply=reply)
        session.conversation.append({"role": "tool", "content": executor.answer()[0].content})
'''

_RECONCILED = '''
import sys
from pathlib import Path

from handrail.errors import EffectUncertain
from handrail.prompt import External, ToolContext, ToolResult

shop = Path("shop.txt")

def ask_the_shop(params, key: str, *, context: ToolContext) -> ToolResult[str] | None:
    if "closed" in sys.argv:
        raise ConnectionError("the shop is closed")
    return ToolResult.ok("the shop has it") if key in shop.read_text() else None

@tool(effect=External(reconcile=ask_the_shop))
def buy(thing: str, context: ToolContext) -> str:
    """Buy."""
    shop.write_text(str(context.idempotency_key))
    raise EffectUncertain("no answer")

with store.open("sqlite:///shop.db") as opened, opened.session("today") as session:
    call = ToolCall("call-1", "buy", {"thing": "chair"})
    message = ToolExecutor([buy], session=session).execute(call, reply="reply-1")
print(message.success, message.content)
'''

_UNDONE = '''
import logging
from pathlib import Path

from handrail.filesystem import Filesystem, HostFilesystem

logging.disable()
root = Path("house")
root.mkdir()
(root / "wall.txt").write_text("white")

@tool
def paint(colour: str, files: Filesystem) -> str:
    """Paint."""
    files.write_text("wall.txt", colour)
    raise ValueError("the paint is empty")

with (
    store.open("sqlite:///house.db") as opened,
    opened.session("today") as session,
    HostFilesystem(root, journal=Path("journal"), store=opened) as files,
):
    executor = ToolExecutor([paint], session=session, resources={Filesystem: files})
    executor.execute(ToolCall("call-1", "paint", {"colour": "red"}), reply="reply-1")
print((root / "wall.txt").read_text())
'''

_SANDBOXED = """
from pathlib import Path

from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import Bubblewrap, SandboxSection
from handrail.filesystem import HostFilesystem
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall

root = Path("work")
root.mkdir()
files = HostFilesystem(root, journal=Path("journal"))
prompt = Prompt(PromptTemplate(ns="home", key="lab", sections=[SandboxSection(files, engine=Bubblewrap())]))
with ToolExecutor(prompt=prompt, session=Session()) as executor:
    for number, command in enumerate(["echo 7 > n.txt", "cat n.txt", "ls /root"]):
        message = executor.execute(ToolCall(f"call-{number}", "shell_execute", {"command": command}))
        print(message.success, message.content)
"""

_TYPE = """
from dataclasses import dataclass

from handrail import store
from handrail.session import stored_as

def {function}(bird: dict) -> dict:
    return {{"kind": bird["name"], "seen": 1}}

@stored_as("garden.bird"{version})
@dataclass(frozen=True)
class Bird:
    {fields}

with store.open("sqlite:///garden.db") as opened, opened.session("today") as session:
    {write}
    print(session[Bird].all())
"""

_OVERRIDDEN = """
import json
from pathlib import Path
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, template_texts

desk = MarkdownSection(title="Desk", template="You are terse.")
template = PromptTemplate(ns="home", key="desk", sections=[desk])
hashes = {text.key: text.sha256 for text in template_texts(template)}
body = {"sha256": hashes["sections.desk.body"], "text": "You are kind."}
Path("desk.json").write_text(json.dumps({"sections.desk.body": body}))
print(Prompt(template).bind(overrides="desk.json").render().text)
"""

_BACKUP = """
import sqlite3, sys
from contextlib import closing

with closing(sqlite3.connect(sys.argv[1])) as store, closing(sqlite3.connect(sys.argv[2])) as copy:
    store.backup(copy)
"""

_FOOD = "sqlite:///food.db"

TASKS: Final[dict[str, tuple[File | Command, ...]]] = {
    "Make a tool that refuses an amount": (
        File("task.py", _TOOL),
        Command("python task.py", "5 euros donated\nthere are 20 euros in the purse\ndonate was not run: $.euros"),
    ),
    "Resume after a kill": (
        File("task.py", _STORED + _RESUMED),
        Command("python task.py bob", "mailed ann\nmailed bob\nKilled"),
        Command("python task.py", "mailed cid\nann has mail\nan earlier call of mail"),
    ),
    "Answer an approval elsewhere": (
        File("task.py", _STORED + _ASKING),
        Command("python task.py", "waits"),
        Command("handrail approvals list --store sqlite:///data.db", '{"name": "old"}'),
        Command("handrail approvals answer today call-1 yes --by ann --store sqlite:///data.db", "may run"),
        Command("python task.py", "old is erased"),
    ),
    "See why a call failed": (
        File("task.py", _STORED + _FAILING),
        Command("python task.py", ""),
        Command(f"handrail sessions show friday --store {_FOOD}", "unknown field pasta"),
    ),
    "Find out whether an unknown payment happened": (
        File("task.py", _STORED + _RECONCILED),
        Command("python task.py closed", "False no answer"),
        Command("handrail ledger list --status unknown --store sqlite:///shop.db", '{"thing": "chair"}'),
        Command("python task.py", "True the shop has it"),
    ),
    "Undo files": (File("task.py", _STORED + _UNDONE), Command("python task.py", "white\n")),
    "Run a program in a sandbox": (
        File("task.py", _SANDBOXED),
        Command("python task.py", "True 7\nFalse The command has ended"),
    ),
    "Change a stored type": (
        File(
            "old.py",
            _TYPE.format(function="unused", version="", fields="name: str", write='session[Bird].append(Bird("owl"))'),
        ),
        File(
            "new.py",
            _TYPE.format(
                function="upgrade",
                version=", version=2, upgrades={1: upgrade}",
                fields="kind: str\n    seen: int",
                write="pass",
            ),
        ),
        Command("python old.py", "Bird(name='owl')"),
        Command("python new.py", "Bird(kind='owl', seen=1)"),
    ),
    "Override a text": (File("task.py", _OVERRIDDEN), Command("python task.py", "You are kind.")),
    "Take a backup and restore it": (
        File("task.py", _STORED + _FAILING),
        File("backup.py", _BACKUP),
        Command("python task.py", ""),
        Command("python backup.py food.db copy.db", ""),
        Command("rm -f food.db food.db-wal food.db-shm", ""),
        Command("cp copy.db food.db", ""),
        Command(f"handrail ledger list --store {_FOOD}", "Margherita"),
    ),
}
"""The tasks: files to save, and commands with what each must show, by their rows."""
