"""A new agent: a folder that runs, with a test."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from handrail.cli.agents.new import FILES
from handrail.cli.paths import why
from handrail.errors import AgentError

_NAME = "NAME"


def write_agent_folder(name: str, parent: Path) -> Path:
    """Write the folder of a new agent, whole or not at all, and return it.

    Raises:
        AgentError: it is there already, or cannot be written.
    """
    folder = parent / name
    try:
        if os.path.lexists(folder):
            raise AgentError(
                f"{folder} is there already, and nothing of it was changed; give another name, or --folder"
            )
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=parent) as place:
            made = Path(place) / name
            made.mkdir()
            for file, text in FILES.items():
                (made / file.replace(_NAME, name)).write_text(text.replace(_NAME, name), encoding="utf-8")
            made.rename(folder)
    except (OSError, ValueError) as error:
        raise AgentError(f"{folder} cannot be written: {why(error)}") from error
    return folder
