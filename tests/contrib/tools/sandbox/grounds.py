"""A workspace with a run over it, whose commands run in a sandbox or on the host."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self, get_args

from handrail.contrib.tools import ShellToolsSection
from handrail.contrib.tools.sandbox.engine import Bubblewrap, SandboxEngine, SandboxLimits
from handrail.contrib.tools.sandbox.podman import Podman
from handrail.contrib.tools.sandbox.section import SandboxSection
from handrail.contrib.tools.shell.rules import ShellRule
from handrail.filesystem import HostFilesystem
from handrail.prompt import Section
from handrail.runtime import ToolMessage
from tests.contrib.suites import SuiteRun
from tests.contrib.tools.sandbox.podman_store import IMAGE, podman_command
from tests.filesystem.kit import Picture, picture, plant

Where = Literal["podman", "bubblewrap", "host"]
"""Where commands run."""

SANDBOXES: tuple[Where, ...] = ("podman", "bubblewrap")
EVERYWHERE: tuple[Where, ...] = get_args(Where)

PRIVATE = "what-only-the-host-has"
"""What stands in a file beside the workspace, and in a variable of the agent."""


def engine_of(where: Where) -> SandboxEngine:
    """What makes the sandbox."""
    return Podman(image=IMAGE, command=podman_command()) if where == "podman" else Bubblewrap()


class Ground(ExitStack):
    """A workspace with something of everything, and a run over it.

    Attributes:
        root: the workspace.
        outside: the folder that holds it, with a secret.
    """

    def __init__(self, where: Where, outside: Path, limits: SandboxLimits | None = None) -> None:
        super().__init__()
        self.where: Where = where
        self.outside, self.root = outside, outside / "workspace"
        if not self.root.exists():
            plant(self.root)
            (self.root / ".git").mkdir()
            (outside / "private").write_text(PRIVATE)
        self.limits = limits or SandboxLimits()

    def __enter__(self) -> Self:
        journal = self.outside / "journal"
        self.files = self.enter_context(HostFilesystem(self.root, journal=journal, durability="normal"))
        self.run = SuiteRun(self._section())
        self.enter_context(self.run.executor)
        return self

    def picture(self) -> Picture:
        """Everything in the workspace."""
        return picture(self.root)

    def call(self, line: str, **more: str) -> ToolMessage:
        """The message that answers a call which runs a line of the shell."""
        if self.where == "host":
            return self.run.call("shell_run", command=["sh", "-c", line], **more)
        return self.run.call("shell_execute", command=line, **more)

    def told(self, line: str, **more: str) -> str:
        """What the model reads after a command that must succeed."""
        message = self.call(line, **more)
        assert message.success, message.content
        return message.content

    def refused(self, line: str, **more: str) -> str:
        """What the model reads after a command that must fail."""
        message = self.call(line, **more)
        assert not message.success, message.content
        return message.content

    def _section(self) -> Section[Any]:
        if self.where != "host":
            return SandboxSection(self.files, engine=engine_of(self.where), limits=self.limits)
        rule = ShellRule(("sh",), confined=False)
        bounds = {name: getattr(self.limits, name) for name in ("timeout", "max_output_bytes", "max_kept_bytes")}
        return ShellToolsSection(self.files, allow=[rule], **bounds)


def short_limits(seconds: float = 2.0, **fields: Any) -> SandboxLimits:
    """Limits that an attack meets soon."""
    given = {"memory_bytes": 64 << 20, "processes": 32, "file_bytes": 8 << 20}
    given |= {"tmp_bytes": 8 << 20, "max_output_bytes": 2000, "max_kept_bytes": 2000} | fields
    return SandboxLimits(timeout=timedelta(seconds=seconds), **given)


def is_superuser() -> bool:
    """Whether this process is that of the superuser."""
    return os.getuid() == 0
