"""`handrail.testing.script`: a script, and its playback against the calls of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ScriptError
from handrail.prompt import MarkdownSection, Prompt, PromptTemplate, Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolMessage
from handrail.testing import Call, Expect, Outcome, Reply, Script, play, play_async
from handrail.testing.script import Playback, SentMessage, SentMessages
from tests.wording import Wording


def ids(script: Script) -> list[list[str]]:
    """The ids of the calls of each reply."""
    return [[call.id for call in reply.calls] for reply in script.replies]


def test_calls_are_numbered_by_their_place_in_the_script() -> None:
    """A run gets the same ids each time; an id that is given counts as a place all the same."""
    script = Script([Reply(calls=[Call("a"), Call("b", id="mine")]), Reply(text="Hm."), Reply(calls=[Call("c")])])
    assert ids(script) == [["call-1", "mine"], [], ["call-3"]]


def test_arguments_are_sent_as_text() -> None:
    """As a provider sends them; text goes as it is, so that it need not be JSON."""
    assert Call("a", {"path": "é"}).arguments_text == '{"path": "\\u00e9"}'
    assert Call("a", '{"path": ').arguments_text == '{"path": '
    assert Call("a").arguments_text == "{}"


BARE: list[Any] = [Reply(text="Hm."), "Done."]
NO_JSON = [Reply(calls=[Call("a", {"at": datetime(2026, 1, 1, tzinfo=UTC)})])]

REFUSALS: dict[str, tuple[Callable[[], object], int | None]] = {
    "two calls of one id": (
        lambda: Script([Reply(calls=[Call("a", id="x")]), Reply(calls=[Call("b", id="x")])], name="desk"),
        2,
    ),
    "within a call of its own": (
        lambda: Script([Reply(text="Hm."), Reply(calls=[Call("a", id="x")], within="x")], name="desk"),
        2,
    ),
    "arguments without JSON": (lambda: Script(NO_JSON), 1),
    "a bare text": (lambda: Script(BARE), 2),
    **{
        name: (partial(Expect, **dict[str, Any]({name: "read_file"})), None)
        for name in ("instructions", "tools", "texts")
    },
}
"""Scripts that could not be played as they are written: the reply at fault, counted from 1."""


@pytest.mark.parametrize("what", REFUSALS)
def test_script_that_cannot_be_played_is_refused(what: str, wording: Wording) -> None:
    """When it is made, with the reply at fault."""
    make, step = REFUSALS[what]
    with pytest.raises(ScriptError) as caught:
        make()
    assert (str(caught.value), caught.value.step) == (wording, step)
    assert isinstance(caught.value.__cause__, TypeError) == (what == "arguments without JSON")


SENT = SentMessages("Refund desk.", ("read", "write"), (SentMessage("call-1", "three rows", True),))


@dataclass(frozen=True)
class Text:
    text: str

    def render(self) -> str:
        return self.text


def echo(params: Text, *, context: ToolContext) -> ToolResult[Text]:
    """Say it again."""
    return ToolResult.ok(params) if params.text else ToolResult.error("there is nothing to say")


def executor() -> ToolExecutor:
    """One tool, and a text about it."""
    tool = Tool[Text, Text](name="echo", description="Say it again.", handler=echo)
    section = MarkdownSection(title="Echo", template="Say things twice.", tools=[tool])
    prompt = Prompt(PromptTemplate[str](ns="tests", key="echo", sections=[section]))
    return ToolExecutor(prompt=prompt, session=Session())


def next_with(expect: Expect) -> Reply:
    """The reply of a script that expects this of `SENT`."""
    return Playback(Script([Reply(text="Yes.", expect=expect)])).next(SENT)


def test_a_script_that_finds_what_it_expects_gives_its_reply() -> None:
    """Everything that can be expected, and found."""
    messages = {"call-1": Outcome.ok("three", "rows")}
    expect = Expect(instructions=["Refund"], tools=["read"], texts=["three"], messages=messages)
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
    with pytest.raises(ScriptError) as caught:
        next_with(expect)
    assert (str(caught.value), caught.value.step) == (wording, 1)


def refused(playback: Playback, received: SentMessages) -> str:
    """The error of the next reply."""
    with pytest.raises(ScriptError) as caught:
        playback.next(received)
    return str(caught.value)


def test_calls_without_an_answer_are_reported(wording: Wording) -> None:
    """A loop that drops a call breaks the contract with the model."""
    playback = Playback(Script([Reply(calls=[Call("read"), Call("write")]), Reply(text="Done.")]))
    playback.next(SentMessages())
    assert refused(playback, SENT) == wording
    assert refused(playback, SentMessages()) == wording
    long = Playback(Script([Reply(calls=[Call("read", id="x" * 1_000_000)]), Reply(text="Done.")]))
    long.next(SentMessages())
    assert len(refused(long, SentMessages())) < 1_000


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


def test_calls_of_an_agent_called_as_a_tool_are_answered_too(wording: Wording) -> None:
    """The contract holds in each conversation by itself."""
    nested = Reply(calls=[Call("read", id="look")], within="ask")
    replies = [
        Reply(calls=[Call("analyst", id="ask")]),
        nested,
        Reply(text="Three.", within="ask"),
        Reply(text="Done."),
    ]
    playback = Playback(Script(replies))
    playback.next(SentMessages())
    playback.next(SentMessages())
    assert refused(playback, SentMessages()) == wording
    playback.next(SentMessages(messages=(SentMessage("look", "1, 2, 3", True),)))
    assert refused(playback, SentMessages()) == wording


def test_run_and_script_end_together(wording: Wording) -> None:
    """A run that goes on is told what it was sent last, one that ends before the script which replies are left."""
    playback = Playback(Script([Reply(text="Done.")], name="desk.yaml"))
    playback.next(SentMessages())
    assert refused(playback, SENT) == wording
    assert refused(playback, SentMessages()) == wording
    playback = Playback(Script([Reply(text="Hm."), Reply(calls=[Call("read"), Call("write")]), Reply(text="Done.")]))
    playback.next(SentMessages())
    with pytest.raises(ScriptError) as caught:
        playback.assert_finished()
    assert (str(caught.value), caught.value.step) == (wording, 2)


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
    assert [(message.call_id, message.success) for message in messages] == [
        ("call-1", True),
        ("bad", False),
        ("call-3", False),
    ]


@pytest.mark.parametrize(
    "replies",
    [[Reply(calls=[Call("echo", {"text": "hello"})])], [Reply(text="Done."), Reply(text="Or not.")]],
    ids=["without an answer", "with two answers"],
)
def test_one_answer_ends_a_script(replies: list[Reply], wording: Wording) -> None:
    """As with a model, whose loop would ask again, or stop at the first one."""
    with pytest.raises(ScriptError) as raised:
        play(Script(replies), executor())
    assert str(raised.value) == wording


def test_a_script_is_played_again_on_one_session_under_another_name() -> None:
    """Under the same name its calls are answered from their records: it goes on where it was interrupted."""
    script = Script([Reply(calls=[Call("echo", {"text": "x"})]), Reply(text="Done.")])
    door = executor()
    assert [[message.replayed for message in play(script, door, reply=name)] for name in ("a", "b", "a")] == [
        [False],
        [False],
        [True],
    ]
    again = asyncio.run(play_async(script, door, reply="b"))
    assert [message.replayed for message in again] == [True]
