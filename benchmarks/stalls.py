"""How long the event loop stands still at the longest while agents work, and what share of a core they use.

`benchmarks.pauses` says how it is measured. Alone the task shows what the machine adds. A thread that runs Python gives
the interpreter up after 5 ms (`sys.getswitchinterval`) when the loop asks for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.pauses import Work, longest_pause, pause_of_program
from benchmarks.proxy import Proxy, proxied
from benchmarks.shadow import tree
from benchmarks.stored_agents import StoredAgent, agents_in, call_together
from benchmarks.timing import Limit, Timing
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import ShellRule, ShellToolsSection
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import Prompt, PromptTemplate, Section, ToolContext, ToolsSection, tool
from handrail.runtime import Session, ToolCall
from tests.store.postgres_server import server_of_its_own

AGENTS, FILES, THINKING_AGENTS = 200, 50_000, 300

IDLE = "a loop without agents stands still"
ON_SQLITE = f"{AGENTS} agents, ten calls each, SQLite (full): the loop stands still"
FROZEN = f"{ON_SQLITE}, after gc.freeze()"
FAR = f"{AGENTS} agents, PostgreSQL 5 ms away: the loop stands still"
LARGE_FILE = "a tool reads and hashes 1 GB: the loop stands still"
TREE = f"a command runs in a tree of {FILES:,} files: the loop stands still"
SHARE = f"{THINKING_AGENTS} agents whose model takes 0.5 to 1.5 s, SQLite (full)"
LIMITS = (
    Limit(IDLE, None, "ms at the longest"),
    *(Limit(case, 5.0, "ms at the longest") for case in (ON_SQLITE, FROZEN, FAR, LARGE_FILE, TREE)),
    Limit(SHARE, None, "% of a core"),
)

_DELAY = 0.005  # seconds in each direction
_IDLE = 3.0  # seconds
_OF_AGENT, _OF_TOOL = 10, 5
"""How many calls a run has: of each agent, and of a tool that works on files."""

_GIGABYTE = 1 << 30
_STEPS = 5  # of an agent that waits for its model


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; databases and files are there for the time of the block."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(TemporaryDirectory(prefix="handrail-bench-")))
        url, _ = opened.enter_context(server_of_its_own())
        proxy = opened.enter_context(proxied(url))
        runner = opened.enter_context(asyncio.Runner())
        yield {
            IDLE: lambda: longest_pause(runner, lambda: asyncio.sleep(_IDLE)),
            ON_SQLITE: lambda: pause_of_program(f"sqlite:///{folder}/near.db", AGENTS, _OF_AGENT),
            FROZEN: lambda: pause_of_program(f"sqlite:///{folder}/frozen.db", AGENTS, _OF_AGENT, "--freeze"),
            FAR: lambda: _far(runner, proxy),
            LARGE_FILE: lambda: _again_and_again(runner, _reading(folder / "large", opened)),
            TREE: lambda: _again_and_again(runner, _command(folder, opened)),
            SHARE: lambda: _share(runner, f"sqlite:///{folder}/thinking.db"),
        }


def _far(runner: asyncio.Runner, proxy: Proxy) -> Timing:
    """The pauses where the store is far; connections are opened before, without delay."""
    with ExitStack() as opened:
        agents = agents_in(proxy.url, AGENTS, opened)
        runner.run(call_together(agents, 1))
        proxy.delay(_DELAY)
        try:
            return longest_pause(runner, lambda: call_together(agents, _OF_AGENT))
        finally:
            proxy.delay(0)


def _again_and_again(runner: asyncio.Runner, call: Work) -> Timing:
    """The pauses of calls that find what the first one, which is not counted, has made."""

    async def calls() -> None:
        for _ in range(_OF_TOOL):
            await call()

    runner.run(call())
    return longest_pause(runner, calls)


def _reading(root: Path, opened: ExitStack) -> Work:
    root.mkdir()
    with (root / "large.txt").open("wb") as file:
        file.write(b"A line of text.\n" * (_GIGABYTE // 16))
    files = opened.enter_context(HostFilesystem(root, journal=root.with_name("large-journal")))
    section = ToolsSection(title="Files", tools=[_hash], resources={Filesystem: files})
    return _calling(section, "hash_file", {"path": "large.txt"})


@tool(name="hash_file", description="Hashes a file.", effect="read")
def _hash(path: str, *, context: ToolContext) -> str:
    return hashlib.sha256(context.resources.get(Filesystem).read_bytes(path)).hexdigest()


def _command(folder: Path, opened: ExitStack) -> Work:
    root = tree(folder / "tree", FILES)
    files = opened.enter_context(HostFilesystem(root, journal=folder / "tree-journal"))
    section = ShellToolsSection(files, allow=[ShellRule(("touch",), confined=False)])
    return _calling(section, "shell_run", {"command": ["touch", "area7/part77/file77.txt"]})


def _calling(section: Section[None], name: str, arguments: dict[str, object]) -> Work:
    executor = ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="benchmarks", key="stalls", sections=[section])), session=Session()
    )
    numbers = count()

    async def call() -> None:
        message = await executor.execute_async(ToolCall(f"call-{next(numbers)}", name, arguments))
        assert message.success, message.content

    return call


def _share(runner: asyncio.Runner, url: str) -> float:
    with ExitStack() as opened:
        return runner.run(_share_of_a_core(agents_in(url, THINKING_AGENTS, opened)))


async def _share_of_a_core(agents: Sequence[StoredAgent]) -> float:
    """The processor time of the process, in per cent of the time that passed."""
    waits = random.Random(7)  # noqa: S311 - the same waits in each run

    async def work(agent: StoredAgent) -> None:
        for _ in range(_STEPS):
            await asyncio.sleep(waits.uniform(0.5, 1.5))
            await agent.call_async()

    used, begun = time.process_time(), time.perf_counter()
    await asyncio.gather(*map(work, agents))
    return 100 * (time.process_time() - used) / (time.perf_counter() - begun)
