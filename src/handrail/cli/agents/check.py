"""Runs `handrail check`: everything that can be checked about an agent without a request to a model.

Problems are collected, not raised: a person fixes all of them and then checks again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cyclopts import CycloptsError

from handrail.adapters.strict_schemas import RULES, strict_faults
from handrail.agents.agent import LoadedAgent
from handrail.agents.agent_file import AgentFile, read_agent_file
from handrail.agents.approval.rules import ApprovalRules, Rule, read_rules
from handrail.agents.inspection import Inspection, ToolReport, taint_remarks
from handrail.agents.project import Project, agent_problems, reachable_agents
from handrail.agents.registry import ResolvedAgent, resolve
from handrail.agents.run.interface import RunOptions
from handrail.agents.unmatched_rules import Listings, unmatched_rules
from handrail.cli.agents.progress import flatten_problems, format_problem, once, print_problems
from handrail.cli.agents.settings import NamedModel, check_name, chosen_model
from handrail.cli.process_exit import DONE, FAILED
from handrail.cli.screen import Field, Screen, fields_json
from handrail.errors import AgentError, ApprovalRulesError, DocumentError, HandrailError, ResolutionError
from handrail.serde.formatting import count_noun
from handrail.session import Session
from handrail.store.memory import MemoryStore
from handrail.waiting import run_on_new_loop

_VERDICTS = {"deny": "red", "ask": "yellow", "allow": "green"}

_TOOL: tuple[Field[ToolReport], ...] = (
    Field("tool", lambda tool: tool.name, key="name"),
    Field("", lambda tool: tool.description, key="description"),
    Field("effect", lambda tool: tool.effect, styles={"external": "bold yellow", "state": "yellow"}),
    Field(
        "approval",
        lambda tool: {"verdict": tool.approval.verdict, "reason": tool.approval.reason},
        lambda tool: tool.approval.verdict,
        styles=_VERDICTS,
    ),
    Field("from", lambda tool: tool.source, key="source"),
    Field("section", lambda tool: tool.section),
    Field("policies", lambda tool: list(tool.policies), lambda tool: ", ".join(tool.policies)),
    Field(
        "",
        lambda tool: [
            {"verdict": verdict, "arguments": dict(rule.arguments), "rule": rule.source}
            for verdict, rule in tool.on_arguments
        ],
        key="on_arguments",
    ),
    Field("", lambda tool: list(tool.hints), key="hints"),
    Field("", lambda tool: tool.untrusted, key="untrusted"),
    Field("", lambda tool: dict(tool.parameters), key="parameters"),
)

_RULE: tuple[Field[tuple[str, str, Rule]], ...] = (
    Field("tool", lambda row: row[0]),
    Field("says", lambda row: row[1], styles=_VERDICTS),
    Field(
        "where its arguments are", lambda row: ", ".join(f"{name}: {glob}" for name, glob in row[2].arguments.items())
    ),
    Field("rule", lambda row: row[2].source),
)

_STRICT: tuple[Field[tuple[str, list[str]]], ...] = (
    Field("tool", lambda row: row[0], key="name"),
    Field("strict", lambda row: not row[1], lambda row: "no" if row[1] else "yes", styles={"yes": "green"}),
    Field("because", lambda row: row[1], lambda row: "; ".join(row[1])),
)

_BINDING = (
    ". Export the tool in a section that binds it, Section(tools=[...], resources={...}) in TOOLSETS; or run the agent "
    "in a program, with RunOptions(resources={...})"
)


@dataclass(slots=True)
class Findings:
    """The findings about an agent; filled during the check.

    Attributes:
        file: its file; `None` if that cannot be read.
        tools: the tools that it would be offered, with those of closed sections.
        warnings: approval rules that may match nothing, and faults of files that the agent does not need.
        taint: which agents can be tainted and act.
    """

    file: AgentFile | None = None
    model: NamedModel | None = None
    tools: tuple[ToolReport, ...] = ()
    problems: list[HandrailError] = field(default_factory=list[HandrailError])
    warnings: list[str] = field(default_factory=list[str])
    taint: list[str] = field(default_factory=list[str])

    def note(self, *errors: HandrailError) -> None:
        """Adds the problems that errors contain."""
        self.problems = once([*self.problems, *(problem for error in errors for problem in flatten_problems(error))])


def check_command(agent_file: Path, rules: Path | None, provider: str | None = None, *, as_json: bool) -> int:
    """Checks an agent, prints the findings, and returns the exit code."""
    screen = Screen()
    # Standard output is only for the findings: what modules and factories print goes to standard error.
    # Redirected before anything is imported: a module of the project may print at its import.
    with redirect_stdout(sys.stderr):
        findings = collect_findings(agent_file, rules)
    strict_rules = RULES.get(provider or "")
    strict = [(tool.name, strict_faults(tool.parameters, strict_rules)) for tool in findings.tools if strict_rules]
    if as_json:
        more = {} if provider is None else {"strict": [fields_json(_STRICT, row) for row in strict]}
        screen.json(findings_json(agent_file, findings) | more)
        return FAILED if findings.problems else DONE
    screen.table(_TOOL, findings.tools)
    on_arguments = [(tool.name, verdict, rule) for tool in findings.tools for verdict, rule in tool.on_arguments]
    if on_arguments:
        screen.say("")
        screen.table(_RULE, on_arguments)
    if strict:
        screen.say("")
        screen.table(_STRICT, strict)
    for remark in (
        *(f"warning: {warning}" for warning in findings.warnings),
        *(f"taint: {taint}" for taint in findings.taint),
        *(f"hint: {tool.name}: {hint}." for tool in findings.tools for hint in tool.hints),
    ):
        screen.remark(remark)
    print_problems(screen, findings.problems)
    name = agent_file if findings.file is None else findings.file.name
    if findings.problems:
        screen.remark(f"{name} cannot run: {count_noun(len(findings.problems), 'problem')}.")
        return FAILED
    on = "no model is named yet" if (model := findings.model) is None else f"on {model.name} (from {model.source})"
    screen.remark(f"{name} can run, with {count_noun(len(findings.tools), 'tool')}; {on}.")
    return DONE


def collect_findings(agent_file: Path, rules: Path | None = None) -> Findings:
    """Reads everything that belongs to an agent, and makes its tools; `rules` replaces the rules of the project."""
    findings = Findings()
    folder = agent_file.absolute().parent.resolve()
    try:
        findings.file = read_agent_file(folder / agent_file.name)
    except (AgentError, DocumentError) as error:
        findings.note(error)
    project, problems = Project.survey(folder)
    if project is not None and findings.file is not None:
        own = agent_problems(project, findings.file, problems)
        needed = set(map(str, own))
        findings.warnings += [f"not needed here: {problem}" for problem in once(problems) if str(problem) not in needed]
        problems = own
    findings.note(*problems)
    if project is None:
        return findings
    if findings.file is not None:
        findings.model = chosen_model(None, findings.file.model, project.config.model, os.environ)
    _note_model(findings, findings.model)
    agents: dict[str, ResolvedAgent] = {}
    for file in () if findings.file is None else reachable_agents(project, findings.file):
        with suppress(ResolutionError):  # which is among the problems
            agents[file.name] = resolve(file, project.registry)
    if findings.file is not None and findings.file.name in agents:
        is_sound = all(isinstance(problem, ResolutionError) for problem in problems)
        agent = LoadedAgent(project, agents[findings.file.name])
        try:
            approval_rules = agent.rules() if rules is None else read_rules(rules)
        except ApprovalRulesError as error:
            findings.note(error)
            return findings
        listings = run_on_new_loop(_make_tools(findings, project, agents, findings.file.name, approval_rules))
        if is_sound:  # else missing names are reported already, and rules that use them are not at fault
            unmatched = unmatched_rules(approval_rules, project, findings.file, listings)
            findings.note(*(problem.error for problem in unmatched if problem.certain))
            findings.warnings += [str(problem.error) for problem in unmatched if not problem.certain]
    return findings


async def _make_tools(
    findings: Findings, project: Project, agents: Mapping[str, ResolvedAgent], name: str, rules: ApprovalRules
) -> Listings:
    listings: Listings = {}
    offered: dict[str, Sequence[ToolReport]] = {}
    for called_name in agents:
        agent = LoadedAgent(project, agents[called_name])
        if called_name != name:
            model = agent.file.model
            _note_model(findings, None if model is None else NamedModel(model, f"for agent {called_name}"))
        try:
            inspection = await _inspect(agent, rules)
        except (AgentError, DocumentError) as error:
            findings.note(error)
            continue
        findings.note(*(AgentError(f"agent {called_name}: tool {tool}{_BINDING}") for tool in inspection.unbound))
        listings = {**listings, **inspection.listings}
        offered[called_name] = inspection.tools
        if called_name == name:
            findings.tools = inspection.tools
    findings.taint = taint_remarks(offered, rules.tainted)
    return listings


async def _inspect(agent: LoadedAgent, rules: ApprovalRules) -> Inspection:
    try:
        # The folder to work on is a new one: the real one may be in use by a run.
        # In a store, so that the results of its tools have to be storable.
        session = Session.open(MemoryStore(), "check")
        with tempfile.TemporaryDirectory(prefix="handrail-check-") as root:
            return await agent.inspection(RunOptions(root=Path(root), rules=rules, session=session))
    except (AgentError, DocumentError):
        raise
    except Exception as error:  # factories and servers of tools may raise anything
        problem = format_problem(error, agent.project.folder)
        raise AgentError(f"the tools of {agent.name} cannot be made: {problem}") from error


def _note_model(findings: Findings, model: NamedModel | None) -> None:
    try:
        check_name(model)
    except CycloptsError as error:
        findings.note(AgentError(str(error)))


def findings_json(agent_file: Path, findings: Findings) -> dict[str, Any]:
    """The findings about an agent, for programs."""
    file, model = findings.file, findings.model
    return {
        "file": str(agent_file),
        "agent": None if file is None else file.name,
        "model": None if model is None else {"name": model.name, "source": model.source},
        "ok": not findings.problems,
        "problems": [{"kind": type(problem).__name__, "message": str(problem)} for problem in findings.problems],
        "warnings": list(findings.warnings),
        "taint": list(findings.taint),
        "tools": [fields_json(_TOOL, tool) for tool in findings.tools],
    }
