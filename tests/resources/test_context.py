"""The resources of a running prompt: built once, in the order of their dependencies, closed in reverse."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from handrail.errors import CircularResourceError, ProviderError, ResourceError, UnboundResourceError
from handrail.resources import Binding, Resolver, ResourceRegistry, Scope
from tests.resources.things import Cache, Client, Config, Tracer, noted
from tests.wording import Wording


def test_provider_runs_when_asked_and_once() -> None:
    """A singleton that nobody asks for is never built, and one for all that do."""
    built: list[str] = []
    resources = ResourceRegistry.of(
        Binding(Config, lambda _: noted(built, "config", Config())),
        Binding(Client, lambda r: noted(built, "client", Client(r.get(Config).url))),
    ).open()
    assert built == []
    client = resources.get(Client)
    assert client.url == "here"
    assert resources.get(Client) is client
    assert resources.get(Client, None) is client
    assert built == ["config", "client"]


def test_default_is_for_what_is_not_bound(wording: Wording) -> None:
    """It does not hide that a dependency is missing."""
    resources = ResourceRegistry.of(Binding(Client, lambda r: Client(r.get(Config).url))).open()
    assert Client in resources
    assert Config not in resources
    assert resources.get(Config, None) is None
    with pytest.raises(UnboundResourceError) as caught:
        resources.get(Client, None)
    assert str(caught.value) == wording
    assert caught.value.needed_by == (Client,)


def test_only_classes_are_asked_for(wording: Wording) -> None:
    """A name is no type."""
    with pytest.raises(ResourceError) as raised:
        ResourceRegistry().open().get(cast("Any", "Client"))
    assert str(raised.value) == wording


@pytest.mark.requirement("M-06n")
def test_circle_is_refused_with_its_path(wording: Wording) -> None:
    """The path starts and ends with the same type and leaves out who only leads to the circle."""
    resources = ResourceRegistry.of(
        Binding(Config, lambda r: Config(r.get(Client).url)),
        Binding(Client, lambda r: Client(r.get(Tracer).url)),
        Binding(Tracer, lambda r: Tracer(r.get(Client).url), scope=Scope.PROTOTYPE),
    ).open()
    for _ in range(2):  # a refusal leaves nothing behind
        with pytest.raises(CircularResourceError) as caught:
            resources.get(Config)
        assert str(caught.value) == wording
        assert caught.value.path == (Client, Tracer, Client)


def test_provider_that_raises_is_named_with_its_cause(wording: Wording) -> None:
    """The chain of those who asked is in the message, and the next one to ask tries again."""
    attempts: list[Config] = [Config("second time")]

    def provide(_resolver: Resolver) -> Config:
        if len(attempts) == 1:
            attempts.append(Config())
            raise KeyError("URL")
        return attempts[0]

    resources = ResourceRegistry.of(
        Binding(Config, provide), Binding(Client, lambda r: Client(r.get(Config).url))
    ).open()
    with pytest.raises(ProviderError) as caught:
        resources.get(Client)
    assert str(caught.value) == wording
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
    with pytest.raises(ProviderError) as raised:
        registry.open().get(Config)
    assert str(raised.value) == wording


def test_singleton_does_not_hold_what_ends_with_a_call(wording: Wording) -> None:
    """The chain names scopes, and says what to change."""
    resources = ResourceRegistry.of(
        Binding(Client, lambda r: Client(r.get(Cache).url)),
        Binding(Cache, lambda r: Cache(r.get(Tracer).url), scope=Scope.PROTOTYPE),
        Binding(Tracer, lambda _: Tracer(), scope=Scope.TOOL_CALL),
    ).open()
    with (
        resources.call_scope() as call,
        pytest.raises(ResourceError) as raised,
    ):
        call.get(Client)
    assert str(raised.value) == wording


def test_resource_of_a_call_is_not_asked_for_outside_of_one(wording: Wording) -> None:
    """The message says where to ask; a default does not hide it."""
    resources = ResourceRegistry.of(Binding(Tracer, lambda _: Tracer(), scope=Scope.TOOL_CALL)).open()
    with pytest.raises(ResourceError) as raised:
        resources.get(Tracer, None)
    assert str(raised.value) == wording


def test_eager_resources_are_built_on_entering_in_their_order() -> None:
    """Each once, dependencies first; entering again builds nothing."""
    built: list[str] = []
    registry = ResourceRegistry.of(
        Binding(Config, lambda _: noted(built, "config", Config())),
        Binding(Tracer, lambda _: noted(built, "tracer", Tracer()), eager=True),
        Binding(Client, lambda r: noted(built, "client", Client(r.get(Config).url)), eager=True),
        Binding(Cache, lambda _: noted(built, "cache", Cache())),
    )
    with registry.open() as resources:
        assert built == ["tracer", "config", "client"]
        with resources:
            assert len(built) == 3


def test_threads_that_ask_at_once_get_one() -> None:
    """A provider runs once however many ask, also when it asks for others itself."""
    built: list[str] = []
    resources = ResourceRegistry.of(
        Binding(Config, lambda _: noted(built, "config", Config())),
        Binding(Client, lambda r: noted(built, "client", Client(r.get(Config).url))),
        Binding(Tracer, lambda r: Tracer(r.get(Client).url), scope=Scope.TOOL_CALL),
    ).open()
    start, found = threading.Barrier(16), list[object]()

    def ask(number: int) -> None:
        start.wait()
        with resources.call_scope() as call:
            found.append(resources.get(Client) if number % 2 else (call.get(Tracer), call.get(Client))[1])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(built) == ["client", "config"]
    assert len(found) == 16
    assert len({id(client) for client in found}) == 1
