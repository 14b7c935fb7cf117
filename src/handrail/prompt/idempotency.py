"""The keys of effects: calls of a tool with one key are one effect in the ledger.

A call has up to two keys. Its *declared* key is computed by the tool's `IdempotencyConfig`: calls with equal keys, of
any reply, request one effect. Its *slot*, `call:<reply>/<call id>` or `call:<call id>`, identifies a repeat of the same
call after a crash. A key belongs to a *partition* of the store: the session id for slots and for the scope `session`,
empty for keys that all sessions share.

Every key is recorded with a sha256 of canonical JSON: for a declared key of **all** parsed arguments that take part in
equality, whatever the key is computed from; for a slot of the arguments as the model wrote them. The ledger compares it
before a replay: a slot, or a key of all arguments, with other arguments is a conflict. A key of some arguments, or of a
function, is replayed with other arguments, unless the tool refuses that.

A default that is made up for each call counts as `None` in keys and hashes if the model has not sent it
(`handrail.serde.build`): two equal requests have one key.

Where parameters have secrets (`handrail.serde.type_masking`), every hash is an HMAC with the random key of the store,
over the values of the secrets: a reader of the store can neither guess a secret nor look for it in another store.

`External` declares which failures prove that an external effect did not happen, and how the others are treated:

    @tool(effect=External(not_applied_on=(httpx.ConnectError,), on_orphan="reconcile", reconcile=ask_the_bank))
    def pay(order: str) -> Receipt: ...

`effect="external"` means `External()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, Never, cast, get_args

from handrail.errors import (
    DumpError,
    HandrailError,
    InvalidReturnError,
    ModelVisibleError,
    PromptValidationError,
    RunAbortedError,
    ToolValidationError,
)
from handrail.prompt.signature import DAY, MINUTE, ApplyEffect, Reconcile, calling_fault
from handrail.serde import digest, type_masking
from handrail.serde.annotations import is_record, record_types
from handrail.serde.json_values import escape_surrogates
from handrail.session.calls import CallRef

Strategy = Literal["auto", "params", "custom", "none"]
"""The source of a declared key: all arguments, some, or a function; or no key."""

OnOrphan = Literal["unknown", "retry", "reconcile"]
"""The next call of an effect that may have happened: it is refused until a person has decided, it runs the
handler again, or it asks `reconcile`."""

OnBusy = Literal["wait", "reject"]
"""A call while another call runs its effect waits for the result, or is refused."""

OnOtherArguments = Literal["replay", "refuse"]
"""A call whose key has a result of other arguments is answered with that result, or refused."""

_OWN = "IdempotencyConfig"
_EXTERNAL = "External"
# Added to the time of the store, which must stay below the year 9999 of `datetime`.
_LONGEST = timedelta(days=36_500)
# 48 bits: different arguments may have equal digits. `params_hash` covers all arguments, so the second call is refused
# as a conflict; it is not answered with the result of the first.
_KEY_DIGITS = 12
_LONGEST_KEY = 512
_KEY_PART = f"a string of 1 to {_LONGEST_KEY} characters of Unicode, without a zero"
_SLOT = "call"


OnRepeat = Literal["refuse", "allow"]
"""A call that equals one whose effect is unknown is refused, or runs as a separate effect."""

# Exceptions that may be raised before or after an effect, by a program or by the runtime; besides those of
# `RunAbortedError`.
_PROVE_NOTHING = (Exception, OSError, TimeoutError, ExceptionGroup, HandrailError, ModelVisibleError)

# What the fields of an `IdempotencyConfig` may be.
_CHOICES: Mapping[str, Sequence[object]] = {
    "strategy": get_args(Strategy),
    "on_busy": get_args(OnBusy),
    "on_other_arguments": get_args(OnOtherArguments),
}


class EffectKey(NamedTuple):
    """The key of an effect in a ledger. A named tuple, because one is created for each external call.

    Attributes:
        partition: the session id, or `""` for a key that all sessions share.
        key: unique within its partition.
        params_hash: sha256 of the canonical JSON of the arguments, hexadecimal; where they have secrets, the HMAC.
    """

    partition: str
    key: str
    params_hash: str


@dataclass(frozen=True, slots=True)
class IdempotencyConfig:
    """Defines when two calls of a tool are one effect, and how long its result is replayed.

    Attributes:
        strategy: `"auto"` computes the key from all arguments, `"params"` from those in `param_keys`, `"custom"` by
            `key_fn`; with `"none"` there is no key, and each call runs.
        ttl: how long a result is replayed after its completion; `None` for ever. At most a hundred years.
        scope: first part of the key. The scope `"session"` belongs to one session; any other is shared by all that
            use the ledger. `"call"` is reserved for slots.
        param_keys: names of the fields of the key, for `"params"`; their order does not matter.
        key_fn: computes the key from the parsed arguments, for `"custom"`; pure, and returns 1 to 512 characters, none
            of them a zero. They are stored and forwarded unchanged, so do not derive them from a secret.
        on_busy: what a call does while another call runs its effect.
        on_other_arguments: what a call does whose key has a result of other arguments, for `"params"` and `"custom"`:
            it is answered with that result, and its message names the recorded arguments that differ; or it is refused.

    Raises:
        PromptValidationError: a value is out of its range, or two are incompatible.
    """

    strategy: Strategy = "auto"
    ttl: timedelta | None = DAY
    scope: str = "session"
    param_keys: tuple[str, ...] = ()
    key_fn: Callable[[Any], str] | None = None
    on_busy: OnBusy = "wait"
    on_other_arguments: OnOtherArguments = "replay"

    def __post_init__(self) -> None:
        refuse = partial(_refuse, _OWN)
        for name, choices in _CHOICES.items():
            _check_choice(_OWN, name, getattr(self, name), choices)
        if self.ttl is not None:
            _check_span(_OWN, "ttl", self.ttl)
        _check_scope(self.scope)
        if isinstance(cast("object", self.param_keys), str):  # a string is a sequence of its letters
            refuse(f"param_keys is {self.param_keys!r}; it must be a tuple of field names: ({self.param_keys!r},).")
        object.__setattr__(self, "param_keys", tuple(self.param_keys))
        if self.strategy == "params" and not self.param_keys:
            refuse("strategy='params' needs param_keys=(...), the fields that make the key, e.g. ('order_id',).")
        if self.strategy == "custom" and not callable(self.key_fn):
            refuse("strategy='custom' needs key_fn=..., a function from the arguments to a string.")
        for own, field, plural in (("params", "param_keys", "are"), ("custom", "key_fn", "is")):
            if self.strategy != own and getattr(self, field):
                refuse(f"{field} {plural} only for strategy={own!r}, and this is strategy={self.strategy!r}.")
        if self.key_fn is not None and (fault := calling_fault(self.key_fn, (Any,), {})) is not None:
            refuse(f"key_fn {fault}. Write: def key_fn(params) -> str: ...")

    @property
    def has_key(self) -> bool:
        """Returns whether calls have a declared key."""
        return self.strategy != "none"

    @property
    def replays_other_arguments(self) -> bool:
        """Returns whether a result is replayed for other arguments; never for a key of all arguments."""
        return self.strategy in {"params", "custom"} and self.on_other_arguments == "replay"

    def check_params_type(self, kind: type[object] | None, *, tool: str, fields: Sequence[str] | None = None) -> None:
        """Checks that a parameter type, or the `fields` of a schema that is data, has the fields of `param_keys`.

        Raises:
            PromptValidationError: a field is missing. The message lists the existing fields.
        """
        there = fields if fields is not None else list(record_types(kind)) if is_record(kind) else []
        missing = [name for name in self.param_keys if name not in there]
        if missing:
            text = f"param_keys names {', '.join(missing)}, but {_name(kind)} has {', '.join(there) or 'no fields'}"
            raise PromptValidationError(f"IdempotencyConfig: {text}.", tool=tool, dataclass=kind)

    def key_for(self, tool_name: str, params: object, *, hash_key: bytes | None = None) -> str | None:
        """The declared key of a call, e.g. `session:create_order:abc123def456`; `None` for strategy `"none"`.

        Arguments and exceptions are those of `effect_key`. The same arguments have another key in another store.
        """
        key = self.effect_key(tool_name, params, session_id="", hash_key=hash_key)
        return None if key is None else key.key

    def effect_key(
        self, tool_name: str, params: object, *, session_id: str, hash_key: bytes | None = None
    ) -> EffectKey | None:
        """The declared key of a call with its partition and the hash of all arguments; `None` for `"none"`.

        Args:
            tool_name: the tool.
            params: the parsed arguments; `tool.key_params(arguments, params)` if a default of them is made up per call.
            session_id: the session of the call.
            hash_key: `store.hash_key()` of the ledger's store, only if the parameters have secrets.

        Raises:
            ToolValidationError: a key cannot be computed: the arguments have no canonical JSON or lack a field of
                `param_keys`, or `key_fn` raised or returned a text that cannot be a key.
            InvalidReturnError: `key_fn` returned a value that is not text.
            ValueError: the parameters have secrets, and `hash_key` is missing.
        """
        if self.strategy == "none":
            return None
        if hash_key is None:
            _check_no_secrets(tool_name, params)
        # For `"custom"` too: the hash of all arguments detects a conflict, whatever the key is computed from.
        params_hash = _digest(tool_name, params, hash_key)
        if self.strategy == "custom":
            # Without the name of the tool, so that the program controls the whole key. Two tools that compute one key
            # are a conflict: the ledger compares the name of the tool too.
            key = f"{self.scope}:{self._custom_part(tool_name, params)}"
        else:
            by_fields = self.strategy == "params"
            digits = _digest(tool_name, self._key_fields(tool_name, params), hash_key) if by_fields else params_hash
            key = f"{self.scope}:{tool_name}:{digits[:_KEY_DIGITS]}"
        return EffectKey(session_id if self.scope == "session" else "", key, params_hash)

    def _key_fields(self, tool_name: str, params: object) -> dict[str, object]:
        # The parameters of a foreign tool are decoded JSON, whose keys are strings, and an optional one may be missing,
        # so they are checked here, at the call.
        value: Any = params
        attributes = {name: getattr(value, name) for name in self.param_keys if hasattr(value, name)}
        fields: Mapping[str, object] = value if isinstance(params, Mapping) else attributes
        if missing := [name for name in self.param_keys if name not in fields]:
            raise ToolValidationError(
                f"{tool_name}: no idempotency key could be made, because its param_keys are "
                f"{', '.join(self.param_keys)} and {type(value).__name__} has no field {missing[0]}. Nothing was run."
            )
        return {name: fields[name] for name in self.param_keys}

    def _custom_part(self, tool_name: str, params: object) -> str:
        if self.key_fn is None:  # pragma: no cover - refused at construction
            raise AssertionError
        try:
            part = cast("object", self.key_fn(params))  # the program's function may return anything
        # `key_fn` may refuse the arguments with a message of its own for the model.
        except ModelVisibleError:
            raise
        # The arguments come from the model, so a `key_fn` that fails on them is reported to it. Nothing has run yet.
        except Exception as error:
            raise ToolValidationError(
                f"{tool_name}: no idempotency key could be made, because key_fn raised "
                f"{type(error).__name__}: {error}. Nothing was run."
            ) from error
        if not isinstance(part, str):
            raise InvalidReturnError(function="key_fn", tool=tool_name, value=part, expected=_KEY_PART)
        # Stores cannot have lone surrogates, and PostgreSQL no zero.
        if not 0 < len(part) <= _LONGEST_KEY or "\0" in part or escape_surrogates(part) is not part:
            raise ToolValidationError(
                f"{tool_name}: no idempotency key could be made, because key_fn returned {len(part)} characters; "
                f"it must return {_KEY_PART}. Nothing was run."
            )
        return part


def slot_key(ref: CallRef) -> str:
    """The key of a call's slot: the identity of the call, or its digest if that is too long."""
    return f"{_SLOT}:{ref.key}"


def slot_effect_key(ref: CallRef, arguments: object, *, session_id: str, hash_key: bytes | None = None) -> EffectKey:
    """The slot of a call of one session, for external tools without a declared key."""
    # The first argument names the call in errors; it takes no part in the hash.
    return EffectKey(session_id, slot_key(ref), _digest(f"call {ref.call_id}", arguments, hash_key))


def _check_no_secrets(tool_name: str, params: object) -> None:
    params_type: Any = type(params)  # mypy does not know that a class is hashable
    if _has_secrets(params_type):
        raise ValueError(
            f"{tool_name}: {_name(type(params))} has secrets, so what is hashed of it is hashed with the key of the "
            "store: give hash_key=store.hash_key()"
        )


@lru_cache(maxsize=1024)
def _has_secrets(params_type: type[Any]) -> bool:
    return type_masking(params_type).hides


def _digest(caller: str, params: object, hash_key: bytes | None) -> str:
    try:
        return digest(params, key=hash_key)
    except DumpError as error:
        raise ToolValidationError(
            f"{caller}: no idempotency key could be made, because these arguments have no canonical JSON: {error}. "
            "Nothing was run."
        ) from error


def _refuse(owner: str, fault: str) -> Never:
    raise PromptValidationError(f"{owner}: {fault}")


_reject = partial(_refuse, _EXTERNAL)


def _check_choice(owner: str, name: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        _refuse(owner, f"{name} is {value!r}; it must be one of {', '.join(map(repr, choices))}.")


def _check_span(owner: str, name: str, span: object) -> None:
    if not isinstance(span, timedelta) or not timedelta(0) < span <= _LONGEST:
        _refuse(owner, f"{name} is {span}; it must be a timedelta of more than zero and at most {_LONGEST.days} days.")


def _check_scope(scope: object) -> None:
    if not isinstance(scope, str) or not scope or scope != scope.strip() or "\0" in scope or scope == _SLOT:
        # A declared key in the scope `call` could equal the slot of another call.
        _refuse(
            _OWN, f"scope is {scope!r}; it must be a word such as 'session', 'tenant-7' or 'global', and not 'call'."
        )


def _name(kind: type[object] | None) -> str:
    return "no parameter type" if kind is None else kind.__name__


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
    on_orphan: OnOrphan = "unknown"
    reconcile: Reconcile[Any, Any] | None = None
    reconcile_proves_absence: bool = False
    apply: ApplyEffect[Any, Any] | None = None
    repeat_unknown: OnRepeat = "refuse"
    accept_late_result: bool = False
    lease: timedelta = MINUTE

    def __post_init__(self) -> None:
        object.__setattr__(self, "not_applied_on", tuple(self.not_applied_on))
        _check_types(self.not_applied_on)
        _check_choice(_EXTERNAL, "on_orphan", self.on_orphan, get_args(OnOrphan))
        _check_choice(_EXTERNAL, "repeat_unknown", self.repeat_unknown, get_args(OnRepeat))
        for name in ("reconcile_proves_absence", "accept_late_result"):
            _check_choice(_EXTERNAL, name, getattr(self, name), (False, True))
        if self.on_orphan == "reconcile" and self.reconcile is None:
            _reject("on_orphan='reconcile' needs reconcile=..., a function of the parameters and the key.")
        if self.on_orphan == "retry" and self.reconcile is not None:
            _reject(
                "reconcile is never asked with on_orphan='retry', because the handler is run again; write "
                "on_orphan='reconcile', or leave reconcile out."
            )
        if self.reconcile_proves_absence and self.reconcile is None:
            _reject("reconcile_proves_absence says what None of a reconciler means; give reconcile, or leave it out.")
        _check_span(_EXTERNAL, "lease", self.lease)

    def check_key(self, config: IdempotencyConfig | None) -> None:
        """Refuses what contradicts the key of a tool."""
        if self.repeat_unknown == "allow" and config is not None and config.has_key:
            _reject(
                "repeat_unknown='allow' is for a tool without a key: with idempotency=..., each call of a key is the "
                "same effect. Leave one of the two out."
            )


def _check_types(kinds: Iterable[type[BaseException]]) -> None:
    for kind in kinds:
        # By equality, not by `issubclass`: `ConnectionRefusedError` is an `OSError`, and it does prove that nothing was
        # sent; and programs derive their own exceptions from those of Handrail. Each kind of `RunAbortedError` can end
        # a handler after the effect, and so can Ctrl-C, which is not an `Exception`.
        if kind in _PROVE_NOTHING or issubclass(kind, RunAbortedError) or not issubclass(kind, Exception):
            _reject(
                f"not_applied_on has {kind.__name__}, which may be raised after the effect has happened. Name the "
                "exceptions that are raised only before it, e.g. ConnectionRefusedError, or raise EffectNotApplied."
            )
