"""The agent of `docs/how-to/deploy-an-agent.md` is killed while it waits for its model, and started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.typed_pages import DOCS, Command, File, Terminal, read_steps, terminal
from tests.wording import Wording

PAGE = DOCS / "how-to" / "deploy-an-agent.md"
STEPS = read_steps(PAGE)
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


@pytest.mark.timeout(120)  # it types a dozen commands, so it begins among the first
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
