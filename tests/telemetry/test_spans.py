"""The span of a call: what is inside it, what stands on it, and what a failure of telemetry does: nothing."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from pydantic import SecretStr

from handrail import store as stores
from handrail import telemetry
from handrail.errors import EffectUncertain
from handrail.prompt import IdempotencyConfig, Tool, ToolContext, ToolResult
from handrail.redaction import MASK
from handrail.runtime import Session, ToolCall, ToolInvoked
from handrail.runtime.calls import CallPoint
from handrail.runtime.observation import CallEnd
from handrail.telemetry import SCHEMA_URL, instrument
from tests.architecture.sources import ROOT
from tests.kit import Note, Run, both_ways, call, executor, raises, tool
from tests.telemetry.kit import DURATION, UNKNOWN, Traces, attributes, ended, events, identity, own, parent
from tests.wording import Wording


def _work(traces: Traces) -> None:
    """What a library inside a handler does."""
    with traces.spans.get_tracer("library").start_as_current_span("work"):
        pass


def _handlers(traces: Traces) -> dict[str, Callable[..., Any]]:
    def plain(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        _work(traces)
        return ToolResult.ok(params)

    async def coroutine(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        await asyncio.ensure_future(asyncio.to_thread(_work, traces))
        return ToolResult.ok(params)

    return {"def": plain, "async def": coroutine}


@both_ways
@pytest.mark.parametrize("handler", ["def", "async def"])
@pytest.mark.parametrize("timeout", [None, timedelta(minutes=1)], ids=["unbounded", "bounded"])
def test_spans_of_a_handler_are_inside_that_of_its_call(
    traces: Traces, way: Run, handler: str, timeout: timedelta | None
) -> None:
    """On this thread, on a thread of its own, on the loop of the handlers, in tasks and threads that it starts."""
    way(executor(tool("pay", _handlers(traces)[handler], timeout=timeout)), call("pay"))
    work, own_span = traces.all()
    assert (own_span.name, own_span.kind, parent(own_span)) == ("execute_tool pay", trace.SpanKind.INTERNAL, None)
    assert parent(work) == identity(own_span)


def test_calls_side_by_side_have_spans_of_their_own(traces: Traces) -> None:
    """Each has the spans of its handler."""
    handlers = _handlers(traces).items()
    door = executor(*(tool(name.split()[0], handler, effect="read") for name, handler in handlers))
    door.execute_all([call(name, id=name) for name in ("def", "async", "def", "async")], reply="r")
    calls = {identity(span): span for span in traces.calls()}
    assert sorted(map(parent, traces.all()), key=str) == sorted([None] * 4 + [*calls], key=str)


@both_ways
def test_nested_call_is_inside_its_parent(traces: Traces, way: Run) -> None:
    """And what follows the calls is inside neither."""

    def nest(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        door.execute(call("inner", id="i"))
        _work(traces)
        return ToolResult.ok(params)

    door = executor(tool("outer", nest), tool("inner"))
    way(door, call("outer"))
    inner, work, outer = traces.all()
    assert parent(inner) == parent(work) == identity(outer)
    assert not trace.get_current_span().get_span_context().is_valid


def test_span_is_inside_that_of_the_program(traces: Traces) -> None:
    """Which gets nothing from the call: no entry point has said that it is one of a tool."""
    with traces.spans.get_tracer("program").start_as_current_span("request"):
        executor(tool("pay")).execute(call("pay"))
    own_span, request = traces.all()
    assert parent(own_span) == identity(request)
    assert (attributes(request), request.events) == ({}, ())


def test_names_are_those_of_the_page_and_have_the_version_of_the_conventions(traces: Traces) -> None:
    """The scope says which version of Handrail, and which of the conventions."""
    with instrument(content=True, **traces.options):
        executor(tool("pay", effect="external")).execute(call("pay"))
    span = traces.call()
    events = {event.name.removeprefix("handrail.") for event in span.events}
    assert {*attributes(span), "execute_tool NAME", *events} <= names_on_the_page()
    scope = span.instrumentation_scope
    assert scope is not None
    assert (scope.name, scope.schema_url) == ("handrail", SCHEMA_URL)
    assert attributes(span) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.name": "pay",
        "gen_ai.tool.call.id": "call-1",
        "gen_ai.tool.call.arguments": '{"text": "hello"}',
        "gen_ai.tool.call.result": "hello",
        "gen_ai.conversation.id": "s",
        "handrail.call": "s/call-1",
        "handrail.effect": "external",
        "handrail.outcome": "committed",
        "handrail.attempt": 1,
        "handrail.ledger": "done",
        "handrail.commit": "memory",
        "handrail.key": "call:call-1",
    }


# ------------------------------------------------------------------------------------------------ secrets and contents


@dataclass(frozen=True)
class Login:
    """Parameters with a secret."""

    account: str
    password: SecretStr


@dataclass(frozen=True)
class Ticket:
    """A result with a secret."""

    token: SecretStr


PLANTED = "argpw-11223", "result-44556", "account-7788", "key-9900"


def _log_in(params: Login, *, context: ToolContext) -> ToolResult[Ticket]:
    if params.account.endswith("!"):
        raise EffectUncertain(f"{params} with {params.password.get_secret_value()}")
    return ToolResult.ok(Ticket(SecretStr("result-44556")), "account-7788")


def _make_calls() -> None:
    key = IdempotencyConfig(strategy="custom", key_fn=lambda params: f"key-9900-{params.account}")
    entry = Tool[Login, Ticket](
        name="log_in", description="Logs in.", handler=_log_in, effect="external", idempotency=key
    )
    door = executor(entry)
    for name, account in (("log_in", "account-7788"), ("log_in", "account-7788!"), ("account-7788", "")):
        door.execute(ToolCall(account or "other", name, {"account": account, "password": "argpw-11223"}))
    door.execute(ToolCall("misfit", "log_in", {"account": "account-7788", "password": ["argpw-11223"]}))


def _everything(traces: Traces) -> str:
    spans = [span.to_json() for span in traces.all()]
    return "\n".join([*spans, *map(str, traces.points(DURATION)), *map(str, traces.points(UNKNOWN))])


def test_no_argument_result_key_or_text_of_an_exception_is_exported(traces: Traces) -> None:
    """Nor the name of a tool that does not exist, which the model has made up."""
    _make_calls()
    text = _everything(traces).replace('"gen_ai.tool.call.id": "account-7788', "").replace("account-7788!", "")
    assert [own(span)["outcome"] for span in traces.calls()] == ["committed", "unknown", "refused", "refused"]
    assert [secret for secret in PLANTED if secret in text.replace('"handrail.call": "s/account-7788', "")] == []


def test_contents_that_are_asked_for_have_no_secrets(traces: Traces) -> None:
    """Arguments as the model wrote them, results as it reads them, the key; with masks."""
    with instrument(content=True, **traces.options):
        _make_calls()
    text = _everything(traces)
    assert [secret for secret in PLANTED if secret in text] == ["account-7788", "key-9900"]
    first, failed, unknown, misfit = map(attributes, traces.calls())
    assert first["gen_ai.tool.call.arguments"] == f'{{"account": "account-7788", "password": "{MASK}"}}'
    assert MASK in failed["gen_ai.tool.call.result"]
    assert "account-7788" in unknown["gen_ai.tool.call.result"]
    assert MASK in misfit["gen_ai.tool.call.arguments"]


def test_contents_are_redacted_as_logs_are(traces: Traces) -> None:
    """What the environment or its form says is secret, which the model itself may read."""
    token, key = f"sk-{'a' * 20}", IdempotencyConfig(strategy="custom", key_fn=lambda params: params.text)
    with instrument(content=True, **traces.options):
        message = executor(tool("pay", effect="external", idempotency=key)).execute(call("pay", token))
    assert (message.content, token in _everything(traces)) == (token, False)
    values = attributes(traces.call())
    assert [values[name] for name in ("gen_ai.tool.call.result", "handrail.key")] == [MASK, f"session:{MASK}"]


def test_text_that_is_not_unicode_is_escaped(traces: Traces) -> None:
    """An exporter could not encode it, and would lose other spans with it."""
    with instrument(content=True, **traces.options):
        executor(tool("pay")).execute(ToolCall("\ud800", "pay", {"text": "\ud801"}))
    for value in attributes(traces.call()).values():
        assert str(value).encode()


# ---------------------------------------------------------------------------------------------------- on, off, failing


def test_nothing_is_traced_once_it_has_ended(traces: Traces) -> None:
    """By `close`, which may be called twice, or at the end of a block."""
    door = executor(tool("pay"))
    begun = instrument(**traces.options)
    begun.close()
    begun.close()
    door.execute(call("pay"))
    assert traces.all() == ()


def test_newest_instrumentation_is_the_only_one(traces: Traces) -> None:
    """The end of an earlier one changes nothing."""
    other = Traces()
    earlier = instrument(**traces.options)
    with instrument(**other.options):
        earlier.close()
        executor(tool("pay")).execute(call("pay"))
    assert (len(other.calls()), traces.calls()) == (1, [])


def test_call_that_is_not_sampled_begins_no_trace_inside(traces: Traces) -> None:
    """What its handler opens is not sampled either; the metrics count it."""
    unsampled = trace_provider_off()
    with instrument(**{**traces.options, "tracer_provider": unsampled}):
        executor(tool("pay", _handlers(traces)["def"])).execute(call("pay"))
    assert traces.all() == ()
    assert len(traces.points(DURATION)) == 1


def trace_provider_off() -> Any:
    """A provider that samples nothing."""
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - beside the other

    return TracerProvider(sampler=ALWAYS_OFF)


def test_without_an_sdk_calls_run_as_they_do() -> None:
    """The API makes spans that record nothing."""
    with telemetry.instrument():
        assert executor(tool("pay")).execute(call("pay")).success


class _Breaking(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if span.name.endswith("start"):
            raise LookupError("no room")

    def on_end(self, span: ReadableSpan) -> None:
        raise LookupError("no way out")


@both_ways
@pytest.mark.parametrize("name", ["start", "end"])
def test_processor_that_fails_fails_no_call(
    traces: Traces, way: Run, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the next call is traced."""
    traces.spans.add_span_processor(_Breaking())
    with caplog.at_level(logging.ERROR):
        assert way(executor(tool(name, effect="external")), call(name)).success
    assert [record.name for record in caplog.records] == ["handrail.telemetry"]
    assert not trace.get_current_span().get_span_context().is_valid


def test_meter_that_fails_leaves_the_span_whole(
    traces: Traces, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; how the call has ended is on its span."""

    def record(*_args: object) -> None:
        raise LookupError("no meter")

    monkeypatch.setattr("opentelemetry.sdk.metrics.Histogram.record", record)

    def fail(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        return ToolResult.error("no")

    executor(tool("pay", fail)).execute(call("pay"))
    assert ended(traces.call()) == ("rolled_back", "handler", "ERROR", "tool_error")
    assert [record.name for record in caplog.records] == ["handrail.telemetry"]


@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
def test_coroutine_that_is_closed_ends_its_span(traces: Traces, here: bool, caplog: pytest.LogCaptureFixture) -> None:
    """In its context the span before is the current one again; another one, as after its loop, has none to restore."""

    async def wait(params: Note, *, context: ToolContext) -> ToolResult[Note]:
        await asyncio.Event().wait()
        return ToolResult.ok(params)

    async def begin() -> Any:
        coroutine = executor(tool("wait", wait)).execute_async(call("wait"))
        coroutine.send(None)
        if here:
            coroutine.close()
            assert not trace.get_current_span().get_span_context().is_valid
        return coroutine

    asyncio.run(begin()).close()
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []
    assert (traces.call().status.status_code.name, events(traces.call())) == ("ERROR", ["rolled_back"])


def test_span_names_the_call_as_its_session_does(traces: Traces) -> None:
    """A search for it finds the spans of all attempts, in whatever process."""
    executor(tool("pay"), session=Session(session_id="monday")).execute(call("pay", id="a/b"), reply="reply-1")
    assert own(traces.call())["call"] == "monday/reply-1/a%2Fb"
    assert attributes(traces.call())["gen_ai.conversation.id"] == "monday"


def test_record_of_a_call_names_its_span(traces: Traces, tmp_path: Path) -> None:
    """A page of the session can lead to it; without traces there is no name."""
    with stores.open(f"sqlite:///{tmp_path / 'desk.db'}") as store, Session.open(store, "monday") as session:
        door = executor(tool("pay"), session=session)
        door.execute(call("pay", id="a"), reply="r")
        instrument(**traces.options).close()
        door.execute(call("pay", id="b"), reply="r")
        first, last = session[ToolInvoked].all()
    span = traces.call().get_span_context()
    assert span is not None
    assert first.trace == f"{span.trace_id:032x}-{span.span_id:016x}"
    assert last.trace is None


PAGE = ROOT / "docs" / "how-to" / "trace-calls.md"


def names_on_the_page() -> set[str]:
    """What stands as code on the page."""
    return {*re.findall(r"`([\w. ]+)`", PAGE.read_text(encoding="utf-8").rpartition("```")[2])}


def test_points_and_outcomes_are_on_the_page() -> None:
    """Each point of a call is an event."""
    text = PAGE.read_text(encoding="utf-8").rpartition("```")[2]
    assert {*get_args(CallPoint)} <= names_on_the_page()
    assert [end for end in get_args(CallEnd) if f"`{end}`" not in text] == []


def test_error_without_the_api_says_what_to_install(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    """Where the extra is not installed."""
    spec = importlib.util.find_spec("handrail.telemetry")
    assert spec is not None
    assert spec.loader is not None
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with raises(ImportError, wording):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
