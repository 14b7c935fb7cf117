"""`handrail.testing`: a script, in code or in a file, and its playback against the calls of a run and as a model."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ModelResponse, ToolFailed

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ScriptError
from handrail.limits import TokenUsage
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolMessage
from handrail.testing import Call, Expect, Outcome, Reply, Script, ScriptedModel, play, play_async, script_file
from handrail.testing.script import Playback, SentMessage, SentMessages
from handrail.testing.script_file import parse_script, read_script
from tests.kit import Note, raises, refusal
from tests.wording import Wording


def test_calls_are_numbered_by_their_place_in_the_script() -> None:
    """A run gets the same ids each time; an id that is given counts as a place all the same."""
    script = Script([Reply(calls=[Call("a"), Call("b", id="mine")]), Reply(text="Hm."), Reply(calls=[Call("c")])])
    assert [[call.id for call in reply.calls] for reply in script.replies] == [["call-1", "mine"], [], ["call-3"]]


WORDS = ("instructions", "tools", "texts")
TWICE = [Reply(calls=[Call("a", id="x")]), Reply(calls=[Call("b", id="x")])]
WITHIN = [Reply(text="Hm."), Reply(calls=[Call("a", id="x")], within="x")]
REFUSALS: dict[str, tuple[Callable[[], object], int | None]] = {
    "two calls of one id": (lambda: Script(TWICE, name="desk"), 2),
    "within a call of its own": (lambda: Script(WITHIN, name="desk"), 2),
    **{each: (partial(Expect, **dict[str, Any]({each: "read_file"})), None) for each in WORDS},
}
"""Scripts that could not be played as they are written: the reply at fault, counted from 1."""


@pytest.mark.parametrize("what", REFUSALS)
def test_script_that_cannot_be_played_is_refused(what: str, wording: Wording) -> None:
    """When it is made, with the reply at fault."""
    make, step = REFUSALS[what]
    error = refusal(ScriptError, make)
    assert (str(error), error.step) == (wording, step)


SENT = SentMessages("Refund desk.", ("read", "write"), (SentMessage("call-1", "three rows", True),))


def echo(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Say it again."""
    return ToolResult.ok(params) if params.text else ToolResult.error("there is nothing to say")


def executor() -> ToolExecutor:
    """One tool, and a text about it."""
    tool = Tool[Note, Note](name="echo", description="Say it again.", handler=echo)
    section = MarkdownSection(title="Echo", template="Say things twice.", tools=[tool])
    prompt = Prompt(PromptTemplate[str](ns="tests", key="echo", sections=[section]))
    return ToolExecutor(prompt=prompt, session=Session())


def next_with(expect: Expect) -> Reply:
    """The reply of a script that expects this of `SENT`."""
    return Playback(Script([Reply(text="Yes.", expect=expect)])).next(SENT)


@pytest.mark.parametrize("outcome", [Outcome.ok("three", "rows"), "ok", {"ok": ["three", "rows"]}])
def test_a_script_that_finds_what_it_expects_gives_its_reply(outcome: Any) -> None:
    """Everything that can be expected, and found."""
    expect = Expect(instructions=["Refund"], tools=["read"], texts=["three"], messages={"call-1": outcome})
    assert next_with(expect).text == "Yes."


DIFFERENCES = {
    "instructions": Expect(instructions=["Sales"]),
    "tools": Expect(tools=["read", "list"]),
    "texts": Expect(texts=["four"]),
    "no answer": Expect(messages={"call-2": Outcome.ok()}),
    "failed": Expect(messages={"call-1": Outcome.failed()}),
    "words": Expect(messages={"call-1": Outcome.ok("four")}),
    "all at once": Expect(instructions=["Sales"], tools=["list"], messages={"call-1": Outcome.failed("four")}),
}


@pytest.mark.parametrize("expect", DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_difference_is_told_with_what_came_instead(expect: Expect, wording: Wording) -> None:
    """The error names the reply, what was expected, and what came; all differences at once."""
    error = refusal(ScriptError, next_with, expect)
    assert (str(error), error.step) == (wording, 1)


def refused(playback: Playback, received: SentMessages) -> str:
    """The error of the next reply."""
    return str(refusal(ScriptError, playback.next, received))


def test_calls_without_an_answer_are_reported(wording: Wording) -> None:
    """A loop that drops a call breaks the contract with the model."""
    playback = Playback(Script([Reply(calls=[Call("read"), Call("write")]), Reply(text="Done.")]))
    playback.next(SentMessages())
    assert refused(playback, SENT) == wording
    assert refused(playback, SentMessages()) == wording


def test_an_agent_called_as_a_tool_has_replies_of_its_own() -> None:
    """Its conversation stands within the call, and the one that it was called from goes on after it."""
    asks, looks = Call("analyst", id="ask"), Call("read", id="look")
    replies = [
        Reply(calls=[asks]),
        Reply(calls=[looks], within="ask"),
        Reply(text="Three.", within="ask", expect=Expect(messages={"look": Outcome.ok()})),
        Reply(text="Done.", expect=Expect(messages={"ask": Outcome.ok("Three.")})),
    ]
    playback = Playback(Script(replies))
    looked, asked = SentMessage("look", "1, 2, 3", True), SentMessage("ask", "Three.", True)
    for sent in (SentMessages(), SentMessages(), SentMessages(messages=(looked,)), SentMessages(messages=(asked,))):
        playback.next(sent)
    playback.assert_finished()


def test_run_and_script_end_together(wording: Wording) -> None:
    """A run that goes on is told what it was sent last, one that ends before the script which replies are left."""
    playback = Playback(Script([Reply(text="Done.")], name="desk.yaml"))
    playback.next(SentMessages())
    assert refused(playback, SENT) == wording
    assert refused(playback, SentMessages()) == wording
    playback = Playback(Script([Reply(text="Hm."), Reply(calls=[Call("read"), Call("write")]), Reply(text="Done.")]))
    playback.next(SentMessages())
    error = refusal(ScriptError, playback.assert_finished)
    assert (str(error), error.step) == (wording, 2)


@pytest.fixture(params=["sync", "async"])
def player(request: pytest.FixtureRequest) -> Callable[[Script, ToolExecutor], tuple[ToolMessage, ...]]:
    """`play`, and `play_async` on a loop of its own."""
    if request.param == "sync":
        return play
    return lambda script, door: asyncio.run(play_async(script, door))


def test_a_script_plays_through_an_executor(player: Callable[[Script, ToolExecutor], tuple[ToolMessage, ...]]) -> None:
    """Calls go out reply by reply, messages come back, and each reply sees those of the one before."""
    expect = Expect(instructions=["Say things twice."], tools=["echo"])
    seen = Expect(messages={"call-1": Outcome.ok("hello"), "bad": Outcome.failed("$.text")})
    script = Script(
        [
            Reply(calls=[Call("echo", {"text": "hello"}), Call("echo", '{"text": 1}', id="bad")], expect=expect),
            Reply(calls=[Call("echo", {"text": ""})], expect=seen),
            Reply(text="Done.", expect=Expect(messages={"call-3": Outcome.failed("nothing to say")})),
        ]
    )
    messages = player(script, executor())
    came = [(message.call_id, message.success) for message in messages]
    assert came == [("call-1", True), ("bad", False), ("call-3", False)]


@pytest.mark.parametrize(
    "replies",
    [[Reply(calls=[Call("echo", {"text": "hello"})])], [Reply(text="Done."), Reply(text="Or not.")]],
    ids=["without an answer", "with two answers"],
)
def test_one_answer_ends_a_script(replies: list[Reply], wording: Wording) -> None:
    """As with a model, whose loop would ask again, or stop at the first one."""
    with raises(ScriptError, wording):
        play(Script(replies), executor())


def test_a_script_is_played_again_on_one_session_under_another_name() -> None:
    """Under the same name its calls are answered from their records: it goes on where it was interrupted."""
    script = Script([Reply(calls=[Call("echo", {"text": "x"})]), Reply(text="Done.")])
    door = executor()
    replayed = [message.replayed for name in ("a", "b", "a") for message in play(script, door, reply=name)]
    again = asyncio.run(play_async(script, door, reply="b"))
    assert (replayed, [message.replayed for message in again]) == ([False, False, True], [True])


EVERYTHING = """
replies:
  - text: I shall read the notes.
    calls:
      - {name: read_file, arguments: {path: notes.md, lines: [1, 2], deep: {on: yes, at: 2026-01-01}}}
      - {name: read_file, arguments: '{"path": ', id: broken}
      - name: list_files
    usage: {input: 120, output: 15, cached: 3}
    expect:
      instructions: [Refund desk]
      tools: [read_file, write_file]
  - output: {total: 3, share: 1e-1, rate: .5, ok: true, none: ~, hex: 0x1F, many: 1000}
    expect:
      texts: [buy milk]
      messages:
        call-1: ok
        broken: {failed: [malformed JSON]}
        call-3: {ok: [notes.md, plan.md]}
  - {within: call-3, text: Two files.}
"""


def test_a_file_says_everything_that_a_script_can_say(tmp_path: Path) -> None:
    """Read by YAML 1.2: `on` and `yes` are text, and so is a date."""
    file = tmp_path / "desk.yaml"
    file.write_text(EVERYTHING, encoding="utf-8")
    deep = {"on": "yes", "at": "2026-01-01"}
    messages: Any = {
        "call-1": "ok",
        "broken": {"failed": ["malformed JSON"]},
        "call-3": {"ok": ["notes.md", "plan.md"]},
    }
    output = {"total": 3, "share": 0.1, "rate": 0.5, "ok": True, "none": None, "hex": 31, "many": 1000}
    notes = Call("read_file", {"path": "notes.md", "lines": [1, 2], "deep": deep})
    calls = [notes, Call("read_file", '{"path": ', id="broken"), Call("list_files")]
    expect = Expect(instructions=["Refund desk"], tools=["read_file", "write_file"])
    replies = [
        Reply(text="I shall read the notes.", calls=calls, usage=TokenUsage(120, 15, 3), expect=expect),
        Reply(output=output, expect=Expect(texts=["buy milk"], messages=messages)),
        Reply(text="Two files.", within="call-3"),
    ]
    assert read_script(file) == Script(replies, name="desk.yaml")


def test_the_example_of_the_module_is_a_script() -> None:
    """What the docstring shows can be copied."""
    text = (script_file.__doc__ or "").partition("\n\n")[2]
    assert len(parse_script(text).replies) == 3


FAULTS = {
    "replies:\n  - txt: x": "2:5",
    "steps: []": "1:1",
    "replies: []\nreplies: []": "2:1",
    "# nothing": "1:1",
    "- text: x": "1:1",
    "replies: {text: x}": "1:10",
    "replies: [{text: [x]}]": "1:18",
    "replies: [": "1:11",
    "replies: [{calls: [{id: x}]}]": "1:20",
    "replies: [{calls: [{name: x, arguments: [1]}]}]": "1:41",
    "replies: [{expect: {messages: {a: fine}}}]": "1:35",
    "replies: [{expect: {messages: {a: {}}}}]": "1:20",
    "replies: [{usage: {input: many}}]": "1:27",
    "replies: [{usage: {output: -1}}]": "1:19",
    "replies: \x07": "1:10",
    "replies: []\n---\nreplies: []": "2:1",
    "replies: [{output: &a {b: *a}}]": "1:27",
}
"""Texts that are not scripts, each with the line and column of its fault."""


@pytest.mark.parametrize("text", FAULTS, ids=range(len(FAULTS)))
def test_a_fault_has_its_place(text: str) -> None:
    """File, line and column; the words are those of the type that is due."""
    with pytest.raises(ScriptError, match=f"desk:{FAULTS[text]}: "):
        parse_script(text, name="desk")


def test_a_file_in_another_encoding_is_refused(tmp_path: Path, wording: Wording) -> None:
    """The error says where, and what to do."""
    file = tmp_path / "desk.yaml"
    file.write_bytes("replies: [{text: é}]".encode("latin-1"))
    with pytest.raises(ScriptError) as raised:
        read_script(file)
    assert str(raised.value) == wording


def lookup(order: str) -> str:
    """A tool of an agent that knows nothing of Handrail."""
    if order == "none":
        raise ToolFailed('no order "none"')
    return f"order {order}: 3 books"


@dataclass
class Refund:
    """A structured answer."""

    order: str
    cents: int


def agent(model: ScriptedModel) -> Agent[None, str]:
    """An agent with one tool."""
    return Agent(model, tools=[lookup], instructions="Refund desk.")


LOOK_UP = Reply(calls=[Call("lookup", {"order": "7"}), Call("lookup", {"order": "none"})])


@pytest.mark.anyio
async def test_a_script_plays_through_any_agent() -> None:
    """Calls, what came of them, instructions and tools, in an agent that has no Handrail in it."""
    came = {"call-1": Outcome.ok("3 books"), "call-2": Outcome.failed('no order "none"')}
    expect = Expect(instructions=["Refund desk."], tools=["lookup"], messages=came)
    with ScriptedModel([LOOK_UP, Reply(text="Three books.", expect=expect)]) as model:
        result = await agent(model).run("What is order 7?")
    assert result.output == "Three books."


@pytest.mark.anyio
async def test_a_script_plays_as_a_stream() -> None:
    """Text comes line by line, calls after it."""
    came = Expect(messages={"call-1": Outcome.ok("3 books")})
    model = ScriptedModel([LOOK_UP, Reply(text="Three\nbooks.", expect=came)])
    async with agent(model).run_stream("What is order 7?") as stream:
        pieces = [piece async for piece in stream.stream_text(delta=True, debounce_by=None)]
    assert pieces == ["Three\n", "books."]
    model.assert_finished()


@pytest.mark.anyio
@pytest.mark.parametrize("written", ['{"order": "7", "order": "8"}', '{"order": "7"', "{}", ""])
async def test_a_stream_has_the_arguments_as_the_script_writes_them(written: str) -> None:
    """A provider sends text, whatever is wrong with it."""
    with ScriptedModel([Reply(calls=[Call("lookup", written)]), Reply(text="Done.")]) as model:
        async with agent(model).run_stream("What is order 7?") as stream:
            await stream.get_output()
    (call,) = next(message.tool_calls for message in stream.all_messages() if isinstance(message, ModelResponse))
    assert call.args == written


@pytest.mark.anyio
async def test_a_structured_answer_is_given_in_the_way_that_is_asked_for() -> None:
    """As the call of the output tool, or as text where the agent takes none."""
    replies = [Reply(output={"order": "7", "cents": 1999})]
    refund = await Agent(ScriptedModel(replies), output_type=Refund).run("Refund.")
    assert refund.output == Refund("7", 1999)
    text = await Agent(ScriptedModel(replies)).run("Refund.")
    assert text.output == '{"order": "7", "cents": 1999}'
    async with Agent(ScriptedModel(replies), output_type=Refund).run_stream("Refund.") as structured:
        assert await structured.get_output() == Refund("7", 1999)
    async with Agent(ScriptedModel(replies)).run_stream("Refund.") as plain:
        assert await plain.get_output() == '{"order": "7", "cents": 1999}'


@pytest.mark.anyio
async def test_an_answer_that_is_refused_is_sent_back_as_a_failure() -> None:
    """The ids of answers are the same in each run."""
    sent_back = Expect(messages={"answer-1": Outcome.failed("cents")})
    replies = [Reply(output={"order": "7"}), Reply(output={"order": "7", "cents": 1}, expect=sent_back)]
    with ScriptedModel(replies) as model:
        await Agent(model, output_type=Refund).run("Refund.")


@pytest.mark.anyio
async def test_usage_is_reported_as_the_script_says() -> None:
    """Without any, PydanticAI estimates it from the words."""
    result = await agent(ScriptedModel([Reply(text="Yes.", usage=TokenUsage(10, 3, 4))])).run("Well?")
    usage = result.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (10, 3, 4)
    estimated = await agent(ScriptedModel([Reply(text="Yes.")])).run("Well?")
    assert estimated.usage.output_tokens > 0


@pytest.mark.anyio
async def test_a_disagreement_leaves_the_run_as_it_is(wording: Wording) -> None:
    """No agent takes it for a fault of the model."""
    model = ScriptedModel([LOOK_UP, Reply(text="Done.", expect=Expect(messages={"call-1": Outcome.failed()}))])
    with raises(ScriptError, wording):
        await agent(model).run("What is order 7?")


@pytest.mark.anyio
async def test_leaving_the_block_makes_sure_that_the_script_was_played(wording: Wording) -> None:
    """Unless something else went wrong, which is not to be hidden."""
    with raises(ScriptError, wording), ScriptedModel([Reply(text="a"), Reply()]) as model:
        await agent(model).run("Well?")
    with pytest.raises(ValueError, match="else"), ScriptedModel([Reply()]):
        raise ValueError("something else")


@pytest.mark.anyio
async def test_a_model_plays_a_file(tmp_path: Path) -> None:
    """Faults are told with the name of the file."""
    file = tmp_path / "desk.yaml"
    file.write_text("replies: [{calls: [{name: lookup, arguments: {order: '7'}}]}, {text: Done.}]", encoding="utf-8")
    with ScriptedModel.from_file(file, name="desk") as model:
        assert (await agent(model).run("Well?")).output == "Done."
    assert model.model_name == "desk"
    file.write_text("replies: 1", encoding="utf-8")
    with pytest.raises(ScriptError, match=r"desk\.yaml:1:10"):
        ScriptedModel.from_file(str(file))


@pytest.mark.parametrize("missing", ["pydantic_ai.messages", "ruamel.yaml"])
def test_a_missing_extra_is_named(missing: str, monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """The error says what to install."""
    for module in ("serde.document", "testing.script_file", "testing.scripted_model"):
        monkeypatch.delitem(sys.modules, f"handrail.{module}", raising=False)
    monkeypatch.delattr("handrail.serde.document", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with raises(ImportError, wording):
        importlib.import_module("handrail.testing.scripted_model")
