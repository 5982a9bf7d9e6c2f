"""The local cluster's span receiver forwards spans unchanged to a collector of the user."""

from pathlib import Path
from typing import Literal

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from builders.net.certificates import Authority
from builders.telemetry.collector import collecting
from muster.localcluster.trace_forwarder import Forwarder
from muster.telemetry.otlp import Target, read_otlp

Protocol = Literal["grpc", "http/protobuf"]
both_protocols = pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
REQUEST = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=[Span(name="gang")])])])


def target(endpoint: str, protocol: Protocol, **more: str) -> Target:
    settings = read_otlp({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, **more})
    assert settings is not None
    return settings.target


@both_protocols
async def test_spans_are_forwarded_with_the_users_headers(protocol: Protocol) -> None:
    lines: list[str] = []
    async with collecting(protocol) as (collector, endpoint):
        forwarder = Forwarder(target(endpoint, protocol, OTEL_EXPORTER_OTLP_HEADERS="x-tenant=ml"), lines.append)
        forwarder.send(REQUEST)
        await forwarder.close()
    assert [span.name for span in collector.spans] == ["gang"]
    assert collector.headers[0]["x-tenant"] == "ml"
    assert lines == []


@both_protocols
async def test_mutual_tls_with_the_collector(protocol: Protocol, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.issue("client")
    async with collecting(protocol, authority.issue("collector")) as (collector, endpoint):
        files = {
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(client.ca_file),
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(client.certificate_file),
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(client.key_file),
        }
        forwarder = Forwarder(target(endpoint, protocol, **files), pytest.fail)
        forwarder.send(REQUEST)
        await forwarder.close()
    assert [span.name for span in collector.spans] == ["gang"]


@both_protocols
async def test_unreachable_collector_is_logged_once(protocol: Protocol) -> None:
    lines: list[str] = []
    async with collecting(protocol) as (_, endpoint):
        pass
    forwarder = Forwarder(target(endpoint, protocol, OTEL_EXPORTER_OTLP_TIMEOUT="2000"), lines.append)
    for _ in range(200):
        forwarder.send(REQUEST)
    await forwarder.close()
    [line] = lines
    assert endpoint.removeprefix("http://") in line
