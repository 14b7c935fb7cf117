"""A lone surrogate in what a tool raises or returns neither ends the run nor spoils what is said or recorded of it.

Through every entry: the four of `ToolExecutor`, and PydanticAI, for Handrail's own tools and for plain functions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import ModelRetry, ToolFailed, ToolReturn
from pydantic_ai.messages import ModelMessagesTypeAdapter, TextContent

from handrail.adapters.tool_executor import ToolExecutor
from handrail.errors import ToolValidationError
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.prompt.signature import Effect
from handrail.runtime import Session, ToolCall, ToolInvoked, ToolMessage
from handrail.store import SqliteStore
from handrail.testing import Call
from tests.adapters.kit import called, pipeline, play, returns
from tests.kit import Note, executor

BAD = "a smile: \ud83d"
SHOWN = r"a smile: \ud83d"


@pytest.fixture(autouse=True)
def _logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The tracebacks hold the surrogate, and a worker of pytest-xdist cannot hand on what it captured of them."""
    caplog.set_level(logging.CRITICAL + 1, logger="handrail")


Value = dict[str, Any] | list[Note] | str
Act = Callable[[], ToolResult[Any]]


def raising(error: Exception) -> Act:
    """A handler that raises."""

    def act() -> ToolResult[Any]:
        raise error

    return act


ACTS: Mapping[str, tuple[Act, str]] = {
    "exception": (raising(ValueError(BAD)), f"act failed: ValueError: {SHOWN}"),
    "refusal": (raising(ToolValidationError(BAD)), SHOWN),
    "message": (lambda: ToolResult.ok({}, BAD), f"{SHOWN}\n{{}}"),
    "failure": (lambda: ToolResult.error(BAD), SHOWN),
    "failure with a value": (lambda: ToolResult.error("No.", {"text": BAD}), r'{"text":"a smile: \\ud83d"}'),
    "text": (lambda: ToolResult.ok(BAD), SHOWN),
    "mapping": (lambda: ToolResult.ok({BAD: [BAD]}), r'{"a smile: \\ud83d":["a smile: \\ud83d"]}'),
    "sequence": (lambda: ToolResult.ok([Note(BAD)]), r'[{"text":"a smile: \\ud83d"}]'),
}
"""What handlers do, and what the model must read of it."""


def acting(act: Act, effect: Effect) -> Tool[Any, Any]:
    """A tool without parameters that does this."""

    def handle(_params: None, *, context: ToolContext) -> ToolResult[Any]:
        return act()

    return Tool[None, Value](name="act", description="Acts.", handler=handle, effect=effect)


Execute = Callable[[ToolExecutor, ToolCall], ToolMessage]
EXECUTE: Mapping[str, Execute] = {
    "one": lambda door, call: door.execute(call, reply="r"),
    "one, async": lambda door, call: asyncio.run(door.execute_async(call, reply="r")),
    "several": lambda door, call: door.execute_all([call], reply="r")[0],
    "several, async": lambda door, call: asyncio.run(door.execute_all_async([call], reply="r"))[0],
}


@pytest.mark.parametrize("effect", ["read", "state", "external"])
@pytest.mark.parametrize("execute", EXECUTE.values(), ids=EXECUTE)
@pytest.mark.parametrize("name", ACTS)
def test_the_model_reads_an_escape(name: str, execute: Execute, effect: Effect) -> None:
    """Of messages, of values, and of exceptions."""
    act, shown = ACTS[name]
    content = execute(executor(acting(act, effect)), ToolCall("1", "act")).content
    assert shown in content
    assert content.encode()


@pytest.mark.parametrize("name", ACTS)
def test_a_call_that_is_answered_from_its_record_reads_the_same(name: str, tmp_path: Path) -> None:
    """The record holds the escapes where UTF-8 cannot hold what was said."""
    tool = acting(ACTS[name][0], "state")
    with SqliteStore(tmp_path / "store.db") as store:
        with Session.open(store, "s") as session:
            first = executor(tool, session=session).execute(ToolCall("1", "act"), reply="r")
        with Session.open(store, "s") as session:
            (event,) = session[ToolInvoked].all()
            second = executor(tool, session=session).execute(ToolCall("1", "act"), reply="r")
    assert event.result.render() == first.content
    if event.final:
        assert (second.content, second.replayed) == (first.content, True)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ACTS)
async def test_the_history_of_pydantic_ai_is_unicode(name: str) -> None:
    """It can be written and read again, and the run goes on to its end."""
    act, shown = ACTS[name]
    result = await play(pipeline(Session(), acting(act, "state")), called(Call("act")))
    history = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
    assert shown in str(returns(history)["c1"].content)


def _say(returned: object) -> Callable[[], object]:
    def act() -> object:
        if isinstance(returned, Exception):
            raise returned
        return returned

    return act


FOREIGN: Mapping[str, object] = {
    "exception": ValueError(BAD), "failure": ToolFailed(BAD), "retry": ModelRetry(BAD), "value": [BAD],
    "content": ToolReturn[Any]("a value", content=BAD),
    "parts of content": ToolReturn[Any]("a value", content=[BAD, TextContent(BAD, metadata=7)]),
    "metadata": ToolReturn[Any]("a value", content=["as it is"], metadata={"note": BAD}),
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("name", FOREIGN)
async def test_what_plain_functions_say_is_unicode_in_the_history(name: str) -> None:
    """What they raise, return, and add for the model or the program."""
    result = await play(pipeline(Session()), called(Call("act")), tools=[_say(FOREIGN[name])])
    history = result.all_messages_json().decode()
    assert r"a smile: \\ud83d" in history
    assert ModelMessagesTypeAdapter.validate_json(history)
