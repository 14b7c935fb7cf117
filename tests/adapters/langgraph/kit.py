"""What tests of the node are built on: graphs with a scripted model, and the two ways to run them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - no py.typed
from langgraph.types import Command, Interrupt, RetryPolicy, Send

from handrail.adapters.langgraph import HandrailNode
from handrail.prompt import Approver, Prompt, PromptTemplate, Tool, ToolPolicy, ToolsSection
from handrail.store import Store

Mode = Literal["invoke", "ainvoke"]

CONFIG: RunnableConfig = {"configurable": {"thread_id": "chat-17"}}


def ask(*calls: tuple[str, Mapping[str, Any]], reply: str | None = None, ids: Sequence[str] = ()) -> AIMessage:
    """A message of the model that asks for calls, with the ids `c1`, `c2` and so on, unless others are given."""
    names = ids or [f"c{number}" for number in range(1, len(calls) + 1)]
    requests: list[Any] = [
        {"id": name, "name": tool, "args": dict(args)} for name, (tool, args) in zip(names, calls, strict=True)
    ]
    return AIMessage("", id=reply, tool_calls=requests)


@dataclass
class App:
    """A graph of a scripted model and a node, and its runs on one thread.

    Attributes:
        node: the node.
        replies: the messages of the model, one for each request; after them it says that it is done.
        mode: how the graph is run.
        sends: each call is a task of its own.
        retries: how often the node is tried.
        asked: how often the model was asked.
    """

    node: HandrailNode
    replies: Sequence[AIMessage | Callable[[], AIMessage]]
    mode: Mode = "invoke"
    sends: bool = False
    retries: int = 1
    saver: Any = field(default_factory=InMemorySaver)
    durability: str | None = "sync"
    config: RunnableConfig = field(default_factory=lambda: CONFIG)
    asked: int = 0

    def __post_init__(self) -> None:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("model", self._model)
        policy = RetryPolicy(initial_interval=0.001, max_attempts=self.retries, retry_on=Exception)
        graph.add_node("tools", self.node, retry_policy=policy)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", self._route, ["tools", END])
        graph.add_edge("tools", "model")
        self.graph: Any = graph.compile(checkpointer=self.saver)

    def begin(self, text: str = "Pay.") -> list[Interrupt]:
        """Runs the graph with a message of a person; the interrupts that it ends with."""
        return self.run({"messages": [HumanMessage(text)]})

    def resume(self, answers: object) -> list[Interrupt]:
        """Resumes the graph."""
        return self.run(Command(resume=answers))

    def run(self, entry: object, config: RunnableConfig | None = None) -> list[Interrupt]:
        """Runs the graph with an input."""
        durability = {} if self.durability is None else {"durability": self.durability}
        if self.mode == "invoke":
            state = self.graph.invoke(entry, config or self.config, **durability)
        else:
            state = asyncio.run(self.graph.ainvoke(entry, config or self.config, **durability))
        interrupts: list[Interrupt] = state.get("__interrupt__", [])
        return interrupts

    @property
    def answers(self) -> list[ToolMessage]:
        """The answers of the thread."""
        messages: list[AnyMessage] = self.graph.get_state(self.config).values["messages"]
        return [message for message in messages if isinstance(message, ToolMessage)]

    @property
    def texts(self) -> list[str]:
        """What they say."""
        return [str(answer.content) for answer in self.answers]

    def before_calls(self) -> RunnableConfig:
        """The checkpoint before the first calls."""
        history = [state.config for state in self.graph.get_state_history(self.config) if "tools" in state.next]
        config: RunnableConfig = history[-1]
        return config

    def _model(self, state: MessagesState) -> dict[str, list[AnyMessage]]:
        self.asked += 1
        if self.asked > len(self.replies):
            return {"messages": [AIMessage("done")]}
        reply = self.replies[self.asked - 1]
        return {"messages": [reply if isinstance(reply, AIMessage) else reply()]}

    def _route(self, state: MessagesState) -> Any:
        message = state["messages"][-1]
        if not isinstance(message, AIMessage) or not (message.tool_calls or message.invalid_tool_calls):
            return END
        if not self.sends:
            return "tools"
        parts = [message.model_copy(update={"tool_calls": [call]}) for call in message.tool_calls]
        return [Send("tools", {"messages": [part]}) for part in parts]


def make_node(
    store: Store,
    *tools: Tool[Any, Any],
    policies: Sequence[ToolPolicy] = (),
    approver: Approver | None = None,
    **options: Any,
) -> HandrailNode:
    """A node over tools with policies."""
    section = ToolsSection(title="Desk", tools=tools, policies=policies)
    prompt = Prompt(PromptTemplate(ns="t", key="desk", sections=[section]))
    return HandrailNode(prompt=prompt, store=store, approver=approver, **options)


def connect(model: Callable[[MessagesState], dict[str, list[Any]]], node: HandrailNode, saver: Any = None) -> Any:
    """A graph of a model and a node, with its checkpoints in `saver`."""

    def route(state: MessagesState) -> str:
        newest: Any = state["messages"][-1]
        return "tools" if newest.tool_calls else END

    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", node)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", route)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def ask_once(node: HandrailNode, reply: AIMessage) -> Any:
    """A graph in which a model asks once, and ends with what it was answered."""

    def model(state: MessagesState) -> dict[str, list[Any]]:
        is_answered = any(isinstance(message, AIMessage) for message in state["messages"])
        return {"messages": [AIMessage("found")] if is_answered else [reply]}

    return connect(model, node)
