"""gRPC server with health service, mutual TLS, allowed clients, and draining before it stops."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import grpc
import structlog
from grpc import aio
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from muster.config.settings import CannotStart, ServiceSettings, TlsSettings
from muster.rpc import health
from muster.rpc.authorization import AllowedClients
from muster.rpc.channel import MESSAGE_BYTES, PING_SECONDS
from muster.rpc.credentials import server_credentials
from muster.rpc.server_interceptor import ServerInterceptor

_log = structlog.get_logger()

_CONNECTION_SECONDS = 300  # then clients reconnect and so find new replicas; running calls finish
_HANDSHAKE_SECONDS = 10  # connections without a valid handshake are closed then

_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", PING_SECONDS * 1000 // 2),
    ("grpc.keepalive_time_ms", 2 * PING_SECONDS * 1000),
    ("grpc.keepalive_timeout_ms", PING_SECONDS * 1000),
    ("grpc.max_connection_age_ms", _CONNECTION_SECONDS * 1000),
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_SECONDS * 1000),
    ("grpc.so_reuseport", 0),  # otherwise two processes on one port would share the calls
)

_PROBE_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 1024),
    ("grpc.max_concurrent_streams", 16),
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_SECONDS * 1000),
    ("grpc.so_reuseport", 0),
)


class CannotListen(CannotStart):
    """The address is in use, or not an address of this machine."""


class ProbeServer:
    """Serves health checks without TLS, for Kubernetes' probes."""

    def __init__(self, listen: str, state: health.Health) -> None:
        self._listen, self._state = listen, state
        self._server: aio.Server | None = None

    async def start(self) -> int:
        """Listen. Returns the port. Raises CannotListen."""
        self._server = aio.server(options=_PROBE_OPTIONS)
        self._server.add_generic_rpc_handlers((self._state.probes(),))
        port = _bind(self._server, self._listen, None)
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Stop at once."""
        if self._server is not None:
            await self._server.stop(0)


class RpcServer:
    """Serves added services. Not ready until `set_ready(True)`."""

    def __init__(
        self,
        listen: str,
        tls: TlsSettings,
        service_name: str,
        *,
        clients: Sequence[str] = (),
        health_listen: str | None = None,
        reflects: bool = False,
    ) -> None:
        """`listen` is "HOST:PORT", port 0 for any free one; `service_name` is for logs.

        `clients`: DNS names, one of which a client's certificate must contain; without any, every certificate is
        accepted. `health_listen`: address for health probes without TLS.
        """
        self._listen, self._tls, self._name = listen, tls, service_name
        self._reflects = reflects
        self._allowed_clients = AllowedClients(clients)
        self._interceptor = ServerInterceptor(self._allowed_clients)
        self._server = aio.server(interceptors=[self._interceptor], options=_OPTIONS)
        self._health = health.Health()
        self._probes = ProbeServer(health_listen, self._health) if health_listen is not None else None
        self.health_port = 0
        """Port of the health probes; 0 before the start, and without `health_listen`."""
        self._full_names = [health.FULL_NAME, reflection.SERVICE_NAME]
        self._stopped = False
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)

    @classmethod
    def from_settings(cls, settings: ServiceSettings, service_name: str) -> Self:
        """A server with the settings of a service."""
        return cls(
            settings.listen,
            settings.tls,
            service_name,
            clients=settings.tls.clients,
            health_listen=settings.health_listen,
            reflects=settings.reflection,
        )

    def add(self, register: Callable[[Any, aio.Server], None], servicer: Any, full_name: str) -> None:
        """Add a service before the start: `add_<Service>Servicer_to_server`, the servicer, the name with package."""
        register(servicer, self._server)
        self._full_names.append(full_name)
        self._health.add(full_name)

    @property
    def ready(self) -> bool:
        """The state that the health service reports."""
        return self._health.ready

    def set_ready(self, ready: bool) -> None:
        """Report SERVING or NOT_SERVING for the server and all its services."""
        if ready != self._health.ready and not self._stopped:
            _log.info("server_ready" if ready else "server_not_ready", server=self._name)
            self._health.set_ready(ready)

    async def start(self) -> int:
        """Listen. Returns the port. Raises CannotListen and BadCertificates."""
        if self._reflects:
            reflection.enable_server_reflection(self._full_names, self._server)
        credentials = server_credentials(self._tls)
        port = _bind(self._server, self._listen, credentials)
        if self._probes is not None:
            self.health_port = await self._probes.start()
        await self._server.start()
        _log.info(
            "server_started",
            server=self._name,
            listen=self._listen,
            port=port,
            tls=credentials is not None,
            clients=list(self._allowed_clients.names),
            health_port=self.health_port or None,
        )
        return port

    async def stop(self, grace_seconds: float = 5) -> None:
        """Report NOT_SERVING, end subscriptions, let calls finish for up to `grace_seconds`, then stop."""
        self.set_ready(False)
        self._stopped = True
        self._interceptor.end_subscriptions()
        await self._server.stop(grace_seconds)
        if self._probes is not None:  # until here it reports NOT_SERVING
            await self._probes.stop()
        _log.info("server_stopped", server=self._name)


def _bind(server: aio.Server, listen: str, credentials: grpc.ServerCredentials | None) -> int:
    """Listen; returns the port. Raises CannotListen."""
    try:
        if credentials is None:
            return server.add_insecure_port(listen)
        return server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise CannotListen(f"cannot listen on {listen!r}: {error}") from error
