"""What a call costs that runs a command in a sandbox, over the same command by `podman exec` or `bwrap` alone.

A call saves the whole tree before the command, and ends what the command leaves.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Bound
from handrail.adapters.tool_executor import ToolExecutor
from handrail.contrib.tools import Bubblewrap, Podman, SandboxLimits, SandboxSection
from handrail.contrib.tools.sandbox.engine import RunningSandbox, SandboxEngine, SandboxWorkspace
from handrail.filesystem import HostFilesystem
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolCall
from tests.contrib.tools.sandbox.podman_store import IMAGE, podman_command

FILES = 100
EXEC = "a bare podman exec"
PODMAN = "a call into a running container"
PODMAN_START = "a container that starts, has a call, and ends"
BWRAP = "a bare bwrap"
BUBBLEWRAP = "a call below bubblewrap"
BUBBLEWRAP_START = "a sandbox of bubblewrap that starts, has a call, and ends"

BOUNDS = (Bound(PODMAN, EXEC, 1.5), Bound(BUBBLEWRAP, BWRAP, 1.5))

_TRUE = ("/bin/true",)
_NUMBERS = count()


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; container and workspaces are there while the block runs."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as opened:
        # Where the tests keep the store of Podman, which has the image.
        os.environ["HANDRAIL_TEST_RUN"] = folder
        opened.callback(os.environ.pop, "HANDRAIL_TEST_RUN")
        podman, bubblewrap = Podman(image=IMAGE, command=podman_command()), Bubblewrap()
        there = [_workspace(opened, Path(folder, name)) for name in ("podman", "bubblewrap")]
        # Of their own, because a running sandbox does not say what runs in it.
        bare = _started(opened, podman, there[0]), _started(opened, bubblewrap, there[1])
        yield {
            EXEC: _bare(bare[0].line(_TRUE, ".", ""), bare[0]),
            PODMAN: _calling(opened, podman, there[0]),
            PODMAN_START: _starting(podman, there[0]),
            BWRAP: _bare(bare[1].line(_TRUE, ".", ""), bare[1]),
            BUBBLEWRAP: _calling(opened, bubblewrap, there[1]),
            BUBBLEWRAP_START: _starting(bubblewrap, there[1]),
        }


def _workspace(opened: ExitStack, folder: Path) -> HostFilesystem:
    root = folder / "root"
    root.mkdir(parents=True)
    for number in range(FILES):
        (root / f"file{number}.txt").write_text(f"{number}\n")
    return opened.enter_context(HostFilesystem(root, journal=folder / "journal", durability="normal"))


def _started(opened: ExitStack, engine: SandboxEngine, files: HostFilesystem) -> RunningSandbox:
    running = engine.start(SandboxWorkspace(files.root, SandboxLimits(), {}))
    opened.callback(running.close)
    return running


def _bare(line: Sequence[str], running: RunningSandbox) -> Callable[[], object]:
    def run() -> object:
        return subprocess.run(
            line, env=dict(running.environment), stdin=subprocess.DEVNULL, capture_output=True, check=True
        )

    return run


def _executor(engine: SandboxEngine, files: HostFilesystem) -> ToolExecutor:
    section = SandboxSection(files, engine=engine)
    return ToolExecutor(prompt=Prompt(PromptTemplate(ns="bench", key="sandbox", sections=[section])), session=Session())


def _calling(opened: ExitStack, engine: SandboxEngine, files: HostFilesystem) -> Callable[[], object]:
    executor = opened.enter_context(_executor(engine, files))

    def call() -> object:
        message = executor.execute(ToolCall(f"call-{next(_NUMBERS)}", "shell_execute", {"command": [*_TRUE]}))
        assert message.success, message.content
        return message

    call()  # starts the sandbox, and reads the tree as a whole
    return call


def _starting(engine: SandboxEngine, files: HostFilesystem) -> Callable[[], object]:
    def start() -> object:
        with ExitStack() as opened:
            return _calling(opened, engine, files)

    return start
