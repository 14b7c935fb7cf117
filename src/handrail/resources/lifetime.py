"""How long the resources of one scope live: built once, joined to the call, and closed in reverse order.

Building runs under the lifetime's own lock, so that a provider runs once however many threads ask. A call's lifetime
may wait for its context's, never the other way round, because singletons do not depend on calls.

What can be undone and is built inside a call joins its transaction. A singleton is built in a transaction of its own.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from handrail.errors import (
    CircularResourceError,
    HandrailError,
    ModelVisibleError,
    ProviderError,
    ResourceError,
    RunAbortedError,
)
from handrail.errors.developer import mistakes_in
from handrail.resources.binding import MISSING, Binding, Resolver, Scope, is_snapshotable
from handrail.transaction import Transaction, current
from handrail.turns import draw_ticket, own_turn

T = TypeVar("T")


class Lifetime:
    """Resources that are built one by one and closed together.

    Attributes:
        lock: held while anything is built.
        values: the resources by the type they are bound for; prototypes are not among them.
        building: the bindings whose providers run now, each needing the next; to be read with the lock held.
        unclosed: the names of the types of what is yet to be closed; the list is the same one throughout.
    """

    __slots__ = ("_guard", "_owned", "building", "lock", "unclosed", "values")

    def __init__(self) -> None:
        """Make a lifetime in which nothing has been built."""
        self.lock: threading.RLock = threading.RLock()
        self.values: dict[object, object] = {}
        self.building: list[Binding[Any]] = []
        self.unclosed: list[str] = []
        self._owned: list[object] = []
        self._guard = threading.Lock()  # over `_owned`: closing does not wait for what is being built

    @property
    def needed_by(self) -> tuple[type[object], ...]:
        """The types whose providers run now, each needing the next; to be read with the lock held."""
        return tuple(binding.kind for binding in self.building)

    def has(self, value: object) -> bool:
        """Whether this very object is among the resources."""
        # A copy: `build` asks the context's lifetime without its lock, and another thread may be adding to it.
        return any(value is other for other in (*self.values.copy().values(), *self._owned))

    def find(self, binding: Binding[Any]) -> object:
        """The resource of a binding if it has been built and may be used again, or `MISSING`."""
        return MISSING if binding.scope is Scope.PROTOTYPE else self.values.get(binding.protocol, MISSING)

    def build(self, binding: Binding[Any], resolver: Resolver, *, longer: Lifetime | None = None) -> object:
        """Build a resource; the lock is held.

        Args:
            binding: says how.
            resolver: what its provider asks for its dependencies.
            longer: the lifetime that continues when this one ends; what belongs to it is not closed with this one.

        Raises:
            CircularResourceError: its provider is running already.
            ProviderError: its provider raised.
            WrongResourceError: its provider made something of another type.
        """
        # The lock is reentrant, so that a provider may ask for others; one that is asked for again is found here.
        if binding in self.building:
            start = self.building.index(binding)
            raise CircularResourceError((*self.needed_by[start:], binding.kind))
        self.building.append(binding)
        try:
            value = self._provide(binding, resolver)
        finally:
            self.building.pop()
        binding.check(value)
        # A provider may return what another one has made; it is closed once, by the lifetime that it belongs to.
        if hasattr(type(value), "close") and not self.has(value) and not (longer and longer.has(value)):
            with self._guard:
                self._owned.append(value)
                self.unclosed.append(type(value).__name__)
        # After the check, so that a value of another type is never found.
        if binding.scope is not Scope.PROTOTYPE:
            # If joining the call raises, the resource stays entered, and is closed with its lifetime.
            self.values[binding.protocol] = value
        join_call(value)
        return value

    def close(self) -> Sequence[tuple[object, BaseException]]:
        """Close what was built, the newest first, and forget it; returns what raised, with what it raised.

        Two threads may close at once: each resource is closed by one of them.
        """
        failures: list[tuple[object, BaseException]] = []
        # Taken out under the guard and closed without it: a `close` may take long, or ask for resources.
        with self._guard:
            owned, self._owned = self._owned, []
            # Emptied and not replaced, because `_warn_of_unclosed` holds this list.
            self.unclosed.clear()
        for value in reversed(owned):
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
    """Say what could not be closed, without hiding what was raised before.

    Args:
        failures: what could not be closed, and why.
        during: the exception that is on its way already; the failures become notes on it.

    Raises:
        ResourceError: something could not be closed, and no exception was on its way.
        BaseException: an interrupt that came while closing.
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
    returned: object = value.close()
    # Closed unawaited, so that Python does not warn of it as well.
    if inspect.iscoroutine(returned):
        returned.close()
        kind = type(value).__name__
        msg = (
            f"{kind}.close is asynchronous, so it was not closed. Make the resource yourself, bind it with "
            f"Binding.instance({kind}, ...), and close it when the run is over."
        )
        raise HandrailError(msg)


def join_call(value: object) -> None:
    """Let what was just built join the call it was built in, so that its state now is what a rollback restores.

    Does nothing outside of calls, in calls that only read, and for what joins by itself before it is written to.

    Raises:
        TurnConflictError: it is not new: another call is using it.
    """
    call = current()
    # Outside a call nothing is rolled back, and a call that only reads cannot change what was built.
    if call is None or not call.writes or not call.is_open():
        return
    # One with a turn of its own reports each write, and joins then (`check_write`).
    if is_snapshotable(value) and own_turn(value) is None:
        call.join(value)


def outside_call(name: str, provide: Callable[[], T]) -> T:
    """Run a singleton's provider as a unit of its own: the call that asks first may end, the singleton stays.

    What the provider writes stays too if it succeeds, whatever becomes of the call, even of one that only reads; and it
    is undone if it fails. The resources that it asked for join the call.

    Args:
        name: what is provided, for messages.
        provide: makes it.
    """
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
