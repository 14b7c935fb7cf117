"""The coding agent: its prompt, and the place where it runs commands."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from handrail.contrib.tools import Bubblewrap, SandboxSection, ShellRule, ShellToolsSection, VfsToolsSection
from handrail.errors import SandboxError
from handrail.filesystem import HostFilesystem
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Section

TASK = """\
You work on a small package of Python. `ISSUE.md` says what is wrong with it.

Make the smallest change that solves the issue, and do not change the tests. `python3 -m unittest -q` runs them. When
all of them pass, say in one or two sentences what you have changed."""

PROJECT = Path(__file__).with_name("project")
"""The package, as it is before."""

PRIVATE = "what stands beside the folder"
"""The content of the file beside the copy."""

HOST_PROGRAMS = ("python3", "sh", "cat", "grep")
"""What may be run where there is no sandbox."""

_SYSTEM = Path("/usr")


@dataclass(frozen=True, slots=True)
class Place:
    """Where commands run.

    Attributes:
        is_sandbox: whether bubblewrap keeps them from the host.
    """

    is_sandbox: bool

    @property
    def tool(self) -> str:
        """The name of the tool that runs them."""
        return "shell_execute" if self.is_sandbox else "shell_run"

    @property
    def sentence(self) -> str:
        """What there is to say about it."""
        if self.is_sandbox:
            return "Commands run in a sandbox of bubblewrap, without a network."
        return (
            "Commands run on this machine, and can read what you can read: there is no bubblewrap here that can limit "
            "them. On Linux, install it: apt-get install bubblewrap."
        )


def place_here() -> Place:
    """A sandbox if bubblewrap can make one here, else the host."""
    try:
        Bubblewrap(folders=_folders()).check()
    except SandboxError:
        return Place(is_sandbox=False)
    return Place(is_sandbox=True)


def coder_prompt(place: Place, files: HostFilesystem) -> Prompt[str]:
    """The prompt of the agent, over the files of the package."""
    sections: list[Section[None]]
    if place.is_sandbox:
        engine = Bubblewrap(folders=_folders())
        sections = [SandboxSection(files, engine=engine, environment=_environment())]
    else:
        rules = [ShellRule((program,), confined=False) for program in HOST_PROGRAMS]
        sections = [ShellToolsSection(files, allow=rules, environment=_environment()), VfsToolsSection(files)]
    task = MarkdownSection[None](title="Coding agent", key="task", template=TASK)
    return Prompt(PromptTemplate[str](ns="examples", key="coding-agent", sections=[task, *sections]))


def _folders() -> tuple[Path, ...]:
    """The Python of this process, unless it is the system's, which a sandbox has anyway."""
    python = Path(sys.base_prefix)
    return () if python.is_relative_to(_SYSTEM) else (python,)


def _environment() -> Mapping[str, str]:
    path = os.pathsep.join((f"{sys.base_prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"))
    return {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def copy_project(folder: Path) -> Path:
    """A copy of the package for the agent to work on, with a file beside it that it must not read."""
    root = folder / "project"
    shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "private.txt").write_text(f"{PRIVATE}\n", encoding="utf-8")
    return root
