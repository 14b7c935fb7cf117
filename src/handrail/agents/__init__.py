"""Agents by name: files that select tools and toolsets, run from Python or the command line.

    agent = load_agent("organiser/organiser.agent")
    print(agent.run("Sort the folder").output)

PydanticAI is the loop; every call of a run goes through the pipeline of `handrail.runtime`, and a gate decides which
calls may run. `docs/explanation/agents.md` explains it.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pydantic_ai") is None or find_spec("ruamel") is None:
    raise ImportError(
        "handrail.agents needs PydanticAI and ruamel.yaml, and one of them is not installed: "
        "pip install 'handrail[agents]'",
        name="pydantic_ai" if find_spec("pydantic_ai") is None else "ruamel.yaml",
    )

from handrail.agents.active_run import current_run
from handrail.agents.agent import LoadedAgent, load_agent
from handrail.agents.agent_file import AgentFile, parse_agent_file, read_agent_file
from handrail.agents.approval.decisions import Answer, Asker, Decision, GatedCall, Judgement
from handrail.agents.approval.rules import ApprovalRules, Rule, judge_call, parse_rules, read_rules
from handrail.agents.project import Project
from handrail.agents.registry import Entry, Registry, toolset_factory
from handrail.agents.run.interface import (
    CallEnded,
    CallStarted,
    CallWaits,
    Listener,
    QuestionAsked,
    QuestionDecided,
    RunEnded,
    RunEvent,
    RunOptions,
    RunStarted,
    RunWarned,
    TextDelta,
)
from handrail.agents.run.run import RunResult
from handrail.agents.toolsets.builtin import (
    BUILT_INS,
    PythonOptions,
    SandboxOptions,
    files_toolset,
    python_toolset,
    sandbox_toolset,
    shell_toolset,
)

__all__ = [
    "BUILT_INS",
    "AgentFile",
    "Answer",
    "ApprovalRules",
    "Asker",
    "CallEnded",
    "CallStarted",
    "CallWaits",
    "Decision",
    "Entry",
    "GatedCall",
    "Judgement",
    "Listener",
    "LoadedAgent",
    "Project",
    "PythonOptions",
    "QuestionAsked",
    "QuestionDecided",
    "Registry",
    "Rule",
    "RunEnded",
    "RunEvent",
    "RunOptions",
    "RunResult",
    "RunStarted",
    "RunWarned",
    "SandboxOptions",
    "TextDelta",
    "current_run",
    "files_toolset",
    "judge_call",
    "load_agent",
    "parse_agent_file",
    "parse_rules",
    "python_toolset",
    "read_agent_file",
    "read_rules",
    "sandbox_toolset",
    "shell_toolset",
    "toolset_factory",
]
