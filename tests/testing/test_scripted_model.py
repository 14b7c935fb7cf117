"""`handrail.testing.scripted_model`: a PydanticAI model that plays a script."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic_ai import Agent, ModelResponse, ToolFailed

from handrail.errors import ScriptError
from handrail.limits import TokenUsage
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.wording import Wording


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
    with pytest.raises(ScriptError) as raised:
        await agent(model).run("What is order 7?")
    assert str(raised.value) == wording


@pytest.mark.anyio
async def test_leaving_the_block_makes_sure_that_the_script_was_played(wording: Wording) -> None:
    """Unless something else went wrong, which is not to be hidden."""
    with pytest.raises(ScriptError) as raised, ScriptedModel([Reply(text="a"), Reply()]) as model:
        await agent(model).run("Well?")
    assert str(raised.value) == wording
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
    with pytest.raises(ImportError) as raised:
        importlib.import_module("handrail.testing.scripted_model")
    assert str(raised.value) == wording
