"""What a tool declares of the effect of its calls, and the functions that it gives for that.

`External` and `IdempotencyConfig`, which only some tools have, are in `handrail.prompt.idempotency`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Literal, Protocol, TypeVar

from handrail.prompt.context import ToolContext
from handrail.prompt.tool_result import ToolResult

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
R_contra = TypeVar("R_contra", contravariant=True)

Effect = Literal["read", "state", "external"]
"""What a call does to the world: observes, changes the session or bound resources, changes the world outside."""

DAY = timedelta(hours=24)
"""The default time for which a result is replayed."""

MINUTE = timedelta(minutes=1)
"""The default lease of a claim."""


class ReconcileInContext(Protocol[P_contra, R_co]):
    """Determines whether an effect happened, with the context of a handler; it may only read."""

    def __call__(
        self, params: P_contra, key: str, /, *, context: ToolContext
    ) -> ToolResult[R_co] | Awaitable[ToolResult[R_co] | None] | None:
        """Determine it; returns as `Reconcile` does."""
        ...


Reconcile = Callable[[P, str], ToolResult[R] | Awaitable[ToolResult[R] | None] | None] | ReconcileInContext[P, R]
"""Determines, by parameters and idempotency key, whether an effect happened.

Returns the result if it did, and `None` if it certainly did not; raises if that cannot be determined.
"""


class ApplyEffect(Protocol[P_contra, R_contra]):
    """Writes what belongs to an effect that has happened: a plain function, an `async` one, or any callable object."""

    def __call__(
        self, params: P_contra, result: ToolResult[R_contra], /, *, context: ToolContext
    ) -> Awaitable[None] | None:
        """Apply the result, in the transaction of the call that commits it.

        Args:
            params: the parameters that the effect was begun with.
            result: what the handler returned, the reconciler or a person found, or the ledger has recorded.
            context: the context of the call; its `idempotency_key` names the effect.
        """
        ...
