"""Calls that wait: one interrupt has all questions, and an answer holds for one call and its arguments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - no py.typed
from pydantic import SecretStr

from handrail import ToolExecutor, tool
from handrail import store as stores
from handrail.errors import CallPostponed, PromptEvaluationError
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolsSection,
)
from handrail.runtime import ToolCall
from handrail.store import Store
from tests.adapters.langgraph.kit import App, Mode, ask, ask_once, make_node
from tests.kit import Decides
from tests.wording import Wording

MODES = pytest.mark.parametrize("mode", ["invoke", "ainvoke"])


class Desk:
    """A store in a folder, tools that pay and note, and what they have done."""

    def __init__(self, url: str, store: Store) -> None:
        self.url = url
        self.store = store
        self.done: list[str] = []

        @tool(effect="external")
        def pay(order: str, cents: int = 5) -> str:
            """Pay an order."""
            self.done.append(order)
            return f"{order} is paid"

        @tool
        def note(text: str) -> str:
            """Note a text."""
            self.done.append(text)
            return f"noted: {text}"

        @tool(effect="external")
        def sign(name: str, password: SecretStr) -> str:
            """Sign."""
            self.done.append(f"{name}/{password.get_secret_value()}")
            return "signed"

        self.tools: list[Tool[Any, Any]] = [pay, note, sign]

    def app(self, *calls: tuple[str, dict[str, Any]], mode: Mode = "invoke", **options: Any) -> App:
        """A graph whose model makes calls in one message; a person is asked about all but notes."""
        kinds = {name: options.pop(name) for name in ("sends", "saver") if name in options}
        extra: list[Tool[Any, Any]] = options.pop("tools", [])
        node = make_node(self.store, *self.tools, *extra, policies=[Decides(asks_but_for_notes, "office")], **options)
        return App(node, [ask(*calls, reply="r1")], mode, **kinds)


def asks_but_for_notes(tool: Tool[Any, Any], params: Any) -> PolicyDecision:
    """Asks."""
    return PolicyDecision.allow() if tool.name == "note" else PolicyDecision.ask(f"May it {tool.name}?")


@pytest.fixture
def desk(tmp_path: Path) -> Generator[Desk]:
    """A desk."""
    url = f"sqlite:///{tmp_path / 'desk.db'}"
    with stores.open(url) as store:
        yield Desk(url, store)


PAY = ("pay", {"order": "A-1"})
PAY_OTHER = ("pay", {"order": "A-2", "cents": 7})
NOTE = ("note", {"text": "x"})


# ----------------------------------------------------------------------------------------------- questions and answers


@MODES
def test_one_interrupt_has_all_questions_and_the_other_calls_have_run(desk: Desk, mode: Mode) -> None:
    """Answers are matched by ids, in any order; a call that has run does not run again."""
    app = desk.app(PAY, NOTE, PAY_OTHER, mode=mode)
    (interrupt,) = app.begin()
    questions = interrupt.value["questions"]
    assert [{**question, "id": None} for question in questions] == [
        {
            "id": None,
            "call": f"r1/{name}",
            "tool": "pay",
            "effect": "external",
            "arguments": arguments,
            "asks": ["office: May it pay?"],
            "reason": "pay waits for approval",
        }
        for name, arguments in (("c1", {"order": "A-1", "cents": 5}), ("c3", {"order": "A-2", "cents": 7}))
    ]
    assert (interrupt.value["waits"], interrupt.value["faults"], desk.done) == ([], [], ["x"])
    first, second = (question["id"] for question in questions)
    assert app.resume({second: {"approved": False, "reason": "Too dear."}, first: True}) == []
    assert desk.done == ["x", "A-1"]
    assert [answer.status for answer in app.answers] == ["success", "success", "error"]
    assert "Too dear" in app.texts[2]


def test_secrets_are_not_in_the_question(desk: Desk) -> None:
    """The graph has them, so the call can be made in any process."""
    app = desk.app(("sign", {"name": "ada", "password": "opensesame"}))
    (question,) = app.begin()[0].value["questions"]
    assert question["arguments"] == {"name": "ada", "password": "**********"}
    app.resume({question["id"]: True})
    assert desk.done == ["ada/opensesame"]


@MODES
def test_question_without_an_answer_is_asked_again(desk: Desk, mode: Mode) -> None:
    """What was answered has run, and does not run again."""
    app = desk.app(PAY, PAY_OTHER, mode=mode)
    first, second = (question["id"] for question in app.begin()[0].value["questions"])
    (interrupt,) = app.resume({second: True})
    assert [question["id"] for question in interrupt.value["questions"]] == [first]
    assert desk.done == ["A-2"]
    assert app.resume({first: True}) == []
    assert (desk.done, app.texts) == (["A-2", "A-1"], ["A-1 is paid", "A-2 is paid"])


@pytest.mark.parametrize("answer", [True, "yes", {"0123456789abcdef": True}, "id: yes", "id: no reason"])
def test_answer_of_another_form_is_rejected_with_the_reason(desk: Desk, answer: Any, wording: Wording) -> None:
    """Nothing runs, and the question is asked again."""
    app = desk.app(PAY)
    (question,) = app.begin()[0].value["questions"]
    forms: dict[Any, Any] = {
        "id: yes": {question["id"]: "yes"},
        "id: no reason": {question["id"]: {"approved": False, "reason": 7}},
    }
    (interrupt,) = app.resume(forms.get(answer, answer) if isinstance(answer, str) else answer)
    assert interrupt.value["questions"] == [question]
    assert [text.replace(question["id"], "ID") for text in interrupt.value["faults"]] == wording
    assert desk.done == []
    app.resume({question["id"]: True})
    assert desk.done == ["A-1"]


def test_answer_for_other_arguments_is_rejected(desk: Desk) -> None:
    """A person edits the message meanwhile: the call is asked about again."""
    app = desk.app(PAY)
    (before,) = app.begin()[0].value["questions"]
    app.graph.update_state(app.config, {"messages": [ask(PAY_OTHER, reply="r1")]})
    (interrupt,) = app.run(None)
    (after,) = interrupt.value["questions"]
    assert (before["call"], after["call"]) == ("r1/c1", "r1/c1")
    assert [question["arguments"]["order"] for question in (before, after)] == ["A-1", "A-2"]
    (again,) = app.resume({before["id"]: True})
    assert again.value["questions"] == [after]
    assert len(again.value["faults"]) == 1
    assert desk.done == []
    app.resume({after["id"]: True})
    assert desk.done == ["A-2"]


def test_another_question_about_a_call_is_asked_again(desk: Desk) -> None:
    """A policy that asks something else when the call is about to run."""
    texts = iter(("May it?", "May it really?", "May it really?", "May it really?"))
    policy = Decides(lambda tool, params: PolicyDecision.ask(next(texts)))
    app = App(make_node(desk.store, *desk.tools, policies=[policy]), [ask(PAY)])
    (question,) = app.begin()[0].value["questions"]
    (interrupt,) = app.resume({question["id"]: True})
    (other,) = interrupt.value["questions"]
    assert [question["asks"], other["asks"]] == [["decides: May it?"], ["decides: May it really?"]]
    assert desk.done == []


@MODES
def test_answer_about_a_nested_call_is_for_its_arguments(desk: Desk, mode: Mode) -> None:
    """The handler is made again, and may make another call under the same identity: that is asked about."""
    orders = chain(["A-1"], repeat("A-2"))

    @tool
    def settle(context: ToolContext) -> str:
        """Settle."""
        section = ToolsSection(title="Desk", tools=desk.tools, policies=[Decides(asks_but_for_notes, "office")])
        prompt = Prompt(PromptTemplate(ns="t", key="inner", sections=[section]))
        executor = ToolExecutor(prompt=prompt, session=context.session, approver=leave_open)
        return executor.execute(ToolCall("inner", "pay", {"order": next(orders)})).content

    app = App(make_node(desk.store, settle), [ask(("settle", {}), reply="r1")], mode)
    (first,) = app.begin()[0].value["questions"]
    assert (first["call"], first["tool"], first["arguments"]["order"]) == ("@r1%2Fc1/inner", "pay", "A-1")
    (second,) = app.resume({first["id"]: True})[0].value["questions"]
    assert (second["call"], second["arguments"]["order"], desk.done) == (first["call"], "A-2", [])
    assert app.resume({second["id"]: True}) == []
    assert desk.done == ["A-2"]


@MODES
def test_answer_is_for_one_attempt(desk: Desk, mode: Mode) -> None:
    """A mistake of the program fails the call and the node; LangGraph gives the answer again, and it does not count."""
    app = desk.app(("stumble", {}), mode=mode, tools=[stumble])
    (first,) = app.begin()[0].value["questions"]
    with pytest.raises(PromptEvaluationError):
        app.resume({first["id"]: True})
    (again,) = app.run(None)
    (second,) = again.value["questions"]
    assert (second["call"], second["asks"]) == (first["call"], first["asks"])
    assert second["id"] != first["id"]


# ---------------------------------------------------------------------------------------------- answers from elsewhere


def test_answer_of_the_command_line_counts(desk: Desk) -> None:
    """Then the graph is run on without an answer of its own."""
    app = desk.app(PAY)
    app.begin()
    command = ["approvals", "answer", "chat-17", "c1", "yes", "--by", "ada", "--store", desk.url]
    subprocess.run([sys.executable, "-m", "handrail", *command], check=True, capture_output=True)
    assert app.run(None) == []
    assert desk.done == ["A-1"]


@MODES
def test_approver_is_asked_before_the_caller_of_the_graph(desk: Desk, mode: Mode) -> None:
    """What it leaves open interrupts the graph."""
    asked: list[str] = []

    async def approve(request: ApprovalRequest) -> Approval:
        asked.append(request.params.order)
        return Approval(approved=True) if request.params.order == "A-1" else Approval.later("the office is asked")

    app = desk.app(PAY, PAY_OTHER, mode=mode, approver=approve)
    (question,) = app.begin()[0].value["questions"]
    assert (question["reason"], desk.done) == ("the office is asked", ["A-1"])
    app.resume({question["id"]: True})
    assert (desk.done, set(asked)) == (["A-1", "A-2"], {"A-1", "A-2"})


@MODES
def test_handler_that_waits_is_made_again_by_any_resume(desk: Desk, mode: Mode) -> None:
    """It waits for something else than a person."""
    ready: list[str] = []

    @tool
    def fetch() -> str:
        """Fetch."""
        if not ready:
            raise CallPostponed("the file is not there")
        return ready[0]

    app = App(make_node(desk.store, fetch), [ask(("fetch", {}))], mode)
    (interrupt,) = app.begin()
    waits = [{"call": "c1", "tool": "fetch", "reason": "the file is not there"}]
    assert interrupt.value == {"questions": [], "waits": waits, "faults": []}
    assert app.resume(True)[0].value == interrupt.value
    ready.append("there")
    assert app.run(None) == []
    assert app.texts == ["there"]


# --------------------------------------------------------------------------------------------------- tasks and branches


@MODES
def test_each_task_of_a_send_has_an_interrupt(desk: Desk, mode: Mode) -> None:
    """LangGraph's ids of interrupts say which answers are for which."""
    app = desk.app(PAY, NOTE, PAY_OTHER, mode=mode, sends=True)
    interrupts = app.begin()
    assert [len(interrupt.value["questions"]) for interrupt in interrupts] == [1, 1]
    app.resume({interrupt.id: {interrupt.value["questions"][0]["id"]: True} for interrupt in interrupts})
    assert sorted(desk.done) == ["A-1", "A-2", "x"]
    assert sorted(app.texts) == ["A-1 is paid", "A-2 is paid", "noted: x"]


@MODES
def test_subgraph_asks_the_caller_of_the_graph(desk: Desk, mode: Mode) -> None:
    """Its session is below that of the thread."""
    graph: Any = StateGraph(MessagesState)
    graph.add_node("clerk", ask_once(desk.app().node, ask(PAY, NOTE)))
    graph.add_edge(START, "clerk")
    app = desk.app(mode=mode)
    app.graph = graph.compile(checkpointer=app.saver)
    (question,) = app.begin()[0].value["questions"]
    assert app.resume({question["id"]: True}) == []
    assert desk.done == ["x", "A-1"]
    assert {answer.artifact["session"] for answer in app.answers} == {"chat-17/clerk"}


def test_branch_does_not_ask_again_what_was_decided(desk: Desk) -> None:
    """A call has one answer in its session, whichever branch makes it."""
    app = desk.app(PAY, PAY_OTHER)
    first, second = (question["id"] for question in app.begin()[0].value["questions"])
    app.resume({first: True, second: False})
    texts = app.texts
    assert app.run(None, app.before_calls()) == []
    assert (desk.done, app.texts) == (["A-1"], texts)


@tool
def stumble() -> str:
    """Stumble."""
    raise PromptEvaluationError("the budget is used up", phase="budget")


def leave_open(request: ApprovalRequest) -> Approval:
    """Leaves the question open."""
    return Approval.later()
