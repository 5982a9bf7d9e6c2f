"""The standard gRPC health service.

grpcio's implementation holds a lock while it writes to a watcher, so that a watcher that does not read blocks all
others; this one does not.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

FULL_NAME: Final = "grpc.health.v1.Health"
LIVENESS: Final = "muster.liveness"
"""Service name for liveness probes: SERVING as long as the process answers, ready or not."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # grpcio-health-checking has no types
    """Health of the server as a whole (""), shared by all its services."""

    def __init__(self) -> None:
        self._services = {"", LIVENESS}
        self._ready = False
        self._changed = asyncio.Event()

    def add(self, service: str) -> None:
        """Report health for a service, too; `service` is a full name like "muster.binding.v1.BindingService"."""
        self._services.add(service)
        self._notify()

    @property
    def ready(self) -> bool:
        """The present state."""
        return self._ready

    def set_ready(self, ready: bool) -> None:
        """Report SERVING or NOT_SERVING from now on."""
        if ready != self._ready:
            self._ready = ready
            self._notify()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """The present state; NOT_FOUND for unknown services."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r:.100} here")
        return health_pb2.HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """The present state, then each change, until the watcher cancels."""
        sent = None
        while True:
            changed, status = self._changed, self._status(request.service)
            if status != sent:
                yield health_pb2.HealthCheckResponse(status=status)
                sent = status
            await changed.wait()

    def _status(self, service: str) -> int:
        if service not in self._services:
            return int(_SERVICE_UNKNOWN)
        return int(_SERVING if self._ready or service == LIVENESS else _NOT_SERVING)

    def probes(self) -> grpc.GenericRpcHandler:
        """A handler with Check only, for servers without TLS: without streams, clients cannot pile up."""
        check = grpc.unary_unary_rpc_method_handler(
            self.Check,
            request_deserializer=health_pb2.HealthCheckRequest.FromString,
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(FULL_NAME, {"Check": check})

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
