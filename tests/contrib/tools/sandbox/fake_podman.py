"""A program that answers as Podman does, as far as a test says."""

from __future__ import annotations

from pathlib import Path

_PODMAN = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$1" in
{cases}
esac
"""


class FakePodman:
    """A program of the host; what it is asked is kept.

    Attributes:
        command: the command that names it.
    """

    def __init__(self, folder: Path, **cases: str) -> None:
        """Make it: `ps="echo hello"` is what the shell runs for `podman ps`; it succeeds in all else."""
        self._asked = folder / "asked"
        program = folder / "podman"
        lines = "\n".join(f"{name}) {script};;" for name, script in cases.items())
        program.write_text(_PODMAN.format(folder=folder, cases=lines))
        program.chmod(0o755)
        self.command = (str(program),)

    def asked(self, name: str) -> list[list[str]]:
        """The arguments behind a command of Podman, for each time that it was given."""
        lines = self._asked.read_text().splitlines() if self._asked.exists() else []
        return [line.split()[1:] for line in lines if line.split()[0] == name]
