"""The effect that a tool declares, combined from up to three fields.

`External` declares which failures prove that an external effect did not happen, and how the others are treated:

    @tool(effect=External(not_applied_on=(httpx.ConnectError,), on_orphan="reconcile", reconcile=ask_the_bank))
    def pay(order: str) -> Receipt: ...

`effect="external"` means `External()`. The documents' `Tool.reconcile`, and `on_orphan` and `lease` of an
`IdempotencyConfig`, are short forms for the same fields.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Never, Protocol, TypeVar, cast, get_args

from handrail.errors import HandrailError, ModelVisibleError, PromptValidationError, RunAbortedError
from handrail.prompt.context import ToolContext
from handrail.prompt.idempotency import MINUTE, IdempotencyConfig, OnOrphan, check_setting, check_span
from handrail.prompt.tool_result import ToolResult
from handrail.redaction import redacted_logger

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
R_contra = TypeVar("R_contra", contravariant=True)

OnRepeat = Literal["refuse", "allow"]
"""How a call is treated that equals one whose effect is unknown: refused, or run as a separate effect."""

_TOO_BROAD = (BaseException, Exception, OSError, TimeoutError, BaseExceptionGroup, ExceptionGroup)
"""Exceptions that may be raised before or after an effect, so that they prove nothing."""

_OF_THE_RUNTIME = (HandrailError, ModelVisibleError)
"""Bases of the exceptions that the runtime raises in a call, whatever the handler has done; besides
`RunAbortedError` and its subclasses."""

Effect = Literal["read", "state", "external"]
"""What a call does to the world: observes, changes the session or bound resources, changes the world outside."""

_NOT_GIVEN = cast("OnOrphan", "".join("unknown"))
"""The default of `External.on_orphan`: equal to what a program writes, and another object, so that the two differ."""

_log = redacted_logger("handrail.prompt")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """The declaration of an external effect.

    An effect was certainly *not applied* if the handler was not entered; if it returned `ToolResult.error(...)`; and if
    it raised `ToolValidationError`, `EffectNotApplied`, control flow of Handrail or PydanticAI, or a type in
    `not_applied_on`. After anything else the effect is *unknown*: it may have happened.

    Attributes:
        not_applied_on: types of exceptions that prove that nothing happened, such as a refused connection. Every member
            of an exception group must match. Types that prove nothing are refused: `Exception`, `OSError`,
            `TimeoutError` and their bases; `HandrailError`, `ModelVisibleError`, and `RunAbortedError` with its
            subclasses.
        on_orphan: what the next call of an effect does that is unknown, or whose owner's lease has expired.
        reconcile: determines whether the effect happened, bounded as the handler is; without it,
            `on_orphan="reconcile"` is refused, and with it `on_orphan="retry"`, which never asks it.
        reconcile_proves_absence: whether `None` of the reconciler counts also right after an answer was lost: the other
            side knows every request that was sent, or refuses one that arrives later. Otherwise the effect stays
            unknown until the reconciler is asked again.
        apply: writes what belongs to an effect that has happened, once for each effect, however its result was found:
            by the handler, from the ledger, by the reconciler or by a person. It is committed with the call, bounded as
            the handler is, and repeated by the next call of the effect if it fails. Session and ledger must be in one
            store.
        repeat_unknown: for calls without a declared key: how a call with equal arguments under another id is treated
            while the effect is unknown. `"allow"` is refused for a tool with a key.
        accept_late_result: whether a handler that learns what happened after its lease has expired, or after its
            timeout, settles its effect, if no other owner has claimed or settled it since.
        lease: how long a claim is valid without a renewal; the ledger renews it.

    Raises:
        PromptValidationError: a value is out of its range, or two contradict each other.
    """

    not_applied_on: tuple[type[Exception], ...] = ()
    on_orphan: OnOrphan = _NOT_GIVEN
    reconcile: Reconcile[Any, Any] | None = None
    reconcile_proves_absence: bool = False
    apply: ApplyEffect[Any, Any] | None = None
    repeat_unknown: OnRepeat = "refuse"
    accept_late_result: bool = False
    lease: timedelta = MINUTE

    def __post_init__(self) -> None:
        _check_types(self.not_applied_on)
        object.__setattr__(self, "not_applied_on", tuple(self.not_applied_on))
        check_setting("External", "on_orphan", self.on_orphan, get_args(OnOrphan))
        check_setting("External", "repeat_unknown", self.repeat_unknown, get_args(OnRepeat))
        if self.on_orphan == "retry" and self.reconcile is not None:
            _refuse(_never_asked())
        for name in ("reconcile_proves_absence", "accept_late_result"):
            if not isinstance(getattr(self, name), bool):
                _refuse(f"{name} is {getattr(self, name)!r}; it must be True or False.")
        check_span("External", "lease", self.lease, "It is how long a claim is valid without a renewal.")

    def with_short_forms(self, config: IdempotencyConfig | None, reconcile: Reconcile[Any, Any] | None) -> External:
        """This, combined with `Tool.reconcile` and the `IdempotencyConfig` of a tool.

        Raises:
            PromptValidationError: a field is set in both places, with different values, or two contradict each other.
        """
        given = None if self.on_orphan is _NOT_GIVEN else self.on_orphan
        on_orphan = None if config is None else config.on_orphan
        lease = MINUTE if config is None else config.lease
        self._check_agreement("on_orphan", given, None, on_orphan)
        self._check_agreement("lease", self.lease, MINUTE, lease)
        self._check_agreement("reconcile", self.reconcile, None, reconcile)
        if self.repeat_unknown == "allow" and config is not None and config.has_key:
            _refuse(
                "repeat_unknown='allow' is for a tool without a key: with idempotency=..., each call of a key is the "
                "same effect. Leave one of the two out."
            )
        reconcile = self.reconcile or reconcile
        if self.reconcile_proves_absence and reconcile is None:
            _refuse("reconcile_proves_absence says what None of a reconciler means; give reconcile, or leave it out.")
        return replace(
            self,
            on_orphan=given or on_orphan or self.on_orphan,
            lease=lease if self.lease == MINUTE else self.lease,
            reconcile=reconcile,
        )

    def _check_agreement(self, name: str, said: object, default: object, short: object) -> None:
        # A value that equals the default counts as not given, because a dataclass does not record which fields were
        # given.
        if default not in (said, short) and said != short:
            _refuse(f"{name} is {_shown(said)} here and {_shown(short)} in the tool's short form; set it in one place.")


def _never_asked(*, by_default: bool = False) -> str:
    default = ", which is the default with effect='state'," if by_default else ""
    return (
        f"reconcile is never asked with on_orphan='retry'{default} because the handler is run again; write "
        "on_orphan='reconcile', or leave reconcile out."
    )


def _check_types(kinds: object) -> None:
    if not isinstance(kinds, tuple | list):
        _refuse(f"not_applied_on is {kinds!r}; it must be a tuple of exception types, e.g. (ConnectionRefusedError,).")
    for kind in cast("tuple[object, ...]", kinds):
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            _refuse(f"not_applied_on has {kind!r}; it must have types of exceptions, e.g. ConnectionRefusedError.")
        # By equality, not by `issubclass`: `ConnectionRefusedError` is an `OSError`, and it does prove that nothing was
        # sent.
        if kind in _TOO_BROAD:
            _refuse(
                f"not_applied_on has {kind.__name__}, which may be raised after the effect has happened. Name the "
                "exceptions that are raised only before it, e.g. ConnectionRefusedError, or raise EffectNotApplied."
            )
        # The two bases are compared by equality, because programs derive their own exceptions from them.
        # `RunAbortedError` is compared with its subclasses: each of them can end a handler after the effect.
        if kind in _OF_THE_RUNTIME or issubclass(kind, RunAbortedError):
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


class DeclaredEffect(NamedTuple):
    """The effect declared by a tool; the names are those of the fields of `Tool`.

    Attributes:
        effect: what a call does to the world.
        declares_effect: whether that was given.
        external: the declaration of an external effect; `None` for any other effect.
        on_orphan: what the next call of an effect does that may have happened.
        reconcile: determines whether an effect happened.
        apply: writes what belongs to an effect that has happened.
    """

    effect: Effect
    declares_effect: bool
    external: External | None
    on_orphan: OnOrphan
    reconcile: Reconcile[Any, Any] | None
    apply: ApplyEffect[Any, Any] | None

    @classmethod
    def of(
        cls,
        tool: str,
        effect: object,
        idempotency: object,
        reconcile: Reconcile[Any, Any] | None,
    ) -> DeclaredEffect:
        """Combine the fields of a tool; `effect` is `None` if it was not given.

        For a tool with a key and no declared effect, a warning is logged once: it may have external effects.

        Raises:
            PromptValidationError: a field has a wrong type, or two contradict each other.
        """
        said = effect if isinstance(effect, External) else None
        word = "external" if isinstance(effect, External) else effect or "state"
        if not isinstance(word, str) or word not in get_args(Effect):
            words = ", ".join(map(repr, get_args(Effect)))
            raise PromptValidationError(f"effect is {effect!r}; it must be one of {words}, or External(...).")
        if idempotency is not None and not isinstance(idempotency, IdempotencyConfig):
            raise PromptValidationError(
                f"idempotency is {idempotency!r}; write idempotency=True, or IdempotencyConfig(...)."
            )
        if word == "external":
            # For other effects the short forms are used unchanged; see `_on_orphan`.
            said = (said or External()).with_short_forms(idempotency, reconcile)
            reconcile = said.reconcile
        # A config with its own `on_orphan` states what an orphan means; the effect would only have given its default.
        if effect is None and idempotency is not None and idempotency.on_orphan is None and idempotency.has_key:
            _warn_of_silence(tool)
        on_orphan = _on_orphan(effect, said, idempotency)
        if reconcile is not None and idempotency is not None and on_orphan == "retry":
            raise PromptValidationError(_never_asked(by_default=idempotency.on_orphan is None))
        own = cast("Effect", "".join(word))  # a new object: `GivenEffect.of_copy` distinguishes it from an equal string
        return cls(own, effect is not None, said, on_orphan, reconcile, None if said is None else said.apply)


class GivenEffect(NamedTuple):
    """The arguments of a tool for its effect, and their result; passed to copies of the tool.

    Attributes:
        effect: `effect` as it was given; `None` if it was not.
        reconcile: `reconcile` as it was given.
        settled: the result of the two.
    """

    effect: object
    reconcile: Reconcile[Any, Any] | None
    settled: DeclaredEffect

    def of_copy(
        self, effect: object, reconcile: Reconcile[Any, Any] | None
    ) -> tuple[object, Reconcile[Any, Any] | None]:
        """The arguments of a copy of the tool with these field values: the same, unless one was replaced.

        The string in a field that was not replaced is the same object as in `settled`: see `DeclaredEffect.of`. A given
        string is another object, so `replace(tool, effect="external")` means only `"external"`.
        """
        # By identity: `replace` passes the settled `reconcile`, which may come from an `External`. Taken as a short
        # form, it would contradict another `External` that is given to the copy.
        same = reconcile is self.settled.reconcile
        return self.effect if effect is self.settled.effect else effect, self.reconcile if same else reconcile


def effect_hints(effect: Effect, *, declares_effect: bool, idempotency: IdempotencyConfig | None) -> tuple[str, ...]:
    """Likely mistakes in the declaration of an effect, as sentences for `handrail check`."""
    if idempotency is None or not idempotency.has_key or effect != "state":
        return ()
    hints: list[str] = []
    if not declares_effect:
        hints.append(
            "it has an idempotency key and does not declare its effect: write effect='external' if its calls act "
            "outside, or effect='state' if all their changes are rolled back"
        )
    if idempotency.strategy == "auto":
        hints.append(
            "its key is computed from all arguments, so a change that is made, reverted and requested again is "
            "answered from the ledger and not made. A state call does not need a key to run once"
        )
    return tuple(hints)


def _on_orphan(effect: object, external: External | None, config: IdempotencyConfig | None) -> OnOrphan:
    """How an orphaned effect is treated.

    For a tool that declares that it changes only state, it has certainly not happened: its writes were rolled back.
    """
    if external is not None:
        return external.on_orphan
    if config is not None and config.on_orphan is not None:
        return config.on_orphan
    # `effect` is what was given: a tool that declares nothing may act outside, so its orphans are not retried.
    return "retry" if effect == "state" else "unknown"


@lru_cache(maxsize=1024)
def _warn_of_silence(tool: str) -> None:
    _log.warning(
        "tool %s has an idempotency key and does not declare its effect; write effect='external' if its calls act "
        "outside, or effect='state' if all their changes are rolled back",
        tool,
    )
