"""A graph that pays orders: `python -m chaos.langgraph.desk FOLDER TASK` brings a thread of it to its end.

The model asks for the calls that the message of the person has as JSON, in one message, and ends when they are
answered. The files of a folder survive every kill: a line for each request to the model, for each payment that begins,
and for each payment.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - no py.typed
from langgraph.types import Command, RetryPolicy, Send

from handrail import store as stores
from handrail import tool
from handrail.adapters.langgraph import HandrailNode
from handrail.prompt import PolicyDecision, Prompt, PromptTemplate, Tool, ToolContext, ToolResult, ToolsSection

Book = Literal["asked", "begun", "paid"]
Mode = Literal["invoke", "ainvoke"]
Graph: TypeAlias = Any
"""A compiled graph, whose types are unknown to pyright in part."""

_MOST_STEPS = 20


class Call(NamedTuple):
    """A call that the model makes; it waits so many seconds before it pays, and after that."""

    tool: str
    order: str
    before: float = 0.0
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Task:
    """What a process does.

    Attributes:
        thread: the thread.
        calls: the calls that the model makes in one message; of an order that begins with `big` a person is asked.
        mode: how the graph is run.
        sends: each call is a task of its own.
        forks: the process begins at the checkpoint before the calls, if there is one.
    """

    thread: str
    calls: Sequence[Call]
    mode: Mode = "invoke"
    sends: bool = False
    forks: bool = False

    @property
    def line(self) -> str:
        """The task as an argument of the program."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(line: str) -> Task:
        """The task of an argument."""
        fields: dict[str, Any] = json.loads(line)
        return Task(calls=[Call(*call) for call in fields.pop("calls")], **fields)

    @property
    def config(self) -> RunnableConfig:
        """The configuration of a run."""
        return {"configurable": {"thread_id": self.thread}}

    @property
    def question(self) -> HumanMessage:
        """The message of the person."""
        return HumanMessage(json.dumps([call._asdict() for call in self.calls]))


class Books:
    """The files, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, book: Book, line: str) -> None:
        """Appends a line."""
        with (self._folder / f"{book}.txt").open("a") as file:
            file.write(f"{line}\n")

    def read(self, book: Book) -> list[str]:
        """All lines."""
        path = self._folder / f"{book}.txt"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def tools(self) -> list[Tool[Any, Any]]:
        """Tools that pay orders."""

        @tool(effect="external")
        def pay(order: str, before: float, after: float) -> str:
            """Pays an order."""
            self.write("begun", order)
            time.sleep(before)
            self.write("paid", order)
            time.sleep(after)
            return f"receipt of {order}"

        @tool(effect="external", concurrent=True)
        async def pay_soon(order: str, before: float, after: float) -> str:
            """Pays an order beside others."""
            self.write("begun", order)
            await asyncio.sleep(before)
            self.write("paid", order)
            await asyncio.sleep(after)
            return f"receipt of {order}"

        return [pay, pay_soon]


class _AsksAboutBigOrders:
    name = "big orders"

    def check(self, tool: Tool[Any, Any], params: Any, *, context: ToolContext) -> PolicyDecision:  # noqa: ANN401, ARG002 - the protocol's
        """Asks."""
        is_big = params.order.startswith("big")
        return PolicyDecision.ask("May it be paid?") if is_big else PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext) -> None:
        """Takes no note."""


def make_node(books: Books, store: stores.Store) -> HandrailNode:
    """The node that pays."""
    section = ToolsSection(title="Desk", tools=books.tools, policies=[_AsksAboutBigOrders()])
    return HandrailNode(prompt=Prompt(PromptTemplate(ns="chaos", key="desk", sections=[section])), store=store)


def make_graph(books: Books, store: stores.Store, saver: object, *, sends: bool = False, retries: int = 1) -> Graph:
    """The graph, with a checkpointer."""

    def model(state: MessagesState) -> dict[str, list[AnyMessage]]:
        newest = state["messages"][-1]
        if not isinstance(newest, HumanMessage):
            return {"messages": [AIMessage("done")]}
        books.write("asked", "")
        calls: list[dict[str, Any]] = json.loads(str(newest.content))
        requests: list[Any] = [
            {"id": f"call-{number}", "name": call.pop("tool"), "args": call} for number, call in enumerate(calls)
        ]
        return {"messages": [AIMessage("", tool_calls=requests)]}

    def route(state: MessagesState) -> Any:  # noqa: ANN401 - LangGraph's
        message = state["messages"][-1]
        if not isinstance(message, AIMessage) or not message.tool_calls:
            return END
        if not sends:
            return "tools"
        return [
            Send("tools", {"messages": [message.model_copy(update={"tool_calls": [call]})]})
            for call in message.tool_calls
        ]

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", model)
    policy = RetryPolicy(initial_interval=0.01, max_attempts=retries, retry_on=Exception)
    graph.add_node("tools", make_node(books, store), retry_policy=policy)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route, ["tools", END])
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


@dataclass(frozen=True, slots=True)
class Desk:
    """A graph of this process over the files of a folder."""

    folder: Path
    books: Books = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "books", Books(self.folder))

    @property
    def checkpoints(self) -> str:
        """The database of the checkpointer."""
        return str(self.folder / "graph.db")

    @property
    def url(self) -> str:
        """The store of Handrail."""
        return f"sqlite:///{self.folder / 'desk.db'}"

    @contextmanager
    def open(self, *, sends: bool = False, retries: int = 1) -> Generator[Graph]:
        """The graph, for runs by `invoke`."""
        with stores.open(self.url) as store, SqliteSaver.from_conn_string(self.checkpoints) as saver:
            yield make_graph(self.books, store, saver, sends=sends, retries=retries)

    def run(self, task: Task) -> list[ToolMessage]:
        """Brings a thread to its end; whoever is asked says yes. The answers of the calls."""
        if task.mode == "ainvoke":
            asyncio.run(self._run_async(task))
        else:
            with self.open(sends=task.sends) as graph:
                start: Any = fork_point(graph, task) if task.forks else None
                for _ in range(_MOST_STEPS):
                    entry = _next_input(graph.get_state(task.config), task)
                    if entry is _ENDED and start is None:
                        break
                    graph.invoke(None if start else entry, start or task.config, durability="sync")
                    start = None
        return self.answers(task)

    async def _run_async(self, task: Task) -> None:
        with stores.open(self.url) as store:
            async with AsyncSqliteSaver.from_conn_string(self.checkpoints) as saver:
                graph = make_graph(self.books, store, saver, sends=task.sends)
                for _ in range(_MOST_STEPS):
                    entry = _next_input(await graph.aget_state(task.config), task)
                    if entry is _ENDED:
                        break
                    await graph.ainvoke(entry, task.config, durability="sync")

    def answers(self, task: Task) -> list[ToolMessage]:
        """The answers of the calls of a thread."""
        with SqliteSaver.from_conn_string(self.checkpoints) as saver, stores.open(self.url) as store:
            graph = make_graph(self.books, store, saver)
            messages = graph.get_state(task.config).values.get("messages", [])
        return [message for message in messages if isinstance(message, ToolMessage)]


_ENDED = object()


def _next_input(state: Any, task: Task) -> Any:  # noqa: ANN401 - LangGraph's
    """What the thread is run with next."""
    if state.interrupts:
        return Command(resume={one.id: say_yes(one.value) for one in state.interrupts})
    if state.next:
        return None
    return _ENDED if state.values.get("messages") else {"messages": [task.question]}


def say_yes(value: dict[str, Any]) -> dict[str, bool]:
    """The answer to the value of an interrupt that approves all calls."""
    return {question["id"]: True for question in value["questions"]}


def fork_point(graph: Graph, task: Task) -> RunnableConfig | None:
    """The checkpoint before the calls of a thread; `None` if there is none yet."""
    return next((state.config for state in graph.get_state_history(task.config) if state.next == ("tools",)), None)


def run_task(folder: str, line: str) -> None:
    """Brings the thread of a task to its end, over the files of a folder."""
    Desk(Path(folder)).run(Task.parse(line))


if __name__ == "__main__":
    run_task(*sys.argv[1:])
