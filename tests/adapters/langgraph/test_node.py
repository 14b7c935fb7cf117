"""The node in graphs of LangGraph: answers, identities, sessions, and what it refuses."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - no py.typed
from langgraph.runtime import get_runtime

from handrail import store as stores
from handrail import tool
from handrail.adapters.langgraph import HandrailNode
from handrail.errors import CallIdReusedError, InvalidArgumentError, SessionLockedError, UnboundResourceError
from handrail.errors.developer import InvalidReturnError
from handrail.prompt import (
    BinaryPart,
    External,
    IdempotencyConfig,
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.runtime import Session, ToolInvoked
from handrail.session import CallRef, stored_as
from handrail.store import Store
from tests.adapters.langgraph.kit import CONFIG, App, Mode, ask, ask_once, make_node
from tests.kit import Decides
from tests.wording import Wording

MODES = pytest.mark.parametrize("mode", ["invoke", "ainvoke"])


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    """A store in a file."""
    with stores.open(f"sqlite:///{tmp_path / 'desk.db'}") as opened:
        yield opened


class Bank:
    """What is paid, by tools with and without a key."""

    def __init__(self) -> None:
        self.paid: list[str] = []

        @tool(effect="external")
        def pay(order: str) -> str:
            """Pay an order."""
            self.paid.append(order)
            return f"{order} is paid"

        @tool(effect="external", idempotency=IdempotencyConfig())
        def pay_once(order: str) -> str:
            """Pay an order once."""
            self.paid.append(order)
            return f"{order} is paid"

        self.pay: Tool[Any, Any] = pay
        self.pay_once: Tool[Any, Any] = pay_once


@pytest.fixture
def bank() -> Bank:
    """A bank."""
    return Bank()


@stored_as("tests.graph_line")
@dataclass(frozen=True)
class Line:
    """What a handler writes to the session."""

    text: str


@tool
def note(text: str) -> str:
    """Note a text."""
    return f"noted: {text}"


PAY = ("pay", {"order": "A-1"})
PAY_OTHER = ("pay", {"order": "A-2"})
PAY_ONCE, ONCE_MORE = ("pay_once", {"order": "A-1"}), ("pay_once", {"order": "A-2"})
NOTE = ("note", {"text": "x"})


# -------------------------------------------------------------------------------------------------------------- answers


@MODES
def test_calls_are_answered_in_order_and_artifacts_name_them(store: Store, bank: Bank, mode: Mode) -> None:
    """A failed call has the status "error"; of two calls with one id, each is paid."""
    calls = ask(PAY, ("nope", {}), PAY_OTHER, ("note", {"wrong": 1}), reply="r1", ids=["c1", "c2", "c1", ""])
    app = App(make_node(store, bank.pay, note), [calls], mode)
    assert app.begin() == []
    assert [(answer.name, answer.tool_call_id, answer.status) for answer in app.answers] == [
        ("pay", "c1", "success"),
        ("nope", "c2", "error"),
        ("pay", "c1", "success"),
        ("note", "", "error"),
    ]
    refs = [f"r1/{name}" for name in ("c1", "c2", "c1_2", "call")]
    assert [answer.artifact for answer in app.answers] == [{"session": "chat-17", "call": ref} for ref in refs]
    assert bank.paid == ["A-1", "A-2"]


def test_arguments_that_are_not_json_are_refused_in_words_for_the_model(store: Store, wording: Wording) -> None:
    """LangChain keeps them apart from the other calls."""
    message = AIMessage(
        "",
        invalid_tool_calls=[
            {"type": "invalid_tool_call", "id": "c1", "name": "note", "args": '{"text": ', "error": None}
        ],
    )
    app = App(make_node(store, note), [message])
    app.begin()
    assert [answer.status for answer in app.answers] == ["error"]
    assert app.texts == wording


def test_files_are_content_blocks(store: Store) -> None:
    """LangChain reads an image as one; a file of another kind is a file."""

    @tool
    def draw() -> list[str | BinaryPart]:
        """Draw."""
        return ["two files", BinaryPart(b"png", "image/png"), BinaryPart(b"pdf", "application/pdf")]

    app = App(make_node(store, draw), [ask(("draw", {}))])
    app.begin()
    kinds = [(block["type"], block.get("mime_type")) for block in app.answers[0].content_blocks]
    assert kinds == [("text", None), ("image", "image/png"), ("file", "application/pdf")]


@MODES
def test_handlers_read_the_runtime_of_langgraph(store: Store, mode: Mode) -> None:
    """In threads and in coroutines."""
    threads: list[object] = []

    def note_thread() -> None:
        info = get_runtime().execution_info
        threads.append(None if info is None else info.thread_id)

    @tool
    def look() -> None:
        """Look."""
        note_thread()

    @tool
    async def look_async() -> None:
        """Look."""
        note_thread()

    App(make_node(store, look, look_async), [ask(("look", {}), ("look_async", {}))], mode).begin()
    assert threads == ["chat-17", "chat-17"]


def test_state_may_be_an_object_with_another_key(store: Store) -> None:
    """The messages are where `messages_key` says."""

    @dataclass
    class State:
        talk: list[Any]

    node = make_node(store, note, messages_key="talk")
    update = node.invoke(State([HumanMessage("x"), ask(NOTE, reply="r1")]), CONFIG)
    assert [message.content for message in update["talk"]] == ["noted: x"]


# ------------------------------------------------------------------------------------------------- executed once more


class FailsOnce:
    """A policy that is a mistake of the program, the first time that it is asked about a note."""

    name = "fails once"

    def __init__(self) -> None:
        self.failed = False

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> Any:
        if tool.name != "note" or self.failed:
            return PolicyDecision.allow()
        self.failed = True
        return "yes"

    def on_result(self, *_: Any, **__: Any) -> None:
        """Nothing to note."""


@MODES
@pytest.mark.parametrize("sends", [False, True])
def test_mistake_fails_the_node_after_the_other_calls(store: Store, bank: Bank, mode: Mode, sends: bool) -> None:
    """Executed again, the node answers these from their records; the model is not asked again.

    With `Send` each call is a task of its own, and an asynchronous graph cancels those that run when one fails: what
    had begun then is unknown, and is not paid again.
    """
    app = App(make_node(store, bank.pay, note, policies=[FailsOnce()]), [ask(PAY, NOTE, PAY_OTHER)], mode, sends)
    with pytest.raises(InvalidReturnError):
        app.begin()
    assert sends or bank.paid == ["A-1", "A-2"]
    app.run(None)
    assert (len({*bank.paid}), app.asked) == (len(bank.paid), 2)
    results = ["A-1 is paid", "noted: x", "A-2 is paid"]
    if not (sends and mode == "ainvoke"):
        assert (app.texts, sorted(bank.paid)) == (results, ["A-1", "A-2"])
    with Session.open(store, "chat-17") as session:
        assert len({*app.texts} & {*results}) + len(session.open_calls) == len(app.texts) == len(results)


@MODES
def test_retry_policy_repeats_no_effect(store: Store, bank: Bank, mode: Mode) -> None:
    """The second attempt of the node answers from the records."""
    node = make_node(store, bank.pay, note, policies=[FailsOnce()])
    app = App(node, [ask(PAY, NOTE)], mode, retries=2)
    app.begin()
    assert (bank.paid, app.texts) == (["A-1"], ["A-1 is paid", "noted: x"])


@MODES
def test_time_travel_repeats_no_effect(store: Store, bank: Bank, mode: Mode) -> None:
    """From the checkpoint before the calls these are answered from their records; later calls are new ones."""
    app = App(make_node(store, bank.pay), [lambda: ask(PAY)], mode)
    app.begin()
    app.run(None, app.before_calls())
    assert (bank.paid, app.texts, app.asked) == (["A-1"], ["A-1 is paid"], 3)
    app.asked = 0
    app.run({"messages": [HumanMessage("Again.")]})
    assert bank.paid == ["A-1", "A-1"]


@MODES
def test_branch_in_a_thread_of_its_own_repeats_no_effect(store: Store, bank: Bank, mode: Mode) -> None:
    """With the messages of a checkpoint, and a fork of the session at their last call, named as the new thread."""
    app = App(
        make_node(store, bank.pay_once, note), [ask(NOTE, PAY_ONCE, reply="r1"), ask(ONCE_MORE, reply="r2")], mode
    )
    app.begin()
    (past,) = [state for state in app.graph.get_state_history(CONFIG) if len(state.values.get("messages", ())) == 4]
    with Session.open(store, "chat-17") as session:
        at = CallRef.parse(past.values["messages"][-1].artifact["call"])
        session.fork(session_id="chat-18", at=at).close()
    branch = replace(app, config={"configurable": {"thread_id": "chat-18"}}, replies=[ask(NOTE, ONCE_MORE, reply="r3")])
    branch.graph = app.graph
    app.replies, app.asked = branch.replies, 0
    branch.graph.update_state(branch.config, past.values, as_node="tools")
    branch.run(None, branch.config)
    assert branch.texts[:-1] == ["noted: x", "A-1 is paid", "noted: x"]
    assert "chat-17" in str(branch.answers[-1].content)
    assert bank.paid == ["A-1", "A-2"]
    with Session.open(store, "chat-18") as fork:
        assert [event.reply for event in fork[ToolInvoked]] == ["r1", "r1", "r3", "r3"]


def test_message_that_is_edited_after_its_calls_have_run_is_refused(store: Store, bank: Bank) -> None:
    """Its calls have other arguments under the same identity; under another id they are new calls."""
    app = App(make_node(store, bank.pay), [ask(PAY, reply="r1")])
    app.begin()
    fork = app.graph.update_state(app.before_calls(), {"messages": [ask(PAY_OTHER, reply="r1")]})
    with pytest.raises(CallIdReusedError):
        app.run(None, fork)
    assert bank.paid == ["A-1"]


@MODES
def test_what_is_found_out_about_an_earlier_call_is_applied_before_the_next_calls(store: Store, mode: Mode) -> None:
    """The other side is asked when the node is executed for another message."""
    found: list[str] = []

    def find(params: Any, _: str) -> ToolResult[str] | None:
        return ToolResult.ok(found[0], "it is paid") if found else None

    def write(params: Any, result: ToolResult[str], *, context: ToolContext) -> None:
        context.session[Line].append(Line(params.order))

    @tool(effect=External(on_orphan="reconcile", reconcile=find, apply=write))
    def wire(order: str) -> str:
        """Wire the money."""
        raise ConnectionError(order)

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        return str(len(context.session[Line].all()))

    app = App(make_node(store, wire, look), [ask(("wire", {"order": "A-1"}))], mode)
    app.begin()
    assert app.answers[0].status == "error"
    found.append("A-1 is wired")
    app.replies, app.asked = [ask(("look", {}))], 0
    app.begin()
    assert app.texts[1:] == ["1"]


# ------------------------------------------------------------------------------------------------------------- sessions


def test_subgraph_has_a_session_below_that_of_the_thread(store: Store, bank: Bank) -> None:
    """It is the same in each run; the graph around it fails after its calls, and is resumed."""
    calls = ask_once(make_node(store, bank.pay), ask(PAY))
    failures = [True]

    def fail(state: MessagesState) -> dict[str, Any]:
        if failures:
            failures.clear()
            raise ConnectionError
        return {}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("clerk", calls)
    graph.add_node("fail", fail)
    graph.add_edge(START, "clerk")
    graph.add_edge("clerk", "fail")
    app = App(make_node(store, note), [])
    app.graph = graph.compile(checkpointer=app.saver)
    with pytest.raises(ConnectionError):
        app.begin()
    app.run(None)
    assert [answer.artifact["session"] for answer in app.answers] == ["chat-17/clerk"]
    assert bank.paid == ["A-1"]


def test_nodes_that_run_at_the_same_time_share_the_session(store: Store) -> None:
    """Two runs on one thread: both handlers wait for each other; then the session is closed."""
    both = threading.Barrier(2, timeout=30)

    @tool(effect="read")
    def meet() -> str:
        """Meet the other one."""
        both.wait()
        return "met"

    apps = [App(make_node(store, meet), [ask(("meet", {}))]) for _ in range(2)]
    threads = [threading.Thread(target=app.begin) for app in apps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [app.texts for app in apps] == [["met"], ["met"]]
    store.session("chat-17", wait=timedelta(0)).close()


@MODES
def test_session_that_is_open_elsewhere_is_refused_before_a_call_runs(
    store: Store, tmp_path: Path, bank: Bank, mode: Mode
) -> None:
    """Then the run goes on."""
    app = App(make_node(store, bank.pay, wait=timedelta(0)), [ask(PAY)], mode)
    other = stores.open(f"sqlite:///{tmp_path / 'desk.db'}")
    with other, other.session("chat-17"), pytest.raises(SessionLockedError):
        app.begin()
    assert bank.paid == []
    app.run(None)
    assert bank.paid == ["A-1"]


@pytest.mark.anyio
async def test_run_that_is_cancelled_rolls_its_call_back_and_closes_the_session(store: Store) -> None:
    """The thread goes on with the same call."""
    entered, is_slow = asyncio.Event(), [True]

    @tool
    async def write(context: ToolContext) -> str:
        """Write."""
        context.session[Line].append(Line("x"))
        if is_slow.pop() if is_slow else False:
            entered.set()
            await asyncio.Event().wait()
        return "written"

    app = App(make_node(store, write), [ask(("write", {}))])
    run = asyncio.ensure_future(app.graph.ainvoke({"messages": [HumanMessage("x")]}, CONFIG, durability="sync"))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await app.graph.ainvoke(None, CONFIG, durability="sync")
    assert app.texts == ["written"]
    with store.session("chat-17", wait=timedelta(0)) as session:
        assert session[Line].all() == (Line("x"),)


def test_each_session_is_prepared_when_it_is_opened(store: Store) -> None:
    """Subscribers and tags are those of the program."""
    events: list[str] = []

    def prepare(session: Session) -> None:
        session.dispatcher.subscribe(ToolInvoked, lambda event: events.append(event.name))

    app = App(make_node(store, note, on_open=prepare, tags={"desk": "7"}), [ask(NOTE), ask(NOTE)])
    app.begin()
    assert events == ["note", "note"]
    with store.session("chat-17") as session:
        assert session.tags == {"desk": "7"}


# ---------------------------------------------------------------------------------------------------------- the prompt


def test_tools_are_as_a_chat_model_takes_them(store: Store) -> None:
    """As functions of OpenAI's form, with the tool that reads a result that was cut."""
    first, *others = make_node(store, note).tools
    assert first == {
        "type": "function",
        "function": {"name": "note", "description": "Note a text.", "parameters": note.parameters_schema},
    }
    assert [other["function"]["name"] for other in others] == ["read_result"]


@MODES
def test_prompt_changes_when_the_model_opens_a_section(store: Store, bank: Bank, mode: Mode) -> None:
    """The next request has the text and the tools of the section."""
    sections = [MarkdownSection(title="Billing", template="All about money.", summary="Charges.", tools=[bank.pay])]
    node = HandrailNode(prompt=Prompt(PromptTemplate(ns="t", key="shop", sections=sections)), store=store)
    before = node.prompt_for(CONFIG)
    app = App(node, [ask(("open_sections", {"paths": ["billing"]})), ask(PAY)], mode)
    app.begin()
    after = node.prompt_for(CONFIG)
    assert [[one["function"]["name"] for one in prompt.tools] for prompt in (before, after)] == [
        ["open_sections"],
        ["pay", "open_sections"],
    ]
    assert ("All about money." in before.text, "All about money." in after.text) == (False, True)
    assert bank.paid == ["A-1"]


@pytest.mark.anyio
async def test_prompt_of_a_thread_is_read_beside_an_event_loop(store: Store) -> None:
    """As without one."""
    node = make_node(store, note)
    assert await node.prompt_for_async(CONFIG) == node.prompt_for(CONFIG)


# ------------------------------------------------------------------------------------------------------------- refusals


@MODES
@pytest.mark.parametrize("durability", [None, "async", "exit"])
def test_external_tool_needs_durability_sync(
    store: Store, bank: Bank, mode: Mode, durability: str | None, wording: Wording
) -> None:
    """Nothing runs; a tool that has a key, and one without an effect outside, do not need it."""
    app = App(make_node(store, bank.pay, note), [ask(NOTE), ask(NOTE)], mode, durability=durability)
    with pytest.raises(InvalidArgumentError) as caught:
        app.begin()
    assert str(caught.value) == wording
    other = App(
        make_node(store, bank.pay_once, note), [ask(NOTE, ("pay_once", {"order": "A-1"}))], mode, durability=durability
    )
    other.begin()
    assert bank.paid == ["A-1"]


def test_without_a_checkpointer_nothing_is_resumed_and_external_tools_run(store: Store, bank: Bank) -> None:
    """A run that is killed is asked for again by its caller."""
    app = App(make_node(store, bank.pay), [ask(PAY)], saver=None, durability=None)
    app.begin()
    assert bank.paid == ["A-1"]


@MODES
def test_call_that_has_an_answer_in_the_state_is_not_made(store: Store, bank: Bank, mode: Mode) -> None:
    """A person may have written it."""
    node = make_node(store, bank.pay)
    by_hand = ToolMessage("A-1 is paid by hand", tool_call_id="c1")
    state = {"messages": [HumanMessage("x"), ask(PAY, PAY_OTHER, reply="r1"), by_hand]}
    answers = node.invoke(state, CONFIG) if mode == "invoke" else asyncio.run(node.ainvoke(state, CONFIG))
    assert [one.tool_call_id for one in answers["messages"]] == ["c2"]
    assert bank.paid == ["A-2"]


def test_thread_is_required(store: Store, wording: Wording) -> None:
    """A graph without a checkpointer does not ask for it."""
    app = App(make_node(store, note), [ask(NOTE)], saver=None, durability=None, config={})
    with pytest.raises(InvalidArgumentError) as caught:
        app.begin()
    assert str(caught.value) == wording


@pytest.mark.parametrize("messages", [[HumanMessage("x")], [ask(NOTE)]])
def test_state_needs_a_message_of_the_model_with_an_id(store: Store, messages: list[Any], wording: Wording) -> None:
    """The error says how each call is sent by itself."""
    with pytest.raises(InvalidArgumentError) as caught:
        make_node(store, note).invoke({"messages": messages}, CONFIG)
    assert str(caught.value).partition("must be ")[2] == wording


def test_mistakes_show_when_the_node_is_declared(store: Store, wording: Wording) -> None:
    """Not in the first run of the graph."""

    class Client:
        pass

    with pytest.raises(InvalidArgumentError) as caught:
        HandrailNode([note], store="sqlite:///desk.db")  # type: ignore[arg-type]
    assert str(caught.value) == wording
    with pytest.raises(InvalidArgumentError) as caught:
        HandrailNode(store=store)
    assert str(caught.value) == wording
    section = ToolsSection(title="Desk", tools=[note], policies=[Needs(Client)])
    with pytest.raises(UnboundResourceError):
        HandrailNode(prompt=Prompt(PromptTemplate(ns="t", key="desk", sections=[section])), store=store)
    HandrailNode([note], store=store, resources={Client: Client()})


@dataclass(frozen=True)
class Needs:
    """A policy that needs a resource."""

    kind: type[Any]
    name: str = "needs"

    def needs(self, tool: Tool[Any, Any]) -> list[type[Any]]:
        return [self.kind]

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.allow()

    def on_result(self, *_: Any, **__: Any) -> None:
        """Nothing to note."""


def test_calls_that_are_to_be_approved_are_refused_without_a_checkpointer(store: Store, wording: Wording) -> None:
    """Nobody could answer."""
    asks = Decides(lambda tool, params: PolicyDecision.ask("May it be noted?"))
    app = App(make_node(store, note, policies=[asks]), [ask(NOTE, reply="r1")], saver=None, durability=None)
    update = app.node.invoke({"messages": [ask(NOTE, reply="r1")]}, CONFIG)
    assert [message.content for message in update["messages"]] == wording


_WITHOUT = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "langgraph" else find(name, *rest)
import handrail.adapters.langgraph
"""


def test_module_says_what_to_install(wording: Wording) -> None:
    """Where LangGraph is missing."""
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, check=False, text=True)
    assert done.stderr.splitlines()[-1] == wording
