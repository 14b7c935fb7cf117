"""LangGraph with its SQLite checkpointer: side effects are tasks, tool errors are answers, a person is an interrupt."""

from __future__ import annotations

import copy
import os
from functools import partial
from typing import Annotated, Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId
from langgraph.cache.sqlite import SqliteCache
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, tools_condition
from langgraph.types import CachePolicy, Command, RetryPolicy, interrupt

from proof.desk import Answer, Desk, PlainFiles


class State(MessagesState):
    """The state of the graph: messages, and what the desk has shipped."""

    shop: dict[str, Any]


def run(desk: Desk) -> None:
    """Brings the conversation to its end."""
    once: Any = CachePolicy(key_func=lambda order, amount, key: key)
    charge = task(cache_policy=once, retry_policy=RetryPolicy(0.01, retry_on=ConnectionRefusedError))(desk.pay)
    call_set = task(desk.act)

    def pay(order: str, amount: str) -> str:
        """Pays an order."""
        payment = {"order": order, "amount": amount}
        if desk.asks and not (payment := interrupt(payment)):
            return "a person has refused it"
        return charge(**payment, key=f"pay {order}").result()

    def ship(
        order: str, call_id: Annotated[str, InjectedToolCallId], state: Annotated[State, InjectedState]
    ) -> Command[Any]:
        """Ships an order."""
        shop = dict(state.get("shop", {}))
        text = desk.ship(order, shop, PlainFiles(desk.root))
        return Command(update={"shop": shop, "messages": [ToolMessage(text, tool_call_id=call_id)]})

    def act(function: str, arguments: dict[str, Any]) -> str:
        """Calls a function."""
        before = copy.deepcopy(desk.environment)
        try:
            return call_set(function, arguments).result()
        except Exception:
            desk.environment = before
            raise

    def ask_model(state: State) -> dict[str, Any]:
        answers = [
            Answer(each.tool_call_id, str(each.content)) for each in state["messages"] if isinstance(each, ToolMessage)
        ]
        calls = [{"id": call.id, "name": call.name, "args": call.arguments} for call in desk.ask_model(answers)]
        return {"messages": [AIMessage("" if calls else "done", tool_calls=calls)]}

    graph = StateGraph(State)
    graph.add_node("model", ask_model)
    graph.add_node("tools", ToolNode([pay, ship, act, desk.read_mail], handle_tool_errors=True))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    config: Any = {"configurable": {"thread_id": "run"}, "recursion_limit": 1000}
    with SqliteSaver.from_conn_string(str(desk.folder / "graph.db")) as saver:
        app = graph.compile(checkpointer=saver, cache=SqliteCache(path=str(desk.folder / "cache.db")))
        run = partial(app.invoke, config=config, durability=os.environ["DURABILITY"])
        run({"messages": [("user", "Work.")], "shop": {}} if app.get_state(config).created_at is None else None)
        while (state := app.get_state(config)).interrupts:
            run(Command(resume={one.id: desk.ask_person(**one.value) and one.value for one in state.interrupts}))
        desk.finish(state.values["shop"])
