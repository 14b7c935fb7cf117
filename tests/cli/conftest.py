"""A SQLite store with something of everything in it, and the command over it."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handrail import store as stores
from handrail.store import Store
from tests.cli.agent_folders import write
from tests.cli.desk import Command, Ran, Terminal, fill


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine is set to is not part of a test."""
    own, of_rich = (
        ("HANDRAIL_STORE", "HANDRAIL_DEBUG"),
        ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    )
    for name in (*own, *of_rich, "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ended_by_default() -> Iterator[None]:
    """Signals end the processes that a test starts, also if it runs under `nohup` or in the background."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a filled SQLite store."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    with stores.open(url) as store:
        fill(store)
    return url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """The filled store, beside the command that opens it too."""
    with stores.open(url) as store:
        yield store


@pytest.fixture
def handrail(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command, over the filled store, with its output in a pipe."""
    monkeypatch.setenv("HANDRAIL_STORE", url)
    return Command(url, capsys)


@pytest.fixture
def terminal(url: str, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The command, over the filled store, before a terminal."""
    monkeypatch.setenv("HANDRAIL_STORE", url)
    return Terminal(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are typed in, with an agent and no input."""
    place = tmp_path / "place"
    write(place)
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.delenv("HANDRAIL_MODEL", raising=False)
    return place


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], folder: Path) -> Callable[..., Ran]:
    """Run the agent, with its output in a pipe."""
    command = Command("", capsys)
    return lambda *words: command("run", "desk.agent", *words)
