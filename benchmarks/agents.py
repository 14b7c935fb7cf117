"""What Handrail adds to an agent's run: the same run on bare PydanticAI and from an agent file, with 200 calls each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_ai import Agent, FunctionToolset, UsageLimits
from pydantic_ai.models import Model

from benchmarks.timing import Bound
from handrail.agents import ApprovalRules, Rule, RunOptions, load_agent
from handrail.testing import Call, Reply, Script, ScriptedModel

CALLS = 200

BARE = "bare PydanticAI, 200 replies of one call"
"""The floor: an agent without Handrail, with the same model, instructions and tool."""

BOUNDS = (
    Bound("agent file, 200 replies of one call", BARE, 1.1),
    Bound("agent file, 20 replies of ten calls", "bare PydanticAI, 20 replies of ten calls", 1.15),
)

_AGENT = "---\nname: worker\ntools: [add]\n---\nAdd what you are given.\n"
_RULES = ApprovalRules(allow=(Rule("add"),))


async def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; one call of a case is a whole run, of hundreds of milliseconds."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "worker.agent"
        file.write_text(_AGENT)
        (Path(folder) / "tools.py").write_text("from benchmarks.agents import add\n\nTOOLS = [add]\n")
        agent = load_agent(file)

        def bare(replies: int, *toolsets: FunctionToolset) -> None:
            tools = () if toolsets else (add,)
            made = Agent(_model(replies), instructions=agent.file.instructions, tools=tools, toolsets=toolsets)
            result = asyncio.run(made.run("Begin.", usage_limits=UsageLimits(request_limit=None)))
            assert result.output == "Done."

        def from_file(replies: int) -> None:
            options = RunOptions(model=_model(replies), rules=_RULES, request_limit=None)
            assert agent.run("Begin.", options).output == "Done."

        yield {
            BARE: lambda: bare(CALLS),
            "agent file, 200 replies of one call": lambda: from_file(CALLS),
            f"{BARE}, the tool in a toolset": lambda: bare(CALLS, FunctionToolset([add])),
            "bare PydanticAI, 20 replies of ten calls": lambda: bare(CALLS // 10),
            "agent file, 20 replies of ten calls": lambda: from_file(CALLS // 10),
        }


def _model(replies: int) -> Model:
    """A model that asks for `CALLS` calls in that many replies, and is done."""
    of_each = CALLS // replies
    asked = [
        Reply(calls=[Call("add", {"left": reply, "right": place}) for place in range(of_each)])
        for reply in range(replies)
    ]
    return ScriptedModel(Script((*asked, Reply(text="Done."))))
