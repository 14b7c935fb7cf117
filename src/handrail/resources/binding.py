"""Bindings: where a resource comes from, how long it lives, and the lifetimes that build and close resources.

Building runs under the lifetime's own lock, so that a provider runs once however many threads ask. A call's lifetime
may wait for its context's, never the other way round, because singletons do not depend on calls.

What can be undone and is built inside a call joins its transaction. A singleton is built in a transaction of its own.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeGuard, TypeVar, cast, overload

from handrail.errors import (
    CircularResourceError,
    HandrailError,
    ModelVisibleError,
    ProviderError,
    ResourceError,
    ResourceUseError,
    RunAbortedError,
    UnboundResourceError,
    WrongResourceError,
)
from handrail.errors.developer import mistakes_in
from handrail.serde.annotations import subscriptable
from handrail.transaction import Snapshotable, Transaction, current
from handrail.turns import draw_ticket, own_turn

T = TypeVar("T")
D = TypeVar("D")
GivenT = TypeVar("GivenT")


class Scope(Enum):
    """The life of a resource, which may depend on those that live as long as itself or longer, and on prototypes."""

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
    """The port that providers and handlers ask for resources.

    A type is a `Callable[..., T]`, because type checkers take protocols and abstract classes for one.
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
        """Returns whether something is bound for a type; nothing is built."""


@dataclass(frozen=True, slots=True, eq=False)
class GivenInstance:
    """The provider of an existing resource, compared by identity: its value need not be hashable."""

    value: object

    def __call__(self, _resolver: Resolver) -> object:
        """Provides the value."""
        return self.value


@subscriptable
@dataclass(frozen=True, slots=True)
class Binding(Generic[T]):
    """The source of the resources of one type.

    What a provider makes belongs to Handrail: it is closed by its `close()`, if its class has one, when it has lived
    its `scope`. What is bound with `Binding.instance` belongs to its caller, and is never closed. A provider may return
    another resource, to bind it for a second type, or `None`. A singleton's provider that is called inside a tool call
    is not part of that call: what it writes stays, unless it fails.

    Attributes:
        protocol: the type that the resource is asked for by: a class, an abstract class or a protocol.
        provider: makes the resource; it is given what it asks for its own dependencies.
        scope: how long the resource lives.

    Raises:
        ResourceError: `protocol` is not a class.
        WrongResourceError: what was given to `Binding.instance` is of another type, or could not take turns.
    """

    protocol: Callable[..., T]
    provider: Callable[[Resolver], T]
    scope: Scope = Scope.SINGLETON

    def __post_init__(self) -> None:
        protocol: object = self.protocol
        if not isinstance(protocol, type):
            raise ResourceError(f"a resource is bound for a class, and {protocol!r} is none. Bind it for its class.")
        if isinstance(self.provider, GivenInstance):
            self.check(self.provider.value)

    @staticmethod
    def instance(protocol: Callable[..., GivenT], value: GivenT) -> Binding[GivenT]:
        """Binds an existing resource, or `None` for none. It is never closed: its maker closes it.

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
        """The name of the resource in messages."""
        return self.kind.__name__

    def check(self, value: object) -> None:
        """Raises `WrongResourceError` for a value of another type, or one that could not take turns."""
        # The usual case. `isinstance` of a protocol looks at every one of its members.
        if value is None or self.kind in type(value).__mro__:
            pass
        elif not _fits(value, self.kind):
            other = type(value).__name__
            cure = f"an object, {self.name}(...)" if value is self.kind else f"one, or bind it for {other}"
            raise WrongResourceError(
                f"what was provided for {self.name} is of type {other}, which is not a {self.name}; provide {cure}.",
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
    """The error for a type that is not bound; `needed_by` are the types whose providers asked for it."""
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
    """Returns whether its class can undo it; an object that answers to any name does not count."""
    return hasattr(type(value), "snapshot") and hasattr(type(value), "restore")


class Lifetime:
    """Resources that are built one by one and closed together.

    `lock` is held while anything is built. Prototypes are not among the `values`. `unclosed` names the types of what is
    yet to be closed; the list is the same one throughout.
    """

    __slots__ = ("_guard", "_to_close", "building", "lock", "unclosed", "values")

    def __init__(self) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.values: dict[object, object] = {}
        self.building: list[Binding[Any]] = []
        self.unclosed: list[str] = []
        self._to_close: list[object] = []
        self._guard = threading.Lock()  # over `_to_close`: closing does not wait for what is being built

    @property
    def needed_by(self) -> tuple[type[object], ...]:
        """The types whose providers run now, each needing the next; to be read with the lock held."""
        return tuple(binding.kind for binding in self.building)

    def has(self, value: object) -> bool:
        """Returns whether this very object is among the resources."""
        # A copy: `build` asks the context's lifetime without its lock, and another thread may be adding to it.
        return any(value is other for other in (*self.values.copy().values(), *self._to_close))

    def find(self, binding: Binding[Any]) -> object:
        """The resource of a binding if it has been built and may be used again, or `MISSING`."""
        return MISSING if binding.scope is Scope.PROTOTYPE else self.values.get(binding.protocol, MISSING)

    def build(self, binding: Binding[Any], resolver: Resolver, *, longer: Lifetime | None = None) -> object:
        """Builds a resource, with the lock held; what belongs to the `longer` lifetime is not closed with this."""
        # The lock is reentrant, so that a provider may ask for others; one that is asked for again is found here.
        if binding in self.building:
            raise CircularResourceError((*self.needed_by[self.building.index(binding) :], binding.kind))
        self.building.append(binding)
        try:
            value = self._provide(binding, resolver)
        finally:
            self.building.pop()
        binding.check(value)
        # A provider may return what another one has made; it is closed once, by the lifetime that it belongs to.
        if hasattr(type(value), "close") and not self.has(value) and not (longer and longer.has(value)):
            with self._guard:
                self._to_close.append(value)
                self.unclosed.append(type(value).__name__)
        # After the check, so that a value of another type is never found.
        if binding.scope is not Scope.PROTOTYPE:
            # If joining the call raises, the resource stays entered, and is closed with its lifetime.
            self.values[binding.protocol] = value
        join_call(value)
        return value

    def close(self) -> Sequence[tuple[object, BaseException]]:
        """Closes what was built, the newest first, each once, and forgets it; returns what raised, and its error."""
        failures: list[tuple[object, BaseException]] = []
        # Taken out under the guard and closed without it: a `close` may take long, or ask for resources.
        with self._guard:
            to_close, self._to_close = self._to_close, []
            # Emptied and not replaced, because `_warn_of_unclosed` holds this list.
            self.unclosed.clear()
        for value in reversed(to_close):
            try:
                _close(value)
            except BaseException as error:  # noqa: BLE001 - one that fails must not keep the others from being closed
                failures.append((value, error))
        # Last, because a `close` may still ask for resources that have been built.
        self.values.clear()
        return failures

    def _provide(self, binding: Binding[Any], resolver: Resolver) -> object:
        try:
            if binding.scope is Scope.SINGLETON:
                return outside_call(binding.name, lambda: binding.provider(resolver))
            return binding.provider(resolver)
        except (ResourceError, ModelVisibleError, RunAbortedError):
            raise  # they say what is wrong, and to whom, better than a wrapping could
        except Exception as error:
            # A mistake of the developer is raised as it is, and not shown to a model as a failed provider.
            if mistakes_in(error):
                raise
            chain = " -> ".join(kind.__name__ for kind in self.needed_by)
            msg = f"the provider of {binding.name} failed (asked for by {chain}): {type(error).__name__}: {error}"
            raise ProviderError(msg, protocol=binding.kind) from error


def raise_close_failures(failures: Sequence[tuple[object, BaseException]], *, during: BaseException | None) -> None:
    """Raises `ResourceError` for what could not be closed, or an interrupt that came while closing.

    The exception `during` is on its way already: then the failures become notes on it.
    """
    if not failures:
        return
    text = "; ".join(f"{type(value).__name__}: {type(error).__name__}: {error}" for value, error in failures)
    msg = f"{len(failures)} resource(s) could not be closed; all were tried: {text}"
    # An interrupt ends the program, and is not wrapped.
    for _, error in failures:
        if not isinstance(error, Exception):
            error.add_note(msg)
            raise error
    if during is not None:
        during.add_note(msg)
        return
    errors = [error for _, error in failures if isinstance(error, Exception)]
    raise ResourceError(msg) from (errors[0] if len(errors) == 1 else ExceptionGroup("closing resources", errors))


def _close(value: Any) -> None:  # noqa: ANN401 - anything whose class has a `close`
    result: object = value.close()
    # Closed unawaited, so that Python does not warn of it as well.
    if inspect.iscoroutine(result):
        result.close()
        kind = type(value).__name__
        raise HandrailError(
            f"{kind}.close is asynchronous, so it was not closed. Make the resource yourself, bind it with "
            f"Binding.instance({kind}, ...), and close it when the run is over."
        )


def join_call(value: object) -> None:
    """Joins what was just built to the call it was built in, whose rollback restores its present state."""
    call = current()
    # Outside a call nothing is rolled back, and a call that only reads cannot change what was built.
    if call is None or not call.writes or not call.is_open():
        return
    # One with a turn of its own reports each write, and joins then (`check_write`).
    if is_snapshotable(value) and own_turn(value) is None:
        call.join(value)


def outside_call(name: str, provide: Callable[[], T]) -> T:
    """Runs a singleton's provider in a transaction of its own, whose participants join the call afterwards."""
    call = current()
    if call is None:
        return provide()
    # Inside the call's ticket, so that the provider may use what the call holds turns on without waiting for its own
    # call.
    ticket = draw_ticket((), exclusive=True, inside=call.ticket)
    building = Transaction(f"the provider of {name}", ticket=ticket, writes=True)
    try:
        # Committed on its own: the singleton stays when the call that asked for it first has ended.
        with building:
            value = provide()
            building.commit()
    finally:
        ticket.release()
        # Also after a failure: the call may use what the provider asked for, and must be able to roll back its own
        # changes to it.
        for participant in building.participants:
            join_call(participant)
    return value
