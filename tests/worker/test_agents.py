"""What workers carry out: agents of files, whose questions people answer, PydanticAI's own, and what is refused."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.exceptions import ModelHTTPError

from handrail import store as stores
from handrail.adapters.pydantic_ai import HandrailCapability, StoredHistory
from handrail.adapters.run_task import name_function
from handrail.agents import RunOptions
from handrail.cli import main
from handrail.errors import HandrailError, PromptEvaluationError
from handrail.operations.questions import stored_questions
from handrail.operations.runs import retry_run
from handrail.store import Store
from handrail.testing import Call, Reply, ScriptedModel
from handrail.worker import Again, Failed, Finished, RunOutcome, RunTask, Waiting, resume, submit
from handrail.worker.agents import digest_agent, load_agents
from handrail.worker.resuming import ResumeOptions
from tests.agents.stored_desks import Asked, Desk, Reader, Replies, desk_in
from tests.kit import ASKS, executor, refusal, tool
from tests.view.client import see, send, visit
from tests.wording import Wording
from tests.worker.desks import answer_all, run_now

pytestmark = pytest.mark.anyio

HELP: Replies = {
    "desk": [[Asked("d1", "helper", {"input": "Help."})], "Done."],
    "helper": [[Asked("h1", "pay", {"order": "tea"})], "Helped."],
}
NOTES: Replies = {"desk": [[Asked(f"d{number}", "note", {"text": "a"})] for number in range(3)] + ["Done."]}
OVERLOADED = ModelHTTPError(529, "reader")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk of agents."""
    return desk_in(tmp_path)


@pytest.fixture
def store(desk: Desk) -> Generator[Store]:
    """Its store, with a run of its agent."""
    with stores.open(desk.url) as store:
        submit(store, "s", agent=desk.agent(), input="Do it.")
        yield store


async def carry_out(store: Store, desk: Desk, reader: Reader, session_id: str = "s") -> RunOutcome:
    """Resume the run in a process that has just begun."""
    return await resume(
        store, session_id, desk.agent(), options=ResumeOptions(run=RunOptions(model=reader.model(), stream=False))
    )


# ------------------------------------------------------------------------------------------------------ agents of files


async def test_agent_of_a_file_is_carried_out_once(desk: Desk, store: Store) -> None:
    """Its answer is text; when it has answered, the model is not asked again, also if the row says otherwise."""
    reader = Reader(NOTES)
    assert await carry_out(store, desk, reader) == Finished("Done.")
    assert (desk.notes(), run_now(store, "s").data.agent) == (["a"] * 3, "desk")
    submit(store, "again", agent=desk.agent(), input="Do it.")
    await asyncio.to_thread(desk.run, Reader(NOTES), "Do it.", session_id="again")
    assert await carry_out(store, desk, Reader({"desk": []}), "again") == Finished("Done.")


def in_python(store: Store) -> None:
    """Answer in a program."""
    answer_all(store, "s")


def by_command(store: Store) -> None:
    """Answer on the command line."""
    assert main(["approvals", "answer", "s", "h1", "yes", "--store", store.url]) == 0


def on_the_page(store: Store) -> None:
    """Answer in the viewer."""
    client = visit(store, allow_actions=True)
    (form,) = see(client, "/questions").forms
    assert send(client, form, answer="yes", reason="", name="Ada").status_code == 303


@pytest.mark.parametrize("answer", [in_python, by_command, on_the_page])
@pytest.mark.short(3)
async def test_question_of_a_nested_agent_is_answered_anywhere(
    desk: Desk, store: Store, answer: Callable[[Store], None]
) -> None:
    """In Python, by a command, and in the viewer: the run of the outermost session is open then, and ends."""
    assert isinstance(await carry_out(store, desk, Reader(HELP)), Waiting)
    assert (run_now(store, "s").row.status, desk.world) == ("waiting", [])
    answer(store)
    assert run_now(store, "s").row.status == "open"
    assert await carry_out(store, desk, Reader(HELP)) == Finished("Done.")
    assert (desk.world, stored_questions(store)) == (["tea"], [])


async def test_model_that_fails_is_asked_again_and_its_replies_stay(desk: Desk, store: Store) -> None:
    """Of three requests two are made in the second attempt."""
    assert isinstance(await carry_out(store, desk, Reader(NOTES, breaks=("desk", 2), error=OVERLOADED)), Again)
    second = Reader(NOTES)
    assert await carry_out(store, desk, second) == Finished("Done.")
    assert (desk.notes(), len(second.seen)) == (["a"] * 3, 2)


async def test_limit_of_requests_holds_for_all_attempts_together(desk: Desk, store: Store, wording: Wording) -> None:
    """What an attempt has used up, the next one has not."""
    for session_id, limit, breaks in (("two", 2, 1), ("one", 1, 1)):
        submit(store, session_id, agent=desk.agent(), input="Do it.", request_limit=limit)
        await carry_out(store, desk, Reader(NOTES, breaks=("desk", breaks), error=OVERLOADED), session_id)
    outcome = await carry_out(store, desk, second := Reader(NOTES), "two")
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, PromptEvaluationError)
    assert (outcome.error.phase, len(second.seen), len(desk.notes("two"))) == ("budget", 1, 2)
    assert run_now(store, "one").data.text == wording
    retry_run(store, "one")
    outcome = await carry_out(store, desk, second := Reader(NOTES), "one")
    assert isinstance(outcome, Failed)
    assert (str(outcome.error), second.seen) == (wording, [])


# ------------------------------------------------------------------------------------------- PydanticAI in a function


async def test_agent_of_pydantic_ai_is_carried_out_in_a_function(store: Store) -> None:
    """With the capability and a stored history: it waits for an approval, and goes on with the answer in its place."""
    paid: list[str] = []
    model = ScriptedModel([Reply(calls=[Call("pay", {"text": "A-1"})]), Reply(text="Paid.")])

    def pay(params: Any, *, context: Any) -> Any:
        """Pay."""
        paid.append(params.text)
        return params

    async def clerk(task: RunTask) -> object:
        stored = StoredHistory(task.session, "clerk")
        loop = executor(tool("pay", pay, effect="external"), policies=(ASKS,), session=task.session)
        capability = HandrailCapability(loop, conversation=stored, on_ask="defer")
        agent = Agent(model, capabilities=[capability], output_type=[str, DeferredToolRequests])
        prompt, results = None if stored.unfinished else task.input, stored.deferred_results
        result = await agent.run(prompt, message_history=stored.history or None, deferred_tool_results=results)
        return result.output

    submit(store, "own", agent=clerk, input="Pay A-1.")
    assert isinstance(await resume(store, "own", clerk), Waiting)
    assert paid == []
    answer_all(store, "own")
    assert await resume(store, "own", clerk) == Finished("Paid.")
    assert paid == ["A-1"]


# ------------------------------------------------------------------------------------------------------------- loading


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """A module that workers load."""
    (folder / "shop_agents.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delitem(sys.modules, "shop_agents", raising=False)
    return "shop_agents"


def test_agents_are_loaded_by_their_names(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files, and those of `AGENTS` in modules."""
    name = module(desk.folder, monkeypatch, "async def clerk(task): return 1\nAGENTS = [clerk]\n")
    agents = load_agents([str(desk.folder / "desk.agent"), name])
    assert [*agents] == ["desk", "clerk"] == [name_function(agent) for agent in agents.values()]


@pytest.mark.parametrize(
    "text",
    [
        "async def clerk(task): ...\nAGENTS = clerk\n",
        "def clerk(task): ...\nAGENTS = [clerk]\n",
        "from pydantic_ai import Agent\nAGENTS = [Agent('test', name='clerk')]\n",
        "AGENTS = ['desk.agent']\n",
    ],
    ids=["no-list", "def", "pydantic-ai", "text"],
)
def test_what_is_no_agent_is_refused_when_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Not run after run, in a worker far away."""
    name = module(tmp_path, monkeypatch, text)
    assert isinstance(refusal(Exception, load_agents, [name]), HandrailError)


def test_digest_changes_with_each_file_that_makes_the_agent(desk: Desk, tmp_path: Path) -> None:
    """Its own file, those of agents that it calls, tools and settings; nothing else does, and not where they are."""
    digests = {digest_agent(desk.agent())}
    (desk.folder / "world").write_text("paid")
    assert digest_agent(desk_in(tmp_path / "elsewhere").agent()) in digests
    for name in ("desk.agent", "helper.agent", "tools.py", "pyproject.toml"):
        path = desk.folder / name
        path.write_text(path.read_text() + "\n")
        digests.add(digest_agent(desk.agent()))
    assert len(digests) == 5


def test_digest_changes_with_each_module_beside_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside its module, or in the outermost package that it is in; nothing else does."""
    name = module(tmp_path, monkeypatch, "async def clerk(task): ...\nAGENTS = [clerk]\n")
    folder = tmp_path / "corner" / "desks"
    folder.mkdir(parents=True)
    for path in (folder, folder.parent):
        (path / "__init__.py").touch()
    (folder / "desk.py").write_text("async def desk(task): ...\nAGENTS = [desk]\n")
    agents = load_agents([name, "corner.desks.desk"])
    digests = [[digest_agent(agent)] for agent in agents.values()]
    for path in (tmp_path / "tools.py", folder.parent / "tools.py", folder / "notes.txt"):
        path.write_text("PRICE = 7")
        for known, agent in zip(digests, agents.values(), strict=True):
            known.append(digest_agent(agent))
    assert [[one == other for one, other in pairwise(known)] for known in digests] == [
        [False, True, True],
        [True, False, True],
    ]
