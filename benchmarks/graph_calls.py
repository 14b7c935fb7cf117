"""The calls that `benchmarks.graphs` measures; a thread has some of them, so that sessions stay short."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from handrail import store, tool
from handrail.adapters.langgraph import HandrailNode
from handrail.adapters.tool_executor import PendingAnswers, ToolExecutor
from handrail.prompt import Prompt
from handrail.runtime import ToolCall

_MEASURED, _IN_A_THREAD = 2000, 20


@tool
def add(left: int, right: int) -> int:
    """Add two numbers."""
    return left + right


class Desk:
    """Nodes over a store in memory and one in a file, and the same by hand; each case makes one call."""

    def __init__(self, memory: store.Store, stored: store.Store) -> None:
        self._memory, self._stored = memory, stored
        self._node, self._stored_node = HandrailNode([add], store=memory), HandrailNode([add], store=stored)
        self._prompt = Prompt.from_tools([add])
        self._made = 0

    def by_hand(self) -> None:
        """A call without the node."""
        self._run_by_hand(self._message(), f"hand of {self._made // _IN_A_THREAD}")

    def stored(self) -> None:
        """A call with it, on a thread in a file."""
        _run_node(self._stored_node, self._message(), f"stored {self._made // _IN_A_THREAD}")

    def open_stored(self) -> None:
        """A session in a file is opened and closed."""
        self._stored.session("opened").close()

    def over_direct(self) -> float:
        """The milliseconds of a call by the node over one by hand in its session: the tenth part of both is faster."""
        ways: list[Callable[[AIMessage, str], object]] = [partial(_run_node, self._node), self._run_in_session]
        times: list[list[float]] = [[], []]
        for number in range(_MEASURED):
            for way, own_times in zip(ways, times, strict=True):
                message = self._message()
                begun = time.perf_counter()
                way(message, f"thread {number // _IN_A_THREAD}")
                own_times.append(time.perf_counter() - begun)
        node, direct = (sorted(own_times)[_MEASURED // 10] for own_times in times)
        return (node - direct) * 1000

    def _run_in_session(self, message: AIMessage, thread: str) -> object:
        # Opening is not what is measured, so both open alike.
        with self._node._open({"configurable": {"thread_id": thread}}) as executor:  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as said
            return self._answer(executor, message)

    def _message(self) -> AIMessage:
        call: Any = {"id": "call-1", "name": "add", "args": {"left": 2, "right": 3}}
        self._made += 1
        return AIMessage("", id=f"reply-{self._made}", tool_calls=[call])

    def _run_by_hand(self, message: AIMessage, thread: str) -> object:
        with self._memory.session(thread) as session, ToolExecutor(prompt=self._prompt, session=session) as executor:
            return self._answer(executor, message)

    def _answer(self, executor: ToolExecutor, message: AIMessage) -> object:
        calls = [ToolCall(call["id"] or "", call["name"], call["args"]) for call in message.tool_calls]
        answers = executor.answer(calls, reply=message.id)
        assert not isinstance(answers, PendingAnswers)
        messages = [
            ToolMessage(
                content=answer.content,
                tool_call_id=call.id,
                name=call.name,
                status="success" if answer.success else "error",
                artifact={"session": executor.environment.session.session_id, "call": f"{message.id}/{call.id}"},
            )
            for call, answer in zip(calls, answers, strict=True)
        ]
        return {"messages": messages}


def _run_node(node: HandrailNode, message: AIMessage, thread: str) -> object:
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    return node.invoke({"messages": [message]}, config)


@contextmanager
def opened_desk() -> Generator[Desk]:
    """A desk, for the time of the block."""
    with (
        TemporaryDirectory() as folder,
        store.open("memory:") as memory,
        store.open(f"sqlite:///{Path(folder) / 'desk.db'}") as stored,
    ):
        yield Desk(memory, stored)
