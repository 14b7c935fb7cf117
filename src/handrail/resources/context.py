"""A prompt's declared resources (`ResourceRegistry`), the running ones (`ResourceContext`), a call's (`CallScope`).

| scope | asked of the context | asked of a call |
|---|---|---|
| `SINGLETON` | built once | the context's |
| `TOOL_CALL` | refused | built once for the call |
| `PROTOTYPE` | built anew, closed with the context | built anew, closed with the call |

A provider is given what it was asked of, and a singleton's provider the context: so nothing that lives long can hold on
to what ends with a call.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self, TypeGuard

from handrail.errors import DuplicateBindingError, ResourceError, ResourceUseError, TurnConflictError
from handrail.errors.developer import check_argument
from handrail.redaction import redacted_logger
from handrail.resources.binding import (
    MISSING,
    Binding,
    GivenInstance,
    Lifetime,
    Resolver,
    Scope,
    is_snapshotable,
    raise_close_failures,
    unbound_error,
)
from handrail.threads import ASSIGNING
from handrail.transaction import Snapshotable, Transaction
from handrail.turns import Turn, find_turn, own_turn

_log = redacted_logger("handrail.resources")


class ResourceContext(Resolver):
    """The resources of one running prompt: built when they are first asked for, closed when the context is left.

    ::

        with prompt.resources as resources:
            client = resources.get(HttpClient)

    Leaving closes what providers made, the newest first; bound instances stay open. It may be entered while it is
    entered: the last one to leave closes. Without entering it nothing is closed, and a warning in the log says so.
    Threads may share it; a provider runs once however many ask, and must not wait for another thread that asks.

    Attributes:
        bindings: the binding of each type.
        lifetime: what has been built for all calls.
        turn: the turn of those who may build a singleton; see `turns`.
    """

    __slots__ = (
        "__weakref__",
        "_entered",
        "_instances",
        "_is_closing",
        "_is_watched",
        "_participants",
        "_shared_scope",
        "bindings",
        "lifetime",
        "turn",
    )

    def __init__(self, bindings: Iterable[Binding[Any]]) -> None:
        self.bindings: dict[object, Binding[Any]] = {binding.protocol: binding for binding in bindings}
        self.lifetime: Lifetime = Lifetime()
        self.turn: Turn = Turn()
        self._instances: dict[object, object] = {
            protocol: binding.provider.value
            for protocol, binding in self.bindings.items()
            if isinstance(binding.provider, GivenInstance)
        }
        self.lifetime.values.update(self._instances)
        self._entered = 0
        self._is_closing = False
        self._is_watched = False
        self._participants: _Participants | None = None
        # Where nothing lives for one call alone, all calls see the same, and nothing is ever closed with one of them.
        singletons_only = all(binding.scope is Scope.SINGLETON for binding in self.bindings.values())
        self._shared_scope = CallScope(self) if singletons_only else None

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        # Without the lock: a value is entered only when it is complete.
        value = self.lifetime.values.get(protocol, MISSING)
        return self._obtain(protocol, default) if value is MISSING else value

    def __contains__(self, protocol: object) -> bool:
        return protocol in self.bindings

    def __enter__(self) -> Self:
        with self.lifetime.lock:
            self._entered += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes, as the last one to leave; `ResourceError`, or notes, for what could not be closed."""
        lifetime = self.lifetime
        with lifetime.lock:
            self._entered -= 1
            if self._entered:
                return
            # Other threads wait for the lock. This one holds it: a `close` may ask for resources, and one that is built
            # now would never be closed.
            self._is_closing = True
            failures = lifetime.close()
            self._is_closing = False
            # The context may be entered again, and what was given is not provided anew.
            lifetime.values.update(self._instances)
            self._participants = None
        # After everything else: an error must not leave the context half closed.
        raise_close_failures(failures, during=error)

    def call_scope(self) -> CallScope:
        """The resources as one tool call sees them; to be closed when the call ends."""
        return self._shared_scope or CallScope(self)

    def concurrent_call_scope(self) -> CallScope:
        """The same for a call that runs beside others: it does not get what can be rolled back."""
        return ConcurrentCallScope(self)

    def untracked_participants(self) -> tuple[Snapshotable[object], ...]:
        """The singletons that can be undone and have no turn: given ones first, each once."""
        return (self._participants or self._look_for_participants()).untracked

    def turns(self) -> tuple[Turn, ...]:
        """The turns of a call: its singletons', and the context's own if a provider may build one."""
        return (self._participants or self._look_for_participants()).turns

    def _look_for_participants(self) -> _Participants:
        singleton_count = sum(binding.scope is Scope.SINGLETON for binding in self.bindings.values())
        own = (self.turn,) if singleton_count > len(self._instances) else ()
        # Under the lock, which is held while a singleton is added: what lacks it cannot be stored after the reset in
        # `_record_build`.
        with self.lifetime.lock:
            # By identity: two equal resources are two participants, and one need not be hashable.
            singletons = {id(value): value for value in self.lifetime.values.values() if is_snapshotable(value)}
            untracked = tuple(value for value in singletons.values() if own_turn(value) is None)
            turns = tuple(dict.fromkeys((*own, *map(find_turn, singletons.values()))))
            self._participants = participants = _Participants(untracked, turns)
        return participants

    def _obtain(self, protocol: Callable[..., object], default: object) -> object:
        binding = self.bindings.get(protocol)
        # Before the lock: a default needs nothing that is being built.
        if binding is None and default is not MISSING:
            return default
        lifetime = self.lifetime
        with lifetime.lock:
            if binding is None:
                raise unbound_error(protocol, needed_by=lifetime.needed_by)
            value = lifetime.find(binding)
            if value is not MISSING:
                return value
            # Not found under the lock either, so no other thread has built it meanwhile.
            self._refuse_to_build(binding)
            try:
                return lifetime.build(binding, self)
            finally:
                # Also after an error: a value that could not join the call has been entered, and stays.
                self._record_build(binding)

    def _record_build(self, binding: Binding[Any]) -> None:
        lifetime = self.lifetime
        if not self._entered and not self._is_watched and lifetime.unclosed:
            self._is_watched = True
            # Holds none of the resources: one of them may hold this context, which would never go then.
            weakref.finalize(self, _warn_of_unclosed, lifetime.unclosed)
        if binding.scope is Scope.SINGLETON:
            self._participants = None

    def _refuse_to_build(self, binding: Binding[Any]) -> None:
        name = binding.name
        if self._is_closing:
            raise ResourceError(f"the resources are being closed, so {name} can no longer be made. Ask for it earlier.")
        if binding.scope is not Scope.TOOL_CALL:
            return
        needed_by = self.lifetime.building
        if needed_by:
            chain = " -> ".join([*(f"{other.name} ({other.scope.name})" for other in needed_by), f"{name} (TOOL_CALL)"])
            raise ResourceUseError(
                f"{chain}: {name} ends with its call, so nothing with a longer life may hold it. Make {name} a "
                f"SINGLETON, or {needed_by[-1].name} a TOOL_CALL too."
            )
        raise ResourceUseError(
            f"{name} lives for one tool call, and was asked for outside of one. Ask for it in a handler "
            f"(context.resources), or in `with resources.call_scope() as call: call.get({name})`."
        )


class _Participants(NamedTuple):
    untracked: tuple[Snapshotable[object], ...]
    turns: tuple[Turn, ...]


def _warn_of_unclosed(names: Sequence[str]) -> None:
    if names:
        _log.warning(
            "%s: made by a provider, and never closed, because the resources were never entered. Write `with "
            "ToolExecutor(...) as executor:`, or `with prompt.resources:` around the run",
            ", ".join(names),
        )


class CallScope(Resolver):
    """The resources as one tool call sees them: the context's, and those that live for this call alone.

    Threads of the call may share it; one that is still building when the call ends has what it built closed, and gets
    the error.
    """

    __slots__ = ("_context", "_is_closed", "_lifetime")

    def __init__(self, context: ResourceContext) -> None:
        self._context = context
        self._lifetime: Lifetime | None = None
        self._is_closed = False

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        binding = self._context.bindings.get(protocol)
        if binding is not None and binding.scope is not Scope.SINGLETON:
            return self._obtain(binding)
        lifetime = self._lifetime
        # A provider of this call may have asked: the error names the chain, which only this lifetime has.
        if binding is None and default is MISSING and lifetime is not None:
            with lifetime.lock:
                raise unbound_error(protocol, needed_by=lifetime.needed_by)
        return self._context.get(protocol, default)

    def __contains__(self, protocol: object) -> bool:
        return protocol in self._context

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the scope; see `close`. An exception propagates, with a note of what was not closed."""
        self._end(error)

    def close(self) -> None:
        """Closes what was built for this call, the newest first, and all of it; idempotent."""
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._is_closed = True  # first: a provider that builds meanwhile looks at it afterwards
        if self._lifetime is not None:
            raise_close_failures(self._lifetime.close(), during=error)

    def _obtain(self, binding: Binding[Any]) -> object:
        if self._lifetime is None:
            with ASSIGNING:
                self._lifetime = self._lifetime or Lifetime()
        lifetime = self._lifetime
        with lifetime.lock:
            self._refuse_if_closed(binding)
            value = lifetime.find(binding)
            if value is MISSING:
                # With `longer`, a provider may return a singleton, which is not closed with the call.
                value = lifetime.build(binding, self, longer=self._context.lifetime)
            if self._is_closed:
                # The call ended while this was built: `close` did not find it, so it is closed here.
                raise_close_failures(lifetime.close(), during=None)
                self._refuse_if_closed(binding)
        return value

    def _refuse_if_closed(self, binding: Binding[Any]) -> None:
        if self._is_closed:
            raise ResourceError(f"the call has ended, so it can no longer use {binding.name}")


class ConcurrentCallScope(CallScope):
    """The resources of a call that takes no turns on them: `get` refuses what can be undone."""

    __slots__ = ()

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        value = super()._find(protocol, default)
        # After it was found or built, because only the value shows whether it can be rolled back.
        if is_snapshotable(value):
            raise TurnConflictError(
                "a tool with concurrent=True runs beside other calls, so it cannot use the bound "
                f"{type(value).__name__}, on which calls take turns. Return what is to be kept as the result's value, "
                "or declare the tool without concurrent=True."
            )
        return value


class BoundResources(CallScope):
    """Resources for the handler of a call: `view_for_call` makes their views, or returns what has none.

    A view is the same each time. Closing this closes the scope that it was made of.
    """

    __slots__ = ("_call", "_resources", "_view_for_call", "_views")

    def __init__(
        self, resources: Resolver, call: Transaction, *, view_for_call: Callable[[object, Transaction], object]
    ) -> None:
        self._resources = resources
        self._call = call
        self._view_for_call = view_for_call
        self._views: dict[int, tuple[object, object]] = {}

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        value = self._resources.get(protocol, default)
        entry = self._views.get(id(value))
        if entry is None:
            view = self._view_for_call(value, self._call)
            if view is value:
                return value
            # With the resource itself, so that its id names no other object. Two threads get the same view.
            entry = self._views.setdefault(id(value), (value, view))
        return entry[1]

    def __contains__(self, protocol: object) -> bool:
        return protocol in self._resources

    def _end(self, error: BaseException | None) -> None:
        if isinstance(self._resources, CallScope):
            self._resources.__exit__(None if error is None else type(error), error, None)


@dataclass(frozen=True, slots=True)
class ResourceRegistry(Resolver):
    """Bindings, one for each type. It never changes; `in` asks for a type, and iterating gives the bindings in order.

    `get` returns a bound instance; what a provider makes is asked of a context (`open`).

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
        """A registry of these bindings; `DuplicateBindingError` if two are of one type."""
        return ResourceRegistry(bindings)

    @staticmethod
    def build(mapping: Mapping[type[Any], object]) -> ResourceRegistry:
        """A registry of resources by type; a value is the resource itself, or a `Binding` of that type.

        Raises:
            InvalidArgumentError: `mapping` is not a mapping.
            ResourceError: a binding stands under a type that is not its own.
            WrongResourceError: a resource is not an instance of its type.
        """
        expected = "a mapping from types to resources: {Client: client}"
        check_argument("ResourceRegistry.build", "resources", mapping, Mapping, expected)
        return ResourceRegistry(tuple(_binding(kind, value) for kind, value in mapping.items()))

    def merge(self, other: ResourceRegistry) -> ResourceRegistry:
        """A registry of the bindings of both; of one type, the other's wins."""
        return ResourceRegistry(tuple({**self._by_type, **other._by_type}.values()))

    def open(self) -> ResourceContext:
        """A new context in which the resources can be asked for; nothing is built yet."""
        return ResourceContext(self)

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        if (binding := self._by_type.get(protocol)) is None:
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
    if not _is_binding(value):
        return Binding(kind, GivenInstance(value))
    if value.protocol is not kind:
        name = getattr(kind, "__name__", repr(kind))
        raise ResourceError(
            f"a binding of {value.name} was given for {name}. Give it under its own type, or bind the other one "
            f"too: Binding({name}, lambda r: r.get({value.name}))."
        )
    return value


def _is_binding(value: object) -> TypeGuard[Binding[Any]]:
    return isinstance(value, Binding)
