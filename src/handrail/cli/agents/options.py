"""The options of `handrail run` and `handrail check`. This module does not need the extra `agents`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import CycloptsError, Group, Parameter, validators

from handrail.cli.paths import EXAMPLES, folder_here, path_status
from handrail.cli.screen import Debug
from handrail.serde.formatting import did_you_mean, files_in, nearest_path

AgentPath = Annotated[Path, Parameter(metavar="AGENT_FILE", help="The agent file, such as desk.agent.")]
"""Which agent."""

Approve = Literal["ask", "later", "approve-all", "deny-all"]
"""How questions are answered: `later` leaves them all open, for a stored session."""

AGENT_SUFFIX = ".agent"
"""How the names of agent files end."""

_ANY = Path("AGENT_FILE")
_AT_LEAST_ONE = validators.Number(gte=1)
_RUN = Group("The run", sort_key=1)
_KEPT = Group("Store and output", sort_key=9)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    r"""How to run an agent.

    Attributes:
        stdin: Read INPUT from standard input, even if that is a terminal.
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
        debug: whether tracebacks are shown.
    """

    stdin: Annotated[bool, Parameter(name="-", group=_RUN)] = False
    model: Annotated[str | None, Parameter(metavar="NAME", group=_RUN)] = None
    approve: Annotated[Approve, Parameter(group=_RUN)] = "ask"
    rules: Annotated[Path | None, Parameter(metavar="FILE", group=_RUN)] = None
    root: Annotated[Path | None, Parameter(metavar="FOLDER", group=_RUN)] = None
    max_depth: Annotated[int, Parameter(metavar="N", group=_RUN, validator=_AT_LEAST_ONE)] = 5
    request_limit: Annotated[int, Parameter(metavar="N", group=_RUN, validator=_AT_LEAST_ONE)] = 50
    no_stream: Annotated[bool, Parameter(negative="", group=_RUN)] = False
    retries: Annotated[int | None, Parameter(metavar="N", group=_RUN, validator=validators.Number(gte=0))] = None
    fallback_model: Annotated[str | None, Parameter(metavar="NAME", group=_RUN)] = None
    store: Annotated[
        str | None,
        Parameter(
            metavar="URL",
            group=_KEPT,
            help=f"Where the session is stored: {EXAMPLES}. It is made if it does not exist. Else that of "
            "\\[tool.handrail], HANDRAIL_STORE, or none.",
        ),
    ] = None
    session: Annotated[str | None, Parameter(metavar="ID", group=_KEPT)] = None
    format: Annotated[Literal["text", "json"], Parameter(group=_KEPT)] = "text"

    debug: Annotated[Debug, Parameter(group=_KEPT)] = False

    @property
    def as_json(self) -> bool:
        """Whether a program reads the output."""
        return self.format == "json"

    def check(self) -> None:
        """Check that the values are valid.

        Raises:
            CycloptsError: one is not.
        """
        models = (("--model", self.model), ("--fallback-model", self.fallback_model))
        for name, text in (*models, ("--store", self.store), ("--session", self.session)):
            if text is not None and not text.strip():
                raise CycloptsError(msg=f"{name} is empty; give it a value, or leave it out")
        if self.root is not None and (found := path_status(self.root)) != "folder":
            near = did_you_mean(self.root, folder=True) if found == "nothing" else ""
            raise CycloptsError(msg=f"--root {self.root} is not a folder; create it, or name an existing one.{near}")
        check_rules_path(self.rules)


AS_TYPED = RunChoices()
"""The defaults."""


def check_rules_path(rules: Path | None) -> None:
    """Check that a file of approval rules exists, if one was given.

    Raises:
        CycloptsError: it does not.
    """
    found = "file" if rules is None else path_status(rules)
    if rules is None or found not in {"folder", "nothing"}:
        return
    if found == "nothing":
        raise CycloptsError(msg=f"--rules {rules} is not a file; check the path.{did_you_mean(rules, suffix='.yaml')}")
    inside = files_in(rules, suffix=".yaml")
    raise CycloptsError(msg=f"--rules {rules} is a folder; name a file in it{inside and f': {inside}'}")


def check_agent_path(path: Path, words: Sequence[str] = ()) -> None:
    """Check that an agent file exists, and that INPUT is one word for the shell.

    Args:
        path: the agent file, as it was typed.
        words: what was typed after it.

    Raises:
        CycloptsError: it does not; the message has the nearest path, or the agent files in the folder that was typed.
            INPUT without quotes is several words, and is reported with it.
    """
    fault, meant = _path_fault(path)
    faults = [fault] if fault else []
    # The shell has already split the words, so what was typed cannot be restored exactly; one space joins them.
    if len(words) > 1:
        typed = shlex.join(["handrail", "run", str(meant), " ".join(words)])
        faults.append(f"INPUT is {len(words)} words for the shell; put it in quotes: {typed}")
    if faults:
        raise CycloptsError(msg=" ".join(faults))


def _path_fault(path: Path) -> tuple[str, Path]:
    """What is wrong with the path of an agent file, empty if nothing is; and the path that was probably meant.

    If none is similar, that is the word by which the help names it.
    """
    found = path_status(path)
    if found == "folder":
        files = sorted(path.glob(f"*{AGENT_SUFFIX}"))
        if not files:
            return f"{path} is a folder without an agent file; handrail new NAME makes one.", _ANY
        named = files_in(path, suffix=AGENT_SUFFIX)
        return f"{path} is a folder; name one of its agent files: {named}.", files[0] if len(files) == 1 else _ANY
    if found == "nothing":
        near = nearest_path(path, suffix=AGENT_SUFFIX)
        if near is not None:
            return f"the file {path} does not exist. Did you mean {near}?", near
        inside = files_in(path.parent, suffix=AGENT_SUFFIX)
        where = f"; the agent files there: {inside}." if inside else f"; check the current folder ({folder_here()})."
        return f"the file {path} does not exist{where}", _ANY
    return "", path
