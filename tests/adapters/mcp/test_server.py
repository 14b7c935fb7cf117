"""Tools of Handrail's as an MCP server: both eras of the protocol, in process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import anyio
import mcp_types as t
import pytest
from mcp import Client, MCPError

from handrail import ToolExecutor, tool
from handrail.adapters.mcp import ToolServer, ask_client
from handrail.adapters.mcp.source import ExecutorSource
from handrail.cli import main
from handrail.errors import HandrailError
from handrail.prompt import (
    BinaryPart,
    IdempotencyConfig,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Tool,
    ToolContext,
    ToolsSection,
)
from handrail.runtime import ToolInvoked
from handrail.runtime.approval import calls_that_wait
from handrail.session import Session
from handrail.session.open_calls import GivenAnswer, RecordedAnswer, answer_row
from handrail.session.persistence.protocol import AnswerChange
from handrail.store import Store
from handrail.store import open as open_store
from handrail.transaction import UnitOfWork
from tests.adapters.mcp.kit import ERAS, text, until
from tests.wording import Wording

pytestmark = pytest.mark.anyio

KEY = {"dev.handrail/key": "k"}


@dataclass(frozen=True)
class Receipt:
    """What was paid."""

    order: str
    cents: int


@dataclass(frozen=True)
class Paid:
    """A payment in the session."""

    order: str


PAID: list[str] = []
"""What was paid outside; each test begins with none."""


@tool(effect="external", idempotency=IdempotencyConfig())
def pay(order: str) -> Receipt:
    """Pays an order."""
    PAID.append(order)
    return Receipt(order, 3)


@tool(effect="external")
def charge(order: str) -> str:
    """Charges an order, each time anew."""
    PAID.append(order)
    return f"charged {order}"


@tool(effect="read")
def prices() -> list[int]:
    """Lists the prices."""
    return [1, 2]


@tool(effect="read")
def logo() -> BinaryPart:
    """A picture."""
    return BinaryPart(b"png", "image/png")


@tool
async def slow(order: str, context: ToolContext) -> str:
    """Takes its time."""
    context.session[Paid].append(Paid(order))
    context.progress(1, 2, "half")
    await asyncio.sleep(60)
    return "never"


@tool
def name_it(context: ToolContext) -> str:
    """Asks for a name."""
    context.session[Paid].append(Paid("asked"))
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    first = ask_client("Which name?", schema)
    second = ask_client("Which other name?", schema)
    return f"{first.action} {dict(first.content)}, {second.action} {dict(second.content)}"


TOOLS: list[Tool[Any, Any]] = [pay, charge, prices, logo, slow, name_it]


@pytest.fixture(autouse=True)
def paid() -> list[str]:
    """What is paid in the test."""
    PAID.clear()
    return PAID


class Asks:
    """A policy that asks about what acts outside."""

    name = "desk"

    def check(self, tool: Tool[Any, Any], params: object, *, context: ToolContext) -> PolicyDecision:
        """Asks about each external call."""
        return PolicyDecision.ask("it costs money") if tool.effect == "external" else PolicyDecision.allow()

    def on_result(self, tool: object, params: object, result: object, *, context: object) -> None:
        """Does nothing."""


@asynccontextmanager
async def client_of(
    session: Session | None = None, mode: str = "auto", *, asks: bool = False, **options: Any
) -> AsyncGenerator[Client]:
    """A client of a server of the tools; `asks` has a person approve what acts outside."""
    callback: Any = options.pop("person", None)
    section = ToolsSection(title="Tools", tools=TOOLS, policies=[Asks()] if asks else [])
    prompt = Prompt(PromptTemplate[str](ns="tests", key="server", sections=[section]))
    server = ToolServer(ToolExecutor(prompt=prompt, session=session or Session()), **options)
    async with Client(server.protocol, mode=cast("Any", mode), elicitation_callback=callback) as client:
        yield client


def person(action: str, **content: Any) -> Callable[..., Any]:
    """A person at the client, who answers every question so."""

    async def answer(_context: object, params: t.ElicitRequestParams) -> t.ElicitResult:
        answer.asked.append(params.message)  # type: ignore[attr-defined]
        return t.ElicitResult(action=cast("Any", action), content=content or None)

    answer.asked = []  # type: ignore[attr-defined]
    return answer


# ---------------------------------------------------------------------------------------------------------------- lists


@pytest.mark.parametrize("mode", ERAS)
async def test_tools_are_listed_with_hints_and_schemas_of_their_results(mode: str, wording: Wording) -> None:
    """Hints follow from the declared effects."""
    async with client_of(mode=mode) as client:
        tools = (await client.list_tools()).tools
    lines = [
        f"{one.name}: {one.annotations and one.annotations.model_dump(by_alias=True, exclude_none=True)} "
        f"{json.dumps(one.output_schema, sort_keys=True)}"
        for one in tools
    ]
    assert "\n".join(lines) == wording


# -------------------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("mode", ERAS)
async def test_results_are_structured_as_they_are_listed(mode: str) -> None:
    """Values that are not objects stand below `result`; text has no structure."""
    async with client_of(mode=mode) as client:
        assert (await client.call_tool("pay", {"order": "a"})).structured_content == {"order": "a", "cents": 3}
        assert (await client.call_tool("prices", {})).structured_content == {"result": [1, 2]}
        assert (await client.call_tool("charge", {"order": "a"})).structured_content is None
        assert (await client.call_tool("logo", {})).content[-1] == t.ImageContent(data="cG5n", mime_type="image/png")


async def test_result_that_is_answered_from_the_ledger_is_structured_too(tmp_path: Any) -> None:
    """The second call is made by another process of the same session."""
    with open_store(f"sqlite:///{tmp_path}/desk.db") as store:
        for number in (1, 2):
            with Session.open(store, "desk") as session:
                async with client_of(session) as client:
                    result = await client.call_tool("pay", {"order": "a"})
                    assert (number, result.structured_content) == (number, {"order": "a", "cents": 3})
    assert PAID == ["a"]


@pytest.mark.parametrize("mode", ERAS)
async def test_call_that_does_not_fit_is_a_failed_result(mode: str, wording: Wording) -> None:
    """The model reads the fault, so it is not an error of the protocol."""
    async with client_of(mode=mode) as client:
        for name, arguments in (("pay", {"order": 3}), ("nothing", {})):
            result = await client.call_tool(name, arguments)
            assert (result.is_error, text(result)) == (True, wording)


@pytest.mark.parametrize("mode", ERAS)
async def test_exception_of_the_server_does_not_show_its_text(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is in the log alone."""

    class Broken(ExecutorSource):
        async def run(self, call: object, reply: str) -> Any:
            raise RuntimeError("the password is hunter2")

    async with Client(
        ToolServer(Broken(ToolExecutor(TOOLS, session=Session()))).protocol, mode=cast("Any", mode)
    ) as client:
        result = await client.call_tool("prices", {})
    assert result.is_error
    assert "hunter2" not in text(result)
    assert "hunter2" in caplog.text


# ------------------------------------------------------------------------------------------------- progress, cancelling


@pytest.mark.parametrize("mode", ERAS)
async def test_cancelled_call_is_rolled_back_after_its_progress_was_reported(mode: str) -> None:
    """What the handler wrote to the session is gone; its event is recorded."""
    session, seen = Session(), anyio.Event()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        assert (progress, total, message) == (1, 2, "half")
        seen.set()

    async with client_of(session, mode) as client:
        call = asyncio.ensure_future(client.call_tool("slow", {"order": "a"}, progress_callback=hear))
        await seen.wait()
        call.cancel()
        await asyncio.wait((call,))
        await until(lambda: session[ToolInvoked])
    assert not session[Paid]
    assert not session[ToolInvoked][-1].result.success


async def test_progress_may_be_reported_by_a_thread_of_the_handler() -> None:
    """Such a thread has nothing of the context that the handler runs in."""

    @tool(effect="read")
    def count(context: ToolContext) -> str:
        """Counts on a thread."""
        thread = threading.Thread(target=context.progress, args=(1, 2))
        thread.start()
        thread.join()
        return "counted"

    seen: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with Client(ToolServer(ToolExecutor([count], session=Session())).protocol) as client:
        assert text(await client.call_tool("count", {}, progress_callback=hear)) == "counted"
    assert seen == [1]


async def test_call_takes_no_longer_than_it_may(wording: Wording) -> None:
    """The limit is a setting of the server."""
    async with client_of(call_seconds=0.05) as client:
        result = await client.call_tool("slow", {"order": "a"})
    assert (result.is_error, text(result)) == (True, wording)


async def test_more_calls_than_may_run_at_once_are_refused(wording: Wording) -> None:
    """Before they begin, so that they can be repeated."""
    async with client_of(max_calls=1) as client:
        first = asyncio.ensure_future(client.call_tool("slow", {"order": "a"}))
        await asyncio.sleep(0.05)
        result = await client.call_tool("prices", {})
        assert (result.is_error, text(result)) == (True, wording)
        first.cancel()


# ------------------------------------------------------------------------------------------------------------- identity


@pytest.mark.parametrize("mode", ERAS)
async def test_call_with_the_same_key_is_answered_from_its_record(mode: str, tmp_path: Any) -> None:
    """Also by another process, which opens the same session."""
    with open_store(f"sqlite:///{tmp_path}/desk.db") as store:
        for _reconnected in range(2):
            with Session.open(store, "desk") as session:
                async with client_of(session, mode) as client:
                    result = await client.call_tool("charge", {"order": "a"}, meta=cast("Any", KEY))
                    assert text(result) == "charged a"
    assert PAID == ["a"]


async def test_key_of_another_call_is_refused(wording: Wording) -> None:
    """The same key with other arguments runs nothing."""
    async with client_of() as client:
        await client.call_tool("charge", {"order": "a"}, meta=cast("Any", KEY))
        result = await client.call_tool("charge", {"order": "b"}, meta=cast("Any", KEY))
        assert (result.is_error, text(result)) == (True, wording)
    assert PAID == ["a"]


@pytest.mark.parametrize("key", [1001, "", ["a"]])
async def test_key_that_is_not_a_text_is_refused(key: object, wording: Wording) -> None:
    """Without it the call would be one of its own, and be made twice."""
    async with client_of() as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("charge", {"order": "a"}, meta=cast("Any", {"dev.handrail/key": key}))
    assert str(raised.value) == wording
    assert PAID == []


async def test_calls_without_a_key_are_calls_of_their_own() -> None:
    """Two equal calls act twice."""
    async with client_of() as client:
        for _ in range(2):
            await client.call_tool("charge", {"order": "a"})
    assert PAID == ["a", "a"]


# ------------------------------------------------------------------------------------------------------------ questions


@pytest.mark.parametrize("mode", ERAS)
async def test_person_at_the_client_approves_a_call_once(mode: str, wording: Wording) -> None:
    """The question is asked once, and the call runs once."""
    agrees = person("accept", approve=True)
    async with client_of(mode=mode, asks=True, person=agrees) as client:
        assert text(await client.call_tool("charge", {"order": "a"})) == "charged a"
    assert agrees.asked == [wording]  # type: ignore[attr-defined]
    assert PAID == ["a"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    "someone",
    [person("accept", approve=False, reason="too dear"), person("decline"), person("cancel"), None],
    ids=["no", "declines", "closes", "cannot be asked"],
)
async def test_call_that_nobody_approves_does_not_run(mode: str, someone: Any, wording: Wording) -> None:
    """The message says whether it was refused or still waits, and how it is answered elsewhere."""
    hint = "Answer {session} {call} elsewhere, then call again."
    async with client_of(Session(session_id="desk"), mode, asks=True, person=someone, approve_hint=hint) as client:
        result = await client.call_tool("charge", {"order": "a"})
        said = text(result)
        call = next((word for word in said.split() if word.startswith("mcp-")), "CALL")
        assert (result.is_error, said.replace(call, "CALL")) == (True, wording)
    assert PAID == []


async def test_approved_call_does_not_run_twice_by_the_state_of_its_question() -> None:
    """The state can be sent twice; the record of the call answers the second time."""
    async with client_of(asks=True, person=person("cancel")) as client:
        call = client.session.call_tool
        asked = await call("charge", {"order": "a"}, allow_input_required=True)
        assert isinstance(asked, t.InputRequiredResult)
        (name,) = asked.input_requests or {}
        answers: t.InputResponses = {name: t.ElicitResult(action="accept", content={"approve": True})}
        for _ in range(2):
            done = await call("charge", {"order": "a"}, input_responses=answers, request_state=asked.request_state)
            assert text(done) == "charged a"
        with pytest.raises(MCPError):  # the state is bound to the arguments
            await call("charge", {"order": "b"}, input_responses=answers, request_state=asked.request_state)
    assert PAID == ["a"]


async def test_state_of_a_question_holds_after_a_restart(tmp_path: Any) -> None:
    """The key of its seal is that of the store."""
    with open_store(f"sqlite:///{tmp_path}/desk.db") as store:
        with Session.open(store, "desk") as session:
            async with client_of(session, asks=True, person=person("cancel")) as client:
                asked = await client.session.call_tool("charge", {"order": "a"}, allow_input_required=True)
        assert isinstance(asked, t.InputRequiredResult)
        answers: t.InputResponses = {
            name: t.ElicitResult(action="accept", content={"approve": True}) for name in asked.input_requests or {}
        }
        with Session.open(store, "desk") as session:
            async with client_of(session, asks=True, person=person("cancel")) as client:
                done = await client.session.call_tool(
                    "charge", {"order": "a"}, input_responses=answers, request_state=asked.request_state
                )
    assert (text(done), PAID) == ("charged a", ["a"])


@pytest.mark.parametrize("mode", ERAS)
async def test_equal_call_of_a_client_without_questions_finds_the_answer_given_elsewhere(
    mode: str, tmp_path: Any
) -> None:
    """The answer is given by `handrail approvals answer`."""
    url = f"sqlite:///{tmp_path}/desk.db"
    with open_store(url) as store, Session.open(store, "desk") as session:
        async with client_of(session, mode, asks=True, approve_hint="answer {call}") as client:
            waits = await client.call_tool("charge", {"order": "a"})
            name = text(waits).rpartition(" ")[2]
            assert await _run(main, ["approvals", "answer", "desk", name, "yes", "--store", url]) == 0
            assert text(await client.call_tool("charge", {"order": "a"})) == "charged a"
    assert PAID == ["a"]


async def _run(main: Callable[[list[str]], int], words: list[str]) -> int:
    return await asyncio.to_thread(main, words)


@pytest.mark.parametrize("mode", ERAS)
async def test_handler_asks_the_person_and_is_made_again_with_the_answer(mode: str) -> None:
    """The handler runs anew for each answer, in a transaction of its own."""
    session = Session()
    someone = person("accept", name="Ada")
    async with client_of(session, mode, person=someone) as client:
        result = await client.call_tool("name_it", {})
    assert text(result) == "accept {'name': 'Ada'}, accept {'name': 'Ada'}"
    assert someone.asked == ["Which name?", "Which other name?"]  # type: ignore[attr-defined]
    assert len(session[Paid]) == 1  # what it had done before it asked was undone


@pytest.mark.parametrize("mode", ERAS)
async def test_handler_that_asks_is_refused_at_a_client_without_questions(mode: str, wording: Wording) -> None:
    """No other process can answer what it asks."""
    async with client_of(mode=mode) as client:
        result = await client.call_tool("name_it", {})
    assert (result.is_error, text(result)) == (True, wording)


def test_handler_cannot_ask_without_a_client(wording: Wording) -> None:
    """Outside a call of a client there is nobody to ask."""
    with pytest.raises(HandrailError) as raised:
        ask_client("Which name?", {})
    assert str(raised.value) == wording


def answer_elsewhere(store: Store, session: Session) -> None:
    """A person says yes to the open question, as another process records it."""
    (item,) = calls_that_wait(session)
    assert item.question is not None
    given = GivenAnswer(approved=True)
    said = RecordedAnswer(given=given, digest=item.question.digest, asks=item.question.asks)
    row = answer_row(session.session_id, item.call, said, store.now())
    assert store.apply(UnitOfWork((AnswerChange(None, row),))) is None


@pytest.mark.parametrize("mode", ERAS)
async def test_answer_that_does_not_fit_the_question_fails_the_call(mode: str, wording: Wording) -> None:
    """The handler does not see it."""
    async with client_of(mode=mode, person=person("accept", name=5)) as client:
        result = await client.call_tool("name_it", {})
    assert (result.is_error, text(result)) == (True, wording)


@pytest.mark.parametrize("mode", ERAS)
async def test_answer_of_another_process_to_a_question_that_was_closed_holds_for_the_equal_call(
    mode: str, tmp_path: Any
) -> None:
    """The client is not asked again."""
    closes = person("cancel")
    with open_store(f"sqlite:///{tmp_path}/desk.db") as store, Session.open(store, "desk") as session:
        async with client_of(session, mode, asks=True, person=closes) as client:
            assert (await client.call_tool("charge", {"order": "a"})).is_error
            answer_elsewhere(store, session)
            assert text(await client.call_tool("charge", {"order": "a"})) == "charged a"
            assert (await client.call_tool("charge", {"order": "b"})).is_error
    assert PAID == ["a"]
    assert len(closes.asked) == 2  # type: ignore[attr-defined]
