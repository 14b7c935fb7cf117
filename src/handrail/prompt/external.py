"""What a tool says of its effect outside: which failures prove that it did not happen, and what becomes of the others.

    Tool[Order, Receipt](
        name="pay",
        description="Pays.",
        handler=pay,
        effect=External(not_applied_on=(httpx.ConnectError,), on_orphan="reconcile", reconcile=ask_the_bank),
    )

`effect="external"` means `External()`. The documents' `Tool.reconcile`, and `on_orphan` and `lease` of an
`IdempotencyConfig`, are short forms for the same fields.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, Never, Protocol, TypeVar, cast, get_args

from handrail.errors import EndsRun, HandrailError, PromptValidationError, ToldToModel
from handrail.prompt.context import ToolContext
from handrail.prompt.idempotency import MINUTE, IdempotencyConfig, OnOrphan, check_choice, check_span
from handrail.prompt.tool_result import ToolResult

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

OnRepeat = Literal["refuse", "allow"]
"""What becomes of a call that equals one whose effect is unknown: it is refused, or runs as an effect of its own."""

_TOO_BROAD = (BaseException, Exception, OSError, TimeoutError, BaseExceptionGroup, ExceptionGroup)
"""What may be raised before an effect and after it alike, so that it proves nothing."""

_OF_THE_RUNTIME = (HandrailError, ToldToModel)
"""Bases of what the runtime raises in a call, whatever the handler has done; besides `EndsRun` and its subclasses."""


class ReconcileInContext(Protocol[P_contra, R_co]):
    """Finds out whether an effect happened, with what a handler has beside the parameters; it may only read."""

    def __call__(
        self, params: P_contra, key: str, /, *, context: ToolContext
    ) -> ToolResult[R_co] | Awaitable[ToolResult[R_co] | None] | None:
        """Find out; returns as `Reconcile` does."""
        ...


Reconcile = Callable[[P, str], ToolResult[R] | Awaitable[ToolResult[R] | None] | None] | ReconcileInContext[P, R]
"""Finds out, by parameters and idempotency key, whether an effect happened.

Returns the result if it did, and `None` if it surely did not; raises if that cannot be found out.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """What is said of an effect outside.

    An effect was surely *not applied* if the handler was not entered; if it returned `ToolResult.error(...)`; and if it
    raised `ToolValidationError`, `EffectNotApplied`, control flow of Handrail or PydanticAI, or a type in
    `not_applied_on`. After anything else the effect is *unknown*: it may have happened.

    Attributes:
        not_applied_on: types of exceptions that prove that nothing happened, such as a refused connection. Of an
            exception group every member has to fit. Types that prove nothing are refused: `Exception`, `OSError`,
            `TimeoutError` and their bases; `HandrailError`, `ToldToModel`, and `EndsRun` with its subclasses.
        on_orphan: what the next call of an unknown effect does, and of one whose owner's lease has expired.
        reconcile: finds out whether the effect happened; without it, `on_orphan="reconcile"` is refused.
        repeat_unknown: for calls without a declared key: what becomes of a call with equal arguments under another id
            while the effect is unknown.
        accept_late_result: whether a handler that learns what happened after its lease has expired, or after its
            timeout, settles its effect, if nobody has claimed or settled it since.
        lease: how long an owner that gives no heartbeat is believed to be at work; the ledger gives them.

    Raises:
        PromptValidationError: a value is out of its range, or two contradict each other; the message says which.
    """

    not_applied_on: tuple[type[Exception], ...] = ()
    on_orphan: OnOrphan = "unknown"
    reconcile: Reconcile[Any, Any] | None = None
    repeat_unknown: OnRepeat = "refuse"
    accept_late_result: bool = False
    lease: timedelta = MINUTE

    def __post_init__(self) -> None:
        _check_types(self.not_applied_on)
        object.__setattr__(self, "not_applied_on", tuple(self.not_applied_on))
        check_choice("External", "on_orphan", self.on_orphan, get_args(OnOrphan))
        check_choice("External", "repeat_unknown", self.repeat_unknown, get_args(OnRepeat))
        if not isinstance(cast("object", self.accept_late_result), bool):
            _refuse(f"accept_late_result is {self.accept_late_result!r}; it must be True or False.")
        check_span("External", "lease", self.lease, "It says how long a silent owner is believed to be at work.")

    def with_short_forms(self, config: IdempotencyConfig | None, reconcile: Reconcile[Any, Any] | None) -> External:
        """This, with what a tool says by `Tool.reconcile` and in its `IdempotencyConfig`.

        Raises:
            PromptValidationError: a field is said in both places, with different values.
        """
        on_orphan = None if config is None else config.on_orphan
        lease = MINUTE if config is None else config.lease
        self._check_agreement("on_orphan", self.on_orphan, "unknown", on_orphan or "unknown")
        self._check_agreement("lease", self.lease, MINUTE, lease)
        self._check_agreement("reconcile", self.reconcile, None, reconcile)
        return replace(
            self,
            on_orphan=self.on_orphan if self.on_orphan != "unknown" else on_orphan or "unknown",
            lease=lease if self.lease == MINUTE else self.lease,
            reconcile=self.reconcile or reconcile,
        )

    def _check_agreement(self, name: str, said: object, default: object, short: object) -> None:
        if default not in (said, short) and said != short:
            _refuse(f"{name} is {_shown(said)} here and {_shown(short)} in the tool's short form; say it in one place.")


def _check_types(kinds: object) -> None:
    if not isinstance(kinds, tuple | list):
        _refuse(f"not_applied_on is {kinds!r}; it must be a tuple of exception types, e.g. (ConnectionRefusedError,).")
    for kind in cast("tuple[object, ...]", kinds):
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            _refuse(f"not_applied_on has {kind!r}; it must have types of exceptions, e.g. ConnectionRefusedError.")
        if kind in _TOO_BROAD:
            _refuse(
                f"not_applied_on has {kind.__name__}, which may be raised after the effect has happened. Name the "
                "exceptions that are raised only before it, e.g. ConnectionRefusedError, or raise EffectNotApplied."
            )
        if kind in _OF_THE_RUNTIME or issubclass(kind, EndsRun):
            _refuse(
                f"not_applied_on has {kind.__name__}, which Handrail itself raises when a deadline passes, a lease is "
                "lost or a run ends, also after the effect has happened. Name exceptions of your own, or raise "
                "EffectNotApplied."
            )


def _shown(value: object) -> str:
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else repr(value)


def _refuse(fault: str) -> Never:
    raise PromptValidationError(f"External: {fault}")
