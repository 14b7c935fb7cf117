"""The texts of an agent by its file, and where its overrides are. To import it needs the extra `agents`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from handrail.agents.agent import LoadedAgent, load_agent
from handrail.agents.run.agent_texts import NAMESPACE, OverridesPlace
from handrail.cli.agents.check import inspected
from handrail.prompt.overrides import PromptText, TextKey
from handrail.waiting import run_on_new_loop


class FoundAgent(NamedTuple):
    """An agent whose overrides a command is about.

    Attributes:
        ns: the namespace of its overrides.
        key: their key.
        texts: its texts as its files have them.
        place: where its overrides are.
    """

    ns: str
    key: str
    texts: Mapping[TextKey, PromptText]
    place: OverridesPlace


def agent_texts(path: Path) -> FoundAgent:
    """Load an agent, and make its tools as for a run; its overrides are not applied.

    Raises:
        AgentError: it, its project or its tools cannot be used.
    """
    # Standard output is for the findings alone; modules and factories may print.
    with redirect_stdout(sys.stderr):
        agent = load_agent(path)
        found = run_on_new_loop(inspected(_untuned(agent), agent.rules()))
    return FoundAgent(NAMESPACE, agent.name, found.texts, OverridesPlace.of(agent.project, agent.file))


def _untuned(agent: LoadedAgent) -> LoadedAgent:
    """The agent as its files have it, so that overrides that cannot be used can be looked at."""
    project = replace(agent.project, config=replace(agent.project.config, overrides=None))
    return LoadedAgent(project, replace(agent.agent, file=replace(agent.file, overrides=None)))
