"""The standard health service, which says whether this server may be sent calls.

grpcio's own holds a lock while it writes to a watcher, so one that does not read stops everybody; this one does not.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

FULL_NAME: Final = "grpc.health.v1.Health"
LIVENESS: Final = "muster.liveness"
"""The name to ask for whether the process lives: SERVING as long as it answers at all, ready or not."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # grpcio-health-checking has no types
    """Health of the server as a whole (""), shared by every service of it."""

    def __init__(self) -> None:
        self._services = {"", LIVENESS}
        self._ready = False
        self._changed = asyncio.Event()

    def add(self, service: str) -> None:
        """Answer for this service, too; a full name like "muster.binding.v1.BindingService"."""
        self._services.add(service)
        self._tell()

    @property
    def ready(self) -> bool:
        """What is said now."""
        return self._ready

    def set_ready(self, ready: bool) -> None:
        """Say SERVING or NOT_SERVING from now on."""
        if ready != self._ready:
            self._ready = ready
            self._tell()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        """The state now; NOT_FOUND for services that are not here."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r:.100} here")
        return health_pb2.HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """The state now, then each change, until the watcher leaves."""
        told = None
        while True:
            changed, status = self._changed, self._status(request.service)
            if status != told:
                yield health_pb2.HealthCheckResponse(status=status)
                told = status
            await changed.wait()

    def _status(self, service: str) -> int:
        if service not in self._services:
            return int(_SERVICE_UNKNOWN)
        return int(_SERVING if self._ready or service == LIVENESS else _NOT_SERVING)

    def probes(self) -> grpc.GenericRpcHandler:
        """Only Check, for servers that anybody may ask: nobody can stay, so nobody can pile up."""
        check = grpc.unary_unary_rpc_method_handler(
            self.Check,
            request_deserializer=health_pb2.HealthCheckRequest.FromString,
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(FULL_NAME, {"Check": check})

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
