"""What is known of a project's tools and agents when its approval rules are checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from handrail.agents.agent_file import AgentFile
from handrail.agents.approval.rules import ApprovalRules
from handrail.agents.approval.unmatched_rules import KnownNames, KnownTool, Unmatched, unmatched
from handrail.agents.exports.entries import AgentReference, Entry
from handrail.agents.project import Project
from handrail.agents.toolsets.builtin import DYNAMIC_AGENTS
from handrail.agents.toolsets.listing import Listing, listing_of_entry
from handrail.errors import ApprovalRulesError, DiscoveryError
from handrail.runtime.disclosure import SECTION_REQUESTS
from handrail.runtime.long_results import READER, result_reader
from handrail.serde import codec
from handrail.serde.document import join_names

Listings = Mapping[str, Listing]
"""The tools of toolsets that have been made and entered, by the labels of their entries."""

NOTHING_MADE: Listings = MappingProxyType({})
"""What is known before a run has begun."""

_MOST_LISTED = 50


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
        ApprovalRulesError: a rule names what the project does not have; of several the message has the first 50, and
            `problems` all.
    """
    errors = [each.error() for each in found if each.certain]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        more = f"\n  and {len(errors) - _MOST_LISTED:,} more" if len(errors) > _MOST_LISTED else ""
        error = ApprovalRulesError(f"{join_names(errors[:_MOST_LISTED])}{more}", file=errors[0].file)
        error.problems = tuple(errors)
        raise error


def known_names(project: Project, agent: AgentFile, made: Listings) -> KnownNames:
    """The tools and agents of a project, whether or not `agent` can reach them."""
    files = {**project.agents, agent.name: agent}
    named = frozenset(name for file in files.values() for name in file.toolsets)
    tools: list[KnownTool] = []
    running: list[str] = []
    for entry in _entries(project, files.values()):
        # What a run has made is certain; before that, only what the entry declares.
        listing = made.get(entry.label) or listing_of_entry(entry)
        tools += listing.tools
        if not listing.complete and entry.kind == "toolset" and entry.name in named:
            running.append(entry.label)
    offered = (offer.name for offer in project.registry.offers if offer.kind == "tool")
    known = {tool.name for tool in tools}
    # The arguments of an offered tool are not known: importing its package only for this check would be wrong.
    tools += map(KnownTool, sorted(set(offered) - known))
    # Every run may be offered it, when a result has been cut.
    reader = result_reader(READER)
    tools.append(KnownTool(READER, lambda: reader.parameters_schema, frozenset))
    # Every run whose prompt has a section with a summary is offered these.
    tools += [KnownTool(name, partial(_schema_of, request), frozenset) for name, request in SECTION_REQUESTS.items()]
    toolsets = project.registry.toolsets
    calls = {name: tuple(_called(file, toolsets)) for name, file in files.items()}
    return KnownNames(
        tools=tuple(tools),
        running=tuple(running),
        agents=calls,
        makes_agents=any(_entry(toolsets, name) is DYNAMIC_AGENTS for name in named),
    )


def _schema_of(kind: type[Any]) -> Mapping[str, Any]:
    return codec(kind).schema


def _entries(project: Project, files: Iterable[AgentFile]) -> Iterator[Entry]:
    """The entries of a project, and those of installed packages that its agents name."""
    registry = project.registry
    yield from registry.entries
    there = {(entry.kind, entry.name) for entry in registry.entries}
    names = {("tool", name): registry.tools for file in files for name in file.tools}
    names |= {("toolset", name): registry.toolsets for file in files for name in file.toolsets}
    for (kind, name), namespace in names.items():
        entry = None if (kind, name) in there else _entry(namespace, name)
        if entry is not None:
            yield entry


def _entry(namespace: Mapping[str, Entry], name: str) -> Entry | None:
    """The entry of a name; `None` if there is none or it cannot be loaded, which is reported where it is resolved."""
    try:
        return namespace.get(name)
    except DiscoveryError:
        return None


def _called(file: AgentFile, toolsets: Mapping[str, Entry]) -> Iterator[str]:
    for name in file.toolsets:
        entry = _entry(toolsets, name)
        if entry is not None and isinstance(entry.value, AgentReference):
            yield entry.value.name
