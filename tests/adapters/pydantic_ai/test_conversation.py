"""`StoredHistory` in an agent of the program's own: its runs are stored, continued, resumed, and exclude each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from handrail.adapters.pydantic_ai import HandrailCapability, StoredHistory
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import AgentError, SessionError
from handrail.runtime import Session
from handrail.store import SqliteStore
from tests.adapters.kit import GoneError, Outbox, asks, model
from tests.kit import raises
from tests.wording import Wording

pytestmark = pytest.mark.anyio


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """A stored session."""
    with SqliteStore(tmp_path / "s.db") as store, Session.open(store, "s") as open_session:
        yield open_session


def make_agent(stored: StoredHistory, session: Session, box: Outbox, given: FunctionModel) -> Agent[None, str]:
    """An agent with the mails as a capability."""
    executor = ToolExecutor(prompt=box.prompt("state"), session=session)
    return Agent(given, capabilities=[HandrailCapability(executor, conversation=stored)])


async def broken_off(session: Session, box: Outbox) -> None:
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
    assert (stored.answer, stored.user_prompt) == ("Second.", "Two.")
    assert StoredHistory(session, "mails").user_prompt == "Two."


@pytest.mark.parametrize("with_history", [False, True])
async def test_a_run_that_does_not_continue_an_unfinished_one_is_refused(
    session: Session, with_history: bool, wording: Wording
) -> None:
    """Its calls would be forgotten; the message says how to resume, also to a new prompt with the history."""
    box = Outbox()
    await broken_off(session, box)
    stored = StoredHistory(session, "mails")
    history = stored.history if with_history else None
    with raises(AgentError, wording):
        await make_agent(stored, session, box, model("Sent.")).run("Another.", message_history=history)
    assert (len(session.open_calls), StoredHistory(session, "mails").unfinished) == (2, True)


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
    await broken_off(session, box)
    stored = StoredHistory(session, "mails")
    assert stored.unfinished
    given = edited(stored.history, how)
    await make_agent(stored, session, box, model("Sent.")).run(message_history=given)
    assert box.sent == ["one", "fail", "two"]
    history_now = StoredHistory(session, "mails")
    assert (history_now.user_prompt, history_now.answer) == (prompt, "Sent.")
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
