"""Approval rules whose names are those of nothing in the project: a deny rule that is misspelt protects nothing.

| a rule has | and | it is |
|---|---|---|
| the exact name of a tool or an agent | the project has none of that name | an error |
| the same | a toolset, or an agent that makes agents, may turn out to have it while it runs | a warning |
| the name of an argument | no tool that the rule fits declares an argument of that name | an error |
| `expect: unmatched`, or a glob that fits nothing | | nothing |

An argument has the name that the model writes. Of a place such as `options.force` the first name is looked up. Whatever
is found, the rules hold as they are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from handrail.agents.agent_file import AgentFile, as_error
from handrail.agents.approval.decisions import Verdict
from handrail.agents.approval.matching import matches_name
from handrail.agents.approval.rules import ApprovalRules, Rule
from handrail.agents.project import Project
from handrail.agents.registry import Entry
from handrail.agents.toolsets.builtin import DYNAMIC_AGENTS
from handrail.agents.toolsets.listing import KnownTool, Listing, listing_of_entry
from handrail.errors import ApprovalRulesError, DiscoveryError, DocumentError
from handrail.prompt.disclosure import SECTION_REQUESTS
from handrail.runtime.calls import READER
from handrail.runtime.long_results import result_reader
from handrail.serde import codec
from handrail.serde.formatting import enumerated, nearest, shorten

Listings = Mapping[str, Listing]
"""The tools of toolsets that have been made and entered, by the labels of their entries."""

NOTHING_MADE: Listings = MappingProxyType({})
"""What is known before a run has begun."""

PROGRAM: Final = "the rules of the program"
"""What errors call rules that are not in a file."""

_WILD: Final = frozenset("*?[")
_LONGEST_SHOWN: Final = 100
_LONGEST_RULE: Final = 200
_MOST_LISTED: Final = 200
_CURE: Final = " Fix the name, or add expect: unmatched to the rule."


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A name in a rule that is that of nothing.

    Attributes:
        verdict: the list that the rule is in.
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
        text = f"the {self.verdict} rule {shorten(str(replace(self.rule, source='')), _LONGEST_RULE)} {self.fault}"
        if place is None:
            return ApprovalRulesError(text, file=PROGRAM)
        return ApprovalRulesError(text, file=place.file, line=place.line, column=place.column)

    def __str__(self) -> str:
        return str(self.error())


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNames:
    """All that is known of a project when its rules are checked.

    Attributes:
        tools: its tools, built-in ones included, and whether or not an agent has them.
        running: the toolsets of its agents whose tools are known only while they run, in words.
        agents: the names of its agents.
        makes_agents: whether an agent can make others, whose names are known only while it runs.
    """

    tools: tuple[KnownTool, ...] = ()
    running: tuple[str, ...] = ()
    agents: tuple[str, ...]
    makes_agents: bool = False

    def faults(self, rule: Rule) -> Iterator[tuple[str, bool]]:
        """What is wrong with a rule, each with whether that is certain."""
        for part in dict.fromkeys(part for part in (rule.agent or "").split("/") if _is_exact(part)):
            if part not in self.agents:
                doubt = " The agents that an agent makes are known only while it runs."
                yield _missing("agent", part, self.agents, doubt if self.makes_agents else "")
        tools = sorted({tool.name for tool in self.tools})
        if _is_exact(rule.tool) and rule.tool not in tools:
            running = enumerated(self.running, limit=_MOST_LISTED)
            doubt = f" The tools of {running} are known only while a run has them." if running else ""
            yield _missing("tool", rule.tool, tools, doubt)
            return
        arguments = self._arguments(rule.tool) if rule.arguments else None
        for where, (first, *_) in zip(rule.arguments, rule.places, strict=True):
            if arguments is not None and isinstance(first, str) and first not in arguments:
                fault = f"names the argument {_shown(where)}, and {_shown(rule.tool)} has no such argument."
                yield f"{fault}{_near(first, arguments)}{_CURE}", True

    def _arguments(self, pattern: str) -> frozenset[str] | None:
        """The arguments of the tools that a pattern fits; `None` if they may have others, or there is no such tool."""
        if self.running and not _is_exact(pattern):
            return None
        lists = [tool.arguments() for tool in self.tools if matches_name(pattern, tool.name)]
        names = [each for each in lists if each is not None]
        return frozenset[str]().union(*names) if names and len(names) == len(lists) else None


def unmatched_rules(
    rules: ApprovalRules, project: Project, agent: AgentFile, made: Listings = NOTHING_MADE
) -> tuple[Unmatched, ...]:
    """The rules whose names are those of nothing in a project.

    Args:
        rules: the rules.
        project: the project.
        agent: the agent that runs; it need not be one of the project's.
        made: the tools of toolsets that have been made, in place of what is known of them ahead.
    """
    if not (rules.allow or rules.ask or rules.deny):
        return ()
    return unmatched(rules, known_names(project, agent, made))


def check_rules_match(found: Iterable[Unmatched]) -> None:
    """Raise what is certain among what was found.

    Raises:
        ApprovalRulesError: a rule names what the project does not have; of several, `problems` has all.
    """
    errors: list[DocumentError] = [each.error() for each in found if each.certain]
    if errors:
        raise as_error(errors, ApprovalRulesError, errors[0].file)


def unmatched(rules: ApprovalRules, known: KnownNames) -> tuple[Unmatched, ...]:
    """The names in rules that are those of nothing, in the order of the file."""
    lists: tuple[tuple[Verdict, tuple[Rule, ...]], ...] = (
        ("allow", rules.allow),
        ("ask", rules.ask),
        ("deny", rules.deny),
    )
    faults = [
        Unmatched(verdict, rule, fault, certain)
        for verdict, members in lists
        for rule in members
        if rule.expect is None
        for fault, certain in known.faults(rule)
    ]
    return tuple(sorted(faults, key=lambda each: ("", 0, 0) if (place := each.rule.place) is None else place))


def known_names(project: Project, agent: AgentFile, made: Listings) -> KnownNames:
    """The tools and agents of a project, whether or not `agent` can reach them."""
    files = {**project.agents, agent.name: agent}
    registry = project.registry
    named = dict.fromkeys(name for file in files.values() for name in file.toolsets)
    entries = [*registry.entries, *(_entry(registry.toolsets, name) for name in named)]
    entries += [_entry(registry.tools, name) for file in files.values() for name in file.tools]
    tools: dict[str, KnownTool] = {}
    running: dict[str, None] = {}
    for entry in filter(None, entries):
        # What a run has made is certain; before that, only what the entry declares.
        listing = made.get(entry.label) or listing_of_entry(entry)
        tools |= {f"{entry.label} {tool.name}": tool for tool in listing.tools}
        if not listing.complete and entry.kind == "toolset" and entry.name in named:
            running[entry.label] = None
    # The arguments of an offered tool are not known: importing its package only for this check would be wrong.
    names = {tool.name for tool in tools.values()}
    offered = {offer.name for offer in registry.offers if offer.kind == "tool"}
    # Every run may be offered the reader when a result has been cut, and the requests when a section has a summary.
    reader = result_reader(READER)
    return KnownNames(
        tools=(
            *tools.values(),
            *map(KnownTool, sorted(offered - names)),
            KnownTool(READER, lambda: reader.parameters_schema),
            *(KnownTool(name, partial(_schema_of, request)) for name, request in SECTION_REQUESTS.items()),
        ),
        running=tuple(running),
        agents=tuple(sorted(files)),
        makes_agents=any(_entry(registry.toolsets, name) is DYNAMIC_AGENTS for name in named),
    )


def _schema_of(kind: type[Any]) -> Mapping[str, Any]:
    return codec(kind).schema


def _entry(namespace: Mapping[str, Entry], name: str) -> Entry | None:
    """The entry of a name; `None` if there is none or it cannot be loaded, which is reported where it is resolved."""
    try:
        return namespace.get(name)
    except DiscoveryError:
        return None


def _missing(kind: str, name: str, known: Iterable[str], doubt: str) -> tuple[str, bool]:
    fault = f"names the {kind} {_shown(name)}, and the project has no such {kind}.{_near(name, known)}"
    return f"{fault}{doubt or _CURE}", not doubt


def _is_exact(pattern: str) -> bool:
    return bool(pattern) and not _WILD & set(pattern)


def _shown(text: str) -> str:
    return shorten(repr(text), _LONGEST_SHOWN)


def _near(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f" Did you mean {near!r}?" if near else ""
