"""What a call does to the world, as a tool declares it in up to three fields, brought together."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast, get_args

from handrail.errors import PromptValidationError
from handrail.prompt.external import External, Reconcile
from handrail.prompt.idempotency import IdempotencyConfig, OnOrphan

Effect = Literal["read", "state", "external"]
"""What a call does to the world: observes, changes the session or bound resources, changes the world outside."""

_log = logging.getLogger("handrail.prompt")


class DeclaredEffect(NamedTuple):
    """What a tool says of its effect; the names are those of the fields of `Tool`.

    Attributes:
        effect: what a call does to the world.
        declares_effect: whether that was given.
        external: what is said of an effect outside; `None` for any other effect.
        on_orphan: what the next call of an effect does that may have happened.
        reconcile: finds out whether an effect happened.
    """

    effect: Effect
    declares_effect: bool
    external: External | None
    on_orphan: OnOrphan
    reconcile: Reconcile[Any, Any] | None

    @classmethod
    def of(
        cls,
        tool: str,
        effect: object,
        idempotency: object,
        reconcile: Reconcile[Any, Any] | None,
    ) -> DeclaredEffect:
        """Bring together the fields of a tool; `effect` is `None` where it was not given.

        A tool with a key that does not say what its calls do may act outside: it is warned about once.

        Raises:
            PromptValidationError: a field is of another type, or two contradict each other.
        """
        said = effect if isinstance(effect, External) else None
        word = "external" if isinstance(effect, External) else effect or "state"
        if not isinstance(word, str) or word not in get_args(Effect):
            words = ", ".join(map(repr, get_args(Effect)))
            raise PromptValidationError(f"effect is {effect!r}; it must be one of {words}, or External(...).")
        if idempotency is not None and not isinstance(idempotency, IdempotencyConfig):
            raise PromptValidationError(f"idempotency is {idempotency!r}; write idempotency=IdempotencyConfig(...).")
        if word == "external":
            said = (said or External()).with_short_forms(idempotency, reconcile)
            reconcile = said.reconcile
        if effect is None and idempotency is not None and idempotency.on_orphan is None and idempotency.has_key:
            _warn_of_silence(tool)
        own = cast(
            "Effect", "".join(word)
        )  # an object of its own: `GivenEffect.of_copy` tells it from a word in a program
        return cls(own, effect is not None, said, _on_orphan(effect, said, idempotency), reconcile)


class GivenEffect(NamedTuple):
    """What a tool was given for its effect, and what that became; a copy of the tool is given it.

    Attributes:
        effect: `effect` as it was given; `None` if it was not.
        reconcile: `reconcile` as it was given.
        settled: what the two became.
    """

    effect: object
    reconcile: Reconcile[Any, Any] | None
    settled: DeclaredEffect

    def of_copy(
        self, effect: object, reconcile: Reconcile[Any, Any] | None
    ) -> tuple[object, Reconcile[Any, Any] | None]:
        """What a copy of the tool is given, whose fields have these values: the same, unless one was replaced.

        The word of a field that was not replaced is the very object that is settled: see `DeclaredEffect.of`. A word
        that was given is another one, so `replace(tool, effect="external")` says no more than `"external"`.
        """
        same = reconcile is self.settled.reconcile
        return self.effect if effect is self.settled.effect else effect, self.reconcile if same else reconcile


def effect_hints(effect: Effect, *, declares_effect: bool, idempotency: IdempotencyConfig | None) -> tuple[str, ...]:
    """What whoever declared a tool may not have meant, in sentences; for `handrail check`."""
    if idempotency is None or not idempotency.has_key or effect != "state":
        return ()
    hints: list[str] = []
    if not declares_effect:
        hints.append(
            "it has an idempotency key and does not say what its calls do: write effect='external' if they act "
            "outside, or effect='state' if all that they do is rolled back"
        )
    if idempotency.strategy == "auto":
        hints.append(
            "its key is made of all arguments, so a change that is made, changed back and asked for again is answered "
            "from the ledger and not made. A state call needs no key to be made once"
        )
    return tuple(hints)


def _on_orphan(effect: object, external: External | None, config: IdempotencyConfig | None) -> OnOrphan:
    """What becomes of an orphan.

    Of a tool that says that it changes state alone, an orphan has surely not happened: what it wrote was undone.
    """
    if external is not None:
        return external.on_orphan
    if config is not None and config.on_orphan is not None:
        return config.on_orphan
    return "retry" if effect == "state" else "unknown"


@lru_cache(maxsize=1024)
def _warn_of_silence(tool: str) -> None:
    _log.warning(
        "tool %s has an idempotency key and does not say what its calls do; write effect='external' if they act "
        "outside, or effect='state' if all that they do is rolled back",
        tool,
    )
