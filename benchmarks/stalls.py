"""How long the event loop stands still at the longest while agents work, and what share of a core they use.

A task sleeps for 5 ms again and again; it is measured how much too late it wakes. Alone it shows what the machine adds.
A thread that runs Python gives the interpreter up after 5 ms (`sys.getswitchinterval`) when the loop asks for it. There
is no garbage collection meanwhile, as where calls are timed.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.proxy import Proxy, proxied
from benchmarks.shadow import tree
from benchmarks.stored_agents import StoredAgent, agents_in, call_together
from benchmarks.timing import Limit
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import ShellRule, ShellToolsSection
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import Prompt, PromptTemplate, Section, ToolContext, ToolsSection, tool
from handrail.runtime import Session, ToolCall
from tests.store.postgres_server import server_of_its_own

AGENTS, FILES, THINKING_AGENTS = 200, 50_000, 300

IDLE = "a loop without agents stands still"
ON_SQLITE = f"{AGENTS} agents, SQLite (full): the loop stands still"
FAR = f"{AGENTS} agents, PostgreSQL 5 ms away: the loop stands still"
LARGE_FILE = "a tool reads and hashes 1 GB: the loop stands still"
TREE = f"a command runs in a tree of {FILES:,} files: the loop stands still"
SHARE = f"{THINKING_AGENTS} agents whose model takes 0.5 to 1.5 s, SQLite (full)"
LIMITS = (
    Limit(IDLE, None, "ms at the longest"),
    *(Limit(case, 5.0, "ms at the longest") for case in (ON_SQLITE, FAR, LARGE_FILE, TREE)),
    Limit(SHARE, None, "% of a core"),
)

_DELAY = 0.005  # seconds in each direction
_WAKES_EVERY = 0.005
_TIMES = 5
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
        near = agents_in(f"sqlite:///{folder}/near.db", AGENTS, opened)
        far = agents_in(proxy.url, AGENTS, opened)
        thinking = agents_in(f"sqlite:///{folder}/thinking.db", THINKING_AGENTS, opened)
        yield {
            IDLE: lambda: longest_pauses(runner, lambda: asyncio.sleep(0.5)),
            ON_SQLITE: lambda: longest_pauses(runner, lambda: call_together(near, 1)),
            FAR: lambda: _far(runner, proxy, far),
            LARGE_FILE: lambda: longest_pauses(runner, _reading(folder / "large", opened)),
            TREE: lambda: longest_pauses(runner, _command(folder, opened)),
            SHARE: lambda: runner.run(_share(thinking)),
        }


def _far(runner: asyncio.Runner, proxy: Proxy, agents: Sequence[StoredAgent]) -> float:
    runner.run(call_together(agents, 1))
    proxy.delay(_DELAY)
    try:
        return longest_pauses(runner, lambda: call_together(agents, 1))
    finally:
        proxy.delay(0)


def _reading(root: Path, opened: ExitStack) -> Callable[[], Awaitable[object]]:
    root.mkdir()
    with (root / "large.txt").open("wb") as file:
        file.write(b"A line of text.\n" * (_GIGABYTE // 16))
    files = opened.enter_context(HostFilesystem(root, journal=root.with_name("large-journal")))
    section = ToolsSection(title="Files", tools=[_hash], resources={Filesystem: files})
    return _calling(section, "hash_file", {"path": "large.txt"})


@tool(name="hash_file", description="Hashes a file.", effect="read")
def _hash(path: str, *, context: ToolContext) -> str:
    return context.resources.get(Filesystem).digest(path)


def _command(folder: Path, opened: ExitStack) -> Callable[[], Awaitable[object]]:
    root = tree(folder / "tree", FILES)
    files = opened.enter_context(HostFilesystem(root, journal=folder / "tree-journal"))
    section = ShellToolsSection(files, allow=[ShellRule(("touch",), confined=False)])
    return _calling(section, "shell_run", {"command": ["touch", "area7/part77/file77.txt"]})


def _calling(section: Section[None], name: str, arguments: dict[str, object]) -> Callable[[], Awaitable[object]]:
    executor = ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="benchmarks", key="stalls", sections=[section])), session=Session()
    )
    numbers = count()

    async def call() -> None:
        message = await executor.execute_async(ToolCall(f"call-{next(numbers)}", name, arguments))
        assert message.success, message.content

    return call


def longest_pauses(runner: asyncio.Runner, work: Callable[[], Awaitable[object]]) -> float:
    """The longest pauses of several times, in milliseconds: their median. The first time is not counted."""
    pauses: list[float] = []
    for _ in range(1 + _TIMES):
        gc.collect()
        gc.disable()
        try:
            pauses.append(runner.run(_longest_pause(work)))
        finally:
            gc.enable()
    return statistics.median(pauses[1:])


async def _longest_pause(work: Callable[[], Awaitable[object]]) -> float:
    """The longest time in milliseconds for which a task that wakes again and again had to wait for its turn."""
    working = asyncio.ensure_future(work())
    longest = 0.0
    while not working.done():
        due = time.perf_counter() + _WAKES_EVERY
        await asyncio.sleep(_WAKES_EVERY)
        longest = max(longest, time.perf_counter() - due)
    await working
    return longest * 1000


async def _share(agents: Sequence[StoredAgent]) -> float:
    """The processor time of the process, in per cent of the time that passed."""
    waits = random.Random(7)  # noqa: S311 - the same waits in each run

    async def work(agent: StoredAgent) -> None:
        for _ in range(_STEPS):
            await asyncio.sleep(waits.uniform(0.5, 1.5))
            await agent.call_async()

    used, begun = time.process_time(), time.perf_counter()
    await asyncio.gather(*map(work, agents))
    return 100 * (time.process_time() - used) / (time.perf_counter() - begun)
