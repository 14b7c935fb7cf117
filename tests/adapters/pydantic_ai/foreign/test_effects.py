"""What foreign tools declare, and what the pipeline makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent, ModelResponse, ModelRetry, Tool, ToolDefinition, ToolFailed, ToolReturn
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.toolsets import FunctionToolset

from handrail.adapters.mcp_hints import hinted_effect
from handrail.adapters.pydantic_ai import PipelineCapability, StoredHistory
from handrail.adapters.pydantic_ai.foreign.calls import ToolMetadata, read_tool_metadata
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import PromptValidationError, SecondStoreError
from handrail.operations.effects import make_finding, settle_effect
from handrail.prompt import External, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, Step
from handrail.store import MemoryStore, SqliteStore
from handrail.testing import Call, Outcome
from tests.adapters.kit import (
    GoneError,
    Note,
    asks,
    call_by_hand,
    called,
    context,
    events,
    model,
    noted,
    outcomes,
    pipeline,
    play,
    returns,
    write,
)
from tests.kit import raises
from tests.wording import Wording

pytestmark = pytest.mark.anyio

ONCE = IdempotencyConfig(strategy="params", param_keys=("order_id",))


def definition(metadata: dict[str, Any] | None = None, *, kind: Any = "function") -> ToolDefinition:
    """A tool `pay` of the one parameter `order_id`."""
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}}
    return ToolDefinition(name="pay", parameters_json_schema=schema, metadata=metadata, kind=kind)


READS, WRITES, DESTROYS = {"readOnlyHint": True}, {"readOnlyHint": False}, {"destructiveHint": True}
TAME, CLOSED = {"destructiveHint": False}, {"openWorldHint": False}
HINTS: dict[str, list[dict[str, Any]]] = {
    "state": [{}, {"title": "Pay"}, CLOSED, {**WRITES, **TAME, **CLOSED}, {"idempotentHint": True}],
    "read": [READS, {**READS, "openWorldHint": True}, {**READS, **TAME}],
    "external": [
        *(WRITES, {**WRITES, **TAME}, {**WRITES, **CLOSED}, {"openWorldHint": True}),
        *(DESTROYS, {**READS, **DESTROYS}, {**TAME, "openWorldHint": True}),
    ],
}


@pytest.mark.parametrize("effect", HINTS)
def test_hints_of_a_server_become_an_effect(effect: str) -> None:
    """What a server leaves open is taken as MCP takes it, as soon as it says that the tool writes."""
    for hints in HINTS[effect]:
        everything = {"readOnlyHint": None, "destructiveHint": None, "openWorldHint": None, **hints}
        assert (hinted_effect(hints) or "state") == (hinted_effect(everything) or "state") == effect, hints
        said = definition({"annotations": hints, "meta": None, "task": False})
        assert read_tool_metadata(said).effect == effect, hints


def test_only_a_clear_word_makes_a_tool_a_reading_one() -> None:
    """Of all combinations, those are `read` that say so and do not say that they destroy."""
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    for values in product((True, False, None), repeat=4):
        hints = dict(zip(names, values, strict=True))
        reads = hints["readOnlyHint"] is True and hints["destructiveHint"] is not True
        assert (hinted_effect(hints) == "read") is reads, hints


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_is_no_hint_says_nothing(annotations: object) -> None:
    """Any value may stand under `annotations`, which belongs to others too; nothing but `True` and `False` counts."""
    assert hinted_effect(annotations) is None
    hint = {"readOnlyHint": annotations, "destructiveHint": "true", "openWorldHint": 1}
    expected = {True: "read", False: "external"}.get(annotations) if isinstance(annotations, bool) else None
    assert hinted_effect(hint) == expected


DECLARES_READ = ToolMetadata(effect="read", declares_effect=True)
NOTHING = ToolMetadata(effect="state", concurrent=False, idempotency=None, approval=None)
GRANTS = {"effect": "read", "concurrent": True, "approval": "allow", "idempotency": {"strategy": "auto"}}
OTHERS: list[dict[str, Any]] = [{"owner": "billing", "cause": 7}, {"annotations": None, "meta": None}]
DECLARED: list[tuple[dict[str, Any] | None, ToolMetadata]] = [
    *((said, NOTHING) for said in (None, {}, *OTHERS)),
    ({"annotations": READS}, ToolMetadata(effect="read", approval="ask")),
    ({"annotations": READS, "concurrent": True}, ToolMetadata(effect="read", concurrent=True, approval="ask")),
    *(({"annotations": READS, "approval": it}, ToolMetadata(effect="read", approval=it)) for it in ("allow", "deny")),
    *(({"annotations": it, "effect": "read"}, DECLARES_READ) for it in (READS, DESTROYS)),
    ({"annotations": READS, "effect": "external"}, ToolMetadata(effect="external", declares_effect=True)),
    ({"annotations": READS, "idempotency": ONCE}, ToolMetadata(effect="state", idempotency=ONCE)),
    ({"annotations": DESTROYS, "idempotency": ONCE}, ToolMetadata(effect="external", idempotency=ONCE)),
    ({"annotations": {**GRANTS, "idempotentHint": True}, "meta": GRANTS}, ToolMetadata()),
]


@pytest.mark.parametrize("metadata, declaration", DECLARED)
def test_the_program_knows_better_than_the_server(metadata: dict[str, Any] | None, declaration: ToolMetadata) -> None:
    """Its hints let nothing run without approval, and grant nothing; what Python declares wins in both directions."""
    assert read_tool_metadata(definition(metadata)) == declaration


@pytest.mark.parametrize("own, approval", [(None, "ask"), ("allow", "ask"), ("ask", "ask"), ("deny", "deny")])
def test_a_tool_that_requires_approval_is_asked_about(own: str | None, approval: str) -> None:
    """`requires_approval=True` is never loosened by other metadata."""
    metadata = {} if own is None else {"approval": own}
    assert read_tool_metadata(definition(metadata, kind="unapproved")).approval == approval


WRONG: Mapping[str, dict[str, Any]] = {
    "a word near the right one": {"effect": "externel"},
    "capitals and blanks": {"effect": " READ "},
    "what cannot be hashed": {"effect": ["read"]},
    "a yes": {"approval": "yes"},
    "a bool": {"approval": True},
    "a number": {"concurrent": 1},
    "the settings as a mapping": {"idempotency": {"strategy": "auto"}},
    "a key of a tool that reads": {"effect": "read", "idempotency": ONCE},
    "a contradiction": {"effect": External(repeat_unknown="allow"), "idempotency": IdempotencyConfig()},
    "a key near the right one": {"effects": "external"},
    "an unknown parameter": {"idempotency": IdempotencyConfig(strategy="params", param_keys=("order_id", "order"))},
}


@pytest.mark.parametrize("metadata", WRONG.values(), ids=WRONG)
def test_wrong_metadata_is_refused_with_its_cure(metadata: dict[str, Any], wording: Wording) -> None:
    """The message names the tool, the key, and what would be right."""
    with raises(PromptValidationError, wording) as error:
        read_tool_metadata(definition(metadata))
    assert error.value.tool == "pay"


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": ["order_id"]}])
def test_a_tool_without_parameters_has_none_for_a_key(schema: dict[str, Any], wording: Wording) -> None:
    """A schema without properties, as a server may send it, is one without parameters."""
    bare = ToolDefinition(name="pay", parameters_json_schema=schema, metadata={"idempotency": ONCE})
    with raises(PromptValidationError, wording):
        read_tool_metadata(bare)


class Pay:
    """Acts outside: keeps a list of what was paid, and answers as it is told."""

    def __init__(self, returned: object = None, error: Exception | None = None) -> None:
        self.paid: list[str] = []
        self.keys: list[str | None] = []
        self.returned, self.error = returned, error

    async def pay(self, order_id: str, note: str = "") -> Any:
        """Pay an order."""
        self.keys.append(context().idempotency_key)
        write(order_id)
        if self.error is not None:
            raise self.error
        self.paid.append(order_id)
        return f"paid {order_id}" if self.returned is None else self.returned

    def tool(self, **metadata: Any) -> Tool[Any]:
        """The tool, external."""
        return Tool(self.pay, metadata={"effect": "external", **metadata})


def pay(order_id: str, note: str = "", *, id: str = "") -> Call:
    """A call of it."""
    return Call("pay", {"order_id": order_id, "note": note}, id=id)


async def test_calls_that_write_run_one_at_a_time_in_the_order_asked() -> None:
    """The default effect: each begins when the one before it has ended."""
    session = Session()
    steps: list[str] = []

    async def slow(text: str) -> str:
        steps.append(f"begin {text}")
        await asyncio.sleep(0)
        write(text)
        steps.append(f"end {text}")
        return text

    calls = [Call("slow", {"text": text}) for text in "abc"]
    await play(pipeline(session), called(*calls), tools=[slow])
    assert steps == [f"{step} {text}" for text in "abc" for step in ("begin", "end")]
    assert noted(session) == ["a", "b", "c"]


async def test_an_external_call_claims_its_slot_and_is_replayed_to_the_same_call() -> None:
    """The same call, asked again without its record, is answered from the ledger, applied once; another one runs."""
    session, desk, ledger = Session(), Pay(), EffectLedger()
    toolset, capability = FunctionToolset[Any]([desk.tool()]), pipeline(session, effect_ledger=ledger)
    assert await call_by_hand(capability, toolset, "pay", order_id="7") == "paid 7"
    again = await call_by_hand(capability, toolset, "pay", order_id="7")
    assert (again.return_value, again.metadata) == ("paid 7", {"replayed": True})
    assert await call_by_hand(capability, toolset, "pay", "other", order_id="7") == "paid 7"
    assert desk.keys == ["call:c1", "call:other"]
    assert desk.paid == noted(session) == ["7", "7"]
    assert [(event.replayed, event.effect_key) for event in events(session)] == [
        (False, "call:c1"),
        (True, "call:c1"),
        (False, "call:other"),
    ]


async def test_what_belongs_to_an_effect_is_applied_once() -> None:
    """By the call that meets it after `apply` has failed; its parameters are the arguments as JSON."""
    applied: list[tuple[Any, Any]] = []
    fails = [ValueError("no such account")]

    def apply(params: Any, result: ToolResult[Any], *, context: ToolContext) -> None:
        context.session[Note].append(Note("applied"))
        applied.append((params, result.value))
        if fails:
            raise fails.pop()

    with Session.open(MemoryStore(), "s") as session:
        desk, capability = Pay(), pipeline(session)
        toolset = FunctionToolset[Any]([desk.tool(effect=External(apply=apply))])
        with pytest.raises(ToolFailed):
            await call_by_hand(capability, toolset, "pay", order_id="7")
        assert noted(session) == []
        again = await call_by_hand(capability, toolset, "pay", order_id="7")
        assert again.return_value == "paid 7"
        assert noted(session) == ["applied"]
        assert desk.paid == ["7"]
        assert applied == [({"order_id": "7"}, "paid 7")] * 2


async def test_a_tool_whose_effects_and_session_are_in_two_places_is_refused_before_a_request(wording: Wording) -> None:
    """As an executor refuses one of its prompt; so is one that cannot have `apply`."""

    def apply(params: Any, result: ToolResult[Any], *, context: ToolContext) -> None: ...

    said = External(apply=apply)
    with pytest.raises(SecondStoreError) as failure:
        await call_by_hand(pipeline(Session()), FunctionToolset[Any]([Pay().tool(effect=said)]), "pay", order_id="7")
    assert failure.value.tool == "pay"
    for wrong in ({"concurrent": True}, {"idempotency": IdempotencyConfig(strategy="none")}):
        toolset = FunctionToolset[Any]([Pay().tool(effect=said, **wrong)])
        with raises(PromptValidationError, wording):
            await call_by_hand(pipeline(Session()), toolset, "pay", order_id="7")


async def test_a_declared_key_is_made_from_the_arguments() -> None:
    """Two orders are two effects, one order is one; the same order with another note is replayed, and says so."""
    session, desk = Session(), Pay()
    calls = [pay("7"), pay("7"), pay("8"), pay("7", "again")]
    noted_before = '["paid 7","(This was done before with other arguments, {\\"note\\": \\"\\", \\"order'
    script = called(*calls, c2=Outcome.ok("paid 7"), c4=Outcome.ok(noted_before))
    await play(pipeline(session), script, tools=[desk.tool(idempotency=ONCE)])
    assert desk.paid == noted(session) == ["7", "8"]
    assert [event.replayed for event in events(session)] == [False, True, False, True]
    assert events(session)[0].effect_key == events(session)[1].effect_key != events(session)[2].effect_key


SAID = ToolReturn[str]("paid", metadata={"ref": 1})
TOO_LONG = object()
"""What is told of a value that cannot be shown."""
ODD_VALUES: dict[str, tuple[object, object, object]] = {
    "half a character": ("\ud800", r"'\ud800'", r"'\ud800'"),
    "nothing said": (SAID, SAID, "paid"),
    "number": (7, 7, 7),
    "too long a number": (10**5000, TOO_LONG, TOO_LONG),
    "object": (Pay, str(Pay), str(Pay)),
}


@pytest.mark.parametrize("returned, told, kept", ODD_VALUES.values(), ids=ODD_VALUES)
async def test_an_effect_is_recorded_whatever_it_returned(
    returned: object, told: object, kept: object, wording: Wording
) -> None:
    """It has happened; what cannot be kept as it is must not make it happen again."""
    session, desk = Session(), Pay(returned)
    told, kept = (wording if item is TOO_LONG else item for item in (told, kept))
    capability, toolset = pipeline(session), FunctionToolset[Any]([desk.tool()])
    assert await call_by_hand(capability, toolset, "pay", order_id="7") == told
    again = await call_by_hand(capability, toolset, "pay", order_id="7")
    assert (again.return_value, again.metadata) == (kept, {"replayed": True})
    assert desk.paid == ["7"]
    assert [(event.success, event.replayed) for event in events(session)] == [(True, False), (True, True)]


async def test_an_effect_that_ran_out_of_time_is_unknown(wording: Wording) -> None:
    """PydanticAI would have the model try again at once; the model reads that somebody must find out first."""
    session = Session()
    started: list[str] = []

    async def slow(order_id: str) -> str:
        started.append(order_id)
        await asyncio.Event().wait()
        return order_id

    tool = Tool(slow, timeout=0.02, metadata={"effect": "external", "idempotency": ONCE})
    calls = [Call("slow", {"order_id": "7"}), Call("slow", {"order_id": "7"})]
    script = called(*calls, c1=Outcome.failed(), c2=Outcome.failed())
    result = await play(pipeline(session), script, tools=[tool], retries=0)
    assert [part.content for part in returns(result.all_messages()).values()] == [wording, wording]
    assert started == ["7"]
    assert outcomes(session) == [("c1", False, Step.HANDLER), ("c2", False, Step.CLAIM)]


async def test_an_effect_whose_value_cannot_be_handled_is_unknown(wording: Wording) -> None:
    """The function has run to its end; asked for again, it is not run."""

    async def items() -> AsyncIterator[int]:
        yield 1

    session, desk, ledger = Session(), Pay(items()), EffectLedger()
    script = called(pay("7"), pay("7"), c1=Outcome.failed(), c2=Outcome.failed())
    result = await play(pipeline(session, effect_ledger=ledger), script, tools=[desk.tool()])
    assert [part.content for part in returns(result.all_messages()).values()] == [wording, wording]
    assert desk.paid == ["7"]
    assert [row.status for row in ledger.rows()] == ["unknown"]


RAISED: dict[str, tuple[Exception, Exception | None, str]] = {
    "its word that it failed": (ToolFailed("no"), None, "failed"),
    "its word that it is to be called again": (ModelRetry("no"), None, "failed"),
    "that, while it handles a failure": (ModelRetry("no"), ValueError(), "failed"),
    "that, while it handles a timeout": (ModelRetry("no"), TimeoutError(), "unknown"),
    "what proves nothing": (ConnectionResetError("lost"), None, "unknown"),
}


@pytest.mark.parametrize("error, handled, status", RAISED.values(), ids=list(RAISED))
async def test_a_plain_function_says_itself_whether_its_effect_failed(
    error: Exception, handled: Exception | None, status: str
) -> None:
    """`ToolFailed` and `ModelRetry` are its word; not if a time ran out behind them."""
    ledger = EffectLedger()

    async def act(order_id: str) -> str:
        if handled is None:
            raise error
        try:
            raise handled
        except type(handled):
            raise error  # noqa: B904 - as a function does that says nothing of the cause

    script = called(Call("act", {"order_id": "7"}))
    tool = Tool(act, metadata={"effect": "external"})
    await play(pipeline(Session(), effect_ledger=ledger), script, tools=[tool], retries=3)
    assert [row.status for row in ledger.rows()] == [status]


async def test_a_call_without_an_id_cannot_act_outside(wording: Wording) -> None:
    """It could not be known again; one that acts here needs none."""
    session, desk = Session(), Pay()
    capability = pipeline(session)
    with raises(ToolFailed, wording):
        await call_by_hand(capability, FunctionToolset[Any]([desk.tool()]), "pay", None, order_id="7")
    assert desk.paid == []
    assert await call_by_hand(capability, FunctionToolset[Any]([desk.pay]), "pay", None, order_id="7") == "paid 7"
    assert [event.call_id for event in events(session)] == ["", ""]


async def desk(store: SqliteStore, tools: Sequence[Tool[Any]], *replies: ModelResponse) -> AgentRunResult[Any]:
    """A run of an agent with these tools on the stored session, begun or resumed."""
    with Session.open(store, "s") as session:
        stored = StoredHistory(session, "desk")
        capability = PipelineCapability(ToolExecutor([], session=session), conversation=stored)
        agent = Agent(model(*replies), tools=tools, capabilities=[capability])
        return await agent.run(None if stored.unfinished else "Pay A.", message_history=stored.history)


FINDINGS = [{}, {"message": "A is paid, says the bank"}, {"message": "A is paid", "value": b'{"number":17}'}]


@pytest.mark.parametrize("finding", FINDINGS, ids=str)
async def test_what_a_person_has_found_is_what_the_model_reads(
    finding: dict[str, Any], tmp_path: Path, wording: Wording
) -> None:
    """Of a call that was cut off by the end of its process, and is not made again."""

    async def pay(text: str) -> str:
        raise GoneError(text)

    tools = [Tool(pay, metadata={"effect": "external"})]
    with SqliteStore(tmp_path / "s.db") as store:
        with pytest.raises(GoneError):
            await desk(store, tools, asks("A", tool="pay"))
        (row,) = store.rows()
        settle_effect(store, row, make_finding(row, "happened", **finding))
        result = await desk(store, tools)
    assert returns(result.all_messages())["call_0"].model_response_str() == wording


async def test_tools_that_declare_no_effect_are_logged_once_in_a_run(
    caplog: pytest.LogCaptureFixture, wording: Wording
) -> None:
    """Not those that declare one, or a key, or that the program runs itself."""

    async def pay(order_id: str) -> str:
        return order_id

    declared: list[dict[str, Any]] = [{"effect": "state"}, {"effect": "read"}, {"idempotency": ONCE}]
    tools = [Tool(pay, name=f"pay_{number}", metadata=metadata) for number, metadata in enumerate(declared)]
    script = called(Call("pay", {"order_id": "A"}), Call("settle", {"order_id": "A"}))
    await play(
        pipeline(Session()), script, tools=[pay, Tool(pay, name="settle", metadata={"approval": "allow"}), *tools]
    )
    assert caplog.messages == [wording]
