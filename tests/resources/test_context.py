"""Bindings, and the resources of a running prompt and of its calls: built once, in order, and closed in reverse."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from typing import Any, cast

import pytest

from handrail import errors
from handrail.prompt import ToolContext, ToolResult
from handrail.resources import Binding, Resolver, ResourceContext, ResourceRegistry, Scope
from tests.kit import Note, call, executor, raises, tool
from tests.resources.kit import (
    Cache,
    Client,
    Config,
    English,
    Greeter,
    Tracer,
    Unchecked,
    Unweakable,
    in_threads,
    noted,
    opened,
)
from tests.wording import Wording


@pytest.mark.requirement("M-06n")
def test_circle_is_refused_with_its_path(wording: Wording) -> None:
    """The path starts and ends with the same type and leaves out who only leads to the circle."""
    resources = opened(
        Binding(Config, lambda r: Config(r.get(Client).url)),
        Binding(Client, lambda r: Client(r.get(Tracer).url)),
        Binding(Tracer, lambda r: Tracer(r.get(Client).url), scope=Scope.PROTOTYPE),
    )
    for _ in range(2):  # a refusal leaves nothing behind
        with raises(errors.CircularResourceError, wording) as caught:
            resources.get(Config)
        assert caught.value.path == (Client, Tracer, Client)


def test_provider_that_raises_is_named_with_its_cause(wording: Wording) -> None:
    """The chain of those who asked is in the message, and the next one to ask tries again."""
    attempts: list[Config] = [Config("second time")]

    def provide(_resolver: Resolver) -> Config:
        if len(attempts) == 1:
            attempts.append(Config())
            raise KeyError("URL")
        return attempts[0]

    resources = opened(Binding(Config, provide), Binding(Client, lambda r: Client(r.get(Config).url)))
    with raises(errors.ProviderError, wording) as caught:
        resources.get(Client)
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.protocol is Config
    assert resources.get(Client).url == "second time"


async def make_later() -> Config:
    """What an asynchronous provider returns at first."""
    return Config()


@pytest.mark.parametrize("make", [lambda: "text", make_later], ids=["text", "coroutine"])
def test_provider_of_another_type_is_refused(make: Callable[[], object], wording: Wording) -> None:
    """What is asked for by its type is of that type."""
    registry = ResourceRegistry.of(Binding(Config, lambda _: cast("Config", make())))
    with raises(errors.ProviderError, wording):
        registry.open().get(Config)


def test_singleton_does_not_hold_what_ends_with_a_call(wording: Wording) -> None:
    """The chain names scopes, and says what to change."""
    resources = opened(
        Binding(Client, lambda r: Client(r.get(Cache).url)),
        Binding(Cache, lambda r: Cache(r.get(Tracer).url), scope=Scope.PROTOTYPE),
        Binding(Tracer, lambda _: Tracer(), scope=Scope.TOOL_CALL),
    )
    with resources.call_scope() as call, raises(errors.ResourceError, wording):
        call.get(Client)


def test_resource_of_a_call_is_not_asked_for_outside_of_one(wording: Wording) -> None:
    """The message says where to ask; a default does not hide it."""
    resources = opened(Binding(Tracer, lambda _: Tracer(), scope=Scope.TOOL_CALL))
    with raises(errors.ResourceError, wording):
        resources.get(Tracer, None)


def test_threads_that_ask_at_once_get_one() -> None:
    """A provider runs once however many ask, also when it asks for others itself."""
    built: list[str] = []
    resources = opened(
        Binding(Config, lambda _: noted(built, "config", Config())),
        Binding(Client, lambda r: noted(built, "client", Client(r.get(Config).url))),
        Binding(Tracer, lambda r: Tracer(r.get(Client).url), scope=Scope.TOOL_CALL),
    )
    start, found = threading.Barrier(16), list[object]()

    def ask(number: int) -> None:
        start.wait()
        with resources.call_scope() as call:
            found.append(resources.get(Client) if number % 2 else (call.get(Tracer), call.get(Client))[1])

    in_threads(16, ask)
    assert sorted(built) == ["client", "config"]
    assert len(found) == 16
    assert len({id(client) for client in found}) == 1


@pytest.fixture
def closed() -> list[str]:
    """What was closed, in order."""
    return []


def registry_of(closed: list[str], scope: Scope = Scope.SINGLETON) -> ResourceRegistry:
    """A tracer that needs a client that needs a cache; all tell when they are closed."""
    return ResourceRegistry.of(
        Binding(Tracer, lambda r: Tracer(r.get(Client).url, closed, "tracer"), scope=scope),
        Binding(Client, lambda r: Client(r.get(Cache).url, closed, "client"), scope=scope),
        Binding(Cache, lambda _: Cache("here", closed, "cache"), scope=scope),
    )


def test_what_a_provider_passes_on_is_closed_once_and_by_whoever_made_it(closed: list[str]) -> None:
    """What was given stays open, under any type; a call does not close what belongs to the context."""
    given = Handle()
    registry = ResourceRegistry.of(
        Binding.instance(Handle, given),
        Binding(object, lambda r: r.get(Handle)),
        Binding(Tracer, lambda _: Tracer("", closed, "tracer")),
        Binding(Client, lambda r: r.get(Tracer)),
        Binding(Cache, lambda r: Cache(r.get(Tracer).url, closed, "cache"), scope=Scope.TOOL_CALL),
        Binding(Hashable, lambda r: r.get(Tracer), scope=Scope.TOOL_CALL),
    )
    with registry.open() as resources:
        with resources.call_scope() as scope:
            assert (scope.get(object), scope.get(Hashable)) == (given, scope.get(Client))
            scope.get(Cache)
        assert closed == ["cache"]
    assert (closed, given.closed) == (["cache", "tracer"], 0)


class Stubborn(Client):
    """A resource that cannot be closed."""

    error: BaseException = OSError("busy")

    def close(self) -> None:
        super().close()
        raise self.error


class Impatient(Stubborn):
    error = KeyboardInterrupt()


class Asynchronous:
    async def close(self) -> None:
        """Nobody awaits it."""


def stubborn_registry(closed: list[str], kind: type[Stubborn] = Stubborn) -> ResourceRegistry:
    """A registry whose middle one, or both of whose last ones, cannot be closed."""
    return ResourceRegistry.of(
        Binding(Cache, lambda _: Cache("", closed, "cache")),
        Binding(Stubborn, lambda _: kind("", closed, "stubborn")),
        Binding(Client, lambda _: Client("", closed, "client")),
    )


@contextmanager
def all_built(registry: ResourceRegistry) -> Generator[None]:
    """The resources are entered, and each is built."""
    with registry.open() as resources:
        for binding in registry:
            resources.get(binding.protocol)
        yield


def test_all_that_cannot_be_closed_are_told(closed: list[str], wording: Wording) -> None:
    """The message names each, and the cause holds them all."""
    registry = stubborn_registry(closed).merge(ResourceRegistry.of(Binding(Asynchronous, lambda _: Asynchronous())))
    with pytest.raises(errors.ResourceError) as caught, all_built(registry):
        pass
    assert str(caught.value) == wording
    assert str(caught.value.__cause__) == wording
    assert closed == ["client", "stubborn", "cache"]


def test_failure_of_closing_does_not_hide_what_was_raised(closed: list[str], wording: Wording) -> None:
    """The first exception goes on, with a note; so a cancelled call stays cancelled."""
    with pytest.raises(ZeroDivisionError) as caught, all_built(stubborn_registry(closed)):
        raise ZeroDivisionError
    assert caught.value.__notes__[0] == wording


def test_interrupt_while_closing_is_raised_when_all_are_closed(closed: list[str], wording: Wording) -> None:
    """Ctrl-C is neither lost nor does it leave anything open."""
    with pytest.raises(KeyboardInterrupt) as caught, all_built(stubborn_registry(closed, Impatient)):
        pass
    assert closed == ["client", "stubborn", "cache"]
    assert caught.value.__notes__[0] == wording


def test_nothing_is_built_while_the_resources_are_being_closed(closed: list[str], wording: Wording) -> None:
    """It would be left open; what was built before is still there for those that are closed first."""
    seen: list[str] = []

    class Leaving:
        def __init__(self, resources: ResourceContext) -> None:
            self.resources = resources

        def close(self) -> None:
            seen.append(self.resources.get(Cache).name)
            with raises(errors.ResourceError, wording):
                self.resources.get(Tracer)
            seen.append("refused")

    leaving = Binding(Leaving, lambda _: Leaving(context))
    context = registry_of(closed).merge(ResourceRegistry.of(leaving)).open()
    with context:
        context.get(Cache)
        context.get(Leaving)
    assert seen == ["cache", "refused"]
    assert closed == ["cache"]


class Handle:
    """Has to be closed."""

    def __init__(self, context: object = None) -> None:
        self.context = context
        self.closed = 0

    def close(self) -> None:
        """Close it."""
        self.closed += 1


@pytest.fixture(autouse=True)
def _nothing_left_of_other_tests() -> None:
    """What earlier tests left open is collected before, so that no warning of theirs is seen here."""
    gc.collect()


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of resources, once all garbage is collected."""
    gc.collect()
    return [entry.getMessage() for entry in caplog.records if entry.name == "handrail.resources"]


def test_a_resource_that_holds_its_context_does_not_keep_it(caplog: pytest.LogCaptureFixture) -> None:
    """A provider may hand on what it is given."""

    def provide(resolver: Resolver) -> Handle:
        return Handle(resolver)

    resources = opened(Binding(Handle, provide))
    resources.get(Handle)
    del resources
    assert len(warnings_of(caplog)) == 1


def test_an_executor_closes_at_the_end_of_its_block(caplog: pytest.LogCaptureFixture) -> None:
    """Once, however often it is entered."""
    client = Handle()

    def use(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        context.resources.get(Handle)
        return ToolResult.ok(params)

    making = Binding(Handle, lambda _: client)
    with executor(tool("use", use), resources={Handle: making}) as desk, desk:
        assert desk.execute(call("use")).success
        assert client.closed == 0
    assert client.closed == 1
    assert warnings_of(caplog) == []


def resources_of(closed: list[str]) -> ResourceContext:
    """A tracer for each call that needs a cache for all and a new client."""
    return opened(
        Binding(
            Tracer, lambda r: Tracer(r.get(Cache).url + r.get(Client).url, closed, "tracer"), scope=Scope.TOOL_CALL
        ),
        Binding(Client, lambda _: Client("new", closed), scope=Scope.PROTOTYPE),
        Binding(Cache, lambda _: Cache("shared", closed, "cache")),
    )


def test_call_has_its_own_and_shares_the_singletons() -> None:
    """One for each call, and the same for all."""
    resources = resources_of([])
    with resources.call_scope() as call, resources.call_scope() as other:
        assert call.get(Tracer) is call.get(Tracer)
        assert call.get(Tracer) is not other.get(Tracer)
        assert call.get(Cache) is other.get(Cache) is resources.get(Cache)
        assert call.get(Client) is not call.get(Client)


def test_call_closes_its_own_in_reverse_order() -> None:
    """With the call end what was built for it, the newest first; the singletons stay."""
    closed: list[str] = []
    with resources_of(closed) as resources:
        with resources.call_scope() as call:
            call.get(Tracer)
            call.get(Client)
        assert closed == ["client", "tracer", "client"]
    assert closed == ["client", "tracer", "client", "cache"]


def test_call_that_has_ended_gets_nothing_of_its_own_any_more(wording: Wording) -> None:
    """It would never be closed, or is closed already; what all calls share is still there."""
    resources = resources_of([])
    used, unused = resources.call_scope(), resources.call_scope()
    used.get(Tracer)
    for scope in (used, unused):
        scope.close()
        for kind in (Tracer, Client):
            with raises(errors.ResourceError, wording):
                scope.get(kind)
        assert scope.get(Cache).url == "shared"


def test_resource_that_is_built_while_its_call_ends_is_closed(wording: Wording) -> None:
    """The end of a call does not wait for a late handler, and what that still builds is not left open."""
    closed, building, ended = list[str](), threading.Event(), threading.Event()

    def provide_slowly(_resolver: object) -> Tracer:
        building.set()
        ended.wait()
        return Tracer("", closed, "late")

    call = opened(Binding(Tracer, provide_slowly, scope=Scope.TOOL_CALL)).call_scope()
    refused: list[errors.ResourceError] = []

    def ask_late() -> None:
        with raises(errors.ResourceError, wording) as caught:
            call.get(Tracer)
        refused.append(caught.value)

    thread = threading.Thread(target=ask_late)
    thread.start()
    building.wait()
    call.close()
    ended.set()
    thread.join()
    assert len(refused) == 1
    assert closed == ["late"]


def test_missing_dependency_is_told_with_who_needs_it() -> None:
    """The chain starts with what the handler asked for."""
    resources = opened(Binding(Tracer, lambda r: Tracer(r.get(Config).url), scope=Scope.TOOL_CALL))
    with resources.call_scope() as call, pytest.raises(errors.UnboundResourceError) as caught:
        call.get(Tracer)
    assert (caught.value.protocol, caught.value.needed_by) == (Config, (Tracer,))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Binding(cast("Any", "Config"), lambda _: Config()),
        lambda: Binding(list[int], lambda _: [1]),
    ],
    ids=["name", "alias"],
)
def test_wrong_declaration_is_refused_at_once(make: Callable[[], object], wording: Wording) -> None:
    """The message says what to write instead."""
    with raises(errors.ResourceError, wording):
        make()


@pytest.mark.parametrize("protocol,value", [(Client, Config()), (Client, Client), (Greeter, Config()), (int, "5")])
def test_instance_of_another_type_is_refused(protocol: type[Any], value: object, wording: Wording) -> None:
    """A class, an abstract class or a checkable protocol is held to what is given for it; the class is no instance."""
    with raises(errors.ProviderError, wording) as caught:
        Binding.instance(protocol, value)
    assert caught.value.protocol is protocol


@pytest.mark.parametrize(
    "protocol,value",
    [(Client, Tracer()), (Greeter, English()), (Unchecked, Config()), (int, 0), (str, ""), (object, None)],
)
def test_instance_of_the_type_is_taken(protocol: type[Any], value: object) -> None:
    """A falsy value is a value, and a protocol that cannot be checked is believed."""
    assert opened(Binding.instance(protocol, value)).get(protocol, "default") is value


def test_participant_that_cannot_take_turns_is_refused(wording: Wording) -> None:
    """What calls are to undo must have a turn, or be able to be lent one."""
    with raises(errors.ProviderError, wording):
        Binding.instance(Unweakable, Unweakable())


CONFIG = Binding.instance(Config, Config("there"))
CLIENT = Binding(Client, lambda r: Client(r.get(Config).url))


def test_type_is_bound_once(wording: Wording) -> None:
    """The error says how to let one win."""
    with raises(errors.DuplicateBindingError, wording) as caught:
        ResourceRegistry.of(CONFIG, CLIENT, CONFIG)
    assert caught.value.protocol is Config


def test_binding_under_another_type_is_refused(wording: Wording) -> None:
    """It would be found under a type that it does not promise; binding both is one line."""
    with raises(errors.ResourceError, wording):
        ResourceRegistry.build({Greeter: CLIENT})


def test_registry_hands_out_what_was_given_and_nothing_that_must_be_made(wording: Wording) -> None:
    """A provider runs in a context, which also closes what it made."""
    registry = ResourceRegistry.of(CONFIG, CLIENT)
    assert registry.get(Config) == Config("there")
    assert registry.get(Tracer, None) is None
    with raises(errors.UnboundResourceError, wording):
        registry.get(Tracer)
    with raises(errors.ResourceError, wording):
        registry.get(Client, None)
    with raises(errors.ResourceError, wording):
        registry.get(cast("Any", "Client"))
