"""A small OTLP/HTTP receiver: takes what an exporter posts and keeps it, parsed."""

from __future__ import annotations

import gzip
import importlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TRACES, METRICS = "/v1/traces", "/v1/metrics"


class Receiver:
    """Listens on loopback while it is open; `status` is what it answers."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {TRACES: [], METRICS: []}
        self.headers: list[dict[str, str]] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.bodies[self.path].append(body)
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> dict[str, Any]:
        """Every span by its name."""
        found: dict[str, Any] = {}
        for body in self.bodies[TRACES]:
            request = message_of("trace", "ExportTraceServiceRequest").FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    found |= {span.name: span for span in scope.spans}
        return found

    def resource(self) -> dict[str, str]:
        """What all spans carry."""
        request = message_of("trace", "ExportTraceServiceRequest").FromString(self.bodies[TRACES][0])
        return {pair.key: pair.value.string_value for pair in request.resource_spans[0].resource.attributes}

    def metrics(self) -> dict[str, Any]:
        """Every metric by its name, the newest."""
        found: dict[str, Any] = {}
        for body in self.bodies[METRICS]:
            request = message_of("metrics", "ExportMetricsServiceRequest").FromString(body)
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    found |= {metric.name: metric for metric in scope.metrics}
        return found


def message_of(signal: str, name: str) -> Any:
    """A message of OTLP; the package comes with the exporter, which may be missing."""
    return getattr(importlib.import_module(f"opentelemetry.proto.collector.{signal}.v1.{signal}_service_pb2"), name)
