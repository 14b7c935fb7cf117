"""What the tests of the programs share: the providers, and a forge."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.runtime import Session
from tests.providers import forge, wire
from tests.providers.chat import Chat
from tests.providers.kills import Bench
from tests.providers.messages import Messages
from tests.providers.programs import program_of
from tests.providers.responses import Responses
from tests.providers.sdk_loops import Desk, asked


@pytest.fixture(scope="session")
def provider() -> Generator[wire.Provider]:
    """All three APIs."""
    with wire.serving(Chat(), Responses(), Messages()) as running:
        yield running


@pytest.fixture(scope="session")
def smith(provider: wire.Provider) -> Generator[forge.Forge]:
    """One process that makes those that are killed."""
    with forge.running(provider.environment()) as running:
        yield running


@pytest.fixture(scope="session")
def whole(smith: forge.Forge, tmp_path_factory: pytest.TempPathFactory) -> dict[str, forge.Run]:
    """The undisturbed run of each program, which is run when a test first asks for it."""

    class Runs(dict[str, forge.Run]):
        def __missing__(self, name: str) -> forge.Run:
            self[name] = run = smith.run(program_of(name), tmp_path_factory.mktemp(name))
            return run

    return Runs()


@pytest.fixture
def bench(smith: forge.Forge, provider: wire.Provider, whole: dict[str, forge.Run], tmp_path: Path) -> Bench:
    """One for each test."""
    return Bench(smith, provider, whole, tmp_path)


@pytest.fixture
def desk() -> Desk:
    """What the tools of the test do."""
    return Desk()


@pytest.fixture
def executor(desk: Desk) -> ToolExecutor:
    """The tools over a session that has a question."""
    return asked(ToolExecutor(desk.tools, session=Session()))
