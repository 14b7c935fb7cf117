"""What becomes of a foreign tool's call: the table of `foreign.calls`, lost answers, toolsets that cannot be closed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp import MCPError
from pydantic_ai import RunUsage
from pydantic_ai.exceptions import ModelRetry, ToolFailed, UsageLimitExceeded
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import RunContext, Tool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from typing_extensions import override  # pydantic brings it; `typing` has it from Python 3.12 on

from handrail.adapters.pydantic_ai.foreign.calls import is_answer_lost
from handrail.errors import PromptEvaluationError, ToolValidationError, VisibilityExpansionRequired
from handrail.filesystem import Filesystem, HostFilesystem, InMemoryFilesystem
from handrail.runtime import Session, Step
from handrail.testing import Call, Outcome, Reply
from tests.adapters import mcp_desk
from tests.adapters.kit import call_by_hand, called, context, events, noted, outcomes, pipeline, play, returns, write
from tests.kit import raises, soon
from tests.wording import Wording

pytestmark = pytest.mark.anyio


def plain(text: str) -> str:
    """A plain function."""
    write(text)
    return f"plain {text}"


async def awaited(text: str) -> str:
    """An async function."""
    write(text)
    return f"awaited {text}"


TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "def": ({"tools": [plain]}, "plain"),
    "async def": ({"tools": [awaited]}, "awaited"),
    "Tool": ({"tools": [Tool(plain, name="noted")]}, "noted"),
    "toolset": ({"toolsets": [FunctionToolset([awaited], id="desk")]}, "awaited"),
    "prefixed toolset": ({"toolsets": [FunctionToolset([awaited]).prefixed("desk")]}, "desk_awaited"),
}


@pytest.mark.parametrize("agent, name", TOOLS.values(), ids=TOOLS)
async def test_a_success_is_committed_and_recorded_once(agent: dict[str, Any], name: str) -> None:
    """Whatever declares the tool: one transaction, one event with the right fields, and the answer as it is."""
    session = Session(session_id="s")
    script = called(Call(name, {"text": "milk"}), c1=Outcome.ok("milk"))
    await play(pipeline(session), script, **agent)
    (event,) = events(session)
    assert (event.call_id, event.name, event.success, event.refused_at) == ("c1", name, True, None)
    assert event.call.arguments == event.params == {"text": "milk"}
    assert event.result.value in {"plain milk", "awaited milk"}
    assert (event.session_id, event.effect_key, event.replayed) == ("s", None, False)
    assert event.handler_seconds is not None
    assert noted(session) == ["milk"]


RAISED: dict[str, Exception] = {
    "ToolFailed": ToolFailed("no paper"),
    "ToolValidationError": ToolValidationError("no such order"),
    "any other": KeyError("x"),
    "TimeoutError": TimeoutError(),
    "PermissionError": PermissionError("shut"),
}


@pytest.mark.parametrize("error", RAISED.values(), ids=RAISED)
async def test_a_failure_is_undone_told_and_spares_the_siblings(error: Exception, wording: Wording) -> None:
    """The run goes on without a retry, the model reads what was wrong, and the other calls of the reply stand."""

    def fail() -> str:
        write("half")
        raise error

    session = Session()
    milk = Call("plain", {"text": "milk"})
    script = called(milk, Call("fail"), milk, c1=Outcome.ok(), c2=Outcome.failed(), c3=Outcome.ok())
    result = await play(pipeline(session), script, tools=[plain, fail], retries=0)
    assert returns(result.all_messages())["c2"].content == wording
    assert outcomes(session) == [("c1", True, None), ("c2", False, Step.HANDLER), ("c3", True, None)]
    assert noted(session) == ["milk", "milk"]


async def test_a_retry_that_a_tool_asks_for_stays_a_retry() -> None:
    """The exception is PydanticAI's own again; the failed call is undone and recorded, and so is the next one."""
    views: list[str] = []

    def pick(text: str) -> str:
        write(text)
        views.append(text)
        if len(views) == 1:
            raise ModelRetry("pick another")
        return text

    session = Session()
    script = [Reply(calls=[Call("pick", {"text": "a"})]), Reply(calls=[Call("pick", {"text": "b"})]), Reply(text="b")]
    result = await play(pipeline(session), script, tools=[pick])
    assert returns(result.all_messages())["call-1"].outcome == "retried"
    assert [(event.success, event.result.message) for event in events(session)] == [(False, "pick another"), (True, "")]
    assert noted(session) == ["b"]


ENDS: dict[str, tuple[Exception, type[Exception], str]] = {
    "UsageLimitExceeded": (UsageLimitExceeded("too many"), PromptEvaluationError, "spend: too many"),
    "RunAbortedError": (VisibilityExpansionRequired("open it"), VisibilityExpansionRequired, "open it"),
}


@pytest.mark.requirement("A-28")
@pytest.mark.parametrize("error, kind, told", ENDS.values(), ids=ENDS)
async def test_what_ends_the_run_is_undone_recorded_and_raised(
    error: Exception, kind: type[Exception], told: str
) -> None:
    """No model can mend it."""

    def spend() -> str:
        write("half")
        raise error

    session = Session()
    with pytest.raises(kind, match=told) as failure:
        await play(pipeline(session), called(Call("spend")), tools=[spend])
    if isinstance(failure.value, PromptEvaluationError):
        assert (failure.value.phase, failure.value.tool) == ("budget", "spend")
    assert outcomes(session) == [("c1", False, Step.HANDLER)]
    assert noted(session) == []


def memory(path: Path) -> Filesystem:
    """Files in memory."""
    return InMemoryFilesystem({"note.txt": "before"})


def host(path: Path) -> Filesystem:
    """Files on disk."""
    (path / "note.txt").write_text("before")
    return HostFilesystem(path)


@pytest.mark.requirement("A-28")
@pytest.mark.parametrize("files", [memory, host])
async def test_files_are_put_back_when_the_function_raises(files: Callable[[Path], Filesystem], tmp_path: Path) -> None:
    """What a function writes through the filesystem of its call is part of the call."""
    store = files(tmp_path)

    def scribble(fail: bool) -> str:
        own = context().filesystem
        assert own is not None
        own.write_text("note.txt", f"fail={fail}")
        if fail:
            raise RuntimeError("no ink")
        return "written"

    session = Session()
    capability = pipeline(session, resources={Filesystem: store})
    script = called(Call("scribble", {"fail": False}), Call("scribble", {"fail": True}), c2=Outcome.failed("no ink"))
    await play(capability, script, tools=[scribble])
    assert store.read_text("note.txt") == "fail=False"


@pytest.mark.requirement("A-28")
async def test_a_run_cancelled_in_mid_call_leaves_nothing_half_done() -> None:
    """Session and files are as before, the call is recorded, and the session is free again."""
    started = asyncio.Event()
    store = InMemoryFilesystem({"note.txt": "before"})

    async def endless() -> str:
        write("half")
        store.write_text("note.txt", "half")
        started.set()
        await asyncio.Event().wait()
        return "never"

    session = Session()
    capability = pipeline(session, resources={Filesystem: store})
    run = asyncio.ensure_future(play(capability, called(Call("endless")), tools=[endless]))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert outcomes(session) == [("c1", False, Step.HANDLER)]
    assert (noted(session), store.read_text("note.txt")) == ([], "before")
    assert session.turn.queue == []


@pytest.mark.requirement("A-28")
async def test_a_deadline_that_passes_in_mid_call_ends_the_run_and_undoes_it(wording: Wording) -> None:
    """The function is cut off, and what it wrote is gone."""

    async def endless() -> str:
        write("half")
        await asyncio.Event().wait()
        return "never"

    session = Session()
    capability = pipeline(session, deadline=soon())
    with raises(PromptEvaluationError, wording) as failure:
        await call_by_hand(capability, FunctionToolset([endless]), "endless")
    assert (failure.value.phase, failure.value.tool) == ("tool", "endless")
    assert outcomes(session) == [("c1", False, Step.HANDLER)]
    assert noted(session) == []


CLOSED = MCPError(code=mcp_types.CONNECTION_CLOSED, message="Connection closed")
"""What the client finds when a server has gone."""


async def find_failure(name: str, behavior: Any) -> Exception:
    """What a tool of a server in another process fails with."""
    child = StdioTransport(sys.executable, [str(Path(mcp_desk.__file__))], keep_alive=False)
    # The server may take as long to start as the test may.
    toolset = MCPToolset[Any](child, id="desk", tool_error_behavior=behavior, init_timeout=None)
    ctx = RunContext[Any](deps=None, model=TestModel(), usage=RunUsage())
    async with toolset:
        tools = await toolset.get_tools(ctx)
        with pytest.raises((ModelRetry, ToolFailed, MCPError, ToolError)) as failed:
            await toolset.call_tool(name, {"text": "hello"}, ctx, tools[name])
    return failed.value


ENDED = [("die", "retry"), ("die", "failed"), ("die", "error"), ("break", "retry"), ("refuse", "retry")]


@pytest.mark.parametrize("name, behavior", ENDED)
@pytest.mark.short(2)
async def test_a_server_that_dies_in_a_call_leaves_open_whether_it_was_carried_out(name: str, behavior: Any) -> None:
    """However PydanticAI was told to raise it. An answer, also that the call was not taken, leaves nothing open."""
    assert is_answer_lost(await find_failure(name, behavior)) is (name == "die")


def _group(*errors: Exception) -> Exception:
    return ExceptionGroup("of the session", errors)


def _because(cause: BaseException) -> Exception:
    error = ModelRetry("try again")
    error.__cause__ = cause
    return error


FAILURES: dict[str, tuple[Exception, bool]] = {
    "closed": (CLOSED, True),
    "timed out": (MCPError(code=mcp_types.REQUEST_TIMEOUT, message="timed out"), True),
    "raised from it": (_because(CLOSED), True),
    "raised from that": (_because(_because(CLOSED)), True),
    "in a group": (_group(ValueError(), CLOSED), True),
    "raised from a group": (_because(_group(CLOSED)), True),
    "refused arguments": (MCPError(code=mcp_types.INVALID_PARAMS, message="Invalid params"), False),
    "an unknown tool": (MCPError(code=mcp_types.METHOD_NOT_FOUND, message="Method not found"), False),
    "no such page": (MCPError(code=mcp_types.METHOD_NOT_FOUND, message="Not Found"), True),
    "a fault of the server": (MCPError(code=mcp_types.INTERNAL_ERROR, message="Internal server error"), True),
    "an answer that is no JSON": (MCPError(code=mcp_types.PARSE_ERROR, message="Failed to parse"), True),
    "another page": (MCPError(code=mcp_types.INVALID_REQUEST, message="Unexpected content type: text/html"), True),
    "a code of its own": (MCPError(code=7, message="busy"), True),
    "the same words": (ModelRetry("Connection closed"), False),
    "a failed call": (ToolFailed("the desk is closed"), False),
    "a group of others": (_group(ValueError()), False),
}


@pytest.mark.parametrize("error, lost", FAILURES.values(), ids=FAILURES)
def test_only_two_codes_and_results_prove_that_nothing_was_done(error: Exception, *, lost: bool) -> None:
    """Every other JSON-RPC error may be the client's own, for an answer that it did not get."""
    assert is_answer_lost(error) is lost


@dataclass
class Connection(WrapperToolset[Any]):
    """Functions of a service, whose connection may be lost in a call, and may not be closed as it should."""

    loses: bool = False
    closes: bool = True

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        if not self.closes:
            raise OSError(f"{self.wrapped.id} cannot be closed")
        return None

    @override
    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {name: replace(tool, toolset=self) for name, tool in (await super().get_tools(ctx)).items()}

    @override
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if self.loses:
            raise OSError("the connection is lost")
        return await super().call_tool(name, tool_args, ctx, tool)


def fail(text: str) -> str:
    """Fail."""
    raise ValueError(text)


class Leaky(FunctionToolset[Any]):
    """Functions, and something that cannot be closed."""

    @override
    async def __aexit__(self, *args: object) -> bool | None:
        raise OSError("the functions cannot be closed")


BANK, MAIL = FunctionToolset([plain], id="bank"), FunctionToolset([awaited], id="mail")
CLOSED_WITH: dict[str, tuple[list[AbstractToolset[Any]], str | None]] = {
    "it has lost the answer": ([Connection(BANK, loses=True, closes=False), Connection(MAIL)], None),
    "no answer was lost": ([Connection(BANK, closes=False), Connection(MAIL)], "bank cannot be closed"),
    "another has lost one": ([Connection(BANK, loses=True), Connection(MAIL, closes=False)], "mail cannot be closed"),
    "a function has failed": ([Leaky([fail]), Connection(MAIL)], "the functions cannot be closed"),
}


@pytest.mark.parametrize("toolsets, words", CLOSED_WITH.values(), ids=CLOSED_WITH)
async def test_a_toolset_that_cannot_be_closed_is_an_error_unless_its_own_answer_was_lost(
    toolsets: list[AbstractToolset[Any]], words: str | None
) -> None:
    """Of a lost answer the model has read, and it is logged: see `test_mcp_toolset.py`; of nothing else."""
    first = "fail" if isinstance(toolsets[0], Leaky) else "plain"
    script = called(Call(first, {"text": "milk"}), Call("awaited", {"text": "milk"}))
    with nullcontext() if words is None else pytest.raises(OSError, match=words):
        await play(pipeline(Session()), script, toolsets=toolsets)
