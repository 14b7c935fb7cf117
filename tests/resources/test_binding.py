"""Where a resource comes from: what a binding takes, and what it refuses when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from handrail.errors import InvalidArgumentError, ProviderError, ResourceError
from handrail.resources import Binding, Resolver, ResourceRegistry, Scope
from tests.resources.things import Client, Config, English, Greeter, Tracer, Unchecked, Unweakable
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
    with pytest.raises(ResourceError) as raised:
        make()
    assert str(raised.value) == wording


@pytest.mark.parametrize("protocol,value", [(Client, Config()), (Client, Client), (Greeter, Config()), (int, "5")])
def test_instance_of_another_type_is_refused(protocol: type[Any], value: object, wording: Wording) -> None:
    """A class, an abstract class or a checkable protocol is held to what is given for it; the class is no instance."""
    with pytest.raises(ProviderError) as caught:
        Binding.instance(protocol, value)
    assert str(caught.value) == wording
    assert caught.value.protocol is protocol


@pytest.mark.parametrize(
    "protocol,value",
    [(Client, Tracer()), (Greeter, English()), (Unchecked, Config()), (int, 0), (str, ""), (object, None)],
)
def test_instance_of_the_type_is_taken(protocol: type[Any], value: object) -> None:
    """A falsy value is a value, and a protocol that cannot be checked is believed."""
    assert ResourceRegistry.of(Binding.instance(protocol, value)).open().get(protocol, "default") is value


def test_none_may_be_bound_for_any_type() -> None:
    """It says that there is none on purpose, and so a default does not apply."""
    none: Any = Binding.instance(Greeter, None)
    assert ResourceRegistry.build({Greeter: none}).open().get(Greeter, English()) is None


def test_none_in_a_mapping_is_refused(wording: Wording) -> None:
    """It is what a lookup that found nothing gives; whoever means it says so by `Binding.instance`."""
    with pytest.raises(InvalidArgumentError) as raised:
        ResourceRegistry.build({Greeter: None})
    assert str(raised.value) == wording


def test_participant_that_cannot_take_turns_is_refused(wording: Wording) -> None:
    """What calls are to undo must have a turn, or be able to be lent one."""
    with pytest.raises(ProviderError) as raised:
        Binding.instance(Unweakable, Unweakable())
    assert str(raised.value) == wording
