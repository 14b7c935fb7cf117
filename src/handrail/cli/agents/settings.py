"""The model that runs an agent, a provider's or one that plays a script; and where its session is stored."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, unquote

from cyclopts import CycloptsError
from pydantic_ai import UserError
from pydantic_ai.models import Model, infer_model

from handrail import store as stores
from handrail import testing
from handrail.adapters.pydantic_ai.models import check_model_name
from handrail.agents.agent import MODEL_VARIABLE
from handrail.agents.run.interface import SCRIPT_PREFIX
from handrail.cli.agents import RunChoices
from handrail.cli.options import EXAMPLES, SQLITE
from handrail.errors import UnknownModelError
from handrail.session import Session

MODEL_OPTION, FALLBACK_OPTION = "--model", "--fallback-model"
"""The options that name a model, or a script."""

_SECRET = re.compile(r"(KEY|TOKEN)$")
_KEY = re.compile(r"^Set the `(\w+)` environment variable")
_SCRIPTED_BY = (MODEL_OPTION, FALLBACK_OPTION, MODEL_VARIABLE)


@dataclass(frozen=True, slots=True)
class NamedModel:
    """The name of a model, and its source, for messages."""

    name: str
    source: str

    @property
    def typed(self) -> bool:
        """True if it applies to every agent of a run, instead of the models in their files."""
        return self.source == MODEL_OPTION or self.name.startswith(SCRIPT_PREFIX)


def chosen_model(
    typed: str | None, file: str | None, project: str | None, environment: Mapping[str, str]
) -> NamedModel | None:
    """The model in effect: from the command line, else the agent file, else the project, else the environment."""
    candidates = (
        (typed, MODEL_OPTION),
        (file, "the agent file"),
        (project, "[tool.handrail] of pyproject.toml"),
        (environment.get(MODEL_VARIABLE, "").strip(), MODEL_VARIABLE),
    )
    return next((NamedModel(name, source) for name, source in candidates if name), None)


def resolve_model(model_name: NamedModel | None) -> Model:
    """The model of a name, without a request to a provider."""
    if model_name is None:
        raise CycloptsError(
            msg="which model? Give --model NAME, write `model:` in the agent file or `model` under [tool.handrail] in "
            f"pyproject.toml, or set {MODEL_VARIABLE}; a name is such as openai:gpt-5.2"
        )
    check_name(model_name)
    try:
        if model_name.name.startswith(SCRIPT_PREFIX):
            return testing.ScriptedModel.from_file(Path(model_name.name.removeprefix(SCRIPT_PREFIX)))
        return infer_model(model_name.name)
    except (UserError, ImportError, ValueError, OSError) as error:
        key = _KEY.match(str(error))
        raise _cannot(model_name, f"the environment variable {key[1]} is not set" if key else str(error)) from error


def unset_empty_keys() -> None:
    """Takes the keys that are empty out of the environment of this process, as if they were not set.

    The libraries of some providers fail at an empty key with an exception of their own, others send it.
    """
    for name in [name for name, value in os.environ.items() if _SECRET.search(name) and not value.strip()]:
        del os.environ[name]


def check_name(model_name: NamedModel | None) -> None:
    """Checks the name of a model, without a request to a provider, a package or a key."""
    if model_name is None:
        return
    if model_name.name.startswith(SCRIPT_PREFIX):
        # A script in a file of the project would silently replace the model of every run.
        if model_name.source not in _SCRIPTED_BY:
            raise _cannot(model_name, f"a script can be given only by {', '.join(_SCRIPTED_BY)}")
        if not model_name.name.removeprefix(SCRIPT_PREFIX).strip():
            raise _cannot(model_name, "no file is named; write script:FILE")
        return
    try:
        check_model_name(model_name.name, source=model_name.source)
    except UnknownModelError as error:
        raise CycloptsError(msg=str(error)) from error


def check_played(model: object) -> None:
    """Checks that a model that plays a script has played it to its end."""
    if isinstance(model, testing.ScriptedModel):
        model.assert_finished()


def _cannot(model_name: NamedModel, reason: str) -> CycloptsError:
    return CycloptsError(msg=f"the model {model_name.name} ({model_name.source}) cannot be used: {reason}")


# ----------------------------------------------------------------------------------------------------------- the store

STORE_VARIABLE = "HANDRAIL_STORE"
"""The environment variable that names the store by default."""

_WAIT = timedelta(seconds=1)  # a run holds its session for much longer, or ends at once


def chosen_store(typed: str | None, project: str | None, folder: Path, environment: Mapping[str, str]) -> str | None:
    """The URL in effect: from the command line, else the project, relative to its folder, else the environment.

    `None` for none, and for a store in memory, whose sessions could never be resumed.
    """
    # `folder` applies only to the project's setting: what is typed is relative to the current folder.
    url = typed or (within(folder, project) if project else environment.get(STORE_VARIABLE, "").strip())
    return None if not url or url.startswith("memory:") else url


def within(folder: Path, url: str) -> str:
    """The URL of a store, with the path of a SQLite database resolved from `folder`."""
    if not url.startswith(SQLITE):
        return url
    # The path is unquoted first, because a URL may contain `%20`, and quoting it again would change it.
    return f"{SQLITE}{quote(str(folder.resolve() / unquote(url.removeprefix(SQLITE))))}"


def check_stored(url: str | None, choices: RunChoices) -> None:
    """Checks that there is a store if the options need one."""
    options = {"--session": choices.session, "--plan": choices.plan, "--approve later": choices.approve == "later"}
    wants = next((option for option, is_given in options.items() if is_given), "")
    if wants and url is None:
        raise CycloptsError(msg=f"{wants} needs a durable store: give --store URL or set {STORE_VARIABLE}: {EXAMPLES}")


@contextmanager
def opened_session(url: str | None, session_id: str) -> Generator[Session | None]:
    """The session of that id, resumed or new, for this block; `None` without a store."""
    if url is None:
        yield None
        return
    # The store is closed after the session, which writes to it until its end.
    with stores.open(url) as store, Session.open(store, session_id, wait=_WAIT) as session:
        yield session
