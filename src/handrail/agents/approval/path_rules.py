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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields
from typing import Final, Literal

from handrail.agents.approval.decisions import ApprovalMode, Verdict
from handrail.agents.approval.matching import glob, matches_name, shortest
from handrail.agents.approval.rules import ApprovalRules, Rule
from handrail.errors import FilesystemError
from handrail.filesystem import Filesystem, PathFilter
from handrail.filesystem.path_filters import folded
from handrail.filesystem.paths import ROOT

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
