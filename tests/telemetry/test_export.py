"""What a collector gets: spans and metrics over HTTP, as OpenTelemetry's exporters write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from handrail.runtime import ToolCall
from handrail.telemetry import SCHEMA_URL, instrument
from tests.kit import call, executor, tool
from tests.telemetry.collector import Collector, collecting


@pytest.fixture
def collector() -> Iterator[Collector]:
    """The collector while it serves."""
    with collecting() as made:
        yield made


def _values(items: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in items}


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip], ids=["plain", "gzip"])
def test_collector_gets_spans_and_metrics(collector: Collector, compression: Compression) -> None:
    """Parsed by the protocol's own definitions: types, events, status, scope, schema."""
    spans, reader = (
        TracerProvider(),
        PeriodicExportingMetricReader(
            OTLPMetricExporter(f"{collector.url}/v1/metrics", compression=compression), export_interval_millis=1e9
        ),
    )
    exporter = OTLPSpanExporter(f"{collector.url}/v1/traces", compression=compression)
    spans.add_span_processor(BatchSpanProcessor(exporter))
    meters = MeterProvider([reader])
    with instrument(tracer_provider=spans, meter_provider=meters):
        door = executor(tool("pay", effect="external"))
        door.execute(call("pay"))
        door.execute(ToolCall("call-2", "pay", "{"))
    spans.shutdown()
    meters.shutdown()
    (scope, paid), (_, refused) = collector.spans()
    assert (scope.scope.name, scope.schema_url) == ("handrail", SCHEMA_URL)
    assert (paid.name, paid.kind) == ("execute_tool pay", paid.SPAN_KIND_INTERNAL)
    values = _values(paid.attributes)
    assert (values["handrail.outcome"], values["handrail.attempt"]) == ("committed", 1)
    assert [event.name for event in paid.events] == ["handrail.claimed", "handrail.recorded", "handrail.committed"]
    assert _values(refused.attributes)["handrail.step"] == "parse"
    assert (paid.status.code, refused.status.code) == (paid.status.STATUS_CODE_UNSET,) * 2
    points = collector.points()["gen_ai.execute_tool.duration"]
    counted = {_values(point.attributes)["handrail.outcome"]: point.count for point in points}
    assert counted == {"committed": 1, "refused": 1}
    assert all(point.explicit_bounds[0] < 1 for point in points)
