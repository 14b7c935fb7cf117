"""A replay of calls: what comes from the record, what is compared, and that nothing is done outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from handrail import store as stores
from handrail import undo
from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import EffectUncertain, PlanRefusedError, SessionError, SessionNotFoundError, ToolValidationError
from handrail.filesystem import Filesystem, HostFilesystem
from handrail.prompt import (
    Approval,
    ApprovalRequest,
    External,
    IdempotencyConfig,
    PolicyDecision,
    Tool,
    ToolContext,
    ToolResult,
)
from handrail.replay import Replay, replay
from handrail.runtime import Session, ToolCall
from handrail.store import Store
from tests.kit import ASKS, Decides, Kept, Note, echo, executor, raises, tool
from tests.store.postgres_server import fresh_url
from tests.wording import Wording

pytestmark = pytest.mark.anyio

Calls = tuple[tuple[str, str], ...]
"""The tools and texts of the calls of a reply."""


@dataclass
class World:
    """A program with a store, and what it has done outside.

    Attributes:
        store: its store.
        options: what its tools are declared with now, by their names.
        handlers: what its tools do now, by their names.
        policies: what judges their calls now.
        did: what was done outside, in order.
        lost: the texts whose effects lose their answer.
        opened: what is closed at the end.
    """

    store: Store
    options: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    handlers: dict[str, Any] = field(default_factory=dict[str, Any])
    policies: tuple[Any, ...] = ()
    did: list[str] = field(default_factory=list[str])
    lost: set[str] = field(default_factory=set[str])
    opened: ExitStack = field(default_factory=ExitStack)

    def act(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Act outside."""
        self.did.append(params.text)
        if params.text == "refused":
            raise ToolValidationError("not today")
        if params.text in self.lost:
            raise EffectUncertain("no answer")
        return ToolResult.ok(Note(f"{params.text} {len(self.did)}"))

    def find(self, params: Note, key: str) -> ToolResult[Note] | None:
        """Ask outside."""
        self.did.append(f"asked {params.text}")
        raise EffectUncertain("no answer either") if params.text == "silent" else EffectUncertain("later")

    def keep(self, params: Note, *, context: ToolContext) -> ToolResult[Note]:
        """Write to the session."""
        context.session[Kept].append(Kept(params.text))
        return ToolResult.ok(params)

    @property
    def tools(self) -> list[Tool[Note, Note]]:
        """The tools, as they are now."""
        own: dict[str, tuple[Any, dict[str, Any]]] = {
            "look": (echo, {"effect": "read"}),
            "keep": (self.keep, {}),
            "send": (self.act, {"effect": "external"}),
            "pay": (
                self.act,
                {"effect": External(reconcile=self.find), "idempotency": IdempotencyConfig(scope="shop")},
            ),
        }
        return [
            tool(name, self.handlers.get(name, handler), **{**options, **self.options.get(name, {})})
            for name, (handler, options) in own.items()
        ]

    def executor(self, session: Session) -> ToolExecutor:
        """The executor of a session."""
        return executor(*self.tools, policies=self.policies, session=session, approver=_approve)

    def record(self, *replies: Calls, session_id: str = "s", talks: bool = True) -> None:
        """Have a session make calls."""
        with Session.open(self.store, session_id) as session, self.executor(session) as loop:
            talk = session.conversation
            if talks:
                talk.append({"role": "user", "content": "Go."})
            for number, calls in enumerate(replies):
                made = [ToolCall(f"c{place}", name, {"text": text}) for place, (name, text) in enumerate(calls)]
                if not talks:
                    loop.execute_all(made, reply=f"r{number}")
                    continue
                talk.append({"role": "assistant", "content": ""}, calls=made, reply=f"r{number}")
                answers = loop.execute_all(made, reply=f"r{number}")
                talk.append(*({"role": "tool", "tool_call_id": one.call_id, "content": one.content} for one in answers))
        self.did, self.before = [], self.did

    async def replay(self, session_id: str = "s", **options: Any) -> Replay:
        """Replay it; nothing is done outside, and the store is as before."""
        before = repr([*self.store.rows()]), repr([*self.store.entries(session_id)]), repr([*self.store.sessions()])
        outcome = await replay(session_id, self.executor, store=self.store, **options)
        assert self.did == []
        assert before == (
            repr([*self.store.rows()]),
            repr([*self.store.entries(session_id)]),
            repr([*self.store.sessions()]),
        )
        return outcome


@dataclass(frozen=True)
class Login:
    """Arguments with a secret."""

    password: SecretStr


def _approve(request: ApprovalRequest) -> Approval:
    text: str = request.params.text
    return Approval(approved=text != "no", reason="" if text != "no" else "too much")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[World]:
    """A program over each store."""
    with ExitStack() as opened:
        urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path / 'desk.db'}"}
        url = urls.get(request.param) or opened.enter_context(fresh_url())
        yield World(opened.enter_context(stores.open(url)), opened=opened)


WEEK: tuple[Calls, ...] = (
    (("look", "a"), ("look", "b"), ("keep", "c")),
    (("send", "a"), ("pay", "o1"), ("pay", "o1"), ("send", "refused")),
    (("pay", "o1"), ("none", "x"), ("send", "a")),
)


@pytest.mark.parametrize("talks", [True, False])
async def test_same_program_replays_equal(world: World, talks: bool) -> None:
    """With and without a conversation."""
    world.record(*WEEK, talks=talks)
    outcome = await world.replay()
    assert (outcome.equal, outcome.compared, len(outcome.calls)) == (True, 10, 10), outcome.differences


async def test_open_session_is_replayed(world: World) -> None:
    """As it is by now; it may be used on."""
    world.record(*WEEK)
    with Session.open(world.store, "s") as session:
        assert (await replay(session, world.executor)).equal
        session.conversation.append({"role": "user", "content": "More."})


async def test_effects_in_doubt_are_answered_as_they_were(world: World) -> None:
    """An unknown one, its repeats, and one that was found out later."""
    world.lost = {"o2", "silent"}
    world.record((("pay", "o2"), ("send", "silent")), (("pay", "o2"), ("send", "silent")), (("pay", "o3"),))
    assert "asked o2" in world.before
    assert (await world.replay()).equal


async def test_time_is_that_of_the_record(world: World) -> None:
    """As each call has asked its context for it, in order."""

    def tell(_params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note(f"{context.clock.now()} {context.clock.now()}"))

    world.handlers = {"look": tell, "keep": tell}
    world.record((("look", "a"), ("keep", "b")))
    assert (await world.replay()).equal


async def test_key_that_another_session_has_used_is_a_hit(world: World) -> None:
    """As it was when the session was recorded."""
    world.record((("pay", "o1"),), session_id="other")
    world.record((("pay", "o1"), ("pay", "o2")))
    assert world.before[-1:] == ["o2"]
    assert (await world.replay()).equal


async def test_answers_of_people_come_from_the_record(world: World) -> None:
    """A yes and a no; nobody is asked."""
    world.policies = (ASKS,)
    world.record((("keep", "yes"), ("send", "no")))
    assert (await world.replay()).equal
    world.policies = ()
    (difference,) = (await world.replay()).differences
    assert (difference.kind, difference.call) == ("outcome", "r0/c0")


async def test_secret_argument_is_a_difference(world: World) -> None:
    """No record has it; what acts outside does not run with the mask."""

    def pay(params: Login, *, context: ToolContext) -> ToolResult[Note]:
        world.did.append(params.password.get_secret_value())
        return ToolResult.ok(Note("paid"))

    def door(session: Session) -> ToolExecutor:
        return executor(
            Tool[Login, Note](name="pay", description="Pays.", handler=pay, effect="external"), session=session
        )

    with Session.open(world.store, "s") as session:
        door(session).execute(ToolCall("c0", "pay", {"password": "hunter2"}), reply="r0")
    (difference,) = (await replay("s", door, store=world.store)).differences
    assert (difference.kind, difference.call, world.did) == ("arguments", "r0/c0", ["hunter2"])
    assert "hunter2" not in str(difference)


async def test_fork_is_replayed_from_where_it_was_forked(world: World) -> None:
    """What it was answered with from its origin is a hit again."""
    world.record(*WEEK)
    asked = [ToolCall("c0", "send", {"text": "a"}), ToolCall("c9", "send", {"text": "new"})]
    with Session.open(world.store, "s") as session, session.fork(session_id="f", at=("r0", "c2")) as fork:
        world.executor(fork).execute_all(asked, reply="r1")
    world.did.clear()
    outcome = await world.replay("f")
    assert (outcome.equal, outcome.compared) == (True, 2), outcome.differences


def _name_session(_params: Note, *, context: ToolContext) -> ToolResult[Note]:
    return ToolResult.ok(Note(context.session.session_id))


def _refuse(_params: Note, *, context: ToolContext) -> ToolResult[Note]:
    return ToolResult.error("no")


def _nested(params: Note, *, context: ToolContext) -> ToolResult[Note]:
    context.session[Kept].append(Kept("once more"))
    return ToolResult.ok(params)


CHANGES: dict[str, tuple[Callable[[World], object], str, str]] = {
    "a description": (lambda world: world.options.update(look={"description": "Looks."}), "r0/c0", "request"),
    "more state": (lambda world: world.handlers.update(keep=_nested), "r0/c2", "state"),
    "what acts reads": (lambda world: world.options.update(send={"effect": "read"}), "r1/c0", "outcome"),
    "what acts writes": (lambda world: world.options.update(send={"effect": "state"}), "r1/c0", "outcome"),
    "what has a key writes": (
        lambda world: world.options.update(pay={"effect": "state", "idempotency": None}),
        "r1/c1",
        "outcome",
    ),
    "no key": (lambda world: world.options.update(pay={"idempotency": None, "effect": "external"}), "r1/c2", "outcome"),
    "another session id": (
        lambda world: world.handlers.update(look=_name_session),
        "r0/c0",
        "result",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_replay_ends_with_its_first_difference(world: World, name: str) -> None:
    """Which names the call, and what differs; nothing that was not done before is done."""
    change, call, kind = CHANGES[name]
    world.record(*WEEK)
    change(world)
    (difference,) = (await world.replay()).differences
    assert (difference.call, difference.kind) == (call, kind)
    assert difference.diff


async def test_replay_may_go_on(world: World) -> None:
    """With the recorded replies; each call has one difference at most."""
    world.record(*WEEK)
    world.handlers["keep"] = _nested
    world.policies = (Decides(_deny_pay),)
    outcome = await world.replay(all=True)
    assert [one.call for one in outcome.differences] == ["r0/c2", "r1/c1", "r1/c2", "r2/c0"]
    assert outcome.compared == 10


def _deny_pay(tool: Tool[Any, Any], _params: object) -> PolicyDecision:
    return PolicyDecision.deny("no") if tool.name == "pay" else PolicyDecision.allow()


async def test_call_that_is_not_made_is_a_difference(world: World) -> None:
    """As where a nested call is left out, or the run ends."""

    def outer(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.session[Kept].append(Kept("outer"))
        with ExitStack() as stack:
            inner = stack.enter_context(executor(tool("inner", _refuse), session=context.session))
            if "nested" in world.did:
                inner.execute(ToolCall("n", "inner", {"text": "in"}))
        return ToolResult.ok(params)

    world.handlers["keep"] = outer
    world.did.append("nested")
    world.record((("keep", "a"),))
    world.did.append("nested")
    with pytest.raises(AssertionError):
        await world.replay()
    world.did.clear()
    (difference,) = (await world.replay()).differences
    assert (difference.kind, difference.tool) == ("missing call", "inner")


@pytest.mark.parametrize("why", ["unknown", "memory", "undone", "root"])
async def test_what_cannot_be_replayed_is_refused(world: World, why: str, tmp_path: Path, wording: Wording) -> None:
    """A session that does not exist, is in memory, or has undone calls; and a program that works on a real folder."""
    world.record(*WEEK)
    if why == "unknown":
        with raises(SessionNotFoundError, wording):
            await replay("none", world.executor, store=stores.open("memory:"))
    elif why == "memory":
        with raises(SessionError, wording):
            await replay(Session(session_id="m"), world.executor)
    elif why == "undone":
        with Session.open(world.store, "s") as session, world.executor(session) as loop:
            await undo.apply(await asyncio.to_thread(undo.plan, session, executors=loop), partial=True)
        with raises(SessionError, wording):
            await world.replay()
    else:
        (tmp_path / "root").mkdir()
        files = world.opened.enter_context(HostFilesystem(tmp_path / "root", journal=tmp_path / "journal"))

        def on_root(session: Session) -> ToolExecutor:
            return executor(*world.tools, session=session, resources={Filesystem: files})

        with pytest.raises(PlanRefusedError):
            await replay("s", on_root, store=world.store)
