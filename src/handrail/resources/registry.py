"""A set of bindings, one for each type: what a prompt declares, before anything is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeGuard, cast

from handrail.errors import DuplicateBindingError, ResourceError
from handrail.errors.developer import InvalidArgumentError, check_argument
from handrail.resources.binding import MISSING, Binding, GivenInstance, Resolver, unbound_error
from handrail.resources.context import ResourceContext


@dataclass(frozen=True, slots=True)
class ResourceRegistry(Resolver):
    """Bindings, one for each type. It never changes; `in` asks for a type, and iterating gives the bindings in order.

    `get` returns a resource that was given; what a provider makes is asked of a context (`open`).

    Attributes:
        bindings: the bindings, in the order of their declaration.

    Raises:
        DuplicateBindingError: two of the bindings are of one type.
    """

    bindings: tuple[Binding[Any], ...] = ()
    _by_type: Mapping[object, Binding[Any]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_type: dict[object, Binding[Any]] = {}
        for binding in self.bindings:
            if binding.protocol in by_type:
                raise DuplicateBindingError(binding.kind)
            by_type[binding.protocol] = binding
        object.__setattr__(self, "_by_type", MappingProxyType(by_type))

    @staticmethod
    def of(*bindings: Binding[Any]) -> ResourceRegistry:
        """A registry of these bindings.

        Raises:
            DuplicateBindingError: two of them are of one type.
        """
        return ResourceRegistry(bindings)

    @staticmethod
    def build(mapping: Mapping[type[Any], object]) -> ResourceRegistry:
        """A registry of resources by type; a value is the resource itself, or a `Binding` of that type.

        Raises:
            InvalidArgumentError: `mapping` is not a mapping, or a resource is `None`.
            ResourceError: a binding stands under a type that is not its own.
            WrongResourceError: a resource is not an instance of its type.
        """
        expected = "a mapping from types to resources: {Client: client}"
        check_argument("ResourceRegistry.build", "resources", mapping, Mapping, expected)
        return ResourceRegistry(tuple(_binding(kind, value) for kind, value in mapping.items()))

    def merge(self, other: ResourceRegistry) -> ResourceRegistry:
        """A registry of the bindings of both; of one type, the other's wins."""
        # A binding that replaces another takes its place in the order, in which eager ones are built.
        return ResourceRegistry(tuple({**self._by_type, **other._by_type}.values()))

    def open(self) -> ResourceContext:
        """A new context in which the resources can be asked for; nothing is built yet."""
        return ResourceContext(self)

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        binding = self._by_type.get(protocol)
        if binding is None:
            if default is not MISSING:
                return default
            raise unbound_error(protocol)
        if isinstance(binding.provider, GivenInstance):
            return binding.provider.value
        name = binding.name
        raise ResourceError(f"{name} is made by a provider: `with registry.open() as resources: resources.get({name})`")

    def __contains__(self, protocol: object) -> bool:
        return protocol in self._by_type

    def __iter__(self) -> Iterator[Binding[Any]]:
        return iter(self.bindings)

    def __len__(self) -> int:
        return len(self.bindings)


def _binding(kind: type[Any], value: object) -> Binding[Any]:
    if value is None and isinstance(cast("object", kind), type):
        name = kind.__name__
        raise InvalidArgumentError(
            function="ResourceRegistry.build",
            argument=f"resources[{name}]",
            given=value,
            expected=f"a {name}. Leave {name} out if there is none; to have handlers find None, write "
            f"{name}: Binding.instance({name}, None)",
        )
    if not _is_binding(value):
        return Binding(kind, GivenInstance(value))
    if value.protocol is not kind:
        asked = getattr(kind, "__name__", repr(kind))
        raise ResourceError(
            f"a binding of {value.name} was given for {asked}. Give it under its own type, or bind the other one too: "
            f"Binding({asked}, lambda r: r.get({value.name}))."
        )
    return value


def _is_binding(value: object) -> TypeGuard[Binding[Any]]:
    return isinstance(value, Binding)
