"""Where a resource comes from and how long it lives: one `Binding` for each type that can be asked for."""

from __future__ import annotations

import inspect
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Protocol, TypeGuard, TypeVar, cast, overload

from handrail.errors import ResourceError, ResourceUseError, UnboundResourceError, WrongResourceError
from handrail.serde.annotations import subscriptable
from handrail.transaction import Snapshotable
from handrail.turns import own_turn

T = TypeVar("T")
D = TypeVar("D")
GivenT = TypeVar("GivenT")


class Scope(Enum):
    """How long a resource lives.

    A resource may depend on those that live as long as itself or longer, and on prototypes.
    """

    SINGLETON = "singleton"
    """One for all calls, built when it is first asked for, closed when the context is left."""
    TOOL_CALL = "tool_call"
    """One for each call that asks for it, closed when the call ends."""
    PROTOTYPE = "prototype"
    """A new one each time it is asked for, closed with the call, or outside of calls with the context."""


class Resource:
    """Marks a parameter as a resource, in the function of a tool: `config: Annotated[Config, Resource]`.

    It is needed only for a type that JSON could say too, such as a dataclass; others are resources without it.
    """


class Missing(Enum):
    """Stands for a value that is not there, where `None` may be one."""

    ABSENT = "absent"


MISSING: Final = Missing.ABSENT
"""No value at all."""


class Resolver(Protocol):
    """What resources are asked of: by providers for what they depend on, and by handlers.

    A type is asked for by its class; the parameter is a `Callable[..., T]` because type checkers take protocols and
    abstract classes for one, but not for a `type[T]`.
    """

    __slots__ = ()

    @overload
    def get(self, protocol: Callable[..., T], /) -> T: ...
    @overload
    def get(self, protocol: Callable[..., T], default: D, /) -> T | D: ...
    def get(self, protocol: Callable[..., object], default: object = MISSING, /) -> object:
        """The resource bound for a type, built if need be; with a default, that is returned where nothing is bound.

        Raises:
            UnboundResourceError: nothing is bound for the type, or for one that its provider needs.
            CircularResourceError: providers need each other.
            ProviderError: a provider raised.
            WrongResourceError: a provider made something of another type.
            ResourceUseError: the resource does not live where it was asked for, or it was not asked for by a class.
        """
        return self._find(protocol, default)

    @abstractmethod
    def _find(self, protocol: Callable[..., object], default: object) -> object:
        """What `get` returns."""

    @abstractmethod
    def __contains__(self, protocol: object) -> bool:
        """Whether something is bound for a type; nothing is built."""


@dataclass(frozen=True, slots=True, eq=False)
class GivenInstance:
    """The provider of a resource that exists already.

    Compared by identity: a binding is compared and hashed with its provider, and the value need not permit either.

    Attributes:
        value: the resource.
    """

    value: object

    def __call__(self, _resolver: Resolver) -> object:
        """Provide it."""
        return self.value


@subscriptable
@dataclass(frozen=True, slots=True)
class Binding(Generic[T]):
    """Where the resource of one type comes from.

    What a provider makes belongs to Handrail: it is closed by its `close()`, if its class has one, when it has lived
    its `scope`. What is bound with `Binding.instance` belongs to its caller, and is never closed. A provider that
    returns another resource, to bind it for a second type, makes nothing.

    A provider may return `None`, for none; then `get` returns `None`. A singleton's provider that is
    called inside a tool call is not part of that call: what it writes stays, unless it fails.

    Attributes:
        protocol: the type that the resource is asked for by: a class, an abstract class or a protocol.
        provider: makes the resource; it is given what it asks for its own dependencies.
        scope: how long the resource lives.
        eager: whether it is built as soon as the context is entered; for singletons alone.

    Raises:
        ResourceError: `protocol` is not a class, `provider` cannot be called or is asynchronous, or something other
            than a singleton is eager.
        WrongResourceError: what was given to `Binding.instance` is of another type, or could not take turns.
    """

    protocol: Callable[..., T]
    provider: Callable[[Resolver], T]
    scope: Scope = Scope.SINGLETON
    eager: bool = False

    def __post_init__(self) -> None:
        protocol: object = self.protocol
        if not isinstance(protocol, type):
            raise ResourceError(f"a resource is bound for a class, and {protocol!r} is none. Bind it for its class.")
        name = protocol.__name__
        if not callable(self.provider):
            raise ResourceError(
                f"the provider of {name} cannot be called: a {type(self.provider).__name__} was given. Give a function "
                f"of the resolver, or Binding.instance({name}, ...) for what exists already."
            )
        # Refused here and not when it is called: the error then names the line of the binding.
        if inspect.iscoroutinefunction(self.provider):
            raise ResourceError(
                f"the provider of {name} is asynchronous, and providers are called without an event loop. Make the "
                f"resource beforehand and bind it with Binding.instance({name}, ...)."
            )
        if self.eager and self.scope is not Scope.SINGLETON:
            raise ResourceError(
                f"{name} is eager, but a {self.scope.name} is only made when it is asked for. Drop eager=True, or make "
                "it a SINGLETON."
            )
        if isinstance(self.provider, GivenInstance):
            self.check(self.provider.value)

    @staticmethod
    def instance(protocol: Callable[..., GivenT], value: GivenT) -> Binding[GivenT]:
        """Bind a resource that exists already. It is never closed: its maker closes it.

        Args:
            protocol: the type to ask for it by.
            value: the resource, or `None` for none.

        Raises:
            WrongResourceError: the value is of another type, or could not take turns.
        """
        return Binding(protocol, cast("Callable[[Resolver], GivenT]", GivenInstance(value)))  # it returns `value`

    @property
    def kind(self) -> type[object]:
        """The class that the resource is bound for."""
        return cast("type[object]", self.protocol)  # checked when the binding was made

    @property
    def name(self) -> str:
        """What the resource is called in messages."""
        return self.kind.__name__

    def check(self, value: object) -> None:
        """Refuse what was provided if it cannot be this resource.

        Raises:
            WrongResourceError: it is of another type, or `Snapshotable` but could not take turns.
        """
        # The usual case. `isinstance` of a protocol looks at every one of its members.
        if value is None or self.kind in type(value).__mro__:
            pass
        elif not _fits(value, self.kind):
            raise WrongResourceError(
                f"what was provided for {self.name} is of type {type(value).__name__}, which is not a {self.name}. "
                f"Provide one, or bind it for {type(value).__name__}.",
                protocol=self.kind,
            )
        if is_snapshotable(value) and own_turn(value) is None:
            try:
                # A turn is kept as long as it lives, and a weak reference reports its end (`find_turn`).
                weakref.ref(value)
            except TypeError as error:
                kind = type(value).__name__
                msg = (
                    f"{kind} is Snapshotable, so calls take turns on it, but no turn can be kept for it: it cannot be "
                    f"weakly referenced. Add '__weakref__' to the __slots__ of {kind}."
                )
                raise WrongResourceError(msg, protocol=self.kind) from error


def unbound_error(protocol: object, *, needed_by: Sequence[type[object]] = ()) -> ResourceError:
    """What to raise where nothing is bound for what was asked for.

    Args:
        protocol: what was asked for; a class, if all is well.
        needed_by: the types whose providers asked, each for the next.
    """
    if isinstance(protocol, type):
        return UnboundResourceError(protocol, needed_by=needed_by)
    return ResourceUseError(f"a resource is asked for by its class, and {protocol!r} is none")


def _fits(value: object, kind: type[object]) -> bool:
    if inspect.iscoroutine(value):
        value.close()  # it will never be awaited, and that is said by the error
        return False
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that is not `runtime_checkable` cannot be checked
        return True


def is_snapshotable(value: object) -> TypeGuard[Snapshotable[object]]:
    """Whether its class says how to undo it; an object that answers to any name does not count."""
    return hasattr(type(value), "snapshot") and hasattr(type(value), "restore")
