"""Spans to an OpenTelemetry collector, where OTEL_EXPORTER_OTLP_ENDPOINT names one; imported only then.

Workers only write down what they know of a request; ids, times and attributes become spans here.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tokenpool_router.control.supervisor import Supervisor

log = logging.getLogger(__name__)

EXPORT_SECONDS: Final = 2.0
MOST_SPANS: Final = 2048


async def follow_spans(supervisor: Supervisor, exporter: SpanExporter | None = None) -> None:
    """Send on what the workers tell, until cancelled. A collector that is away loses spans, and nothing else."""
    exporter = exporter or OTLPSpanExporter()
    resource = Resource.create({"service.name": "tokenpool-router"})
    while True:
        await asyncio.sleep(EXPORT_SECONDS)
        spans = [span_of(told, resource) for told in supervisor.spans()[:MOST_SPANS]]
        if spans and await asyncio.to_thread(_export, exporter, spans) is not SpanExportResult.SUCCESS:
            log.warning("%d spans were not taken by the collector", len(spans))


def _export(exporter: SpanExporter, spans: Sequence[ReadableSpan]) -> SpanExportResult:
    return exporter.export(spans)


def span_of(told: dict[str, Any], resource: Resource) -> ReadableSpan:
    """One request as a server's span."""
    trace_id = int(told["trace_id"], 16)
    context = SpanContext(trace_id, int(told["span_id"], 16), False, TraceFlags(TraceFlags.SAMPLED))
    parent = None
    if told["parent_id"]:
        parent = SpanContext(trace_id, int(told["parent_id"], 16), True, TraceFlags(TraceFlags.SAMPLED))
    status = Status(StatusCode.ERROR, told["error"]) if told["error"] else Status(StatusCode.UNSET)
    return ReadableSpan(
        name=told["name"],
        context=context,
        parent=parent,
        resource=resource,
        attributes=told["attributes"],
        kind=SpanKind.SERVER,
        status=status,
        start_time=told["start"],
        end_time=told["end"],
    )
