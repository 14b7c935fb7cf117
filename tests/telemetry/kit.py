"""What the tests of telemetry stand on: providers in memory, and what calls have left in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

DURATION = "gen_ai.execute_tool.duration"
UNKNOWN = "handrail.effects.unknown"


@dataclass(frozen=True)
class Traces:
    """Providers of the SDK, and what they have got."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    spans: TracerProvider = field(default_factory=TracerProvider)

    def __post_init__(self) -> None:
        self.spans.add_span_processor(SimpleSpanProcessor(self.exporter))
        object.__setattr__(self, "meters", MeterProvider([self.reader]))

    meters: MeterProvider = field(init=False)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `instrument`."""
        return {"tracer_provider": self.spans, "meter_provider": self.meters}

    def all(self) -> tuple[ReadableSpan, ...]:
        """All spans that have ended, in that order."""
        return self.exporter.get_finished_spans()

    def calls(self) -> list[ReadableSpan]:
        """Those that count as calls of tools."""
        return [span for span in self.all() if attributes(span).get("gen_ai.operation.name") == "execute_tool"]

    def call(self) -> ReadableSpan:
        """The only one."""
        (span,) = self.calls()
        return span

    def points(self, metric: str) -> list[tuple[dict[str, Any], int]]:
        """What was measured: attributes, and how many calls have them."""
        data: Any = self.reader.get_metrics_data()
        resources: list[Any] = [] if data is None else data.resource_metrics
        metrics: list[Any] = [
            one for resource in resources for scope in resource.scope_metrics for one in scope.metrics
        ]
        points: list[Any] = [point for one in metrics if one.name == metric for point in one.data.data_points]
        return [(dict(point.attributes), point.count if metric == DURATION else point.value) for point in points]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of a span."""
    return dict(span.attributes or {})


def own(span: ReadableSpan) -> dict[str, Any]:
    """Those of Handrail, by their last part."""
    return {name[9:]: value for name, value in attributes(span).items() if name.startswith("handrail.")}


def events(span: ReadableSpan) -> list[str]:
    """The events of Handrail, by their last part."""
    return [event.name[9:] for event in span.events if event.name.startswith("handrail.")]


def ended(span: ReadableSpan) -> tuple[str, str | None, str, str | None]:
    """How a call has ended: outcome, step, status of the span, type of the error."""
    values = attributes(span)
    return (
        values["handrail.outcome"],
        values.get("handrail.step"),
        span.status.status_code.name,
        values.get("error.type"),
    )


def parent(span: ReadableSpan) -> int | None:
    """The id of the span that it is in."""
    return None if span.parent is None else span.parent.span_id


def identity(span: ReadableSpan) -> int:
    """The id of a span."""
    context = span.get_span_context()
    assert context is not None
    return context.span_id
