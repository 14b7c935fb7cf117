"""Evaluations on a stored session: the conversation is stored before calls start, and resumed, refused or discarded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserError,
    UserPromptPart,
)
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_core import to_json

from handrail.adapters.pydantic_ai import HandrailCapability, PydanticAIAdapter, StoredHistory
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import AgentError, ParseError, PromptEvaluationError, SessionError
from handrail.prompt import Prompt, PromptTemplate
from handrail.runtime import Session, ToolInvoked
from handrail.session.calls import OpenCall
from handrail.session.conversation import ConversationPart
from handrail.store import SqliteStore
from tests.adapters.kit import GoneError, Outbox, asks, model
from tests.kit import raises
from tests.wording import Wording

pytestmark = pytest.mark.anyio


class Room:
    """A store with one session, opened anew for each evaluation as by another process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s.db"
        self.box = Outbox()

    async def evaluate(self, *replies: Any, capabilities: Any = (), **options: Any) -> str:
        """Evaluate the prompt on a model that gives these replies."""
        with SqliteStore(self.path) as store, Session.open(store, "s") as session:
            adapter = PydanticAIAdapter(model(*replies), capabilities=capabilities)
            response = await adapter.evaluate_async(self.box.prompt("state"), session=session, **options)
            return response.text

    def open_calls(self) -> tuple[OpenCall, ...]:
        """The open calls of the session."""
        with SqliteStore(self.path) as store, Session.open(store, "s") as session:
            return session.open_calls

    def values(self, kind: type[Any]) -> list[Any]:
        """What the session has of a type."""
        with SqliteStore(self.path) as store, Session.open(store, "s") as session:
            return list(session[kind])


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """A store of its own."""
    return Room(tmp_path)


async def broken_off(room: Room, **options: Any) -> None:
    """An evaluation that ends in the middle of a reply, after its first call."""
    with pytest.raises(GoneError):
        await room.evaluate(asks("before"), asks("one", "fail", "two"), **options)


@pytest.mark.parametrize("dropping", [False, True])
async def test_an_evaluation_that_was_cut_off_in_mid_reply_is_resumed(room: Room, dropping: bool) -> None:
    """Recorded calls are answered from the record, the others are made, also if messages are dropped on the way."""
    others = [ProcessHistory[Any](lambda messages: messages[-1:])] if dropping else []
    await broken_off(room, capabilities=others, user_prompt="Send them.")
    assert room.box.sent == ["before", "one"]
    open_calls = room.open_calls()
    assert [(call.call.call_id, call.tool, call.state) for call in open_calls] == [
        ("call_1", "send", "unrecorded"),
        ("call_2", "send", "unrecorded"),
    ]
    assert await room.evaluate(asks("one"), "All sent.", capabilities=others) == "All sent."
    assert room.box.sent == ["before", "one", "fail", "two", "one"]
    assert room.open_calls() == ()
    finals = [event.ref for event in room.values(ToolInvoked) if event.final]
    assert len(finals) == len(set(finals)) == 5
    assert {call.call for call in open_calls} <= set(finals)


async def test_an_evaluation_is_resumed_with_what_a_capability_has_made_of_its_messages(room: Room) -> None:
    """What it removed from an earlier message does not come back."""

    def redact(messages: list[ModelMessage]) -> list[ModelMessage]:
        if len(messages) == 1:
            return messages
        return [ModelRequest([UserPromptPart("[redacted]")]), *messages[1:]]

    await broken_off(room, capabilities=[ProcessHistory[Any](redact)], user_prompt="The secret.")
    first, *_, last = (part.messages for part in room.values(ConversationPart) if part.restarts)
    assert ["The secret." in to_json(messages).decode() for messages in (first, last)] == [True, False]
    assert await room.evaluate("All sent.") == "All sent."
    assert room.box.sent == ["before", "one", "fail", "two"]


async def test_lone_surrogates_are_stored_as_escapes(room: Room) -> None:
    """In ids, names, arguments and text. A resumed evaluation finds the records of such calls."""
    odd = [
        ToolCallPart("send", {"text": "one"}, "\ud800"),
        ToolCallPart("no\ud800thing", {"text": "two"}, "call_1"),
        ToolCallPart("send", '{"text": "\\ud800"}', "call_2"),
        ToolCallPart("send", {"text": "fail"}, "call_3"),
    ]
    with pytest.raises(GoneError):
        await room.evaluate(ModelResponse([TextPart("half a smile: \ud83d"), *odd], provider_response_id="\ud800"))
    assert await room.evaluate("Done.") == "Done."
    assert room.box.sent == ["one", "fail"]
    events = room.values(ToolInvoked)
    outcomes = [(event.call_id, event.success, event.final) for event in events]
    refused = [("call_1", False, True), ("call_2", False, True)]
    assert outcomes == [("\\ud800", True, True), *refused, ("call_3", False, False), ("call_3", True, True)]
    assert "half a smile: \\\\ud83d" in to_json(room.values(ConversationPart)[1].messages).decode()


async def test_a_user_prompt_is_refused_while_an_evaluation_is_unfinished(room: Room, wording: Wording) -> None:
    """The message names the choice; nothing has run."""
    await broken_off(room)
    with raises(PromptEvaluationError, wording) as failure:
        await room.evaluate(asks("other"), user_prompt="Something else.")
    assert failure.value.phase == "request"
    assert room.box.sent == ["before", "one"]
    assert await room.evaluate("All sent.") == "All sent."


@pytest.mark.parametrize("user_prompt", [None, "Something else."])
async def test_an_unfinished_evaluation_can_be_discarded(room: Room, user_prompt: str | None) -> None:
    """The next one begins anew, and what the other has done stays done."""
    await broken_off(room)
    assert await room.evaluate(asks("before"), "New.", user_prompt=user_prompt, unfinished="discard") == "New."
    assert room.box.sent == ["before", "one", "before"]
    assert room.open_calls() == ()
    assert await room.evaluate("Once more.") == "Once more."


async def test_a_finished_evaluation_is_not_gone_on_with(room: Room) -> None:
    """The next one begins anew; earlier messages are not sent, and calls are made again."""
    for text in ("First.", "Second."):
        assert await room.evaluate(asks("hi"), text, user_prompt=text) == text
    assert room.box.sent == ["hi", "hi"]
    with SqliteStore(room.path) as store, Session.open(store, "s") as session:
        found = StoredHistory(session, "tests/mails", of="prompt")
    assert (found.unfinished, begins(found), "First." in repr(found.history)) == (False, "Second.", False)


async def test_two_evaluations_of_a_prompt_at_once_are_refused(room: Room, wording: Wording) -> None:
    """Their conversations could not be distinguished; on sessions of their own they may go on side by side."""
    has_begun, end = asyncio.Event(), asyncio.Event()

    async def wait(_messages: list[Any], _info: AgentInfo) -> ModelResponse:
        has_begun.set()
        await end.wait()
        return ModelResponse([TextPart("Done.")])

    prompt = room.box.prompt()
    with SqliteStore(room.path) as store, Session.open(store, "s") as session:
        adapter = PydanticAIAdapter(FunctionModel(wait))
        first = asyncio.create_task(adapter.evaluate_async(prompt, session=session))
        await has_begun.wait()
        with raises(PromptEvaluationError, wording):
            await adapter.evaluate_async(prompt, session=session)
        with session.child() as child:
            second = asyncio.create_task(adapter.evaluate_async(prompt, session=child))
            end.set()
            assert [(await item).text for item in (first, second)] == ["Done.", "Done."]


@pytest.mark.parametrize("choice", ["unfinished", "finished"])
async def test_a_choice_is_one_of_two(room: Room, choice: str) -> None:
    """Another word is the developer's to correct."""
    with pytest.raises(ValueError, match=choice):
        await room.evaluate("Done.", **{choice: "begin"})


async def test_the_same_user_prompt_resumes(room: Room) -> None:
    """A program that is started again says what it said before; text or parts."""
    for user_prompt in ("Send them.", ("Send", "them.")):
        room.box = Outbox()
        await broken_off(room, user_prompt=user_prompt)
        assert await room.evaluate("All sent.", user_prompt=user_prompt) == "All sent."
        assert room.box.sent == ["before", "one", "fail", "two"]


async def test_a_finished_evaluation_can_be_returned(room: Room) -> None:
    """Nothing is asked, and nothing is done again; another user prompt is another evaluation."""
    with SqliteStore(room.path) as store, Session.open(store, "s") as session:
        adapter = PydanticAIAdapter(model(asks("hi"), "Sent."))
        first = await adapter.evaluate_async(room.box.prompt("state"), session=session, user_prompt="Send it.")
    for user_prompt in ("Send it.", None):
        with SqliteStore(room.path) as store, Session.open(store, "s") as session:
            adapter = PydanticAIAdapter(model(asks("other"), "Other."))
            again = await adapter.evaluate_async(
                room.box.prompt("state"), session=session, user_prompt=user_prompt, finished="return"
            )
        assert (again.text, again.output, again.usage) == (first.text, first.output, first.usage)
        assert [type(message) for message in again.messages] == [type(message) for message in first.messages]
    assert room.box.sent == ["hi"]
    assert await room.evaluate(asks("other"), "Other.", user_prompt="Send other.", finished="return") == "Other."
    assert room.box.sent == ["hi", "other"]


@dataclass(frozen=True)
class Bill:
    """A structured answer."""

    total: int


@dataclass(frozen=True)
class OtherBill:
    """The same of a later version of the program."""

    amount: int


async def bill(room: Room, kind: type[Any], *replies: Any) -> Any:
    """Evaluate a prompt with a structured answer, of which a stored one is returned."""
    template: Any = PromptTemplate
    prompt = Prompt(template[kind](ns="tests", key="bill", sections=[]))
    with SqliteStore(room.path) as store, Session.open(store, "s") as session:
        adapter = PydanticAIAdapter(model(*replies))
        return (await adapter.evaluate_async(prompt, session=session, finished="return")).output


async def test_a_structured_answer_is_returned_as_its_type(room: Room) -> None:
    """It is read from the conversation; one that does not fit the type of today is refused."""
    answer = ModelResponse([ToolCallPart("final_result", {"total": 3})])
    assert await bill(room, Bill, answer) == await bill(room, Bill) == Bill(3)
    assert await bill(room, str) == ""
    with pytest.raises(ParseError):
        await bill(room, OtherBill)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A stored session."""
    with SqliteStore(tmp_path / "s.db") as store, Session.open(store, "s") as open_session:
        yield open_session


def make_agent(stored: StoredHistory, session: Session, box: Outbox, given: FunctionModel) -> Agent[None, str]:
    """An agent with the mails as a capability."""
    executor = ToolExecutor(prompt=box.prompt("state"), session=session)
    return Agent(given, capabilities=[HandrailCapability(executor, conversation=stored)])


async def broken_run(session: Session, box: Outbox) -> None:
    """A run that ends in the middle of a reply."""
    stored = StoredHistory(session, "mails")
    with pytest.raises(GoneError):
        await make_agent(stored, session, box, model(asks("one", "fail", "two"))).run("Send them.")


async def test_runs_with_the_history_continue_the_conversation(session: Session) -> None:
    """Each sees the messages before it; the same object serves for several runs, and another one has the same."""
    box, views = Outbox(), list[int]()

    def reply(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        views.append(len(messages))
        return ModelResponse([TextPart("Hello.")])

    stored = StoredHistory(session, "mails")
    agent = make_agent(stored, session, box, FunctionModel(reply))
    for _ in range(2):
        await agent.run("Hi.", message_history=stored.history)
    other = StoredHistory(session, "mails")
    await make_agent(other, session, box, FunctionModel(reply)).run("Hi.", message_history=other.history)
    # The first object has not seen that run; what it has is no longer what is stored.
    await agent.run("Hi.", message_history=StoredHistory(session, "mails").history)
    assert views == [1, 3, 5, 7]
    assert len(StoredHistory(session, "mails").history) == 8


async def test_a_run_without_the_history_begins_another_conversation(session: Session) -> None:
    """That is what the program asked for; the messages before it are not sent again."""
    stored = StoredHistory(session, "mails")
    agent = make_agent(stored, session, Outbox(), model("First.", "Second."))
    await agent.run("One.")
    await agent.run("Two.")
    assert (stored.answer, begins(stored), begins(StoredHistory(session, "mails"))) == ("Second.", "Two.", "Two.")


async def test_a_run_that_does_not_continue_an_unfinished_one_is_refused(session: Session, wording: Wording) -> None:
    """Its calls would be forgotten; the message says how to resume. With the history PydanticAI refuses a prompt."""
    box = Outbox()
    await broken_run(session, box)
    stored = StoredHistory(session, "mails")
    with raises(AgentError, wording):
        await make_agent(stored, session, box, model("Sent.")).run("Another.")
    with pytest.raises(UserError, match="unprocessed tool calls"):
        await make_agent(stored, session, box, model("Sent.")).run("Another.", message_history=stored.history)
    assert (len(session.open_calls), StoredHistory(session, "mails").unfinished) == (2, True)


def begins(stored: StoredHistory) -> object:
    """What the user asked first."""
    part = stored.history[0].parts[0]
    return part.content if isinstance(part, UserPromptPart) else None


def edited(history: Sequence[ModelMessage], how: str) -> list[ModelMessage]:
    """A history of a question, a reply with a call, its answer and a reply, edited by the program."""
    messages = list(history)
    if how == "replaced":
        messages[0] = ModelRequest([UserPromptPart("[redacted]")])
    elif how == "in its place":
        (part,) = messages[0].parts
        assert isinstance(part, UserPromptPart)
        part.content = "[redacted]"
    elif how == "inserted":
        messages[:0] = [ModelRequest([UserPromptPart("Be brief.")]), ModelResponse([TextPart("Yes.")])]
    elif how == "dropped":
        del messages[1:3]
    return messages


@pytest.mark.parametrize("how", ["replaced", "in its place", "inserted", "dropped"])
@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_history_that_the_program_has_edited_is_stored_as_the_model_was_sent_it(
    session: Session, how: str, *, is_stored: bool
) -> None:
    """Otherwise a restart would bring back what was removed, and lose what was added."""
    used = session if is_stored else Session()
    sent = list[list[Any]]()

    def reply(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        sent.append([message.parts for message in messages])
        return asks("one") if len(sent) == 1 else ModelResponse([TextPart("Done.")])

    stored = StoredHistory(used, "mails")
    agent = make_agent(stored, used, Outbox(), FunctionModel(reply))
    await agent.run("The secret.")
    given = edited(stored.history, how)
    await agent.run("More.", message_history=given)
    assert sent[-1][:-1] == [message.parts for message in given]
    history_now = StoredHistory(used, "mails").history
    assert [message.parts for message in history_now] == [*sent[-1], [TextPart("Done.")]]


@pytest.mark.parametrize("how, prompt", [("as it is", "Send them."), ("replaced", "[redacted]")])
async def test_the_history_of_an_unfinished_run_resumes_it(session: Session, how: str, prompt: str) -> None:
    """Recorded calls are not made again. It ends with the open reply; the messages before may have been edited."""
    box = Outbox()
    await broken_run(session, box)
    stored = StoredHistory(session, "mails")
    assert stored.unfinished
    given = edited(stored.history, how)
    await make_agent(stored, session, box, model("Sent.")).run(message_history=given)
    assert box.sent == ["one", "fail", "two"]
    history_now = StoredHistory(session, "mails")
    assert (begins(history_now), history_now.answer) == (prompt, "Sent.")
    assert (history_now.unfinished, session.open_calls) == (False, ())


async def test_what_ended_a_run_is_raised_although_the_conversation_cannot_be_stored(session: Session) -> None:
    """The failure of the store is a note."""
    box = Outbox()

    def close(_messages: list[Any], _info: AgentInfo) -> ModelResponse:
        session.close()
        raise GoneError

    stored = StoredHistory(session, "mails")
    with pytest.raises(GoneError):
        await make_agent(stored, session, box, FunctionModel(close)).run("Send them.")

    def answer_and_close(_messages: list[Any], _info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("Done.")])

    with pytest.raises(SessionError):
        await make_agent(stored, session, box, FunctionModel(answer_and_close)).run(message_history=stored.history)
