"""Rules whose names are those of nothing in the project: a deny rule that is misspelt protects nothing.

| a rule has | and | it is |
|---|---|---|
| the exact name of a tool, an argument or an agent | the project has none of that name | an error |
| the same | a toolset, or an agent that makes agents, may turn out to have it while it runs | a warning |
| the same, of an argument | the tool lets arguments through that its schema does not declare | nothing |
| a glob over tools or agents | it fits none that is known | a warning |
| `expect: unmatched` | | nothing |

Whatever is found, the rules hold as they are written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from handrail.agents.approval.decisions import Verdict
from handrail.agents.approval.declared_arguments import declared_places
from handrail.agents.approval.known import KnownNames, KnownTool, Takes
from handrail.agents.approval.matching import Segment, fits_agents, fits_name
from handrail.agents.approval.rules import ApprovalRules, Rule
from handrail.errors import ApprovalRulesError
from handrail.serde.formatting import enumerated, nearest, shortened

PROGRAM: Final = "the rules of the program"
"""What errors call rules that stand in no file."""

_WILD: Final = frozenset("*?[")
_LONGEST_SHOWN: Final = 100
_MOST_LISTED: Final = 200
_MOST_PROPOSED: Final = 25  # of errors, and of warnings: a screen of 24 lines shows no more of either
_MOST_PATHS: Final = 2_000
_DEEPEST: Final = 6
_LONGEST_RULE: Final = 200
_CURE: Final = "or add expect: unmatched to the rule"
_MADE: Final = " The agents that an agent makes are known only while it runs."


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A name in a rule that is that of nothing, or a glob that fits nothing.

    Attributes:
        verdict: the list that the rule stands in.
        rule: the rule.
        fault: what is wrong with it and the cure, in words.
        certain: whether it fits no call for certain, which is an error; else it is a warning.
    """

    verdict: Verdict
    rule: Rule
    fault: str
    certain: bool

    def error(self) -> ApprovalRulesError:
        """The same as an error, with file, line and column of the rule."""
        place = self.rule.place
        told = f"the {self.verdict} rule {_named(self.rule)} {self.fault}"
        if place is None:
            return ApprovalRulesError(told, file=PROGRAM)
        return ApprovalRulesError(told, file=place.file, line=place.line, column=place.column)

    def __str__(self) -> str:
        return str(self.error())


def unmatched(rules: ApprovalRules, known: KnownNames) -> tuple[Unmatched, ...]:
    """The names in rules that are those of nothing, in the order of the file."""
    check = _Check(known)
    groups: tuple[tuple[Verdict, tuple[Rule, ...]], ...] = (
        ("allow", rules.allow),
        ("ask", rules.ask),
        ("deny", rules.deny),
    )
    looked_at: list[tuple[Verdict, Rule]] = [
        (verdict, rule) for verdict, members in groups for rule in members if rule.expect is None
    ]
    return tuple(
        Unmatched(verdict, rule, fault, certain)
        for verdict, rule in sorted(looked_at, key=_in_file)
        for fault, certain in check.faults(rule)
    )


class _Check:
    """Looks names up among those that are known; one for each check."""

    def __init__(self, known: KnownNames) -> None:
        self._known = known
        self._tools: dict[str, list[KnownTool]] = defaultdict(list)
        for tool in known.tools:
            self._tools[tool.name].append(tool)
        self._names = sorted(self._tools)
        self._running = enumerated(known.running, limit=_MOST_LISTED)
        self._paths = _paths(known.agents)
        self._left_to_propose = dict.fromkeys((True, False), _MOST_PROPOSED)
        self._fitting = cache(self._fitting_names)
        self._answers = cache(self._answers_of)
        self._places = cache(self._places_of)

    def faults(self, rule: Rule) -> Iterator[tuple[str, bool]]:
        """What is wrong with a rule, each with whether that is certain."""
        if rule.agent is not None:
            yield from self._agents(rule.agent)
        fitting = self._fitting(rule.tool)
        if not fitting:
            yield self._no_tool(rule.tool)
            return
        for where, segments in zip(rule.arguments, rule.places, strict=True):
            answers = self._answers(rule.tool, segments)
            if not answers & {"yes", "any"}:
                yield self._argument(rule.tool, where, fitting, answers)

    def _fitting_names(self, pattern: str) -> tuple[str, ...]:
        if _is_exact(pattern):
            return (pattern,) if pattern in self._tools else ()
        return tuple(name for name in self._names if fits_name(pattern, name))

    def _no_tool(self, pattern: str) -> tuple[str, bool]:
        shown = _shown(pattern)
        if not _is_exact(pattern):
            return f"has the glob {shown}, which fits no tool that is known.{self._may_run()} Fix it, {_CURE}.", False
        near = self._near(pattern, self._names, certain=not self._running)
        if self._running:
            return f"names the tool {shown}, which is none that is known.{near}{self._may_run()}", False
        return f"names the tool {shown}, and the project has no such tool.{near} Fix the name, {_CURE}.", True

    def _may_run(self) -> str:
        if not self._running:
            return ""
        return f" The tools of {self._running} are known only while a run has them."

    def _answers_of(self, pattern: str, segments: tuple[Segment, ...]) -> frozenset[Takes]:
        """Whether the tools that a pattern fits take an argument; names in Python are looked at if none declares it."""
        tools = self._of_names(self._fitting(pattern))
        if any(tool.declares(segments) is not False for tool in tools):
            return frozenset({"yes"})
        return frozenset(tool.takes_undeclared(segments) for tool in tools)

    def _of_names(self, names: Iterable[str]) -> list[KnownTool]:
        return [tool for name in names for tool in self._tools[name]]

    def _argument(
        self, pattern: str, where: str, fitting: tuple[str, ...], answers: frozenset[Takes]
    ) -> tuple[str, bool]:
        is_unsure, may_run = "unsure" in answers, bool(self._running) and not _is_exact(pattern)
        certain = not (is_unsure or may_run)
        near = self._near(where, self._places(fitting), certain=certain)
        shown = _shown(where)
        if len(fitting) == 1:
            fault = f"names the argument {shown}, and {fitting[0]} has no such argument.{near}"
        else:
            fault = f"names the argument {shown}, and no tool that {_shown(pattern)} fits has one of that name.{near}"
        if is_unsure:
            cure = " It may still be passed under that name, because Python code may rename it."
        else:
            cure = self._may_run() if may_run else f" Fix the name, {_CURE}."
        return fault + cure, certain

    def _places_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The arguments of the tools of these names, each once."""
        places = (place for tool in self._of_names(names) for place in declared_places(tool.parameters() or {}))
        return tuple(dict.fromkeys(places))

    def _agents(self, pattern: str) -> Iterator[tuple[str, bool]]:
        agents, makes = self._known.agents, self._known.makes_agents
        unknown = dict.fromkeys(part for part in pattern.split("/") if _is_exact(part) and part not in agents)
        for part in unknown:
            cure = _MADE if makes else f" Fix the name, {_CURE}."
            fault = f"names the agent {_shown(part)}, and the project has no such agent."
            yield f"{fault}{self._near(part, sorted(agents), certain=not makes)}{cure}", not makes
        if unknown or makes or self._paths is None or any(fits_agents(pattern, path) for path in self._paths):
            return
        fault = f"has {_shown(pattern)} for its agents, and no agents of the project call each other so."
        yield f"{fault} Fix it, {_CURE}.", False

    def _near(self, name: str, known: Sequence[str], *, certain: bool) -> str:
        """The nearest name, as a question. To look for it takes milliseconds, so only the first faults have one."""
        self._left_to_propose[certain] -= 1
        if self._left_to_propose[certain] < 0:
            return ""
        near = nearest(name, known)
        return f" Did you mean {near!r}?" if near else ""


def _paths(agents: Mapping[str, Sequence[str]]) -> tuple[tuple[str, ...], ...] | None:
    """The agents as they can call each other, to some depth; `None` if there are too many ways to look at."""
    found: list[tuple[str, ...]] = [(name,) for name in agents]
    for path in found:  # grows while it is walked
        if len(path) < _DEEPEST:
            found += [(*path, called) for called in agents[path[-1]]]
        if len(found) > _MOST_PATHS:
            return None
    return tuple(found)


def _is_exact(pattern: str) -> bool:
    return not _WILD & set(pattern)


def _shown(text: str) -> str:
    return shortened(repr(text), _LONGEST_SHOWN)


def _named(rule: Rule) -> str:
    """The rule as it is written, without its place."""
    return shortened(str(replace(rule, source="")), _LONGEST_RULE)


def _in_file(rule_of_list: tuple[Verdict, Rule]) -> tuple[str, int, int]:
    place = rule_of_list[1].place
    return ("", 0, 0) if place is None else (place.file, place.line, place.column)
