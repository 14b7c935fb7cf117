"""The picture of a trace: an agent is run, and what the exporter has got is drawn.

A bar reaches from the start of a span to its end, in the order of all starts, events and ends: how long these took
differs from run to run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings

from handrail import ToolExecutor, store, tool
from handrail.adapters.pydantic_ai import HandrailCapability
from handrail.runtime import Session
from handrail.telemetry import instrument
from handrail.testing import Call, Reply, ScriptedModel

SHOWN = ("effect", "outcome", "ledger", "commit")
"""The attributes that are drawn."""


def run_agent() -> tuple[ReadableSpan, ...]:
    """The spans of an agent that looks an order up and pays two; the second payment gets no answer."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    client = provider.get_tracer("http")

    @tool(effect="read")
    def look_up(order: str) -> str:
        """Look an order up."""
        return f"{order} costs 900"

    @tool(effect="external")
    def pay(order: str) -> str:
        """Pay an order."""
        with client.start_as_current_span("POST /payments"):
            if order == "A-2":
                raise ConnectionError("the bank has not answered")
        return f"{order} is paid"

    replies = [
        Reply(calls=[Call("look_up", {"order": "A-1"}), Call("pay", {"order": "A-1"})]),
        Reply(calls=[Call("pay", {"order": "A-2"})]),
        Reply(text="A-1 is paid. Of A-2 it is unknown."),
    ]
    settings = InstrumentationSettings(tracer_provider=provider, include_content=False)
    disabled = logging.root.manager.disable
    logging.disable()  # the log has the traceback
    try:
        with (
            instrument(tracer_provider=provider),
            store.open("memory:") as opened,
            Session.open(opened, "monday") as session,
            ScriptedModel(replies) as model,
        ):
            desk = HandrailCapability(ToolExecutor([look_up, pay], session=session))
            asyncio.run(Agent(model, name="desk", capabilities=[desk, Instrumentation(settings)]).run("Pay."))
    finally:
        logging.disable(disabled)
    return exporter.get_finished_spans()


def ordered(spans: tuple[ReadableSpan, ...]) -> list[tuple[int, ReadableSpan]]:
    """The spans with their depths, each before those inside it, as they started."""
    by_start = sorted(spans, key=lambda span: span.start_time or 0)

    def below(parent: int | None, depth: int) -> Iterator[tuple[int, ReadableSpan]]:
        for span in by_start:
            if (span.parent.span_id if span.parent else None) == parent:
                yield depth, span
                yield from below(span.get_span_context().span_id, depth + 1)  # type: ignore[union-attr]

    return list(below(None, 0))


def places(spans: tuple[ReadableSpan, ...]) -> dict[int, int]:
    """The place of each moment among all of them."""
    ends = {moment for span in spans for moment in (span.start_time or 0, span.end_time or 0)}
    noted = {event.timestamp for span in spans for event in handrail_events(span)}
    return {moment: place for place, moment in enumerate(sorted(ends | noted))}


def handrail_events(span: ReadableSpan) -> list[Any]:
    """The events that Handrail has added."""
    return [event for event in span.events if event.name.startswith("handrail.")]


def described(span: ReadableSpan) -> str:
    """What Handrail has set on a span."""
    values = {name: (span.attributes or {}).get(f"handrail.{name}") for name in SHOWN}
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
