"""Spans to an OpenTelemetry collector, where OTEL_EXPORTER_OTLP_ENDPOINT names one; imported only then.

Workers only write down what they know of a request; ids, times and attributes become spans here. Whatever goes wrong
here costs spans, and nothing else.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

log = logging.getLogger(__name__)

Told = dict[str, Any]
EXPORT_SECONDS: Final = 2.0
MOST_SPANS: Final = 2048
LAST_EXPORT_SECONDS: Final = 2.0


async def follow_spans(take: Callable[[], Sequence[Told]], exporter: SpanExporter | None = None) -> None:
    """Send on what was told since it was asked last, until cancelled, and then the rest if that goes quickly."""
    exporter = exporter or OTLPSpanExporter()
    resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "tokenpool-router")})
    try:
        while True:
            await asyncio.sleep(EXPORT_SECONDS)
            await _send(take(), exporter, resource)
    finally:
        try:
            async with asyncio.timeout(LAST_EXPORT_SECONDS):
                await _send(take(), exporter, resource)
        except TimeoutError:
            log.warning("the last spans were not taken by the collector in time")
        # Or a thread would go on trying for a collector that is away, and keep the process.
        exporter.shutdown()


async def _send(told: Sequence[Told], exporter: SpanExporter, resource: Resource) -> None:
    if told:
        await asyncio.to_thread(_export, told[:MOST_SPANS], exporter, resource)


def _export(told: Sequence[Told], exporter: SpanExporter, resource: Resource) -> None:
    try:
        result = exporter.export([span_of(one, resource) for one in told])
    except Exception:
        # The exporter raises what its HTTP library does, such as for an endpoint that is no URL.
        log.exception("%d spans are lost", len(told))
        return
    if result is not SpanExportResult.SUCCESS:
        log.warning("%d spans were not taken by the collector", len(told))


def span_of(told: Told, resource: Resource) -> ReadableSpan:
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
