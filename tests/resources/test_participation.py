"""How resources take part in calls: who is undone, whose turns are taken, what is built inside, and `Copied`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from handrail import errors
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.resources import Binding, Copied, Resolver, ResourceContext, Scope, Snapshotable
from handrail.runtime import ToolCall, ToolMessage
from handrail.transaction import Transaction, current
from handrail.turns import Turn, draw_ticket, find_turn
from tests.kit import executor, raises
from tests.resources.kit import Client, Config, Counter, OtherCounter, Unweakable, opened
from tests.wording import Wording


@contextmanager
def call(resources: ResourceContext, *, writes: bool = True) -> Generator[Transaction]:
    """A call that uses these resources as the pipeline has it; rolled back unless the block commits."""
    ticket = draw_ticket(resources.turns(), exclusive=writes)
    try:
        participants = resources.untracked_participants()
        with Transaction("tool", ticket=ticket, writes=writes, untracked=participants) as transaction:
            yield transaction
    finally:
        ticket.release()


def ids(values: Iterable[object]) -> list[int]:
    """Which objects these are, in order."""
    return [id(value) for value in values]


def seeded(_resolver: Resolver) -> InMemoryFilesystem:
    """A filesystem whose provider writes to it."""
    fs = InMemoryFilesystem()
    fs.write_text("seed.md", "seed")
    return fs


def test_participants_are_the_singletons_that_can_be_undone() -> None:
    """The given ones first, then the others as they are built; each once, whatever it is bound for."""
    fs, counter = InMemoryFilesystem(), Counter(1)
    resources = opened(
        Binding(OtherCounter, lambda _: OtherCounter()),
        Binding.instance(Config, Config()),
        Binding.instance(Filesystem, fs),
        Binding(InMemoryFilesystem, lambda r: _as_memory(r.get(Filesystem))),
        Binding.instance(Counter, counter),
        Binding(Client, lambda _: Client(), scope=Scope.PROTOTYPE),
    )
    assert ids(resources.untracked_participants()) == ids((counter,))
    assert resources.turns() == (resources.turn, fs.turn, find_turn(counter))
    other = resources.get(OtherCounter)
    resources.get(InMemoryFilesystem)
    assert ids(resources.untracked_participants()) == ids((counter, other))
    assert resources.turns() == (resources.turn, fs.turn, find_turn(counter), find_turn(other))


def _as_memory(fs: Filesystem) -> InMemoryFilesystem:
    assert isinstance(fs, InMemoryFilesystem)
    return fs


def test_own_turn_is_drawn_only_where_a_singleton_may_be_built() -> None:
    """Instances have turns of their own, and what lives for a call is used by that call alone."""
    given = opened(
        Binding.instance(Filesystem, InMemoryFilesystem()), Binding(Client, lambda _: Client(), scope=Scope.TOOL_CALL)
    )
    assert given.turn not in given.turns()
    assert len(given.turns()) == 1
    lazy = opened(Binding(Counter, lambda _: Counter()))
    assert lazy.turns() == (lazy.turn,)
    lazy.get(Counter)
    assert lazy.turns() == (lazy.turn, find_turn(lazy.get(Counter)))
    assert isinstance(lazy.turn, Turn)


def test_two_calls_do_not_both_build_and_write() -> None:
    """Before a singleton exists nobody can take its turn, so they take the context's."""
    resources = opened(Binding(Counter, lambda _: Counter()))
    first, second = draw_ticket(resources.turns(), exclusive=True), draw_ticket(resources.turns(), exclusive=True)
    assert [first.runs, second.runs] == [True, False]
    first.release()
    assert second.runs
    second.release()


@pytest.mark.parametrize("scope", [Scope.SINGLETON, Scope.TOOL_CALL, Scope.PROTOTYPE])
def test_participant_built_in_a_call_is_undone_to_its_first_state(scope: Scope) -> None:
    """It joins as soon as it is built, although it cannot tell when it is written to."""
    resources = opened(Binding(Counter, lambda _: Counter(5), scope=scope))
    with call(resources), resources.call_scope() as scope_of_call:
        counter = scope_of_call.get(Counter)
        counter.count += 1
    assert counter.count == 5


def test_participant_built_in_a_call_keeps_what_the_call_commits() -> None:
    """And the next call undoes its own changes alone."""
    resources = opened(Binding(Counter, lambda _: Counter()))
    with call(resources) as transaction:
        resources.get(Counter).count = 1
        transaction.commit()
    with call(resources):
        resources.get(Counter).count = 2
    assert resources.get(Counter).count == 1


def test_what_a_singleton_needs_joins_the_call_too() -> None:
    """Built on the way, in a call that then fails."""

    class Pair(Counter):
        def __init__(self, inner: Counter) -> None:
            super().__init__(10)
            self.inner = inner

    resources = opened(
        Binding(Pair, lambda r: Pair(r.get(Counter))),
        Binding(Counter, lambda r: Counter(r.get(OtherCounter).count)),
        Binding(OtherCounter, lambda _: OtherCounter(3)),
    )
    with call(resources) as transaction:
        pair, other = resources.get(Pair), resources.get(OtherCounter)
        assert {id(participant) for participant in transaction.participants} == {id(pair), id(pair.inner), id(other)}
        pair.count = pair.inner.count = other.count = 0
    assert (pair.count, pair.inner.count, other.count) == (10, 3, 3)


def test_what_was_built_for_a_provider_that_failed_joins_the_call_too() -> None:
    """The dependency stays, so it must be undone like any other."""

    def fail(resolver: Resolver) -> OtherCounter:
        resolver.get(Counter)
        raise OSError("no")

    resources = opened(Binding(OtherCounter, fail), Binding(Counter, lambda _: Counter(7)))
    with call(resources):
        with pytest.raises(errors.ProviderError, match="OSError: no"):
            resources.get(OtherCounter)
        resources.get(Counter).count = 0
    assert resources.get(Counter).count == 7


@pytest.mark.parametrize("writes", [True, False])
def test_singleton_may_be_written_to_by_its_provider(*, writes: bool) -> None:
    """Whichever call asks first, also one that reads and one that fails: it is as its provider left it."""
    resources = opened(Binding(Filesystem, seeded))
    with call(resources, writes=writes) as transaction:
        assert resources.get(Filesystem).read_text("seed.md") == "seed"
        assert current() is transaction
    assert resources.get(Filesystem).read_text("seed.md") == "seed"


def test_provider_that_fails_in_a_call_leaves_no_trace() -> None:
    """What it wrote to another resource is undone, and the call can go on."""

    def fail(resolver: Resolver) -> Config:
        resolver.get(Filesystem).write_text("half.md", "half")
        raise OSError("no")

    resources = opened(Binding(Filesystem, seeded), Binding(Config, fail))
    with call(resources) as transaction:
        with pytest.raises(errors.ProviderError, match="OSError: no"):
            resources.get(Config)
        transaction.commit()
    assert not resources.get(Filesystem).exists("half.md")


def test_call_that_has_ended_takes_in_nothing() -> None:
    """A late handler may still build what all share; it belongs to no call."""
    resources = opened(Binding(Counter, lambda _: Counter()))
    with call(resources) as transaction:
        transaction.commit()
        resources.get(Counter)
        assert not transaction.participants


def test_resource_that_is_not_new_is_refused_while_another_call_uses_it(wording: Wording) -> None:
    """A provider that hands out what exists already must bind it as an instance, so that calls take their turn."""
    counter = Counter()
    resources = opened(Binding(Counter, lambda _: counter))
    other = draw_ticket((find_turn(counter),), exclusive=True)
    with call(resources), raises(errors.TurnConflictError, wording):
        resources.get(Counter)
    other.release()  # it has been built and stays: later calls draw its turn and take it in, as any other
    assert resources.turns() == (resources.turn, find_turn(counter))
    with call(resources):
        resources.get(Counter).count = 1
    assert counter.count == 0


def test_error_that_ends_the_run_is_not_taken_for_the_providers() -> None:
    """What a model cannot mend, and what is told to it as it stands, passes unwrapped."""
    rollback = errors.RollbackError("tool", [(Counter(), OSError("lost"))])
    for error in (rollback, errors.TransactionClosedError("tool", "write")):

        def provide(_resolver: Resolver, error: Exception = error) -> Config:
            raise error

        with pytest.raises(type(error)):
            opened(Binding(Config, provide)).get(Config)


def test_participant_that_cannot_take_turns_is_refused_when_it_is_built(wording: Wording) -> None:
    """The provider is named, and nothing is kept."""
    resources = opened(Binding(Unweakable, lambda _: Unweakable()))
    with raises(errors.ProviderError, wording):
        resources.get(Unweakable)
    assert not resources.untracked_participants()


class Orders(Copied[dict[str, list[str]]]):
    """The orders of a shop, by number."""


class Attached:
    """A value that cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return "Attached()"


class Counts(Copied[dict[str, int]]):
    """Numbers by name."""


Act = Callable[[ToolContext], object]


def calling(resource: Copied[Any], act: Act, *, fails: bool = False, effect: Any = "state") -> ToolMessage:
    """A call of a tool over the resource, which fails on demand after it has acted."""

    def handle(_: None, *, context: ToolContext) -> ToolResult[None]:
        act(context)
        if fails:
            raise errors.ToolValidationError("it fails")
        return ToolResult.ok(None)

    tool = Tool[None, None](name="edit", description="Edits.", handler=handle, effect=effect)
    return executor(tool, resources={type(resource): resource}).execute(ToolCall("1", "edit", {}))


def in_thread(work: Callable[[], object]) -> object:
    """What work returns, or the exception that it raises, in a thread without the context of this one."""
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(work)
        return done.exception() or done.result()


def bound_orders(context: ToolContext) -> Orders:
    """The orders, as a handler gets them."""
    return context.resources.get(Orders)


def add(name: str, context: ToolContext) -> None:
    """Add a piece to the first order."""
    bound_orders(context).value["#1"].append(name)


def replace(context: ToolContext) -> None:
    """Set the whole value."""
    bound_orders(context).value = {}


def clear_in_thread(context: ToolContext) -> None:
    """Clear the first order in a thread without the context of the call."""
    in_thread(bound_orders(context).value["#1"].clear)


def read_first_in_thread(context: ToolContext) -> None:
    """Have such a thread be the first to ask for the value."""
    mine = bound_orders(context)
    assert in_thread(lambda: mine.value["#1"].append("pen")) is None


def restore(context: ToolContext) -> None:
    """Restore a snapshot."""
    bound_orders(context).restore({"#2": []})


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(partial(add, "late"), id="in place"),
        pytest.param(replace, id="the whole value"),
        pytest.param(clear_in_thread, id="in a thread of the handler"),
        pytest.param(read_first_in_thread, id="in a thread that reads the value first"),
        pytest.param(restore, id="by restoring"),
    ],
)
def test_a_change_is_rolled_back_with_its_call(act: Act) -> None:
    """At any depth; the change of a call that succeeds stays."""
    orders = Orders({"#1": ["mug"]})
    calling(orders, act, fails=True)
    assert orders.value == {"#1": ["mug"]}
    assert calling(orders, act).success
    assert orders.value != {"#1": ["mug"]}


def test_a_value_that_is_reached_by_a_closure_is_rolled_back() -> None:
    """The call joins when it asks for the value."""
    orders, bound = Orders({"#1": ["mug"]}), Counts({})
    calling(bound, lambda _: orders.value["#1"].clear(), fails=True)
    assert orders.value == {"#1": ["mug"]}


def test_a_nested_call_is_a_savepoint() -> None:
    """One that fails is rolled back alone, also where it was the first to use the value; so is the outer one later."""
    orders = Orders({"#1": ["mug"]})

    def outer(context: ToolContext) -> None:
        for fails in (True, False):
            calling(orders, partial(add, f"inner {fails}"), fails=fails)
            add(f"outer {fails}", context)

    calling(orders, outer)
    assert orders.value == {"#1": ["mug", "outer True", "inner False", "outer False"]}
    calling(orders, outer, fails=True)
    assert orders.value == {"#1": ["mug", "outer True", "inner False", "outer False"]}


def test_a_call_that_only_reads_cannot_set_the_value(wording: Wording) -> None:
    """It is refused, and says what would be right; the value can be read."""
    orders = Orders({"#1": ["mug"]})
    seen: list[object] = []
    calling(orders, lambda context: seen.append(dict(bound_orders(context).value)), effect="read")
    assert seen == [{"#1": ["mug"]}]
    message = calling(orders, replace, effect="read")
    assert message.content == wording
    assert orders.value == {"#1": ["mug"]}


def test_a_handler_cannot_ask_for_the_value_after_its_call(wording: Wording) -> None:
    """In the context of its call; what it read before a rollback is not the value any more."""
    orders = Orders({"#1": ["mug"]})
    ticket = draw_ticket((orders.turn,), exclusive=True)
    with Transaction("edit", ticket=ticket, writes=True) as call:
        stale = orders.value
        call.rollback()
        with pytest.raises(errors.TransactionClosedError) as raised:
            _ = orders.value
        with pytest.raises(errors.TransactionClosedError):
            orders.value = {}
        stale.clear()
    assert str(raised.value) == wording
    assert orders.value == {"#1": ["mug"]}


def test_an_unbound_value_that_another_call_uses_is_refused(wording: Wording) -> None:
    """A bound one is waited for."""
    orders = Orders({})
    begun, ends = threading.Event(), threading.Event()

    def hold(_: ToolContext) -> None:
        orders.value["#1"] = []
        begun.set()
        ends.wait()

    with ThreadPoolExecutor(1) as threads:
        holding = threads.submit(calling, Counts({}), hold)
        begun.wait()
        try:
            message = calling(Counts({}), lambda _: orders.value)
        finally:
            ends.set()
        assert holding.result().success
    assert message.content == wording


def test_what_cannot_be_copied_is_refused(wording: Wording) -> None:
    """When it is declared, and not in the first call."""
    with raises(errors.InvalidArgumentError, wording) as raised:
        Copied(Attached())
    assert isinstance(raised.value.__cause__, TypeError)


def test_it_holds_a_copy_and_restores_a_snapshot_again() -> None:
    """Neither what it was given nor a snapshot is changed through it."""
    given = {"#1": ["mug"]}
    orders = Orders(given)
    snapshot = orders.snapshot()
    for _ in range(2):
        orders.value["#1"].append("pen")
        orders.restore(snapshot)
    assert (orders.value, given) == ({"#1": ["mug"]}, {"#1": ["mug"]})
    assert isinstance(orders, Snapshotable)


def test_calls_of_threads_take_turns() -> None:
    """No call sees or loses what another one has not committed."""
    counts = Counts({"a": 0, "b": 0})

    def move(context: ToolContext) -> None:
        value = context.resources.get(Counts).value
        value["a"] -= 1
        value["b"] += 1

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(calling, counts, move, fails=number % 3 == 0) for number in range(30)]
        assert sum(future.result().success for future in running) == 20
    assert counts.value == {"a": -20, "b": 20}
