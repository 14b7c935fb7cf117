"""The stored conversation of a session: every message once, whatever ids and scripts a model has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, TextPart, Tool, ToolCallPart, ToolReturnPart
from pydantic_ai.messages import ModelMessagesTypeAdapter, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_core import PydanticSerializationError, to_json

from handrail import store
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.agents import Answer, RunOptions
from handrail.errors import AgentError
from handrail.runtime import ToolInvoked
from handrail.session import Session
from handrail.session.conversation import ConversationPart
from handrail.testing import FakeClock, Reply
from tests.agents.kit import Person, agent, desk, play, refusal, returns
from tests.agents.stored_desks import Asked, Clerk, Reader, Replies, desk_in
from tests.store.stores import STORES
from tests.wording import Wording

pytestmark = pytest.mark.anyio

ASK = ModelRequest(parts=[UserPromptPart("Do it.")])
TWO_CALLS = ModelResponse(parts=[ToolCallPart("note", {}, tool_call_id=call_id) for call_id in "ab"])


class Bill(BaseModel):
    """A structured answer."""

    total: int


def kept(session: Session) -> list[ModelMessage]:
    """All messages that are in a session."""
    parts = session[ConversationPart]
    return [message for part in parts for message in ModelMessagesTypeAdapter.validate_json(to_json(part.messages))]


@pytest.mark.parametrize("message", [{}, {"kind": "unheard"}, 1], ids=str)
def test_messages_that_cannot_be_read_are_told_with_their_place(message: object, wording: Wording) -> None:
    """Another version of PydanticAI may have written them."""
    session = Session(session_id="s")
    StoredHistory(session, "desk").save([ASK])
    session[ConversationPart].append(ConversationPart((message,), speaker="agent", name="desk"))
    with refusal(AgentError, wording):
        StoredHistory(session, "desk")


def test_a_lone_surrogate_is_stored_as_its_escape() -> None:
    """Whatever says it: here a tool, which lists file names that are in no encoding."""
    returned = ModelRequest(parts=[ToolReturnPart("note", {"files": ["\udc80.md", 1, None]}, tool_call_id="a")])
    session = Session(session_id="s")
    StoredHistory(session, "desk").save([ASK, TWO_CALLS, returned])
    (part,) = StoredHistory(session, "desk").history[-1].parts
    assert isinstance(part, ToolReturnPart)
    assert part.content == {"files": ["\\udc80.md", 1, None]}


def test_messages_that_no_json_can_hold_are_refused() -> None:
    """Nothing is stored."""
    session = Session(session_id="s")
    found = StoredHistory(session, "desk")
    with pytest.raises(PydanticSerializationError):
        found.save([ASK, ModelRequest(parts=[ToolReturnPart("note", object(), tool_call_id="a")])])
    assert session[ConversationPart].all() == ()


async def test_calls_that_have_one_id_are_told_apart(tmp_path: Path) -> None:
    """Some models count anew in each reply: each call is carried out and answered, in one reply and over several."""
    session = Session()
    agent = desk(tmp_path, tools=[Tool(echo, metadata={"effect": "external"})])
    one, two = Asked("call", "echo", {"text": "a"}), Asked("call", "echo", {"text": "b"})
    replies: Replies = {"desk": [[one], "One.", [two], "Two.", [one, two], "Three."]}
    for _ in range(3):
        await agent.run_async("Do it.", RunOptions(session=session, model=Reader(replies).model(), mode="approve-all"))
    told = {part.tool_call_id: part.content for part in returns(kept(session))}
    assert told == {"call": "a", "call_2": "b", "call_3": "a", "call_4": "b"}


async def test_a_structured_answer_ends_a_run_too(tmp_path: Path) -> None:
    """The next run begins with its own input, and the model has seen the one before."""
    session = Session()
    agent = desk(tmp_path)
    first = await play(agent, [Reply(output={"total": 3})], session=session, output_type=Bill)
    assert first.output == Bill(total=3)
    assert not StoredHistory(session, "desk").unfinished
    for total in (4, 5):
        result = await play(agent, [Reply(output={"total": total})], "Again.", session=session, output_type=Bill)
        assert result.output == Bill(total=total)
    prompts = [part.content for said in kept(session) for part in said.parts if isinstance(part, UserPromptPart)]
    assert prompts == ["Do it.", "Again.", "Again."]
    assert [part.tool_name for part in returns(kept(session))] == ["final_result"] * 3


def test_a_conversation_that_waited_is_gone_on_with_again_and_again(tmp_path: Path) -> None:
    """No message is lost or doubled, however often it was put off."""
    room = desk_in(tmp_path)
    later, yes = Clerk({"pay": Answer("later")}), Clerk({"pay": Answer("yes")})
    said: list[list[Asked] | str] = []
    replies: Replies = {"desk": said}
    for turn in range(3):
        calls = [Asked(f"a{turn}", "note", {"text": "x"}), Asked(f"b{turn}", "pay", {"order": f"tea{turn}"})]
        said += [calls, f"Answer {turn}."]
    for turn in range(3):
        assert room.run(Reader(replies), f"Input {turn}.", asker=later).status == "waiting"
        assert room.run(Reader(replies), asker=later).status == "waiting"
        assert room.run(Reader(replies), asker=yes).output == f"Answer {turn}."
    with store.open(room.url) as kept_in, Session.open(kept_in, "s") as session:
        messages = StoredHistory(session, "desk").history
    prompts = [part.content for said in messages for part in said.parts if isinstance(part, UserPromptPart)]
    assert prompts == ["Input 0.", "Input 1.", "Input 2."]
    assert sorted(part.tool_call_id for part in returns(messages)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    texts = [said.text for said in messages if isinstance(said, ModelResponse) and said.text]
    assert texts == ["Answer 0.", "Answer 1.", "Answer 2."]
    assert room.world == ["tea0", "tea1", "tea2"]


def echo(text: str) -> str:
    """Say it again."""
    return text


IDS = {"a megabyte": "x" * 1_000_000, "a NUL": "a\0b", "no Unicode": "\ud800"}


def pay(cents: int) -> str:
    """Pay."""
    return f"{cents} paid"


def calling(call_id: str) -> FunctionModel:
    """A model whose agents each make their calls under that id, and are done then."""

    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(message, ModelResponse) for message in messages):
            return ModelResponse([TextPart("done")])
        names = {tool.name for tool in info.function_tools} | {"fly"}
        wanted: dict[str, dict[str, Any]] = {"pay": {"cents": 1}, "clerk": {"input": "Pay."}, "fly": {}}
        return ModelResponse([ToolCallPart(each, wanted[each], f"{call_id}{each}") for each in wanted if each in names])

    return FunctionModel(say)


@pytest.mark.parametrize("kind", list(STORES))
@pytest.mark.parametrize("call_id", IDS.values(), ids=IDS)
@pytest.mark.short(2)
async def test_a_run_waits_and_is_resumed_whatever_ids_its_model_gives(tmp_path: Path, kind: str, call_id: str) -> None:
    """The ids are replaced before anything is stored under them; each call is asked about and made once."""
    store = STORES[kind](FakeClock())
    others = {"clerk.agent": agent("clerk", tools="[pay]")}
    loaded = desk(tmp_path, tools=[Tool(pay, metadata={"effect": "external"})], also=["clerk"], others=others)
    with Session.open(store, "s") as session:
        leave = RunOptions(model=calling(call_id), asker=Person(Answer("later")), session=session, root=tmp_path)
        waiting = await loaded.run_async("Go.", leave)
        assert [call.tool for call in waiting.waiting] == ["pay", "pay"]
        assert all(len(call.call_id) < 64 for call in waiting.waiting)
        assert len(session.open_calls) == 2
    with Session.open(store, "s") as session:
        agree = Person()
        options = RunOptions(model=calling(call_id), asker=agree, session=session, root=tmp_path)
        assert (await loaded.run_async(None, options)).output == "done"
        assert [call.path for call in agree.asked] == [("desk",), ("desk", "clerk")]
        came = {(event.name, event.success) for event in session[ToolInvoked]}
        assert came == {("pay", True), ("clerk", True), ("fly", False)}
