"""Sets of bindings: how they are made, merged and asked."""

from __future__ import annotations

from typing import Any, cast

import pytest

from handrail.errors import DuplicateBindingError, ResourceError, UnboundResourceError
from handrail.filesystem import Filesystem, InMemoryFilesystem
from handrail.resources import Binding, ResourceRegistry, Scope
from tests.resources.things import Client, Config, Greeter, Tracer
from tests.wording import Wording

CONFIG = Binding.instance(Config, Config("there"))
CLIENT = Binding(Client, lambda r: Client(r.get(Config).url))


def test_registry_knows_its_types_and_keeps_their_order() -> None:
    """`in` asks for a type, iterating gives the bindings."""
    registry = ResourceRegistry.of(CLIENT, CONFIG)
    assert Client in registry
    assert Tracer not in registry
    assert "Client" not in registry
    assert list(registry) == [CLIENT, CONFIG]
    assert len(registry) == 2
    assert len(ResourceRegistry()) == 0


def test_type_is_bound_once(wording: Wording) -> None:
    """The error says how to let one win."""
    with pytest.raises(DuplicateBindingError) as caught:
        ResourceRegistry.of(CONFIG, CLIENT, CONFIG)
    assert str(caught.value) == wording
    assert caught.value.protocol is Config


def test_mapping_holds_resources_and_bindings() -> None:
    """What is not a binding is the resource itself."""
    fs, tracer = InMemoryFilesystem(), Binding(Tracer, lambda _: Tracer(), scope=Scope.TOOL_CALL)
    registry = ResourceRegistry.build({Filesystem: fs, Tracer: tracer, Client: CLIENT})
    assert registry.get(Filesystem) is fs
    assert tracer in list(registry)
    assert CLIENT in list(registry)


def test_binding_under_another_type_is_refused(wording: Wording) -> None:
    """It would be found under a type that it does not promise; binding both is one line."""
    with pytest.raises(ResourceError) as raised:
        ResourceRegistry.build({Greeter: CLIENT})
    assert str(raised.value) == wording


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
    with pytest.raises(UnboundResourceError) as raised:
        registry.get(Tracer)
    assert str(raised.value) == wording
    with pytest.raises(ResourceError) as another:
        registry.get(Client, None)
    assert str(another.value) == wording
    with pytest.raises(ResourceError) as another:
        registry.get(cast("Any", "Client"))
    assert str(another.value) == wording
