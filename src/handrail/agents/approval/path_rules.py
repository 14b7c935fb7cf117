"""What approval rules on paths mean for the files of a run, whichever argument of a call leads to them.

A rule on an argument judges a call before it runs, by what the model wrote there. A file is also reached without being
named: by a search, through a link, with the folder that holds it. So a rule on a path of the file tools becomes a part
of the `PathFilter` of the run:

| the rule fits | of the tools | the paths that it fits |
|---|---|---|
| `deny`, `path` | `read_file` | do not exist: `PathFilter.reading` |
| `deny`, `path` | those that list, and not `read_file` | no search shows, stay: `searching`, `removing` |
| `deny`, `path` | `write_file`, `edit_file` | are not changed: `writing` |
| `deny`, `new_path` | `move_file` | are not changed: `writing` |
| `deny`, `path` | `remove_file`, `move_file`, and neither of those that write | stay: `removing` |
| `ask`, `path` | `read_file`, and not `grep_files` | no search shows: `searching` |
| `ask`, `path` | others that look | are left out: `listing` |
| `ask`, `path` | any of those that look, and not `move_file` | stay: `removing` |
| `ask` | any others | are not changed with a folder: `holding` |
| `ask` | in the mode `deny-all` | are as with `deny` |

What is left out is not moved to where the rule does not fit. A call that names what a rule asks about is asked about,
so the filter lets it through.

Not so, because the rule is not about a path alone: one that names several arguments, or none. `allow` rules never
filter, nor do `ask` rules in the mode `approve-all`.

Globs are read widely, as `handrail.agents.approval.matching` says, and what lies in a folder that one fits is meant
with it.

A rule on a path is about files, not about spellings: `reached_paths` says what the paths in the arguments of a file
tool lead to.

Toolsets of a run keep paths back from whatever else reaches their files, other toolsets and programs:

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

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from functools import reduce
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, cast, runtime_checkable

from handrail.agents.approval.decisions import ApprovalMode, Verdict
from handrail.agents.approval.matching import glob, matches_name, shortest
from handrail.agents.approval.rules import ApprovalRules, Rule
from handrail.contrib.tools import VfsToolsSection
from handrail.errors import FilesystemError
from handrail.filesystem import Filesystem, HostFilesystem, PathFilter
from handrail.filesystem.path_filters import NOTHING_FILTERED, PathSet, excluding, folded
from handrail.filesystem.paths import ROOT
from handrail.prompt import PromptTemplate, Tool
from handrail.resources import Binding, ResourceRegistry
from handrail.resources.binding import GivenInstance, Resolver
from handrail.turns import Turn

PathAccess = Literal["read", "list", "write", "remove"]
"""What a file tool does with the path in an argument."""

FILE_TOOLS: Final[Mapping[str, Mapping[str, PathAccess]]] = {
    "read_file": {"path": "read"},
    "list_files": {"path": "list"},
    "glob_files": {"path": "list"},
    "grep_files": {"path": "list"},
    "write_file": {"path": "write"},
    "edit_file": {"path": "write"},
    "move_file": {"path": "remove", "new_path": "write"},
    "remove_file": {"path": "remove"},
}
"""The file tools, each with its arguments that are paths."""

_LINKS_THEMSELVES: Final = frozenset({"move_file", "remove_file"})
"""The tools that act on a link, and not on what it leads to."""


class RulePaths:
    """The paths that a rule on paths fits, and what lies in them; a `handrail.filesystem.path_filters.PathSet`."""

    __slots__ = ("_globs", "_run", "_why", "rule")

    def __init__(self, verdict: Verdict, rule: Rule) -> None:
        """Take the glob of a rule that has one argument.

        Args:
            verdict: the list that the rule is in.
            rule: the rule.
        """
        # `_reached` has returned nothing for rules with another number of arguments.
        (pattern,) = rule.arguments.values()
        self.rule: Rule = rule
        self._why = f"the {verdict} rule {rule}"
        # The folder itself is meant by `folder/**` too, so both forms are kept.
        short = shortest(pattern)
        spelled = dict.fromkeys((short, short.removesuffix("/**") or pattern))
        self._globs = tuple((glob(each, "wide"), glob(folded(each), "wide")) for each in spelled)
        runs = {each.run.lower() for both in self._globs for each in both}
        # A text that is part of all the others is in each path that fits; without one, nothing can be excluded ahead.
        self._run = next((run for run in runs if all(run in other for other in runs)), "")

    def __eq__(self, other: object) -> bool:
        # Filters are compared, so that `filtered` returns the same filesystem for an equal filter. `_why` has the place
        # of the rule, which its equality ignores.
        return isinstance(other, RulePaths) and (other.rule, other._why) == (self.rule, self._why)

    def __hash__(self) -> int:
        return hash(self._why)

    def why(self, path: str, *, is_folder: bool) -> str | None:  # noqa: ARG002 - folders and files alike
        """The rule, if it fits a path or a folder that the path lies in; see `PathSet.why`."""
        # A walk asks each rule about each path, and few paths of ASCII hold the run of characters that a rule needs.
        if path.isascii() and self._run not in path.lower():
            return None
        plain = folded(path)
        for each, as_folded in self._globs:
            # `folded` unifies case and composition, as on file systems that do not distinguish them.
            if each.fits_at_or_above(path) or as_folded.fits_at_or_above(plain):
                return self._why
        return None


def path_filter_of(rules: ApprovalRules, path: Sequence[str], mode: ApprovalMode, *, prefix: str = "") -> PathFilter:
    """What the rules on paths keep from the agents that called each other, whatever file tool they use.

    Args:
        rules: the rules.
        path: the agents that called each other.
        mode: how questions are answered.
        prefix: stands before the names of the file tools.
    """
    found: dict[str, list[RulePaths]] = {each.name: [] for each in fields(PathFilter)}
    for verdict, rule in _that_filter(rules, path, mode):
        reached = _reached(rule, prefix)
        if reached:
            members = RulePaths(verdict, rule)
            for name in _asking(reached) if verdict == "ask" and mode == "ask" else _denying(reached):
                found[name].append(members)
    return PathFilter(**{name: tuple(sets) for name, sets in found.items()})


def _asking(reached: AbstractSet[tuple[str, PathAccess]]) -> Iterator[str]:
    """The sets of the filter that the paths of a rule which asks go into."""
    reaches = {reach for _, reach in reached}
    looks = bool(reaches & {"read", "list"})
    if looks:
        yield "searching" if "read" in reaches and ("grep_files", "list") not in reached else "listing"
    yield "removing" if looks and ("move_file", "remove") not in reached else "holding"


def _denying(reached: AbstractSet[tuple[str, PathAccess]]) -> Iterator[str]:
    """The sets of the filter that the paths of a rule which denies go into."""
    reaches = {reach for _, reach in reached}
    only_lists = "list" in reaches and "read" not in reaches
    if "read" in reaches or only_lists:
        yield "searching" if only_lists else "reading"
    if "write" in reaches:
        yield "writing"
    elif only_lists or "remove" in reaches:
        yield "removing"


def _that_filter(rules: ApprovalRules, path: Sequence[str], mode: ApprovalMode) -> Iterator[tuple[Verdict, Rule]]:
    groups: list[tuple[Verdict, tuple[Rule, ...]]] = [("deny", rules.deny)]
    if mode != "approve-all":
        # In the mode `approve-all` each question is answered with yes, so `ask` rules keep nothing back.
        groups.append(("ask", rules.ask))
    for verdict, members in groups:
        for rule in members:
            if rule.holds_for(path):
                yield verdict, rule


def _reached(rule: Rule, prefix: str) -> frozenset[tuple[str, PathAccess]]:
    """What the file tools that a rule names do with the one argument that it names, each with the tool."""
    # A rule on several arguments applies to their combination, which a single path does not show.
    if len(rule.places) != 1 or len(rule.places[0]) != 1:
        return frozenset()
    (argument,) = rule.places[0]
    return frozenset(
        (tool, reach)
        for tool, arguments in FILE_TOOLS.items()
        for name, reach in arguments.items()
        if argument in {name, None} and matches_name(rule.tool, prefix + tool)
    )


def reached_paths(tool: str, arguments: Mapping[str, object], filesystem: Filesystem) -> Mapping[str, str] | None:
    """The paths that lead through links to other paths, and those other paths, by argument; `None` if there are none.

    Args:
        tool: the name of the tool, without a prefix.
        arguments: its arguments.
        filesystem: the files that the tool works on.
    """
    found: dict[str, str] = {}
    for argument in FILE_TOOLS.get(tool, {}):
        path = arguments.get(argument)
        if not isinstance(path, str):
            continue
        try:
            # `move_file` and `remove_file` act on the link itself, so the link is not followed for them.
            real = filesystem.resolve(path, follow=tool not in _LINKS_THEMSELVES)
            if real != (shortest(path) or ROOT):
                found[argument] = real
        except FilesystemError:
            continue  # the tool refuses it, too
    return found or None


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
