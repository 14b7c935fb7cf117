"""A replay of runs: agents of files with those that they call, and the functions of programs; their requests count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.settings import ModelSettings

from handrail import store as stores
from handrail.adapters.pydantic_ai import PydanticAIAdapter
from handrail.adapters.run_task import RunTask
from handrail.adapters.tool_executor import ToolExecutor
from handrail.agents import Answer, GatedCall
from handrail.prompt import ToolContext, ToolResult
from handrail.replay import Recording, Replay, replay
from handrail.session import Session
from handrail.session.conversation import ConversationPart
from tests.kit import Kept, Note, executor, prompt, tool
from tests.undo.dry_run.desks import desk_in
from tests.undo.dry_run.test_agents import REPLIES, Shop, in_project
from tests.undo.dry_run.test_pydantic_ai import Clerk

pytestmark = pytest.mark.anyio


async def record(shop: Shop, *inputs: str) -> None:
    """Have the agents of a shop work."""

    def answer(call: GatedCall) -> Answer:
        return Answer("no", reason="too much") if call.arguments.get("order") == "milk" else Answer("yes")

    with stores.open(shop.url, durability="normal") as store:
        for text in inputs:
            async with await Session.open_async(store, "s") as session:
                task = shop.task(REPLIES)
                await task.agent.run_async(text, replace(task.options, session=session, asker=answer, stream=False))


async def replayed(shop: Shop, **options: Any) -> Replay:
    """Replay it; the model fails if it is asked, and nothing is done outside."""
    before = shop.paid, (shop.root / "a.txt").read_text(encoding="utf-8")
    with stores.open(shop.url, durability="normal") as store:
        outcome = await replay("s", shop.task({"desk": [], "helper": []}), store=store, **options)
    assert (shop.paid, (shop.root / "a.txt").read_text(encoding="utf-8")) == before
    return outcome


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop."""
    return Shop(tmp_path)


async def test_agents_replay_with_those_that_they_call(shop: Shop) -> None:
    """Their files as they were at the beginning, with the recorded answers of a person."""
    await record(shop, "Do it.")
    outcome = await replayed(shop)
    assert (outcome.equal, outcome.compared) == (True, 5), outcome.differences
    assert [call.tool for call in outcome.calls] == ["read_file", "write_file", "helper", "pay", "pay"]
    assert (shop.root / "a.txt").read_text(encoding="utf-8") == "new"


async def test_recording_works_on_a_copy_of_the_folder(shop: Shop, tmp_path: Path) -> None:
    """As it is: its files are those of the beginning again."""
    text = (shop.root / "a.txt").read_text(encoding="utf-8")
    await record(shop, "Do it.")
    with stores.open(shop.url, durability="normal") as store:
        Recording.of(store, "s").save(tmp_path / "s.json")
    (shop.root / "a.txt").write_text(text, encoding="utf-8")
    recording = Recording.load(tmp_path / "s.json")
    outcome = await replay(recording, shop.task({"desk": [], "helper": []}))
    assert (outcome.equal, outcome.compared) == (True, 5), outcome.differences
    assert (shop.root / "a.txt").read_text(encoding="utf-8") == text


CHANGES: dict[str, tuple[Callable[[Shop], object], str, str]] = {
    "instructions": (in_project("desk.agent", "I am desk", "I am desk, too"), "d1", "request"),
    "a tool less": (in_project("desk.agent", "[pay, call, act]", "[pay, call]"), "d1", "request"),
    "instructions of the other": (in_project("helper.agent", "I am helper", "I am a helper"), "h1", "request"),
    "code of a tool": (in_project("tools.py", "return str(context.filesystem.root)", 'return ""'), "", ""),
    "a rule that denies": (in_project("approval.yaml", "ask: [pay]", "deny: [pay]"), "h1", "outcome"),
    "a rule that allows": (in_project("approval.yaml", "write_file]\nask: [pay]", "write_file, pay]"), "h1", "outcome"),
    "a rule that asks": (in_project("approval.yaml", "ask: [pay]", "ask: [pay, read_file]"), "d1", "outcome"),
    "the model": (lambda shop: shop.options.update(model="test"), "d1", "request"),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_change_of_an_agent_is_found(shop: Shop, name: str) -> None:
    """A prompt by the request before the first call that sees it, a rule by the call."""
    change, call_id, kind = CHANGES[name]
    await record(shop, "Do it.")
    change(shop)
    differences = (await replayed(shop)).differences
    assert [(one.call.rpartition("/")[2], one.kind) for one in differences] == ([(call_id, kind)] if kind else [])


async def test_run_of_a_program_is_replayed_by_its_replies(tmp_path: Path) -> None:
    """With what users have said, on a copy of its folder; the model is not asked."""
    desk = desk_in(tmp_path / "desk")
    with stores.open(desk.url, durability="normal") as store:
        with store.session("run") as session:
            assert await desk.desk(RunTask(session, "Pay.")) == "Done."
        did, desk.asked = (list(desk.paid), list(desk.mailed)), 0
        assert did == (["A-17"], ["A-17"])
        outcome = await replay("run", desk.desk, store=store)
    assert (outcome.equal, outcome.compared, desk.asked) == (True, 5, 0), outcome.differences
    assert (desk.paid, desk.mailed) == did


async def test_agent_of_pydantic_ai_is_replayed_whole() -> None:
    """With the capability, as a run; its request has a digest of each part, which is stored once."""
    clerk = Clerk()
    with stores.open("memory:") as store:
        with store.session("s") as session:
            assert await clerk(RunTask(session, "Pay A.")) == "Done."
            parts = [part.request for part in session[ConversationPart].all() if part.has_reply]
            assert [sorted(part or ()) for part in parts][1:] == [[], []]
            assert {"model", "settings", "instructions", "tool pay"} <= set(parts[0] or ())
        asked = list(clerk.asked)
        outcome = await replay("s", clerk, store=store)
        assert (outcome.equal, outcome.compared) == (True, 2), outcome.differences
        assert (clerk.paid, clerk.asked) == (["A"], asked)
        for other in (
            Clerk(instructions="Pay now."),
            Clerk(settings=ModelSettings(temperature=0.7)),
            Clerk(model="big"),
        ):
            (difference,) = (await replay("s", other, store=store)).differences
            assert (difference.kind, difference.call.rpartition("/")[2]) == ("request", "c0")


async def test_calls_of_pydantic_ai_are_replayed_by_an_executor() -> None:
    """It sends no request, so none is compared."""

    def note(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept(params.text))
        return ToolResult.ok(params)

    def make(session: Session) -> ToolExecutor:
        return executor(tool("pay", effect="external"), tool("note", note), session=session)

    with stores.open("memory:") as store:
        with store.session("s") as session:
            await Clerk()(RunTask(session, "Pay A."))
        outcome = await replay("s", make, store=store)
        assert (outcome.compared, [one.kind for one in outcome.differences]) == (2, [])


async def test_evaluation_of_a_prompt_is_replayed_whole() -> None:
    """By the adapter, with a structured answer."""

    async def desk(task: RunTask) -> object:
        adapter = PydanticAIAdapter(FunctionModel(Clerk().answer))
        return (
            await adapter.evaluate_async(prompt(tool("note"), tool("pay", effect="external")), session=task.session)
        ).text

    with stores.open("memory:") as store:
        with store.session("s") as session:
            await desk(RunTask(session, None))
        outcome = await replay("s", desk, store=store)
        assert (outcome.equal, outcome.compared) == (True, 2), outcome.differences
