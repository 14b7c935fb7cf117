"""The loops over the official SDKs: a reply is appended and answered once, and one that is cut off is not touched."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from openai import ContentFilterFinishReasonError, LengthFinishReasonError

from handrail.adapters import anthropic, openai
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallPostponed, IncompleteReplyError, InvalidArgumentError, SessionUseError
from handrail.prompt import (
    ApprovalRequest,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolExample,
    ToolsSection,
)
from handrail.runtime import Session, ToolCall
from handrail.session.conversation import ConversationPart
from handrail.store.memory import MemoryStore
from tests.kit import raises
from tests.providers import wire
from tests.providers.sdk_loops import (
    ANSWER,
    APIS,
    CALLS_OF_ONE_ID,
    QUESTION,
    ApiName,
    Desk,
    Model,
    asked,
    messages,
    response_with,
    serving,
)
from tests.providers.wire import Reply
from tests.wording import Wording

PAYING = Reply("I pay.", (("pay", {"number": "A-17"}),))


@pytest.fixture
def provider() -> Generator[wire.Provider]:
    """One for each test."""
    with serving() as running:
        yield running


# ----------------------------------------------------------------------------------------------------- whole replies


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("api, streams", [*product(APIS, [False, True])])
def test_a_loop_ends_with_the_answer(
    provider: wire.Provider, executor: ToolExecutor, api: ApiName, streams: bool, is_async: bool
) -> None:
    """Whole and as a stream, blocking and not; a loop that is run again asks nothing."""
    model = Model(provider, api, streams)
    reply = model.run(executor, is_async=is_async)
    assert (reply.is_final, reply.text, reply.refusal, reply.questions) == (True, ANSWER, "", ())
    assert len(provider.requests) == 3
    again = model.run(executor, is_async=is_async)
    assert (*again, again.is_final, again.text) == (True, ANSWER)
    assert len(provider.requests) == 3


@pytest.mark.parametrize("api", APIS)
def test_the_items_are_those_of_the_conversation(provider: wire.Provider, executor: ToolExecutor, api: ApiName) -> None:
    """So a program may have a list of its own. A stream makes the same of a reply as a response."""
    whole: list[list[Any]] = []
    for streams in (False, True):
        model, items = Model(provider, api, streams), list[Any]()
        run = asked(ToolExecutor(executor.tools, session=Session()))
        reply = model.loop.answer(run)
        while reply.continues:
            reply = model.loop.answer(run, model.ask(run))
            items += reply
        assert items == messages(run)
        whole.append(items)
    assert whole[0] == whole[1]


@pytest.mark.parametrize("api", APIS)
def test_a_response_may_be_the_json_of_one(provider: wire.Provider, executor: ToolExecutor, api: ApiName) -> None:
    """As a program has it that asks without an SDK; it is not changed."""
    model = Model(provider, api)
    response = model.ask(executor)
    data = response.model_dump(mode="json", by_alias=True, exclude_unset=True)
    kept = response.model_dump(mode="json", by_alias=True, exclude_unset=True)
    from_json = model.loop.answer(executor, data)
    assert data == kept
    other = asked(ToolExecutor(executor.tools, session=Session()))
    assert list(model.loop.answer(other, response)) == list(from_json)


def test_what_is_empty_or_parsed_is_not_sent_again(executor: ToolExecutor) -> None:
    """Servers that are compatible refuse fields that they do not know; what they add themselves is sent again."""
    said = {"role": "assistant", "content": "{}", "reasoning_content": "I think."}
    message: dict[str, Any] = {**said, "parsed": {"a": 1}, "annotations": [], "refusal": None, "tool_calls": None}
    reply = openai.answer(executor, {"id": "r", "choices": [{"finish_reason": "stop", "message": message}]})
    assert list(reply) == messages(executor) == [said]


@pytest.mark.parametrize("api", APIS)
def test_another_question_continues_the_conversation(
    provider: wire.Provider, executor: ToolExecutor, api: ApiName
) -> None:
    """A final reply ends a run, not the conversation."""
    model = Model(provider, api)
    provider.script = [Reply("Hello."), Reply("Bye.")]
    assert model.converse(executor).text == "Hello."
    executor.environment.session.conversation.append(QUESTION)
    assert model.loop.answer(executor).continues
    assert model.converse(executor).text == "Bye."


@pytest.mark.parametrize("api", APIS)
def test_a_failed_call_is_answered(provider: wire.Provider, executor: ToolExecutor, api: ApiName) -> None:
    """The text says so; Anthropic has a flag for it, too."""
    provider.script = [Reply(calls=(("note", {"text": ""}),)), Reply("Sorry.")]
    Model(provider, api).converse(executor)
    last = messages(executor)[-2]
    if api == "messages":
        (last,) = last["content"]
        assert last["is_error"] is True
    assert "a note has a text" in last.get("content", last.get("output"))


# ------------------------------------------------------------------------------------------ replies that are cut off


@pytest.mark.timeout(120)  # a request for each event of a stream
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.short(3)
def test_a_stream_that_is_cut_at_an_event_runs_nothing(
    provider: wire.Provider, executor: ToolExecutor, desk: Desk, api: ApiName, is_async: bool
) -> None:
    """Whatever the SDK makes of it. Only an event after the end of the reply may be missing."""
    model, texts = Model(provider, api, streams=True), list[str]()
    provider.cut = 0
    while not texts:
        try:
            texts.append(model.run(executor, is_async=is_async).text)
        except Exception:  # noqa: BLE001 - of the SDK, or an `IncompleteReplyError`
            assert messages(executor) == desk.paid == []
            provider.cut += 1
    assert provider.cut >= provider.streamed[0] - 1 > 10
    assert (texts, desk.paid) == ([ANSWER], ["A-17", "A-18"])


@pytest.mark.parametrize("api", APIS)
def test_a_reply_that_a_limit_has_cut_off_runs_nothing(
    provider: wire.Provider, executor: ToolExecutor, desk: Desk, api: ApiName, wording: Wording
) -> None:
    """The error says why, and the same request can be made again."""
    model = Model(provider, api)
    provider.script = [Reply(PAYING.text, PAYING.calls, end="limit")]
    with raises(IncompleteReplyError, wording) as raised:
        model.converse(executor)
    assert raised.value.phase == "response"
    assert raised.value.reply == {"responses": "resp_1", "chat": "chatcmpl-1", "messages": "msg_1"}[api]
    assert (
        raised.value.reason
        == {
            "responses": "status incomplete, max_output_tokens",
            "chat": "finish_reason length",
            "messages": "stop_reason max_tokens beside calls",
        }[api]
    )
    assert messages(executor) == desk.paid == []
    provider.script = wire.SCRIPT
    assert model.converse(executor).text == ANSWER


@pytest.mark.parametrize(
    "api, end, error",
    [
        ("responses", "limit", RuntimeError),
        ("chat", "limit", LengthFinishReasonError),
        ("chat", "pause", ContentFilterFinishReasonError),
        ("messages", "limit", IncompleteReplyError),
    ],
)
def test_a_stream_that_a_limit_has_cut_off_raises(
    provider: wire.Provider, executor: ToolExecutor, api: ApiName, end: Any, error: type[Exception]
) -> None:
    """The SDK of OpenAI itself does."""
    provider.script = [Reply(PAYING.text, PAYING.calls, end=end)]
    with pytest.raises(error):
        Model(provider, api, streams=True).converse(executor)
    assert messages(executor) == []


# ----------------------------------------------------------------------------------------- refusals and paused replies


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_refusal_is_final(
    provider: wire.Provider, executor: ToolExecutor, desk: Desk, api: ApiName, streams: bool
) -> None:
    """OpenAI takes the message again; a conversation of Anthropic that has it would be refused."""
    model = Model(provider, api, streams)
    provider.script = [Reply("I do not do that.", end="refusal"), Reply("Hello.")]
    reply = model.converse(executor)
    assert (reply.is_final, reply.continues) == (True, False)
    if api == "messages":
        assert reply.refusal == "It could do harm."
        assert messages(executor) == []
        return
    assert (reply.refusal, reply.text) == ("I do not do that.", "")
    assert model.loop.answer(executor).refusal == "I do not do that."
    executor.environment.session.conversation.append(QUESTION)
    assert model.converse(executor).text == "Hello."


def test_the_calls_of_a_refused_reply_do_not_run(executor: ToolExecutor, desk: Desk, wording: Wording) -> None:
    """They may be cut off; a refusal without an explanation is one too."""
    block = {"type": "tool_use", "id": "1", "name": "pay", "input": {"number": "A-17"}}
    reply = anthropic.answer(executor, {"content": [block], "stop_reason": "refusal", "stop_details": None})
    assert (*reply, reply.is_final, reply.refusal) == (True, wording)
    assert desk.paid == messages(executor) == []


@pytest.mark.parametrize("streams", [False, True])
def test_a_paused_reply_is_continued_with_its_thinking(
    provider: wire.Provider, executor: ToolExecutor, streams: bool
) -> None:
    """It is appended as it is, and the next request has it."""
    provider.script = [Reply("I look.", end="pause"), Reply("Here it is.")]
    model = Model(provider, "messages", streams)
    assert model.converse(executor).text == "Here it is."
    kinds = [block["type"] for message in messages(executor) for block in message["content"]]
    assert kinds == ["thinking", "text", "server_tool_use", "text"]
    assert messages(executor)[0]["content"][0]["signature"] == "signed-1"


@pytest.mark.parametrize(
    "adapter, response",
    [
        (openai, {"output": [], "status": "completed"}),
        (openai, {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": None}}]}),
        (anthropic, {"content": [], "stop_reason": "end_turn"}),
    ],
)
def test_an_empty_reply_is_final_and_not_appended(executor: ToolExecutor, adapter: Any, response: Any) -> None:
    """The APIs refuse a message without content."""
    reply = adapter.answer(executor, response)
    assert (*reply, reply.is_final, reply.text) == (True, "")
    assert messages(executor) == []


# --------------------------------------------------------------------------------------------------- names of replies


@pytest.mark.parametrize("response_id", ["resp", "", "@", "x" * 600])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.short(6)
def test_a_server_may_send_one_id_again_and_again(
    provider: wire.Provider, executor: ToolExecutor, desk: Desk, api: ApiName, response_id: str
) -> None:
    """Or none, or one that cannot name a reply; each reply has a name of its own."""
    provider.response_id = response_id
    assert Model(provider, api).converse(executor).text == ANSWER
    assert desk.paid == ["A-17", "A-18"]
    names = [part.reply for part in executor.environment.session[ConversationPart] if part.calls]
    assert len({*names}) == len(names) == 2


@pytest.mark.parametrize("resets", [False, True])
def test_an_id_of_an_earlier_process_is_not_a_name_again(desk: Desk, resets: bool) -> None:
    """Its calls would be answered from the records of the other reply; these survive a reset, too."""
    store = MemoryStore()
    for order in ("A-17", "A-18", "A-19"):
        with Session.open(store, "desk") as session:
            executor = ToolExecutor(desk.tools, session=session)
            call = {"type": "function_call", "call_id": "call-1", "name": "pay"}
            item = {**call, "arguments": f'{{"number": "{order}"}}'}
            reply = openai.answer(executor, {"id": "resp", "output": [item], "status": "completed"})
            assert reply[-1]["output"] == f"{order} is paid"
            if resets:
                session.reset()
    assert desk.paid == ["A-17", "A-18", "A-19"]


@pytest.mark.parametrize("api", APIS)
def test_two_calls_of_one_id_both_run(executor: ToolExecutor, desk: Desk, api: ApiName) -> None:
    """And both are answered, in their order."""
    reply = Model(wire.Provider(()), api).loop.answer(executor, response_with(api, CALLS_OF_ONE_ID[api]))
    assert desk.paid == ["A-17", "A-18"]
    answers = reply[-1]["content"] if api == "messages" else reply[-2:]
    assert [one.get("output", one.get("content")) for one in answers] == ["A-17 is paid", "A-18 is paid"]


# --------------------------------------------------------------------------------------------- calls of other tools


def test_calls_of_custom_and_unknown_types_are_answered(executor: ToolExecutor, wording: Wording) -> None:
    """Chat Completions refuse a message one of whose calls has no answer."""
    custom = {"id": "1", "type": "custom", "custom": {"name": "grep", "input": "needle"}}
    unknown = {"id": "2", "type": "telepathy", "telepathy": {"thought": "?"}}
    payment = {"id": "3", "function": {"name": "pay", "arguments": '{"number": "A-17"}'}}
    reply = openai.answer(executor, response_with("chat", [custom, unknown, payment]))
    assert [answer["tool_call_id"] for answer in reply[1:]] == ["1", "2", "3"]
    assert [answer["content"] for answer in reply[1:]] == [wording, wording, "A-17 is paid"]


def test_items_of_other_tools_are_appended(executor: ToolExecutor) -> None:
    """A custom call is answered in its own form, and a program that calls knows its calls."""
    program = {"type": "program", "caller_id": "p-1"}
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    custom = {"type": "custom_tool_call", "call_id": "1", "name": "grep", "input": "needle"}
    payment = {"type": "function_call", "call_id": "2", "name": "pay", "arguments": '{"number": "A-17"}'}
    reply = openai.answer(executor, response_with("responses", [search, custom, {**payment, "caller": program}]))
    assert [item["type"] for item in reply] == [
        "web_search_call",
        "custom_tool_call",
        "function_call",
        "custom_tool_call_output",
        "function_call_output",
    ]
    assert [item.get("caller") for item in reply[-2:]] == [None, program]


# --------------------------------------------------------------------------------------------------------------- files

PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,aW1hZ2U=", "detail": "auto"}


@pytest.mark.parametrize("api", APIS)
def test_images_and_documents_of_a_result_are_sent(
    provider: wire.Provider, executor: ToolExecutor, api: ApiName, wording: Wording
) -> None:
    """Of any other file the model reads the line; the APIs take all that is sent."""
    provider.script = [Reply(calls=(("look", {}), ("note", {"text": "seen"}))), Reply("Seen.")]
    assert Model(provider, api).converse(executor).text == "Seen."
    sent = messages(executor)[1:-1]
    pdf = "data:application/pdf;base64,ZG9jdW1lbnQ="
    if api == "responses":
        assert sent[-2]["output"] == [
            {"type": "input_text", "text": "The desk:"},
            PICTURE,
            {"type": "input_file", "filename": "file.pdf", "file_data": pdf},
            {"type": "input_text", "text": "[text/csv, 3 bytes]"},
        ]
    elif api == "chat":
        *answers, files = sent
        assert [answer["content"] for answer in answers] == [
            "The desk:\n[image/png, 5 bytes]\n[application/pdf, 8 bytes]\n[text/csv, 3 bytes]",
            "noted: seen",
        ]
        assert files == {
            "role": "user",
            "content": [
                {"type": "text", "text": wording},
                {"type": "image_url", "image_url": {"url": PICTURE["image_url"]}},
                {"type": "file", "file": {"filename": "file.pdf", "file_data": pdf}},
            ],
        }
    else:
        assert sent[0]["content"][0]["content"] == [
            {"type": "text", "text": "The desk:"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1hZ2U="}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "ZG9jdW1lbnQ="}},
            {"type": "text", "text": "[text/csv, 3 bytes]"},
        ]


@pytest.mark.parametrize("api", APIS)
def test_untrusted_files_are_between_the_marks(provider: wire.Provider, executor: ToolExecutor, api: ApiName) -> None:
    """As the text of the result is."""
    provider.script = [Reply(calls=(("read_mail", {}),)), Reply("Read.")]
    Model(provider, api).converse(executor)
    sent = messages(executor)[1:-1]
    if api == "chat":
        assert sent[-2]["content"].count("untrusted") >= 2
        first, image, last = sent[-1]["content"]
    elif api == "responses":
        first, _, image, last = sent[-1]["output"]
    else:
        first, _, image, last = sent[-1]["content"][0]["content"]
    assert image["type"] in {"image_url", "input_image", "image"}
    assert "untrusted" in first["text"]
    assert "untrusted" in last["text"]


# ------------------------------------------------------------------------------------------ questions and open replies


class AskAboutPayments:
    """A policy that has payments approved."""

    name = "payments"

    def check(self, tool: Tool[Any, Any], params: Any, *, context: Any) -> PolicyDecision:
        """Ask about a payment."""
        return PolicyDecision.ask("May it be paid?") if tool.name == "pay" else PolicyDecision.allow()

    def on_result(self, tool: Tool[Any, Any], params: Any, result: Any, *, context: Any) -> None:
        """Do nothing."""


def leave_open(request: ApprovalRequest) -> bool:
    """Nobody is there."""
    raise CallPostponed("the office is asked")


def asking(desk: Desk, session: Session) -> ToolExecutor:
    """An executor whose payments are asked about, and stay open."""
    section = ToolsSection(title="Desk", tools=desk.tools, policies=[AskAboutPayments()])
    prompt = Prompt(PromptTemplate(ns="shop", key="desk", sections=[section]))
    return ToolExecutor(prompt=prompt, session=session, approver=leave_open)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_reply_with_a_call_that_waits_is_answered_later(
    provider: wire.Provider, desk: Desk, api: ApiName, is_async: bool
) -> None:
    """Its other calls run. No answer is appended until there are all, in this process or in another one."""
    store, model = MemoryStore(), Model(provider, api)
    with Session.open(store, "desk") as session:
        reply = model.run(asked(asking(desk, session)), is_async=is_async)
        assert (reply.is_final, reply.continues) == (False, False)
        assert [question.call.name for question in reply.questions] == ["pay"]
        assert list(reply) == session.conversation.messages[1:]
        assert (desk.paid, reply.text, len(provider.requests)) == ([], "First A-17.", 1)
    with Session.open(store, "desk") as session:
        executor = asking(desk, session)
        waiting = model.run(executor, is_async=is_async)
        assert (*waiting, len(waiting.questions), len(provider.requests)) == (1, 1)
        reply = model.run(executor.with_approver(lambda request: True), is_async=is_async)
        assert (reply.text, desk.paid) == (ANSWER, ["A-17", "A-18"])


@pytest.mark.parametrize("api", APIS)
def test_a_reply_waits_until_the_one_before_it_is_answered(
    provider: wire.Provider, desk: Desk, api: ApiName, wording: Wording
) -> None:
    """The answers would be missing for ever."""
    executor, model = asked(asking(desk, Session.open(MemoryStore(), "desk"))), Model(provider, api)
    response = model.ask(executor)
    assert model.loop.answer(executor, response).questions
    before = messages(executor)
    with raises(SessionUseError, wording):
        model.loop.answer(executor, response)
    assert messages(executor) == before


@pytest.mark.parametrize("is_async", [False, True])
def test_the_reply_says_that_the_prompt_has_changed(provider: wire.Provider, desk: Desk, is_async: bool) -> None:
    """A section is opened by a call of a tool of Handrail."""
    rules = ToolsSection(title="Rules", description="Pay no one.", tools=[find_tool()], summary="What is forbidden.")
    sections = [ToolsSection(title="Desk", tools=desk.tools), rules]
    prompt = Prompt(PromptTemplate(ns="shop", key="desk", sections=sections))
    executor = asked(ToolExecutor(prompt=prompt, session=Session()))
    opened = ("open_sections", {"paths": ["rules"], "reason": "to know"})
    provider.script = [Reply(calls=(("note", {"text": "a"}),)), Reply(calls=(opened,)), Reply("Done.")]
    model, changed = Model(provider, "responses"), list[bool]()
    reply = model.loop.answer(executor)
    while reply.continues:
        reply = model.loop.answer(executor, model.ask(executor))
        changed.append(reply.prompt_changed)
    assert changed == [False, True, False]
    assert "Pay no one." in provider.requests[-1]["instructions"]


# ------------------------------------------------------------------------------------------------- mistakes and tools


@pytest.mark.parametrize("adapter", [openai, anthropic])
@pytest.mark.anyio
async def test_what_is_not_an_executor_is_refused(adapter: Any) -> None:
    """By both forms."""
    for function in ("answer", "tools"):
        with pytest.raises(InvalidArgumentError, match=f"{function}: executor"):
            getattr(adapter, function)(Session())
    with pytest.raises(InvalidArgumentError, match=r"answer: executor"):
        await adapter.answer_async(Session())


def test_another_api_is_refused(executor: ToolExecutor, wording: Wording) -> None:
    """It is said which there are."""
    with raises(InvalidArgumentError, wording):
        openai.tools(executor, api="completions")  # type: ignore[arg-type]


def test_a_tool_of_openai_is_strict_where_its_schema_is_taken(executor: ToolExecutor) -> None:
    """The schema is that of the tool, and worked out once."""
    run = ToolExecutor([*executor.tools, find_tool()], session=Session())
    offered = {item["name"]: item for item in openai.tools(run)}
    assert {name: item["strict"] for name, item in offered.items()} == {
        "pay": True,
        "note": True,
        "look": False,
        "read_mail": False,
        "find": False,
    }
    assert {name: item["parameters"] for name, item in offered.items()} == {
        one.name: one.parameters_schema for one in run.tools
    }
    assert all(item["parameters"] is offered[item["name"]]["parameters"] for item in openai.tools(run))
    in_chat = [item["function"] for item in openai.tools(run, api="chat")]
    assert in_chat == [{key: value for key, value in item.items() if key != "type"} for item in offered.values()]
    assert {item["strict"] for item in openai.tools(run, strict=False)} == {False}


def test_a_tool_of_anthropic_has_its_examples(executor: ToolExecutor) -> None:
    """In a field of their own; it is strict, and a mark for the cache, only when that is asked for."""
    run = ToolExecutor([*executor.tools, find_tool()], session=Session())
    plain = anthropic.tools(run)
    assert [item for item in plain if "strict" in item or "cache_control" in item] == []
    assert plain[-1]["input_examples"] == [{"text": "a", "limit": 2}]
    assert plain[-1]["description"] == "Find."
    assert [item.get("strict") for item in anthropic.tools(run, strict=True)] == [True] * 5
    marked = anthropic.tools(run, cache=True)
    assert [item.get("cache_control") for item in marked] == [None] * 4 + [{"type": "ephemeral"}]
    assert anthropic.tools(run) == plain
    assert anthropic.tools(ToolExecutor([], session=Session()), cache=True) == []


@dataclass(frozen=True)
class Query:
    """The parameters of `find`."""

    text: str
    limit: int = 10


def find_tool() -> Tool[Any, Any]:
    """A tool with an optional parameter, and an example."""
    example = ToolExample[Any, Any](description="two", input=Query("a", 2), output=None)
    return Tool[Query, None](name="find", description="Find.", examples=[example])


def test_calls_by_hand_and_by_the_functions_mix(executor: ToolExecutor, desk: Desk) -> None:
    """A reply that a program has appended itself is answered in the form of its messages."""
    talk = executor.environment.session.conversation
    message = response_with("chat", CALLS_OF_ONE_ID["chat"][:1])["choices"][0]["message"]
    talk.append(message, calls=[ToolCall("c", "pay", {"number": "A-17"})], reply="by-hand")
    (answer,) = openai.answer(executor)
    assert answer == {"role": "tool", "tool_call_id": "c", "content": "A-17 is paid"}
