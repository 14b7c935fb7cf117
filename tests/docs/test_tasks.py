"""A task is done with only what its page says."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.docs.kit import links_in
from tests.docs.typed_pages import DOCS, Command, File, Terminal

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
from handrail.adapters.tool_executor import PendingAnswers
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
print("waits" if isinstance(answers, PendingAnswers) else answers[0].content)
'''


_CHARGED = '''
from pathlib import Path
from handrail.prompt import IdempotencyConfig
book = Path("book.txt")
book.touch()
@tool(effect="external", idempotency=IdempotencyConfig(ttl=None))
def charge(order: str) -> str:
    """Charge."""
    book.write_text(book.read_text() + order)
    return f"{order} is charged"
with store.open("sqlite:///shop.db") as opened, opened.session("today") as session:
    executor = ToolExecutor([charge], session=session)
    for reply in ("reply-1", "reply-2"):
        print(executor.execute(ToolCall("call-1", "charge", {"order": "A-1"}), reply=reply).content)
print("book:", book.read_text())
'''


_IN_PYDANTIC_AI = '''
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from handrail import ToolExecutor, store, tool
from handrail.adapters.pydantic_ai import HandrailCapability
@tool(effect="external")
def greet(name: str) -> str:
    """Greet."""
    print("greeted", name)
    return f"{name} is greeted"
with store.open("sqlite:///hall.db") as opened, opened.session("today") as session:
    agent = Agent(TestModel(), capabilities=[HandrailCapability(ToolExecutor([greet], session=session))])
    agent.run_sync("Greet.")
'''


_LOOP = '''
def model(messages: tuple, names: list) -> dict:
    if len(messages) == 1:
        return {"role": "assistant", "calls": [["call-1", names[0], '{"name": "ann"}']]}
    return {"role": "assistant", "calls": [], "content": messages[-1]["content"]}
@tool(effect="external")
def greet(name: str) -> str:
    """Greet."""
    return f"{name} is greeted"
with store.open("sqlite:///hall.db") as opened, opened.session("today") as session:
    executor = ToolExecutor([greet], session=session)
    talk = session.conversation
    talk.append({"role": "user", "content": "Greet ann."})
    while talk.calls or talk.messages[-1]["role"] != "assistant":
        if not talk.calls:
            message = model(talk.messages, [each.name for each in executor.tools])
            calls = [ToolCall(*call) for call in message["calls"]]
            talk.append(message, calls=calls, reply=f"reply-{len(talk.messages)}")
        talk.append(*({"role": "tool", "content": it.content} for it in executor.answer()))
    print(talk.messages[-1]["content"])
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


_PROGRAMS = """
from pathlib import Path
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import READING, ShellRule, ShellToolsSection
from handrail.filesystem import HostFilesystem
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall
root = Path("house")
root.mkdir()
(root / "wall.txt").write_text("white")
(root / "paint.sh").write_text("echo red > wall.txt; exit 2")
files = HostFilesystem(root, journal=Path("journal"))
section = ShellToolsSection(files, allow=[*READING, ShellRule(("sh", "paint.sh"), exact=True)])
executor = ToolExecutor(prompt=Prompt(PromptTemplate(ns="home", key="paint", sections=[section])), session=Session())
for number, command in enumerate([["sh", "paint.sh"], ["cat", "wall.txt"]]):
    print(executor.execute(ToolCall(f"call-{number}", "shell_run", {"command": command})).content)
"""


_AGENT = """
---
name: cook
tools:
  - pasta
---
You cook.
"""


_SCRIPT = """
replies:
  - calls:
      - {name: pasta, arguments: {grams: 200}}
  - text: Enjoy your meal.
"""


_COOK = '''
from handrail import tool
@tool
def pasta(grams: int) -> str:
    """Cook pasta."""
    return f"{grams} g are done"
TOOLS = [pasta]
'''


_TEST = '''
from handrail import tool
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.testing import run_tool
@tool
def paint(colour: str, files: Filesystem) -> str:
    """Paint."""
    files.write_text("wall.txt", colour)
    raise ValueError("the paint is empty")
def test_a_wall_stays_white() -> None:
    files = InMemoryFilesystem({"wall.txt": "white"})
    message = run_tool(paint, {"colour": "red"}, resources={Filesystem: files})
    assert not message.success
    assert files.read_text("wall.txt") == "white"
'''


def steps(program: str, *commands: tuple[str, str], name: str = "task.py") -> tuple[File | Command, ...]:
    """The program is saved, and the commands are typed, each with a part of what it shows."""
    return (File(name, program), *(Command(*command) for command in commands))


RUN = "python task.py"
ONCE = (RUN, "A-1 is charged\nA-1 is charged\nbook: A-1\n")
EATEN = ('handrail run cook.agent "Pasta." --model script:script.yaml --approve approve-all', "Enjoy your meal.")
TASKS: Final[dict[str, tuple[File | Command, ...]]] = {
    "Write a tool": steps(
        _TOOL, (RUN, "5 euros donated\nthere are 20 euros in the purse\ndonate was not run: $.euros")
    ),
    "Use it in PydanticAI": steps(_IN_PYDANTIC_AI, (RUN, "greeted a\n")),
    "Use it behind my own loop": steps(_STORED + _LOOP, (RUN, "ann is greeted")),
    "Never charge twice": steps(_STORED + _CHARGED, ONCE, ONCE),
    "Keep a session across restarts": steps(
        _STORED + _RESUMED,
        ("python task.py bob", "mailed ann\nmailed bob\nKilled"),
        (RUN, "mailed cid\nann has mail\nan earlier call of mail"),
    ),
    "Find out about an unknown effect": steps(
        _STORED + _RECONCILED,
        ("python task.py closed", "False no answer"),
        ("handrail ledger list --status unknown --store sqlite:///shop.db", '{"thing": "chair"}'),
        (RUN, "True the shop has it"),
    ),
    "Ask a person for approval": steps(
        _STORED + _ASKING,
        (RUN, "waits"),
        ("handrail approvals list --store sqlite:///data.db", '{"name": "old"}'),
        ("handrail approvals answer today call-1 yes --by ann --store sqlite:///data.db", "may run"),
        (RUN, "old is erased"),
    ),
    "Let an agent work in a folder and run programs": steps(
        _PROGRAMS, (RUN, "exit code 2"), ("python -c \"print(open('house/wall.txt').read())\"", "white\n")
    ),
    "Define agents in files": (
        *(File("tools.py", _COOK), File("cook.agent", _AGENT.lstrip()), File("script.yaml", _SCRIPT)),
        *(Command("handrail check cook.agent", "cook can run, with 1 tool"), Command(*EATEN)),
    ),
    "Test my tools": steps(_TEST, ("pytest -q test_task.py", "1 passed"), name="test_task.py"),
}
"""The tasks: files to save, and commands with what each must show, by their rows."""


INDEX = DOCS / "README.md"


def pages() -> dict[str, Path]:
    """The first page that the table names, by the task."""
    table = INDEX.read_text(encoding="utf-8").partition("\n| task |")[2].partition("\n\n")[0]
    rows = [row.strip("|").partition("|") for row in table.splitlines()[2:]]
    return {task.strip(): next(links_in(cell, INDEX)).target for task, _, cell in rows}


def words_needed(task: tuple[File | Command, ...]) -> set[str]:
    """What a reader has to know of Handrail: names that a program does not make itself, and words of commands."""
    needed: set[str] = set()
    for step in task:
        if isinstance(step, File) and step.name.endswith(".py"):
            needed |= {*_names_in(ast.parse(step.text))}
        elif isinstance(step, Command) and step.line.startswith("handrail"):
            needed |= {*re.findall(r"(?<![\w-])--[a-z-]+", step.line)} | {
                " ".join(word for word in step.line.split()[:3] if "." not in word)
            }
    return needed


def _names_in(program: ast.Module) -> Iterator[str]:
    """The names that a program takes from Handrail: what it imports, its attributes, its keywords."""
    for node in ast.walk(program):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "handrail":
                yield from (module, *(alias.name for alias in names))
            case ast.Call(func=ast.Name(id=name), keywords=keywords) if name not in vars(builtins):
                yield from (keyword.arg for keyword in keywords if keyword.arg)
            case ast.Attribute(attr=name):
                yield name
            case _:
                pass


def test_the_table_has_ten_tasks() -> None:
    """Those that are done here."""
    assert [*pages()] == [*TASKS]
    assert len(TASKS) == 10


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.short(len(TASKS))
def test_a_page_says_all_that_its_task_needs(task: str) -> None:
    """Every name of Handrail in the programs, every command and option; what is of Python itself is known."""
    text = pages()[task].read_text(encoding="utf-8")
    known = set(dir(str)) | set(dir(Path)) | {*sys.stdlib_module_names} | {"kill", "getpid", "SIGKILL", "argv"}
    words = words_needed(TASKS[task]) - known
    assert {word for word in words if not re.search(rf"(?<!\w){re.escape(word)}\b", text)} == set()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.short(2)
def test_a_task_is_done(task: str, at: Terminal, tmp_path: Path) -> None:
    """By its programs and commands, in an empty folder."""
    for step in TASKS[task]:
        match step:
            case File(name, text):
                (tmp_path / name).write_text(text, encoding="utf-8")
            case Command(line, shown):
                found = at.type(line, tmp_path)
                assert shown in found, line
