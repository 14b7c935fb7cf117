"""`handrail new`: a new agent is a folder that runs, with a test. In its files `NAME` stands for its name."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from cyclopts import CycloptsError

from handrail.agents.registry import EXPORT_NAME_PATTERN
from handrail.agents.toolsets.builtin import built_ins
from handrail.cli.paths import os_error_text
from handrail.cli.process_exit import DONE
from handrail.cli.screen import Screen
from handrail.errors import AgentError

_NAME = "NAME"
_TEMPLATE = Path(__file__).parent / "template"
"""The files of a new agent: each has the name of the one that is made, and `.txt`."""


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
            for file in _TEMPLATE.iterdir():
                text = file.read_text(encoding="utf-8").replace(_NAME, name)
                (made / file.stem.replace(_NAME, name)).write_text(text, encoding="utf-8")
            # Only a complete folder gets the final name. If another process has made one with content since, the rename
            # fails.
            made.rename(folder)
    except (OSError, ValueError) as error:
        raise AgentError(f"{folder} cannot be written: {os_error_text(error)}") from error
    return folder
