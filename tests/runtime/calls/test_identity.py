"""A call is named by session, reply and id: what is recorded is not run again, and no other call is taken for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from typing import Any

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import CallIdReusedError
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.testing import FakeClock
from tests.kit import Note, call, events, executor, raises, tool
from tests.runtime.kit import EFFECTS, World
from tests.store.stores import STORES
from tests.wording import Wording


@pytest.fixture
def door(world: World) -> Generator[ToolExecutor]:
    """What carries calls out in a session that is open."""
    with world.session() as session:
        yield world.executor(session)


@pytest.mark.parametrize("name", EFFECTS)
def test_ids_that_begin_anew_in_each_reply_name_different_calls(world: World, door: ToolExecutor, name: str) -> None:
    """A server that counts from 0 in each reply: the second mail is sent; only a declared key knows equal words."""
    for reply, text in (("r1", "a"), ("r2", "b"), ("r3", "b")):
        message = door.execute(call(name, text, id="call_0"), reply=reply)
        assert (message.success, message.replayed) == (True, (name, reply) == ("pay", "r3"))
    assert world.done == (["a", "b"] if name == "pay" else ["a", "b", "b"])


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("name", EFFECTS)
def test_a_recorded_call_is_answered_from_its_record(world: World, name: str, *, reopened: bool) -> None:
    """The same reply and id, after a crash or in a second run: no handler runs, nothing is recorded again."""
    session = world.session()
    first = world.executor(session).execute(call(name, "a"), reply="r1")
    if reopened:
        session.close()
        session = world.session()
    with session:
        again = world.executor(session).execute(call(name, "a"), reply="r1")
        assert (again.content, again.success, again.replayed) == (first.content, True, True)
        assert len(session[ToolInvoked]) == 1
    assert world.done == ["a"]


@pytest.mark.parametrize("name", EFFECTS)
def test_an_id_without_a_reply_is_used_once_in_a_stored_session(world: World, door: ToolExecutor, name: str) -> None:
    """Whether it is the same call cannot be known, so it is the developer's to say, whatever the arguments are."""
    assert door.execute(call(name, "a")).success
    for text in ("a", "b"):
        with pytest.raises(CallIdReusedError) as refused:
            door.execute(call(name, text))
        assert (refused.value.call_id, refused.value.reply, refused.value.tool) == ("call-1", None, name)
        assert refused.value.recorded_at == door.environment.session[ToolInvoked].all()[0].at
    assert (len(door.environment.session[ToolInvoked]), world.done) == (1, ["a"])


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_empty_id_without_a_reply_names_nothing(world: World, wording: Wording, *, is_stored: bool) -> None:
    """Such a call is not known again, so it runs each time; one that acts outside is refused, unless it has a key."""
    with world.session() if is_stored else Session(session_id="s") as session:
        door = world.executor(session)
        for name in ("look", "change", "pay"):
            assert [door.execute(call(name, name, id="")).replayed for _ in range(2)] == [False, name == "pay"]
        for _ in range(2):
            assert door.execute(call("send", id="")).content == wording
    assert world.done == ["look", "look", "change", "change", "pay"]


def test_an_empty_id_names_one_call_of_a_reply(world: World, door: ToolExecutor) -> None:
    """With a reply it is an id like any other, but for what acts outside without a key."""
    assert [door.execute(call("change", id=""), reply="r").replayed for _ in range(2)] == [False, True]
    with pytest.raises(CallIdReusedError):
        door.execute(call("change", "b", id=""), reply="r")
    assert world.done == ["hello"]


def test_in_memory_calls_without_a_reply_run_each_time_and_others_are_answered_from_their_record() -> None:
    """An external one is answered by its slot; without a reply the ledger is what knows that it is another call."""
    world = World(store=STORES["memory"](FakeClock()), clock=FakeClock())
    door = world.executor(Session(session_id="s"))
    for name in ("look", "look", "change", "change", "send", "send"):
        assert door.execute(call(name, name, id=name)).success
    assert [door.execute(call("change", "a"), reply="r").replayed for _ in range(2)] == [False, True]
    recorded = len(events(door))
    with pytest.raises(CallIdReusedError) as refused:
        door.execute(call("send", "b", id="send"))
    assert (refused.value.call_id, refused.value.tool, len(events(door))) == ("send", "send", recorded)
    assert world.done == ["look", "look", "change", "change", "send", "a"]


@pytest.mark.parametrize("other", [call("change", "b"), call("send", "a")])
def test_an_identity_that_stands_for_another_call_is_refused(world: World, door: ToolExecutor, other: ToolCall) -> None:
    """Another tool or other words of the model under one reply and id: a mistake of the adapter, not of the model."""
    door.execute(call("change", "a"), reply="r")
    with pytest.raises(CallIdReusedError) as refused:
        door.execute(other, reply="r")
    assert (refused.value.call_id, refused.value.reply, refused.value.tool) == ("call-1", "r", "change")
    assert (len(door.environment.session[ToolInvoked]), world.done) == (1, ["a"])


def test_words_are_compared_as_json(world: World, door: ToolExecutor) -> None:
    """Blanks and the order of fields do not make another call."""
    pair = ToolCall("c", "change", '{"text":   "a"}'), ToolCall("c", "change", {"text": "a"})
    assert [door.execute(each, reply="r").replayed for each in pair] == [False, True]


@pytest.mark.parametrize("name", ["change", "send"])
def test_arguments_that_a_person_has_changed_are_recorded_beside_the_original(world: World, name: str) -> None:
    """An override runs, and the call stays the one that the model asked for."""
    overridden = ToolCall("c", name, {"text": "cheaper"}, written='{"text": "dear"}')
    with world.session() as session:
        assert world.executor(session).execute(overridden, reply="r").success
    with world.session() as session:
        (event,) = session[ToolInvoked].all()
        assert (event.params, event.call.written) == (Note("cheaper"), '{"text": "dear"}')
        for asked in (ToolCall("c", name, '{"text": "dear"}'), ToolCall("c", name, {"text": "free"}, {"text": "dear"})):
            again = world.executor(session).execute(asked, reply="r")
            assert (again.replayed, again.content) == (True, "cheaper")
    assert world.done == ["cheaper"]


def test_two_tasks_that_make_the_same_call_run_it_once(world: World) -> None:
    """The second waits for its turn, and is then answered from the record of the first."""

    async def twice() -> list[ToolMessage]:
        with world.session() as session:
            door = world.executor(session)
            return await asyncio.gather(*(door.execute_async(call("change", "a"), reply="r") for _ in range(5)))

    messages = asyncio.run(twice())
    assert sorted(message.replayed for message in messages) == [False, True, True, True, True]
    assert world.done == ["a"]


def test_two_threads_that_make_the_same_call_run_it_once(world: World, door: ToolExecutor) -> None:
    """The same on threads, through the synchronous entry."""
    messages: list[ToolMessage] = []
    threads = [
        threading.Thread(target=lambda: messages.append(door.execute(call("send", "a"), reply="r"))) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(message.replayed for message in messages) == [False, True, True, True, True]
    assert world.done == ["a"]


def test_no_reply_that_a_program_states_names_the_calls_inside_another(world: World, wording: Wording) -> None:
    """Whatever its characters, a top-level call is not answered by a nested one; the mark of those is refused."""

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        assert desk.execute(call("send", params.text, id="inside")).success
        return ToolResult.ok(params)

    with world.session() as session:
        desk = executor(*world.tools, tool("outer", outer), session=session, clock=world.clock)
        desk.execute(call("outer", "a", id="7"), reply="day-1")
        desk.execute(call("outer", "b", id="8"))
        for reply, text in (("day-1/7", "a"), ("8", "b")):
            message = desk.execute(call("send", text, id="inside"), reply=reply)
            assert (message.success, message.replayed) == (True, False)
        for reply in ("@day-1/7", "@8", "@"):
            with raises(ValueError, wording):
                desk.execute(call("send", "a", id="inside"), reply=reply)
    assert world.done == ["a", "b", "a", "b"]


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("new_keys", [False, True])
def test_a_fork_answers_from_the_records_that_it_shares(world: World, name: str, *, new_keys: bool) -> None:
    """Their changes are in its slices: nothing before the fork runs again, also in another process."""
    with world.session() as session:
        first = world.executor(session).execute(call(name, "a"), reply="r")
        session.fork(session_id="fork", new_keys=new_keys).close()
    for _ in range(2):
        with world.session("fork") as fork:
            again = world.executor(fork).execute(call(name, "a"), reply="r")
            assert (again.content, again.replayed) == (first.content, True)
    assert world.done == ["a"]


@pytest.mark.parametrize("reply", ["", 7])
def test_a_reply_that_names_nothing_is_refused(world: World, door: ToolExecutor, reply: Any, wording: Wording) -> None:
    """It is no name."""
    with pytest.raises(ValueError) as raised:
        door.execute(call("change", "a"), reply=reply)
    assert (str(raised.value), len(door.environment.session[ToolInvoked])) == (wording, 0)


@pytest.mark.parametrize("options", [{"effect": "read"}, {"concurrent": True}])
def test_calls_of_one_identity_that_run_side_by_side_are_recorded_once(world: World, options: dict[str, Any]) -> None:
    """Both run, because neither is recorded when they begin; the second one's result is dropped."""

    async def twice(session: Session, *asked: ToolCall) -> list[ToolMessage | BaseException]:
        door = executor(tool("beside", world.handle, **options), session=session, clock=world.clock)
        calls = [door.execute_async(each, reply="r") for each in asked]
        return await asyncio.gather(*calls, return_exceptions=True)

    with world.session() as session:
        first, second = asyncio.run(twice(session, call("beside", "a"), call("beside", "a")))
        assert isinstance(first, ToolMessage)
        assert isinstance(second, ToolMessage)
        assert [first.replayed, second.replayed] == [False, True]
        assert (len(session[ToolInvoked]), session[Note].all()) == (1, (Note("a"),))
        one, other = asyncio.run(twice(session, call("beside", "b", id="2"), call("beside", "c", id="2")))
        assert isinstance(one, ToolMessage)
        assert isinstance(other, CallIdReusedError)
        assert (len(session[ToolInvoked]), session[Note].all()) == (2, (Note("a"), Note("b")))
