"""`handrail.runtime.long_results`: what the model reads of a result that is too long, and how it reads the rest."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import BinaryContent, ModelMessage, ToolReturnPart

import handrail.store
from handrail import tool
from handrail.adapters.pydantic_ai import HandrailCapability, StoredHistory
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ToolValidationError
from handrail.prompt import (
    BinaryPart,
    IdempotencyConfig,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    TextPart,
    ToolContext,
    ToolResult,
    ToolsSection,
)
from handrail.prompt.tool_declaration import MIN_RESULT_CHARS
from handrail.prompt.tool_definition import MAX_RESULT_CHARS
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.runtime.long_results import MAX_READ_CHARS, CutResult, cut_text
from handrail.session.calls import CallRef
from handrail.testing import Call, Reply, ScriptedModel
from handrail.transcript import TranscriptCall, TranscriptReader
from tests.crash.forks import fork_to_crash
from tests.kit import Decides, Note, executor
from tests.kit import tool as noting_tool
from tests.long_logs import LOG, fetch
from tests.wording import Wording

IDS = (f"read-{number}" for number in count())


@tool(max_result_chars=MIN_RESULT_CHARS)
def fail() -> str:
    """Fail with all that there is to say."""
    raise ToolValidationError(LOG)


def desk(session: Session, **options: Any) -> ToolExecutor:
    """An executor of both tools."""
    section = ToolsSection(title="Logs", tools=[fetch, fail])
    return ToolExecutor(
        prompt=Prompt(PromptTemplate(ns="t", key="logs", sections=[section], **options)), session=session
    )


def fetched(door: ToolExecutor, name: str = "fetch") -> ToolMessage:
    """The answer of a call with a long result."""
    return door.execute(ToolCall("call-1", name), reply="reply-1")


def read(door: ToolExecutor, **arguments: Any) -> ToolMessage:
    """The answer of a call that reads it; each is another call."""
    return door.execute(ToolCall(next(IDS), "read_result", json.dumps(arguments)), reply="reply-2")


def names(door: ToolExecutor) -> list[str]:
    """The tools that the model is offered."""
    return [each.name for each in door.tools]


def kill_after_commit(folder: str) -> None:
    """Carry the call out, to be killed before the message is made."""
    with handrail.store.open(f"sqlite:///{folder}/s.db") as store, Session.open(store, "s") as session:
        fetched(desk(session))


def test_the_message_is_cut_and_the_record_is_whole(wording: Wording) -> None:
    """The beginning and the end are shown in whole lines, with one sentence that says how the rest is read."""
    session = Session()
    message = fetched(desk(session))
    head, _, end = message.content.partition("\n[...]\n")
    tail, _, sentence = end.rpartition("\n")
    assert (sentence, message.is_cut) == (wording, True)
    assert len(message.content) <= MAX_RESULT_CHARS
    assert LOG.startswith(f"{head}\n")
    assert LOG.endswith(f"\n{tail}\n")
    assert (message.result.value, session[ToolInvoked].all()[0].result.value) == (LOG, LOG)


def test_all_of_it_can_be_read() -> None:
    """Each part says where the next one begins; the parts are the text, and none of them is cut."""
    door = desk(Session())
    fetched(door)
    parts: list[str] = []
    start: int | None = 1
    while start is not None:
        message = read(door, call="reply-1/call-1", start=start)
        head, _, text = message.content.partition("\n")
        assert not message.is_cut
        parts.append(text)
        found = re.search(r"start=(\d+)", head)
        start = None if found is None else int(found[1])
    assert "".join(parts) == LOG
    assert {len(part) for part in parts[:-1]} == {MAX_READ_CHARS}


def test_a_text_is_looked_for(wording: Wording) -> None:
    """What is shown begins shortly before it, and it is said how many follow, and from where on."""
    door = desk(Session())
    fetched(door)
    for arguments in ({"find": "line 1234"}, {"find": "line 7\n", "start": 1000}, {"find": "7" * 200}):
        assert read(door, call="call-1", **arguments).content.partition("\n")[0] == wording


def test_a_wrong_request_says_what_there_is(wording: Wording) -> None:
    """An unknown call, and a place behind the end."""
    door = desk(Session())
    fetched(door)
    assert read(door, call="call-2").content == wording
    assert read(door, call="call-1", start=1_000_000).content == wording
    assert read(door, call="call-1", start=0).content == wording


def test_another_process_offers_it_and_repeats_the_message() -> None:
    """What was cut is state of the session; the message from the record is the same, byte for byte."""
    with handrail.store.open("memory:") as store:
        with Session.open(store, "s") as session:
            message = fetched(desk(session))
        with Session.open(store, "s") as session:
            door = desk(session)
            assert names(door)[-1] == "read_result"
            again = fetched(door)
            assert (again.content, again.is_cut, again.replayed) == (message.content, True, True)
            assert len(session[CutResult]) == 1
            assert read(door, call="reply-1/call-1", start=1).content.partition("\n")[2].startswith("line 0")
            fork = desk(session.fork(session_id="fork"))
        assert read(fork, call="reply-1/call-1", start=1).content.partition("\n")[2].startswith("line 0")


def test_a_process_that_was_killed_before_the_message_leaves_nothing_out(tmp_path: Path) -> None:
    """The call is answered from its record, and its message is cut then."""
    fork_to_crash(kill_after_commit, str(tmp_path), at="after-commit")
    with handrail.store.open(f"sqlite:///{tmp_path}/s.db") as store, Session.open(store, "s") as session:
        door = desk(session)
        assert names(door) == ["fetch", "fail"]
        message = fetched(door)
        assert (message.replayed, message.is_cut) == (True, True)
        assert names(door)[-1] == "read_result"


def test_a_call_without_a_reply_is_read_by_its_id_and_one_without_a_name_is_not(wording: Wording) -> None:
    """The sentence offers only what works."""
    door = desk(Session())
    door.execute(ToolCall("", "fetch"))
    assert names(door) == ["fetch", "fail"]
    assert door.execute(ToolCall("", "fetch")).content[-100:] == wording
    door.execute(ToolCall("call-9", "fetch"))
    assert read(door, call="call-9").content.partition("\n")[2].startswith("line 0")


def test_a_session_that_is_closed_still_answers() -> None:
    """Its calls are refused, and a refusal may be long."""
    with handrail.store.open("memory:") as store:
        with Session.open(store, "s") as session:
            fetched(desk(session), "fail")
        message = desk(session).execute(ToolCall("call-1", "fail"), reply="reply-1")
        assert (message.is_cut, message.replayed) == (True, True)


def test_a_value_that_is_hidden_from_the_model_stays_hidden(wording: Wording) -> None:
    """What is read is the text of the result, and not its value."""

    def hide(params: Note, *, context: ToolContext) -> Any:
        return ToolResult.ok(Note("secret"), LOG, exclude_value_from_context=True)

    door = executor(noting_tool("hide", hide))
    door.execute(ToolCall("call-1", "hide", '{"text": "x"}'))
    assert read(door, call="call-1", find="secret").content == wording


def test_the_policies_of_the_prompt_judge_it() -> None:
    """Those of sections are for their own tools."""
    never = Decides(lambda each, _: PolicyDecision.deny("no") if each.name == "read_result" else PolicyDecision.allow())
    door = desk(Session(), policies=[never])
    fetched(door)
    assert not read(door, call="call-1").success


@pytest.mark.parametrize(
    "text", ["x" * 1_001, "\n" * 5_000, "ab\n" * 400, "\U0001f600" * 3_000], ids=["x", "n", "l", "e"]
)
@pytest.mark.parametrize("call_id", ["1", "i" * 500, "\u00e9" * 500], ids=["short", "long", "quoted"])
def test_what_is_shown_never_exceeds_the_limit(text: str, call_id: str) -> None:
    """Whatever the text and the name of the call; what is left out is what the sentence says."""
    ref = CallRef("r" * 500, call_id)
    cut = cut_text(text, MIN_RESULT_CHARS, ref, "read_result")
    assert len(cut) <= MIN_RESULT_CHARS
    head, _, end = cut.partition("\n[...]\n")
    tail, _, sentence = end.rpartition("\n")
    found = re.match(r"\[Characters ([\d,]+) to ([\d,]+) of ", sentence)
    assert found is not None
    first, last = (int(number.replace(",", "")) for number in found.groups())
    assert (text[: first - 1].removesuffix("\n"), text[last:].removesuffix("\n")) == (head, tail)
    # A third of what there is room for, or half of that where lines are kept whole.
    assert min(len(head), 2 * len(tail)) >= (MIN_RESULT_CHARS - len(sentence)) // 4


IMAGE = BinaryPart(bytes(range(256)) * 200, "image/png")


DRAWN: list[str] = []


@tool(idempotency=IdempotencyConfig())
def draw(what: str) -> ToolResult[str]:
    """Draw a chart."""
    DRAWN.append(what)
    return ToolResult.ok(f"a chart of {what}", parts=[TextPart("by day:"), IMAGE])


def drawn(session: Session, reply: str = "reply-1") -> ToolMessage:
    """The answer of a call."""
    return executor(draw, session=session).execute(ToolCall("call-1", "draw", '{"what": "sales"}'), reply=reply)


def test_a_message_has_the_text_and_the_files_and_is_repeated_with_them() -> None:
    """From the record of the call, and from that of its effect; the tool is run once."""
    DRAWN.clear()
    with handrail.store.open("memory:") as store:
        with Session.open(store, "s") as session:
            message = drawn(session)
        assert message.content == "a chart of sales\nby day:\n[image/png, 51 kB]"
        assert message.parts == (TextPart("a chart of sales"), TextPart("by day:"), IMAGE)
        with Session.open(store, "s") as session:
            again, hit = drawn(session), drawn(session, "reply-2")
    for each in (again, hit):
        assert (each.replayed, each.content, each.parts) == (True, message.content, message.parts)
        assert each.result == message.result
    assert DRAWN == ["sales"]


def test_what_are_no_parts_is_an_invalid_result(wording: Wording) -> None:
    """The call is rolled back, and says what a part is."""
    for parts in (["text"], ("text",)):
        result = ToolResult("", Note("x"), parts=cast("Any", parts))

        def wrong(params: Note, *, context: ToolContext, made: ToolResult[Note] = result) -> ToolResult[Note]:
            return made

        door = executor(noting_tool("wrong", wrong))
        message = door.execute(ToolCall("call-1", "wrong", '{"text": "x"}'))
        assert (message.success, message.content) == (False, wording)


def test_a_long_text_is_cut_and_its_files_stay() -> None:
    """Text in parts counts as text."""

    @tool(max_result_chars=1_000)
    def scan() -> ToolResult[None]:
        return ToolResult.ok(None, "page", parts=[TextPart("x" * 5_000), IMAGE])

    message = executor(scan).execute(ToolCall("call-1", "scan"))
    assert (message.is_cut, message.parts) == (True, (TextPart(message.content), IMAGE))


@pytest.mark.anyio
async def test_pydantic_ai_gets_the_files_of_a_result(tmp_path: Path) -> None:
    """In the tool return, in their order; the transcript names them."""
    file = tmp_path / "s.db"
    with handrail.store.open(f"sqlite:///{file}") as store, Session.open(store, "s") as session:
        stored = StoredHistory(session, "charts")
        model = ScriptedModel([Reply(calls=[Call("draw", {"what": "sales"})]), Reply(text="Done.")])
        handrailed = HandrailCapability(executor(draw, session=session), conversation=stored)
        result = await Agent(model, capabilities=[handrailed]).run("Draw.")
        (part,) = _returns(result.all_messages())
        image = BinaryContent.narrow_type(BinaryContent(IMAGE.data, media_type="image/png"))
        assert part.content == ["a chart of sales", "by day:", image]
        (loaded,) = _returns(StoredHistory(session, "charts").history)
        assert loaded.content == part.content
        reader = TranscriptReader(store, "s")
        items = [*reader.read(), *reader.unfinished()]
        (call,) = [item for item in items if isinstance(item, TranscriptCall)]
        assert call.content == "a chart of sales\nby day:\n[image/png, 51 kB]"
        assert session[ToolInvoked].all()[0].result.parts == (TextPart("by day:"), IMAGE)


def _returns(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
