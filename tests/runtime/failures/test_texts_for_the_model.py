"""The text of an exception, as a model reads it: without secrets, and without where the store is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from handrail.errors import (
    EffectUncertain,
    FilesystemBusyError,
    JournalError,
    RootMissingError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
    ToolValidationError,
)
from handrail.prompt import TextPart, ToolContext, ToolResult
from handrail.redaction import MASK, Redaction, use_redaction
from tests.kit import Decides, Note, Run, both_ways, call, events, executor, tool

PLACE = "postgresql://ada@db.internal:5432/desk"
ENVIRONMENT = {"STRIPE_API_KEY": "stripe-key-of-the-shop", "LANG": "en_GB.UTF-8"}
KEY = ENVIRONMENT["STRIPE_API_KEY"]

STORAGE = [
    StoreError(f"{PLACE} refuses: out of memory", store=PLACE),
    StoreUnavailableError(f"{PLACE} does not answer", store=PLACE),
    StoreCorruptError(f"entry 3 in {PLACE} is odd", store=PLACE),
    StoreReadOnlyError(f"{PLACE} is read-only", store=PLACE),
    StoreVersionError(f"{PLACE} is newer", store=PLACE, version=9, supported_version=3),
    JournalError(f"the journal of {PLACE} cannot be read", path="."),
    RootMissingError(f"{PLACE} is gone", path="."),
    FilesystemBusyError(f"another process works on {PLACE}", path="."),
]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """A process whose environment has a secret."""
    before = use_redaction(Redaction.of_environment(ENVIRONMENT))
    yield
    use_redaction(before)


def raising(error: Exception, cause: Exception | None = None) -> Any:
    """A handler that fails so."""

    def handler(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        raise error from cause

    return handler


RAISED = {
    "foreign": KeyError(ENVIRONMENT),
    "for the model": ToolValidationError(f"the key {KEY} is refused"),
    "in a group": ExceptionGroup(KEY, [ValueError(KEY)]),
}


@both_ways
@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
def test_a_secret_of_the_environment_is_in_no_message(error: Exception, way: Run) -> None:
    """Nor in the record of the call; the rest of the text is there."""
    door = executor(tool("t", raising(error)))
    message = way(door, call("t"))
    [event] = events(door)
    assert KEY not in message.content + event.result.message
    assert MASK in message.content


@both_ways
def test_a_secret_is_not_in_the_note_of_an_effect(way: Run) -> None:
    """People read it, with the traceback and the causes."""
    raised = EffectUncertain(f"{KEY}: who knows")
    door = executor(tool("t", raising(raised, ValueError(KEY)), effect="external"))
    assert KEY not in way(door, call("t")).content
    (row,) = door.environment.effect_ledger.rows()
    assert "ValueError" in row.note
    assert KEY not in row.note


def test_a_secret_that_a_policy_raises_is_not_told() -> None:
    """Whatever fails on the way of a call."""

    def fails(*_: object) -> Any:
        raise RuntimeError(KEY)

    assert KEY not in executor(tool("t"), policies=(Decides(fails),)).execute(call("t")).content


@both_ways
@pytest.mark.parametrize("error", STORAGE, ids=lambda error: type(error).__name__)
def test_the_model_reads_what_failed_and_not_where(error: StoreError, way: Run) -> None:
    """Of an error of the store, or of files on disk, also where the program repeats its text."""
    assert error.text_for_model
    for raised in (error, RuntimeError(f"cannot save: {error}"), ToolValidationError(f"try later, {error}")):
        told = way(executor(tool("t", raising(raised, None if raised is error else error))), call("t")).content
        assert PLACE not in told
        assert error.text_for_model in told


@both_ways
@pytest.mark.parametrize("results", [False, True])
def test_what_a_tool_returns_is_redacted_if_that_is_asked_for(results: bool, way: Run) -> None:
    """The value that the session records is what the tool has returned."""
    use_redaction(Redaction(values=frozenset({KEY}), results=results))

    def shows(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.ok(Note(f"{KEY}."), parts=[TextPart(KEY)])

    door = executor(tool("t", shows))
    message = way(door, call("t"))
    assert (KEY in message.content, MASK in message.content) == (not results, results)
    assert (KEY in str(message.parts)) is not results
    assert events(door)[0].result.value == Note(f"{KEY}.")
