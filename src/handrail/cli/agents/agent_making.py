"""Carrying out `handrail new`."""

from __future__ import annotations

import shlex
from pathlib import Path

from cyclopts import CycloptsError

from handrail.agents.exports.classify import NAME
from handrail.agents.toolsets.builtin import built_ins
from handrail.cli.agents.agent_folder import write_agent_folder
from handrail.cli.exit_codes import DONE
from handrail.cli.screen import Screen


def make(name: str, parent: Path) -> int:
    """Write the folder of a new agent, and say what to do with it.

    Raises:
        CycloptsError: no agent may have that name.
        AgentError: the folder is there already, or cannot be written.
    """
    if not NAME.fullmatch(name):
        raise CycloptsError(msg=f"{name!r} names no agent: a name is 1 to 64 letters (a to z), digits, `_` and `-`")
    if any(entry.name == name for entry in built_ins()):
        raise CycloptsError(
            msg=f"{name} is a built-in toolset, and an agent is a toolset for others; give another name"
        )
    folder = write_agent_folder(name, parent)
    screen = Screen()
    screen.say(f"Made {folder}. It runs as it is, with a scripted model:")
    file, script = shlex.quote(str(folder / f"{name}.agent")), shlex.quote(str(folder / "script.yaml"))
    screen.say(
        f'  handrail run {file} "Remember that I want to buy milk." --model script:{script} --approve approve-all'
    )
    screen.say("And it has a test:")
    screen.say("  pip install pytest")
    screen.say(f"  pytest {shlex.quote(str(folder))}")
    return DONE
