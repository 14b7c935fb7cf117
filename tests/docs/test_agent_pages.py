"""The commands of the README, and of the page about a deployed agent."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
import tomllib
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.architecture.sources import ROOT
from tests.docs.kit import commands_of, comparable, typed
from tests.docs.typed_pages import DOCS, Command, File, Terminal, steps_of, terminal
from tests.wording import Wording

FIRST_AGENT = ROOT / "README.md"


README = FIRST_AGENT.read_text(encoding="utf-8")


COMMANDS = list(commands_of(FIRST_AGENT))


_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


_LINES: list[str] = [line for block in _SHELL.findall(README) for line in block.splitlines()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to type in, without a key, a store, or anybody to be asked."""
    for name in ("HANDRAIL_STORE", "HANDRAIL_MODEL", "OPENAI_API_KEY", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(begin: str, word: str) -> str:
    """The one command line of the README's blocks for a shell that begins so, and has this word."""
    lines = [line for line in _LINES if line.startswith(begin) and word in line]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.usefixtures("place")
def test_the_commands_of_the_readme_print_what_is_shown() -> None:
    """In an empty folder, each after those above it; the first one prints the second."""
    assert [line.split()[1] for line, _ in COMMANDS] == ["new", "run"]
    assert f"  {COMMANDS[1][0]}\n" in COMMANDS[0][1]
    for line, shown in COMMANDS:
        code, printed = typed(line)
        assert (code, comparable(printed)) == (0, comparable(shown)), line


def test_calls_that_change_something_are_denied_in_a_pipe_until_a_rule_allows_them(
    place: Path, wording: Wording
) -> None:
    """The rule of the README, put below those that are there, is the cure; what only reads needs none."""
    (rule,) = re.findall(r"`(allow: \[.*?\])`", README)
    assert typed(COMMANDS[0][0])[0] == 0
    line = COMMANDS[1][0].removesuffix(" --approve approve-all")
    assert line != COMMANDS[1][0]
    code, printed = typed(line)
    assert code == 1
    assert [shown for shown in printed.splitlines() if "list_notes(" in shown or "add_note(" in shown] == wording
    with (place / "notes" / "approval.yaml").open("a", encoding="utf-8") as rules:
        rules.write(f"{rule}\n")
    code, printed = typed(line)
    assert (code, comparable(printed)) == (0, comparable(COMMANDS[1][1]))


@pytest.mark.usefixtures("place")
def test_a_real_model_needs_what_the_readme_says(wording: Wording) -> None:
    """Its key, and its extra, which is there in a checkout; no model is asked without them."""
    assert typed(COMMANDS[0][0])[0] == 0
    code, printed = typed(command("handrail run notes", "openai"))
    assert (code, printed) == (2, wording)
    assert "`OPENAI_API_KEY`" in README


def test_what_is_installed_brings_the_command_and_agents() -> None:
    """Every extra that the README has installed is one, and it is installed above the first command."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = re.findall(r"pip install '(\w+)\[(.*?)\]'", README)
    assert ("handrail", "agents,cli") in named
    assert {extra for _, extras in named for extra in extras.split(",")} <= set(project["optional-dependencies"])
    assert README.index("pip install 'handrail[agents,cli]'") < README.index("$ handrail")
    assert "handrail" in project["scripts"]


DEPLOYED = DOCS / "how-to" / "deploy-an-agent.md"


STEPS = steps_of(DEPLOYED)


SHOWN = [(step.line, step.shown) for step in STEPS if isinstance(step, Command)]


(ASK, WAITING), (AGAIN, _), (RESUME, ORDERED), (_, NOTHING) = [
    (line, shown) for line, shown in SHOWN if line.startswith("python clerk.py")
]


(ANSWER,) = [line for line, _ in SHOWN if line.startswith("handrail approvals answer")]


_HELD = '''
import os

from pydantic_ai.models.wrapper import WrapperModel

class Held(WrapperModel):
    """A model whose provider answers when it is let to."""

    async def request(self, *asked):
        with open("asked", "w") as fifo:
            fifo.write(str(os.getpid()))
        with open("answered"):
            return await super().request(*asked)

'''


class Desk(NamedTuple):
    """The agent of the page in a folder, with a model that each request waits for.

    Attributes:
        at: where commands are typed.
        folder: where they are typed.
    """

    at: Terminal
    folder: Path

    def type(self, line: str) -> str:
        """Type a command that asks no model; what it shows."""
        return self.at.type(line, self.folder)

    def answered(self, line: str) -> str:
        """Type a command whose one request is answered; what it shows."""
        with self._asking(line) as (shown, _):
            (self.folder / "answered").write_bytes(b"")
        return shown.result()

    def killed(self, line: str) -> str:
        """Type a command, and kill its process in its first request; what it shows."""
        with self._asking(line) as (shown, pid):
            os.kill(pid, signal.SIGKILL)
        return shown.result()

    @contextmanager
    def _asking(self, line: str) -> Generator[tuple[Future[str], int]]:
        """Type a command, and wait until it asks its model; what it will show, and its pid."""
        with (self.folder / "asked").open("r+b", buffering=0) as asked, ThreadPoolExecutor(1) as pool:
            shown = pool.submit(self.type, line)
            shown.add_done_callback(lambda _: asked.write(b"0"))  # it ends without asking
            pid = int(asked.read(20))
            assert pid, shown.result()
            yield shown, pid

    def unfinished(self) -> list[str]:
        """What the commands of the page list for a timer and a person."""
        lines = "sessions list --state open", "ledger list --status unknown", "approvals list"
        return [self.type(f"handrail {line} --store sqlite:///shop.db").rstrip() for line in lines]

    def orders(self) -> list[str]:
        """What the supplier was sent."""
        return (self.folder / "orders").read_text("ascii").split()


@pytest.fixture
def desk(tmp_path: Path) -> Generator[Desk]:
    """The desk, as the page says, but for its model; the supplier counts its orders."""
    for step in STEPS:
        if isinstance(step, File):
            file = tmp_path / step.name
            file.parent.mkdir(exist_ok=True)
            file.write_text(step.text, "utf-8")
    model = "ScriptedModel(REPLIES if text else REPLIES[1:])"
    _replace(tmp_path / "clerk.py", f"model = {model}", f"model = Held({model})")
    _replace(tmp_path / "clerk.py", "\ndef leave_open", f"{_HELD}\ndef leave_open")
    _replace(tmp_path / "shop/tools.py", "    return f", '    print("order", file=open("orders", "a"))\n    return f')
    for name in ("asked", "answered"):
        os.mkfifo(tmp_path / name)
    with terminal() as at:
        yield Desk(at, tmp_path)


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")


def test_a_run_that_is_killed_in_a_request_loses_and_repeats_nothing(desk: Desk, wording: Wording) -> None:
    """Its session is open, and it is resumed without the message: before the first reply, and after a call.

    Neither leaves an effect that is unknown, or a question.
    """
    assert desk.killed(ASK) == "Killed\n"
    opened, *others = desk.unfinished()
    assert "ticket-17  open" in opened
    assert others == wording
    assert desk.answered(ASK) == WAITING  # the same message: it is not asked twice
    desk.type(ANSWER)

    assert desk.killed(RESUME) == "Killed\n"
    opened, *others = desk.unfinished()
    assert "ticket-17  open" in opened
    assert others == wording
    assert desk.answered(RESUME) == ORDERED  # the tokens show that the model reads all of the conversation, once
    assert desk.type(RESUME) == NOTHING

    assert desk.killed(AGAIN) == "Killed\n"
    assert desk.answered(RESUME) != NOTHING
    assert desk.orders() == ["order"]
