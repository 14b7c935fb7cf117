"""Files that programs may not access: what is hidden from a run's file tools, `shell_run` protects from programs too.

| a command | |
|---|---|
| names a protected path, by itself or through a link | is refused |
| reads or may read more than the files that it names | is refused while anything is protected |
| the same, where its `ShellRule`, or the approval rule that allows the call, sets `reads_everything` | runs |

A program is not monitored while it runs. Rules about paths cannot control what it does with the files that it is given,
nor the other names of a file on disk (hard links).
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
    """The paths protected from the programs that a run's calls start. A run of an agent binds it for every toolset.

    Attributes:
        path_filter: the filter of the run's file tools.
        kept_in: the additional filter of the run's toolsets, for a folder in which programs run.
        commit_on: the exit codes with which the rules of the run let the changes of a call's program stay; called as
            `reads_everything`.
        show_git: whether `.git` may be named to a program, as it exists for the file tools.
        reads_everything: whether the rules of the run allow a call to run programs that read every file; called with
            the context of the call and its parameters.
    """

    path_filter: PathFilter
    show_git: bool
    reads_everything: Callable[[ToolContext, object], bool]
    kept_in: Callable[[Path], PathFilter]
    commit_on: Callable[[ToolContext, object], frozenset[int]]


@dataclass(frozen=True, slots=True)
class ProgramReach:
    """What one command may access.

    Attributes:
        path_filter: what is protected from it.
        named: the same, and paths that must not be named.
        everything: whether it may read everything that it does not name.
        commit_on: the exit codes with which its changes stay, beside those of its `ShellRule`.
    """

    path_filter: PathFilter = NOTHING_FILTERED
    named: PathFilter = NOTHING_FILTERED
    everything: bool = True
    commit_on: frozenset[int] = frozenset()

    @classmethod
    def of(cls, params: object, context: ToolContext, root: Path) -> ProgramReach:
        """What a call that runs programs in the folder `root` may access: everything if nothing is bound."""
        paths = context.resources.get(ProgramPaths, None)
        if paths is None:
            return cls()
        path_filter = paths.path_filter.plus(paths.kept_in(root))
        named = path_filter.plus(excluding((), show_git=paths.show_git))
        return cls(path_filter, named, paths.reads_everything(context, params), paths.commit_on(context, params))

    def fault(self, rule: ShellRule, command: Command, place: ArgumentPath) -> str | None:
        """Why a command that a rule allows must not run, in words; `None` if it may."""
        if not self.named:
            return None
        # The starting folder is checked as well: a program may read it without naming a path.
        by = self._keeps(os.path.relpath(place.folder, place.root), changes=not rule.reads)
        if by is not None:
            return f"$.folder: it is out of reach here, because of {by}"
        for number, token in enumerate(command[1:], 1):
            for path in _paths_named(token, place):
                by = self._keeps(path, changes=not rule.reads)
                if by is not None:
                    return f"$.command[{number}]: {format_command(token)} is out of reach here, because of {by}"
        # After the named paths: `reads_everything` permits what is not named, and a protected path that is named is
        # refused nevertheless.
        if self.everything or rule.reads_everything or not rule.reads_beyond(command):
            return None
        # The programs' own reading cannot be observed, so a command that may read more is refused as a whole.
        if self.path_filter.is_partial(changes=not rule.reads):
            return (
                f"{rule.label} reads files that its arguments do not name, and some of them are out of reach here. Use "
                "the file tools, or a program that reads only the files that are named to it"
            )
        return None

    def _keeps(self, path: str, *, changes: bool) -> str | None:
        # The root itself is the starting folder of most commands; what it contains is checked by name.
        return None if path == ROOT else self.named.keeps(path, changes=changes)


def _paths_named(token: str, place: ArgumentPath) -> Iterator[str]:
    """The paths that a token may name, relative to the root: as spelled, and what they lead to."""
    folder = os.fspath(place.folder)
    for candidate in paths_in(token):
        whole = candidate if candidate.startswith("/") else f"{folder}/{candidate}"
        # Both forms are checked: `a/../b` is another file than `b` if `a` is a link.
        for path in dict.fromkeys((os.path.normpath(whole), os.path.realpath(whole))):
            if Path(path).is_relative_to(place.root):
                yield posixpath.relpath(path, place.root)
