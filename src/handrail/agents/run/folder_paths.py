"""What toolsets of a run keep back from whatever else reaches their files: other toolsets and programs.

| of a toolset over some files | holds for |
|---|---|
| rules on paths that name its tools with a prefix | all toolsets over these files, and programs there, of all runs |
| `exclude` | its own tools, and programs that runs of its agent start in that folder |

Toolsets are made one after the other, some of them while others are in use. So what is kept back of files that toolsets
share grows, and is looked up when it is asked for. Another toolset does not ask what a rule on these tools would have
asked: for it such a rule denies.

The filesystems that the tools of a run find are behind its path filter, wherever they were bound: the `Filesystem`,
whatever makes it, and each filesystem that is bound under a type of its own, as the `HostFilesystem` of a shell. What a
provider makes under another type than `Filesystem` is the program's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from handrail.agents.approval.decisions import ApprovalMode
from handrail.agents.approval.path_rules import FILE_TOOLS, path_filter_of
from handrail.agents.approval.rules import ApprovalRules
from handrail.contrib.tools import VfsToolsSection
from handrail.filesystem import Filesystem, HostFilesystem, PathFilter
from handrail.filesystem.path_filters import NOTHING_FILTERED, PathSet, excluding
from handrail.prompt import PromptTemplate, Tool
from handrail.resources import Binding, ResourceRegistry
from handrail.resources.binding import GivenInstance, Resolver
from handrail.turns import Turn

Behind = Callable[[Filesystem], Filesystem]
"""Puts a filesystem behind a filter."""


@runtime_checkable
class _Unfiltered(Filesystem, Protocol):
    """The type under which a filesystem that a provider makes is bound: its context makes and closes that one."""


def given_filesystem(bound: ResourceRegistry) -> Filesystem | None:
    """The `Filesystem` that the tools find, if it is there already and no provider makes it."""
    given = (each.provider for each in bound if each.protocol is Filesystem)
    found = next((provider.value for provider in given if isinstance(provider, GivenInstance)), None)
    return found if isinstance(found, Filesystem) else None


def takes_files(tool: Tool[Any, Any]) -> bool:
    """Whether the function of a tool has a `Filesystem` as a parameter."""
    return any(parameter.kind is Filesystem for parameter in tool.injected)


def behind_filter(bound: ResourceRegistry, behind: Behind) -> ResourceRegistry:
    """What to bind so that the filesystems of a template are behind a filter; nothing if it has none.

    Args:
        bound: all that the tools find.
        behind: puts a filesystem behind the filter.
    """
    return ResourceRegistry.of(*(each for binding in bound for each in _behind(binding, behind)))


def _behind(binding: Binding[Any], behind: Behind) -> tuple[Binding[Any], ...]:
    if isinstance(binding.provider, GivenInstance):
        filesystem = _filtered(binding.provider.value, behind)
        return () if filesystem is None else (Binding.instance(binding.protocol, filesystem),)
    if binding.protocol is not Filesystem:
        return ()

    def provide(resources: Resolver) -> Filesystem | None:
        return _filtered(resources.get(_Unfiltered), behind)

    return (
        Binding(_Unfiltered, binding.provider, binding.scope, binding.eager),
        Binding(Filesystem, cast("Callable[[Resolver], Filesystem]", provide), binding.scope),
    )


def _filtered(filesystem: object, behind: Behind) -> Filesystem | None:
    """A filesystem behind a filter; `None` where a provider returns none."""
    return behind(filesystem) if isinstance(filesystem, Filesystem) else None


Files: TypeAlias = Path | Turn
"""What identifies the same files behind several filters: their folder on disk, or else their turn."""

_SETS: Final = tuple(each.name for each in fields(PathFilter))


PrefixedToolsets: TypeAlias = dict[Files, tuple[str, ...]]
"""The prefixes of the toolsets that the runs of a tree have made, by their files. It only grows."""


@dataclass(frozen=True, slots=True)
class RunRules:
    """The rules of one run.

    Attributes:
        rules: the rules.
        path: the agents that called each other.
        mode: how questions are answered.
    """

    rules: ApprovalRules
    path: tuple[str, ...]
    mode: ApprovalMode

    @property
    def speak_of_paths(self) -> bool:
        """Whether some of them may keep paths back, of one toolset or another."""
        return any(len(rule.places) == 1 for rule in (*self.rules.deny, *self.rules.ask))

    def paths(self, prefix: str = "", *, asks: bool = True) -> PathFilter:
        """What the rules keep back from the tools with a prefix; not `asks`: where no person would be asked."""
        mode: ApprovalMode = "deny-all" if self.mode == "ask" and not asks else self.mode
        return path_filter_of(self.rules, self.path, mode, prefix=prefix)


class FolderPaths:
    """What one run looks up of its own toolsets and of those of its tree."""

    def __init__(self, toolsets: PrefixedToolsets, rules: RunRules) -> None:
        """Begin with what has been made so far; `toolsets` is shared with the runs of the tree."""
        self._toolsets = toolsets
        self._rules = rules
        self._excluded: dict[Files, PathFilter] = {}
        self._known: dict[tuple[Files, str], tuple[tuple[str, ...], PathFilter]] = {}

    def note(self, template: PromptTemplate[Any], filesystem: Filesystem | None, prefix: str) -> None:
        """Take note of a toolset that is being made.

        Args:
            template: its sections.
            filesystem: the files that its tools work on, if they are there already.
            prefix: stands before the names of its tools.
        """
        sections = [placed.section for root in template.tree for placed in root.walk()]
        if (
            prefix
            and filesystem is not None
            and any(tool.name in FILE_TOOLS for each in sections for tool in each.tools)
        ):
            made = self._toolsets.get(_files_of(filesystem), ())
            # Toolsets are made anew at each run, so the same one comes again.
            if prefix not in made:
                self._toolsets[_files_of(filesystem)] = (*made, prefix)
        for section in sections:
            if isinstance(section, VfsToolsSection) and section.exclude and section.filesystem is not None:
                excluded = excluding(section.exclude, show_git=True)  # for programs, the agent's file excludes .git
                files = _files_of(section.filesystem)
                self._excluded[files] = self._excluded.get(files, NOTHING_FILTERED).plus(excluded)

    def behind(self, filesystem: Filesystem, prefix: str) -> Filesystem:
        """A filesystem without what toolsets of other prefixes keep back of it, now or later."""
        if not self._rules.speak_of_paths:
            return filesystem
        files = _files_of(filesystem)
        # The sets are evaluated when they are asked, because other toolsets may be made later.
        grown = {name: (_Grown(self, files, prefix, name),) for name in _SETS}
        return filesystem.filtered(PathFilter(**grown))

    def kept_from_programs(self, folder: Path) -> PathFilter:
        """What toolsets keep back from programs that run in a folder."""
        return self.kept(folder, "").plus(self._excluded.get(folder, NOTHING_FILTERED))

    def kept(self, files: Files, prefix: str) -> PathFilter:
        """What toolsets of other prefixes keep back of some files."""
        made = self._toolsets.get(files, ())
        known = self._known.get((files, prefix))
        # Compared by identity: the tuple is replaced whenever a toolset is added.
        if known is None or known[0] is not made:
            known = self._known[files, prefix] = made, self._kept_by(made, prefix)
        return known[1]

    def _kept_by(self, made: Sequence[str], prefix: str) -> PathFilter:
        own = self._rules.paths(asks=False)  # of all files, as their own toolsets show them
        # Without what the rules keep back everywhere, which is filtered already.
        others = (self._rules.paths(each, asks=False).minus(own) for each in made if each != prefix)
        return reduce(PathFilter.plus, others, NOTHING_FILTERED)


@dataclass(frozen=True, slots=True)
class _Grown:
    """One set of the filter of some files, as it is when it is asked; a `handrail.filesystem.path_filters.PathSet`."""

    folders: FolderPaths
    files: Files
    prefix: str
    name: str

    def __bool__(self) -> bool:
        return bool(self._members())

    def why(self, path: str, *, is_folder: bool) -> str | None:
        found = (each.why(path, is_folder=is_folder) for each in self._members())
        return next((why for why in found if why is not None), None)

    def _members(self) -> tuple[PathSet, ...]:
        kept = self.folders.kept(self.files, self.prefix)
        members: tuple[PathSet, ...] = getattr(kept, self.name)
        return members


def _files_of(filesystem: Filesystem) -> Files:
    # Two objects over one folder have the same root; other filesystems share their turn with their filtered copies.
    return filesystem.root if isinstance(filesystem, HostFilesystem) else filesystem.turn
