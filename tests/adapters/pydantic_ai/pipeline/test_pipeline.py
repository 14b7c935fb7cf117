"""`handrail.adapters.pydantic_ai.pipeline`: every call of an agent, whoever its tool belongs to, takes the pipeline."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolDefinition, ToolFailed
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset

from handrail.adapters.pydantic_ai import HandrailToolset
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptValidationError
from handrail.prompt import PolicyDecision, ToolContext, ToolResult
from handrail.runtime import Session, Step, ToolCall
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.adapters.foreign_desk import DONE, called, events, outcomes, pipeline, play, resume, returns, write
from tests.adapters.notes import ADD_NOTE, noted, notes_prompt
from tests.wording import Wording

pytestmark = pytest.mark.anyio


async def jot(text: str, size: int = 1) -> str:
    """A foreign tool that writes."""
    write(text)
    return f"jotted {text}"


async def test_arguments_that_do_not_fit_are_told_with_every_fault_and_spend_no_retry(wording: Wording) -> None:
    """Three wrong calls in a row are answered, each recorded once at step 2, and the fourth one runs."""
    session = Session()
    replies = [
        Reply(calls=[Call("jot", {"text": 7, "size": "big"})]),
        Reply(calls=[Call("jot", "{")], expect=Expect(messages={"call-1": Outcome.failed("$.text", "$.size")})),
        Reply(calls=[Call("jot", {})], expect=Expect(messages={"call-2": Outcome.failed()})),
        Reply(calls=[Call("jot", {"text": "milk"})], expect=Expect(messages={"call-3": Outcome.failed("$.text")})),
        DONE,
    ]
    await play(pipeline(session), replies, tools=[jot], retries=0)
    assert outcomes(session) == [
        ("call-1", False, Step.PARSE),
        ("call-2", False, Step.PARSE),
        ("call-3", False, Step.PARSE),
        ("call-4", True, None),
    ]
    first, second = events(session)[:2]
    assert [first.result.message, second.result.message] == [wording, wording]
    assert (first.params, second.call.arguments) == (None, "{")
    assert noted(session) == ["milk"]


async def test_a_validator_of_the_tools_own_asks_for_a_retry(wording: Wording) -> None:
    """The call is recorded as refused for its arguments, and PydanticAI counts the retry."""

    def no_secrets(ctx: RunContext[Any], text: str) -> None:
        if text == "secret":
            raise ModelRetry("no secrets")

    async def tell(text: str) -> str:
        return text

    session = Session()
    replies = [Reply(calls=[Call("tell", {"text": "secret"})]), Reply(calls=[Call("tell", {"text": "milk"})]), DONE]
    result = await play(pipeline(session), replies, tools=[Tool(tell, args_validator=no_secrets)])
    assert returns(result.all_messages())["call-1"].outcome == "retried"
    assert outcomes(session) == [("call-1", False, Step.PARSE), ("call-2", True, None)]
    assert events(session)[0].result.message == wording


async def test_an_unknown_name_is_answered_with_the_names_of_all_tools(wording: Wording) -> None:
    """Handrail's own, functions, toolsets and external tools, each once; structured answers are no tools."""
    session = Session()
    external = ExternalToolset[Any]([ToolDefinition(name="elsewhere")])
    refused = Outcome.failed("add_note, jot, desk_jot, elsewhere")
    script = [
        Reply(calls=[Call("jott", {"text": "x"})]),
        Reply(calls=[Call("jott", "{")], expect=Expect(messages={"call-1": refused})),
        Reply(calls=[Call("final_result", {"response": 7})], expect=Expect(messages={"call-2": refused})),
    ]
    toolsets = [FunctionToolset([jot]).prefixed("desk"), external]
    capability = pipeline(session, ADD_NOTE)
    result = await play(capability, script, tools=[jot], toolsets=toolsets, retries=0, output_type=int)
    assert result.output == 7
    assert outcomes(session) == [("call-1", False, Step.LOOK_UP), ("call-2", False, Step.LOOK_UP)]
    assert [event.call.arguments for event in events(session)] == ['{"text": "x"}', "{"]
    assert [event.result.message for event in events(session)] == [wording, wording]


@dataclass(frozen=True)
class Rule:
    """Denies one text, and remembers what succeeded."""

    remembered: list[str]
    name: str = "rule"

    def check(self, tool: Any, params: Any, *, context: ToolContext) -> PolicyDecision:
        return PolicyDecision.deny("not that") if params["text"] == "secret" else PolicyDecision.allow()

    def on_result(self, tool: Any, params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:
        if params["text"] == "odd":
            raise ValueError("cannot remember")
        self.remembered.append(f"{tool.name} {result.value}")


async def test_policies_judge_foreign_calls_and_hear_of_their_results(wording: Wording) -> None:
    """A denial is told; a policy that cannot take the result undoes the call, whatever the function returned."""
    rule, session = Rule([]), Session()
    calls = [Call("jot", {"text": text}) for text in ("milk", "secret", "odd")]
    came = {"c1": Outcome.ok("jotted milk"), "c2": Outcome.failed(), "c3": Outcome.failed("cannot remember")}
    result = await play(pipeline(session, policies=[rule]), called(*calls, **came), tools=[jot])
    contents = returns(result.all_messages())
    assert [contents["c2"].content, contents["c3"].content] == [wording, wording]
    assert rule.remembered == ["jot jotted milk"]
    assert noted(session) == ["milk"]
    assert [step for _, _, step in outcomes(session)] == [None, Step.POLICY, Step.APPLY]


async def test_metadata_that_nobody_understands_stops_the_run_before_the_model_is_asked(wording: Wording) -> None:
    """A misspelt effect must not become the default one."""
    tool = Tool(jot, metadata={"effect": "raed"})
    with pytest.raises(PromptValidationError) as raised:
        await Agent(ScriptedModel([DONE]), tools=[tool], capabilities=[pipeline(Session())]).run("Do it.")
    assert str(raised.value) == wording


async def test_a_call_made_inside_a_foreign_one_is_undone_with_it() -> None:
    """It joins the turn of its caller, and is a part of its transaction."""
    session = Session()
    capability = pipeline(session, ADD_NOTE)

    async def both(fail: bool) -> str:
        message = await capability.executor.execute_async(ToolCall("inner", "add_note", {"text": f"{fail}"}))
        if fail:
            raise RuntimeError("after all")
        return message.content

    script = called(Call("both", {"fail": True}), Call("both", {"fail": False}), c2=Outcome.ok("noted: False"))
    await play(capability, script, tools=[both])
    assert noted(session) == ["False"]


async def test_tools_of_another_executor_reach_the_pipeline_once() -> None:
    """A toolset of Handrail's own knows its way, under whatever name it is offered."""
    session = Session()
    other = HandrailToolset(ToolExecutor(prompt=notes_prompt(tools=(ADD_NOTE,)), session=session), id="other")
    script = called(Call("their_add_note", {"text": "milk"}), c1=Outcome.ok("noted: milk"))
    await play(pipeline(session), script, toolsets=[other.prefixed("their")])
    assert [(event.name, event.success) for event in events(session)] == [("add_note", True)]
    assert noted(session) == ["milk"]


async def test_recorded_calls_are_answered_without_running_again() -> None:
    """Foreign and own ones, successes and failures, unknown names and bad arguments: nothing is recorded twice."""
    asked: list[str] = []

    async def fail(text: str) -> str:
        asked.append(text)
        raise ToolFailed(f"{text} is refused")

    async def count() -> dict[str, int]:
        asked.append("count")
        return {"n": 3}

    def fussy(ctx: RunContext[Any]) -> None:
        raise ModelRetry("not like that")

    async def pick() -> str:
        return "picked"

    session = Session()
    calls = [
        Call("add_note", {"text": "milk"}),
        Call("count"),
        Call("fail", {"text": "x"}),
        Call("fail", {"text": 7}),
        Call("nothing"),
        Call("pick"),
        Call("add_note", {"text": 7}),
    ]
    tools = [count, fail, Tool(pick, args_validator=fussy)]
    first = await play(pipeline(session, ADD_NOTE), called(*calls), tools=tools)
    before, told = events(session), returns(first.all_messages())
    assert len(before) == len({event.ref for event in before}) == 7
    again = await resume(pipeline(session, ADD_NOTE), first.all_messages(), tools=tools)
    assert events(session) == before
    assert asked == ["count", "x"]
    assert noted(session) == ["milk"]
    for call_id, part in returns(again.all_messages()).items():
        assert (part.content, part.outcome) == (told[call_id].content, told[call_id].outcome)
        assert part.metadata == ({"replayed": True} if part.outcome == "success" else None)


async def test_a_stream_takes_the_pipeline_too() -> None:
    """`run_stream` goes the same way as `run`."""
    session = Session()
    script = called(Call("jot", {"text": "milk"}), Call("jot", {"text": 7}), Call("jto"))
    agent = Agent(ScriptedModel(script), tools=[jot], capabilities=[pipeline(session)])
    async with agent.run_stream("Do it.") as stream:
        assert await stream.get_output() == "Done."
    assert sorted(outcomes(session)) == [("c1", True, None), ("c2", False, Step.PARSE), ("c3", False, Step.LOOK_UP)]


async def test_runs_of_one_agent_share_the_session() -> None:
    """Side by side, each in a line of its own; every call is recorded once."""
    session = Session()
    capability = pipeline(session, ADD_NOTE)
    calls = called(Call("jot", {"text": "milk"}), Call("add_note", {"text": "milk"}))
    await asyncio.gather(*(play(capability, calls, tools=[jot]) for _ in range(3)))
    assert noted(session) == ["milk"] * 6
    assert len(events(session)) == 6
