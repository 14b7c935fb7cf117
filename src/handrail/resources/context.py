"""The resources of one running prompt (`ResourceContext`), and the same as one tool call sees them (`CallScope`).

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
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from handrail.errors import ResourceError, ResourceUseError
from handrail.process_state import ASSIGNING
from handrail.redaction import redacted_logger
from handrail.resources.binding import MISSING, Binding, GivenInstance, Resolver, Scope, unbound_error
from handrail.resources.lifetime import (
    Lifetime,
    check_not_concurrent,
    raise_close_failures,
    snapshotables_among,
    untracked_among,
)
from handrail.transaction import Snapshotable, Transaction, view_for_call
from handrail.turns import Turn, turn_of

_log = redacted_logger("handrail.resources")


class ResourceContext(Resolver):
    """The resources of one running prompt: built when they are first asked for, closed when the context is left.

    ::

        with prompt.resources as resources:
            client = resources.get(HttpClient)

    Leaving closes what providers made, the newest first; instances that were given stay open. Entering again, also
    while it is entered, is allowed: the last one to leave closes. Without entering it everything works and nothing is
    closed, which a warning in the log says when the context is gone. Threads may share it; a provider runs once however
    many ask, and must not wait for another thread that asks.
    """

    __slots__ = (
        "__weakref__",
        "_bindings",
        "_entered",
        "_given",
        "_is_closing",
        "_is_watched",
        "_lifetime",
        "_shared_scope",
        "_silent",
        "_snapshotables",
        "_turn",
        "_turns",
    )

    def __init__(self, bindings: Iterable[Binding[Any]]) -> None:
        """Open resources, usually those of a registry; nothing is built yet."""
        self._bindings: dict[object, Binding[Any]] = {binding.protocol: binding for binding in bindings}
        self._given: dict[object, object] = {
            protocol: binding.provider.value
            for protocol, binding in self._bindings.items()
            if isinstance(binding.provider, GivenInstance)
        }
        self._lifetime = Lifetime()
        self._lifetime.values.update(self._given)
        self._entered = 0
        self._is_closing = False
        self._is_watched = False
        self._turn = Turn()
        self._snapshotables: tuple[Snapshotable[object], ...] | None = None
        self._silent: tuple[Snapshotable[object], ...] | None = None
        self._turns: tuple[Turn, ...] | None = None
        # Where nothing lives for one call alone, all calls see the same, and nothing is ever closed with one of them.
        singletons_only = all(binding.scope is Scope.SINGLETON for binding in self._bindings.values())
        self._shared_scope = CallScope(self) if singletons_only else None

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        # Without the lock: a value is entered only when it is complete.
        value = self._lifetime.values.get(protocol, MISSING)
        return self._obtain(protocol, default) if value is MISSING else value

    def __contains__(self, protocol: object) -> bool:
        return protocol in self._bindings

    def __enter__(self) -> Self:
        """Begin to use the resources; the first to enter builds the eager ones, in the order of their declaration.

        Raises:
            ResourceError: one of them could not be built. What was built has been closed, nothing is entered.
        """
        with self._lifetime.lock:
            self._entered += 1
            # Under the lock, so that a second thread enters only when the eager ones are built, or none of them is.
            if self._entered == 1:
                try:
                    self._build_eager()
                except BaseException as error:
                    self._leave(error)
                    raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop using the resources; the last one to leave closes them.

        Raises:
            ResourceError: some could not be closed; all were tried. When an exception is on its way, that one
                propagates, with a note of what could not be closed.
        """
        self._leave(error)

    def call_scope(self) -> CallScope:
        """The resources as one tool call sees them; to be closed when the call ends."""
        return self._shared_scope or CallScope(self)

    def concurrent_call_scope(self) -> CallScope:
        """The same for a call that runs beside others: it does not get what can be rolled back."""
        return ConcurrentCallScope(self)

    @property
    def turn(self) -> Turn:
        """The turn of those who may build a singleton; see `turns`."""
        return self._turn

    def snapshotables(self) -> tuple[Snapshotable[object], ...]:
        """The singletons that exist and can be undone, each once: first the given ones, then the others as built."""
        found = self._snapshotables
        if found is None:
            with self._lifetime.lock:
                # Computed under the lock, which is held while a singleton is added: a result that lacks it cannot be
                # stored after the reset in `_obtain`.
                found = self._snapshotables = snapshotables_among(self._lifetime.values.values())
        return found

    def untracked_participants(self) -> tuple[Snapshotable[object], ...]:
        """Those of `snapshotables` that carry no turn: they do not report when they are written to."""
        found = self._silent
        if found is None:
            with self._lifetime.lock:
                found = self._silent = untracked_among(self.snapshotables())
        return found

    def turns(self) -> tuple[Turn, ...]:
        """What a call draws to use these resources: the turns of `snapshotables`, each once.

        The first is the context's own, if any singleton comes from a provider: so no two calls that write can both
        build and use what none of them knew of when it drew its turns.
        """
        found = self._turns
        if found is None:
            with self._lifetime.lock:
                own = [self._turn] if self._has_singleton_to_build() else []
                found = tuple(dict.fromkeys([*own, *(turn_of(value) for value in self.snapshotables())]))
                self._turns = found
        return found

    def binding_of(self, protocol: object) -> Binding[Any] | None:
        """How a type is bound, if it is."""
        return self._bindings.get(protocol)

    @property
    def lifetime(self) -> Lifetime:
        """What has been built for all calls; for `CallScope`."""
        return self._lifetime

    def _obtain(self, protocol: Callable[..., object], default: object) -> object:
        binding = self._bindings.get(protocol)
        # Before the lock: a default needs nothing that is being built.
        if binding is None and default is not MISSING:
            return default
        lifetime = self._lifetime
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
        lifetime = self._lifetime
        if not self._entered and not self._is_watched and lifetime.unclosed:
            self._is_watched = True
            # Holds none of the resources: one of them may hold this context, which would never go then.
            weakref.finalize(self, _warn_of_unclosed, lifetime.unclosed)
        if binding.scope is Scope.SINGLETON:
            self._snapshotables = self._silent = self._turns = None

    def _refuse_to_build(self, binding: Binding[Any]) -> None:
        name = binding.name
        if self._is_closing:
            raise ResourceError(f"the resources are being closed, so {name} can no longer be made. Ask for it earlier.")
        if binding.scope is not Scope.TOOL_CALL:
            return
        needed_by = self._lifetime.building
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

    def _has_singleton_to_build(self) -> bool:
        return sum(binding.scope is Scope.SINGLETON for binding in self._bindings.values()) > len(self._given)

    def _build_eager(self) -> None:
        for binding in self._bindings.values():
            if binding.eager:
                self.get(binding.protocol)

    def _leave(self, error: BaseException | None) -> None:
        lifetime = self._lifetime
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
            lifetime.values.update(self._given)
            self._snapshotables = self._silent = self._turns = None
        # After everything else: an error must not leave the context half closed.
        raise_close_failures(failures, during=error)


def _warn_of_unclosed(names: Sequence[str]) -> None:
    """Warn of what was made and never closed; called when the context is gone, or the process ends."""
    if names:
        _log.warning(
            "%s: made by a provider, and never closed, because the resources were never entered. Write `with "
            "ToolExecutor(...) as executor:`, or `with prompt.resources:` around the run",
            ", ".join(names),
        )


class CallScope(Resolver):
    """The resources as one tool call sees them: the context's, and those that live for this call alone.

    It is closed when the call ends: by `close()`, or at the end of a `with` block. Threads of the call may share it;
    one that is still building when the call ends has what it built closed, and gets the error.
    """

    __slots__ = ("_context", "_is_closed", "_lifetime")

    def __init__(self, context: ResourceContext) -> None:
        """Open a scope of a context; `ResourceContext.call_scope` reads better."""
        self._context = context
        self._lifetime: Lifetime | None = None
        self._is_closed = False

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        binding = self._context.binding_of(protocol)
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
        """End the scope; see `close`. An exception propagates, with a note of what was not closed."""
        self._end(error)

    def close(self) -> None:
        """Close what was built for this call, the newest first. Idempotent.

        Raises:
            ResourceError: some could not be closed; all were tried.
        """
        self._is_closed = True  # first: a provider that builds meanwhile looks at it afterwards
        if self._lifetime is not None:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._is_closed = True  # first: a provider that builds meanwhile looks at it afterwards
        if self._lifetime is not None:
            raise_close_failures(self._lifetime.close(), during=error)

    def _obtain(self, binding: Binding[Any]) -> object:
        lifetime = self._lifetime or self._begin()
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

    def _begin(self) -> Lifetime:
        with ASSIGNING:
            self._lifetime = lifetime = self._lifetime or Lifetime()
        return lifetime

    def _refuse_if_closed(self, binding: Binding[Any]) -> None:
        if self._is_closed:
            raise ResourceError(f"the call has ended, so it can no longer use {binding.name}")


class ConcurrentCallScope(CallScope):
    """The resources as a call sees them that takes no turns on them (`Tool(concurrent=True)`).

    `get` raises `TurnConflictError` for what can be undone, because calls take turns on it, and this one has not.
    """

    __slots__ = ()

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        value = super()._find(protocol, default)
        # After it was found or built, because only the value shows whether it can be rolled back.
        check_not_concurrent(value)
        return value


class _Views(Resolver):
    """Resources as the handler of a call gets them: views that are bound to the call, if there are any.

    A view is made when its resource is first asked for, and is the same each time. This class has no slots of its own:
    one of the two below is derived from `CallScope`, which has some.
    """

    __slots__ = ()

    _resources: Resolver
    _call: Transaction
    _view_for_call: Callable[[object, Transaction], object]
    _views: dict[int, tuple[object, object]]

    def _find(self, protocol: Callable[..., object], default: object) -> object:
        value = self._resources.get(protocol, default)
        made = self._views.get(id(value))
        if made is None:
            view = self._view_for_call(value, self._call)
            if view is value:
                return value
            # With the resource itself, so that its id names no other object. Two threads get the same view.
            made = self._views.setdefault(id(value), (value, view))
        return made[1]

    def __contains__(self, protocol: object) -> bool:
        return protocol in self._resources


class BoundResources(_Views):
    """Resources that are bound to a call, and that the call does not close."""

    __slots__ = ("_call", "_resources", "_view_for_call", "_views")

    def __init__(
        self, resources: Resolver, call: Transaction, *, view_for_call: Callable[[object, Transaction], object]
    ) -> None:
        """Bind resources to a call; `view_for_call` makes a view, or returns what has none."""
        self._resources = resources
        self._call = call
        self._view_for_call = view_for_call
        self._views = {}


class BoundCallScope(_Views, CallScope):
    """The resources of a scope, bound to a call, which closes them."""

    __slots__ = ("_call", "_resources", "_scope", "_view_for_call", "_views")

    def __init__(
        self,
        scope: CallScope,
        call: Transaction,
        *,
        view_for_call: Callable[[object, Transaction], object] = view_for_call,
    ) -> None:
        """Bind the resources of a scope to a call; `view_for_call` makes a view, or returns what has none."""
        self._scope = self._resources = scope
        self._call = call
        self._view_for_call = view_for_call
        self._views = {}

    def close(self) -> None:
        """Close what was built for the call; see `CallScope.close`."""
        self._scope.close()

    def _end(self, error: BaseException | None) -> None:
        self._scope.__exit__(None if error is None else type(error), error, None)
