"""A process that writes to sessions while others look at them: `python -m tests.view.writer URL`.

Each line of its standard input is the name of a session, which is opened, and then what is done there, as far as the
line `close`. Each is answered with a line when it is stored.

| line | does |
|---|---|
| `say TEXT` | the user says it |
| `call note TEXT` | the model asks for a call, which is made |
| `call pay TEXT` | a payment is made whose outcome stays unknown |
| `call ask TEXT` | a payment waits for an approval |
| `call hold TEXT` | a call is begun, which is answered with `begun`, and ends with the next line |
| `resume` | the open reply is answered |
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from handrail import store as stores
from handrail import tool
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.errors import EffectUncertain
from handrail.prompt import Approval, PolicyDecision, Prompt, PromptTemplate, Tool, ToolContext, ToolsSection
from handrail.runtime import Session, ToolCall
from handrail.session import stored_as
from tests.kit import Decides
from tests.view.served_pages import ENVIRONMENT, ROOT


@stored_as("writer.line")
@dataclass(frozen=True)
class Line:
    """A value of the session."""

    text: str


@tool
def note(text: str, context: ToolContext) -> str:
    """Note something."""
    context.session[Line].append(Line(text))
    return f"noted {text}"


@tool(effect="external")
def ask(text: str) -> str:
    """Pay, when a person has approved it."""
    return f"paid {text}"


@tool(effect="external", idempotency=True)
def pay(text: str) -> str:
    """Pay, without an answer of the bank."""
    raise EffectUncertain(f"the bank has not answered about {text}")


@tool(effect="external")
def hold(text: str) -> str:
    """Take until the next line says that it is to end."""
    say("begun")
    return f"{sys.stdin.readline().strip()} of {text}"


def _judge(tool: Tool[Any, Any], _params: object) -> PolicyDecision:
    return PolicyDecision.ask("May it be paid?") if tool.name == "ask" else PolicyDecision.allow()


def say(word: str) -> None:
    """Answer the line that was read last."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _write(url: str) -> None:
    with stores.open(url) as store:
        say("done")
        for line in sys.stdin:
            with Session.open(store, line.strip()) as session:
                say("done")
                _write_session(session)
            say("done")


def _write_session(session: Session) -> None:
    section = ToolsSection(title="Desk", tools=[note, ask, pay, hold], policies=[Decides(_judge, "payments")])
    prompt: Prompt[Any] = Prompt(PromptTemplate(ns="tests", key="writer", sections=[section]))
    executor = ToolExecutor(prompt=prompt, session=session, approver=lambda _: Approval.later("the desk is asked"))
    for number, line in enumerate(sys.stdin):
        verb, _, rest = line.strip().partition(" ")
        if verb == "close":
            return
        if verb == "say":
            session.conversation.append({"role": "user", "content": rest})
        elif verb == "call":
            name, _, text = rest.partition(" ")
            calls = [ToolCall("c1", name, {"text": text})]
            session.conversation.append({"role": "assistant"}, calls=calls, reply=f"r{number}")
        answers = None if verb == "say" else executor.answer()
        if answers and not isinstance(answers, PendingAnswers):
            session.conversation.append(
                *({"role": "tool", "tool_call_id": answer.call_id, "content": answer.content} for answer in answers)
            )
        say("done")


@dataclass(frozen=True)
class Writer:
    """The process, as a test uses it."""

    process: subprocess.Popen[str]

    def write(self, line: str, answer: str = "done") -> None:
        """Have it do something, and wait until that is stored."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline().strip() == answer

    @contextmanager
    def session(self, session_id: str) -> Generator[None]:
        """A session that it has open for the time of the block."""
        self.write(session_id)
        yield
        self.write("close")


@contextmanager
def writing(url: str) -> Generator[Writer]:
    """A process that writes to the sessions of a store for the time of the block."""
    command = [sys.executable, "-m", "tests.view.writer", url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        yield Writer(process)
        process.stdin.close()
        assert process.wait() == 0


if __name__ == "__main__":
    _write(*sys.argv[1:])
