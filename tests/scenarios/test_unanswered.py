"""A question to which no reply has come: it is stored before it is asked, and asked once when the run is resumed."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic_ai import ModelHTTPError

from handrail.cli import main as command
from handrail.errors import RecordingError
from handrail.runtime import Session, ToolCall
from handrail.session.conversation import ConversationPart
from handrail.store import MemoryStore, SqliteStore
from handrail.testing import Crashed
from tests.cli.agent_folders import script
from tests.crash.forks import fork_to_crash, start
from tests.scenarios import unanswered
from tests.scenarios.unanswered import AGENT, Entry, Listener, Place, ask
from tests.session.faulty_stores import FaultyStore

pytestmark = pytest.mark.anyio

FAILURES = {
    **{str(status): ModelHTTPError(status, "m") for status in (401, 429, 500)},
    "timeout": TimeoutError("no answer"), "lost": ConnectionError("the connection was lost"),
}  # fmt: skip
EARLIER = ["Hello."]
"""What was asked and answered before."""


def failing(error: BaseException) -> Listener:
    """A model whose provider fails."""

    async def fail() -> None:
        raise error

    return Listener(fail)


@pytest.fixture(params=get_args(Entry))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store of its own, for each entry."""
    return Place(tmp_path, request.param)


def told(place: Place, *said: str) -> list[str]:
    """What the model reads from the user: an evaluation begins a conversation of its own."""
    return list(said) if place.entry == "evaluation" else [*EARLIER, *said]


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.short(2)
async def test_a_question_that_the_provider_refuses_is_asked_when_the_run_is_resumed(place: Place, kind: str) -> None:
    """On the first turn and on a later one; meanwhile the session is open."""
    for said, before in (("Hello.", []), ("My order is broken.", EARLIER)):
        with pytest.raises(Exception, match=r"status_code|answer|connection"):
            await place.ask(said, failing(FAILURES[kind]))
        assert place.states == ("open",)
        listener = Listener()
        assert await place.ask(None, listener) == "Mended."
        assert listener.asked == [[said] if place.entry == "evaluation" else [*before, said]]
        assert place.states == ("ended",)


@pytest.mark.parametrize("later", [False, True])
async def test_a_question_whose_run_is_cancelled_is_asked_when_it_is_resumed(place: Place, *, later: bool) -> None:
    """The task is cancelled while the model is asked."""
    if later:
        await place.ask("Hello.", Listener())
    asked = asyncio.Event()

    async def wait() -> None:
        asked.set()
        await asyncio.Event().wait()

    run = asyncio.create_task(place.ask("Mend it.", Listener(wait)))
    await asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert place.states == ("open",)
    listener = Listener()
    await place.ask(None, listener)
    assert listener.asked == [told(place, "Mend it.") if later else ["Mend it."]]


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.short(2)
def test_a_question_whose_process_is_killed_is_shown_and_asked_by_another_one(
    place: Place, capsys: pytest.CaptureFixture[str], *, later: bool
) -> None:
    """SIGKILL while the model is asked, for the first time and when the run is resumed."""
    if later:
        asyncio.run(place.ask("Hello.", Listener()))
    for said in ("Mend it.", ""):
        with start(unanswered.__name__, str(place.folder), place.entry, said) as process:
            assert process.wait() == -signal.SIGKILL
        assert place.states == ("open",)
    assert command(["sessions", "show", "s", "--store", place.url]) == 0
    assert capsys.readouterr().out.count("Mend it.") == 1
    listener = Listener()
    asyncio.run(place.ask(None, listener))
    assert listener.asked == [told(place, "Mend it.") if later else ["Mend it."]]
    assert place.states == ("ended",)


@pytest.mark.parametrize("again", [None, "Mend it."])
async def test_a_question_is_stored_once_however_often_it_is_resumed(place: Place, again: str | None) -> None:
    """Without an input, and with the same one, which is the same question."""
    await place.ask("Hello.", Listener())
    listener = failing(FAILURES["429"])
    for said in ("Mend it.", again, None, again, "Mend it.", again):
        with pytest.raises(Exception, match="429"):
            await place.ask(said, listener)
        assert place.stored_questions == 2
    listener.act = None
    await place.ask(again, listener)
    assert listener.asked == [told(place, "Mend it.")] * 7
    assert (place.stored_questions, place.states) == (2, ("ended",))


async def test_another_question_follows_one_without_a_reply(place: Place) -> None:
    """The model reads both, in the order in which they were asked, and each of them once."""
    await place.ask("Hello.", Listener())
    for said in ("Mend it.", "Or send another.", None, "Or send another."):
        with pytest.raises(Exception, match="429"):
            await place.ask(said, failing(FAILURES["429"]))
    listener = Listener()
    await place.ask(None, listener)
    assert listener.asked == [told(place, "Mend it.", "Or send another.")]
    assert place.states == ("ended",)


async def test_a_history_in_one_process_is_continued_after_failures(tmp_path: Path) -> None:
    """A program that holds its session open, and gives the history that it has; also in memory."""
    for session in (Session(), Session.open(SqliteStore(tmp_path / "s.db"), "s")):
        listener = failing(FAILURES["500"])
        for said in ("One.", "Two.", "Two.", None):
            with pytest.raises(ModelHTTPError):
                await ask("history", session, said, listener)
        listener.act = None
        assert await ask("history", session, "Three.", listener) == "Mended."
        assert listener.asked[-2:] == [["One.", "Two."], ["One.", "Two.", "Three."]]
        session.close()


async def test_an_agent_is_not_asked_what_has_been_answered(place: Place) -> None:
    """An equal input after the reply is another question."""
    listener = Listener()
    for _ in range(2):
        await place.ask("Hello.", listener)
    assert listener.asked == [["Hello."], told(place, "Hello.")]


async def test_the_model_is_not_asked_what_the_store_does_not_take() -> None:
    """The caller is told; the question is in the conversation of this process once, and stored with the next unit."""
    store = FaultyStore(MemoryStore())
    with Session.open(store, "s") as session:
        listener = Listener()
        store.go_down("begin")
        with pytest.raises(RecordingError):
            await ask("history", session, "Mend it.", listener)
        assert listener.asked == []
        store.come_back()
        assert await ask("history", session, None, listener) == "Mended."
        assert listener.asked == [["Mend it."]]
        assert repr(session[ConversationPart].all()).count("user-prompt") == 1
    with Session.open(store, "s") as session:
        assert repr(session[ConversationPart].all()).count("user-prompt") == 1


@pytest.mark.parametrize("later", [False, True])
def test_a_command_that_is_killed_has_lost_no_question_that_it_has_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    """Killed after each unit of `handrail run`, and resumed without an input, it answers, and has asked once."""
    monkeypatch.setattr("sys.stdin", None)
    (tmp_path / "desk.agent").write_text(AGENT, encoding="utf-8")
    model = script(tmp_path, {"text": "Mended."})
    resumed = 0
    for nth in range(1, 20):
        store = ["--store", f"sqlite:///{tmp_path}/{nth}.db"]
        words = ["--model", model, *store, "--session", "s"]
        run = ["run", str(tmp_path / "desk.agent")]
        if later:
            assert command([*run, "Hello.", *words]) == 0
        if not isinstance(fork_to_crash(command, [*run, "Mend it.", *words], at="unit-after-commit", nth=nth), Crashed):
            break
        capsys.readouterr()
        assert command(["sessions", "list", *store, "--state", "open", "--format", "json"]) == 0
        if not capsys.readouterr().out:  # nothing was asked yet, or all is answered
            continue
        resumed += 1
        assert command([*run, *words]) == 0
        assert "Mended." in capsys.readouterr().out
        command(["sessions", "show", "s", *store])
        assert capsys.readouterr().out.count("Mend it.") == 1
    assert resumed


CALLS = [ToolCall("c1", "pay", {})]


MEND = {"role": "user", "content": "Mend it."}
MENDED = {"role": "assistant", "content": "Mended."}
LOOPS: list[tuple[list[Any], list[ToolCall], bool]] = [
    ([MEND], [], True), ([{"role": "developer", "content": "You mend."}, MEND], [], True), ([MENDED], [], False),
    ([{"role": "assistant", "content": "I pay."}], CALLS, True), (["a form of the program's own"], [], False),
    ([{"role": "tool", "tool_call_id": "c1", "content": "paid"}], [], True),
    ([{"type": "function_call_output", "call_id": "c1", "output": "paid"}], [], True),
    ([{"type": "reasoning"}, {"type": "message", **MENDED}], [], False),
    ([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}], [], True),
]  # fmt: skip


@pytest.mark.parametrize("messages, calls, unfinished", LOOPS)
def test_a_loop_of_the_program_is_open_while_it_waits_for_the_model(
    tmp_path: Path, messages: list[Any], calls: list[ToolCall], *, unfinished: bool
) -> None:
    """In the forms of all providers; what a message of another form is, is not known."""
    place = Place(tmp_path, "agent")
    with place.store() as store, Session.open(store, "s") as session:
        session.conversation.append(*messages, calls=calls, reply="r1" if calls else None)
    assert place.states == (("open",) if unfinished else ("ended",))


def main(path: str) -> None:
    """Append a question to a conversation, and die; in a process."""
    with SqliteStore(Path(path)) as store, Session.open(store, "s") as session:
        session.conversation.append({"role": "user", "content": "Mend it."})
        asyncio.run(unanswered.die())


def test_a_question_of_a_loop_is_stored_when_it_is_appended(tmp_path: Path) -> None:
    """Killed before the model is asked, the process that comes next has the question."""
    with start(__name__, str(tmp_path / "s.db")) as process:
        assert process.wait() == -signal.SIGKILL
    place = Place(tmp_path, "agent")
    assert place.states == ("open",)
    with place.store() as store, Session.open(store, "s") as session:
        assert session.conversation.messages == [{"role": "user", "content": "Mend it."}]
