"""What traces cost a call: beside the floor of `benchmarks.calls`, and beside the same call without them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider

from benchmarks.calls import ARGUMENTS, READ, WRITE, Found, Lookup
from benchmarks.timing import Block, Bound
from handrail import ToolExecutor
from handrail.prompt import Tool, ToolContext, ToolResult
from handrail.runtime import Session, ToolCall
from handrail.telemetry import instrument

MANY = 100
FLOOR = "floor of traces"
OFF = "not traced"
NO_SDK = "traced, without an SDK"
SDK = "traced, by an SDK without a processor"
BOUNDS = (
    Bound(OFF, FLOOR, 30.0, clock="processor"),
    Bound(NO_SDK, OFF, 1.5, clock="processor"),
    Bound(SDK, OFF, 3.0, clock="processor"),
)


def _find(params: Lookup, *, context: ToolContext) -> ToolResult[Found]:
    return ToolResult.ok(Found(params.entity_id, f"https://example.org/{params.entity_id}"))


def _block(call: Callable[[], object], tracing: Callable[[], AbstractContextManager[object]] = nullcontext) -> Block:
    """Many calls, traced or not: telemetry is of the process."""

    def run() -> None:
        with tracing():
            for _ in range(MANY):
                call()

    return Block(MANY, run)


def _floor() -> bytes:
    params = READ(ARGUMENTS, strict=True)
    return WRITE(Found(params.entity_id, f"https://example.org/{params.entity_id}"))


def cases() -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    tool = Tool[Lookup, Found](name="find", description="Finds.", handler=_find)
    executor, call, meters, provider = (
        ToolExecutor([tool], session=Session()),
        ToolCall("c", "find", ARGUMENTS),
        NoOpMeterProvider(),
        TracerProvider(),
    )

    def make() -> object:
        message = executor.execute(call)
        assert message.success, message.content
        return message

    return {
        FLOOR: _block(_floor),
        OFF: _block(make),
        NO_SDK: _block(make, lambda: instrument(tracer_provider=NoOpTracerProvider(), meter_provider=meters)),
        SDK: _block(make, lambda: instrument(tracer_provider=provider, meter_provider=meters)),
    }
