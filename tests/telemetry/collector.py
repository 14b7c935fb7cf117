"""A collector of OpenTelemetry on a free port: it parses what exporters send by the definitions of the protocol."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector:
    """What a collector has received; `url` is its address, without a path."""

    traces: list[ExportTraceServiceRequest] = field(default_factory=list[ExportTraceServiceRequest])
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list[ExportMetricsServiceRequest])
    url: str = ""

    def spans(self) -> list[tuple[Any, Any]]:
        """Each span, with the scope that it is of."""
        scopes = [scope for request in self.traces for one in request.resource_spans for scope in one.scope_spans]
        return [(scope, span) for scope in scopes for span in scope.spans]

    def points(self) -> dict[str, list[Any]]:
        """The points of each metric."""
        scopes = [scope for request in self.metrics for one in request.resource_metrics for scope in one.scope_metrics]
        return {
            metric.name: [*metric.histogram.data_points, *metric.sum.data_points]
            for scope in scopes
            for metric in scope.metrics
        }


@contextmanager
def collecting() -> Generator[Collector]:
    """A collector, while it serves."""
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                made.traces.append(ExportTraceServiceRequest.FromString(body))
            else:
                made.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
