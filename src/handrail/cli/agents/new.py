"""`handrail new`: a new agent is a folder that runs, with a test. In its files `NAME` stands for its name."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from cyclopts import CycloptsError

from handrail.agents.exports.classify import EXPORT_NAME_PATTERN
from handrail.agents.toolsets.builtin import built_ins
from handrail.cli.paths import os_error_text
from handrail.cli.process_exit import DONE
from handrail.cli.screen import Screen
from handrail.errors import AgentError

_NAME = "NAME"

AGENT = """\
---
name: "NAME"
description: Keeps notes, and finds them again.
tools:
  - list_notes
  - add_note
# toolsets:            # built-in ones: files_ro, files, planning, shell; and other agents, by their names
#   - files_ro
---
You keep notes for the person who writes to you.

Look at the notes before you add one: what is noted already is not noted twice.
Answer in one or two sentences.
"""
"""The agent file."""

TOOLS = '''\
"""The tools of the agent NAME. A model reads their names, their parameters and their docstrings."""

from dataclasses import dataclass

from handrail import tool
from handrail.prompt import ToolContext


@dataclass(frozen=True)
class Note:
    """A note, as it is stored."""

    text: str


# It runs without asking. The default is "state", and such calls are asked about.
@tool(effect="read")
def list_notes(context: ToolContext) -> str:
    """List all notes, the oldest first."""
    # The session of the run holds a list for every dataclass; this is that of the notes.
    notes = context.session[Note].all()
    return "\\n".join(note.text for note in notes) or "There are no notes yet."


@tool
def add_note(text: str, context: ToolContext) -> str:
    """Add a note.

    Args:
        text: what to note, in one sentence.
    """
    # If the call fails after this line, the note is rolled back.
    context.session[Note].append(Note(text))
    return f"noted: {text}"


# What the agent file can name.
TOOLS = [list_notes, add_note]
'''
"""Its tools."""

APPROVAL = """\
# What runs without asking, what is asked about, and what never runs. A rule that denies counts more than one that asks,
# and that more than one that allows.
# What no rule names follows the default for its effect; `handrail check` shows what holds for each tool.
defaults: {read: allow, state: ask, external: ask}
# allow:
#   - add_note
# deny:
#   - {tool: write_file, arguments: {path: "**/.env"}}
"""
"""Its approval rules."""

PYPROJECT = """\
[tool.handrail]
approval = "approval.yaml"
# model = "openai:gpt-5.2"       # or --model, `model:` in the agent file, or HANDRAIL_MODEL
# store = "sqlite:///notes.db"   # keeps what `handrail run --session today` leaves, for later runs with that session
# Before you move or rename this folder, give the dataclasses in such sessions a name: handrail.session.stored_as

[tool.pytest.ini_options]
addopts = ["--import-mode=importlib"]
"""
"""Its settings."""

SCRIPT_TEMPLATE = """\
# What the scripted model says, in place of a real one, and what it must have been sent before.
replies:
  - calls:
      - {name: list_notes, id: look}
    expect:
      instructions: [You keep notes]
      tools: [list_notes, add_note]
  - calls:
      - {name: add_note, arguments: {text: buy milk}, id: add}
    expect:
      messages: {look: ok}                    # what it sees there depends on earlier runs of the session
  - text: I have noted that you want to buy milk.
    expect:
      messages: {add: {ok: [buy milk]}}
"""
"""What the scripted model says in its test."""

TEST = '''\
"""The agent NAME, run with a scripted model: no provider is asked, and no key is needed."""

from pathlib import Path

from handrail.agents import RunOptions, load_agent
from handrail.testing import ScriptedModel

HERE = Path(__file__).parent
AGENT = "NAME.agent"


def test_a_note_is_added() -> None:
    """The agent reads the notes, and adds one."""
    with ScriptedModel.from_file(HERE / "script.yaml") as model:
        options = RunOptions(model=model, mode="approve-all")
        result = load_agent(HERE / AGENT).run("I want to buy milk.", options)
    assert result.status == "done"
    assert result.output == "I have noted that you want to buy milk."
'''
"""Its test."""

FILES = {
    "NAME.agent": AGENT,
    "tools.py": TOOLS,
    "approval.yaml": APPROVAL,
    "pyproject.toml": PYPROJECT,
    "script.yaml": SCRIPT_TEMPLATE,
    "test_NAME.py": TEST,
}
"""All files, by their names."""


def create_agent(name: str, parent: Path) -> int:
    """Write the folder of a new agent, and print how to use it.

    Raises:
        CycloptsError: no agent may have that name.
        AgentError: the folder already exists, or cannot be written.
    """
    if not EXPORT_NAME_PATTERN.fullmatch(name):
        raise CycloptsError(msg=f"{name!r} is not an agent's name: 1 to 64 letters (a to z), digits, `_` and `-`")
    if any(entry.name == name for entry in built_ins()):
        raise CycloptsError(
            msg=f"{name} is a built-in toolset, and an agent is a toolset for others; give another name"
        )
    folder = write_agent_folder(name, parent)
    screen = Screen()
    screen.say(f"Made {folder}. It runs as it is, with a scripted model:")
    file, script = shlex.quote(str(folder / f"{name}.agent")), shlex.quote(str(folder / "script.yaml"))
    said = '"Remember that I want to buy milk."'
    screen.command(["handrail", "run", file, said, "--model", f"script:{script}", "--approve", "approve-all"])
    screen.say("And it has a test:")
    screen.command(["pip", "install", "pytest"])
    screen.command(["pytest", shlex.quote(str(folder))])
    return DONE


def write_agent_folder(name: str, parent: Path) -> Path:
    """Write the folder of a new agent atomically, and return it.

    Raises:
        AgentError: it already exists, or cannot be written.
    """
    folder = parent / name
    try:
        # `lexists` also finds a link that leads to nothing, which `exists` would not.
        if os.path.lexists(folder):
            raise AgentError(f"{folder} already exists; unchanged. Give another name, or --folder")
        parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, because a rename is atomic only within one file system.
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=parent) as place:
            # A folder inside of the temporary one, because that has the mode 0700.
            made = Path(place) / name
            made.mkdir()
            for file, text in FILES.items():
                (made / file.replace(_NAME, name)).write_text(text.replace(_NAME, name), encoding="utf-8")
            # Only a complete folder gets the final name. If another process has made one with content since, the rename
            # fails.
            made.rename(folder)
    except (OSError, ValueError) as error:
        raise AgentError(f"{folder} cannot be written: {os_error_text(error)}") from error
    return folder
