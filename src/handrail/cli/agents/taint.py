"""What `handrail check` says of taint: which agents can read untrusted content, and act after that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from handrail.agents.approval.decisions import Verdict
from handrail.agents.run.executors import ToolReport

_OUTCOMES: Mapping[Verdict, str] = {
    "ask": "such calls are asked about",
    "deny": "such calls are denied",
    "allow": "no rule asks about such calls",
}


def taint_remarks(tools: Mapping[str, Sequence[ToolReport]], tainted: Verdict) -> list[str]:
    """One sentence for each agent that can be tainted and has tools with an external effect.

    Args:
        tools: the tools of an agent and of those that it can call, by the name of the agent. Its taint is theirs, and
            theirs comes to it with their answers, so one untrusted tool taints all of them.
        tainted: what the rules say of such calls.
    """
    sources = [f"{tool.name} of {agent}" for agent, offered in tools.items() for tool in offered if tool.untrusted]
    if not sources:
        return []
    acting = {agent: [tool.name for tool in offered if tool.effect == "external"] for agent, offered in tools.items()}
    return [
        f"{agent} can be tainted by {', '.join(sources)}, and act by {', '.join(names)}; {_OUTCOMES[tainted]} "
        f"(tainted: {tainted})."
        for agent, names in acting.items()
        if names
    ]
