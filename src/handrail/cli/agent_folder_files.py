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
"""The tools of the agent NAME: notes, kept in the session of the run."""

from dataclasses import dataclass

from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.session import stored_as


@stored_as("NAME.note")
@dataclass(frozen=True)
class Note:
    """A note. A tool that returns one has it kept; `stored_as` names it in a store, for good.

    Attributes:
        text: what is noted.
    """

    text: str

    def render(self) -> str:
        """What the model reads."""
        return self.text


@dataclass(frozen=True)
class Notes:
    """What `list_notes` returns.

    Attributes:
        texts: every note, the oldest first.
    """

    texts: tuple[str, ...]

    def render(self) -> str:
        """What the model reads."""
        return "\\n".join(f"- {text}" for text in self.texts) or "There are no notes yet."


def _list_notes(params: None, *, context: ToolContext) -> ToolResult[Notes]:
    notes = Notes(tuple(note.text for note in context.session[Note].all()))
    return ToolResult.ok(notes, notes.render())


def _add_note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    # Returning the note keeps it. If anything fails before the call has ended, it is as if it had not been made.
    return ToolResult.ok(params, f"Noted: {params.text}")


list_notes = Tool[None, Notes](
    name="list_notes",
    description="Lists all notes, the oldest first.",
    handler=_list_notes,
    effect="read",  # it changes nothing, so it runs without being asked about
)

add_note = Tool[Note, Note](
    name="add_note",
    description="Adds a note.",
    handler=_add_note,
    effect="state",  # it changes the session, which is put back if the call fails
)

TOOLS = [list_notes, add_note]
'''
"""Its tools."""

APPROVAL = """\
# What runs without asking, what is asked about, and what never runs. A rule that denies counts more than one that asks,
# and that more than one that allows.
# What no rule names follows the default for its effect.
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
# store = "sqlite:///notes.db"   # keeps sessions, so that a run can be resumed

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
      messages: {look: {ok: [no notes yet]}}
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
