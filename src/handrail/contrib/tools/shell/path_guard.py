"""Files that programs do not get: what a run keeps from its file tools, `shell_run` does not hand to a program either.

| a command | |
|---|---|
| names a path that is kept back, by itself or through a link | is refused |
| is one that reads more than the files that it names, or is not known not to | is refused while anything is kept back |
| the same, where its `ShellRule`, or the approval rule that allows the call, says `reads_everything` | runs |

A program is not watched while it runs. What it does with the files that it is given, and what other names a file has on
the disk (a hard link), no rule about paths can say.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from handrail.contrib.tools.shell.rules import ArgumentPath, Command, ShellRule, format_command, paths_in
from handrail.filesystem.path_filters import NOTHING_FILTERED, PathFilter, excluding
from handrail.filesystem.paths import ROOT
from handrail.prompt import ToolContext


@dataclass(frozen=True, slots=True)
class ProgramPaths:
    """What a run keeps from the programs that its calls run. A run of an agent binds it for every toolset.

    Attributes:
        path_filter: what the run keeps back from its file tools.
        kept_in: what toolsets of the run keep back, beside that, in a folder in which programs run.
        show_git: whether `.git` may be named to a program, as it exists for the file tools.
        reads_everything: whether the rules of the run let a call run programs that read every file; given the context
            of the call and its parameters.
    """

    path_filter: PathFilter
    show_git: bool
    reads_everything: Callable[[ToolContext, object], bool]
    kept_in: Callable[[Path], PathFilter]


@dataclass(frozen=True, slots=True)
class ProgramReach:
    """What one command may reach.

    Attributes:
        path_filter: what is kept back from it.
        named: the same, and what may only not be named.
        everything: whether it may read everything that it does not name.
    """

    path_filter: PathFilter = NOTHING_FILTERED
    named: PathFilter = NOTHING_FILTERED
    everything: bool = True

    @classmethod
    def of(cls, params: object, context: ToolContext, root: Path) -> ProgramReach:
        """What a call may reach that runs programs in a folder, `root`: all where nothing is bound."""
        paths = context.resources.get(ProgramPaths, None)
        if paths is None:
            return cls()
        path_filter = paths.path_filter.plus(paths.kept_in(root))
        named = path_filter.plus(excluding((), show_git=paths.show_git))
        if not named:
            return cls()
        return cls(path_filter, named, paths.reads_everything(context, params))

    def fault(self, rule: ShellRule, command: Command, place: ArgumentPath) -> str | None:
        """Why a command that a rule allows must not run, in words; `None` if it may."""
        if not self.named:
            return None
        by = self._keeps(os.path.relpath(place.folder, place.root), changes=not rule.reads)
        if by is not None:
            return f"$.folder: it is out of reach here, because of {by}"
        for number, token in enumerate(command[1:], 1):
            for path in _paths_named(token, place):
                by = self._keeps(path, changes=not rule.reads)
                if by is not None:
                    return f"$.command[{number}]: {format_command(token)} is out of reach here, because of {by}"
        if self.everything or rule.reads_everything or not rule.reads_beyond(command):
            return None
        if self.path_filter.is_partial(changes=not rule.reads):
            return (
                f"{rule.label} reads files that its arguments do not name, and some of them are out of reach here. Use "
                "the file tools, or a program that reads only the files that are named to it"
            )
        return None

    def _keeps(self, path: str, *, changes: bool) -> str | None:
        return None if path == ROOT else self.named.keeps(path, changes=changes)


def _paths_named(token: str, place: ArgumentPath) -> Iterator[str]:
    """The paths that a token may name, relative to the root: as they are spelled, and what they lead to."""
    folder = os.fspath(place.folder)
    for candidate in paths_in(token):
        whole = candidate if candidate.startswith("/") else f"{folder}/{candidate}"
        for path in dict.fromkeys((os.path.normpath(whole), os.path.realpath(whole))):
            if Path(path).is_relative_to(place.root):
                yield posixpath.relpath(path, place.root)
