"""What a tool says of an effect outside, and how it goes together with the short forms of the documents."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from handrail.errors import (
    BudgetExceededError,
    DeadlineExceededError,
    HandrailError,
    ModelVisibleError,
    PromptEvaluationError,
    PromptValidationError,
    RunAbortedError,
)
from handrail.prompt import External, IdempotencyConfig, Tool, ToolContext, ToolResult
from tests.kit import Note, echo
from tests.wording import Wording

HOUR = timedelta(hours=1)


def find_out(params: Note, key: str) -> ToolResult[Note] | None:
    """Say that it did not happen."""
    return None


def find_out_otherwise(params: Note, key: str, *, context: ToolContext) -> ToolResult[Note] | None:
    """The same, with a context."""
    return None


def pay(**options: Any) -> Tool[Note, Note]:
    """A tool."""
    given: dict[str, Any] = {"name": "pay", "description": "Pays.", "handler": echo} | options
    return Tool[Note, Note](**given)


def refused(**options: Any) -> str:
    """What a tool that is declared so is refused with."""
    with pytest.raises(PromptValidationError) as error:
        pay(**options)
    return str(error.value)


BY_THE_RUNTIME = (HandrailError, ModelVisibleError, RunAbortedError, DeadlineExceededError, BudgetExceededError)
BY_ANYTHING = (Exception, BaseException, OSError, TimeoutError, ExceptionGroup, KeyboardInterrupt, "x")


@pytest.mark.parametrize("kind", [*BY_THE_RUNTIME, PromptEvaluationError, *BY_ANYTHING])
@pytest.mark.short(6)
def test_types_that_prove_nothing_are_refused(kind: Any, wording: Wording) -> None:
    """They are raised after an effect as well as before it; so is a deadline that passes while the handler runs."""
    with pytest.raises(PromptValidationError) as raised:
        External(not_applied_on=(kind,))
    assert str(raised.value) == wording


def test_fields_are_held_to_their_ranges(wording: Wording) -> None:
    """Each message names the field and what would be right."""
    wrong: list[dict[str, Any]] = [
        {"not_applied_on": ConnectionRefusedError},
        {"on_orphan": "again"},
        {"repeat_unknown": "yes"},
        {"reconcile_proves_absence": 1},
        {"accept_late_result": 1},
        {"lease": 60},
        {"lease": timedelta(0)},
    ]
    for fields in wrong:
        with pytest.raises(PromptValidationError) as raised:
            External(**fields)
        assert str(raised.value) == wording


def test_what_none_of_a_reconciler_means_is_said_of_a_reconciler(wording: Wording) -> None:
    """It may be given as the short form."""
    said = External(reconcile_proves_absence=True)
    with pytest.raises(PromptValidationError) as raised:
        pay(effect=said)
    assert str(raised.value) == wording
    external = pay(effect=said, reconcile=find_out).external
    assert external is not None
    assert external.reconcile_proves_absence


def test_word_means_the_defaults() -> None:
    """`effect="external"` is `effect=External()`; the attribute is a word in either case."""
    for effect in ("external", External()):
        tool = pay(effect=effect)
        assert (tool.effect, tool.external, tool.declares_effect, tool.claims) == ("external", External(), True, True)
    assert pay().external is None
    assert pay(effect="read").external is None


def test_short_forms_say_the_same() -> None:
    """`Tool.reconcile`, and `on_orphan` and `lease` of a key."""
    config = IdempotencyConfig(on_orphan="reconcile", lease=HOUR)
    short = pay(effect="external", idempotency=config, reconcile=find_out)
    long = pay(effect=External(on_orphan="reconcile", lease=HOUR, reconcile=find_out), idempotency=IdempotencyConfig())
    assert short.external == long.external == External(on_orphan="reconcile", lease=HOUR, reconcile=find_out)
    assert short.reconcile is long.reconcile is find_out
    assert short.on_orphan == long.on_orphan == "reconcile"


def test_contradictions_are_refused(wording: Wording) -> None:
    """The message names both places."""
    config, wrong = IdempotencyConfig(on_orphan="retry"), cast("Any", len)
    assert refused(effect=External(on_orphan="reconcile", reconcile=find_out), idempotency=config) == wording
    assert refused(effect=External(reconcile=find_out), reconcile=find_out_otherwise) == wording
    assert refused(effect=External(on_orphan="reconcile")) == wording
    assert refused(effect=External(reconcile=wrong)) == wording


CONTRADICTIONS: dict[str, Callable[[], object]] = {
    "External retries, the key does not": lambda: pay(
        effect=External(on_orphan="retry"), idempotency=IdempotencyConfig(on_orphan="unknown")
    ),
    "External does not retry, the key does": lambda: pay(
        effect=External(on_orphan="unknown"), idempotency=IdempotencyConfig(on_orphan="retry")
    ),
    "a copy does not retry": lambda: replace(
        pay(effect="external", idempotency=IdempotencyConfig(on_orphan="retry")),
        effect=cast("Any", External(on_orphan="unknown")),
    ),
    "a reconciler that is not asked": lambda: External(on_orphan="retry", reconcile=find_out),
    "by the key": lambda: pay(effect=External(reconcile=find_out), idempotency=IdempotencyConfig(on_orphan="retry")),
    "by the tool": lambda: pay(effect=External(on_orphan="retry"), reconcile=find_out),
    "by the key, with no effect": lambda: pay(reconcile=find_out, idempotency=IdempotencyConfig(on_orphan="retry")),
    "by the default of state": lambda: pay(effect="state", reconcile=find_out, idempotency=IdempotencyConfig()),
    "a repeat of a key": lambda: pay(effect=External(repeat_unknown="allow"), idempotency=IdempotencyConfig()),
}


@pytest.mark.parametrize("declare", CONTRADICTIONS.values(), ids=list(CONTRADICTIONS))
def test_of_two_options_that_contradict_each_other_neither_wins(
    declare: Callable[[], object], wording: Wording
) -> None:
    """The tool is not made, and the message says what to write; otherwise an effect would run again unasked."""
    with pytest.raises(PromptValidationError) as raised:
        declare()
    assert str(raised.value) == wording


def test_what_is_not_written_contradicts_nothing() -> None:
    """A default is not a second statement, also where it is equal to one."""
    retry, unknown = IdempotencyConfig(on_orphan="retry"), IdempotencyConfig(on_orphan="unknown")
    assert pay(effect=External(lease=HOUR), idempotency=retry).on_orphan == "retry"
    assert pay(effect=replace(External(), lease=HOUR), idempotency=retry).on_orphan == "retry"
    assert pay(effect=External(on_orphan="unknown"), idempotency=unknown).on_orphan == "unknown"
    assert pay(effect=External(on_orphan="unknown"), idempotency=IdempotencyConfig()).on_orphan == "unknown"
    no_key = IdempotencyConfig(strategy="none")
    assert pay(effect=External(repeat_unknown="allow"), idempotency=no_key).idempotency is no_key
    assert External() == External(on_orphan="unknown")


@pytest.mark.parametrize(
    "effect, expected", [({"effect": "state"}, "retry"), ({}, "unknown"), ({"effect": "external"}, "unknown")]
)
def test_orphan_of_a_tool_that_declares_state_is_retried(effect: dict[str, Any], expected: str) -> None:
    """What it wrote has been undone; a tool that does not say what it does may act outside."""
    assert pay(idempotency=IdempotencyConfig(), **effect).on_orphan == expected
    said = pay(idempotency=IdempotencyConfig(on_orphan="reconcile"), reconcile=find_out, **effect)
    assert said.on_orphan == "reconcile"


def test_key_without_a_declared_effect_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    """It may act outside: the person who wrote it is to say."""
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            pay(name="warned", idempotency=IdempotencyConfig())
        pay(name="quiet", idempotency=IdempotencyConfig(), effect="state")
        pay(name="quiet", idempotency=IdempotencyConfig(strategy="none"))
    assert [record.args for record in caplog.records] == [("warned",)]
