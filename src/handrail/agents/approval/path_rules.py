"""Approval rules on paths, as filters of the files of a run, whichever argument of a call leads to them.

A rule on an argument judges a call before it runs, by its text. A file is also reached without being named: by a
search, with the folder that holds it. So a rule on a path of the file tools becomes a part of the
`PathFilter` of the run:

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

A path that is left out is not moved to where the rule does not fit; a call that names it is asked about. A rule that
names several arguments, or none, does not filter, nor do `allow` rules, and `ask` rules in the mode `approve-all`.
Globs are read widely (`handrail.agents.approval.matching`), and include what lies in a folder that they fit. A rule on
a path is about files, not about spellings: `reached_paths` finds absolute paths in the arguments of a file tool. Links
are not followed.

Toolsets of a run also hide paths from other toolsets and programs that reach their files:

| of a toolset over some files | holds for |
|---|---|
| rules on paths that name its tools with a prefix | all toolsets over these files, and programs there, of all runs |
| `exclude` | its own tools, and programs that runs of its agent start in that folder |

Toolsets are made one after the other, so these paths are looked up at each use. For another toolset, a rule that asks
about these tools denies.

All filesystems that tools find are behind the filter: `Filesystem`, and objects that are bound under a type of their
own, as the `HostFilesystem` of a shell. The product of a provider under another type than `Filesystem` is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
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
"""The use that a file tool makes of the path in an argument."""

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

_SETS: Final = tuple(item.name for item in fields(PathFilter))


class RulePaths:
    """The paths that a rule on paths fits, and what lies in them; a `handrail.filesystem.path_filters.PathSet`."""

    __slots__ = ("_globs", "_literal", "_why", "rule")

    def __init__(self, verdict: Verdict, rule: Rule) -> None:
        """Takes the glob of a rule that has one argument, and is in the list of a verdict."""
        # `_uses` has returned nothing for rules with another number of arguments.
        (pattern,) = rule.arguments.values()
        self.rule: Rule = rule
        self._why = f"the {verdict} rule {rule}"
        # The folder itself is meant by `folder/**` too, so both forms are kept.
        short = shortest(pattern)
        patterns = dict.fromkeys((short, short.removesuffix("/**") or pattern))
        # The longest text between wildcards of the shorter form, up to the first set: each path that fits has it.
        self._literal = max(re.split(r"(?s)\[.*|[*?]+/?", folded(short.removesuffix("/**"))), key=len)
        self._globs = [(glob(text, "wide", above=True), glob(folded(text), "wide", above=True)) for text in patterns]

    def __eq__(self, other: object) -> bool:
        # Filters are compared, so that `filtered` returns the same filesystem for an equal filter. `_why` has the place
        # of the rule, which its equality ignores.
        return isinstance(other, RulePaths) and (other.rule, other._why) == (self.rule, self._why)

    def __hash__(self) -> int:
        return hash(self._why)

    def why(self, path: str, *, is_folder: bool) -> str | None:  # noqa: ARG002 - folders and files alike
        """The rule, if it fits a path or a folder that the path lies in; see `PathSet.why`."""
        # `folded` unifies case and composition, as on file systems that do not distinguish them.
        plain = folded(path)
        # A walk asks each rule about each path, and few paths have its literal.
        if path.isascii() and self._literal not in plain:
            return None
        return self._why if any(exact(path) or as_folded(plain) for exact, as_folded in self._globs) else None


def rule_filter(rules: ApprovalRules, path: Sequence[str], mode: ApprovalMode, *, prefix: str = "") -> PathFilter:
    """The paths that rules hide from the agents that called each other, whatever file tool they use.

    `prefix` stands before the names of the file tools.
    """
    sets: dict[str, list[RulePaths]] = {name: [] for name in _SETS}
    # In the mode `approve-all` each question is answered with yes, so `ask` rules hide nothing.
    groups: tuple[tuple[Verdict, tuple[Rule, ...]], ...] = (
        ("deny", rules.deny),
        ("ask", () if mode == "approve-all" else rules.ask),
    )
    for verdict, members in groups:
        for rule in members:
            uses = _uses(rule, prefix) if rule.holds_for(path) else frozenset[tuple[str, PathAccess]]()
            if uses:
                paths = RulePaths(verdict, rule)
                for name in _ask_sets(uses) if verdict == "ask" and mode == "ask" else _deny_sets(uses):
                    sets[name].append(paths)
    return PathFilter(**{name: tuple(paths) for name, paths in sets.items()})


def _ask_sets(uses: AbstractSet[tuple[str, PathAccess]]) -> Iterator[str]:
    accesses = {access for _, access in uses}
    looks = bool(accesses & {"read", "list"})
    if looks:
        yield "searching" if "read" in accesses and ("grep_files", "list") not in uses else "listing"
    yield "removing" if looks and ("move_file", "remove") not in uses else "holding"


def _deny_sets(uses: AbstractSet[tuple[str, PathAccess]]) -> Iterator[str]:
    accesses = {access for _, access in uses}
    only_lists = "list" in accesses and "read" not in accesses
    if "read" in accesses or only_lists:
        yield "searching" if only_lists else "reading"
    if "write" in accesses:
        yield "writing"
    elif only_lists or "remove" in accesses:
        yield "removing"


def _uses(rule: Rule, prefix: str) -> frozenset[tuple[str, PathAccess]]:
    # The file tools that the rule names, each with its use of the one argument that the rule names. A rule on several
    # arguments applies to their combination, which a single path does not show.
    if len(rule.places) != 1 or len(rule.places[0]) != 1:
        return frozenset()
    (argument,) = rule.places[0]
    return frozenset(
        (tool, access)
        for tool, arguments in FILE_TOOLS.items()
        for name, access in arguments.items()
        if argument in {name, None} and matches_name(rule.tool, prefix + tool)
    )


def reached_paths(tool: str, arguments: Mapping[str, object], filesystem: Filesystem) -> Mapping[str, str] | None:
    """The paths in the arguments of a file tool that the filesystem names otherwise; `None` if there are none.

    `tool` is the name of the tool, without a prefix.
    """
    targets: dict[str, str] = {}
    for argument in FILE_TOOLS.get(tool, {}):
        path = arguments.get(argument)
        if not isinstance(path, str):
            continue
        try:
            if (own := filesystem.shortest(path)) != (shortest(path) or ROOT):  # an absolute path
                targets[argument] = own
        except FilesystemError:
            continue  # the tool refuses it, too
    return targets or None


Behind = Callable[[Filesystem], Filesystem]
"""Puts a filesystem behind a filter."""


@runtime_checkable
class _Unfiltered(Filesystem, Protocol):
    # The type under which a filesystem that a provider makes is bound: its context makes and closes that one.
    pass


def bound_filesystem(bindings: ResourceRegistry) -> Filesystem | None:
    """The `Filesystem` that is bound as an object, and not by a provider."""
    providers = (binding.provider for binding in bindings if binding.protocol is Filesystem)
    filesystem = next((provider.value for provider in providers if isinstance(provider, GivenInstance)), None)
    return filesystem if isinstance(filesystem, Filesystem) else None


def takes_files(tool: Tool[Any, Any]) -> bool:
    """True if the function of a tool has a `Filesystem` as a parameter."""
    return any(parameter.kind is Filesystem for parameter in tool.injected)


def behind_filter(bindings: ResourceRegistry, behind: Behind) -> ResourceRegistry:
    """The bindings that put all filesystems of the tools behind a filter; empty if there are none."""
    return ResourceRegistry.of(*(own for binding in bindings for own in _behind(binding, behind)))


def _behind(binding: Binding[Any], behind: Behind) -> tuple[Binding[Any], ...]:
    if isinstance(binding.provider, GivenInstance):
        filesystem = _filtered(binding.provider.value, behind)
        return () if filesystem is None else (Binding.instance(binding.protocol, filesystem),)
    if binding.protocol is not Filesystem:
        return ()

    def provide(resources: Resolver) -> Filesystem | None:
        return _filtered(resources.get(_Unfiltered), behind)

    return (
        Binding(_Unfiltered, binding.provider, binding.scope),
        Binding(Filesystem, cast("Callable[[Resolver], Filesystem]", provide), binding.scope),
    )


def _filtered(filesystem: object, behind: Behind) -> Filesystem | None:
    return behind(filesystem) if isinstance(filesystem, Filesystem) else None


Files: TypeAlias = Path | Turn
"""The identity of files behind several filters: their folder on disk, or else their turn."""

PrefixedToolsets: TypeAlias = dict[Files, tuple[str, ...]]
"""The prefixes of the toolsets that the runs of a tree have made, by their files. It only grows."""


@dataclass(frozen=True, slots=True)
class RunRules:
    """The rules of one run: `path` are its agents that called each other, `mode` answers its questions."""

    rules: ApprovalRules
    path: tuple[str, ...]
    mode: ApprovalMode

    @property
    def speak_of_paths(self) -> bool:
        """True if some of them may hide paths, of one toolset or another."""
        return any(len(rule.places) == 1 for rule in (*self.rules.deny, *self.rules.ask))

    def paths(self, prefix: str = "", *, asks: bool = True) -> PathFilter:
        """The paths that the rules hide from the tools with a prefix; not `asks`: where no person would be asked."""
        mode: ApprovalMode = "deny-all" if self.mode == "ask" and not asks else self.mode
        return rule_filter(self.rules, self.path, mode, prefix=prefix)


@dataclass(eq=False)
class FolderPaths:
    """The paths that the toolsets of one run, and of its tree, hide from each other and from programs."""

    prefixes: PrefixedToolsets
    rules: RunRules
    _excluded: dict[Files, PathFilter] = field(init=False, default_factory=dict[Files, PathFilter])
    _filters: dict[tuple[Files, str], tuple[tuple[str, ...], PathFilter]] = field(
        init=False, default_factory=dict[Any, Any]
    )

    def add(self, template: PromptTemplate[Any], filesystem: Filesystem | None, prefix: str) -> None:
        """Adds a toolset that is being made, over files that are there already or `None`; `prefix` names its tools."""
        sections = [placed.section for root in template.tree for placed in root.walk()]
        has_file_tools = any(tool.name in FILE_TOOLS for section in sections for tool in section.tools)
        if prefix and filesystem is not None and has_file_tools:
            files = _identify_files(filesystem)
            prefixes = self.prefixes.get(files, ())
            # Toolsets are made anew at each run, so the same one comes again.
            if prefix not in prefixes:
                self.prefixes[files] = (*prefixes, prefix)
        for section in sections:
            if isinstance(section, VfsToolsSection) and section.exclude and section.filesystem is not None:
                excluded = excluding(section.exclude, show_git=True)  # for programs, the agent's file excludes .git
                files = _identify_files(section.filesystem)
                self._excluded[files] = self._excluded.get(files, NOTHING_FILTERED).plus(excluded)

    def behind(self, filesystem: Filesystem, prefix: str) -> Filesystem:
        """A filesystem without the paths that toolsets of other prefixes hide, now or later."""
        if not self.rules.speak_of_paths:
            return filesystem
        files = _identify_files(filesystem)
        # The sets are evaluated at each use, because other toolsets may be made later.
        sets = {name: (_GrowingSet(self, files, prefix, name),) for name in _SETS}
        return filesystem.filtered(PathFilter(**sets))

    def program_filter(self, folder: Path) -> PathFilter:
        """The paths that toolsets hide from programs that run in a folder."""
        return self.filter(folder, "").plus(self._excluded.get(folder, NOTHING_FILTERED))

    def filter(self, files: Files, prefix: str) -> PathFilter:
        """The paths that toolsets of other prefixes hide."""
        prefixes = self.prefixes.get(files, ())
        entry = self._filters.get((files, prefix))
        # Compared by identity: the tuple is replaced whenever a toolset is added.
        if entry is None or entry[0] is not prefixes:
            own = self.rules.paths(asks=False)  # of all files, as their own toolsets show them
            # Without the paths that the rules hide everywhere, which are filtered already.
            others = (self.rules.paths(other, asks=False).minus(own) for other in prefixes if other != prefix)
            entry = self._filters[files, prefix] = prefixes, reduce(PathFilter.plus, others, NOTHING_FILTERED)
        return entry[1]


@dataclass(frozen=True, slots=True)
class _GrowingSet:  # one set of the filter of some files, at the time of its use
    folders: FolderPaths
    files: Files
    prefix: str
    name: str

    def __bool__(self) -> bool:
        return bool(self._members())

    def why(self, path: str, *, is_folder: bool) -> str | None:
        reasons = (member.why(path, is_folder=is_folder) for member in self._members())
        return next((why for why in reasons if why is not None), None)

    def _members(self) -> tuple[PathSet, ...]:
        members: tuple[PathSet, ...] = getattr(self.folders.filter(self.files, self.prefix), self.name)
        return members


def _identify_files(filesystem: Filesystem) -> Files:
    # Two objects over one folder have the same root; other filesystems share their turn with their filtered copies.
    return filesystem.root if isinstance(filesystem, HostFilesystem) else filesystem.turn
