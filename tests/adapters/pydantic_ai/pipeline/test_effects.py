"""Foreign tools and their effects: what runs beside what, what is claimed, what is replayed, and what a store keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelRetry, Tool, ToolFailed, ToolReturn
from pydantic_ai.toolsets import FunctionToolset

from handrail.errors import PromptValidationError, SecondStoreError
from handrail.prompt import External, ToolContext, ToolResult
from handrail.runtime import EffectLedger, IdempotencyConfig, Session, Step
from handrail.store import MemoryStore, SqliteStore
from handrail.testing import Call, Outcome
from tests.adapters.foreign_desk import (
    call_by_hand,
    called,
    context,
    events,
    outcomes,
    pipeline,
    play,
    resume,
    returns,
    write,
)
from tests.adapters.notes import ADD_NOTE, Note, noted
from tests.wording import Wording

ONCE = IdempotencyConfig(strategy="params", param_keys=("order_id",))


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


@pytest.mark.anyio
@pytest.mark.parametrize("metadata", [{"effect": "read"}, {"concurrent": True}, {"effect": "read", "concurrent": True}])
async def test_reads_and_concurrent_calls_run_side_by_side(metadata: dict[str, Any]) -> None:
    """All three have begun before the first one ends, and they are recorded in the order asked."""
    session, all_there = Session(), asyncio.Barrier(3)

    async def meet(text: str) -> str:
        await all_there.wait()
        return text

    calls = [Call("meet", {"text": text}) for text in "abc"]
    await play(pipeline(session), called(*calls), tools=[Tool(meet, metadata=metadata)])
    assert [call_id for call_id, *_ in outcomes(session)] == ["c1", "c2", "c3"]


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_a_tool_whose_effects_and_session_are_in_two_places_is_refused_before_a_request(wording: Wording) -> None:
    """As an executor refuses one of its prompt; so is one that cannot have `apply`."""

    def apply(params: Any, result: ToolResult[Any], *, context: ToolContext) -> None: ...

    said = External(apply=apply)
    with pytest.raises(SecondStoreError) as caught:
        await call_by_hand(pipeline(Session()), FunctionToolset[Any]([Pay().tool(effect=said)]), "pay", order_id="7")
    assert caught.value.tool == "pay"
    for wrong in ({"concurrent": True}, {"idempotency": IdempotencyConfig(strategy="none")}):
        toolset = FunctionToolset[Any]([Pay().tool(effect=said, **wrong)])
        with pytest.raises(PromptValidationError) as refused:
            await call_by_hand(pipeline(Session()), toolset, "pay", order_id="7")
        assert str(refused.value) == wording


@pytest.mark.anyio
async def test_a_declared_key_is_made_from_the_arguments() -> None:
    """Two orders are two effects, one order is one; the same order with another note is replayed, and says so."""
    session, desk = Session(), Pay()
    calls = [pay("7"), pay("7"), pay("8"), pay("7", "again")]
    noted_before = '["paid 7","(This was done before with other arguments, note=\\"\\", and is not done again.)"]'
    script = called(*calls, c2=Outcome.ok("paid 7"), c4=Outcome.ok(noted_before))
    await play(pipeline(session), script, tools=[desk.tool(idempotency=ONCE)])
    assert desk.paid == noted(session) == ["7", "8"]
    assert [event.replayed for event in events(session)] == [False, True, False, True]
    assert events(session)[0].effect_key == events(session)[1].effect_key != events(session)[2].effect_key


@pytest.mark.anyio
async def test_a_declared_key_of_a_tool_that_changes_state_is_kept_with_its_commit() -> None:
    """A call that fails leaves its key free."""
    session, desk = Session(), Pay(error=RuntimeError("later"))
    tool = Tool(desk.pay, metadata={"idempotency": ONCE})
    capability = pipeline(session)
    await play(capability, called(pay("7"), c1=Outcome.failed("later")), tools=[tool])
    desk.error = None
    await play(capability, called(pay("7"), pay("7"), c1=Outcome.ok()), tools=[tool])
    assert [(event.success, event.replayed) for event in events(session)] == [
        (False, False),
        (True, False),
        (True, True),
    ]
    assert desk.paid == ["7"]


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


@pytest.mark.anyio
@pytest.mark.parametrize("returned, told, kept", ODD_VALUES.values(), ids=ODD_VALUES)
async def test_an_effect_is_recorded_whatever_it_returned(
    returned: object, told: object, kept: object, wording: Wording
) -> None:
    """It has happened; what cannot be kept as it is must not make it happen again."""
    session, desk = Session(), Pay(returned)
    told, kept = (wording if each is TOO_LONG else each for each in (told, kept))
    capability, toolset = pipeline(session), FunctionToolset[Any]([desk.tool()])
    assert await call_by_hand(capability, toolset, "pay", order_id="7") == told
    again = await call_by_hand(capability, toolset, "pay", order_id="7")
    assert (again.return_value, again.metadata) == (kept, {"replayed": True})
    assert desk.paid == ["7"]
    assert [(event.success, event.replayed) for event in events(session)] == [(True, False), (True, True)]


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_an_effect_whose_value_cannot_be_handled_is_unknown(wording: Wording) -> None:
    """The function has run to its end; asked for again, it is not run."""

    async def items() -> AsyncIterator[int]:
        yield 1

    session, desk, ledger = Session(), Pay({"receipt": items()}), EffectLedger()
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


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_a_call_without_an_id_cannot_act_outside(wording: Wording) -> None:
    """It could not be known again; one that acts here needs none."""
    session, desk = Session(), Pay()
    capability = pipeline(session)
    with pytest.raises(ToolFailed) as raised:
        await call_by_hand(capability, FunctionToolset[Any]([desk.tool()]), "pay", None, order_id="7")
    assert str(raised.value) == wording
    assert desk.paid == []
    assert await call_by_hand(capability, FunctionToolset[Any]([desk.pay]), "pay", None, order_id="7") == "paid 7"
    assert [event.call_id for event in events(session)] == ["", ""]


@pytest.mark.anyio
async def test_a_stored_session_keeps_foreign_calls_and_their_effects(tmp_path: Path) -> None:
    """Opened anew, it has the same record, which answers the call of before."""
    desk, path = Pay({"ref": [1, None]}), tmp_path / "desk.db"
    script = called(pay("7"), Call("add_note", {"text": "milk"}), Call("pay", {"order_id": 7}), Call("pya"))
    with SqliteStore(path) as store, Session.open(store, "s") as session:
        capability = pipeline(session, ADD_NOTE)
        said = (await play(capability, script, tools=[desk.tool()])).all_messages()
        before = events(session)
    with SqliteStore(path) as store, Session.open(store, "s") as session:
        assert events(session) == before
        assert noted(session) == ["7", "milk"]
        result = await resume(pipeline(session, ADD_NOTE), said, tools=[desk.tool()])
        assert returns(result.all_messages())["c1"].content == {"ref": [1, None]}
        assert desk.paid == ["7"]
        assert events(session) == before
