"""`handrail.adapters.pydantic_ai.toolset`: what an agent is offered, and how its calls reach the pipeline."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    RunContext,
    RunUsage,
    ToolCallPart,
    ToolDefinition,
    UnexpectedModelBehavior,
)
from pydantic_ai.capabilities import AbstractCapability, ValidatedToolArgs
from pydantic_ai.messages import InstructionPart, ModelResponse, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from handrail import tool
from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, ToolContext
from handrail.runtime import Session, ToolInvoked
from handrail.testing import Call, Expect, Outcome, Reply, ScriptedModel
from tests.adapters.notes import ADD_NOTE, READ_NOTES, Note, noted, notes_prompt
from tests.wording import Wording

CONTEXT: RunContext[Any] = RunContext(deps=None, model=TestModel(), usage=RunUsage())


def toolset_of(session: Session | None = None, name: str | None = None) -> HandrailToolset:
    """A toolset of two tools."""
    prompt = notes_prompt(tools=(ADD_NOTE, READ_NOTES))
    return HandrailToolset(ToolExecutor(prompt=prompt, session=session or Session()), id=name)


@pytest.mark.anyio
async def test_tools_are_offered_in_the_order_of_their_declaration(wording: Wording) -> None:
    """The model gets names, descriptions with examples, and the schema that arguments are parsed by."""
    tools = await toolset_of().get_tools(CONTEXT)
    assert list(tools) == ["add_note", "read_notes"]
    assert tools["add_note"].tool_def == ToolDefinition(
        name="add_note",
        description=wording,
        parameters_json_schema=ADD_NOTE.parameters_schema,
        metadata={"effect": "state", "handrail": "add_note"},
        sequential=True,
        return_schema={"type": "string"},
        toolset_id="tests/notes",
    )
    assert tools["read_notes"].tool_def.description == wording


@pytest.mark.anyio
async def test_a_definition_says_what_is_returned_and_how_it_runs() -> None:
    """A read runs beside others, the time is that of the tool, and the schema is that of what the model reads."""

    @tool(effect="read", timeout=timedelta(seconds=90))
    def count() -> dict[str, int]:
        return {}

    @tool
    def reset() -> None: ...

    prompt = notes_prompt(tools=(count, reset))
    tools = await HandrailToolset(ToolExecutor(prompt=prompt, session=Session())).get_tools(CONTEXT)
    reads, writes = (tools[name].tool_def for name in ("count", "reset"))
    assert (reads.sequential, reads.timeout) == (False, 90.0)
    assert reads.return_schema == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert (writes.sequential, writes.timeout, writes.return_schema) == (True, None, None)
    # A capability keeps the order itself, and lets a call wait for no slow tool of others.
    capability = HandrailCapability(ToolExecutor(prompt=prompt, session=Session()))
    assert not any(each.tool_def.sequential for each in (await capability.toolset.get_tools(CONTEXT)).values())


@pytest.mark.anyio
async def test_reads_run_together_and_a_write_alone_in_the_order_asked() -> None:
    """What PydanticAI makes of `sequential` is the order of turns."""
    session, met = Session(), asyncio.Barrier(2)

    @tool(effect="read")
    async def look(context: ToolContext) -> int:
        await met.wait()  # the other one is there, too
        return len(context.session[Note])

    prompt = notes_prompt(tools=(look, ADD_NOTE))
    toolset = HandrailToolset(ToolExecutor(prompt=prompt, session=session))
    looks = [Call("look"), Call("look")]
    calls = [*looks, Call("add_note", {"text": "milk"}), *looks]
    with ScriptedModel([Reply(calls=calls), Reply(text="Done.")]) as model:
        await Agent(model, toolsets=[toolset]).run("Look.")
    assert [event.result.value for event in session[ToolInvoked]] == [0, 0, Note("milk"), 1, 1]


def test_a_toolset_is_named_after_its_prompt_unless_it_is_given_a_name() -> None:
    """Two toolsets of one prompt in one agent need two names."""
    assert toolset_of().id == "tests/notes"
    assert toolset_of(name="desk").id == "desk"


@pytest.mark.anyio
async def test_the_text_of_the_prompt_becomes_instructions(wording: Wording) -> None:
    """Guidance and tools come together; a prompt without text adds none."""
    assert await toolset_of().get_instructions(CONTEXT) == InstructionPart(wording)
    silent = Prompt(PromptTemplate[str](ns="tests", key="silent", sections=[]))
    toolset = HandrailToolset(ToolExecutor(prompt=silent, session=Session()))
    assert await toolset.get_instructions(CONTEXT) is None


@pytest.mark.anyio
async def test_a_success_returns_its_text_and_says_aside_whether_it_was_replayed() -> None:
    """The model reads what the result renders; the metadata stays in the application."""
    session = Session()
    model = ScriptedModel([Reply(calls=[Call("add_note", {"text": "milk"})]), Reply(text="Done.")])
    result = await Agent(model, toolsets=[toolset_of(session)]).run("Note milk.")
    (part,) = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert (part.content, part.outcome, part.metadata) == ("noted: milk", "success", {"replayed": False})
    assert noted(session) == ["milk"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"text": ', id="malformed", marks=pytest.mark.requirement("M-06a")),
        pytest.param('{"text": 7}', id="wrong type", marks=pytest.mark.requirement("M-06e")),
        pytest.param("[]", id="no object"),
    ],
)
async def test_wrong_arguments_are_a_failed_return_and_spend_no_retry(arguments: str, wording: Wording) -> None:
    """The pipeline tells what is wrong, any number of times; PydanticAI neither retries nor ends the run."""
    session = Session()
    wrong = [Reply(calls=[Call("add_note", arguments)]) for _ in range(3)]
    end = Reply(text="I give up.", expect=Expect(messages={"call-3": Outcome.failed()}))
    with ScriptedModel([*wrong, end]) as model:
        await Agent(model, toolsets=[toolset_of(session)], retries=0).run("Note milk.")
    assert [event.success for event in session[ToolInvoked].all()] == [False, False, False]
    assert session[ToolInvoked].all()[2].result.message == wording


@pytest.mark.anyio
@pytest.mark.parametrize("arguments", [{"text": "milk"}, {"text": 7}, {}])
async def test_arguments_that_a_provider_has_decoded_are_parsed_as_strictly(arguments: dict[str, Any]) -> None:
    """Some providers send objects instead of text."""
    session = Session()
    replies = iter([ModelResponse([ToolCallPart("add_note", arguments, "call-1")]), ModelResponse([])])

    async def reply(messages: list[Any], info: AgentInfo) -> ModelResponse:
        return next(replies)

    agent = Agent(FunctionModel(reply), toolsets=[toolset_of(session)], output_type=[str, type(None)])
    await agent.run("Note milk.")
    assert noted(session) == (["milk"] if arguments == {"text": "milk"} else [])
    assert len(session[ToolInvoked].all()) == 1


class Hooks(AbstractCapability[Any]):
    """Somebody else's hook: it sees the arguments, and may change them."""

    def __init__(self, changed: dict[str, Any] | None = None) -> None:
        self.seen: list[dict[str, Any]] = []
        self.changed = changed

    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        self.seen.append(args)
        if self.changed is not None:
            args.update(self.changed)
        return args


@pytest.mark.anyio
async def test_hooks_of_others_see_decoded_arguments_and_may_change_them() -> None:
    """A gate can show what is asked for; what it changes is what is run."""
    for changed, kept in ((None, "milk"), ({"text": "bread"}, "bread")):
        session = Session()
        hooks = Hooks(changed)
        model = ScriptedModel([Reply(calls=[Call("add_note", {"text": "milk"})]), Reply(text="Done.")])
        await Agent(model, toolsets=[toolset_of(session)], capabilities=[hooks]).run("Note milk.")
        assert hooks.seen == [{"text": kept}]
        assert noted(session) == [kept]


@pytest.mark.anyio
async def test_the_bare_toolset_leaves_unknown_names_to_pydantic_ai() -> None:
    """No toolset is asked about a name that it does not offer; `HandrailCapability` is what helps."""
    session = Session()
    model = ScriptedModel([Reply(calls=[Call("add_notes")]), Reply(calls=[Call("add_notes")])])
    with pytest.raises(UnexpectedModelBehavior):
        await Agent(model, toolsets=[toolset_of(session)]).run("Note milk.")
    assert session[ToolInvoked].all() == ()
    assert session[Note].all() == ()
