"""What is built for as long as something lasts (a context, a call), and the closing of it in reverse order.

Building runs under the lifetime's own lock, so that a provider runs once however many threads ask. A call's lifetime
may wait for its context's, never the other way round, because singletons do not depend on calls.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from typing import Any

from handrail.errors import (
    CircularResourceError,
    DeveloperMistake,
    EndsRun,
    HandrailError,
    ProviderError,
    ResourceError,
    ToldToModel,
)
from handrail.resources.binding import ABSENT, Binding, Resolver, Scope
from handrail.resources.participation import apart_from_call, join_call


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
        self.lock = threading.RLock()
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
        return any(value is other for other in (*self.values.copy().values(), *self._owned))

    def find(self, binding: Binding[Any]) -> object:
        """The resource of a binding if it has been built and may be used again, or `ABSENT`."""
        return ABSENT if binding.scope is Scope.PROTOTYPE else self.values.get(binding.protocol, ABSENT)

    def build(self, binding: Binding[Any], resolver: Resolver, *, longer: Lifetime | None = None) -> object:
        """Build a resource; the lock is held.

        Args:
            binding: says how.
            resolver: what its provider asks for its dependencies.
            longer: the lifetime that goes on when this one ends; what belongs to it is not closed with this one.

        Raises:
            CircularResourceError: its provider is running already.
            ProviderError: its provider raised.
            WrongResourceError: its provider made something of another type.
        """
        if binding in self.building:
            start = self.building.index(binding)
            raise CircularResourceError((*self.needed_by[start:], binding.kind))
        self.building.append(binding)
        try:
            value = self._provide(binding, resolver)
        finally:
            self.building.pop()
        binding.check(value)
        if hasattr(type(value), "close") and not self.has(value) and not (longer and longer.has(value)):
            with self._guard:
                self._owned.append(value)
                self.unclosed.append(type(value).__name__)
        if binding.scope is not Scope.PROTOTYPE:
            self.values[binding.protocol] = value
        join_call(value)
        return value

    def close(self) -> Sequence[tuple[object, BaseException]]:
        """Close what was built, the newest first, and forget it; returns what raised, with what it raised.

        Two threads may close at once: each resource is closed by one of them.
        """
        failures: list[tuple[object, BaseException]] = []
        with self._guard:
            owned, self._owned = self._owned, []
            self.unclosed.clear()
        for value in reversed(owned):
            try:
                _close(value)
            except BaseException as error:  # noqa: BLE001 - one that fails must not keep the others from being closed
                failures.append((value, error))
        self.values.clear()
        return failures

    def _provide(self, binding: Binding[Any], resolver: Resolver) -> object:
        try:
            if binding.scope is Scope.SINGLETON:
                return apart_from_call(binding.name, lambda: binding.provider(resolver))
            return binding.provider(resolver)
        except (ResourceError, DeveloperMistake, ToldToModel, EndsRun):
            raise  # they say what is wrong, and to whom, better than a wrapping could
        except Exception as error:
            chain = " -> ".join(kind.__name__ for kind in self.needed_by)
            msg = f"the provider of {binding.name} failed (asked for by {chain}): {type(error).__name__}: {error}"
            raise ProviderError(msg, protocol=binding.kind) from error


def tell_failures(failures: Sequence[tuple[object, BaseException]], *, during: BaseException | None) -> None:
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
    told = "; ".join(f"{type(value).__name__}: {type(error).__name__}: {error}" for value, error in failures)
    msg = f"{len(failures)} resource(s) could not be closed; all were tried: {told}"
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
    if inspect.iscoroutine(returned):
        returned.close()
        kind = type(value).__name__
        msg = (
            f"{kind}.close is asynchronous, so it was not closed. Make the resource yourself, bind it with "
            f"Binding.instance({kind}, ...), and close it when the run is over."
        )
        raise HandrailError(msg)
