"""`handrail run`, `check`, `new`, and what they share: the options of a run, and the import of what agents need.

- `commands`: the three commands, without the extra.
- `run`: `run`: input, model, session, and the run itself.
- `check`: `check`: everything that can be checked without a model.
- `settings`: which model runs an agent, and where the session of a run is stored.
- `progress`: a run shown as lines or as JSON, problems with an agent or its run, and questions to a person.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter, validators

from handrail.cli.options import A_FILE, A_FOLDER, COUNT, EXAMPLES, FILLED, IN_GROUP

_RUN = Group("The run", sort_key=1)


@Parameter(name="*", group=_RUN)
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
    """

    stdin: Annotated[bool, Parameter(name="-")] = False
    model: Annotated[str | None, FILLED, Parameter(metavar="NAME")] = None
    approve: Literal["ask", "later", "approve-all", "deny-all"] = "ask"
    rules: Annotated[Path | None, A_FILE] = None
    root: Annotated[Path | None, A_FOLDER] = None
    max_depth: Annotated[int, COUNT] = 5
    request_limit: Annotated[int, COUNT] = 50
    no_stream: bool = False
    retries: Annotated[int | None, Parameter(metavar="N", validator=validators.Number(gte=0))] = None
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

    @property
    def as_json(self) -> bool:
        """Whether a program reads the output."""
        return self.format == "json"


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
