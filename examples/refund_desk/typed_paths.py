"""Paths in the commands that a demo proposes."""

from __future__ import annotations

import shlex
from pathlib import Path


def typed_path(path: Path) -> str:
    """A path as it is typed from the folder that the demo was started in."""
    return shlex.quote(path_from_here(path))


def path_from_here(path: Path) -> str:
    """A path relative to that folder, if it is below it."""
    # Not resolved: the Python of `.venv` is a link to one that has no packages.
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)
