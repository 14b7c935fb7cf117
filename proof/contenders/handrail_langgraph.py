"""Handrail in LangGraph: `HandrailNode` takes the place of `ToolNode`."""

from __future__ import annotations

from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from langgraph.types import Command

from handrail import store
from handrail.adapters.langgraph import HandrailNode
from proof.contenders.handrail_tools import open_prompt, read_shop
from proof.desk import Answer, Desk


def run(desk: Desk) -> None:
    """Brings the conversation to its end."""

    def ask_model(state: MessagesState) -> dict[str, Any]:
        answers = [
            Answer(each.tool_call_id, str(each.content)) for each in state["messages"] if isinstance(each, ToolMessage)
        ]
        calls = [{"id": call.id, "name": call.name, "args": call.arguments} for call in desk.ask_model(answers)]
        return {"messages": [AIMessage("" if calls else "done", tool_calls=calls)]}

    with (
        store.open(f"sqlite:///{desk.folder / 'desk.db'}") as opened,
        SqliteSaver.from_conn_string(str(desk.folder / "graph.db")) as saver,
        open_prompt(desk, opened) as prompt,
    ):
        graph = StateGraph(MessagesState)
        graph.add_node("model", ask_model)
        graph.add_node("tools", HandrailNode(prompt=prompt, store=opened))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        app = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "run"}, "recursion_limit": 1000}
        run = partial(app.invoke, config=config, durability="sync")
        run({"messages": [("user", "Work.")]} if app.get_state(config).created_at is None else None)
        while interrupts := app.get_state(config).interrupts:
            questions = [each for one in interrupts for each in one.value["questions"]]
            run(Command(resume={each["id"]: desk.ask_person(**each["arguments"]) for each in questions}))
        with opened.session("run") as session:
            desk.finish(read_shop(session))
