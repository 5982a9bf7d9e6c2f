"""Channels to services: bounded reconnects, keepalive, mandatory deadlines, trace propagation."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from grpc import aio

from muster.config.settings import PLAIN_TEXT, TlsSettings
from muster.rpc import call_spans
from muster.rpc.call_spans import is_subscription
from muster.rpc.credentials import Certificates, Pem, channel_credentials
from muster.rpc.errors import MissingDeadline
from muster.rpc.rotating_channel import RotatingChannel
from muster.telemetry.metrics_enabled import metrics_enabled
from muster.telemetry.tracing import current_traceparent, to_traceparent

MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Maximum message size: a batch of 100,000 pods is smaller."""
PING_SECONDS: Final = 10
"""Keepalive interval of connections with open calls."""

_SILENCE_SECONDS = 5  # unacknowledged pings or data close the connection after this time
_CONNECT_SECONDS = 5
_FIRST_RECONNECT_SECONDS = 0.1
_LONGEST_RECONNECT_SECONDS = 1

CONNECTION_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.keepalive_time_ms", PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", _SILENCE_SECONDS * 1000),
    ("grpc.initial_reconnect_backoff_ms", int(_FIRST_RECONNECT_SECONDS * 1000)),
    ("grpc.max_reconnect_backoff_ms", _LONGEST_RECONNECT_SECONDS * 1000),
    ("grpc.min_reconnect_backoff_ms", _CONNECT_SECONDS * 1000),  # gRPC's name for the connect timeout
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
)
"""Keepalive and reconnect options."""

_MESSAGE_OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
)

_ALL_REPLICAS = msgspec.json.encode(
    {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}
).decode()


def open_channel(address: str, tls: TlsSettings = PLAIN_TEXT, server_name: str = "") -> aio.Channel:
    """A channel to "HOST:PORT", or round robin to the ready replicas of "dns:///NAME:PORT" or
    "ipv4:HOST:PORT,HOST:PORT".

    `server_name`: name that the server's certificate must contain, if not the host of the (first) address. The channel
    connects on the first call. Every call must have a deadline, except streams named Watch. When the files of `tls`
    change, later calls present the new certificate. Raises BadCertificates.
    """
    options = [*CONNECTION_OPTIONS, *_MESSAGE_OPTIONS]
    if address.startswith(("dns:", "ipv4:")):
        options.append(("grpc.service_config", _ALL_REPLICAS))
    interceptors: list[aio.ClientInterceptor] = [kind(address, _counting()) for kind in _KINDS]
    if address.startswith("ipv4:"):  # otherwise gRPC would look for the whole list in the certificate
        options.append(("grpc.default_authority", address.removeprefix("ipv4:").partition(",")[0]))
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    if tls.files is None:
        return aio.insecure_channel(address, options, interceptors=interceptors)

    def connect(pem: Pem) -> aio.Channel:
        return aio.secure_channel(address, channel_credentials(pem), options, interceptors=interceptors)

    return RotatingChannel(Certificates(tls.files), connect)


def _counting() -> Callable[[Any, aio.ClientCallDetails], None] | None:
    """The function that observes calls; None without metrics, so that the CLI need not load the metrics library."""
    if not metrics_enabled():
        return None
    from muster.rpc.call_metrics import count_call

    return count_call


def _method(details: aio.ClientCallDetails) -> str:
    """Raises MissingDeadline."""
    method = details.method.decode() if isinstance(details.method, bytes) else details.method
    if details.timeout is None and not is_subscription(method):
        raise MissingDeadline(method)
    return method


def _within(traceparent: str, details: aio.ClientCallDetails) -> aio.ClientCallDetails:
    """The call details with the traceparent added."""
    metadata = details.metadata
    if not traceparent or (metadata is not None and any(key == "traceparent" for key, _ in metadata)):
        return details
    with_trace = aio.Metadata(*(metadata or ()))
    with_trace.add("traceparent", traceparent)
    return aio.ClientCallDetails(
        details.method, details.timeout, with_trace, details.credentials, details.wait_for_ready
    )


_Continue = Callable[[aio.ClientCallDetails, Any], Awaitable[Any]]


class _Calls:
    """Common part of the interceptors for the four kinds of calls."""

    response_streaming = False

    def __init__(self, address: str, begun: Callable[[Any, aio.ClientCallDetails], None] | None) -> None:
        self._address, self._begun = address, begun

    async def _begin(self, continuation: _Continue, details: aio.ClientCallDetails, request: Any) -> Any:
        method = _method(details)
        span = None if self.response_streaming else call_spans.client_span(method, self._address)
        traceparent = current_traceparent() if span is None else to_traceparent(span.get_span_context())
        traced = _within(traceparent, details)
        call = await continuation(traced, request)
        end = (
            call_spans.stream_callback(method, self._address)
            if self.response_streaming
            else call_spans.end_callback(span)
        )
        if end is not None:
            call.add_done_callback(end)
        if self._begun is not None:
            self._begun(call, traced)
        return call


class _UnaryCalls(_Calls, aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, continuation: _Continue, details: aio.ClientCallDetails, request: Any) -> Any:
        return await self._begin(continuation, details, request)


class _StreamedAnswers(_Calls, aio.UnaryStreamClientInterceptor):
    response_streaming = True

    async def intercept_unary_stream(
        self, continuation: _Continue, details: aio.ClientCallDetails, request: Any
    ) -> Any:
        return await self._begin(continuation, details, request)


class _StreamedRequests(_Calls, aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(
        self, continuation: _Continue, details: aio.ClientCallDetails, requests: Any
    ) -> Any:
        return await self._begin(continuation, details, requests)


class _BothStreams(_Calls, aio.StreamStreamClientInterceptor):
    response_streaming = True

    async def intercept_stream_stream(
        self, continuation: _Continue, details: aio.ClientCallDetails, requests: Any
    ) -> Any:
        return await self._begin(continuation, details, requests)


_KINDS: Final = (_UnaryCalls, _StreamedAnswers, _StreamedRequests, _BothStreams)
