"""`handrail run`, `check` and `new`: their parameters, and the import of what agents need."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import CycloptsError, Group, Parameter, validators

from handrail.cli.options import A_FILE, A_FOLDER, COUNT, EXAMPLES, FILLED, IN_GROUP, WHOLE, Yes
from handrail.cli.screen import Screen
from handrail.errors import AgentError

_RUN = Group("The run", sort_key=1)


@Parameter(name="*", group=_RUN)
@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    r"""The options of a run.

    Attributes:
        model: The model, such as openai:gpt-5.2, or script:FILE for one that plays a script. Else that of the agent
            file, of \[tool.handrail], or HANDRAIL_MODEL.
        approve: What happens to calls that need approval: you are asked (the default), they wait, they run, or nothing
            runs but what rules allow. A deny rule always holds.
        rules: The approval rules, instead of the project's.
        root: The folder to work on; else the current one.
        max_depth: How deep agents may call each other; 5 by default.
        request_limit: How many requests to models are allowed in all; 50 by default.
        no_stream: Ask for each reply as a whole, for servers that do not stream.
        retries: How often the provider's library repeats a request to the model that fails with 429 or 5xx, or without
            a connection. By default as often as it does by itself. No call of a tool is repeated.
        fallback_model: A model that is asked where the model of an agent fails.
        store: the URL of the store, as it was typed.
        session: The session to resume, or to start. By default a new one is started.
        format: `text` for people; `json` for programs: an event a line, and nothing else.
        plan: Rehearse the run on copies, and write its plan to this file; nothing else is changed. `handrail apply`
            executes exactly that.
    """

    model: Annotated[str | None, FILLED, Parameter(metavar="NAME")] = None
    approve: Literal["ask", "later", "approve-all", "deny-all"] = "ask"
    rules: Annotated[Path | None, A_FILE] = None
    root: Annotated[Path | None, A_FOLDER] = None
    max_depth: Annotated[int, COUNT] = 5
    request_limit: Annotated[int, COUNT] = 50
    no_stream: bool = False
    retries: Annotated[int | None, WHOLE, Parameter(validator=validators.Number(gte=0))] = None
    fallback_model: Annotated[str | None, FILLED, Parameter(metavar="NAME")] = None
    store: Annotated[
        str | None,
        FILLED,
        Parameter(
            metavar="URL",
            group=IN_GROUP,
            help=f"Where the session is stored: {EXAMPLES}. It is made if it does not exist. Else that of "
            "\\[tool.handrail], HANDRAIL_STORE, or none.",
        ),
    ] = None
    session: Annotated[str | None, FILLED, Parameter(metavar="ID", group=IN_GROUP)] = None
    format: Annotated[Literal["text", "json"], Parameter(group=IN_GROUP)] = "text"
    plan: Annotated[Path | None, Parameter(metavar="FILE")] = None

    @property
    def as_json(self) -> bool:
        """True if a program reads the output."""
        return self.format == "json"


AgentPath = Annotated[Path, A_FILE, Parameter(metavar="AGENT_FILE")]
"""Which agent."""

PlanStore = Annotated[str | None, FILLED, Parameter(metavar="URL")]
"""The store of a plan, if its URL has a password."""

# The files of a new agent, in which `NAME` stands for its name, with `.txt` behind the name of each.
_TEMPLATE = Path(__file__).parent / "template"


def run_agent(agent_file: AgentPath, input: str | None = None, /, *, choices: RunChoices = RunChoices()) -> int:
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
    import_module("handrail.agents")  # which says what to install
    from handrail.cli.agents.run import execute_run  # noqa: PLC0415 - needs the extra

    if choices.plan is not None:
        from handrail.cli.agents.plan import write_plan  # noqa: PLC0415 - as above

        return execute_run(agent_file, input, choices, rehearse=partial(write_plan, choices.plan))
    return execute_run(agent_file, input, choices)


def apply_plan_file(
    plan_file: Annotated[Path, A_FILE, Parameter(metavar="PLAN")], /, *, yes: Yes = False, store: PlanStore = None
) -> int:
    """Execute exactly the plan that handrail run --plan has written, once it is approved.

    It is refused if anything has changed since: session, files, agent, rules or model. It stops at the first call or
    result that differs.

    Example: `handrail apply plan.json`

    Args:
        plan_file: The plan, such as plan.json.
        yes: Do not ask. Needed without a terminal.
        store: The URL of the store, if it is not a file; else HANDRAIL_STORE.
    """
    from handrail.cli.agents.plan import execute_plan  # noqa: PLC0415 - as above

    return execute_plan(plan_file, store, Screen(), yes=yes)


def check_agent(
    agent_file: AgentPath,
    /,
    *,
    rules: Annotated[Path | None, A_FILE] = None,
    provider: Literal["openai", "anthropic"] | None = None,
    format: Literal["table", "json"] = "table",
) -> int:
    """Check an agent without a model: all files of its project, all names, and the tools of a run.

    The table shows for each tool its effect, whether the approval rules allow it, and where it is defined; a second one
    shows the rules on arguments that differ. A rule that names what the project does not have is a problem.

    Example: `handrail check desk.agent`

    Args:
        agent_file: The agent file, such as desk.agent.
        rules: The approval rules, instead of the project's.
        provider: Also show which schemas this provider takes as strict, and why it does not take the others.
        format: `table` for people; `json` for programs: one document, with the schemas too.
    """
    from handrail.cli.agents.check import check_command  # noqa: PLC0415 - as above

    return check_command(agent_file, rules, provider, as_json=format == "json")


# -------------------------------------------------------------------------------------------------------- a new agent


def new_agent(name: str, /, *, folder: Annotated[Path, Parameter(metavar="FOLDER")] = Path()) -> None:
    """Make the folder of a new agent that runs: agent file, tools, approval rules, settings, and a test.

    Example: `handrail new desk --folder agents`

    Args:
        name: The name of the agent: letters, digits, `_` and `-`.
        folder: Where to make it; else in the current folder.
    """
    from handrail.agents.registry import EXPORT_NAME_PATTERN  # noqa: PLC0415 - as above

    if not EXPORT_NAME_PATTERN.fullmatch(name):
        raise CycloptsError(msg=f"{name!r} is not an agent's name: 1 to 64 letters (a to z), digits, `_` and `-`")
    path = write_agent_folder(name, folder)
    screen = Screen()
    screen.say(f"Made {path}. It runs as it is, with a scripted model:")
    file, script = shlex.quote(str(path / f"{name}.agent")), shlex.quote(str(path / "script.yaml"))
    request = '"Remember that I want to buy milk."'
    screen.command(["handrail", "run", file, request, "--model", f"script:{script}", "--approve", "approve-all"])
    screen.say("And it has a test:")
    screen.command(["pip", "install", "pytest"])
    screen.command(["pytest", shlex.quote(str(path))])


def write_agent_folder(name: str, parent: Path) -> Path:
    """Writes the folder of a new agent, and returns it."""
    folder = parent / name
    try:
        folder.mkdir(parents=True)
        for file in _TEMPLATE.iterdir():
            text = file.read_text(encoding="utf-8").replace("NAME", name)
            (folder / file.stem.replace("NAME", name)).write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise AgentError(f"{folder} already exists; unchanged. Give another name, or --folder") from error
    except OSError as error:
        raise AgentError(f"{folder} cannot be written: {error.strerror}") from error
    return folder
