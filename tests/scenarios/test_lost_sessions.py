"""A session that is lost, or a store that does not answer, ends the run of every adapter: no model is told or asked."""

from __future__ import annotations

from collections.abc import Generator
from datetime import timedelta
from pathlib import Path

import pytest

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import RecordingError, SessionLostError, StoreError
from handrail.prompt import ToolContext, ToolResult
from handrail.runtime import Session, ToolInvoked
from handrail.store.postgres.server import Server
from handrail.testing import Call, FakeClock, Reply, Script
from tests.agents.kit import Line, agent, desk, inside, lines, play, write_line
from tests.kit import Kept, Note, executor, tool
from tests.scenarios.doors import Door, every_door
from tests.session.faulty_stores import FaultyStore, faulty
from tests.store.postgres_server import fresh_url
from tests.store.stores import STORES

NOW = timedelta(0)


def keep(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    """Write to the session."""
    context.session[Kept].append(Kept(params.text))
    return ToolResult.ok(params)


class Shop:
    """A stored session whose tool `lose` has another process take it over; `note` and `pay` are calls after that."""

    def __init__(self, store: FaultyStore) -> None:
        self.store = store
        self.session = Session.open(store, "s", wait=NOW)
        self.paid: list[str] = []
        losing = tool("lose", self._lose), tool("fail", self._fail), tool("down", self._down)
        tools = *losing, tool("note", keep), tool("pay", self._pay, effect="external")
        self.executor: ToolExecutor = executor(*tools, session=self.session)
        self.other: Session | None = None

    def pass_on(self) -> None:
        """Have another process take the session over."""
        self.store.release(self.store.holds[-1])
        self.other = Session.open(self.store, "s", wait=NOW)

    def _lose(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        self.pass_on()
        return keep(params, context=context)

    def _fail(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        self.pass_on()
        return ToolResult.error("the pen broke", params)

    def _down(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        self.store.go_down("insert", "begin")
        return keep(params, context=context)

    def _pay(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        self.paid.append(params.text)
        return ToolResult.ok(params)


@pytest.fixture(params=list(STORES))
def shop(request: pytest.FixtureRequest) -> Generator[Shop]:
    """The shop over each kind of store."""
    with faulty(str(request.param), FakeClock()) as store:
        yield Shop(store)


@every_door
@pytest.mark.parametrize("how", ["lose", "fail", "down"])
def test_a_run_whose_session_or_store_is_lost_ends_and_its_model_is_not_asked_again(
    door: Door, shop: Shop, how: str
) -> None:
    """What the call wrote is rolled back, and the calls after it have no effect; the store has what was committed."""
    script = [
        Reply(calls=(Call("note", {"text": "before"}),)),
        Reply(calls=(Call(how, {"text": "A"}), Call("pay", {"text": "B"}))),
        Reply(text="All is done."),
    ]
    with pytest.raises(RecordingError) as raised:
        door.play(Script(tuple(script)), shop.executor)
    assert isinstance(raised.value.__cause__, SessionLostError if how != "down" else StoreError)
    assert (raised.value.session_id, raised.value.effect) == ("s", "none")
    assert shop.paid == []
    shop.store.come_back()
    shop.session.close()
    if shop.other is not None:
        shop.other.close()
    with Session.open(shop.store, "s", wait=NOW) as again:
        assert [each.text for each in again[Kept]] == ["before"]
        assert [event.name for event in again[ToolInvoked] if event.success] == ["note"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_an_agent_that_is_called_ends_its_caller_too(tmp_path: Path, kind: str) -> None:
    """The session of the called agent is lost: neither of the two models is asked again."""

    def lose(text: str) -> str:
        """Have another process take over what the called agent writes to."""
        write_line(text)
        held = store.holds[-1]
        store.release(held)
        others.append(Session.open(store, held.session_id, wait=NOW, types=[Line]))
        return "lost"

    others: list[Session] = []
    with faulty(kind, FakeClock()) as store, Session.open(store, "s", wait=NOW) as session:
        child = agent("child", tools="[lose]")
        loaded = desk(tmp_path, tools=[lose], also=["child"], others={"child.agent": child})
        first = Reply(calls=(Call("child", {"input": "Go."}, id="c1"),))
        inner = inside("c1", [Reply(calls=(Call("lose", {"text": "A"}, id="n1"),)), Reply(text="Done.")])
        with pytest.raises(RecordingError) as raised:
            await play(loaded, [first, *inner, Reply(text="All is done.")], session=session)
        assert raised.value.session_id == others[0].session_id != "s"
        assert lines(others[0]) == []
        others[0].close()


def test_a_connection_has_keepalives_and_those_of_the_url_count() -> None:
    """About ten seconds after a machine has gone, the other side knows."""
    with fresh_url() as url:
        own = f"{url}&keepalives_idle=60"
        with Server(url, url).connect() as first, Server(own, own).connect() as second:
            shown = [connection.info.get_parameters() for connection in (first, second)]
        names = ("keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
        assert [tuple(each[name] for name in names) for each in shown] == [
            ("5", "2", "2", "10000"),
            ("60", "2", "2", "10000"),
        ]
