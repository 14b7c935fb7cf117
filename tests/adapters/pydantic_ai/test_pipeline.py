"""`PipelineCapability`: every call of an agent takes the pipeline, is postponed, and is resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from pydantic import Strict
from pydantic_ai import Agent, ToolOutput
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls, ValidatedToolArgs
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.toolsets import FunctionToolset

from handrail.errors import CallPostponed, PromptValidationError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Approval, ApprovalRequest, PolicyDecision, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, Step, ToolCall
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.adapters.kit import (
    ADD_NOTE,
    DONE,
    call_by_hand,
    called,
    context,
    events,
    noted,
    outcomes,
    pipeline,
    play,
    resume,
    returns,
    write,
)
from tests.kit import ASKS as ASKS_FIRST
from tests.kit import raises
from tests.wording import Wording

pytestmark = pytest.mark.anyio


async def jot(text: str, size: Annotated[int, Strict()] = 1) -> str:
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
    with raises(PromptValidationError, wording):
        await Agent(ScriptedModel([DONE]), tools=[tool], capabilities=[pipeline(Session())]).run("Do it.")


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
    before, shown_text = events(session), returns(first.all_messages())
    assert len(before) == len({event.ref for event in before}) == 7
    again = await resume(pipeline(session, ADD_NOTE), first.all_messages(), tools=tools)
    assert events(session) == before
    assert asked == ["count", "x"]
    assert noted(session) == ["milk"]
    for call_id, part in returns(again.all_messages()).items():
        assert (part.content, part.outcome) == (shown_text[call_id].content, shown_text[call_id].outcome)
        assert part.metadata == ({"replayed": True} if part.outcome == "success" else None)


async def test_a_stream_takes_the_pipeline_too() -> None:
    """`run_stream` goes the same way as `run`."""
    session = Session()
    script = called(Call("jot", {"text": "milk"}), Call("jot", {"text": 7}), Call("jto"))
    agent = Agent(ScriptedModel(script), tools=[jot], capabilities=[pipeline(session)])
    async with agent.run_stream("Do it.") as stream:
        assert await stream.get_output() == "Done."
    assert sorted(outcomes(session)) == [("c1", True, None), ("c2", False, Step.PARSE), ("c3", False, Step.LOOK_UP)]


async def asks(ctx: RunContext[Any], text: str) -> str:
    """Write, and want to be approved."""
    write(text)
    if not ctx.tool_call_approved:
        raise ApprovalRequired(metadata={"why": "it costs"})
    return f"asked {text}"


async def guarded(text: str) -> str:
    """Write."""
    write(text)
    return f"asked {text}"


class HoldUp(AbstractCapability[Any]):
    """A gate of somebody else, at the place where arguments have been validated."""

    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return args


ASKS: dict[str, Callable[[], dict[str, Any]]] = {
    "the tool raises": lambda: {"tools": [Tool(asks, name="ask")]},
    "a hook raises": lambda: {"tools": [Tool(guarded, name="ask")], "capabilities": [HoldUp()]},
    "requires_approval": lambda: {"tools": [Tool(guarded, name="ask", requires_approval=True)]},
    "approval_required()": lambda: {"toolsets": [FunctionToolset([Tool(guarded, name="ask")]).approval_required()]},
    "all at once": lambda: {
        "toolsets": [FunctionToolset([Tool(asks, name="ask", requires_approval=True)]).approval_required()],
        "capabilities": [HoldUp()],
    },
}


@pytest.mark.requirement("S-12a", "A-31")
@pytest.mark.parametrize("answer", [ToolApproved(), ToolDenied("too dear")])
@pytest.mark.parametrize("agent", ASKS.values(), ids=ASKS)
async def test_an_approval_in_the_run_is_asked_once_and_the_call_recorded_once(agent: Any, answer: Any) -> None:
    """Whatever asks, and however often it would: what it did before is undone, and what it does after is kept.

    PydanticAI answers a call that is denied: it did not happen, and there is nothing to record.
    """
    session, asked, approved = Session(), list[str](), isinstance(answer, ToolApproved)

    async def decide(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        asked.extend(call.tool_call_id for call in requests.approvals)
        return requests.build_results(approvals={call.tool_call_id: answer for call in requests.approvals})

    options: dict[str, Any] = agent()
    options["capabilities"] = [*options.get("capabilities", ()), HandleDeferredToolCalls(decide)]
    came = Outcome.ok("asked milk") if approved else Outcome.failed("too dear")
    await play(pipeline(session), called(Call("ask", {"text": "milk"}), c1=came), **options)
    assert asked == ["c1"]
    assert outcomes(session) == ([("c1", True, None)] if approved else [])
    assert noted(session) == (["milk"] if approved else [])


@pytest.mark.requirement("S-12a", "A-31")
@pytest.mark.parametrize("agent", ASKS.values(), ids=ASKS)
async def test_a_run_that_ends_with_an_open_question_goes_on_later(agent: Any) -> None:
    """The siblings of the call stand; with the approval, another run carries out what was put off, and only that."""
    session = Session()
    options: dict[str, Any] = {"tools": [], "toolsets": [], "capabilities": [], **agent()}
    options["tools"] = [*options["tools"], Tool(scribble)]
    options["output_type"] = [str, DeferredToolRequests]
    options["capabilities"] = [*options["capabilities"], pipeline(session)]
    first, _ = called(Call("ask", {"text": "milk"}), Call("scribble", {"text": "bread"}))
    waiting = await Agent(ScriptedModel([first]), **options).run("Do it.")
    assert isinstance(waiting.output, DeferredToolRequests)
    approvals = {call.tool_call_id: True for call in waiting.output.approvals}
    before = [call_id for call_id, *_ in outcomes(session)]
    assert "c1" not in before
    assert "milk" not in noted(session)
    results = DeferredToolResults(approvals={**approvals})
    done = await Agent(ScriptedModel([DONE]), **options).run(
        message_history=waiting.all_messages(), deferred_tool_results=results
    )
    assert done.output == "Done."
    assert sorted(outcomes(session)) == [("c1", True, None), ("c2", True, None)]
    assert sorted(noted(session)) == ["bread", "milk"]


async def scribble(ctx: RunContext[Any], text: str) -> str:
    """Write."""
    write(text)
    return text


@pytest.mark.requirement("S-12a")
@pytest.mark.parametrize("kind", [CallDeferred, ApprovalRequired])
async def test_what_a_postponed_call_has_done_is_undone(kind: Callable[[], Exception]) -> None:
    """Session and files are as before, its effect is claimed by nobody, and PydanticAI reads the same exception."""
    session, ledger = Session(), EffectLedger()
    store = InMemoryFilesystem({"note.txt": "before"})
    postponed = kind()

    async def later(order_id: str) -> str:
        write("half")
        store.write_text("note.txt", "half")
        keys.append(context().idempotency_key)
        raise postponed

    keys: list[str | None] = []
    once = IdempotencyConfig(strategy="params", param_keys=("order_id",))
    toolset = FunctionToolset[Any]([Tool(later, metadata={"effect": "external", "idempotency": once})])
    capability = pipeline(session, resources={Filesystem: store}, effect_ledger=ledger)
    for _ in range(2):
        with pytest.raises(type(postponed)) as failure:
            await call_by_hand(capability, toolset, "later", order_id="7")
        assert failure.value is postponed
    assert (events(session), noted(session), store.read_text("note.txt")) == ((), [], "before")
    assert session.turn.queue == []
    assert keys[0] == keys[1] is not None


async def later(request: ApprovalRequest) -> Approval:
    """Nobody is there to answer."""
    raise CallPostponed("nobody is there")


@pytest.mark.requirement("S-12a")
@pytest.mark.parametrize("own", [False, True], ids=["foreign", "Handrail's own"])
async def test_an_approver_may_put_a_call_off(own: bool) -> None:
    """The run ends with the open question, and not with an error; nothing has run."""
    session = Session()
    policies: dict[str, Any] = {"own_policies" if own else "policies": [ASKS_FIRST]}
    asking = pipeline(session, ADD_NOTE, approver=later, **policies)
    reply, _ = called(Call("add_note" if own else "guarded", {"text": "milk"}))
    output: Any = [str, DeferredToolRequests]
    agent = Agent(ScriptedModel([reply]), tools=[guarded], capabilities=[asking], output_type=output)
    result = await agent.run("Do it.")
    assert isinstance(result.output, DeferredToolRequests)
    assert [call.tool_call_id for call in result.output.approvals] == ["c1"]
    assert (events(session), noted(session), session.turn.queue) == ((), [], [])


@dataclass
class Sum:
    """A structured answer."""

    total: int


async def doodle(text: str) -> str:
    """What there was."""
    if text == "fail":
        raise ToolFailed("doodle refuses")
    return f"jotted {text}"


async def first_run(session: Session) -> list[ModelMessage]:
    """A run with a success and a failure, and what was said in it."""
    calls = called(Call("doodle", {"text": "milk"}), Call("doodle", {"text": "fail"}))
    return (await play(pipeline(session), calls, tools=[doodle])).all_messages()


def history(messages: list[ModelMessage], *calls: tuple[str, str]) -> list[ModelMessage]:
    """What ends with the first reply of these messages, which asks for more calls: names and ids."""
    more = [ToolCallPart(name, {"text": "milk"}, tool_call_id=call_id) for name, call_id in calls]
    reply = messages[1]
    assert isinstance(reply, ModelResponse)
    return [messages[0], replace(reply, parts=[*reply.parts, *more])]


SAID = {"c1": ("jotted milk", "success"), "c2": ("doodle refuses", "failed")}


async def test_a_recorded_call_is_answered_although_its_arguments_fit_no_longer() -> None:
    """The schema and the validator are others by now: a success stays one, and so does a failure."""
    session = Session()
    said = await first_run(session)
    before, reply = events(session), said[1]
    assert isinstance(reply, ModelResponse)

    async def doodle_anew(text: int) -> str:
        raise AssertionError(text)

    def fussy(ctx: RunContext[object], text: str) -> None:
        raise ModelRetry("not like that")

    result = await resume(pipeline(session), said, tools=[Tool(doodle_anew, name="doodle")])
    assert {name: (part.content, part.outcome) for name, part in returns(result.all_messages()).items()} == SAID
    said[1] = replace(reply, parts=[part for part in reply.tool_calls if part.tool_call_id == "c1"])
    result = await resume(pipeline(session), said, tools=[Tool(doodle, args_validator=fussy)])
    assert returns(result.all_messages())["c1"].content == "jotted milk"
    assert events(session) == before


async def test_a_recorded_call_is_answered_although_its_tool_is_gone() -> None:
    """From the record, as success or failure; a missing call of that name is refused and recorded, once."""
    session = Session()
    said = await first_run(session)
    before = events(session)
    capability = pipeline(session, ADD_NOTE)
    offered: list[str] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.extend(tool.name for tool in info.function_tools)
        return ModelResponse(parts=[TextPart("Done.")])

    agent = Agent(FunctionModel(reply), capabilities=[capability], output_type=[str, ToolOutput(Sum)])
    asked = history(said, ("doodle", "c3"), ("gone", "c4"))
    result = await agent.run(message_history=asked)
    assert offered == ["add_note"]
    found = returns(result.all_messages())
    assert {name: (found[name].content, found[name].outcome) for name in SAID} == SAID
    for call_id in ("c3", "c4"):
        assert found[call_id].outcome == "failed"
        assert "add_note" in str(found[call_id].content)
    assert events(session)[: len(before)] == before
    assert outcomes(session)[len(before) :] == [("c3", False, Step.LOOK_UP), ("c4", False, Step.LOOK_UP)]
