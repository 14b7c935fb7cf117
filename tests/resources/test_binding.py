"""Bindings and sets of them: what they take, refuse, merge and answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from handrail import errors
from handrail.resources import Binding, Resolver, ResourceRegistry, Scope
from tests.kit import raises
from tests.resources.kit import Client, Config, English, Greeter, Tracer, Unchecked, Unweakable, opened
from tests.wording import Wording


async def provide_async(_resolver: Resolver) -> Config:
    """A provider that nobody could await."""
    return Config()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Binding(cast("Any", "Config"), lambda _: Config()),
        lambda: Binding(list[int], lambda _: [1]),
        lambda: Binding(Config, cast("Any", Config())),
        lambda: Binding(Config, cast("Any", provide_async)),
        lambda: Binding(Tracer, lambda _: Tracer(), scope=Scope.TOOL_CALL, eager=True),
        lambda: Binding(Tracer, lambda _: Tracer(), scope=Scope.PROTOTYPE, eager=True),
    ],
    ids=["name", "alias", "instance", "async", "eager in a call", "eager prototype"],
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


def test_none_may_be_bound_for_any_type() -> None:
    """It says that there is none on purpose, and so a default does not apply."""
    none: Any = Binding.instance(Greeter, None)
    assert ResourceRegistry.build({Greeter: none}).open().get(Greeter, English()) is None


def test_none_in_a_mapping_is_refused(wording: Wording) -> None:
    """It is what a lookup that found nothing gives; whoever means it says so by `Binding.instance`."""
    with raises(errors.InvalidArgumentError, wording):
        ResourceRegistry.build({Greeter: None})


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


def test_other_registry_wins_in_a_merge() -> None:
    """Neither of the two changes, and each type keeps its place."""
    mine, other = ResourceRegistry.of(CONFIG, CLIENT), ResourceRegistry.build({Tracer: Tracer(), Config: Config("new")})
    merged = mine.merge(other)
    assert [binding.kind for binding in merged] == [Config, Client, Tracer]
    assert merged.get(Config) == Config("new")
    assert mine.get(Config) == Config("there")


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
