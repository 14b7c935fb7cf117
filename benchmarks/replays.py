"""What it costs to replay a recorded session: each timing replays one of 1,000 calls in memory."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.timing import Limit
from handrail import store as stores
from handrail import tool
from handrail.adapters.tool_executor import ToolExecutor
from handrail.replay import replay
from handrail.runtime import Session, ToolCall
from handrail.waiting import run_on_new_loop

CALLS = 1_000
REPLAY = f"replay {CALLS:,} calls in memory"

LIMITS = (Limit(REPLAY, 2_000, "ms"),)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a report."""

    text: str


@tool(effect="read")
def look(text: str) -> str:
    """Look something up."""
    return text


@tool
def note(text: str) -> Line:
    """Take a note."""
    return Line(text)


@tool(effect="external", idempotency=True)
def pay(text: str) -> str:
    """Pay."""
    return f"paid {text}"


def executor(session: Session) -> ToolExecutor:
    """The executor of a session."""
    return ToolExecutor([look, note, pay], session=session)


@contextmanager
def cases() -> Generator[dict[str, Callable[[], object]]]:
    """What is measured, by name; the recorded session is there while the block runs."""
    with stores.open("memory:") as store:
        with Session.open(store, "recorded") as session, executor(session) as loop:
            talk = session.conversation
            for number in range(CALLS // 4):
                names = ("look", "look", "note", "pay")
                calls = [ToolCall(f"c{place}", name, {"text": f"{number}"}) for place, name in enumerate(names)]
                talk.append({"role": "assistant"}, calls=calls, reply=f"r{number}")
                answers = loop.execute_all(calls, reply=f"r{number}")
                talk.append(*({"role": "tool", "tool_call_id": one.call_id, "content": one.content} for one in answers))

        def once() -> object:
            outcome = run_on_new_loop(replay("recorded", executor, store=store))
            if not outcome.equal or outcome.compared != CALLS:
                raise RuntimeError(f"the replay differs: {outcome.differences}")
            return outcome

        yield {REPLAY: once}
