"""The files of a new agent, as `handrail new` writes them; `NAME` stands for the name of the agent."""

from __future__ import annotations

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
"""The tools of the agent NAME: plain functions. A model reads their names, their arguments and their docstrings."""

from dataclasses import dataclass

from handrail.agents import current_run
from pydantic_ai import Tool


@dataclass(frozen=True)
class Note:
    """A note, as it is kept."""

    text: str


def list_notes() -> str:
    """List all notes, the oldest first."""
    # The session of the run holds a list for every dataclass; this is that of the notes.
    notes = current_run().session[Note].all()
    return "\\n".join(note.text for note in notes) or "There are no notes yet."


def add_note(text: str) -> str:
    """Add a note.

    Args:
        text: what to note, in one sentence.
    """
    # If the call fails after this line, the note is taken back.
    current_run().session[Note].append(Note(text))
    return f"noted: {text}"


# What the agent file can name. A plain function counts as one that changes something, so its calls are asked about;
# of one that only reads, say so, and they run.
TOOLS = [
    Tool(list_notes, metadata={"effect": "read"}),
    add_note,
]
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

SCRIPT = """\
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


def test_a_note_is_added() -> None:
    """The agent looks at the notes, adds one, and says so."""
    with ScriptedModel.from_file(HERE / "script.yaml") as model:
        agent = load_agent(HERE / "NAME.agent")
        result = agent.run("Remember that I want to buy milk.", RunOptions(model=model, mode="approve-all"))
    assert result.status == "done"
    assert result.output == "I have noted that you want to buy milk."
'''
"""Its test."""

FILES = {
    "NAME.agent": AGENT,
    "tools.py": TOOLS,
    "approval.yaml": APPROVAL,
    "pyproject.toml": PYPROJECT,
    "script.yaml": SCRIPT,
    "test_NAME.py": TEST,
}
"""All files, by their names."""
