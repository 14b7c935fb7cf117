"""Approval rules that name what the project does not have: a deny rule that is misspelt protects nothing.

| a rule has | and | it is |
|---|---|---|
| the exact name of a tool or an agent | the project has none of that name | an error |
| the exact name of a tool | a toolset may turn out to have it while it runs | a warning |
| the exact name of a tool, and of an argument | no tool of that name declares the argument | an error |
| `expect: unmatched`, or a glob that fits nothing | | nothing |

An argument has the name that the model writes. Of a place such as `options.force` the first name is looked up. The
rules hold as they are written, whatever the check says.

The tools of a toolset, as far as they can be listed without asking it:

| the toolset | its tools |
|---|---|
| a section, of functions, of an agent, built in; one of these with a prefix | all of them |
| anything else: made by a factory, an MCP server, a combined or dynamic toolset | those that it lists while it runs |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from pydantic_ai import Tool as PydanticTool
from pydantic_ai import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset, PrefixedToolset

from handrail.agents.agent_file import AgentFile
from handrail.agents.approval.decisions import Verdict
from handrail.agents.approval.rules import VERDICTS, ApprovalRules, Rule, read_rules
from handrail.agents.project import Project
from handrail.agents.registry import AgentReference, ToolDef, ToolsetDef, ToolsetFactory
from handrail.agents.toolsets.labelled_toolset import input_schema
from handrail.errors import ApprovalRulesError, DocumentError
from handrail.prompt import Section, Tool
from handrail.prompt.disclosure import OpenRequest
from handrail.prompt.prompt import OPENER
from handrail.runtime.calls import READER
from handrail.runtime.long_results import result_reader
from handrail.serde import codec
from handrail.serde.formatting import enumerated, nearest, shorten
from handrail.serde.yaml_fields import as_error

Schema = Mapping[str, Any]
"""The JSON Schema of the arguments of a tool."""

PROGRAM: Final = "the rules of the program"
"""The file, in errors about rules that are not in a file."""

_WILD: Final = frozenset("*?[")
_LONGEST_NAME: Final = 100
_LONGEST_RULE: Final = 200
_MOST_LISTED: Final = 200
_CURE: Final = " Fix the name, or add expect: unmatched to the rule."
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})


class ToolSummary(NamedTuple):
    """A tool as rules can name it; `schema` makes the schema of its arguments, and is `None` if that is unknown."""

    name: str
    schema: Callable[[], Schema] | None = None

    def arguments(self) -> frozenset[str] | None:
        """The names of its arguments; `None` if it may take others."""
        return None if self.schema is None else argument_names(self.schema())


Listings = Mapping[str, Sequence[ToolDefinition]]
"""The tools that the toolsets of a run list, by the labels of their entries."""

NO_LISTINGS: Listings = MappingProxyType({})
"""The listings before a run has begun."""


class Unmatched(NamedTuple):
    """A name in a rule that the project does not have, with file, line and column of the rule.

    `certain` is true if no call can fit, which is an error; else it is a warning.
    """

    error: ApprovalRulesError
    certain: bool


class ProjectNames(NamedTuple):
    """The tools and agents of a project that rules may name, whether or not an agent has them.

    `running` are the toolsets of its agents whose tools are listed only while they run, in words.
    """

    tools: tuple[ToolSummary, ...]
    agents: tuple[str, ...]
    running: tuple[str, ...] = ()

    def faults(self, rule: Rule) -> Iterator[tuple[str, bool]]:
        """The faults of a rule, each with whether it is certain."""
        for part in dict.fromkeys(part for part in (rule.agent or "").split("/") if _is_exact(part)):
            if part not in self.agents:
                yield _missing("agent", part, self.agents, "")
        if not _is_exact(rule.tool):
            return
        same_name = [tool for tool in self.tools if tool.name == rule.tool]
        if not same_name:
            running = enumerated(self.running, limit=_MOST_LISTED)
            doubt = f" The tools of {running} are known only while a run has them." if running else ""
            yield _missing("tool", rule.tool, sorted({tool.name for tool in self.tools}), doubt)
            return
        lists = [tool.arguments() for tool in same_name] if rule.arguments else []
        arguments = [name for names in lists for name in names or ()]
        for where, (first, *_) in zip(rule.arguments, rule.places, strict=True):
            if None not in lists and isinstance(first, str) and first not in arguments:
                fault = f"names the argument {_quote(where)}, and {_quote(rule.tool)} has no such argument."
                yield f"{fault}{_hint(first, arguments)}{_CURE}", True


def unmatched_rules(
    rules: ApprovalRules, project: Project, agent: AgentFile, listings: Listings = NO_LISTINGS
) -> list[Unmatched]:
    """The names in rules that the project does not have.

    The agent that runs need not be one of the project's. `listings` are the toolsets of a run, beside those that their
    entries declare.
    """
    if not (rules.allow or rules.ask or rules.deny):
        return []
    return unmatched(rules, project_names(project, agent, listings))


def check_rules_match(faults: Iterable[Unmatched]) -> None:
    """Raises an `ApprovalRulesError` with the faults that are certain; of several, `problems` has all."""
    errors: list[DocumentError] = [fault.error for fault in faults if fault.certain]
    if errors:
        raise as_error(errors, ApprovalRulesError, errors[0].file)


def check_rules_of_tools(file: Path, tools: Iterable[Tool[Any, Any]], caller: str) -> None:
    """Raises an `ApprovalRulesError` if a file of rules names what the tools of the only caller are not."""
    own = tuple(map(_summarize, (*tools, result_reader(READER))))
    check_rules_match(unmatched(read_rules(file), ProjectNames(own, (caller,))))


def unmatched(rules: ApprovalRules, names: ProjectNames) -> list[Unmatched]:
    """The names in rules that are not among `names`."""
    return [
        Unmatched(_error(verdict, rule, fault), certain)
        for verdict in VERDICTS
        for rule in getattr(rules, verdict)
        if rule.expect is None
        for fault, certain in names.faults(rule)
    ]


def _error(verdict: Verdict, rule: Rule, fault: str) -> ApprovalRulesError:
    text = f"the {verdict} rule {shorten(str(replace(rule, source='')), _LONGEST_RULE)} {fault}"
    file, line, column = rule.place or (PROGRAM, None, None)
    return ApprovalRulesError(text, file=file, line=line, column=column)


def project_names(project: Project, agent: AgentFile, listings: Listings) -> ProjectNames:
    """The tools and agents of a project, whether or not `agent` can reach them."""
    files = {**project.agents, agent.name: agent}
    in_use = {name for file in files.values() for name in file.toolsets}
    # Every run may be offered the reader when a result has been cut, and the opener when a section has a summary.
    tools = [_summarize(result_reader(READER)), ToolSummary(OPENER, lambda: codec(OpenRequest).schema)]
    running: list[str] = []
    for entry in project.registry.entries:
        own_tools = list_tools(entry.value)
        tools += own_tools or map(_summarize_definition, listings.get(entry.label, ()))
        if own_tools is None and entry.name in in_use:
            running.append(entry.label)
    return ProjectNames(tuple(tools), tuple(sorted(files)), tuple(running))


def argument_names(schema: Schema) -> frozenset[str] | None:
    """The names of the arguments that a schema allows; `None` if it allows others."""
    if "properties" not in schema or schema.get("additionalProperties") or "patternProperties" in schema:
        return None
    properties: Mapping[str, Schema] = schema["properties"]
    # Rules also look within the one argument of a tool, whose fields are not listed here.
    if len(properties) == 1 and next(iter(properties.values())).get("type") not in _SCALARS:
        return None
    return frozenset(properties)


def list_tools(value: ToolDef | ToolsetDef) -> Sequence[ToolSummary] | None:
    """The tools of a registered value, without calling a factory; `None` if only a run knows them.

    Those of a section and of the sections below it, shown or not.
    """
    if isinstance(value, PydanticTool | Tool):
        return (_summarize(value),)
    if isinstance(value, AgentReference):
        return (ToolSummary(value.name, partial(input_schema, value.input_type)),)
    if isinstance(value, Section):
        below = (tool for child in value.children for tool in list_tools(child) or ())
        return (*map(_summarize, value.tools), *below)
    # By the exact type: a subclass may override `get_tools`, and list others.
    if isinstance(value, PrefixedToolset) and type(value) is PrefixedToolset:
        tools = list_tools(value.wrapped)
        return tools and [tool._replace(name=f"{value.prefix}_{tool.name}") for tool in tools]
    named: Mapping[str, ToolDef] | None = None
    if isinstance(value, ToolsetFactory):
        named = value.known_tools and value.known_tools()
    elif isinstance(value, FunctionToolset) and type(value) is FunctionToolset:
        named = value.tools
    return None if named is None else [_summarize(tool)._replace(name=name) for name, tool in named.items()]


def _summarize(tool: ToolDef) -> ToolSummary:
    if isinstance(tool, Tool):
        return ToolSummary(tool.name, lambda: tool.parameters_schema)
    if tool.prepare is not None:  # it may hide the tool, and give it another name or other arguments
        return ToolSummary(tool.name)
    return ToolSummary(tool.name, lambda: tool.function_schema.json_schema)


def _summarize_definition(definition: ToolDefinition) -> ToolSummary:
    return ToolSummary(definition.name, lambda: definition.parameters_json_schema)


def _missing(kind: str, name: str, names: Iterable[str], doubt: str) -> tuple[str, bool]:
    fault = f"names the {kind} {_quote(name)}, and the project has no such {kind}.{_hint(name, names)}"
    return f"{fault}{doubt or _CURE}", not doubt


def _is_exact(pattern: str) -> bool:
    return bool(pattern) and not _WILD & set(pattern)


def _quote(text: str) -> str:
    return shorten(repr(text), _LONGEST_NAME)


def _hint(name: str, names: Iterable[str]) -> str:
    near = nearest(name, names)
    return f" Did you mean {near!r}?" if near else ""
