"""The effects of the origins of a fork, over every store: they answer its calls, and are never written to."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from handrail.prompt import Approval, ApprovalRequest, External, IdempotencyConfig, Tool
from handrail.runtime import Session, ToolInvoked, ToolMessage
from handrail.session.persistence.loading import origin_ids
from handrail.store.protocol import UNTIL_APPLIED, EffectRow, change_effect
from tests.kit import ASKS, Note, call, executor, tool
from tests.runtime.kit import Shop, World
from tests.wording import Wording

BY_TEXT = IdempotencyConfig(strategy="custom", key_fn=lambda params: str(params.text).partition(" ")[0])
STRICT = IdempotencyConfig(strategy="custom", key_fn=BY_TEXT.key_fn, on_other_arguments="refuse")


@dataclass
class Desk:
    """A session that has been forked, and its fork.

    Attributes:
        world: what both do.
        session: the origin.
        fork: the fork.
    """

    world: World
    session: Session
    fork: Session

    def ask(
        self, session: Session, name: str, text: str = "a", ref: str = "r2/c1", *tools: Tool[Any, Any]
    ) -> ToolMessage:
        """Ask for a call in one of the two."""
        reply, _, call_id = ref.partition("/")
        door = executor(*(tools or self.world.tools), session=session, clock=self.world.clock)
        return door.execute(call(name, text, id=call_id), reply=reply)

    def rows(self, partition: str = "s") -> list[EffectRow]:
        """The effects of the origin, or of another session."""
        return [row for row in self.world.store.rows() if row.partition == partition]

    def change(self, **fields: Any) -> EffectRow:
        """Change the only effect of the origin."""
        (row,) = self.rows()
        assert change_effect(self.world.store, row, row._replace(**fields))
        return row._replace(**fields)


@pytest.fixture
def desk(world: World) -> Generator[Desk]:
    """A fork of a session that has made one call."""
    with ExitStack() as opened:
        session = opened.enter_context(world.session())
        world.executor(session).execute(call("change", "begin"), reply="r1")
        fork = opened.enter_context(session.fork(session_id="fork"))
        yield Desk(world, session, fork)


@pytest.mark.parametrize("name, ref", [("send", "r2/c1"), ("pay", "r2/c1"), ("pay", "r7/other")])
def test_what_the_origin_has_done_since_is_a_hit(desk: Desk, name: str, ref: str, wording: Wording) -> None:
    """The same call, or an equal key; its message says where it was done, and its changes are made in the fork."""
    desk.ask(desk.session, name)
    before = desk.rows()
    message = desk.ask(desk.fork, name, "a", ref)
    assert (message.success, message.replayed, message.content) == (True, True, wording)
    assert desk.world.done == ["begin", "a"]
    assert (desk.rows(), desk.rows("fork")) == (before, [])
    assert desk.fork[Note].all() == desk.session[Note].all() == (Note("begin"), Note("a"))
    assert desk.ask(desk.fork, name, "a", ref).replayed
    assert len(desk.fork[ToolInvoked]) == 2


def test_state_of_the_origin_that_came_since_is_made_anew(desk: Desk) -> None:
    """A call without an effect outside runs in the fork as it did in the origin."""
    desk.ask(desk.session, "change")
    assert not desk.ask(desk.fork, "change").replayed
    assert desk.world.done == ["begin", "a", "a"]
    assert desk.fork[Note].all() == desk.session[Note].all()


@pytest.mark.parametrize("is_shared", [True, False])
def test_key_of_a_state_tool_is_a_hit_if_its_changes_are_in_the_fork(desk: Desk, is_shared: bool) -> None:
    """What the origin has changed after the fork is changed in the fork, too."""
    keyed = tool("keyed", desk.world.handle, idempotency=IdempotencyConfig())
    with ExitStack() as opened:
        fork = desk.fork
        desk.ask(desk.session, "keyed", "a", "r2/c1", keyed)
        if is_shared:
            fork = opened.enter_context(desk.session.fork(session_id="later"))
        assert desk.ask(fork, "keyed", "a", "r3/c1", keyed).replayed == is_shared
        assert fork[Note].all() == (Note("begin"), Note("a"))


def test_slot_with_other_arguments_is_another_call(desk: Desk) -> None:
    """In another branch the model asks for something else under a name that the program gives replies."""
    desk.ask(desk.session, "send")
    assert not desk.ask(desk.fork, "send", "b").replayed
    assert desk.world.done == ["begin", "a", "b"]


def test_later_call_without_a_key_is_another_one(desk: Desk) -> None:
    """As in one session: it was done, and read about."""
    desk.ask(desk.session, "send")
    assert not desk.ask(desk.fork, "send", "a", "r3/c1").replayed
    assert desk.world.done == ["begin", "a", "a"]


def test_new_keys_repeat_everything(desk: Desk) -> None:
    """Also after the fork is opened again, and in its own fork, which repeats nothing of the first one."""
    desk.ask(desk.session, "pay")
    with desk.session.fork(session_id="new", at=("r1", "call-1"), new_keys=True) as new:
        assert new.origins == ()
    with desk.world.session("new") as new:
        assert not desk.ask(new, "pay").replayed
        with new.fork(session_id="again") as again:
            assert again.origins == ("new",)
            assert desk.ask(again, "pay", "a", "r3/c1").replayed
    assert desk.world.done == ["begin", "a", "a"]


UNSETTLED: dict[str, dict[str, Any]] = {
    "unknown": {"status": "unknown", "note": "TimeoutError", "completed_at": None, "expires_at": None},
    "running": {"status": "running", "completed_at": None, "expires_at": None},
}


@pytest.mark.parametrize("state", UNSETTLED)
@pytest.mark.parametrize("name", ["send", "pay"])
def test_what_is_not_settled_in_the_origin_is_refused(desk: Desk, name: str, state: str, wording: Wording) -> None:
    """It is settled there, and then answers the call, or lets it run."""
    desk.ask(desk.session, name)
    row = desk.change(**UNSETTLED[state], lease_until=desk.world.clock.now() + timedelta(minutes=1))
    message = desk.ask(desk.fork, name)
    assert (message.success, message.content) == (False, wording)
    assert (desk.rows(), desk.rows("fork"), desk.world.done) == ([row], [], ["begin", "a"])
    desk.change(status="failed", lease_until=None)
    assert desk.ask(desk.fork, name).success
    assert desk.world.done == ["begin", "a", "a"]
    assert [each.status for each in desk.rows("fork")] == ["done"]


@pytest.mark.parametrize("fields", [{"status": "failed"}, {"expires_at": timedelta(0)}], ids=["failed", "expired"])
def test_what_does_not_count_in_the_origin_runs(desk: Desk, fields: dict[str, Any]) -> None:
    """As it would there."""
    desk.ask(desk.session, "pay")
    now = desk.world.clock.now()
    desk.change(**{name: now if isinstance(value, timedelta) else value for name, value in fields.items()})
    assert not desk.ask(desk.fork, "pay").replayed
    assert desk.world.done == ["begin", "a", "a"]


@pytest.mark.parametrize("has_expired", [False, True])
def test_tool_that_may_be_repeated_is_repeated(desk: Desk, has_expired: bool) -> None:
    """With `on_orphan="retry"`, once its owner cannot be at work any more."""
    again = tool("again", desk.world.handle, effect=External(on_orphan="retry"))
    desk.ask(desk.session, "again", "a", "r2/c1", again)
    until = desk.world.clock.now() + timedelta(minutes=0 if has_expired else 1)
    desk.change(status="running", completed_at=None, expires_at=None, lease_until=until)
    assert desk.ask(desk.fork, "again", "a", "r2/c1", again).success == has_expired


@pytest.mark.parametrize("config", [BY_TEXT, STRICT], ids=["replay", "refuse"])
def test_key_with_other_arguments_is_as_in_one_session(desk: Desk, config: IdempotencyConfig, wording: Wording) -> None:
    """Its result is replayed, and both facts are said; or it is refused."""
    buy = tool("buy", desk.world.handle, effect="external", idempotency=config)
    desk.ask(desk.session, "buy", "lamp red", "r2/c1", buy)
    message = desk.ask(desk.fork, "buy", "lamp blue", "r3/c1", buy)
    assert (message.replayed, message.content) == (config is BY_TEXT, wording)
    assert desk.world.done == ["begin", "lamp red"]


def test_key_that_sessions_share_is_the_ledgers(desk: Desk) -> None:
    """It has no session, so its row is the same in the fork."""
    shared = tool("shared", desk.world.handle, effect="external", idempotency=IdempotencyConfig(scope="shop"))
    desk.ask(desk.session, "shared", "a", "r2/c1", shared)
    assert "forked" not in desk.ask(desk.fork, "shared", "a", "r3/c1", shared).content
    assert desk.world.done == ["begin", "a"]


def test_equal_call_of_the_origin_that_is_unknown_is_refused(desk: Desk, wording: Wording) -> None:
    """Under another id, of a tool without a key; other arguments run."""
    desk.world.raises.append(TimeoutError())
    assert not desk.ask(desk.session, "send").success
    (row,) = desk.rows()
    message = desk.ask(desk.fork, "send", "a", "r3/c1")
    assert (message.success, message.content, desk.rows()) == (False, wording, [row])
    assert desk.ask(desk.fork, "send", "b", "r4/c1").success
    desk.change(status="failed")
    assert desk.ask(desk.fork, "send", "a", "r5/c1").success
    assert desk.world.done == ["begin", "b", "a"]


def test_claim_of_the_fork_counts_before_that_of_its_origin(desk: Desk) -> None:
    """What it was claimed for when the origin had nothing."""
    desk.ask(desk.session, "pay")
    done = desk.change(status="failed")
    assert not desk.ask(desk.fork, "pay").replayed
    assert change_effect(desk.world.store, done, done._replace(status="done", message="of the origin"))
    assert "origin" not in desk.ask(desk.fork, "pay", "a", "r3/c1").content


def test_nearest_origin_counts_and_children_have_those_of_their_parent(desk: Desk, wording: Wording) -> None:
    """A child of the fork repeats nothing that a child of the same name has done for the origin."""
    desk.ask(desk.session, "pay")
    with desk.session.child(session_id="s/r2/agent") as child:
        desk.ask(child, "pay", "b")
    with ExitStack() as opened:
        again = opened.enter_context(desk.fork.fork(session_id="again"))
        assert again.origins == ("fork", "s")
        desk.ask(desk.fork, "pay", "c")
        assert [desk.ask(again, "pay", text, f"{text}/c1").content for text in "ac"] == wording
        below = opened.enter_context(again.child(session_id="again/r2/agent"))
        assert below.origins == ("fork/r2/agent", "s/r2/agent")
        assert desk.ask(below, "pay", "b", "r5/c1").content == wording
        elsewhere = opened.enter_context(again.child(session_id="elsewhere"))
        assert elsewhere.origins == ()
        recorder = below.recorder
        assert recorder is not None
        assert origin_ids(desk.world.store, recorder.session_lock.row) == below.origins
    assert desk.world.done == ["begin", "a", "b", "c"]


def test_result_that_is_not_applied_waits_for_the_origin(shop: Shop, wording: Wording) -> None:
    """What belongs to it would be written twice, or for the wrong session."""
    session = shop.session("s")
    door = shop.door(session)
    door.execute(call("charge", "begin"), reply="r1")
    fork = shop.opened.enter_context(session.fork(session_id="fork"))
    door.execute(call("charge", "lamp"), reply="r2")
    row = next(row for row in shop.rows() if row.completed_at is not None and b"lamp" in (row.arguments or b""))
    change_effect(shop.store, row, row._replace(applied_at=None, expires_at=shop.clock.now() + UNTIL_APPLIED))
    branch = shop.door(fork)
    assert branch.execute(call("charge", "lamp"), reply="r2").content == wording
    now = shop.clock.now()
    change_effect(shop.store, row, row._replace(applied_at=now))
    assert branch.execute(call("charge", "lamp"), reply="r2").replayed
    assert (shop.charged, shop.booked) == (["begin", "lamp"], ["begin", "lamp"])


def test_approval_of_the_origin_is_not_one_of_the_fork(desk: Desk) -> None:
    """A call that the origin was allowed is asked about again, also if it is a hit; a no refuses it."""
    asked: list[str] = []

    def answer(request: ApprovalRequest) -> Approval:
        asked.append(request.tool.name)
        return Approval(len(asked) < 3)

    doors = [
        executor(*desk.world.tools, session=session, clock=desk.world.clock, policies=(ASKS,), approver=answer)
        for session in (desk.session, desk.fork)
    ]
    assert [door.execute(call("pay", "a"), reply="r2").success for door in doors] == [True, True]
    assert not doors[1].execute(call("pay", "a"), reply="r3").success
    assert (asked, desk.world.done) == (["pay"] * 3, ["begin", "a"])
