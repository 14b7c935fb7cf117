"""`handrail run`, `check` and `new`: their parameters. To run them needs the extra `agents`."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import CycloptsError, Parameter

from handrail.cli.agents import RunChoices, imports_unsearched, need_extra
from handrail.cli.options import A_FILE
from handrail.cli.screen import Screen
from handrail.errors import AgentError

AgentPath = Annotated[Path, A_FILE, Parameter(metavar="AGENT_FILE")]
"""Which agent."""

# The files of a new agent, in which `NAME` stands for its name, with `.txt` behind the name of each.
_TEMPLATE = Path(__file__).parent / "template"


def run_agent(
    agent_file: AgentPath,
    input: str | None = None,
    /,
    *,
    choices: RunChoices = RunChoices(),
) -> int:
    """Run an agent to its answer.

    The answer goes to standard output, and what the agent does to standard error. Calls that need approval are asked
    about on the terminal; without one, they are denied. With --store and --session a run is stored: without INPUT
    its open questions are asked, and it is resumed.

    Example: `handrail run desk.agent "Refund order A-17." --model openai:gpt-5.2`

    Args:
        agent_file: The agent file, such as desk.agent.
        input: The input of the agent, in quotes; else it is read from standard input, unless that is a terminal.
        choices: How to run it.
    """
    need_extra()
    with imports_unsearched():
        from handrail.cli.agents.run import execute_run  # noqa: PLC0415 - needs the extra, which has just been checked

    return execute_run(agent_file, input, choices)


def check_agent(
    agent_file: AgentPath,
    /,
    *,
    rules: Annotated[Path | None, A_FILE] = None,
    format: Literal["table", "json"] = "table",
) -> int:
    """Check an agent without a model: all files of its project, all names, and the tools of a run.

    The table shows for each tool its effect, whether the approval rules allow it, and where it is defined; a second one
    shows the rules on arguments that differ. A rule that names what the project does not have is a problem.

    Example: `handrail check desk.agent`

    Args:
        agent_file: The agent file, such as desk.agent.
        rules: The approval rules, instead of the project's.
        format: `table` for people; `json` for programs: one document, with the schemas too.
    """
    need_extra()
    with imports_unsearched():
        from handrail.cli.agents.check import check_command  # noqa: PLC0415 - as above

    return check_command(agent_file, rules, as_json=format == "json")


# -------------------------------------------------------------------------------------------------------- a new agent


def new_agent(
    name: str,
    /,
    *,
    folder: Annotated[Path, Parameter(metavar="FOLDER")] = Path(),
) -> None:
    """Make the folder of a new agent that runs: agent file, tools, approval rules, settings, and a test.

    Example: `handrail new desk --folder agents`

    Args:
        name: The name of the agent: letters, digits, `_` and `-`.
        folder: Where to make it; else in the current folder.
    """
    need_extra()
    from handrail.agents.registry import EXPORT_NAME_PATTERN  # noqa: PLC0415 - as above
    from handrail.agents.toolsets.builtin import built_ins  # noqa: PLC0415 - as above

    if not EXPORT_NAME_PATTERN.fullmatch(name):
        raise CycloptsError(msg=f"{name!r} is not an agent's name: 1 to 64 letters (a to z), digits, `_` and `-`")
    if any(entry.name == name for entry in built_ins()):
        raise CycloptsError(
            msg=f"{name} is a built-in toolset, and an agent is a toolset for others; give another name"
        )
    made = write_agent_folder(name, folder)
    screen = Screen()
    screen.say(f"Made {made}. It runs as it is, with a scripted model:")
    file, script = shlex.quote(str(made / f"{name}.agent")), shlex.quote(str(made / "script.yaml"))
    said = '"Remember that I want to buy milk."'
    screen.command(["handrail", "run", file, said, "--model", f"script:{script}", "--approve", "approve-all"])
    screen.say("And it has a test:")
    screen.command(["pip", "install", "pytest"])
    screen.command(["pytest", shlex.quote(str(made))])


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
                text = file.read_text(encoding="utf-8").replace("NAME", name)
                (made / file.stem.replace("NAME", name)).write_text(text, encoding="utf-8")
            # Only a complete folder gets the final name. If another process has made one with content since, the rename
            # fails.
            made.rename(folder)
    except OSError as error:
        raise AgentError(f"{folder} cannot be written: {error.strerror}") from error
    return folder
