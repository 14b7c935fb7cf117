"""The parameters of `handrail run`, `check` and `new`. To run them needs the extra `agents`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from handrail.cli.agents.options import AS_TYPED, AgentPath, RunChoices, check_agent_path, check_rules_path
from handrail.cli.screen import Debug


def run_agent(
    agent_file: AgentPath,
    /,
    *input: Annotated[
        str,
        Parameter(
            metavar="INPUT",
            help="The input of the agent, in quotes; else it is read from standard input, unless that is a terminal.",
        ),
    ],
    choices: RunChoices = AS_TYPED,
) -> int:
    """Run an agent to its answer.

    The answer goes to standard output, and what the agent does to standard error. Calls that need approval are asked
    about on the terminal; without one, they are denied. With --store and --session a run is stored: without INPUT
    its open questions are asked, and it is resumed.

    Args:
        agent_file: The agent file.
        *input: The input, which the shell may have split.
        choices: How to run it.
    """
    need_extra()
    # Before the import below, so that a wrong path is reported without the time that importing PydanticAI takes.
    check_agent_path(agent_file, input)

    with imports_unsearched():
        from handrail.cli.agents.run import execute_run  # noqa: PLC0415 - needs the extra, which has just been checked

    return execute_run(agent_file, input[0] if input else None, choices)


def check_agent(
    agent_file: AgentPath,
    /,
    *,
    rules: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    format: Literal["table", "json"] = "table",
    debug: Debug = False,  # noqa: ARG001 - for the help; it is removed before parsing
) -> int:
    """Check an agent without a model: all files of its project, all names, and the tools of a run.

    The table shows for each tool its effect, whether the approval rules allow it, and where it is defined; a second one
    shows the rules on arguments that differ. A rule that names what the project does not have is a problem.

    Args:
        agent_file: The agent file.
        rules: The approval rules, instead of the project's.
        format: `table` for people; `json` for programs: one document, with the schemas too.
        debug: Whether to show tracebacks.
    """
    need_extra()
    check_agent_path(agent_file)
    check_rules_path(rules)

    with imports_unsearched():
        from handrail.cli.agents.check import check_command  # noqa: PLC0415 - as above

    return check_command(agent_file, rules, as_json=format == "json")


def new_agent(
    name: Annotated[str, Parameter(metavar="NAME")],
    /,
    *,
    folder: Annotated[Path, Parameter(metavar="FOLDER")] = Path(),
    debug: Debug = False,  # noqa: ARG001 - as above
) -> int:
    """Make the folder of a new agent that runs: agent file, tools, approval rules, settings, and a test.

    Args:
        name: The name of the agent: letters, digits, `_` and `-`.
        folder: Where to make it; else in the current folder.
        debug: Whether to show tracebacks.
    """
    need_extra()

    from handrail.cli.agents.new import create_agent  # noqa: PLC0415 - as above

    return create_agent(name, folder)


@contextmanager
def imports_unsearched() -> Generator[None]:
    """A block that imports PydanticAI; what it makes is never searched for garbage.

    What modules make stays to the end of the process. The collector would look through all of it several times, which
    takes a fifth of the time of `handrail check`.
    """
    # In a program that has it already, nothing says what is to be kept and what may be garbage.
    if "pydantic_ai" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def need_extra() -> None:
    """Make sure that the extra `agents` is installed.

    Raises:
        ImportError: it is not installed.
    """
    missing = [name for name in ("pydantic_ai", "ruamel") if find_spec(name) is None]
    if missing:
        raise ImportError(f'agents need {" and ".join(missing)}, not installed here: pip install "handrail[agents]"')
