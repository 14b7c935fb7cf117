"""Names of replies, also of servers that give several responses one id."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls, ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, Tool, ToolApproved
from pydantic_ai.toolsets import AbstractToolset
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai import HandrailCapability, HandrailToolset, PipelineCapability, PydanticAIAdapter
from handrail.adapters.pydantic_ai.conversation import StoredHistory
from handrail.adapters.tool_executor import ToolExecutor
from handrail.prompt import Prompt, PromptTemplate, Section, ToolContext, ToolResult, ToolsSection
from handrail.prompt import Tool as HandrailTool
from handrail.prompt.idempotency import slot_effect_key
from handrail.prompt.signature import Effect
from handrail.runtime import EffectLedger, Session, ToolInvoked
from handrail.runtime.ledger.effects import Claimed, ClaimRequest, NotKnown
from handrail.session.calls import CallRef
from handrail.store import SqliteStore
from handrail.store.protocol import ClaimOwner
from tests.adapters.kit import GoneError, Note, Outbox, asks, model, names, pipeline
from tests.wording import Wording

pytestmark = pytest.mark.anyio

ENTRIES = ["toolset", "capability", "pipeline", "foreign"]
DELIVERED = asks("hi", reply_id="resp-1")
ASK = ModelRequest([UserPromptPart("Do it.")])


def entry_agent(
    entry: str, box: Outbox, session: Session, llm: Any, *others: AbstractCapability[Any], **options: Any
) -> Agent[Any, Any]:
    """An agent whose calls reach the pipeline by one of the entries."""
    executor = ToolExecutor(prompt=box.prompt(options.pop("effect", "external")), session=session)
    capabilities: list[AbstractCapability[Any]] = [*others]
    toolsets: list[AbstractToolset[Any]] = []
    tools: list[Tool[Any]] = []
    if entry == "toolset":
        toolsets = [HandrailToolset(executor)]
    elif entry == "capability":
        capabilities.append(HandrailCapability(executor))
    elif entry == "pipeline":
        capabilities.append(PipelineCapability(executor))
    else:
        capabilities.append(pipeline(session))
        tools = [Tool(box.send_foreign, name="send", metadata={"effect": "external"})]
    return Agent(llm, capabilities=capabilities, toolsets=toolsets, tools=tools, **options)


def _next_reply(replies: Iterator[ModelResponse], _messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    return next(replies)


def refs(session: Session) -> list[CallRef]:
    """The identities under which calls were recorded."""
    return [event.ref for event in session[ToolInvoked]]


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_server_that_counts_from_0_in_each_reply_has_its_calls_made(entry: str) -> None:
    """Two replies of one run ask for the same mail under the same id: it is sent twice."""
    box, session = Outbox(), Session()
    result = await entry_agent(entry, box, session, model(asks("hi"), asks("hi"))).run("Do it.")
    assert box.sent == ["hi", "hi"]
    run_id = result.run_id
    assert refs(session) == [CallRef(f"{run_id}:1", "call_0"), CallRef(f"{run_id}:2", "call_0")]
    assert names(result.all_messages())[:2] == [f"{run_id}:1", f"{run_id}:2"]


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry != "toolset"])
async def test_calls_of_one_reply_that_have_one_id_get_ids_of_their_own(entry: str) -> None:
    """PydanticAI takes no reply in which an id stands twice; a bare toolset cannot change it."""
    box, session = Outbox(), Session()
    parts = [ToolCallPart("send", {"text": text}, "call") for text in ("a", "b")]
    await entry_agent(entry, box, session, model(ModelResponse(parts))).run("Do it.")
    assert box.sent == ["a", "b"]
    assert [ref.call_id for ref in refs(session)] == ["call", "call_2"]


@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_second_run_on_one_session_asks_for_calls_of_its_own(entry: str, tmp_path: Path) -> None:
    """Also in a stored session, and in another process."""
    box, said = Outbox(), None
    for _ in range(2):
        with SqliteStore(tmp_path / "s.db") as store, Session.open(store, "s") as session:
            result = await entry_agent(entry, box, session, model(asks("hi"))).run("Do it.", message_history=said)
            said = result.all_messages()
    assert box.sent == ["hi", "hi"]


@pytest.mark.parametrize(
    "entry, dropping", [*[(entry, False) for entry in ENTRIES], *[(entry, True) for entry in ENTRIES[1:]]]
)
async def test_a_restart_in_mid_reply_makes_only_the_calls_without_a_record(
    entry: str, dropping: bool, tmp_path: Path, wording: Wording
) -> None:
    """The program stores messages and session; the rest of the process is gone, and messages may have been dropped."""
    others = [ProcessHistory[Any](lambda messages: messages[-1:])] if dropping else []
    box, views = Outbox(), list[bytes]()

    class Storing(AbstractCapability[Any]):
        async def after_node_run(self, ctx: RunContext[Any], **options: Any) -> Any:
            views.append(ModelMessagesTypeAdapter.dump_json(ctx.messages))
            return options["result"]

    first = model(asks("before"), asks("one", "fail", "two"))
    with SqliteStore(tmp_path / "s.db") as store, Session.open(store, "s") as session, pytest.raises(GoneError):
        await entry_agent(entry, box, session, first, Storing(), *others).run("Do it.")
    assert box.sent[:2] == ["before", "one"]
    said: list[ModelMessage] = ModelMessagesTypeAdapter.validate_json(views[-1])
    assert len(said) == (2 if dropping else 4)
    with SqliteStore(tmp_path / "s.db") as store, Session.open(store, "s") as session:
        agent = entry_agent(entry, box, session, model(asks("one")), *others)
        await agent.run(message_history=said)
        recorded = session[ToolInvoked].all()
    # The last one is asked for by a reply of its own; the one that was cut off may have happened.
    assert sorted(box.sent) == ["before", "one", "one", "two"]
    cut_off = [event for event in recorded if event.call_id == "call_1"]
    assert cut_off[-1].result.message == wording


@pytest.mark.parametrize("entry", ENTRIES)
async def test_the_id_of_the_provider_names_the_reply(entry: str) -> None:
    """The same response in another run is the same reply, and its calls are answered from their records."""
    box, session = Outbox(), Session()
    await entry_agent(entry, box, session, model(asks("hi", reply_id="resp-1"))).run("Do it.")
    assert refs(session) == [CallRef("resp-1", "call_0")]
    history: list[ModelMessage] = [ASK, asks("hi", "ho", reply_id="resp-1")]
    await entry_agent(entry, box, session, model()).run(message_history=history)
    assert box.sent == ["hi", "ho"]


@pytest.mark.parametrize("dropping", [False, True])
@pytest.mark.parametrize("entry", ENTRIES)
async def test_a_constant_id_of_the_provider_names_no_reply(entry: str, dropping: bool) -> None:
    """Neither in one run, also if the reply before has been dropped, nor in the next run on the session."""
    others = [ProcessHistory[Any](lambda messages: messages[-1:])] if dropping else []
    box, session = Outbox(), Session()
    for _ in range(2):
        llm = model(asks("hi", reply_id="same"), asks("hi", reply_id="same"))
        await entry_agent(entry, box, session, llm, *others).run("Do it.")
    assert box.sent == ["hi"] * 4
    assert len(set(refs(session))) == 4


async def test_an_id_that_no_store_takes_is_named_by_its_digest() -> None:
    """It stays the same, and can be looked up; so is one that begins as the replies of nested calls do."""
    box, session = Outbox(), Session()
    llm = model(asks("hi", reply_id="x" * 501), asks("hi", reply_id="\ud800"), asks("hi", reply_id="@resp_1"))
    await entry_agent("capability", box, session, llm).run("Do it.")
    assert [len(ref.reply or "") for ref in refs(session)] == [64, 64, 64]
    assert len(set(refs(session))) == 3


async def test_history_that_names_no_run_is_known_by_what_it_asks_for_and_where() -> None:
    """The same history resumed again is answered from the records; the same reply further on is another one."""
    box, session = Outbox(), Session()
    history: list[ModelMessage] = [ASK, asks("hi")]
    for _ in range(2):
        copy_of_history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(history))
        await entry_agent("toolset", box, session, model()).run(message_history=copy_of_history)
    assert box.sent == ["hi"]
    await entry_agent("toolset", box, session, model()).run(message_history=[*history, ASK, asks("hi")])
    assert box.sent == ["hi", "hi"]


async def test_a_record_from_after_a_response_is_a_record_of_its_calls() -> None:
    """A response that durable execution delivers again, in another run, is the same one."""
    box, session = Outbox(), Session()
    for _ in range(2):
        replies = iter([replace(DELIVERED), ModelResponse([TextPart("Done.")])])
        llm = FunctionModel(partial(_next_reply, replies))
        await entry_agent("capability", box, session, llm).run("Do it.")
    assert box.sent == ["hi"]


@pytest.mark.parametrize("entry", ["capability", "foreign"])
async def test_arguments_that_a_person_changed_are_recorded_beside_the_original(entry: str) -> None:
    """The call stays the same one: resumed, it is answered from the record, with or without the change."""
    box, session = Outbox(), Session()

    def approve(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        changed = ToolApproved(override_args={"text": "changed"})
        return DeferredToolResults(approvals={call.tool_call_id: changed for call in requests.approvals})

    class Holding(AbstractCapability[Any]):
        async def prepare_tools(self, ctx: RunContext[Any], tool_defs: Any) -> Any:
            return [replace(item, kind="unapproved") for item in tool_defs]

    others = [Holding(), HandleDeferredToolCalls[Any](approve)]
    result = await entry_agent(entry, box, session, model(asks("original")), *others).run("Do it.")
    assert box.sent == ["changed"]
    (event,) = session[ToolInvoked]
    assert (event.call.arguments, event.call.written) == ({"text": "changed"}, {"text": "original"})
    history = result.all_messages()[:2]
    for capabilities in (others, []):
        await entry_agent(entry, box, session, model(), *capabilities).run(message_history=history)
    assert box.sent == ["changed"]
    assert session[ToolInvoked].all() == (event,)


async def test_arguments_that_a_hook_changed_are_recorded_beside_the_original() -> None:
    """Those that nobody changed are recorded once."""
    box, session = Outbox(), Session()

    class Shouting(AbstractCapability[Any]):
        async def before_tool_execute(self, ctx: RunContext[Any], **options: Any) -> Any:
            text: str = options["args"]["text"]
            return {"text": text.upper()} if text == "hi" else options["args"]

    await entry_agent("capability", box, session, model(asks("hi", "ho")), Shouting()).run("Do it.")
    assert sorted(box.sent) == ["HI", "ho"]
    written = {str(event.params.text): event.call.written for event in session[ToolInvoked]}
    assert written == {"HI": {"text": "hi"}, "ho": None}


async def test_deferred_calls_have_the_reply_that_asked_for_them(tmp_path: Path) -> None:
    """They are made in a later run, and are answered from the record in the one after."""
    box = Outbox()
    tool = Tool(box.send_foreign, name="send", requires_approval=True)
    with SqliteStore(tmp_path / "s.db") as store, Session.open(store, "s") as session:
        output: Any = [str, DeferredToolRequests]
        agent: Agent[Any, Any] = Agent(
            model(asks("hi")), tools=[tool], capabilities=[pipeline(session)], output_type=output
        )
        first = await agent.run("Do it.")
        said = ModelMessagesTypeAdapter.dump_json(first.all_messages())
        for _ in range(2):
            await agent.run(
                message_history=ModelMessagesTypeAdapter.validate_json(said),
                deferred_tool_results=DeferredToolResults(approvals={"call_0": True}),
            )
        assert refs(session) == [CallRef(f"{first.run_id}:1", "call_0")]
    assert box.sent == ["hi"]


SAME = "chatcmpl-123"


@dataclass
class SlowOutbox(Outbox):
    """The first mail is not sent before another one is."""

    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    end: asyncio.Event = field(default_factory=asyncio.Event)

    async def send_slowly(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Send a mail."""
        if self.has_begun.is_set():
            self.end.set()
        self.has_begun.set()
        async with asyncio.timeout(10):  # passes only if the other one waits for this one's effect
            await self.end.wait()
        return self.send(params, context=context)

    @override
    def section(self, effect: Effect) -> Section[None]:
        tool = HandrailTool[Note, Note](
            name="send", description="Send.", handler=self.send_slowly, effect=effect, concurrent=True
        )
        return ToolsSection(title="Desk", tools=[tool])


@contextmanager
def open_session(folder: Path) -> Generator[Session]:
    """A stored session, as a process opens it."""
    with SqliteStore(folder / "s.db") as store, Session.open(store, "s") as session:
        yield session


def left_behind(session: Session, ref: CallRef, text: str) -> None:
    """The claim of a call whose process was killed after the effect and before the record."""
    assert isinstance(session.store, SqliteStore)
    ledger = EffectLedger(session.store)
    key = slot_effect_key(ref, {"text": text}, session_id="s")
    owner = ClaimOwner("s", *ref)
    claim = ledger.claim(ClaimRequest(key.partition, key.key, "send", key.params_hash, owner, lease=timedelta(hours=1)))
    assert isinstance(claim, Claimed)
    ledger.end(claim, NotKnown("the process ended"))


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("entry", ["toolset", "capability", "pipeline"])
async def test_a_reply_beside_one_in_flight_is_another_one(entry: str, stored: bool, tmp_path: Path) -> None:
    """Two runs at once on one session ask for the same mail under the same ids: two mails are sent."""
    box = SlowOutbox()
    with SqliteStore(tmp_path / "s.db") as store, Session.open(store, "s") if stored else Session() as session:
        first, second = (entry_agent(entry, box, session, model(asks("hi", reply_id=SAME))) for _ in range(2))
        running = asyncio.create_task(first.run("Customer 1."))
        await box.has_begun.wait()
        result = await second.run("Customer 2.")
        await running
        found = {event.ref for event in session[ToolInvoked]}
    assert box.sent == ["hi", "hi"]
    assert found == {CallRef(SAME, "call_0"), CallRef(f"{result.run_id}:1", "call_0")}


@pytest.mark.parametrize("parent", [None, CallRef(SAME, "call_0")], ids=["its own call", "a nested call"])
async def test_a_reply_after_one_whose_process_was_killed_is_another_one(
    parent: CallRef | None, tmp_path: Path
) -> None:
    """The effect of a call of the old reply is claimed, and there is no record of any call of it."""
    box = Outbox()
    ref = CallRef(SAME, "call_0") if parent is None else CallRef.nested(parent, "call_7")
    with open_session(tmp_path) as session:
        left_behind(session, ref, "hi")
    with open_session(tmp_path) as session:
        result = await entry_agent("capability", box, session, model(asks("ho", reply_id=SAME))).run("Customer 2.")
        assert [event.ref for event in session[ToolInvoked]] == [CallRef(f"{result.run_id}:1", "call_0")]
    assert box.sent == ["ho"]


async def test_a_reply_that_is_delivered_again_meets_its_claim(tmp_path: Path) -> None:
    """Durable execution delivers the response that the killed process had; its mail is not sent again."""
    box, delivered = Outbox(), asks("hi", reply_id=SAME)
    with open_session(tmp_path) as session:
        left_behind(session, CallRef(SAME, "call_0"), "hi")
    with open_session(tmp_path) as session:
        replies = iter([delivered, ModelResponse([TextPart("Done.")])])
        llm = FunctionModel(partial(_next_reply, replies))
        await entry_agent("capability", box, session, llm).run("Do it.")
        (event,) = session[ToolInvoked]
    assert (event.ref, event.success) == (CallRef(SAME, "call_0"), False)
    assert box.sent == []


async def test_a_reply_is_not_that_of_another_prompt_which_is_unfinished(tmp_path: Path) -> None:
    """Its process was killed before any call was recorded. No record of the other answers it when it is resumed."""
    box = Outbox()
    other = Prompt(PromptTemplate[str](ns="tests", key="other", sections=[box.section("state")]))
    with open_session(tmp_path) as session:
        stored = StoredHistory(session, "tests/mails", of="prompt")
        stored.save([ModelRequest([UserPromptPart("Do it.")]), replace(asks("hi", reply_id=SAME), run_id="killed")])
    with open_session(tmp_path) as session:
        await PydanticAIAdapter(model(asks("hi", reply_id=SAME))).evaluate_async(other, session=session)
        await PydanticAIAdapter(model()).evaluate_async(box.prompt("state"), session=session)
        assert [event.replayed for event in session[ToolInvoked]] == [False, False]
    assert box.sent == ["hi", "hi"]
